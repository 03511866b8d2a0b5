package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

// newClient offers the server nothing of its own accord: no roots, no sampling, and elicitation only where somebody
// answers.
func (c *Client) newClient() (*mcp.Client, mcp.MethodHandler) {
	opts := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{},
		// The SDK would answer an input request by sending the call again.
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.changes.Add(1)
		},
	}
	info := &mcp.Implementation{Name: "writ", Version: "1"}
	if r := c.cfg.Relay; r != nil {
		if r.Capabilities != nil {
			opts.Capabilities = r.Capabilities
		}
		if r.Info != nil {
			info = r.Info
		}
	} else if c.cfg.AskInput || c.cfg.Elicit != nil {
		opts.Capabilities.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}
	}
	if c.cfg.Elicit != nil {
		opts.ElicitationHandler = c.elicit
	}
	client := mcp.NewClient(info, opts)
	var notify mcp.MethodHandler
	client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		notify = next
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if p, ok := req.GetParams().(*mcp.InitializeParams); ok && method == "initialize" && c.cfg.Elicit == nil && c.cfg.Relay == nil {
				// A server of this protocol would ask in the middle of a call, and nobody is there.
				p.Capabilities.Elicitation = nil
			}
			return next(ctx, method, req)
		}
	})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if c.cfg.Relay != nil && relayed(method) {
				return c.relayRequest(ctx, method, req)
			}
			switch method {
			case "roots/list", "sampling/createMessage":
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not offered"}
			case "elicitation/create":
				if c.cfg.Elicit == nil {
					return &mcp.ElicitResult{Action: "decline"}, nil
				}
			}
			return next(ctx, method, req)
		}
	})
	return client, notify
}

// elicit asks the owner of the client. A question that cannot be put or answered is declined.
func (c *Client) elicit(ctx context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	params, err := json.Marshal(req.Params)
	if err != nil {
		return nil, fmt.Errorf("encoding the question: %w", err)
	}
	answer, err := c.cfg.Elicit(ctx, params)
	if err != nil {
		c.log.Warn("a question of the server was not answered", "error", err)
		return &mcp.ElicitResult{Action: "decline"}, nil
	}
	var res mcp.ElicitResult
	if err := json.Unmarshal(answer, &res); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	return &res, nil
}

// params are those of tools/call.
func (c *Client) params(call writ.Call, args json.RawMessage) (*mcp.CallToolParams, error) {
	params := &mcp.CallToolParams{Name: call.Tool, Arguments: args, Meta: mcp.Meta{}}
	if call.IdempotencyKey != "" {
		params.Meta["writ/key"] = call.IdempotencyKey
	}
	if call.ToolCallID != "" {
		params.Meta["writ/tool_call_id"] = call.ToolCallID
	}
	if len(call.Input) > 0 {
		var input struct {
			Responses mcp.InputResponseMap `json:"inputResponses"`
			State     string               `json:"requestState"`
		}
		if err := json.Unmarshal(call.Input, &input); err != nil {
			return nil, fmt.Errorf("the answers to its questions: %w", err)
		}
		params.InputResponses, params.RequestState = input.Responses, input.State
	}
	return params, nil
}

// expectProgress asks for progress of one call until the returned function is called.
func (c *Client) expectProgress(call writ.Call, params *mcp.CallToolParams) func() {
	if call.Progress == nil {
		return func() {}
	}
	token := fmt.Sprintf("writ-%d", c.tokens.Add(1))
	c.progress.Store(token, progressOf{call: call.Progress})
	params.SetProgressToken(token)
	return func() { c.progress.Delete(token) }
}

// progressOf is who hears of a request's progress: a call's own ears, or a relay's.
type progressOf struct {
	call func(done, total float64, message string)
	raw  func(params json.RawMessage)
}

// hear takes what the server tells and asks as it is read, before the answers behind it: the SDK's own handlers run when
// they come to it, which is often after the call has returned. x is the request that the message came with, where the
// transport tells. It returns the message for the SDK.
func (c *Client) hear(msg jsonrpc.Message, x *exchange) jsonrpc.Message {
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return msg
	}
	r := c.cfg.Relay
	switch {
	case req.Method == "notifications/progress":
		c.hearProgress(req.Params)
	case r == nil:
	case req.IsCall() && relayed(req.Method):
		return c.carry(req, x)
	case !req.IsCall() && r.Notice != nil:
		var tag any
		if x != nil {
			tag = x.tag
		}
		r.Notice(tag, req.Method, req.Params)
	}
	return msg
}

func (c *Client) hearProgress(params json.RawMessage) {
	var p struct {
		Token    string  `json:"progressToken"`
		Progress float64 `json:"progress"`
		Total    float64 `json:"total"`
		Message  string  `json:"message"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	v, ok := c.progress.Load(p.Token)
	if !ok {
		return
	}
	if to := v.(progressOf); to.raw != nil {
		to.raw(params)
	} else {
		to.call(p.Progress, p.Total, p.Message)
	}
}
