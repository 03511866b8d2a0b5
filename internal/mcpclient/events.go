package mcpclient

import (
	"bufio"
	"bytes"
	"io"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// event is one event of a text/event-stream. Data is nil when it was too large or too deep; then the id of the
// message is all that was kept of it.
type event struct {
	id, name, retry string
	data            []byte
	unread          string
	message         jsonrpc.ID
}

// events cuts a stream into events (WHATWG HTML §9.2.6) without ever holding more than limit bytes of one.
type events struct {
	r     *bufio.Reader
	limit int
	skip  bool // the last line ended with CR: a LF belongs to it
	done  bool
}

func newEvents(r io.Reader, limit int) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), limit: limit}
}

// next returns the next event that says anything. An event that the stream's end cut off counts if its data was
// whole: a dying server may have written all of its answer.
func (e *events) next() (event, error) {
	var ev event
	var scan scanner
	var field []byte
	size, has := 0, false
	inData := false
	finish := func() event {
		ev.data = bytes.TrimSuffix(ev.data, []byte{'\n'})
		switch {
		case size > e.limit:
			ev.unread = "is too large"
		case scan.deepest > maxDepth:
			ev.unread = "is nested too deeply"
		}
		if ev.unread != "" {
			ev.data, ev.message = nil, scan.messageID()
		}
		return ev
	}
	for {
		b, err := e.byte()
		switch {
		case err != nil:
			if e.done || !has && len(field) == 0 {
				return event{}, err
			}
			e.done = true
			if !inData {
				ev.field(string(field))
			}
			return finish(), nil
		case b == '\n' && len(field) == 0 && !inData:
			if has {
				return finish(), nil
			}
		case b == '\n':
			if inData {
				ev.data = append(ev.data, '\n')
			} else if ev.field(string(field)) {
				has = true
			}
			field, inData = field[:0], false
		case inData:
			if size++; size <= e.limit {
				ev.data = append(ev.data, b)
			} else {
				ev.data = ev.data[:0]
			}
			scan.feed([]byte{b})
		default:
			if len(field) < 1024 {
				field = append(field, b)
			}
			if string(field) == "data:" {
				inData, has = true, true
			}
		}
	}
}

// field takes one line that is not data, and reports whether it said anything.
func (ev *event) field(line string) bool {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		if !strings.ContainsRune(value, 0) {
			ev.id = value
			return true
		}
	case "event":
		ev.name = value
		return true
	case "retry":
		if strings.Trim(value, "0123456789") == "" && value != "" && len(value) < 10 {
			ev.retry = value
			return true
		}
	}
	return false
}

// byte returns the next byte, every line's end as LF.
func (e *events) byte() (byte, error) {
	for {
		b, err := e.r.ReadByte()
		if err != nil {
			return 0, err
		}
		skip := e.skip
		e.skip = b == '\r'
		switch {
		case b == '\n' && skip:
			continue
		case b == '\r':
			return '\n', nil
		}
		return b, nil
	}
}

// stream is a body of events on its way to the SDK: answers go to their exchanges, what is no message is left out,
// and what remains is written so that the SDK can read it.
type stream struct {
	remote *remote
	body   io.ReadCloser
	in     *events
	x      *exchange // the call that the stream answers, if any
	listen bool      // the stream that tells of changes

	out    []byte
	ended  bool
	last   string // id of the last event
	retry  string
	badOut int
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.ended {
			return 0, io.EOF
		}
		ev, err := s.in.next()
		if err != nil {
			s.ended = true
			if s.listen {
				s.remote.hears(false)
			}
			return 0, io.EOF
		}
		s.take(ev)
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

// Close implements io.Closer.
func (s *stream) Close() error {
	if s.listen {
		s.remote.hears(false)
	}
	return s.body.Close()
}

func (s *stream) take(ev event) {
	if ev.id != "" {
		s.last = ev.id
	}
	if ev.retry != "" {
		s.retry = ev.retry
	}
	msg := s.message(ev)
	if msg == nil && ev.id == "" && ev.retry == "" {
		return
	}
	var b bytes.Buffer
	if ev.id != "" {
		b.WriteString("id: " + ev.id + "\n")
	}
	if ev.retry != "" {
		b.WriteString("retry: " + ev.retry + "\n")
	}
	if msg != nil {
		b.WriteString("data: ")
		b.Write(bytes.ReplaceAll(msg, []byte{'\n'}, []byte{' '})) // between tokens only: strings have it escaped
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	s.out = b.Bytes()
}

// message is the JSON-RPC message of an event for the SDK, or nil.
func (s *stream) message(ev event) []byte {
	var resp *jsonrpc.Response
	switch {
	case ev.name != "" && ev.name != "message":
		return nil
	case ev.unread != "" && !ev.message.IsValid():
		s.garbage("a message that " + ev.unread)
		return nil
	case ev.unread != "":
		resp = s.remote.unreadable(ev.message, "the answer "+ev.unread)
	case len(bytes.TrimSpace(ev.data)) == 0:
		return nil
	default:
		msg, err := jsonrpc.DecodeMessage(ev.data)
		if err != nil {
			s.garbage("an event that is no message")
			return nil
		}
		var ok bool
		if resp, ok = msg.(*jsonrpc.Response); !ok {
			heard := s.remote.hear(msg, s.x)
			if heard == msg {
				return ev.data
			}
			data, err := jsonrpc.EncodeMessage(heard)
			if err != nil {
				return ev.data
			}
			return data
		}
		resp = s.remote.receive(resp, "")
		s.remote.judge(true)
	}
	data, err := jsonrpc.EncodeMessage(resp)
	if err != nil {
		return nil
	}
	if s.x != nil && s.x.snapshot().answered {
		s.ended = true // whatever else the server has to say is not about this call
	}
	return data
}

// garbage logs the first pieces and counts the rest.
func (s *stream) garbage(what string) {
	if s.badOut++; s.badOut <= 5 {
		s.remote.log.Warn("the server sent what is not the protocol; skipped", "what", what)
	}
}
