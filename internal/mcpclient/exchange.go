package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// exchange is what happened to one request, exactly: whether any byte of it may have reached the server, and what the
// server answered, byte for byte. It travels in the request's context to the connection. Its fields are settled when
// the SDK's call has returned.
type exchange struct {
	mu  sync.Mutex
	id  jsonrpc.ID
	tag any // what a relay knows the request by; set before it is sent
	outcome
}

// outcome is what is known of a request.
type outcome struct {
	sent     bool            // the server may have seen the request
	answered bool            // by the server itself
	result   json.RawMessage // of a success
	rpcErr   *jsonrpc.Error  // of a JSON-RPC error
	unread   string          // why the answer was not kept: too large, too deep
	refused  string          // HTTP: the status by which the server turned the request away; answered is true
	lost     string          // HTTP: why there is no answer although the request was sent
	expired  bool            // HTTP: the server knows no such session, so it did nothing
}

type exchangeKey struct{}

func withExchange(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// snapshot returns a copy that does not change any more.
func (x *exchange) snapshot() outcome {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.outcome
}

func (x *exchange) setSent(v bool) {
	if x != nil {
		x.note(func(o *outcome) { o.sent = v })
	}
}

func (x *exchange) note(f func(*outcome)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.outcome)
}

// exchanges are the requests of one connection that wait for an answer. The zero value is ready.
type exchanges struct {
	mu      sync.Mutex
	pending map[jsonrpc.ID]*exchange
}

// expect notes which exchange an answer with this id belongs to.
func (e *exchanges) expect(id jsonrpc.ID, x *exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending == nil {
		e.pending = map[jsonrpc.ID]*exchange{}
	}
	x.mu.Lock()
	x.id = id
	x.mu.Unlock()
	e.pending[id] = x
}

// forget drops an exchange that nobody waits for any more.
func (e *exchanges) forget(x *exchange) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending[x.id] == x {
		delete(e.pending, x.id)
	}
}

// receive keeps an answer for its exchange. The SDK gets a success that it can always decode, because the exchange
// holds the real one.
func (e *exchanges) receive(resp *jsonrpc.Response, unread string) *jsonrpc.Response {
	e.mu.Lock()
	x := e.pending[resp.ID]
	delete(e.pending, resp.ID)
	e.mu.Unlock()
	if x == nil {
		return resp
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered, x.unread = true, unread
	if e, ok := resp.Error.(*jsonrpc.Error); ok && unread == "" {
		x.rpcErr = e
	}
	if resp.Error != nil {
		return resp
	}
	x.result = bytes.Clone(resp.Result)
	return &jsonrpc.Response{ID: resp.ID, Result: json.RawMessage(`{"content":[],"tools":[]}`)}
}

// unreadable keeps that an answer came which cannot be kept, and makes an error of it for the SDK.
func (e *exchanges) unreadable(id jsonrpc.ID, why string) *jsonrpc.Response {
	return e.receive(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: why}}, why)
}
