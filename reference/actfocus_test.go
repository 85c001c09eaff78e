package reference

import (
	"math"
	"testing"
)

func TestActFocusFourTokens(t *testing.T) {
	w := must[[]float64](t)(ActFocusWeights([]Role{2, 2, 2, 2}, []float64{-30, -28, -25, -21}, 0.1, 0.5, 0))
	for i, want := range []float64{1.117568, 1.178344, 1.286596, 1.406864} {
		if !(math.Abs(w[i]-want) <= 5e-7) {
			t.Errorf("w[%d] = %v, want %v", i, w[i], want)
		}
	}
}

func TestActFocusUniform(t *testing.T) {
	role := []Role{0, 1, 2, 2, 1, 0}
	signal := []float64{1, 2, 3, 4, 5, 6}
	w := must[[]float64](t)(ActFocusWeights(role, signal, 1, 0, 1e-8))
	for i, want := range UniformWeights(role) {
		if w[i] != want {
			t.Errorf("w[%d] = %v, want exactly %v", i, w[i], want)
		}
	}
}

// Only action tokens count, and a shift or a positive scale of their signal
// changes nothing.
func TestActFocusInvariance(t *testing.T) {
	role := []Role{0, 1, 2, 2, 2}
	a := must[[]float64](t)(ActFocusWeights(role, []float64{9, 9, 1, 2, 4}, 0.1, 0.5, 0))
	b := must[[]float64](t)(ActFocusWeights(role, []float64{math.NaN(), -50, 13, 16, 22}, 0.1, 0.5, 0))
	for i := range a {
		near(t, "weight", b[i], a[i], 1e-15)
	}
	n, mu, sigma, err := ActionMoments(role, []float64{9, 9, 1, 2, 6}, 0)
	if err != nil || n != 3 || mu != 3 || !(math.Abs(sigma-math.Sqrt(14.0/3)) <= 1e-15) {
		t.Errorf("ActionMoments = %v, %v, %v, %v, want 3, 3, sqrt(14/3)", n, mu, sigma, err)
	}
}

func TestActionMomentsWithoutActions(t *testing.T) {
	n, mu, sigma, err := ActionMoments([]Role{0, 1}, []float64{5, 6}, 1e-8)
	if n != 0 || mu != 0 || sigma != 0 || err != nil {
		t.Errorf("ActionMoments = %v, %v, %v, %v, want zeros", n, mu, sigma, err)
	}
}

func TestActFocusEqualSignals(t *testing.T) {
	w := must[[]float64](t)(ActFocusWeights([]Role{2, 2}, []float64{-7, -7}, 0.1, 0.5, 0))
	if w[0] != 1.25 || w[1] != 1.25 {
		t.Errorf("weights = %v, want 1.25", w)
	}
}

func TestActFocusSignal(t *testing.T) {
	energy, entropy := []float64{-3, -4}, []float64{1, 2}
	old, ref := []float64{-0.5, -1}, []float64{-2, -0.25}
	for signal, want := range map[Signal][]float64{
		SignalEnergy:     {-3, -4},
		SignalRefEntropy: {1, 2},
		SignalSurprisal:  {0.5, 1},
		SignalLogRatio:   {1.5, -0.75},
	} {
		got := must[[]float64](t)(ActFocusSignal(signal, energy, entropy, old, ref))
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("signal %s at %d = %v, want %v", signal, i, got[i], want[i])
			}
		}
	}
}
