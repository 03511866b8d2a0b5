package recorded

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"

	"writ"
)

// Model plays a recording, one round for each call, in the order in which the calls begin. It is safe for concurrent
// use and implements [writ.Model].
type Model struct {
	recording *Recording
	mu        sync.Mutex
	used      int
}

var _ writ.Model = (*Model)(nil)

// Model returns a model at the beginning of the recording. Each has a position of its own.
func (r *Recording) Model() *Model { return &Model{recording: r} }

// Used returns how many rounds were taken, skipped ones included.
func (m *Model) Used() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Skip goes n rounds forward, as if they had been played: to go on with a conversation whose earlier calls another
// process has made. It does not go back, nor beyond the end.
func (m *Model) Skip(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = min(m.used+max(n, 0), len(m.recording.rounds))
}

// take returns the next round and its number, from 0.
func (m *Model) take() (*round, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.used
	if n >= len(m.recording.rounds) {
		return nil, n
	}
	m.used++
	return &m.recording.rounds[n], n
}

// Stream implements [writ.Model]. The round is taken when the caller begins to range. A call after the last round, one
// in the other dialect, and one whose request lacks what the round expects end with a [*writ.ModelError] of class
// invalid before any event.
func (m *Model) Stream(ctx context.Context, req *writ.ModelRequest) iter.Seq2[writ.ModelEvent, error] {
	return func(yield func(writ.ModelEvent, error) bool) {
		r, n := m.take()
		if problem := m.check(r, n, req); problem != "" {
			yield(writ.ModelEvent{}, &writ.ModelError{Class: writ.ErrorInvalid, Message: problem})
			return
		}
		r.play(ctx, true, yield)
	}
}

// check says what is wrong with playing round n for the request, or "".
func (m *Model) check(r *round, n int, req *writ.ModelRequest) string {
	rec := m.recording
	if r == nil {
		call := req.Call
		if call == "" {
			call = "no name"
		}
		return fmt.Sprintf("recording %s has %d rounds; call %d (%s) has none", rec.name, len(rec.rounds), n+1, call)
	}
	if req.Dialect != "" && req.Dialect != rec.dialect {
		return fmt.Sprintf("recording %s speaks the %s dialect and the request the %s one", rec.name, rec.dialect, req.Dialect)
	}
	if len(r.expect) == 0 {
		return ""
	}
	text := render(req)
	for _, want := range r.expect {
		if !strings.Contains(text, want) {
			return fmt.Sprintf("recording %s, round %d (%s) expects %q in the request, which does not have it", rec.name, n+1, req.Call, want)
		}
	}
	return ""
}

// render writes all text of a request, a line break between its parts.
func render(req *writ.ModelRequest) string {
	var b strings.Builder
	line := func(texts ...string) {
		for _, s := range texts {
			if s != "" {
				b.WriteString(s)
				b.WriteByte('\n')
			}
		}
	}
	part := func(p writ.Part) {
		line(p.Text, p.ID, p.Name, string(p.Args))
		for _, c := range p.Content {
			line(c.Name, c.URI, c.Text, string(c.JSON))
		}
	}
	for _, p := range req.System {
		part(p)
	}
	for _, t := range req.Tools {
		line(t.Name, t.Description, string(t.Schema))
	}
	for _, m := range req.Messages {
		line(string(m.Role))
		for _, p := range m.Parts {
			part(p)
		}
	}
	return b.String()
}
