package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"writ/config"
	"writ/runtime"
)

// pinsName is the file of accepted tool definitions, beside the configuration. It belongs under version control.
const pinsName = "writ.pins.json"

// pins are the accepted definitions: connection alias → tool → SHA-256 of what the source says the tool is. A connection
// without an entry is not pinned; in one that is, a tool that changed or is new is not usable until it is accepted.
type pins map[string]map[string]string

func pinsPath(configPath string) string {
	if st, err := os.Stat(configPath); err == nil && st.IsDir() {
		return filepath.Join(configPath, pinsName)
	}
	return filepath.Join(filepath.Dir(configPath), pinsName)
}

// maxPins bounds the file.
const maxPins = 16 << 20

func loadPins(configPath string) (pins, error) {
	path := pinsPath(configPath)
	b, err := readAll(nil, path, maxPins)
	if errors.Is(err, fs.ErrNotExist) {
		return pins{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pins: %w", err)
	}
	p := pins{}
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("reading pins: %s: %w", path, err)
	}
	return p, nil
}

// accept pins the definitions that the connections offer now and says what that changed. What was accepted and is not
// offered stays: another agent may have it, and what comes back unchanged is still what was looked at.
func (p pins) accept(conns []runtime.Connection, listed func(runtime.Connection) map[string]string) (changed []string) {
	for _, c := range conns {
		if c.Config.Kind != config.KindMCP && c.Config.Kind != config.KindHTTP {
			continue // everything else is this program's or a file of the administrator's own
		}
		now := listed(c)
		if len(now) == 0 {
			continue // it could not be listed: what was accepted stays
		}
		old := p[c.Config.Alias]
		next := maps.Clone(old) // another agent may use the same connection with other tools
		if next == nil {
			next = map[string]string{}
		}
		for _, tool := range sortedKeys(now) {
			def := now[tool]
			next[tool] = def
			switch {
			case old[tool] == "":
				changed = append(changed, fmt.Sprintf("%s.%s: accepted", c.Config.Alias, tool))
			case old[tool] != def:
				changed = append(changed, fmt.Sprintf("%s.%s: its new definition is accepted", c.Config.Alias, tool))
			}
		}
		p[c.Config.Alias] = next
	}
	return changed
}

func (p pins) save(configPath string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	path := pinsPath(configPath)
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing pins: %w", err)
	}
	return os.Rename(tmp, path)
}
