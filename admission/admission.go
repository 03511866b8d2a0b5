// Package admission records every tool action before it has any effect. A [Port] is the capability through which one
// running invocation admits, dispatches and settles its tool actions; the rows it writes are the ledger.
//
// The order is always admit → dispatch → effect → complete (or report_unknown). Each arrow is one conditional durable
// write (docs/ledger.md). Answers are values: a refusal has no effect, writes nothing and takes no ordinal. The
// package knows nothing of tools, models or the runtime, and is usable without them.
//
// Source: the article "Admit tool actions inside an autonomous invocation" (participant-invocation-tool-actions/v1).
package admission

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"writ"
	"writ/store"
)

// DefaultStartWithin is how long a grant is good for when Config does not say.
const DefaultStartWithin = 10 * time.Second

// Config is what a ledger needs. Store and Key are required.
type Config struct {
	Store store.Store
	// Key is the tenant's key for digests. It is in no row and no export.
	Key []byte
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// NewID makes ids with the given prefix; nil means random.
	NewID func(prefix string) string
	// StartWithin bounds the time between a grant and the start of its effect; 0 means DefaultStartWithin.
	StartWithin time.Duration
}

// Ledger opens ports on a store.
type Ledger struct {
	cfg Config
}

// New returns a ledger over the store.
func New(cfg Config) *Ledger {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = RandomID
	}
	if cfg.StartWithin == 0 {
		cfg.StartWithin = DefaultStartWithin
	}
	return &Ledger{cfg: cfg}
}

// RandomID is the default id source: the prefix and 100 random bits.
func RandomID(prefix string) string { return prefix + rand.Text()[:20] }

// Limits bound one invocation. Total never frees; Concurrent frees on settlement.
type Limits struct {
	Total      int
	Concurrent int
}

// Binding is what one (affordance, contract) pair may be used for. A pair that two bindings have is bound to neither.
type Binding struct {
	Affordance string
	Contract   string
	Boundary   string
	Targets    []string
}

// Invocation is the identity and the bounds of one port. Everything but the limits is repeated by each request, so
// that a mis-routed or stale call is refused.
type Invocation struct {
	ID             string // the turn
	Tenant         string
	Conversation   string // the episode
	Participant    string
	Implementation string
	Scope          string
	Generation     int64
	LeaseToken     int64
	Observation    string
	Limits         Limits
	Bindings       []Binding
	PolicyDigest   string
}

// Request asks for one tool action: the eleven fields of the article, and the digest of the arguments.
type Request struct {
	ToolCallID     string   `json:"tool_call_id"`
	Invocation     string   `json:"invocation_action_instance_id"`
	Participant    string   `json:"participant_address"`
	Episode        string   `json:"episode_id"`
	Implementation string   `json:"participant_implementation_ref"`
	Affordance     string   `json:"tool_affordance_address"`
	Contract       string   `json:"action_contract_address"`
	Boundary       string   `json:"observation_boundary_address"`
	Targets        []string `json:"target_addresses"`
	Scope          string   `json:"execution_scope_ref"`
	Generation     int64    `json:"execution_generation"`
	ArgumentDigest string   `json:"argument_digest,omitempty"`
}

// Slot says where in a turn the action was asked for. An outside harness may leave it zero: the ordinal is used.
type Slot struct {
	Round       int
	Attempt     int
	Index       int
	Tool        string
	Fingerprint string
	Traits      writ.Traits
	Early       bool
}

// Decision answers admit. The zero value is a refusal.
type Decision struct {
	Admitted bool      `json:"admitted"`
	Refusal  writ.Code `json:"refusal,omitempty"`
	ActionID string    `json:"action_instance_id,omitempty"`
	// Key is the idempotency key of the action, stable for its life.
	Key string `json:"-"`
	// Freed is closed when an unsettled action of the invocation settles; set with concurrency_limit_reached.
	Freed <-chan struct{} `json:"-"`
}

// Receipt answers every other method. The zero value is a refusal.
type Receipt struct {
	Accepted bool      `json:"accepted"`
	Code     writ.Code `json:"code,omitempty"`
}

// Outcome is what is known of a dispatched action.
type Outcome struct {
	State        writ.ActionState // Succeeded or Failed
	Failure      string           // failure class, when failed and only then; a code such as tool_error, never a tool's text
	ResultDigest string
	Evidence     []string
}

// Block makes the timeline blocks that are committed with a row; a nil function adds nothing.
type Block func(row store.Action) []store.Block

// Open returns an inactive port; Activate opens it. Possession of the port is the authority to use it.
func (l *Ledger) Open(inv Invocation) (*Port, error) {
	if inv.ID == "" || inv.Conversation == "" || inv.Scope == "" {
		return nil, fmt.Errorf("admission: opening port: invocation, conversation and scope are required")
	}
	if inv.Limits.Total <= 0 || inv.Limits.Concurrent <= 0 || inv.Limits.Concurrent > inv.Limits.Total {
		return nil, fmt.Errorf("admission: opening port: limits must be positive and concurrent at most total")
	}
	p := &Port{l: l, inv: inv.clone(), bindings: map[bindingKey]*Binding{}, calls: map[string]*record{}, actions: map[string]*record{}, freed: make(chan struct{})}
	for i := range p.inv.Bindings {
		b := &p.inv.Bindings[i]
		k := bindingKey{b.Affordance, b.Contract}
		if _, twice := p.bindings[k]; twice {
			b = nil // which of them is meant cannot be told: neither
		}
		p.bindings[k] = b
	}
	return p, nil
}

// clone shares nothing with in: who holds a port cannot widen its bounds.
func (in Invocation) clone() Invocation {
	in.Bindings = slices.Clone(in.Bindings)
	for i := range in.Bindings {
		in.Bindings[i].Targets = slices.Clone(in.Bindings[i].Targets)
	}
	return in
}

// ToolCallID derives the id of a tool call from its slot, so that the same slot has the same id after a restart.
func ToolCallID(turn string, round, attempt, index int) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s\x1f%d\x1f%d\x1f%d", turn, round, attempt, index))
	return "tc_" + hex.EncodeToString(h[:8])
}

func (l *Ledger) commit(ctx context.Context, b *store.Batch) error {
	b.ID, b.Time = l.cfg.NewID("b_"), l.cfg.Now()
	return store.Commit(ctx, l.cfg.Store, b)
}
