package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"writ"
	"writ/store"
)

const scheduleConfig = `
react: {watcher: {model: "recorded:rec.yaml", autonomous: {every: 1s, prompt: look}}}
mcp: {services: {w: {command: witness, env: {WITNESS_FILE: "${WITNESS_FILE}"}}}}
surfaces:
  as_consumer:
    default_agent: watcher
    agents:
      watcher:
        tools: [{kind: mcp, server_id: w, allowed: [bump], tool_traits: {bump: {strategy: exploitation}}%s}]
`

// watching is a `writ serve` process that runs one agent by its schedule.
type watching struct {
	*killBench
	cmd *exec.Cmd
	out *output
}

func newWatching(t *testing.T, rounds, conn string) *watching {
	t.Helper()
	w := &watching{killBench: newKillBench(t)}
	w.write("writ.yaml", strings.Replace(scheduleConfig, "%s", conn, 1))
	w.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+rounds)
	w.start()
	return w
}

func (w *watching) start() {
	w.t.Helper()
	w.out = &output{}
	w.cmd = w.command("serve", "-c", "writ.yaml", "--listen", "127.0.0.1:0")
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	cmd := w.cmd
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(w.t, func() bool { return servingLine.MatchString(w.out.String()) })
}

func (w *watching) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// does runs a command beside the server and returns its output and exit code.
func (w *watching) does(args ...string) (string, int) {
	w.t.Helper()
	cmd := w.command(args...)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

func (w *watching) must(args ...string) string {
	w.t.Helper()
	out, code := w.does(args...)
	if code != 0 {
		w.t.Fatalf("writ %s: exit %d\n%s\nserver:\n%s", strings.Join(args, " "), code, out, w.out.String())
	}
	return out
}

func (w *watching) schedule() scheduleRow {
	w.t.Helper()
	var rows []scheduleRow
	if err := json.Unmarshal([]byte(w.must("schedules", "--json")), &rows); err != nil {
		w.t.Fatal(err)
	}
	if len(rows) != 1 {
		return scheduleRow{}
	}
	return rows[0]
}

// has reports whether some row is in the state.
func (w *watching) has(state writ.ActionState) bool {
	for _, r := range w.rows() {
		if r.State == state {
			return true
		}
	}
	return false
}

func (w *watching) id(state writ.ActionState) string {
	for _, r := range w.rows() {
		if r.State == state {
			return r.ID
		}
	}
	return ""
}

func TestServeRunsSchedules(t *testing.T) {
	w := newWatching(t, roundOf("", action("w.bump", `{"who":"a"}`))+answerRound, "")
	until(t, func() bool { return w.schedule().Succeeded >= 2 })
	if out := w.must("schedules", "pause", "watcher", "--note", "for a while"); !strings.Contains(out, "paused") || !strings.Contains(out, "for a while") {
		t.Error(out)
	}
	if out, code := w.does("schedules", "resume", "watcher", "--generation", "3"); code != 1 || !strings.Contains(out, "generation") {
		t.Errorf("exit %d: %s", code, out)
	}
	until(t, func() bool { return w.schedule().InFlight == 0 })
	before := w.schedule().Attempted
	w.must("schedules", "resume", "watcher")
	until(t, func() bool { return w.schedule().Attempted > before })
	w.must("schedules", "reset", "watcher")
	if s := w.schedule(); s.Generation != 1 {
		t.Errorf("%+v", s)
	}
	w.must("audit", "verify")
	w.hold("the schedule")
}

// Killed while an action runs: the next start does not know whether it happened, stops the schedule, and lets it run
// again when that has been resolved and an operator says so.
func TestServeStopsOnUnknown(t *testing.T) {
	w := newWatching(t, roundOf("", action("w.bump", `{"who":"a","delay":60000}`))+answerRound, "")
	until(t, func() bool { return w.count("a") == 1 })
	w.kill()
	w.start()
	until(t, func() bool { return w.schedule().State == store.ScheduleStopped })
	if out, code := w.does("schedules", "resume", "watcher"); code != 1 || !strings.Contains(out, "writ actions resolve") {
		t.Errorf("exit %d: %s", code, out)
	}
	w.must("actions", "resolve", w.id(writ.Indeterminate), "--as", "effect_applied", "--note", "the counter says one")
	if s := w.schedule(); s.State != store.ScheduleStopped {
		t.Errorf("the resolution alone lifts the stop: %+v", s)
	}
	w.must("schedules", "resume", "watcher")
	until(t, func() bool { return w.count("a") == 2 })
	if n := len(w.rows()); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// A decision that is made beside the server is carried out by it.
func TestServeGoesOnWhenApproved(t *testing.T) {
	w := newWatching(t, roundOf("", action("w.bump", `{"who":"a"}`))+answerRound, ", approval: {bump: always}")
	until(t, func() bool { return w.has(writ.Held) })
	id := w.id(writ.Held)
	w.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+answerRound) // what the resumed turn says
	if out := w.must("approve", id); !strings.Contains(out, "the process that holds the data directory goes on with it") {
		t.Error(out)
	}
	until(t, func() bool { return w.count("a") == 1 && w.schedule().Succeeded >= 1 })
	if st := filepath.Join(w.path("data"), controlSocket); !private(t, st) {
		t.Errorf("%s is not private", st)
	}
}

func private(t *testing.T, path string) bool {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()&0o077 == 0
}

// A data directory with a long name has a control socket like any other.
func TestControlInALongDirectory(t *testing.T) {
	w := newWatching(t, roundOf("", action("w.bump", `{"who":"a"}`))+answerRound, "")
	w.kill()
	long := filepath.Join(w.dir, strings.Repeat("long", 30), "data")
	data := append(w.command().Environ(), "WRIT_DATA="+long)
	cmd := w.command("serve", "-c", "writ.yaml", "--listen", "127.0.0.1:0")
	out := &output{}
	cmd.Env, cmd.Stdout, cmd.Stderr = data, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(t, func() bool {
		pause := w.command("schedules", "pause", "watcher")
		pause.Env = data
		b, err := pause.CombinedOutput()
		return err == nil && strings.Contains(string(b), "paused")
	})
}
