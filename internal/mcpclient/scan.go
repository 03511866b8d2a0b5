package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxDepth bounds the nesting of one message. The SDK gives up at 1000 without saying which call the message answered.
const maxDepth = 512

// line is one line of a server's stdout. Data is nil when the line was too large or too deep: then the id is all
// that was kept, so that the call it answers can be told.
type line struct {
	data []byte
	id   jsonrpc.ID
	why  string // why data is nil
}

// lineReader cuts stdout into lines without ever holding more than limit bytes of one.
type lineReader struct {
	r     *bufio.Reader
	limit int
	buf   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the next line, without its end. The data is valid until the next call. A last line without an end
// is returned like any other: a dying server may have written its whole answer.
func (l *lineReader) next() (line, error) {
	if cap(l.buf) > 1<<20 {
		l.buf = nil
	}
	l.buf = l.buf[:0]
	var scan scanner
	size := 0
	for {
		chunk, err := l.r.ReadSlice('\n')
		size += len(chunk)
		scan.feed(chunk)
		if size <= l.limit+1 {
			l.buf = append(l.buf, chunk...)
		} else {
			l.buf = l.buf[:0]
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && size == 0:
			return line{}, err
		}
		out := line{data: bytes.TrimRight(l.buf, "\r\n")}
		switch {
		case size > l.limit+1:
			out.why = "is too large"
		case scan.deepest > maxDepth:
			out.why = "is nested too deeply"
		}
		if out.why != "" {
			out.data, out.id = nil, scan.messageID()
		}
		return out, nil
	}
}

// scanner follows the structure of one JSON-RPC message byte by byte: how deep it nests, and the value of the
// top-level "id", wherever it stands.
type scanner struct {
	depth     int
	inString  bool
	escaped   bool
	deepest   int
	wantKey   bool
	key       []byte
	id        []byte
	capturing bool
}

func (s *scanner) feed(p []byte) {
	for _, b := range p {
		if s.capturing && s.depth == 1 && (s.inString || (b != ',' && b != '}')) && len(s.id) < 128 {
			s.id = append(s.id, b)
		}
		if s.inString {
			s.stringByte(b)
			continue
		}
		switch b {
		case '"':
			s.inString = true
			if s.depth == 1 && s.wantKey {
				s.key = s.key[:0]
			}
		case '{', '[':
			s.depth++
			s.wantKey = s.depth == 1 && b == '{'
			s.deepest = max(s.deepest, s.depth)
		case '}', ']':
			s.depth--
		case ',':
			if s.depth == 1 {
				s.wantKey, s.capturing = true, false
			}
		case ':':
			if s.depth == 1 && s.wantKey {
				s.wantKey = false
				s.capturing = string(s.key) == "id"
			}
		}
	}
}

func (s *scanner) stringByte(b byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.inString = false
		return
	}
	if s.depth == 1 && s.wantKey && len(s.key) < 16 {
		s.key = append(s.key, b)
	}
}

func (s *scanner) messageID() jsonrpc.ID {
	var v any
	if json.Unmarshal(s.id, &v) != nil {
		return jsonrpc.ID{}
	}
	id, err := jsonrpc.MakeID(v)
	if err != nil {
		return jsonrpc.ID{}
	}
	return id
}
