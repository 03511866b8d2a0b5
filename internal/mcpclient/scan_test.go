package mcpclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestScannerFindsTheIDWhereverItStands(t *testing.T) {
	for _, tc := range []struct {
		line string
		want any
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{}}`, int64(7)},
		{`{"result":{"id":99,"x":[{"id":98}]},"id":7}`, int64(7)},
		{`{ "id" : 7 , "result" : 1 }`, int64(7)},
		{`{"result":"\"id\":5,","id":"a,}b"}`, "a,}b"},
		{`{"a":"\\","id":3}`, int64(3)},
		{`{"id":"q\"x"}`, `q"x`},
		{`{"ID":1,"xid":2,"id ":3}`, nil},
		{`{"id":null}`, nil},
		{`[{"id":1}]`, nil},
		{`"id":1`, nil},
		{``, nil},
	} {
		var s scanner
		for i := range len(tc.line) { // byte by byte: no chunking matters
			s.feed([]byte(tc.line[i : i+1]))
		}
		if got := s.messageID().Raw(); got != tc.want {
			t.Errorf("%s: id %v, want %v", tc.line, got, tc.want)
		}
	}
}

func TestLineReaderNeverHoldsMoreThanTheLimit(t *testing.T) {
	const limit = 100
	long := `{"id":5,"result":"` + strings.Repeat("x", 300_000) + `"}`
	exact := `{"id":6,"result":"` + strings.Repeat("y", limit-20) + `"}`
	in := "first\r\n" + long + "\n" + exact + "\n\n" + "last without an end"
	for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in))} {
		l := newLineReader(r, limit)
		var got []string
		for {
			line, err := l.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s|%v|%s", line.data, line.id.Raw(), line.why))
			if cap(l.buf) > 4*(64<<10) {
				t.Errorf("the buffer holds %d bytes", cap(l.buf))
			}
		}
		want := []string{"first|<nil>|", "|5|is too large", exact + "|<nil>|", "|<nil>|", "last without an end|<nil>|"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %.300q\nwant %.300q", got, want)
		}
	}
	l := newLineReader(strings.NewReader(`{"id":1,"r":`+strings.Repeat("[", maxDepth+1)), 1<<20)
	if line, err := l.next(); err != nil || line.id.Raw() != int64(1) || line.why != "is nested too deeply" {
		t.Errorf("%+v, %v", line, err)
	}
}

// FuzzScanner: for any valid message with an id of its own, the scanner finds what encoding/json finds.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`{"id":1,"result":{"id":2}}`, `{"result":"}\"id\":3","id":"x"}`, `{"id":-0.5e3}`, `{"a":{"b":[1,{"c":"\\\""}]},"id":9}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		var s1 scanner
		s1.feed([]byte(s)) // must not panic whatever it is
		var keys map[string]json.RawMessage
		if json.Unmarshal([]byte(s), &m) != nil || json.Unmarshal([]byte(s), &keys) != nil {
			return
		}
		for k := range keys {
			if k != "id" && strings.EqualFold(k, "id") {
				return // encoding/json takes these too
			}
		}
		if strings.Count(s, "id") != strings.Count(s, `"id"`) || strings.Contains(s, `\u`) || len(keys["id"]) > 100 {
			return
		}
		if n := bytes.Count([]byte(s), []byte(`"id"`)); n > 1 {
			return // which of two equal keys counts differs
		}
		if got := strings.TrimSpace(string(s1.id)); len(keys["id"]) > 0 && got != string(keys["id"]) {
			t.Errorf("%q: id %q, want %q", s, got, keys["id"])
		}
	})
}

func TestEnvironmentIsExact(t *testing.T) {
	t.Setenv("PATH", "/p")
	t.Setenv("HOME", "/h")
	t.Setenv("LANG", "L")
	t.Setenv("ANTHROPIC_API_KEY", "secret")
	if got := fmt.Sprint(Environment(map[string]string{"A": "b", "HOME": "/other"})); got != "[A=b HOME=/other LANG=L PATH=/p]" {
		t.Errorf("got %s", got)
	}
}

func TestParseTraits(t *testing.T) {
	for _, tc := range []struct{ in, want, ignored, err string }{
		{`{"strategy":["exploration"]}`, "exploration", "[]", ""},
		{`{"strategy":"Neutral "}`, "neutral", "[]", ""},
		{`{"strategy":["unknown","exploration"]}`, "exploration", "[]", ""},
		{`{"strategy":[]}`, "unknown", "[]", ""},
		{`{"strategy":null}`, "unknown", "[]", ""},
		{`{"strategy":["exploration, exploitation"]}`, "", "", "none of"},
		{`{"strategy":["read"]}`, "", "", `"read"`},
		{`{"strategy":7}`, "", "", "must be a list"},
		{`{"strategy":{"a":1}}`, "", "", "must be a list"},
		{`{"execution":{"trigger":"TOOL_CALL_COMPLETE "}}`, "- trigger=tool_call_complete", "[]", ""},
		{`{"execution":{"trigger":true}}`, "", "", "not"},
		{`{"execution":{"when":"now"}}`, "", "", `no field "when"`},
		{`{"execution":"early"}`, "", "", "mapping"},
		{`{"execution":null}`, "nothing", "[]", ""},
		{`{"Strategy":["neutral"],"b":1,"a":2}`, "nothing", "[Strategy a b]", ""},
		{`["neutral"]`, "", "", "no mapping"},
		{`null`, "", "", "no mapping"},
	} {
		d, ignored, err := ParseTraits(json.RawMessage(tc.in))
		if tc.err != "" {
			if err == nil || d != nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %+v, %v; want %q", tc.in, d, err, tc.err)
			}
			continue
		}
		got := "nothing"
		if d != nil {
			got = "-"
			if d.Strategy != nil {
				got = d.Strategy.String()
			}
			if d.Execution != nil {
				got += " " + d.Execution.String()
			}
		}
		if err != nil || got != tc.want || fmt.Sprint(ignored) != tc.ignored {
			t.Errorf("%s: %q, %v, %v; want %q, %s", tc.in, got, ignored, err, tc.want, tc.ignored)
		}
	}
}
