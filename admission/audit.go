package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"writ"
	"writ/store"
)

// auditPage is how many events are read at a time.
const auditPage = 1000

// Seal writes a head: a record that chains the tips of all histories that have grown since the last one. It reports
// false when nothing has. Whoever keeps a head's hash elsewhere can tell later that everything before it still is as it
// was.
func (l *Ledger) Seal(ctx context.Context) (store.Head, bool, error) {
	fail := func(err error) (store.Head, bool, error) {
		return store.Head{}, false, fmt.Errorf("admission: sealing the history: %w", err)
	}
	tips, err := l.cfg.Store.Tips(ctx, true)
	if err != nil {
		return fail(err)
	}
	last, err := l.cfg.Store.Heads(ctx, -1)
	if err != nil {
		return fail(err)
	}
	if len(tips) == 0 {
		if len(last) > 0 {
			return last[0], false, nil
		}
		return store.Head{}, false, nil
	}
	h := store.Head{N: 1, Time: l.cfg.Now().UTC().Truncate(time.Microsecond), Tips: tips}
	if len(last) > 0 {
		h.N, h.Prev = last[0].N+1, last[0].Hash
	}
	h.Hash = store.HeadHash(&h)
	if err := l.commit(ctx, &store.Batch{Heads: []store.Head{h}}); err != nil {
		return fail(err)
	}
	return h, true, nil
}

// Finding is something that verification has found wrong.
type Finding struct {
	Conversation string `json:"conversation,omitempty"`
	Seq          int64  `json:"seq,omitempty"`
	Head         int64  `json:"head,omitempty"`
	Action       string `json:"action,omitempty"`
	What         string `json:"what"`
}

// Verified is what verification has looked at and found.
type Verified struct {
	Conversations int       `json:"conversations"`
	Events        int64     `json:"events"`
	Heads         int64     `json:"heads"`
	Head          string    `json:"head,omitempty"` // hash of the last head
	Unsealed      int       `json:"unsealed"`       // conversations that have grown since
	Findings      []Finding `json:"findings"`
}

// Verify reads every history and recomputes its chain, checks the chain of heads and that each head's tips are where it
// says, and compares what the events say with the rows of the ledger. With a head's hash it also demands that this head
// is there. Findings are no errors; an error means that the store could not be read. It costs one pass over the history.
func Verify(ctx context.Context, st store.Store, head string) (Verified, error) {
	v := &verifier{st: st, sealed: map[string]map[int64]sealedTip{}}
	if err := v.heads(ctx, head); err != nil {
		return v.Verified, fmt.Errorf("admission: verifying: %w", err)
	}
	tips, err := st.Tips(ctx, false)
	if err != nil {
		return v.Verified, fmt.Errorf("admission: verifying: %w", err)
	}
	for _, t := range tips {
		if err := v.chain(ctx, t); err != nil {
			return v.Verified, fmt.Errorf("admission: verifying %s: %w", t.Conversation, err)
		}
		delete(v.sealed, t.Conversation)
	}
	for conv, at := range v.sealed {
		for seq, s := range at {
			v.find(Finding{Conversation: conv, Seq: seq, Head: s.head, What: "a head names this event and the whole history is missing"})
		}
	}
	unsealed, err := st.Tips(ctx, true)
	if err != nil {
		return v.Verified, fmt.Errorf("admission: verifying: %w", err)
	}
	v.Unsealed = len(unsealed)
	if err := v.rows(ctx); err != nil {
		return v.Verified, fmt.Errorf("admission: verifying: %w", err)
	}
	return v.Verified, nil
}

type sealedTip struct {
	hash string
	head int64
}

type verifier struct {
	Verified
	st     store.Store
	sealed map[string]map[int64]sealedTip // what heads say: by conversation and seq
	told   map[string]bool                // actions that an observation tells of
}

func (v *verifier) find(f Finding) { v.Findings = append(v.Findings, f) }

func (v *verifier) heads(ctx context.Context, want string) error {
	prev, n := "", int64(0)
	found := want == ""
	for {
		page, err := v.st.Heads(ctx, n)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			h := &page[i]
			if h.N != n+1 {
				v.find(Finding{Head: n + 1, What: "the head is missing"})
			}
			n = h.N
			if h.Prev != prev {
				v.find(Finding{Head: h.N, What: "the head does not follow the one before it"})
			}
			if store.HeadHash(h) != h.Hash {
				v.find(Finding{Head: h.N, What: "the head's hash is not that of its content"})
			}
			prev = h.Hash
			found = found || h.Hash == want
			for _, t := range h.Tips {
				if v.sealed[t.Conversation] == nil {
					v.sealed[t.Conversation] = map[int64]sealedTip{}
				}
				v.sealed[t.Conversation][t.Seq] = sealedTip{t.Hash, h.N}
			}
		}
	}
	v.Heads, v.Head = n, prev
	if !found {
		v.find(Finding{What: "the given head is not in the chain of heads: what it had sealed was rewritten, or it is of another store"})
	}
	return nil
}

func (v *verifier) chain(ctx context.Context, tip store.Tip) error {
	v.Conversations++
	prev, seq := "", int64(0)
	for {
		page, err := v.st.History(ctx, tip.Conversation, seq, auditPage)
		if err != nil {
			return err
		}
		for i := range page {
			e := &page[i]
			at := Finding{Conversation: e.Conversation, Seq: e.Seq, Action: e.Action}
			if e.Seq != seq+1 {
				at.What = fmt.Sprintf("events %d to %d are missing before it", seq+1, e.Seq-1)
				v.find(at)
			}
			if e.Prev != prev {
				at.What = "it does not follow the event before it"
				v.find(at)
			}
			if store.ChainHash(e) != e.Hash {
				at.What = "its hash is not that of its content: it was changed"
				v.find(at)
			}
			if s, ok := v.sealed[e.Conversation][e.Seq]; ok {
				delete(v.sealed[e.Conversation], e.Seq)
				if s.hash != e.Hash {
					at.Head, at.What = s.head, "a head has sealed another event in its place"
					v.find(at)
				}
			}
			if err := v.event(ctx, e); err != nil {
				return err
			}
			prev, seq = e.Hash, e.Seq
			v.Events++
		}
		if len(page) < auditPage {
			break
		}
	}
	if seq != tip.Seq || prev != tip.Hash {
		v.find(Finding{Conversation: tip.Conversation, Seq: tip.Seq, What: "the history does not end where its tip says"})
	}
	for s, at := range v.sealed[tip.Conversation] {
		v.find(Finding{Conversation: tip.Conversation, Seq: s, Head: at.head, What: "a head names this event and it is missing"})
	}
	return nil
}

// event compares an observation of a tool action with its row.
func (v *verifier) event(ctx context.Context, e *store.Event) error {
	if e.Type != EventObserved {
		return nil
	}
	at := Finding{Conversation: e.Conversation, Seq: e.Seq, Action: e.Action}
	var body Event
	if err := json.Unmarshal(e.Body, &body); err != nil || body.ActionResult == nil {
		at.What = "it is no event"
		v.find(at)
		return nil
	}
	if body.Tool == nil {
		return nil // the invocation's own
	}
	if v.told == nil {
		v.told = map[string]bool{}
	}
	v.told[e.Action] = true
	row, err := v.st.Action(ctx, e.Action)
	if errors.Is(err, store.ErrNotFound) {
		at.What = "the ledger has no row of the action"
		v.find(at)
		return nil
	}
	if err != nil {
		return err
	}
	status := string(row.State)
	switch {
	case row.Status != "":
		status = row.Status
	case row.State == writ.Indeterminate:
		status = StatusUnknown
	}
	if status != body.ActionResult.Status || row.ResultDigest != body.ActionResult.Digest || row.Failure != body.ActionResult.Failure ||
		!slices.Equal(row.Evidence, body.ActionResult.Evidence) || row.ToolCallID != body.Tool.ToolCallID || row.Ordinal != body.Tool.Ordinal {
		at.What = fmt.Sprintf("the history says %s and the ledger's row says %s, or they differ in a digest: the row was changed", body.ActionResult.Status, status)
		v.find(at)
	}
	return nil
}

// rows looks for settled actions of ended invocations that no history tells of.
func (v *verifier) rows(ctx context.Context) error {
	cursor := store.ActionCursor{Limit: auditPage}
	turns := map[string]bool{} // whether the turn's history must be there
	for {
		rows, err := v.st.Actions(ctx, store.ActionFilter{Page: &cursor})
		if err != nil {
			return err
		}
		for i := range rows {
			row := &rows[i]
			cursor.After = row.Seq
			must, known := turns[row.Turn]
			if !known {
				t, err := v.st.Turn(ctx, row.Turn)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					return err
				}
				must = err == nil && !t.Ended.IsZero() && len(t.Body) > 0 // a turn of a version without histories has no body
				turns[row.Turn] = must
			}
			if must && !v.told[row.ID] {
				v.find(Finding{Conversation: row.Conversation, Action: row.ID, What: "its invocation has ended and no history tells of it"})
			}
		}
		if len(rows) < auditPage {
			return nil
		}
	}
}

// Exported is one line of an export.
type Exported struct {
	Type         string          `json:"type"` // event or head
	Conversation string          `json:"conversation,omitempty"`
	Seq          int64           `json:"seq,omitempty"`
	Turn         string          `json:"turn,omitempty"`
	Time         time.Time       `json:"time,omitzero"`
	Event        json.RawMessage `json:"event,omitempty"`
	Prev         string          `json:"prev,omitempty"`
	Hash         string          `json:"hash,omitempty"`
	Head         *store.Head     `json:"head,omitempty"`
}

// ExportFilter narrows an export; the zero value is everything.
type ExportFilter struct {
	Since       time.Time
	Participant string // its address
}

// Export writes the history as JSON Lines: the events of one conversation after the other, each chain in order, and the
// heads at the end. It returns how many events were written.
func Export(ctx context.Context, st store.Store, w io.Writer, f ExportFilter) (int64, error) {
	tips, err := st.Tips(ctx, false)
	if err != nil {
		return 0, fmt.Errorf("admission: exporting: %w", err)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	n := int64(0)
	for _, t := range tips {
		for after := int64(0); after < t.Seq; {
			page, err := st.History(ctx, t.Conversation, after, auditPage)
			if err != nil {
				return n, fmt.Errorf("admission: exporting %s: %w", t.Conversation, err)
			}
			if len(page) == 0 {
				break
			}
			for i := range page {
				e := &page[i]
				after = e.Seq
				if e.Time.Before(f.Since) || f.Participant != "" && e.Participant != f.Participant {
					continue
				}
				line := Exported{Type: "event", Conversation: e.Conversation, Seq: e.Seq, Turn: e.Turn, Time: e.Time, Event: e.Body, Prev: e.Prev, Hash: e.Hash}
				if err := enc.Encode(line); err != nil {
					return n, fmt.Errorf("admission: exporting: %w", err)
				}
				n++
			}
		}
	}
	for after := int64(0); ; {
		heads, err := st.Heads(ctx, after)
		if err != nil {
			return n, fmt.Errorf("admission: exporting: %w", err)
		}
		if len(heads) == 0 {
			return n, nil
		}
		for i := range heads {
			after = heads[i].N
			if heads[i].Time.Before(f.Since) {
				continue
			}
			if err := enc.Encode(Exported{Type: "head", Time: heads[i].Time, Head: &heads[i], Hash: heads[i].Hash}); err != nil {
				return n, fmt.Errorf("admission: exporting: %w", err)
			}
		}
	}
}
