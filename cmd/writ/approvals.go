package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"writ/admission"
	"writ/runtime"
	"writ/store"
	"writ/store/sqlite"
)

func (a *app) approvalsCommand() *cobra.Command {
	var data, conversation string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List the actions that wait for an approval",
		Long: `List the held actions: recorded, not run, waiting for a person to approve or decline them. Each is
shown with the arguments as they will be sent. Nothing of it runs before that; when the time is over
the action is withheld. It works while another process holds the data directory.`,
		Example: `  writ approvals
  writ approve act_ABC… -c writ.yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			st, err := sqlite.OpenReadOnly(a.ctx, dataDir(data))
			if err != nil {
				return refused("--data names the data directory of the runs", err)
			}
			defer st.Close()
			f := store.ApprovalFilter{Conversation: conversation}
			if all {
				f.States = []string{store.ApprovalPending, store.ApprovalApproved, store.ApprovalDeclined, store.ApprovalExpired, store.ApprovalVoid}
			}
			list, err := runtime.Pending(a.ctx, st, f)
			if err != nil {
				return refused("", err)
			}
			return a.printApprovals(list, asJSON, all)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&data, "data", "", "data directory (default: $WRIT_DATA, else .writ)")
	fl.StringVar(&conversation, "conversation", "", "only those of this conversation")
	fl.BoolVar(&all, "all", false, "also those that have been decided")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// approvalRow is an approval as the CLI prints it.
type approvalRow struct {
	Action       string          `json:"action"`
	State        string          `json:"state"`
	Tool         string          `json:"tool"`
	Agent        string          `json:"agent"`
	Conversation string          `json:"conversation"`
	Turn         string          `json:"turn"`
	Arguments    json.RawMessage `json:"arguments"`
	Approver     string          `json:"approver"`
	Owner        string          `json:"owner"`
	CreatedAt    time.Time       `json:"created_at"`
	ExpiresAt    time.Time       `json:"expires_at"`
	DecidedAt    *time.Time      `json:"decided_at,omitempty"`
	Actor        string          `json:"actor,omitempty"`
	Note         string          `json:"note,omitempty"`
}

func toApprovalRow(h runtime.Held) approvalRow {
	r := approvalRow{Action: h.Action, State: h.State, Tool: h.Tool, Agent: h.Agent, Conversation: h.Conversation, Turn: h.Turn, Arguments: h.Params,
		Approver: h.Approver, Owner: h.Owner, CreatedAt: h.Created, ExpiresAt: h.Expires, Actor: h.Actor, Note: h.Note}
	if !h.Decided.IsZero() {
		r.DecidedAt = &h.Decided
	}
	if len(r.Arguments) == 0 {
		r.Arguments = json.RawMessage("null")
	}
	return r
}

func (a *app) printApprovals(list []runtime.Held, asJSON, all bool) error {
	if asJSON {
		out := make([]approvalRow, len(list))
		for i, h := range list {
			out[i] = toApprovalRow(h)
		}
		return a.printJSON(out)
	}
	if len(list) == 0 && !all {
		fmt.Fprintln(a.out, "nothing waits for an approval")
		return nil
	}
	for i, h := range list {
		if i > 0 {
			fmt.Fprintln(a.out)
		}
		a.printHeld(h)
		switch {
		case h.State != store.ApprovalPending:
			line := "  " + h.State
			if h.Actor != "" {
				line += " by " + h.Actor
			}
			if !h.Decided.IsZero() {
				line += " at " + h.Decided.Local().Format(time.DateTime)
			}
			fmt.Fprintln(a.out, line+suffix(": ", h.Note))
		default:
			fmt.Fprintf(a.out, "  writ approve %s   or   writ decline %s\n", h.Action, h.Action)
		}
	}
	return nil
}

func suffix(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + printable(s)
}

// printHeld shows what a person decides on.
func (a *app) printHeld(h runtime.Held) {
	fmt.Fprintf(a.out, "%s  %s\n  agent %s, conversation %s\n  arguments: %s\n", h.Action, h.Tool, h.Agent, printable(h.Conversation), clipped(h.Params, 2000))
	if h.State == store.ApprovalPending {
		fmt.Fprintf(a.out, "  approver: %s; expires %s\n", h.Approver, h.Expires.Local().Format(time.DateTime))
	}
}

func clipped(params json.RawMessage, most int) string {
	s := printable(strings.Join(strings.Fields(string(params)), " "))
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + fmt.Sprintf("… (%d bytes in all; writ approvals --json has them)", len(params))
	}
	return s
}

type decideFlags struct {
	turnFlags
	note string
}

func (a *app) approveCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:   "approve ID [-c FILE] [flags]",
		Short: "Approve a held action, and go on with its turn",
		Long: `Approve a held action. It is decided once. With -c FILE and no other process holding the data directory, its turn
goes on here and now: the action is checked again, runs, and the agent answers. Without -c the decision is recorded;
the same command with -c goes on later. When another process holds the data directory, it gets the decision.

An approval is bound to the action, its arguments and the configuration: when the configuration has changed since, the
action is withheld (policy_changed).

Exit codes as of writ run: 4 means that other actions of the turn still wait.`,
		Example: `  writ approve act_ABC… -c writ.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.decide(&f, args[0], true) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.note, "note", "", "why, for the record")
	return cmd
}

func (a *app) declineCommand() *cobra.Command {
	var f decideFlags
	cmd := &cobra.Command{
		Use:   "decline ID [-c FILE] [flags]",
		Short: "Decline a held action; it is never run",
		Long: `Decline a held action. It is decided once, and final: the action is withheld. With -c FILE and no other process holding
the data directory, its turn goes on here and now, and the agent is told.`,
		Example: `  writ decline act_ABC… --note "wrong customer"`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.decide(&f, args[0], false) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.note, "note", "", "why, for the record")
	return cmd
}

// decide records a verdict and, where it can, goes on with the turn.
func (a *app) decide(f *decideFlags, id string, approve bool) (err error) {
	dir := dataDir(f.data)
	e, held, err := a.operate(dir)
	if err != nil {
		return err
	}
	ap, err := e.runtime.Decide(a.ctx, admission.Verdict{Action: id, Approve: approve, By: localActor(), Note: f.note})
	var turn store.Turn
	if err == nil {
		turn, err = e.store.Turn(a.ctx, ap.Turn)
	}
	if cerr := e.close(); cerr != nil {
		fmt.Fprintf(a.err, "writ: closing: %v\n", cerr)
	}
	if err != nil {
		return decideError(err, id)
	}
	fmt.Fprintf(a.err, "writ: %s %s is %s\n", id, ap.Tool, ap.State)
	switch {
	case turn.State != store.TurnParked:
		return nil
	case turn.Kind == store.KindGateway:
		fmt.Fprintln(a.err, "writ: it runs when the client of the gateway asks again under the same key")
		return nil
	case held:
		fmt.Fprintln(a.err, "writ: the process that holds the data directory goes on with it")
		return nil
	case f.config == "":
		fmt.Fprintf(a.err, "writ: its turn goes on with: writ %s %s -c FILE\n", map[bool]string{true: "approve", false: "decline"}[approve], id)
		return nil
	}
	f.conversation, f.agent = ap.Conversation, ap.Agent
	return a.resume(&f.turnFlags)
}

func decideError(err error, id string) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refused("writ approvals lists what waits", fmt.Errorf("no approval of %s", id))
	case errors.Is(err, admission.ErrDone), errors.Is(err, admission.ErrExpired):
		return refused("a decision is final; what has expired was withheld", err)
	}
	return refused("", err)
}

// resume goes on with the conversation's parked turn in the foreground.
func (a *app) resume(f *turnFlags) (err error) {
	s, err := a.session(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if terminal(a.in) && !f.json {
		s.asker = newAsker(a.in, a.err)
	}
	sink := a.sink(f.json)
	out, err := s.engine.runtime.Resume(a.ctx, s.input(f.conversation, "", sink.event))
	sink.done()
	if err != nil {
		return a.turnError(err)
	}
	if !f.json {
		a.printCost(s, out)
	}
	return a.exitFor(s, out, f)
}

// printParked tells a person what a parked turn waits for.
func (a *app) printParked(ctx context.Context, s *session, out runtime.Outcome, config string) {
	list, err := runtime.Pending(ctx, s.engine.store, store.ApprovalFilter{Turn: out.Turn})
	if err != nil {
		fmt.Fprintf(a.err, "writ: %v\n", err)
		return
	}
	fmt.Fprintf(a.err, "writ: %s for an approval; the turn goes on when it is decided\n", map[bool]string{true: "1 action waits", false: count(len(list), "action") + " wait"}[len(list) == 1])
	if config == "" {
		config = "FILE"
	}
	for _, h := range list {
		fmt.Fprintf(a.err, "writ:   %s %s %s\nwrit:     writ approve %s -c %s   or   writ decline %s -c %s\n", h.Action, h.Tool, clipped(h.Params, 300), h.Action, config, h.Action, config)
	}
}

// askApprovals asks for the decisions of a parked turn in the terminal, one after the other. It reports false when
// something is left for later.
func (a *app) askApprovals(s *session, out runtime.Outcome) (bool, error) {
	list, err := runtime.Pending(a.ctx, s.engine.store, store.ApprovalFilter{Turn: out.Turn})
	if err != nil {
		return false, refused("", err)
	}
	for _, h := range list {
		fmt.Fprintf(a.err, "\n%s wants to run (%s)\n  %s\n", h.Tool, h.Action, clipped(h.Params, 2000))
		approve, ok := a.yesNo(s, "approve it? [yes/no/later] ")
		if !ok {
			fmt.Fprintf(a.err, "(left for later: writ approve %s)\n", h.Action)
			return false, nil
		}
		if _, err := s.engine.runtime.Decide(a.ctx, admission.Verdict{Action: h.Action, Approve: approve, By: localActor()}); err != nil &&
			!errors.Is(err, admission.ErrDone) && !errors.Is(err, admission.ErrExpired) {
			return false, refused("", err)
		}
	}
	return true, nil
}

// yesNo asks until there is an answer; ok is false for later, and at the end of the input.
func (a *app) yesNo(s *session, question string) (yes, ok bool) {
	for {
		fmt.Fprint(a.err, question)
		text, more := s.asker.line(a.ctx)
		if !more {
			fmt.Fprintln(a.err)
			return false, false
		}
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return true, true
		case "n", "no":
			return false, true
		case "l", "later":
			return false, false
		}
	}
}
