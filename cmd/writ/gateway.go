package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/gateway"
	"writ/internal/mcpclient"
	"writ/server"
	"writ/store"
	"writ/store/memory"
)

type gatewayFlags struct {
	config, agent, data, http string
	hosts                     []string
	stateless, list, verbose  bool
}

func (a *app) gatewayCommand() *cobra.Command {
	f := &gatewayFlags{}
	cmd := &cobra.Command{
		Use: "gateway -c FILE", Short: "Serve an agent's MCP servers to any MCP client, every call in the ledger", Args: cobra.NoArgs,
		Long: `Serve the MCP servers that an agent's connections of kind mcp name, as one MCP server. Every
tools/call, resources/read and prompts/get is recorded in the ledger before it is sent, sent at
most once, and settled as what really happened; everything else is passed through.

Without --http it speaks over standard input and output, for one client: put this command where
the client's configuration wants the server's. Standard output belongs to the protocol; what
there is to say goes to standard error.

With --http it serves any number of clients at http://ADDR/mcp. On a loopback address nobody needs
an account: unless there are API tokens, this start has a bearer token of its own, which is printed
and kept in gateway.token in the data directory. On any other address it starts only when there is
an API token for the agent (writ token create --participant AGENT, or '*'); who made the token is on
whose behalf its clients act.`,
		Example: `  writ gateway -c writ.yaml --data ~/.writ-gateway
  writ gateway -c writ.yaml --http 127.0.0.1:8420
  writ gateway -c writ.yaml --list`,
		RunE: func(*cobra.Command, []string) error { return a.gateway(f) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "the configuration, a file or a directory")
	fl.StringVar(&f.agent, "agent", "", "whose connections (default: the default agent)")
	fl.StringVar(&f.data, "data", "", "data directory (default $WRIT_DATA, else .writ)")
	fl.StringVar(&f.http, "http", "", "serve over streamable HTTP at this address, such as 127.0.0.1:8420")
	fl.StringSliceVar(&f.hosts, "host", nil, "with --http: name that requests may have as their Host, besides localhost and addresses (repeatable)")
	fl.BoolVar(&f.stateless, "stateless", false, "with --http: requests stand alone, without sessions (protocol 2026-07-28)")
	fl.BoolVar(&f.list, "list", false, "print what clients may use and what is left out, and exit")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log more to standard error")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

func (a *app) gateway(f *gatewayFlags) error {
	switch {
	case (f.stateless || len(f.hosts) > 0) && f.http == "":
		return usage("--stateless and --host go with --http")
	case f.list && f.http != "":
		return usage("--list and --http do not go together")
	}
	cfg, err := a.load(f.config)
	if err != nil {
		return err
	}
	agent, err := a.agent(cfg, f.agent)
	if err != nil {
		return err
	}
	accepted, err := loadPins(f.config)
	if err != nil {
		return refused("", err)
	}
	log := logger(a.err, f.verbose)
	ups, prefix, err := a.upstreams(agent, accepted)
	if err != nil {
		return err
	}
	gc := gateway.Config{Agent: agent, Upstreams: ups, Prefix: prefix, Dir: dataDir(f.data), Holder: fmt.Sprintf("pid:%d", os.Getpid()),
		Approval: approvalOf(agent), Version: buildVersion(), Log: log}
	if f.list {
		return a.gatewayList(gc)
	}
	return a.gatewayServe(f, gc)
}

// gatewayServe serves over the data directory, which this process holds meanwhile.
func (a *app) gatewayServe(f *gatewayFlags, gc gateway.Config) (err error) {
	e, err := a.open(a.ctx, gc.Dir, gc.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	key, err := tenantKey(gc.Dir)
	if err != nil {
		return refused("", err)
	}
	gc.Store, gc.Ledger = e.store, admission.New(admission.Config{Store: e.store, Key: key, StartWithin: gc.Agent.StartWithin})
	g, err := gateway.New(gc)
	if err != nil {
		return refused("", err)
	}
	stop := tidying(a.ctx, g, e, gc.Log)
	if f.http != "" {
		err = a.gatewayHTTP(g, e.store, f, gc)
	} else {
		err = g.ServeStdio(a.ctx, io.NopCloser(a.in), a.out, localOwner())
	}
	stop()
	return errors.Join(err, g.Close())
}

// tidying does the housekeeping of the ledger until stop is called.
func tidying(ctx context.Context, g *gateway.Gateway, e *engine, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(housekeeping)
		defer tick.Stop()
		for {
			if err := g.Tidy(ctx); err != nil && ctx.Err() == nil {
				log.Error("held actions could not be looked at", "error", err)
			}
			if _, _, err := e.runtime.Seal(ctx); err != nil && ctx.Err() == nil {
				log.Error("the history could not be sealed", "error", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// approvalOf is the agent's rule for which calls a person must approve.
func approvalOf(agent *config.Agent) func(*config.Connection, string, writ.Traits) *admission.Approval {
	return func(c *config.Connection, tool string, traits writ.Traits) *admission.Approval {
		if !c.NeedsApproval(tool, traits) {
			return nil
		}
		return &admission.Approval{Approver: agent.Approver, Within: agent.ApprovalTime}
	}
}

// upstreams are the agent's MCP servers, and whether their names carry their aliases: that is so when the configuration
// has several, whether or not all of them can be used.
func (a *app) upstreams(agent *config.Agent, accepted pins) (ups []gateway.Upstream, prefix bool, err error) {
	several := 0
	for _, c := range agent.Connections {
		if c.Kind != config.KindMCP {
			fmt.Fprintf(a.err, "writ: %s is not served: the gateway is for connections of kind mcp, and its kind is %s\n", c.Alias, c.Kind)
			continue
		}
		several++
		if !c.Active {
			fmt.Fprintf(a.err, "writ: the tools of %s are not available: %s\n", c.Alias, c.Reason)
			continue
		}
		env, err := secrets("env", c.Env, c.Service.Env)
		if err == nil {
			var headers map[string]string
			if headers, err = secrets("header", c.Service.Headers); err == nil {
				ups = append(ups, gateway.Upstream{Connection: c, Pins: accepted[c.Alias], Client: mcpclient.Config{Command: c.Service.Command,
					Args: c.Service.Args, Env: env, Dir: c.Service.Cwd, URL: c.Service.URL, Headers: headers, ConnectTimeout: c.Service.Timeout}})
			}
		}
		if err != nil {
			return nil, false, refused("", fmt.Errorf("connection %s: %w", c.Alias, err))
		}
	}
	if len(ups) == 0 {
		return nil, false, refused("an agent has MCP servers by connections of kind mcp (docs/config.md)", fmt.Errorf("agent %s has no MCP server that can be served", agent.ID))
	}
	return ups, several > 1, nil
}

// gatewayHTTP serves until the person stops it.
func (a *app) gatewayHTTP(g *gateway.Gateway, st store.Store, f *gatewayFlags, gc gateway.Config) error {
	l, err := net.Listen("tcp", f.http)
	if err != nil {
		return refused("--http names another address", err)
	}
	defer l.Close()
	token, path, err := a.gatewayToken(st, gc, isLoopback(l.Addr()))
	if err != nil {
		return err
	}
	if token != "" {
		defer os.Remove(path)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", g.Handler(gateway.HTTP{Authenticate: bearer(st, gc.Agent.ID, token, gc.Log), Stateless: f.stateless, Hosts: f.hosts, Remote: !isLoopback(l.Addr())}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(gc.Log.Handler(), slog.LevelDebug)}
	fmt.Fprintf(a.err, "writ: serving MCP at http://%s/mcp\n", l.Addr())
	if token != "" {
		fmt.Fprintf(a.err, "writ: each request needs the header  Authorization: Bearer %s\nwrit: the token is of this start; it is in %s too\n", token, path)
	} else {
		fmt.Fprintf(a.err, "writ: each request needs an API token of participant %s (writ token list)\n", gc.Agent.ID)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err = <-served:
	case <-a.ctx.Done():
		err = g.Close() // ends the sessions and with them the streams that hang
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), 5*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		<-served
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return refused("", err)
	}
	return nil
}

// forAgent reports whether an API token lets its bearer use the gateway of the agent.
func forAgent(t store.Token, agent string, now time.Time) bool {
	return t.Kind == store.TokenAPI && (t.Subject == agent || t.Subject == server.Everybody) && server.Usable(t, now)
}

// gatewayToken makes the token of this start when nobody needs an account: on loopback, without API tokens.
func (a *app) gatewayToken(st store.Store, gc gateway.Config, loopback bool) (token, path string, err error) {
	all, err := st.Tokens(a.ctx, store.TokenAPI)
	switch {
	case err != nil:
		return "", "", refused("", err)
	case slices.ContainsFunc(all, func(t store.Token) bool { return forAgent(t, gc.Agent.ID, time.Now()) }):
		return "", "", nil
	case !loopback:
		return "", "", refused("make one with writ token create --participant "+gc.Agent.ID+", or serve at 127.0.0.1",
			fmt.Errorf("there is no API token for %s, and this address is not a loopback one", gc.Agent.ID))
	}
	token, path, err = gateway.NewToken(gc.Dir)
	if err != nil {
		return "", "", refused("", err)
	}
	return token, path, nil
}

// bearer says on whose behalf a request acts: with the token of this start, on that of who started it, with an API token
// on its owner's. API tokens are looked up each time, so that a revoked one ends at once.
func bearer(st store.Store, agent, start string, log *slog.Logger) func(*http.Request) (string, bool) {
	mine := gateway.Bearer(start, localOwner())
	return func(r *http.Request) (string, bool) {
		if start != "" {
			if who, ok := mine(r); ok {
				return who, true
			}
		}
		text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			return "", false
		}
		t, err := st.Token(r.Context(), server.HashToken(text))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			log.Error("a token could not be looked up", "error", err)
		}
		return t.Owner, err == nil && forAgent(t, agent, time.Now())
	}
}

// gatewayList prints what clients get, and what not. It needs no data: another gateway may hold the directory.
func (a *app) gatewayList(gc gateway.Config) error {
	gc.Store, gc.Log = memory.Open(), slog.New(slog.DiscardHandler) // what is left out is printed
	gc.Ledger = admission.New(admission.Config{Store: gc.Store})
	g, err := gateway.New(gc)
	if err != nil {
		return refused("", err)
	}
	list, err := g.Inventory(a.ctx)
	if err = errors.Join(err, g.Close()); err != nil {
		return refused("", err)
	}
	bad := false
	for i, up := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		fmt.Fprintf(a.out, "%s: %s\n", up.Alias, count(len(up.Tools), "tool"))
		if up.Err != nil {
			bad = true
			fmt.Fprintf(a.out, "  NOT REACHED: %v\n", up.Err)
		}
		for _, t := range up.Tools {
			fmt.Fprintf(a.out, "  %s  (%s; effect %s)\n", t.Name, t.Traits.Strategy, t.Traits.Effect)
		}
		for _, p := range up.Problems {
			fmt.Fprintf(a.out, "  LEFT OUT %s: %s\n", p.Tool, p.Message)
			if p.Hint != "" {
				fmt.Fprintf(a.out, "    hint: %s\n", p.Hint)
			}
		}
	}
	if bad {
		return &exitError{code: exitRefused}
	}
	return nil
}
