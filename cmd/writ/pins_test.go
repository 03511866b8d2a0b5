package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/config"
	"writ/runtime"
)

func TestPins(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "writ.yaml")
	if err := os.WriteFile(file, []byte("mcp: {services: {s: {command: x}}}\nsurfaces: {as_consumer: {default_agent: a, agents: {a: {tools: [{kind: mcp, server_id: s, allowed: [one, two, three]}]}}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, report := config.Load(file)
	if !report.OK() {
		t.Fatal(report.Err())
	}
	agent, err := cfg.Agent("")
	if err != nil {
		t.Fatal(err)
	}
	offers := func(defs map[string]string) []runtime.Connection {
		var l listed
		for _, name := range sortedKeys(defs) {
			l.specs = append(l.specs, writ.ToolSpec{Name: name, Definition: defs[name]})
		}
		return []runtime.Connection{{Config: agent.Connections[0], Tools: l}}
	}
	a := &app{ctx: t.Context()}
	p, err := loadPins(file)
	if err != nil || len(p) != 0 {
		t.Fatalf("%v %v", p, err)
	}
	usable := func(defs map[string]string) (ids []string, problems string) {
		conns := offers(defs)
		conns[0].Pins = p["s"]
		built, err := runtime.Build(t.Context(), agent, conns)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range built.Tools() {
			ids = append(ids, tool.ID)
		}
		for _, pr := range built.Problems {
			problems += pr.Tool + ": " + pr.Message + "\n"
		}
		return ids, problems
	}
	same := func(got, want any) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	ids, _ := usable(map[string]string{"one": "d1", "two": "d2"})
	same(ids, []string{"s.one", "s.two"}) // not pinned: as before

	same(p.accept(offers(map[string]string{"one": "d1", "two": "d2", "hidden": "x"}), a.definitions), []string{"s.one: accepted", "s.two: accepted"})
	if err := p.save(file); err != nil {
		t.Fatal(err)
	}
	if p, err = loadPins(file); err != nil {
		t.Fatal(err)
	}
	ids, problems := usable(map[string]string{"one": "d1", "two": "changed", "three": "new"})
	same(ids, []string{"s.one"})
	if !strings.Contains(problems, "s.two: its definition changed") || !strings.Contains(problems, "s.three: it is new") {
		t.Error(problems)
	}
	same(p.accept(offers(map[string]string{"two": "changed"}), a.definitions), []string{"s.two: its new definition is accepted"})
	ids, _ = usable(map[string]string{"two": "changed"})
	same(ids, []string{"s.two"})

	// What is not offered now, or to this agent, stays accepted.
	same(p["s"]["one"], "d1")

	// A server that cannot be listed takes nothing back.
	same(len(p.accept(offers(nil), a.definitions)), 0)
	same(p["s"]["two"], "changed")

	if err := os.WriteFile(pinsPath(file), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadPins(file); err == nil || !strings.Contains(err.Error(), pinsName) {
		t.Errorf("a damaged file: %v", err)
	}
}
