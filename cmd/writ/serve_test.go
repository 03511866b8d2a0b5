package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var servingLine = regexp.MustCompile(`(?m)^writ: serving on (http://\S+/)(?:\?token=(\S+))?$`)

// serving is a `writ serve` process.
type serving struct {
	t     *testing.T
	dir   string // with the data directory
	cmd   *exec.Cmd
	out   *output
	base  string // ends in "/"
	token string
}

func (s *serving) url() string { return s.base + "?token=" + s.token }

func repo(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func serve(t *testing.T, dir, listen string, more ...string) *serving {
	t.Helper()
	s := &serving{t: t, dir: dir, out: &output{}}
	s.cmd = s.command(append([]string{"serve", "-c", repo(t, "examples/portal.yaml"), "--listen", listen}, more...)...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	until(t, func() bool { return servingLine.MatchString(s.out.String()) })
	m := servingLine.FindStringSubmatch(s.out.String())
	s.base, s.token = m[1], m[2]
	return s
}

func (s *serving) command(args ...string) *exec.Cmd {
	cmd := exec.Command("writ", args...)
	cmd.Env = append(os.Environ(), "WRIT_DATA="+filepath.Join(s.dir, "data"))
	return cmd
}

// stop ends the server as Ctrl-C does, and returns its exit code.
func (s *serving) stop() int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Fatal(err)
	}
	var ee *exec.ExitError
	if err := s.cmd.Wait(); errors.As(err, &ee) {
		return ee.ExitCode()
	}
	return 0
}

func (s *serving) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
}

// actions are the rows, as `writ actions` prints them.
func (s *serving) actions() []actionRow {
	s.t.Helper()
	b, err := s.command("actions", "--json").Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var rows []actionRow
	if err := json.Unmarshal(b, &rows); err != nil {
		s.t.Fatal(err)
	}
	return rows
}

func (s *serving) states() string {
	var out []string
	for _, r := range s.actions() {
		out = append(out, string(r.State))
	}
	return strings.Join(out, " ")
}

func (s *serving) get(path, token string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest("GET", s.base+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// pythonHarness runs the example; what it prints is one JSON object a line.
func pythonHarness(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is needed: make setup")
	}
	return exec.Command(python, append([]string{repo(t, "examples/harness-python/harness.py")}, args...)...)
}

func lines(t *testing.T, out []byte) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(out) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		all = append(all, m)
	}
	return all
}

func TestExamplePython(t *testing.T) {
	s := serve(t, t.TempDir(), "127.0.0.1:0")
	seen := filepath.Join(s.dir, "seen")
	cmd := pythonHarness(t, "--url", s.url(), "--calls", "2", "--tool", `sh -c 'echo "$WRIT_IDEMPOTENCY_KEY" >> `+seen+`'`)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said := lines(t, out)
	if len(said) != 3 || said[2]["state"] != "succeeded" {
		t.Errorf("%s", out)
	}
	rows := s.actions()
	keys, err := os.ReadFile(seen)
	if err != nil || s.states() != "succeeded succeeded" || string(keys) != rows[0].IdempotencyKey+"\n"+rows[1].IdempotencyKey+"\n" {
		t.Errorf("%s; the tool has seen %q (%v)", s.states(), keys, err)
	}
	if rows[0].ToolCallID != "n:1" || rows[0].Tool != "portal-client.probe-customer-portal-login" {
		t.Errorf("%+v", rows[0])
	}
	// A failure, a refusal of the second call, and a time-out.
	for _, c := range []struct{ tool, contract, said, states string }{
		{"false", "probe-customer-portal-login", "failed", "succeeded succeeded failed"},
		{"sleep 30", "place-order", "unknown", "succeeded succeeded failed indeterminate"},
		{"true", "place-order", "refused", "succeeded succeeded failed indeterminate"},
	} {
		out, err := pythonHarness(t, "--url", s.url(), "--tool", c.tool, "--contract", c.contract, "--timeout", "0.5").Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if said := lines(t, out); said[0]["said"] != c.said || s.states() != c.states {
			t.Errorf("%s: %s; %s", c.tool, out, s.states())
		}
	}
	if code, body := s.get("readyz", ""); code != 200 || !strings.Contains(body, `"unresolved_unknown":1`) {
		t.Errorf("%d %s", code, body)
	}
}

func TestExampleGo(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "harness")
	if out, err := exec.Command("go", "build", "-o", bin, "../../examples/harness-go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := serve(t, t.TempDir(), "127.0.0.1:0")
	for _, tool := range []string{"true", "false"} {
		out, err := exec.Command(bin, "-url", s.url(), tool).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Accepted:true") || !strings.Contains(string(out), "State:succeeded") {
			t.Errorf("%v: %s", err, out)
		}
	}
	if got := s.states(); got != "succeeded failed" {
		t.Errorf("rows %s", got)
	}
	if out, err := exec.Command(bin, "-url", s.base+"?token=wrong", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "unauthenticated") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestKillServer: the server dies by kill -9 while a tool of a harness runs, and another one takes the data over. The action
// is unknown; what the harness says of it is kept beside it.
func TestKillServer(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, "127.0.0.1:0")
	started, goOn := filepath.Join(dir, "started"), filepath.Join(dir, "go-on")
	cmd := pythonHarness(t, "--url", s.url(), "--timeout", "60", "--tool", fmt.Sprintf(`sh -c 'touch %s; until [ -e %s ]; do sleep 0.05; done'`, started, goOn))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	until(t, func() bool { _, err := os.Stat(started); return err == nil })
	if got := s.states(); got != "dispatched" {
		t.Errorf("rows %s", got)
	}
	u, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	s.kill()
	next := serve(t, dir, u.Host)
	if got := next.states(); got != "indeterminate" {
		t.Errorf("after the restart: %s", got)
	}
	if next.token == s.token {
		t.Error("the next start has the same token")
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	said := lines(t, out.Bytes())
	if len(said) != 2 || said[0]["accepted"] != false || said[0]["code"] != "invocation_closed" || said[0]["late_report"] != true {
		t.Errorf("%s", &out)
	}
	if got := next.states(); got != "indeterminate" {
		t.Errorf("after the report: %s", got)
	}
	code, body := next.get("v1/operations/"+next.actions()[0].ID, next.token)
	if code != 200 || !strings.Contains(body, `"kind":"late_report"`) || !strings.Contains(body, `"status":"succeeded"`) {
		t.Errorf("%d %s", code, body)
	}
}

func TestServeStops(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, "127.0.0.1:0")
	file := filepath.Join(dir, "data", startTokenFile)
	b, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(b)) != s.token {
		t.Errorf("%q %v, want %s", b, err, s.token)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.out)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its token stays: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", controlSocket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its socket stays: %v", err)
	}
}

// TestTokens: a token that is made and revoked while the server runs counts at once; with tokens there is no other way in.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, dir, "127.0.0.1:0")
	create := func(args ...string) string {
		t.Helper()
		out, err := s.command(append([]string{"token", "create"}, args...)...).Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	all := create("--participant", "*", "--name", "ci", "--expires", "90d")
	other := create("--participant", "nobody")
	status := func(token string) int {
		code, _ := s.get("v1/participants", token)
		return code
	}
	if got := []int{status(all), status(other), status(s.token), status("writ_wrong")}; fmt.Sprint(got) != "[200 200 200 401]" {
		t.Errorf("%v", got)
	}
	out, err := s.command("token", "list", "--json").Output()
	var list []tokenRow
	if err != nil || json.Unmarshal(out, &list) != nil || len(list) != 2 || list[0].Name != "ci" || list[0].Token != "" || bytes.Contains(out, []byte(all)) {
		t.Fatalf("%v %s", err, out)
	}
	if d := time.Until(*list[0].ExpiresAt); d < 89*24*time.Hour || d > 90*24*time.Hour {
		t.Errorf("it expires in %s", d)
	}
	if out, err := s.command("token", "revoke", list[0].ID).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := []int{status(all), status(other)}; fmt.Sprint(got) != "[401 200]" {
		t.Errorf("%v", got)
	}
	s.stop()
	// The next start has no token of its own, because there is one; and may listen where others can reach it.
	next := serve(t, dir, "0.0.0.0:0")
	if next.token != "" {
		t.Errorf("it prints a token: %s", next.out)
	}
	next.base = strings.Replace(next.base, "0.0.0.0", "127.0.0.1", 1)
	next.base = strings.Replace(next.base, "[::]", "127.0.0.1", 1)
	if code, _ := next.get("v1/participants", other); code != 200 {
		t.Errorf("%d", code)
	}
	if code, _ := next.get("v1/participants", s.token); code != 401 {
		t.Errorf("the token of an earlier start: %d", code)
	}
}

var bashBlock = regexp.MustCompile("(?s)```bash\n(.*?)```")

// TestHTTPDocumentCurl runs what docs/http.md shows with curl.
func TestHTTPDocumentCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: run make setup")
	}
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	m := bashBlock.FindSubmatch(page)
	if m == nil {
		t.Fatal("the page has no curl example")
	}
	s := serve(t, t.TempDir(), "127.0.0.1:0")
	cmd := exec.Command("sh", "-e", "-c", string(m[1]))
	cmd.Env = append(os.Environ(), "WRIT="+strings.TrimSuffix(s.base, "/"), "TOKEN="+s.token)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if said := lines(t, out); len(said) != 3 || said[0]["ready"] != true || said[2]["invocation_token"] == nil {
		t.Errorf("%s", out)
	}
}
