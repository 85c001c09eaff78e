package reference

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEntropyBoundsHold(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 1))
	for range 5000 {
		x := randomRow(r, 1+r.IntN(60))
		lse := must[float64](t)(LogSumExp(x))
		var logprobs []float64
		for _, v := range x {
			logprobs = append(logprobs, v-lse)
		}
		slices.Sort(logprobs)
		slices.Reverse(logprobs)
		k, extra := r.IntN(len(x)+1), -1
		top := slices.Clone(logprobs[:k])
		if sampled := r.IntN(len(x)); sampled >= k {
			extra = k
			top = append(top, logprobs[sampled])
		}
		lower, upper, err := EntropyBounds(top, extra, len(x))
		if err != nil {
			t.Fatal(err)
		}
		entropy := must[float64](t)(Entropy(x, 1))
		if !(lower <= entropy+1e-12 && entropy <= upper+1e-12) {
			t.Fatalf("%v, extra %d of %d: bounds %v and %v, entropy %v", top, extra, len(x), lower, upper, entropy)
		}
	}
}

// The bounds are the entropies of the two distributions that the known tokens allow.
func TestEntropyBoundsAreReached(t *testing.T) {
	log := math.Log
	entropy := func(p ...float64) float64 {
		h := 0.0
		for _, v := range p {
			h -= v * log(v)
		}
		return h
	}
	for _, c := range []struct {
		name         string
		logprobs     []float64
		extra, vocab int
		lower, upper float64
	}{
		{"nothing known", nil, -1, 8, 0, log(8)},
		{"all known", []float64{log(0.5), log(0.5)}, -1, 2, log(2), log(2)},
		{"two tokens of the last and a remainder", []float64{log(0.5), log(0.2)}, -1, 6, entropy(0.5, 0.2, 0.2, 0.1), entropy(0.5, 0.2, 0.075, 0.075, 0.075, 0.075)},
		{"the last is no limit", []float64{log(0.5), log(0.1)}, 1, 5, entropy(0.5, 0.4, 0.1), entropy(0.5, 0.1, 0.4/3, 0.4/3, 0.4/3)},
		{"only the sampled one", []float64{log(0.25)}, 0, 4, entropy(0.25, 0.75), log(4)},
		{"more mass than fits", []float64{log(0.5), log(0.1)}, -1, 4, entropy(0.5, 0.1, 0.2, 0.2), entropy(0.5, 0.1, 0.2, 0.2)},
		{"more than 1", []float64{log(0.6), log(0.405)}, -1, 4, entropy(0.6, 0.405), entropy(0.6, 0.405)},
		{"-inf", []float64{0, math.Inf(-1)}, -1, 3, 0, 0},
	} {
		lower, upper, err := EntropyBounds(c.logprobs, c.extra, c.vocab)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		near(t, c.name+": lower", lower, c.lower, 1e-14)
		near(t, c.name+": upper", upper, c.upper, 1e-14)
	}
}

func TestEntropyBoundsRefuses(t *testing.T) {
	for _, c := range []struct {
		logprobs     []float64
		extra, vocab int
	}{
		{nil, -1, 0},
		{[]float64{-1, -2}, -1, 1},
		{[]float64{-1}, 1, 3},
		{[]float64{-1}, -2, 3},
		{[]float64{0.1}, -1, 3},
		{[]float64{math.NaN()}, -1, 3},
		{[]float64{-0.1, -0.1}, -1, 3},
	} {
		if lower, upper, err := EntropyBounds(c.logprobs, c.extra, c.vocab); err == nil {
			t.Errorf("%v, extra %d of %d: bounds %v and %v, want an error", c.logprobs, c.extra, c.vocab, lower, upper)
		}
	}
}
