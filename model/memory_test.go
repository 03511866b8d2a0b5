package model_test

import (
	"bytes"
	"io"
	"net/http"
)

// wire is a provider without a network: it answers every request with the same bytes, of which a read gets at most so
// many.
type wire struct {
	data  []byte
	chunk func() int // nil = whole
	body  []byte     // of the last request
}

func (w *wire) client() *http.Client { return &http.Client{Transport: w} }

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		var err error
		if w.body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
	}
	var from io.Reader = bytes.NewReader(w.data)
	if w.chunk != nil {
		from = &chunked{from, w.chunk}
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(from), Request: r}, nil
}

type chunked struct {
	io.Reader
	size func() int
}

func (c *chunked) Read(p []byte) (int, error) { return c.Reader.Read(p[:min(len(p), c.size())]) }
