package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"writ"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// interpreter is the real one: the python3 of the PATH may be a shell script that adds to the environment.
var interpreter = sync.OnceValue(func() string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(out))
})

func start(t *testing.T, file string, change func(*Config)) *Tools {
	t.Helper()
	cfg := Config{File: filepath.Join("testdata", file), Interpreter: interpreter()}
	if change != nil {
		change(&cfg)
	}
	tools, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tools.Close(); err != nil {
			t.Error(err)
		}
	})
	return tools
}

func call(t *testing.T, s *Tools, tool, params string) writ.Result {
	t.Helper()
	res, err := s.Call(t.Context(), writ.Call{Tool: tool, Params: json.RawMessage(params), IdempotencyKey: "key-1", ToolCallID: "call-1"})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res
}

func text(t *testing.T, res writ.Result) string {
	t.Helper()
	if len(res.Content) == 0 || res.Content[0].Kind != writ.ContentText {
		t.Fatalf("no text: %+v", res)
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

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func lines(path string) []string {
	data, _ := os.ReadFile(path)
	return strings.Fields(string(data))
}

func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

func dump(t *testing.T, tools []writ.ToolSpec) []string {
	t.Helper()
	var out []string
	for _, s := range tools {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(data))
	}
	return out
}

// TestArticleExamplesRunUnmodified: workspace_jobs.py is the article's file as it stands; neither of the packages
// that it imports is installed.
func TestArticleExamplesRunUnmodified(t *testing.T) {
	for _, module := range []string{"semantic_kernel", "kdcube_ai_app"} {
		if exec.Command(interpreter(), "-c", "import "+module).Run() == nil {
			t.Fatalf("%s is installed here; this test is about its absence", module)
		}
	}
	s := start(t, "workspace_jobs.py", nil)
	tools, problems, err := s.Tools(t.Context())
	if err != nil || len(problems) != 0 || len(tools) != 2 {
		t.Fatal(tools, problems, err)
	}
	launch, search := tools[0], tools[1]
	if launch.Name != "launch_background_job" || launch.Description != "Schedule an independent background job" ||
		!launch.Declared.Strategy.Only(writ.Neutral) || *launch.Declared.Execution != writ.EarlyProfile {
		t.Errorf("%+v", launch)
	}
	if search.Name != "search" || !search.Declared.Strategy.Only(writ.Exploration) || search.Declared.Execution != nil {
		t.Errorf("%+v", search)
	}
	want := `{"type":"object","properties":{"query":{"type":"string","description":"Search query"}},"required":["query"],"additionalProperties":false}`
	if string(search.Schema) != want {
		t.Errorf("schema %s", search.Schema)
	}
	if res := call(t, s, "search", `{"query":"x"}`); res.IsError || len(res.Content) != 0 { // its body is "..."
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "launch_background_job", `{"assignment":"x"}`); res.IsError {
		t.Errorf("%+v", res)
	}
	if tools, problems, err := start(t, "tool_spec.py", nil).Tools(t.Context()); err != nil || len(tools) != 0 || len(problems) != 0 {
		t.Errorf("%v, %v, %v", tools, problems, err)
	}
}

func TestParsingAndImportingAgree(t *testing.T) {
	for _, file := range []string{"workspace_jobs.py", "tool_spec.py", "rich.py"} {
		s := start(t, file, nil)
		imported, importProblems, err := s.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		parsed, parseProblems, err := Parse(t.Context(), Config{File: filepath.Join("testdata", file)})
		if err != nil {
			t.Fatal(err)
		}
		a, b := dump(t, imported), dump(t, parsed)
		if len(a) != len(b) {
			t.Errorf("%s: %d imported, %d parsed", file, len(a), len(b))
		}
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Errorf("%s:\nimported %s\nparsed   %s", file, a[i], b[i])
			}
		}
		if fmt.Sprint(importProblems) != fmt.Sprint(parseProblems) {
			t.Errorf("%s:\nimported %v\nparsed   %v", file, importProblems, parseProblems)
		}
	}
}

func TestTypesOfParameters(t *testing.T) {
	s := start(t, "rich.py", nil)
	tools, problems, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(tools, func(x writ.ToolSpec) bool { return x.Name == "types" })
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	if err := json.Unmarshal(tools[i].Schema, &schema); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"query":    `{"type":"string","description":"what to look for"}`,
		"count":    `{"type":"integer","description":"how many of them"}`,
		"ratio":    `{"type":"number","description":"between 0 and 1","default":0.5}`,
		"color":    `{"type":"string","enum":["red","blue"],"default":"red"}`,
		"mode":     `{"type":"string","enum":["fast","slow"],"default":"fast"}`,
		"many":     `{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"string"},{"type":"null"}],"default":null}`,
		"either":   `{"anyOf":[{"type":"integer"},{"type":"string"}],"default":3}`,
		"table":    `{"type":"object","additionalProperties":{"type":"array","items":{"type":"integer"}},"default":{}}`,
		"anything": `{"default":null}`,
	} {
		if string(schema.Properties[name]) != want {
			t.Errorf("%s: %s\nwant %s", name, schema.Properties[name], want)
		}
	}
	if fmt.Sprint(schema.Required) != "[query count]" {
		t.Errorf("required %v", schema.Required)
	}
	res := call(t, s, "types", `{"query":"q","count":1,"ratio":1,"color":"blue","order":{"item":"a"},"unique":["a"],"pair":[1,"b"],"place":{"city":"x"}}`)
	if len(res.Content) != 1 || string(res.Content[0].JSON) != `{"color":"Color","order":"Order","unique":"set","pair":"tuple","ratio":"float","query":"q"}` {
		t.Errorf("%s", res.Content[0].JSON)
	}
	res = call(t, s, "types", `{"query":"q","count":1,"color":"green"}`)
	if !res.IsError || !strings.Contains(text(t, res), "argument color") {
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "mixed", `{"a":1,"b":[null]}`); string(res.Content[0].JSON) != `{"a":1,"b":[null]}` {
		t.Errorf("%+v", res)
	}
	var named []string
	for _, p := range problems {
		named = append(named, p.Tool)
	}
	if !slices.Equal(named, []string{"never", "no_tool", "typo"}) {
		t.Errorf("problems %+v", problems)
	}
}

func TestResults(t *testing.T) {
	s := start(t, "rich.py", nil)
	j := func(v string) []writ.Content { return []writ.Content{{Kind: writ.ContentJSON, JSON: []byte(v)}} }
	x := func(v string) []writ.Content { return []writ.Content{{Kind: writ.ContentText, Text: v}} }
	for kind, want := range map[string][]writ.Content{
		"none": nil, "order": j(`{"item":"x","count":1,"tags":[]}`), "surrogate": x("a\ufffdb"), "nul": x("a\x00b"), "set": j("[3]"),
		"enum": x("blue"), "int": x("12345678901234567890"), "unicode": x("😀 é"), "empty": j("{}"), "tuple": j("[1,2]"), "bool": x("true"),
		"keys": j(`{"1":"int","None":"none"}`), "envelope": j(`{"ok":false,"error":{"code":"nope","message":"m"},"ret":null}`),
		"png":  {{Kind: writ.ContentBlob, Data: []byte("\x89PNG\r\n\x1a\n"), MIME: "image/png"}},
		"nan":  append(x("note: numbers that are not finite are given as text"), j(`{"a":"NaN","b":["Infinity"]}`)...),
		"loop": append(x("note: a value that contains itself or nests too deeply was cut"), j(`["..."]`)...),
	} {
		res := call(t, s, "make", fmt.Sprintf(`{"kind":%q}`, kind))
		if res.IsError || fmt.Sprint(res.Content) != fmt.Sprint(want) {
			t.Errorf("%s: %+v\nwant %+v", kind, res, want)
		}
	}
	if res := call(t, s, "make", `{"kind":"bytes"}`); res.Content[0].Kind != writ.ContentBlob || !bytes.Equal(res.Content[0].Data, []byte{0, 1, 255}) {
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "make", `{"kind":"object"}`); len(res.Content) != 2 || !strings.HasPrefix(res.Content[0].Text, "note:") ||
		!strings.Contains(string(res.Content[1].JSON), "<object object at") {
		t.Errorf("%+v", res)
	}
	for _, v := range []string{`"\ud800 lone"`, `"nul \u0000"`, `"😀"`, `[1,{"a":[]}]`, `1e300`} {
		res := call(t, s, "echo", `{"value":`+v+`}`)
		if res.IsError || len(res.Content) != 1 {
			t.Errorf("echo(%s): %+v", v, res)
		}
	}
	if res := call(t, s, "make", `{"kind":"huge","n":8000000}`); len(text(t, res)) != 8000000 {
		t.Error("a large result is cut")
	}
	small := start(t, "rich.py", func(c *Config) { c.MaxResult = 1 << 20 })
	_, err := small.Call(t.Context(), writ.Call{Tool: "make", Params: json.RawMessage(`{"kind":"huge","n":8000000}`)})
	if err == nil || errors.Is(err, writ.ErrNotStarted) || !strings.Contains(err.Error(), "too large") {
		t.Errorf("an answer that is too large: %v", err)
	}
}

func TestFailures(t *testing.T) {
	s := start(t, "rich.py", nil)
	for _, tc := range []struct{ tool, params, want string }{
		{"boom", `{}`, "ValueError: no such thing: ü\n"},
		{"boom_async", `{}`, "KeyError: 'k'\n"},
		{"leave", `{}`, "SystemExit: 3"},
		{"leave_async", `{}`, "SystemExit: 4"},
		{"meet", `{}`, "missing 1 required positional argument: 'n'"},
		{"echo", `{"other":1}`, "unexpected keyword argument 'other'"},
	} {
		res := call(t, s, tc.tool, tc.params)
		if got := text(t, res); !res.IsError || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %+v, want %q", tc.tool, res, tc.want)
		}
	}
	got := text(t, call(t, s, "boom", `{}`))
	if !strings.Contains(got, `rich.py:`) || !strings.HasSuffix(got, `: raise ValueError("no such thing: \u00fc")`) || strings.Contains(got, "Traceback") {
		t.Errorf("the place is missing, or more than it: %q", got)
	}
	if h := s.Health(); h.Starts != 1 {
		t.Errorf("an exception cost the worker: %+v", h)
	}
}

func TestPrintsDoNotBreakTheProtocol(t *testing.T) {
	var log bytes.Buffer
	s := start(t, "rich.py", func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		if res := call(t, s, "noisy", `{}`); text(t, res) != "quiet" {
			t.Errorf("%+v", res)
		}
	}
	if res := call(t, s, "read_stdin", `{}`); text(t, res) != "" {
		t.Errorf("%+v", res)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"printed", "raw write to fd 1", "from a child process"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in the log: %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "not the protocol") {
		t.Errorf("a print reached the protocol's own pipe: %s", log.String())
	}
}

func TestCallsRunInParallel(t *testing.T) {
	s := start(t, "rich.py", nil)
	for _, tool := range []string{"meet", "meet_async"} {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				res, err := s.Call(context.Background(), writ.Call{Tool: tool, Params: json.RawMessage(`{"n":8}`)})
				if err != nil || len(res.Content) != 1 || res.Content[0].Text != "met" {
					t.Errorf("%s: %+v, %v", tool, res, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestCancelReachesAsyncTools(t *testing.T) {
	s := start(t, "rich.py", nil)
	mark := filepath.Join(t.TempDir(), "mark")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, writ.Call{Tool: "hang_async", Params: json.RawMessage(fmt.Sprintf(`{"mark":%q}`, mark))})
		result <- err
	}()
	until(t, "the tool runs", func() bool { return len(lines(mark)) == 1 })
	cancel()
	wantUnknown(t, <-result)
	until(t, "the tool is cancelled", func() bool { return slices.Contains(lines(mark), "cancelled") })
	call(t, s, "echo", `{}`)
	if h := s.Health(); h.Starts != 1 {
		t.Errorf("%+v", h)
	}
}

func TestCancelledSyncToolRunsOnAndIsReported(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	s := start(t, "rich.py", func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&lockedWriter{&mu, &log}, nil)) })
	dir := t.TempDir()
	started, release := filepath.Join(dir, "started"), filepath.Join(dir, "release")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, writ.Call{Tool: "hang_sync", Params: json.RawMessage(fmt.Sprintf(`{"started":%q,"until":%q}`, started, release))})
		result <- err
	}()
	until(t, "the tool runs", func() bool { return exists(started) })
	cancel()
	wantUnknown(t, <-result)
	call(t, s, "echo", `{}`)
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the late end is reported", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(log.String(), "hang_sync ended after it was cancelled")
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func TestCrashIsUnknownAndTheNextCallGetsAFreshWorker(t *testing.T) {
	s := start(t, "rich.py", nil)
	dir := t.TempDir()
	mark, bystander := filepath.Join(dir, "mark"), filepath.Join(dir, "bystander")
	other := make(chan error, 1)
	go func() {
		_, err := s.Call(context.Background(), writ.Call{Tool: "hang_async", Params: json.RawMessage(fmt.Sprintf(`{"mark":%q}`, bystander))})
		other <- err
	}()
	until(t, "the other call runs", func() bool { return len(lines(bystander)) == 1 })
	_, err := s.Call(t.Context(), writ.Call{Tool: "crash", Params: json.RawMessage(fmt.Sprintf(`{"mark":%q}`, mark))})
	wantUnknown(t, err)
	wantUnknown(t, <-other)
	call(t, s, "echo", `{}`)
	if got := lines(mark); len(got) != 1 {
		t.Errorf("the effect happened %d times", len(got))
	}
	if got := lines(bystander); len(got) != 1 {
		t.Errorf("the other call was repeated: %v", got)
	}
	if h := s.Health(); h.Starts != 2 || h.Failures != 1 {
		t.Errorf("%+v", h)
	}
	if err := syscall.Kill(s.Health().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker is gone", func() bool { return !s.Health().Running })
	call(t, s, "echo", `{}`)
}

func TestCallTimeout(t *testing.T) {
	s := start(t, "rich.py", func(c *Config) { c.CallTimeout = 2 * time.Second })
	mark := filepath.Join(t.TempDir(), "mark")
	call(t, s, "echo", `{}`)
	_, err := s.Call(t.Context(), writ.Call{Tool: "hang_async", Params: json.RawMessage(fmt.Sprintf(`{"mark":%q}`, mark))})
	wantUnknown(t, err)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestMemoryLimit(t *testing.T) {
	s := start(t, "rich.py", func(c *Config) { c.MemoryLimit = 512 << 20 })
	if res := call(t, s, "memory", `{"mib":1024}`); !res.IsError || !strings.HasPrefix(text(t, res), "MemoryError") {
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "memory", `{"mib":16}`); res.IsError {
		t.Errorf("%+v", res)
	}
	free := start(t, "rich.py", func(c *Config) { c.MemoryLimit = -1 })
	if res := call(t, free, "memory", `{"mib":600}`); res.IsError {
		t.Errorf("%+v", res)
	}
}

func TestEnvironmentAndKey(t *testing.T) {
	t.Setenv("WRIT_SECRET", "must not leak")
	s := start(t, "rich.py", func(c *Config) { c.Env = map[string]string{"GIVEN": "yes"} })
	var got []string
	if err := json.Unmarshal(call(t, s, "environment", `{}`).Content[0].JSON, &got); err != nil {
		t.Fatal(err)
	}
	for _, k := range got {
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "GIVEN", "LC_CTYPE", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}, k) {
			t.Errorf("the worker sees %s", k)
		}
	}
	if !slices.Contains(got, "GIVEN") {
		t.Errorf("environment %v", got)
	}
	for _, tool := range []string{"key", "key_sync"} {
		if res := call(t, s, tool, `{}`); string(res.Content[0].JSON) != `{"key":"key-1","call":"call-1"}` {
			t.Errorf("%s: %+v", tool, res)
		}
	}
}

func TestMethodsAndState(t *testing.T) {
	s := start(t, "rich.py", nil)
	for _, want := range []string{"11", "13"} {
		by := map[string]string{"11": `{}`, "13": `{"by":2}`}[want]
		if got := text(t, call(t, s, "count", by)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := text(t, call(t, s, "static", `{"x":5}`)); got != "5" {
		t.Errorf("got %s", got)
	}
	if got := text(t, call(t, s, "who", `{}`)); got != "me" {
		t.Errorf("got %s", got)
	}
}

func TestImportFailures(t *testing.T) {
	for _, tc := range []struct{ file, want string }{
		{"import_error.py", "import_error.py:3: import a_package_that_is_not_there: ModuleNotFoundError: No module named 'a_package_that_is_not_there'"},
		{"syntax_error.py", "syntax_error.py:5: SyntaxError: invalid syntax"},
	} {
		s := start(t, tc.file, nil)
		_, _, err := s.Tools(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %q", tc.file, err, tc.want)
		}
		if res, err := s.Call(t.Context(), writ.Call{Tool: "tool"}); err != nil || !res.IsError {
			t.Errorf("%s: a call of a file that cannot be imported: %+v, %v", tc.file, res, err)
		}
	}
	// What cannot be imported here can still be told by parsing.
	tools, _, err := Parse(t.Context(), Config{File: "testdata/import_error.py"})
	if err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
	_, _, err = Parse(t.Context(), Config{File: "testdata/syntax_error.py"})
	if err == nil || !strings.Contains(err.Error(), "syntax_error.py:5: invalid syntax") {
		t.Errorf("got %v", err)
	}
}

func TestMendedFileIsImportedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.py")
	write := func(body string) {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("import absent_package\n")
	s := start(t, "rich.py", func(c *Config) { c.File = file })
	if _, _, err := s.Tools(t.Context()); err == nil {
		t.Fatal("no error")
	}
	write("from semantic_kernel.functions import kernel_function\n@kernel_function\ndef now() -> str:\n    return 'here'\n")
	if tools, _, err := s.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Errorf("%v, %v", tools, err)
	}
}

func TestParseRunsNothing(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	t.Setenv("WRIT_TEST_MARK", mark)
	tools, problems, err := Parse(t.Context(), Config{File: "testdata/dynamic.py", Env: map[string]string{"WRIT_TEST_MARK": mark}})
	if err != nil {
		t.Fatal(err)
	}
	if exists(mark) {
		t.Error("parsing ran the file")
	}
	for _, s := range tools {
		if s.Declared != nil {
			t.Errorf("%s: traits that are not literal were believed: %+v", s.Name, s.Declared)
		}
	}
	all := fmt.Sprint(problems)
	if len(tools) != 2 || strings.Count(all, "not written literally") != 2 || !strings.Contains(all, "lists this name 2 times") {
		t.Errorf("%d tools, problems %+v", len(tools), problems)
	}
	imported, _, err := start(t, "dynamic.py", func(c *Config) { c.Env = map[string]string{"WRIT_TEST_MARK": mark} }).Tools(t.Context())
	if err != nil || len(imported) != 2 || !imported[0].Declared.Strategy.Only(writ.Neutral) || !imported[1].Declared.Strategy.Only(writ.Exploration) {
		t.Errorf("%+v, %v", imported, err)
	}
}

func TestStandInsAreNoWiderThanTheySay(t *testing.T) {
	s := start(t, "absent.py", nil)
	for _, tc := range [][3]string{
		{"semantic_kernel", "", "imported"},
		{"semantic_kernel", "Kernel", "AttributeError"},
		{"semantic_kernel.functions", "kernel_function", "imported"},
		{"semantic_kernel.connectors", "", "ModuleNotFoundError"},
		{"semantic_kernel.functions.kernel_function_decorator", "", "ModuleNotFoundError"},
		{"kdcube_ai_app.apps.chat.sdk.runtime.tool_traits", "tool_trait", "imported"},
		{"kdcube_ai_app.apps.chat.sdk.tools", "", "ModuleNotFoundError"},
		{"writ_tool", "idempotency_key", "imported"},
		{"no_such_module", "", "ModuleNotFoundError"},
	} {
		if got := text(t, call(t, s, "try_import", fmt.Sprintf(`{"module":%q,"name":%q}`, tc[0], tc[1]))); got != tc[2] {
			t.Errorf("import %s %s: %s, want %s", tc[0], tc[1], got, tc[2])
		}
	}
}

// TestRealPackagesComeFirst: an installed package is used, and what it lacks stays missing.
func TestRealPackagesComeFirst(t *testing.T) {
	dir := t.TempDir()
	pkg := filepath.Join(dir, "semantic_kernel")
	if err := os.Mkdir(pkg, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "tools.py")
	for path, body := range map[string]string{
		filepath.Join(pkg, "__init__.py"):  "REAL = True\n",
		filepath.Join(pkg, "functions.py"): "def kernel_function(name=None):\n    def mark(f):\n        f.__kernel_function__ = True\n        f.__kernel_function_name__ = 'real_' + name\n        return f\n    return mark\n",
		file:                               "from semantic_kernel.functions import kernel_function\n@kernel_function(name='x')\ndef x():\n    'Documented.'\n",
	} {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tools, _, err := start(t, "rich.py", func(c *Config) { c.File = file }).Tools(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Name != "real_x" || tools[0].Description != "Documented." {
		t.Errorf("%+v, %v", tools, err)
	}
	if err := os.Remove(filepath.Join(pkg, "functions.py")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := start(t, "rich.py", func(c *Config) { c.File = file }).Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "semantic_kernel.functions") {
		t.Errorf("a stand-in was slipped into a real package: %v", err)
	}
}

func TestImportHasTheMainThreadToItselfAndCloseIsQuick(t *testing.T) {
	s := start(t, "slow_import.py", nil)
	if got := text(t, call(t, s, "value", `{}`)); got != "42" {
		t.Errorf("got %s", got)
	}
	call(t, s, "pool", `{}`)
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("Close took %v", d)
	}
}

func TestConfiguration(t *testing.T) {
	for _, cfg := range []Config{{}, {File: "testdata/no_such.py"}, {File: "testdata"}} {
		if _, err := Open(cfg); err == nil {
			t.Errorf("Open(%+v) is no error", cfg)
		}
		if _, _, err := Parse(t.Context(), cfg); err == nil {
			t.Errorf("Parse(%+v) is no error", cfg)
		}
	}
	s := start(t, "rich.py", func(c *Config) { c.Interpreter = "python-that-is-not-there" })
	if _, err := s.Call(t.Context(), writ.Call{Tool: "echo"}); !errors.Is(err, writ.ErrNotStarted) || !strings.Contains(err.Error(), `"python-that-is-not-there" not found`) {
		t.Errorf("got %v", err)
	}
	if _, _, err := Parse(t.Context(), Config{File: "testdata/rich.py", Interpreter: "python-that-is-not-there"}); err == nil ||
		!strings.Contains(err.Error(), `interpreter "python-that-is-not-there" not found`) {
		t.Errorf("got %v", err)
	}
}

// TestScriptsAreForPython39 keeps newer syntax out of what runs in the user's interpreter.
func TestScriptsAreForPython39(t *testing.T) {
	for name, script := range map[string]string{"common": commonPy, "hints": hintsPy, "results": resultsPy, "worker": workerPy, "parse": parsePy} {
		cmd := exec.Command(interpreter(), "-c", "import ast,sys; ast.parse(sys.stdin.read(), feature_version=(3,9))")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}
