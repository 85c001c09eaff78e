package gate

import (
	"testing"

	"github.com/seed621a2839/reweight/cmd/bench/internal/gotest"
)

// TestExe: a test binary that is kept for later runs is taken for the same package,
// benchmarks and order only.
func TestExe(t *testing.T) {
	exe := func(pkg string, order int, names ...string) string {
		var p gotest.Package
		for _, name := range names {
			p.Benchmarks = append(p.Benchmarks, gotest.Benchmark{Name: name})
		}
		return (&testSide{bin: "bin", pkgs: map[string]gotest.Package{pkg: p}}).exe(pkg, order)
	}
	one := exe(".", 0, "BenchmarkA", "BenchmarkB")
	if again := exe(".", 0, "BenchmarkA", "BenchmarkB"); again != one {
		t.Errorf("the same binary is %s and %s", one, again)
	}
	for what, other := range map[string]string{
		"package":    exe("a", 0, "BenchmarkA", "BenchmarkB"),
		"order":      exe(".", 1, "BenchmarkA", "BenchmarkB"),
		"benchmarks": exe(".", 0, "BenchmarkA"),
	} {
		if other == one {
			t.Errorf("the binary of another %s is %s too", what, one)
		}
	}
}
