package config

import (
	"maps"
	"slices"
	"time"

	"writ"
	"writ/trait"
)

// Agent is one declared agent, resolved: what it may do at most and how it behaves. Everything in it is plain data;
// it is immutable and safe for concurrent use.
type Agent struct {
	ID string
	// Active is false for an agent that asks for something this version cannot enforce; Reason says what. Such an
	// agent must not run. All its connections are inactive too.
	Active bool
	Reason string

	Dialect      writ.Dialect
	Instructions string // additional_instructions, verbatim
	Profile      string

	// Model answers when nothing more specific is asked for; its zero value means that none is configured.
	Model           ModelRef
	RoleModels      map[string]ModelRef
	SupportedModels []SupportedModel
	FallbackModels  []ModelRef

	MaxRounds            int
	MaxRepairs           int
	MaxRetries           int
	MaxActionsPerRound   int
	MaxConcurrentActions int
	MaxResultChars       int
	ContextTokens        int // above it the prompt is compacted
	StartWithin          time.Duration
	ToolTimeout          time.Duration
	OnRefusal            OnRefusal
	OnUnknown            OnUnknown
	StopOnFailure        bool
	Approver             string        // who decides on held actions: "owner" of the conversation, or "operator"
	ApprovalTime         time.Duration // how long a decision is waited for
	// Autonomous is when the agent acts by itself; nil = never.
	Autonomous    *Autonomous
	EventPipeline bool // event_source_pipeline.enabled

	Subagents Subagents
	Cache     CachePolicy

	// Connections are the tool connections, sorted by alias, inactive ones included.
	Connections []Connection
	// EventSources are checked and shown; this version provides none.
	EventSources []EventSource

	// Provenance tells for each effective value of react which block supplied it, sorted by key.
	Provenance []Provenance
	// Digest is the SHA-256 (hex) of [Agent.Effective].
	Digest string
	// Pos is where the agent is declared.
	Pos Pos

	effective []byte
}

// Effective is the canonical JSON of everything that decides how the agent behaves: keys sorted, no white space,
// secrets replaced by their references, files by the names the configuration gives them. The same configuration
// gives the same bytes on every machine.
func (a *Agent) Effective() []byte { return slices.Clone(a.effective) }

// Connection returns the connection with that alias, active or not.
func (a *Agent) Connection(alias string) (Connection, bool) {
	for _, c := range a.Connections {
		if c.Alias == alias {
			return c, true
		}
	}
	return Connection{}, false
}

// OnRefusal says what happens to a model's stream at the first refused action.
type OnRefusal string

// The values of on_refusal.
const (
	RefusalStop     OnRefusal = "stop"     // stop the stream; accepted actions run
	RefusalContinue OnRefusal = "continue" // drain it; later actions are judged as usual
)

// OnUnknown says what an outcome that nobody knows does to further actions on its target.
type OnUnknown string

// The values of on_unknown.
const (
	UnknownQuarantine OnUnknown = "quarantine" // refuse all but pure exploration on it until resolved
	UnknownContinue   OnUnknown = "continue"
	UnknownStop       OnUnknown = "stop"
)

// Provenance is one effective value of react with the block that supplied it.
type Provenance struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Block string `json:"block"` // "react.agents.main", "react", or "built-in default"
	Pos   Pos    `json:"pos"`   // zero for a built-in default
}

// Kind says where the tools of a connection live.
type Kind string

// Connection kinds. This version runs python, mcp, http and go.
const (
	KindPython       Kind = "python"
	KindMCP          Kind = "mcp"
	KindHTTP         Kind = "http"
	KindNamedService Kind = "named_service"
	KindGo           Kind = "go"
)

// Connection is one tool connection of an agent. Tool ids are Alias + "." + the callable's own name.
type Connection struct {
	Kind  Kind
	ID    string
	Alias string
	// Active is false when the connection cannot be used; its tools are then absent from the catalog. Reason says why.
	Active bool
	Reason string

	Ref         string // python: absolute path of the file
	Module      string // python: a module that no file provides
	Interpreter string // python: the interpreter's command
	ServerID    string // mcp
	Service     *Service
	Spec        string            // http: absolute path of the OpenAPI document
	URL         string            // http: the service's base address; empty = the document's first server
	Headers     map[string]Secret // http
	// AllowPrivate are addresses, CIDR ranges and hosts that an http service may have although they are private.
	AllowPrivate []string

	// Allowed is the ceiling, sorted. With AllowAll it is empty and everything that is found is allowed. For a named
	// service the ceiling is in Namespaces.
	Allowed  []string
	AllowAll bool

	Traits     map[string]trait.Config // by callable name or trait.Any
	Namespaces map[string]Namespace    // named_service

	TrustTraits      bool
	TrustAnnotations bool

	Env     map[string]Secret
	Paths   map[string]writ.ToolPaths
	Targets map[string][]string
	Timeout time.Duration // of the connection; 0 = the agent's tool_timeout

	Pos Pos

	limits       map[string]limit
	blocked      map[string]string       // callable or trait.Any → reason: claims and roles
	approval     map[string]ApprovalMode // callable or trait.Any
	names        map[string]Pos          // every callable the connection names, for CheckAllowed
	targetParams []targetParam           // arguments that templates of Targets name, for CheckTargets
	fallback     time.Duration           // the agent's tool_timeout
	refText      string                  // ref as written
	specText     string                  // spec as written
}

// Allows reports whether the ceiling contains the callable name; for a named service, whether some namespace allows
// the operation behind it.
func (c *Connection) Allows(name string) bool {
	if c.AllowAll || slices.Contains(c.Allowed, name) {
		return true
	}
	for _, ns := range c.Namespaces {
		if ns.allows(name) {
			return true
		}
	}
	return false
}

// ToolActive reports whether the callable name may be offered: the connection is active, the ceiling contains it, and
// nothing it asks for is missing from this version. If not, reason says why.
func (c *Connection) ToolActive(name string) (active bool, reason string) {
	if !c.Active {
		return false, c.Reason
	}
	if !c.Allows(name) {
		return false, "not in allowed"
	}
	for _, key := range []string{name, trait.Any} {
		if why, ok := c.blocked[key]; ok {
			return false, why
		}
	}
	return true, ""
}

// ApprovalMode says when a person must approve a call before it runs.
type ApprovalMode string

// The values of approval.
const (
	ApprovalNever        ApprovalMode = "never"
	ApprovalExploitation ApprovalMode = "exploitation" // every call that neither purely explores nor is purely neutral
	ApprovalAlways       ApprovalMode = "always"
)

// NeedsApproval reports whether a person must approve a call of the callable that means this.
func (c *Connection) NeedsApproval(name string, traits writ.Traits) bool {
	return c.ApprovalFor(name).Needs(traits)
}

// Needs reports whether a call that means this waits for an approval.
func (m ApprovalMode) Needs(traits writ.Traits) bool {
	switch m {
	case ApprovalAlways:
		return true
	case ApprovalExploitation:
		return !traits.Strategy.Only(writ.Exploration) && !traits.Strategy.Only(writ.Neutral)
	}
	return false
}

// ApprovalFor returns when a call of the callable must be approved: by the callable's own entry, else the one of
// [trait.Any], else never.
func (c *Connection) ApprovalFor(name string) ApprovalMode {
	for _, key := range []string{name, trait.Any} {
		if mode, ok := c.approval[key]; ok {
			return mode
		}
	}
	return ApprovalNever
}

// Blocked returns the tools, or [trait.Any], that ask for something this version does not provide, with the reason.
func (c *Connection) Blocked() map[string]string { return maps.Clone(c.blocked) }

// Limits are the administrator's limits of one tool. Retries counts repeats after the first try; the runtime uses it
// only where the resolved effect is none or idempotent.
type Limits struct {
	writ.ToolLimits
	Retries int
}

// LimitsFor returns the effective limits of the callable name. Each value comes from the tool's own entry, else the
// entry of trait.Any, else the connection's timeout, else the agent's tool_timeout; the timeout is never 0.
func (c *Connection) LimitsFor(name string) Limits {
	out := Limits{ToolLimits: writ.ToolLimits{Timeout: c.fallback}}
	if out.Timeout == 0 {
		out.Timeout = defaultToolTimeout
	}
	if c.Timeout > 0 {
		out.Timeout = c.Timeout
	}
	for _, key := range []string{trait.Any, name} {
		l := c.limits[key]
		if l.Timeout != nil {
			out.Timeout = *l.Timeout
		}
		if l.Concurrency != nil {
			out.Concurrency = *l.Concurrency
		}
		if l.Retries != nil {
			out.Retries = *l.Retries
		}
	}
	return out
}

const defaultToolTimeout = time.Minute

// limit is one entry of limits; nil fields were not set.
type limit struct {
	Timeout     *time.Duration
	Concurrency *int
	Retries     *int
}

// TraitsOf resolves the traits of one callable from everything this connection and its source know. effect is the
// effect of a Go registration, else the zero value.
func (c *Connection) TraitsOf(spec writ.ToolSpec, effect writ.Effect) writ.Traits {
	return trait.Resolve(c.declared(spec), spec.Hints, c.TrustAnnotations, c.Traits, spec.Name, effect)
}

// TraitsIn is TraitsOf for a call whose namespace argument selects namespace.
func (c *Connection) TraitsIn(namespace string, spec writ.ToolSpec, effect writ.Effect) writ.Traits {
	return trait.ForNamespace(namespace, c.Namespaces[namespace].Traits, c.declared(spec), spec.Hints,
		c.TrustAnnotations, c.Traits, spec.Name, effect)
}

// declared is what the tool says of itself, where it counts: an MCP server's word only with trust_traits.
func (c *Connection) declared(spec writ.ToolSpec) *writ.DeclaredTraits {
	if c.Kind == KindMCP && !c.TrustTraits {
		return nil
	}
	return spec.Declared
}

// Namespace is one namespace of a named-service connection.
type Namespace struct {
	Allowed  []string // operation ids, sorted; empty with AllowAll
	AllowAll bool
	Traits   map[string]trait.Config // by callable name or trait.Any
	Pos      Pos
}

// allows reports whether an allowed operation has the callable name.
func (n Namespace) allows(name string) bool {
	for _, o := range operations {
		if o.callable == name {
			return n.AllowAll || slices.Contains(n.Allowed, o.operation)
		}
	}
	return false
}

// EventSource is a declared source of events. This version checks it and provides none.
type EventSource struct {
	Kind      string
	Name      string // namespace of a named service, else the name
	Discovery string
	Policies  map[string]EventPolicy // "block_production", "pull"
	Pos       Pos
}

// EventPolicy is how events of a source are made into blocks or their content pulled. Operation is the owner's: no
// allowed list covers it, and it grants nothing.
type EventPolicy struct {
	Mode      string `json:"mode"`
	Operation string `json:"operation,omitempty"`
}

// Subagents is what an agent may delegate. This version checks it and offers no delegation.
type Subagents struct {
	Allowed    bool
	DefaultOn  bool
	Visibility string // "silent" or "thread"
	Model      string // an alias of Models; empty = the parent's
	MaxRounds  int
	Models     map[string]SubagentModel // the shipped aliases included
}

// SubagentModel is a model that a helper can be given by its alias.
type SubagentModel struct {
	ModelRef
	Class   string `json:"class"` // regular, strong or strongest
	Caption string `json:"caption,omitempty"`
}

// CachePolicy is the administrator's policy for selection changes that would cool a warm cache.
type CachePolicy struct {
	ModelSwitch      string
	CapabilityToggle string
	Allowed          []string
}
