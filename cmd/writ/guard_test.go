package main

import (
	"context"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"writ"
	"writ/config"
	"writ/model/recorded"
	"writ/runtime"
	"writ/store"
)

func TestAskingEndsWithTheTurn(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	a := newAsker(r, io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan bool)
	go func() {
		a.ask(ctx, runtime.Question{Tool: "t", Requests: []byte(`{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"properties":{"x":{"type":"string"}}}}}}`)})
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Error("ask still blocks 2 s after the turn was cancelled")
	}
}

func TestSameBaseRecordings(t *testing.T) {
	d := t.TempDir()
	for _, x := range []string{"a", "b"} {
		os.Mkdir(filepath.Join(d, x), 0o755)
		os.WriteFile(filepath.Join(d, x, "r.yaml"), []byte("writ_recording: 1\ndialect: native\nrounds: [{parts: [{text: from-"+x+"}]}]\n"), 0o644)
	}
	m := &models{cfg: &config.Config{}, made: map[string]writ.Model{}}
	ag := &config.Agent{Dialect: writ.Native}
	c1, err := m.choice(config.ModelRef{Recording: filepath.Join(d, "a", "r.yaml")}, ag)
	if err != nil {
		t.Fatal(err)
	}
	c2, _ := m.choice(config.ModelRef{Recording: filepath.Join(d, "b", "r.yaml")}, ag)
	if c1.Model == c2.Model {
		t.Error("two recordings of one base name are one model")
	}
}

func TestPinsTwoAgents(t *testing.T) {
	p := pins{}
	c := func() runtime.Connection {
		return runtime.Connection{Config: config.Connection{Alias: "files", Kind: config.KindMCP}}
	}
	p.accept([]runtime.Connection{c()}, func(runtime.Connection) map[string]string { return map[string]string{"read": "d1"} })        // agent A
	ch := p.accept([]runtime.Connection{c()}, func(runtime.Connection) map[string]string { return map[string]string{"write": "d2"} }) // agent B
	t.Log(ch)
	if p["files"]["read"] == "" {
		t.Errorf("agent A's accepted tool is lost: %v", p)
	}
}

func TestNothingWritesOverTheTerminal(t *testing.T) {
	var out, errw strings.Builder
	v := &textView{out: &out, err: &errw, line: true}
	v.event(runtime.Event{Type: runtime.EventSettled, Tool: "t.get", State: writ.Succeeded, Preview: "\x1b]52;c;ZXZpbA==\x07 \x1b[2J"})
	v.event(runtime.Event{Type: runtime.EventRefused, Tool: "x\x1b[1A\x1b[2K✓ fake succeeded", Code: writ.CodeUnknownTool})
	v.event(runtime.Event{Type: runtime.EventNotice, Text: "\x1b]0;pwn\x07"})
	v.event(runtime.Event{Type: runtime.EventNotesDelta, Text: "\x1b]0;pwn\x07"})
	v.event(runtime.Event{Type: runtime.EventRoundStarted})
	if strings.Contains(errw.String(), "\x1b") {
		t.Errorf("raw escapes on the terminal: %q", errw.String())
	}
}

func TestRecordedSecretEscaped(t *testing.T) {
	secret := `pa"ss\word<1>`
	r := recorded.NewRecorder(writ.Native, nil)
	ev := []writ.ModelEvent{{Kind: writ.ModelToolOpen, Block: 1, Name: "a.b"}, {Kind: writ.ModelToolArgs, Block: 1, Text: `{"k":"pa\"ss\\word<1>"}`}, {Kind: writ.ModelBlockEnd, Block: 1}, {Kind: writ.ModelFinish, Finish: writ.FinishTools}}
	drain(r.Wrap(played(ev), nil))
	b, err := r.Bytes(secret)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "word<1>") || !strings.Contains(string(b), "[secret]") {
		t.Errorf("secret stands in the recording, JSON-escaped: %s", b)
	}
}
func TestRecordedSecretInterleaved(t *testing.T) {
	r := recorded.NewRecorder(writ.Native, nil)
	ev := []writ.ModelEvent{{Kind: writ.ModelToolOpen, Block: 1, Name: "a.b"}, {Kind: writ.ModelToolOpen, Block: 2, Name: "a.b"},
		{Kind: writ.ModelToolArgs, Block: 1, Text: `{"k":"sk-very`}, {Kind: writ.ModelToolArgs, Block: 2, Text: `{}`}, {Kind: writ.ModelToolArgs, Block: 1, Text: `secret-123"}`},
		{Kind: writ.ModelBlockEnd, Block: 1}, {Kind: writ.ModelBlockEnd, Block: 2}, {Kind: writ.ModelFinish, Finish: writ.FinishTools}}
	drain(r.Wrap(played(ev), nil))
	b, _ := r.Bytes("sk-verysecret-123")
	if !strings.Contains(string(b), "[secret]") {
		t.Errorf("secret in two pieces: %s", b)
	}
}

func TestRecordingMode(t *testing.T) {
	d := t.TempDir()
	p := filepath.Join(d, "r.yaml")
	os.WriteFile(p+".new", nil, 0o644)
	m := &models{record: recorded.NewRecorder(writ.Native, nil)}
	drain(m.record.Wrap(played([]writ.ModelEvent{{Kind: writ.ModelText, Text: "x"}, {Kind: writ.ModelFinish, Finish: writ.FinishStop}}), nil))
	a := &app{err: io.Discard}
	if err := a.writeRecording(m, &config.Agent{}, p); err != nil {
		t.Fatal(err)
	}
	st, _ := os.Stat(p)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("%v", st.Mode())
	}
}

var _ = store.TurnAnswered

// played is a model that streams fixed events.
type played []writ.ModelEvent

func (p played) Stream(context.Context, *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) {
		for _, e := range p {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func drain(m writ.Model) {
	for range m.Stream(context.Background(), &writ.ModelRequest{}) {
	}
}
