package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"writ"
	"writ/trait"
)

// parse loads text that must be valid.
func parse(t *testing.T, text string) (*Config, *Report) {
	t.Helper()
	cfg, report := Parse("writ.yaml", []byte(text), "testdata")
	if cfg == nil {
		t.Fatalf("does not load:\n%v", report.Err())
	}
	return cfg, report
}

func agent(t *testing.T, cfg *Config, id string) *Agent {
	t.Helper()
	a, err := cfg.Agent(id)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func conn(t *testing.T, a *Agent, alias string) *Connection {
	t.Helper()
	c, ok := a.Connection(alias)
	if !ok {
		t.Fatalf("no connection %s", alias)
	}
	return &c
}

func lines(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(strings.TrimPrefix(p.String(), "writ.yaml:") + "\n")
	}
	return b.String()
}

// tools wraps tool connections, indented by ten spaces, into an agent with a model.
func tools(conns string) string {
	return "react: {model: anthropic/m}\nsurfaces:\n  as_consumer:\n    agents:\n      main:\n        tools:\n" + conns
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by) + "\n"
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestArticleAgent(t *testing.T) {
	cfg, report := Load("testdata/react-agent.yaml")
	if cfg == nil {
		t.Fatal(report.Err())
	}
	a := agent(t, cfg, "")
	if a.ID != "main" || !a.Active {
		t.Errorf("agent %q active %v", a.ID, a.Active)
	}
	if want := "[KDCUBE DOC LINKS]\nPresent repo: references as browsable GitHub URLs.\n"; a.Instructions != want {
		t.Errorf("instructions %q", a.Instructions)
	}
	if len(a.SupportedModels) != 2 || a.SupportedModels[1].Label != "Haiku 4.5" {
		t.Errorf("supported models %v", a.SupportedModels)
	}
	if s := a.Subagents; !s.Allowed || s.Visibility != "thread" || s.Model != "strong_agent" || s.MaxRounds != 8 || !s.DefaultOn {
		t.Errorf("subagents %+v", s)
	}
	exec := conn(t, a, "exec_tools")
	if exec.Active || !strings.Contains(exec.Reason, "not provided") {
		t.Errorf("exec_tools active %v: %s", exec.Active, exec.Reason)
	}
	tr := exec.TraitsOf(writ.ToolSpec{Name: "execute_code_python"}, writ.EffectOnce)
	if !tr.Strategy.Only(writ.Exploration|writ.Exploitation) || tr.StrategySource != trait.SourceConfig {
		t.Errorf("exec traits %+v", tr)
	}
	services := conn(t, a, "named_services")
	if ops := services.Namespaces["mail"].Allowed; services.Active || !slices.Contains(ops, "object.host_file") || len(ops) != 6 {
		t.Errorf("named_services: active %v, mail %v", services.Active, ops)
	}
	knowledge := conn(t, a, "knowledge")
	if knowledge.Active || !knowledge.AllowAll {
		t.Errorf("knowledge: active %v, all %v", knowledge.Active, knowledge.AllowAll)
	}
	if tr := knowledge.TraitsOf(writ.ToolSpec{Name: "anything"}, writ.EffectOnce); !tr.Strategy.Only(writ.Exploration) {
		t.Errorf("knowledge traits %+v", tr)
	}
	want := EventSource{Kind: "named_service", Name: "mem", Discovery: "service_discovery", Policies: map[string]EventPolicy{
		"block_production": {"provider", "block.produce"}, "pull": {"provider", "object.get"}}}
	got := a.EventSources[0]
	got.Pos = Pos{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestArticleTraits(t *testing.T) {
	cfg, report := Load("testdata/tool-traits-python.yaml")
	if cfg == nil {
		t.Fatal(report.Err())
	}
	jobs := conn(t, agent(t, cfg, "main"), "workspace_jobs")
	abs, _ := filepath.Abs("testdata/tools/workspace_jobs.py")
	if !jobs.Active || jobs.Ref != abs || jobs.Interpreter != "python3" {
		t.Errorf("%+v", jobs)
	}
	browser, _ := parse(t, tools(indent(read(t, "testdata/tool-traits-mcp.fragment.yaml"), "          "))+
		"mcp: {services: {browser: {command: npx, args: [browser]}}}\n")
	named, _ := parse(t, tools(indent(read(t, "testdata/tool-traits-named-service.fragment.yaml"), "          ")))
	profile, _ := parse(t, tools("          - kind: go\n            alias: g\n            allowed: [launch]\n            tool_traits:\n              launch:\n")+
		indent(strings.TrimPrefix(read(t, "testdata/tool-traits-profile.fragment.yaml"), "tool_traits:\n"), "              "))
	for _, tc := range []struct {
		conn     *Connection
		name     string
		strategy string
		early    bool
	}{
		{jobs, "search", "exploration", false},
		{jobs, "export_report", "exploitation", false},
		{jobs, "launch_background_job", "neutral", true},
		{conn(t, agent(t, browser, ""), "browser"), "open_page", "exploration", false},
		{conn(t, agent(t, browser, ""), "browser"), "click", "exploration, exploitation", false},
		{conn(t, agent(t, browser, ""), "browser"), "close", "neutral", false},
		{conn(t, agent(t, named, ""), "named_services"), "search_objects", "exploration", false},
		{conn(t, agent(t, named, ""), "named_services"), "upsert_object", "exploitation", false},
		{conn(t, agent(t, named, ""), "named_services"), "get_object", "unknown", false},
		{conn(t, agent(t, profile, ""), "g"), "launch", "neutral", true},
	} {
		tr := tc.conn.TraitsOf(writ.ToolSpec{Name: tc.name}, writ.EffectOnce)
		if tr.Strategy.String() != tc.strategy || tr.Early() != tc.early {
			t.Errorf("%s.%s: %s, early %v", tc.conn.Alias, tc.name, tr.Strategy, tr.Early())
		}
	}
}

// TestTrust: a server's word about its tools counts only where the administrator says so; a namespace's own traits
// replace the connection's.
func TestTrust(t *testing.T) {
	cfg, _ := parse(t, tools(`          - {kind: mcp, server_id: s, alias: plain, allowed: [a]}
          - {kind: mcp, server_id: s, alias: traits, allowed: [a], trust_traits: true}
          - {kind: mcp, server_id: s, alias: notes, allowed: [a], trust_annotations: true}
          - {kind: go, alias: g, allowed: [a]}
          - kind: named_service
            alias: n
            namespaces: {mem: {allowed: [object.upsert], tool_traits: {upsert_object: {strategy: neutral}}}, cnv: {allowed: [object.upsert]}}
            tool_traits: {upsert_object: {strategy: exploitation}}
`)+"mcp: {services: {s: {command: x}}}\n")
	neutral := writ.Neutral
	spec := writ.ToolSpec{Name: "a", Declared: &writ.DeclaredTraits{Strategy: &neutral}, Hints: &writ.ToolHints{ReadOnly: true}}
	a := agent(t, cfg, "")
	for alias, want := range map[string]string{"plain": "unknown", "traits": "neutral", "notes": "exploration", "g": "neutral"} {
		if got := conn(t, a, alias).TraitsOf(spec, writ.EffectOnce).Strategy.String(); got != want {
			t.Errorf("%s: %s", alias, got)
		}
	}
	if n := conn(t, a, "n"); !n.Allows("upsert_object") || n.Allows("get_object") || n.Allows("object.upsert") {
		t.Error("the ceiling of a named service is not that of its operations")
	}
	for ns, want := range map[string]string{"mem": "neutral", "cnv": "exploitation", "none": "exploitation"} {
		if got := conn(t, a, "n").TraitsIn(ns, writ.ToolSpec{Name: "upsert_object"}, writ.EffectOnce).Strategy.String(); got != want {
			t.Errorf("%s: %s", ns, got)
		}
	}
}

func TestPrecedence(t *testing.T) {
	const text = `
react:
  max_rounds: 1
  max_repairs: 1
  max_actions_per_round: 1
  max_concurrent_actions: 1
  max_result_chars: 1
  default: {max_rounds: 2, max_repairs: 2, max_actions_per_round: 2, max_concurrent_actions: 2}
  default_agent: {max_rounds: 3, max_repairs: 3, max_actions_per_round: 3}
  my_agent_1: {max_rounds: 4, max_repairs: 4}
  agents:
    my_agent_1: {max_rounds: 5, max_repairs: 5, tool_timeout: 5s}
    my.agent-1: {max_rounds: 6}
    default: {start_within: 6s}
surfaces: {as_consumer: {agents: {my.agent-1: , other: }}}
`
	cfg, _ := parse(t, text)
	a := agent(t, cfg, "my.agent-1")
	got := map[string]string{}
	for _, p := range a.Provenance {
		if p.Block != builtIn {
			got[p.Key] = fmt.Sprintf("%s from %s at %d", p.Value, p.Block, p.Pos.Line)
		}
	}
	want := map[string]string{
		"max_rounds":             "6 from react.agents.my.agent-1 at 13",
		"max_repairs":            "4 from react.my_agent_1 at 10",
		"tool_timeout":           "5s from react.agents.my_agent_1 at 12",
		"max_actions_per_round":  "3 from react.default_agent at 9",
		"max_concurrent_actions": "2 from react.default at 8",
		"start_within":           "6s from react.agents.default at 14",
		"max_result_chars":       "1 from react at 7",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a.MaxRounds != 6 || a.ToolTimeout != 5*time.Second || agent(t, cfg, "other").MaxRounds != 3 {
		t.Error("the values are not those of the blocks")
	}
	for i := 1; i < len(a.Provenance); i++ {
		if a.Provenance[i-1].Key >= a.Provenance[i].Key {
			t.Errorf("provenance is not sorted at %s", a.Provenance[i].Key)
		}
	}
}

func TestSubagentsMergeByKey(t *testing.T) {
	cfg, _ := parse(t, `
react:
  subagents: {allowed: true, max_rounds: 9, visibility: thread, models: {mine: {model: a, class: strong}, fast_agent: {caption: quick}}}
  agents:
    main: {subagents: false}
    other: {subagents: {enabled: true, max_rounds: 3, model: mine, models: {mine: {model: b}}}}
surfaces: {as_consumer: {agents: {main: , other: }}}
`)
	if s := agent(t, cfg, "main").Subagents; s.Allowed || s.MaxRounds != 9 || s.Visibility != "thread" {
		t.Errorf("main: %+v", s)
	}
	s := agent(t, cfg, "other").Subagents
	want := SubagentModel{ModelRef{Provider: "anthropic", Model: "b"}, "strong", ""}
	if !s.Allowed || s.MaxRounds != 3 || s.Visibility != "thread" || s.Model != "mine" || s.Models["mine"] != want {
		t.Errorf("other: %+v", s)
	}
	if s.Models["fast_agent"].Caption != "quick" || s.Models["fast_agent"].Model == "" || s.Models["strong_agent"].Class != "strong" {
		t.Errorf("shipped aliases: %+v", s.Models)
	}
}

func TestDefaults(t *testing.T) {
	cfg, _ := parse(t, "surfaces: {as_consumer: {agents: {main: }}}\n")
	a := agent(t, cfg, "")
	got := []any{a.Dialect, a.MaxRounds, a.MaxRepairs, a.MaxActionsPerRound, a.MaxConcurrentActions, a.MaxResultChars,
		a.StartWithin, a.ToolTimeout, a.OnRefusal, a.OnUnknown, a.StopOnFailure, a.EventPipeline, a.Active, a.Subagents.Allowed}
	want := []any{writ.Channel, 15, 2, 8, 4, 12000, 10 * time.Second, time.Minute, RefusalStop, UnknownQuarantine, false, true, true, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(CachePolicy{"confirm", "confirm", []string{"accept", "confirm", "defer_cold", "defer_conversation"}}, a.Cache); diff != "" {
		t.Error(diff)
	}
}

// TestDefaultsAreTold: the default that a shape tells editors is the one that holds.
func TestDefaultsAreTold(t *testing.T) {
	cfg, _ := parse(t, "surfaces: {as_consumer: {agents: {main: }}}\n")
	compared := 0
	for _, p := range agent(t, cfg, "").Provenance {
		sf, ok := shapeFields(blockType)[p.Key]
		told := sf.Tag.Get("default")
		if !ok || told == "" {
			continue
		}
		compared++
		if d, err := time.ParseDuration(told); err == nil && told != "0" && strings.ContainsAny(told, "smh") {
			told = d.String()
		}
		if told != p.Value || p.Block != builtIn {
			t.Errorf("%s: the shape tells %s, %s is %s", p.Key, told, p.Block, p.Value)
		}
	}
	if compared < 10 {
		t.Errorf("compared %d defaults", compared)
	}
}

func TestModels(t *testing.T) {
	cfg, _ := parse(t, `
models:
  providers:
    local: {kind: openai_chat, base_url: 'http://localhost:11434/v1'}
    anthropic: {api_key: 'file:keys/a'}
  prices: {anthropic/m: {input: 3, output: 15.5}}
react:
  role_models: {solver.react.v2.decision.v2.strong: {provider: local, model: big}, summary: {model: small}}
  agents:
    b: {model: local/x/y}
    c: {model: 'recorded:tools/workspace_jobs.py'}
surfaces: {as_consumer: {agents: {a: , b: , c: }}}
`)
	for id, want := range map[string]string{"a": "local/big", "b": "local/x/y", "c": "recorded:tools/workspace_jobs.py"} {
		if got := agent(t, cfg, id).Model.String(); got != want {
			t.Errorf("model of %s: %s", id, got)
		}
	}
	a := agent(t, cfg, "a")
	if a.ModelFor("summary").String() != "anthropic/small" || a.ModelFor("other") != a.Model {
		t.Errorf("roles: %v", a.RoleModels)
	}
	if p := cfg.Models.Prices["anthropic/m"]; p.Input != 3 || p.Output != 15.5 {
		t.Errorf("price %+v", p)
	}
	local, ok := cfg.Models.Provider("local")
	if !ok || !local.APIKey.IsZero() || local.Kind != "openai_chat" {
		t.Errorf("local %+v", local)
	}
	implied, ok := cfg.Models.Provider("openai")
	if !ok || implied.APIKey.String() != "${OPENAI_API_KEY}" {
		t.Errorf("implied %+v", implied)
	}
	if named, _ := cfg.Models.Provider("anthropic"); named.Kind != "anthropic" || named.APIKey.String() != "file:keys/a" {
		t.Errorf("anthropic %+v", named)
	}
}

func TestLimitsFor(t *testing.T) {
	cfg, _ := parse(t, tools(`          - kind: go
            alias: g
            allowed: [a, b]
            timeout: 5s
            limits: {'*': {concurrency: 2, timeout: 4s}, a: {timeout: 3s, retries: 1}}
            tool_traits: {a: {effect: idempotent}}
          - {kind: go, alias: h, allowed: [a], timeout: 7s}
          - {kind: go, alias: i, allowed: [a]}
`))
	a := agent(t, cfg, "")
	for _, tc := range []struct {
		alias, name string
		want        Limits
	}{
		{"g", "a", Limits{writ.ToolLimits{Timeout: 3 * time.Second, Concurrency: 2}, 1}},
		{"g", "b", Limits{writ.ToolLimits{Timeout: 4 * time.Second, Concurrency: 2}, 0}},
		{"h", "a", Limits{writ.ToolLimits{Timeout: 7 * time.Second}, 0}},
		{"i", "a", Limits{writ.ToolLimits{Timeout: time.Minute}, 0}},
	} {
		if got := conn(t, a, tc.alias).LimitsFor(tc.name); got != tc.want {
			t.Errorf("%s.%s: %+v", tc.alias, tc.name, got)
		}
	}
}

// TestFailClosed: what this version cannot enforce takes the tool away, never the check.
func TestFailClosed(t *testing.T) {
	cfg, report := parse(t, tools(`          - kind: go
            alias: g
            allowed: [a, b, c, d]
            approval: {'*': always, d: never}
            claims: {b: [mail.send], d: }
          - kind: go
            alias: h
            allowed: [a, b]
            roles: {a: [admin]}
            approval: {b: never}
          - {kind: go, alias: i, allowed: [a], roles: [admin]}
`))
	a := agent(t, cfg, "")
	for tool, want := range map[string]string{
		"g.a": "",
		"g.b": "claims are not provided by this version",
		"g.d": "",
		"g.x": "not in allowed",
		"h.a": "roles are not provided by this version",
		"h.b": "",
		"i.a": "roles are not provided by this version",
	} {
		alias, name, _ := strings.Cut(tool, ".")
		active, reason := conn(t, a, alias).ToolActive(name)
		if active != (want == "") || reason != want {
			t.Errorf("%s: active %v, %q", tool, active, reason)
		}
	}
	for tool, want := range map[string]ApprovalMode{"g.a": ApprovalAlways, "g.d": ApprovalNever, "h.a": ApprovalNever} {
		alias, name, _ := strings.Cut(tool, ".")
		if got := conn(t, a, alias).ApprovalFor(name); got != want {
			t.Errorf("%s: approval %s", tool, got)
		}
	}
	const want = `11:22: tool g.b is inactive: claims are not provided by this version
15:21: tool h.a is inactive: roles are not provided by this version
17:55: connection i is inactive: roles are not provided by this version
`
	if got := lines(report.Warnings); got != want {
		t.Errorf("warnings:\n%s", got)
	}

	cfg, _ = parse(t, "react: {model: anthropic/m}\nsurfaces: {as_consumer: {agents: {main: {roles: [x], tools: [{kind: go, alias: g, allowed: [a]}]}}}}\n")
	if a := agent(t, cfg, ""); a.Active || conn(t, a, "g").Active {
		t.Error("an agent with roles is active")
	}
	cfg, _ = parse(t, "react: {model: anthropic/m, roles: [x]}\nsurfaces: {as_consumer: {agents: {main: {tools: [{kind: go, alias: g, allowed: [a]}]}}}}\n")
	if a := agent(t, cfg, ""); a.Active || conn(t, a, "g").Active {
		t.Error("an agent with roles in react is active")
	}
}

func TestWarnings(t *testing.T) {
	const early = "{trigger: tool_call_complete, concurrency: parallel_with_generation, result_dependency: detached, replay: at_most_once_per_round}"
	_, report := parse(t, tools(`          - kind: python
            ref: tools/workspace_jobs.py
            interpreter: '${PYTHON}'
            tool_traits:
              '*': {strategy: neutral, execution: `+early+`}
              search: {strategy: [exploration, neutral]}
              write: {strategy: exploitation, effect: none}
              launch: {execution: {trigger: Tool_Call_Complete }, strategy: ' Neutral '}
              odd: {strategy: [unknown, neutral], effect: idempotent, execution: {replay: at_most_once_per_round}}
              fine: {effect: none}
          - {kind: mcp, server_id: knowlege, allowed: [a, b], tool_traits: {'*': {strategy: exploration}}}
          - {kind: named_service, alias: h, namespaces: {mem: {allowed: [object.get]}}}
          - {kind: python, module: a.b.mod}
`)+"mcp: {services: {knowledge: {url: 'http://h'}}}\nserver: {port: 1}\nmodels: {providers: {anthropic: {api_key: sk-1}}}\n")
	const want = `7:13: workspace_jobs has no allowed: every tool it has may be called (hint: list the tools the agent needs)
9:26: surfaces.as_consumer.agents.main.tools[0].interpreter is taken as written: ${…} is not replaced here (hint: references work in env, headers and api_key)
11:15: workspace_jobs.tool_traits: '*' gives every tool the same traits (hint: name the tools unless all of them truly behave alike)
11:51: workspace_jobs.tool_traits.*: starts early with effect once, so a lost answer stays unknown and nothing repeats the call (hint: make sure it deduplicates by the idempotency key, or declare its effect)
12:15: workspace_jobs.tool_traits.search: a mixed tool (exploration, neutral) never starts early; early: false (hint: leave execution out)
13:15: workspace_jobs.tool_traits.write: only a neutral tool starts early and this one is exploitation; early: false (hint: leave execution out)
14:35: workspace_jobs.tool_traits.launch: the execution profile is incomplete; early: false (hint: set concurrency, result_dependency, replay too)
15:31: workspace_jobs.tool_traits.odd: unknown beside other strategies: the tool runs alone (hint: leave unknown out)
15:82: workspace_jobs.tool_traits.odd: the execution profile is incomplete; early: false (hint: set trigger, concurrency, result_dependency too)
17:36: connection knowlege is inactive: mcp.services has no entry "knowlege" (hint: did you mean knowledge?)
17:77: knowlege.tool_traits: '*' gives 2 tools the same traits (hint: name the tools unless all of them truly behave alike)
18:20: connection h is inactive: kind named_service is not provided by this version
19:36: connection mod is inactive: module a.b.mod is not provided by this version
21:1: server is not provided by this version yet
22:43: models.providers.anthropic.api_key stands in the file itself (hint: write ${VAR} or file:PATH)
`
	if got := lines(report.Warnings); got != want {
		t.Errorf("warnings:\n%s\nwant:\n%s", got, want)
	}
}

func TestHTTPConnection(t *testing.T) {
	const text = `
react: {model: anthropic/m}
mcp: {services: {far: {url: 'https://mcp.example.com/mcp', headers: {Authorization: 'Bearer ${TOKEN}'}}}}
surfaces:
  as_consumer:
    agents:
      main:
        tools:
          - kind: http
            alias: shop
            spec: api/shop.yaml
            url: https://shop.example.com/v1
            headers: {Authorization: "Bearer ${SHOP_TOKEN}"}
            allow_private: [10.1.0.0/16, "::1", cache.internal]
            allowed: [listOrders]
          - {kind: mcp, server_id: far, allowed: [search]}
`
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "api"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"api/shop.yaml": "openapi: 3.1.0\n"})
	cfg, report := Parse("writ.yaml", []byte(text), dir)
	if cfg == nil || len(report.Warnings) != 0 {
		t.Fatalf("%v\n%s", report.Err(), lines(report.Warnings))
	}
	a := agent(t, cfg, "")
	c := conn(t, a, "shop")
	if !c.Active || c.Spec != filepath.Join(dir, "api", "shop.yaml") || c.URL != "https://shop.example.com/v1" ||
		!slices.Equal(c.AllowPrivate, []string{"10.1.0.0/16", "::1", "cache.internal"}) {
		t.Errorf("%+v", c)
	}
	if got, err := c.Headers["Authorization"].Resolve(func(string) (string, bool) { return "s3", true }); got != "Bearer s3" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if far := conn(t, a, "far"); !far.Active || !far.Service.Remote() {
		t.Errorf("%+v", far)
	}
	if e := string(a.Effective()); !strings.Contains(e, `"spec":"api/shop.yaml"`) || strings.Contains(e, dir) {
		t.Errorf("effective: %s", e)
	}
	warned := lines(cfg.CheckSecrets(func(string) (string, bool) { return "", false }))
	for _, want := range []string{"shop.headers.Authorization: environment variable SHOP_TOKEN is not set", "mcp.services.far.headers.Authorization"} {
		if !strings.Contains(warned, want) {
			t.Errorf("%q is missing in\n%s", want, warned)
		}
	}
}

func TestAskingForAnAgent(t *testing.T) {
	two, _ := parse(t, "surfaces: {as_consumer: {agents: {main: , helper: }}}\n")
	none, _ := parse(t, "react: {}\n")
	named, _ := parse(t, "surfaces: {as_consumer: {default_agent: helper, agents: {main: , helper: }}}\n")
	for _, tc := range []struct {
		cfg      *Config
		id, want string
	}{
		{two, "mian", `no agent "mian" is declared under surfaces.as_consumer.agents (hint: did you mean main?)`},
		{two, "zzz", `no agent "zzz" is declared under surfaces.as_consumer.agents (hint: one of helper, main)`},
		{two, "", "several agents are declared and none is the default (hint: name one, or set surfaces.as_consumer.default_agent)"},
		{none, "", "no agent is declared (hint: declare one under surfaces.as_consumer.agents)"},
	} {
		if _, err := tc.cfg.Agent(tc.id); err == nil || err.Error() != tc.want {
			t.Errorf("Agent(%q): %v", tc.id, err)
		}
	}
	if a := agent(t, named, ""); a.ID != "helper" {
		t.Errorf("default agent is %s", a.ID)
	}
}

func TestEffective(t *testing.T) {
	const one = `
react: {model: anthropic/m, agents: {main: {max_rounds: 3}}}
surfaces:
  as_consumer:
    agents:
      main:
        tools:
          - {kind: mcp, server_id: s, allowed: [b, a]}
          - {kind: python, ref: tools/workspace_jobs.py, allowed: [search], env: {KEY: '${KEY}', WORD: hunter2}}
mcp: {services: {s: {url: 'https://h', headers: {Authorization: 'Bearer ${T}'}}}}
`
	const two = `
config:
  mcp: {services: {s: {headers: {Authorization: 'Bearer ${T}'}, url: 'https://h'}}}
  surfaces:
    as_consumer:
      agents:
        main:
          tools:
            - {kind: python, env: {WORD: hunter2, KEY: '${KEY}'}, ref: tools/workspace_jobs.py, allowed: [search]}
            - {kind: mcp, server_id: s, allowed: [a, b]}
  react: {main: {max_rounds: 3}, model: anthropic/m}
`
	first, _ := parse(t, one)
	second, _ := parse(t, two)
	a, b := agent(t, first, ""), agent(t, second, "")
	if diff := cmp.Diff(string(a.Effective()), string(b.Effective())); diff != "" || a.Digest != b.Digest || len(a.Digest) != 64 {
		t.Errorf("equal configurations differ: %s", diff)
	}
	text := string(a.Effective())
	here, _ := filepath.Abs(".")
	for _, bad := range []string{"hunter2", "Bearer", here, "testdata"} {
		if strings.Contains(text, bad) {
			t.Errorf("the effective form has %s: %s", bad, text)
		}
	}
	for _, good := range []string{`"KEY":"${KEY}"`, `"WORD":"(literal)"`, `"Authorization":"${T}"`, `"allowed":["a","b"]`, `"ref":"tools/workspace_jobs.py"`} {
		if !strings.Contains(text, good) {
			t.Errorf("the effective form lacks %s: %s", good, text)
		}
	}
	third, _ := parse(t, strings.Replace(one, "max_rounds: 3", "max_rounds: 4", 1))
	if agent(t, third, "").Digest == a.Digest {
		t.Error("another limit gives the same digest")
	}
}

func TestCheckAllowed(t *testing.T) {
	cfg, _ := parse(t, tools("          - {kind: mcp, server_id: s, allowed: [serch, read], limits: {'*': {concurrency: 1}}}\n")+
		"mcp: {services: {s: {command: x}}}\n")
	const want = "7:49: s does not list the tool \"serch\" (hint: did you mean search?)\n"
	if got := lines(CheckAllowed(conn(t, agent(t, cfg, ""), "s"), []string{"read", "search"})); got != want {
		t.Errorf("%s", got)
	}
}

func TestSafeID(t *testing.T) {
	for id, want := range map[string]string{"my.agent-1": "my_agent_1", "a--b..c": "a_b_c", ".x.": "x", "ü": "", "plain": "plain"} {
		if got := safeID(id); got != want {
			t.Errorf("safeID(%q) = %q", id, got)
		}
	}
}
