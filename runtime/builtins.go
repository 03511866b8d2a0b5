package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sort"
	"strings"

	"writ"
	"writ/internal/timeline"
	"writ/internal/workspace"
)

// builtins are the tools that every agent has, under the alias react: the file tools of the conversation's workspace,
// and plan and hide, whose whole effect is a timeline block that is committed with their settlement.
type builtins struct {
	t     *turn
	plans map[string]timeline.Plan // changed in this turn, not rendered yet
}

func newBuiltins(t *turn) *builtins { return &builtins{t: t, plans: map[string]timeline.Plan{}} }

// builtinEffects: what changes nothing outside Writ's own store, or can be done again without changing more.
var builtinEffects = map[string]writ.Effect{
	"read": writ.EffectNone, "rg": writ.EffectNone, "plan": writ.EffectNone, "hide": writ.EffectNone,
	"write": writ.EffectIdempotent, "patch": writ.EffectOnce,
}

func neutral() *writ.DeclaredTraits {
	s := writ.Neutral
	return &writ.DeclaredTraits{Strategy: &s}
}

// OwnTools are the built-in tools that are not the workspace's.
func OwnTools() []writ.ToolSpec {
	return []writ.ToolSpec{
		{Name: "hide", Declared: neutral(), Local: true,
			Description: "Replace the shown content of a recent result by a short text, to save room. The result itself stays stored.",
			Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["tool_call_id","replacement"],"properties":{
				"tool_call_id":{"type":"string","minLength":1,"description":"the id of the call whose result is replaced"},
				"replacement":{"type":"string","maxLength":2000,"description":"what stands there instead: what mattered in it"}}}`)},
		{Name: "plan", Declared: neutral(), Local: true,
			Description: "Keep a plan. new makes one and makes it current; replace sets its steps anew; step sets the status of one step; activate makes it current; close ends it.",
			Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["mode"],"properties":{
				"mode":{"enum":["new","replace","step","activate","close"]},
				"plan_id":{"type":"string","pattern":"^[A-Za-z0-9_-]{1,64}$","description":"absent: the current plan; for new, an id of its own"},
				"steps":{"type":"array","minItems":1,"maxItems":50,"items":{"type":"string","minLength":1,"maxLength":500},"description":"new and replace"},
				"step":{"type":"integer","minimum":1,"description":"step: its number"},
				"status":{"enum":["open","active","done","failed"],"description":"step: its new status"}}}`)},
	}
}

// Tools implements writ.Toolset.
func (b *builtins) Tools(ctx context.Context) ([]writ.ToolSpec, []writ.Problem, error) {
	specs, problems, err := b.t.ws.Tools(ctx)
	specs = append(specs, OwnTools()...)
	sort.Slice(specs, func(i, j int) bool { return specs[i].Name < specs[j].Name })
	return specs, problems, err
}

// Call implements writ.Toolset.
func (b *builtins) Call(ctx context.Context, call writ.Call) (writ.Result, error) {
	switch call.Tool {
	case "plan":
		return b.plan(call.Params)
	case "hide":
		return b.hide(call.Params)
	}
	return b.t.ws.Call(ctx, call)
}

// Close implements writ.Toolset; the workspace is the turn's.
func (b *builtins) Close() error { return nil }

func (b *builtins) find(id string) (timeline.Plan, bool) {
	all := map[string]timeline.Plan{}
	current := ""
	for _, p := range b.t.render.Plans() {
		all[p.ID] = p
	}
	for k, p := range b.plans {
		all[k] = p
	}
	for _, p := range b.t.render.Plans() {
		if p = all[p.ID]; p.Active && !p.Closed {
			current = p.ID
		}
	}
	for id, p := range b.plans { // at most one of them is active
		if p.Active && !p.Closed {
			current = id
		}
	}
	if id == "" {
		id = current
	}
	p, ok := all[id]
	return p, ok
}

func (b *builtins) plan(params json.RawMessage) (writ.Result, error) {
	var in struct {
		Mode   string   `json:"mode"`
		PlanID string   `json:"plan_id"`
		Steps  []string `json:"steps"`
		Step   int      `json:"step"`
		Status string   `json:"status"`
	}
	if err := json.Unmarshal(params, &in); err != nil {
		return writ.ErrorResult("plan: %v", err), nil
	}
	p, known := b.find(in.PlanID)
	switch {
	case in.Mode == "new" && in.PlanID != "" && known:
		return writ.ErrorResult("plan %s exists already; use replace, or another plan_id", in.PlanID), nil
	case in.Mode != "new" && !known:
		return writ.ErrorResult("there is no such plan; make one with mode new"), nil
	case (in.Mode == "new" || in.Mode == "replace") && len(in.Steps) == 0:
		return writ.ErrorResult("mode %s needs steps", in.Mode), nil
	}
	switch in.Mode {
	case "new":
		if in.PlanID == "" {
			in.PlanID = fmt.Sprintf("plan%d", len(b.t.render.Plans())+len(b.plans)+1)
		}
		p = timeline.Plan{ID: in.PlanID, Active: true, Steps: steps(in.Steps)}
	case "replace":
		p.Steps, p.Active, p.Closed = steps(in.Steps), true, false
	case "activate":
		p.Active, p.Closed = true, false
	case "close":
		p.Active, p.Closed = false, true
	case "step":
		if in.Step < 1 || in.Step > len(p.Steps) || in.Status == "" {
			return writ.ErrorResult("mode step needs step (1 to %d) and status", len(p.Steps)), nil
		}
		p.Steps = append([]timeline.Step(nil), p.Steps...)
		p.Steps[in.Step-1].Status = in.Status
	}
	if p.Active {
		for id, other := range b.plans {
			other.Active = false
			b.plans[id] = other
		}
	}
	b.plans[p.ID] = p
	body, err := json.Marshal(p)
	if err != nil {
		return writ.Result{}, err
	}
	res := writ.Result{Content: []writ.Content{{Kind: writ.ContentJSON, JSON: body}}}
	res.Records = []writ.Record{{Kind: timeline.KindPlan, Body: body}}
	return res, nil
}

func steps(texts []string) []timeline.Step {
	out := make([]timeline.Step, len(texts))
	for i, s := range texts {
		out[i] = timeline.Step{Text: s, Status: "open"}
	}
	return out
}

func (b *builtins) hide(params json.RawMessage) (writ.Result, error) {
	var in timeline.Hide
	if err := json.Unmarshal(params, &in); err != nil {
		return writ.ErrorResult("hide: %v", err), nil
	}
	ok, known := b.t.render.CanHide(in.ToolCallID)
	switch {
	case !known:
		return writ.ErrorResult("no result of a finished round has the id %s", strings.ToValidUTF8(in.ToolCallID, "?")), nil
	case !ok:
		return writ.ErrorResult("hide_before_cache: that result stands before the cache point; replacing it would cost more than it saves"), nil
	}
	body, err := json.Marshal(in)
	if err != nil {
		return writ.Result{}, err
	}
	res := writ.TextResult("replaced")
	res.Records = []writ.Record{{Kind: timeline.KindHide, Body: body}}
	return res, nil
}

// BuiltinEffects are the effects of the built-in tools, by name.
func BuiltinEffects() map[string]writ.Effect { return maps.Clone(builtinEffects) }

// BuiltinTools describes the built-in tools, sorted by name.
func BuiltinTools() []writ.ToolSpec {
	specs, _, _ := (&workspace.Workspace{}).Tools(context.Background()) // a static table
	specs = append(specs, OwnTools()...)
	sort.Slice(specs, func(i, j int) bool { return specs[i].Name < specs[j].Name })
	return specs
}
