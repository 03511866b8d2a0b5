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
	"time"

	"github.com/spf13/cobra"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/gateway"
	"writ/internal/mcpclient"
)

type gatewayFlags struct {
	config, agent, data, http string
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

With --http it serves any number of clients at http://ADDR/mcp. ADDR is of this machine; the
bearer token of this start is printed and kept in gateway.token in the data directory.`,
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
	fl.BoolVar(&f.stateless, "stateless", false, "with --http: requests stand alone, without sessions (protocol 2026-07-28)")
	fl.BoolVar(&f.list, "list", false, "print what clients may use and what is left out, and exit")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log more to standard error")
	return cmd
}

func (a *app) gateway(f *gatewayFlags) error {
	switch {
	case f.stateless && f.http == "":
		return usage("--stateless goes with --http")
	case f.list && f.http != "":
		return usage("--list and --http do not go together")
	case f.http != "" && !gateway.Loopback(f.http):
		return refused("use an address of this machine, such as 127.0.0.1:8420", fmt.Errorf("serving at %s would let others in, and there are no tokens for them yet", f.http))
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
	dir := dataDir(f.data)
	e, err := a.open(a.ctx, dir, log)
	if err != nil {
		return err
	}
	defer e.close()
	key, err := tenantKey(dir)
	if err != nil {
		return refused("", err)
	}
	g, err := gateway.New(gateway.Config{Agent: agent, Upstreams: ups, Prefix: prefix, Store: e.store, Dir: dir, Holder: fmt.Sprintf("pid:%d", os.Getpid()),
		Approval: approvalOf(agent),
		Ledger:   admission.New(admission.Config{Store: e.store, Key: key, StartWithin: agent.StartWithin}),
		Version:  buildVersion(), Log: log})
	if err != nil {
		return refused("", err)
	}
	principal := localOwner()
	switch {
	case f.list:
		err = a.gatewayList(g)
	case f.http != "":
		err = a.gatewayHTTP(g, f, dir, principal, log)
	default:
		err = g.ServeStdio(a.ctx, io.NopCloser(a.in), a.out, principal)
	}
	return errors.Join(err, g.Close())
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
func (a *app) gatewayHTTP(g *gateway.Gateway, f *gatewayFlags, dir, principal string, log *slog.Logger) error {
	token, path, err := gateway.NewToken(dir)
	if err != nil {
		return refused("", err)
	}
	l, err := net.Listen("tcp", f.http)
	if err != nil {
		return refused("", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", g.Handler(gateway.HTTP{Authenticate: gateway.Bearer(token, principal), Stateless: f.stateless}))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	fmt.Fprintf(a.err, "writ: serving MCP at http://%s/mcp\nwrit: each request needs the header  Authorization: Bearer %s\nwrit: the token is of this start; it is in %s too\n", l.Addr(), token, path)
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
	if rerr := os.Remove(path); rerr != nil && err == nil {
		log.Debug("the token's file could not be removed", "error", rerr)
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return refused("", err)
	}
	return nil
}

// gatewayList prints what clients get, and what not.
func (a *app) gatewayList(g *gateway.Gateway) error {
	list, err := g.Inventory(a.ctx)
	if err != nil {
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
