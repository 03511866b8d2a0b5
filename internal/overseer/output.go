package overseer

import (
	"encoding/json"

	"writ"
	"writ/internal/stream"
)

// Output is one of [Verdict], [Shown], [Closed], [Passed] and [Ended].
type Output interface{ output() }

// Verdict is the judgement of one action. Verdicts come in index order, each once.
type Verdict struct {
	Index    int
	Action   string
	Tool     string
	Accepted bool
	// Claimed is set when the action is, or conflicts with, a row of an earlier attempt; Against then names the row.
	Claimed *Claim
	Code    writ.Code // why not; empty when accepted
	Reason  string    // for the model and the person: which, why, what next; empty when accepted
	// Traits are the ones it was judged by, namespace included.
	Traits writ.Traits
	// Against is the accepted action that forbids this one; nil when none does.
	Against *Sibling
}

// Sibling is an action that stands in the accepted list.
type Sibling struct {
	Index    int
	Action   string
	Tool     string
	Strategy writ.Strategy
	ActionID string // set for a row of an earlier attempt; Index is then of that attempt
}

// Lane is where shown text belongs.
type Lane uint8

// Lanes. Notes, Argument and Answer text of one action passes only after that action was accepted.
const (
	LaneNotes    Lane = iota + 1 // an action's notes; native text that turned out to be notes has Index -1
	LaneArgument                 // an argument of an accepted call
	LaneAnswer                   // the final answer of an accepted complete or exit
	LaneText                     // native text, provisional until Ended says what it was
)

// Shown is text that may be shown now.
type Shown struct {
	Lane  Lane
	Index int
	Arg   string // LaneArgument
	Text  string
}

// Closed passes a judged action on, accepted or not, when both its block and its judgement are done. An accepted
// action whose Decision has a Problem has left the accepted list: what it showed must be retracted.
type Closed struct {
	Accepted bool // as its verdict said
	Decision *stream.Decision
	Traits   writ.Traits
	Opaque   json.RawMessage // what the provider wants back with it
}

// Passed is an event that needs no judgement: thinking, the summary, a closed text block, late bytes, an impossible
// message.
type Passed struct{ Event stream.Event }

// Ended is the round's end, always last.
type Ended struct {
	Finish writ.Finish
	// Answer says that Text, the native dialect's text of the round, is the answer: the generation ended with "stop",
	// no refusal stopped it, and every accepted call is purely neutral. Else it is notes.
	Answer bool
	Text   string
}

func (Verdict) output() {}
func (Shown) output()   {}
func (Closed) output()  {}
func (Passed) output()  {}
func (Ended) output()   {}

// State is what reached the sink.
type State struct {
	Answers []Answered // in index order; only those of which something was shown
	Text    string     // native provisional text that was shown
	// TextClosed says that every text block that was shown had ended.
	TextClosed bool
}

// Answered is the part of a final answer that was shown. Closed says that its string had been read to the end, so
// that Text is the whole answer.
type Answered struct {
	Index  int
	Text   string
	Closed bool
}
