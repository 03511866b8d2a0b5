package recorded

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"writ"
)

// drain plays a model once for each round and joins what it streams.
func drain(t *testing.T, m writ.Model, d writ.Dialect, n int) []writ.ModelEvent {
	t.Helper()
	var out []writ.ModelEvent
	for range n {
		for ev, err := range m.Stream(context.Background(), &writ.ModelRequest{Dialect: d}) {
			if err != nil {
				out = append(out, writ.ModelEvent{Kind: 99, Text: err.Error()})
				continue
			}
			if k := len(out) - 1; k >= 0 && out[k].Kind == ev.Kind && out[k].Block == ev.Block && (ev.Kind == writ.ModelText || ev.Kind == writ.ModelThinking || ev.Kind == writ.ModelToolArgs) {
				out[k].Text += ev.Text
				continue
			}
			out = append(out, ev)
		}
	}
	return out
}

func TestWhatIsRecordedPlaysTheSame(t *testing.T) {
	for name, in := range map[string]string{
		"channel": `
writ_recording: 1
dialect: channel
rounds:
  - text: "<channel:thinking>hm: \"x\" # é 日本</channel:thinking>\n<channel:action>{\"action\":\"exit\"}</channel:action>\n"
    chunk_bytes: 5
    usage: {input: 1, output: 2, cache_read: 3, cache_write: 4}
  - finish: error:overloaded
  - text: "<channel:act"
    finish: cut
`,
		"native": `
writ_recording: 1
dialect: native
rounds:
  - parts:
      - {thinking: "why\n", signature: "s=="}
      - {text: "one moment "}
      - {open: {block: 7, id: "", tool: a.b}}
      - {args: {block: 7, text: '{"n":'}}
      - {open: {block: 8, id: x, tool: a.c}}
      - {args: {block: 8, text: '{"y":1}'}}
      - {args: {block: 7, text: '1}'}}
      - {close: {block: 8}}
      - {close: {block: 7}}
    finish: tool_calls
  - parts: [{text: half, unclosed: true}]
    finish: length
`,
	} {
		t.Run(name, func(t *testing.T) {
			rec, err := Parse("in", []byte(in))
			if err != nil {
				t.Fatal(err)
			}
			r := NewRecorder(rec.Dialect(), nil)
			want := drain(t, r.Wrap(rec.Model(), nil), rec.Dialect(), rec.Len())
			out, err := r.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse("out", out)
			if err != nil {
				t.Fatalf("%v in\n%s", err, out)
			}
			got := drain(t, again.Model(), rec.Dialect(), again.Len())
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("played again it differs (-recorded +played):\n%s\n%s", d, out)
			}
		})
	}
}

func TestSecretsAreScrubbed(t *testing.T) {
	rec, err := Parse("in", []byte(`
writ_recording: 1
dialect: native
rounds:
  - parts:
      - {thinking: "the key is sk-verysecret-1", signature: "sk-verysecret-1"}
      - {text: "sk-verysecret-1 and sk-verysecret-12"}
      - {open: {block: 3, id: sk-verysecret-1, tool: a.b}}
      - {args: {block: 3, text: '{"k":"sk-verysecret-1"}'}}
      - {close: {block: 3}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(writ.Native, []string{"sk-verysecret-1", "sk-verysecret-12", "a"})
	drain(t, r.Wrap(rec.Model(), nil), writ.Native, 1)
	out, err := r.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "verysecret") || !strings.Contains(string(out), "[secret]") {
		t.Errorf("%s", out)
	}
}

func TestNothingRecordedIsAnError(t *testing.T) {
	if _, err := NewRecorder(writ.Native, nil).Bytes(); err == nil {
		t.Error("an empty recording was written")
	}
}
