package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"writ"
	"writ/internal/timeline"
	"writ/store"
)

// kitDocument is the stored form of a kit. Schemas are texts, so that they come back byte for byte.
type kitDocument struct {
	Dialect writ.Dialect      `json:"dialect"`
	System  string            `json:"system"`
	Tools   []kitTool         `json:"tools,omitempty"`
	Names   map[string]string `json:"names,omitempty"`
}

type kitTool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Schema      string `json:"schema"`
}

// seal makes the kit's document. The same kit has the same digest.
func (k *Kit) seal(d writ.Dialect) {
	doc := kitDocument{Dialect: d, System: k.System, Names: k.names}
	for _, t := range k.Tools {
		doc.Tools = append(doc.Tools, kitTool{t.Name, t.Description, string(t.Schema)})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		panic(fmt.Sprintf("prompt: a kit that is no JSON: %v", err)) // strings only
	}
	sum := sha256.Sum256(b.Bytes())
	k.doc, k.digest = b.Bytes(), hex.EncodeToString(sum[:])
}

// Document is what a kit is stored as, so that the prompts made with it can be shown later.
func (k Kit) Document() store.Document { return store.Document{Digest: k.digest, Body: k.doc} }

// loadKit is the reverse of seal.
func loadKit(body []byte) (Kit, writ.Dialect, error) {
	var doc kitDocument
	if err := json.Unmarshal(body, &doc); err != nil {
		return Kit{}, "", fmt.Errorf("prompt: the stored system text cannot be read: %w", err)
	}
	k := Kit{System: doc.System, names: doc.Names}
	for _, t := range doc.Tools {
		def := writ.ToolDef{Name: t.Name, Description: t.Description}
		if t.Schema != "" {
			def.Schema = json.RawMessage(t.Schema)
		}
		k.Tools = append(k.Tools, def)
	}
	return k, doc.Dialect, nil
}

// SafeName is a name that every provider takes, for a tool that is not the agent's.
func SafeName(id string) string {
	name := bytes.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, []byte(id))
	return string(name[:min(len(name), 64)])
}

func (k Kit) name(id string) string {
	if n, ok := k.names[id]; ok {
		return n
	}
	return SafeName(id)
}

// Replayed is a request as it was sent, made again from what is stored. Its uncached tail is stored nowhere.
type Replayed struct {
	Request *writ.ModelRequest
	Record  timeline.Request
	// Same reports whether what was made again has the hash that the record carries.
	Same bool
}

// Replay makes a request again from the blocks of its conversation, in order, up to its own record. document returns a
// stored document.
func Replay(blocks []store.Block, document func(digest string) ([]byte, error)) (Replayed, error) {
	if len(blocks) == 0 || blocks[len(blocks)-1].Kind != timeline.KindRequest {
		return Replayed{}, fmt.Errorf("prompt: the last block is no record of a model call")
	}
	last := blocks[len(blocks)-1]
	rec, err := timeline.Decode[timeline.Request](last)
	if err != nil {
		return Replayed{}, err
	}
	if rec.Kit == "" {
		return Replayed{}, fmt.Errorf("prompt: call %s was made by a version that did not store its system text", rec.Call)
	}
	body, err := document(rec.Kit)
	if err != nil {
		return Replayed{}, fmt.Errorf("prompt: the system text of call %s: %w", rec.Call, err)
	}
	kit, dialect, err := loadKit(body)
	if err != nil {
		return Replayed{}, err
	}
	kit.digest = rec.Kit
	r := NewRenderer(dialect, kit.name)
	for _, b := range blocks[:len(blocks)-1] {
		if err := r.Add(b); err != nil {
			return Replayed{}, err
		}
	}
	if rec.Segments > len(r.segs) || rec.Segments == 0 {
		return Replayed{}, fmt.Errorf("prompt: call %s had %d segments, the blocks before its record make %d", rec.Call, rec.Segments, len(r.segs))
	}
	r.turn = last.Turn
	out := Replayed{Record: rec}
	if rec.Purpose == timeline.PurposeSummary {
		out.Request, _ = r.Fork(kit, nil, rec.Segments-1, rec.Model, rec.Call)
	} else {
		r.segs = r.segs[:rec.Segments] // what came in while the model wrote was not in its prompt
		out.Request = r.Request(kit, rec.Model, rec.Call, "", false)
	}
	cur, _, _ := r.sections(kit, rec.Segments)
	out.Same = cur.hash(len(cur.sums)) == rec.PrefixHash
	return out, nil
}
