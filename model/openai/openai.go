// Package openai is the model adapter of OpenAI's two APIs, Responses and Chat Completions, over the official SDK. Chat
// Completions is also what compatible servers speak: Ollama, vLLM, llama.cpp and routers. It streams and never retries.
// docs/providers.md says what it sends and what it makes of each answer.
package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"writ"
	"writ/internal/modelhttp"
	"writ/internal/modelreq"
)

// The two APIs.
const (
	Responses = "responses"
	Chat      = "chat"
)

// Timeouts bound one call; the zero value is 10 s to connect, 5 min to the first byte, 3 min between bytes. A negative
// value is no limit.
type Timeouts = modelhttp.Timeouts

// Config says how to reach the API. APIKey is required unless BaseURL is set: local servers have none.
type Config struct {
	APIKey  string
	BaseURL string // with its path, such as http://127.0.0.1:11434/v1; empty = OpenAI's own. No environment variable is read
	Model   string // used when a request names none
	API     string // Responses (the zero value) or Chat
	// ReasoningEffort is the vendor's word: none, minimal, low, medium, high, xhigh. Empty = not sent.
	ReasoningEffort string
	// ReasoningSummary is auto, concise or detailed: Responses then also streams a summary of the reasoning. Empty = not
	// sent; some accounts may not ask for it.
	ReasoningSummary string
	// MaxTokens bounds the output of a request that does not say; 0 = the vendor's default.
	MaxTokens int
	Timeouts  Timeouts
	// HTTP gives the transport and nothing else; nil means one of its own. For tests and proxies.
	HTTP *http.Client
}

// Model speaks to one model. It is safe for concurrent use.
type Model struct {
	cfg       Config
	chat      sdk.ChatService
	responses responses.ResponseService
	book      modelreq.Book
	release   func()

	// What a server has refused by name is not sent again.
	refusedUsage, refusedInclude atomic.Bool
	// late is set when a call got arguments after it had been taken for closed: from then on this model's calls close
	// only at the message's finish.
	late atomic.Bool
}

var _ writ.Model = (*Model)(nil)

// New checks the configuration; it connects to nothing.
func New(cfg Config) (*Model, error) {
	if cfg.API == "" {
		cfg.API = Responses
	}
	switch {
	case cfg.API != Responses && cfg.API != Chat:
		return nil, fmt.Errorf("openai: API %q: %s or %s", cfg.API, Responses, Chat)
	case cfg.APIKey == "" && cfg.BaseURL == "":
		return nil, errors.New("openai: an API key is required")
	case strings.ContainsAny(cfg.APIKey, "\r\n"):
		return nil, errors.New("openai: the API key holds a line break")
	case cfg.MaxTokens < 0:
		return nil, fmt.Errorf("openai: max tokens %d: not negative", cfg.MaxTokens)
	}
	if cfg.BaseURL != "" {
		if u, err := url.Parse(cfg.BaseURL); err != nil || u.Host == "" {
			return nil, errors.New("openai: the base URL is none: write scheme://host[:port][/path]")
		}
	}
	client, release := modelhttp.Client(cfg.HTTP, cfg.Timeouts)
	opts := []option.RequestOption{option.WithEnvironmentProduction(), option.WithHTTPClient(client), option.WithMaxRetries(0), option.WithMiddleware(lenient)}
	if cfg.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(cfg.BaseURL))
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	return &Model{cfg: cfg, chat: sdk.NewChatService(opts...), responses: responses.NewResponseService(opts...), release: release,
		book: modelreq.Book{Rules: modelreq.Rules{Properties: true, Items: true}}}, nil
}

// Close closes idle connections. Running calls go on.
func (m *Model) Close() error {
	m.release()
	return nil
}

// Mended lists what was changed in requests so that the vendor takes them, sorted, each once.
func (m *Model) Mended() []string { return m.book.Mended() }

// Stream implements [writ.Model].
func (m *Model) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) {
		if m.cfg.API == Chat {
			m.streamChat(ctx, req, yield)
			return
		}
		m.streamResponses(ctx, req, yield)
	}
}

// refusedField reports that a server refuses a request because of one optional field. Nothing was generated: the same
// request without the field is no retry of a generation.
func refusedField(err error, field string) bool {
	var api *sdk.Error
	if !errors.As(err, &api) || api.StatusCode != http.StatusBadRequest && api.StatusCode != http.StatusUnprocessableEntity {
		return false
	}
	return api.Param == field || bytes.Contains(body(api), []byte(field))
}

// maxErrorBody bounds what is read of an error's body.
const maxErrorBody = 64 << 10

// body returns the error's body, which the SDK keeps whole only in OpenAI's own form.
func body(api *sdk.Error) []byte {
	if api.Response == nil || api.Response.Body == nil {
		return []byte(api.RawJSON())
	}
	raw, _ := io.ReadAll(io.LimitReader(api.Response.Body, maxErrorBody)) // the SDK has read it into memory
	api.Response.Body = io.NopCloser(bytes.NewReader(raw))
	return raw
}

// failure makes an SDK error a model error. The SDK's own is not wrapped: it holds the request with its key.
func (m *Model) failure(ctx context.Context, err error) error {
	var api *sdk.Error
	var event *ssestream.StreamError
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &api):
		f := said(body(api))
		f.Status = api.StatusCode
		if api.Response != nil {
			f.Header = api.Response.Header
		}
		return f.ModelError(m.cfg.APIKey)
	case errors.As(err, &event):
		return said(event.Event.Data).ModelError(m.cfg.APIKey)
	case unreadable(err):
		return modelhttp.Unreadable(err.Error(), m.cfg.APIKey)
	}
	return modelhttp.Broken(ctx, "openai", m.cfg.APIKey, err)
}

// said reads an error's body: {"error": {…}}, its inside alone, a string, or something else. A code may be a number.
func said(raw []byte) modelhttp.Failure {
	var outer struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"` // FastAPI servers and some routers
		Detail  any             `json:"detail"`
	}
	body := raw
	if json.Unmarshal(raw, &outer) == nil && len(outer.Error) > 0 {
		body = outer.Error
	}
	var in struct {
		Type    string `json:"type"`
		Code    any    `json:"code"`
		Message string `json:"message"`
	}
	f := modelhttp.Failure{}
	var text string
	switch {
	case json.Unmarshal(body, &text) == nil:
		f.Message = text
	case json.Unmarshal(body, &in) == nil:
		f.Type, f.Message = in.Type, in.Message
		if in.Code != nil {
			f.Code = fmt.Sprint(in.Code)
		}
	}
	if f.Message == "" && outer.Detail != nil {
		f.Message = fmt.Sprint(outer.Detail)
	}
	if f.Message == "" {
		f.Message = string(raw)
	}
	return f
}

// unreadable reports an error of reading events rather than bytes.
func unreadable(err error) bool {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &typ) || errors.Is(err, bufio.ErrTooLong)
}

// usage counts each token once: what was read from or written to the cache is part of the vendor's input count.
func usage(input, output, read, written int64) writ.Usage {
	return writ.Usage{Input: int(max(input-read-written, 0)), Output: int(output), CacheRead: int(read), CacheWrite: int(written)}
}
