package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestHostile: what would be expensive or is no text is one clear error, soon.
func TestHostile(t *testing.T) {
	laughs := "react:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("  a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	merges := "react:\n  a0: &a0 {x: 1}\n"
	for i := 1; i < 70; i++ {
		merges += fmt.Sprintf("  a%d: &a%d {k: *a%d}\n", i, i, i-1)
	}
	var steps strings.Builder
	for i := range 80 {
		steps.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for _, tc := range []struct{ name, text, want string }{
		{"nul", "react: \x00\n", "1:8: control character U+0000 in the file (hint: is this a text file?)"},
		{"escape", "a: b\nc: \x1b[31m\n", "2:4: control character U+001B in the file (hint: is this a text file?)"},
		{"not utf-8", "react: \xff\xfe\n", "1:8: the file is not UTF-8 text (hint: save it as UTF-8)"},
		{"utf-16", "\xff\xfer\x00e\x00", "1:1: the file is not UTF-8 text (hint: save it as UTF-8)"},
		{"too large", "a: " + strings.Repeat("x", maxBytes), " the file is larger than 4 MiB (hint: split it into several files in one directory)"},
		{"billion laughs", laughs, "6:47: alias \"a3\" expands the file to more than 100000 values"},
		{"deep aliases", merges, "63:17: nested deeper than 64 levels"},
		{"open brackets", "a: " + strings.Repeat("[", 1_000_000), "1:67: nested deeper than 64 levels"},
		{"open braces", "a: " + strings.Repeat("{a: ", 100), "1:256: nested deeper than 64 levels"},
		{"dashes in a row", strings.Repeat("- ", 100_000), "1:129: nested deeper than 64 levels"},
		{"question marks", strings.Repeat("? ", 100_000), "1:129: nested deeper than 64 levels"},
		{"steps", steps.String(), "65:65: nested deeper than 64 levels"},
		{"anchors in a row", "a: " + strings.Repeat("&a ", 100_000), "1:385: nested deeper than 64 levels"},
		{"tags in a row", "a: " + strings.Repeat("!a ", 100_000), "1:258: nested deeper than 64 levels"},
		{"many keys", manyLines("k%d: v\n", 25_000), " the file has more than 20000 keys (hint: split it into several files in one directory)"},
		{"many values", "a:\n" + strings.Repeat("- x\n", 150_000), " the file has more than 100000 values (hint: split it into several files in one directory)"},
		{"colons", strings.Repeat(": ", 150_000), " the file has more than 20000 keys (hint: split it into several files in one directory)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			cfg, report := Parse("writ.yaml", []byte(tc.text), ".")
			if cfg != nil || report.OK() {
				t.Fatal("it loads")
			}
			if got := strings.TrimPrefix(report.Errors[0].String(), "writ.yaml:"); got != tc.want || len(report.Errors) != 1 {
				t.Errorf("%d errors, first: %s\nwant: %s", len(report.Errors), got, tc.want)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func manyLines(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestForms: the same values, however they are written, at the right places.
func TestForms(t *testing.T) {
	for name, text := range map[string]string{
		"plain":           "react:\n  max_rounds: 3\n  additional_instructions: |\n    a\n    b\n",
		"byte order mark": "\ufeffreact:\n  max_rounds: 3\n  additional_instructions: |\n    a\n    b\n",
		"crlf":            "react:\r\n  max_rounds: 3\r\n  additional_instructions: |\r\n    a\r\n    b\r\n",
		"cr":              "react:\r  max_rounds: 3\r  additional_instructions: |\r    a\r    b\r",
		"document marks":  "---\nreact:\n  max_rounds: 3\n  additional_instructions: |\n    a\n    b\n...\n",
		"directive":       "%YAML 1.2\n---\nreact:\n  max_rounds: 3\n  additional_instructions: |\n    a\n    b\n",
		"json":            `{"react": {"max_rounds": 3, "additional_instructions": "a\nb\n"}}`,
		"under config":    "config:\n  react: {max_rounds: 3, additional_instructions: \"a\\nb\\n\"}\n",
		"anchors":         "react:\n  default: &d {max_rounds: 3, additional_instructions: \"a\\nb\\n\"}\n  default_agent: *d\n",
		"merge key":       "react:\n  default: &d {max_rounds: 7, additional_instructions: \"a\\nb\\n\"}\n  default_agent: {<<: *d, max_rounds: 3}\n",
		"string tag":      "react:\n  max_rounds: 3\n  additional_instructions: !!str \"a\\nb\\n\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, report := Parse("f", []byte(text), ".")
			if !report.OK() {
				t.Fatal(report.Err())
			}
			sep, agents := "\n", "surfaces: {as_consumer: {agents: {main: }}}\n"
			switch name {
			case "json":
				text, sep = strings.TrimSuffix(text, "}"), ", "
				agents = `"surfaces": {"as_consumer": {"agents": {"main": {}}}}}`
			case "document marks":
				text = strings.TrimSuffix(text, "...\n")
			}
			cfg, report := Parse("f", []byte(text+sep+agents), ".")
			if cfg == nil {
				t.Fatal(report.Err())
			}
			a := agent(t, cfg, "main")
			if a.MaxRounds != 3 || strings.TrimRight(a.Instructions, "\n") != "a\nb" {
				t.Errorf("max_rounds %d, instructions %q", a.MaxRounds, a.Instructions)
			}
		})
	}
}

// TestPositions: lines and columns count characters, whatever stands before.
func TestPositions(t *testing.T) {
	const text = "# ü\nreact:\n  profile: 'é'\n  additional_instructions: \"two\n    lines\"\n  dialect: nope\n  default: {profile: ü, dialect: 'no'}\n"
	_, report := Parse("writ.yaml", []byte(text), ".")
	const want = "6:12: react.dialect cannot be \"nope\" (hint: one of channel, native)\n" +
		"7:34: react.default.dialect cannot be \"no\" (hint: one of channel, native)\n"
	if got := lines(report.Errors); got != want {
		t.Errorf("got:\n%s", got)
	}
	crlf := strings.ReplaceAll(text, "\n", "\r\n")
	if _, other := Parse("writ.yaml", []byte("\ufeff"+crlf), "."); lines(other.Errors) != want {
		t.Errorf("with CRLF:\n%s", lines(other.Errors))
	}
}

// FuzzParse: no text makes loading panic, a configuration comes if and only if there are no errors, and every problem
// has a place in the file.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "react: {{x: y}}\n", "a: &a [*a]\n", "react:\n  <<: [*x, {a: b}]\n", "? a\n: b\n",
		"react: {max_rounds: 3, subagents: {models: {a: {model: b}}}}\nsurfaces: {as_consumer: {agents: {a: {tools: [{kind: go, alias: g}]}}}}\n",
		"mcp: {services: {a: {command: x, env: {A: '${B}'}}}}\n", "config: {react: }\n", "--- |\n x\n", "a: !!str 5\n", "- - -\n", "%T\n", "a: >-\n  b\n",
		"surfaces: {as_consumer: {agents: {a: {tools: [{kind: named_service, alias: n, namespaces: {m: {allowed: ['*'], tool_traits: {get_object: {strategy: neutral}}}}}]}}}}"} {
		f.Add(seed)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		start := time.Now()
		cfg, report := Parse("f", []byte(text), dir)
		if (cfg != nil) != report.OK() {
			t.Fatalf("config %v, errors %v", cfg != nil, report.Errors)
		}
		rows := strings.Count(strings.ReplaceAll(text, "\r\n", "\n"), "\n") + strings.Count(text, "\r") + 1
		for _, p := range append(report.Errors, report.Warnings...) {
			if p.File != "f" || p.Line < 0 || p.Line > rows || p.Line > 0 && p.Column < 1 || p.Message == "" {
				t.Errorf("problem without a place: %+v", p)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
		if cfg == nil {
			return
		}
		for _, id := range cfg.Agents() {
			a, err := cfg.Agent(id)
			if err != nil || len(a.Digest) != 64 {
				t.Errorf("agent %q: %v", id, err)
			}
		}
	})
}
