// Package memory is a store that forgets: the contract of writ/store in maps, for tests, benchmarks and `explain`.
package memory

import (
	"context"
	"slices"
	"sort"
	"sync"

	"writ/store"
)

// Store keeps everything in memory.
type Store struct {
	mu      sync.RWMutex
	closed  bool
	batch   map[string]bool
	conv    map[string]*store.Conversation
	turn    map[string]*store.Turn
	turns   []string
	action  map[string]*store.Action
	order   []string            // action ids by admission
	byTurn  map[string][]string // action ids of a turn
	slot    map[slot]string
	call    map[callKey]string
	ordinal map[ordinalKey]bool
	blocks  map[string][]store.Block
	keys    map[string]map[string]bool
	docs    map[string][]byte
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

// Open returns an empty store.
func Open() *Store {
	return &Store{batch: map[string]bool{}, conv: map[string]*store.Conversation{}, turn: map[string]*store.Turn{},
		action: map[string]*store.Action{}, byTurn: map[string][]string{}, slot: map[slot]string{}, call: map[callKey]string{}, ordinal: map[ordinalKey]bool{},
		blocks: map[string][]store.Block{}, keys: map[string]map[string]bool{}, docs: map[string][]byte{}}
}

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
	if err := s.check(b); err != nil {
		return err
	}
	s.write(b)
	return nil
}

// check finds every conflict before anything is written, so that a refusal changes nothing.
func (s *Store) check(b *store.Batch) error {
	if s.batch[b.ID] {
		return &store.Conflict{Part: "batch", ID: b.ID, Why: "already written"}
	}
	if f := b.Fence; f != nil {
		c := s.conv[f.Conversation]
		if c == nil || c.LeaseToken != f.Token {
			return &store.Conflict{Part: "fence", ID: f.Conversation, Why: "the lease is held under another token"}
		}
	}
	made := map[string]bool{}
	for _, w := range b.Conversations {
		c := s.conv[w.ID]
		switch {
		case w.Create && (c != nil || made[w.ID]):
			return &store.Conflict{Part: "conversation", ID: w.ID, Why: "already exists"}
		case !w.Create && (c == nil || c.LeaseToken != w.ExpectToken):
			return &store.Conflict{Part: "conversation", ID: w.ID, Why: "the lease token is another one"}
		}
		made[w.ID] = true
	}
	for _, w := range b.Turns {
		t := s.turn[w.ID]
		switch {
		case w.Expect == "" && (t != nil || s.conv[w.Conversation] == nil && !made[w.Conversation]):
			return &store.Conflict{Part: "turn", ID: w.ID, Why: "already exists"}
		case w.Expect != "" && (t == nil || t.State != w.Expect):
			return &store.Conflict{Part: "turn", ID: w.ID, Why: "not in state " + w.Expect}
		}
	}
	if err := s.checkActions(b); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, bl := range b.Blocks {
		if s.conv[bl.Conversation] == nil && !made[bl.Conversation] {
			return &store.Conflict{Part: "block", ID: bl.Kind, Why: "no conversation " + bl.Conversation}
		}
		if bl.Key == "" {
			continue
		}
		if k := bl.Conversation + "\x00" + bl.Key; s.keys[bl.Conversation][bl.Key] || seen[k] {
			return &store.Conflict{Part: "block", ID: bl.Key, Why: "already exists"}
		} else {
			seen[k] = true
		}
	}
	return nil
}

func (s *Store) checkActions(b *store.Batch) error {
	slots, calls, ords, state := map[slot]bool{}, map[callKey]bool{}, map[ordinalKey]bool{}, map[string]string{}
	for _, w := range b.Actions {
		have, inBatch := state[w.ID]
		if a := s.action[w.ID]; a != nil && !inBatch {
			have = string(a.State)
		}
		if have != string(w.Expect) {
			why := "not in state " + string(w.Expect)
			if w.Expect == "" {
				why = "already exists"
			}
			return &store.Conflict{Part: "action", ID: w.ID, Why: why}
		}
		if w.Expect == "" {
			k, c := slot{w.Turn, w.Round, w.Attempt, w.Index}, callKey{w.Turn, w.ToolCallID}
			if s.slot[k] != "" || slots[k] {
				return &store.Conflict{Part: "action", ID: w.ID, Why: "the slot is taken"}
			}
			if s.call[c] != "" || calls[c] {
				return &store.Conflict{Part: "action", ID: w.ID, Why: "the tool call id is taken"}
			}
			o := ordinalKey{w.Turn, w.Ordinal}
			if s.ordinal[o] || ords[o] {
				return &store.Conflict{Part: "action", ID: w.ID, Why: "the ordinal is taken"}
			}
			slots[k], calls[c], ords[o] = true, true, true
		}
		state[w.ID] = string(w.State)
	}
	return nil
}

func (s *Store) write(b *store.Batch) {
	s.batch[b.ID] = true
	for _, w := range b.Conversations {
		c := w.Conversation
		if w.Create {
			c.Created = b.Time
		} else {
			old := *s.conv[w.ID]
			old.LeaseToken, old.LeaseUntil, old.Holder = c.LeaseToken, c.LeaseUntil, c.Holder
			c = old
		}
		c.Changed = b.Time
		s.conv[w.ID] = &c
	}
	for _, w := range b.Turns {
		t := w.Turn
		if w.Expect == "" {
			s.turns = append(s.turns, t.ID)
		} else {
			old := *s.turn[w.ID]
			old.State, old.Reason, old.Ended = t.State, t.Reason, t.Ended
			t = old
		}
		s.turn[w.ID] = &t
	}
	for _, w := range b.Actions {
		a := w.Action
		if w.Expect == "" {
			s.order = append(s.order, a.ID)
			s.byTurn[a.Turn] = append(s.byTurn[a.Turn], a.ID)
			s.slot[slot{a.Turn, a.Round, a.Attempt, a.Index}] = a.ID
			s.call[callKey{a.Turn, a.ToolCallID}] = a.ID
			s.ordinal[ordinalKey{a.Turn, a.Ordinal}] = true
			a.Targets = slices.Clone(a.Targets)
		} else {
			old := *s.action[w.ID]
			old.State, old.Failure, old.Evidence, old.ResultDigest = a.State, a.Failure, slices.Clone(a.Evidence), a.ResultDigest
			old.DispatchedAt, old.SettledAt = a.DispatchedAt, a.SettledAt
			a = old
		}
		s.action[w.ID] = &a
	}
	for i := range b.Blocks {
		bl := &b.Blocks[i]
		list := s.blocks[bl.Conversation]
		bl.Seq = int64(len(list) + 1)
		cp := *bl
		cp.Body = slices.Clone(bl.Body)
		s.blocks[bl.Conversation] = append(list, cp)
		if bl.Key != "" {
			if s.keys[bl.Conversation] == nil {
				s.keys[bl.Conversation] = map[string]bool{}
			}
			s.keys[bl.Conversation][bl.Key] = true
		}
		if c := s.conv[bl.Conversation]; c != nil {
			c.Changed = b.Time
		}
	}
	for _, d := range b.Documents {
		if s.docs[d.Digest] == nil {
			s.docs[d.Digest] = slices.Clone(d.Body)
		}
	}
}

// Applied implements store.Store.
func (s *Store) Applied(_ context.Context, id string) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.batch[id], nil
}

// Conversation implements store.Store.
func (s *Store) Conversation(_ context.Context, id string) (store.Conversation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.conv[id]; c != nil {
		return *c, nil
	}
	return store.Conversation{}, store.ErrNotFound
}

// Conversations implements store.Store.
func (s *Store) Conversations(_ context.Context, limit int) ([]store.Conversation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Conversation
	for _, c := range s.conv {
		out = append(out, *c)
	}
	sort.Slice(out, func(i, j int) bool {
		if !out[i].Changed.Equal(out[j].Changed) {
			return out[i].Changed.After(out[j].Changed)
		}
		return out[i].ID < out[j].ID
	})
	if limit == 0 {
		limit = 100
	}
	return out[:min(limit, len(out))], nil
}

// Turn implements store.Store.
func (s *Store) Turn(_ context.Context, id string) (store.Turn, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.turn[id]; t != nil {
		return *t, nil
	}
	return store.Turn{}, store.ErrNotFound
}

// OpenTurns implements store.Store.
func (s *Store) OpenTurns(context.Context) ([]store.Turn, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Turn
	for _, id := range s.turns {
		if t := s.turn[id]; t.State == store.TurnRunning {
			out = append(out, *t)
		}
	}
	return out, nil
}

// Blocks implements store.Store.
func (s *Store) Blocks(_ context.Context, conversation string, after int64, limit int) ([]store.Block, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := s.blocks[conversation]
	if after >= int64(len(list)) {
		return nil, nil
	}
	list = list[max(after, 0):]
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return slices.Clone(list), nil
}

// Action implements store.Store.
func (s *Store) Action(_ context.Context, id string) (store.Action, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a := s.action[id]; a != nil {
		return *a, nil
	}
	return store.Action{}, store.ErrNotFound
}

// Actions implements store.Store.
func (s *Store) Actions(_ context.Context, f store.ActionFilter) ([]store.Action, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := s.order
	if f.Turn != "" {
		ids = s.byTurn[f.Turn]
	}
	var out []store.Action
	for _, id := range ids {
		a := s.action[id]
		if (f.Conversation == "" || a.Conversation == f.Conversation) && (f.Round == 0 || a.Round == f.Round) &&
			(f.Tool == "" || a.Tool == f.Tool) && (len(f.States) == 0 || slices.Contains(f.States, a.State)) {
			out = append(out, *a)
		}
	}
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[len(out)-f.Limit:]
	}
	return out, nil
}

// Document implements store.Store.
func (s *Store) Document(_ context.Context, digest string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d := s.docs[digest]; d != nil {
		return slices.Clone(d), nil
	}
	return nil, store.ErrNotFound
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
