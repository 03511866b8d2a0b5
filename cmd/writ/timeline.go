package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"writ"
	render "writ/internal/prompt"
	"writ/internal/timeline"
	"writ/store"
	"writ/store/sqlite"
)

// blockRow is a block as the CLI prints it.
type blockRow struct {
	Seq      int64           `json:"seq"`
	Time     time.Time       `json:"time"`
	Turn     string          `json:"turn"`
	Kind     string          `json:"kind"`
	ActionID string          `json:"action_id,omitempty"`
	Key      string          `json:"key,omitempty"`
	Body     json.RawMessage `json:"body"`
}

func toBlockRow(b store.Block) blockRow {
	return blockRow{b.Seq, b.Time, b.Turn, b.Kind, b.ActionID, b.Key, b.Body}
}

type timelineFlags struct {
	data, round  string
	json, prompt bool
}

func (a *app) timelineCommand() *cobra.Command {
	var f timelineFlags
	cmd := &cobra.Command{
		Use:   "timeline show|export CONVERSATION",
		Short: "Read a conversation: its blocks, or the prompt of any round",
		Long: `show lists the blocks of a conversation, one a line; export writes them as JSON Lines, whole.
With --prompt, show prints the prompt of one model call as it was sent: the last one, or the one
that --round names. It is made again from the blocks and held against the hash of its record.

It works while another process holds the data directory, and changes nothing.`,
		Example: `  writ timeline show conv_ABC…
  writ timeline show conv_ABC… --prompt --round turn_DEF…/2/1
  writ timeline export conv_ABC… > conversation.jsonl`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return a.timeline(&f, args) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.BoolVar(&f.prompt, "prompt", false, "show: print a prompt instead of the blocks")
	fl.StringVar(&f.round, "round", "", "only this round, TURN/ROUND; with --prompt also TURN/ROUND/TRY, or TURN/ROUND/summary")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

func (a *app) timeline(f *timelineFlags, args []string) error {
	switch {
	case len(args) != 2 || args[0] != "show" && args[0] != "export":
		return usage("writ timeline: there is show CONVERSATION, and export CONVERSATION")
	case args[0] == "export" && f.prompt:
		return usage("writ timeline export: --prompt is for show")
	}
	st, err := sqlite.OpenReadOnly(a.ctx, dataDir(f.data))
	if err != nil {
		return refused("--data names the data directory of the runs", err)
	}
	defer st.Close()
	if _, err := st.Conversation(a.ctx, args[1]); errors.Is(err, store.ErrNotFound) {
		return refused("writ actions shows the conversations of its rows", fmt.Errorf("no conversation %s in %s", args[1], dataDir(f.data)))
	}
	blocks, err := st.Blocks(a.ctx, args[1], 0, 0)
	if err != nil {
		return refused("", err)
	}
	if f.prompt {
		return a.showPrompt(st, f, blocks)
	}
	if blocks, err = ofRound(blocks, f.round); err != nil {
		return err
	}
	switch {
	case args[0] == "export":
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		for _, b := range blocks {
			if err := enc.Encode(toBlockRow(b)); err != nil {
				return refused("", err)
			}
		}
		return nil
	case f.json:
		rows := make([]blockRow, len(blocks))
		for i, b := range blocks {
			rows[i] = toBlockRow(b)
		}
		return a.printJSON(rows)
	}
	return a.printBlocks(blocks)
}

// ofRound keeps the blocks of one round: those of its turn after the block of an earlier round, up to its own.
func ofRound(blocks []store.Block, round string) ([]store.Block, error) {
	if round == "" {
		return blocks, nil
	}
	turn, number, _ := strings.Cut(round, "/")
	n, err := strconv.Atoi(number)
	if err != nil || turn == "" || n < 1 {
		return nil, usage("--round %s: it is TURN/ROUND, as in turn_ABC/2", round)
	}
	var out []store.Block
	at := 1 // the round under way
	for _, b := range blocks {
		if b.Turn != turn {
			continue
		}
		at = max(at, blockRound(b))
		if at == n {
			out = append(out, b)
		}
		if b.Kind == timeline.KindRound {
			at++
		}
	}
	if len(out) == 0 {
		return nil, refused("writ timeline show CONVERSATION lists all blocks", fmt.Errorf("no block of round %s", round))
	}
	return out, nil
}

// blockRound is the round that a block names, or 0.
func blockRound(b store.Block) int {
	var v struct {
		Round int    `json:"round"`
		Call  string `json:"call"`
	}
	if json.Unmarshal(b.Body, &v) != nil {
		return 0
	}
	if b.Kind == timeline.KindRequest || b.Kind == timeline.KindCompactSummary {
		if parts := strings.Split(v.Call, "/"); len(parts) == 3 {
			n, _ := strconv.Atoi(parts[1])
			return n
		}
	}
	return v.Round
}

func (a *app) printBlocks(blocks []store.Block) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEQ\tTIME\tTURN\tKIND\tWHAT")
	for _, b := range blocks {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", b.Seq, b.Time.Local().Format("2006-01-02 15:04:05"), b.Turn, b.Kind, oneLine(describe(b), 220))
	}
	return w.Flush()
}

// describe says what a block holds; a kind that this version does not know is shown as it is.
func describe(b store.Block) string {
	say := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	text := ""
	var err error
	switch b.Kind {
	case timeline.KindUser:
		text, err = tell(b, func(v timeline.User) string { return v.Text })
	case timeline.KindCall:
		text, err = tell(b, func(v timeline.Call) string { return say("%s %s %s", v.ToolCallID, v.Tool, v.Params) })
	case timeline.KindResult:
		text, err = tell(b, func(v timeline.Result) string {
			return strings.TrimRight(say("%s %s %s, %s %s %s", v.ToolCallID, v.Tool, v.State, count(render.Chars(v), "character"), v.Failure, v.Ref), " ")
		})
	case timeline.KindRound:
		text, err = tell(b, func(v timeline.Round) string {
			return say("round %d, try %d: %s, %s", v.Round, v.Attempt, count(len(v.Items), "action"), count(len(v.Notices), "notice"))
		})
	case timeline.KindAttempt:
		text, err = tell(b, func(v timeline.Attempt) string {
			return say("round %d, try %d: %s: %s", v.Round, v.Attempt, v.Code, v.Message)
		})
	case timeline.KindAnswer:
		text, err = tell(b, func(v timeline.Answer) string { return v.Text })
	case timeline.KindRequest:
		text, err = tell(b, describeRequest)
	case timeline.KindCompactResults:
		text, err = tell(b, func(v timeline.CompactResults) string {
			return say("%s by reference from here on (%s)", count(len(v.Results), "result"), v.Reason)
		})
	case timeline.KindCompactSummary:
		text, err = tell(b, func(v timeline.CompactSummary) string {
			return say("stands for %s, up to block %d (%s), about %d tokens before and %d after: %s", count(v.Rounds, "round"), v.UptoSeq, v.Reason, v.Before, v.After, v.Summary)
		})
	case timeline.KindCompactSkipped:
		text, err = tell(b, func(v timeline.CompactSkipped) string {
			return strings.TrimSuffix(say("the prompt of about %d tokens was left as it was: %s: %s", v.Tokens, v.Reason, v.Detail), ": ")
		})
	case timeline.KindNotice:
		text, err = tell(b, func(v timeline.Notice) string { return v.Code + ": " + v.Message })
	case timeline.KindPlan:
		text, err = tell(b, func(v timeline.Plan) string { return say("plan %s, %s", v.ID, count(len(v.Steps), "step")) })
	case timeline.KindHide:
		text, err = tell(b, func(v timeline.Hide) string { return v.ToolCallID + ": " + v.Replacement })
	case timeline.KindTurnEnd:
		text, err = tell(b, func(v timeline.TurnEnd) string { return strings.TrimSpace(v.State + " " + v.Reason) })
	default:
		return string(b.Body)
	}
	if err != nil {
		return string(b.Body)
	}
	return text
}

func tell[T any](b store.Block, fn func(T) string) (string, error) {
	v, err := timeline.Decode[T](b)
	if err != nil {
		return "", err
	}
	return fn(v), nil
}

func describeRequest(v timeline.Request) string {
	s := fmt.Sprintf("%s %s: %d tokens in, %d from the cache, %d into it, %d out; %d of %d bytes as before", v.Call, v.Model,
		v.Usage.Input, v.Usage.CacheRead, v.Usage.CacheWrite, v.Usage.Output, v.PrefixBytes, v.Bytes)
	switch {
	case v.Break != "" && v.Announced:
		s += "; the prefix changed: " + v.Reason
	case v.Break != "":
		s += "; the prefix broke at " + v.Break
	}
	return s
}

// oneLine makes text of anywhere safe to print on a line.
func oneLine(s string, most int) string {
	s = strings.Join(strings.Fields(harmless(s)), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

// harmless drops what could write over a terminal, and keeps lines.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// showPrompt makes the prompt of a call again.
func (a *app) showPrompt(st *sqlite.Store, f *timelineFlags, blocks []store.Block) error {
	at, calls := -1, []string{}
	for i, b := range blocks {
		if b.Kind != timeline.KindRequest {
			continue
		}
		rec, err := timeline.Decode[timeline.Request](b)
		if err != nil {
			return refused("", err)
		}
		calls = append(calls, rec.Call)
		decision := rec.Purpose == ""
		if rec.Call == f.round || decision && (f.round == "" || strings.HasPrefix(rec.Call, f.round+"/")) {
			at = i
		}
	}
	if at < 0 {
		if len(calls) == 0 {
			return refused("", errors.New("the conversation has no recorded model call"))
		}
		return refused("the calls are "+strings.Join(calls[max(len(calls)-10, 0):], ", "), fmt.Errorf("no recorded model call %s", f.round))
	}
	got, err := render.Replay(blocks[:at+1], func(digest string) ([]byte, error) { return st.Document(a.ctx, digest) })
	if err != nil {
		return refused("", err)
	}
	if f.json {
		return a.printJSON(promptJSON(got))
	}
	printPrompt(a.out, got)
	return nil
}

// Prompts as the CLI prints them in JSON.
type promptRow struct {
	Call     string          `json:"call"`
	Model    string          `json:"model"`
	Purpose  string          `json:"purpose,omitempty"`
	Verified bool            `json:"verified"` // it has the hash of the record
	Tail     bool            `json:"tail"`     // always false: ANNOUNCE is not stored
	System   string          `json:"system"`
	Tools    []promptTool    `json:"tools,omitempty"`
	Messages []promptMessage `json:"messages"`
}

type promptTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

type promptMessage struct {
	Role  writ.Role    `json:"role"`
	Parts []promptPart `json:"parts"`
}

type promptPart struct {
	Kind       writ.PartKind   `json:"kind"`
	Text       string          `json:"text,omitempty"`
	Data       []byte          `json:"data,omitempty"`
	MIME       string          `json:"mime,omitempty"`
	Opaque     json.RawMessage `json:"opaque,omitempty"`
	ID         string          `json:"id,omitempty"`
	Name       string          `json:"name,omitempty"`
	Args       json.RawMessage `json:"args,omitempty"`
	Content    []promptContent `json:"content,omitempty"`
	IsError    bool            `json:"is_error,omitempty"`
	CachePoint bool            `json:"cache_point,omitempty"`
}

type promptContent struct {
	Kind writ.ContentKind `json:"kind"`
	Text string           `json:"text,omitempty"`
	JSON json.RawMessage  `json:"json,omitempty"`
	Data []byte           `json:"data,omitempty"`
	MIME string           `json:"mime,omitempty"`
	Name string           `json:"name,omitempty"`
	URI  string           `json:"uri,omitempty"`
}

func promptJSON(p render.Replayed) promptRow {
	out := promptRow{Call: p.Record.Call, Model: p.Record.Model, Purpose: p.Record.Purpose, Verified: p.Same}
	for _, s := range p.Request.System {
		out.System += s.Text
	}
	for _, t := range p.Request.Tools {
		out.Tools = append(out.Tools, promptTool(t))
	}
	for _, m := range p.Request.Messages {
		row := promptMessage{Role: m.Role}
		for _, part := range m.Parts {
			pp := promptPart{Kind: part.Kind, Text: part.Text, Data: part.Data, MIME: part.MIME, Opaque: part.Opaque, ID: part.ID, Name: part.Name,
				Args: part.Args, IsError: part.IsError, CachePoint: part.Cache}
			for _, c := range part.Content {
				pp.Content = append(pp.Content, promptContent{c.Kind, c.Text, c.JSON, c.Data, c.MIME, c.Name, c.URI})
			}
			row.Parts = append(row.Parts, pp)
		}
		out.Messages = append(out.Messages, row)
	}
	return out
}

func printPrompt(w io.Writer, p render.Replayed) {
	put := func(format string, args ...any) {
		fmt.Fprintln(w, harmless(strings.TrimRight(fmt.Sprintf(format, args...), "\n")))
	}
	put("call %s, model %s", p.Record.Call, p.Record.Model)
	for _, s := range p.Request.System {
		put("== system\n%s\n-- cache point", s.Text)
	}
	for _, t := range p.Request.Tools {
		put("== tool %s\n%s\n%s", t.Name, t.Description, t.Schema)
	}
	for _, m := range p.Request.Messages {
		put("== %s", m.Role)
		for _, part := range m.Parts {
			printPart(put, part)
		}
	}
	if p.Record.Purpose == "" {
		put("== user\n(ANNOUNCE, the uncached tail, says what was true at that moment. It is stored nowhere and is not shown.)")
	}
	if !p.Same {
		put("\nwrit: this is not what was sent: its hash is not the record's. A version of writ that renders otherwise may have sent it.")
	}
}

func printPart(put func(string, ...any), p writ.Part) {
	switch p.Kind {
	case writ.PartToolUse:
		put("tool_use %s %s %s", p.ID, p.Name, p.Args)
	case writ.PartToolResult:
		put("tool_result %s error=%v", p.ID, p.IsError)
		for _, c := range p.Content {
			if c.Kind == writ.ContentBlob {
				put("(%s, %d bytes)", c.MIME, len(c.Data))
				continue
			}
			put("%s", strings.TrimSpace(strings.Join(slices.DeleteFunc([]string{c.Text, string(c.JSON), c.Name, c.URI}, func(s string) bool { return s == "" }), " ")))
		}
	case writ.PartThinking:
		put("thinking %s %s", p.Text, p.Opaque)
	case writ.PartBlob:
		put("(%s, %d bytes)", p.MIME, len(p.Data))
	default:
		put("%s", p.Text)
	}
	if p.Cache {
		put("-- cache point")
	}
}
