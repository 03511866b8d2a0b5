package stream

import (
	"fmt"
	"strings"
	"testing"

	"writ"
)

// The benchmarks feed one large message in chunks. Read B/s for the work a byte costs and ns/chunk for the work a
// chunk costs; both must stay the same from 1 MB to 64 MB, which is what linear means.

func payload(kind string, size int) string {
	switch kind {
	case "thinking":
		return "<channel:thinking>" + strings.Repeat("some words, a < b, and so on. ", size/30) + "</channel:thinking>"
	case "argument":
		return action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"s":"` + strings.Repeat(`some text of a file, line by line.\n`, size/36) + `"}}}`)
	case "plain":
		return action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"s":"` + strings.Repeat("base64base64base64base64", size/24) + `"}}}`)
	case "accents":
		return action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"s":"` + strings.Repeat("größere Menge Text, auf Deutsch ", size/34) + `"}}}`)
	case "objects":
		return action(`{"action":"call_tool","tool_call":{"tool_id":"p.q","params":{"rows":[` + strings.Repeat(`{"id":12345,"name":"row","tags":["a","b"],"ok":true},`, size/53) + `0]}}}`)
	}
	panic(kind)
}

func BenchmarkChannel(b *testing.B) {
	for _, kind := range []string{"thinking", "argument", "plain", "accents", "objects"} {
		for _, size := range []int{1 << 20, 16 << 20, 64 << 20} {
			for _, chunk := range []int{16, 256, 4096} {
				if size > 1<<20 && (chunk == 256 || kind == "accents") {
					continue
				}
				b.Run(fmt.Sprintf("%s/%dMB/%dB", kind, size>>20, chunk), func(b *testing.B) { benchChannel(b, payload(kind, size), chunk) })
			}
		}
	}
}

func benchChannel(b *testing.B, in string, chunk int) {
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	emit := func(Event) bool { return true }
	for b.Loop() {
		p := NewChannel(Options{MaxActionBytes: 256 << 20})
		for i := 0; i < len(in); i += chunk {
			p.Feed(writ.ModelEvent{Kind: writ.ModelText, Text: in[i:min(i+chunk, len(in))]}, emit)
		}
		p.Finish(writ.FinishStop, emit)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64((len(in)+chunk-1)/chunk), "ns/chunk")
}

func BenchmarkNative(b *testing.B) {
	for _, chunk := range []int{16, 4096} {
		args := payload("argument", 1<<20)
		args = strings.TrimSuffix(args[strings.Index(args, `{"s"`):], "}}</channel:action>")
		b.Run(fmt.Sprintf("1MB/%dB", chunk), func(b *testing.B) {
			b.SetBytes(int64(len(args)))
			emit := func(Event) bool { return true }
			for b.Loop() {
				p := NewNative(Options{})
				p.Feed(toolOpen(0, "", "p.q"), emit)
				for i := 0; i < len(args); i += chunk {
					p.Feed(toolArgs(0, args[i:min(i+chunk, len(args))]), emit)
				}
				p.Feed(blockEnd(0), emit)
				p.Finish(writ.FinishTools, emit)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64((len(args)+chunk-1)/chunk), "ns/chunk")
		})
	}
}

func BenchmarkEscape(b *testing.B) {
	s := strings.Repeat("a page <p>with</p> tags and <channel:action> once in a while. ", 1<<14)
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		Escape(s)
	}
}
