package reference

import (
	"math"
	"slices"
	"testing"
)

func TestRanks(t *testing.T) {
	if got := Ranks([]float64{3, 1, 3, -2, 3, 1}); !slices.Equal(got, []float64{5, 2.5, 5, 1, 5, 2.5}) {
		t.Errorf("ranks = %v", got)
	}
}

func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		name   string
		x, y   []float64
		rho, p float64
	}{
		{"increasing", []float64{1, 2, 30, 31}, []float64{-4, 0, 1, 2}, 1, 0},
		{"decreasing", []float64{1, 2, 30, 31}, []float64{5, 4, 3, 2}, -1, 0},
		{"one exchange", []float64{1, 2, 3, 4, 5}, []float64{1, 2, 3, 5, 4}, .9, 0.0373860734684987},
		{"constant", []float64{1, 2, 3}, []float64{4, 4, 4}, math.NaN(), math.NaN()},
		{"two pairs", []float64{1, 2}, []float64{1, 2}, 1, math.NaN()},
		{"NaN", []float64{1, 2, 3}, []float64{1, math.NaN(), 3}, math.NaN(), math.NaN()},
		{"nothing", nil, nil, math.NaN(), math.NaN()},
	} {
		got := must[Correlation](t)(Spearman(c.x, c.y))
		for _, v := range []struct {
			what      string
			got, want float64
		}{{"rho", got.Rho, c.rho}, {"p", got.P, c.p}} {
			if math.IsNaN(v.got) != math.IsNaN(v.want) || math.Abs(v.got-v.want) > 1e-14 {
				t.Errorf("%s: %s = %v, want %v", c.name, v.what, v.got, v.want)
			}
		}
		if got.N != len(c.x) {
			t.Errorf("%s: N = %d, want %d", c.name, got.N, len(c.x))
		}
	}
}

// The wanted values were computed with 30 digits.
func TestCorrelationP(t *testing.T) {
	for _, c := range []struct {
		rho  float64
		n    int
		want float64
	}{
		{.5, 10, 0.14111328125},
		{.537, 30, 0.002215617186927050927},
		{-.12, 8, 0.77715066880000000809},
		{.99, 5, 0.0011986195114020064524},
		{.9, 3, 0.28713258625741250907},
		{.3, 4, 0.7},
		{.001, 100, 0.99212159548507181924},
		{-.7, 1000, 4.3075961400823748862e-148},
		{.05, 100000, 2.2261912329063710515e-56},
		{0, 12, 1},
		{1, 12, 0},
		{-1 - 1e-16, 12, 0},
	} {
		if got := correlationP(c.rho, c.n); !(math.Abs(got-c.want) <= 1e-9*c.want) {
			t.Errorf("p(%v, %d) = %v, want %v", c.rho, c.n, got, c.want)
		}
	}
}

func TestRegularizedBeta(t *testing.T) {
	for _, c := range []struct{ x, a, b, want float64 }{
		{.5, 2, 3, .6875},
		{.1, .5, .5, 0.20483276469913345165},
		{.9, 10, .5, 0.15164090963470992063},
		{.999, 50000, .5, 1.4863295759538849957e-23},
		{.3, 20, 30, 0.069987093300507386724},
		{0, 2, 3, 0},
		{1, 2, 3, 1},
		{1 + 1e-15, 2, 3, 1},
		{-1e-15, 2, 3, 0},
	} {
		if got := RegularizedBeta(c.x, c.a, c.b); !(math.Abs(got-c.want) <= 1e-10*c.want) {
			t.Errorf("I_%v(%v, %v) = %v, want %v", c.x, c.a, c.b, got, c.want)
		}
	}
}

func TestRewardVariance(t *testing.T) {
	near(t, "variance", RewardVariance([]float64{1, 2, 3, 6}), 3.5, 1e-15)
	near(t, "variance of one", RewardVariance([]float64{4}), 0, 0)
	lost := float64(float32(-0.1))
	a := make([]float64, 16) // one malformed turn, in the third rollout
	a[2] = lost
	b := make([]float64, 16) // and in the last
	b[15] = lost
	if RewardVariance(a) != RewardVariance(b) {
		t.Errorf("the same rewards in another order: variance %v and %v", RewardVariance(a), RewardVariance(b))
	}
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

func TestBottleneck(t *testing.T) {
	// Group 5 has two rollouts that are not neighbours, group 2 has no action.
	role := []Role{0, 1, 2, 1, 1, 2, 2, 0, 1, 2}
	offsets := []int64{0, 3, 4, 7, 10}
	energy := []float64{99, -1, -2, -3, -4, -5, -6, 99, -8, -9}
	b := must[BottleneckResult](t)(Bottleneck(role, offsets, []int32{5, 2, 5, 1}, []float64{1, 1, 0, 0}, energy))
	if !slices.Equal(b.GroupIDs, []int32{5, 2, 1}) {
		t.Errorf("groups = %v", b.GroupIDs)
	}
	for _, v := range []struct {
		what      string
		got, want []float64
	}{
		{"variance", b.RewardVariance, []float64{.25, 0, 0}},
		{"all", b.AllEnergy, []float64{-3.6, -3, -8.5}},
		{"reasoning", b.ReasoningEnergy, []float64{-2.5, -3, -8}},
		{"action", b.ActionEnergy, []float64{-13.0 / 3, math.NaN(), -9}},
	} {
		for i := range v.want {
			if math.IsNaN(v.got[i]) != math.IsNaN(v.want[i]) || math.Abs(v.got[i]-v.want[i]) > 1e-14 {
				t.Errorf("%s of group %d = %v, want %v", v.what, b.GroupIDs[i], v.got[i], v.want[i])
			}
		}
	}
	if b.All.N != 3 || b.Action.N != 2 {
		t.Errorf("pairs: all %d, action %d, want 3 and 2", b.All.N, b.Action.N)
	}
	near(t, "rho, all", b.All.Rho, 0, 1e-15)
	near(t, "rho, reasoning", b.Reasoning.Rho, math.Sqrt(3)/2, 1e-15)
	near(t, "rho, action", b.Action.Rho, 1, 1e-15)
}

func TestEntropyDrift(t *testing.T) {
	role := []Role{1, 2, 0, 1, 0}
	spanIDs := []int32{0, 0, 0, 1, 2}
	drift := must[[]float64](t)(EntropyDrift(role, spanIDs, []float64{2, 2, 9, -1, 9}, []float64{-1, -.5, -9, -.25, -9}, []float64{.25, .75, 9, 1, 9}))
	for s, want := range []float64{2 * (1.5 - 1), -1 * (.25 - 1), 0} {
		near(t, "drift", drift[s], want, 1e-15)
	}
}

func TestWeightMass(t *testing.T) {
	role := slices.Concat(make([]Role, 5), slices.Repeat([]Role{1}, 96), slices.Repeat([]Role{2}, 4))
	w := make([]float64, len(role))
	for i, r := range role {
		w[i] = []float64{7, .1, 1.25}[r]
	}
	for _, c := range []struct {
		weights    []float64
		sum, share float64
	}{
		{w, 14.6, .342},
		{UniformWeights(role), 100, .04},
		{make([]float64, len(role)), 0, 0},
	} {
		sum, share, err := WeightMass(role, c.weights)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "sum", sum, c.sum, 1e-14)
		near(t, "share", share, c.share, 5e-4)
	}
}
