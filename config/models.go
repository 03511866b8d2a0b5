package config

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// ModelRef names a model: of a provider, or a recording that is replayed. The zero value names none.
type ModelRef struct {
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	// Recording is the absolute path of a transcript (model: "recorded:FILE"); Provider and Model are empty then.
	Recording string `json:"-"`
	// recordingText is the path as written.
	recordingText string
}

// IsZero reports whether no model is named.
func (m ModelRef) IsZero() bool { return m == ModelRef{} }

// String is the form of the configuration: "PROVIDER/MODEL" or "recorded:FILE".
func (m ModelRef) String() string {
	switch {
	case m.IsZero():
		return ""
	case m.Provider == "":
		return recordedPrefix + m.recordingText
	}
	return m.Provider + "/" + m.Model
}

const recordedPrefix = "recorded:"

// SupportedModel is one entry of the menu a user may pick from.
type SupportedModel struct {
	ModelRef
	Label string `json:"label"`
}

// ModelFor returns the model of a role, or the agent's model when the role has none of its own.
func (a *Agent) ModelFor(role string) ModelRef {
	if m, ok := a.RoleModels[role]; ok {
		return m
	}
	return a.Model
}

// StrongRole is the role a user's pick replaces; the longer name is the article's.
const (
	StrongRole        = "strong"
	StrongRoleArticle = "solver.react.v2.decision.v2.strong"
)

// Models are the configured providers and prices.
type Models struct {
	providers map[string]Provider
	Prices    map[string]Price // by "PROVIDER/MODEL"
}

// Provider is an account at a model provider.
type Provider struct {
	Name    string
	Kind    string // one of ProviderKinds
	APIKey  Secret // zero when none is configured
	BaseURL string // empty = the provider's own
	Timeout time.Duration
	Pos     Pos // zero for an implied provider
}

// Price is what a million tokens cost, in one currency of the administrator's choice.
type Price struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
}

// providerKinds pairs each kind of provider with the variable its key is usually kept in.
var providerKinds = []struct{ kind, env string }{
	{"anthropic", "ANTHROPIC_API_KEY"},
	{"openai", "OPENAI_API_KEY"},
	{"openai_chat", "OPENAI_API_KEY"},
}

// ProviderKinds lists the kinds of provider: Anthropic Messages, OpenAI Responses, and OpenAI Chat Completions, which
// compatible servers speak too.
func ProviderKinds() []string {
	var out []string
	for _, k := range providerKinds {
		out = append(out, k.kind)
	}
	return out
}

// Provider returns a configured provider, or the implied one: a kind's own name needs no entry, its key is then
// expected in the usual variable (ANTHROPIC_API_KEY, OPENAI_API_KEY).
func (m Models) Provider(name string) (Provider, bool) {
	if p, ok := m.providers[name]; ok {
		return p, true
	}
	for _, k := range providerKinds {
		if k.kind == name {
			return Provider{Name: name, Kind: name, APIKey: envSecret(k.env)}, true
		}
	}
	return Provider{}, false
}

// Providers lists the names that [Models.Provider] knows, sorted.
func (m Models) Providers() []string {
	names := slices.Collect(maps.Keys(m.providers))
	names = append(names, ProviderKinds()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// Service is one MCP server: a command to start, or a URL to connect to; exactly one.
type Service struct {
	ID      string
	Command string
	Args    []string
	Env     map[string]Secret
	Cwd     string // absolute, or empty for the process's own
	URL     string
	Headers map[string]Secret
	Timeout time.Duration // of connecting; 0 = the runtime's default
	Pos     Pos

	cwdText string
}

// Remote reports whether the server is reached over HTTP.
func (s *Service) Remote() bool { return strings.TrimSpace(s.URL) != "" }
