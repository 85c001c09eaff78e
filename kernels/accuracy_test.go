package kernels

import (
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
)

// TestUnluckyRows: ordinary rows of the families have errors of more than 1e-6, or of
// more than one unit in the last place. They are kept here because most rows have
// much smaller errors, which are not bounds.
func TestUnluckyRows(t *testing.T) {
	for _, c := range []struct {
		kernel string
		spec   Spec
		output int
		off    float64 // at least, beyond the rounding to float32
	}{
		{"token_stats_temperature", Spec{Rows: 2, Vocab: 5035, DType: reweight.DTypeF16, Family: Masked, Seed: 1549}, 0, 1.28e-6},
		{"token_stats_temperature", Spec{Rows: 2, Vocab: 5035, DType: reweight.DTypeF16, Family: Masked, Seed: 2063}, 0, 1.18e-6},
		{"token_stats", Spec{Rows: 2, Vocab: 3000, DType: reweight.DTypeF32, Family: Random, Seed: 1515}, 1, 1.30e-6},
		{"token_stats", Spec{Rows: 2, Vocab: 3000, DType: reweight.DTypeF32, Family: Random, Seed: 5837}, 1, 1.16e-6},
	} {
		w := must.Get(must.Get(Find(c.kernel)).New(c.spec))
		w.Reference()
		must.Do(w.Run(&reweight.Workspace{}))
		if _, err := w.Check(); err != nil {
			t.Errorf("%s %+v: %v", c.kernel, c.spec, err)
		}
		out := &w.outputs[c.output]
		_, share := out.largest()
		if off := share * out.bound(0); out.name != "entropy" || off < c.off {
			t.Errorf("%s %+v: %s is off by %.4g, want %.3g: not that row", c.kernel, c.spec, out.name, off, c.off)
		}
	}

	// Equal elements, of a value that is no multiple of 1/4.
	x := make([]float32, 1000)
	for i := range x {
		x[i] = -5.55261
	}
	shares := checkRow(t, "equal", x, 0, 1)
	var lse [1]float32
	var ws reweight.Workspace
	must.Do(ws.TokenStats(reweight.Stats{LSE: lse[:]}, reweight.Logits{Vocab: len(x), F32: x}, nil,
		reweight.DefaultTokenStats))
	want := float64(x[0]) + math.Log(1000)
	if u := math.Abs(float64(lse[0])-want) / ulp32(want); u < 1.09 {
		t.Errorf("LSE of equal elements is off by %.3f units in the last place, want 1.098: not that row (%.2f of the bound)", u, shares[0])
	}
}

// largest returns the largest error of an output, and the largest share of a bound that an error has
// beyond the rounding.
func (out *output) largest() (off, share float64) {
	for i, want := range out.want {
		if d := math.Abs(out.got(i) - want); d > 0 { // not -Inf from -Inf
			off, share = max(off, d), max(share, (d-math.Abs(want)*out.half)/out.bound(i))
		}
	}
	return off, share
}

// checkRow compares every output of a row with its bound, on every instruction set,
// and returns the largest shares of the bounds.
func checkRow(t *testing.T, name string, x []float32, id int32, tau float64) (shares [searchOutputs]float64) {
	t.Helper()
	s, ids := Spec{Rows: 1, Vocab: len(x)}, []int32{id}
	l, wide := reweight.Logits{Vocab: len(x), F32: x}, reference.Floats(x)
	same := func() []float64 { return wide }
	stats := s.statsOf(l, nil, same, ids, tau, "lepq")
	gradient := must.Get(s.gradientOf(l, nil, same, ids, []float32{-0.7}, nil, tau, 0.3))
	for first, c := range map[int]*Case{searchLSE: stats, searchGradient: gradient} {
		c.Reference()
		for _, isa := range reweight.AvailableISAs() {
			must.Do(c.Run(&reweight.Workspace{ISA: isa, Workers: 1}))
			if _, err := c.Check(); err != nil {
				t.Errorf("%s, %d elements at %v, %v: %v", name, len(x), tau, isa, err)
			}
			for i := range c.outputs {
				_, share := c.outputs[i].largest()
				shares[first+i] = max(shares[first+i], share)
			}
		}
	}
	checkGiven(t, name, &gradient.outputs[0], x, id, tau)
	return shares
}

// checkGiven compares the gradient of a row that is given its logsumexp, and whose chosen logit has
// another last bit, with the result of the row as it was, which out has.
func checkGiven(t *testing.T, name string, out *output, x []float32, id int32, tau float64) {
	t.Helper()
	const g, bonus = float32(-0.7), 0.3
	n, ids := len(x), []int32{id}
	_, entropy, logprob, _ := reference.TokenStats(reference.Floats(x), n, ids, tau)
	lse := float32(float64(x[id])/tau - logprob[0])
	off := math.Abs(float64(lse)) * unit32 // by its rounding
	if !(off < 1e-3) {                     // beyond that errors do not just add
		return
	}
	of := reweight.RowGradientInput{Logprobs: []float32{float32(logprob[0])}, Entropy: []float32{float32(entropy[0])},
		Grad: []float32{g}, LSE: []float32{lse}}
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa, Workers: 1}
		row := reweight.Logits{Vocab: n, F32: slices.Clone(x)}
		row.F32[id] = math.Nextafter32(x[id], 0)
		must.Do(ws.RowGradient(row, row, ids, of, reweight.RowGradientOptions{Temperature: tau, EntropyBonus: bonus}))
		out.got = func(i int) float64 { return float64(row.F32[i]) }
		out.bound = func(int) float64 { return shiftedGradientBound(off, n, tau, float64(g), bonus) }
		if _, share := out.largest(); share > 1 {
			t.Errorf("%s, %d elements at %v, %v: a gradient with the logsumexp given is off by %.2f of the bound", name, n, tau, isa, share)
		}
	}
}

// TestHostileRows compares the errors of rows that are made to have large ones with
// the bounds.
func TestHostileRows(t *testing.T) {
	inf := float32(math.Inf(1))
	fill := func(n int, f func(i int) float32) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = f(i)
		}
		return x
	}
	// Places of a group whose sums lose what comes after them.
	leading := func(i int, high, low float32) float32 {
		if i%128 < 16 {
			return high
		}
		return low
	}
	worst := 0.0
	for _, c := range []struct {
		name string
		id   int
		row  func(n int, s float32) []float32 // s from 0 to 1
	}{
		{"equal", 0, func(n int, s float32) []float32 { return fill(n, func(int) float32 { return -9 * s }) }},
		{"a peak over equal ones", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 {
				if i == 0 {
					return 0
				}
				return -10 + 7*s
			})
		}},
		{"large before small", 1, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 { return leading(i, -s, -16.6-s) })
		}},
		{"above the reference", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 {
				switch {
				case i == 0:
					return 0
				case i < 1024:
					return -inf
				}
				return leading(i, 5.54-s, 5.54-3*s)
			})
		}},
		{"a move at the end", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 {
				switch {
				case i == n-1:
					return 6 + 8*s
				case i > 0 && i < 1024:
					return -inf
				}
				return leading(i, 5.54, 5.54-3*s)
			})
		}},
		{"a move at every block", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 { return float32(i/1024)*(5.56+s) - float32(i%7) })
		}},
		{"an unlikely id", 1, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 {
				switch i {
				case 0:
					return 63.5 + s
				case 1:
					return 0
				}
				return 40 * s
			})
		}},
		{"far from 0", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 { return 5e5 - float32(i%9)*s })
		}},
		{"far below 0", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 { return -5e5 - float32(i%9)*s })
		}},
		{"too far for float32", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 { return 1e7 - float32(i%9)*s })
		}},
		{"one element and -Inf", 0, func(n int, s float32) []float32 {
			return fill(n, func(i int) float32 {
				if i == 0 {
					return s
				}
				return -inf
			})
		}},
	} {
		var most [searchOutputs]float64
		for _, n := range []int{2, 17, 128, 1000, 1024, 1025, 3000, 8200} {
			steps := float32(5)
			switch {
			case testing.Short() || n > 2000 && !*long:
				steps = 2
			case *long && n <= 2000:
				steps = 20
			}
			for s := range int(steps) {
				for _, tau := range []float64{1, 0.7, 3, 1e-6} {
					shares := checkRow(t, c.name, c.row(n, (float32(s)+0.3)/steps), int32(c.id), tau)
					for i := range most {
						most[i] = max(most[i], shares[i])
					}
				}
			}
		}
		worst = max(worst, slices.Max(most[:]))
		t.Logf("%-24s LSE %2.0f%%, entropy %2.0f%%, log-probability %2.0f%%, squares %2.0f%%, gradient %2.0f%% of the bound", c.name, 100*most[0], 100*most[1], 100*most[2], 100*most[3], 100*most[4])
	}
	if worst < 0.1 {
		t.Errorf("the largest error is %.2f of its bound: these rows are not hard", worst)
	}
}
