package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"writ"
	"writ/config"
	"writ/model/recorded"
	"writ/runtime"
	"writ/store"
)

// turnFlags are what run and chat share.
type turnFlags struct {
	config, agent, model, data, conversation, record string
	json, verbose, live                              bool
}

func (f *turnFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration: a YAML file or a directory of them")
	fl.StringVar(&f.agent, "agent", "", "agent id (default: the configuration's default_agent)")
	fl.StringVar(&f.model, "model", "", "recorded:FILE or PROVIDER/MODEL (default: the agent's model)")
	fl.BoolVar(&f.live, "live", false, "pick a provider by the keys in the environment, and say which")
	fl.StringVar(&f.record, "record", "", "write what the model streams to this file, as a recording, without keys and configured secrets")
	fl.StringVar(&f.data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.StringVar(&f.conversation, "conversation", "", "conversation to go on with (default: a new one)")
	fl.BoolVar(&f.json, "json", false, "print one event a line as JSON")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log what happens, with the tools' own stderr")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagDirname("data")
}

// session is everything a turn needs, open.
type session struct {
	engine *engine
	agent  *config.Agent
	conns  []runtime.Connection
	models *models
	first  runtime.Choice
	others []runtime.Choice
	asker  *asker // nil = nobody can answer a tool's question
	close  func() error
}

func (a *app) session(f *turnFlags) (*session, error) {
	cfg, err := a.load(f.config)
	if err != nil {
		return nil, err
	}
	agent, err := a.agent(cfg, f.agent)
	if err != nil {
		return nil, err
	}
	m := &models{cfg: cfg, made: map[string]writ.Model{}}
	if f.record != "" {
		if err := canRecord(f.record); err != nil {
			return nil, err
		}
		m.record = recorded.NewRecorder(agent.Dialect, nil)
		m.toolID = runtime.ToolIDs(agent)
	}
	first, others, err := a.choose(m, agent, f.model, f.live)
	if err != nil {
		return nil, err
	}
	log := logger(a.err, f.verbose)
	accepted, err := loadPins(f.config)
	if err != nil {
		return nil, refused("", err)
	}
	conns, closeConns, err := a.connections(agent, log)
	if err != nil {
		return nil, err
	}
	for i := range conns {
		conns[i].Pins = accepted[conns[i].Config.Alias]
	}
	e, err := a.open(a.ctx, dataDir(f.data), log)
	if err != nil {
		closeConns()
		return nil, err
	}
	return &session{engine: e, agent: agent, conns: conns, models: m, first: first, others: others, close: func() error {
		closeConns()
		m.close(log)
		if err := e.close(); err != nil {
			fmt.Fprintf(a.err, "writ: closing: %v\n", err)
		}
		return a.writeRecording(m, agent, f.record)
	}}, nil
}

func (s *session) turn(ctx context.Context, conversation, message string, sink runtime.Sink) (runtime.Outcome, error) {
	return s.engine.runtime.Run(ctx, s.input(conversation, message, sink))
}

func (s *session) input(conversation, message string, sink runtime.Sink) runtime.Input {
	return runtime.Input{Agent: s.agent, Connections: s.conns, Conversation: conversation, Message: message,
		Model:    func(context.Context) (writ.Model, string, error) { return s.first.Model, s.first.Name, nil },
		Fallback: s.others, Price: s.models.price, Ask: s.ask(), Sink: sink}
}

func (s *session) ask() func(context.Context, runtime.Question) (json.RawMessage, bool) {
	if s.asker == nil {
		return nil
	}
	return s.asker.ask
}

// canRecord refuses, before anything runs, a file that exists or cannot be made.
func canRecord(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return refused("choose another name", fmt.Errorf("--record %s: the file exists already", path))
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return refused("", fmt.Errorf("--record: %w", err))
	}
	return errors.Join(f.Close(), os.Remove(path+".new"))
}

// writeRecording writes --record's file, whole or not at all, readable by its owner.
func (a *app) writeRecording(m *models, agent *config.Agent, path string) error {
	if path == "" {
		return nil
	}
	secrets := m.keys
	for _, c := range agent.Connections {
		for _, s := range c.Secrets() {
			if v, err := s.Resolve(os.LookupEnv); err == nil {
				secrets = append(secrets, v)
			}
		}
	}
	b, err := m.record.Bytes(secrets...)
	if err != nil {
		return refused("", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600, and nobody's old file
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return refused("", fmt.Errorf("writing the recording: %w", err))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return refused("", fmt.Errorf("writing the recording: %w", err))
	}
	fmt.Fprintf(a.err, "writ: recorded to %s\n", path)
	return nil
}

func (a *app) runCommand() *cobra.Command {
	var f turnFlags
	cmd := &cobra.Command{
		Use:   "run -c FILE [flags] [MESSAGE]",
		Short: "Run one turn of an agent",
		Long: `Run one turn: the message goes to the agent, its actions are judged, recorded and run, and the
answer is printed. Without MESSAGE, or with "-", the message is read from standard input.

The answer goes to standard output, what happens meanwhile to standard error. With --json each
event is one line on standard output (docs/cli.md lists them). Ctrl-C ends the turn; every call
still gets its result. A second Ctrl-C ends the process at once.

A call that needs an approval is held, and the turn waits: then writ prints what to decide on and exits. writ approve
goes on with it.

Exit codes: 0 answered, 1 refused or invalid input, 2 usage, 3 ended without an answer, 4 waits for an approval,
130 interrupted.`,
		Example: `  writ run -c writ.yaml --model recorded:greeting.yaml "hello"
  echo "hello" | writ run -c writ.yaml --agent main --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.run(&f, args) },
	}
	f.add(cmd)
	return cmd
}

func (a *app) run(f *turnFlags, args []string) (err error) {
	message, err := a.message(args)
	if err != nil {
		return err
	}
	s, err := a.session(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if terminal(a.in) && !f.json {
		s.asker = newAsker(a.in, a.err)
	}
	if f.conversation != "" {
		if _, err := s.engine.store.Conversation(a.ctx, f.conversation); errors.Is(err, store.ErrNotFound) {
			fmt.Fprintf(a.err, "writ: %s is a new conversation\n", printable(f.conversation))
		}
	}
	sink := a.sink(f.json)
	out, err := s.turn(a.ctx, f.conversation, message, sink.event)
	sink.done()
	if err != nil {
		return a.turnError(err)
	}
	if !f.json && f.conversation == "" {
		fmt.Fprintf(a.err, "writ: conversation %s\n", out.Conversation)
	}
	if !f.json {
		a.printCost(s, out)
	}
	return a.exitFor(s, out, f)
}

// printCost tells what a turn used, where that is known.
func (a *app) printCost(s *session, out runtime.Outcome) {
	if out.Cost == 0 {
		return
	}
	u, at := out.Usage, ""
	if s.models.listed.Load() {
		at = " US dollars at the list prices of " + pricesAsOf
	}
	fmt.Fprintf(a.err, "writ: %d tokens in, %d from the cache, %d into it, %d out: %.4f%s\n", u.Input, u.CacheRead, u.CacheWrite, u.Output, out.Cost, at)
}

func (a *app) message(args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		return args[0], nil
	}
	if terminal(a.in) && len(args) == 0 {
		return "", usage("no message: give it as an argument, or on standard input")
	}
	b, err := readAll(a.in, "", runtime.MaxMessage)
	if err != nil {
		return "", refused("", fmt.Errorf("reading the message: %w", err))
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// terminal reports whether a person types there.
func terminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func (a *app) turnError(err error) error {
	switch {
	case a.ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: err}
	case errors.Is(err, runtime.ErrOtherAgent):
		return refused("start a new conversation, or name its agent with --agent", err)
	case errors.Is(err, store.ErrConflict):
		return refused("another run has taken the conversation over", err)
	}
	return refused("", err)
}

func (a *app) exitFor(s *session, out runtime.Outcome, f *turnFlags) error {
	switch out.State {
	case store.TurnParked:
		if !f.json {
			a.printParked(a.ctx, s, out, f.config)
		}
		return &exitError{code: exitWaiting}
	case store.TurnAnswered:
		return nil
	case store.TurnInterrupted:
		return &exitError{code: exitInterrupted}
	}
	return &exitError{code: exitNoAnswer, err: fmt.Errorf("the turn ended without an answer: %s", out.Reason)}
}

func (a *app) chatCommand() *cobra.Command {
	var f turnFlags
	cmd := &cobra.Command{
		Use:   "chat -c FILE [flags]",
		Short: "Talk with an agent in the terminal",
		Long: `Talk with an agent: each line is a turn of one conversation, whose history is kept in the data
directory. --conversation goes on with an earlier one. Ctrl-D or an empty line twice ends the chat;
Ctrl-C ends it too, after the running turn has given each of its calls a result. A call that needs an
approval is asked for here; what is left for later waits for writ approve.`,
		Example: `  writ chat -c writ.yaml --model recorded:talk.yaml`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.chat(&f) },
	}
	f.add(cmd)
	return cmd
}

func (a *app) chat(f *turnFlags) (err error) {
	s, err := a.session(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	conversation := f.conversation
	if conversation == "" {
		conversation = newConversationID()
	}
	fmt.Fprintf(a.err, "agent %s, conversation %s; Ctrl-D ends\n", s.agent.ID, conversation)
	s.asker = newAsker(a.in, a.err)
	for blank := 0; blank < 2; {
		fmt.Fprint(a.err, "> ")
		text, ok := s.asker.line(a.ctx)
		if a.ctx.Err() != nil {
			return &exitError{code: exitInterrupted}
		}
		if !ok {
			fmt.Fprintln(a.err)
			break
		}
		line := strings.TrimSpace(text)
		if line == "" {
			blank++
			continue
		}
		blank = 0
		sink := a.sink(f.json)
		out, err := s.turn(a.ctx, conversation, line, sink.event)
		for err == nil && out.State == store.TurnParked {
			sink.done()
			decided, aerr := a.askApprovals(s, out)
			if aerr != nil {
				return aerr
			}
			if !decided {
				break
			}
			out, err = s.engine.runtime.Resume(a.ctx, s.input(conversation, "", sink.event))
		}
		sink.done()
		if err != nil {
			return a.turnError(err)
		}
		switch out.State {
		case store.TurnParked:
		case store.TurnAnswered:
		case store.TurnInterrupted:
			return &exitError{code: exitInterrupted}
		default:
			fmt.Fprintf(a.err, "(no answer: %s)\n", out.Reason)
		}
	}
	if err := s.asker.err; err != nil {
		return refused("", fmt.Errorf("reading a line: %w", err))
	}
	return nil
}

// view shows a turn's events.
type view interface {
	event(runtime.Event)
	done()
}

func (a *app) sink(asJSON bool) view {
	if asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return jsonView{enc}
	}
	return &textView{out: a.out, err: a.err, line: true}
}

type jsonView struct{ enc *json.Encoder }

func (v jsonView) event(e runtime.Event) { _ = v.enc.Encode(e) } // a closed pipe must not stop the turn
func (v jsonView) done()                 {}

// textView streams the answer to out and tells on err what happens meanwhile.
type textView struct {
	out, err io.Writer
	line     bool            // out stands at the beginning of a line
	streamed string          // answer text of this round
	printed  string          // the last answer that was shown whole
	notes    strings.Builder // an action's notes, until they are whole
}

func (v *textView) event(e runtime.Event) {
	if e.Type == runtime.EventNotesDelta {
		v.notes.WriteString(e.Text)
		return
	}
	if v.notes.Len() > 0 {
		v.note("  " + strings.Join(strings.Fields(v.notes.String()), " "))
		v.notes.Reset()
	}
	switch e.Type {
	case runtime.EventAnswerDelta:
		v.write(e.Text)
	case runtime.EventAnswerReset:
		if v.streamed != "" {
			v.note("(what was shown of an answer is taken back)")
		}
		v.streamed = ""
	case runtime.EventAnswer:
		// An answer that did not stream as shown is printed whole, once.
		if text := strings.TrimSpace(e.Text); text != strings.TrimSpace(v.streamed) && text != strings.TrimSpace(v.printed) {
			v.note("")
			v.write(e.Text)
		}
		v.printed = e.Text
	case runtime.EventRoundStarted:
		v.note("")
		v.streamed = ""
	default:
		if s := eventLine(e); s != "" {
			v.note(s)
		}
	}
}

// eventLine is what a person reads of an event; "" for those that say nothing on their own.
func eventLine(e runtime.Event) string {
	subject := e.Tool
	if subject == "" {
		subject = e.Action
	}
	switch e.Type {
	case runtime.EventAccepted:
		if e.Claimed {
			return fmt.Sprintf("= %s is what an earlier try of the round has started; it is not started again", subject)
		}
	case runtime.EventRefused:
		return fmt.Sprintf("✗ %s refused: %s (%s)", subject, e.Code, e.Code.Meaning())
	case runtime.EventRetracted:
		return fmt.Sprintf("✗ %s retracted: %s (%s)", subject, e.Code, e.Code.Meaning())
	case runtime.EventHeld:
		return fmt.Sprintf("‖ %s waits for an approval (%s)", subject, e.ActionID)
	case runtime.EventDispatched:
		if e.Early {
			return fmt.Sprintf("▸ %s started while the model still writes (%s)", subject, e.ActionID)
		}
		return fmt.Sprintf("▸ %s (%s)", subject, e.ActionID)
	case runtime.EventProgress:
		s := fmt.Sprintf("… %s %v", subject, e.Done)
		if e.Total > 0 {
			s += fmt.Sprintf(" of %v", e.Total)
		}
		return strings.TrimSpace(s + " " + printable(strings.Join(strings.Fields(e.Text), " ")))
	case runtime.EventSettled:
		mark := map[writ.ActionState]string{writ.Succeeded: "✓", writ.Indeterminate: "?", writ.Withheld: "–"}[e.State]
		if mark == "" {
			mark = "✗"
		}
		s := fmt.Sprintf("%s %s %s", mark, subject, e.State)
		if e.State == writ.Indeterminate {
			s += ": it may have happened; writ does not repeat it by itself"
		}
		if e.Failure != "" {
			s += " (" + e.Failure + ")"
		}
		if e.Preview != "" {
			s += ": " + strings.Join(strings.Fields(e.Preview), " ")
		}
		return s
	case runtime.EventNotice:
		if e.Code == "tool_unavailable" {
			return fmt.Sprintf("! %s is not usable: %s", e.Tool, e.Text)
		}
		if e.Code == "tool_remark" {
			return fmt.Sprintf("! %s: %s", e.Tool, e.Text)
		}
		return "! " + e.Text
	}
	return ""
}

func (v *textView) write(s string) {
	s = printable(s)
	fmt.Fprint(v.out, s)
	v.streamed += s
	if s != "" {
		v.line = strings.HasSuffix(s, "\n")
	}
}

// note prints a line on err, after ending the line that out stands in.
func (v *textView) note(s string) {
	if !v.line {
		fmt.Fprintln(v.out)
		v.line = true
	}
	if s != "" {
		fmt.Fprintln(v.err, printable(s))
	}
}

func (v *textView) done() {
	if !v.line {
		fmt.Fprintln(v.out)
		v.line = true
	}
}
