package reference

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight/testdata/golden"
)

// tolerance is the relative error allowed against the golden files.
const tolerance = 1e-10

type (
	number = golden.Number
	roles  = golden.Small[Role]
)

// comparer compares numbers and remembers the worst relative error.
type comparer struct {
	t     *testing.T
	floor float64 // a smaller answer is held to the error that is allowed at floor
	worst float64
	n     int
}

// compare returns a comparer that logs the worst relative error at the end.
func compare(t *testing.T) *comparer {
	c := &comparer{t: t}
	t.Cleanup(func() { t.Logf("%d numbers, largest relative error %.2g", c.n, c.worst) })
	return c
}

func (c *comparer) number(what string, got, want float64) {
	c.t.Helper()
	c.n++
	if math.IsNaN(want) || math.IsInf(want, 0) {
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			c.t.Errorf("%s = %v, want %v", what, got, want)
		}
		return
	}
	e := math.Abs(got - want)
	if scale := max(math.Abs(want), c.floor); scale > 0 {
		e /= scale
	}
	if !(e <= tolerance) {
		c.t.Errorf("%s = %v, want %v (relative error %.2g)", what, got, want, e)
	}
	c.worst = max(c.worst, e)
}

func (c *comparer) numbers(what string, got, want []float64) {
	c.t.Helper()
	if len(got) != len(want) {
		c.t.Fatalf("len(%s) = %d, want %d", what, len(got), len(want))
	}
	for i := range got {
		c.number(what, got[i], want[i])
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestGoldenTokenStats(t *testing.T) {
	var cases []struct {
		Name      string
		Logits    []number
		ID        int32
		LogSumExp number
		Entropy   number
		Logprob   number
	}
	golden.Read(t, "token_stats.json", &cases)
	c := compare(t)
	c.floor = 1e-5 // the golden answers carry the rounding of a sum near 1: 1e-16 in an entropy of 1e-14
	for _, g := range cases {
		x := make([]float64, len(g.Logits))
		for v := range x {
			x[v] = float64(g.Logits[v])
		}
		lse, entropy, logprob, err := TokenStats(x, len(x), []int32{g.ID}, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.number(g.Name+": lse", lse[0], float64(g.LogSumExp))
		c.number(g.Name+": entropy", entropy[0], float64(g.Entropy))
		c.number(g.Name+": logprob", logprob[0], float64(g.Logprob))
	}
}

func TestGoldenBottleneck(t *testing.T) {
	var cases []struct {
		Role       roles
		SeqOffsets []int64 `json:"seq_offsets"`
		GroupIDs   []int32 `json:"group_ids"`
		Energy     []float64
		Rewards    []float64
		Spearman   struct{ All, Reasoning, Action float64 }
	}
	golden.Read(t, "bottleneck.json", &cases)
	c := compare(t)
	for _, g := range cases {
		b := must[BottleneckResult](t)(Bottleneck(g.Role, g.SeqOffsets, g.GroupIDs, g.Rewards, g.Energy))
		c.number("all", b.All.Rho, g.Spearman.All)
		c.number("reasoning", b.Reasoning.Rho, g.Spearman.Reasoning)
		c.number("action", b.Action.Rho, g.Spearman.Action)
	}
}
