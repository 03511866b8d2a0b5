package gateway

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ/config"
	"writ/internal/mcpclient"
)

// kind is one of the listings of a server.
type kind int

const (
	tools kind = iota
	prompts
	resources
	templates
	kinds // how many there are
)

// listings say how each kind is asked for and told of.
var listings = [kinds]struct {
	field, changed string
	page           func(cursor string) mcp.Params
}{
	tools:     {"tools", "notifications/tools/list_changed", func(c string) mcp.Params { return &mcp.ListToolsParams{Cursor: c} }},
	prompts:   {"prompts", "notifications/prompts/list_changed", func(c string) mcp.Params { return &mcp.ListPromptsParams{Cursor: c} }},
	resources: {"resources", "notifications/resources/list_changed", func(c string) mcp.Params { return &mcp.ListResourcesParams{Cursor: c} }},
	templates: {"resourceTemplates", "notifications/resources/list_changed", func(c string) mcp.Params { return &mcp.ListResourceTemplatesParams{Cursor: c} }},
}

// upstream is the session of one client with one MCP server.
type upstream struct {
	s      *session
	alias  string
	conn   config.Connection
	pins   map[string]string
	client *mcpclient.Client

	mu     sync.Mutex
	info   *mcp.InitializeResult // what the server last said of itself; nil before the first handshake
	lists  [kinds]listing
	flying []*flight // that the server works on, the oldest first
	level  mcp.LoggingLevel
	subs   map[string]bool // resources that are subscribed to

	listMu [kinds]sync.Mutex // one listing of a kind at a time
	wake   chan struct{}     // the session with the server was lost, or never came to be
}

// listing is what a server last listed.
type listing struct {
	items []json.RawMessage
	asked int64 // changes when it was asked for
	known bool
	// changes counts what the server has said of changes, and its restarts.
	changes int64
}

func (s *session) newUpstream(u Upstream, caps *mcp.ClientCapabilities) (*upstream, error) {
	up := &upstream{s: s, alias: u.Connection.Alias, conn: u.Connection, pins: u.Pins, subs: map[string]bool{}, wake: make(chan struct{}, 1)}
	cfg := u.Client
	cfg.Label, cfg.Log, cfg.TrustTraits = fmt.Sprintf("mcp: %q", up.alias), s.g.log, u.Connection.TrustTraits
	cfg.Relay = &mcpclient.Relay{Capabilities: caps, Request: up.request, Notice: up.notice, Ended: up.lost}
	var err error
	up.client, err = mcpclient.New(cfg)
	return up, err
}

// caps are what the server offers; never nil.
func (u *upstream) caps() mcp.ServerCapabilities {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.info == nil || u.info.Capabilities == nil {
		return mcp.ServerCapabilities{}
	}
	return *u.info.Capabilities
}

// offers reports whether the server has listings of the kind, and whether it tells of their changes.
func (u *upstream) offers(k kind) (has, tells bool) {
	c := u.caps()
	switch {
	case k == tools && c.Tools != nil:
		return true, c.Tools.ListChanged
	case k == prompts && c.Prompts != nil:
		return true, c.Prompts.ListChanged
	case (k == resources || k == templates) && c.Resources != nil:
		return true, c.Resources.ListChanged
	}
	return false, false
}

// greet connects to the server and keeps what it says of itself.
func (u *upstream) greet(ctx context.Context) error {
	info, err := u.client.Handshake(ctx)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.info = info
	u.mu.Unlock()
	return nil
}

// list returns the items of a kind: those known, where the server would have told of a change, else asked for. When it
// cannot be asked, what was known stays.
func (u *upstream) list(ctx context.Context, k kind) []json.RawMessage {
	has, tells := u.offers(k)
	if !has {
		return nil
	}
	u.listMu[k].Lock()
	defer u.listMu[k].Unlock()
	u.mu.Lock()
	l := u.lists[k]
	u.mu.Unlock()
	if l.known && tells && l.asked == l.changes {
		return l.items
	}
	items, err := u.client.List(ctx, listings[k].page, listings[k].field)
	var refusal *mcpclient.Refusal
	if errors.As(err, &refusal) && refusal.Code == jsonrpc.CodeMethodNotFound {
		items, err = nil, nil // it offers resources, but no templates
	}
	if err != nil {
		if ctx.Err() == nil {
			u.s.g.log.Warn("an upstream could not be listed; what was known of it stays", "connection", u.alias, "what", listings[k].field, "error", err)
		}
		return l.items
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lists[k].items, u.lists[k].known, u.lists[k].asked = items, true, l.changes
	return items
}

// stale makes the next listing of the kinds be asked for.
func (u *upstream) stale(which ...kind) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, k := range which {
		u.lists[k].changes++
	}
}

// lost hears that the session with the server was lost.
func (u *upstream) lost() {
	u.stale(tools, prompts, resources, templates)
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// restorePause is between two tries to reach a server; the client has a backoff of its own beside it.
const restorePause = 100 * time.Millisecond

// restore reaches a lost server again and gives the new session what the client had set in the old one. What the server
// lists then may differ.
func (u *upstream) restore() {
	for {
		select {
		case <-u.wake:
		case <-u.s.life.Done():
			return
		}
		for u.greet(u.s.life) != nil {
			t := time.NewTimer(restorePause)
			select {
			case <-t.C:
			case <-u.s.life.Done():
				t.Stop()
				return
			}
		}
		u.mu.Lock()
		level := u.level
		subs := make([]string, 0, len(u.subs))
		for uri := range u.subs {
			subs = append(subs, uri)
		}
		u.mu.Unlock()
		slices.Sort(subs)
		if level != "" {
			_, _ = u.client.Do(u.s.life, mcpclient.Request{Params: &mcp.SetLoggingLevelParams{Level: level}})
		}
		for _, uri := range subs {
			if _, err := u.client.Do(u.s.life, mcpclient.Request{Params: &mcp.SubscribeParams{URI: uri}}); err != nil {
				u.s.g.log.Warn("a subscription was lost with its upstream", "connection", u.alias, "uri", uri, "error", err)
			}
		}
		u.s.changed(change{again: true, kinds: []kind{tools, prompts, resources}})
	}
}

// begin and finish tell which requests the server works on, so that what it asks and tells finds its way.
func (u *upstream) begin(f *flight) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flying = append(u.flying, f)
}

func (u *upstream) finish(f *flight) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.flying = slices.DeleteFunc(u.flying, func(other *flight) bool { return other == f })
}

// for whom the server speaks: the request that the transport names, else the oldest it works on; over stdio all of them
// are of the same client.
func (u *upstream) during(tagged any) *flight {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f, ok := tagged.(*flight); ok && f != nil && slices.Contains(u.flying, f) {
		return f
	}
	if len(u.flying) > 0 {
		return u.flying[0]
	}
	return nil
}

// request passes on what the server asks of the client: sampling, elicitation, roots.
func (u *upstream) request(ctx context.Context, tagged any, method string, params json.RawMessage) (json.RawMessage, error) {
	f := u.during(tagged)
	on, ss := u.s.base, u.s.ss
	if f != nil {
		on, ss = f.ctx, f.ss
	}
	if ss == nil || u.s.stateless {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not offered: the client has no session"}
	}
	on, cancel := context.WithCancel(on)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	res, err := u.s.g.tell(on, ss, method, params)
	if err != nil {
		var rpc *jsonrpc.Error
		if errors.As(err, &rpc) {
			return nil, rpc
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client did not answer: " + err.Error()}
	}
	return json.Marshal(res)
}

// notice passes on what the server tells.
func (u *upstream) notice(tagged any, method string, params json.RawMessage) {
	switch method {
	case "notifications/message":
		u.s.tellDuring(u.during(tagged), method, u.labelled(params))
	case "notifications/resources/updated", "notifications/elicitation/complete":
		u.s.tellDuring(u.during(tagged), method, params)
	case listings[tools].changed:
		u.stale(tools)
		u.s.changed(change{kinds: []kind{tools}})
	case listings[prompts].changed:
		u.stale(prompts)
		u.s.changed(change{kinds: []kind{prompts}})
	case listings[resources].changed:
		u.stale(resources, templates)
		u.s.changed(change{kinds: []kind{resources}})
	}
}

// labelled names the server in a log message where there are several.
func (u *upstream) labelled(params json.RawMessage) json.RawMessage {
	if !u.s.g.cfg.Prefix {
		return params
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(params, &fields) != nil || fields == nil {
		return params
	}
	logger := u.alias
	var own string
	if json.Unmarshal(fields["logger"], &own) == nil && own != "" {
		logger += "." + own
	}
	fields["logger"], _ = json.Marshal(logger)
	out, err := json.Marshal(fields)
	if err != nil {
		return params
	}
	return out
}

func sameItems(a, b []json.RawMessage) bool {
	return slices.EqualFunc(a, b, func(x, y json.RawMessage) bool { return bytes.Equal(x, y) })
}
