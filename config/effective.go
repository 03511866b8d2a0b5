package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"writ/trait"
)

// canonical is the JSON form of what decides an agent's behaviour. Positions, absolute paths and secret values have
// no place in it.
func canonical(a *Agent, models Models) []byte {
	conns := make([]any, 0, len(a.Connections))
	for i := range a.Connections {
		conns = append(conns, canonicalConn(&a.Connections[i]))
	}
	doc := map[string]any{
		"id": a.ID, "active": a.Active, "reason": a.Reason,
		"react": map[string]any{
			"dialect": a.Dialect, "additional_instructions": a.Instructions, "profile": a.Profile,
			"model": a.Model.String(), "role_models": modelTexts(a.RoleModels), "supported_models": a.SupportedModels,
			"fallback_models": a.FallbackModels, "max_retries": a.MaxRetries,
			"max_rounds": a.MaxRounds, "max_repairs": a.MaxRepairs, "max_actions_per_round": a.MaxActionsPerRound,
			"max_concurrent_actions": a.MaxConcurrentActions, "max_result_chars": a.MaxResultChars,
			"context_tokens": a.ContextTokens,
			"start_within":   a.StartWithin.String(), "tool_timeout": a.ToolTimeout.String(),
			"on_refusal": a.OnRefusal, "on_unknown": a.OnUnknown, "stop_on_failure": a.StopOnFailure, "approver": a.Approver, "approval_time": a.ApprovalTime.String(),
			"autonomous":            canonicalAutonomous(a.Autonomous),
			"event_source_pipeline": map[string]any{"enabled": a.EventPipeline},
			"subagents": map[string]any{
				"allowed": a.Subagents.Allowed, "default_on": a.Subagents.DefaultOn, "visibility": a.Subagents.Visibility,
				"model": a.Subagents.Model, "max_rounds": a.Subagents.MaxRounds, "models": a.Subagents.Models,
			},
			"cache": map[string]any{"selection_change_policy": map[string]any{
				"model_switch": a.Cache.ModelSwitch, "capability_toggle": a.Cache.CapabilityToggle, "allowed": a.Cache.Allowed,
			}},
		},
		"providers":     canonicalProviders(a, models),
		"tools":         conns,
		"event_sources": canonicalSources(a.EventSources),
	}
	return sortedJSON(doc)
}

// sortedJSON encodes v without white space and with the keys of every object sorted, those of structs included.
func sortedJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		err = dec.Decode(&v)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err = errors.Join(err, enc.Encode(v)); err != nil {
		panic(fmt.Sprintf("config: the effective agent is no JSON: %v", err)) // only a mistake in this file
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func modelTexts(m map[string]ModelRef) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v.String()
	}
	return out
}

// canonicalProviders are the providers that the agent's models name.
func canonicalProviders(a *Agent, models Models) map[string]any {
	refs := []ModelRef{a.Model}
	for _, m := range a.RoleModels {
		refs = append(refs, m)
	}
	for _, m := range a.SupportedModels {
		refs = append(refs, m.ModelRef)
	}
	refs = append(refs, a.FallbackModels...)
	out := map[string]any{}
	for _, r := range refs {
		if p, ok := models.Provider(r.Provider); ok {
			out[p.Name] = map[string]any{"kind": p.Kind, "base_url": p.BaseURL, "api_key": p.APIKey, "timeout": p.Timeout.String()}
		}
	}
	return out
}

func canonicalConn(c *Connection) map[string]any {
	out := map[string]any{
		"kind": c.Kind, "id": c.ID, "alias": c.Alias, "active": c.Active, "reason": c.Reason, "ref": c.refText,
		"module": c.Module, "interpreter": c.Interpreter, "server_id": c.ServerID, "url": c.URL, "spec": c.specText,
		"headers": c.Headers, "allow_private": c.AllowPrivate,
		"allowed": ceiling(c.Allowed, c.AllowAll), "tool_traits": canonicalTraits(c.Traits),
		"trust_traits": c.TrustTraits, "trust_annotations": c.TrustAnnotations, "env": c.Env, "paths": c.Paths,
		"targets": c.Targets, "timeout": c.Timeout.String(), "limits": canonicalLimits(c.limits), "inactive": c.blocked, "approval": c.approval,
	}
	if s := c.Service; s != nil {
		out["service"] = map[string]any{"command": s.Command, "args": s.Args, "env": s.Env, "cwd": s.cwdText,
			"url": s.URL, "headers": s.Headers, "timeout": s.Timeout.String()}
	}
	namespaces := map[string]any{}
	for name, ns := range c.Namespaces {
		namespaces[name] = map[string]any{"allowed": ceiling(ns.Allowed, ns.AllowAll), "tool_traits": canonicalTraits(ns.Traits)}
	}
	out["namespaces"] = namespaces
	return out
}

func ceiling(allowed []string, all bool) []string {
	if all {
		return []string{trait.Any}
	}
	return append([]string{}, allowed...)
}

func canonicalTraits(configs map[string]trait.Config) map[string]any {
	out := map[string]any{}
	for name, c := range configs {
		entry := map[string]any{}
		if c.Strategy != nil {
			entry["strategy"] = c.Strategy.Names()
		}
		if c.Execution != nil {
			entry["execution"] = c.Execution
		}
		if c.Effect != nil {
			entry["effect"] = c.Effect.String()
		}
		out[name] = entry
	}
	return out
}

func canonicalLimits(limits map[string]limit) map[string]any {
	out := map[string]any{}
	for name, l := range limits {
		entry := map[string]any{}
		if l.Timeout != nil {
			entry["timeout"] = l.Timeout.String()
		}
		if l.Concurrency != nil {
			entry["concurrency"] = *l.Concurrency
		}
		if l.Retries != nil {
			entry["retries"] = *l.Retries
		}
		out[name] = entry
	}
	return out
}

func canonicalSources(sources []EventSource) []any {
	out := make([]any, 0, len(sources))
	for _, s := range sources {
		out = append(out, map[string]any{"kind": s.Kind, "name": s.Name, "discovery": s.Discovery, "policies": s.Policies})
	}
	return out
}
