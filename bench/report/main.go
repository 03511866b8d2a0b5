// Command report runs the measurements of package bench once and prints one table: what was measured, what it is
// compared with, and the goal beside it. It takes about a minute and asserts nothing; the same numbers on a busy
// machine are other numbers.
//
//	go run ./bench/report
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"writ/bench"
)

func main() {
	r := &report{out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	fmt.Printf("%s, %s/%s, %d processors, %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), time.Now().UTC().Format(time.DateOnly))
	r.row("what", "measured", "beside it", "ratio", "goal", "met")
	r.rounds()
	r.ledger()
	r.early()
	r.agent()
	r.render()
	r.parser()
	r.long()
	r.gateway()
	if err := r.out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	fmt.Printf("\npeak memory of this process %s, of its Go heap %s now\n", bytesOf(float64(bench.PeakMemory())), bytesOf(float64(mem.HeapSys)))
}

type report struct{ out *tabwriter.Writer }

func (r *report) row(cells ...string) {
	_, _ = io.WriteString(r.out, strings.Join(cells, "\t")+"\n") // Flush tells of errors
}

// goal is a row with a bound on a value, in the value's own unit; most below it is met.
func (r *report) goal(what, measured, beside, ratio, goal string, met bool) {
	yes := "no"
	if met {
		yes = "yes"
	}
	r.row(what, measured, beside, ratio, goal, yes)
}

// line is a row without a goal.
func (r *report) line(what, measured, beside, ratio string) {
	r.row(what, measured, beside, ratio, "", "")
}

func must(b testing.BenchmarkResult, what string) testing.BenchmarkResult {
	if b.N == 0 {
		fmt.Fprintf(os.Stderr, "report: %s failed; go test -bench . ./bench says why\n", what)
		os.Exit(1)
	}
	return b
}

func perOp(b testing.BenchmarkResult) time.Duration { return b.T / time.Duration(b.N) }

func (r *report) rounds() {
	const time1 = "1s"
	per := func(b testing.BenchmarkResult) time.Duration { return time.Duration(b.Extra["ns/round"]) }
	for _, k := range []int{1, 4, 16} {
		bare := per(must(bench.Measure(func(b *testing.B) { bench.BareRound(b, k) }, time1), "bare round"))
		for _, s := range []struct {
			name string
			open bench.Opener
		}{{"memory", bench.Memory}, {"SQLite", bench.SQLite}} {
			got := per(must(bench.Measure(func(b *testing.B) { bench.GovernedRound(b, s.open, k) }, time1), "governed round"))
			what := fmt.Sprintf("governed round, k=%d, %s", k, s.name)
			beside, ratio := "bare loop "+short(bare), times(float64(got)/float64(bare))
			if k == 1 && s.name == "memory" {
				r.goal(what, short(got), beside, ratio, "≤ 1.1ms, 0.5ms over a bare loop", got <= 1100*time.Microsecond && got-bare <= 500*time.Microsecond)
				continue
			}
			r.line(what, short(got), beside, ratio)
		}
	}
}

func (r *report) ledger() {
	const enough = "1s"
	fsync := must(bench.Measure(bench.RawFsync, enough), "fsync")
	raw1 := must(bench.Measure(func(b *testing.B) { bench.RawCommits(b, 1) }, enough), "raw commits")
	one := must(bench.Measure(func(b *testing.B) { bench.DurableAction(b, bench.SQLite, 1) }, enough), "durable action")
	inMemory := must(bench.Measure(func(b *testing.B) { bench.DurableAction(b, bench.Memory, 1) }, enough), "action in memory")
	r.line("write a row into a file, fsync", short(perOp(fsync)), "", "")
	r.line("one SQLite commit of a row", short(perOp(raw1)), "fsync "+short(perOp(fsync)), times(float64(perOp(raw1))/float64(perOp(fsync))))
	writes := one.Extra["writes/action"]
	r.goal("durable action alone", short(perOp(one)), fmt.Sprintf("%.0f commits of a row %s", writes, short(time.Duration(writes)*perOp(raw1))),
		times(float64(perOp(one))/writes/float64(perOp(raw1))), "3 commits", writes == 3)
	const rate = "writes/s"
	for _, callers := range []int{8, 64} {
		raw := must(bench.Measure(func(b *testing.B) { bench.RawCommits(b, callers) }, enough), "raw commits")
		many := must(bench.Measure(func(b *testing.B) { bench.DurableAction(b, bench.SQLite, callers) }, "2s"), "durable actions")
		alone := must(bench.Measure(func(b *testing.B) { bench.DurableAction(b, bench.Ungrouped, callers) }, "2s"), "ungrouped actions")
		gain := many.Extra[rate] / alone.Extra[rate]
		what, got := fmt.Sprintf("durable actions, %d callers", callers), fmt.Sprintf("%.0f writes/s", many.Extra[rate])
		beside := fmt.Sprintf("one commit a write %.0f/s", alone.Extra[rate])
		if callers == 64 {
			r.goal(what, got, beside, times(gain), "≥ 10×", gain >= 10)
		} else {
			r.line(what, got, beside, times(gain))
		}
		r.line("", "", fmt.Sprintf("bare inserts, one commit each %.0f/s", raw.Extra[rate]), times(many.Extra[rate]/raw.Extra[rate]))
	}
	r.line("action on the memory store", short(perOp(inMemory)), "", "")
}

func (r *report) early() {
	ms := func(d float64) string { return fmt.Sprintf("%.2fms", d) }
	for _, s := range []struct {
		name string
		open bench.Opener
	}{{"memory", bench.Memory}, {"SQLite", bench.SQLite}} {
		for _, d := range [][2]time.Duration{{300 * time.Millisecond, 300 * time.Millisecond}, {300 * time.Millisecond, 100 * time.Millisecond}, {100 * time.Millisecond, 300 * time.Millisecond}} {
			got := must(bench.Measure(func(b *testing.B) { bench.Early(b, s.open, d[0], d[1]) }, "8x"), "early start")
			what := fmt.Sprintf("%s, generation %v, helper %v", s.name, d[0], d[1])
			if d[0] == d[1] {
				worst := got.Extra["start-ms-max"]
				r.goal("early start, "+s.name, ms(got.Extra["start-ms-p50"]), "slowest of 8 "+ms(worst), "", "≤ 5ms", worst <= 5)
			}
			ratio := got.Extra["wall/least"]
			r.goal("turn wall, "+what, "+"+ms(got.Extra["extra-ms-p50"]), "the longer of both", fmt.Sprintf("%.3f×", ratio), "≤ 1.02×", ratio <= 1.02)
		}
	}
}

func (r *report) agent() {
	for _, n := range []int{10, 100, 1000} {
		got := must(bench.Measure(func(b *testing.B) { bench.Build(b, n) }, "1s"), "build")
		what := fmt.Sprintf("build with %d tools", n)
		measured, each := short(perOp(got)), fmt.Sprintf("%s a tool", short(perOp(got)/time.Duration(n)))
		if n == 1000 {
			r.goal(what, measured, each, "", "≤ 5ms", perOp(got) <= 5*time.Millisecond)
			continue
		}
		r.line(what, measured, each, "")
	}
	durable := must(bench.Measure(func(b *testing.B) { bench.WholeTurn(b, bench.SQLite) }, "1s"), "durable turn")
	inMemory := must(bench.Measure(func(b *testing.B) { bench.WholeTurn(b, bench.Memory) }, "1s"), "turn")
	r.goal(fmt.Sprintf("durable turn (2 model calls, 1 tool, %.0f writes)", durable.Extra["writes/turn"]), short(perOp(durable)), "memory store "+short(perOp(inMemory)),
		times(float64(perOp(durable))/float64(perOp(inMemory))), "≤ 3ms", perOp(durable) <= 3*time.Millisecond)
	for _, fresh := range []bool{true, false} {
		got := must(bench.Measure(func(b *testing.B) { bench.Start(b, fresh) }, "20x"), "start")
		what := "start to ready, existing data (in process)"
		if fresh {
			what = "start to ready, new data directory (in process)"
		}
		r.goal(what, short(perOp(got)), "", "", "≤ 150ms", perOp(got) <= 150*time.Millisecond)
	}
}

func (r *report) render() {
	var first time.Duration
	for _, n := range []int{10, 100, 1000} {
		got := must(bench.Measure(func(b *testing.B) { bench.RenderNext(b, n) }, "50x"), "render")
		if n == 10 {
			first = perOp(got)
		}
		r.line(fmt.Sprintf("prompt of the next round after %d", n), short(perOp(got)), fmt.Sprintf("%d allocations, %s", got.AllocsPerOp(), bytesOf(float64(got.AllocedBytesPerOp()))),
			times(float64(perOp(got))/float64(first)))
	}
	for _, n := range []int{10, 100, 1000} {
		got := must(bench.Measure(func(b *testing.B) { bench.RenderAll(b, n) }, "300ms"), "render")
		r.line(fmt.Sprintf("reading a conversation of %d rounds, once a turn", n), short(perOp(got)), fmt.Sprintf("%.0f blocks", got.Extra["blocks"]), "")
	}
}

func (r *report) parser() {
	large := must(bench.Measure(func(b *testing.B) { bench.Parse(b, 4096) }, "500ms"), "parser")
	small := must(bench.Measure(func(b *testing.B) { bench.Parse(b, 16) }, "500ms"), "parser")
	rate, chunk := large.Extra["MB/s."], small.Extra["ns/chunk"]
	r.goal("parser, 4 KiB chunks", fmt.Sprintf("%.0f MB/s", rate), "", "", "≥ 200 MB/s", rate >= 200)
	r.goal("parser, 16 B chunks", fmt.Sprintf("%.0fns a chunk", chunk), "", "", "≤ 1µs a chunk", chunk <= 1000)
}

// long compares the bytes sent in a conversation of 200 rounds with what other loops would send. No time is measured.
func (r *report) long() {
	run := func(window int) (sent bench.Sent) {
		must(bench.Measure(func(b *testing.B) { sent = bench.Long(b, 4, 50, 1<<20, window) }, "1x"), "long conversation")
		return sent
	}
	mb := func(n int) string { return bytesOf(float64(n)) }
	small, none := run(12_000), run(0)
	ratio := func(n int) string { return times(float64(n) / float64(small.Bytes)) }
	r.line("200 rounds with 1 MiB results, sent in a 12000-token window", mb(small.Bytes), "every result appended whole "+mb(small.Everything), ratio(small.Everything))
	r.line("  the same", "", "previews and refs, no compaction "+mb(none.Bytes), ratio(none.Bytes))
	r.line("  largest request", mb(small.Largest), "no compaction "+mb(none.Largest), times(float64(none.Largest)/float64(small.Largest)))
	r.line(fmt.Sprintf("  not in common with the request before (%d summaries)", small.Summaries), mb(small.New), "no compaction "+mb(none.New), times(float64(none.New)/float64(small.New)))
}

func times(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f×", x)
	}
	return fmt.Sprintf("%.2g×", x)
}

// short rounds a duration to three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}

func bytesOf(n float64) string {
	for _, u := range []string{"B", "KiB", "MiB"} {
		if n < 1024 {
			return fmt.Sprintf("%.3g %s", n, u)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.3g GiB", n)
}
