package kernels

import (
	"flag"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/native/testlib"
)

// How the C library takes part in the tests of the catalogue: with every instruction set
// that it has on this machine, in each case. Package testlib makes the library, where
// there are cgo and a C compiler.
//
//	go test ./kernels -native none
var withNativeFlag = flag.String("native", "all", "how much of the tests the C library takes part in: none or all")

// native begins the names of the library's implementations.
const native = "native-"

// onCPU returns all implementations that run on this machine's CPU, the ones of the C
// library last: "native-portable" and the like.
func onCPU(t testing.TB) []Implementation {
	t.Helper()
	impls := Implementations()
	if *withNativeFlag == "none" || !testlib.Supported() {
		return impls
	}
	l := testlib.Open(t)
	for _, isa := range l.ISAs() {
		impls = append(impls, Implementation{
			Name: native + isa.String(),
			New:  func(workers int) Runner { return l.Runner(isa, workers) },
		})
	}
	return impls
}

// TestNative: the C library has the instruction sets that plain Go's library has.
func TestNative(t *testing.T) {
	if *withNativeFlag == "none" {
		t.Skip("-native none")
	}
	testlib.Open(t) // skips where there is none
	var names []string
	for _, impl := range onCPU(t) {
		names = append(names, impl.Name)
	}
	t.Log(names)
	for _, impl := range Implementations() {
		if !slices.Contains(names, native+impl.Name) {
			t.Errorf("%v has no %s%s", names, native, impl.Name)
		}
	}
}
