package memory

import (
	"cmp"
	"context"
	"slices"
	"sort"

	"writ/store"
)

// Applied implements store.Store.
func (s *Store) Applied(_ context.Context, id string) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.batch[id], nil
}

// Conversation implements store.Store.
func (s *Store) Conversation(_ context.Context, id string) (store.Conversation, error) {
	return one(s, s.conv, id)
}

// one reads a record by its key.
func one[K comparable, V any](s *Store, m map[K]*V, k K) (V, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if v := m[k]; v != nil {
		return *v, nil
	}
	var none V
	return none, store.ErrNotFound
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
func (s *Store) Turn(_ context.Context, id string) (store.Turn, error) { return one(s, s.turn, id) }

// OpenTurns implements store.Store.
func (s *Store) OpenTurns(context.Context) ([]store.Turn, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Turn
	for id := range s.open {
		out = append(out, *s.turn[id])
	}
	slices.SortFunc(out, func(a, b store.Turn) int { return cmp.Compare(s.turnNo[a.ID], s.turnNo[b.ID]) })
	return out, nil
}

// Blocks implements store.Store.
func (s *Store) Blocks(_ context.Context, conversation string, after int64, limit int) ([]store.Block, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return tail(s.blocks[conversation], after, limit), nil
}

// tail is what follows the first after entries, at most limit.
func tail[T any](list []T, after int64, limit int) []T {
	if after >= int64(len(list)) {
		return nil
	}
	list = list[max(after, 0):]
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return slices.Clone(list)
}

// Action implements store.Store.
func (s *Store) Action(_ context.Context, id string) (store.Action, error) {
	return one(s, s.action, id)
}

// Actions implements store.Store.
func (s *Store) Actions(_ context.Context, f store.ActionFilter) ([]store.Action, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := s.candidates(&f)
	var out []store.Action
	if f.Page == nil {
		for i := len(ids) - 1; i >= 0 && (f.Limit <= 0 || len(out) < f.Limit); i-- {
			if a := s.action[ids[i]]; s.selects(&f, a) {
				out = append(out, *a)
			}
		}
		slices.Reverse(out)
		return out, nil
	}
	limit := f.Page.Limit
	if f.Limit > 0 && (limit <= 0 || f.Limit < limit) {
		limit = f.Limit
	}
	from := sort.Search(len(ids), func(i int) bool { return s.action[ids[i]].Seq > f.Page.After })
	for _, id := range ids[from:] {
		if limit > 0 && len(out) == limit {
			break
		}
		if a := s.action[id]; s.selects(&f, a) {
			out = append(out, *a)
		}
	}
	return out, nil
}

// candidates is the shortest list at hand that holds every row the filter can select, by admission.
func (s *Store) candidates(f *store.ActionFilter) []string {
	switch {
	case f.Turn != "":
		return s.byTurn[f.Turn]
	case f.Unresolved:
		var ids []string
		for id := range s.unresolved {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(s.action[a].Seq, s.action[b].Seq) })
		return ids
	case f.Conversation != "":
		return s.byConv[f.Conversation]
	case f.Participant != "":
		return s.byParticipant[f.Participant]
	}
	return s.order
}

// selects says whether a row of the candidates is one the filter wants.
func (s *Store) selects(f *store.ActionFilter, a *store.Action) bool {
	return (!f.Unresolved || s.unresolved[a.ID]) && (f.Conversation == "" || a.Conversation == f.Conversation) && (f.Round == 0 || a.Round == f.Round) &&
		(f.Tool == "" || a.Tool == f.Tool) && (len(f.States) == 0 || slices.Contains(f.States, a.State)) &&
		(f.Tenant == "" || a.Tenant == f.Tenant) && (f.Owner == "" || a.Owner == f.Owner) &&
		(f.Participant == "" || a.Participant == f.Participant) && (f.Since.IsZero() || !a.AdmittedAt.Before(micro(f.Since)))
}

// Document implements store.Store.
func (s *Store) Document(_ context.Context, digest string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d, ok := s.docs[digest]; ok {
		return slices.Clone(d), nil
	}
	return nil, store.ErrNotFound
}

// Claim implements store.Store.
func (s *Store) Claim(_ context.Context, scope, key string) (store.Claim, error) {
	return one(s, s.claim, claimKey{scope, key})
}

// Approval implements store.Store.
func (s *Store) Approval(_ context.Context, action string) (store.Approval, error) {
	return one(s, s.approval, action)
}

// Approvals implements store.Store.
func (s *Store) Approvals(_ context.Context, f store.ApprovalFilter) ([]store.Approval, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := s.approvals
	switch {
	case f.Turn != "":
		ids = s.approvalByTurn[f.Turn]
	case f.Conversation != "":
		ids = s.approvalByConv[f.Conversation]
	}
	var out []store.Approval
	for _, id := range ids {
		if f.Limit > 0 && len(out) == f.Limit {
			break
		}
		a := s.approval[id]
		if (f.Conversation == "" || a.Conversation == f.Conversation) && (len(f.States) == 0 || slices.Contains(f.States, a.State)) {
			out = append(out, *a)
		}
	}
	return out, nil
}

// Operation implements store.Store.
func (s *Store) Operation(_ context.Context, id string) (store.Operation, error) {
	return one(s, s.operation, id)
}

// Operations implements store.Store.
func (s *Store) Operations(_ context.Context, parent string) ([]store.Operation, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Operation
	for _, id := range s.byParent[parent] {
		out = append(out, *s.operation[id])
	}
	return out, nil
}

// Quarantined implements store.Store.
func (s *Store) Quarantined(_ context.Context, keys ...store.Key) ([]store.Quarantine, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(keys) == 0 {
		for k := range s.barred {
			keys = append(keys, k)
		}
	}
	var out []store.Quarantine
	for _, k := range keys {
		for action := range s.barred[k] {
			out = append(out, store.Quarantine{Tenant: k.Tenant, Owner: k.Owner, Target: k.Target, Action: action})
		}
	}
	slices.SortFunc(out, func(a, b store.Quarantine) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Action, b.Action))
	})
	return slices.Compact(out), nil // a key may have been asked for twice
}

// History implements store.Store.
func (s *Store) History(_ context.Context, conversation string, after int64, limit int) ([]store.Event, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return tail(s.history[conversation], after, limit), nil
}

// Tips implements store.Store.
func (s *Store) Tips(_ context.Context, unsealed bool) ([]store.Tip, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Tip
	add := func(conversation string) {
		if chain := s.history[conversation]; len(chain) > 0 {
			last := &chain[len(chain)-1]
			out = append(out, store.Tip{Conversation: conversation, Seq: last.Seq, Hash: last.Hash})
		}
	}
	if unsealed {
		for c := range s.unsealed {
			add(c)
		}
	} else {
		for c := range s.history {
			add(c)
		}
	}
	slices.SortFunc(out, func(a, b store.Tip) int { return cmp.Compare(a.Conversation, b.Conversation) })
	return out, nil
}

// Heads implements store.Store.
func (s *Store) Heads(_ context.Context, after int64) ([]store.Head, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if after < 0 {
		after = int64(len(s.heads)) - 1
	}
	return tail(s.heads, after, 0), nil
}

// Schedule implements store.Store.
func (s *Store) Schedule(_ context.Context, id string) (store.Schedule, error) {
	return one(s, s.schedule, id)
}

// Schedules implements store.Store.
func (s *Store) Schedules(context.Context) ([]store.Schedule, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Schedule
	for _, c := range s.schedule {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b store.Schedule) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// Token implements store.Store.
func (s *Store) Token(_ context.Context, hash string) (store.Token, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if id, ok := s.byHash[hash]; ok {
		return *s.token[id], nil
	}
	return store.Token{}, store.ErrNotFound
}

// Tokens implements store.Store.
func (s *Store) Tokens(_ context.Context, kind string) ([]store.Token, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []store.Token
	for _, id := range s.tokens {
		if t := s.token[id]; t.Kind == kind {
			out = append(out, *t)
		}
	}
	return out, nil
}
