package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// vendor is a loopback server that speaks Anthropic Messages: one answer for each call, in order.
type vendor struct {
	mu       sync.Mutex
	answers  []string // SSE bodies; "status:N" for an error
	requests []string
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = append(v.requests, fmt.Sprint(r.Header)+" "+string(body))
	if len(v.answers) == 0 {
		http.Error(w, `{"type":"error","error":{"type":"invalid_request_error","message":"the script is over"}}`, http.StatusBadRequest)
		return
	}
	next := v.answers[0]
	v.answers = v.answers[1:]
	var status int
	if n, _ := fmt.Sscanf(next, "status:%d", &status); n == 1 {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		kind := map[int]string{401: "authentication_error", 529: "overloaded_error"}[status]
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"`+kind+`","message":"no"}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, next)
}

// sse is a message of the Messages API that says one text, whole.
func sse(text string) string {
	ev := func(typ, data string) string { return "event: " + typ + "\ndata: " + data + "\n\n" }
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
	return ev("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1000,"cache_read_input_tokens":2000,"cache_creation_input_tokens":100,"output_tokens":1}}}`) +
		ev("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) +
		ev("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+quoted+`"}}`) +
		ev("content_block_stop", `{"type":"content_block_stop","index":0}`) +
		ev("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":200}}`) +
		ev("message_stop", `{"type":"message_stop"}`)
}

const secretKey = "sk-ant-planted-0123456789"

// liveBench is a configuration whose provider is the loopback vendor.
func liveBench(t *testing.T, v *vendor) (dir string, writ func(args ...string) (int, string, string)) {
	t.Helper()
	srv := httptest.NewServer(v)
	t.Cleanup(srv.Close)
	dir = t.TempDir()
	t.Setenv("WRIT_TEST_KEY", secretKey)
	yaml := `
react: {dialect: channel, model: "acme/claude-sonnet-4-6"}
models:
  providers:
    acme: {kind: anthropic, api_key: "${WRIT_TEST_KEY}", base_url: "` + srv.URL + `"}
  prices:
    acme/claude-sonnet-4-6: {input: 3, output: 15, cache_read: 0.3, cache_write: 3.75}
surfaces: {as_consumer: {default_agent: main, agents: {main: {}}}}
`
	if err := os.WriteFile(filepath.Join(dir, "writ.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, func(args ...string) (int, string, string) {
		var out, errw bytes.Buffer
		code := run(append(args, "-c", filepath.Join(dir, "writ.yaml"), "--data", filepath.Join(dir, "data")), strings.NewReader(""), &out, &errw)
		return code, out.String(), errw.String()
	}
}

const liveAnswer = `<channel:thinking>x</channel:thinking><channel:action>{"action":"complete","final_answer":"hello, ` + secretKey + `"}</channel:action>`

func TestAProviderAnswersAndIsRecorded(t *testing.T) {
	v := &vendor{answers: []string{"status:529", sse(liveAnswer)}}
	dir, writ := liveBench(t, v)
	rec := filepath.Join(dir, "rec.yaml")
	code, out, errw := writ("run", "--record", rec, "hi")
	if code != 0 || !strings.Contains(out, "hello, ") {
		t.Fatalf("exit %d\n%s\n%s", code, out, errw)
	}
	if len(v.requests) != 2 || !strings.Contains(v.requests[1], "Bearer "+secretKey) || !strings.Contains(v.requests[1], `"claude-sonnet-4-6"`) {
		t.Errorf("%d requests: %.300q", len(v.requests), v.requests)
	}
	if !strings.Contains(errw, "retry 1 of 4") {
		t.Errorf("no word of the retry:\n%s", errw)
	}
	// 1000×3 + 2000×0.3 + 100×3.75 + 200×15 per million; the refused call is estimated.
	if !strings.Contains(errw, "2000 from the cache") {
		t.Errorf("no cost:\n%s", errw)
	}
	b, err := os.ReadFile(rec)
	if err != nil || bytes.Contains(b, []byte("planted")) || !bytes.Contains(b, []byte("[secret]")) {
		t.Errorf("the recording: %v\n%s", err, b)
	}
	code, out, errw = writ("run", "--model", "recorded:"+rec, "hi")
	if code != 0 || !strings.Contains(out, "hello, [secret]") {
		t.Errorf("played again: exit %d\n%s\n%s", code, out, errw)
	}
}

func TestCostIsInTheEvents(t *testing.T) {
	_, writ := liveBench(t, &vendor{answers: []string{sse(liveAnswer)}})
	code, out, errw := writ("run", "--json", "hi")
	if code != 0 || !strings.Contains(out, `"cost":0.006975`) || !strings.Contains(out, `"model":"acme/claude-sonnet-4-6"`) {
		t.Errorf("exit %d\n%s\n%s", code, out, errw)
	}
}

func TestAWrongKeyNamesItsVariable(t *testing.T) {
	_, writ := liveBench(t, &vendor{answers: []string{"status:401"}})
	code, out, errw := writ("run", "hi")
	if code != exitNoAnswer || !strings.Contains(errw, "WRIT_TEST_KEY") || strings.Contains(errw+out, "planted") {
		t.Errorf("exit %d\n%s\n%s", code, out, errw)
	}
}

func TestAMissingKeyNamesItsVariable(t *testing.T) {
	_, writ := liveBench(t, &vendor{})
	os.Unsetenv("WRIT_TEST_KEY")
	code, _, errw := writ("run", "hi")
	if code != exitRefused || !strings.Contains(errw, "WRIT_TEST_KEY is not set") {
		t.Errorf("exit %d\n%s", code, errw)
	}
}
