// Package runtime runs governed turns: it builds an agent fresh from its declaration and the durable state, lets the
// model stream a round, has every action judged in order, admitted in the ledger, run once and settled, and goes on
// until there is an answer. round.go is the picture.
package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/internal/schema"
	"writ/internal/timeline"
	"writ/internal/workspace"
	"writ/store"
)

// Config is what a runtime needs. Store, Key and Dir are required.
type Config struct {
	Store store.Store
	Key   []byte // of the tenant, for digests
	Dir   string // data directory; the workspaces live in it
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// NewID makes ids with the given prefix; nil means random.
	NewID func(prefix string) string
	Log   *slog.Logger // nil = discarded
	// Holder names this process in leases and turns.
	Holder string
	// Tenant and Owner scope what is written; empty means "local".
	Tenant, Owner string
	// CallGrace is how long a tool may take to return after its time is over before its outcome is called unknown
	// without it; 0 means 5 s.
	CallGrace time.Duration
	// Wait pauses between tries at a failed model call; nil means a timer.
	Wait func(ctx context.Context, d time.Duration) error
}

// Runtime runs turns on one store. It is safe for concurrent use; one conversation has one turn at a time.
type Runtime struct {
	cfg     Config
	ledger  sync.Map // agent's start_within → *admission.Ledger
	schemas schema.Cache

	mu   sync.Mutex
	busy map[string]bool
	late sync.WaitGroup // calls that outlived their grace
}

// New returns a runtime.
func New(cfg Config) (*Runtime, error) {
	if cfg.Store == nil || len(cfg.Key) < 16 || cfg.Dir == "" {
		return nil, errors.New("runtime: store, a key of at least 16 bytes, and a data directory are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = admission.RandomID
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Tenant == "" {
		cfg.Tenant = "local"
	}
	if cfg.Owner == "" {
		cfg.Owner = "local"
	}
	if cfg.Holder == "" {
		cfg.Holder = fmt.Sprintf("pid:%d", os.Getpid())
	}
	if cfg.CallGrace == 0 {
		cfg.CallGrace = 5 * time.Second
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	return &Runtime{cfg: cfg, busy: map[string]bool{}}, nil
}

// Close waits for tool calls that outlived their turn.
func (rt *Runtime) Close() error {
	rt.late.Wait()
	return nil
}

// Input starts a turn.
type Input struct {
	Agent       *config.Agent
	Connections []Connection
	// Conversation to go on with; empty starts a new one.
	Conversation string
	Message      string
	// Model returns the model that answers now and its name; it is asked for every generation.
	Model func(ctx context.Context) (writ.Model, string, error)
	// Fallback answers, in this order, when the model before has failed for good.
	Fallback []Choice
	// Price tells what a model's tokens cost, per million; nil or false = not known.
	Price func(model string) (config.Price, bool)
	// Ask puts a tool's question to the person, and returns the answers by id as the protocol has them, or false for
	// none. It may be called from several goroutines. Nil: nobody can answer.
	Ask  func(ctx context.Context, q Question) (answers json.RawMessage, ok bool)
	Sink Sink // nil = nobody watches
	// Kind is store.KindTurn, or store.KindAutonomous for a turn that a schedule begins.
	Kind string

	resume bool // go on with a parked turn, without a message

	// Of a run that a schedule begins.
	reserve    func(conversation string) store.ScheduleWrite // counts it, in the batch that begins the turn
	begun      func()                                        // called once that is durable
	generation int64                                         // of a new conversation
}

// message is what the person says; empty when a turn is only resumed.
func (in *Input) message() string {
	if in.resume {
		return ""
	}
	return in.Message
}

// Outcome is how a turn ended.
type Outcome struct {
	Conversation string
	Turn         string
	State        string   // store.TurnAnswered, TurnNoAnswer, TurnInterrupted, TurnFailed, TurnParked
	Reason       string   // for all but the first
	Held         []string // the actions that wait for an approval, when parked
	Answer       string
	Rounds       int
	Usage        writ.Usage
	Cost         float64 // of the calls whose price is known
}

// Errors of Run that callers tell apart. They mean that no turn was begun and nothing was written.
var (
	ErrBusy          = errors.New("runtime: the conversation has a running turn")
	ErrInvalidInput  = errors.New("runtime: invalid input")
	ErrOtherAgent    = errors.New("runtime: the conversation belongs to another agent")
	ErrAgentInactive = errors.New("runtime: the agent cannot run")
)

// MaxMessage bounds a person's message, in bytes.
const MaxMessage = 1 << 20

var conversationID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (in Input) validate() error {
	switch {
	case in.Agent == nil || in.Model == nil:
		return fmt.Errorf("%w: agent and model are required", ErrInvalidInput)
	case !in.Agent.Active:
		return fmt.Errorf("%w: agent %s: %s", ErrAgentInactive, in.Agent.ID, in.Agent.Reason)
	case in.Message == "":
		return fmt.Errorf("%w: the message is empty", ErrInvalidInput)
	case len(in.Message) > MaxMessage:
		return fmt.Errorf("%w: the message has %d bytes, the most is %d", ErrInvalidInput, len(in.Message), MaxMessage)
	case !utf8.ValidString(in.Message):
		return fmt.Errorf("%w: the message is not valid UTF-8", ErrInvalidInput)
	case in.Conversation != "" && !conversationID.MatchString(in.Conversation):
		return fmt.Errorf("%w: conversation id %q: letters, digits, '.', '_' and '-', at most 128", ErrInvalidInput, in.Conversation)
	}
	return nil
}

// Run runs one turn to its end. An error means that the turn could not be begun, or that its end could not be made
// durable; how a turn that ran ended is in the Outcome. Cancelling ctx interrupts the turn: it still ends with every
// call having its result.
func (rt *Runtime) Run(ctx context.Context, in Input) (Outcome, error) {
	if err := in.validate(); err != nil {
		return Outcome{}, err
	}
	if in.Conversation == "" {
		in.Conversation = rt.cfg.NewID("conv_")
	}
	if !rt.claim(in.Conversation) {
		return Outcome{}, fmt.Errorf("%w: %s", ErrBusy, in.Conversation)
	}
	defer rt.release(in.Conversation)
	t, err := rt.begin(ctx, in)
	if err != nil {
		return Outcome{}, err
	}
	defer t.ws.Close()
	return t.run(ctx)
}

func (rt *Runtime) claim(conversation string) bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.busy[conversation] {
		return false
	}
	rt.busy[conversation] = true
	return true
}

func (rt *Runtime) release(conversation string) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.busy, conversation)
}

func (rt *Runtime) ledgerFor(startWithin time.Duration) *admission.Ledger {
	if l, ok := rt.ledger.Load(startWithin); ok {
		return l.(*admission.Ledger)
	}
	l, _ := rt.ledger.LoadOrStore(startWithin, admission.New(admission.Config{Store: rt.cfg.Store, Key: rt.cfg.Key, Now: rt.cfg.Now,
		NewID: rt.cfg.NewID, StartWithin: startWithin}))
	return l.(*admission.Ledger)
}

// begin makes the turn durable: conversation, lease, turn, the effective configuration and the person's message.
func (rt *Runtime) begin(ctx context.Context, in Input) (*turn, error) {
	now := rt.cfg.Now()
	b := &store.Batch{ID: rt.cfg.NewID("b_"), Time: now}
	conv, err := rt.cfg.Store.Conversation(ctx, in.Conversation)
	switch {
	case errors.Is(err, store.ErrNotFound) && in.resume:
		return nil, fmt.Errorf("%w: %s", ErrNotParked, in.Conversation)
	case errors.Is(err, store.ErrNotFound):
		conv = store.Conversation{ID: in.Conversation, Tenant: rt.cfg.Tenant, Owner: rt.cfg.Owner, Agent: in.Agent.ID, LeaseToken: 1, Holder: rt.cfg.Holder, Generation: in.generation}
		b.Conversations = []store.ConversationWrite{{Create: true, Conversation: conv}}
	case err != nil:
		return nil, fmt.Errorf("runtime: reading conversation: %w", err)
	case conv.Agent != in.Agent.ID:
		return nil, fmt.Errorf("%w: %s is with %s, not %s", ErrOtherAgent, conv.ID, conv.Agent, in.Agent.ID)
	default:
		w := store.ConversationWrite{Conversation: conv, ExpectToken: conv.LeaseToken}
		w.LeaseToken, w.Holder = conv.LeaseToken+1, rt.cfg.Holder
		b.Conversations = []store.ConversationWrite{w}
		conv = w.Conversation
	}
	ws, err := workspace.Open(filepath.Join(rt.cfg.Dir, "workspaces", in.Conversation))
	if err != nil {
		return nil, fmt.Errorf("runtime: opening workspace: %w", err)
	}
	t := &turn{rt: rt, in: in, conv: conv, ws: ws, kind: in.Kind, started: now, sink: in.Sink}
	if t.sink == nil {
		t.sink = func(Event) {}
	}
	parked, err := rt.parkedTurn(ctx, in.Conversation)
	if err == nil && parked == nil && in.resume {
		err = fmt.Errorf("%w: %s", ErrNotParked, in.Conversation)
	}
	if err != nil {
		ws.Close()
		return nil, err
	}
	t.id = rt.cfg.NewID("turn_")
	if parked != nil {
		t.id, t.kind = parked.ID, parked.Kind
	}
	if err := t.build(ctx); err != nil {
		ws.Close()
		return nil, err
	}
	if parked != nil {
		if err := t.reopen(ctx, *parked); err != nil {
			ws.Close()
			return nil, err
		}
		return t, nil
	}
	inv := t.port.Invocation()
	b.Turns = []store.TurnWrite{{Turn: inv.Turn(rt.cfg.Holder, in.Agent.Digest, now)}}
	b.Documents = []store.Document{{Digest: in.Agent.Digest, Body: in.Agent.Effective()}, t.agent.kit.Document()}
	b.Blocks = []store.Block{timeline.New(conv.ID, t.id, timeline.KindUser, now, timeline.User{Text: in.Message})}
	if in.reserve != nil {
		b.Schedules = []store.ScheduleWrite{in.reserve(conv.ID)}
	}
	if err := store.Commit(ctx, rt.cfg.Store, b); err != nil {
		ws.Close()
		return nil, fmt.Errorf("runtime: beginning turn: %w", err)
	}
	if in.begun != nil {
		in.begun()
	}
	t.port.Activate()
	return t, nil
}
