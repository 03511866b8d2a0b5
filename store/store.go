// Package store is the one durable write of the runtime, [Store.Apply], and the handful of reads beside it.
// Drivers stand in sub-packages; storetest.Run is the contract that every driver passes.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"writ"
)

// Store keeps everything that must outlive a process. Implementations are safe for concurrent use.
type Store interface {
	// Apply writes the batch, all of it or nothing. When it returns nil the batch is durable and every Block in it
	// carries its Seq. [ErrConflict] (as *Conflict) says which part did not find what it expected; nothing was
	// written. [ErrUnknown] means that nobody knows: read it back with Applied under b.ID. Any other error: nothing
	// was written. A batch that was handed to the driver is answered only when its outcome is known, even if ctx ends.
	Apply(ctx context.Context, b *Batch) error
	// Applied reports whether the batch of that id was written.
	Applied(ctx context.Context, batchID string) (bool, error)

	// Conversation returns one conversation, or ErrNotFound.
	Conversation(ctx context.Context, id string) (Conversation, error)
	// Conversations lists conversations, the most recently changed first. limit 0 means 100.
	Conversations(ctx context.Context, limit int) ([]Conversation, error)
	// Turn returns one turn, or ErrNotFound.
	Turn(ctx context.Context, id string) (Turn, error)
	// OpenTurns lists the turns that are running, parked or draining, oldest first.
	OpenTurns(ctx context.Context) ([]Turn, error)
	// Blocks returns the blocks of a conversation with Seq > after, in order. limit 0 means all.
	Blocks(ctx context.Context, conversation string, after int64, limit int) ([]Block, error)
	// Action returns one row of the ledger, or ErrNotFound.
	Action(ctx context.Context, id string) (Action, error)
	// Actions lists rows in the order of their admission.
	//
	// A filter with a cursor pages forward; without one the newest rows are kept when Limit cuts.
	Actions(ctx context.Context, f ActionFilter) ([]Action, error)
	// Document returns what was stored under the digest, or ErrNotFound.
	Document(ctx context.Context, digest string) ([]byte, error)

	// Claim returns what a key was used for, or ErrNotFound.
	Claim(ctx context.Context, scope, key string) (Claim, error)
	// Approval returns the approval of an action, or ErrNotFound.
	Approval(ctx context.Context, action string) (Approval, error)
	// Approvals lists approvals, the oldest first.
	Approvals(ctx context.Context, f ApprovalFilter) ([]Approval, error)
	// Operation returns one operation, or ErrNotFound.
	Operation(ctx context.Context, id string) (Operation, error)
	// Operations lists what was done about a parent, the oldest first.
	Operations(ctx context.Context, parent string) ([]Operation, error)
	// Quarantined lists which of the keys are in quarantine. No keys = everything that is.
	Quarantined(ctx context.Context, keys ...Key) ([]Quarantine, error)
	// History returns a conversation's events with Seq > after, in order. limit 0 means all.
	History(ctx context.Context, conversation string, after int64, limit int) ([]Event, error)
	// Tips lists the tips of all chains by conversation; with unsealed only of those that grew since the last head.
	Tips(ctx context.Context, unsealed bool) ([]Tip, error)
	// Heads returns heads with N > after, in order; a negative after returns the last one alone.
	Heads(ctx context.Context, after int64) ([]Head, error)
	// Schedule returns one schedule, or ErrNotFound.
	Schedule(ctx context.Context, id string) (Schedule, error)
	// Schedules lists the schedules by id.
	Schedules(ctx context.Context) ([]Schedule, error)
	// Token returns the token with the hash, revoked and expired ones too, or ErrNotFound.
	Token(ctx context.Context, hash string) (Token, error)
	// Tokens lists the tokens of a kind, the oldest first.
	Tokens(ctx context.Context, kind string) ([]Token, error)
	// Close ends the driver after the writes under way.
	Close() error
}

// Sentinels that callers branch on.
var (
	ErrNotFound = errors.New("store: not found")
	ErrConflict = errors.New("store: conflict")
	ErrUnknown  = errors.New("store: commit outcome unknown")
	ErrClosed   = errors.New("store: closed")
)

// Conflict says which part of a batch did not find what it expected.
type Conflict struct {
	// Part is "fence", "conversation", "turn", "block", "action", "batch", "claim", "approval", "operation",
	// "quarantine", "head", "schedule" or "token".
	Part string
	ID   string
	Why  string
}

// Error implements error.
func (c *Conflict) Error() string {
	return fmt.Sprintf("store: conflict: %s %s: %s", c.Part, c.ID, c.Why)
}

// Is makes errors.Is(err, ErrConflict) true.
func (c *Conflict) Is(target error) bool { return target == ErrConflict }

// Batch is one atomic write. Its parts are checked and written in the order of the fields.
type Batch struct {
	ID            string // required, unique: by it an unknown commit is read back
	Fence         *Fence
	Conversations []ConversationWrite
	Turns         []TurnWrite
	Actions       []ActionWrite
	Blocks        []Block // appended in order; Seq is set by the store
	Documents     []Document
	Claims        []Claim
	Approvals     []ApprovalWrite
	Operations    []Operation
	History       []Event // appended in order; Seq, Prev and Hash are set by the store
	Heads         []Head
	Schedules     []ScheduleWrite
	Tokens        []TokenWrite
	// Free are keys that must not be in quarantine. They are checked after the fence, before anything is written.
	Free []Key
	// Quarantine puts keys in quarantine besides those that an indeterminate action brings; entering twice is fine.
	Quarantine []Quarantine
	Time       time.Time
}

// Fence makes the whole batch depend on a lease: it is refused when the conversation's token or generation is another
// one.
type Fence struct {
	Conversation string
	Token        int64
	Generation   int64
}

// Conversation is a durable thread. The lease token counts takeovers; it only grows.
type Conversation struct {
	ID         string
	Tenant     string
	Owner      string
	Agent      string
	LeaseToken int64
	LeaseUntil time.Time
	Holder     string
	Generation int64 // of its execution scope; moves by reset only
	Created    time.Time
	Changed    time.Time
}

// ConversationWrite creates a conversation, takes its lease, or moves its generation.
type ConversationWrite struct {
	Conversation
	// Create inserts the row; it must not exist.
	Create bool
	// ExpectToken is the token the row must carry when Create is false. The row then takes LeaseToken, LeaseUntil,
	// Holder and Generation.
	ExpectToken int64
}

// Turn is one activation of an agent, or one invocation of an outside harness. State is "running" until it is parked,
// drains or ends.
type Turn struct {
	ID           string
	Conversation string
	Agent        string
	State        string // running | parked | draining | answered | no_answer | interrupted | failed
	Reason       string // why it is where it is, but for running and answered
	Kind         string // KindTurn and so on
	Tenant       string
	Owner        string
	Body         []byte // JSON of the invocation's identity; its shape belongs to package admission
	ConfigDigest string
	Holder       string
	Started      time.Time
	Ended        time.Time
}

// Turn kinds. The empty one is an agent's turn.
const (
	KindTurn       = ""
	KindAutonomous = "autonomous" // an agent's turn that a schedule began
	KindHTTP       = "http"       // an outside harness
	KindGateway    = "gateway"    // a session of an MCP client
)

// Turn states.
const (
	TurnRunning     = "running"
	TurnParked      = "parked"   // waits for approvals; nothing runs
	TurnDraining    = "draining" // taken over: what was dispatched may still be settled by its holder
	TurnAnswered    = "answered"
	TurnNoAnswer    = "no_answer"
	TurnInterrupted = "interrupted"
	TurnFailed      = "failed"
)

// TurnWrite inserts a turn (Expect == "") or moves it from the state it expects; then State, Reason, Holder and Ended
// are written.
type TurnWrite struct {
	Turn
	Expect string
}

// Block is one entry of a conversation's append-only timeline. Body is JSON whose shape belongs to Kind.
type Block struct {
	Conversation string
	Seq          int64  // 1-based, without gaps; set by the store
	Key          string // unique within the conversation when not empty
	Turn         string
	Kind         string
	ActionID     string
	Body         []byte
	Time         time.Time
}

// Action is one row of the ledger: everything about a tool action but its arguments, result and error text, which
// live on the timeline. Digests are keyed (HMAC).
type Action struct {
	Seq            int64 // order of admission in the store; set by the store
	ID             string
	Tenant         string
	Owner          string
	Conversation   string
	Turn           string // also the invocation
	Ordinal        int    // admission order within the invocation, from 1
	Round          int
	Attempt        int
	Index          int
	Tool           string
	ToolCallID     string
	Fingerprint    string
	RequestDigest  string
	ArgumentDigest string
	Participant    string
	Implementation string
	Affordance     string
	Contract       string
	Boundary       string
	Targets        []string
	Scope          string
	Generation     int64
	LeaseToken     int64
	Strategy       string
	Execution      string
	Effect         string
	PolicyDigest   string
	IdempotencyKey string
	Observation    string
	Early          bool // admitted while the model streamed
	Offer          string
	Timeout        time.Duration // how long it may run; 0 = not bounded
	AdmittedAt     time.Time     // when it was released, for one that had been held

	State        writ.ActionState
	Status       string // what the harness said of the outcome, where State says less: rejected, partial_success
	Failure      string // class: tool_error, timeout, interrupted, cancelled, restart, …
	Evidence     []string
	ResultDigest string
	DispatchedAt time.Time
	SettledAt    time.Time
}

// ActionWrite inserts a row (Expect == "") or moves it from the state it expects; then only State, Status, Failure,
// Evidence, ResultDigest, Generation, LeaseToken, AdmittedAt, DispatchedAt and SettledAt of Action are written. A row that
// becomes indeterminate puts (Tenant, Owner, each target) into quarantine until an [OperationResolution] names it; any
// other settlement takes its keys out.
type ActionWrite struct {
	Action
	Expect writ.ActionState
}

// ActionFilter selects rows; empty fields select all.
type ActionFilter struct {
	Conversation string
	Turn         string
	Round        int // 0 = all; rounds count from 1
	States       []writ.ActionState
	Tool         string
	Tenant       string
	Owner        string
	Participant  string
	Since        time.Time     // admitted at or after
	Unresolved   bool          // indeterminate and without a resolution
	Page         *ActionCursor // nil = the newest Limit rows
	Limit        int           // 0 = all
}

// Document is something immutable stored by its digest, such as an effective configuration. Writing it again is fine.
type Document struct {
	Digest string
	Body   []byte
}

// Empty reports whether the batch would write nothing.
func (b *Batch) Empty() bool {
	return len(b.Conversations)+len(b.Turns)+len(b.Actions)+len(b.Blocks)+len(b.Documents)+len(b.Claims)+len(b.Approvals)+
		len(b.Operations)+len(b.History)+len(b.Heads)+len(b.Schedules)+len(b.Tokens)+len(b.Quarantine) == 0
}

// Validate refuses batches that no driver may write.
func (b *Batch) Validate() error {
	if b.ID == "" {
		return errors.New("store: batch without an id")
	}
	if b.Time.IsZero() {
		return errors.New("store: batch without a time")
	}
	for i := range b.Actions {
		if b.Actions[i].ID == "" || b.Actions[i].State == "" {
			return fmt.Errorf("store: batch action %d: id and state are required", i)
		}
	}
	for i := range b.Blocks {
		if b.Blocks[i].Conversation == "" || b.Blocks[i].Kind == "" {
			return fmt.Errorf("store: batch block %d: conversation and kind are required", i)
		}
	}
	return nil
}

// Fault is a seam for tests: it fails chosen writes before they reach the store, or after they were committed and
// their answer got lost.
type Fault struct {
	Store
	// Before is asked before each Apply; an error is returned instead of writing.
	Before func(b *Batch) error
	// After is asked after each successful Apply; an error is returned though the batch is durable.
	After func(b *Batch) error
}

// Apply implements Store.
func (f *Fault) Apply(ctx context.Context, b *Batch) error {
	if f.Before != nil {
		if err := f.Before(b); err != nil {
			return err
		}
	}
	if err := f.Store.Apply(ctx, b); err != nil {
		return err
	}
	if f.After != nil {
		return f.After(b)
	}
	return nil
}

// Commit applies the batch and, when the answer to its commit got lost, reads it back. A nil return means durable;
// ErrUnknown remains only when the store could not be read either.
func Commit(ctx context.Context, s Store, b *Batch) error {
	err := s.Apply(ctx, b)
	if !errors.Is(err, ErrUnknown) {
		return err
	}
	there, rerr := s.Applied(context.WithoutCancel(ctx), b.ID)
	switch {
	case rerr != nil:
		return fmt.Errorf("%w; reading back: %w", err, rerr)
	case there:
		return nil
	}
	return fmt.Errorf("store: the commit did not take place: %v", err)
}
