package kernels

import (
	"math"
	"testing"
)

// The certificate of BOUNDS.md, step 7: a row's error is at most
// sum_v p_v F(D_v), with p its softmax and D_v how far the logit lies below the
// reference, in nats. Whatever the row, that mean is at most m if
//
//	sum_v max(0, max_D e^-D (F_v(D) - m)) <= e^-nearRef (m - F_ref)
//
// because the reference itself is one of the row's elements. The left side is
// taken over small cells of D from their upper bounds, so that nothing between
// two of them is missed.
const (
	above   = 5.76 // nats by which an element may lie above the reference: 2^8, and the rounding of the threshold
	nearRef = 0.11 // nats by which the reference may differ from its own element
	moved   = -0.4 // an element from before a move of the reference is not above the new one by more
	cell    = 0.05
)

// A class is the elements of a row that go through as many roundings: s in the
// sum of 2^y, t in that of y*2^y.
type class struct{ s, t, n float64 }

// decay is e^-D over the cells, from 0 on.
var decay = func() (d [1900]float64) {
	for i := range d {
		d[i] = math.Exp(-cell * float64(i))
	}
	return d
}()

// classes counts them by their places in the group and in the block.
func classes(vocab int) []class {
	groups, blocks := min(8, (vocab+15)/16), min(8, (vocab+127)/128)
	n := float64(16 * ((vocab + 1023) / 1024))
	count := map[[2]int]float64{}
	for i := range groups {
		for j := range blocks {
			s := groups - max(i, 1) + blocks - max(j, 1) // the first addition is to 0
			t := groups - i + blocks - max(j, 1)
			count[[2]int{s, t}] += n
		}
	}
	var cs []class
	for k, n := range count {
		cs = append(cs, class{float64(k[0]), float64(k[1]), min(n, float64(vocab))})
	}
	return cs
}

// certified reports whether no row has a mean of F above m. The errors of y make F
// curve downwards between 0 and the mean: a cell's largest value is then at most
// curve*cell^2 above its ends'. The elements have the weights p^power of the mean.
func certified(cs []class, power int, low, m, curve float64, F func(c class, D float64) float64) bool {
	sum, ref := 0.0, math.Inf(-1)
	for _, c := range cs {
		most := 0.0
		before := F(c, low)
		for i, e := range decay[:] {
			if power == 2 {
				e *= e
			}
			D := low + cell*float64(i)
			after := F(c, D+cell)
			f := max(before, after) + curve*cell*cell
			before = after
			if D < 0 && f > m {
				return false
			}
			if D+cell >= -nearRef && D <= nearRef {
				ref = max(ref, f)
			}
			most = max(most, e*(f-m))
			if D > 30 && e < 1e-6*most/m {
				break // F grows with the square of D: what follows is smaller
			}
		}
		sum += c.n * most * math.Exp(-float64(power)*low)
	}
	return sum <= math.Exp(-float64(power)*nearRef)*(m-ref)
}

// TestBounds certifies the formulas of bounds.go, for vocabularies up to 2^30;
// with -short, for some of them.
func TestBounds(t *testing.T) {
	sizes := []int{0, 1, 2, 3, 4, 6, 8, 11}
	for v := 16.0; v < 1024; v *= math.Sqrt2 {
		sizes = append(sizes, int(math.Round(v)))
	}
	for v := 1024.0; v <= 1<<30; v *= 2 {
		sizes = append(sizes, int(math.Round(v)))
	}
	for i, largest := range sizes[1:] {
		if testing.Short() && i%4 != 0 {
			continue
		}
		smallest := sizes[i] + 1 // the formula of these holds up to largest
		for _, tau := range []float64{1, 0.7} {
			eta, shift := unit32+scaleGap, 0.0
			if tau != 1 {
				eta, shift = 2*unit32+0x1p-28, shiftGap
			}
			cs := classes(largest)
			low := -nearRef
			if largest > oneBlock {
				low = -above
			}
			lnV := math.Log(float64(largest))
			// Roundings in float64 here and in the reference; errors of errors.
			bare := func(bound float64) float64 {
				return (bound - 2e-10 - float64(largest)*0x1p-53*(2*lnV+2)) / 1.001
			}
			logSum := func(c class, D float64) float64 {
				return eta*max(math.Abs(D), -low) + shift + exp2Error + unit32*c.s
			}
			if m := bare(logSumBound(smallest, tau)); !certified(cs, 1, low, m, 0, logSum) {
				t.Errorf("log-sum at %v: %.4g is not certified for %d to %d", tau, m, smallest, largest)
			}
			// The sum of squares, less twice the log-sum, whose bound is certified above.
			squares := func(c class, D float64) float64 {
				return 2*(eta*max(math.Abs(D), -low)+shift+exp2Error) + unit32*c.t
			}
			m := bare(squaresBound(smallest, tau) - 2*logSumBound(smallest, tau))
			if !certified(cs, 2, low, m, 0, squares) {
				t.Errorf("log-sum of squares at %v: %.4g is not certified for %d to %d", tau, m, smallest, largest)
			}
			m = bare(entropyBound(smallest, tau))
			const steps = 24
			for i := range steps { // where the mean of D is between from and to
				from, to := low+(lnV-low)*float64(i)/steps, low+(lnV-low)*float64(i+1)/steps
				for _, b := range []float64{from, to} { // F is convex in b
					entropy := func(c class, D float64) float64 {
						f := eta*math.Abs(D*(D-b)) + unit32*(c.s*math.Abs(1-b)+c.t*math.Abs(D))
						if largest > oneBlock && D >= moved {
							f = max(f, eta*above*math.Abs(D-b)+unit32*(c.s*math.Abs(1-b+D+above)+c.t*above))
						}
						return f + exp2Error*math.Abs(1-b+D) + shift*math.Abs(D-b)
					}
					if !certifiedNear(cs, low, m, eta, from, to, entropy) {
						t.Errorf("entropy at %v: %.4g is not certified for %d to %d where the mean is %.2f", tau, m,
							smallest, largest, b)
					}
				}
			}
		}
	}
}

// certifiedNear is certified for the rows whose mean of D is between from and to:
// F may have any multiple of the distance from there added.
func certifiedNear(cs []class, low, m, curve, from, to float64, F func(c class, D float64) float64) bool {
	for _, slope := range []float64{0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 50, 60, -4, -8, -12, -16, -20, -30, -40} {
		slope *= unit32
		end := to
		if slope < 0 {
			end = from
		}
		if certified(cs, 1, low, m, curve, func(c class, D float64) float64 { return F(c, D) + slope*(end-D) }) {
			return true
		}
	}
	return false
}

// TestDocumentedBounds: what the comments of TokenStats and RowGradient say.
func TestDocumentedBounds(t *testing.T) {
	for vocab := 1; vocab <= 160000; vocab = vocab*5/4 + 1 {
		l := math.Log(float64(vocab))
		rest := float64(vocab)*0x1p-44 + 3e-10
		for _, c := range []struct{ bound, said float64 }{
			{logSumBound(vocab, 1), (1.1+0.05*l)*1e-6 + rest},
			{logSumBound(vocab, 0.7), (1.2+0.085*l)*1e-6 + rest},
			{entropyBound(vocab, 1), (12.6+0.037*l*l)*1e-6 + rest},
			{entropyBound(vocab, 0.7), (13.2+0.051*l*l)*1e-6 + rest},
			{squaresBound(vocab, 1), (4.25+0.12*l)*1e-6 + 3*rest},
			{squaresBound(vocab, 0.7), (4.9+0.21*l)*1e-6 + 3*rest},
			{gradientBound(vocab, 1, 1, 0), 5e-6},
			{gradientBound(vocab, 0.7, 1, 0) * 0.7, 5e-6},
			{gradientBound(vocab, 1, 0, 1), 4.2e-5},
			{gradientBound(vocab, 0.7, 0, 1) * 0.7, 4.2e-5},
		} {
			if c.bound > c.said*(1+1e-12) {
				t.Errorf("%d elements: a bound of %.4g, the comment says %.4g", vocab, c.bound, c.said)
			}
		}
	}
}
