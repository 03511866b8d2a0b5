package modelreq

import (
	"encoding/json"
	"slices"
	"sync"

	"writ"
)

// Book keeps what was mended for one model: each schema once, each remark once. It is safe for concurrent use.
type Book struct {
	Rules Rules

	mu      sync.Mutex
	schemas map[string]Schema
	remarks map[string]bool
}

// maxSchemas bounds the cache; tool lists of one process are far smaller.
const maxSchemas = 4096

// Tool returns the definition as the vendor takes it. The arguments that come back need no translation, and the tool's
// own schema still decides about them.
func (b *Book) Tool(t writ.ToolDef) (description string, s Schema) {
	key := string(t.Schema)
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.schemas[key]
	if !ok {
		s = Mend(t.Schema, b.Rules)
		if b.schemas == nil || len(b.schemas) >= maxSchemas {
			b.schemas = map[string]Schema{}
		}
		b.schemas[key] = s
	}
	for _, d := range s.Mended {
		b.remark("tool " + t.Name + ": " + d)
	}
	if s.Note != "" {
		return t.Description + "\n\n" + s.Note, s
	}
	return t.Description, s
}

// Remark adds a line to the report.
func (b *Book) Remark(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remark(line)
}

func (b *Book) remark(line string) {
	if b.remarks == nil {
		b.remarks = map[string]bool{}
	}
	if len(b.remarks) < maxSchemas {
		b.remarks[line] = true
	}
}

// Mended lists what was changed so far, sorted.
func (b *Book) Mended() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]string, 0, len(b.remarks))
	for r := range b.remarks {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

// Args returns a call's arguments as an object; anything else becomes an empty one.
func Args(raw json.RawMessage) json.RawMessage {
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return json.RawMessage(`{}`)
	}
	return raw
}
