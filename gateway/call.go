package gateway

//lint:file-ignore SA1019 what newer protocols drop is passed through for the clients and servers that use it

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/admission"
	"writ/internal/mcpclient"
	"writ/internal/timeline"
	"writ/participant"
	"writ/store"
)

// action is what a client's request asks for.
type action struct {
	c       *callable
	params  mcp.Params      // for the upstream, without metadata
	meta    map[string]any  // the client's
	args    json.RawMessage // what is asked for, as one object: equal requests have equal ones
	shown   json.RawMessage // what the timeline shows of it
	key     string          // the client's idempotency key, or empty
	callID  string
	targets []string
}

// flight is one action from its admission to its answer. Everybody who asks for the same one waits for it.
type flight struct {
	ctx  context.Context // of the client's request: what is sent in it goes with its answer
	ss   *mcp.ServerSession
	s    *session
	inv  *invocation
	a    *action
	id   string
	done chan struct{}
	ans  answer // once done is closed
}

// govern runs one action: admit, dispatch, run, complete.
func (s *session) govern(ctx context.Context, ss *mcp.ServerSession, a *action) answer {
	if !s.enter() {
		return a.refused(writ.CodeInvocationClosed)
	}
	defer s.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	f, ans, settled := s.admit(ctx, ss, a)
	if f == nil {
		return ans
	}
	defer settled()
	return s.g.landed(f, s.fly(ctx, f))
}

// enter registers a call that the session's end waits for.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.calls.Add(1)
	return true
}

// leave is the end of such a call: the session's quiet time begins anew.
func (s *session) leave() {
	if s.quiet != nil && s.life.Err() == nil {
		s.quiet.Reset(s.g.cfg.Idle)
	}
	s.calls.Done()
}

// admit records the action before anything happens. DURABLE. Without a flight the answer is final: a refusal, a held
// action, or what became of an earlier request for the same. settled is to be called when the flight is over.
func (s *session) admit(ctx context.Context, ss *mcp.ServerSession, a *action) (f *flight, ans answer, settled func()) {
	g := s.g
	fingerprint, err := g.cfg.Ledger.Fingerprint(a.c.id(), a.args)
	if err != nil {
		return nil, a.failed(string(writ.CodeArgumentsUnparsable), "", writ.CodeArgumentsUnparsable.Meaning()+": "+err.Error()), nil
	}
	if a.targets, err = g.targetsOf(a.c, a.args); err != nil {
		return nil, a.failed(string(writ.CodeArgumentsInvalid), "", "not executed: what it touches cannot be told: "+err.Error()), nil
	}
	slot := admission.Slot{Tool: a.c.id(), Fingerprint: fingerprint, Traits: a.c.traits}
	if g.cfg.Approval != nil {
		slot.Approval = g.cfg.Approval(&a.c.up.conn, a.c.own, a.c.traits)
	}
	if a.key != "" {
		slot.Claim = &store.Claim{Scope: "gateway:" + g.cfg.Tenant + ":" + s.principal, Key: a.key, Digest: fingerprint}
		defer g.keys.lock("key " + s.principal + "\x00" + a.key)()
	} else if slot.Approval != nil {
		defer g.keys.lock("held " + s.principal + "\x00" + fingerprint)()
		if id := g.heldBefore(s.principal, fingerprint); id != "" {
			f, ans, settled := s.again(ctx, ss, a, id)
			return f, ans, settled
		}
	}
	var full *invocation
	for {
		inv, done, err := s.use(ctx, a.c, full)
		if err != nil {
			g.log.Error("an action could not be recorded, so it was not run", "tool", a.c.id(), "error", err)
			return nil, a.refused(writ.CodeLedgerUnavailable), nil
		}
		dec := inv.port.Admit(ctx, s.request(inv, a), slot, g.callBlock(inv, a))
		switch {
		case dec.Admitted && dec.Replay:
			done()
			return s.again(ctx, ss, a, dec.ActionID)
		case dec.Admitted && dec.Held:
			done()
			if a.key == "" {
				g.hold(s.principal, fingerprint, dec.ActionID)
			}
			return nil, a.held(dec.ActionID), nil
		case dec.Admitted:
			f := &flight{ctx: ctx, ss: ss, s: s, inv: inv, a: a, id: dec.ActionID, done: make(chan struct{})}
			g.register(f)
			return f, answer{}, done
		}
		done()
		switch {
		case ctx.Err() != nil:
			return nil, a.refused(writ.CodeInterrupted), nil
		case dec.Refusal == writ.CodeConcurrencyLimitReached:
			select {
			case <-dec.Freed:
			case <-ctx.Done():
				return nil, a.refused(writ.CodeInterrupted), nil
			}
		case dec.Refusal == writ.CodeActionLimitReached && full == nil:
			full = inv // the session goes on with another invocation
		default:
			return nil, a.refused(dec.Refusal), nil
		}
	}
}

func (s *session) request(inv *invocation, a *action) admission.Request {
	agent := s.g.cfg.Agent.ID
	req := inv.port.Request(a.callID, participant.AffordanceAddress(agent, a.c.up.alias), participant.ContractAddress(a.c.up.alias, a.c.own),
		participant.DerivedBoundary, a.targets)
	req.ArgumentDigest, _ = s.g.cfg.Ledger.ArgumentDigest(a.args) // the fingerprint has been made of them
	return req
}

// errTimeout ends a call whose time is over.
var errTimeout = errors.New("no answer in time")

// fly takes the one grant and runs the effect once.
func (s *session) fly(ctx context.Context, f *flight) answer {
	a, port := f.a, f.inv.port
	for {
		if ctx.Err() != nil {
			return s.g.abandon(ctx, f, stopped(ctx), "not executed: the request was cancelled before it was sent")
		}
		grant, receipt := port.Dispatch(ctx, f.id) // DURABLE
		switch {
		case receipt.Code == writ.CodeApprovalRequired:
			return a.held(f.id)
		case receipt.Code == writ.CodeConcurrencyLimitReached && receipt.Freed != nil:
			select {
			case <-receipt.Freed:
			case <-ctx.Done():
			}
			continue
		case !receipt.Accepted:
			return s.g.undispatched(ctx, f, receipt.Code)
		case ctx.Err() != nil || !grant.Start():
			return s.g.abandon(ctx, f, stopped(ctx), "not executed: the request was cancelled, or its grant too old to start it")
		}
		s.g.unhold(f.id)
		raw, err := s.run(ctx, f, grant.Key()) // WORLD
		return s.g.land(ctx, f, raw, err)      // DURABLE
	}
}

// stopped is the failure class of what was stopped.
func stopped(ctx context.Context) string {
	if ctx.Err() != nil {
		return "cancelled"
	}
	return "interrupted"
}

// undispatched answers for an action that got no grant. A held one goes on waiting where it can; one that was settled
// meanwhile says as what.
func (g *Gateway) undispatched(ctx context.Context, f *flight, code writ.Code) answer {
	row, err := g.cfg.Store.Action(context.WithoutCancel(ctx), f.id)
	switch {
	case err == nil && row.State.Settled():
		return g.stored(ctx, f.a, row)
	case err == nil && row.State == writ.Held:
		return f.a.failed(string(code), f.id, "not executed: "+code.Meaning())
	}
	return g.abandon(ctx, f, string(code), "not executed: "+code.Meaning())
}

// run is the one place where an effect happens.
func (s *session) run(ctx context.Context, f *flight, key string) (json.RawMessage, error) {
	a := f.a
	cctx, cancel := context.WithTimeoutCause(ctx, a.c.timeout, errTimeout)
	defer cancel()
	a.params.SetMeta(a.upstreamMeta(key))
	req := mcpclient.Request{Params: a.params, Tag: f}
	if token, ok := a.meta["progressToken"]; ok {
		req.Progress = func(params json.RawMessage) { s.progress(f, token, params) }
	}
	a.c.up.begin(f)
	defer a.c.up.finish(f)
	return a.c.up.client.Do(cctx, req)
}

// upstreamMeta is the client's metadata as far as it concerns the server, with the action's own key.
func (a *action) upstreamMeta(key string) map[string]any {
	out := map[string]any{}
	for k, v := range a.meta {
		switch {
		case k == "progressToken", strings.HasPrefix(k, "writ/"):
		case k == mcp.MetaKeyProtocolVersion, k == mcp.MetaKeyClientInfo, k == mcp.MetaKeyClientCapabilities, k == mcp.MetaKeyLogLevel:
		default:
			out[k] = v
		}
	}
	if a.c.own != resourcesRead && a.c.own != promptsGet {
		out[metaKey], out[metaCallID] = key, a.callID
	}
	return out
}

// progress passes on what the server says of a call's progress, under the client's own token.
func (s *session) progress(f *flight, token any, params json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(params, &fields) != nil || fields == nil {
		return
	}
	fields["progressToken"], _ = json.Marshal(token)
	if out, err := json.Marshal(fields); err == nil {
		s.tellDuring(f, "notifications/progress", out)
	}
}

// outcome is how an answer settles its action.
type outcome struct {
	state   writ.ActionState
	failure string
	note    string // the gateway's own words, where there is no answer
}

// judge says what an answer means: what the server said is what happened, a request that it saw nothing of has
// failed, and for everything else nobody knows.
func judge(ctx context.Context, c *callable, raw json.RawMessage, err error) outcome {
	var refusal *mcpclient.Refusal
	switch {
	case errors.As(err, &refusal):
		return outcome{state: writ.Failed, failure: "tool_error"}
	case errors.Is(err, writ.ErrNotStarted):
		return outcome{writ.Failed, "not_started", clip(err.Error())}
	case err == nil:
		var w struct {
			IsError       bool            `json:"isError"`
			ResultType    string          `json:"resultType"`
			InputRequests json.RawMessage `json:"inputRequests"`
		}
		switch {
		case len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &w) != nil:
			err = fmt.Errorf("the server's answer is no result: %.200q", raw)
		case w.ResultType == "input_required":
			return outcome{state: writ.Failed, failure: "input_required"} // it says that it has not completed
		case w.IsError:
			return outcome{state: writ.Failed, failure: "tool_error"}
		default:
			return outcome{state: writ.Succeeded}
		}
	}
	out := outcome{writ.Indeterminate, "connection_lost", clip(err.Error())}
	switch {
	case errors.Is(err, errTimeout):
		out.failure, out.note = "timeout", "no answer within "+c.timeout.String()
	case ctx.Err() != nil:
		out.failure = "interrupted"
	}
	if c.traits.Effect == writ.EffectNone {
		out.state = writ.Failed
	}
	return out
}

const maxNote = 2000

func clip(s string) string {
	if len(s) <= maxNote {
		return s
	}
	return strings.ToValidUTF8(s[:maxNote], "") + "…"
}

// land settles a call: row and result in one write.
func (g *Gateway) land(ctx context.Context, f *flight, raw json.RawMessage, err error) answer {
	o := judge(ctx, f.a.c, raw, err)
	out := timeline.Result{Tool: f.a.c.id(), ToolCallID: f.a.callID, State: o.state, Failure: o.failure, Note: o.note}
	ans := f.a.unsettled(o, f.id)
	var refusal *mcpclient.Refusal
	switch {
	case errors.As(err, &refusal):
		ans = refusedBy(refusal)
		out.Content = ans.content()
	case err == nil && o.note == "":
		ans = answer{raw: raw}
		g.fill(f.inv.port.Invocation().Conversation, &out, ans)
	}
	digest := ""
	if len(out.Content) > 0 {
		b, _ := json.Marshal(out.Content) // timeline content always marshals
		digest = g.cfg.Ledger.ResultDigest(b)
	}
	g.settle(f, out, func(block admission.Block) admission.Receipt {
		if out.State == writ.Indeterminate {
			return f.inv.port.ReportUnknown(ctx, f.id, out.Failure, block)
		}
		return f.inv.port.Complete(ctx, f.id, admission.Outcome{State: out.State, Failure: out.Failure, ResultDigest: digest}, block)
	})
	return ans
}

// abandon settles an action that was certainly not started.
func (g *Gateway) abandon(ctx context.Context, f *flight, reason, note string) answer {
	out := timeline.Result{Tool: f.a.c.id(), ToolCallID: f.a.callID, State: writ.Withheld, Failure: reason, Note: note}
	g.settle(f, out, func(block admission.Block) admission.Receipt { return f.inv.port.Abandon(ctx, f.id, reason, block) })
	return f.a.failed(reason, f.id, note)
}

// How often and how long a settlement is written again when the ledger does not answer: losing an outcome is worse than
// waiting for it.
const (
	settleTries = 5
	settlePause = 200 * time.Millisecond
)

func (g *Gateway) settle(f *flight, out timeline.Result, write func(admission.Block) admission.Receipt) {
	block := func(row store.Action) []store.Block {
		out.State = row.State // abandoning settles as withheld or failed, as the row says
		return []store.Block{g.resultBlock(row, out)}
	}
	for try := 1; ; try++ {
		r := write(block)
		if r.Accepted {
			return
		}
		if r.Code != writ.CodeLedgerUnavailable || try == settleTries {
			g.log.Error("an outcome could not be recorded; its action is unknown to the ledger", "action", f.id, "state", out.State, "code", r.Code)
			return
		}
		time.Sleep(time.Duration(try) * settlePause)
	}
}

// register makes a flight known to those who ask for the same action; landed gives them its answer.
func (g *Gateway) register(f *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flights[f.id] = f
}

func (g *Gateway) landed(f *flight, ans answer) answer {
	f.ans = ans
	close(f.done)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.flights, f.id)
	return ans
}
