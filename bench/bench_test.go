package bench

import (
	"fmt"
	"testing"
	"time"
)

var stores = []struct {
	name string
	open Opener
}{{"memory", Memory}, {"sqlite", SQLite}}

func BenchmarkRound(b *testing.B) {
	for _, k := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("k=%d/bare", k), func(b *testing.B) { BareRound(b, k) })
		for _, s := range stores {
			b.Run(fmt.Sprintf("k=%d/governed/%s", k, s.name), func(b *testing.B) { GovernedRound(b, s.open, k) })
		}
	}
}

func BenchmarkAction(b *testing.B) {
	b.Run("fsync", RawFsync)
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("raw/%d", callers), func(b *testing.B) { RawCommits(b, callers) })
		for _, s := range stores {
			b.Run(fmt.Sprintf("durable/%s/%d", s.name, callers), func(b *testing.B) { DurableAction(b, s.open, callers) })
		}
		b.Run(fmt.Sprintf("ungrouped/%d", callers), func(b *testing.B) { DurableAction(b, Ungrouped, callers) })
	}
}

func BenchmarkTurn(b *testing.B) {
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) { WholeTurn(b, s.open) })
	}
}

func BenchmarkEarly(b *testing.B) {
	for _, s := range stores {
		for _, d := range [][2]time.Duration{{300, 300}, {300, 100}, {100, 300}} {
			b.Run(fmt.Sprintf("%s/%v-%v", s.name, d[0]*time.Millisecond, d[1]*time.Millisecond), func(b *testing.B) {
				Early(b, s.open, d[0]*time.Millisecond, d[1]*time.Millisecond)
			})
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { Build(b, n) })
	}
}

func BenchmarkStart(b *testing.B) {
	b.Run("fresh", func(b *testing.B) { Start(b, true) })
	b.Run("existing", func(b *testing.B) { Start(b, false) })
}

func BenchmarkRender(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("next/%d", n), func(b *testing.B) { RenderNext(b, n) })
		b.Run(fmt.Sprintf("all/%d", n), func(b *testing.B) { RenderAll(b, n) })
	}
}

func BenchmarkParse(b *testing.B) {
	for _, chunk := range []int{16, 4096} {
		b.Run(fmt.Sprint(chunk), func(b *testing.B) { Parse(b, chunk) })
	}
}

// The measurements run, once each: a benchmark that does not work says nothing.
func TestMeasurementsRun(t *testing.T) {
	for name, run := range map[string]func(*testing.B){
		"governed": func(b *testing.B) { GovernedRound(b, Memory, 4) }, "bare": func(b *testing.B) { BareRound(b, 4) },
		"early": func(b *testing.B) { Early(b, Memory, 5*time.Millisecond, 5*time.Millisecond) },
		"turn":  func(b *testing.B) { WholeTurn(b, Memory) }, "build": func(b *testing.B) { Build(b, 3) },
		"start": func(b *testing.B) { Start(b, true) }, "next": func(b *testing.B) { RenderNext(b, 5) },
		"action": func(b *testing.B) { DurableAction(b, Memory, 64) }, "commits": func(b *testing.B) { RawCommits(b, 64) },
		"long": func(b *testing.B) {
			if sent := Long(b, 2, 10, 1<<16, 4000); sent.Summaries == 0 || sent.Largest > 32_000 {
				b.Errorf("%+v", sent)
			}
		},
	} {
		if r := Once(run); r.N != 1 {
			t.Errorf("%s ran %d times", name, r.N)
		}
	}
	if PeakMemory() <= 0 {
		t.Error("no peak memory")
	}
}
