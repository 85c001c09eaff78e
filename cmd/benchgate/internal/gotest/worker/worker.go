package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"
)

// What a worker takes for itself when the process begins, before the packages that
// import this one can use it.
var (
	token   string
	results string   // path of the file that package testing writes to
	in, out *os.File // the standard input and output of the process
)

func init() {
	if token = os.Getenv(EnvToken); token == "" {
		return
	}
	results = os.Getenv(EnvOutput)
	if seed, err := strconv.ParseUint(os.Getenv(EnvShake), 10, 64); err == nil {
		Shake(seed)
	}
	for _, name := range []string{EnvToken, EnvOutput, EnvShake} {
		os.Unsetenv(name) // a benchmark may start the test binary again
	}
	in, out = os.Stdin, os.Stdout
	os.Stdout = os.Stderr
	if null, err := os.Open(os.DevNull); err == nil {
		os.Stdin = null
	}
}

var internal, external []testing.InternalBenchmark

// Internal tells the worker of the benchmarks of the package under test. The
// generated test files call it from an init function.
func Internal(list ...testing.InternalBenchmark) { internal = list }

// External tells the worker of the benchmarks of the package name_test.
func External(list ...testing.InternalBenchmark) { external = list }

// Serve answers requests until there are no more. It is the test's body.
func Serve(t *testing.T) {
	if in == nil {
		t.Skip("this test is for a process that starts the test binary")
	}
	requests := bufio.NewReader(in)
	in = nil // the test may be run again: -test.count
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	say(t, Answer{})
	for {
		line, err := requests.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		var q Request
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		a, err := s.answer(q)
		if err != nil {
			a.Error = err.Error()
		}
		say(t, a)
	}
	flag.Set("test.bench", "") // package testing would run them again after the tests
	flag.Set("test.count", "1")
}

// say prints a line. What C code printed before may lack the end of its own.
func say(t *testing.T, v interface{}) {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(out, "\n%s%s\n", token, text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type server struct {
	file   *os.File // where package testing writes to
	stdout *os.File // what a benchmark has as os.Stdout
	dir    string
	procs  int
	gc     int // percent
}

func newServer() (s server, err error) {
	s.stdout, s.procs, s.gc = os.Stdout, runtime.GOMAXPROCS(0), debug.SetGCPercent(100)
	debug.SetGCPercent(s.gc)
	if s.dir, err = os.Getwd(); err != nil {
		return s, err
	}
	s.file, err = os.OpenFile(results, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0600)
	return s, err
}

func (s server) answer(q Request) (a Answer, err error) {
	list := internal
	if q.External {
		list = external
	}
	var f func(*testing.B)
	for _, b := range list {
		if b.Name == q.Benchmark {
			f = b.F
		}
	}
	if f == nil {
		return a, errors.New("no benchmark " + q.Benchmark)
	}
	set := [][2]string{
		{"test.bench", q.Bench}, {"test.benchtime", q.Benchtime}, {"test.count", strconv.Itoa(q.Count)},
		{"test.v", strconv.FormatBool(q.Verbose)},
	}
	if q.Skip != "" || flag.Lookup("test.skip") != nil { // Go has it since 1.20
		set = append(set, [2]string{"test.skip", q.Skip})
	}
	for _, v := range set {
		if err := flag.Set(v[0], v[1]); err != nil {
			return a, err
		}
	}
	if err := s.file.Truncate(0); err != nil {
		return a, err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return a, err
	}

	goroutines := runtime.NumGoroutine()
	start := time.Now()
	os.Stdout = s.file // RunBenchmarks takes it when it begins, and prints all results there
	testing.RunBenchmarks(regexp.MatchString, []testing.InternalBenchmark{{Name: q.Benchmark, F: func(b *testing.B) {
		os.Stdout = s.stdout
		f(b)
	}}})
	a.Ns = int64(time.Since(start))
	os.Stdout = s.stdout // the benchmark may have changed all four
	runtime.GOMAXPROCS(s.procs)
	debug.SetGCPercent(s.gc)
	if err := os.Chdir(s.dir); err != nil {
		return a, err
	}

	for wait := 0; wait < 10 && runtime.NumGoroutine() > goroutines; wait++ { // some are about to end
		time.Sleep(time.Millisecond)
	}
	if a.Left = runtime.NumGoroutine() - goroutines; a.Left < 0 {
		a.Left = 0
	}
	size, err := s.file.Seek(0, io.SeekEnd)
	if err != nil {
		return a, err
	}
	if a.Truncated = size > MaxOutput; a.Truncated {
		size = MaxOutput
	}
	text := make([]byte, size)
	if _, err := s.file.ReadAt(text, 0); err != nil {
		return a, err
	}
	a.Output = string(text)
	return a, nil
}
