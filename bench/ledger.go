package bench

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"writ"
	"writ/admission"
	"writ/participant"
	"writ/store"
)

// writesPerAction is what one action costs the store: admit, dispatch, settle.
const writesPerAction = 3

const (
	contract = "participant.action-contract.probe.noop"
	boundary = "participant.observation-boundary.conversation"
)

// call and result are about what a small call puts on the timeline.
var (
	callBody   = []byte(`{"tool":"probe.noop","tool_call_id":"tc_0123456789abcdef","round":1,"attempt":1,"index":0,"params":{"n":1,"text":"forty characters of an argument, or so"}}`)
	resultBody = []byte(`{"tool":"probe.noop","tool_call_id":"tc_0123456789abcdef","state":"succeeded","content":[{"kind":"text","text":"forty characters of a result, or so"}]}`)
)

// openPort begins a turn of a new conversation and returns its port.
func openPort(b *testing.B, l *admission.Ledger, st store.Store, n int64) *admission.Port {
	conv, turn := fmt.Sprint("conv", n), fmt.Sprint("turn", n)
	now := time.Now()
	err := st.Apply(context.Background(), &store.Batch{ID: fmt.Sprint("begin", n), Time: now,
		Conversations: []store.ConversationWrite{{Create: true, Conversation: store.Conversation{ID: conv, Tenant: "local", Owner: "local", Agent: "main", LeaseToken: 1}}},
		Turns:         []store.TurnWrite{{Turn: store.Turn{ID: turn, Conversation: conv, Agent: "main", State: store.TurnRunning, Started: now}}}})
	if err != nil {
		b.Error(err)
		return nil
	}
	port, err := l.Open(admission.Invocation{ID: turn, Tenant: "local", Conversation: conv, LeaseToken: 1, Observation: "conversation", Compiled: participant.Compiled{
		Participant: "participant.behavior.main", Implementation: "participant.implementation.x", Total: 1 << 40, Concurrent: 1 << 20,
		Bindings: []participant.Binding{{Affordance: "probe", Contract: contract, Boundaries: []string{boundary}, Targets: []string{"tool.probe.noop"}}},
		Offers:   []participant.Offer{{ID: "probe", Contract: contract, Implementation: "participant.implementation.x"}}}})
	if err != nil {
		b.Error(err)
		return nil
	}
	port.Activate()
	return port
}

// action admits, dispatches and settles one action: three durable writes.
func action(b *testing.B, port *admission.Port, call string) bool {
	ctx := context.Background()
	block := func(kind string, body []byte) admission.Block {
		return func(row store.Action) []store.Block {
			return []store.Block{{Conversation: row.Conversation, Turn: row.Turn, Kind: kind, Key: kind + ":" + row.ID, Body: body, Time: row.AdmittedAt}}
		}
	}
	d := port.Admit(ctx, port.Request(call, "probe", contract, boundary, []string{"tool.probe.noop"}), admission.Slot{Tool: "probe.noop"}, block("call", callBody))
	grant, _ := port.Dispatch(ctx, d.ActionID)
	if !grant.Start() {
		b.Errorf("not granted: %+v", d)
		return false
	}
	r := port.Complete(ctx, d.ActionID, admission.Outcome{State: writ.Succeeded}, block("result", resultBody))
	if !r.Accepted {
		b.Errorf("not settled: %+v", r)
	}
	return r.Accepted
}

// DurableAction measures the ledger alone: so many callers, each with an invocation of its own, admit, dispatch and
// settle actions one after the other.
func DurableAction(b *testing.B, open Opener, callers int) {
	st := &counted{Store: open(b)}
	l := admission.New(admission.Config{Store: st, Key: []byte("0123456789abcdef")})
	if callers == 1 {
		port := openPort(b, l, st, 0)
		st.n.Store(0)
		n := 0
		for b.Loop() {
			n++
			if !action(b, port, fmt.Sprint("call", n)) {
				return
			}
		}
		b.ReportMetric(float64(st.n.Load())/float64(b.N), "writes/action")
	} else {
		var ports atomic.Int64
		b.SetParallelism(max(callers/runtime.GOMAXPROCS(0), 1))
		b.RunParallel(func(pb *testing.PB) {
			port := openPort(b, l, st, ports.Add(1))
			for n := 0; pb.Next(); n++ {
				if port == nil || !action(b, port, fmt.Sprint("call", n)) {
					return
				}
			}
		})
	}
	b.ReportMetric(float64(b.N)*writesPerAction/b.Elapsed().Seconds(), "writes/s")
}

// single lets one write at a time through to a store, so that none can share its commit with another.
type single struct {
	store.Store
	mu sync.Mutex
}

func (s *single) Apply(ctx context.Context, b *store.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Apply(ctx, b)
}

// Ungrouped is SQLite with one commit for each write: the same statements, no sharing.
func Ungrouped(b *testing.B) store.Store { return &single{Store: SQLite(b)} }

// rowBytes is about what one write of an action puts into the store.
func rowBytes() int {
	hex := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	row := store.Action{ID: "act_ABCDEFGHIJKLMNOPQRST", Tenant: "local", Conversation: "conv_ABCDEFGHIJKLMNOPQRST", Turn: "turn_ABCDEFGHIJKLMNOPQRST",
		Tool: "probe.noop", ToolCallID: "tc_0123456789abcdef", Fingerprint: hex, RequestDigest: hex, ArgumentDigest: hex, Participant: "participant.main",
		Implementation: "participant.implementation.x", Affordance: "probe", Contract: contract, Boundary: boundary, Targets: []string{"tool.probe.noop"},
		Scope: "conv_ABCDEFGHIJKLMNOPQRST", PolicyDigest: hex, IdempotencyKey: hex[:32], State: writ.Admitted}
	j, _ := json.Marshal(row) // always marshals
	return len(j) + len(callBody)
}

// RawCommits measures what one commit for each write gives: the same driver and settings, a row of the size of an
// action's, no grouping. Callers wait for each other, as SQLite has one writer.
func RawCommits(b *testing.B, callers int) {
	path := filepath.Join(b.TempDir(), "raw.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	insert, err := db.Prepare(`INSERT INTO rows (body) VALUES (?)`)
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, rowBytes())
	b.SetParallelism(max(callers/runtime.GOMAXPROCS(0), 1))
	if callers == 1 {
		for b.Loop() {
			if _, err := insert.Exec(body); err != nil {
				b.Fatal(err)
			}
		}
	} else {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := insert.Exec(body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// RawFsync measures the disk: write the bytes of a row into a file that is there already, and fsync. SQLite's log is
// such a file most of the time.
func RawFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const size = 4 << 20
	if _, err := f.Write(make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, rowBytes())
	at := int64(0)
	for b.Loop() {
		at = (at + int64(len(body))) % (size - int64(len(body)))
		if _, err := f.WriteAt(body, at); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
