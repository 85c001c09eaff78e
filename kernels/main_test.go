package kernels

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
)

var long = flag.Bool("long", false, "compare every family of numbers at every length: a minute more")

// some reports whether a length has a family. Without -long two of the seven have it, among them the one with which
// the GPU takes part, and each family has lengths of every remainder by 16.
func some(n int, f Family) bool {
	return *long || *withGPUFlag == "all" || (n+int(f))%len(Families)%4 == 0
}

// A tally says what an implementation was compared with the first one in.
type tally struct{ cases, rows, elements, results, differ int }

// tallies are the counts of all tests, by the implementation's name.
var tallies = struct {
	sync.Mutex
	of map[string]tally
}{of: map[string]tally{}}

// count adds what the implementation ran to its tally.
func count(impl Implementation, t tally) {
	tallies.Lock()
	defer tallies.Unlock()
	sum := tallies.of[impl.Name]
	tallies.of[impl.Name] = tally{sum.cases + t.cases, sum.rows + t.rows, sum.elements + t.elements,
		sum.results + t.results, sum.differ + t.differ}
}

// countCase adds a case: got are the bits of the implementation, want the bits of the first.
func countCase(impl Implementation, c *Case, s Spec, got, want []uint64) {
	t := tally{cases: 1, rows: 1, elements: c.Elements, results: len(got)}
	if s.Vocab > 0 {
		t.rows = s.Rows
	}
	for i := range got {
		if got[i] != want[i] {
			t.differ++
		}
	}
	count(impl, t)
}

func TestMain(m *testing.M) {
	flag.Parse()
	for _, f := range []struct {
		name, value string
		values      []string
	}{{"gpu", *withGPUFlag, []string{"none", "some", "all"}}, {"native", *withNativeFlag, []string{"none", "all"}}} {
		if !slices.Contains(f.values, f.value) {
			fmt.Printf("-%s is %q, want one of %v\n", f.name, f.value, f.values)
			os.Exit(2)
		}
	}
	status := m.Run()
	if testing.Verbose() {
		for _, name := range slices.Sorted(maps.Keys(tallies.of)) {
			t := tallies.of[name]
			if name == gpuName {
				name = fmt.Sprintf("%s, %v", name, device.Load())
			}
			fmt.Printf("%s: %d cases, %d rows of logits or arrays, %d elements, %d results compared; bits differ in %d\n",
				name, t.cases, t.rows, t.elements, t.results, t.differ)
		}
	}
	os.Exit(status)
}
