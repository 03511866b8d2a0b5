// Package stream turns the bytes of a model's stream into one ordered sequence of action events. Two parsers feed the
// same sequence, one per dialect: [ChannelParser] reads <channel:…> blocks out of text, [NativeParser] reads the
// provider's own tool calls. Everything after this package is blind to the dialect.
//
// Any cutting of the same bytes into chunks gives the same events, once adjacent deltas of one kind, index and
// argument are joined. Every byte is looked at a bounded number of times, and what is kept is bounded by the open
// actions, each at most [Options.MaxActionBytes].
package stream

import (
	"encoding/json"

	"writ"
)

// Kind tells which fields of an [Event] are set.
type Kind uint8

// Kinds of events. Index counts actions for action events, and blocks of the same kind for the others.
const (
	Thinking         Kind = iota + 1 // Index, Text: a delta
	ThinkingClosed                   // Index, Text: the whole block; Opaque: the provider's, byte for byte
	Text                             // Index, Text: a delta of the native dialect's provisional text
	TextClosed                       // Index, Opaque
	Summary                          // Text: a delta of the working summary
	ActionOpened                     // Index
	ActionIdentified                 // Index, Action, and for call_tool Tool
	Notes                            // Index, Text: a decoded delta
	Answer                           // Index, Text: a decoded delta
	Argument                         // Index, Arg, Text: decoded text of a string argument, raw JSON of any other
	ArgumentClosed                   // Index, Arg, Value
	ActionClosed                     // Index, Decision, Opaque
	LateBytes                        // Index: a native call got more argument bytes after its block had ended; once per call
	Impossible                       // Text: a preview; the message cannot become a valid one, stop it
	RoundEnded                       // Finish
)

var kindNames = [...]string{"", "Thinking", "ThinkingClosed", "Text", "TextClosed", "Summary", "ActionOpened",
	"ActionIdentified", "Notes", "Answer", "Argument", "ArgumentClosed", "ActionClosed", "LateBytes", "Impossible", "RoundEnded"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(?)"
}

// Event is one step of a round.
type Event struct {
	Kind   Kind
	Index  int
	Action string
	Tool   string
	Arg    string
	Text   string
	// Value is the JSON of a closed top-level argument of at most [MaxArgumentValue] bytes, else nil.
	Value    json.RawMessage
	Decision *Decision
	Opaque   json.RawMessage
	Finish   writ.Finish
}

// MaxArgumentValue bounds [Event.Value]; a longer argument is found in the closed action's parameters.
const MaxArgumentValue = 64 << 10

// Decision is one closed action. Problem is nil exactly when the action is well formed; then Params is one valid JSON
// object with the model's own bytes. With a Problem the other fields hold what was read before it, and Params is nil.
type Decision struct {
	Index  int
	Action string // call_tool, complete, exit; with a Problem also empty or anything else the model wrote
	Tool   string
	Params json.RawMessage // call_tool: a JSON object
	Notes  string
	Answer string // the final answer of complete and exit
	// AnswerClosed says that the answer's string was read to its end.
	AnswerClosed bool
	Followups    []string
	ProviderID   string // native: as the provider gave it; may be empty or repeated
	Problem      *Problem
	// Dropped names keys of the decision that were read and left out: "final_answer" beside a tool call, a value of
	// the wrong type in "notes" or "suggested_followups".
	Dropped []string
	// Raw is a bounded preview of the action's bytes up to the problem, for the notice; empty without a Problem.
	Raw string
}

// Problem is why an action is not well formed.
type Problem struct {
	Code    writ.Code // invalid_action, arguments_unparsable or truncated
	Message string    // what is wrong, as a clause
	Hint    string    // what to do instead, as a clause
	Offset  int       // the byte of the action's JSON it was found at
}

// Options of both parsers. The zero value is the documented default.
type Options struct {
	// MaxActionBytes bounds the JSON of one action, its code included; 0 means 8 MiB. A larger action is refused as
	// arguments_unparsable and its bytes are dropped; the rest of the round goes on.
	MaxActionBytes int
	// CodeParam names the parameter of a tool that a <channel:code> block fills, or "". Nil means that no tool has
	// one. It must answer the same for the same tool during a round.
	CodeParam func(tool string) string
}

// DefaultMaxActionBytes is the default of [Options.MaxActionBytes].
const DefaultMaxActionBytes = 8 << 20

func (o Options) maxBytes() int {
	if o.MaxActionBytes <= 0 {
		return DefaultMaxActionBytes
	}
	return o.MaxActionBytes
}

func (o Options) codeParam(tool string) string {
	if o.CodeParam == nil {
		return ""
	}
	return o.CodeParam(tool)
}

// Parser is what both dialects' parsers do. A parser serves one generation and one goroutine.
type Parser interface {
	// Feed reads one model event and emits what follows from it, in order. When emit returns false the consumer
	// wants to stop: the rest of this and of every later Feed is dropped. Usage and finish events are ignored.
	Feed(ev writ.ModelEvent, emit func(Event) bool)
	// Finish is called once, after the last Feed, stopped or not: it closes what is open as the finish reason allows
	// and emits RoundEnded last, whatever emit returns.
	Finish(f writ.Finish, emit func(Event) bool)
}

// New returns the parser of a dialect; an unknown dialect is read as the native one.
func New(d writ.Dialect, o Options) Parser {
	if d == writ.Channel {
		return NewChannel(o)
	}
	return NewNative(o)
}

// output is the emitting half of a parser.
type output struct {
	emit     func(Event) bool
	stopped  bool // emit said so; cleared by Finish
	finished bool
	opened   int     // actions that the consumer knows of
	unsent   []Event // ActionClosed of those, found after the stop
}

func (o *output) out(e Event) {
	switch {
	case o.finished || e.Kind == ActionClosed && e.Index >= o.opened:
		return
	case o.stopped:
		if e.Kind == ActionClosed {
			o.unsent = append(o.unsent, e)
		}
		return
	case e.Kind == ActionOpened:
		o.opened++
	}
	if !o.emit(e) {
		o.stopped = true
	}
}

// finishing starts Finish: from here on the consumer's wish to stop changes nothing. What closed after a stop counts
// as cut off, so that the chunk in which the stop fell makes no difference.
func (o *output) finishing(f writ.Finish, emit func(Event) bool) bool {
	if o.finished {
		return false
	}
	o.stopped = false
	o.emit = func(e Event) bool { emit(e); return true }
	for _, e := range o.unsent {
		d := e.Decision
		d.Problem, d.Params, d.Raw = truncated(0, f), nil, ""
		o.out(e)
	}
	return true
}

func (o *output) end(f writ.Finish) {
	o.out(Event{Kind: RoundEnded, Finish: f})
	o.finished = true
}
