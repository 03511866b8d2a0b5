package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"writ"
	"writ/config"
	"writ/runtime"
	"writ/store"
)

// housekeeping is how often a server seals the histories and withholds what was not approved in time.
const housekeeping = time.Minute

// background is what a server does without being asked: the agents' schedules, the parked turns whose approvals have been
// decided, and the housekeeping of the ledger.
type background struct {
	app       *app
	engine    *engine
	configAt  string
	log       *slog.Logger
	scheduler *runtime.Scheduler
	jobs      []runtime.Job // of every agent that can run
	wg        sync.WaitGroup
	stop      context.CancelFunc
}

// activeAgents are the agents that can run.
func activeAgents(cfg *config.Config) []*config.Agent {
	var out []*config.Agent
	for _, id := range cfg.Agents() {
		if a, err := cfg.Agent(id); err == nil && a.Active {
			out = append(out, a)
		}
	}
	return out
}

func actsByItself(a *config.Agent) bool { return a.Autonomous != nil }

// startBackground begins it; Close ends the runs under way and waits for them.
func (a *app) startBackground(cfg *config.Config, e *engine, configAt string, log *slog.Logger) *background {
	b := &background{app: a, engine: e, configAt: configAt, log: log, scheduler: e.runtime.NewScheduler(runtime.SchedulerConfig{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	b.stop = cancel
	var scheduled []runtime.Job
	for _, agent := range activeAgents(cfg) {
		j := runtime.Job{Agent: agent, Open: func(context.Context) (runtime.Input, func(), error) { return b.open(cfg, agent) }}
		b.jobs = append(b.jobs, j)
		if actsByItself(agent) {
			scheduled = append(scheduled, j)
		}
	}
	decided := make(chan struct{}, 1)
	e.onApplied(func(batch *store.Batch) {
		if len(batch.Approvals)+len(batch.Schedules) > 0 {
			select {
			case decided <- struct{}{}:
			default:
			}
		}
	})
	b.wg.Add(2)
	go func() {
		defer b.wg.Done()
		_ = b.scheduler.Run(ctx, scheduled) // ends with ctx
	}()
	go func() {
		defer b.wg.Done()
		b.keep(ctx, decided)
	}()
	return b
}

// keep does the housekeeping until ctx ends.
func (b *background) keep(ctx context.Context, decided <-chan struct{}) {
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		if _, err := b.engine.runtime.ExpireApprovals(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("approvals could not be looked at", "error", err)
		}
		if err := b.scheduler.ResumeParked(ctx, b.jobs); err != nil && ctx.Err() == nil {
			b.log.Error("parked turns could not be looked at", "error", err)
		}
		if _, _, err := b.engine.runtime.Seal(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("the history could not be sealed", "error", err)
		}
		select {
		case <-tick.C:
		case <-decided:
			b.scheduler.Poke()
		case <-ctx.Done():
			return
		}
	}
}

// open makes what one run of an agent needs.
func (b *background) open(cfg *config.Config, agent *config.Agent) (runtime.Input, func(), error) {
	m := &models{cfg: cfg, made: map[string]writ.Model{}}
	first, others, err := b.app.choose(m, agent, "", false)
	if err != nil {
		return runtime.Input{}, nil, err
	}
	accepted, err := loadPins(b.configAt)
	if err != nil {
		return runtime.Input{}, nil, err
	}
	conns, closeConns, err := b.app.connections(agent, b.log)
	if err != nil {
		return runtime.Input{}, nil, err
	}
	for i := range conns {
		conns[i].Pins = accepted[conns[i].Config.Alias]
	}
	in := runtime.Input{Connections: conns, Fallback: others, Price: m.price,
		Model: func(context.Context) (writ.Model, string, error) { return first.Model, first.Name, nil }}
	return in, func() {
		closeConns()
		m.close(b.log)
	}, nil
}

// Close ends what runs: each call still gets its result.
func (b *background) Close() {
	b.engine.onApplied(nil)
	b.stop()
	b.wg.Wait()
}
