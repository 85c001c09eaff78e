package kinds

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var sink []byte

func BenchmarkNames(b *testing.B) {
	for _, name := range []string{"a b/c=1", "same", "same"} {
		b.Run(name, func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				sink = make([]byte, 64)
			}
		})
	}
}

func BenchmarkParallel(b *testing.B) {
	var goroutines atomic.Int32
	b.RunParallel(func(pb *testing.PB) {
		goroutines.Add(1)
		for pb.Next() {
		}
	})
	b.ReportMetric(float64(goroutines.Load()), "goroutines")
}

func BenchmarkLoop(b *testing.B) {
	for b.Loop() {
		Sum([]int{1, 2})
	}
}

func BenchmarkMetrics(b *testing.B) {
	b.SetBytes(8)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(7, "wonders")
	time.Sleep(time.Microsecond)
}

func BenchmarkLinked(b *testing.B) {
	b.ReportMetric(float64(len(linked)), "characters")
}

func BenchmarkPrints(b *testing.B) {
	fmt.Println("BenchmarkPrints-2 1 1 ns/op")
	logger.Print("a logger made before")
	println("the runtime")
	stdout.WriteString("a line without its end")
	b.Run("sub", func(b *testing.B) { fmt.Println("a sub-benchmark") })
	b.Log("a log")
}

func BenchmarkLeaves(b *testing.B) {
	runtime.GOMAXPROCS(1)
	os.Chdir(os.TempDir())
	os.Stdout, _ = os.Open(os.DevNull)
	debug.SetGCPercent(-1)
	for i := 0; i < b.N; i++ {
		go func() { select {} }()
	}
}

func BenchmarkReads(b *testing.B) {
	_, file, _, _ := runtime.Caller(0)
	for _, path := range []string{"testdata/words.txt", filepath.Join(filepath.Dir(file), "testdata", "words.txt")} {
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "words") {
			b.Fatal(err)
		}
	}
	os.WriteFile(os.Getenv("KINDS_WRITES"), nil, 0o666)
	if n, err := os.Stdin.Read(make([]byte, 1)); n > 0 || err == nil {
		b.Fatal("there is something to read")
	}
	if _, ok := os.LookupEnv("BENCHGATE_TOKEN"); ok {
		b.Fatal("the token is for the worker alone")
	}
	fmt.Println("still to be seen")
	b.ReportMetric(float64(runtime.GOMAXPROCS(0)), "procs")
	b.ReportMetric(float64(debug.SetGCPercent(100)), "gc")
}

func BenchmarkSkips(b *testing.B) {
	b.Run("sub", func(b *testing.B) { b.Skip("no reason") })
}

func BenchmarkFails(b *testing.B) {
	b.Run("sub", func(b *testing.B) { b.Fatal("a failure") })
}

func BenchmarkTalks(b *testing.B) { b.Fatal(strings.Repeat("blah ", 1<<20)) }

func BenchmarkGoexit(b *testing.B) { runtime.Goexit() }
func BenchmarkPanics(b *testing.B) { panic("a panic") }
func BenchmarkExits(b *testing.B)  { os.Exit(0) }

func BenchmarkBoth(b *testing.B) {}

// These are no benchmarks.
func Benchmarks(b *testing.B) {}

type B struct{}

func (B) BenchmarkMethod(b *testing.B) {}
