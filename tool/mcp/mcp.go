// Package mcp connects a Model Context Protocol server, over stdio or streamable HTTP, as a [writ.Toolset].
//
// A local server starts with the first use, in a process group of its own, with PATH, HOME, LANG and the configured
// variables as its whole environment. A remote one is connected to with the first use. When a server dies, calls in
// flight are unknown and the next call starts a fresh process or session, with backoff; no call is ever sent twice.
package mcp

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"writ"
	"writ/internal/mcpclient"
)

// Config says how to reach one MCP server: either Command or URL. Zero values are the documented defaults.
type Config struct {
	Alias string // the connection's name, for messages and logs

	Command string            // the program; looked up in Writ's own PATH
	Args    []string          // its arguments
	Env     map[string]string // added to PATH, HOME and LANG; nothing else reaches the server
	Dir     string            // working directory; empty = Writ's own

	URL     string            // the address of a streamable HTTP server; it may be private, redirects are not followed
	Headers map[string]string // sent with every request to it, credentials above all; never in an error or a log
	TLS     *tls.Config       // nil = the system's roots

	TrustTraits    bool          // whether traits in the server's _meta count
	ConnectTimeout time.Duration // start and handshake, and one listing; 0 = 30 s
	IdleCheck      time.Duration // a session over HTTP idle for longer is tried with a ping before a call; 0 = 10 s
	MaxResult      int           // bytes of one answer; 0 = 32 MiB
	Log            *slog.Logger  // gets the server's stderr too; nil = discarded

	// AskInput says that the caller handles [*writ.InputRequired]. Without it no server is told that it may ask for
	// input, and one that asks all the same has answered with an error.
	AskInput bool
	// Elicit answers a question that a server of a protocol before 2026-07-28 asks in the middle of a call. Params are
	// those of elicitation/create; the answer is {"action": "accept" | "decline" | "cancel", "content": {…}}, to which
	// the schema's defaults are added. The call's time runs on meanwhile, and a restart loses the question. Nil = such
	// servers are not told that they may ask, and every question is declined.
	Elicit func(ctx context.Context, params json.RawMessage) (json.RawMessage, error)
}

// Health is what is known of the server.
type Health = mcpclient.Health

// Server is one MCP server. It is safe for concurrent use.
//
// Tools reports the annotations of every tool as hints; whether they are believed is decided elsewhere. Traits in
// _meta ("writ/tool_traits", else "tool_traits") become declared traits only with TrustTraits.
type Server struct{ *mcpclient.Client }

var _ writ.Toolset = (*Server)(nil)

// Open prepares a connection. The server is started or connected to with the first Tools or Call; until then only the
// configuration can be wrong.
func Open(cfg Config) (*Server, error) {
	switch {
	case cfg.Command == "" && cfg.URL == "":
		return nil, errors.New("mcp: opening: neither a command nor a URL")
	case cfg.Command != "" && cfg.URL != "":
		return nil, errors.New("mcp: opening: both a command and a URL")
	}
	c, err := mcpclient.New(mcpclient.Config{
		Label: fmt.Sprintf("mcp: %q", cfg.Alias), Command: cfg.Command, Args: cfg.Args, Env: cfg.Env, Dir: cfg.Dir,
		URL: cfg.URL, Headers: cfg.Headers, TLS: cfg.TLS, TrustTraits: cfg.TrustTraits,
		ConnectTimeout: cfg.ConnectTimeout, IdleCheck: cfg.IdleCheck, MaxResult: cfg.MaxResult, Log: cfg.Log,
		AskInput: cfg.AskInput, Elicit: cfg.Elicit,
	})
	if err != nil {
		return nil, err
	}
	return &Server{c}, nil
}
