package bench

import (
	"flag"
	"testing"
)

// Measure runs a measurement outside of `go test`. howLong is a duration ("500ms") or a number of repetitions ("20x").
func Measure(run func(*testing.B), howLong string) testing.BenchmarkResult {
	if flag.Lookup("test.benchtime") == nil {
		testing.Init()
	}
	old := flag.Lookup("test.benchtime").Value.String()
	if err := flag.Set("test.benchtime", howLong); err != nil {
		panic("bench: " + err.Error()) // a mistake of the program
	}
	defer func() { _ = flag.Set("test.benchtime", old) }()
	return testing.Benchmark(run)
}

// Once runs a measurement one time, to see that it works.
func Once(run func(*testing.B)) testing.BenchmarkResult { return Measure(run, "1x") }
