package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"writ"
)

// Claim says that a key has been used, for what. (Scope, Key) is unique: of two batches that claim it one gets a
// Conflict of part "claim".
type Claim struct {
	Scope   string // who may use the key for what, for example "gateway:local:1000"
	Key     string
	Digest  string // of what was asked for under it
	Subject string // what came of it, for example an action id
	Time    time.Time
}

// Approval states.
const (
	ApprovalPending  = "pending"
	ApprovalApproved = "approved" // the action may be released
	ApprovalDeclined = "declined" // final
	ApprovalExpired  = "expired"  // final
	ApprovalVoid     = "void"     // final: what it was bound to has changed, or its invocation is over
)

// Approval is the question whether a held action may run. There is one an action, decided once.
type Approval struct {
	Action         string
	Tenant         string
	Owner          string // of the conversation
	Conversation   string
	Turn           string
	Agent          string
	Tool           string
	Approver       string // "owner" or "operator"
	ArgumentDigest string // what the decision is bound to
	PolicyDigest   string
	State          string
	Actor          string // who decided
	Note           string
	Created        time.Time
	Expires        time.Time
	Decided        time.Time
}

// ApprovalWrite inserts an approval (Expect == "") or moves it from the state it expects; then State, Actor, Note and
// Decided are written. A conflict has part "approval".
type ApprovalWrite struct {
	Approval
	Expect string
}

// ApprovalFilter selects approvals; empty fields select all. They come oldest first.
type ApprovalFilter struct {
	Conversation string
	Turn         string
	States       []string
	Limit        int // 0 = all
}

// Operation kinds.
const (
	OperationResolution = "indeterminate_resolution" // lifts the quarantine of its parent's targets
	OperationReport     = "late_report"
	OperationApproval   = "approval"
	OperationSchedule   = "schedule" // pause, resume, drain, reset of an autonomous policy
)

// Operation is something that was done about a parent, which does not change by it. It is immutable.
type Operation struct {
	ID     string
	Kind   string
	Parent string // an action id, or a schedule id
	Tenant string
	Actor  string
	Once   string // unique when not empty: of two batches with it one gets a Conflict of part "operation"
	Body   []byte // JSON; its shape belongs to Kind
	Time   time.Time
}

// Quarantine is a key on which something may have happened and nobody knows, or may be happening.
type Quarantine struct {
	Tenant string
	Owner  string
	Target string
	Action string
}

// Key names what a quarantine is about.
type Key struct {
	Tenant string
	Owner  string
	Target string
}

// Event is one entry of a conversation's history. The store sets Seq (from 1, without gaps), Prev and Hash: a chain,
// see [ChainHash].
type Event struct {
	Conversation string
	Seq          int64
	Participant  string
	Turn         string
	Action       string // the action instance it is about: a tool action, or the invocation
	Type         string
	Body         []byte // JSON
	Prev         string
	Hash         string
	Time         time.Time
}

// ChainHash is the hash of an event: SHA-256 over the hash before it and every field, each with its length.
func ChainHash(e *Event) string {
	h := sha256.New()
	var n [8]byte
	field := func(b []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	number := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		h.Write(n[:])
	}
	field([]byte("writ history v1"))
	field([]byte(e.Prev))
	field([]byte(e.Conversation))
	number(e.Seq)
	for _, s := range []string{e.Participant, e.Turn, e.Action, e.Type} {
		field([]byte(s))
	}
	field(e.Body)
	number(e.Time.UnixMicro())
	return hex.EncodeToString(h.Sum(nil))
}

// Tip is the last event of a conversation's chain.
type Tip struct {
	Conversation string `json:"conversation"`
	Seq          int64  `json:"seq"`
	Hash         string `json:"hash"`
}

// Head chains the tips of the chains that have grown since the head before it. N counts from 1; the writer sets all
// fields, and the store refuses one that does not follow the last (Conflict of part "head").
type Head struct {
	N    int64     `json:"n"`
	Time time.Time `json:"time"`
	Tips []Tip     `json:"tips"` // sorted by conversation
	Prev string    `json:"prev"` // hash of the head before; empty for the first
	Hash string    `json:"hash"`
}

// HeadHash is the hash of a head: SHA-256 over all fields but Hash, each with its length.
func HeadHash(h *Head) string {
	s := sha256.New()
	var n [8]byte
	field := func(b string) {
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		s.Write(n[:])
		s.Write([]byte(b))
	}
	number := func(v int64) {
		binary.BigEndian.PutUint64(n[:], uint64(v))
		s.Write(n[:])
	}
	field("writ head v1")
	number(h.N)
	field(h.Prev)
	number(h.Time.UnixMicro())
	number(int64(len(h.Tips)))
	for _, t := range h.Tips {
		field(t.Conversation)
		number(t.Seq)
		field(t.Hash)
	}
	return hex.EncodeToString(s.Sum(nil))
}

// Schedule states.
const (
	ScheduleRunning  = "running"
	SchedulePaused   = "paused"
	ScheduleDraining = "draining" // finishes what is in flight, then paused
	ScheduleStopped  = "stopped"  // by a failure or an unknown outcome; needs resume
	ScheduleDone     = "done"     // its limit of attempts is used up
)

// Schedule is the durable state of one participant's autonomous policy.
type Schedule struct {
	ID           string // the participant's address, within the tenant
	Tenant       string
	Owner        string
	Agent        string
	Conversation string // its episode
	Generation   int64  // moves by reset only
	Revision     int64  // of this record; from 1
	State        string
	Reason       string // why it is stopped, paused or done
	PolicyDigest string
	Next         time.Time // when it is due; zero = not
	Attempted    int64     // = Succeeded + Failed + InFlight
	Succeeded    int64
	Failed       int64
	InFlight     int64
	Holder       string // who owns it across replicas
	LeaseToken   int64
	LeaseUntil   time.Time
	Changed      time.Time
}

// ScheduleWrite inserts a schedule (Expect == 0) or replaces the revision it expects; the record's Revision must be
// Expect+1. A conflict has part "schedule".
type ScheduleWrite struct {
	Schedule
	Expect int64
}

// Token kinds.
const (
	TokenAPI        = "api"        // opens invocations of a participant
	TokenInvocation = "invocation" // one invocation
)

// Token is a credential, stored as its hash only.
type Token struct {
	ID      string
	Kind    string
	Hash    string // SHA-256, hex; unique
	Tenant  string
	Owner   string // whom it acts for
	Subject string // participant name ("*" = all), or a turn id
	Name    string // for people
	Created time.Time
	Expires time.Time // zero = never
	Revoked time.Time
}

// TokenWrite inserts a token (Update false), or sets Expires and Revoked of an existing id. A conflict has part "token".
type TokenWrite struct {
	Token
	Update bool
}

// ActionCursor pages through actions in the order of their admission.
type ActionCursor struct {
	After int64 // only rows with Seq > After
	Limit int   // 0 = all
}

// SettledStates are the states in which a row does not change any more.
func SettledStates() []writ.ActionState {
	return []writ.ActionState{writ.Succeeded, writ.Failed, writ.Withheld, writ.Indeterminate}
}
