//go:build cgo && linux

package testlib_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/native/testlib"
	"github.com/seed621a2839/reweight/scheme"
)

var rounds = flag.Int("rounds", 80, "how often each trial is repeated")

// plain returns what the library is compared with: plain Go, in one goroutine.
func plain() *reweight.Workspace {
	ws := &reweight.Workspace{ISA: reweight.Portable, Workers: 1}
	if testlib.Sanitized {
		ws.ISA = reweight.Auto // plain Go is many times slower then
	}
	return ws
}

// each returns a runner for each instruction set of the library.
func each(l *testlib.Library, workers int) []*testlib.Runner {
	var all []*testlib.Runner
	for _, isa := range l.ISAs() {
		all = append(all, l.Runner(isa, workers))
	}
	return all
}

// callers returns them as callers with two threads.
func callers(l *testlib.Library) (all []randomcalls.Caller) {
	for _, r := range each(l, 2) {
		all = append(all, r)
	}
	return all
}

// trials are those of all methods.
func trials() []randomcalls.Trial { return append(randomcalls.All(), randomcalls.Losses()...) }

// compare runs a trial on plain Go and on the runners, and returns what plain Go has. The arrays that
// were drawn must be the same after it too: no call has written anything but its outputs.
func compare(tr randomcalls.Trial, seed uint64, runners []*testlib.Runner) (want randomcalls.Outcome, err error) {
	drawn := randomcalls.New(seed, false)
	want = tr.Run(drawn, plain())
	for _, r := range runners {
		d := randomcalls.New(seed, false)
		if err := cmp.Or(randomcalls.Differ(tr.Run(d, r), want),
			randomcalls.Differ(d.Arrays(), drawn.Arrays())); err != nil {
			return nil, fmt.Errorf("%v, seed %d: %w", r.ISA(), seed, err)
		}
	}
	return want, nil
}

// TestTrials compares all methods with plain Go, with 1 to 4 threads:
//
//	go test ./native/testlib -run TestTrials -rounds 5000 -v
func TestTrials(t *testing.T) {
	l := testlib.Open(t)
	for _, tr := range slices.Concat(trials(), randomcalls.Schemes()) {
		t.Run(tr.Method, func(t *testing.T) {
			t.Parallel()
			n := *rounds
			if testing.Short() {
				n = min(n, 30)
			}
			errors := 0
			for seed := range uint64(n) {
				if must.Get(compare(tr, seed, each(l, 1+int(seed%4))))[0] != nil {
					errors++
				}
			}
			if errors > n/2 || errors == 0 && n > 50 && tr.Method != "Multiply" { // which has lengths alone
				t.Errorf("%d of %d calls are errors", errors, n)
			}
		})
	}
}

// TestAtOnce: threads that call at the same time, with a workspace each, do not disturb
// each other.
func TestAtOnce(t *testing.T) {
	l := testlib.Open(t)
	n := *rounds / 16
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			for seed := range uint64(n) {
				for _, tr := range trials() {
					if _, err := compare(tr, 1000*i+seed, each(l, 2)); err != nil {
						t.Errorf("%s: %v", tr.Method, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestErrors: a wrong call has Go's error, and writes nothing. So have options at the edges
// of what they may be, or results.
func TestErrors(t *testing.T) {
	randomcalls.CheckErrors(t, callers(testlib.Open(t))...)
}

// TestWithoutErrors: a call whose error has no address does what it otherwise does.
func TestWithoutErrors(t *testing.T) {
	for _, r := range each(testlib.Open(t), 2) {
		r.Silence()
		for _, tr := range trials() {
			for seed := range uint64(20) {
				want := tr.Run(randomcalls.New(seed, false), plain())
				got := tr.Run(randomcalls.New(seed, false), r)
				if got[0] == testlib.ErrSilent && want[0] != nil {
					got[0] = want[0]
				}
				if tr.Method == "ActFocus" {
					got[1] = want[1] // which has no address either
				}
				if err := randomcalls.Differ(got, want); err != nil {
					t.Errorf("%s, %v, seed %d: %v", tr.Method, r.ISA(), seed, err)
				}
			}
		}
	}
}

// TestEveryMethod: every method that a Runner shares with *reweight.Workspace has its
// trial, and every function of the header its call.
func TestEveryMethod(t *testing.T) {
	methods := reflect.TypeFor[randomcalls.LossCaller]()
	for method := range methods.Methods() {
		name := method.Name
		if !slices.ContainsFunc(trials(), func(tr randomcalls.Trial) bool { return tr.Method == name }) {
			t.Errorf("%s has no trial", name)
		}
	}
	header := must.Get(os.ReadFile("../reweight.h"))
	calls := must.Get(os.ReadFile("calls.h"))
	functions := regexp.MustCompile(`(?m)^REWEIGHT_API .*?\breweight_(\w+)\(`).FindAllSubmatch(header, -1)
	if len(functions) != strings.Count(string(header), "\nREWEIGHT_API ") {
		t.Errorf("%d functions are found in the header, which has others", len(functions))
	}
	for _, f := range functions {
		if slices.ContainsFunc(native.OfCatalogue(), func(e *scheme.Entry) bool { return e.C == string(f[1]) }) {
			continue // they have one call for all
		}
		if !bytes.Contains(calls, []byte(" f("+string(f[1])+")")) &&
			!bytes.Contains(calls, []byte("\tf("+string(f[1])+")")) {
			t.Errorf("calls.h has no %s", f[1])
		}
	}
}

// TestISAs: the library has the instruction sets that Go has, and takes the last of them.
func TestISAs(t *testing.T) {
	l := testlib.Open(t)
	all := l.ISAs()
	for _, isa := range reweight.AvailableISAs() {
		if !slices.Contains(all, isa) {
			t.Errorf("%v, want %v too", all, isa)
		}
	}
	if best := l.BestISA(); best != all[len(all)-1] {
		t.Errorf("the best of %v is %v", all, best)
	}
	for isa := reweight.Auto; isa <= reweight.NEON; isa++ {
		if name := l.ISAName(isa); name != isa.String() {
			t.Errorf("the name of %v is %q", isa, name)
		}
	}
	if name := l.ISAName(99); name != "" {
		t.Errorf("the name of 99 is %q", name)
	}
	if v := l.Version(); !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
		t.Errorf("version %q", v)
	}
	// Auto gives the same bits.
	for _, tr := range trials() {
		for seed := range uint64(10) {
			if _, err := compare(tr, seed, []*testlib.Runner{l.Runner(reweight.Auto, 0)}); err != nil {
				t.Errorf("%s: %v", tr.Method, err)
			}
		}
	}
}

// TestOpen: what is no library is an error.
func TestOpen(t *testing.T) {
	for _, path := range []string{"/nowhere/libreweight.so", "/dev/null", "libm.so.6"} {
		if l, err := testlib.Load(path); err == nil || l != nil {
			t.Errorf("%s is opened", path)
		}
	}
}
