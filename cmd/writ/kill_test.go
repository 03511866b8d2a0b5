package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"writ"
	"writ/store"
	"writ/store/sqlite"
)

const killConfig = `
react: {dialect: channel}
mcp:
  services:
    w: {command: witness, env: {WITNESS_FILE: "${WITNESS_FILE}"}}
surfaces:
  as_consumer:
    default_agent: main
    agents:
      main:
        tools:
          - kind: mcp
            server_id: w
            allowed: [bump, look, launch, ask]
            approval: {ask: always}
            tool_traits:
              ask: {strategy: [exploitation]}
              bump: {strategy: [exploitation]}
              look: {strategy: [exploration]}
              launch:
                strategy: [neutral]
                execution: {trigger: tool_call_complete, concurrency: parallel_with_generation, result_dependency: detached, replay: at_most_once_per_round}
`

// killBench is a data directory, a witness, and the real program run on them.
type killBench struct {
	t   *testing.T
	dir string
}

func newKillBench(t *testing.T) *killBench {
	t.Helper()
	k := &killBench{t: t, dir: t.TempDir()}
	k.write("writ.yaml", killConfig)
	return k
}

func (k *killBench) path(name string) string { return filepath.Join(k.dir, name) }

func (k *killBench) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(k.path(name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killBench) command(args ...string) *exec.Cmd {
	cmd := exec.Command("writ", args...)
	cmd.Dir = k.dir
	cmd.Env = append(os.Environ(), "WITNESS_FILE="+k.path("witness"), "WRIT_DATA="+k.path("data"))
	return cmd
}

func (k *killBench) run(rounds string, args ...string) (string, error) {
	k.t.Helper()
	k.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+rounds)
	cmd := k.command(append([]string{"run", "-c", "writ.yaml", "--model", "recorded:rec.yaml", "--conversation", "c"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func killed(err error) bool {
	var ee *exec.ExitError
	return errors.As(err, &ee) && ee.ExitCode() == -1
}

func (k *killBench) effects() []effect {
	k.t.Helper()
	b, err := os.ReadFile(k.path("witness"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		k.t.Fatal(err)
	}
	var out []effect
	for line := range bytes.Lines(b) {
		var e effect
		if err := json.Unmarshal(line, &e); err != nil {
			k.t.Fatalf("witness: %q: %v", line, err)
		}
		out = append(out, e)
	}
	return out
}

func (k *killBench) count(who string) int {
	n := 0
	for _, e := range k.effects() {
		if e.Who == who {
			n++
		}
	}
	return n
}

func (k *killBench) rows() []actionRow {
	k.t.Helper()
	cmd := k.command("actions", "--json", "--limit", "0")
	out, err := cmd.Output()
	if err != nil {
		k.t.Fatalf("actions: %v", err)
	}
	var rows []actionRow
	if err := json.Unmarshal(out, &rows); err != nil {
		k.t.Fatalf("actions: %v in %s", err, out)
	}
	return rows
}

func action(tool, params string) string {
	return fmt.Sprintf(`<channel:action>{"action":"call_tool","tool_call":{"tool_id":"%s","params":%s}}</channel:action>`, tool, params)
}

func roundOf(delay string, actions ...string) string {
	text := "<channel:thinking>x</channel:thinking>" + strings.Join(actions, "")
	r := "  - text: |-\n      " + text + "\n"
	if delay != "" {
		r += "    chunk_bytes: 16\n    chunk_delay: " + delay + "\n"
	}
	return r
}

const answerRound = "  - text: '<channel:action>{\"action\":\"complete\",\"final_answer\":\"done\"}</channel:action>'\n"

func TestKillAfterTheEffect(t *testing.T) {
	k := newKillBench(t)
	out, err := k.run(roundOf("", action("w.bump", `{"who":"a","kill":true}`))+answerRound, "go")
	if !killed(err) {
		t.Fatalf("the process was not killed: %v\n%s", err, out)
	}
	if rows := k.rows(); len(rows) != 1 || rows[0].State != writ.Dispatched {
		t.Fatalf("before the restart: %+v", rows)
	}
	// The next turn's prompt says it, in the history and in ANNOUNCE, and the ledger keeps it.
	next := answerRound + "    expect: [\"outcome UNKNOWN\", \"[UNKNOWN OUTCOMES]\", \"w.bump (restart)\"]\n"
	out, err = k.run(next, "what happened?")
	if err != nil || !strings.Contains(out, "indeterminate") {
		t.Fatalf("the next turn: %v\n%s", err, out)
	}
	if rows := k.rows(); len(rows) != 1 || rows[0].State != writ.Indeterminate || k.count("a") != 1 {
		t.Errorf("rows %+v, counter %d", rows, k.count("a"))
	}
}

// killer kills the process, as kill -9 does, before or after the n-th write: "before:7", "after:7". Empty = never.
func killer(spec string) func(store.Store) store.Store {
	when, count, ok := strings.Cut(spec, ":")
	at, err := strconv.Atoi(count)
	if !ok || err != nil {
		return nil
	}
	return func(st store.Store) store.Store {
		var n atomic.Int64
		die := func(*store.Batch) error {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
		f := &store.Fault{Store: st}
		if when == "before" {
			f.Before = func(b *store.Batch) error {
				if n.Add(1) == int64(at) {
					return die(b)
				}
				return nil
			}
		} else {
			f.After = func(b *store.Batch) error {
				if n.Add(1) == int64(at) {
					return die(b)
				}
				return nil
			}
		}
		return f
	}
}

// A call that had no grant when the process was killed is withheld. The third write of this turn is its dispatch.
func TestKillBeforeDispatch(t *testing.T) {
	k := newKillBench(t)
	k.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+roundOf("", action("w.bump", `{"who":"a"}`))+answerRound)
	for n := 1; ; n++ {
		cmd := k.command("run", "-c", "writ.yaml", "--model", "recorded:rec.yaml", "--conversation", "c", "go")
		cmd.Env = append(cmd.Env, fmt.Sprintf("WRIT_KILL_WRITE=before:%d", n))
		if err := cmd.Run(); !killed(err) {
			t.Fatalf("no write of the turn is a dispatch: %v", err)
		}
		if rows := k.rows(); len(rows) > 0 && rows[len(rows)-1].State == writ.Admitted {
			break
		}
	}
	out, err := k.run(answerRound+"    expect: [\"not executed (restart)\"]\n", "what happened?")
	if err != nil {
		t.Fatalf("the next turn: %v\n%s", err, out)
	}
	if rows := k.rows(); rows[len(rows)-1].State != writ.Withheld || k.count("a") != 0 {
		t.Errorf("rows %+v, effects %v", rows, k.effects())
	}
}

// TestKillAtEveryWrite kills the real process before and after each of its writes, in a turn with every kind of call and
// an approval, restarts, and holds the ledger against the witness; then what is unknown is resolved and what is held is
// approved. WRIT_CRASH_ALL takes every write, else every third one is taken.
func TestKillAtEveryWrite(t *testing.T) {
	step := 3
	if os.Getenv("WRIT_CRASH_ALL") != "" {
		step = 1
	}
	rounds := roundOf("", action("w.launch", `{"who":"early"}`), action("w.bump", `{"who":"b1"}`), action("w.bump", `{"who":"b2"}`)) +
		roundOf("", action("w.look", `{"who":"l1"}`), action("w.look", `{"who":"l2"}`)) +
		roundOf("", action("w.bump", `{"who":"b3","fail":true}`)) + roundOf("", action("w.ask", `{"who":"held"}`)) + answerRound
	kills, seen := 0, map[writ.ActionState]int{}
	for _, when := range []string{"before", "after"} {
		for n, last := 1, false; !last; n += step {
			k := newKillBench(t)
			k.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+rounds)
			k.write("end.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+answerRound)
			kill := fmt.Sprintf("WRIT_KILL_WRITE=%s:%d", when, n)
			died := k.killedBy(kill, "run", "-c", "writ.yaml", "--model", "recorded:rec.yaml", "--conversation", "c", "go")
			if !died { // the turn has fewer writes: the next process, which approves, goes on counting from one
				died = k.killedBy(fmt.Sprintf("WRIT_KILL_WRITE=%s:%d", when, n-k.writes()), "approve", k.held(), "-c", "writ.yaml", "--model", "recorded:end.yaml")
				last = !died
			}
			if died {
				kills++
			}
			for state, n := range k.afterKill(fmt.Sprintf("%s write %d", when, n)) {
				seen[state] += n
			}
		}
	}
	t.Logf("%d kills; rows by state: %v", kills, seen)
}

// killedBy runs a command that is to be killed at a write, and reports whether it was.
func (k *killBench) killedBy(env string, args ...string) bool {
	k.t.Helper()
	cmd := k.command(args...)
	cmd.Env = append(cmd.Env, env)
	out, err := cmd.CombinedOutput()
	var ee *exec.ExitError
	if err != nil && (!errors.As(err, &ee) || ee.ExitCode() > 4) {
		k.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return killed(err)
}

// writes is about how many writes the turn had until it was parked: those of its blocks and rows.
func (k *killBench) writes() int {
	k.t.Helper()
	st, err := sqlite.OpenReadOnly(k.t.Context(), k.path("data"))
	if err != nil {
		k.t.Fatal(err)
	}
	defer st.Close()
	n := 2 // its beginning and its parking
	for _, r := range k.rows() {
		n++
		if r.DispatchedAt != nil {
			n += 2
		}
	}
	blocks, err := st.Blocks(k.t.Context(), "c", 0, 0)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Kind == "round" {
			n += 2
		}
	}
	return n
}

// held is the action that waits for an approval, or a name of none.
func (k *killBench) held() string {
	for _, r := range k.rows() {
		if r.State == writ.Held {
			return r.ID
		}
	}
	return "act_none"
}

// afterKill restarts, goes on, resolves what is unknown, approves what is held, and holds the ledger against the witness
// at the end.
func (k *killBench) afterKill(what string) map[writ.ActionState]int {
	k.t.Helper()
	do := func(args ...string) {
		k.t.Helper()
		out, err := k.command(args...).CombinedOutput()
		var ee *exec.ExitError
		if err != nil && (!errors.As(err, &ee) || ee.ExitCode() != 4) {
			k.t.Fatalf("after a kill %s: %v: %v\n%s", what, args, err, out)
		}
	}
	if _, err := os.Stat(k.path("data/writ.db")); err != nil {
		return nil // killed before there was anything
	}
	do("run", "-c", "writ.yaml", "--model", "recorded:end.yaml", "--conversation", "c", "again")
	do("audit", "verify")
	if id := k.held(); id != "act_none" {
		do("approve", id, "-c", "writ.yaml", "--model", "recorded:end.yaml")
	}
	for _, r := range k.rows() {
		if r.State == writ.Indeterminate {
			do("actions", "resolve", r.ID, "--as", "accept_unknown")
		}
	}
	do("audit", "verify")
	states := k.hold(what)
	if states[writ.Indeterminate] > 0 { // the resolution has lifted the quarantine
		k.write("more.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+roundOf("", action("w.bump", `{"who":"more"}`))+answerRound)
		do("run", "-c", "writ.yaml", "--model", "recorded:more.yaml", "--conversation", "c2", "more")
		if k.count("more") != 1 {
			k.t.Errorf("after a kill %s: the target is still held back", what)
		}
	}
	return states
}

func TestKillAnEarlyCall(t *testing.T) {
	k := newKillBench(t)
	out, err := k.run(roundOf("5ms", action("w.launch", `{"who":"a","kill":true}`), action("react.write", `{"path":"x.md","content":"`+strings.Repeat("long ", 400)+`"}`))+answerRound, "go")
	if !killed(err) {
		t.Fatalf("the process was not killed: %v\n%s", err, out)
	}
	if out, err = k.run(answerRound+"    expect: [\"outcome UNKNOWN\"]\n", "what happened?"); err != nil {
		t.Fatalf("the next turn: %v\n%s", err, out)
	}
	rows := k.rows()
	if len(rows) != 1 || rows[0].State != writ.Indeterminate || !rows[0].Early || k.count("a") != 1 {
		t.Errorf("rows %+v, counter %d", rows, k.count("a"))
	}
}

// TestKillAtAnyMoment kills the real process at random moments of a turn with every kind of call, restarts, and holds
// the ledger against the witness. WRIT_KILLS sets how often.
func TestKillAtAnyMoment(t *testing.T) {
	n := 6
	if s := os.Getenv("WRIT_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	rounds := roundOf("1ms", action("w.launch", `{"who":"early","delay":20}`), action("w.bump", `{"who":"b1"}`), action("w.bump", `{"who":"b2"}`)) +
		roundOf("1ms", action("w.look", `{"who":"l1"}`), action("w.look", `{"who":"l2"}`)) +
		roundOf("1ms", action("w.bump", `{"who":"b3","fail":true}`)) + answerRound
	seen := map[writ.ActionState]int{}
	for i := range n {
		k := newKillBench(t)
		k.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+rounds)
		cmd := k.command("run", "-c", "writ.yaml", "--model", "recorded:rec.yaml", "--conversation", "c", "go")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(100+rand.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed or done
		timer.Stop()
		if _, err := os.Stat(k.path("data/writ.db")); err != nil {
			continue // killed before there was anything
		}
		if out, err := k.run(answerRound, "again"); err != nil {
			t.Fatalf("kill %d: the next turn: %v\n%s", i, err, out)
		}
		for state, n := range k.hold(fmt.Sprint(i)) {
			seen[state] += n
		}
	}
	t.Logf("%d kills; rows by state: %v", n, seen)
}

// hold compares the ledger with the witness.
func (k *killBench) hold(i string) map[writ.ActionState]int {
	k.t.Helper()
	effects := map[string]int{}
	for _, e := range k.effects() {
		effects[e.Key]++
	}
	states := map[writ.ActionState]int{}
	known := map[string]bool{}
	for _, r := range k.rows() {
		states[r.State]++
		known[r.IdempotencyKey] = true
		n := effects[r.IdempotencyKey]
		switch {
		case n > 1:
			k.t.Errorf("kill %s: %s happened %d times", i, r.ID, n)
		case !r.State.Settled():
			k.t.Errorf("kill %s: %s is %s after the restart", i, r.ID, r.State)
		case r.State == writ.Withheld && n != 0:
			k.t.Errorf("kill %s: %s is withheld and happened", i, r.ID)
		case (r.State == writ.Succeeded || r.Failure == "tool_error") && n != 1:
			k.t.Errorf("kill %s: %s is %s and happened %d times", i, r.ID, r.State, n)
		}
	}
	for key := range effects {
		if !known[key] {
			k.t.Errorf("kill %s: an effect without a row: %s", i, key)
		}
	}
	return states
}
