package trait

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"writ"
)

func ptr[T any](v T) *T { return &v }

func TestResolve(t *testing.T) {
	declared := &writ.DeclaredTraits{Strategy: ptr(writ.Neutral), Execution: ptr(writ.EarlyProfile)}
	readOnly, writes := &writ.ToolHints{ReadOnly: true}, &writ.ToolHints{}
	type want struct {
		strategy, strategySource, executionSource string
		early                                     bool
		effect                                    writ.Effect
	}
	for _, tc := range []struct {
		name     string
		declared *writ.DeclaredTraits
		hints    *writ.ToolHints
		trust    bool
		configs  map[string]Config
		effect   writ.Effect
		want     want
	}{
		{"nothing is unknown", nil, nil, true, nil, 0, want{"unknown", "default", "default", false, writ.EffectOnce}},
		{"annotations need trust", nil, readOnly, false, nil, 0, want{"unknown", "default", "default", false, 0}},
		{"read-only explores", nil, readOnly, true, nil, 0, want{"exploration", "annotations", "default", false, 0}},
		{"anything else exploits", nil, writes, true, nil, 0, want{"exploitation", "annotations", "default", false, 0}},
		{"declared beats annotations", declared, writes, true, nil, 0, want{"neutral", "declared", "declared", true, 0}},
		{"star beats declared, key by key", declared, nil, false, map[string]Config{Any: {Strategy: ptr(writ.Exploration)}}, 0,
			want{"exploration", "config", "declared", false, 0}},
		{"the name beats star, key by key", nil, nil, false, map[string]Config{
			Any:    {Strategy: ptr(writ.Exploration), Execution: ptr(writ.EarlyProfile), Effect: ptr(writ.EffectNone)},
			"tool": {Strategy: ptr(writ.Neutral)}}, 0, want{"neutral", "config", "config", true, writ.EffectNone}},
		{"the name of another tool is nothing", nil, nil, false, map[string]Config{"other": {Strategy: ptr(writ.Neutral)}}, 0,
			want{"unknown", "default", "default", false, 0}},
		{"an empty execution takes early away", declared, nil, false, map[string]Config{"tool": {Execution: &writ.Execution{}}}, 0,
			want{"neutral", "declared", "config", false, 0}},
		{"a Go registration's effect", nil, nil, false, nil, writ.EffectIdempotent, want{"unknown", "default", "default", false, writ.EffectIdempotent}},
		{"configuration beats it", nil, nil, false, map[string]Config{"tool": {Effect: ptr(writ.EffectOnce)}}, writ.EffectNone,
			want{"unknown", "default", "default", false, writ.EffectOnce}},
		{"an empty set is unknown", &writ.DeclaredTraits{Strategy: ptr(writ.Strategy(0))}, nil, false, nil, 0,
			want{"unknown", "declared", "default", false, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := Resolve(tc.declared, tc.hints, tc.trust, tc.configs, "tool", tc.effect)
			got := want{tr.Strategy.String(), tr.StrategySource, tr.ExecutionSource, tr.Early(), tr.Effect}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestForNamespace(t *testing.T) {
	conn := map[string]Config{"upsert": {Strategy: ptr(writ.Exploitation), Execution: ptr(writ.EarlyProfile), Effect: ptr(writ.EffectNone)}}
	declared := &writ.DeclaredTraits{Execution: ptr(writ.Execution{Trigger: writ.EarlyProfile.Trigger})}
	got := ForNamespace("mem", map[string]Config{"upsert": {Strategy: ptr(writ.Neutral)}}, declared, nil, false, conn, "upsert", 0)
	want := writ.Traits{Strategy: writ.Neutral, StrategySource: "config namespace mem",
		Execution: *declared.Execution, ExecutionSource: "declared"}
	if got != want {
		t.Errorf("the namespace replaces the connection whole: %+v", got)
	}
	if got.Early() || got.Effect != writ.EffectOnce {
		t.Errorf("something of the connection is left: %+v", got)
	}
	got = ForNamespace("mem", map[string]Config{Any: {Strategy: ptr(writ.Neutral)}}, nil, nil, false, conn, "upsert", 0)
	if !got.Strategy.Only(writ.Neutral) {
		t.Errorf("the namespace's '*' does not replace the connection's entry: %+v", got)
	}
	other := ForNamespace("cnv", map[string]Config{"get": {Strategy: ptr(writ.Neutral)}}, nil, nil, false, conn, "upsert", 0)
	if other != Resolve(nil, nil, false, conn, "upsert", 0) {
		t.Errorf("a namespace that is silent on the callable changes it: %+v", other)
	}
}

// TestStrongerSourcesWin: whatever the weaker sources say, a key set by the exact entry is that entry's.
func TestStrongerSourcesWin(t *testing.T) {
	strategy := rapid.Custom(func(t *rapid.T) *writ.Strategy {
		if rapid.Bool().Draw(t, "set") {
			return ptr(writ.Strategy(rapid.IntRange(1, 15).Draw(t, "strategy")))
		}
		return nil
	})
	rapid.Check(t, func(t *rapid.T) {
		declared, star, exact := strategy.Draw(t, "declared"), strategy.Draw(t, "star"), strategy.Draw(t, "exact")
		want := writ.Unknown
		for _, s := range []*writ.Strategy{declared, star, exact} {
			if s != nil {
				want = *s
			}
		}
		got := Resolve(&writ.DeclaredTraits{Strategy: declared}, nil, false,
			map[string]Config{Any: {Strategy: star}, "t": {Strategy: exact}}, "t", 0)
		if got.Strategy != want {
			t.Fatalf("got %v, want %v", got.Strategy, want)
		}
	})
}

func TestParseStrategy(t *testing.T) {
	for _, tc := range []struct {
		value    any
		want     string
		problems string
	}{
		{"neutral", "neutral", ""},
		{" Exploration ", "exploration", ""},
		{[]any{"exploitation", "exploration", "exploration"}, "exploration, exploitation", ""},
		{[]string{"unknown"}, "unknown", ""},
		{[]any{"neutral", "unknown"}, "neutral, unknown", ""},
		{"exploration, neutral", "unknown", `unknown strategy "exploration, neutral" (hint: one of exploration, exploitation, neutral, unknown)`},
		{[]any{"neutal", 5.0, nil}, "unknown", `unknown strategy "neutal" (hint: did you mean neutral?); ` +
			`strategy name is a number, not a string (hint: one of exploration, exploitation, neutral, unknown); ` +
			`strategy name is empty, not a string (hint: one of exploration, exploitation, neutral, unknown)`},
		{[]any{}, "unknown", "strategy is empty (hint: leave it out, or use one or more of exploration, exploitation, neutral, unknown)"},
		{nil, "unknown", "strategy is a name or a list of names, not empty (hint: one or more of exploration, exploitation, neutral, unknown)"},
		{map[string]any{}, "unknown", "strategy is a name or a list of names, not a mapping (hint: one or more of exploration, exploitation, neutral, unknown)"},
		{true, "unknown", "strategy is a name or a list of names, not a boolean (hint: one or more of exploration, exploitation, neutral, unknown)"},
	} {
		s, problems := ParseStrategy(tc.value)
		if s.String() != tc.want || text(problems) != tc.problems {
			t.Errorf("%v: %s, %s", tc.value, s, text(problems))
		}
	}
}

func text(problems []Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return strings.Join(out, "; ")
}

func TestParseExecution(t *testing.T) {
	full := map[string]any{"trigger": " Tool_Call_Complete", "concurrency": "parallel_with_generation",
		"result_dependency": "detached", "replay": "AT_MOST_ONCE_PER_ROUND"}
	if e, problems := ParseExecution(full); e != writ.EarlyProfile || problems != nil || Partial(e) {
		t.Errorf("full: %v, %v", e, problems)
	}
	if e, problems := ParseExecution(map[string]any{"replay": "at_most_once_per_round"}); problems != nil || !Partial(e) {
		t.Errorf("partial: %v, %v", e, problems)
	}
	if e, problems := ParseExecution(nil); !e.IsZero() || problems != nil || Partial(e) {
		t.Errorf("empty: %v, %v", e, problems)
	}
	e, problems := ParseExecution(map[string]any{"trigger": "now", "reply": "x", "Trigger": "tool_call_complete", "concurrency": nil})
	const want = `unknown trigger "now" (hint: the one value is tool_call_complete); ` +
		`concurrency is empty, not a string (hint: the one value is parallel_with_generation); ` +
		`unknown execution field "Trigger" (hint: did you mean trigger?); ` +
		`unknown execution field "reply" (hint: did you mean replay?)`
	if !e.IsZero() || text(problems) != want {
		t.Errorf("%v: %s", e, text(problems))
	}
	if problems[2].Key != "Trigger" || problems[2].Index != -1 {
		t.Errorf("place: %+v", problems[2])
	}
}

func TestNearest(t *testing.T) {
	names := []string{"max_rounds", "max_repairs", "model", "role_models", "on_refusal"}
	for s, want := range map[string]string{
		"max_rond": "max_rounds", "MODEL ": "model", "modle": "model", "on_refusla": "on_refusal", "maxrepairs": "max_repairs",
		"": "", "x": "", "completely_else": "", "max": "", strings.Repeat("m", 1000): "",
	} {
		if got := Nearest(s, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", s, got, want)
		}
	}
	if got := Nearest("cat", []string{"bat", "hat"}); got != "bat" {
		t.Errorf("of equals the first wins: %q", got)
	}
	if got := DidYouMean("zzz", names); got != "one of max_rounds, max_repairs, model, role_models, on_refusal" {
		t.Errorf("few are listed: %q", got)
	}
}

// TestDistance: a distance is symmetric, zero only for equals, and one for a swap.
func TestDistance(t *testing.T) {
	word := rapid.SliceOfN(rapid.RuneFrom([]rune("abc")), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) || (d == 0) != (string(a) == string(b)) || d > max(len(a), len(b)) || d < abs(len(a)-len(b)) {
			t.Fatalf("distance(%q, %q) = %d", string(a), string(b), d)
		}
	})
	for _, tc := range []struct {
		a, b string
		want int
	}{{"ab", "ba", 1}, {"model", "modle", 1}, {"kitten", "sitting", 3}, {"", "abc", 3}} {
		if got := distance([]rune(tc.a), []rune(tc.b)); got != tc.want {
			t.Errorf("distance(%q, %q) = %d", tc.a, tc.b, got)
		}
	}
}

// The TOOL_SPEC of the traits article, as JSON.
const delegateSpec = `{
  "id": "react.delegate",
  "tool_traits": {
    "strategy": ["neutral"],
    "execution": {
      "trigger": "tool_call_complete",
      "concurrency": "parallel_with_generation",
      "result_dependency": "detached",
      "replay": "at_most_once_per_round"
    }
  },
  "purpose": "Start a helper",
  "params": {"type":"object"},
  "examples": ["…"]
}`

func TestSpec(t *testing.T) {
	s, problems, err := ParseSpec([]byte(delegateSpec))
	if err != nil || problems != nil {
		t.Fatal(problems, err)
	}
	if !Resolve(s.Traits, nil, false, nil, "delegate", 0).Early() || s.ID != "react.delegate" || s.Purpose != "Start a helper" {
		t.Errorf("%+v", s)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := ParseSpec(data)
	if err != nil || !reflect.DeepEqual(s, again) {
		t.Errorf("round trip: %s (%v)", data, err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"id": 5}`} {
		if _, _, err := ParseSpec([]byte(bad)); err == nil {
			t.Errorf("%q is a spec", bad)
		}
	}
	if s, problems, err := ParseSpec([]byte(`{"id": "x"}`)); err != nil || problems != nil || s.Traits != nil {
		t.Errorf("no traits: %+v, %v, %v", s, problems, err)
	}
}

// TestParseDeclared: what a tool says wrongly of itself makes it unknown, and nothing else.
func TestParseDeclared(t *testing.T) {
	for data, want := range map[string]string{
		`{"strategy": "reader"}`:                                  `strategy: unknown strategy "reader" (hint: one of exploration, exploitation, neutral, unknown)`,
		`{"strategy": ["neutral"], "execution": {"replay": "x"}}`: `execution.replay: unknown replay "x" (hint: the one value is at_most_once_per_round)`,
		`{"strategy": ["neutral"], "execution": true}`:            `execution: execution is a boolean, not a mapping`,
		`{"strategy": ["neutral"], "effect": "none"}`:             `effect: a tool cannot declare its own effect (hint: the administrator says it under tool_traits of the connection)`,
		`{"Strategy": ["neutral"]}`:                               `Strategy: unknown trait "Strategy" (hint: did you mean strategy?)`,
		`["neutral"]`:                                             `: tool_traits is not a mapping (hint: write {strategy: [...], execution: {...}})`,
	} {
		d, problems := ParseDeclared(json.RawMessage(data))
		if len(problems) != 1 || problems[0].Key+": "+problems[0].String() != want {
			t.Errorf("%s: %v", data, problems)
		}
		tr := Resolve(d, &writ.ToolHints{ReadOnly: true}, true, nil, "x", 0)
		if !tr.Strategy.Only(writ.Unknown) || !tr.Execution.IsZero() {
			t.Errorf("%s resolves to %+v", data, tr)
		}
	}
	if d, problems := ParseDeclared(json.RawMessage("null")); d != nil || problems != nil {
		t.Errorf("null: %v, %v", d, problems)
	}
	if d, problems := ParseDeclared(json.RawMessage("{}")); d == nil || d.Strategy != nil || d.Execution != nil || problems != nil {
		t.Errorf("empty: %v, %v", d, problems)
	}
	if out, err := FormatDeclared(nil); out != nil || err != nil {
		t.Errorf("nil: %s, %v", out, err)
	}
}

func FuzzParseDeclared(f *testing.F) {
	f.Add([]byte(`{"strategy": ["neutral"], "execution": {"replay": "at_most_once_per_round"}}`))
	f.Add([]byte(`{"strategy": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, problems := ParseDeclared(data)
		if len(problems) > 0 && (d == nil || !d.Strategy.Only(writ.Unknown)) {
			t.Errorf("problems and yet %+v", d)
		}
		if len(problems) > 0 || d == nil {
			return
		}
		out, err := FormatDeclared(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, problems := ParseDeclared(out); problems != nil || !reflect.DeepEqual(d, again) {
			t.Errorf("%s: %v", out, problems)
		}
	})
}
