package reference

import (
	"math"
	"testing"
)

func TestMaskedMoments(t *testing.T) {
	role := []Role{0, 1, 2, 1, 0, 2}
	x := []float64{math.NaN(), 2, 5, -1, math.Inf(1), 7}
	for _, c := range []struct {
		roles          []Role
		n              int
		total, squares float64
	}{
		{[]Role{RoleReasoning, RoleAction}, 4, 1 + 4 - 2 + 6, 1 + 16 + 4 + 36},
		{[]Role{RoleReasoning}, 2, 1 - 2, 1 + 4},
		{[]Role{RoleAction}, 2, 4 + 6, 16 + 36},
		{nil, 0, 0, 0},
	} {
		n, total, squares, err := MaskedMoments(role, x, 1, c.roles...)
		if err != nil {
			t.Fatal(err)
		}
		if n != c.n || total != c.total || squares != c.squares {
			t.Errorf("roles %v: %d, %v, %v, want %d, %v, %v", c.roles, n, total, squares, c.n, c.total, c.squares)
		}
	}
}

// A long sum keeps its digits: one after another, a million times 0.1 is off
// by 1.3e-11 of itself.
func TestSumIsAccurate(t *testing.T) {
	x := make([]float64, 1e6)
	for i := range x {
		x[i] = 0.1
	}
	near(t, "sum", sum(x), 1e5, 1e-14)
	near(t, "sum of one", sum(x[:1]), 0.1, 0)
	near(t, "sum of nothing", sum(nil), 0, 0)
}

func TestSpanMeans(t *testing.T) {
	m := must[[]float64](t)(SpanMeans([]float64{3, 1, 2, 9}, []int64{0, 1, 1, 4}))
	if m[0] != 3 || m[1] == m[1] || m[2] != 4 {
		t.Errorf("means %v, want 3, NaN, 4", m)
	}
}

func TestMinMax(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		x              []float64
		least, largest float64
	}{
		{nil, inf, -inf},
		{[]float64{2}, 2, 2},
		{[]float64{2, -5, 3}, -5, 3},
		{[]float64{-inf, 1}, -inf, 1},
		{[]float64{1, nan, -inf}, nan, nan},
	} {
		least, largest := MinMax(c.x)
		if !same(least, c.least) || !same(largest, c.largest) {
			t.Errorf("MinMax(%v) = %v, %v, want %v, %v", c.x, least, largest, c.least, c.largest)
		}
	}
}

func same(a, b float64) bool { return a == b || a != a && b != b }

func TestExpScale(t *testing.T) {
	e := must[[]float64](t)(ExpScale([]float64{5, 6, 5 + math.Log(2)/2}, 5, 2))
	total := 1 + math.Exp(-2) + 0.5
	for i, want := range []float64{3 / total, 3 * math.Exp(-2) / total, 1.5 / total} {
		near(t, "factor", e[i], want, 1e-15)
	}
	// The origin cancels, and a rate of 0 makes all factors 1.
	for i, v := range must[[]float64](t)(ExpScale([]float64{5, 6, 5 + math.Log(2)/2}, -3, 2)) {
		near(t, "factor of another origin", v, e[i], 1e-14)
	}
	for _, v := range must[[]float64](t)(ExpScale([]float64{1, 2, 30}, 0, 0)) {
		near(t, "factor at rate 0", v, 1, 0)
	}
}
