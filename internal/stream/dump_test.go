package stream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"writ"
)

// collect joins adjacent deltas, so that what is left does not depend on the chunks.
type collect struct{ events []Event }

func (c *collect) emit(e Event) bool {
	if n := len(c.events); n > 0 {
		last := &c.events[n-1]
		switch e.Kind {
		case Thinking, Text, Summary, Notes, Answer, Argument:
			if last.Kind == e.Kind && last.Index == e.Index && last.Arg == e.Arg {
				last.Text += e.Text
				return true
			}
		}
	}
	c.events = append(c.events, e)
	return true
}

// lines writes the events one a line.
func (c *collect) lines() string {
	var b strings.Builder
	for _, e := range c.events {
		fmt.Fprintln(&b, line(e))
	}
	return b.String()
}

func line(e Event) string {
	switch e.Kind {
	case Thinking, Text, Notes, Answer:
		return fmt.Sprintf("%v %d %q", e.Kind, e.Index, e.Text)
	case Summary:
		return fmt.Sprintf("Summary %q", e.Text)
	case Impossible: // how much of the preview was there depends on the chunks
		r := []rune(e.Text)
		return fmt.Sprintf("Impossible %q", string(r[:1]))
	case ThinkingClosed:
		return fmt.Sprintf("ThinkingClosed %d %q %s", e.Index, e.Text, e.Opaque)
	case TextClosed:
		return fmt.Sprintf("TextClosed %d %s", e.Index, e.Opaque)
	case ActionIdentified:
		return fmt.Sprintf("ActionIdentified %d %s %s", e.Index, e.Action, e.Tool)
	case Argument:
		return fmt.Sprintf("Argument %d %s %q", e.Index, e.Arg, e.Text)
	case ArgumentClosed:
		return fmt.Sprintf("ArgumentClosed %d %s %s", e.Index, e.Arg, e.Value)
	case ActionClosed:
		return "ActionClosed " + decisionLine(e.Decision) + opaque(e)
	case RoundEnded:
		return "RoundEnded " + string(e.Finish)
	}
	return fmt.Sprintf("%v %d", e.Kind, e.Index)
}

func opaque(e Event) string {
	if e.Opaque == nil {
		return ""
	}
	return " opaque=" + string(e.Opaque)
}

func decisionLine(d *Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s %s", d.Index, d.Action, d.Tool)
	if d.ProviderID != "" {
		fmt.Fprintf(&b, " id=%s", d.ProviderID)
	}
	if d.Params != nil {
		fmt.Fprintf(&b, " %s", d.Params)
	}
	if d.Notes != "" {
		fmt.Fprintf(&b, " notes=%q", d.Notes)
	}
	if d.Answer != "" || d.AnswerClosed {
		fmt.Fprintf(&b, " answer=%q/%v", d.Answer, d.AnswerClosed)
	}
	if d.Followups != nil {
		fmt.Fprintf(&b, " followups=%q", d.Followups)
	}
	if d.Dropped != nil {
		fmt.Fprintf(&b, " dropped=%v", d.Dropped)
	}
	if p := d.Problem; p != nil {
		fmt.Fprintf(&b, " !%s@%d: %s | %s | %q", p.Code, p.Offset, p.Message, p.Hint, d.Raw)
	}
	return b.String()
}

// cut splits s into pieces of n bytes.
func cut(s string, n int) []string {
	var out []string
	for len(s) > n {
		out = append(out, s[:n])
		s = s[n:]
	}
	return append(out, s)
}

func runChannel(o Options, f writ.Finish, pieces ...string) *collect {
	c := &collect{}
	p := NewChannel(o)
	for _, s := range pieces {
		p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: s}, c.emit)
	}
	p.Finish(f, c.emit)
	return c
}

// split cuts the text of every event into pieces of n bytes.
func split(events []writ.ModelEvent, n int) []writ.ModelEvent {
	var out []writ.ModelEvent
	for _, e := range events {
		switch e.Kind {
		case writ.ModelText, writ.ModelThinking, writ.ModelToolArgs:
			for _, s := range cut(e.Text, n) {
				e.Text = s
				out = append(out, e)
			}
		default:
			out = append(out, e)
		}
	}
	return out
}

func runNative(o Options, f writ.Finish, events ...writ.ModelEvent) *collect {
	c := &collect{}
	p := NewNative(o)
	for _, e := range events {
		p.Feed(e, c.emit)
	}
	p.Finish(f, c.emit)
	return c
}

var sizes = []int{1, 2, 3, 5, 7, 13, 64, 97, 1 << 20}

// equalLines compares the events with the wanted lines; "…" in a wanted line stands for anything.
func equalLines(t *testing.T, what, got, want string) {
	t.Helper()
	g, w := strings.Split(strings.TrimSpace(got), "\n"), strings.Split(strings.TrimSpace(want), "\n")
	for i := range w {
		w[i] = strings.TrimSpace(w[i])
		if i < len(g) {
			g[i] = strings.TrimSpace(g[i])
		}
		if i < len(g) && matches(g[i], w[i]) {
			w[i] = g[i]
		}
	}
	if d := cmp.Diff(w, g); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func matches(got, want string) bool {
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return got == want
	}
	if !strings.HasPrefix(got, parts[0]) || !strings.HasSuffix(got, parts[len(parts)-1]) {
		return false
	}
	for _, p := range parts {
		_, rest, ok := strings.Cut(got, p)
		if !ok {
			return false
		}
		got = rest
	}
	return true
}
