package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"writ/config"
	"writ/store"
)

// Job is an agent that acts by itself.
type Job struct {
	Agent *config.Agent
	// Open makes what a run needs: its connections and its model. release is called after the run.
	Open func(ctx context.Context) (in Input, release func(), err error)
}

// Scheduler runs agents by their autonomous policies. What is durable of a policy is its schedule; one scheduler owns it
// at a time, by a lease, across all processes on the store.
type Scheduler struct {
	rt    *Runtime
	lease time.Duration
	wait  func(ctx context.Context, until time.Time, poke <-chan struct{}) error

	mu    sync.Mutex
	poked chan struct{}
	jobs  sync.WaitGroup
}

// SchedulerConfig says how a scheduler works; the zero value is fine.
type SchedulerConfig struct {
	Lease time.Duration // how long an owner that says nothing keeps a schedule; 0 = 30 s
	// Wait waits until the time, or until poke is closed; nil = a timer.
	Wait func(ctx context.Context, until time.Time, poke <-chan struct{}) error
}

// NewScheduler returns a scheduler on the runtime's store. [Runtime.Recover] must have been called.
func (rt *Runtime) NewScheduler(cfg SchedulerConfig) *Scheduler {
	s := &Scheduler{rt: rt, lease: cfg.Lease, wait: cfg.Wait, poked: make(chan struct{})}
	if s.lease == 0 {
		s.lease = 30 * time.Second
	}
	if s.wait == nil {
		s.wait = s.timer
	}
	return s
}

func (s *Scheduler) timer(ctx context.Context, until time.Time, poke <-chan struct{}) error {
	t := time.NewTimer(until.Sub(s.rt.cfg.Now()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-poke:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Poke makes the scheduler look at its schedules now: one has been changed.
func (s *Scheduler) Poke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.poked)
	s.poked = make(chan struct{})
}

func (s *Scheduler) poke() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poked
}

// Run runs the jobs until ctx ends, and then waits for the runs under way, which are interrupted. A time that passed
// while nothing ran is made up for by one run, not by many.
func (s *Scheduler) Run(ctx context.Context, jobs []Job) error {
	for _, j := range jobs {
		s.jobs.Add(1)
		go func() {
			defer s.jobs.Done()
			s.loop(ctx, j)
		}()
	}
	s.jobs.Wait()
	return ctx.Err()
}

// loop looks at one schedule again and again.
func (s *Scheduler) loop(ctx context.Context, j Job) {
	for ctx.Err() == nil {
		poke := s.poke() // before looking: what changes from here on wakes us
		next, err := s.look(ctx, j)
		if err != nil && ctx.Err() == nil {
			s.rt.cfg.Log.Error("an autonomous agent could not run", "agent", j.Agent.ID, "error", err)
		}
		if s.wait(ctx, next, poke) != nil {
			return
		}
	}
}

// look does what is due for the job, and returns when to look again.
func (s *Scheduler) look(ctx context.Context, j Job) (time.Time, error) {
	now := s.rt.cfg.Now()
	again := now.Add(s.lease / 3)
	row, mine, err := s.own(ctx, j)
	if err != nil || !mine {
		return again, err
	}
	p := j.Agent.Autonomous
	switch {
	case row.State != store.ScheduleRunning, row.InFlight >= int64(p.InFlight):
		return again, nil
	case row.Next.IsZero():
		return again, nil // it never comes due any more
	case now.Before(row.Next):
		return minTime(row.Next, again), nil
	case p.Attempts > 0 && row.Attempted >= int64(p.Attempts):
		w := store.ScheduleWrite{Schedule: row, Expect: row.Revision}
		w.Revision, w.State, w.Reason, w.Changed = row.Revision+1, store.ScheduleDone, "its runs are used up", now
		return again, s.write(ctx, w)
	}
	return now, s.begin(ctx, j, row)
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// own makes or takes the schedule of the job and keeps its lease; mine is false while another process has it.
func (s *Scheduler) own(ctx context.Context, j Job) (row store.Schedule, mine bool, err error) {
	now, id := s.rt.cfg.Now(), ScheduleID(j.Agent.ID)
	row, err = s.rt.cfg.Store.Schedule(ctx, id)
	w := store.ScheduleWrite{Schedule: row, Expect: row.Revision}
	switch {
	case errors.Is(err, store.ErrNotFound):
		w.Schedule = store.Schedule{ID: id, Tenant: s.rt.cfg.Tenant, Owner: s.rt.cfg.Owner, Agent: j.Agent.ID, State: store.ScheduleRunning}
	case err != nil:
		return row, false, fmt.Errorf("runtime: reading schedule %s: %w", id, err)
	case row.Holder != s.rt.cfg.Holder && now.Before(row.LeaseUntil):
		return row, false, nil
	}
	planned := row.PolicyDigest == j.Agent.Digest && (!row.Next.IsZero() || row.State != store.ScheduleRunning)
	if err == nil && planned && row.Holder == s.rt.cfg.Holder && row.LeaseUntil.Sub(now) > s.lease/2 {
		return row, true, nil
	}
	if !planned {
		w.PolicyDigest, w.Next = j.Agent.Digest, j.Agent.Autonomous.Next(now)
	}
	if w.Holder != s.rt.cfg.Holder {
		w.Holder, w.LeaseToken = s.rt.cfg.Holder, w.LeaseToken+1
	}
	w.Revision, w.LeaseUntil, w.Changed = w.Expect+1, now.Add(s.lease), now
	if err := s.write(ctx, w); err != nil {
		return row, false, err
	}
	return w.Schedule, true, nil
}

// write changes a schedule; a change at the same time is seen at the next look.
func (s *Scheduler) write(ctx context.Context, w store.ScheduleWrite) error {
	b := &store.Batch{ID: s.rt.cfg.NewID("b_"), Time: s.rt.cfg.Now(), Schedules: []store.ScheduleWrite{w}}
	if err := store.Commit(ctx, s.rt.cfg.Store, b); err != nil {
		return fmt.Errorf("runtime: writing schedule %s: %w", w.ID, err)
	}
	return nil
}

// begin starts a run and returns when it has begun, durably, or could not.
func (s *Scheduler) begin(ctx context.Context, j Job, row store.Schedule) error {
	in, release, err := j.Open(ctx)
	if err != nil {
		return s.failed(ctx, j, row, err)
	}
	begun := make(chan struct{})
	in.Agent, in.Kind, in.Message, in.generation = j.Agent, store.KindAutonomous, j.Agent.Autonomous.Prompt, row.Generation
	in.Conversation = row.Conversation
	in.reserve = func(conversation string) store.ScheduleWrite {
		return reserve(row, j.Agent.Autonomous, s.rt, conversation)
	}
	in.begun = func() { close(begun) }
	done := make(chan error, 1)
	s.jobs.Add(1)
	go func() {
		defer s.jobs.Done()
		defer release()
		out, err := s.rt.Run(ctx, in)
		done <- err
		s.rt.cfg.Log.Info("an autonomous run ended", "agent", j.Agent.ID, "turn", out.Turn, "state", out.State, "reason", out.Reason, "error", err)
		s.Poke()
	}()
	select {
	case <-begun:
		return nil
	case err := <-done: // it never began
		var conflict *store.Conflict
		if errors.As(err, &conflict) || errors.Is(err, ErrBusy) {
			return nil // changed at the same time: look again
		}
		return s.failed(ctx, j, row, err)
	}
}

// failed counts a run that could not begin, so that it is not tried again at once.
func (s *Scheduler) failed(ctx context.Context, j Job, row store.Schedule, cause error) error {
	if ctx.Err() != nil || cause == nil {
		return cause
	}
	w := store.ScheduleWrite{Schedule: row, Expect: row.Revision}
	now := s.rt.cfg.Now()
	w.Revision, w.Changed, w.Next = row.Revision+1, now, j.Agent.Autonomous.Next(now)
	w.Attempted++
	w.Failed++
	if j.Agent.Autonomous.Stop {
		w.State, w.Reason = store.ScheduleStopped, "a run could not begin, and the failure policy is to stop"
	}
	return errors.Join(cause, s.write(ctx, w))
}

// ResumeParked goes on with the parked turns of the jobs' agents whose approvals have been decided. Each runs on its own;
// Run waits for them.
func (s *Scheduler) ResumeParked(ctx context.Context, jobs []Job) error {
	turns, err := s.rt.cfg.Store.OpenTurns(ctx)
	if err != nil {
		return fmt.Errorf("runtime: listing open turns: %w", err)
	}
	for _, t := range turns {
		if t.State != store.TurnParked || t.Kind == store.KindGateway || t.Kind == store.KindHTTP {
			continue
		}
		open, err := s.rt.cfg.Store.Approvals(ctx, store.ApprovalFilter{Turn: t.ID, States: []string{store.ApprovalPending}})
		if err != nil {
			return fmt.Errorf("runtime: listing approvals: %w", err)
		}
		if len(open) > 0 {
			continue
		}
		for _, j := range jobs {
			if j.Agent.ID == t.Agent {
				s.resume(ctx, j, t)
			}
		}
	}
	return nil
}

func (s *Scheduler) resume(ctx context.Context, j Job, t store.Turn) {
	s.jobs.Add(1)
	go func() {
		defer s.jobs.Done()
		in, release, err := j.Open(ctx)
		if err == nil {
			defer release()
			in.Agent, in.Conversation = j.Agent, t.Conversation
			_, err = s.rt.Resume(ctx, in)
		}
		if err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrNotParked) {
			s.rt.cfg.Log.Error("a parked turn could not go on", "turn", t.ID, "error", err)
		}
		s.Poke()
	}()
}
