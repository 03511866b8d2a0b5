package writ

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// Dialect is how a model says its actions.
type Dialect string

// The two dialects. Everything after the stream parser is blind to them.
const (
	Channel Dialect = "channel" // <channel:action> blocks in the model's text
	Native  Dialect = "native"  // the provider's own tool calls
)

// Model generates one message. A fake is a function that yields events:
//
//	func (fake) Stream(ctx context.Context, _ *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
//		return func(yield func(writ.ModelEvent, error) bool) {
//			_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: "hello"}, nil) &&
//				yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
//		}
//	}
type Model interface {
	// Stream sends the request and yields events in the order of the wire. The sequence ends after ModelFinish, or
	// after an error; one that ends with neither was cut, which counts as a provider error. The caller may stop
	// ranging at any event: the implementation then closes the provider's stream and returns. It never retries.
	Stream(ctx context.Context, req *ModelRequest) iter.Seq2[ModelEvent, error]
}

// ModelEventKind tells which fields of a [ModelEvent] are set.
type ModelEventKind uint8

// Kinds of model events. A block is the provider's content block; blocks may interleave.
const (
	ModelText     ModelEventKind = iota + 1 // Block, Text: a text delta
	ModelThinking                           // Block, Text: a thinking delta
	ModelToolOpen                           // Block, ID (may be empty or repeated), Name (may come later, in another ModelToolOpen of the block)
	ModelToolArgs                           // Block, Text: a delta of the arguments' JSON
	ModelBlockEnd                           // Block; Opaque: what the provider wants back byte for byte (a signature, encrypted reasoning)
	ModelUsage                              // Usage: the total so far, not a delta
	ModelFinish                             // Finish: the end marker
)

// ModelEvent is one block event of a model's stream.
type ModelEvent struct {
	Kind   ModelEventKind
	Block  int
	Text   string
	ID     string
	Name   string
	Opaque json.RawMessage
	Usage  Usage
	Finish Finish
}

// Finish is why a generation ended.
type Finish string

// Finish reasons. FinishCut is never sent by a model: it is what the runtime calls a stream without an end marker.
const (
	FinishStop    Finish = "stop"
	FinishTools   Finish = "tool_calls"
	FinishLength  Finish = "length"
	FinishFilter  Finish = "content_filter"
	FinishRefused Finish = "refusal"
	FinishCut     Finish = "cut"
)

// Usage counts tokens, each once: Input excludes what was read from or written to the cache.
type Usage struct {
	Input      int `json:"input" yaml:"input"`
	Output     int `json:"output" yaml:"output"`
	CacheRead  int `json:"cache_read" yaml:"cache_read"`
	CacheWrite int `json:"cache_write" yaml:"cache_write"`
}

// Add returns the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

// IsZero reports whether nothing was counted.
func (u Usage) IsZero() bool { return u == Usage{} }

// ErrorClass sorts a provider's errors by what may be done about them.
type ErrorClass string

// Error classes.
const (
	ErrorOverloaded   ErrorClass = "overloaded"    // try later
	ErrorRateLimit    ErrorClass = "rate_limit"    // try later, after RetryAfter
	ErrorContextLimit ErrorClass = "context_limit" // the request is too large
	ErrorAuth         ErrorClass = "auth"          // credentials are missing or wrong
	ErrorInvalid      ErrorClass = "invalid"       // the provider refuses the request; a repeat would fail too
	ErrorNetwork      ErrorClass = "network"       // the connection broke or stalled
	ErrorInternal     ErrorClass = "internal"      // the provider failed
)

// ModelError is a provider's error. What had been streamed before it stays streamed.
type ModelError struct {
	Class      ErrorClass
	Message    string
	RetryAfter time.Duration // 0 = not said
	Err        error
}

// Error implements error.
func (e *ModelError) Error() string {
	if e.Message == "" && e.Err != nil {
		return fmt.Sprintf("model: %s: %v", e.Class, e.Err)
	}
	return fmt.Sprintf("model: %s: %s", e.Class, e.Message)
}

// Unwrap returns the cause.
func (e *ModelError) Unwrap() error { return e.Err }

// Retryable reports whether another attempt with the same request can succeed.
func (e *ModelError) Retryable() bool {
	switch e.Class {
	case ErrorOverloaded, ErrorRateLimit, ErrorNetwork, ErrorInternal:
		return true
	}
	return false
}

// ModelRequest is one generation. The same durable state gives the same bytes in every field but the last message's
// uncached tail.
type ModelRequest struct {
	Model     string // the provider's name of the model
	Dialect   Dialect
	System    []Part    // text parts; Cache marks the end of the cached block
	Tools     []ToolDef // native dialect only; sorted by name
	Messages  []Message
	NoTools   bool // an answer-only generation
	MaxTokens int  // 0 = the model's default
	// Call names the generation for logs and recordings: "turn/round/attempt".
	Call string
}

// ToolDef is a tool as a provider sees it. Name uses only letters, digits, "_" and "-", at most 64.
type ToolDef struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Role of a message.
type Role string

// Roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Message is one message of the request.
type Message struct {
	Role  Role
	Parts []Part
}

// PartKind tells which fields of a [Part] are set.
type PartKind string

// Part kinds.
const (
	PartText       PartKind = "text"        // Text
	PartBlob       PartKind = "blob"        // Data, MIME
	PartThinking   PartKind = "thinking"    // Text, Opaque: exactly as the provider sent it
	PartToolUse    PartKind = "tool_use"    // ID, Name, Args
	PartToolResult PartKind = "tool_result" // ID, Content, IsError
)

// Part is one piece of a message.
type Part struct {
	Kind    PartKind
	Text    string
	Data    []byte
	MIME    string
	Opaque  json.RawMessage
	ID      string
	Name    string
	Args    json.RawMessage
	Content []Content
	IsError bool
	Cache   bool // a cache point after this part
}
