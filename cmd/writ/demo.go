package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"writ"
	"writ/config"
	"writ/model/recorded"
	"writ/runtime"
	"writ/store"
)

//go:embed demo
var demoFiles embed.FS

const demoQuestion = "What caused the outage in June? Write it up, and rebuild the index."

type demoFlags struct {
	data       string
	model      string
	json, live bool
}

func (a *app) demoCommand() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small governed agent: no key, nothing to install",
		Long: `Run a turn of a small agent. The model is a recording; the rest is real: an MCP server, a
workspace, a ledger on disk, and the timing.

You see a report refused that would have been written from a search whose result did not exist yet;
a job that starts while the model still writes; a broken connection after the job had started, and
the second try that does not start it again. Then the ledger, and a picture of when what ran.

It exits non-zero unless the job's own counter says that it ran exactly once.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.demo(&f) },
	}
	cmd.Flags().StringVar(&f.data, "data", "", "keep the data in this directory (default: a temporary one, removed at the end)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one event a line as JSON")
	cmd.Flags().BoolVar(&f.live, "live", false, "let a real model answer, picked by the keys in the environment")
	cmd.Flags().StringVar(&f.model, "model", "", "let this model answer: PROVIDER/MODEL")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// demoRun is the demo's place on disk.
type demoRun struct {
	dir, counter string
	keep, live   bool
}

func (a *app) demo(f *demoFlags) (err error) {
	d, err := prepareDemo(f.data)
	if err != nil {
		return refused("", fmt.Errorf("preparing the demo: %w", err))
	}
	if !d.keep {
		defer os.RemoveAll(d.dir)
	}
	cfg, agent, err := d.agent()
	if err != nil {
		return refused("", err)
	}
	m := &models{cfg: cfg, made: map[string]writ.Model{}}
	log := logger(a.err, false)
	defer m.close(log)
	first, err := a.demoModel(m, agent, f)
	if err != nil {
		return err
	}
	d.live = f.live || f.model != ""
	conns, closeConns, err := a.connections(agent, log)
	if err != nil {
		return err
	}
	defer closeConns()
	e, err := a.open(a.ctx, d.dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	s := &session{engine: e, agent: agent, conns: conns, models: m, first: first}
	if f.json {
		view := a.sink(true)
		out, err := s.turn(a.ctx, "demo", demoQuestion, view.event)
		if err != nil {
			return a.turnError(err)
		}
		return errors.Join(a.exitFor(s, out, &turnFlags{json: true}), d.verdict())
	}
	return a.demoText(d, s)
}

// demoModel is the demo's recording, or the real model that was asked for.
func (a *app) demoModel(m *models, agent *config.Agent, f *demoFlags) (runtime.Choice, error) {
	if f.live || f.model != "" {
		first, _, err := a.choose(m, agent, f.model, f.live)
		return first, err
	}
	data, err := demoFiles.ReadFile("demo/recording.yaml")
	if err != nil {
		return runtime.Choice{}, err
	}
	rec, err := recorded.Parse("demo/recording.yaml", data)
	if err != nil {
		return runtime.Choice{}, refused("", err)
	}
	return runtime.Choice{Name: "recorded:demo", Model: rec.Model()}, nil
}

func (a *app) demoText(d *demoRun, s *session) error {
	who := "a recorded model, everything else real"
	if d.live {
		who = s.first.Name
	}
	fmt.Fprintf(a.out, "agent clerk: notes over MCP, files in a workspace; %s\n\n> %s\n\n", who, demoQuestion)
	p := &picture{}
	view := &textView{out: a.out, err: a.out, line: true}
	out, err := s.turn(a.ctx, "demo", demoQuestion, func(e runtime.Event) {
		p.event(e)
		view.event(e)
	})
	view.done()
	if err != nil {
		return a.turnError(err)
	}
	rows, err := s.engine.store.Actions(a.ctx, store.ActionFilter{Turn: out.Turn})
	if err != nil {
		return refused("", err)
	}
	fmt.Fprint(a.out, "\nthe ledger\n\n")
	a.printActions(rows)
	fmt.Fprint(a.out, "\nwhen what ran\n\n")
	p.print(a.out, rows)
	n, err := d.count()
	if err != nil {
		return refused("", err)
	}
	if d.live {
		fmt.Fprintf(a.out, "\nthe job's own counter: %d\n", n)
		a.printCost(s, out)
	} else {
		fmt.Fprintf(a.out, "\nthe job's own counter: %d (the model asked for it twice, over a broken connection)\n", n)
	}
	if d.keep {
		fmt.Fprintf(a.out, "kept in %s; see it again: writ actions --data %s\n", d.dir, d.dir)
	} else {
		fmt.Fprintln(a.out, "next: writ demo --data DIR keeps the data; docs/tour.md follows one of these calls through the code")
	}
	return errors.Join(a.exitFor(s, out, &turnFlags{json: true}), d.verdict())
}

// verdict is the demo's own proof: the counter that the job itself keeps.
// A real model may start it as often as it likes, so then it proves nothing.
func (d *demoRun) verdict() error {
	if d.live {
		return nil
	}
	n, err := d.count()
	if err != nil {
		return refused("", err)
	}
	if n != 1 {
		return refused("", fmt.Errorf("the job ran %d times, not once", n))
	}
	return nil
}

func (d *demoRun) count() (int, error) {
	b, err := os.ReadFile(d.counter)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the job's counter: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func prepareDemo(dir string) (*demoRun, error) {
	d := &demoRun{dir: dir, keep: dir != ""}
	if !d.keep {
		tmp, err := os.MkdirTemp("", "writ-demo-")
		if err != nil {
			return nil, err
		}
		d.dir = tmp
	}
	abs, err := filepath.Abs(d.dir)
	if err != nil {
		return nil, err
	}
	d.dir = abs
	notes := filepath.Join(d.dir, "notes")
	if err := os.MkdirAll(notes, 0o700); err != nil {
		return nil, err
	}
	entries, err := demoFiles.ReadDir("demo/notes")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := demoFiles.ReadFile("demo/notes/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(notes, e.Name()), b, 0o600); err != nil {
			return nil, err
		}
	}
	d.counter = filepath.Join(d.dir, "index-runs")
	if err := os.Remove(d.counter); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return d, errors.Join(os.Setenv("WRIT_DEMO_NOTES", notes), os.Setenv("WRIT_DEMO_COUNTER", d.counter))
}

// agent loads the demo's declaration, with this program as its MCP server.
func (d *demoRun) agent() (*config.Config, *config.Agent, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	raw, err := demoFiles.ReadFile("demo/agent.yaml")
	if err != nil {
		return nil, nil, err
	}
	quoted, err := json.Marshal(exe)
	if err != nil {
		return nil, nil, err
	}
	raw = []byte(strings.Replace(string(raw), `"COMMAND"`, string(quoted), 1))
	if err := os.WriteFile(filepath.Join(d.dir, "writ.yaml"), raw, 0o600); err != nil {
		return nil, nil, err
	}
	cfg, report := config.Parse("demo/agent.yaml", raw, d.dir)
	if !report.OK() {
		return nil, nil, report.Err()
	}
	agent, err := cfg.Agent("")
	return cfg, agent, err
}

// picture collects when what ran.
type picture struct {
	mu    sync.Mutex
	spans []span
	began time.Time
	gen   time.Time // when the running generation began
}

type span struct {
	label      string
	note       string
	from, to   time.Time
	generation bool
}

func (p *picture) event(e runtime.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() {
		p.began = e.Time
	}
	switch e.Type {
	case runtime.EventRoundStarted:
		p.gen = e.Time
	case runtime.EventUsage:
		s := span{label: fmt.Sprintf("round %d", e.Round), note: "the model writes", from: p.gen, to: e.Time, generation: true}
		if e.Attempt > 1 {
			s.note = fmt.Sprintf("try %d", e.Attempt)
		}
		p.spans = append(p.spans, s)
		p.gen = e.Time
	case runtime.EventNotice:
		if e.Code == "attempt_discarded" && len(p.spans) > 0 {
			p.spans[len(p.spans)-1].note += ", cut off"
		}
	}
}

const pictureWidth = 56

// print draws one line for each generation and each call, on one scale.
func (p *picture) print(w interface{ Write([]byte) (int, error) }, rows []store.Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spans := p.spans
	for _, r := range rows {
		if r.DispatchedAt.IsZero() {
			continue
		}
		s := span{label: r.Tool, from: r.DispatchedAt, to: r.SettledAt}
		if r.Early {
			s.note = "started while the model wrote"
		}
		spans = append(spans, s)
	}
	sortSpans(spans)
	end := p.began
	for _, s := range spans {
		if s.to.After(end) {
			end = s.to
		}
	}
	total := end.Sub(p.began)
	if total <= 0 {
		return
	}
	col := func(t time.Time) int { return int(int64(pictureWidth) * int64(t.Sub(p.began)) / int64(total)) }
	for _, s := range spans {
		from, to := col(s.from), col(s.to)
		to = max(to, from+1)
		mark, indent := "█", "  "
		if s.generation {
			mark, indent = "░", ""
		}
		bar := strings.Repeat(" ", from) + strings.Repeat(mark, to-from) + strings.Repeat(" ", max(pictureWidth-to, 0))
		fmt.Fprintf(w, "%-20s %s %6s  %s\n", indent+s.label, bar, s.to.Sub(s.from).Round(time.Millisecond), s.note)
	}
	fmt.Fprintf(w, "%-20s 0%s%s\n", "", strings.Repeat(" ", pictureWidth-len(total.Round(time.Millisecond).String())-1), total.Round(time.Millisecond))
}

func sortSpans(s []span) {
	for i := 1; i < len(s); i++ {
		for j := i; j > 0 && s[j].from.Before(s[j-1].from); j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
}
