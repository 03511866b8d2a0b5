package modelreq

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"writ"
	"writ/internal/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var all = Rules{Properties: true, Items: true, Names: regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)}

func TestMend(t *testing.T) {
	for _, c := range []struct{ name, in, want, note, did string }{
		{"as it is, in its own order", `{"type": "object", "properties": {"z": {}, "a": {"type":"string"}}}`, `{"type":"object","properties":{"z":{},"a":{"type":"string"}}}`, "", ""},
		{"nothing", ``, `{"properties":{},"type":"object"}`, "", "empty properties are added"},
		{"null", `null`, `{"properties":{},"type":"object"}`, "", "empty properties are added; its schema was no object; any object is let through; type: object is added"},
		{"true", `true`, `{"properties":{},"type":"object"}`, "", "empty properties are added; its schema was no object; any object is let through; type: object is added"},
		{"no JSON", `{`, `{"properties":{},"type":"object"}`, "", "empty properties are added; its schema is no JSON; any object is let through; type: object is added"},
		{"no type", `{"properties":{"a":{}}}`, `{"properties":{"a":{}},"type":"object"}`, "", "type: object is added"},
		{"a type that is a list", `{"type":["object","null"],"properties":{}}`, `{"properties":{},"type":"object"}`, "", "the top-level type is made object"},
		{"$schema and $id", `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","type":"object","properties":{}}`, `{"properties":{},"type":"object"}`, "", "$id is left out; $schema is left out"},
		{"$ref at the top", `{"$ref":"#/$defs/X","$defs":{"X":{"type":"object","properties":{"a":{"$ref":"#/$defs/Y"}}},"Y":{"type":"string"}}}`,
			`{"$defs":{"X":{"properties":{"a":{"$ref":"#/$defs/Y"}},"type":"object"},"Y":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/Y"}},"type":"object"}`, "", "its top-level $ref is written out"},
		{"allOf", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"allOf":[{"properties":{"b":{"type":"string"}},"required":["b"]},{"properties":{"b":{"type":"integer"}}}]}`,
			`{"properties":{"a":{"type":"string"},"b":{}},"required":["a","b"],"type":"object"}`, `"allOf":[`, "top-level allOf is folded into one object and said in the description"},
		{"anyOf with a common property", `{"type":"object","anyOf":[{"properties":{"k":{},"a":{}},"required":["k","a"]},{"properties":{"k":{}},"required":["k"]}]}`,
			`{"properties":{"a":{},"k":{}},"required":["k"],"type":"object"}`, `"anyOf":[`, "top-level anyOf is folded into one object and said in the description"},
		{"not and enum", `{"type":"object","properties":{},"not":{"required":["a"]},"enum":[{}]}`, `{"properties":{},"type":"object"}`, `{"enum":[{}],"not":{"required":["a"]}}`,
			"top-level enum is said in the description instead; top-level not is said in the description instead"},
		{"a name that is not allowed", `{"type":"object","properties":{"no spaces":{}}}`, `{"additionalProperties":true,"properties":{},"type":"object"}`, `"no spaces"`,
			`the property name "no spaces" is not allowed; the schema is said in the description instead`},
		{"draft 4 and 7 below", `{"type":"object","properties":{"a":{"type":"array","items":[{"type":"int"}],"additionalItems":false},"b":{"type":"array"},"c":{"minimum":1,"exclusiveMinimum":true,"required":true},"d":null,"e":{"type":"any"},"f":{"$ref":"https://example.org/x"},"g":{"enum":[]}}}`,
			`{"properties":{"a":{"items":false,"prefixItems":[{"type":"integer"}],"type":"array"},"b":{"items":{},"type":"array"},"c":{"exclusiveMinimum":1},"d":{},"e":{},"f":{},"g":{}},"type":"object"}`, "",
			`a boolean exclusiveMinimum of draft 4 is written as a number; a list of items is written as prefixItems; a null schema is made an open one; a required that is no list is left out; an empty enum is left out; open items are added to an array; the reference "https://example.org/x" leads out of the schema; anything is let through there; the type "any" is unknown; anything is let through there; the type "int" is written "integer"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Mend(json.RawMessage(c.in), all)
			if d := cmp.Diff(c.want, string(got.JSON)); d != "" {
				t.Errorf("schema (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.did, strings.Join(got.Mended, "; ")); d != "" {
				t.Errorf("mended (-want +got):\n%s", d)
			}
			if (c.note == "") != (got.Note == "") || !strings.Contains(got.Note, c.note) {
				t.Errorf("note %q, want %q", got.Note, c.note)
			}
			again := Mend(got.JSON, all)
			if len(again.Mended) > 0 || string(again.JSON) != string(got.JSON) {
				t.Errorf("mending again changes it: %v %s", again.Mended, again.JSON)
			}
		})
	}
	if got := Mend(json.RawMessage(`{"type":"object"}`), Rules{}); got.Mended != nil {
		t.Errorf("a vendor without rules gets %v", got.Mended)
	}
	deep := strings.Repeat(`{"properties":{"a":`, 200) + `{}` + strings.Repeat(`}}`, 200)
	if got := Mend(json.RawMessage(deep), all); !strings.Contains(strings.Join(got.Mended, " "), "deeper than") {
		t.Error(got.Mended)
	}
}

// TestMendOnlyWidens: whatever the tool's schema accepts, the mended one accepts. The branches of a union leave their
// properties open here: see Mend.
func TestMendOnlyWidens(t *testing.T) {
	leaf := []string{`{"type":"string"}`, `{"type":"integer"}`, `{}`, `{"type":"array"}`, `{"enum":["x",1]}`, `{"type":"array","prefixItems":[{"type":"string"}]}`, `true`}
	rapid.Check(t, func(t *rapid.T) {
		object := func(label string, leaf []string) string {
			var props, req []string
			for _, n := range []string{"a", "b", "c"} {
				if rapid.Bool().Draw(t, label+n) {
					props = append(props, `"`+n+`":`+rapid.SampledFrom(leaf).Draw(t, label+n+"s"))
				}
				if rapid.IntRange(0, 3).Draw(t, label+n+"r") == 0 {
					req = append(req, `"`+n+`"`)
				}
			}
			s := `"properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(req, ",") + `]`
			if rapid.Bool().Draw(t, label+"closed") {
				s += `,"additionalProperties":false`
			}
			return s
		}
		in := "{" + object("top", leaf)
		if k := rapid.SampledFrom([]string{"", "oneOf", "anyOf", "allOf"}).Draw(t, "k"); k != "" {
			branch := []string{`{}`}
			if k == "allOf" {
				branch = leaf
			}
			in += `,"` + k + `":[{` + object("x", branch) + `},{` + object("y", branch) + `}]`
		}
		in += "}"
		value := rapid.SampledFrom([]string{`{}`, `{"a":"x"}`, `{"a":1,"b":["s"]}`, `{"b":"x","c":1}`, `{"a":"x","b":"x","c":"x"}`, `{"c":[1]}`, `{"d":1}`}).Draw(t, "value")
		var before, after schema.Cache
		was, err := before.Schema(json.RawMessage(in))
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		got := Mend(json.RawMessage(in), all)
		is, err := after.Schema(got.JSON)
		if err != nil {
			t.Fatalf("mended %s: %v", got.JSON, err)
		}
		if was.Invalid(json.RawMessage(value)) == "" && is.Invalid(json.RawMessage(value)) != "" {
			t.Fatalf("%s accepts %s, and mended %s refuses it: %s", in, value, got.JSON, is.Invalid(json.RawMessage(value)))
		}
	})
}

func TestStrict(t *testing.T) {
	for in, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`:                                                 true,
		`{"type":"object","properties":{},"additionalProperties":false}`:                                                                                       true,
		`{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"],"additionalProperties":false}`:                                        true,
		`{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x"]}}},"required":["a"],"additionalProperties":false}`:                           true,
		`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"],"additionalProperties":false}`:                     true,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}`:                                                    false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                                                              false,
		`{"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false}`:                                                                false,
		`{"type":"object","properties":{"a":{"type":"string","minLength":1}},"required":["a"],"additionalProperties":false}`:                                   false,
		`{"type":"object","properties":{"a":{"type":"object","properties":{"b":{"type":"string"}}}},"required":["a"],"additionalProperties":false}`:            false,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`:                        false,
		`{"type":"object","properties":{"a":{"allOf":[{"type":"string"}]}},"required":["a"],"additionalProperties":false}`:                                     false,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"],"additionalProperties":false,"$defs":{"A":{"type":"string","format":"x"}}}`: false,
	} {
		if got := Mend(json.RawMessage(in), Rules{}).Strict; got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestBook(t *testing.T) {
	var b Book
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			d, s := b.Tool(writ.ToolDef{Name: "t", Description: "D.", Schema: json.RawMessage(`{"type":"object","not":{}}`)})
			if d != "D.\n\nThe parameters must also satisfy this JSON Schema: {\"not\":{}}" || string(s.JSON) != `{"type":"object"}` {
				t.Error(d, string(s.JSON))
			}
			b.Remark("zzz")
		})
	}
	wg.Wait()
	if d := cmp.Diff([]string{"tool t: top-level not is said in the description instead", "zzz"}, b.Mended()); d != "" {
		t.Error(d)
	}
}

func texts(parts []writ.Part) string {
	var out []string
	for _, p := range parts {
		s := p.Text + p.Name + p.ID
		if p.Cache {
			s += "*"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestMessages(t *testing.T) {
	text := func(s string, cache bool) writ.Part { return writ.Part{Kind: writ.PartText, Text: s, Cache: cache} }
	result := func(id string) writ.Part { return writ.Part{Kind: writ.PartToolResult, ID: id} }
	in := []writ.Message{
		{Role: writ.RoleUser, Parts: []writ.Part{text("a", false), text(" \n", true)}},
		{Role: writ.RoleUser, Parts: []writ.Part{text("b", false), result("r1")}},
		{Role: writ.RoleUser, Parts: []writ.Part{result("r2")}},
		{Role: writ.RoleAssistant, Parts: []writ.Part{text("c", false)}},
		{Role: writ.RoleAssistant, Parts: []writ.Part{text("", false)}},
	}
	out := Messages(in)
	if len(out) != 2 || texts(out[0].Parts) != "r1 r2 a* b" || texts(out[1].Parts) != "c" {
		t.Errorf("%+v", out)
	}
	if texts(in[0].Parts) != "a  \n*" || len(in[1].Parts) != 2 {
		t.Error("the request was changed")
	}
}

func TestInterleave(t *testing.T) {
	places := map[string]Place{"t0": {}, "t1": {Text: true}, "t2": {Calls: 1, Text: true}, "t3": {Calls: 2}}
	thinking := func(s string) writ.Part { return writ.Part{Kind: writ.PartThinking, Text: s} }
	call := func(s string) writ.Part { return writ.Part{Kind: writ.PartToolUse, ID: s} }
	parts := []writ.Part{thinking("t0"), thinking("t1"), thinking("t2"), thinking("t3"), {Kind: writ.PartText, Text: "text"}, call("c1"), call("c2")}
	if got := texts(Interleave(parts, func(p *writ.Part) Place { return places[p.Text] })); got != "t0 text t1 c1 t2 c2" {
		t.Error(got)
	}
	if got := Interleave([]writ.Part{thinking("t0")}, func(*writ.Part) Place { return Place{} }); len(got) != 0 {
		t.Error("thinking that nothing follows is sent")
	}
}

func TestPlain(t *testing.T) {
	for _, c := range []struct {
		in   writ.Content
		want string
		ok   bool
	}{
		{writ.Content{Kind: writ.ContentText, Text: "a"}, "a", true},
		{writ.Content{Kind: writ.ContentJSON, JSON: json.RawMessage(`{"n":1}`)}, `{"n":1}`, true},
		{writ.Content{Kind: writ.ContentLink, URI: "u", Name: "n", MIME: "m"}, "(link u, n, m)", true},
		{writ.Content{Kind: writ.ContentBlob, Data: []byte("x"), MIME: "Image/PNG; q=1"}, "", false},
		{writ.Content{Kind: writ.ContentBlob, Data: []byte("x"), MIME: "application/pdf"}, "", false},
		{writ.Content{Kind: writ.ContentBlob, Data: []byte("x,y"), MIME: "text/csv"}, "x,y", true},
		{writ.Content{Kind: writ.ContentBlob, Data: []byte{0xff}, MIME: "text/plain"}, "(text/plain, 1 bytes, not shown)", true},
		{writ.Content{Kind: writ.ContentBlob, Data: []byte("x"), Name: "f"}, "(f, unknown type, 1 bytes, not shown)", true},
		{writ.Content{Kind: writ.ContentBlob, MIME: "image/png"}, "(image/png, 0 bytes, not shown)", true},
		{writ.Content{Kind: writ.ContentBlob, Data: make([]byte, maxBlob+1), MIME: "image/png"}, "(image/png, 5242881 bytes, not shown)", true},
	} {
		if got, ok := Plain(&c.in); got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %v", c.in.MIME, got, ok)
		}
	}
	for in, want := range map[string]string{`{"a":1}`: `{"a":1}`, ``: `{}`, `[]`: `{}`, `null`: `{}`, `{`: `{}`} {
		if got := string(Args(json.RawMessage(in))); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}
