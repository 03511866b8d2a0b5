package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/model/recorded"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

var update = flag.Bool("update", false, "rewrite what transcripts say comes out")

// A transcript says what the runtime does, as files: why it exists (the comment), the agent, what the person says, what
// the model streams, how the tools behave, and what comes out. -update rewrites only the want/ files.
type transcript struct {
	archive *txtar.Archive
	name    string
	config  *config.Config      // parsed once, for transcripts that run many times; nil = parse
	model   *recorded.Recording // likewise
}

func loadTranscript(t *testing.T, path string) transcript {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes.TrimSpace(a.Comment)) < 20 {
		t.Fatalf("%s does not say why it exists", path)
	}
	return transcript{archive: a, name: path}
}

// parsed reads the configuration and the recording.
func (tr transcript) parsed(t failer, dir string) transcript {
	t.Helper()
	cfg, report := config.Parse("agent.yaml", tr.file("agent.yaml"), dir)
	if !report.OK() {
		t.Fatal(report.Err())
	}
	rec, err := recorded.Parse("model", tr.file("model"))
	if err != nil {
		t.Fatal(err)
	}
	tr.config, tr.model = cfg, rec
	return tr
}

func (tr transcript) file(name string) []byte {
	for _, f := range tr.archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

func (tr transcript) users() []string {
	if u := tr.file("user"); u != nil {
		return []string{strings.TrimSpace(string(u))}
	}
	var out []string
	for i := 1; ; i++ {
		u := tr.file(fmt.Sprint("user/", i))
		if u == nil {
			return out
		}
		out = append(out, strings.TrimSpace(string(u)))
	}
}

// script is how the tools of one alias behave.
type script map[string]toolScript

type toolScript struct {
	Schema   map[string]any `yaml:"schema"`
	Strategy []string       `yaml:"strategy"` // what the tool declares of itself
	Early    bool           `yaml:"early"`
	Code     string         `yaml:"code"`
	Effect   string         `yaml:"effect"`
	Writes   []string       `yaml:"writes"`
	Reads    []string       `yaml:"reads"`
	Outcomes []toolOutcome  `yaml:"outcomes"` // consumed one a call; the last repeats
}

type toolOutcome struct {
	Text       string `yaml:"text"`
	Times      int    `yaml:"times"` // repeat the text
	JSON       any    `yaml:"json"`
	Error      string `yaml:"error"`
	Unknown    string `yaml:"unknown"`
	NotStarted string `yaml:"not_started"`
	Panic      string `yaml:"panic"`
	Hang       bool   `yaml:"hang"`
	Interrupt  bool   `yaml:"interrupt"` // the person stops the turn while the tool runs
}

// scripted is a tool connection that does what its script says and counts: the counter is the truth.
type scripted struct {
	tools     script
	interrupt func()
	granted   func(actionID string) // fails the test when the action has no durable grant

	mu    sync.Mutex
	used  map[string]int
	calls []string
	keys  []string
}

func (s *scripted) Tools(context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	var out []writ.ToolSpec
	for name, t := range s.tools {
		spec := writ.ToolSpec{Name: name, Description: "Scripted " + name + ".", CodeParam: t.Code, Paths: writ.ToolPaths{Writes: t.Writes, Reads: t.Reads}}
		if t.Schema != nil {
			spec.Schema, _ = json.Marshal(t.Schema)
		}
		if len(t.Strategy) > 0 {
			var st writ.Strategy
			for _, n := range t.Strategy {
				one, ok := writ.ParseStrategy(n)
				if !ok {
					return nil, nil, fmt.Errorf("strategy %q", n)
				}
				st |= one
			}
			spec.Declared = &writ.DeclaredTraits{Strategy: &st}
			if t.Early {
				e := writ.EarlyProfile
				spec.Declared.Execution = &e
			}
		}
		out = append(out, spec)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil, nil
}

func (s *scripted) effects() map[string]writ.Effect {
	out := map[string]writ.Effect{}
	for name, t := range s.tools {
		out[name], _ = writ.ParseEffect(t.Effect)
	}
	return out
}

func (s *scripted) Call(ctx context.Context, c writ.Call) (writ.Result, error) {
	s.granted(c.ActionID)
	s.mu.Lock()
	s.calls = append(s.calls, c.Tool+" "+string(c.Params))
	s.keys = append(s.keys, c.IdempotencyKey)
	n := s.used[c.Tool]
	s.used[c.Tool]++
	s.mu.Unlock()
	list := s.tools[c.Tool].Outcomes
	if len(list) == 0 {
		return writ.TextResult("ok"), nil
	}
	o := list[min(n, len(list)-1)]
	switch {
	case o.Error != "":
		return writ.ErrorResult("%s", o.Error), nil
	case o.Unknown != "":
		return writ.Result{}, errors.New(o.Unknown)
	case o.NotStarted != "":
		return writ.Result{}, fmt.Errorf("%s: %w", o.NotStarted, writ.ErrNotStarted)
	case o.Panic != "":
		panic(o.Panic)
	case o.Hang:
		<-ctx.Done()
		return writ.Result{}, ctx.Err()
	case o.Interrupt:
		s.interrupt()
		<-ctx.Done()
		return writ.Result{}, ctx.Err()
	case o.JSON != nil:
		b, err := json.Marshal(o.JSON)
		return writ.Result{Content: []writ.Content{{Kind: writ.ContentJSON, JSON: b}}}, err
	}
	return writ.TextResult("%s", strings.Repeat(o.Text, max(o.Times, 1))), nil
}

func (s *scripted) Close() error { return nil }

// watched keeps the requests a model got.
type watched struct {
	writ.Model
	before   func() // what each generation waits for
	mu       sync.Mutex
	requests []*writ.ModelRequest
}

func (w *watched) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	w.mu.Lock()
	w.requests = append(w.requests, req)
	w.mu.Unlock()
	if w.before != nil {
		w.before()
	}
	return w.Model.Stream(ctx, req)
}

// failer is what a bench needs of a test, so that a property can be one.
type failer interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// bench is one transcript set up to run: real runtime, real store, scripted ends.
type bench struct {
	t     failer
	tr    transcript
	agent *config.Agent
	store store.Store
	dir   string
	tools map[string]*scripted
	model *watched
	// custom takes the place of every connection's tools; nil = the scripted ones.
	custom writ.Toolset
	// checked is the store under the faults, where a tool looks for its own grant; nil = store.
	checked store.Store

	mu     sync.Mutex
	told   *sync.Cond // an event came
	ids    map[string]int
	events []runtime.Event
	turns  int
	now    time.Time
}

func newBench(t *testing.T, tr transcript, st store.Store) *bench {
	t.Helper()
	return benchIn(t, tr, st, t.TempDir())
}

func benchIn(t failer, tr transcript, st store.Store, dir string) *bench {
	t.Helper()
	b := &bench{t: t, tr: tr, store: st, dir: dir, tools: map[string]*scripted{}, ids: map[string]int{},
		now: time.Date(2026, 7, 12, 9, 0, 0, 0, time.UTC)}
	if tr.config == nil {
		tr = tr.parsed(t, b.dir)
	}
	var err error
	if b.agent, err = tr.config.Agent(""); err != nil {
		t.Fatal(err)
	}
	for _, f := range tr.archive.Files {
		if alias, ok := strings.CutPrefix(f.Name, "tools/"); ok {
			s := &scripted{used: map[string]int{}, granted: b.granted}
			if err := yaml.UnmarshalWithOptions(f.Data, &s.tools, yaml.Strict()); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			b.tools[alias] = s
		}
	}
	b.model = &watched{Model: tr.model.Model(), before: b.dispatched}
	b.told = sync.NewCond(&b.mu)
	return b
}

// granted is the first invariant, seen from the effect: when it happens, its row says dispatched.
func (b *bench) granted(actionID string) {
	st := b.store
	if b.checked != nil {
		st = b.checked
	}
	row, err := st.Action(context.Background(), actionID)
	if err != nil || row.State != writ.Dispatched {
		b.t.Errorf("an effect without a durable grant: %s is %q (%v)", actionID, row.State, err)
	}
}

func (b *bench) newID(prefix string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids[prefix]++
	return fmt.Sprintf("%s%d", prefix, b.ids[prefix])
}

// dispatched waits until every early call that was admitted has been dispatched, so that a transcript of a retry has one
// outcome: whether a row that the retry finds has started already is otherwise a race.
func (b *bench) dispatched() {
	if b.checked != nil {
		return // writes fail: the event may never come
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		rows, err := b.store.Actions(context.Background(), store.ActionFilter{})
		if err != nil || !slices.ContainsFunc(rows, func(r store.Action) bool { return r.State == writ.Admitted }) {
			return
		}
		b.told.Wait()
	}
}

func (b *bench) runtime() *runtime.Runtime {
	b.t.Helper()
	rt, err := runtime.New(runtime.Config{Store: b.store, Key: []byte("0123456789abcdef"), Dir: b.dir, NewID: b.newID,
		Now: func() time.Time { return b.now }, Holder: "test", CallGrace: time.Second,
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
	if err != nil {
		b.t.Fatal(err)
	}
	return rt
}

func (b *bench) connections() []runtime.Connection {
	var out []runtime.Connection
	for _, c := range b.agent.Connections {
		if b.custom != nil {
			out = append(out, runtime.Connection{Config: c, Tools: b.custom})
		} else if s := b.tools[c.Alias]; s != nil {
			out = append(out, runtime.Connection{Config: c, Tools: s, Effects: s.effects()})
		}
	}
	return out
}

// say runs one turn.
func (b *bench) say(rt *runtime.Runtime, message string) (runtime.Outcome, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.turns++
	if wait := b.tr.file(fmt.Sprint("before/", b.turns)); wait != nil { // how long the person waits before this turn
		d, err := time.ParseDuration(strings.TrimSpace(string(wait)))
		if err != nil {
			b.t.Fatal(err)
		}
		b.now = b.now.Add(d)
	}
	for _, s := range b.tools {
		s.interrupt = cancel
	}
	in := b.input()
	in.Message = message
	if message == "" {
		return rt.Resume(ctx, in)
	}
	return rt.Run(ctx, in)
}

// step does what one line of a transcript's person says: a message, or an operation from outside the turn:
//
//	@approve TOOL, @decline TOOL   decide on the first held action of the tool
//	@resume                        go on with the parked turn
//	@resolve TOOL DISPOSITION NOTE resolve the first unknown outcome of the tool
//	@policy                        from now on the configuration is another one
//	@restart                       the process is restarted
func (b *bench) step(rt **runtime.Runtime, line string) (runtime.Outcome, error) {
	words := strings.Fields(line)
	if !strings.HasPrefix(line, "@") {
		return b.say(*rt, line)
	}
	ctx := context.Background()
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "@resume":
		return b.say(*rt, "")
	case "@approve", "@decline":
		list, err := b.store.Approvals(ctx, store.ApprovalFilter{States: []string{store.ApprovalPending}})
		for _, a := range list {
			if a.Tool == arg(1) {
				_, err = (*rt).Decide(ctx, admission.Verdict{Action: a.Action, Approve: words[0] == "@approve", By: admission.Actor{ID: "boss", Operator: true}})
				return runtime.Outcome{}, err
			}
		}
		return runtime.Outcome{}, errors.Join(err, fmt.Errorf("nothing of %s is held", arg(1)))
	case "@resolve":
		rows, err := b.store.Actions(ctx, store.ActionFilter{Tool: arg(1), Unresolved: true})
		if err != nil || len(rows) == 0 {
			return runtime.Outcome{}, errors.Join(err, fmt.Errorf("nothing of %s is unknown", arg(1)))
		}
		_, err = (*rt).Resolve(ctx, admission.Resolution{Action: rows[0].ID, Disposition: arg(2), Note: strings.Join(words[3:], " "), By: admission.Actor{ID: "boss", Operator: true}})
		return runtime.Outcome{}, err
	case "@policy":
		other := *b.agent
		other.Digest = strings.Repeat("f", len(other.Digest))
		b.agent = &other
		return runtime.Outcome{}, nil
	case "@restart":
		if err := (*rt).Close(); err != nil {
			return runtime.Outcome{}, err
		}
		*rt = b.runtime()
		_, err := (*rt).Recover(ctx)
		return runtime.Outcome{}, err
	}
	b.t.Fatalf("a transcript's person says %q", line)
	return runtime.Outcome{}, nil
}

func (b *bench) input() runtime.Input {
	return runtime.Input{Agent: b.agent, Connections: b.connections(), Conversation: "conv",
		Model: func(context.Context) (writ.Model, string, error) { return b.model, "recorded", nil },
		Sink: func(e runtime.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, e)
			b.told.Broadcast()
		}}
}

// checkChain holds for every transcript: the history's chain verifies, and it agrees with the ledger.
func (b *bench) checkChain() {
	b.t.Helper()
	v, err := admission.Verify(context.Background(), b.store, "")
	if err != nil || len(v.Findings) > 0 {
		b.t.Errorf("the history does not verify: %+v, %v", v.Findings, err)
	}
}

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			t.Parallel()
			tr := loadTranscript(t, f)
			b := newBench(t, tr, memory.Open())
			rt := b.runtime()
			var outcomes []string
			for _, u := range tr.users() {
				out, err := b.step(&rt, u)
				if err != nil {
					t.Fatalf("%s: %v", u, err)
				}
				if out.State != "" {
					outcomes = append(outcomes, outcomeText(out))
				}
			}
			if err := rt.Close(); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{"want/outcome": strings.Join(outcomes, ""), "want/ledger": b.ledgerText(), "want/calls": b.callsText(),
				"want/events": b.eventsText(), "want/prompt": b.promptText()}
			b.checkHistory()
			b.checkChain()
			b.checkReplay(1)
			compareTranscript(t, tr, f, got)
		})
	}
}

func compareTranscript(t *testing.T, tr transcript, path string, got map[string]string) {
	t.Helper()
	if *update {
		a := &txtar.Archive{Comment: tr.archive.Comment}
		for _, f := range tr.archive.Files {
			if !strings.HasPrefix(f.Name, "want/") {
				a.Files = append(a.Files, f)
			}
		}
		for _, name := range slices.Sorted(mapKeys(got)) {
			if got[name] != "" {
				a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(got[name])})
			}
		}
		if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, g := range got {
		if d := cmp.Diff(string(tr.file(name)), g); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func mapKeys[V any](m map[string]V) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func outcomeText(o runtime.Outcome) string {
	s := o.State
	if o.Reason != "" {
		s += ": " + o.Reason
	}
	if o.Answer != "" {
		s += "\n" + strings.TrimSpace(o.Answer)
	}
	return s + "\n"
}

func (b *bench) ledgerText() string {
	rows, err := b.store.Actions(context.Background(), store.ActionFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&out, "%s %s round=%d attempt=%d index=%d %s", r.ID, r.Tool, r.Round, r.Attempt, r.Index, r.State)
		if r.Failure != "" {
			fmt.Fprintf(&out, " (%s)", r.Failure)
		}
		if r.Early {
			out.WriteString(" early")
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func (b *bench) callsText() string {
	var out strings.Builder
	for _, alias := range slices.Sorted(mapKeys(b.tools)) {
		calls := slices.Clone(b.tools[alias].calls)
		sort.Strings(calls) // calls that may run together have no order
		for _, c := range calls {
			fmt.Fprintf(&out, "%s.%s\n", alias, c)
		}
	}
	return out.String()
}

// eventsText leaves out what may come at any moment: the ledger tells of it.
func (b *bench) eventsText() string {
	var out strings.Builder
	var last runtime.Event
	flush := func() {
		if last.Text != "" {
			fmt.Fprintf(&out, "%s %q\n", last.Type, last.Text)
		}
		last = runtime.Event{}
	}
	for _, e := range b.events {
		switch e.Type {
		case runtime.EventUsage, runtime.EventDispatched, runtime.EventSettled, runtime.EventTurnStarted, runtime.EventHeld:
			continue
		case runtime.EventThinkingDelta, runtime.EventNotesDelta, runtime.EventAnswerDelta:
			if last.Type == e.Type && (last.Index == nil) == (e.Index == nil) && (e.Index == nil || *e.Index == *last.Index) {
				last.Text += e.Text
				continue
			}
			flush()
			last = e
			continue
		}
		flush()
		fmt.Fprintf(&out, "%s", e.Type)
		if e.Index != nil {
			fmt.Fprintf(&out, " %d", *e.Index)
		}
		for _, s := range []string{e.Action, e.Tool, string(e.Code), e.TurnState} {
			if s != "" {
				out.WriteString(" " + s)
			}
		}
		if e.Type == runtime.EventRoundStarted {
			fmt.Fprintf(&out, " %d", e.Round)
		}
		if e.Claimed {
			out.WriteString(" claimed")
		}
		if e.Type == runtime.EventGenerationEnded {
			out.WriteString(strings.TrimRight(" "+e.Reason+" "+e.Prose, " "))
		}
		if e.Provisional {
			out.WriteString(" provisional")
		}
		if e.Text != "" {
			fmt.Fprintf(&out, " %q", e.Text)
		}
		out.WriteByte('\n')
	}
	flush()
	return out.String()
}

// started is how far an early call had come when the request was made, which is a race.
var started = regexp.MustCompile(`(?m)^(- tc_.*): (admitted|dispatched|succeeded|failed|indeterminate)$`)

// promptText is the last request without its system block: what the model read of the conversation.
func (b *bench) promptText() string {
	if len(b.model.requests) == 0 {
		return ""
	}
	req := b.model.requests[len(b.model.requests)-1]
	var out strings.Builder
	for _, m := range req.Messages {
		fmt.Fprintf(&out, "== %s\n", m.Role)
		for _, p := range m.Parts {
			switch p.Kind {
			case writ.PartToolUse:
				fmt.Fprintf(&out, "tool_use %s %s %s\n", p.ID, p.Name, p.Args)
			case writ.PartToolResult:
				fmt.Fprintf(&out, "tool_result %s error=%v\n", p.ID, p.IsError)
				for _, c := range p.Content {
					fmt.Fprintf(&out, "  %s%s\n", c.Text, c.JSON)
				}
			case writ.PartThinking:
				fmt.Fprintf(&out, "thinking %s %s\n", p.Text, p.Opaque)
			default:
				out.WriteString(started.ReplaceAllString(strings.TrimRight(p.Text, "\n"), "$1: STARTED") + "\n")
			}
			if p.Cache {
				out.WriteString("-- cache point\n")
			}
		}
	}
	return out.String()
}

var resultLine = regexp.MustCompile(`(?m)^\[result of (tc_[0-9a-f]+)\]`)

var channelTag = regexp.MustCompile(`(?i)<\s*/?\s*channel\s*:`)

// checkHistory holds for every transcript: in the native shape every call has exactly one result, in call order, before
// any other message; every settled row has its result.
func (b *bench) checkHistory() {
	b.t.Helper()
	for _, req := range b.model.requests {
		var open []string
		told := map[string]bool{} // calls with a result
		once := func(id string) {
			if told[id] {
				b.t.Errorf("request %s: two results of %s", req.Call, id)
			}
			told[id] = true
		}
		for _, m := range req.Messages {
			for _, p := range m.Parts {
				switch p.Kind {
				case writ.PartToolUse:
					open = append(open, p.ID)
					once(p.ID)
				case writ.PartToolResult:
					if len(open) == 0 || open[0] != p.ID {
						b.t.Errorf("request %s: result of %s where %v are open", req.Call, p.ID, open)
						return
					}
					open = open[1:]
				case writ.PartText:
					if m.Role == writ.RoleUser && len(open) > 0 {
						b.t.Errorf("request %s: text between a call and its result", req.Call)
					}
					for _, found := range resultLine.FindAllStringSubmatch(p.Text, -1) {
						once(found[1])
					}
					if req.Dialect == writ.Channel && channelTag.MatchString(p.Text) {
						b.t.Errorf("request %s: quoted text holds a channel tag: %s", req.Call, p.Text)
					}
				}
			}
		}
		if len(open) > 0 {
			b.t.Errorf("request %s: calls without a result: %v", req.Call, open)
		}
	}
	rows, err := b.store.Actions(context.Background(), store.ActionFilter{})
	if err != nil {
		b.t.Fatal(err)
	}
	blocks, err := b.store.Blocks(context.Background(), "conv", 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	results := map[string]int{}
	for _, bl := range blocks {
		if bl.Kind == "result" {
			results[bl.ActionID]++
		}
	}
	for _, r := range rows {
		if r.State.Settled() != (results[r.ID] == 1) {
			b.t.Errorf("action %s is %s and has %d results", r.ID, r.State, results[r.ID])
		}
	}
}
