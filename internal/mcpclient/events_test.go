package mcpclient

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readEvents(r io.Reader, limit int) (out []event) {
	e := newEvents(r, limit)
	for {
		ev, err := e.next()
		if err != nil {
			return out
		}
		out = append(out, ev)
	}
}

func TestEvents(t *testing.T) {
	for in, want := range map[string]string{
		"data: a\n\n":                             "[{   a  {<nil>}}]",
		"data:a\r\ndata: b\r\n\r\n":               "[{   a\n b  {<nil>}}]",
		"id: 1\rretry: 20\revent: x\rdata: a\r\r": "[{1 x 20  a  {<nil>}}]",
		": c\n\n:\n\nid: 2\n\n":                   "[{2     {<nil>}}]",
		"retry: soon\nid: a\x00b\ndata:\n\n":      "[{     {<nil>}}]",
		"data: cut off":                           "[{    cut off  {<nil>}}]",
		"\n\n\n":                                  "[]",
		"":                                        "[]",
	} {
		got := readEvents(strings.NewReader(in), 100)
		text := "["
		for i, ev := range got {
			if i > 0 {
				text += " "
			}
			text += fmt.Sprintf("{%s %s %s %s %s {<nil>}}", ev.id, ev.name, ev.retry, ev.data, ev.unread)
		}
		text += "]"
		if strings.Join(strings.Fields(text), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%q: %s, want %s", in, text, want)
		}
	}
	big := "data: {\"jsonrpc\":\"2.0\",\"result\":\"" + strings.Repeat("x", 200) + "\",\"id\":7}\n\ndata: next\n\n"
	got := readEvents(strings.NewReader(big), 100)
	if len(got) != 2 || got[0].data != nil || got[0].unread != "is too large" || fmt.Sprint(got[0].message.Raw()) != "7" || string(got[1].data) != " next" {
		t.Errorf("%+v", got)
	}
}

// FuzzEvents: the events are the same however the bytes arrive, and none is larger than it may be.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\nretry: 5\ndata: {\"id\":1}\r\n\r\n: c\r\rdata: x"))
	f.Add([]byte("data:\ndata:\n\n\x00event:e\rdata:[[[[\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		whole := readEvents(bytes.NewReader(in), limit)
		single := readEvents(iotest.OneByteReader(bytes.NewReader(in)), limit)
		if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", single) {
			t.Errorf("%q: whole %q, byte by byte %q", in, whole, single)
		}
		for _, ev := range whole {
			if len(ev.data) > 2*limit {
				t.Errorf("an event of %d bytes", len(ev.data))
			}
		}
	})
}
