package diagnose

import (
	"math"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// A Correlation is a Spearman rank correlation and its two-sided p-value. Both
// are NaN where they are not defined: fewer than three pairs for P, or ranks
// that are all equal.
type Correlation struct{ Rho, P float64 }

var undefined = Correlation{math.NaN(), math.NaN()}

// Spearman returns the rank correlation of x and y: Pearson's correlation of their ranks,
// where equal elements share the mean of their ranks. P is the p-value of
// t = rho sqrt((n-2) / (1-rho^2)) in Student's t distribution with n-2 degrees of freedom.
// Where an element is NaN, both are NaN. It is an error if y has another length than x.
func Spearman(x, y []float64) (Correlation, error) {
	if len(y) != len(x) {
		return Correlation{}, badInput("y", problem.Length, len(y), len(x), "element of x")
	}
	if slices.ContainsFunc(x, math.IsNaN) || slices.ContainsFunc(y, math.IsNaN) {
		return undefined, nil
	}
	return spearman(ranks(x), ranks(y)), nil
}

// spearman returns the rank correlation of two variables, from their ranks.
func spearman(x, y []float64) Correlation {
	return tested(stat.Correlation(x, y, nil), len(x)-2)
}

// partial returns the rank correlation of x and y given z, from their ranks: the
// correlation of what linear regression on z leaves of x and of y,
//
//	(r_xy - r_xz r_yz) / sqrt((1 - r_xz^2) (1 - r_yz^2))
//
// It is the correlation of x and y where z is constant, and undefined where z has the
// order of x or of y, or its reverse.
func partial(x, y, z []float64) Correlation {
	xy, xz, yz := stat.Correlation(x, y, nil), stat.Correlation(x, z, nil), stat.Correlation(y, z, nil)
	if math.IsNaN(xz) || math.IsNaN(yz) { // z is constant, or xy is NaN too
		return spearman(x, y)
	}
	// Sums of ranks are exact: where z has the order of x or of y, this is 0/0.
	return tested((xy-xz*yz)/math.Sqrt((1-xz)*(1+xz)*(1-yz)*(1+yz)), len(x)-3)
}

// tested returns a correlation with its p-value, which has so many degrees of freedom.
func tested(rho float64, freedom int) Correlation {
	rho = max(-1, min(1, rho)) // a rounding error may lead outside
	if freedom < 1 {
		return Correlation{rho, math.NaN()}
	}
	t := math.Abs(rho) * math.Sqrt(float64(freedom)/((1-rho)*(1+rho)))
	return Correlation{rho, 2 * distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Survival(t)}
}

// ranks returns the rank of each element, from 1 on. Equal elements share the mean of
// their ranks.
func ranks(x []float64) []float64 {
	sorted, order := slices.Clone(x), make([]int, len(x))
	floats.Argsort(sorted, order)
	ranks := make([]float64, len(x))
	for first := 0; first < len(x); {
		end := first + 1
		for end < len(x) && sorted[end] == sorted[first] {
			end++
		}
		for _, i := range order[first:end] {
			ranks[i] = float64(first+1+end) / 2
		}
		first = end
	}
	return ranks
}
