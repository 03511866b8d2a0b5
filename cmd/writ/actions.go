package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"writ"
	"writ/admission"
	"writ/store"
	"writ/store/sqlite"
)

func newConversationID() string { return admission.RandomID("conv_") }

// actionRow is a ledger row as the CLI prints it: every field but what is keyed to the store alone.
type actionRow struct {
	ID             string           `json:"id"`
	State          writ.ActionState `json:"state"`
	Failure        string           `json:"failure,omitempty"`
	Tool           string           `json:"tool"`
	Conversation   string           `json:"conversation"`
	Slot           slotRow          `json:"slot"`
	Attempt        int              `json:"attempt"`
	Ordinal        int              `json:"ordinal"`
	ToolCallID     string           `json:"tool_call_id"`
	IdempotencyKey string           `json:"idempotency_key"`
	Early          bool             `json:"early"`
	Strategy       string           `json:"strategy"`
	Execution      string           `json:"execution,omitempty"`
	Effect         string           `json:"effect"`
	AdmittedAt     time.Time        `json:"admitted_at"`
	DispatchedAt   *time.Time       `json:"dispatched_at"`
	SettledAt      *time.Time       `json:"settled_at"`
	Fingerprint    string           `json:"fingerprint"`
	RequestDigest  string           `json:"request_digest"`
	ArgumentDigest string           `json:"argument_digest"`
	ResultDigest   string           `json:"result_digest,omitempty"`
	PolicyDigest   string           `json:"policy_digest"`
	Participant    string           `json:"participant"`
	Implementation string           `json:"implementation"`
	Affordance     string           `json:"affordance"`
	Contract       string           `json:"contract"`
	Boundary       string           `json:"boundary"`
	Targets        []string         `json:"targets"`
	Scope          string           `json:"scope"`
	Generation     int64            `json:"generation"`
	Evidence       []string         `json:"evidence,omitempty"`
	Operations     []operationRow   `json:"operations,omitempty"` // what was done about it; show only
	Cursor         int64            `json:"cursor"`
}

// operationRow is an operation that is linked to an action.
type operationRow struct {
	ID     string          `json:"id"`
	Kind   string          `json:"kind"`
	Actor  string          `json:"actor"`
	At     time.Time       `json:"at"`
	Detail json.RawMessage `json:"detail"`
}

// slotRow is where in a turn the action was asked for.
type slotRow struct {
	Turn  string `json:"turn"`
	Round int    `json:"round"`
	Index int    `json:"index"`
}

func toRow(a store.Action) actionRow {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	return actionRow{ID: a.ID, State: a.State, Failure: a.Failure, Tool: a.Tool, Conversation: a.Conversation, Slot: slotRow{a.Turn, a.Round, a.Index},
		Attempt: a.Attempt, Ordinal: a.Ordinal, ToolCallID: a.ToolCallID, IdempotencyKey: a.IdempotencyKey, Early: a.Early, Strategy: a.Strategy,
		Execution: a.Execution, Effect: a.Effect, AdmittedAt: a.AdmittedAt, DispatchedAt: at(a.DispatchedAt), SettledAt: at(a.SettledAt),
		Fingerprint: a.Fingerprint, RequestDigest: a.RequestDigest, ArgumentDigest: a.ArgumentDigest, ResultDigest: a.ResultDigest,
		PolicyDigest: a.PolicyDigest, Participant: a.Participant, Implementation: a.Implementation, Affordance: a.Affordance, Contract: a.Contract,
		Boundary: a.Boundary, Targets: a.Targets, Scope: a.Scope, Generation: a.Generation, Evidence: a.Evidence, Cursor: a.Seq}
}

type actionsFlags struct {
	data, conversation, turn, tool, participant, since string
	states                                             []string
	limit                                              int
	after                                              int64
	unresolved, json                                   bool
}

func (a *app) actionsCommand() *cobra.Command {
	var f actionsFlags
	cmd := &cobra.Command{
		Use:   "actions [list | show ID | resolve ID]",
		Short: "Read the ledger: what was done, and what is not known",
		Long: `List the rows of the ledger, or show one. Every tool action that was admitted has exactly one row:

  admitted       recorded, nothing has happened        succeeded      happened
  held           waits for an approval                  failed         did not happen, or the tool says it failed
  dispatched     granted once, may be happening         withheld       was never started
                                                        indeterminate  may have happened; nobody knows

SLOT is round and index in the stream, SETTLED the time since the admission; show ID has everything.
It works while another process holds the data directory. Arguments and results are not in the
ledger; they stand on the conversation's timeline.`,
		Example: `  writ actions
  writ actions --state indeterminate --json
  writ actions show act_ABC…
  writ actions resolve act_ABC… --as effect_applied --note "it is in the sent folder"`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return a.actions(&f, args) },
	}
	fl := cmd.PersistentFlags()
	fl.StringVar(&f.data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	fl.StringVar(&f.conversation, "conversation", "", "only rows of this conversation")
	fl.StringVar(&f.turn, "turn", "", "only rows of this turn")
	fl.StringVar(&f.tool, "tool", "", "only rows of this tool")
	fl.StringSliceVar(&f.states, "state", nil, "only rows in this state (repeatable)")
	fl.StringVar(&f.participant, "participant", "", "only rows of this participant's address")
	fl.StringVar(&f.since, "since", "", "only rows admitted since: a date, an RFC 3339 time, or a duration back from now")
	fl.BoolVar(&f.unresolved, "unresolved", false, "only unknown outcomes that nobody has resolved")
	fl.IntVar(&f.limit, "limit", 100, "at most this many, the newest, or the next after --after; 0 = all")
	fl.Int64Var(&f.after, "after", -1, "page forward: rows after this cursor, as the JSON's cursor field has it; 0 = from the beginning")
	_ = cmd.MarkFlagDirname("data")
	cmd.AddCommand(a.resolveCommand(&f))
	_ = cmd.RegisterFlagCompletionFunc("state", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, s := range writ.ActionStates() {
			out = append(out, string(s))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

func (a *app) actions(f *actionsFlags, args []string) error {
	verb := "list"
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "list" && len(args) <= 1:
	case verb == "show" && len(args) == 2:
	case verb == "show":
		return usage("writ actions show needs the id of an action")
	default:
		return usage("writ actions %s: there is list, show ID, and resolve ID", strings.Join(args, " "))
	}
	filter := store.ActionFilter{Conversation: f.conversation, Turn: f.turn, Tool: f.tool, Participant: f.participant, Unresolved: f.unresolved, Limit: f.limit}
	if f.after >= 0 {
		filter.Page = &store.ActionCursor{After: f.after, Limit: f.limit}
	}
	if f.since != "" {
		t, err := parseSince(f.since)
		if err != nil {
			return usage("--since %s: write a date as 2026-12-01, a time as 2026-12-01T09:00:00Z, or a duration as 24h", f.since)
		}
		filter.Since = t
	}
	for _, s := range f.states {
		st := writ.ActionState(s)
		if !slices.Contains(writ.ActionStates(), st) {
			return usage("--state %s: the states are %v", s, writ.ActionStates())
		}
		filter.States = append(filter.States, st)
	}
	if f.limit < 0 {
		return usage("--limit %d: it cannot be negative", f.limit)
	}
	st, err := sqlite.OpenReadOnly(a.ctx, dataDir(f.data))
	if err != nil {
		return refused("--data names the data directory of the runs", err)
	}
	defer st.Close()
	if verb == "show" {
		return a.showAction(st, f, args[1])
	}
	rows, err := st.Actions(a.ctx, filter)
	if err != nil {
		return refused("", err)
	}
	if f.json {
		out := make([]actionRow, len(rows))
		for i, r := range rows {
			out[i] = toRow(r)
		}
		return a.printJSON(out)
	}
	a.printActions(rows)
	open := 0
	for _, r := range rows {
		if r.State == writ.Admitted || r.State == writ.Dispatched {
			open++
		}
	}
	if open > 0 && !sqlite.Held(dataDir(f.data)) {
		fmt.Fprintf(a.out, "\n%s left open by a process that has ended; the next run settles that.\n", count(open, "action"))
	}
	return nil
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (a *app) printActions(rows []store.Action) {
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "no actions")
		return
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ACTION\tSTATE\tTOOL\tSLOT\tTRY\tADMITTED\tSETTLED\tNOTE")
	layout := "15:04:05.000" // the date too, unless all is of today
	today := time.Now().Local().Format(time.DateOnly)
	for _, r := range rows {
		if r.AdmittedAt.Local().Format(time.DateOnly) != today {
			layout = "2006-01-02 15:04:05.000"
		}
	}
	for _, r := range rows {
		after := func(t time.Time) string {
			if t.IsZero() {
				return "–"
			}
			return "+" + t.Sub(r.AdmittedAt).Round(100*time.Microsecond).String()
		}
		note := r.Failure
		if r.Early {
			note = strings.TrimSpace("early " + note)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d.%d\t%d\t%s\t%s\t%s\n", r.ID, r.State, r.Tool, r.Round, r.Index, r.Attempt,
			r.AdmittedAt.Local().Format(layout), after(r.SettledAt), note)
	}
	_ = w.Flush()
	unknown := 0
	for _, r := range rows {
		if r.State == writ.Indeterminate {
			unknown++
		}
	}
	if unknown > 0 {
		fmt.Fprintf(a.out, "\n%s of unknown outcome: it may have happened. writ does not repeat it. writ actions resolve records what you find out.\n", count(unknown, "action"))
	}
}

func (a *app) showAction(st *sqlite.Store, f *actionsFlags, id string) error {
	row, err := st.Action(a.ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return refused("writ actions lists them", fmt.Errorf("no action %s in %s", id, dataDir(f.data)))
	}
	if err != nil {
		return refused("", err)
	}
	r := toRow(row)
	ops, err := st.Operations(a.ctx, id)
	if err != nil {
		return refused("", err)
	}
	for _, op := range ops {
		r.Operations = append(r.Operations, operationRow{op.ID, op.Kind, op.Actor, op.Time, op.Body})
	}
	if f.json {
		return a.printJSON(r)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	when := func(t *time.Time) string {
		if t == nil {
			return "–"
		}
		return t.Local().Format("2006-01-02 15:04:05.000000 MST")
	}
	state := string(r.State)
	if r.Failure != "" {
		state += " (" + r.Failure + ")"
	}
	for _, kv := range [][2]string{
		{"action", r.ID}, {"state", state}, {"tool", r.Tool}, {"conversation", r.Conversation}, {"turn", r.Slot.Turn},
		{"slot", fmt.Sprintf("round %d, index %d", r.Slot.Round, r.Slot.Index)}, {"attempt", fmt.Sprint(r.Attempt)}, {"ordinal", fmt.Sprint(r.Ordinal)},
		{"tool call id", r.ToolCallID}, {"idempotency key", r.IdempotencyKey}, {"started early", fmt.Sprint(r.Early)},
		{"strategy", r.Strategy}, {"execution", r.Execution}, {"effect", r.Effect},
		{"admitted", when(&r.AdmittedAt)}, {"dispatched", when(r.DispatchedAt)}, {"settled", when(r.SettledAt)},
		{"participant", r.Participant}, {"implementation", r.Implementation}, {"affordance", r.Affordance}, {"contract", r.Contract}, {"boundary", r.Boundary},
		{"targets", strings.Join(r.Targets, ", ")}, {"scope", r.Scope}, {"generation", fmt.Sprint(r.Generation)}, {"policy digest", r.PolicyDigest},
		{"fingerprint", r.Fingerprint}, {"request digest", r.RequestDigest}, {"argument digest", r.ArgumentDigest}, {"result digest", r.ResultDigest},
	} {
		if kv[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", kv[0], kv[1])
		}
	}
	for _, op := range r.Operations {
		fmt.Fprintf(w, "%s\t%s by %s at %s\n", strings.ReplaceAll(op.Kind, "_", " "), printable(string(op.Detail)), op.Actor, op.At.Local().Format(time.DateTime))
	}
	if r.State == writ.Indeterminate && !slices.ContainsFunc(ops, func(o store.Operation) bool { return o.Kind == store.OperationResolution }) {
		fmt.Fprintf(w, "unresolved\twrit actions resolve %s --as %s\n", r.ID, strings.Join(admission.Dispositions(), "|"))
	}
	return w.Flush()
}

func (a *app) resolveCommand(f *actionsFlags) *cobra.Command {
	var as, note, key string
	var evidence []string
	cmd := &cobra.Command{
		Use:   "resolve ID --as DISPOSITION",
		Short: "Record what was found out of an unknown outcome",
		Long: `Record what you found out at the other end of an action whose outcome is unknown:

  effect_applied   it happened
  effect_absent    it did not happen
  accept_unknown   nobody can find out, and that is accepted

It is a new operation linked to the action, whose row never changes; it is made once. It lifts the quarantine of the action's
targets, and the agent is told in its next round. It repeats nothing: what must be done again is a new action.
It works while another process holds the data directory.`,
		Example: `  writ actions resolve act_ABC… --as effect_absent --note "no such payment at the bank" --evidence statement:2026-12`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if as == "" {
				return usage("--as is required: one of %s", strings.Join(admission.Dispositions(), ", "))
			}
			return a.resolve(f, admission.Resolution{Action: args[0], Disposition: as, By: localActor(), Note: note, Evidence: evidence, Key: key})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&as, "as", "", "effect_applied, effect_absent or accept_unknown")
	fl.StringVar(&note, "note", "", "how you know; the agent reads it")
	fl.StringSliceVar(&evidence, "evidence", nil, "a reference to the proof (repeatable)")
	fl.StringVar(&key, "key", "", "idempotency key: the same command again under it is accepted")
	return cmd
}

func (a *app) resolve(f *actionsFlags, r admission.Resolution) error {
	e, _, err := a.operate(dataDir(f.data))
	if err != nil {
		return err
	}
	op, err := e.runtime.Resolve(a.ctx, r)
	if cerr := e.close(); cerr != nil {
		fmt.Fprintf(a.err, "writ: closing: %v\n", cerr)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refused("writ actions lists them", fmt.Errorf("no action %s in %s", r.Action, dataDir(f.data)))
	case errors.Is(err, admission.ErrInvalid):
		return &exitError{code: exitUsage, err: err}
	case errors.Is(err, admission.ErrDone):
		return refused("writ actions show "+r.Action+" tells what was recorded", err)
	case err != nil:
		return refused("", err)
	}
	if f.json {
		return a.printJSON(operationRow{op.ID, op.Kind, op.Actor, op.Time, op.Body})
	}
	fmt.Fprintf(a.out, "%s is resolved: %s (%s)\n", r.Action, r.Disposition, op.ID)
	return nil
}
