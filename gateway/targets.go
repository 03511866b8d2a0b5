package gateway

import (
	"encoding/json"
	"slices"

	"writ/participant"
)

// fixedTargets splits templates: what can be bound before the arguments are known, and whether there is more. A template
// that is none was refused when the configuration was loaded.
func fixedTargets(templates []string) (fixed []string, templated bool) {
	for _, t := range templates {
		if tmpl, err := participant.ParseTarget(t); err == nil && tmpl.Static() {
			fixed = append(fixed, t)
		} else {
			templated = true
		}
	}
	return fixed, templated
}

// targetsOf are the targets of one call, as an agent's turn has them: an argument's value is in none of them, a filled
// template is known by its keyed digest only.
func (g *Gateway) targetsOf(c *callable, args json.RawMessage) ([]string, error) {
	var out []string
	for _, t := range c.targets {
		tmpl, err := participant.ParseTarget(t)
		if err != nil {
			return nil, err
		}
		text := tmpl.String()
		if !tmpl.Static() {
			value, err := tmpl.Render(args)
			if err != nil {
				return nil, err
			}
			text = participant.Target(g.cfg.Ledger.TargetDigest(value))
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		out = []string{participant.ToolTarget(c.id())}
	}
	return out, nil
}
