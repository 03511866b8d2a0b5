package memory

import (
	"slices"

	"writ"
	"writ/store"
)

func (s *Store) fence(b *store.Batch) error {
	f := b.Fence
	if f == nil {
		return nil
	}
	switch c := s.conv[f.Conversation]; {
	case c == nil || c.LeaseToken != f.Token:
		return &store.Conflict{Part: "fence", ID: f.Conversation, Why: "the lease is held under another token"}
	case c.Generation != f.Generation:
		return &store.Conflict{Part: "fence", ID: f.Conversation, Why: "the generation is another one"}
	}
	return nil
}

func (s *Store) writeConversations(b *store.Batch) error {
	for i := range b.Conversations {
		w := &b.Conversations[i]
		old := s.conv[w.ID]
		c := w.Conversation
		switch {
		case w.Create && old != nil:
			return &store.Conflict{Part: "conversation", ID: w.ID, Why: "already exists"}
		case !w.Create && (old == nil || old.LeaseToken != w.ExpectToken):
			return &store.Conflict{Part: "conversation", ID: w.ID, Why: "the lease token is another one"}
		case w.Create:
			c.Created = micro(b.Time)
		default:
			c = *old
			c.LeaseToken, c.LeaseUntil, c.Holder, c.Generation = w.LeaseToken, w.LeaseUntil, w.Holder, w.Generation
		}
		c.LeaseUntil, c.Changed = micro(c.LeaseUntil), micro(b.Time)
		put(&s.undo, s.conv, w.ID, &c)
	}
	return nil
}

func (s *Store) writeTurns(b *store.Batch) error {
	for i := range b.Turns {
		w := &b.Turns[i]
		old := s.turn[w.ID]
		t := w.Turn
		switch {
		case w.Expect == "" && old != nil:
			return &store.Conflict{Part: "turn", ID: w.ID, Why: "already exists"}
		case w.Expect == "" && s.conv[w.Conversation] == nil:
			return &store.Conflict{Part: "turn", ID: w.ID, Why: "no conversation " + w.Conversation}
		case w.Expect != "" && (old == nil || old.State != w.Expect):
			return &store.Conflict{Part: "turn", ID: w.ID, Why: "not in state " + w.Expect}
		case w.Expect == "":
			t.Body = bytesOf(t.Body)
			put(&s.undo, s.turnNo, t.ID, len(s.turnNo))
		default:
			t = *old
			t.State, t.Reason, t.Holder, t.Ended = w.State, w.Reason, w.Holder, w.Ended
		}
		t.Started, t.Ended = micro(t.Started), micro(t.Ended)
		put(&s.undo, s.turn, t.ID, &t)
		switch t.State {
		case store.TurnRunning, store.TurnParked, store.TurnDraining:
			put(&s.undo, s.open, t.ID, true)
		default:
			drop(&s.undo, s.open, t.ID)
		}
	}
	return nil
}

func (s *Store) writeActions(b *store.Batch) error {
	for i := range b.Actions {
		w := &b.Actions[i]
		old := s.action[w.ID]
		a := w.Action
		switch {
		case w.Expect == "" && old != nil:
			return &store.Conflict{Part: "action", ID: w.ID, Why: "already exists"}
		case w.Expect != "" && (old == nil || old.State != w.Expect):
			return &store.Conflict{Part: "action", ID: w.ID, Why: "not in state " + string(w.Expect)}
		case w.Expect == "":
			if err := s.insertAction(&a); err != nil {
				return err
			}
		default:
			a = *old
			a.State, a.Status, a.Failure, a.Evidence, a.ResultDigest = w.State, w.Status, w.Failure, slices.Clone(w.Evidence), w.ResultDigest
			a.Generation, a.LeaseToken = w.Generation, w.LeaseToken
			a.AdmittedAt, a.DispatchedAt, a.SettledAt = w.AdmittedAt, w.DispatchedAt, w.SettledAt
		}
		a.AdmittedAt, a.DispatchedAt, a.SettledAt = micro(a.AdmittedAt), micro(a.DispatchedAt), micro(a.SettledAt)
		put(&s.undo, s.action, a.ID, &a)
		switch {
		case a.State == writ.Indeterminate:
			for _, t := range a.Targets {
				s.bar(store.Key{Tenant: a.Tenant, Owner: a.Owner, Target: t}, a.ID)
			}
			if !s.resolved[a.ID] {
				put(&s.undo, s.unresolved, a.ID, true)
			}
		case a.State.Settled():
			s.unbar(a.ID)
			drop(&s.undo, s.unresolved, a.ID)
		default:
			drop(&s.undo, s.unresolved, a.ID)
		}
	}
	return nil
}

func (s *Store) insertAction(a *store.Action) error {
	k, c, o := slot{a.Turn, a.Round, a.Attempt, a.Index}, callKey{a.Turn, a.ToolCallID}, ordinalKey{a.Turn, a.Ordinal}
	switch {
	case s.slot[k]:
		return &store.Conflict{Part: "action", ID: a.ID, Why: "the slot is taken"}
	case s.call[c]:
		return &store.Conflict{Part: "action", ID: a.ID, Why: "the tool call id is taken"}
	case s.ordinal[o]:
		return &store.Conflict{Part: "action", ID: a.ID, Why: "the ordinal is taken"}
	}
	put(&s.undo, s.slot, k, true)
	put(&s.undo, s.call, c, true)
	put(&s.undo, s.ordinal, o, true)
	push(&s.undo, &s.order, a.ID)
	put(&s.undo, s.byTurn, a.Turn, append(s.byTurn[a.Turn], a.ID))
	put(&s.undo, s.byConv, a.Conversation, append(s.byConv[a.Conversation], a.ID))
	put(&s.undo, s.byParticipant, a.Participant, append(s.byParticipant[a.Participant], a.ID))
	a.Seq = int64(len(s.order))
	a.Targets, a.Evidence = slices.Clone(a.Targets), slices.Clone(a.Evidence)
	return nil
}

func (s *Store) writeBlocks(b *store.Batch) error {
	for i := range b.Blocks {
		bl := &b.Blocks[i]
		c := s.conv[bl.Conversation]
		k := blockKey{bl.Conversation, bl.Key}
		switch {
		case c == nil:
			return &store.Conflict{Part: "block", ID: bl.Kind, Why: "no conversation " + bl.Conversation}
		case bl.Key != "" && s.keys[k]:
			return &store.Conflict{Part: "block", ID: bl.Key, Why: "already exists"}
		case bl.Key != "":
			put(&s.undo, s.keys, k, true)
		}
		list := s.blocks[bl.Conversation]
		bl.Seq = int64(len(list) + 1)
		cp := *bl
		cp.Body, cp.Time = slices.Clone(bl.Body), micro(bl.Time)
		put(&s.undo, s.blocks, bl.Conversation, append(list, cp))
		if now := micro(b.Time); !c.Changed.Equal(now) {
			changed := *c
			changed.Changed = now
			put(&s.undo, s.conv, c.ID, &changed)
		}
	}
	return nil
}

func (s *Store) writeDocuments(b *store.Batch) error {
	for _, d := range b.Documents {
		if _, there := s.docs[d.Digest]; !there {
			put(&s.undo, s.docs, d.Digest, slices.Clone(d.Body))
		}
	}
	return nil
}

// bytesOf keeps a body of its own; an empty one is nil, as it reads back.
func bytesOf(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return slices.Clone(b)
}
