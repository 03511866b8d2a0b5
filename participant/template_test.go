package participant

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		text       string
		static     bool
		parameters string
	}{
		{"account:main", true, ""},
		{"account:{id}", false, "id"},
		{"{id}", false, "id"},
		{"{to.address}/{to.name}-{box}", false, "box to"},
		{"größe {a-b_C}", false, "a-b_C"},
		{"{a.b.c.d.e.f.g.h}", false, "a"},
		{strings.Repeat("a", 4096), true, ""},
	} {
		got, err := ParseTarget(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got.Static() != c.static || strings.Join(got.Parameters(), " ") != c.parameters || got.String() != c.text {
			t.Errorf("%q: static %v, parameters %v, %q", c.text, got.Static(), got.Parameters(), got)
		}
	}
}

func TestParseTargetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "empty",
		" \t":                           "empty",
		"a:{{id}}":                      "write single braces",
		"a:{id}}":                       "write single braces",
		"a:{":                           "no closing one",
		"a:{id":                         "no closing one",
		"a:{i{d}":                       "no closing one",
		"a:id}":                         "no opening one",
		"a:}{id}":                       "no opening one",
		"{}":                            "names no argument",
		"{ id }":                        "names no argument",
		"{a..b}":                        "names no argument",
		"{.a}":                          "names no argument",
		"{a.b.c.d.e.f.g.h.i}":           "more than 8 parts",
		"a\nb":                          "control characters",
		"a\xff":                         "control characters",
		strings.Repeat("a", 4096) + "b": "more than 4096 bytes",
	} {
		_, err := ParseTarget(text)
		var f *Fault
		if !errors.As(err, &f) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
}

func TestRender(t *testing.T) {
	const args = `{"s":"a b","n":7,"f":1.50,"e":1E+2,"small":25e-3,"zero":-0.0,"big":123456789012345678901234567890,
		"neg":-12.0,"t":true,"deep":{"x":{"y":"z"}},"dot.ted":"no","dot":{"ted":"yes"},"uni":"\u00e9","long":1e399,"tiny":1e-401}`
	for text, want := range map[string]string{
		"plain":           "plain",
		"{s}":             "a b",
		"a:{n}":           "a:7",
		"{f}|{e}|{small}": "1.5|100|0.025",
		"{zero}|{neg}":    "0|-12",
		"{big}":           "123456789012345678901234567890",
		"{t}:{deep.x.y}":  "true:z",
		"{dot.ted}":       "yes",
		"{uni}{uni}":      "éé",
		"{long}":          "1" + strings.Repeat("0", 399),
		"{tiny}":          "0." + strings.Repeat("0", 400) + "1",
	} {
		tmpl, err := ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Render(json.RawMessage(args)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestRenderOneTargetOneText: one value written differently is one target.
func TestRenderOneTargetOneText(t *testing.T) {
	tmpl, _ := ParseTarget("a:{id}")
	for _, same := range [][]string{
		{`100`, `100.0`, `1e2`, `1E+2`, `0.1e3`, `10000e-2`},
		{`0`, `-0`, `0.0`, `0e5`, `-0e-9`},
		{`-2.5`, `-25e-1`, `-2.500`},
		{`"x"`, `"\u0078"`},
	} {
		for _, v := range same {
			got, err := tmpl.Render(json.RawMessage(`{"id":` + v + `}`))
			first, _ := tmpl.Render(json.RawMessage(`{"id":` + same[0] + `}`))
			if err != nil || got != first {
				t.Errorf("%s renders %q (%v), %s renders %q", v, got, err, same[0], first)
			}
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct{ text, args, want string }{
		{"{id}", ``, "missing"},
		{"{id}", `{}`, "missing"},
		{"{id}", `{"ID":"secret"}`, "missing"},
		{"{id}", `{"id":null}`, "missing"},
		{"{id}", `{"id":""}`, "empty"},
		{"{id}", `{"id":["secret"]}`, "not a string"},
		{"{id}", `{"id":{"a":"secret"}}`, "not a string"},
		{"{id}", `{"id":"secret","id":"b"}`, "given twice"},
		{"{a.b}", `{"a":{"b":"secret","b":"c"}}`, "given twice"},
		{"{a.b}", `{"a":"secret"}`, "no object"},
		{"{a.b}", `{"a":null}`, "no object"},
		{"{id}", `["secret"]`, "no object"},
		{"{id}", `{"id":"secret"`, "no JSON"},
		{"{id}", `{"id":1e99999}`, "out of range"},
		{"{id}", `{"id":1e401}`, "out of range"},
		{"{id}", `{"id":` + strings.Repeat("9", 401) + `}`, "out of range"},
		{"{id}", `{"id":"` + strings.Repeat("secret", 1000) + `"}`, "more than 4096"},
	} {
		tmpl, err := ParseTarget(c.text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tmpl.Render(json.RawMessage(c.args))
		if err == nil || !strings.Contains(err.Error(), c.want) || got != "" {
			t.Errorf("%s of %.40s: %q, %v; want %q", c.text, c.args, got, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows a value: %v", c.text, err)
		}
	}
	if _, err := (Template{}).Render(nil); err == nil {
		t.Error("the zero template renders")
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"account:{id}", "{a.b}", "{{", "}", "{}", "x", "{a}{b.c}", "é{ü}"} {
		f.Add(s, "v", "w")
	}
	f.Fuzz(func(t *testing.T, text, one, two string) {
		tmpl, err := ParseTarget(text)
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) {
				t.Fatalf("%q: not a fault: %v", text, err)
			}
			return
		}
		if again, err := ParseTarget(tmpl.String()); err != nil || !slices.Equal(again.Parameters(), tmpl.Parameters()) {
			t.Fatalf("%q: read again: %v", text, err)
		}
		render := func(value string) (string, error) {
			args := map[string]any{}
			for _, p := range tmpl.parts {
				in := args
				for i, key := range p.path {
					if i == len(p.path)-1 {
						in[key] = value
						break
					}
					inner, ok := in[key].(map[string]any)
					if !ok {
						inner = map[string]any{}
						in[key] = inner
					}
					in = inner
				}
			}
			b, err := json.Marshal(args)
			if err != nil {
				t.Fatal(err)
			}
			return tmpl.Render(b)
		}
		a, errA := render(one)
		b, errB := render(two)
		if tmpl.Static() {
			if a != text || errA != nil || b != text {
				t.Fatalf("%q is static and renders %q, %q, %v", text, a, b, errA)
			}
			return
		}
		// Different values are different targets; only what JSON cannot carry may fall together.
		if errA == nil && errB == nil && one != two && utf8.ValidString(one) && utf8.ValidString(two) && a == b && len(tmpl.Parameters()) > 0 {
			t.Fatalf("%q: %q and %q render %q", text, one, two, a)
		}
	})
}
