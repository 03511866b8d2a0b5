package writ

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ToolSpec is one callable as its source describes it.
type ToolSpec struct {
	// Name is the unqualified callable name, as configuration keys use it. The runtime's tool id is "<alias>.<name>".
	Name        string
	Description string
	// Schema is the JSON Schema (object) of the parameters. Nil means an object without properties.
	Schema json.RawMessage
	// Declared is what the tool says of its own meaning; nil when it says nothing.
	Declared *DeclaredTraits
	// Hints are an MCP server's own annotations; used only where the administrator trusts them.
	Hints *ToolHints
	// Definition is the SHA-256 (hex) of what the source says the tool is, in canonical form: for MCP its name,
	// description, schema and annotations, for HTTP the method and path too. It changes when and only when one of
	// them does. Empty for tools of this program.
	Definition string
	// Paths are the arguments that name what the call reads and writes, for built-in tools. Configuration may add.
	Paths ToolPaths
	// CodeParam names the parameter that a <channel:code> block fills; empty for tools without one.
	CodeParam string
	// Local means that the tool's whole effect is in this process or its workspace files, so that a crash leaves
	// nothing outside; it does not change at-most-once.
	Local bool
}

// ToolHints are the MCP annotations of the 2025-11-25 specification that Writ reads. They are claims of an
// untrusted party.
type ToolHints struct {
	ReadOnly bool
}

// ToolPaths names the top-level arguments whose string values are targets.
type ToolPaths struct {
	Reads  []string `json:"reads,omitempty"`
	Writes []string `json:"writes,omitempty"`
}

// Call is one granted invocation of a tool. An adapter never sees a call that was not admitted and dispatched.
type Call struct {
	Tool           string          // unqualified callable name
	Params         json.RawMessage // validated JSON object
	ActionID       string          // ledger action id
	ToolCallID     string          // stable over retries of the same logical action
	IdempotencyKey string          // to be handed to whatever can deduplicate
	Conversation   string
	Turn           string
	// Input continues a call that ended in [*InputRequired]: what [InputRequired.Answer] made of it. Empty for a
	// first call.
	Input json.RawMessage
	// Progress hears what the tool says of its progress while it runs; total is 0 when it is not known. It returns at
	// once and may be called from any goroutine. Nil: nobody listens.
	Progress func(done, total float64, message string)
}

// ContentKind says which field of a [Content] is set.
type ContentKind string

// Kinds of result content.
const (
	ContentText ContentKind = "text" // Text
	ContentJSON ContentKind = "json" // JSON
	ContentBlob ContentKind = "blob" // Data and MIME: images, files, audio
	ContentLink ContentKind = "link" // URI and, when known, MIME
)

// Content is one part of a tool's result.
type Content struct {
	Kind ContentKind     `json:"kind"`
	Text string          `json:"text,omitempty"`
	JSON json.RawMessage `json:"json,omitempty"`
	Data []byte          `json:"data,omitempty"`
	MIME string          `json:"mime,omitempty"`
	Name string          `json:"name,omitempty"`
	URI  string          `json:"uri,omitempty"`
}

// Result is what a tool answered. IsError means the tool itself says it failed: the action settles as failed.
type Result struct {
	Content []Content
	IsError bool
	// Records are timeline blocks that the call adds, committed in one write with its settlement. Only the built-in
	// tools' records are kept.
	Records []Record
}

// Record is a durable timeline block that a built-in tool adds: Kind "plan" or "hide".
type Record struct {
	Kind string
	Body json.RawMessage
}

// TextResult is a result of one text.
func TextResult(format string, args ...any) Result {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	return Result{Content: []Content{{Kind: ContentText, Text: format}}}
}

// ErrorResult is a result by which a tool says that it failed and why.
func ErrorResult(format string, args ...any) Result {
	r := TextResult(format, args...)
	r.IsError = true
	return r
}

// ErrNotStarted marks a call that certainly had no effect: the process could not be started, the request was never
// sent. Any other error of [Toolset.Call] means that the outcome is unknown.
var ErrNotStarted = errors.New("the call was not started")

// ErrVanished marks a call of a tool that its source no longer offers; it implies [ErrNotStarted].
var ErrVanished = fmt.Errorf("the tool is no longer offered: %w", ErrNotStarted)

// InputRequired is the error of a call whose tool says that it has not completed and asks for input first (an MCP
// elicitation by multi-round-trip). It is plain data: it may be stored, and the call continued much later and elsewhere
// by a new call with the same tool and parameters and with [Call.Input]. What the tool did before it asked, nobody
// knows. A toolset returns it only where it was told to.
type InputRequired struct {
	Requests json.RawMessage // by id, the questions as the server wrote them: {"ID": {"method", "params"}}
	State    string          // the server's own; opaque, to be handed back unchanged
}

// Error implements error.
func (e *InputRequired) Error() string {
	return "the tool asks for further input; it says that it has not completed"
}

// Answer is [Call.Input] for the answers by id: for an elicitation {"ID": {"action": "accept", "content": {…}}}, where
// action may also be "decline" or "cancel".
func (e *InputRequired) Answer(answers json.RawMessage) (json.RawMessage, error) {
	return json.Marshal(struct {
		Responses json.RawMessage `json:"inputResponses"`
		State     string          `json:"requestState,omitempty"`
	}{answers, e.State})
}

// Problem is something wrong with one tool or connection that does not stop the others: the tool is quarantined,
// not its server.
type Problem struct {
	Tool    string // unqualified name; empty for the connection
	Message string
	Hint    string
}

// Toolset is one tool connection. Implementations are safe for concurrent use.
type Toolset interface {
	// Tools lists the callables, sorted by name. Tools that cannot be used are left out and named in problems.
	Tools(ctx context.Context) (tools []ToolSpec, problems []Problem, err error)
	// Call runs one granted call. A tool's own failure is a Result with IsError. An error that is not
	// [ErrNotStarted] means that nobody knows whether the effect happened. It must return soon after ctx ends.
	// It is never called twice for one action.
	Call(ctx context.Context, call Call) (Result, error)
	// Close ends the connection and everything it started, and waits for it.
	Close() error
}

// ToolLimits are the administrator's limits of one tool.
type ToolLimits struct {
	Timeout     time.Duration // 0 = the runtime's default
	Concurrency int           // 0 = no limit of its own
}
