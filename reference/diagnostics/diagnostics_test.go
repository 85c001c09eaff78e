package diagnostics

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight/reference"
	"github.com/seed621a2839/reweight/testdata/golden"
	"gonum.org/v1/gonum/stat"
)

// near fails unless got is want to a relative error; NaN is NaN.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance*max(1, math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestGoldenBottleneck(t *testing.T) {
	var cases []struct {
		Role            golden.Small[reference.Role]
		SeqOffsets      []int64 `json:"seq_offsets"`
		GroupIDs        []int32 `json:"group_ids"`
		Energy, Rewards []float64
		Spearman        struct{ All, Reasoning, Action float64 }
	}
	golden.Read(t, "bottleneck.json", &cases)
	for _, c := range cases {
		b := Bottleneck(&reference.Batch{Role: c.Role, SeqOffsets: c.SeqOffsets, GroupIDs: c.GroupIDs, RefEnergy: c.Energy, Rewards: c.Rewards})
		near(t, "all", b.All.Rho, c.Spearman.All, 1e-10)
		near(t, "reasoning", b.Reasoning.Rho, c.Spearman.Reasoning, 1e-10)
		near(t, "action", b.Action.Rho, c.Spearman.Action, 1e-10)
	}
}

func TestBottleneck(t *testing.T) {
	// Group 5 has two rollouts that are not neighbours, group 2 has no action. The variances
	// are 0.25, 0 and 0.
	b := Bottleneck(&reference.Batch{Role: []reference.Role{0, 1, 2, 1, 1, 2, 2, 0, 1, 2}, SeqOffsets: []int64{0, 3, 4, 7, 10}, GroupIDs: []int32{5, 2, 5, 1},
		Rewards: []float64{1, 1, 0, 0}, RefEnergy: []float64{99, -1, -2, -3, -4, -5, -6, 99, -8, -9}})
	near(t, "rho, all", b.All.Rho, 0, 1e-15)
	near(t, "rho, reasoning", b.Reasoning.Rho, math.Sqrt(3)/2, 1e-15)
	near(t, "rho, action", b.Action.Rho, 1, 1e-15)
}

func TestRewardVariance(t *testing.T) {
	near(t, "variance", RewardVariance([]float64{1, 2, 3, 6}), 3.5, 1e-15)
	near(t, "variance of one", RewardVariance([]float64{4}), 0, 0)
	lost := float64(float32(-0.1))
	r := []float64{lost, lost, 0, .3, 1, 1, 1.7}
	sorted := RewardVariance(r)
	for range r {
		r = append(r[3:], r[:3]...)
		if got := RewardVariance(r); got != sorted {
			t.Errorf("variance of %v = %v, want %v as in any order", r, got, sorted)
		}
	}
	if x, y := RewardVariance([]float64{1, 1, 1, 0, 0, 0, 0, 0, 0, 0}), RewardVariance([]float64{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}); x != y {
		t.Errorf("3 and 7 successes of 10: variance %v and %v", x, y)
	}
}

// The wanted values were computed with 30 digits.
func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		name   string
		x, y   []float64
		rho, p float64
	}{
		{"increasing", []float64{1, 2, 30, 31}, []float64{-4, 0, 1, 2}, 1, 0},
		{"decreasing", []float64{1, 2, 30, 31}, []float64{5, 4, 3, 2}, -1, 0},
		{"one exchange", []float64{1, 2, 3, 4, 5}, []float64{1, 2, 3, 5, 4}, .9, 0.0373860734684987},
		{"ties", []float64{3, 1, 3, -2, 3, 1}, []float64{5, 2.5, 5, 1, 5, 2.5}, 1, 0},
		{"constant", []float64{1, 2, 3}, []float64{4, 4, 4}, math.NaN(), math.NaN()},
		{"two pairs", []float64{1, 2}, []float64{1, 2}, 1, math.NaN()},
		{"nothing", nil, nil, math.NaN(), math.NaN()},
	} {
		got := Spearman(c.x, c.y)
		near(t, c.name+": rho", got.Rho, c.rho, 1e-14)
		near(t, c.name+": p", got.P, c.p, 1e-14)
	}
}

// TestPartial holds the formula to the correlation of residuals.
func TestPartial(t *testing.T) {
	x, y, z := []float64{1, 5, 2, 8, 3, 9, 4}, []float64{2, 6, 6, 1, 3, 8, 0}, []float64{1, 2, 2, 4, 3, 6, 6}
	residuals := func(y []float64) []float64 {
		alpha, beta := stat.LinearRegression(ranks(z), ranks(y), nil, false)
		left := ranks(y)
		for i, r := range ranks(z) {
			left[i] -= alpha + beta*r
		}
		return left
	}
	near(t, "rho", Partial(x, y, z).Rho, stat.Correlation(residuals(x), residuals(y), nil), 1e-14)
	near(t, "rho, z constant", Partial(x, y, make([]float64, 7)).Rho, Spearman(x, y).Rho, 0)
	near(t, "rho, z is x", Partial(x, y, x).Rho, math.NaN(), 0)
}

func TestEntropyDrift(t *testing.T) {
	drift := EntropyDrift(&reference.Batch{Role: []reference.Role{1, 2, 0, 1, 0}, SpanIDs: []int32{0, 0, 0, 1, 2}, Advantages: []float64{2, 2, 9, -1, 9},
		OldLogprobs: []float64{-1, -.5, -9, -.25, -9}, Entropy: []float64{.25, .75, 9, 1, 9}})
	for s, want := range []float64{2 * (1.5 - 1), -1 * (.25 - 1), 0} {
		near(t, "drift", drift[s], want, 1e-15)
	}
}
