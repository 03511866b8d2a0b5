package model_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"writ"
	"writ/model/anthropic"
	"writ/model/openai"
)

var update = flag.Bool("update", false, "rewrite the golden files and the table of docs/providers.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key is the key of every test. No error, log or golden file may hold it.
const key = "sk-ant-wiretest-secret"

// closer is what both adapters are.
type closer interface {
	writ.Model
	Close() error
	Mended() []string
}

// vendors are the APIs that have fixtures, each with the way to its adapter.
var vendors = []struct {
	name string
	open func(url string, t anthropic.Timeouts, hc *http.Client) (closer, error)
}{
	{"anthropic", func(url string, t anthropic.Timeouts, hc *http.Client) (closer, error) {
		return anthropic.New(anthropic.Config{APIKey: key, BaseURL: url, Model: "claude-test", Timeouts: t, HTTP: hc})
	}},
	{"openai-chat", func(url string, t anthropic.Timeouts, hc *http.Client) (closer, error) {
		return openai.New(openai.Config{APIKey: key, BaseURL: url + "/v1", Model: "gpt-test", API: openai.Chat, Timeouts: t, HTTP: hc})
	}},
	{"openai-responses", func(url string, t anthropic.Timeouts, hc *http.Client) (closer, error) {
		return openai.New(openai.Config{APIKey: key, BaseURL: url + "/v1", Model: "gpt-test", API: openai.Responses, Timeouts: t, HTTP: hc})
	}},
}

// fixture is a file of answers in wire format. Lines that begin with "#! " are not sent:
//
//	#! about: why it exists          (first line)
//	#! status: 429                   default 200
//	#! header: Retry-After: 7
//	#! end: stall | reset            default: the answer ends by itself
//	#! wait                          send no more until the tool has been called
//	#! next                          here begins the answer to the next request
//
// Requests after the last answer get the one of _done.sse.
type fixture struct {
	vendor, name, path, about string
	answers                   []answer
}

type answer struct {
	status  int
	headers [][2]string
	end     string
	pieces  [][]byte // between them the server waits
}

func loadFixture(t testing.TB, vendor, path string) fixture {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{vendor: vendor, path: path, name: strings.TrimSuffix(filepath.Base(path), ".sse")}
	for _, part := range bytes.Split(data, []byte("#! next\n")) {
		a := answer{status: 200, pieces: [][]byte{nil}}
		head := true
		for line := range bytes.Lines(part) {
			switch d, ok := bytes.CutPrefix(line, []byte("#! ")); {
			case ok:
				name, value, _ := strings.Cut(strings.TrimSpace(string(d)), ": ")
				switch name {
				case "about":
					f.about = value
				case "status":
					a.status, _ = strconv.Atoi(value)
				case "header":
					k, v, _ := strings.Cut(value, ": ")
					a.headers = append(a.headers, [2]string{k, v})
				case "end":
					a.end = value
				case "wait":
					a.pieces = append(a.pieces, nil)
				default:
					t.Fatalf("%s: unknown directive %q", path, d)
				}
			case head && len(bytes.TrimSpace(line)) == 0:
				head = false
			default:
				head = false
				a.pieces[len(a.pieces)-1] = append(a.pieces[len(a.pieces)-1], line...)
			}
		}
		f.answers = append(f.answers, a)
	}
	if len(f.about) < 15 {
		t.Fatalf("%s does not say why it exists", path)
	}
	return f
}

func fixtures(t testing.TB, vendor string) []fixture {
	t.Helper()
	files, err := filepath.Glob("testdata/wire/" + vendor + "/*.sse")
	if err != nil || len(files) < 10 {
		t.Fatalf("no fixtures of %s: %v", vendor, err)
	}
	var out []fixture
	for _, p := range files {
		if f := loadFixture(t, vendor, p); f.name[0] != '_' {
			out = append(out, f)
		}
	}
	return out
}

// chunkings are the sizes the server writes in; 0 = whole.
var chunkings = []int{1, 7, 0}

// server plays a fixture on the loopback.
type server struct {
	*httptest.Server
	chunk int
	gate  chan struct{} // closed when the tool has been called

	mu      sync.Mutex
	answers []answer
	done    answer
	bodies  [][]byte
	keys    []string
}

func play(t testing.TB, f fixture, chunk int) *server {
	t.Helper()
	s := &server{chunk: chunk, gate: make(chan struct{}), answers: f.answers,
		done: loadFixture(t, f.vendor, "testdata/wire/"+f.vendor+"/_done.sse").answers[0]}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	s.mu.Lock()
	n := len(s.bodies)
	s.bodies = append(s.bodies, body.Bytes())
	s.keys = append(s.keys, r.Header.Get("x-api-key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	a := s.done
	if n < len(s.answers) {
		a = s.answers[n]
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if a.status >= 400 {
		w.Header().Set("Content-Type", "application/json")
	}
	for _, h := range a.headers {
		w.Header().Set(h[0], h[1])
	}
	w.WriteHeader(a.status)
	for i, p := range a.pieces {
		if i > 0 {
			select {
			case <-s.gate:
			case <-r.Context().Done():
				return
			}
		}
		for len(p) > 0 {
			n := len(p)
			if s.chunk > 0 {
				n = min(n, s.chunk)
			}
			_, _ = w.Write(p[:n])
			p = p[n:]
			_ = http.NewResponseController(w).Flush()
		}
	}
	switch a.end {
	case "stall":
		<-r.Context().Done()
	case "reset":
		panic(http.ErrAbortHandler)
	}
}

func (s *server) requests() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies
}

// timeouts of a fixture: a stall is waited for as short as can be, everything else as long as it takes.
func (f *fixture) timeouts() anthropic.Timeouts {
	for _, a := range f.answers {
		if a.end == "stall" {
			return anthropic.Timeouts{Idle: 500 * time.Millisecond}
		}
	}
	return anthropic.Timeouts{}
}

func (f *fixture) open(t testing.TB, url string) closer {
	t.Helper()
	for _, v := range vendors {
		if v.name == f.vendor {
			m, err := v.open(url, f.timeouts(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close() })
			return m
		}
	}
	t.Fatalf("no vendor %s", f.vendor)
	return nil
}

// request is what the event tests send.
func request() *writ.ModelRequest {
	return &writ.ModelRequest{Dialect: writ.Native, Call: "t/1/1", System: []writ.Part{{Kind: writ.PartText, Text: "You add."}},
		Tools:    []writ.ToolDef{{Name: "probe__add", Description: "Adds.", Schema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}},
		Messages: []writ.Message{{Role: writ.RoleUser, Parts: []writ.Part{{Kind: writ.PartText, Text: "go"}}}}}
}

var kindNames = map[writ.ModelEventKind]string{writ.ModelText: "text", writ.ModelThinking: "thinking", writ.ModelToolOpen: "tool_open", writ.ModelToolArgs: "tool_args",
	writ.ModelBlockEnd: "block_end", writ.ModelUsage: "usage", writ.ModelFinish: "finish"}

// line is a model event in a golden file.
type line struct {
	Kind   string          `json:"kind"`
	Block  *int            `json:"block,omitempty"`
	Text   string          `json:"text,omitempty"`
	Bytes  string          `json:"bytes,omitempty"` // of a text that is no UTF-8 by itself, in hex
	ID     string          `json:"id,omitempty"`
	Name   string          `json:"name,omitempty"`
	Opaque json.RawMessage `json:"opaque,omitempty"`
	Usage  *writ.Usage     `json:"usage,omitempty"`
	Finish writ.Finish     `json:"finish,omitempty"`

	Class      writ.ErrorClass `json:"class,omitempty"`
	Message    string          `json:"message,omitempty"`
	RetryAfter string          `json:"retry_after,omitempty"`
}

// lines writes what a stream yields, one event a line.
func lines(seq iter.Seq2[writ.ModelEvent, error]) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for e, err := range seq {
		l := line{Kind: kindNames[e.Kind], Text: e.Text, ID: e.ID, Name: e.Name, Opaque: e.Opaque, Finish: e.Finish}
		if !utf8.ValidString(e.Text) {
			l.Text, l.Bytes = "", hex.EncodeToString([]byte(e.Text))
		}
		var me *writ.ModelError
		switch {
		case errors.As(err, &me):
			l = line{Kind: "error", Class: me.Class, Message: me.Message}
			if me.RetryAfter > 0 {
				l.RetryAfter = me.RetryAfter.String()
			}
		case err != nil:
			l = line{Kind: "error", Message: err.Error()}
		case e.Kind == writ.ModelUsage:
			l.Usage = &e.Usage
		case e.Kind != writ.ModelFinish:
			l.Block = &e.Block
		}
		if err := enc.Encode(l); err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
	}
	return b.String()
}

// TestWireEvents: every fixture gives the events of its golden file, however the connection cuts it.
func TestWireEvents(t *testing.T) {
	for _, v := range vendors {
		for _, f := range fixtures(t, v.name) {
			t.Run(v.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				golden := strings.TrimSuffix(f.path, ".sse") + ".events.jsonl"
				for i, chunk := range chunkings {
					s := play(t, f, chunk)
					close(s.gate)
					got := lines(f.open(t, s.URL).Stream(t.Context(), request()))
					if strings.Contains(got, key) || strings.Contains(got, "wiret***") {
						t.Errorf("the key stands in an event:\n%s", got)
					}
					if i == 0 && *update {
						if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
							t.Fatal(err)
						}
					}
					want, err := os.ReadFile(golden)
					if err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(string(want), got); d != "" {
						t.Errorf("in chunks of %d (-want +got):\n%s", chunk, d)
					}
					for _, k := range s.keys {
						if k != key {
							t.Errorf("the key sent is %q", k)
						}
					}
				}
			})
		}
	}
}

// TestStopRanging: the caller may stop at any event; the call ends with it.
func TestStopRanging(t *testing.T) {
	for _, v := range vendors {
		f := loadFixture(t, v.name, "testdata/wire/"+v.name+"/parallel_calls.sse")
		s := play(t, f, 7)
		m := f.open(t, s.URL)
		for n := 1; ; n++ {
			s.mu.Lock()
			s.bodies = nil
			s.mu.Unlock()
			seen := 0
			for _, err := range m.Stream(t.Context(), request()) {
				if err != nil {
					t.Fatal(err)
				}
				if seen++; seen == n {
					break
				}
			}
			if seen < n {
				break
			}
		}
	}
}

// TestCallerEnds: the end of the caller's context is no error of the provider.
func TestCallerEnds(t *testing.T) {
	for _, v := range vendors {
		f := loadFixture(t, v.name, "testdata/wire/"+v.name+"/stall.sse")
		f.answers[0].pieces = append(f.answers[0].pieces, nil)
		s := play(t, f, 0)
		m, err := v.open(s.URL, anthropic.Timeouts{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		for e, err := range m.Stream(ctx, request()) {
			if e.Kind == writ.ModelText {
				cancel()
			}
			last = err
		}
		var me *writ.ModelError
		if !errors.Is(last, context.Canceled) || errors.As(last, &me) {
			t.Errorf("%s: %v", v.name, last)
		}
		cancel()
	}
}
