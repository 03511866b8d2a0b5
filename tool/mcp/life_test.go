package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"writ"
)

// TestDeathIsUnknownAndNeverRepeated is the heart of the matter: the effect happened, the answer did not.
func TestDeathIsUnknownAndNeverRepeated(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := hostile(t, "plain", nil, mark)
	_, err := s.Call(t.Context(), writ.Call{Tool: "die"})
	wantUnknown(t, err)
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("how it ended is missing: %v", err)
	}
	if got := lines(mark); len(got) != 1 {
		t.Fatalf("the effect happened %d times", len(got))
	}
	call(t, s, "echo", `{}`)
	if h := s.Health(); h.Starts != 2 || h.Failures != 1 || h.LastError != "" {
		t.Errorf("health %+v", h)
	}
	if got := lines(mark); len(got) != 1 {
		t.Errorf("the next call repeated the effect: %v", got)
	}
	_, err = s.Call(t.Context(), writ.Call{Tool: "half"})
	wantUnknown(t, err)
	_, err = s.Call(t.Context(), writ.Call{Tool: "close-stdout"})
	wantUnknown(t, err)
	_, err = s.Call(t.Context(), writ.Call{Tool: "die-loudly"})
	wantUnknown(t, err)
	if err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("the last words are missing: %v", err)
	}
	if res := call(t, s, "answer-and-die", `{}`); text(t, res) != "done" {
		t.Errorf("an answer before death is lost: %+v", res)
	}
	call(t, s, "echo", `{}`)
	if h := s.Health(); h.Starts != 6 || h.Failures != 5 {
		t.Errorf("health %+v", h)
	}
}

func TestKillMidCall(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := hostile(t, "plain", nil, mark)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			_, err := s.Call(context.Background(), writ.Call{Tool: "hang"})
			wantUnknown(t, err)
			if err == nil || !strings.Contains(err.Error(), "signal: killed") {
				t.Errorf("how it ended is missing: %v", err)
			}
		})
	}
	until(t, "all calls are running", func() bool { return len(lines(mark)) == 3 })
	if err := syscall.Kill(s.Health().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	call(t, s, "echo", `{}`)
	if got := lines(mark); len(got) != 3 {
		t.Errorf("marks %v", got)
	}
}

func TestCancelReturnsAtOnce(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := hostile(t, "plain", nil, mark)
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, writ.Call{Tool: "hang"})
		result <- err
	}()
	until(t, "the call is running", func() bool { return len(lines(mark)) == 1 })
	reason := errors.New("the user pressed stop")
	cancel(reason)
	err := <-result
	wantUnknown(t, err)
	if !errors.Is(err, reason) {
		t.Errorf("the reason is lost: %v", err)
	}
	until(t, "the server hears of it", func() bool { return slices.Contains(lines(mark), "cancelled") })
	pid := s.Health().PID
	call(t, s, "echo", `{}`)
	if s.Health().PID != pid {
		t.Error("a cancelled call cost the process")
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = s.Call(ctx, writ.Call{Tool: "hang"})
	wantUnknown(t, err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	_, err = s.Call(ctx, writ.Call{Tool: "hang"})
	wantNotStarted(t, err)
	if got := lines(mark); len(got) > 4 {
		t.Errorf("a call with an ended context was sent: %v", got)
	}
}

// TestUnreadRequestIsNotStarted: the pipe is full, the server reads nothing; what never left is certainly not run.
func TestUnreadRequestIsNotStarted(t *testing.T) {
	s := hostile(t, "no-read", nil)
	if _, _, err := s.Tools(t.Context()); err != nil { // the last thing that it reads
		t.Fatal(err)
	}
	big := json.RawMessage(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := s.Call(ctx, writ.Call{Tool: "echo", Params: big})
	wantUnknown(t, err) // part of it is in the pipe
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = s.Call(ctx, writ.Call{Tool: "echo", Params: json.RawMessage(`{}`)})
	wantNotStarted(t, err)
}

func TestStartFailures(t *testing.T) {
	t.Run("command", func(t *testing.T) {
		s := open(t, Config{Alias: "x", Command: "no-such-command-of-mine"})
		_, err := s.Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, `command "no-such-command-of-mine" not found`)
		if _, _, err := s.Tools(t.Context()); err == nil {
			t.Error("Tools of a server that cannot start")
		}
		if h := s.Health(); h.Starts != 2 || h.Failures != 2 || h.LastError == "" || h.Running {
			t.Errorf("health %+v", h)
		}
	})
	t.Run("path", func(t *testing.T) {
		_, err := open(t, Config{Command: "./no/such"}).Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, `"./no/such" not found`)
	})
	t.Run("not executable", func(t *testing.T) {
		_, err := open(t, Config{Command: "./testdata/hostile.py"}).Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, "not executable")
	})
	t.Run("directory", func(t *testing.T) {
		_, err := open(t, Config{Command: "python3", Dir: "/no/such/dir"}).Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, "/no/such/dir")
	})
	t.Run("exits at start", func(t *testing.T) {
		_, err := hostile(t, "exit", nil).Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, "exit status 3", "cannot find module 'x'")
	})
	t.Run("mute", func(t *testing.T) {
		_, err := hostile(t, "mute", func(c *Config) { c.ConnectTimeout = 200 * time.Millisecond }).Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, "no handshake within 200ms")
	})
	t.Run("protocol", func(t *testing.T) {
		_, err := hostile(t, "no-protocol", nil).Call(t.Context(), writ.Call{Tool: "a"})
		wantNotStarted(t, err, "1999-01-01")
	})
	t.Run("no command", func(t *testing.T) {
		if _, err := Open(Config{}); err == nil {
			t.Error("no error")
		}
	})
}

func TestSlowStartIsSharedAndOutlivesACaller(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	s := hostile(t, "slow", nil, ready)
	ctx, cancel := context.WithCancel(t.Context())
	impatient := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, writ.Call{Tool: "echo"})
		impatient <- err
	}()
	until(t, "the process starts", func() bool { return s.Health().Starts == 1 })
	patient := make(chan error, 1)
	go func() {
		_, err := s.Call(context.Background(), writ.Call{Tool: "echo"})
		patient <- err
	}()
	cancel()
	wantNotStarted(t, <-impatient)
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-patient; err != nil {
		t.Error(err)
	}
	if h := s.Health(); h.Starts != 1 {
		t.Errorf("health %+v", h)
	}
}

func TestCloseLeavesNoOrphan(t *testing.T) {
	for _, mode := range []string{"plain", "immortal"} {
		s := hostile(t, mode, nil)
		child, err := strconv.Atoi(text(t, call(t, s, "grandchild", `{}`)))
		if err != nil {
			t.Fatal(err)
		}
		pid := s.Health().PID
		if !alive(pid) || !alive(child) {
			t.Fatal("not running before Close")
		}
		start := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: Close took %v", mode, d)
		}
		until(t, "the group is gone", func() bool { return !alive(pid) && !alive(child) })
		_, err = s.Call(t.Context(), writ.Call{Tool: "echo"})
		wantNotStarted(t, err, "closed")
		if _, _, err := s.Tools(t.Context()); err == nil {
			t.Error("Tools after Close")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s := hostile(t, "plain", nil)
	child, err := strconv.Atoi(text(t, call(t, s, "grandchild", `{}`)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.Health().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the dead server's child is gone", func() bool { return !alive(child) })
}

func TestCloseDuringCallAndStart(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := hostile(t, "plain", nil, mark)
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(context.Background(), writ.Call{Tool: "hang"})
		result <- err
	}()
	until(t, "the call is running", func() bool { return len(lines(mark)) == 1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantUnknown(t, <-result)

	s = hostile(t, "mute", nil)
	go func() {
		_, err := s.Call(context.Background(), writ.Call{Tool: "a"})
		result <- err
	}()
	until(t, "the process starts", func() bool { return s.Health().Starts == 1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantNotStarted(t, <-result)
}

func TestBackoffIsCountedAndEnds(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := hostile(t, "plain", nil, mark)
	start := time.Now()
	for range 3 {
		_, err := s.Call(t.Context(), writ.Call{Tool: "die"})
		wantUnknown(t, err)
	}
	if d := time.Since(start); d < 300*time.Millisecond { // 100 ms, then 200 ms
		t.Errorf("three starts within %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Call(ctx, writ.Call{Tool: "die"})
	wantNotStarted(t, err)
	if got := lines(mark); len(got) != 3 {
		t.Errorf("effects %v", got)
	}
	call(t, s, "echo", `{}`)
	if h := s.Health(); h.Failures != 3 || h.LastError != "" {
		t.Errorf("health %+v", h)
	}
}
