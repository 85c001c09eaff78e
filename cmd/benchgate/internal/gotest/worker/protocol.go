// Package worker makes a test binary run the benchmarks that it is asked for, one
// after the other, in one process.
//
// Its source is built as a part of other people's modules: every file but the
// tests compiles as Go 1.13 and imports nothing but a little of the standard
// library.
//
// The process that starts the test binary gives it [EnvToken], and the flags
// -test.run=^TestZZBenchGate$ and -test.paniconexit0. The worker reads requests
// from its standard input, each a line of JSON, until that ends. It answers on
// standard output: an empty [Answer] when it begins, and then one to every request.
// Each of these is a line that begins with the token. There are other lines too, of C
// code for example. What Go code prints to os.Stdout goes to standard error.
//
// An output has the lines of go test -bench. A benchmark that fails has a line that
// begins with "--- FAIL: ". One that skips has none, or with Verbose a line that
// begins with "--- SKIP: ". One that ends by runtime.Goexit has a result of 0
// iterations. A panic and os.Exit end the process without an answer.
package worker

// Test is the name of the test that serves.
const Test = "TestZZBenchGate"

// The variables of the environment that a worker reads, and removes.
const (
	EnvToken  = "BENCHGATE_TOKEN"  // what its lines begin with; without it, the test binary does what it always does
	EnvOutput = "BENCHGATE_OUTPUT" // absolute path of the file that package testing writes results to
	EnvShake  = "BENCHGATE_SHAKE"  // seed of Shake, a decimal number; none is not to shake
)

// A Request is to run a benchmark.
type Request struct {
	Benchmark string `json:"benchmark"` // name of its function
	External  bool   `json:"external"`  // the function is of package name_test
	Bench     string `json:"bench"`     // as the flags of go test are
	Skip      string `json:"skip"`
	Benchtime string `json:"benchtime"`
	Count     int    `json:"count"`
	Verbose   bool   `json:"verbose"` // as -v: the output names what is skipped too
}

// MaxOutput is the most of an output that a worker sends, in bytes.
const MaxOutput = 4 << 20

// An Answer has what package testing printed about the benchmark.
type Answer struct {
	Error     string `json:"error,omitempty"` // the request is wrong, or the machine fails; not the benchmark
	Output    string `json:"output"`
	Truncated bool   `json:"truncated,omitempty"` // there was more than MaxOutput
	Ns        int64  `json:"ns"`                  // that all of it took, set-up included
	Left      int    `json:"left,omitempty"`      // goroutines that it has started and that do not end
}
