package reweight

import (
	"math"
	"slices"
	"testing"
)

// hide sets masked tokens to NaN, half the time: no kernel may read them.
func (t twin) hide(role []Role, arrays ...[]float32) {
	if t.IntN(2) == 0 {
		return
	}
	for i, r := range role {
		if r == RoleMasked {
			for _, x := range arrays {
				x[i] = float32(math.NaN())
			}
		}
	}
}

// near returns log-probabilities whose differences from x are, for the most part,
// small, or at the places where a kernel does something else.
func (t twin) near(x []float32) []float32 {
	y := t.floats(len(x))
	at := []float32{0, 0.5, 0.50000006, 0.49999997, 3.4, 2.5, 20, 20.000002, 19.999998, 40}
	for i, v := range x {
		d := at[t.IntN(len(at))]
		if t.IntN(2) == 0 {
			d = -d
		}
		switch t.IntN(4) {
		case 0:
			y[i] = v + float32(0.1*t.NormFloat64())
		case 1:
			y[i] = v + d
		case 2: // the difference is exactly d
			x[i], y[i] = 0, d
		}
	}
	return y
}

func TestTwinsOnLogRatios(t *testing.T) {
	twins(t, func(t twin) {
		for range trials {
			a := t.floats(t.n())
			b := t.near(a)
			role := t.roles(len(a))
			t.hide(role, a, b)

			want := logRatioSums{count: 3, raw: [lanes]float64{2: 7}, clamped: [lanes]float64{5: 1}}
			got := want
			Portable.logRatios(a, b, role, &want)
			t.scramble()
			t.isa.logRatios(a, b, role, &got)
			t.same64("log-ratios", got.raw[:], want.raw[:])
			t.same64("clamped log-ratios", got.clamped[:], want.clamped[:])
			if got.count != want.count {
				t.Fatalf("count %d, want %d", got.count, want.count)
			}

			q := []ratioConsts{{0, 2, 0}, {0.5, 5, 1}, {0, math.MaxFloat32, 0}, {1, 1, 1}, {0.6065307, 1.6487212, 0}}[t.IntN(5)]
			dst, into := make([]float32, len(a)), slices.Clone(a)
			var wantSum, gotSum laneSum
			Portable.ratios(dst, a, b, role, &q, &wantSum)
			t.scramble()
			if t.IntN(2) == 0 {
				t.isa.ratios(into, into, b, role, &q, &gotSum)
			} else {
				into = slices.Clone(b)
				t.isa.ratios(into, a, into, role, &q, &gotSum)
			}
			t.same("ratios", into, dst)
			t.sameSum("sum of ratios", &gotSum, &wantSum)
		}
	})
}

func TestTwinsOnKL(t *testing.T) {
	twins(t, func(t twin) {
		for i := range 4 * trials {
			logprobs := t.floats(t.n())
			ref := t.near(logprobs)
			role := t.roles(len(ref))
			t.hide(role, logprobs, ref)
			q := klConsts{kernel: klKernel(i % 4), straight: int32(t.IntN(2)), scale: []float32{0.5, -1e-3, 0}[t.IntN(3)]}
			want := t.floats(len(ref))
			got := slices.Clone(want)
			var wantSum, gotSum laneSum
			Portable.kl(want, logprobs, ref, role, &q, &wantSum)
			t.scramble()
			t.isa.kl(got, logprobs, ref, role, &q, &gotSum)
			t.same("gradient", got, want)
			t.sameSum("divergence", &gotSum, &wantSum)
		}
	})
}

func TestTwinsOnValueLoss(t *testing.T) {
	twins(t, func(t twin) {
		for range trials {
			values := t.floats(t.n())
			old, returns := t.near(values), t.near(values)
			role := t.roles(len(old))
			for i := range old { // some on a grid, where both terms are often equal
				if t.IntN(4) == 0 {
					old[i], values[i], returns[i] = 0, float32(t.IntN(17)-8)/4, float32(t.IntN(17)-8)/8
				}
			}
			t.hide(role, values, old, returns)
			q := valueConsts{clip: []float32{0.5, 0, 0.2, math.MaxFloat32}[t.IntN(4)], scale: []float32{0.5, -3, 1}[t.IntN(3)]}
			want, got := make([]float32, len(old)), slices.Clone(values)
			wantSums := valueSums{clipped: 9}
			gotSums := wantSums
			Portable.valueLoss(want, values, old, returns, role, &q, &wantSums)
			t.scramble()
			switch t.IntN(3) {
			case 0:
				t.isa.valueLoss(got, got, old, returns, role, &q, &gotSums)
			case 1:
				got = slices.Clone(old)
				t.isa.valueLoss(got, values, got, returns, role, &q, &gotSums)
			default:
				got = slices.Clone(returns)
				t.isa.valueLoss(got, values, old, got, role, &q, &gotSums)
			}
			t.same("gradient", got, want)
			t.sameSum("loss", &gotSums.loss, &wantSums.loss)
			if gotSums.clipped != wantSums.clipped {
				t.Fatalf("%d clipped, want %d", gotSums.clipped, wantSums.clipped)
			}
		}
	})
}
