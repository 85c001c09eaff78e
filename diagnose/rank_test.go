package diagnose

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat"
)

// near fails unless got is want to a relative error, and to the same absolute error below 0.1;
// NaN is NaN.
func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance*max(0.1, math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestRanks(t *testing.T) {
	x := []float64{3, -1, 3, math.Inf(1), 0, math.Copysign(0, -1), 3}
	if got, want := ranks(x), []float64{5, 1, 5, 7, 2.5, 2.5, 5}; !slices.Equal(got, want) {
		t.Errorf("ranks of %v are %v, want %v", x, got, want)
	}
}

// TestSpearman compares p-values with closed forms for 1 to 4 degrees of freedom.
func TestSpearman(t *testing.T) {
	for _, c := range []struct {
		x, y []float64
		rho  float64
	}{
		{[]float64{1, 2, 3}, []float64{1, 3, 2}, 0.5},
		{[]float64{1, 2, 3}, []float64{10, 30, 10}, 0},
		{[]float64{1, 2, 3, 4}, []float64{9, 7, 8, 6}, -0.8},
		{[]float64{1, 1, 2, 2}, []float64{1, 2, 3, 4}, math.Sqrt(0.8)},
		{[]float64{1, 2, 3, 4, 5}, []float64{2, 1, 4, 3, 5}, 0.8},
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{2, 1, 4, 3, 6, 5}, 1 - 36.0/210},
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{1, 2, 3, 4, 5, 6}, 1},
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{6, 5, 4, 3, 2, 1}, -1},
	} {
		got := must.Get(Spearman(c.x, c.y))
		near(t, fmt.Sprintf("rho of %v and %v", c.x, c.y), got.Rho, c.rho, 1e-15)
		r := math.Abs(c.rho)
		p := map[int]float64{
			3: 1 - 2/math.Pi*math.Asin(r),
			4: 1 - r,
			5: 1 - 2/math.Pi*(math.Asin(r)+r*math.Sqrt(1-r*r)),
			6: 1 - r*(3-r*r)/2,
		}[len(c.x)]
		near(t, fmt.Sprintf("p of %v and %v", c.x, c.y), got.P, p, 1e-13)
	}
}

// TestSpearmanUndefined: ranks that are all equal have no correlation, nor has NaN; two pairs
// have no p-value.
func TestSpearmanUndefined(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct{ x, y []float64 }{
		{nil, nil},
		{[]float64{1}, []float64{2}},
		{[]float64{1, 2, 3, 4}, []float64{7, 7, 7, 7}},
		{[]float64{7, 7, 7, 7}, []float64{1, 2, 3, 4}},
		{[]float64{1, nan, 3, 4}, []float64{1, 2, 3, 4}},
		{[]float64{1, 2, 3, 4}, []float64{1, 2, 3, nan}},
	} {
		if got := must.Get(Spearman(c.x, c.y)); !math.IsNaN(got.Rho) || !math.IsNaN(got.P) {
			t.Errorf("of %v and %v: %v, want NaN", c.x, c.y, got)
		}
	}
	if got := must.Get(Spearman([]float64{1, 2}, []float64{4, 3})); got.Rho != -1 || !math.IsNaN(got.P) {
		t.Errorf("of two pairs: %v, want -1 and NaN", got)
	}
	_, err := Spearman([]float64{1, 2, 3}, []float64{1, 2})
	wantError(t, err, "y has 2 elements, want 3, one per element of x")
}

// TestSurePValue: a p-value far below what is left of 1 in float64. With an even number of
// degrees of freedom the density of the correlation is a polynomial, which Legendre's rule
// integrates without an error but for rounding.
func TestSurePValue(t *testing.T) {
	const n, freedom = 40, 40 - 2
	var x, y []float64
	for i := range n {
		x, y = append(x, float64(i)), append(y, float64(i^1)) // almost in order
	}
	got := must.Get(Spearman(x, y))
	rho := 1 - 6*n/float64(n*(n*n-1))
	near(t, "rho", got.Rho, rho, 1e-15)
	density := func(r float64) float64 { return math.Pow((1-r)*(1+r), freedom/2-1) }
	tail := func(from float64) float64 { return quad.Fixed(density, from, 1, freedom, quad.Legendre{}, 0) }
	if p := tail(rho) / tail(0); !(p > 0 && p < 1e-30 && math.Abs(got.P/p-1) < 1e-10) {
		t.Errorf("p = %v, want %v", got.P, p)
	}
}

// TestPartial compares the formula with the correlation of residuals.
func TestPartial(t *testing.T) {
	x, y, z := ranks([]float64{1, 5, 2, 8, 3, 9, 4}), ranks([]float64{2, 6, 6, 1, 3, 8, 0}),
		ranks([]float64{1, 2, 2, 4, 3, 6, 6})
	residuals := func(y []float64) []float64 {
		alpha, beta := stat.LinearRegression(z, y, nil, false)
		left := slices.Clone(y)
		for i := range left {
			left[i] -= alpha + beta*z[i]
		}
		return left
	}
	got := partial(x, y, z)
	near(t, "rho", got.Rho, stat.Correlation(residuals(x), residuals(y), nil), 1e-14)
	near(t, "p, 4 degrees of freedom", got.P, 1-math.Abs(got.Rho)*(3-got.Rho*got.Rho)/2, 1e-13)
	if got, want := partial(x, y, make([]float64, 7)), spearman(x, y); got != want {
		t.Errorf("z is constant: %v, want %v", got, want)
	}
	for _, z := range [][]float64{{1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}} {
		x, y := []float64{1, 2, 3, 4, 5}, []float64{2, 1, 4.5, 4.5, 3}
		if got, other := partial(x, y, z), partial(y, x, z); !math.IsNaN(got.Rho + got.P + other.Rho + other.P) {
			t.Errorf("z has an order of x: %v and %v, want NaN", got, other)
		}
	}
}

// TestPartialIsBounded: where x follows from y and z, the correlation is 1 or -1, not more.
func TestPartialIsBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ones := 0
	for range 10000 {
		var x, y, z [4]float64
		for i := range x {
			y[i], z[i] = float64(r.IntN(4)), float64(r.IntN(4))
			x[i] = y[i] + z[i]
		}
		got := partial(ranks(x[:]), ranks(y[:]), ranks(z[:]))
		if math.Abs(got.Rho) > 1 || got.P < 0 || got.P > 1 {
			t.Errorf("%v, %v given %v: %v", x, y, z, got)
		}
		if math.Abs(got.Rho) == 1 {
			ones++
		}
	}
	if ones < 100 {
		t.Errorf("%d correlations are 1 or -1", ones)
	}
}
