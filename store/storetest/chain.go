package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"writ/store"
)

// verify reads a chain and recomputes it.
func verify(t *testing.T, s store.Store, conv string, want int) []store.Event {
	t.Helper()
	list, err := s.History(context.Background(), conv, 0, 0)
	if err != nil || len(list) != want {
		t.Fatalf("%d events, want %d: %v", len(list), want, err)
	}
	prev := ""
	for i := range list {
		e := &list[i]
		if e.Seq != int64(i)+1 || e.Prev != prev || e.Hash != store.ChainHash(e) || e.Conversation != conv {
			t.Errorf("event %d does not follow: %+v", i+1, e)
		}
		prev = e.Hash
	}
	return list
}

func history(t *testing.T, open Open) {
	s, reopen := open(t)
	bodies := [][]byte{nil, []byte(`{"a": 1.0,  "b":"\u00e9"}`), {0}, []byte("a\x00b"), {0xed, 0xa0, 0x80}, []byte("日本\u2028")}
	zone := time.FixedZone("somewhere", 3*3600)
	times := []time.Time{t0.Add(999 * time.Nanosecond), {}, time.Unix(0, 0), time.Unix(0, 1).In(zone), time.Unix(-5, 999_999_999), t0.In(zone)}
	b := batch()
	for i, body := range bodies {
		conv := fmt.Sprint("c", i%2) // a chain each, though their events alternate
		b.History = append(b.History, store.Event{Conversation: conv, Seq: 77, Prev: "x", Hash: "x", Participant: "p", Turn: "t", Action: "a", Type: "type",
			Body: body, Time: times[i]})
	}
	apply(t, s, b)
	more := batch()
	more.History = []store.Event{{Conversation: "c1", Type: "later\xff", Time: t0}}
	apply(t, s, more)
	if reopen != nil {
		s = reopen()
	}
	written := append(b.History, more.History...)
	for i, conv := range []string{"c0", "c1"} {
		var want []store.Event
		for _, e := range written {
			if e.Conversation == conv {
				want = append(want, e)
			}
		}
		got := verify(t, s, conv, 3+i)
		same(t, got, want, nil) // what Apply put into the batch is what was stored
	}
	for i, e := range b.History {
		if !e.Time.Equal(times[i].Truncate(time.Microsecond)) || e.Time.Location() != time.UTC {
			t.Errorf("time %d: %v became %v", i, times[i], e.Time)
		}
	}
	tail, err := s.History(context.Background(), "c1", 1, 2)
	if err != nil || len(tail) != 2 || tail[0].Seq != 2 {
		t.Errorf("tail %v %v", tail, err)
	}
	none, err := s.History(context.Background(), "c1", 4, 0)
	same(t, none, nil, err)
	all, err := s.Tips(context.Background(), false)
	same(t, all, []store.Tip{{Conversation: "c0", Seq: 3, Hash: b.History[4].Hash}, {Conversation: "c1", Seq: 4, Hash: more.History[0].Hash}}, err)
}

func historyConcurrent(t *testing.T, open Open) {
	s, _ := open(t)
	const n = 48
	batches := make([]*store.Batch, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		b := batch()
		for k := range 3 {
			for _, conv := range []string{"c0", "c1"} {
				b.History = append(b.History, store.Event{Conversation: conv, Type: fmt.Sprint(i, k), Time: t0})
			}
		}
		b.Tokens = []store.TokenWrite{{Token: token(store.TokenAPI)}}
		if i%3 == 0 { // written, then taken back, amid the others
			b.Tokens[0].Update = true
		}
		batches[i] = b
		wg.Go(func() { errs[i] = s.Apply(context.Background(), b) })
	}
	wg.Wait()
	events := map[string]store.Event{}
	for _, conv := range []string{"c0", "c1"} {
		for _, e := range verify(t, s, conv, 3*n*2/3) {
			events[e.Hash] = e
		}
	}
	for i, b := range batches {
		if (errs[i] != nil) != (i%3 == 0) {
			t.Errorf("batch %d: %v", i, errs[i])
		}
		for k, e := range b.History {
			if errs[i] != nil {
				continue
			}
			same(t, events[e.Hash], e, nil)
			if k >= 2 && e.Seq != b.History[k-2].Seq+1 {
				t.Errorf("another batch came between the events of batch %d", i)
			}
		}
	}
}

func heads(t *testing.T, open Open) {
	s, reopen := open(t)
	ctx := context.Background()
	none, err := s.Heads(ctx, -1)
	same(t, none, nil, err)
	var all []store.Head
	for i := range 3 {
		h := nextHead(t, s)
		h.Time = t0.Add(time.Duration(i)*time.Second + 999*time.Nanosecond)
		if i == 0 {
			h.Time = time.Unix(0, 0)
		}
		for k := range i {
			h.Tips = append(h.Tips, store.Tip{Conversation: fmt.Sprint("c", k), Seq: int64(k), Hash: "<&>"})
		}
		h.Hash = store.HeadHash(&h)
		b := batch()
		b.Heads = []store.Head{h}
		apply(t, s, b)
		h.Time = h.Time.Truncate(time.Microsecond).UTC()
		all = append(all, h)
	}
	if reopen != nil {
		s = reopen()
	}
	got, err := s.Heads(ctx, 0)
	same(t, got, all, err)
	for i := range got {
		if got[i].Hash != store.HeadHash(&got[i]) {
			t.Errorf("head %d reads back with another hash", i+1)
		}
	}
	got, err = s.Heads(ctx, 1)
	same(t, got, all[1:], err)
	got, err = s.Heads(ctx, 3)
	same(t, got, nil, err)
	got, err = s.Heads(ctx, -1)
	same(t, got, all[2:], err)
	for name, mend := range map[string]func(h *store.Head){
		"gap": func(h *store.Head) { h.N++ }, "again": func(h *store.Head) { h.N-- }, "another past": func(h *store.Head) { h.Prev = all[1].Hash },
		"no past": func(h *store.Head) { h.Prev = "" },
	} {
		t.Run(name, func(t *testing.T) {
			h := nextHead(t, s)
			mend(&h)
			h.Hash = store.HeadHash(&h)
			b := batch()
			b.Heads = []store.Head{h}
			conflict(t, s, b, "head")
		})
	}
	h := nextHead(t, s)
	h.Tips = []store.Tip{{Conversation: "not hashed"}}
	b := batch()
	b.Heads = []store.Head{h}
	conflict(t, s, b, "head")
}

func tips(t *testing.T, open Open) {
	s, reopen := open(t)
	ctx := context.Background()
	grow := func(convs ...string) *store.Batch {
		b := batch()
		for _, c := range convs {
			b.History = append(b.History, store.Event{Conversation: c, Type: "x", Time: t0})
		}
		return b
	}
	names := func(unsealed bool) string {
		t.Helper()
		list, err := s.Tips(ctx, unsealed)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, tip := range list {
			out += fmt.Sprint(tip.Conversation, tip.Seq, " ")
		}
		return out
	}
	seal := func() *store.Batch {
		list, err := s.Tips(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		b := batch()
		b.Heads = []store.Head{nextHead(t, s, list...)}
		return b
	}
	want := func(all, unsealed string) {
		t.Helper()
		same(t, []string{names(false), names(true)}, []string{all, unsealed}, nil)
	}
	want("", "")
	apply(t, s, grow("b", "a", "b"))
	want("a1 b2 ", "a1 b2 ")
	head := seal()
	apply(t, s, grow("b")) // grew between reading the tips and sealing them: stays open
	apply(t, s, head)
	want("a1 b3 ", "b3 ")
	refused := seal()
	refused.Claims = []store.Claim{{Key: "k"}, {Key: "k"}}
	conflict(t, s, refused, "claim")
	want("a1 b3 ", "b3 ")
	both := seal()
	both.History = grow("b", "c").History // written before the head that does not know of it
	apply(t, s, both)
	want("a1 b4 c1 ", "b4 c1 ")
	if reopen != nil {
		s = reopen()
	}
	apply(t, s, seal())
	want("a1 b4 c1 ", "")
	apply(t, s, grow("a"))
	want("a2 b4 c1 ", "a2 ")
	// A head that holds an older tip does not open what is sealed, and one that holds what is not there seals no future.
	old := batch()
	old.Heads = []store.Head{nextHead(t, s, store.Tip{Conversation: "a", Seq: 90}, store.Tip{Conversation: "b", Seq: 1}, store.Tip{Conversation: "none", Seq: 1})}
	apply(t, s, old)
	want("a2 b4 c1 ", "")
	apply(t, s, grow("a", "none"))
	want("a3 b4 c1 none1 ", "a3 none1 ")
}
