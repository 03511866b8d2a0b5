package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"writ"
	"writ/trait"
)

// resolver finds the value of each key of react for one agent and notes which block supplied it.
type resolver struct {
	blocks []namedBlock // most specific first
	notes  []Provenance
}

type namedBlock struct {
	name string
	*blockShape
}

// builtIn is the block of values that no block of the file supplies.
const builtIn = "built-in default"

// blocksFor lists the blocks of an agent: its exact id, its safe form, default_agent, default, each directly under
// react before under react.agents; then react itself.
func (c *checker) blocksFor(id string) []namedBlock {
	var keys []string
	for _, k := range []string{id, safeID(id), "default_agent", "default"} {
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	r := &c.roots.React
	var out []namedBlock
	for _, key := range keys {
		for i := range r.Direct.Entries {
			if e := &r.Direct.Entries[i]; e.Key == key {
				out = append(out, namedBlock{"react." + key, &e.Val})
			}
		}
		for i := range r.Agents.Entries {
			if e := &r.Agents.Entries[i]; e.Key == key {
				out = append(out, namedBlock{"react.agents." + key, &e.Val})
			}
		}
	}
	return append(out, namedBlock{"react", &r.blockShape})
}

func (r *resolver) note(key, value, block string, pos Pos) {
	const most = 60
	value = strings.Join(strings.Fields(value), " ")
	if runes := []rune(value); len(runes) > most {
		value = string(runes[:most]) + "…"
	}
	r.notes = append(r.notes, Provenance{key, value, block, pos})
}

// pick returns the value of the first block that sets it, or def.
func pick[T any](r *resolver, key string, def T, get func(*blockShape) *val[T]) T {
	for _, b := range r.blocks {
		if v := get(b.blockShape); v != nil && v.Set {
			r.note(key, fmt.Sprint(v.V), b.name, v.Pos)
			return v.V
		}
	}
	if text := fmt.Sprint(def); text != "" {
		r.note(key, text, builtIn, Pos{})
	}
	return def
}

// behaviour fills the values of react into a.
func (c *checker) behaviour(a *Agent) {
	r := &resolver{blocks: c.blocksFor(a.ID)}
	a.Dialect = writ.Dialect(pick(r, "dialect", string(writ.Channel), func(b *blockShape) *val[string] { return &b.Dialect }))
	a.Instructions = pick(r, "additional_instructions", "", func(b *blockShape) *val[string] { return &b.Instructions })
	a.Profile = pick(r, "profile", "", func(b *blockShape) *val[string] { return &b.Profile })
	a.MaxRounds = pick(r, "max_rounds", 15, func(b *blockShape) *val[int] { return &b.MaxRounds })
	a.MaxRepairs = pick(r, "max_repairs", 2, func(b *blockShape) *val[int] { return &b.MaxRepairs })
	a.MaxRetries = pick(r, "max_retries", 4, func(b *blockShape) *val[int] { return &b.MaxRetries })
	a.MaxActionsPerRound = pick(r, "max_actions_per_round", 8, func(b *blockShape) *val[int] { return &b.MaxActionsPerRound })
	a.MaxConcurrentActions = pick(r, "max_concurrent_actions", 4, func(b *blockShape) *val[int] { return &b.MaxConcurrentActions })
	a.MaxResultChars = pick(r, "max_result_chars", 12000, func(b *blockShape) *val[int] { return &b.MaxResultChars })
	a.ContextTokens = pick(r, "context_tokens", 80_000, func(b *blockShape) *val[int] { return &b.ContextTokens })
	a.StartWithin = pick(r, "start_within", 10*time.Second, func(b *blockShape) *val[time.Duration] { return &b.StartWithin })
	a.ToolTimeout = pick(r, "tool_timeout", defaultToolTimeout, func(b *blockShape) *val[time.Duration] { return &b.ToolTimeout })
	a.OnRefusal = OnRefusal(pick(r, "on_refusal", string(RefusalStop), func(b *blockShape) *val[string] { return &b.OnRefusal }))
	a.OnUnknown = OnUnknown(pick(r, "on_unknown", string(UnknownQuarantine), func(b *blockShape) *val[string] { return &b.OnUnknown }))
	a.StopOnFailure = pick(r, "stop_on_failure", false, func(b *blockShape) *val[bool] { return &b.StopOnFailure })
	a.Approver = pick(r, "approver", "owner", func(b *blockShape) *val[string] { return &b.Approver })
	a.ApprovalTime = pick(r, "approval_time", 24*time.Hour, func(b *blockShape) *val[time.Duration] { return &b.ApprovalTime })
	a.EventPipeline = pick(r, "event_source_pipeline.enabled", true, func(b *blockShape) *val[bool] {
		if b.EventPipeline == nil {
			return nil
		}
		return &b.EventPipeline.Enabled
	})
	c.modelsOf(a, r)
	c.subagentsOf(a, r)
	cacheOf(a, r)
	c.autonomousOf(a, r)
	c.rolesOf(a, r)
	slices.SortFunc(r.notes, func(x, y Provenance) int { return strings.Compare(x.Key, y.Key) })
	a.Provenance = r.notes
}

// modelsOf resolves the model, the roles' models and the menu.
func (c *checker) modelsOf(a *Agent, r *resolver) {
	a.RoleModels = map[string]ModelRef{}
	for _, b := range r.blocks {
		if b.RoleModels == nil {
			continue
		}
		var shown []string
		for _, e := range b.RoleModels.Entries {
			a.RoleModels[e.Key] = e.Val.ref()
			shown = append(shown, e.Key+"="+e.Val.ref().String())
		}
		r.note("role_models", strings.Join(shown, ", "), b.name, b.RoleModels.Pos)
		break
	}
	for _, b := range r.blocks {
		if !b.SupportedModels.present() {
			continue
		}
		var shown []string
		for _, s := range b.SupportedModels.V {
			m := SupportedModel{s.ref(), s.Label.V}
			if m.Label == "" {
				m.Label = m.Model
			}
			a.SupportedModels = append(a.SupportedModels, m)
			shown = append(shown, m.String())
		}
		r.note("supported_models", strings.Join(shown, ", "), b.name, b.SupportedModels.Pos)
		break
	}
	for _, b := range r.blocks {
		if !b.FallbackModels.present() {
			continue
		}
		var shown []string
		for _, m := range b.FallbackModels.V {
			a.FallbackModels = append(a.FallbackModels, m.ref())
			shown = append(shown, m.ref().String())
		}
		r.note("fallback_models", strings.Join(shown, ", "), b.name, b.FallbackModels.Pos)
		break
	}
	for _, name := range []string{StrongRoleArticle, StrongRole} {
		if m, ok := a.RoleModels[name]; ok {
			a.Model = m
		}
	}
	if text := pick(r, "model", "", func(b *blockShape) *val[string] { return &b.Model }); text != "" {
		a.Model = c.parseModel(text)
	}
	if a.Model.IsZero() {
		c.report.warnf(a.Pos, "set react.model to PROVIDER/MODEL or recorded:FILE, or run it with --model", "agent %s has no model", a.ID)
	}
}

func (c *checker) parseModel(text string) ModelRef {
	if file, ok := strings.CutPrefix(text, recordedPrefix); ok {
		return ModelRef{Recording: absolute(c.dir, file), recordingText: file}
	}
	provider, model, _ := strings.Cut(text, "/")
	return ModelRef{Provider: provider, Model: model}
}

// ref is the named model; the provider is anthropic unless said otherwise.
func (m *roleModelShape) ref() ModelRef {
	provider := m.Provider.V
	if provider == "" {
		provider = "anthropic"
	}
	return ModelRef{Provider: provider, Model: m.Model.V}
}

// shippedModels are the helper models that need no configuration.
func shippedModels() map[string]SubagentModel {
	return map[string]SubagentModel{
		"fast_agent":   {ModelRef{Provider: "anthropic", Model: "claude-haiku-4-5-20251001"}, "regular", "quick, focused work"},
		"strong_agent": {ModelRef{Provider: "anthropic", Model: "claude-sonnet-4-6"}, "strong", "deep reasoning and synthesis"},
	}
}

// subagentsOf merges subagents key by key over all blocks; models merges alias by alias.
func (c *checker) subagentsOf(a *Agent, r *resolver) {
	at := func(get func(*subagentsValue) *val[bool]) func(*blockShape) *val[bool] {
		return func(b *blockShape) *val[bool] {
			if b.Subagents == nil {
				return nil
			}
			return get(b.Subagents)
		}
	}
	s := Subagents{Models: shippedModels()}
	s.Allowed = pick(r, "subagents.allowed", false, at(func(v *subagentsValue) *val[bool] {
		if v.Switch.Set {
			return &v.Switch
		}
		return &v.Mapping.Allowed
	}))
	s.DefaultOn = pick(r, "subagents.default_on", true, at(func(v *subagentsValue) *val[bool] { return &v.Mapping.DefaultOn }))
	s.MaxRounds = pick(r, "subagents.max_rounds", 8, func(b *blockShape) *val[int] {
		if b.Subagents == nil {
			return nil
		}
		return &b.Subagents.Mapping.MaxRounds
	})
	str := func(get func(*subagentsShape) *val[string]) func(*blockShape) *val[string] {
		return func(b *blockShape) *val[string] {
			if b.Subagents == nil {
				return nil
			}
			return get(&b.Subagents.Mapping)
		}
	}
	s.Visibility = pick(r, "subagents.visibility", "silent", str(func(m *subagentsShape) *val[string] { return &m.Visibility }))
	for _, b := range slices.Backward(r.blocks) {
		if b.Subagents == nil {
			continue
		}
		for _, e := range b.Subagents.Mapping.Models.Entries {
			s.Models[e.Key] = overlay(s.Models[e.Key], &e.Val)
		}
	}
	s.Model = pick(r, "subagents.model", "", str(func(m *subagentsShape) *val[string] { return &m.Model }))
	if _, ok := s.Models[s.Model]; !ok && s.Model != "" {
		note := r.notes[len(r.notes)-1]
		c.report.errorf(note.Pos, trait.DidYouMean(s.Model, sortedKeys(s.Models)), "subagents.model: no alias %s under subagents.models", quote(s.Model))
	}
	a.Subagents = s
}

// overlay lays what the file says of an alias over what is known of it.
func overlay(m SubagentModel, s *subagentModelShape) SubagentModel {
	if s.Model.Set {
		m.Model = s.Model.V
	}
	if s.Provider.Set {
		m.Provider = s.Provider.V
	}
	if m.Provider == "" {
		m.Provider = "anthropic"
	}
	if s.Class.Set {
		m.Class = s.Class.V
	}
	if m.Class == "" {
		m.Class = "regular"
	}
	if s.Caption.Set {
		m.Caption = s.Caption.V
	}
	return m
}

// cacheOf resolves the cache policy, which is one value: the first block wins whole.
func cacheOf(a *Agent, r *resolver) {
	all := strings.Split(cachePolicies, ",")
	a.Cache = CachePolicy{"confirm", "confirm", all}
	for _, b := range r.blocks {
		if b.Cache == nil || b.Cache.SelectionChange.Pos.IsZero() {
			continue
		}
		v := &b.Cache.SelectionChange
		p := CachePolicy{v.One.V, v.One.V, all}
		if m := &v.Mapping; !v.One.Set {
			if m.Allowed.Set && len(m.Allowed.V) > 0 {
				p.Allowed = texts(m.Allowed.V)
			}
			fallback := "confirm"
			if !slices.Contains(p.Allowed, fallback) {
				fallback = p.Allowed[0]
			}
			p.ModelSwitch = firstSet(fallback, m.ModelSwitch, m.Default)
			p.CapabilityToggle = firstSet(fallback, m.CapabilityToggle, m.Default)
		}
		a.Cache = p
		r.note("cache.selection_change_policy", "model_switch="+p.ModelSwitch+", capability_toggle="+p.CapabilityToggle, b.name, v.Pos)
		return
	}
	r.note("cache.selection_change_policy", "confirm", builtIn, Pos{})
}

func firstSet(def string, values ...val[string]) string {
	for _, v := range values {
		if v.Set {
			return v.V
		}
	}
	return def
}

// rolesOf makes an agent inactive that asks for roles: nothing in this version could hold them against a user.
func (c *checker) rolesOf(a *Agent, r *resolver) {
	for _, b := range r.blocks {
		if b.Roles.present() {
			if len(b.Roles.V) > 0 || b.Roles.Bad {
				r.note("roles", strings.Join(texts(b.Roles.V), ", "), b.name, b.Roles.Pos)
				c.deactivate(a, b.Roles.Pos)
			}
			return
		}
	}
}

const noRoles = "roles are not provided by this version"

func (c *checker) deactivate(a *Agent, pos Pos) {
	if a.Active {
		c.report.warnf(pos, "", "agent %s is inactive: %s", a.ID, noRoles)
	}
	a.Active, a.Reason = false, noRoles
}
