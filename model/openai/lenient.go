package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3/option"
)

// lenient stands between the connection and the SDK for what compatible servers do and the SDK takes for an end: an
// "error": null in every chunk, and a last event without the empty line after it.
func lenient(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	if err == nil && res.StatusCode < 300 && !strings.Contains(res.Header.Get("Content-Type"), "json") {
		res.Body = &lines{from: bufio.NewReaderSize(res.Body, 16<<10), Closer: res.Body}
	}
	return res, err
}

// lines reads a stream piece by piece, a piece at most a line.
type lines struct {
	io.Closer
	from *bufio.Reader
	rest []byte
	err  error
}

// The names cannot stand in a JSON string like this: there the quotes are escaped.
var noErrors = [][]byte{[]byte(`"error":null`), []byte(`"error": null`)}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.fill()
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *lines) fill() {
	line, err := l.from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil // a long line comes in several pieces; a name cut in two there is not found
	}
	for _, e := range noErrors {
		if i := bytes.Index(line, e); i >= 0 {
			line[i+len(`"er`)] = '_' // a name that nobody reads
		}
	}
	l.rest, l.err = line, err
	if err == io.EOF && whole(line) {
		l.rest = append(bytes.Clone(line), '\n', '\n')
	}
}

// whole reports whether the last line may be ended for the server: what is cut inside an event stays cut.
func whole(line []byte) bool {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
	data = bytes.TrimSpace(data)
	return len(bytes.TrimSpace(line)) == 0 || ok && (json.Valid(data) || string(data) == "[DONE]")
}
