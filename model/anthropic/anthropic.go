// Package anthropic is the model adapter of the Anthropic Messages API, over the official SDK. It streams, it never
// retries, and it keeps thinking byte for byte. docs/providers.md says what it sends and what it makes of each answer.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"writ"
	"writ/internal/modelhttp"
	"writ/internal/modelreq"
)

// Timeouts bound one call; the zero value is 10 s to connect, 5 min to the first byte, 3 min between bytes. A negative
// value is no limit.
type Timeouts = modelhttp.Timeouts

// Defaults of [Config].
const (
	DefaultMaxTokens = 16_384
	minThinking      = 1_024 // the vendor's
)

// Adaptive as [Config.ThinkingBudget] lets the model decide how much it thinks.
const Adaptive = -1

// Config says how to reach the API. APIKey is required unless BaseURL is set.
type Config struct {
	APIKey  string
	BaseURL string // empty = the vendor's own; the SDK's environment variables are not read
	Model   string // used when a request names none
	// CacheTTL is the lifetime of what a cache point writes: "5m" or "1h". Empty means the vendor's default, 5 minutes.
	CacheTTL string
	// ThinkingBudget is how many tokens the model may think, at least 1024; 0 = it is not asked to; Adaptive = it
	// decides, which is the only way to ask that newer models take.
	ThinkingBudget int
	// Effort is the vendor's word: low, medium, high, xhigh, max. Empty = not sent; older models refuse it.
	Effort string
	// MaxTokens bounds the output of a request that does not say; 0 means DefaultMaxTokens. A thinking budget comes on
	// top of it when it would not fit.
	MaxTokens int
	Timeouts  Timeouts
	// HTTP gives the transport and nothing else; nil means one of its own. For tests and proxies.
	HTTP *http.Client
}

// Model speaks to one model. It is safe for concurrent use.
type Model struct {
	cfg      Config
	messages sdk.MessageService
	book     modelreq.Book
	release  func()
}

var _ writ.Model = (*Model)(nil)

// propertyNames is what the vendor allows.
var propertyNames = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// New checks the configuration; it connects to nothing.
func New(cfg Config) (*Model, error) {
	switch {
	case cfg.APIKey == "" && cfg.BaseURL == "":
		return nil, errors.New("anthropic: an API key is required")
	case strings.ContainsAny(cfg.APIKey, "\r\n"):
		return nil, errors.New("anthropic: the API key holds a line break")
	case cfg.CacheTTL != "" && cfg.CacheTTL != "5m" && cfg.CacheTTL != "1h":
		return nil, fmt.Errorf("anthropic: cache lifetime %q: 5m or 1h", cfg.CacheTTL)
	case cfg.ThinkingBudget < Adaptive || cfg.ThinkingBudget > 0 && cfg.ThinkingBudget < minThinking:
		return nil, fmt.Errorf("anthropic: thinking budget %d: at least %d, 0 for none, -1 for as the model decides", cfg.ThinkingBudget, minThinking)
	case cfg.MaxTokens < 0:
		return nil, fmt.Errorf("anthropic: max tokens %d: not negative", cfg.MaxTokens)
	}
	if cfg.BaseURL != "" {
		if u, err := url.Parse(cfg.BaseURL); err != nil || u.Host == "" {
			return nil, errors.New("anthropic: the base URL is none: write scheme://host[:port][/path]")
		}
	}
	client, release := modelhttp.Client(cfg.HTTP, cfg.Timeouts)
	opts := []option.RequestOption{option.WithEnvironmentProduction(), option.WithHTTPClient(client), option.WithMaxRetries(0), option.WithoutOpenTelemetry()}
	if cfg.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(cfg.BaseURL))
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	return &Model{cfg: cfg, messages: sdk.NewMessageService(opts...), release: release,
		book: modelreq.Book{Rules: modelreq.Rules{Names: propertyNames}}}, nil
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
		stream := m.messages.NewStreaming(ctx, m.params(req))
		defer stream.Close()
		r := reader{yield: yield, blocks: map[int64]*block{}}
		for !r.done && stream.Next() {
			ev := stream.Current()
			r.event(&ev)
		}
		if err := stream.Err(); err != nil && !r.done {
			yield(writ.ModelEvent{}, m.failure(ctx, err))
		}
	}
}

// failure makes an SDK error a model error. The SDK's own is not wrapped: it holds the request with its key.
func (m *Model) failure(ctx context.Context, err error) error {
	var api *sdk.Error
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &api):
		f := modelhttp.Failure{Status: api.StatusCode, Type: string(api.Type()), Message: api.Message}
		if f.Status < 400 {
			f.Status = 0 // an error event in a stream that had begun well
		} else if api.Response != nil {
			f.Header = api.Response.Header
		}
		if f.Message == "" {
			f.Message = api.RawJSON()
		}
		return f.ModelError(m.cfg.APIKey)
	case unreadable(err):
		return modelhttp.Unreadable(err.Error(), m.cfg.APIKey)
	}
	return modelhttp.Broken(ctx, "anthropic", m.cfg.APIKey, err)
}
