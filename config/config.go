// Package config turns YAML into a checked configuration, and says with file, line and column what is wrong with it.
//
// The pipeline of one load: bytes → tree (limits, anchors, duplicate keys) → shapes (strict decoding; the JSON Schema
// comes from the same types) → checks (names, references, traits) → one resolved [Agent] per declared agent. Every
// stage adds its problems to one [Report], so that one run tells all of them.
//
// Loading runs nobody's code, connects to nothing and reads no secret.
package config

import (
	"maps"
	"slices"

	"writ/participant"
	"writ/trait"
)

// Config is a checked configuration: everything declared, resolved. It is immutable.
type Config struct {
	// DefaultAgent is the agent used when none is asked for; empty when the file names none.
	DefaultAgent string
	// Models are the providers and prices.
	Models Models
	// Services are the MCP servers by id.
	Services map[string]Service

	// StorePath is store.path, absolute; empty when the file names none.
	StorePath string

	// Participants are the authored participants that a port is attached for, compiled, sorted by address.
	Participants []participant.Compiled
	// Opaque are the authored participants that have a policy and no port.
	Opaque []participant.Opaque

	agents map[string]*Agent
}

// Participant returns the compiled participant with that authored name or address.
func (c *Config) Participant(name string) (participant.Compiled, bool) {
	for _, p := range c.Participants {
		if p.Name == name || p.Participant == name {
			return p, true
		}
	}
	return participant.Compiled{}, false
}

// Agents lists the declared agents, sorted.
func (c *Config) Agents() []string { return slices.Sorted(maps.Keys(c.agents)) }

// Agent returns the agent called id. An empty id means the default agent, or the only one. The error is a
// [*NotFoundError].
func (c *Config) Agent(id string) (*Agent, error) {
	if id == "" {
		id = c.DefaultAgent
	}
	if id == "" && len(c.agents) == 1 {
		return c.agents[c.Agents()[0]], nil
	}
	if a, ok := c.agents[id]; ok {
		return a, nil
	}
	return nil, &NotFoundError{ID: id, Agents: c.Agents()}
}

// NotFoundError says that no such agent is declared.
type NotFoundError struct {
	ID     string   // what was asked for; empty when nothing was and nothing is the default
	Agents []string // what is declared
}

// Error implements error.
func (e *NotFoundError) Error() string {
	const where = "surfaces.as_consumer.agents"
	switch {
	case len(e.Agents) == 0:
		return "no agent is declared (hint: declare one under " + where + ")"
	case e.ID == "":
		return "several agents are declared and none is the default (hint: name one, or set surfaces.as_consumer.default_agent)"
	}
	return "no agent " + quote(e.ID) + " is declared under " + where + hinted(trait.DidYouMean(e.ID, e.Agents))
}

func hinted(hint string) string {
	if hint == "" {
		return ""
	}
	return " (hint: " + hint + ")"
}
