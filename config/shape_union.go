package config

import (
	"reflect"

	"writ"
	"writ/trait"
)

// This file holds the values that may be written in more than one way.

var blockType = reflect.TypeFor[blockShape]()

func valueOf(p any) reflect.Value { return reflect.ValueOf(p).Elem() }

// subagentsValue is a boolean, or a mapping.
type subagentsValue struct {
	Pos     Pos
	Switch  val[bool] // the boolean form
	Mapping subagentsShape
}

type subagentsShape struct {
	Allowed    val[bool]                `key:"allowed" doc:"Whether the agent may delegate." default:"false"`
	Enabled    val[bool]                `key:"enabled" doc:"Another name of allowed."`
	DefaultOn  val[bool]                `key:"default_on" default:"true" doc:"Whether delegation is on until the user says otherwise."`
	Visibility val[string]              `key:"visibility" enum:"silent,thread" default:"silent" doc:"Whether the user sees the helper's conversation."`
	Model      val[string]              `key:"model" doc:"The alias of the helper's model." default:"the parent's model"`
	MaxRounds  val[int]                 `key:"max_rounds" min:"1" max:"30" default:"8" doc:"Rounds of a helper's turn."`
	Models     dict[subagentModelShape] `key:"models" doc:"Models by alias; fast_agent and strong_agent are shipped."`
}

type subagentModelShape struct {
	roleModelShape
	Class   val[string] `key:"class" enum:"regular,strong,strongest" default:"regular" doc:"How strong the model is."`
	Caption val[string] `key:"caption" verbatim:"true" doc:"What the model is good for."`
}

func (s *subagentsValue) decode(d *decoder, n *node, f field) {
	s.Pos = n.pos
	switch n.kind {
	case kindBool:
		s.Switch.decode(d, n, f)
	case kindMap:
		d.any(n, valueOf(&s.Mapping), f)
		if s.Mapping.Allowed.present() && s.Mapping.Enabled.present() {
			d.report.errorf(s.Mapping.Enabled.Pos, "keep one of them", "%s has allowed and enabled, which mean the same", f.path)
		}
		if !s.Mapping.Allowed.present() {
			s.Mapping.Allowed = s.Mapping.Enabled
		}
	default:
		d.wrongType(n, f, "a boolean or a mapping")
	}
}

func (s *subagentsValue) schema(g *generator, _ field) schema {
	return schema{"anyOf": []schema{{"type": "boolean"}, objectOnly(g.object(reflect.TypeFor[subagentsShape]()))}}
}

// objectOnly takes null out of the schema of a mapping.
func objectOnly(s schema) schema {
	s["type"] = "object"
	return s
}

const cachePolicies = "accept,confirm,defer_cold,defer_conversation"

// cacheValue is one policy, or a mapping.
type cacheValue struct {
	Pos     Pos
	One     val[string]
	Mapping cachePolicyShape
}

type cachePolicyShape struct {
	Default          val[string]        `key:"default" enum:"accept,confirm,defer_cold,defer_conversation" default:"confirm" doc:"The policy of both classes."`
	ModelSwitch      val[string]        `key:"model_switch" enum:"accept,confirm,defer_cold,defer_conversation" doc:"The policy of a change of model." default:"default"`
	CapabilityToggle val[string]        `key:"capability_toggle" enum:"accept,confirm,defer_cold,defer_conversation" doc:"The policy of a change of capabilities." default:"default"`
	Allowed          val[[]val[string]] `key:"allowed" enum:"accept,confirm,defer_cold,defer_conversation" doc:"The policies a user may choose." default:"all"`
}

func (c *cacheValue) decode(d *decoder, n *node, f field) {
	c.Pos = n.pos
	switch n.kind {
	case kindString:
		c.One.decode(d, n, field{path: f.path, tag: `enum:"` + cachePolicies + `"`})
	case kindMap:
		d.any(n, valueOf(&c.Mapping), f)
	default:
		d.wrongType(n, f, "a policy or a mapping")
	}
}

func (c *cacheValue) schema(g *generator, _ field) schema {
	return schema{"anyOf": []schema{stringSchema(field{tag: `enum:"` + cachePolicies + `"`}),
		objectOnly(g.object(reflect.TypeFor[cachePolicyShape]()))}}
}

// strategyValue is one strategy or a list of them.
type strategyValue struct {
	V writ.Strategy
}

func (s *strategyValue) decode(d *decoder, n *node, f field) {
	value := n.plain()
	if n.kind == kindMap || n.kind == kindInt || n.kind == kindFloat {
		d.wrongType(n, f, "a strategy or a list of strategies")
		return
	}
	var problems []trait.Problem
	s.V, problems = trait.ParseStrategy(value)
	for _, p := range problems {
		pos := n.pos
		if p.Index >= 0 && p.Index < len(n.items) {
			pos = n.items[p.Index].pos
		}
		d.report.errorf(pos, p.Hint, "%s: %s", f.path, p.Message)
	}
}

func (s *strategyValue) schema(_ *generator, _ field) schema {
	one := schema{"enum": writ.StrategyNames()}
	return schema{"anyOf": []schema{one, {"type": "array", "minItems": 1, "items": one}}}
}

// executionValue is an execution profile.
type executionValue struct {
	V writ.Execution
}

func (e *executionValue) decode(d *decoder, n *node, f field) {
	if n.kind != kindMap {
		d.wrongType(n, f, "a mapping")
		return
	}
	var problems []trait.Problem
	e.V, problems = trait.ParseExecution(n.plain().(map[string]any))
	for _, p := range problems {
		pos := n.pos
		if in, ok := n.get(p.Key); ok {
			pos = in.pos
			if !isUnknownField(p.Key) {
				pos = in.value.pos
			}
		}
		d.report.errorf(pos, p.Hint, "%s: %s", f.path, p.Message)
	}
}

func isUnknownField(key string) bool {
	for _, known := range trait.ExecutionFields() {
		if known == key {
			return false
		}
	}
	return true
}

func (e *executionValue) schema(_ *generator, _ field) schema {
	p := writ.EarlyProfile
	return schema{"type": "object", "additionalProperties": false, "properties": schema{
		"trigger": schema{"const": p.Trigger}, "concurrency": schema{"const": p.Concurrency},
		"result_dependency": schema{"const": p.ResultDependency}, "replay": schema{"const": p.Replay},
	}}
}

// effectValue is an effect.
type effectValue struct {
	V writ.Effect
}

var effectNames = []string{"none", "idempotent", "once"}

func (e *effectValue) decode(d *decoder, n *node, f field) {
	if n.kind != kindString {
		d.wrongType(n, f, "a string")
		return
	}
	v, ok := writ.ParseEffect(n.text)
	if !ok {
		d.report.errorf(n.pos, trait.DidYouMean(n.text, effectNames), "%s: unknown effect %s", f.path, quote(n.text))
	}
	e.V = v
}

func (e *effectValue) schema(_ *generator, _ field) schema { return schema{"enum": effectNames} }

// rolesValue is a list of roles for the whole connection, or a mapping from tool to roles.
type rolesValue struct {
	Pos   Pos
	All   val[[]val[string]]
	Tools dict[val[[]val[string]]]
}

func (r *rolesValue) decode(d *decoder, n *node, f field) {
	r.Pos = n.pos
	switch n.kind {
	case kindList:
		r.All.decode(d, n, f)
	case kindMap:
		r.Tools.decode(d, n, f)
	default:
		d.wrongType(n, f, "a list of roles, or a mapping from tool to roles")
	}
}

func (r *rolesValue) schema(g *generator, _ field) schema {
	return schema{"anyOf": []schema{r.All.schema(g, field{bare: true}), objectOnly(r.Tools.schema(g, field{bare: true}))}}
}

// discoveryShape says how the owner of an event source is found.
type discoveryShape struct {
	Mode val[string] `key:"mode" doc:"How the owner is found." default:"service_discovery"`
}
