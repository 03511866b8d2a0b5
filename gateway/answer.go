package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/internal/mcpclient"
	"writ/internal/timeline"
)

// answer is what the client gets: a result as the server wrote it or as the gateway made it, or a JSON-RPC error.
type answer struct {
	raw json.RawMessage
	err *jsonrpc.Error
}

// result is the answer for the SDK.
func (a answer) result() (mcp.Result, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &rawResult{raw: a.raw}, nil
}

type wireError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// content is the answer for the timeline.
func (a answer) content() []timeline.Content {
	if a.err == nil {
		return []timeline.Content{{Kind: writ.ContentJSON, Name: nameResult, JSON: a.raw}}
	}
	b, _ := json.Marshal(wireError{a.err.Code, a.err.Message, a.err.Data}) // data came from JSON
	return []timeline.Content{{Kind: writ.ContentJSON, Name: nameError, JSON: b}}
}

func errorOf(raw json.RawMessage) (answer, bool) {
	var w wireError
	if json.Unmarshal(raw, &w) != nil {
		return answer{}, false
	}
	return answer{err: &jsonrpc.Error{Code: w.Code, Message: w.Message, Data: w.Data}}, true
}

// refusedBy is the server's own error, passed on.
func refusedBy(r *mcpclient.Refusal) answer {
	return answer{err: &jsonrpc.Error{Code: r.Code, Message: r.Message, Data: r.Data}}
}

// codeNoResult is the JSON-RPC code of an answer of the gateway's own where the protocol has no result for it:
// resources/read and prompts/get. Its data says which code of docs/refusals.md, or which failure class.
const codeNoResult = -32050

// failed is an answer of the gateway's own: nothing of the server is in it. code is a refusal code or a failure class.
func (a *action) failed(code, actionID, text string) answer {
	return a.own(code, "", actionID, text)
}

func (a *action) own(code, state, actionID, text string) answer {
	meta := map[string]any{metaCode: code}
	if actionID != "" {
		meta[metaAction] = actionID
	}
	if state != "" {
		meta[metaState] = state
	}
	text = a.c.name + ": " + text
	if a.c.own == resourcesRead || a.c.own == promptsGet {
		data, _ := json.Marshal(meta)
		return answer{err: &jsonrpc.Error{Code: codeNoResult, Message: text, Data: data}}
	}
	return toolError(text, meta)
}

func toolError(text string, meta map[string]any) answer {
	raw, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": true, "_meta": meta})
	return answer{raw: raw}
}

// refused is the answer to a request that the ledger did not take. Nothing has happened.
func (a *action) refused(code writ.Code) answer {
	return a.failed(string(code), "", "not executed: "+code.Meaning())
}

// held is the answer to an action that waits for an approval.
func (a *action) held(id string) answer {
	how := "then send the same request again"
	if a.key != "" {
		how += " with the same " + metaKey
	}
	return a.own(string(writ.CodeApprovalRequired), string(writ.Held), id,
		fmt.Sprintf("not executed: it waits for an approval. Approve it with: writ approve %s; %s", id, how))
}

// unsettled is the answer to an action that has no answer of the server.
func (a *action) unsettled(o outcome, id string) answer {
	text := o.note
	switch {
	case o.state == writ.Indeterminate:
		text = "unknown: it may have happened, and nobody knows (" + o.note + "). It is not repeated; find out before you ask for it again. " +
			"Its idempotency key is in: writ actions show " + id
	case o.state == writ.Failed && o.failure == "not_started":
		text = "not started, nothing has happened: " + o.note
	case o.state == writ.Failed && o.failure != "tool_error":
		text = "no answer (" + o.note + "). It is declared to have no effect, so it may be asked for again"
	case o.state == writ.Withheld && text == "":
		text = "not executed: it was withheld (" + o.failure + ")"
	}
	return a.own(o.failure, string(o.state), id, text)
}
