package overseer

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"
)

const (
	namespaceArg = "namespace"
	refPrefix    = "ref:"     // an argument that stands for another result
	filePrefix   = "conv:fi:" // a file of the conversation
)

// canonPath is the default of [Config.CanonPath].
func canonPath(s string) string { return path.Clean(strings.TrimPrefix(s, filePrefix)) }

// write records what an entry of the accepted list writes.
func (s *stand) write(o *Overseer, paths []string) {
	s.writing = s.writing || len(paths) > 0
	s.writes = map[string]bool{}
	for _, p := range paths {
		if strings.TrimSpace(p) != "" {
			s.writes[o.canon(p)] = true
		}
	}
}

func (s *stand) writesOne(o *Overseer, paths []string) (string, bool) {
	for _, p := range paths {
		if s.writes[o.canon(p)] {
			return p, true
		}
	}
	return "", false
}

func (o *Overseer) canon(p string) string {
	p = strings.TrimSpace(p)
	if rest, ok := strings.CutPrefix(p, refPrefix); ok {
		p = strings.TrimSpace(rest)
	}
	return o.cfg.CanonPath(p)
}

// text returns the string that raw is, or nil.
func text(raw json.RawMessage) *string {
	var s *string
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return s
}

// values returns the strings of the named top-level arguments, lists of strings included.
func values(params json.RawMessage, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(params, &all) != nil {
		return nil
	}
	var out []string
	for _, n := range names {
		if s := text(all[n]); s != nil {
			out = append(out, *s)
			continue
		}
		var list []string
		if json.Unmarshal(all[n], &list) == nil {
			out = append(out, list...)
		}
	}
	return out
}

// references returns every string value in params, however deep, that refers to a result or a file.
func references(params json.RawMessage) []string {
	if !bytes.Contains(params, []byte(refPrefix)) && !bytes.Contains(params, []byte(filePrefix)) && !bytes.ContainsRune(params, '\\') {
		return nil
	}
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			v = strings.TrimSpace(v)
			if strings.HasPrefix(v, refPrefix) || strings.HasPrefix(v, filePrefix) {
				out = append(out, v)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	var root any
	if json.Unmarshal(params, &root) == nil {
		walk(root)
	}
	slices.Sort(out) // maps are walked in no order, and a reason must not change
	return out
}
