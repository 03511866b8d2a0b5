package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"writ/config"
	"writ/server"
	"writ/store"
)

// defaultListen is where `writ serve` listens when it is not told.
const defaultListen = "127.0.0.1:8720"

// startTokenFile has the token of this start, for its owner only. It is there while the server is.
const startTokenFile = "serve.token"

// Bounds of a connection. drainTime is how long requests under way may take once the server stops.
const (
	headerTime = 10 * time.Second
	readTime   = 30 * time.Second
	writeTime  = 60 * time.Second
	idleTime   = 2 * time.Minute
	drainTime  = 20 * time.Second
	maxHeader  = 32 << 10
)

type serveFlags struct {
	config, listen, data string
	hosts                []string
	verbose              bool
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve -c FILE [--listen ADDR] [--data DIR]",
		Short: "Serve the admission port over HTTP, and run the agents that act by themselves",
		Long: `Serve the configuration's authored participants to outside harnesses: each has its tool actions
admitted over HTTP before they have any effect, and tells what became of them. docs/http.md has every
request with its answer; /openapi.json describes them for programs. Agents with an autonomous policy run as it says
(writ schedules), and a parked turn goes on when its approvals have been decided.

On a loopback address nobody needs an account: unless there are API tokens, this start has a token of
its own, which the printed address and the file serve.token in the data directory carry. On any other
address it starts only when there is an API token (writ token create).

Ctrl-C stops it: what is under way is answered, and invocations with nothing left to settle are closed.
The next start settles the others. A second Ctrl-C ends it at once.`,
		Example: `  writ serve -c writ.yaml
  writ serve -c writ.yaml --listen 0.0.0.0:8720 --host writ.example.org`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.serve(&f) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration: a YAML file or a directory of them")
	fl.StringVar(&f.listen, "listen", defaultListen, "address to listen on; port 0 takes a free one")
	fl.StringVar(&f.data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.StringSliceVar(&f.hosts, "host", nil, "name that requests may have as their Host, besides localhost and addresses (repeatable)")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log what happens")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

func (a *app) serve(f *serveFlags) (err error) {
	cfg, err := a.load(f.config)
	if err != nil {
		return err
	}
	if len(cfg.Participants) == 0 && !slices.ContainsFunc(activeAgents(cfg), actsByItself) {
		return refused("docs/admission.md and the key autonomous in docs/config.md show what to write",
			errors.New("the configuration has no participant with a port and no agent that acts by itself, so there is nothing to serve"))
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return refused("--listen names another address", err)
	}
	defer l.Close()
	dir, log := dataDir(f.data), logger(a.err, f.verbose)
	e, err := a.open(a.ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	token, err := a.startToken(e.store, dir, isLoopback(l.Addr()))
	if err != nil {
		return err
	}
	if token != "" {
		defer os.Remove(filepath.Join(dir, startTokenFile))
	}
	key, err := tenantKey(dir)
	if err != nil {
		return refused("", err)
	}
	s, err := server.New(server.Config{Store: e.store, Key: key, Holder: fmt.Sprintf("pid:%d", os.Getpid()), Participants: cfg.Participants,
		Opaque: cfg.Opaque, Owner: localOwner(), StartToken: token, Loopback: isLoopback(l.Addr()), Hosts: f.hosts, Version: buildVersion(), Log: log})
	if err != nil {
		return refused("", err)
	}
	b := a.startBackground(cfg, e, f.config, log)
	defer b.Close()
	a.printServing(cfg, l.Addr(), token)
	return a.untilStopped(s, l)
}

// untilStopped answers requests until the person ends it.
func (a *app) untilStopped(s *server.Server, l net.Listener) error {
	web := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeader}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	var failed error
	select {
	case failed = <-ended:
	case <-a.ctx.Done():
	}
	s.Drain()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), drainTime)
	defer cancel()
	if err := web.Shutdown(ctx); err != nil {
		_ = web.Close() // what is still under way is cut off; what was written of it counts
	}
	if failed == nil {
		<-ended
	}
	left, err := s.Close(ctx)
	if left > 0 {
		fmt.Fprintf(a.err, "writ: %s left open; the next start settles what it has not settled\n", count(left, "invocation"))
	}
	if failed != nil {
		return refused("", errors.Join(failed, err))
	}
	return err
}

// startToken makes the token of this start when nobody needs an account: on loopback, without API tokens.
func (a *app) startToken(st store.Store, dir string, loopback bool) (string, error) {
	all, err := server.Desk{Store: st, Now: time.Now}.List(a.ctx)
	if err != nil {
		return "", refused("", err)
	}
	path := filepath.Join(dir, startTokenFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a start that was killed
		return "", refused("", fmt.Errorf("removing %s: %w", path, err))
	}
	switch {
	case slices.ContainsFunc(all, func(t store.Token) bool { return server.Usable(t, time.Now()) }):
		return "", nil
	case !loopback:
		return "", refused("make one with writ token create --participant NAME, or listen on 127.0.0.1",
			errors.New("there is no API token, and this address is not a loopback one"))
	}
	token := server.NewToken()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, token)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return "", refused("", fmt.Errorf("writing the token of this start: %w", err))
	}
	return token, nil
}

// printServing tells where the server is, on one line that a program can read, and whom it serves.
func (a *app) printServing(cfg *config.Config, addr net.Addr, token string) {
	url := "http://" + addr.String() + "/"
	if token != "" {
		url += "?token=" + token
	}
	fmt.Fprintf(a.out, "writ: serving on %s\n", url)
	for _, p := range cfg.Participants {
		fmt.Fprintf(a.err, "writ: participant %s (%s)\n", p.Name, count(len(p.Bindings), "binding"))
	}
	for _, ag := range activeAgents(cfg) {
		if actsByItself(ag) {
			fmt.Fprintf(a.err, "writ: agent %s acts by itself: %s\n", ag.ID, ag.Autonomous)
		}
	}
	for _, p := range cfg.Opaque {
		fmt.Fprintf(a.err, "writ: participant %s has no port: %s\n", p.Name, p.Why)
	}
}

func isLoopback(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
