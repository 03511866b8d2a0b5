package runtime

import (
	"encoding/json"
	"slices"

	"writ/admission"
	"writ/participant"
)

// Compiled is what the turns of the agent are held against: the bindings that are derived from its tools.
func (a *Agent) Compiled() participant.Compiled {
	cfg := a.Config
	var tools []participant.Callable
	for _, t := range a.Tools() {
		c := participant.Callable{Connection: t.alias, Name: t.Spec.Name,
			Offer: participant.Offer{MaxInFlight: t.Limits.Concurrency, Timeout: t.Limits.Timeout}}
		for _, target := range t.targets {
			if target.Static() {
				c.Targets = append(c.Targets, target.String())
			} else {
				c.Templated = true
			}
		}
		tools = append(tools, c)
	}
	total := (cfg.MaxRounds + 1) * cfg.MaxActionsPerRound * (cfg.MaxRepairs + 1)
	return participant.Derive(cfg.ID, "participant.implementation."+cfg.Digest[:min(16, len(cfg.Digest))], total,
		max(cfg.MaxActionsPerRound, cfg.MaxConcurrentActions), tools)
}

// targetsOf are the addresses of what a call touches: the tool itself when the administrator names no targets. A target
// that depends on the arguments is known by its keyed digest only.
func (t *Tool) targetsOf(l *admission.Ledger, params json.RawMessage) ([]string, error) {
	var out []string
	for _, target := range t.targets {
		text := target.String()
		if !target.Static() {
			value, err := target.Render(params)
			if err != nil {
				return nil, err
			}
			text = participant.Target(l.TargetDigest(value))
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		out = []string{participant.ToolTarget(t.ID)}
	}
	return out, nil
}
