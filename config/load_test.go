package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadDirectory(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{
		"10-agents.yaml": "surfaces: {as_consumer: {agents: {main: {tools: [{kind: python, ref: t.py, allowed: [a]}]}}}}\n",
		"20-react.yml":   "config: {react: {agents: {helper: {max_rounds: 4}}}}\n",
		"30-more.yaml":   "surfaces: {as_consumer: {agents: {helper: , }}}\nreact: {model: anthropic/m}\n",
		"t.py":           "",
		"notes.txt":      "not: [yaml",
		".hidden.yaml":   "not: [yaml",
	})
	cfg, report := Load(dir)
	if cfg == nil {
		t.Fatal(report.Err())
	}
	if len(report.Warnings) != 0 || strings.Join(cfg.Agents(), " ") != "helper main" {
		t.Errorf("agents %v, warnings %v", cfg.Agents(), report.Warnings)
	}
	helper := agent(t, cfg, "helper")
	if helper.MaxRounds != 4 || helper.Model.Model != "m" || helper.Pos.File != filepath.Join(dir, "30-more.yaml") {
		t.Errorf("helper: %d rounds, %v, %v", helper.MaxRounds, helper.Model, helper.Pos)
	}
	if got := conn(t, agent(t, cfg, "main"), "t").Ref; got != filepath.Join(dir, "t.py") {
		t.Errorf("ref %s", got)
	}
}

func TestLoadDirectoryProblems(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{
		"a.yaml": "react: {max_rounds: 1, dialect: nope}\n",
		"b.yaml": "react: {max_rounds: 2}\nsurfaces: {as_consumer: {agents: {main: }}}\n",
		"c.yaml": "surfaces: {as_consumer: {agents: {main: {tools: []}}}}\n",
		"d.yaml": "react: [\n",
	})
	cfg, report := Load(dir)
	var got strings.Builder
	for _, p := range report.Errors {
		got.WriteString(strings.ReplaceAll(p.String(), dir+string(filepath.Separator), "") + "\n")
	}
	const want = `a.yaml:1:33: react.dialect cannot be "nope" (hint: one of channel, native)
b.yaml:1:9: react.max_rounds is set twice, first at a.yaml:1:9 (hint: keep one of them)
c.yaml:1:35: surfaces.as_consumer.agents.main is set twice, first at b.yaml:2:35 (hint: keep one of them)
d.yaml:1:8: invalid yaml: sequence end token ']' not found
`
	if cfg != nil || got.String() != want {
		t.Errorf("got:\n%s", got.String())
	}
}

func TestLoadNothing(t *testing.T) {
	empty := t.TempDir()
	missing := filepath.Join(empty, "none.yaml")
	for path, want := range map[string]string{
		empty:   empty + ": the directory has no *.yaml or *.yml file",
		missing: missing + ": no such file",
	} {
		cfg, report := Load(path)
		if cfg != nil || len(report.Errors) != 1 || report.Errors[0].String() != want {
			t.Errorf("%s: %v", path, report.Errors)
		}
	}
	fifo := filepath.Join(empty, "x.yaml")
	if err := os.Mkdir(fifo, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, report := Load(empty); report.Err() == nil || report.Err().Error() != fifo+": cannot read: not a regular file" {
		t.Errorf("a directory called x.yaml: %v", report.Err())
	}
}

// TestSchemaAccepts: what loads is valid by the schema too.
func TestSchemaAccepts(t *testing.T) {
	compiled := compileSchema(t)
	if !bytes.Equal(Schema(), Schema()) {
		t.Error("the schema differs from call to call")
	}
	texts := map[string]string{
		"react-agent":    read(t, "testdata/react-agent.yaml"),
		"python":         read(t, "testdata/tool-traits-python.yaml"),
		"mcp":            tools(indent(read(t, "testdata/tool-traits-mcp.fragment.yaml"), "          ")),
		"named services": tools(indent(read(t, "testdata/tool-traits-named-service.fragment.yaml"), "          ")),
		"nothing":        "react:\nsurfaces: {as_consumer: {agents: {main: }}}\n",
		"unions": "react: {subagents: true, cache: {selection_change_policy: confirm}, skills: [a], budgets: {a: 1}}\n" +
			"surfaces: {as_consumer: {agents: {main: {tools: [{kind: go, alias: g, allowed: [a], roles: {a: [x]}, claims: {a: [c]}, tool_traits: {a: {strategy: neutral}}}]}}}}\n" +
			"mcp: {services: {a: {command: x, env: {PORT: 8080, DEBUG: true}, timeout: 1h30m}}}\nserver: [a]\n" +
			"behavior_specifications: {a: {crossing_policy: guard}, b: {crossing_policy: {deny: [x]}}}\n",
	}
	for name, text := range texts {
		if _, report := Parse("writ.yaml", []byte(text), "testdata"); !report.OK() {
			t.Errorf("%s does not load: %v", name, report.Err())
		}
	}
	for i, text := range docsExamples(t) { // TestDocsExamplesLoad loads them
		texts[fmt.Sprintf("example %d of the reference", i+1)] = text
	}
	for name, text := range texts {
		if err := compiled.Validate(plainFile(t, []byte(text))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
