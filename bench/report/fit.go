package report

import "math"

// A powerLaw is y = A x^B, by least squares on the logarithms.
type powerLaw struct {
	A, B float64
	Off  float64 // the farthest that a point is from it: 0.1 is a tenth above or below
}

// fitPower needs three different x; all must be positive.
func fitPower(xs, ys []float64) (f powerLaw, ok bool) {
	n, different := float64(len(xs)), map[float64]bool{}
	var mx, my float64
	for i, x := range xs {
		if !(x > 0 && ys[i] > 0) || !finite(x, ys[i]) {
			return f, false
		}
		different[x] = true
		mx += math.Log(x) / n
		my += math.Log(ys[i]) / n
	}
	if len(different) < 3 {
		return f, false
	}
	var xy, xx float64
	for i, x := range xs {
		d := math.Log(x) - mx
		xy += d * (math.Log(ys[i]) - my)
		xx += d * d
	}
	f.B = xy / xx
	f.A = math.Exp(my - f.B*mx)
	for i, x := range xs {
		f.Off = max(f.Off, math.Exp(math.Abs(math.Log(ys[i]/f.at(x))))-1)
	}
	return f, true
}

func (f powerLaw) at(x float64) float64 { return f.A * math.Pow(x, f.B) }
