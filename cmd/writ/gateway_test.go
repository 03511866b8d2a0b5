package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"writ"
)

// front is a client of a `writ gateway` process over stdio.
type front struct {
	*mcp.ClientSession
	t      *testing.T
	cmd    *exec.Cmd
	stderr *output
}

// newFrontBench is a killBench whose programs end without the second that the race detector waits for.
func newFrontBench(t *testing.T) *killBench {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	k := newKillBench(t)
	k.write("writ.yaml", strings.Replace(killConfig, "env: {", `env: {GORACE: "atexit_sleep_ms=0", `, 1))
	return k
}

// gateway starts the program on the bench's data; env is added to its environment.
func (k *killBench) gateway(env ...string) (*front, error) {
	k.t.Helper()
	f := &front{t: k.t, cmd: k.command("gateway", "-c", "writ.yaml"), stderr: &output{}}
	f.cmd.Env = append(f.cmd.Env, env...)
	f.cmd.Stderr = f.stderr
	var err error
	f.ClientSession, err = mcp.NewClient(&mcp.Implementation{Name: "front", Version: "1"}, nil).Connect(k.t.Context(), &mcp.CommandTransport{Command: f.cmd}, nil)
	return f, err
}

func (k *killBench) mustGateway(env ...string) *front {
	k.t.Helper()
	f, err := k.gateway(env...)
	if err != nil {
		k.t.Fatalf("%v\n%s", err, f.stderr)
	}
	k.t.Cleanup(func() { _ = f.Close() })
	return f
}

// call returns the text of the result, or of the error; failed is isError or an error of the protocol.
func (f *front) call(tool, key string, args map[string]any) (text string, failed bool) {
	f.t.Helper()
	p := &mcp.CallToolParams{Name: tool, Arguments: args}
	if key != "" {
		p.Meta = mcp.Meta{"writ/key": key}
	}
	res, err := f.CallTool(f.t.Context(), p)
	if err != nil {
		return err.Error(), true
	}
	for _, c := range res.Content {
		if tc, ok := c.(*mcp.TextContent); ok {
			text += tc.Text
		}
	}
	return text, res.IsError
}

func (f *front) want(tool, key string, args map[string]any, failed bool, part string) {
	f.t.Helper()
	if text, bad := f.call(tool, key, args); bad != failed || !strings.Contains(text, part) {
		f.t.Errorf("%s under %q: failed %v, %s\n%s", tool, key, bad, text, f.stderr)
	}
}

// TestGatewayInAPipe: requests that somebody has written into a pipe are answered although it has ended.
func TestGatewayInAPipe(t *testing.T) {
	k := newFrontBench(t)
	cmd := k.command("gateway", "-c", "writ.yaml")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"pipe","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bump","arguments":{"who":"a"}}}
`)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"id":2,"result"`) || k.count("a") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	if rows := k.rows(); len(rows) != 1 || rows[0].State != writ.Succeeded {
		t.Errorf("%+v", rows)
	}
}

// TestGatewayIsKilledInACall: the effect was there, the answer was not, and the key says so for ever.
func TestGatewayIsKilledInACall(t *testing.T) {
	k := newFrontBench(t)
	a := map[string]any{"who": "a"}
	f := k.mustGateway()
	f.want("bump", "first", a, false, `{"who":"a"}`)
	if text, failed := f.call("bump", "second", map[string]any{"who": "b", "kill": true}); !failed {
		t.Fatalf("it lived: %s", text)
	}
	f = k.mustGateway()
	f.want("bump", "first", a, false, `{"who":"a"}`)
	f.want("bump", "second", map[string]any{"who": "b", "kill": true}, true, "it may have happened")
	f.want("bump", "first", map[string]any{"who": "c"}, true, "recorded with other arguments")
	if k.count("a") != 1 || k.count("b") != 1 || k.count("c") != 0 {
		t.Errorf("%+v", k.effects())
	}
	// What is unknown closes its target, until a person has found out.
	f.want("bump", "third", map[string]any{"who": "c"}, true, "until that is resolved")
	var unknown string
	for _, row := range k.rows() {
		if row.State == writ.Indeterminate {
			unknown = row.ID
		}
	}
	if out, err := k.command("actions", "resolve", unknown, "--as", "effect_applied").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f.want("bump", "third", map[string]any{"who": "c"}, false, `{"who":"c"}`)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if out, err := k.command("audit", "verify").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGatewayIsKilledAtEachWrite: whatever the ledger had of a call when its process was killed, its key runs it at most
// once, and says that it did only when it did.
func TestGatewayIsKilledAtEachWrite(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			for n := 1; ; n++ {
				k := newFrontBench(t)
				f, err := k.gateway(fmt.Sprintf("WRIT_KILL_WRITE=%s:%d", when, n))
				died := err != nil
				if err == nil {
					_, died = f.call("bump", "k", map[string]any{"who": "a"})
					_ = f.Close()
				}
				f = k.mustGateway()
				var texts []string
				for range 2 {
					text, failed := f.call("bump", "k", map[string]any{"who": "a"})
					texts = append(texts, text)
					switch ran := k.count("a"); {
					case ran > 1, !failed && ran != 1, failed && strings.Contains(text, "not executed") && ran != 0:
						t.Errorf("killed %s write %d: %d effects, and: %s", when, n, ran, text)
					}
				}
				if texts[0] != texts[1] {
					t.Errorf("killed %s write %d: %q, then %q", when, n, texts[0], texts[1])
				}
				_ = f.Close()
				if out, err := k.command("audit", "verify").CombinedOutput(); err != nil {
					t.Errorf("killed %s write %d: %v\n%s", when, n, err, out)
				}
				if !died {
					if n < 4 {
						t.Errorf("a call has only %d writes", n-1)
					}
					return
				}
			}
		})
	}
}

var heldID = regexp.MustCompile(`writ approve (act_\w+)`)

// TestGatewayApproval: the decision is another process's, while the gateway runs, between two of its lives, and after it.
func TestGatewayApproval(t *testing.T) {
	for _, c := range []struct {
		name                          string
		leaveBefore, leaveAfter, kill bool
		verb                          string
	}{
		{name: "it runs", verb: "approve"}, {name: "its client has gone", leaveBefore: true, verb: "approve"},
		{name: "its client goes then", leaveAfter: true, verb: "approve"}, {name: "it was killed", leaveBefore: true, kill: true, verb: "approve"},
		{name: "declined while it runs", verb: "decline"}, {name: "declined when it has gone", leaveBefore: true, verb: "decline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newFrontBench(t)
			a := map[string]any{"who": "a"}
			f := k.mustGateway()
			leave := func() {
				if c.kill {
					_ = f.cmd.Process.Signal(syscall.SIGKILL)
				}
				_ = f.Close()
			}
			text, failed := f.call("ask", "k", a)
			m := heldID.FindStringSubmatch(text)
			if !failed || m == nil || k.count("a") != 0 {
				t.Fatal(text)
			}
			if c.leaveBefore {
				leave()
			}
			if out, err := k.command(c.verb, m[1]).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if c.leaveAfter {
				leave()
			}
			if c.leaveBefore || c.leaveAfter {
				f = k.mustGateway()
			}
			ran := 0
			for range 2 {
				if c.verb == "approve" {
					ran = 1
					f.want("ask", "k", a, false, `{"who":"a"}`)
				} else {
					f.want("ask", "k", a, true, "declined")
				}
			}
			_ = f.Close()
			if k.count("a") != ran {
				t.Errorf("%+v", k.effects())
			}
			if out, err := k.command("audit", "verify").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

var gatewayLine = regexp.MustCompile(`serving MCP at (http://\S+/mcp)`)

// overHTTP starts the program with --http and waits until it serves.
func (k *killBench) overHTTP(args ...string) (url string, cmd *exec.Cmd, stderr *output) {
	k.t.Helper()
	cmd, stderr = k.command(append([]string{"gateway", "-c", "writ.yaml", "--http", "127.0.0.1:0"}, args...)...), &output{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(k.t, func() bool { return strings.Contains(stderr.String(), "each request needs") })
	return gatewayLine.FindStringSubmatch(stderr.String())[1], cmd, stderr
}

// bearing adds a token to each request.
type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func (k *killBench) client(url, token string) (*front, error) {
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "front", Version: "1"}, nil).Connect(k.t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearing(token)}, MaxRetries: -1}, nil)
	return &front{ClientSession: cs, t: k.t, stderr: &output{}}, err
}

// TestGatewayTokens: who is let in over HTTP, and on whose behalf.
func TestGatewayTokens(t *testing.T) {
	k := newFrontBench(t)
	url, cmd, _ := k.overHTTP()
	path := k.path("data/gateway.token")
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", st, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	start := strings.TrimSpace(string(b))
	f, err := k.client(url, start)
	if err != nil {
		t.Fatal(err)
	}
	f.want("bump", "k", map[string]any{"who": "a"}, false, `{"who":"a"}`)
	if _, err := k.client(url, start+"x"); err == nil {
		t.Error("another token was good")
	}
	create := func(participant string) (id, text string) {
		t.Helper()
		c := k.command("token", "create", "--participant", participant)
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		list, err := k.command("token", "list").Output()
		if err != nil {
			t.Fatal(err)
		}
		ids := regexp.MustCompile(`tok_\w+`).FindAllString(string(list), -1)
		return ids[len(ids)-1], strings.TrimSpace(string(out))
	}
	_, other := create("somebody-else")
	if _, err := k.client(url, other); err == nil {
		t.Error("a token for another participant was good")
	}
	id, mine := create("main")
	api, err := k.client(url, mine)
	if err != nil {
		t.Fatal(err)
	}
	api.want("bump", "k", map[string]any{"who": "a"}, false, `{"who":"a"}`) // its owner is who started the gateway
	if n := k.count("a"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if out, err := k.command("token", "revoke", id).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text, failed := api.call("bump", "", map[string]any{"who": "b"}); !failed || k.count("b") != 0 {
		t.Errorf("a revoked token was good: %s", text)
	}
	_ = api.Close()
	_ = f.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error("the token is still there: ", err)
	}

	// With an API token there is none of the start; elsewhere than on loopback one is needed.
	_, all := create("*")
	url, cmd, stderr := k.overHTTP()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) || strings.Contains(stderr.String(), "of this start") {
		t.Errorf("%v\n%s", err, stderr)
	}
	if _, err := k.client(url, all); err != nil {
		t.Error(err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	empty := newFrontBench(t)
	out, err := empty.command("gateway", "-c", "writ.yaml", "--http", "0.0.0.0:0").CombinedOutput()
	if exitCode(err) != exitRefused || !strings.Contains(string(out), "writ token create --participant main") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGatewayList: what is left out is told, there and while it serves; the directory may be held meanwhile.
func TestGatewayList(t *testing.T) {
	k := newFrontBench(t)
	k.write(pinsName, `{"w": {"bump": "0000", "look": "1111"}}`)
	f := k.mustGateway()
	out, err := k.command("gateway", "-c", "writ.yaml", "--list").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"LEFT OUT w.bump: its definition changed since it was accepted", "LEFT OUT w.ask: it is new", "writ check --live --accept"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if text, failed := f.call("bump", "", map[string]any{"who": "a"}); !failed || k.count("a") != 0 {
		t.Error(text)
	}
	if s := f.stderr.String(); !strings.Contains(s, "w.bump") || !strings.Contains(s, "changed") {
		t.Errorf("nothing is said of it: %s", s)
	}
	if out, err := k.command("check", "-c", "writ.yaml", "--live", "--accept").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_ = f.Close()
	k.mustGateway().want("bump", "", map[string]any{"who": "a"}, false, `{"who":"a"}`)
	if _, err := os.Stat(filepath.Join(k.dir, "data", "writ.sock")); err != nil {
		t.Error("other commands cannot reach it: ", err)
	}
}
