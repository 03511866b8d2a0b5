package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"writ"
	"writ/admission"
	"writ/config"
	"writ/runtime"
	"writ/store"
	"writ/store/memory"
)

// clockwork is a scheduler with an agent on a store, in a synctest bubble: its clock is the bubble's.
type clockwork struct {
	t     *testing.T
	st    store.Store
	agent *config.Agent
	rt    *runtime.Runtime
	tool  func(ctx context.Context) (writ.Result, error)
	model func() writ.Model // nil = a watchman

	mu   sync.Mutex
	runs []time.Duration // when a run's tool was called, since the beginning
	zero time.Time
	stop func()
}

const watcher = `
react: {autonomous: {%s, prompt: "look around"}}
surfaces: {as_consumer: {default_agent: main, agents: {main: {tools: [{kind: go, alias: t, allowed: ["*"]%s}]}}}}
`

func newClockwork(t *testing.T, st store.Store, policy, conn string) *clockwork {
	t.Helper()
	cfg, report := config.Parse("agent.yaml", fmt.Appendf(nil, watcher, policy, conn), t.TempDir())
	if !report.OK() {
		t.Fatal(report.Err())
	}
	c := &clockwork{t: t, st: st, zero: time.Now(), tool: func(context.Context) (writ.Result, error) { return writ.TextResult("seen"), nil }}
	var err error
	if c.agent, err = cfg.Agent(""); err != nil {
		t.Fatal(err)
	}
	c.start("a", true)
	return c
}

// start begins a scheduler of a process of that name. A sole owner of the data settles first what an earlier one left.
func (c *clockwork) start(holder string, sole bool) {
	c.t.Helper()
	var err error
	if c.rt, err = runtime.New(runtime.Config{Store: c.st, Key: []byte("0123456789abcdef"), Dir: c.t.TempDir(), Holder: holder}); err != nil {
		c.t.Fatal(err)
	}
	if sole {
		if _, err := c.rt.Recover(context.Background()); err != nil {
			c.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := c.rt.NewScheduler(runtime.SchedulerConfig{})
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, []runtime.Job{c.job()}) }()
	c.stop = func() {
		cancel()
		<-done
		if err := c.rt.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

func (c *clockwork) job() runtime.Job {
	return runtime.Job{Agent: c.agent, Open: func(context.Context) (runtime.Input, func(), error) {
		conns := []runtime.Connection{{Config: c.agent.Connections[0], Tools: funcs{"look": {strategy: writ.Exploitation, call: func(ctx context.Context, _ string) (writ.Result, error) {
			c.mu.Lock()
			c.runs = append(c.runs, time.Since(c.zero))
			tool := c.tool
			c.mu.Unlock()
			return tool(ctx)
		}}}}}
		c.mu.Lock()
		defer c.mu.Unlock()
		var m writ.Model = &watchman{}
		if c.model != nil {
			m = c.model()
		}
		return runtime.Input{Connections: conns, Model: func(context.Context) (writ.Model, string, error) { return m, "m", nil }}, func() {}, nil
	}}
}

// watchman calls the tool once and then answers.
type watchman struct{ n int }

func (w *watchman) Stream(context.Context, *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	text := callOf("look", "{}")
	if w.n++; w.n > 1 {
		text = finalDone
	}
	return func(yield func(writ.ModelEvent, error) bool) {
		_ = yield(writ.ModelEvent{Kind: writ.ModelText, Text: text}, nil) && yield(writ.ModelEvent{Kind: writ.ModelBlockEnd}, nil) &&
			yield(writ.ModelEvent{Kind: writ.ModelFinish, Finish: writ.FinishStop}, nil)
	}
}

// mute is a model that refuses every request.
type mute struct{}

func (mute) Stream(context.Context, *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) {
		yield(writ.ModelEvent{}, &writ.ModelError{Class: writ.ErrorInvalid, Err: errors.New("no")})
	}
}

func (c *clockwork) does(tool func(context.Context) (writ.Result, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tool = tool
}

func (c *clockwork) thinks(model func() writ.Model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.model = model
}

func (c *clockwork) times() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Trim(fmt.Sprint(c.runs), "[]")
}

// schedule is the durable state, whose counters must agree.
func (c *clockwork) schedule() store.Schedule {
	c.t.Helper()
	s, err := c.st.Schedule(context.Background(), runtime.ScheduleID("main"))
	if err != nil {
		c.t.Fatal(err)
	}
	if s.Attempted != s.Succeeded+s.Failed+s.InFlight {
		c.t.Errorf("attempted %d is not %d succeeded + %d failed + %d in flight", s.Attempted, s.Succeeded, s.Failed, s.InFlight)
	}
	return s
}

func (c *clockwork) operate(do runtime.ScheduleDo) (store.Schedule, error) {
	return c.rt.OperateSchedule(context.Background(), runtime.ScheduleOp{ID: runtime.ScheduleID("main"), Do: do, Generation: c.schedule().Generation, By: admission.Actor{ID: "boss", Operator: true}})
}

func (c *clockwork) must(do runtime.ScheduleDo) {
	c.t.Helper()
	if _, err := c.operate(do); err != nil {
		c.t.Fatal(err)
	}
}

// pass lets time pass in small steps, so that the looks in between happen.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble: no time passes outside
	synctest.Wait()
}

func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m", "")
		defer c.stop()
		pass(3*time.Minute + time.Second)
		if got := c.times(); got != "1m0s 2m0s 3m0s" {
			t.Error(got)
		}
		if s := c.schedule(); s.Succeeded != 3 || s.InFlight != 0 || s.State != store.ScheduleRunning {
			t.Errorf("%+v", s)
		}
		turns, _ := c.st.OpenTurns(context.Background())
		convs, _ := c.st.Conversations(context.Background(), 0)
		if len(turns) != 0 || len(convs) != 3 {
			t.Errorf("%d open turns, %d conversations", len(turns), len(convs))
		}
	})
}

// With episode: continue all runs of a generation are one conversation.
func TestContinuedEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m, episode: continue", "")
		defer c.stop()
		pass(3*time.Minute + time.Second)
		if convs, _ := c.st.Conversations(context.Background(), 0); len(convs) != 1 {
			t.Errorf("%d conversations", len(convs))
		}
		c.must(runtime.Reset)
		pass(time.Minute)
		if convs, _ := c.st.Conversations(context.Background(), 0); len(convs) != 2 {
			t.Errorf("after a reset: %d conversations", len(convs))
		}
		if s := c.schedule(); s.Generation != 1 || s.Attempted != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestPauseResumeDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m", "")
		defer c.stop()
		release := make(chan struct{})
		c.does(func(context.Context) (writ.Result, error) { <-release; return writ.TextResult("seen"), nil })
		pass(time.Minute + time.Second)
		c.must(runtime.Drain)
		if s := c.schedule(); s.State != store.ScheduleDraining || s.InFlight != 1 {
			t.Errorf("%+v", s)
		}
		close(release)
		pass(time.Second)
		if s := c.schedule(); s.State != store.SchedulePaused || s.InFlight != 0 || s.Succeeded != 1 {
			t.Errorf("drained: %+v", s)
		}
		pass(10 * time.Minute)
		if got := c.times(); got != "1m0s" {
			t.Errorf("while paused: %s", got)
		}
		c.must(runtime.Resume)
		pass(2 * time.Minute)
		if s := c.schedule(); s.State != store.ScheduleRunning || s.Attempted < 2 {
			t.Errorf("resumed: %+v", s)
		}
		if _, err := c.rt.OperateSchedule(context.Background(), runtime.ScheduleOp{ID: runtime.ScheduleID("main"), Do: runtime.Pause, Generation: 7, By: admission.Actor{Operator: true}}); !errors.Is(err, runtime.ErrGeneration) {
			t.Errorf("another generation: %v", err)
		}
		if _, err := c.rt.OperateSchedule(context.Background(), runtime.ScheduleOp{ID: runtime.ScheduleID("main"), Do: runtime.Pause, By: admission.Actor{ID: "stranger"}}); !errors.Is(err, admission.ErrForbidden) {
			t.Errorf("a stranger: %v", err)
		}
	})
}

func TestAttemptsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m, limits: {attempts: 2}", "")
		defer c.stop()
		pass(10 * time.Minute)
		if s := c.schedule(); s.State != store.ScheduleDone || s.Attempted != 2 {
			t.Errorf("%+v", s)
		}
		if _, err := c.operate(runtime.Resume); !errors.Is(err, admission.ErrState) {
			t.Errorf("resuming what is done: %v", err)
		}
		c.must(runtime.Reset)
		pass(5 * time.Minute)
		if s := c.schedule(); s.Generation != 1 || s.Attempted != 2 || s.State != store.ScheduleDone {
			t.Errorf("after a reset: %+v", s)
		}
	})
}

// An unknown outcome stops the policy, whatever else is configured, until it is resolved and an operator resumes.
func TestUnknownStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m", "")
		defer c.stop()
		c.does(func(context.Context) (writ.Result, error) { return writ.Result{}, errors.New("the line went dead") })
		pass(10 * time.Minute)
		s := c.schedule()
		if s.State != store.ScheduleStopped || s.Attempted != 1 || !strings.Contains(s.Reason, "act_") {
			t.Fatalf("%+v", s)
		}
		if _, err := c.operate(runtime.Resume); !errors.Is(err, runtime.ErrUnresolved) {
			t.Errorf("resumed before it was resolved: %v", err)
		}
		c.must(runtime.Reset)
		if s := c.schedule(); s.State != store.ScheduleStopped {
			t.Errorf("a reset lifts the stop: %+v", s)
		}
		rows, _ := c.st.Actions(context.Background(), store.ActionFilter{Unresolved: true})
		if _, err := c.rt.Resolve(context.Background(), admission.Resolution{Action: rows[0].ID, Disposition: admission.EffectApplied, By: admission.Actor{ID: "boss", Operator: true}}); err != nil {
			t.Fatal(err)
		}
		if s := c.schedule(); s.State != store.ScheduleStopped {
			t.Errorf("resolution alone lifts the stop: %+v", s)
		}
		c.does(func(context.Context) (writ.Result, error) { return writ.TextResult("seen"), nil })
		c.must(runtime.Resume)
		pass(3 * time.Minute)
		if s := c.schedule(); s.State != store.ScheduleRunning || s.Succeeded < 2 {
			t.Errorf("after resolution and resume: %+v", s)
		}
	})
}

// Reset while a run is under way: it may start nothing more, and what it had started is settled under its generation.
func TestResetFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m", "")
		defer c.stop()
		release := make(chan struct{})
		c.does(func(context.Context) (writ.Result, error) { <-release; return writ.TextResult("seen"), nil })
		pass(time.Minute + time.Second)
		c.must(runtime.Reset)
		close(release)
		pass(time.Second)
		rows, _ := c.st.Actions(context.Background(), store.ActionFilter{})
		if len(rows) != 1 || rows[0].State != writ.Succeeded || rows[0].Generation != 0 {
			t.Errorf("%+v", rows)
		}
		if s := c.schedule(); s.Generation != 1 || s.Failed != 1 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestFailurePolicyStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m, failure_policy: stop", "")
		defer c.stop()
		c.thinks(func() writ.Model { return mute{} })
		pass(10 * time.Minute)
		if s := c.schedule(); s.State != store.ScheduleStopped || s.Attempted != 1 || s.Failed != 1 {
			t.Errorf("%+v", s)
		}
		c.thinks(nil)
		c.must(runtime.Resume)
		pass(2 * time.Minute)
		if s := c.schedule(); s.State != store.ScheduleRunning || s.Succeeded == 0 {
			t.Errorf("resumed: %+v", s)
		}
	})
}

// Two processes on one store: one of them owns the schedule. When it dies, the other one takes over after the lease,
// and a run that was cut off is counted once.
func TestOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.Open()
		c := newClockwork(t, st, "every: 1m", "")
		first := c.stop
		synctest.Wait() // the first one owns it
		c.start("b", false)
		second := c.stop
		pass(3*time.Minute + time.Second)
		if got := c.times(); got != "1m0s 2m0s 3m0s" {
			t.Errorf("two owners: %s", got)
		}
		first()
		pass(3 * time.Minute)
		if got := c.times(); got != "1m0s 2m0s 3m0s 4m0s 5m0s 6m0s" {
			t.Errorf("after the first one ended: %s", got)
		}
		second()
		if s := c.schedule(); s.Holder != "b" || s.LeaseToken != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// A restart counts the run that it cut off, and stops the policy when nobody knows what its action did.
func TestRestartCountsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.Open()
		var gone atomic.Bool
		st := &store.Fault{Store: inner, Before: func(*store.Batch) error {
			if gone.Load() {
				return errors.New("the process is gone")
			}
			return nil
		}}
		c := newClockwork(t, st, "every: 1m", "")
		c.does(func(ctx context.Context) (writ.Result, error) {
			gone.Store(true)
			<-ctx.Done()
			return writ.Result{}, ctx.Err()
		})
		pass(time.Minute + time.Second)
		c.stop()
		c.st = inner
		c.start("b", true)
		defer func() { c.stop() }()
		s := c.schedule()
		if s.State != store.ScheduleStopped || s.InFlight != 0 || s.Failed != 1 {
			t.Errorf("%+v", s)
		}
		pass(5 * time.Minute)
		if got := c.times(); got != "1m0s" {
			t.Errorf("it went on: %s", got)
		}
	})
}

// A time that passed while nothing ran is made up for once.
func TestMissedTimesAreMadeUpForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m", "")
		pass(time.Minute + time.Second)
		c.stop()
		pass(time.Hour)
		c.start("a", true)
		defer func() { c.stop() }()
		pass(time.Second)
		if got := c.times(); got != "1m0s 1h1m1s" {
			t.Error(got)
		}
	})
}

// An autonomous run may need an approval: it is parked, counts as in flight, and goes on when it is decided.
func TestScheduledApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClockwork(t, memory.Open(), "every: 1m", ", approval: {look: always}")
		defer c.stop()
		pass(5 * time.Minute)
		if s := c.schedule(); s.InFlight != 1 || c.times() != "" {
			t.Fatalf("%+v %s", s, c.times())
		}
		list, err := runtime.Pending(context.Background(), c.st, store.ApprovalFilter{})
		if err != nil || len(list) != 1 || string(list[0].Params) != "{}" {
			t.Fatalf("%+v, %v", list, err)
		}
		if _, err := c.rt.Decide(context.Background(), admission.Verdict{Action: list[0].Action, Approve: true, By: admission.Actor{ID: "boss", Operator: true}}); err != nil {
			t.Fatal(err)
		}
		c.thinks(func() writ.Model { return &watchman{n: 1} }) // it has called the tool
		s := c.rt.NewScheduler(runtime.SchedulerConfig{})
		if err := s.ResumeParked(context.Background(), []runtime.Job{c.job()}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if got := c.schedule(); got.InFlight != 0 || got.Attempted != 1 || c.times() == "" {
			t.Errorf("%+v %s", got, c.times())
		}
	})
}
