package runtime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"writ"
	"writ/config"
)

// Choice is a model that may answer, with the name it has in the configuration and in the records.
type Choice struct {
	Name  string
	Model writ.Model
}

// Pauses between tries at a model call that failed. A provider's own retry-after wins, up to maxRetryAfter.
const (
	firstPause      = 500 * time.Millisecond
	firstPauseLost  = 100 * time.Millisecond // the connection broke: nobody asked us to slow down
	longestPause    = 8 * time.Second
	maxRetryAfter   = time.Minute
	triesPerModel   = 3 // in a row, before the next model of the chain answers
	jitterFraction  = 4 // a pause is shortened by up to a quarter, so that many turns do not come back at once
	noticeRetry     = "model_retry"
	noticeNextModel = "model_changed"
)

// model returns who answers now: the agent's model, resolved anew for every call, or the fallback that took over.
func (t *turn) model(ctx context.Context) (writ.Model, string, error) {
	if t.fallback > 0 {
		c := t.in.Fallback[t.fallback-1]
		return c.Model, c.Name, nil
	}
	return t.in.Model(ctx)
}

// retry decides about another try after the provider failed, waits, and reports whether there is one. No started
// action is repeated by it: the round keeps its rows. Retries count per turn; after some in a row, or when more of the
// same cannot help, the next model of the chain takes over, which is told and costs the cache.
func (t *turn) retry(ctx context.Context, r *round, a *attempt) (bool, error) {
	t.failures++
	class := a.failure()
	if class == writ.ErrorContextLimit && !r.compacted {
		r.compacted = true
		changed, err := t.compactIfNeeded(ctx, true)
		if err != nil || changed {
			return changed, err
		}
	}
	if t.retries >= t.in.Agent.MaxRetries {
		return false, nil
	}
	t.retries++
	if !(&writ.ModelError{Class: class}).Retryable() || t.failures >= triesPerModel {
		if t.fallback >= len(t.in.Fallback) {
			return (&writ.ModelError{Class: class}).Retryable() && t.pause(ctx, a, class), nil
		}
		t.fallback++
		t.failures = 0
		name := t.in.Fallback[t.fallback-1].Name
		t.emit(Event{Type: EventNotice, Round: r.n, Attempt: a.n, Code: noticeNextModel, Text: fmt.Sprintf("%s answers from now on: the model before it failed (%s). Its cache is cold", name, class)})
		return true, nil
	}
	return t.pause(ctx, a, class), nil
}

// pause waits before the next try; false when the turn was stopped meanwhile.
func (t *turn) pause(ctx context.Context, a *attempt, class writ.ErrorClass) bool {
	d := firstPause
	if class == writ.ErrorNetwork {
		d = firstPauseLost
	}
	d = min(d<<min(t.failures-1, 10), longestPause)
	d -= time.Duration(rand.Int64N(int64(d)/jitterFraction + 1))
	var me *writ.ModelError
	if errors.As(a.err, &me) && me.RetryAfter > 0 {
		d = min(me.RetryAfter, maxRetryAfter)
	}
	t.emit(Event{Type: EventNotice, Round: a.r.n, Attempt: a.n, Code: noticeRetry, Text: fmt.Sprintf("trying the model again after a pause (%s, retry %d of %d)", class, t.retries, t.in.Agent.MaxRetries)})
	return t.rt.cfg.Wait(ctx, d) == nil
}

// wait is the default of Config.Wait.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed reports whether the provider failed: an error of its own, or a stream without its end marker.
func (a *attempt) failed() bool {
	return a.impossible == "" && (a.err != nil || a.finish == writ.FinishCut)
}

// failure is the class of what the provider did.
func (a *attempt) failure() writ.ErrorClass {
	var me *writ.ModelError
	switch {
	case errors.As(a.err, &me):
		return me.Class
	case a.err != nil:
		return writ.ErrorInvalid
	}
	return writ.ErrorNetwork // cut off
}

// cost is what a call's tokens cost; false when no price is known for the model.
func (t *turn) cost(model string, u writ.Usage) (float64, bool) {
	if t.in.Price == nil {
		return 0, false
	}
	p, ok := t.in.Price(model)
	if !ok {
		return 0, false
	}
	return Cost(p, u), true
}

// Cost is what the tokens cost at a price per million.
func Cost(p config.Price, u writ.Usage) float64 {
	const million = 1e6
	return (float64(u.Input)*p.Input + float64(u.Output)*p.Output + float64(u.CacheRead)*p.CacheRead + float64(u.CacheWrite)*p.CacheWrite) / million
}
