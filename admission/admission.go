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
	"time"

	"writ"
	"writ/participant"
	"writ/store"
)

// DefaultStartWithin is how long a grant is good for when Config does not say.
const DefaultStartWithin = 10 * time.Second

// DefaultGrace and DefaultTimeout say when an action that was taken over is given up: so long after its grant.
const (
	DefaultGrace   = 30 * time.Second
	DefaultTimeout = 10 * time.Minute // of an action whose offer has none
)

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
	// Grace is added to an action's timeout before a taken-over action is given up; 0 means DefaultGrace.
	Grace time.Duration
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
	if cfg.Grace == 0 {
		cfg.Grace = DefaultGrace
	}
	return &Ledger{cfg: cfg}
}

// RandomID is the default id source: the prefix and 100 random bits.
func RandomID(prefix string) string { return prefix + rand.Text()[:20] }

// Invocation is the identity and the bounds of one port. Everything but the bounds is repeated by each request, so that
// a mis-routed or stale call is refused.
type Invocation struct {
	ID           string // the turn
	Kind         string // store.KindTurn and so on
	Tenant       string
	Owner        string // on whose behalf; with the tenant and a target it is the key of a quarantine
	Conversation string // the episode
	Agent        string
	Generation   int64
	LeaseToken   int64
	Observation  string
	// Settled makes the result block of an action that the port settles by itself: an expired approval. Nil = none.
	Settled      Block
	PolicyDigest string
	// IgnoreUnknown admits actions on targets in quarantine (on_unknown: continue).
	IgnoreUnknown bool

	participant.Compiled
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

// Slot is what the asker adds to a request. An outside harness may leave it zero: each action is its own round then, and
// its traits are unknown.
type Slot struct {
	Round       int
	Attempt     int
	Index       int
	Tool        string
	Fingerprint string
	Traits      writ.Traits
	Early       bool
	// Check is asked after the bindings and before the limits; a code it returns refuses the action. Nil = nothing to ask.
	Check func(ctx context.Context) writ.Code
	// Approval makes the admitted action held until it is approved. Nil = none is needed.
	Approval *Approval
	// Claim makes an equal request under the same key, of whatever invocation, get the stored decision. Subject is set by
	// the port.
	Claim *store.Claim
}

// Who may decide an approval.
const (
	ByOwner    = "owner"    // the conversation's owner, or an operator
	ByOperator = "operator" // an operator only
)

// DefaultApprovalTime is how long an approval may be waited for when nothing else is said.
const DefaultApprovalTime = 24 * time.Hour

// Approval says who must approve an action, and how long that may take; 0 = DefaultApprovalTime.
type Approval struct {
	Approver string
	Within   time.Duration
}

// Decision answers admit. The zero value is a refusal.
type Decision struct {
	Admitted bool      `json:"admitted"`
	Refusal  writ.Code `json:"refusal,omitempty"`
	ActionID string    `json:"action_instance_id,omitempty"`
	// Held is true while the action waits for an approval; dispatch then answers approval_required.
	Held bool `json:"held,omitempty"`
	// Replay is true when the decision is of an earlier admission, maybe of another invocation.
	Replay bool `json:"-"`
	// Key is the idempotency key of the action, stable for its life.
	Key string `json:"-"`
	// Freed is closed when an unsettled action of the invocation settles; set with concurrency_limit_reached.
	Freed <-chan struct{} `json:"-"`
}

// Receipt answers every other method. The zero value is a refusal.
type Receipt struct {
	Accepted bool      `json:"accepted"`
	Code     writ.Code `json:"code,omitempty"`
	// Freed is closed when it is worth asking again; set with concurrency_limit_reached.
	Freed <-chan struct{} `json:"-"`
}

// Outcome is what is known of a dispatched action.
type Outcome struct {
	State        writ.ActionState // Succeeded or Failed
	Status       string           // empty, or what State says less of: rejected, partial_success; then State is Failed
	Failure      string           // failure class, when failed and only then; a code such as tool_error, never a tool's text
	ResultDigest string
	Evidence     []string // references that the boundary declares as evidence

	// What an outside harness repeats of the action; an empty field is not checked.
	Participant string
	Episode     string
	ActionID    string
	Contract    string
	Observation string
}

// Block makes the timeline blocks that are committed with a row; a nil function adds nothing.
type Block func(row store.Action) []store.Block

// Open returns an inactive port; Activate opens it. Possession of the port is the authority to use it.
func (l *Ledger) Open(inv Invocation) (*Port, error) {
	if inv.ID == "" || inv.Conversation == "" {
		return nil, fmt.Errorf("admission: opening port: invocation and conversation are required")
	}
	if inv.Total <= 0 || inv.Concurrent <= 0 || inv.Concurrent > inv.Total {
		return nil, fmt.Errorf("admission: opening port: limits must be positive and concurrent at most total")
	}
	inv.Compiled = inv.Compiled.Clone()
	if inv.Scope == "" {
		inv.Scope = inv.Conversation
	}
	p := &Port{l: l, inv: inv, bindings: map[bindingKey][]*participant.Binding{}, boundaries: map[string]*participant.Boundary{},
		calls: map[string]*record{}, actions: map[string]*record{}, busy: map[string]int{}, freed: make(chan struct{})}
	for i := range p.inv.Bindings {
		b := &p.inv.Bindings[i]
		if b.Participant == "" || b.Participant == inv.Participant {
			k := bindingKey{b.Affordance, b.Contract}
			p.bindings[k] = append(p.bindings[k], b)
		}
	}
	for i := range p.inv.Boundaries {
		p.boundaries[p.inv.Boundaries[i].Address] = &p.inv.Boundaries[i]
	}
	return p, nil
}

// clone shares nothing with in: who holds a port cannot widen its bounds.
func (in Invocation) clone() Invocation {
	in.Compiled = in.Compiled.Clone()
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
