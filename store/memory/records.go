package memory

import (
	"fmt"
	"slices"

	"writ/store"
)

func (s *Store) writeClaims(b *store.Batch) error {
	for _, c := range b.Claims {
		k := claimKey{c.Scope, c.Key}
		if s.claim[k] != nil {
			return &store.Conflict{Part: "claim", ID: c.Key, Why: "already used in " + c.Scope}
		}
		c.Time = micro(c.Time)
		put(&s.undo, s.claim, k, &c)
	}
	return nil
}

func (s *Store) writeApprovals(b *store.Batch) error {
	for i := range b.Approvals {
		w := &b.Approvals[i]
		old := s.approval[w.Action]
		a := w.Approval
		switch {
		case w.Expect == "" && old != nil:
			return &store.Conflict{Part: "approval", ID: w.Action, Why: "already exists"}
		case w.Expect != "" && (old == nil || old.State != w.Expect):
			return &store.Conflict{Part: "approval", ID: w.Action, Why: "not in state " + w.Expect}
		case w.Expect == "":
			push(&s.undo, &s.approvals, a.Action)
			put(&s.undo, s.approvalByConv, a.Conversation, append(s.approvalByConv[a.Conversation], a.Action))
			put(&s.undo, s.approvalByTurn, a.Turn, append(s.approvalByTurn[a.Turn], a.Action))
		default:
			a = *old
			a.State, a.Actor, a.Note, a.Decided = w.State, w.Actor, w.Note, w.Decided
		}
		a.Created, a.Expires, a.Decided = micro(a.Created), micro(a.Expires), micro(a.Decided)
		put(&s.undo, s.approval, a.Action, &a)
	}
	return nil
}

func (s *Store) writeOperations(b *store.Batch) error {
	for _, o := range b.Operations {
		switch {
		case s.operation[o.ID] != nil:
			return &store.Conflict{Part: "operation", ID: o.ID, Why: "already exists"}
		case o.Once != "" && s.once[o.Once]:
			return &store.Conflict{Part: "operation", ID: o.ID, Why: "already done: " + o.Once}
		case o.Once != "":
			put(&s.undo, s.once, o.Once, true)
		}
		o.Body, o.Time = bytesOf(o.Body), micro(o.Time)
		put(&s.undo, s.operation, o.ID, &o)
		put(&s.undo, s.byParent, o.Parent, append(s.byParent[o.Parent], o.ID))
		if o.Kind == store.OperationResolution {
			s.unbar(o.Parent)
			put(&s.undo, s.resolved, o.Parent, true)
			drop(&s.undo, s.unresolved, o.Parent)
		}
	}
	return nil
}

// writeHistory appends to the chains. The time is cut before it is hashed, so that what is read back hashes the same.
func (s *Store) writeHistory(b *store.Batch) error {
	for i := range b.History {
		e := &b.History[i]
		chain := s.history[e.Conversation]
		e.Seq, e.Prev, e.Time = int64(len(chain))+1, "", micro(e.Time)
		if len(chain) > 0 {
			e.Prev = chain[len(chain)-1].Hash
		}
		e.Hash = store.ChainHash(e)
		cp := *e
		cp.Body = bytesOf(e.Body)
		put(&s.undo, s.history, e.Conversation, append(chain, cp))
		put(&s.undo, s.unsealed, e.Conversation, true)
	}
	return nil
}

func (s *Store) writeHeads(b *store.Batch) error {
	for i := range b.Heads {
		h := b.Heads[i]
		var last store.Head
		if len(s.heads) > 0 {
			last = s.heads[len(s.heads)-1]
		}
		id := fmt.Sprint(h.N)
		switch {
		case h.N != last.N+1:
			return &store.Conflict{Part: "head", ID: id, Why: fmt.Sprintf("the last one is %d", last.N)}
		case h.Prev != last.Hash:
			return &store.Conflict{Part: "head", ID: id, Why: "it does not name the hash of the last one"}
		case h.Hash != store.HeadHash(&h):
			return &store.Conflict{Part: "head", ID: id, Why: "its hash is not that of its fields"}
		}
		h.Time = micro(h.Time)
		h.Tips = append([]store.Tip(nil), h.Tips...)
		push(&s.undo, &s.heads, h)
		for _, t := range h.Tips {
			n := int64(len(s.history[t.Conversation]))
			if seq := min(t.Seq, n); seq > s.sealed[t.Conversation] {
				put(&s.undo, s.sealed, t.Conversation, seq)
			}
			if s.sealed[t.Conversation] == n {
				drop(&s.undo, s.unsealed, t.Conversation)
			}
		}
	}
	return nil
}

func (s *Store) writeSchedules(b *store.Batch) error {
	for _, w := range b.Schedules {
		old := s.schedule[w.ID]
		switch {
		case w.Revision != w.Expect+1:
			return &store.Conflict{Part: "schedule", ID: w.ID, Why: fmt.Sprintf("revision %d does not follow %d", w.Revision, w.Expect)}
		case w.Expect == 0 && old != nil:
			return &store.Conflict{Part: "schedule", ID: w.ID, Why: "already exists"}
		case w.Expect != 0 && (old == nil || old.Revision != w.Expect):
			return &store.Conflict{Part: "schedule", ID: w.ID, Why: fmt.Sprintf("not at revision %d", w.Expect)}
		}
		c := w.Schedule
		c.Next, c.LeaseUntil, c.Changed = micro(c.Next), micro(c.LeaseUntil), micro(c.Changed)
		put(&s.undo, s.schedule, c.ID, &c)
	}
	return nil
}

func (s *Store) writeTokens(b *store.Batch) error {
	for _, w := range b.Tokens {
		old := s.token[w.ID]
		t := w.Token
		_, taken := s.byHash[t.Hash]
		switch {
		case w.Update && old == nil:
			return &store.Conflict{Part: "token", ID: w.ID, Why: "there is none"}
		case w.Update:
			t = *old
			t.Expires, t.Revoked = w.Expires, w.Revoked
		case old != nil || taken:
			return &store.Conflict{Part: "token", ID: w.ID, Why: "already exists"}
		default:
			push(&s.undo, &s.tokens, t.ID)
			put(&s.undo, s.byHash, t.Hash, t.ID)
		}
		t.Created, t.Expires, t.Revoked = micro(t.Created), micro(t.Expires), micro(t.Revoked)
		put(&s.undo, s.token, t.ID, &t)
	}
	return nil
}

// free refuses keys that are in quarantine, before anything of the batch is written.
func (s *Store) free(b *store.Batch) error {
	for _, k := range b.Free {
		if len(s.barred[k]) > 0 {
			return &store.Conflict{Part: "quarantine", ID: k.Target, Why: "in quarantine by action " + s.barredBy(k)[0]}
		}
	}
	return nil
}

func (s *Store) writeQuarantine(b *store.Batch) error {
	for _, q := range b.Quarantine {
		s.bar(store.Key{Tenant: q.Tenant, Owner: q.Owner, Target: q.Target}, q.Action)
	}
	return nil
}

// bar puts a key in quarantine. The sets are made once and stay when they get empty: only their entries count.
func (s *Store) bar(k store.Key, action string) {
	if s.barred[k] == nil {
		s.barred[k] = map[string]bool{}
	}
	if s.bars[action] == nil {
		s.bars[action] = map[store.Key]bool{}
	}
	put(&s.undo, s.barred[k], action, true)
	put(&s.undo, s.bars[action], k, true)
}

// unbar takes all keys of an action out.
func (s *Store) unbar(action string) {
	set := s.bars[action]
	for k := range set {
		drop(&s.undo, s.barred[k], action)
		drop(&s.undo, set, k)
	}
}

// barredBy lists the actions that keep a key in quarantine.
func (s *Store) barredBy(k store.Key) []string {
	var out []string
	for a := range s.barred[k] {
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}
