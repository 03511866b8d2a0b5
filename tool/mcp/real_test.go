package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"writ"
)

// official opens one of the public servers that "make setup" installs.
func official(t *testing.T, name string, env map[string]string, args ...string) *Server {
	t.Helper()
	script, err := filepath.Abs("../../testdata/npm/node_modules/@modelcontextprotocol/server-" + name + "/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(script); err != nil {
		t.Fatalf("the official servers are not installed: run make setup (%v)", err)
	}
	return open(t, Config{Alias: name, Command: "node", Args: append([]string{script}, args...), Env: env, Log: testLog(t)})
}

func names(tools []writ.ToolSpec) []string {
	var out []string
	for _, s := range tools {
		out = append(out, s.Name)
	}
	return out
}

func TestOfficialEverything(t *testing.T) {
	t.Setenv("WRIT_SECRET", "must not leak")
	s := official(t, "everything", map[string]string{"GIVEN": "yes"}, "stdio")
	tools, problems, err := s.Tools(t.Context())
	if err != nil || len(problems) != 0 {
		t.Fatal(problems, err)
	}
	got := names(tools)
	for _, want := range []string{"echo", "get-env", "get-structured-content", "get-sum", "get-tiny-image", "trigger-long-running-operation"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("not sorted: %v", got)
	}
	if slices.Contains(got, "trigger-sampling-request") || slices.Contains(got, "get-roots-list") {
		t.Errorf("the server was offered sampling or roots: %v", got)
	}
	if text(t, call(t, s, "echo", `{"message":"hi"}`)) != "Echo: hi" {
		t.Error("echo")
	}
	res := call(t, s, "get-structured-content", `{"location":"Chicago"}`)
	if len(res.Content) != 1 || res.Content[0].Kind != writ.ContentJSON || !strings.Contains(string(res.Content[0].JSON), `"temperature":36`) {
		t.Errorf("%+v", res)
	}
	res = call(t, s, "get-tiny-image", `{}`)
	if len(res.Content) != 3 || res.Content[1].MIME != "image/png" || !bytes.HasPrefix(res.Content[1].Data, []byte("\x89PNG")) {
		t.Errorf("%d parts", len(res.Content))
	}
	res = call(t, s, "get-resource-links", `{"count":2}`)
	if len(res.Content) != 3 || res.Content[1].Kind != writ.ContentLink || !strings.HasPrefix(res.Content[1].URI, "demo://") {
		t.Errorf("%+v", res)
	}
	if res := call(t, s, "get-sum", `{"a":"x"}`); !res.IsError {
		t.Errorf("wrong arguments: %+v", res)
	}
	var env map[string]string
	if err := json.Unmarshal([]byte(text(t, call(t, s, "get-env", `{}`))), &env); err != nil {
		t.Fatal(err)
	}
	for k := range env {
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "GIVEN"}, k) {
			t.Errorf("the server sees %s", k)
		}
	}
	if env["GIVEN"] != "yes" {
		t.Errorf("environment %v", env)
	}
}

// TestOfficialCancelAndKill: the server ignores the cancellation, and dies when told to; neither keeps anybody waiting.
func TestOfficialCancelAndKill(t *testing.T) {
	s := official(t, "everything", nil, "stdio")
	call(t, s, "echo", `{"message":"warm"}`)
	long := writ.Call{Tool: "trigger-long-running-operation", Params: json.RawMessage(`{"duration":600,"steps":2}`)}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := s.Call(ctx, long)
	wantUnknown(t, err)
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("the cancelled call returned after %v", d)
	}
	call(t, s, "echo", `{"message":"still there"}`)

	result := make(chan error, 1)
	go func() {
		_, err := s.Call(context.Background(), long)
		result <- err
	}()
	// A call answered after the long one was sent: the server has read both.
	call(t, s, "echo", `{"message":"x"}`)
	if err := syscall.Kill(s.Health().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Log(err)
	} else {
		t.Error("a call of a killed server succeeded")
	}
	if got := text(t, call(t, s, "echo", `{"message":"again"}`)); got != "Echo: again" {
		t.Errorf("got %q", got)
	}
	if h := s.Health(); h.Starts != 2 || h.Failures != 1 {
		t.Errorf("health %+v", h)
	}
	start = time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("Close took %v", d)
	}
}

func TestOfficialFilesystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "inside")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := official(t, "filesystem", nil, inside)
	tools, problems, err := s.Tools(t.Context())
	if err != nil || len(problems) != 0 {
		t.Fatal(problems, err)
	}
	hints := map[string]bool{}
	for _, spec := range tools {
		if spec.Hints == nil {
			t.Errorf("%s has no hints", spec.Name)
			continue
		}
		hints[spec.Name] = spec.Hints.ReadOnly
	}
	if !hints["read_text_file"] || hints["write_file"] || len(tools) < 10 {
		t.Errorf("hints %v", hints)
	}
	params := func(m map[string]string) string {
		raw, _ := json.Marshal(m)
		return string(raw)
	}
	file := filepath.Join(inside, "notes ü.txt")
	if res := call(t, s, "write_file", params(map[string]string{"path": file, "content": "written by Writ"})); res.IsError {
		t.Errorf("%+v", res)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "written by Writ" {
		t.Errorf("on disk %q, %v", got, err)
	}
	if res := call(t, s, "read_text_file", params(map[string]string{"path": file})); res.IsError || len(res.Content) == 0 {
		t.Errorf("%+v", res)
	}
	for _, p := range []string{secret, filepath.Join(inside, "..", "secret"), "/etc/passwd"} {
		res := call(t, s, "read_text_file", params(map[string]string{"path": p}))
		if !res.IsError || strings.Contains(text(t, res), "s3cret") {
			t.Errorf("path escape %s: %+v", p, res)
		}
	}
}

func TestOfficialMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.jsonl")
	s := official(t, "memory", map[string]string{"MEMORY_FILE_PATH": file})
	if tools, problems, err := s.Tools(t.Context()); err != nil || len(problems) != 0 || len(tools) != 9 {
		t.Fatalf("%v, %v, %v", names(tools), problems, err)
	}
	call(t, s, "create_entities", `{"entities":[{"name":"Writ","entityType":"runtime","observations":["governs"]}]}`)
	res := call(t, s, "search_nodes", `{"query":"governs"}`)
	if len(res.Content) != 1 || res.Content[0].Kind != writ.ContentJSON || !strings.Contains(string(res.Content[0].JSON), `"name":"Writ"`) {
		t.Errorf("%+v", res)
	}
	if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "governs") {
		t.Errorf("the given environment did not arrive: %q, %v", data, err)
	}
}
