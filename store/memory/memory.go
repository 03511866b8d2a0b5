// Package memory is a store that forgets: the contract of writ/store in maps, for tests, benchmarks and `explain`.
package memory

import (
	"context"
	"sync"
	"time"

	"writ/store"
)

// Store keeps everything in memory. Records behind pointers are never changed in place: a write puts a new one, so what
// a reader got stays as it was, and a refused batch is taken back by putting the old one.
type Store struct {
	mu     sync.RWMutex
	closed bool
	undo   undo

	batch map[string]bool
	conv  map[string]*store.Conversation
	docs  map[string][]byte

	turn   map[string]*store.Turn
	turnNo map[string]int // order of insertion, by id
	open   map[string]bool

	action        map[string]*store.Action
	order         []string            // action ids by admission: the row of Seq n is at n-1
	byTurn        map[string][]string // action ids, each list by admission
	byConv        map[string][]string
	byParticipant map[string][]string
	slot          map[slot]bool
	call          map[callKey]bool
	ordinal       map[ordinalKey]bool
	unresolved    map[string]bool // indeterminate and without a resolution
	resolved      map[string]bool // parents that a resolution names

	blocks map[string][]store.Block
	keys   map[blockKey]bool

	claim          map[claimKey]*store.Claim
	approval       map[string]*store.Approval
	approvals      []string // action ids by insertion
	approvalByConv map[string][]string
	approvalByTurn map[string][]string
	operation      map[string]*store.Operation
	byParent       map[string][]string
	once           map[string]bool

	barred map[store.Key]map[string]bool // the actions that keep a key in quarantine; an empty set = none
	bars   map[string]map[store.Key]bool // the same, by action

	history  map[string][]store.Event
	unsealed map[string]bool // conversations that grew since the last head
	sealed   map[string]int64
	heads    []store.Head

	schedule map[string]*store.Schedule
	token    map[string]*store.Token
	tokens   []string // ids by insertion
	byHash   map[string]string
}

type slot struct {
	turn                  string
	round, attempt, index int
}

type callKey struct{ turn, call string }

type ordinalKey struct {
	turn    string
	ordinal int
}

type blockKey struct{ conversation, key string }

type claimKey struct{ scope, key string }

// Open returns an empty store.
func Open() *Store {
	return &Store{batch: map[string]bool{}, conv: map[string]*store.Conversation{}, docs: map[string][]byte{},
		turn: map[string]*store.Turn{}, turnNo: map[string]int{}, open: map[string]bool{},
		action: map[string]*store.Action{}, byTurn: map[string][]string{}, byConv: map[string][]string{},
		byParticipant: map[string][]string{}, slot: map[slot]bool{}, call: map[callKey]bool{}, ordinal: map[ordinalKey]bool{},
		unresolved: map[string]bool{}, resolved: map[string]bool{},
		blocks: map[string][]store.Block{}, keys: map[blockKey]bool{},
		claim: map[claimKey]*store.Claim{}, approval: map[string]*store.Approval{},
		approvalByConv: map[string][]string{}, approvalByTurn: map[string][]string{},
		operation: map[string]*store.Operation{}, byParent: map[string][]string{}, once: map[string]bool{},
		barred: map[store.Key]map[string]bool{}, bars: map[string]map[store.Key]bool{},
		history: map[string][]store.Event{}, unsealed: map[string]bool{}, sealed: map[string]int64{},
		schedule: map[string]*store.Schedule{}, token: map[string]*store.Token{}, byHash: map[string]string{}}
}

var _ store.Store = (*Store)(nil)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, b *store.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return store.ErrClosed
	}
	err := s.write(b)
	if err != nil {
		s.undo.back()
	}
	s.undo.forget()
	return err
}

// write runs the parts in the order of the batch's fields; the first that does not find what it expects ends it.
func (s *Store) write(b *store.Batch) error {
	if s.batch[b.ID] {
		return &store.Conflict{Part: "batch", ID: b.ID, Why: "already written"}
	}
	put(&s.undo, s.batch, b.ID, true)
	for _, part := range [...]func(*store.Batch) error{s.fence, s.free, s.writeConversations, s.writeTurns, s.writeActions,
		s.writeBlocks, s.writeDocuments, s.writeClaims, s.writeApprovals, s.writeOperations, s.writeHistory, s.writeHeads,
		s.writeSchedules, s.writeTokens, s.writeQuarantine} {
		if err := part(b); err != nil {
			return err
		}
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// undo takes back what a batch has written so far, the last first.
type undo []func()

func (u *undo) back() {
	for i := len(*u) - 1; i >= 0; i-- {
		(*u)[i]()
	}
}

func (u *undo) forget() {
	clear(*u)
	*u = (*u)[:0]
}

func put[K comparable, V any](u *undo, m map[K]V, k K, v V) {
	old, had := m[k]
	m[k] = v
	*u = append(*u, func() {
		if had {
			m[k] = old
		} else {
			delete(m, k)
		}
	})
}

func drop[K comparable, V any](u *undo, m map[K]V, k K) {
	old, had := m[k]
	if !had {
		return
	}
	delete(m, k)
	*u = append(*u, func() { m[k] = old })
}

// push appends to a list. What lies behind a list's end belongs to nobody, so taking the end back is enough.
func push[V any](u *undo, list *[]V, v V) {
	old := *list
	*list = append(old, v)
	*u = append(*u, func() { *list = old })
}

// micro is a time as every driver gives it back: UTC, in microseconds.
func micro(t time.Time) time.Time { return t.Truncate(time.Microsecond).UTC() }
