package schema

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestInvalidSaysWhereAndWhy(t *testing.T) {
	var c Cache
	s, err := c.Schema(json.RawMessage(`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"integer","maximum":9},"b":{"type":"array","items":{"enum":["x"]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for params, want := range map[string]string{
		`{"a":1}`:                     "",
		`{"a":9.0}`:                   "",
		`{}`:                          "/: missing property 'a'",
		`{"a":"1"}`:                   "/a: got string, want integer",
		`{"a":1,"z":2}`:               "/: additional properties 'z' not allowed",
		`{"a":10}`:                    "/a: maximum: got 10, want 9",
		`{"a":1,"b":["x","y"]}`:       "/b/1: value must be 'x'",
		`[1]`:                         "/: got array, want object",
		`{"a":`:                       "the arguments are not valid JSON: unexpected EOF",
		`{"a":123456789012345678901}`: "/a: maximum: got 1.2345678901234568×10²⁰, want 9",
	} {
		if got := s.Invalid(json.RawMessage(params)); got != want {
			t.Errorf("%s: %q, want %q", params, got, want)
		}
	}
}

func TestCompileRefusesWhatItCannotUse(t *testing.T) {
	var c Cache
	for _, raw := range []string{`{`, `5`, `{"type":"nope"}`, `{"$ref":"https://example.com/x.json"}`, `{"$ref":"file:///etc/passwd"}`} {
		s, err := c.Schema(json.RawMessage(raw))
		if err == nil {
			err = s.Compile()
		}
		if err == nil {
			t.Errorf("%s compiled", raw)
		}
		if s != nil && s.Invalid(json.RawMessage(`{}`)) == "" {
			t.Errorf("%s: arguments passed a schema that cannot be used", raw)
		}
	}
	s, err := c.Schema(json.RawMessage(`{"$ref":"file:///etc/passwd"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compile(); err == nil || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("a file reference: %v", err)
	}
	a, err := c.Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := c.Schema(nil); a != b {
		t.Error("the same text was compiled twice")
	}
	if got := a.Invalid(json.RawMessage(`{"anything":true}`)); got != "" {
		t.Errorf("any object: %s", got)
	}
}
