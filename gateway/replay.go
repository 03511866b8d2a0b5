package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
	"writ/internal/timeline"
	"writ/internal/workspace"
	"writ/store"
)

// again answers for an action that has been admitted before: with its stored outcome, by waiting for it, or by going on
// with it once it is approved. Nothing that was dispatched is dispatched again.
func (s *session) again(ctx context.Context, ss *mcp.ServerSession, a *action, id string) (*flight, answer, func()) {
	g := s.g
	g.mu.Lock()
	running := g.flights[id]
	g.mu.Unlock()
	if running != nil {
		select {
		case <-running.done:
			return nil, running.ans, nil
		case <-ctx.Done():
			return nil, a.refused(writ.CodeInterrupted), nil
		}
	}
	row, err := g.cfg.Store.Action(ctx, id)
	switch {
	case err != nil:
		return nil, a.refused(writ.CodeLedgerUnavailable), nil
	case row.State.Settled():
		return nil, g.stored(ctx, a, row), nil
	case row.State == writ.Held:
		return s.release(ctx, ss, a, row)
	}
	return nil, a.unsettled(outcome{state: writ.Indeterminate, failure: "connection_lost", note: "nobody waits for its answer any more"}, id), nil
}

// release goes on with a held action that has been approved: on its own invocation, resumed if that was parked.
func (s *session) release(ctx context.Context, ss *mcp.ServerSession, a *action, row store.Action) (*flight, answer, func()) {
	g := s.g
	ap, err := g.cfg.Store.Approval(ctx, row.ID)
	if err != nil {
		return nil, a.refused(writ.CodeLedgerUnavailable), nil
	}
	if ap.State == store.ApprovalPending && g.cfg.Now().Before(ap.Expires) {
		return nil, a.held(row.ID), nil
	}
	inv, err := s.holder(ctx, row)
	if errors.Is(err, store.ErrConflict) { // its session ended otherwise meanwhile, and the row says how
		if now, rerr := g.cfg.Store.Action(ctx, row.ID); rerr == nil && now.State.Settled() {
			return nil, g.stored(ctx, a, now), nil
		}
	}
	if err != nil {
		g.log.Error("a held action cannot be run", "action", row.ID, "error", err)
		return nil, a.refused(writ.CodeLedgerUnavailable), nil
	}
	a.callID = row.ToolCallID
	f := &flight{ctx: ctx, ss: ss, s: s, inv: inv, a: a, id: row.ID, done: make(chan struct{})}
	g.register(f)
	return f, answer{}, func() { g.leave(inv) }
}

// holder is the invocation of a held action, taken: the one that lives, or the parked one resumed.
func (s *session) holder(ctx context.Context, row store.Action) (*invocation, error) {
	g := s.g
	defer g.keys.lock("release " + row.Turn)()
	g.mu.Lock()
	inv := g.live[row.Turn]
	g.mu.Unlock()
	if inv != nil {
		if inv.take() {
			return inv, nil
		}
		<-inv.over // it is just being parked
	}
	compiled, bound := s.bindings()
	return g.resume(ctx, row, compiled, bound)
}

// stored is the answer to a settled action, from its result block.
func (g *Gateway) stored(ctx context.Context, a *action, row store.Action) answer {
	g.unhold(row.ID)
	res, ok, err := g.result(context.WithoutCancel(ctx), row)
	switch {
	case err != nil:
		g.log.Error("a stored result could not be read", "action", row.ID, "error", err)
		return a.refused(writ.CodeLedgerUnavailable)
	case !ok && row.State != writ.Succeeded && row.Failure != "tool_error":
		return a.unsettled(outcome{row.State, row.Failure, "what was known of it is no longer kept"}, row.ID)
	case !ok:
		return a.failed("result_expired", row.ID, fmt.Sprintf("the action is %s; its result is no longer kept (digest %s)", row.State, row.ResultDigest))
	}
	if ans, ok := g.load(row.Conversation, res); ok {
		return ans
	}
	return a.unsettled(outcome{row.State, row.Failure, res.Note}, row.ID)
}

// page is how many blocks are read at once when a result is looked for.
const page = 500

// result finds the result block of an action.
func (g *Gateway) result(ctx context.Context, row store.Action) (timeline.Result, bool, error) {
	key := timeline.ResultKey(row.ID)
	for after := int64(0); ; {
		blocks, err := g.cfg.Store.Blocks(ctx, row.Conversation, after, page)
		if err != nil || len(blocks) == 0 {
			return timeline.Result{}, false, err
		}
		for _, b := range blocks {
			if b.Key == key {
				res, err := timeline.Decode[timeline.Result](b)
				return res, err == nil, err
			}
		}
		after = blocks[len(blocks)-1].Seq
	}
}

// Names of what a result block holds.
const (
	nameResult = "mcp-result" // the result, as the server wrote it
	nameError  = "mcp-error"  // a JSON-RPC error
)

// fill puts a server's answer into a result, whole. One that is larger than the agent's limit goes to the workspace of
// the conversation; the result keeps its beginning and the ref.
func (g *Gateway) fill(conversation string, out *timeline.Result, ans answer) {
	limit := g.cfg.Agent.MaxResultChars
	if limit <= 0 || utf8.RuneCount(ans.raw) <= limit {
		out.Content = ans.content()
		return
	}
	ref, err := g.offload(conversation, out.ToolCallID, ans.raw)
	if err != nil {
		g.log.Error("a large result could not be stored", "tool", out.Tool, "error", err)
		ref = "(it could not be stored: " + err.Error() + ")"
	} else {
		out.Ref = ref
	}
	head := strings.ToValidUTF8(string(ans.raw[:min(len(ans.raw), limit/2)]), "")
	out.Content = timeline.Store([]writ.Content{{Kind: writ.ContentText, Text: fmt.Sprintf("%s\n[%d bytes in all; this is the beginning. The whole is at %s]", head, len(ans.raw), ref)}})
}

func (g *Gateway) workspaceDir(conversation string) string {
	return filepath.Join(g.cfg.Dir, "workspaces", conversation)
}

func (g *Gateway) offload(conversation, name string, data []byte) (string, error) {
	ws, err := workspace.Open(g.workspaceDir(conversation))
	if err != nil {
		return "", err
	}
	defer ws.Close()
	return ws.Offload(name+".json", data)
}

// load is the reverse of fill; false when the result holds no answer of the server.
func (g *Gateway) load(conversation string, res timeline.Result) (answer, bool) {
	if res.Ref != "" {
		raw, err := g.read(conversation, res.Ref)
		if err != nil {
			g.log.Error("a large result is gone", "ref", res.Ref, "error", err)
			return answer{}, false
		}
		return answer{raw: raw}, true
	}
	if len(res.Content) != 1 {
		return answer{}, false
	}
	switch c := res.Content[0]; c.Name {
	case nameResult:
		return answer{raw: c.JSON}, true
	case nameError:
		return errorOf(c.JSON)
	}
	return answer{}, false
}

func (g *Gateway) read(conversation, ref string) ([]byte, error) {
	name, ok := strings.CutPrefix(ref, workspace.RefPrefix)
	if !ok {
		return nil, errors.New("no ref of a workspace")
	}
	root, err := os.OpenRoot(g.workspaceDir(conversation))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, workspace.MaxResult+1))
}

// callBlock, resultBlock and closingBlock are the timeline's side of a row.
func (g *Gateway) callBlock(inv *invocation, a *action) func(store.Action) []store.Block {
	id := inv.port.Invocation()
	return func(row store.Action) []store.Block {
		b := timeline.New(id.Conversation, id.ID, timeline.KindCall, g.cfg.Now(), timeline.Call{Tool: a.c.id(), ToolCallID: a.callID,
			Round: row.Round, Attempt: row.Attempt, Index: row.Index, Params: a.shown})
		b.Key = "call:" + row.ID
		return []store.Block{b}
	}
}

func (g *Gateway) resultBlock(row store.Action, out timeline.Result) store.Block {
	b := timeline.New(row.Conversation, row.Turn, timeline.KindResult, g.cfg.Now(), out)
	b.Key = timeline.ResultKey(row.ID)
	return b
}

func (g *Gateway) closingBlock(row store.Action) []store.Block {
	out := timeline.Result{Tool: row.Tool, ToolCallID: row.ToolCallID, State: row.State, Failure: row.Failure}
	switch row.State {
	case writ.Withheld:
		out.Note = "not executed: it was withheld before it was started"
	case writ.Failed:
		out.Note = "the session ended before an answer came; the tool has no effect"
	case writ.Indeterminate:
		out.Note = "the session ended after it was started and before an answer came"
	}
	return []store.Block{g.resultBlock(row, out)}
}

// hold remembers a held call without a key, so that the next equal one of the principal goes on with it; for as long as
// this process lives. heldBefore finds it, unhold forgets it.
func (g *Gateway) hold(principal, fingerprint, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[principal+"\x00"+fingerprint] = id
}

func (g *Gateway) heldBefore(principal, fingerprint string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held[principal+"\x00"+fingerprint]
}

func (g *Gateway) unhold(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, v := range g.held {
		if v == id {
			delete(g.held, k)
		}
	}
}
