package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.uber.org/goleak"

	"writ"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*Workspace, string) {
	t.Helper()
	dir := t.TempDir()
	w, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, dir
}

func call(t *testing.T, w *Workspace, tool string, params any) writ.Result {
	t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.Call(t.Context(), writ.Call{Tool: tool, Params: raw})
	if err != nil {
		t.Fatalf("%s(%s): %v", tool, raw, err)
	}
	return res
}

type m = map[string]any

func answer[T any](t *testing.T, res writ.Result) T {
	t.Helper()
	var v T
	if res.IsError || len(res.Content) == 0 || res.Content[0].Kind != writ.ContentJSON {
		t.Fatalf("no answer: %+v", res)
	}
	if err := json.Unmarshal(res.Content[0].JSON, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func statuses(t *testing.T, res writ.Result) []readStatus {
	return answer[struct{ Items []readStatus }](t, res).Items
}

func TestCanon(t *testing.T) {
	long := strings.Repeat("a", MaxPath)
	for _, tc := range []struct{ in, want, err string }{
		{"notes.md", "files/notes.md", ""},
		{"files/notes.md", "files/notes.md", ""},
		{"conv:fi:files/notes.md", "files/notes.md", ""},
		{"conv:fi:notes.md", "files/notes.md", ""},
		{"./a//b/./c.txt", "files/a/b/c.txt", ""},
		{"results/0f-x.json", "results/0f-x.json", ""},
		{"a b/ü.txt", "files/a b/ü.txt", ""},
		{"..a/b..c", "files/..a/b..c", ""},
		{"", "", "empty"},
		{"conv:fi:", "", "empty"},
		{"/etc/passwd", "", "absolute"},
		{"conv:fi:/etc/passwd", "", "absolute"},
		{"../x", "", ".."},
		{"a/../../x", "", ".."},
		{"a/..", "", ".."},
		{".", "", "names no file"},
		{"a\x00b", "", "not allowed"},
		{"a\nb", "", "not allowed"},
		{"a\xffb", "", "UTF-8"},
		{`a\b`, "", "not allowed"},
		{`C:/x`, "", "not allowed"},
		{"conv:fi:conv:fi:x", "", "not allowed"},
		{"a?b", "", "not allowed"},
		{"nul", "", "Windows"},
		{"x/COM1.txt", "", "Windows"},
		{"console.txt", "files/console.txt", ""},
		{"a./b", "", "dot"},
		{"a /b", "", "space"},
		{".writ-tmp", "", "runtime's"},
		{long, "", "longer"},
		{long[:MaxPath-2] + "/b", "", "longer"},
		{strings.Repeat("a/", MaxDepth) + "b", "", "deep"},
		{strings.Repeat("a/", MaxDepth-2) + "b", "files/" + strings.Repeat("a/", MaxDepth-2) + "b", ""},
	} {
		got, err := Canon(tc.in)
		if tc.err == "" && (err != nil || got != tc.want) {
			t.Errorf("Canon(%.60q) = %q, %v; want %q", tc.in, got, err, tc.want)
		}
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("Canon(%.60q) = %q, %v; want an error with %q", tc.in, got, err, tc.err)
		}
		if err == nil {
			if again, err := Canon(Ref(got)); err != nil || again != got {
				t.Errorf("Canon is not idempotent: %q, then %q, %v", got, again, err)
			}
		}
	}
}

func FuzzCanon(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "conv:fi:files/a", "/x", "a\x00", "./.", "files/../..", "CON"} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Canon(s)
		if err != nil {
			return
		}
		if again, err := Canon(c); err != nil || again != c {
			t.Errorf("%q is not a fixed point: %q, %v", c, again, err)
		}
		full := filepath.Join(dir, filepath.FromSlash(c))
		if rel, err := filepath.Rel(dir, full); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("%q leaves the workspace as %q", s, c)
		}
	})
}

func TestToolsTable(t *testing.T) {
	w, _ := open(t)
	tools, problems, err := w.Tools(t.Context())
	if err != nil || len(problems) != 0 {
		t.Fatal(problems, err)
	}
	want := map[string]writ.Strategy{"patch": writ.Exploitation, "read": writ.Exploration, "rg": writ.Exploration, "write": writ.Exploitation}
	var names []string
	for _, s := range tools {
		names = append(names, s.Name)
		if *s.Declared.Strategy != want[s.Name] || !s.Local || s.Declared.Execution != nil {
			t.Errorf("%s: %+v", s.Name, s)
		}
		var schema jsonschema.Schema
		if err := json.Unmarshal(s.Schema, &schema); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		if _, err := schema.Resolve(nil); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for _, p := range append(s.Paths.Reads, s.Paths.Writes...) {
			if schema.Properties[p] == nil {
				t.Errorf("%s: no parameter %s", s.Name, p)
			}
		}
		if schema.AdditionalProperties == nil {
			t.Errorf("%s takes any property", s.Name)
		}
	}
	if fmt.Sprint(names) != "[patch read rg write]" {
		t.Errorf("order %v", names)
	}
	printed, err := json.Marshal(Specs())
	if err != nil || !strings.Contains(string(printed), `"id":"react.read","tool_traits":{"strategy":["exploration"]},"purpose":`) {
		t.Errorf("the table prints as %.200s, %v", printed, err)
	}
}

func TestWriteThenRead(t *testing.T) {
	w, dir := open(t)
	got := answer[written](t, call(t, w, "write", m{"path": "a/b/notes.md", "content": "one\ntwo\n"}))
	want := written{Ref: "conv:fi:files/a/b/notes.md", Path: "files/a/b/notes.md", Bytes: 8, SHA256: digest([]byte("one\ntwo\n")),
		Created: true, Channel: "internal", Kind: "file"}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	onDisk, err := os.ReadFile(filepath.Join(dir, "files/a/b/notes.md"))
	if err != nil || string(onDisk) != "one\ntwo\n" {
		t.Errorf("on disk %q, %v", onDisk, err)
	}
	again := answer[written](t, call(t, w, "write", m{"path": got.Ref, "content": "three", "channel": "canvas", "kind": "display"}))
	if again.Created || again.Channel != "canvas" || again.Kind != "display" {
		t.Errorf("got %+v", again)
	}
	res := call(t, w, "read", m{"paths": []string{got.Ref, "absent.md", "../x", "a"}})
	st := statuses(t, res)
	for i, s := range []string{"ok", "missing", "invalid_path", "not_a_file"} {
		if st[i].Status != s {
			t.Errorf("%s: %+v, want %s", st[i].Path, st[i], s)
		}
	}
	if len(res.Content) != 2 || !strings.HasSuffix(res.Content[1].Text, "\nthree") || res.Content[1].Name != got.Ref {
		t.Errorf("content %+v", res.Content[1:])
	}
	left, _ := filepath.Glob(filepath.Join(dir, "files/a/b/.writ-*"))
	if len(left) != 0 {
		t.Errorf("temporary files stay: %v", left)
	}
}

func TestWriteRefusals(t *testing.T) {
	w, dir := open(t)
	call(t, w, "write", m{"path": "file", "content": "x"})
	for _, tc := range []struct {
		params m
		want   string
	}{
		{m{"path": "../x", "content": ""}, ".."},
		{m{"path": "/x", "content": ""}, "absolute"},
		{m{"path": "results/x", "content": ""}, "runtime only"},
		{m{"path": "files", "content": ""}, "folder"},
		{m{"path": "file/below", "content": ""}, "a file, not a folder"},
		{m{"path": "x", "content": strings.Repeat("x", MaxFile+1)}, "the limit"},
		{m{"path": "x", "content": "", "channel": "email"}, "channel"},
		{m{"path": "x", "content": "", "kind": "toy"}, "kind"},
	} {
		res := call(t, w, "write", tc.params)
		if !res.IsError || !strings.Contains(res.Content[0].Text, tc.want) {
			t.Errorf("write(%v): %.200v, want an error with %q", tc.params["path"], res, tc.want)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "files/folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if res := call(t, w, "write", m{"path": "folder", "content": ""}); !res.IsError {
		t.Error("a folder was overwritten")
	}
	if _, err := w.Call(t.Context(), writ.Call{Tool: "write", Params: json.RawMessage(`{"path":1}`)}); !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("bad arguments: %v", err)
	}
	if _, err := w.Call(t.Context(), writ.Call{Tool: "erase"}); !errors.Is(err, writ.ErrVanished) {
		t.Errorf("unknown tool: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Call(ctx, writ.Call{Tool: "write", Params: json.RawMessage(`{"path":"late","content":""}`)}); !errors.Is(err, writ.ErrNotStarted) {
		t.Errorf("ended context: %v", err)
	}
}

// TestNothingLeavesTheWorkspace plants every kind of link and special file that a tool with a shell could.
func TestNothingLeavesTheWorkspace(t *testing.T) {
	w, dir := open(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(dir, "files")
	for name, target := range map[string]string{"abs": secret, "dir": outside, "up": "../../" + filepath.Base(outside), "loop": "loop",
		"dangling": filepath.Join(outside, "new"), "proc": "/proc/self/environ"} {
		if err := os.Symlink(target, filepath.Join(files, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(files, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"abs", "dir/secret", "up/secret", "loop", "dangling", "proc", "fifo"} {
		res := call(t, w, "read", m{"paths": []string{p}})
		if st := statuses(t, res)[0]; st.Status == "ok" || len(res.Content) > 1 {
			t.Errorf("read %s: %+v", p, res)
		}
		call(t, w, "write", m{"path": p, "content": "overwritten"})
		call(t, w, "patch", m{"path": p, "patch": "replaced"})
	}
	call(t, w, "write", m{"path": "dir/new", "content": "x"})
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Errorf("the file outside is now %q, %v", got, err)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside there is now %v, %v", entries, err)
	}
	for _, e := range w.Map(0) {
		if strings.Contains(e.Path, "dir/") || strings.Contains(e.Path, "up/") {
			t.Errorf("the map follows a link: %+v", e)
		}
	}
	res := call(t, w, "rg", m{"pattern": "secret"})
	if got := answer[searchAnswerBody](t, res); len(got.Hits) != 0 {
		t.Errorf("rg follows a link: %+v", got.Hits)
	}
}

func TestReadRangesAndCaps(t *testing.T) {
	w, _ := open(t)
	var b strings.Builder
	for i := 1; i <= 100; i++ {
		fmt.Fprintf(&b, "line %d é\n", i)
	}
	call(t, w, "write", m{"path": "f", "content": b.String()})
	call(t, w, "write", m{"path": "empty", "content": ""})
	call(t, w, "write", m{"path": "no-newline", "content": "a\nb"})
	for _, tc := range []struct {
		name   string
		params m
		status readStatus
		text   string
	}{
		{"range", m{"items": []m{{"path": "f", "line_start": 3, "line_count": 2}}},
			readStatus{Status: "ok", FirstLine: 3, LastLine: 4, Lines: 100}, "[conv:fi:files/f, lines 3-4 of 100]\nline 3 é\nline 4 é\n"},
		{"numbers", m{"items": []m{{"path": "f", "line_start": 100, "line_count": 9}}, "line_numbers": true},
			readStatus{Status: "ok", FirstLine: 100, LastLine: 100, Lines: 100}, "[conv:fi:files/f, lines 100-100 of 100]\n   100\tline 100 é\n"},
		{"beyond", m{"items": []m{{"path": "f", "line_start": 101}}}, readStatus{Status: "out_of_range", Lines: 100}, ""},
		{"empty", m{"paths": []string{"empty"}}, readStatus{Status: "ok"}, "[conv:fi:files/empty, lines 0-0 of 0]\n"},
		{"no newline", m{"paths": []string{"no-newline"}}, readStatus{Status: "ok", FirstLine: 1, LastLine: 2, Lines: 2},
			"[conv:fi:files/no-newline, lines 1-2 of 2]\na\nb"},
		{"cut", m{"paths": []string{"f"}, "max_chars": 12}, readStatus{Status: "truncated", FirstLine: 1, LastLine: 2, Lines: 100},
			"[conv:fi:files/f, lines 1-2 of 100]\nline 1 é\nlin\n[truncated: cut after 12 characters, in line 2; read on with items [{path, line_start: 2, line_count}]]"},
		{"stats", m{"paths": []string{"f"}, "stats_only": true}, readStatus{Status: "stats_only", Lines: 100}, ""},
	} {
		res := call(t, w, "read", tc.params)
		st := statuses(t, res)[0]
		if st.Status != tc.status.Status || st.FirstLine != tc.status.FirstLine || st.LastLine != tc.status.LastLine || st.Lines != tc.status.Lines {
			t.Errorf("%s: %+v, want %+v", tc.name, st, tc.status)
		}
		text := ""
		if len(res.Content) > 1 {
			text = res.Content[1].Text
		}
		if text != tc.text {
			t.Errorf("%s: text %q\nwant %q", tc.name, text, tc.text)
		}
	}
	call(t, w, "write", m{"path": "long", "content": strings.Repeat("é", maxReadChars+1)})
	res := call(t, w, "read", m{"paths": []string{"long"}})
	if st := statuses(t, res)[0]; st.Status != "truncated" || strings.Count(res.Content[1].Text, "é") != maxReadChars {
		t.Errorf("cap: %+v with %d characters", st, strings.Count(res.Content[1].Text, "é"))
	}
	res = call(t, w, "read", m{"paths": []string{"long", "long", "long", "long", "long", "long"}})
	if n := strings.Count(fmt.Sprint(res.Content), "é"); n > maxReadTotal {
		t.Errorf("one call shows %d characters", n)
	}
	if res := call(t, w, "read", m{}); !res.IsError {
		t.Error("reading nothing is no error")
	}
	if res := call(t, w, "read", m{"paths": make([]string, maxReadItems+1)}); !res.IsError {
		t.Error("too many paths are no error")
	}
}

func TestReadBinary(t *testing.T) {
	w, dir := open(t)
	png := append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 20)...)
	for name, data := range map[string][]byte{"p.png": png, "b.bin": {0, 1, 2, 0xff}, "latin1": []byte("caf\xe9")} {
		if err := os.WriteFile(filepath.Join(dir, "files", name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	res := call(t, w, "read", m{"paths": []string{"p.png", "b.bin", "latin1"}})
	st := statuses(t, res)
	if st[0].Status != "image" || st[1].Status != "binary" || st[2].Status != "binary" || st[1].Bytes != 4 {
		t.Errorf("%+v", st)
	}
	if len(res.Content) != 2 || res.Content[1].Kind != writ.ContentBlob || res.Content[1].MIME != "image/png" || string(res.Content[1].Data) != string(png) {
		t.Errorf("%+v", res.Content[1:])
	}
	f, err := os.Create(filepath.Join(dir, "files/huge"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(MaxResult + 1); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if st := statuses(t, call(t, w, "read", m{"paths": []string{"huge"}}))[0]; st.Status != "too_large" || st.Bytes != MaxResult+1 {
		t.Errorf("%+v", st)
	}
}

func TestOffloadIsIdempotentAndReadable(t *testing.T) {
	w, _ := open(t)
	a, err := w.Offload("search results.json", []byte(`{"a":1}`))
	if err != nil || a != "conv:fi:results/"+digest([]byte(`{"a":1}`))+"-search_results.json" {
		t.Fatalf("%q, %v", a, err)
	}
	b, err := w.Offload("search results.json", []byte(`{"a":1}`))
	if err != nil || b != a || len(w.Map(0)) != 1 {
		t.Errorf("%q, %v, %v", b, err, w.Map(0))
	}
	if _, err := w.Offload("../../x", []byte("y")); err != nil {
		t.Error(err)
	}
	if _, err := w.Offload("", []byte("z")); err != nil {
		t.Error(err)
	}
	if st := statuses(t, call(t, w, "read", m{"paths": []string{a}}))[0]; st.Status != "ok" {
		t.Errorf("%+v", st)
	}
	if _, err := w.Offload("big", make([]byte, MaxResult+1)); err == nil {
		t.Error("a result over the limit was stored")
	}
}

func TestMapIsSortedAndBounded(t *testing.T) {
	w, dir := open(t)
	for _, p := range []string{"b", "a/z", "a-b", "c"} {
		call(t, w, "write", m{"path": p, "content": p})
	}
	if err := os.WriteFile(filepath.Join(dir, "files", "bad:name"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range w.Map(0) {
		got = append(got, e.Path)
	}
	if fmt.Sprint(got) != "[files/a-b files/a/z files/b files/c]" {
		t.Errorf("%v", got)
	}
	if two := w.Map(2); len(two) != 2 || two[1] != (Entry{Ref: "conv:fi:files/a/z", Path: "files/a/z", Size: 3}) {
		t.Errorf("%v", two)
	}
}

func TestFileLimit(t *testing.T) {
	w, dir := open(t)
	for i := range MaxFiles {
		if err := os.WriteFile(filepath.Join(dir, "files", fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if res := call(t, w, "write", m{"path": "one-more", "content": ""}); !res.IsError || !strings.Contains(res.Content[0].Text, "10000 files") {
		t.Errorf("%+v", res)
	}
	if res := call(t, w, "write", m{"path": "17", "content": "still writable"}); res.IsError {
		t.Errorf("%+v", res)
	}
}

func TestConcurrentPatchesLoseNothing(t *testing.T) {
	w, _ := open(t)
	call(t, w, "write", m{"path": "f", "content": ""})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			raw, _ := json.Marshal(m{"path": "f", "patch": fmt.Sprintf("@@ -0,0 +1 @@\n+line %d\n", i)})
			if res, err := w.Call(context.Background(), writ.Call{Tool: "patch", Params: raw}); err != nil || res.IsError {
				t.Errorf("%v %v", res, err)
			}
		})
	}
	wg.Wait()
	if st := statuses(t, call(t, w, "read", m{"paths": []string{"f"}}))[0]; st.Lines != 20 {
		t.Errorf("%+v", st)
	}
}

func TestSearch(t *testing.T) {
	w, dir := open(t)
	call(t, w, "write", m{"path": "src/a.go", "content": "package a\n\nfunc Foo() {}\nfunc Bar() {}\n"})
	call(t, w, "write", m{"path": "src/b.txt", "content": "Foo is here\r\n"})
	call(t, w, "write", m{"path": "other", "content": strings.Repeat("Foo\n", 300)})
	if err := os.WriteFile(filepath.Join(dir, "files/bin"), []byte("Foo\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := answer[searchAnswerBody](t, call(t, w, "rg", m{"pattern": `Foo\b`, "root": "src", "context_lines": 1}))
	if len(got.Hits) != 2 || got.ScanTruncated || got.FilesScanned != 2 {
		t.Fatalf("%+v", got)
	}
	if h := got.Hits[0]; h.Ref != "conv:fi:files/src/a.go" || h.Line != 3 || h.Text != "func Foo() {}" ||
		fmt.Sprint(h.Before) != "[]" || len(h.Before) != 1 || fmt.Sprint(h.After) != "[func Bar() {}]" || h.Read != (readItem{h.Ref, 1, 4}) {
		t.Errorf("%+v", h)
	}
	if got.Hits[1].Text != "Foo is here" {
		t.Errorf("%+v", got.Hits[1])
	}
	got = answer[searchAnswerBody](t, call(t, w, "rg", m{"pattern": "Foo"}))
	if len(got.Hits) != 200 || !got.ScanTruncated || got.FilesSkipped != 1 {
		t.Errorf("%d hits, truncated %v, skipped %d", len(got.Hits), got.ScanTruncated, got.FilesSkipped)
	}
	got = answer[searchAnswerBody](t, call(t, w, "rg", m{"name_regex": `\.go$`}))
	if len(got.Files) != 1 || got.Files[0].Path != "files/src/a.go" {
		t.Errorf("%+v", got)
	}
	got = answer[searchAnswerBody](t, call(t, w, "rg", m{"pattern": "Foo", "max_files": 1}))
	if got.FilesScanned != 1 || !got.ScanTruncated {
		t.Errorf("%+v", got)
	}
	got = answer[searchAnswerBody](t, call(t, w, "rg", m{"pattern": "x", "root": "nowhere"}))
	if len(got.Hits) != 0 || got.ScanTruncated {
		t.Errorf("%+v", got)
	}
	for _, bad := range []m{{}, {"pattern": "("}, {"pattern": "x", "name_regex": "["}, {"pattern": "x", "root": "../.."}} {
		if res := call(t, w, "rg", bad); !res.IsError {
			t.Errorf("rg(%v) = %+v", bad, res)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.search(ctx, json.RawMessage(`{"pattern":"x"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
