package mcpclient

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	stderrLine   = 4 << 10   // of one line; the rest of a longer one is dropped
	stderrBudget = 256 << 10 // of one process in the log; it is drained to its end all the same
	stderrTail   = 1 << 10   // kept for error messages
	drainTime    = time.Second
)

// process is one running server. Its waiter reaps it, ends what is left of its group and closes exited.
type process struct {
	cmd    *exec.Cmd
	pid    int
	stdin  *os.File // our end; closed by stop
	stdout *os.File // our end; closed by the connection
	log    *slog.Logger

	exited  chan struct{} // closed when the process and its group are gone
	exitErr error         // of Wait; read after exited

	stopOnce sync.Once
	stopErr  error

	tailMu sync.Mutex
	tail   []byte
	wg     sync.WaitGroup
}

// Environment is PATH, HOME and LANG of this process, and extra: nothing else, so that no secret of Writ's own
// reaches a server that was not given it.
func Environment(extra map[string]string) []string {
	env := map[string]string{}
	for _, k := range []string{"PATH", "HOME", "LANG"} {
		if v, ok := os.LookupEnv(k); ok {
			env[k] = v
		}
	}
	for k, v := range extra {
		env[k] = v
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// startProcess starts the command with pipes of our own: exec's would make Wait depend on grandchildren.
func startProcess(cfg *Config, log *slog.Logger) (_ *process, err error) {
	var files []*os.File
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			if r, w, err = os.Pipe(); err == nil {
				files = append(files, r, w)
			}
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(cfg.Command, cfg.Args...)
	cmd.Env = Environment(cfg.Env)
	cmd.Dir = cfg.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, startError(cfg, err)
	}
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	p := &process{cmd: cmd, pid: cmd.Process.Pid, stdin: inW, stdout: outR, log: log, exited: make(chan struct{})}
	p.wg.Go(func() { p.drainStderr(errR) })
	p.wg.Go(func() {
		p.exitErr = cmd.Wait()
		// The leader is gone; its group's id cannot be taken by another process while a member lives.
		killGroup(p.pid)
		// What it wrote is still in the pipes. Only a grandchild that left the group can keep them open, so wait
		// no longer than needed to drain them.
		_ = outR.SetReadDeadline(time.Now().Add(drainTime))
		_ = errR.SetReadDeadline(time.Now().Add(drainTime))
		close(p.exited)
	})
	return p, nil
}

func startError(cfg *Config, err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		if cfg.Dir != "" {
			if _, derr := os.Stat(cfg.Dir); derr != nil {
				return fmt.Errorf("working directory: %w", derr)
			}
		}
		return fmt.Errorf("command %q not found", cfg.Command)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("command %q is not executable: %w", cfg.Command, err)
	}
	return fmt.Errorf("command %q: %w", cfg.Command, err)
}

// stop closes stdin, then asks, then kills, waiting grace before each step, and returns when the process is gone.
// Safe to call many times and concurrently.
func (p *process) stop(grace time.Duration) error {
	p.stopOnce.Do(func() {
		p.stdin.Close()
		if p.gone(grace) {
			return
		}
		terminateGroup(p.pid)
		if p.gone(grace) {
			return
		}
		killGroup(p.pid)
		if !p.gone(5 * time.Second) {
			p.stopErr = fmt.Errorf("process %d does not die", p.pid)
		}
	})
	return p.stopErr
}

func (p *process) gone(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.exited:
		return true
	case <-t.C:
		return false
	}
}

// wait returns when the goroutines of the process have ended.
func (p *process) wait() { p.wg.Wait() }

// state says how the process stands, for error messages.
func (p *process) state() string {
	s := "its output ended"
	select {
	case <-p.exited:
		s = "its process ended"
		if p.exitErr != nil {
			s += " (" + p.exitErr.Error() + ")"
		} else {
			s += " (exit status 0)"
		}
	default:
	}
	p.tailMu.Lock()
	defer p.tailMu.Unlock()
	if t := strings.TrimSpace(strings.ToValidUTF8(string(p.tail), "")); t != "" {
		s += "; its last words: " + t
	}
	return s
}

// drainStderr reads stderr to its end: a full pipe would stop the server.
func (p *process) drainStderr(r *os.File) {
	defer r.Close()
	br := bufio.NewReaderSize(r, stderrLine)
	budget := stderrBudget
	for {
		chunk, isPrefix, err := br.ReadLine()
		if err != nil {
			return
		}
		text := strings.ToValidUTF8(string(chunk), "\uFFFD")
		for isPrefix && err == nil {
			_, isPrefix, err = br.ReadLine()
		}
		p.keepTail(text)
		switch {
		case budget <= 0:
		case len(text) >= budget:
			budget = 0
			p.log.Warn("the server writes much to stderr; the rest is not logged")
		default:
			budget -= len(text) + 1
			p.log.Info("server stderr", "line", text)
		}
	}
}

func (p *process) keepTail(text string) {
	p.tailMu.Lock()
	defer p.tailMu.Unlock()
	p.tail = append(append(p.tail, text...), '\n')
	if n := len(p.tail) - stderrTail; n > 0 {
		p.tail = append(p.tail[:0], p.tail[n:]...)
	}
}
