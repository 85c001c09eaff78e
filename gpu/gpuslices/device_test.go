package gpuslices

import (
	"flag"
	"reflect"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
)

var rounds = flag.Int("rounds", 30, "how often each trial is repeated")

// both returns a runner for arrays Amid and one for arrays AtEnd.
func both(t testing.TB, dev *gpu.Device) [2]*Runner {
	var r [2]*Runner
	for i, p := range []Placement{Amid, AtEnd} {
		var err error
		if r[i], err = NewPlaced(dev, p); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r[i].Close(); err != nil && !t.Failed() {
				t.Error(err)
			}
		})
	}
	return r
}

// TestTrials compares all methods with plain Go:
//
//	go test ./gpu/gpuslices -run TestTrials -rounds 5000
func TestTrials(t *testing.T) {
	for _, tr := range randomcalls.All() {
		t.Run(tr.Method, func(t *testing.T) {
			t.Parallel()
			runners := both(t, testgpu.Device(t))
			n := *rounds
			if testing.Short() {
				n = min(n, 10)
			}
			errors := 0
			for seed := range uint64(n) {
				cpu := reweight.Workspace{ISA: reweight.Portable, Workers: 1}
				want, err := compare(tr, seed, runners[seed%2], &cpu)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if want[0] != nil {
					errors++
				}
			}
			if errors > n/2 || errors == 0 && n > 50 && tr.Method != "Multiply" { // which has lengths alone
				t.Errorf("%d of %d calls are errors", errors, n)
			}
		})
	}
}

// TestErrors: a wrong call has the CPU's error, and writes nothing.
func TestErrors(t *testing.T) {
	r := both(t, testgpu.Device(t))
	randomcalls.CheckErrors(t, r[0], r[1])
}

// TestEveryMethod: every method that a Runner shares with *reweight.Workspace has its
// trial, and what package gpu has, a Runner has.
func TestEveryMethod(t *testing.T) {
	callers := reflect.TypeFor[randomcalls.Caller]()
	for method := range callers.Methods() {
		name := method.Name
		if !slices.ContainsFunc(randomcalls.All(), func(tr randomcalls.Trial) bool { return tr.Method == name }) {
			t.Errorf("%s has no trial", name)
		}
	}
	device, host := reflect.TypeFor[*gpu.Workspace](), reflect.TypeFor[*reweight.Workspace]()
	for method := range device.Methods() {
		name := method.Name
		_, onHost := host.MethodByName(name)
		if _, ok := callers.MethodByName(name); onHost && !ok {
			t.Errorf("package gpu has %s, and a Runner has not", name)
		}
	}
}
