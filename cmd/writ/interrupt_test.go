package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"writ"
)

// slowTurn starts a turn whose tool runs until it is stopped, and waits until its effect has begun.
func slowTurn(t *testing.T, k *killBench, rounds string) (*exec.Cmd, *output) {
	t.Helper()
	k.write("rec.yaml", "writ_recording: 1\ndialect: channel\nrounds:\n"+rounds)
	cmd := k.command("run", "-c", "writ.yaml", "--model", "recorded:rec.yaml", "--conversation", "c", "go")
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	until(t, func() bool { return len(k.effects()) > 0 })
	return cmd, out
}

// output can be read while a process writes it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// until polls a condition of another process.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it did not happen in time")
		}
	}
}

func exitCode(err error) int {
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		return ee.ExitCode()
	}
	if err != nil {
		return -2
	}
	return 0
}

func TestCtrlCEndsCleanly(t *testing.T) {
	k := newKillBench(t)
	cmd, out := slowTurn(t, k, roundOf("", action("w.bump", `{"who":"a","delay":60000}`), action("w.bump", `{"who":"b"}`), action("w.bump", `{"who":"c"}`)))

	// Meanwhile: the ledger can be read, and nobody else can write.
	if rows := k.rows(); len(rows) != 1 || rows[0].State != writ.Dispatched {
		t.Errorf("rows while it runs: %+v", rows)
	}
	second := k.command("run", "-c", "writ.yaml", "--model", "recorded:rec.yaml", "hello")
	msg, err := second.CombinedOutput()
	if exitCode(err) != exitRefused || !strings.Contains(string(msg), "in use") || !strings.Contains(string(msg), "hint:") {
		t.Errorf("a second writer: %v\n%s", err, msg)
	}

	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); exitCode(err) != exitInterrupted {
		t.Fatalf("exit %v\n%s", err, out)
	}
	rows := k.rows()
	if len(rows) != 1 || rows[0].State != writ.Indeterminate || rows[0].Failure != "interrupted" || k.count("a") != 1 || k.count("b") != 0 {
		t.Errorf("rows %+v, effects %v", rows, k.effects())
	}
	// Each call has its result before the next message; what had not been admitted says so.
	next := answerRound + "    expect: [\"outcome UNKNOWN\", \"[not run] action 1 (w.bump): interrupted\", \"[not run] action 2 (w.bump): interrupted\", \"what happened?\"]\n"
	if out, err := k.run(next, "what happened?"); err != nil {
		t.Errorf("the next turn: %v\n%s", err, out)
	}
}

func TestCtrlCWhileTheModelWrites(t *testing.T) {
	k := newKillBench(t)
	cmd, out := slowTurn(t, k, "  - text: |-\n      <channel:thinking>x</channel:thinking>"+
		action("w.launch", `{"who":"early","delay":60000}`)+action("react.write", `{"path":"x.md","content":"`+strings.Repeat("long ", 4000)+`"}`)+
		"\n    chunk_bytes: 4\n    chunk_delay: 20ms\n")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); exitCode(err) != exitInterrupted {
		t.Fatalf("exit %v\n%s", err, out)
	}
	if rows := k.rows(); len(rows) != 1 || !rows[0].State.Settled() {
		t.Errorf("rows %+v", rows)
	}
}

func TestSecondCtrlCIsImmediate(t *testing.T) {
	k := newKillBench(t)
	k.write("stubborn.py", `
import time
from semantic_kernel.functions import kernel_function

@kernel_function(name="sit", description="does not stop")
def sit(path: str) -> str:
    with open(path, "a") as f:
        f.write('{"who": "sit", "key": ""}\n')
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
`)
	k.write("writ.yaml", `
surfaces:
  as_consumer:
    default_agent: main
    agents: {main: {tools: [{kind: python, ref: stubborn.py, alias: s, allowed: [sit]}]}}
`)
	cmd, out := slowTurn(t, k, roundOf("", action("s.sit", `{"path":"`+k.path("witness")+`"}`)))
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return strings.Contains(out.String(), "Again to end at once") })
	_ = cmd.Process.Signal(syscall.SIGINT) // fails when the first one was enough
	if err := cmd.Wait(); exitCode(err) != exitInterrupted {
		t.Fatalf("exit %v\n%s", err, out)
	}
	t.Logf("ended %s after the first Ctrl-C", time.Since(began).Round(time.Millisecond))
}
