package mcpclient

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

// Relay makes a client speak for another one: what the server asks and tells goes to it, byte for byte.
type Relay struct {
	// Capabilities are those of the client behind, offered to the server.
	Capabilities *mcp.ClientCapabilities
	// Info names the client; nil = Writ itself.
	Info *mcp.Implementation
	// Request answers sampling/createMessage, elicitation/create and roots/list. during is the Tag of the request that
	// the server asks on behalf of, where the transport tells; else nil. An *jsonrpc.Error reaches the server as it is.
	Request func(ctx context.Context, during any, method string, params json.RawMessage) (json.RawMessage, error)
	// Notice hears every notification of the server but progress, as it is read, so before the answers behind it.
	Notice func(during any, method string, params json.RawMessage)
	// Ended is called when a session was lost that nobody closed, from a goroutine of the client. It returns at once.
	Ended func()
}

// Request is one request to the server whose answer is wanted as it comes.
type Request struct {
	// Params are those of the SDK: *mcp.CallToolParams and so on. They say which method it is. They are not changed.
	Params mcp.Params
	// Progress hears the params of its progress notifications; nil = nobody asks for any.
	Progress func(params json.RawMessage)
	// Tag is handed to the relay with what belongs to this request.
	Tag any
}

// Refusal is the error of a request that the server has answered with an error.
type Refusal struct {
	Code    int64
	Message string
	Data    json.RawMessage
	Status  string // HTTP: the status by which it was turned away without a JSON-RPC error
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Status != "" {
		return "the server refused the request: " + r.Status
	}
	return fmt.Sprintf("the server refused the request: %s (code %d)", r.Message, r.Code)
}

// Do sends one request, once, and returns the result as the server wrote it. [*Refusal] is the server's own error,
// [writ.ErrNotStarted] means that it saw nothing of the request, and any other error that nobody knows.
func (c *Client) Do(ctx context.Context, req Request) (json.RawMessage, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.wg.Done()
	meta := maps.Clone(req.Params.GetMeta())
	if req.Progress != nil {
		token := fmt.Sprintf("writ-%d", c.tokens.Add(1))
		c.progress.Store(token, progressOf{raw: req.Progress})
		defer c.progress.Delete(token)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["progressToken"] = token
	}
	for attempt := 0; ; attempt++ {
		s, err := c.acquire(ctx)
		if err != nil {
			return nil, err
		}
		xctx := context.WithValue(ctx, tagKey{}, req.Tag)
		raw, sent, err := c.once(xctx, s, func(ctx context.Context) error { return send(ctx, s.ClientSession, req.Params, maps.Clone(meta)) })
		var refusal *Refusal
		switch {
		case err == nil:
			c.succeeded()
			return raw, nil
		case errors.As(err, &refusal):
			return nil, err
		case errors.Is(err, errExpired):
			return nil, fmt.Errorf("%s: %w: %w", c.cfg.Label, writ.ErrNotStarted, err)
		case sent:
			return nil, fmt.Errorf("%s: the outcome is unknown: %w", c.cfg.Label, err)
		case attempt > 0 || ctx.Err() != nil || !s.dead():
			return nil, fmt.Errorf("%s: %w: %w", c.cfg.Label, writ.ErrNotStarted, err)
		}
	}
}

type tagKey struct{}

// once hands a request over one session and waits for its answer. An error with sent false means that the server saw
// nothing of it.
func (c *Client) once(ctx context.Context, s *session, send func(context.Context) error) (raw json.RawMessage, sent bool, err error) {
	// The SDK's own goroutines end with the call's context.
	ctx, cancel := s.link.bind(ctx)
	defer cancel()
	xctx, x := withExchange(ctx)
	x.tag = ctx.Value(tagKey{})
	err = send(xctx)
	s.link.forget(x)
	o := x.snapshot()
	switch {
	case o.expired:
		return nil, true, errExpired
	case o.answered && o.unread != "":
		// Whether it was a success is in the answer that could not be kept.
		return nil, true, fmt.Errorf("the tool answered, but it could not be kept: %s (limit %d bytes, %d levels)", o.unread, c.cfg.MaxResult, maxDepth)
	case o.answered && o.refused != "":
		return nil, true, &Refusal{Code: jsonrpc.CodeInternalError, Message: o.refused, Status: o.refused}
	case o.answered && o.rpcErr != nil:
		return nil, true, &Refusal{Code: o.rpcErr.Code, Message: o.rpcErr.Message, Data: o.rpcErr.Data}
	case o.answered:
		return o.result, true, nil
	case ctx.Err() != nil:
		if o.sent {
			s.link.cancelling(x.id)
		}
		return nil, o.sent, context.Cause(ctx)
	case o.lost != "":
		return nil, o.sent, errors.New(o.lost)
	case err == nil:
		return nil, true, errNoAnswer
	case s.dead():
		return nil, o.sent, errors.New(s.link.state())
	}
	return nil, o.sent, err
}

var errNoAnswer = errors.New("the call ended without an answer")

// send is the SDK's method for the parameters, which get meta for their own.
func send(ctx context.Context, s *mcp.ClientSession, params mcp.Params, meta map[string]any) (err error) {
	switch p := params.(type) {
	case *mcp.CallToolParams:
		own := *p
		own.Meta = meta
		_, err = s.CallTool(ctx, &own)
	case *mcp.ReadResourceParams:
		own := *p
		own.Meta = meta
		_, err = s.ReadResource(ctx, &own)
	case *mcp.GetPromptParams:
		own := *p
		own.Meta = meta
		_, err = s.GetPrompt(ctx, &own)
	case *mcp.CompleteParams:
		own := *p
		own.Meta = meta
		_, err = s.Complete(ctx, &own)
	case *mcp.ListToolsParams:
		_, err = s.ListTools(ctx, &mcp.ListToolsParams{Meta: meta, Cursor: p.Cursor})
	case *mcp.ListPromptsParams:
		_, err = s.ListPrompts(ctx, &mcp.ListPromptsParams{Meta: meta, Cursor: p.Cursor})
	case *mcp.ListResourcesParams:
		_, err = s.ListResources(ctx, &mcp.ListResourcesParams{Meta: meta, Cursor: p.Cursor})
	case *mcp.ListResourceTemplatesParams:
		_, err = s.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Meta: meta, Cursor: p.Cursor})
	case *mcp.SubscribeParams:
		err = s.Subscribe(ctx, &mcp.SubscribeParams{Meta: meta, URI: p.URI})
	case *mcp.UnsubscribeParams:
		err = s.Unsubscribe(ctx, &mcp.UnsubscribeParams{Meta: meta, URI: p.URI})
	case *mcp.SetLoggingLevelParams:
		err = s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Meta: meta, Level: p.Level})
	default:
		err = fmt.Errorf("no request has parameters of type %T", params)
	}
	return err
}

// List reads all pages of a listing, each item as the server wrote it, up to [MaxTools]. A page may be asked for again:
// listing changes nothing.
func (c *Client) List(ctx context.Context, page func(cursor string) mcp.Params, field string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	cursor := ""
	for range maxPages {
		raw, err := c.Do(ctx, Request{Params: page(cursor)})
		if err != nil {
			return nil, err
		}
		var fields map[string]json.RawMessage
		var items []json.RawMessage
		if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(fields[field], &items) != nil {
			return nil, fmt.Errorf("%s: the answer is no list of %s: %.200q", c.cfg.Label, field, raw)
		}
		all = append(all, items...)
		before := cursor
		cursor = ""
		if next, ok := fields["nextCursor"]; ok && json.Unmarshal(next, &cursor) != nil {
			return nil, fmt.Errorf("%s: the listing's cursor is no string", c.cfg.Label)
		}
		if cursor == "" || cursor == before || len(all) >= MaxTools {
			return all[:min(len(all), MaxTools)], nil
		}
	}
	return all, nil
}

// Handshake returns what the server said of itself, starting or connecting to it where there is no session. From then on
// the relay hears what the server tells.
func (c *Client) Handshake(ctx context.Context) (*mcp.InitializeResult, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.wg.Done()
	s, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s.link.hearing(ctx)
	return s.InitializeResult(), nil
}

// RootsChanged tells the server that the roots of the client behind have changed; a server that is not connected to
// needs no telling.
func (c *Client) RootsChanged(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.wg.Done()
	c.mu.Lock()
	s := c.cur
	c.mu.Unlock()
	if s == nil || s.dead() || s.notify == nil {
		return nil
	}
	_, err := s.notify(ctx, "notifications/roots/list_changed", &mcp.ClientRequest[*mcp.RootsListChangedParams]{Session: s.ClientSession, Params: &mcp.RootsListChangedParams{}})
	return err
}

// relayed are the requests of a server that a relay answers.
func relayed(method string) bool {
	return method == "sampling/createMessage" || method == "elicitation/create" || method == "roots/list"
}

// carried is how a request of the server passes the SDK, whose types would lose what they do not know: as text in the
// metadata of an empty one.
const carriedRaw, carriedTag = "writ/raw", "writ/tag"

// carry replaces a relayed request of the server by one that the SDK can always read.
func (c *Client) carry(req *jsonrpc.Request, x *exchange) jsonrpc.Message {
	meta := map[string]any{carriedRaw: string(req.Params)}
	if x != nil && x.tag != nil {
		key := fmt.Sprintf("tag-%d", c.tokens.Add(1))
		c.tags.Store(key, x.tag)
		meta[carriedTag] = key
	}
	params, err := json.Marshal(map[string]any{"_meta": meta})
	if err != nil {
		return req
	}
	return &jsonrpc.Request{ID: req.ID, Method: req.Method, Params: params, Extra: req.Extra}
}

// relayRequest answers a carried request.
func (c *Client) relayRequest(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
	meta := req.GetParams().GetMeta()
	raw, _ := meta[carriedRaw].(string)
	var tag any
	if key, ok := meta[carriedTag].(string); ok {
		tag, _ = c.tags.LoadAndDelete(key)
	}
	res, err := c.cfg.Relay.Request(ctx, tag, method, json.RawMessage(raw))
	if err != nil {
		return nil, err
	}
	return &rawResult{raw: res}, nil
}

// rawResult is a result as somebody else wrote it.
type rawResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (r *rawResult) MarshalJSON() ([]byte, error) { return r.raw, nil }
