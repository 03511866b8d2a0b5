package main

import (
	"fmt"
	"testing"
	"time"

	"writ/bench"
)

// gateway measures what a call costs that passes the gateway, beside the same client at the same server.
func (r *report) gateway() {
	for _, calls := range []int{1, 16} {
		for _, size := range []int{1 << 10, 100 << 10} {
			direct := must(bench.Measure(func(b *testing.B) { bench.Hop(b, nil, calls, size) }, "1s"), "direct call")
			hop := must(bench.Measure(func(b *testing.B) { bench.Hop(b, bench.SQLite, calls, size) }, "2s"), "hop")
			for _, p := range []string{"p50", "p99"} {
				unit := p + "-µs"
				what := fmt.Sprintf("call through the gateway, %s, %d at once, %s, SQLite", p, calls, bytesOf(float64(size)))
				r.line(what, us(hop.Extra[unit]), "directly "+us(direct.Extra[unit]), times(hop.Extra[unit]/direct.Extra[unit]))
			}
		}
	}
}

func us(v float64) string { return short(time.Duration(v) * time.Microsecond) }
