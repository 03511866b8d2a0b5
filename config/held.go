package config

import (
	"maps"
	"slices"
)

// Secrets lists every secret the connection holds, in the order of their names: what must never stand in an output.
func (c Connection) Secrets() []Secret {
	sets := []map[string]Secret{c.Env, c.Headers}
	if c.Service != nil {
		sets = append(sets, c.Service.Env, c.Service.Headers)
	}
	var out []Secret
	for _, set := range sets {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			out = append(out, set[name])
		}
	}
	return out
}
