package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/runtime"
	"writ/store"
	"writ/store/sqlite"
	toolhttp "writ/tool/http"
	"writ/tool/mcp"
	"writ/tool/python"
)

// This file is the wiring: it is the one place that knows every adapter.

// defaultData is the data directory when neither --data nor WRIT_DATA names one.
const defaultData = ".writ"

func dataDir(flag string) string {
	if flag != "" {
		return flag
	}
	if env := os.Getenv("WRIT_DATA"); env != "" {
		return env
	}
	return defaultData
}

// load reads a configuration; its errors are printed one a line and end the command.
func (a *app) load(path string) (*config.Config, error) {
	if path == "" {
		return nil, usage("a configuration is required: -c FILE")
	}
	cfg, report := config.Load(path)
	if !report.OK() {
		for _, p := range report.Errors {
			fmt.Fprintln(a.err, p)
		}
		return nil, refused("writ check -c "+path+" shows everything about it", fmt.Errorf("the configuration has %s", count(len(report.Errors), "error")))
	}
	return cfg, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (a *app) agent(cfg *config.Config, id string) (*config.Agent, error) {
	agent, err := cfg.Agent(id)
	if err != nil {
		return nil, refused("", err)
	}
	return agent, nil
}

// engine is an open data directory with a runtime on it.
type engine struct {
	store   store.Store
	runtime *runtime.Runtime
	stop    func()             // of the control socket; nil while this process does not hold the directory
	applied func(*store.Batch) // set by who wants to know what came through the socket
	applies sync.Mutex         // guards applied
}

// onApplied sets who is told of what other commands have written through this process.
func (e *engine) onApplied(fn func(*store.Batch)) {
	e.applies.Lock()
	defer e.applies.Unlock()
	e.applied = fn
}

// localOwner is on whose behalf the command line works, until there are accounts.
func localOwner() string { return fmt.Sprintf("local:%d", os.Getuid()) }

// localActor may do everything with the data directory of its own user.
func localActor() admission.Actor { return admission.Actor{ID: localOwner(), Operator: true} }

// seam is where this package's tests fail and kill at chosen writes; nil in the program.
var seam func(store.Store) store.Store

func (a *app) open(ctx context.Context, dir string, log *slog.Logger) (*engine, error) {
	st, err := openStore(ctx, dir)
	if errors.Is(err, sqlite.ErrInUse) {
		return nil, refused("use another --data directory, or wait for that process; writ actions reads this one meanwhile", err)
	}
	if err != nil {
		return nil, refused("", err)
	}
	key, err := tenantKey(dir)
	if err != nil {
		st.Close()
		return nil, refused("", err)
	}
	rt, err := runtime.New(runtime.Config{Store: st, Key: key, Dir: dir, Log: log, Owner: localOwner()})
	if err != nil {
		st.Close()
		return nil, refused("", err)
	}
	e := &engine{store: st, runtime: rt}
	recovered, err := rt.Recover(ctx)
	if err != nil {
		e.close()
		return nil, refused("", err)
	}
	for _, r := range recovered {
		fmt.Fprintf(a.err, "writ: turn %s was cut off when its process ended; what it left open is settled now\n", r.Turn.ID)
		for _, row := range r.Actions {
			fmt.Fprintf(a.err, "writ:   %s %s: %s\n", row.ID, row.Tool, row.State)
			if row.State == writ.Indeterminate {
				fmt.Fprintf(a.err, "writ:     it may have happened; writ actions show %s has its idempotency key\n", row.ID)
			}
		}
	}
	e.stop, err = control(dir, st, func(b *store.Batch) {
		e.applies.Lock()
		fn := e.applied
		e.applies.Unlock()
		if fn != nil {
			fn(b)
		}
	})
	if err != nil { // it works without; only other commands cannot write meanwhile
		fmt.Fprintf(a.err, "writ: other commands cannot reach this process: %v\n", err)
		e.stop = func() {}
	}
	return e, nil
}

func openStore(ctx context.Context, dir string) (store.Store, error) {
	st, err := sqlite.Open(ctx, dir)
	if err != nil || seam == nil {
		return st, err
	}
	return seam(st), nil
}

// close gives the directory up. What has grown of the histories is sealed first.
func (e *engine) close() error {
	err := e.runtime.Close()
	if e.stop != nil {
		e.stop()
		_, _, serr := e.runtime.Seal(context.Background())
		err = errors.Join(err, serr)
	}
	return errors.Join(err, e.store.Close())
}

// tenantKey reads the key of the digests, or makes it on first use. It never leaves its file.
func tenantKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, "tenant.key")
	key, err := os.ReadFile(path)
	if err == nil {
		if len(key) != 32 {
			return nil, fmt.Errorf("reading %s: it has %d bytes, not 32", path, len(key))
		}
		return key, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the tenant's key: %w", err)
	}
	key = make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	tmp := path + ".new"
	if err := os.WriteFile(tmp, key, 0o600); err != nil {
		return nil, fmt.Errorf("writing the tenant's key: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, fmt.Errorf("writing the tenant's key: %w", err)
	}
	return key, nil
}

// connections opens the agent's active tool connections. What is not active is told, once, and its tools are absent.
func (a *app) connections(agent *config.Agent, log *slog.Logger) ([]runtime.Connection, func(), error) {
	var out []runtime.Connection
	closeAll := func() {
		for _, c := range out {
			if err := c.Tools.Close(); err != nil {
				log.Warn("closing connection", "alias", c.Config.Alias, "error", err)
			}
		}
	}
	for _, c := range agent.Connections {
		if !c.Active {
			fmt.Fprintf(a.err, "writ: the tools of %s are not available: %s\n", c.Alias, c.Reason)
			continue
		}
		if c.Kind == config.KindGo {
			fmt.Fprintf(a.err, "writ: the tools of %s are not available: kind go is for programs that embed writ and register their own tools\n", c.Alias)
			continue
		}
		set, err := openTools(agent, c, log)
		if err != nil {
			closeAll()
			return nil, nil, refused("", fmt.Errorf("connection %s: %w", c.Alias, err))
		}
		out = append(out, runtime.Connection{Config: c, Tools: set})
	}
	return out, closeAll, nil
}

func openTools(agent *config.Agent, c config.Connection, log *slog.Logger) (writ.Toolset, error) {
	switch c.Kind {
	case config.KindPython:
		cfg, err := pythonConfig(c, log)
		if err != nil {
			return nil, err
		}
		return python.Open(cfg)
	case config.KindMCP:
		env, err := secrets("env", c.Env, c.Service.Env)
		if err != nil {
			return nil, err
		}
		headers, err := secrets("header", c.Service.Headers)
		if err != nil {
			return nil, err
		}
		return mcp.Open(mcp.Config{Alias: c.Alias, Command: c.Service.Command, Args: c.Service.Args, Env: env, Dir: c.Service.Cwd,
			URL: c.Service.URL, Headers: headers, TrustTraits: c.TrustTraits, ConnectTimeout: c.Service.Timeout,
			AskInput: true, Log: log})
	case config.KindHTTP:
		headers, err := secrets("header", c.Headers)
		if err != nil {
			return nil, err
		}
		return toolhttp.Open(toolhttp.Config{Alias: c.Alias, Spec: c.Spec, BaseURL: c.URL, Headers: headers, AllowPrivate: c.AllowPrivate, Log: log})
	}
	return nil, fmt.Errorf("kind %s has no tools of this program", c.Kind)
}

func pythonConfig(c config.Connection, log *slog.Logger) (python.Config, error) {
	env, err := secrets("env", c.Env)
	return python.Config{Alias: c.Alias, File: c.Ref, Interpreter: c.Interpreter, Env: env, Log: log}, err
}

func secrets(what string, sets ...map[string]config.Secret) (map[string]string, error) {
	out := map[string]string{}
	for _, set := range sets {
		for name, s := range set {
			v, err := s.Resolve(os.LookupEnv)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", what, name, err)
			}
			out[name] = v
		}
	}
	return out, nil
}

// logger writes warnings and errors to w as text; verbose adds the rest.
func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// readAll reads bounded input from a file, or from in when path is "" or "-".
func readAll(in io.Reader, path string, most int64) ([]byte, error) {
	if path != "" && path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(in, most+1))
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, fmt.Errorf("more than %d bytes", most)
	}
	return b.Bytes(), nil
}
