package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/participant"
	"writ/store"
)

// ScheduleID is the id of the schedule of an agent's autonomous policy: its participant.
func ScheduleID(agent string) string { return participant.Address(agent) }

// reserve is the write that counts a run which is about to begin. It goes with the turn's first batch, so that a run is
// counted if and only if its turn exists.
func reserve(s store.Schedule, p *config.Autonomous, rt *Runtime, conversation string) store.ScheduleWrite {
	w := store.ScheduleWrite{Schedule: s, Expect: s.Revision}
	now := rt.cfg.Now()
	w.Revision, w.Changed = s.Revision+1, now
	w.Attempted++
	w.InFlight++
	w.Next = p.Next(now)
	if p.Continue {
		w.Conversation = conversation
	}
	return w
}

// settleRun is the write that counts a run which has ended. unknown are its actions of which nobody knows whether they
// happened: they stop the policy until they have been resolved and an operator resumes it.
func (rt *Runtime) settleRun(ctx context.Context, id string, generation int64, ok bool, stop bool, unknown []string) (*store.ScheduleWrite, error) {
	s, err := rt.cfg.Store.Schedule(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil // begun by hand
	}
	if err != nil {
		return nil, fmt.Errorf("runtime: reading schedule %s: %w", id, err)
	}
	w := store.ScheduleWrite{Schedule: s, Expect: s.Revision}
	w.Revision, w.Changed = s.Revision+1, rt.cfg.Now()
	w.InFlight--
	if ok {
		w.Succeeded++
	} else {
		w.Failed++
	}
	switch {
	case len(unknown) > 0:
		w.State, w.Reason = store.ScheduleStopped, "nobody knows whether it happened: "+strings.Join(unknown, ", ")
	case !ok && stop && s.State == store.ScheduleRunning && generation == s.Generation:
		w.State, w.Reason = store.ScheduleStopped, "a run did not answer, and the failure policy is to stop"
	case s.State == store.ScheduleDraining && w.InFlight == 0:
		w.State, w.Reason = store.SchedulePaused, "drained"
	}
	return &w, nil
}

// scheduled adds the end of an autonomous run to the batch that ends its turn.
func (t *turn) scheduled(ctx context.Context, e ending, b *store.Batch) error {
	b.Schedules = nil
	if t.kind != store.KindAutonomous {
		return nil
	}
	var unknown []string
	for _, row := range t.port.Rows() {
		if row.State == writ.Indeterminate || row.State == writ.Dispatched && row.Effect != writ.EffectNone.String() {
			unknown = append(unknown, row.ID)
		}
	}
	stop := t.in.Agent.Autonomous != nil && t.in.Agent.Autonomous.Stop
	w, err := t.rt.settleRun(context.WithoutCancel(ctx), ScheduleID(t.in.Agent.ID), t.conv.Generation, e.state == store.TurnAnswered, stop, unknown)
	if w != nil {
		b.Schedules = []store.ScheduleWrite{*w}
	}
	return err
}

// ScheduleDo is an operation on a schedule.
type ScheduleDo string

// The operations.
const (
	Pause  ScheduleDo = "pause"  // nothing new begins; what runs goes on
	Drain  ScheduleDo = "drain"  // as pause, and tells when nothing runs any more
	Resume ScheduleDo = "resume" // what was paused, drained or stopped goes on
	Reset  ScheduleDo = "reset"  // a new generation: counters from zero, a new episode; what runs may start nothing more
)

// ScheduleOp asks for an operation on a schedule, with the generation it expects.
type ScheduleOp struct {
	ID         string
	Do         ScheduleDo
	Generation int64
	By         admission.Actor
	Note       string
}

// Errors of OperateSchedule.
var (
	ErrGeneration = errors.New("runtime: the schedule is in another generation")
	ErrUnresolved = errors.New("runtime: outcomes of the participant are unknown and have to be resolved first")
)

// OperateSchedule does the operation and records it, in one write.
func (rt *Runtime) OperateSchedule(ctx context.Context, op ScheduleOp) (store.Schedule, error) {
	for try := 0; ; try++ {
		s, err := rt.operateSchedule(ctx, op)
		var conflict *store.Conflict
		if errors.As(err, &conflict) && try < 5 {
			continue // a run began or ended at the same time
		}
		return s, err
	}
}

func (rt *Runtime) operateSchedule(ctx context.Context, op ScheduleOp) (store.Schedule, error) {
	fail := func(err error) (store.Schedule, error) {
		return store.Schedule{}, fmt.Errorf("runtime: %s of %s: %w", op.Do, op.ID, err)
	}
	s, err := rt.cfg.Store.Schedule(ctx, op.ID)
	switch {
	case err != nil:
		return fail(err)
	case !op.By.Operator && op.By.ID != s.Owner:
		return fail(admission.ErrForbidden)
	case op.Generation != s.Generation:
		return fail(fmt.Errorf("%w: %d, not %d", ErrGeneration, s.Generation, op.Generation))
	}
	w := store.ScheduleWrite{Schedule: s, Expect: s.Revision}
	w.Revision, w.Changed, w.Reason = s.Revision+1, rt.cfg.Now(), op.Note
	b := &store.Batch{ID: rt.cfg.NewID("b_"), Time: w.Changed}
	switch op.Do {
	case Pause:
		w.State = store.SchedulePaused
	case Drain:
		w.State = store.ScheduleDraining
		if s.InFlight == 0 {
			w.State = store.SchedulePaused
		}
	case Resume:
		if s.State == store.ScheduleDone {
			return fail(fmt.Errorf("%w: its runs are used up; reset it", admission.ErrState))
		}
		if err := rt.resolved(ctx, s.ID); err != nil {
			return fail(err)
		}
		w.State = store.ScheduleRunning
	case Reset:
		if err := rt.reset(ctx, &w.Schedule, b); err != nil {
			return fail(err)
		}
	default:
		return fail(fmt.Errorf("%w: there is pause, drain, resume and reset", admission.ErrInvalid))
	}
	if s.State == store.ScheduleStopped && op.Do != Resume {
		w.State, w.Reason = s.State, s.Reason // only resume lifts a stop
	}
	body, _ := json.Marshal(map[string]any{"do": op.Do, "generation": op.Generation, "note": op.Note, "state": w.State})
	b.Schedules = []store.ScheduleWrite{w}
	b.Operations = []store.Operation{{ID: rt.cfg.NewID("op_"), Kind: store.OperationSchedule, Parent: s.ID, Tenant: s.Tenant, Actor: op.By.ID, Body: body, Time: w.Changed}}
	if err := store.Commit(ctx, rt.cfg.Store, b); err != nil {
		return fail(err)
	}
	return w.Schedule, nil
}

// resolved is ErrUnresolved while the participant has outcomes that nobody knows.
func (rt *Runtime) resolved(ctx context.Context, participantID string) error {
	rows, err := rt.cfg.Store.Actions(ctx, store.ActionFilter{Participant: participantID, Unresolved: true})
	if err != nil {
		return err
	}
	var open []string
	for _, row := range rows {
		open = append(open, row.ID)
	}
	if len(open) > 0 {
		return fmt.Errorf("%w: %s", ErrUnresolved, strings.Join(open, ", "))
	}
	return nil
}

// reset begins a new generation. The runs under way are fenced: what they have dispatched is settled under theirs.
func (rt *Runtime) reset(ctx context.Context, s *store.Schedule, b *store.Batch) error {
	s.Generation++
	s.Attempted, s.Succeeded, s.Failed = s.InFlight, 0, 0
	s.Conversation = ""
	if s.State == store.ScheduleDone {
		s.State = store.ScheduleRunning
	}
	turns, err := rt.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return err
	}
	var fenced []string
	for _, t := range turns {
		if t.Kind != store.KindAutonomous || ScheduleID(t.Agent) != s.ID || slices.Contains(fenced, t.Conversation) {
			continue
		}
		conv, err := rt.cfg.Store.Conversation(ctx, t.Conversation)
		if err != nil {
			return err
		}
		w := store.ConversationWrite{Conversation: conv, ExpectToken: conv.LeaseToken}
		w.Generation = s.Generation
		b.Conversations = append(b.Conversations, w)
		fenced = append(fenced, t.Conversation)
	}
	return nil
}
