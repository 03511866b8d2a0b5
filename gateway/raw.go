package gateway

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Metadata of the gateway's own, in requests and results.
const (
	metaKey    = "writ/key"          // the client's idempotency key; upstream, the action's
	metaCallID = "writ/tool_call_id" // upstream
	metaID     = "writ/id"           // inside this process: the JSON-RPC id of a request, with its type
	metaAction = "writ/action"       // the action that a result of the gateway's own is about
	metaCode   = "writ/code"         // why it has no result of the server
	metaState  = "writ/state"        // the action's state in the ledger
)

// rawResult is a result as an upstream wrote it.
type rawResult struct {
	mcp.ResultBase
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (r *rawResult) MarshalJSON() ([]byte, error) {
	if len(r.Meta) == 0 {
		return r.raw, nil
	}
	// The SDK has added something to the metadata (protocol 2026-07-28: who the server is).
	var fields map[string]json.RawMessage
	if json.Unmarshal(r.raw, &fields) != nil || fields == nil {
		return r.raw, nil
	}
	meta := map[string]any{}
	_ = json.Unmarshal(fields["_meta"], &meta) // metadata that is no object is replaced
	for k, v := range r.Meta {
		if _, own := meta[k]; !own {
			meta[k] = v
		}
	}
	b, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	fields["_meta"] = b
	return json.Marshal(fields)
}

// rawParams are parameters as an upstream wrote them.
type rawParams struct {
	mcp.ParamsBase
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (p *rawParams) MarshalJSON() ([]byte, error) {
	if len(p.raw) == 0 {
		return []byte("{}"), nil
	}
	return p.raw, nil
}

// tell sends a notification or a request of an upstream to a client. What is sent in the context of a client's request
// goes with the answer to it.
func (g *Gateway) tell(ctx context.Context, ss *mcp.ServerSession, method string, params json.RawMessage) (mcp.Result, error) {
	return g.notify(ctx, method, &mcp.ServerRequest[*rawParams]{Session: ss, Params: &rawParams{raw: params}})
}

// tag writes a request's JSON-RPC id into the metadata of its parameters, since the SDK does not tell it to handlers.
// A client cannot write there itself.
func tag(params json.RawMessage, id any) json.RawMessage {
	var fields, meta map[string]json.RawMessage
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage("{}")
	}
	if json.Unmarshal(params, &fields) != nil || fields == nil {
		return params
	}
	if json.Unmarshal(fields["_meta"], &meta) != nil || meta == nil {
		meta = map[string]json.RawMessage{}
	}
	meta[metaID], _ = json.Marshal(typed(id))
	fields["_meta"], _ = json.Marshal(meta)
	out, err := json.Marshal(fields)
	if err != nil {
		return params
	}
	return out
}

// typed keeps apart ids that print alike: 1 and "1".
func typed(id any) string {
	if s, ok := id.(string); ok {
		return "s:" + s
	}
	b, _ := json.Marshal(id)
	return "i:" + string(b)
}

// governed are the methods that are actions.
func governed(method string) bool {
	return method == "tools/call" || method == "resources/read" || method == "prompts/get"
}

// tagging is a transport whose governed requests carry their ids.
type tagging struct{ mcp.Transport }

// Connect implements [mcp.Transport].
func (t tagging) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return taggingConn{c}, nil
}

type taggingConn struct{ mcp.Connection }

// Read implements [mcp.Connection].
func (c taggingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() && governed(req.Method) {
		req.Params = tag(req.Params, req.ID.Raw())
	}
	return msg, err
}

// tagBody does the same for the body of an HTTP request. What is no JSON-RPC stays as it is, for the SDK to refuse.
func tagBody(body []byte) []byte {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) == 0 {
		return body
	}
	if trimmed[0] != '[' {
		return tagMessage(trimmed)
	}
	var batch []json.RawMessage
	if json.Unmarshal(trimmed, &batch) != nil {
		return body
	}
	for i := range batch {
		batch[i] = tagMessage(batch[i])
	}
	out, err := json.Marshal(batch)
	if err != nil {
		return body
	}
	return out
}

func tagMessage(msg []byte) []byte {
	var fields map[string]json.RawMessage
	var method string
	var id any
	if json.Unmarshal(msg, &fields) != nil || json.Unmarshal(fields["method"], &method) != nil || !governed(method) {
		return msg
	}
	dec := json.NewDecoder(bytes.NewReader(fields["id"]))
	dec.UseNumber()
	if dec.Decode(&id) != nil || id == nil {
		return msg
	}
	fields["params"] = tag(fields["params"], id)
	out, err := json.Marshal(fields)
	if err != nil {
		return msg
	}
	return out
}
