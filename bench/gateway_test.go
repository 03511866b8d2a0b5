package bench

import (
	"fmt"
	"testing"
)

func BenchmarkHop(b *testing.B) {
	for _, calls := range []int{1, 16} {
		for _, size := range []int{1 << 10, 100 << 10} {
			at := fmt.Sprintf("calls=%d/size=%d", calls, size)
			b.Run(at+"/direct", func(b *testing.B) { Hop(b, nil, calls, size) })
			for _, s := range stores {
				b.Run(at+"/"+s.name, func(b *testing.B) { Hop(b, s.open, calls, size) })
			}
		}
	}
}

func TestHopWorks(t *testing.T) {
	for _, open := range []Opener{nil, Memory, SQLite} {
		if got := Once(func(b *testing.B) { Hop(b, open, 4, 1<<10) }); got.N == 0 || got.Extra["p50-µs"] == 0 {
			t.Errorf("%+v", got)
		}
	}
}
