package gateway

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/admission"
	"writ/internal/mcpclient"
)

// receive is where every message of a client arrives.
func (g *Gateway) receive(ctx context.Context, stateless bool, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	switch method {
	case "ping", "notifications/initialized", "notifications/cancelled", "notifications/progress":
		return next(ctx, method, req)
	case "initialize":
		return g.initialize(ctx, stateless, next, req)
	}
	ss, _ := req.GetSession().(*mcp.ServerSession)
	s, done, err := g.sessionOf(ctx, stateless, ss)
	if err != nil {
		return nil, err
	}
	defer done()
	switch p := req.GetParams().(type) {
	case *mcp.CallToolParamsRaw:
		return s.callTool(ctx, ss, p)
	case *mcp.ReadResourceParams:
		return s.readResource(ctx, ss, p)
	case *mcp.GetPromptParams:
		return s.getPrompt(ctx, ss, p)
	case *mcp.ListToolsParams:
		return s.listTools(ctx, p)
	case *mcp.ListPromptsParams:
		return s.listItems(ctx, prompts, cursorOf(p == nil, func() string { return p.Cursor }))
	case *mcp.ListResourcesParams:
		return s.listItems(ctx, resources, cursorOf(p == nil, func() string { return p.Cursor }))
	case *mcp.ListResourceTemplatesParams:
		return s.listItems(ctx, templates, cursorOf(p == nil, func() string { return p.Cursor }))
	case *mcp.CompleteParams:
		return s.complete(ctx, p)
	case *mcp.SubscribeParams:
		return s.subscribe(ctx, p)
	case *mcp.UnsubscribeParams:
		return s.unsubscribe(ctx, p)
	case *mcp.SetLoggingLevelParams:
		return s.setLevel(ctx, next, req, p)
	}
	switch method {
	case "notifications/roots/list_changed":
		for _, up := range s.ups {
			_ = up.client.RootsChanged(ctx) // an upstream that is not there asks when it is
		}
		return nil, nil
	case "tools/list": // without parameters
		return s.listTools(ctx, nil)
	case "server/discover":
		res, err := next(ctx, method, req)
		if d, ok := res.(*mcp.DiscoverResult); ok && err == nil {
			d.Capabilities, d.Instructions = s.capabilities(), s.instructions()
		}
		return res, err
	case "subscriptions/listen":
		return next(ctx, method, req) // nothing can be subscribed to without a session
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method)}
}

func cursorOf(none bool, get func() string) string {
	if none {
		return ""
	}
	return get()
}

// initialize opens a session: it connects to the upstreams as the client that it is, and makes the invocation durable.
func (g *Gateway) initialize(ctx context.Context, stateless bool, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	params, _ := req.GetParams().(*mcp.InitializeParams)
	ss, _ := req.GetSession().(*mcp.ServerSession)
	if params == nil || ss == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "initialize has no parameters"}
	}
	res, err := next(ctx, "initialize", req)
	if err != nil {
		return nil, err
	}
	out, ok := res.(*mcp.InitializeResult)
	if !ok {
		return res, nil
	}
	var s *session
	if stateless {
		var done func()
		if s, done, err = g.sessionOf(ctx, true, ss); err == nil {
			defer done()
		}
	} else {
		s, err = g.openStateful(ctx, ss, params.Capabilities)
	}
	if err != nil {
		return nil, err
	}
	out.Capabilities, out.Instructions = s.capabilities(), s.instructions()
	return out, nil
}

func (g *Gateway) openStateful(ctx context.Context, ss *mcp.ServerSession, caps *mcp.ClientCapabilities) (*session, error) {
	leave, err := g.enter()
	if err != nil {
		return nil, err
	}
	s, err := g.openSession(ctx, ss, principalOf(ctx), false, caps)
	if err != nil {
		leave()
		g.log.Error("a session could not be opened", "error", err)
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the session could not be opened: " + err.Error()}
	}
	g.mu.Lock()
	g.sessions[ss] = s
	if id := ss.ID(); id != "" {
		g.byID[id] = s
	}
	closed := g.closed
	g.mu.Unlock()
	go func() {
		defer leave()
		_ = ss.Wait()
		s.close()
		g.mu.Lock()
		delete(g.sessions, ss)
		delete(g.byID, ss.ID())
		g.mu.Unlock()
	}()
	if closed {
		go ss.Close()
		return nil, errClosing
	}
	return s, nil
}

// sessionOf finds the session of a request: in the stateless mode that of its principal.
func (g *Gateway) sessionOf(ctx context.Context, stateless bool, ss *mcp.ServerSession) (*session, func(), error) {
	if stateless {
		return g.pooled(ctx, principalOf(ctx))
	}
	g.mu.Lock()
	s := g.sessions[ss]
	g.mu.Unlock()
	if s == nil {
		return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the session has not begun: initialize comes first"}
	}
	return s, func() {}, nil
}

// keyOf reads the client's idempotency key.
func keyOf(meta map[string]any) (string, error) {
	v, ok := meta[metaKey]
	if !ok {
		return "", nil
	}
	key, ok := v.(string)
	if !ok || key == "" || len(key) > 256 || !utf8.ValidString(key) {
		return "", fmt.Errorf("%s is no string of 1 to 256 bytes", metaKey)
	}
	return key, nil
}

// callID is the id of a call: the session's and the JSON-RPC id with its type. A stateless request is a session of its
// own.
func (s *session) callID(meta map[string]any) string {
	id, ok := meta[metaID].(string)
	if !ok || s.stateless {
		return admission.RandomID("call_")
	}
	if len(id) > 160 {
		sum := sha256.Sum256([]byte(id))
		id = id[:2] + "#" + hex.EncodeToString(sum[:])
	}
	return s.id + ":" + id
}

// action fills in what all kinds of actions have.
func (s *session) action(c *callable, params mcp.Params, meta map[string]any, args, shown json.RawMessage) (*action, error) {
	a := &action{c: c, params: params, meta: meta, args: args, shown: shown, callID: s.callID(meta)}
	var err error
	if a.key, err = keyOf(meta); err != nil {
		return a, err
	}
	return a, nil
}

// run governs an action whose key may be wrong.
func (s *session) act(ctx context.Context, ss *mcp.ServerSession, a *action, err error) (mcp.Result, error) {
	if err != nil {
		return a.failed(string(writ.CodeRequestInvalid), "", "not executed: "+err.Error()).result()
	}
	return s.govern(ctx, ss, a).result()
}

// asked is what an action is asked to do, as one object: the arguments, and where it goes on with a question its answers.
func asked(args json.RawMessage, responses any, state string) (json.RawMessage, error) {
	if b, err := json.Marshal(responses); state == "" && err == nil && (string(b) == "null" || string(b) == "{}") {
		return args, nil
	}
	return json.Marshal(map[string]any{"arguments": args, "inputResponses": responses, "requestState": state})
}

func (s *session) callTool(ctx context.Context, ss *mcp.ServerSession, p *mcp.CallToolParamsRaw) (mcp.Result, error) {
	c := s.known().owner(p.Name)
	if c == nil { // perhaps it is new
		now, err := s.current(ctx)
		if err != nil {
			return nil, err
		}
		if c = now.owner(p.Name); c == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", p.Name)}
		}
	}
	args := p.Arguments
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	what, err := asked(args, p.InputResponses, p.RequestState)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	params := &mcp.CallToolParams{Name: c.own, Arguments: args, InputResponses: p.InputResponses, RequestState: p.RequestState}
	a, err := s.action(c, params, p.Meta, what, args)
	if a.key != "" && p.RequestState+string(what) != string(args) { // the first step has its own stored outcome
		sum := sha256.Sum256(what)
		a.key = "step:" + hex.EncodeToString(sum[:8]) + ":" + a.key[:min(len(a.key), 200)]
	}
	res, err := s.act(ctx, ss, a, err)
	s.learn(c.up, res)
	return res, err
}

func (s *session) readResource(ctx context.Context, ss *mcp.ServerSession, p *mcp.ReadResourceParams) (mcp.Result, error) {
	up, err := s.resourceOwner(ctx, p.URI)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(map[string]string{"uri": p.URI})
	what, err := asked(args, p.InputResponses, p.RequestState)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	a, err := s.action(looking(up, resourcesRead), &mcp.ReadResourceParams{URI: p.URI, InputResponses: p.InputResponses, RequestState: p.RequestState}, p.Meta, what, args)
	return s.act(ctx, ss, a, err)
}

func (s *session) getPrompt(ctx context.Context, ss *mcp.ServerSession, p *mcp.GetPromptParams) (mcp.Result, error) {
	up, own, err := s.promptOwner(p.Name)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(map[string]any{"name": own, "arguments": p.Arguments})
	what, err := asked(args, p.InputResponses, p.RequestState)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	a, err := s.action(looking(up, promptsGet), &mcp.GetPromptParams{Name: own, Arguments: p.Arguments, InputResponses: p.InputResponses, RequestState: p.RequestState}, p.Meta, what, args)
	return s.act(ctx, ss, a, err)
}

// ask passes a request on that is no action, and its result back.
func (s *session) ask(ctx context.Context, up *upstream, params mcp.Params) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, up.conn.LimitsFor("").Timeout, errTimeout)
	defer cancel()
	raw, err := up.client.Do(ctx, mcpclient.Request{Params: params})
	var refusal *mcpclient.Refusal
	switch {
	case errors.As(err, &refusal):
		return nil, refusedBy(refusal).err
	case err != nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	return raw, nil
}

func (s *session) complete(ctx context.Context, p *mcp.CompleteParams) (mcp.Result, error) {
	own := &mcp.CompleteParams{Meta: passed(p.Meta), Argument: p.Argument, Context: p.Context, Ref: p.Ref}
	var up *upstream
	var err error
	switch {
	case p.Ref == nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the completion has no ref"}
	case p.Ref.Type == "ref/prompt":
		ref := *p.Ref
		up, ref.Name, err = s.promptOwner(p.Ref.Name)
		own.Ref = &ref
	default:
		up, err = s.resourceOwner(ctx, p.Ref.URI)
	}
	if err != nil {
		return nil, err
	}
	raw, err := s.ask(ctx, up, own)
	if err != nil {
		return nil, err
	}
	return &rawResult{raw: raw}, nil
}

// passed is the client's metadata of a request that is no action.
func passed(meta map[string]any) map[string]any {
	out := (&action{c: &callable{own: resourcesRead}, meta: meta}).upstreamMeta("")
	if len(out) == 0 {
		return nil
	}
	return out
}

var done = json.RawMessage("{}")

func (s *session) subscribe(ctx context.Context, p *mcp.SubscribeParams) (mcp.Result, error) {
	up, err := s.resourceOwner(ctx, p.URI)
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(ctx, up, &mcp.SubscribeParams{Meta: passed(p.Meta), URI: p.URI}); err != nil {
		return nil, err
	}
	up.mu.Lock()
	defer up.mu.Unlock()
	up.subs[p.URI] = true
	return &rawResult{raw: done}, nil
}

func (s *session) unsubscribe(ctx context.Context, p *mcp.UnsubscribeParams) (mcp.Result, error) {
	up, err := s.resourceOwner(ctx, p.URI)
	if err != nil {
		return nil, err
	}
	up.mu.Lock()
	delete(up.subs, p.URI)
	up.mu.Unlock()
	if _, err := s.ask(ctx, up, &mcp.UnsubscribeParams{Meta: passed(p.Meta), URI: p.URI}); err != nil {
		return nil, err
	}
	return &rawResult{raw: done}, nil
}

// setLevel tells all upstreams that have log messages. One that refuses speaks for itself; the others have been told.
func (s *session) setLevel(ctx context.Context, next mcp.MethodHandler, req mcp.Request, p *mcp.SetLoggingLevelParams) (mcp.Result, error) {
	if _, err := next(ctx, "logging/setLevel", req); err != nil {
		return nil, err
	}
	var failed error
	for _, up := range s.ups {
		if up.caps().Logging == nil {
			continue
		}
		if _, err := s.ask(ctx, up, &mcp.SetLoggingLevelParams{Meta: passed(p.Meta), Level: p.Level}); err != nil {
			failed = err
			continue
		}
		up.mu.Lock()
		up.level = p.Level
		up.mu.Unlock()
	}
	if failed != nil {
		return nil, failed
	}
	return &rawResult{raw: done}, nil
}
