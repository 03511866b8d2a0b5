// Package mcp connects a Model Context Protocol server over stdio as a [writ.Toolset].
//
// The server starts with the first use, in a process group of its own, with PATH, HOME, LANG and the configured
// variables as its whole environment. When it dies, calls in flight are unknown and the next call starts a fresh
// process, with backoff; no call is ever sent twice.
package mcp

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"writ"
	"writ/internal/mcpclient"
)

// Config says how to start one MCP server. Zero values are the documented defaults.
type Config struct {
	Alias          string            // the connection's name, for messages and logs
	Command        string            // the program; looked up in Writ's own PATH
	Args           []string          // its arguments
	Env            map[string]string // added to PATH, HOME and LANG; nothing else reaches the server
	Dir            string            // working directory; empty = Writ's own
	TrustTraits    bool              // whether traits in the server's _meta count
	ConnectTimeout time.Duration     // start and handshake, and one listing; 0 = 30 s
	MaxResult      int               // bytes of one answer; 0 = 32 MiB
	Log            *slog.Logger      // gets the server's stderr too; nil = discarded
}

// Health is what is known of the server's process.
type Health = mcpclient.Health

// Server is one MCP server. It is safe for concurrent use.
//
// Tools reports the annotations of every tool as hints; whether they are believed is decided elsewhere. Traits in
// _meta ("writ/tool_traits", else "tool_traits") become declared traits only with TrustTraits.
type Server struct{ *mcpclient.Client }

var _ writ.Toolset = (*Server)(nil)

// Open prepares a connection. The server's process starts with the first Tools or Call; until then only the
// configuration can be wrong.
func Open(cfg Config) (*Server, error) {
	if cfg.Command == "" {
		return nil, errors.New("mcp: opening: no command")
	}
	c, err := mcpclient.New(mcpclient.Config{
		Label: fmt.Sprintf("mcp: %q", cfg.Alias), Command: cfg.Command, Args: cfg.Args, Env: cfg.Env, Dir: cfg.Dir,
		TrustTraits: cfg.TrustTraits, ConnectTimeout: cfg.ConnectTimeout, MaxResult: cfg.MaxResult, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Server{c}, nil
}
