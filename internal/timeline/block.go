// Package timeline defines the append-only blocks of a conversation: what each kind holds and how it is written. The
// timeline is the one source that the prompt is rendered from.
package timeline

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"writ"
	"writ/store"
)

// Kinds of blocks. Names are persisted and never reused for another meaning.
const (
	KindUser     = "user"     // User: what the person said
	KindCall     = "call"     // Call: written with the admission of its action
	KindResult   = "result"   // Result: written with the settlement of its action, keyed by it
	KindAttempt  = "attempt"  // Attempt: a discarded decision attempt and why
	KindRound    = "round"    // Round: a settled round, naming its calls and their results in order
	KindAnswer   = "answer"   // Answer
	KindNotice   = "notice"   // Notice
	KindPlan     = "plan"     // Plan: the whole plan as it stands
	KindHide     = "hide"     // Hide
	KindQuestion = "question" // Question: a tool asks for input in the middle of a call
	KindRequest  = "request"  // Request: what a model call cost and how much of its prefix it shared
	KindParked   = "parked"   // Parked: a round that waits for approvals
	KindResolved = "resolved" // Resolved: what was found out of an unknown outcome
	KindTurnEnd  = "turn.end" // TurnEnd

	KindCompactResults = "compact.results" // CompactResults: old large results, shown as a beginning and a ref from here on
	KindCompactSummary = "compact.summary" // CompactSummary: stands in the prompt for everything up to a block
	KindCompactSkipped = "compact.skipped" // CompactSkipped: why the prompt was left as it was
)

// User is a person's message.
type User struct {
	Text string `json:"text"`
}

// Call is an admitted call with its arguments, which are nowhere in the ledger.
type Call struct {
	Tool       string          `json:"tool"`
	ToolCallID string          `json:"tool_call_id"`
	Round      int             `json:"round"`
	Attempt    int             `json:"attempt"`
	Index      int             `json:"index"`
	Early      bool            `json:"early,omitempty"`
	Params     json.RawMessage `json:"params"`
}

// Result is what became of a call. Text that JSON cannot hold (invalid UTF-8, lone surrogates) is kept byte for byte.
type Result struct {
	Tool       string           `json:"tool"`
	ToolCallID string           `json:"tool_call_id"`
	State      writ.ActionState `json:"state"`
	Failure    string           `json:"failure,omitempty"`
	Content    []Content        `json:"content,omitempty"`
	Note       string           `json:"note,omitempty"` // the runtime's own words: not executed because …
	Ref        string           `json:"ref,omitempty"`  // where the whole of a large result is
}

// Content is a part of a result as stored. TextB64 replaces Text where Text is not valid UTF-8.
type Content struct {
	Kind    writ.ContentKind `json:"kind"`
	Text    string           `json:"text,omitempty"`
	TextB64 string           `json:"text_b64,omitempty"`
	JSON    json.RawMessage  `json:"json,omitempty"`
	Data    []byte           `json:"data,omitempty"`
	MIME    string           `json:"mime,omitempty"`
	Name    string           `json:"name,omitempty"`
	URI     string           `json:"uri,omitempty"`
}

// Store turns a tool's content into its stored form.
func Store(in []writ.Content) []Content {
	out := make([]Content, len(in))
	for i, c := range in {
		out[i] = Content{Kind: c.Kind, Text: c.Text, JSON: c.JSON, Data: c.Data, MIME: c.MIME, Name: c.Name, URI: c.URI}
		if len(c.JSON) > 0 && !json.Valid(c.JSON) { // an adapter's mistake must not lose the outcome
			out[i] = Content{Kind: writ.ContentText, Text: string(c.JSON)}
			c.Text = string(c.JSON)
		}
		if !utf8.ValidString(c.Text) {
			out[i].Text, out[i].TextB64 = "", base64.StdEncoding.EncodeToString([]byte(c.Text))
		}
	}
	return out
}

// Load is the reverse of Store.
func Load(in []Content) ([]writ.Content, error) {
	out := make([]writ.Content, len(in))
	for i, c := range in {
		out[i] = writ.Content{Kind: c.Kind, Text: c.Text, JSON: c.JSON, Data: c.Data, MIME: c.MIME, Name: c.Name, URI: c.URI}
		if c.TextB64 != "" {
			b, err := base64.StdEncoding.DecodeString(c.TextB64)
			if err != nil {
				return nil, fmt.Errorf("timeline: content %d: %w", i, err)
			}
			out[i].Text = string(b)
		}
	}
	return out, nil
}

// Attempt is a decision attempt that was discarded, and what the next one is told about it.
type Attempt struct {
	Round   int      `json:"round"`
	Attempt int      `json:"attempt"`
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Details []string `json:"details,omitempty"` // one per refused action
	Raw     string   `json:"raw,omitempty"`     // a bounded preview of what the model wrote
	Answer  string   `json:"answer,omitempty"`  // answer text that had been shown and was taken back
}

// Told reports whether the model has anything to learn from it. That a provider failed before anything was said is no
// news to the model: what has started stands in ANNOUNCE.
func (a Attempt) Told() bool {
	return a.Code != "provider_error" && a.Code != "stream_cut" || len(a.Details) > 0 || a.Answer != ""
}

// Thinking is one thinking block, kept byte for byte.
type Thinking struct {
	Text   string          `json:"text,omitempty"`
	Opaque json.RawMessage `json:"opaque,omitempty"`
}

// Item is one action of a settled round.
type Item struct {
	Index      int       `json:"index"`
	Tool       string    `json:"tool,omitempty"`
	ToolCallID string    `json:"tool_call_id,omitempty"`
	Notes      string    `json:"notes,omitempty"`
	ActionID   string    `json:"action_id,omitempty"` // an accepted call
	Running    bool      `json:"running,omitempty"`   // its outcome was not known when the round ended
	Held       bool      `json:"held,omitempty"`      // it waited for an approval when the round ended
	Code       writ.Code `json:"code,omitempty"`      // a refused action
	Reason     string    `json:"reason,omitempty"`
	Conflict   string    `json:"conflict,omitempty"` // what did run instead of these arguments
	Raw        string    `json:"raw,omitempty"`
}

// Round is a settled round: everything that is rendered of it but the calls and results it names.
type Round struct {
	Round    int          `json:"round"`
	Attempt  int          `json:"attempt"`
	Dialect  writ.Dialect `json:"dialect"`
	Finish   writ.Finish  `json:"finish"`
	Thinking []Thinking   `json:"thinking,omitempty"`
	Text     string       `json:"text,omitempty"` // native: notes beside the calls
	Items    []Item       `json:"items,omitempty"`
	Notices  []string     `json:"notices,omitempty"`
	// Orphans are actions that a discarded attempt started and nothing claimed; a notice tells of each.
	Orphans []string `json:"orphans,omitempty"`
}

// Told reports whether the round has anything that the next one must see.
func (r Round) Told() bool {
	return len(r.Items)+len(r.Notices)+len(r.Thinking) > 0 || r.Text != ""
}

// Answer is what the person got. A provisional one may still be followed by one more round.
type Answer struct {
	Text        string   `json:"text"`
	Followups   []string `json:"followups,omitempty"`
	Provisional bool     `json:"provisional,omitempty"`
	Origin      string   `json:"origin"`            // model | kept (its attempt failed after it was shown)
	Summary     string   `json:"summary,omitempty"` // the model's working summary; stored, not shown
}

// Notice tells the model what it could not see.
type Notice struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Step is one step of a plan.
type Step struct {
	Text   string `json:"text"`
	Status string `json:"status"` // open | active | done | failed
}

// Plan is a snapshot of a plan: the newest block of an id is the plan.
type Plan struct {
	ID     string `json:"id"`
	Closed bool   `json:"closed,omitempty"`
	Active bool   `json:"active,omitempty"`
	Steps  []Step `json:"steps"`
}

// Question is what a tool asked in the middle of a call. It is data: it can be asked and answered much later.
type Question struct {
	Tool       string          `json:"tool"`
	ToolCallID string          `json:"tool_call_id"`
	Requests   json.RawMessage `json:"requests"`
	State      string          `json:"state,omitempty"` // the server's own, to be handed back
}

// Hide replaces the content of one result in the prompt.
type Hide struct {
	ToolCallID  string `json:"tool_call_id"`
	Replacement string `json:"replacement"`
}

// Request is the record of one model call: what of its prompt was the same as its predecessor's.
type Request struct {
	Call         string     `json:"call"` // turn/round/attempt
	Model        string     `json:"model"`
	Bytes        int        `json:"bytes"`
	PrefixBytes  int        `json:"prefix_bytes"`
	PrefixHash   string     `json:"prefix_hash"` // of all cached sections
	Break        string     `json:"break,omitempty"`
	Announced    bool       `json:"announced,omitempty"`
	Reason       string     `json:"reason,omitempty"` // what announced the break
	SystemHash   string     `json:"system_hash"`
	ToolsHash    string     `json:"tools_hash"`
	Segments     int        `json:"segments"`
	Estimate     int        `json:"estimate,omitempty"` // tokens, guessed from the size of all cached sections
	Kit          string     `json:"kit,omitempty"`      // digest of the stored document with the system text and the tools
	Purpose      string     `json:"purpose,omitempty"`  // empty: a decision; PurposeSummary
	Usage        writ.Usage `json:"usage"`
	Milliseconds int64      `json:"ms"`
	Cost         float64    `json:"cost,omitempty"` // in the prices' currency, where they are known
}

// PurposeSummary marks the record of a call that wrote a summary: no decision came of it.
const PurposeSummary = "summary"

// CompactResults makes results give way to refs in the prompt. The results themselves stay as they are.
type CompactResults struct {
	Reason  string      `json:"reason"` // limit | context_limit | cold
	Results []Shortened `json:"results"`
}

// Shortened is what the prompt shows of one result: its beginning and where the whole is.
type Shortened struct {
	ToolCallID string `json:"tool_call_id"`
	Head       string `json:"head,omitempty"`
	Ref        string `json:"ref"`
	Chars      int    `json:"chars"` // that were shown before
}

// CompactSummary stands in the prompt for all blocks up to UptoSeq, which is the end of a round. What must survive word
// for word is kept beside the summary.
type CompactSummary struct {
	Reason  string `json:"reason"` // limit | context_limit
	UptoSeq int64  `json:"upto_seq"`
	Rounds  int    `json:"rounds"` // that it stands for, those of an earlier summary included
	Summary string `json:"summary"`
	Call    string `json:"call"`   // the model call that wrote it
	Before  int    `json:"before"` // tokens, estimated
	After   int    `json:"after"`
	Kept    Kept   `json:"kept"`
}

// Kept is what a compaction keeps word for word.
type Kept struct {
	Said    []Said    `json:"said,omitempty"` // the person's last messages
	Plans   []Plan    `json:"plans,omitempty"`
	Notes   []Hide    `json:"notes,omitempty"` // what the model put in the place of results
	Unknown []Unknown `json:"unknown,omitempty"`
}

// Said is one message of the person.
type Said struct {
	Turn string `json:"turn"`
	Text string `json:"text"`
}

// Unknown is an action whose outcome nobody knows.
type Unknown struct {
	ToolCallID string `json:"tool_call_id"`
	Tool       string `json:"tool"`
	Failure    string `json:"failure,omitempty"`
}

// CompactSkipped says why the prompt was not made smaller.
type CompactSkipped struct {
	Reason string `json:"reason"` // nothing_to_summarise | frees_too_little | summary_empty | summary_truncated | summary_too_long | summary_failed
	Detail string `json:"detail,omitempty"`
	Tokens int    `json:"tokens"` // estimated, at that time
}

// Parked is a round whose held actions wait for approvals. It is not shown: the round's own block follows when they have
// been decided, or when the person writes before that.
type Parked struct {
	Round  Round   `json:"round"`
	Answer *Answer `json:"answer,omitempty"` // the provisional answer beside the held actions
}

// Resolved is what somebody found out of an unknown outcome. The result itself stays as it is.
type Resolved struct {
	Tool        string `json:"tool"`
	ToolCallID  string `json:"tool_call_id"`
	Disposition string `json:"disposition"` // effect_applied | effect_absent | accept_unknown
	Note        string `json:"note,omitempty"`
}

// TurnEnd closes a turn.
type TurnEnd struct {
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// New makes a block. The body must marshal: it is one of this package's types.
func New(conversation, turn, kind string, at time.Time, body any) store.Block {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // what a provider wants back byte for byte must not be re-spelled
	if err := enc.Encode(body); err != nil {
		panic(fmt.Sprintf("timeline: marshalling %s: %v", kind, err)) // a bug: only this package's types come here
	}
	return store.Block{Conversation: conversation, Turn: turn, Kind: kind, Body: bytes.TrimSuffix(buf.Bytes(), []byte("\n")), Time: at}
}

// ResultKey is the key under which the one result of an action is stored.
func ResultKey(actionID string) string { return "result:" + actionID }

// Decode reads a block's body.
func Decode[T any](b store.Block) (T, error) {
	var v T
	if err := json.Unmarshal(b.Body, &v); err != nil {
		return v, fmt.Errorf("timeline: block %d (%s) of %s: %w", b.Seq, b.Kind, b.Conversation, err)
	}
	return v, nil
}
