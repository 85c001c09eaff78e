package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
)

// A failure is what a process of a test binary did by itself: it ended, it gave no answer,
// or a benchmark said that it fails. Any other error, such as a full disk when a process is
// to start, is not about a version, and ends the run.
type failure struct {
	of      string // what failed, a process or a benchmark; or empty
	what    string
	tries   string // how many of them failed in either version, once that is known
	at      place  // of a panic
	version int    // of the process: 0 is the base, 1 the new build
	hung    bool
	scarce  bool // it was killed, or had too little of something: as likely the machine's fault
}

func (f *failure) Error() string { return strings.TrimPrefix(f.of+": "+f.what, ": ") }

// A place is a line of a source file.
type place struct {
	file string // absolute, unless the build does not tell; or empty
	line int
}

// beside is the failure in a line that begins with the name of the benchmark.
func (f *failure) beside(benchmark string) string {
	if f.of == benchmark+fails || strings.HasPrefix(f.of, testsOf) {
		return f.what
	}
	return f.Error()
}

// What of begins with, of a process, and ends in, of a benchmark.
const (
	testsOf = "the tests of "
	fails   = " fails"
)

// newFailure describes a failure in words.
func newFailure(of, what string) *failure {
	short := []string{"signal: killed", "out of memory", "cannot allocate memory", "no space left on device",
		"resource temporarily unavailable"}
	return &failure{of: of, what: what, scarce: slices.ContainsFunc(short, func(s string) bool {
		return strings.Contains(what, s)
	})}
}

// failures are those of a run, by the name of the benchmark.
type failures map[string]*failure

// A blame says what a failure means.
type blame int

const (
	noBlame  blame = iota // it fails now and then, or on the first try only
	newBuild              // the new build fails each time, and the base does not
	machine               // the same, but by what the machine may be to blame for
	bothFail              // the base fails too
	onlyBase              // the base fails each time, and the new build does not
)

// A failure by chance is told from one of each time by this many tries, in at most this time after the first three.
const (
	mostTries = 9
	triesTime = 10 * time.Second
)

// settle tries again what failed in one version, in fresh processes of both versions, and says
// whose fault it is. first has what failed before in either version. run does the same in
// another process.
func (w *workers) settle(ctx context.Context, first [2]failures,
	run func(bencher) (failures, error)) (map[string]blame, error) {
	count := map[string]*[2]int{}
	hung, scarce := false, false
	add := func(version int, all failures) {
		for name, f := range all {
			if count[name] == nil {
				count[name] = &[2]int{}
			}
			count[name][version]++
			hung, scarce = hung || f.hung, scarce || f.scarce && version == 1
		}
	}
	add(0, first[0])
	add(1, first[1])
	unclear := false
	for _, n := range count {
		unclear = unclear || n[0] != n[1]
	}
	tries, begin := 1, time.Now()
	for unclear && tries < mostTries && (tries < 3 || time.Since(begin) < triesTime) {
		tries++
		for version := range w.c.versions {
			w.c.steps.next("trying again what failed, %d of %d", tries, mostTries)
			fresh := workers{c: w.c, group: w.group, order: w.order}
			var found failures
			err := fresh.run(ctx, version, func(b bencher) (err error) { found, err = run(b); return err })
			fresh.close()
			if why, ok := errors.AsType[*failure](err); ok { // all that is looked at fails with the process
				found = failures{}
				for name := range count {
					found[name] = why
				}
			} else if err != nil {
				return nil, err
			}
			add(version, found)
		}
		if hung { // it took all its patience, and takes that each time
			break
		}
	}
	all := map[string]blame{}
	for name, n := range count {
		for _, f := range [...]*failure{first[0][name], first[1][name]} {
			if f != nil && tries > 1 {
				f.tries = fmt.Sprintf("; the new build failed %d of %d tries, the base %d of %[2]d", n[1], tries, n[0])
			}
		}
		switch base, now := n[0], n[1]; {
		case base == 0 && now == tries && scarce:
			all[name] = machine
		case base == 0 && now == tries:
			all[name] = newBuild
		case base > 0 && now > 0:
			all[name] = bothFail
		case base == tries:
			all[name] = onlyBase
		}
	}
	return all, nil
}

// judge returns the failure that an error is, if it is one, and whose fault that is. run
// does the same in another process. Any other error is returned.
func (w *workers) judge(ctx context.Context, err error, run func(bencher) error) (*failure, blame, error) {
	why, ok := errors.AsType[*failure](err)
	if !ok {
		return nil, noBlame, err
	}
	var first [2]failures
	first[why.version] = failures{"": why}
	blames, err := w.settle(ctx, first, func(b bencher) (failures, error) { return nil, run(b) })
	return why, blames[""], err
}

// mostFlakes is how often a benchmark may fail now and then before it is given up.
const mostFlakes = 5

// blamed ends or goes on with a function that failed.
func (c *comparison) blamed(f *function, b blame, why *failure) {
	what := why.beside(f.Benchmark)
	switch f.flakes++; {
	case b == newBuild:
		f.Verdict, f.Message, f.failed = bench.Regression, what+why.tries, true
		if f.file == "" {
			f.file, f.line = c.inTree(why.at)
		}
	case b == machine:
		f.Verdict, f.Message, f.failed = bench.Inconclusive,
			what+why.tries+": the machine may be short of something", true
	case b == bothFail:
		f.dropped = true
		c.broken = append(c.broken, f.name()+": "+what)
		c.note("%s fails in both builds: not compared: %s%s", f.name(), what, why.tries)
	case b == onlyBase:
		f.dropped = true
		c.mended = c.mended || !why.scarce
		c.note("%s fails in the base: not compared: %s", f.name(), what)
	case f.flakes >= mostFlakes:
		f.Verdict, f.Message, f.failed = bench.Inconclusive,
			fmt.Sprintf("it fails now and then, %s so far: the %s: %s", cli.Counted(f.flakes, "time"),
				versionNames[why.version], what+why.tries), true
	default:
		f.flake = versionNames[why.version] + ": " + what + why.tries
	}
}
