package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"writ"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// python is the real interpreter: the python3 of the PATH may be a shell script that adds to the environment.
var python = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(out))
})

// hostile opens the misbehaving server in one of its modes.
func hostile(t *testing.T, mode string, change func(*Config), args ...string) *Server {
	t.Helper()
	cfg := Config{Alias: mode, Command: python(), Args: append([]string{"testdata/hostile.py", mode}, args...), Log: testLog(t)}
	if change != nil {
		change(&cfg)
	}
	return open(t, cfg)
}

func open(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func call(t *testing.T, s *Server, tool, params string) writ.Result {
	t.Helper()
	res, err := s.Call(t.Context(), writ.Call{Tool: tool, Params: json.RawMessage(params)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res
}

func text(t *testing.T, res writ.Result) string {
	t.Helper()
	if len(res.Content) != 1 || res.Content[0].Kind != writ.ContentText {
		t.Fatalf("no single text: %+v", res)
	}
	return res.Content[0].Text
}

// until polls, because what another process does has no event here.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

func wantNotStarted(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v, want not started", err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is missing in: %v", w, err)
		}
	}
}

func TestQuarantine(t *testing.T) {
	tools, problems, err := hostile(t, "schemas", nil).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range tools {
		names = append(names, s.Name)
	}
	if want := []string{"deep-enough", "good", "zz-good"}; !slices.Equal(names, want) {
		t.Errorf("tools %v, want %v", names, want)
	}
	if h := tools[2].Hints; h == nil || !h.ReadOnly || tools[1].Hints != nil {
		t.Errorf("hints: %+v, %+v", tools[2].Hints, tools[1].Hints)
	}
	all := map[string]string{}
	for _, p := range problems {
		all[p.Tool] += p.Message + "\n"
	}
	for tool, why := range map[string]string{
		"string-schema": "not for an object", "null-schema": "no object", "list-schema": "no object", "bad-type": "does not compile",
		"bad-pattern": "does not compile", "remote-ref": "outside itself", "missing-ref": "does not compile", "old-dialect": "dialect",
		"too-deep": "nests deeper", "twice": "2 times", `""`: "empty", `"` + strings.Repeat("x", 40) + `…"`: "longer than 128",
		`"new\nline"`: "does not print", `"bidi\u202ename"`: "does not print", "bad-description": "description is no string",
		"": "tool 19 of the listing is left out: its name is no string\ntool 21 of the listing is left out: it is no tool description",
	} {
		if !strings.Contains(all[tool], why) {
			t.Errorf("problem of %s: %q, want %q", tool, all[tool], why)
		}
		delete(all, tool)
	}
	if len(all) != 0 {
		t.Errorf("problems nobody expected: %v", all)
	}
}

func TestTraitsCountOnlyWhenTrusted(t *testing.T) {
	tools, problems, err := hostile(t, "traits", nil).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tools {
		if s.Declared != nil {
			t.Errorf("%s: an untrusted connection has traits %+v", s.Name, s.Declared)
		}
	}
	if len(problems) != 7 || !strings.Contains(problems[0].Message, "ignored") || !strings.Contains(problems[0].Hint, "trust_traits") {
		t.Errorf("problems %+v", problems)
	}

	tools, problems, err = hostile(t, "traits", func(c *Config) { c.TrustTraits = true }).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range tools {
		switch d := s.Declared; {
		case d == nil:
			got[s.Name] = "none"
		case d.Execution != nil:
			got[s.Name] = fmt.Sprint(d.Strategy, " ", *d.Execution == writ.EarlyProfile)
		default:
			got[s.Name] = d.Strategy.String()
		}
	}
	want := map[string]string{"full": "neutral true", "plain": "exploration, exploitation", "bad-strategy": "none", "bad-execution": "none",
		"bad-field": "none", "no-mapping": "none", "extra": "neutral", "silent": "none"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("declared %v\nwant     %v", got, want)
	}
	var named []string
	for _, p := range problems {
		named = append(named, p.Tool)
	}
	if !slices.Equal(named, []string{"bad-execution", "bad-field", "bad-strategy", "extra", "no-mapping"}) {
		t.Errorf("problems %+v", problems)
	}
}

func TestListingIsBounded(t *testing.T) {
	for _, tc := range []struct {
		mode    string
		args    []string
		tools   int
		problem string
		err     string
	}{
		{"pages", []string{"25", "10"}, 25, "", ""},
		{"pages", []string{"10005", "2500"}, 10000, "more than 10000 tools", ""},
		{"empty-pages", nil, 0, "more than 1000 pages", ""},
		{"same-page", nil, 1, "repeats a page", ""},
		{"fat-schemas", nil, 6, "exceed", ""},
		{"list-error", nil, 0, "", "the database is down"},
		{"no-list", nil, 0, "", "no list of tools"},
	} {
		tools, problems, err := hostile(t, tc.mode, nil, tc.args...).Tools(t.Context())
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.mode, err, tc.err)
			}
			continue
		}
		if err != nil || len(tools) != tc.tools {
			t.Errorf("%s %s: %d tools, %v", tc.mode, tc.args, len(tools), err)
		}
		if (tc.problem == "") != (len(problems) == 0) || (tc.problem != "" && !strings.Contains(problems[0].Message, tc.problem)) {
			t.Errorf("%s %s: problems %+v, want %q", tc.mode, tc.args, problems, tc.problem)
		}
	}
}

func TestCallCarriesTheKeyAndTheEnvironmentIsExact(t *testing.T) {
	t.Setenv("WRIT_SECRET", "must not leak")
	s := hostile(t, "plain", func(c *Config) { c.Env = map[string]string{"GIVEN": "yes", "LANG": "C.UTF-8"} })
	res, err := s.Call(t.Context(), writ.Call{Tool: "echo", Params: json.RawMessage(`{"n":12345678901234567890,"s":"\ud800"}`),
		IdempotencyKey: "k1", ToolCallID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Arguments json.RawMessage
		Meta      map[string]string `json:"_meta"`
		Env       map[string]string
		PID, PGID int
	}
	if err := json.Unmarshal([]byte(text(t, res)), &got); err != nil {
		t.Fatal(err)
	}
	if string(got.Arguments) != `{"n": 12345678901234567890, "s": "\ud800"}` {
		t.Errorf("arguments arrive as %s", got.Arguments)
	}
	if got.Meta["writ/key"] != "k1" || got.Meta["writ/tool_call_id"] != "c1" || len(got.Meta) != 2 {
		t.Errorf("_meta %v", got.Meta)
	}
	for k := range got.Env {
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "GIVEN", "LC_CTYPE"}, k) { // Python sets LC_CTYPE itself
			t.Errorf("the server sees %s", k)
		}
	}
	if got.Env["GIVEN"] != "yes" || got.Env["PATH"] != os.Getenv("PATH") {
		t.Errorf("environment %v", got.Env)
	}
	if got.PGID != got.PID || got.PID != s.Health().PID {
		t.Errorf("pid %d, process group %d, health %+v", got.PID, got.PGID, s.Health())
	}
}

func TestServerErrorsAreAnswers(t *testing.T) {
	s := hostile(t, "plain", nil)
	for _, code := range []int{-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32003, -32004} {
		res := call(t, s, "rpc-error", fmt.Sprintf(`{"code":%d}`, code))
		if !res.IsError || !strings.Contains(text(t, res), strconv.Itoa(code)) {
			t.Errorf("code %d: %+v", code, res)
		}
	}
	if res := call(t, s, "nobody", `{}`); !res.IsError || !strings.Contains(text(t, res), "unknown tool: nobody") {
		t.Errorf("unknown tool: %+v", res)
	}
	if h := s.Health(); h.Starts != 1 || h.Failures != 0 {
		t.Errorf("an answered error is no failure of the server: %+v", h)
	}
	for _, bad := range []string{`[]`, `{"a":`, `null`, `"x"`} {
		_, err := s.Call(t.Context(), writ.Call{Tool: "echo", Params: json.RawMessage(bad)})
		wantNotStarted(t, err, "no JSON object")
	}
}

func TestResultsAreMapped(t *testing.T) {
	s := hostile(t, "plain", nil)
	for _, tc := range []struct {
		name, result string
		want         writ.Result
		err          bool
	}{
		{"text", `{"content":[{"type":"text","text":"a"},{"type":"text","text":""}]}`,
			writ.Result{Content: []writ.Content{{Kind: "text", Text: "a"}, {Kind: "text"}}}, false},
		{"error", `{"content":[{"type":"text","text":"no"}],"isError":true}`, writ.ErrorResult("no"), false},
		{"nothing", `{"content":[]}`, writ.Result{}, false},
		{"empty object", `{}`, writ.Result{}, false},
		{"structured with its text", `{"content":[{"type":"text","text":"{\"a\": 1}"}],"structuredContent":{"a":1}}`,
			writ.Result{Content: []writ.Content{{Kind: "json", JSON: []byte(`{"a":1}`)}}}, false},
		{"structured with other text", `{"content":[{"type":"text","text":"one"}],"structuredContent":{"a":1}}`,
			writ.Result{Content: []writ.Content{{Kind: "text", Text: "one"}, {Kind: "json", JSON: []byte(`{"a":1}`)}}}, false},
		{"structured list", `{"structuredContent":[1,2.50]}`, writ.Result{Content: []writ.Content{{Kind: "json", JSON: []byte(`[1,2.5]`)}}}, false},
		{"image", `{"content":[{"type":"image","data":"AAH/","mimeType":"image/png"}]}`,
			writ.Result{Content: []writ.Content{{Kind: "blob", Data: []byte{0, 1, 255}, MIME: "image/png"}}}, false},
		{"audio", `{"content":[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}`,
			writ.Result{Content: []writ.Content{{Kind: "blob", Data: []byte{0}, MIME: "audio/wav"}}}, false},
		{"bad base64 is kept", `{"content":[{"type":"image","data":"!","mimeType":"image/png"}]}`,
			writ.Result{Content: []writ.Content{{Kind: "json", JSON: []byte(`{"type":"image","data":"!","mimeType":"image/png"}`)}}}, false},
		{"link", `{"content":[{"type":"resource_link","uri":"u:x","name":"n","mimeType":"text/x"}]}`,
			writ.Result{Content: []writ.Content{{Kind: "link", URI: "u:x", Name: "n", MIME: "text/x"}}}, false},
		{"text resource", `{"content":[{"type":"resource","resource":{"uri":"u:x","mimeType":"text/x","text":"t"}}]}`,
			writ.Result{Content: []writ.Content{{Kind: "text", Text: "t", URI: "u:x", MIME: "text/x"}}}, false},
		{"blob resource", `{"content":[{"type":"resource","resource":{"uri":"u:x","blob":"AA=="}}]}`,
			writ.Result{Content: []writ.Content{{Kind: "blob", Data: []byte{0}, URI: "u:x"}}}, false},
		{"a type of the future", `{"content":[{"type":"hologram","x":1}]}`,
			writ.Result{Content: []writ.Content{{Kind: "json", JSON: []byte(`{"type":"hologram","x":1}`)}}}, false},
		{"malformed part", `{"content":[{"type":"text","text":7},null]}`,
			writ.Result{Content: []writ.Content{{Kind: "json", JSON: []byte(`{"type":"text","text":7}`)}, {Kind: "json", JSON: []byte(`null`)}}}, false},
		{"no object", `"ok"`, writ.Result{}, true},
		{"no boolean", `{"content":[],"isError":"maybe"}`, writ.Result{}, true},
	} {
		res, err := s.Call(t.Context(), writ.Call{Tool: "raw", Params: json.RawMessage(`{"result":` + tc.result + `}`)})
		if tc.err {
			wantUnknown(t, err)
			continue
		}
		if err != nil || fmt.Sprint(res) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", tc.name, res, err, tc.want)
		}
	}
	mark := filepath.Join(t.TempDir(), "mark")
	res := call(t, hostile(t, "plain", nil, mark), "input-required", `{}`)
	if !res.IsError || !strings.Contains(text(t, res), "further input") {
		t.Errorf("%+v", res)
	}
	if got := lines(mark); len(got) != 1 {
		t.Errorf("the call was sent %d times", len(got))
	}
}

func TestGarbageOnStdoutIsSkipped(t *testing.T) {
	s := hostile(t, "garbage", nil)
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
	for range 20 {
		call(t, s, "echo", `{}`)
	}
	if h := s.Health(); h.Starts != 1 || h.Failures != 0 {
		t.Errorf("health %+v", h)
	}
	call(t, hostile(t, "chatty", nil), "echo", `{}`)
}

func TestOversizedResults(t *testing.T) {
	s := hostile(t, "plain", func(c *Config) { c.MaxResult = 1 << 20 })
	if res := call(t, s, "huge", `{"bytes":1000000}`); len(text(t, res)) != 1000000 {
		t.Error("a result within the limit is cut")
	}
	for _, tc := range [][2]string{{"huge", `{"bytes":3000000}`}, {"huge-id-last", `{"bytes":3000000}`}} {
		_, err := s.Call(t.Context(), writ.Call{Tool: tc[0], Params: json.RawMessage(tc[1])})
		if err == nil || errors.Is(err, writ.ErrNotStarted) || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%s: %v, want an unknown outcome that says why", tc[0], err)
		}
	}
	if res := call(t, s, "deep", `{"levels":400}`); res.IsError || res.Content[0].Kind != writ.ContentJSON {
		t.Errorf("%+v", res)
	}
	if _, err := s.Call(t.Context(), writ.Call{Tool: "deep", Params: json.RawMessage(`{"levels":100000}`)}); err == nil || errors.Is(err, writ.ErrNotStarted) || !strings.Contains(err.Error(), "nested too deeply") {
		t.Errorf("deep: %v", err)
	}
	call(t, s, "echo", `{}`)
	if h := s.Health(); h.Starts != 1 {
		t.Errorf("health %+v", h)
	}
}

func TestVanishedTool(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	s := hostile(t, "vanish", nil, mark)
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 3 || s.Changed() {
		t.Fatalf("%v, %v, changed %v", tools, err, s.Changed())
	}
	for range 3 {
		if _, _, err := s.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := lines(mark); len(got) != 1 {
		t.Errorf("an unchanged list was asked for %d times", len(got))
	}
	call(t, s, "remove", `{}`)
	until(t, "the change is heard of", s.Changed)
	_, err := s.Call(t.Context(), writ.Call{Tool: "goes"})
	if !errors.Is(err, writ.ErrVanished) || !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v", err)
	}
	if res := call(t, s, "stays", `{}`); !strings.Contains(text(t, res), "unknown tool") { // the stub has no such call; it was asked
		t.Errorf("%+v", res)
	}
	if !s.Changed() {
		t.Error("a call took the announcement away from the next build")
	}
	tools, _, err := s.Tools(t.Context())
	if err != nil || len(tools) != 2 || s.Changed() {
		t.Errorf("%v, %v, changed %v", tools, err, s.Changed())
	}
}

func TestNothingIsOfferedToTheServer(t *testing.T) {
	s := hostile(t, "plain", nil)
	for _, method := range []string{"roots/list", "sampling/createMessage", "elicitation/create"} {
		var got struct {
			Reply struct {
				Code    int
				Message string
				Roots   any
				Action  string
			}
			Client struct{ Capabilities map[string]any }
		}
		if err := json.Unmarshal([]byte(text(t, call(t, s, "ask", fmt.Sprintf(`{"method":%q}`, method)))), &got); err != nil {
			t.Fatal(err)
		}
		refused := got.Reply.Code != 0 && got.Reply.Roots == nil
		if method == "elicitation/create" { // a server that asks although it was not told that it may
			refused = got.Reply.Action == "decline"
		}
		if !refused || len(got.Client.Capabilities) != 0 {
			t.Errorf("%s: %+v", method, got)
		}
	}
}

func TestModernServerWithoutInitialize(t *testing.T) {
	s := hostile(t, "modern", nil)
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
	call(t, s, "echo", `{}`)
}

func TestManyCallsAtATime(t *testing.T) {
	s := hostile(t, "plain", nil)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			res, err := s.Call(context.Background(), writ.Call{Tool: "raw", Params: json.RawMessage(fmt.Sprintf(
				`{"result":{"content":[{"type":"text","text":"%d"}]}}`, i))})
			if err != nil || res.Content[0].Text != strconv.Itoa(i) {
				t.Errorf("call %d: %+v, %v", i, res, err)
			}
		})
	}
	wg.Wait()
}
