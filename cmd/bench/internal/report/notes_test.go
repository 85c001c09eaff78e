package report

import (
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
)

// onRows is a workload of 1 MiB rows in float32.
func onRows(isa string, rows int, read float64) measure.Result {
	return measure.Result{Kernel: "token_stats", DType: "f32", ISA: isa, Rows: rows, Vocab: 1 << 18, Workers: 1,
		ReadGBPerS: read, NsPerElement: bench.Estimate{N: 10, Outliers: 1},
		Null: bench.Estimate{Median: 1, Lo: 0.99, Hi: 1.01, N: 10}}
}

// TestPlace: memory is said only of rows that take eight times the last cache.
func TestPlace(t *testing.T) {
	half := onRows("a", 64, 1)
	half.DType = "bf16"
	for _, c := range []struct {
		l3      int
		results []measure.Result
		want    string
	}{
		{480 << 20, []measure.Result{onRows("a", 64, 1)}, "Rows of logits: 64 MiB, from a cache, not from memory: the last cache has 480 MiB."},
		{64 << 20, []measure.Result{onRows("a", 64, 1)}, "Rows of logits: 64 MiB, from a cache, not from memory: the last cache has 64 MiB."},
		{48 << 20, []measure.Result{onRows("a", 64, 1), half}, "Rows of logits: 32 MiB to 64 MiB, the larger partly from a cache, the smaller from a cache, not from memory: the last cache has 48 MiB."},
		{9 << 20, []measure.Result{onRows("a", 64, 1)}, "Rows of logits: 64 MiB, partly from a cache: the last cache has 9.0 MiB."},
		{8 << 20, []measure.Result{onRows("a", 64, 1)}, "Rows of logits: 64 MiB, from memory: the last cache has 8.0 MiB."},
		{0, []measure.Result{onRows("a", 64, 1)}, "Rows of logits: 64 MiB, from memory or from a cache: the size of the last cache is not known."},
		{480 << 20, []measure.Result{{Rows: 65536}}, ""},
		{480 << 20, nil, ""},
	} {
		if got := (Report{Machine: machine.Machine{L3: c.l3}, Results: c.results}).place(); got != c.want {
			t.Errorf("L3 of %d: %q, want %q", c.l3, got, c.want)
		}
	}
}

// TestReads: one figure for each workload, whatever the instruction sets.
func TestReads(t *testing.T) {
	r := Report{Results: []measure.Result{onRows("a", 64, 10), onRows("b", 64, 10), onRows("c", 64, 10),
		onRows("a", 65, 20), onRows("a", 66, 12)}}
	tokens := onRows("a", 64, 50)
	tokens.Vocab = 0
	two := onRows("a", 64, 99)
	two.Workers = 2 // not those of the others
	r.Results = append(r.Results, tokens, two)
	if got, want := r.reads(), "Plain read: rows of logits at 12.0 GB/s (10.0-20.0 over 3 workloads), tokens at 50.0 GB/s."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Report{}).Notes(); got != nil {
		t.Errorf("notes on nothing: %q", got)
	}
}

func TestNoise(t *testing.T) {
	r := Report{Results: []measure.Result{onRows("a", 64, 1), onRows("b", 64, 1)}}
	if got, want := r.noise(), "A/A null, the plain read over itself: 1.000, widest interval 0.990-1.010. Outliers: 2 of 20 rounds."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	other := onRows("a", 65, 1)
	other.Null = bench.Estimate{Median: 1.02, Lo: 0.9, Hi: 1.1}
	r.Results = append(r.Results, other)
	want := "A/A null, the plain read over itself: 1.000-1.020 over 2 workloads, widest interval 0.900-1.100. Outliers: 3 of 30 rounds."
	if got := r.noise(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
