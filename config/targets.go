package config

import (
	"encoding/json"
	"slices"

	"writ"
	"writ/participant"
	"writ/trait"
)

// targetParam is an argument that a template of a tool's targets names.
type targetParam struct {
	tool, name string
	pos        Pos
}

// target checks one template of a tool's targets and notes the arguments it names.
func (conn *builtConn) target(tool string, text val[string], report *Report) {
	if !text.Set {
		return
	}
	tmpl, err := participant.ParseTarget(text.V)
	for _, f := range participant.Faults(err) {
		report.errorf(text.Pos, f.Hint, "%s.targets.%s: %s", conn.path, tool, f.Message)
	}
	for _, name := range tmpl.Parameters() {
		conn.targetParams = append(conn.targetParams, targetParam{tool, name, text.Pos})
	}
}

// CheckTargets compares the arguments that the connection's targets name with those that its tools take, and returns a
// problem for each that a tool does not have: a call of it would name no target and be refused. A tool that is not
// among specs, or that takes arguments it does not list, is not judged.
func CheckTargets(conn *Connection, specs []writ.ToolSpec) []Problem {
	r := &Report{}
	for _, p := range conn.targetParams {
		i := slices.IndexFunc(specs, func(s writ.ToolSpec) bool { return s.Name == p.tool })
		if i < 0 {
			continue
		}
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Additional *bool                      `json:"additionalProperties"`
		}
		if json.Unmarshal(specs[i].Schema, &schema) != nil || schema.Additional == nil || *schema.Additional {
			continue
		}
		if _, ok := schema.Properties[p.name]; !ok {
			r.errorf(p.pos, trait.DidYouMean(p.name, sortedKeys(schema.Properties)), "%s.targets.%s: the tool has no argument %s", conn.Alias, p.tool, quote(p.name))
		}
	}
	r.sort()
	return r.Errors
}
