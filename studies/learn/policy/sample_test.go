package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Chi-square of 100000 draws, at two temperatures; 24.3 is its 0.1 % quantile for 7 degrees of freedom.
func TestSampleFrequencies(t *testing.T) {
	logits := []float32{0.3, -2, 1.7, float32(math.Inf(-1)), 0, -0.4, 2.2, 0.9, -1}
	for _, temperature := range []float64{1, 0.6} {
		const n = 100000
		random := rand.New(rand.NewPCG(1, 2))
		counts := make([]int, len(logits))
		for range n {
			counts[Sample(logits, temperature, random.Float64())]++
		}
		var total, chi float64
		for _, x := range logits {
			total += math.Exp(float64(x) / temperature)
		}
		for i, x := range logits {
			want := n * math.Exp(float64(x)/temperature) / total
			if want == 0 {
				if counts[i] > 0 {
					t.Errorf("token %d of probability 0 drawn", i)
				}
				continue
			}
			chi += (float64(counts[i]) - want) * (float64(counts[i]) - want) / want
		}
		if chi > 24.3 {
			t.Errorf("temperature %v: chi-square %v of counts %v", temperature, chi, counts)
		}
	}
}

func TestSampleEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	below := math.Nextafter(1, 0)
	for _, c := range []struct {
		logits               []float32
		temperature, uniform float64
		want                 int32
	}{
		{[]float32{1, 2}, 1, 0, 0},
		{[]float32{-200, 2, 3, -200}, 1, 0, 1},
		{[]float32{-200, 2, 3, -200}, 1, below, 2},
		{[]float32{0, 0, 0}, 1, 1.0 / 3, 1},
		{[]float32{0, 0, 0}, 1, below, 2},
		{[]float32{5}, 1, below, 0},
		{[]float32{1, 3, 3, 2}, 0, below, 1},
		{[]float32{-inf, -inf, -5}, 0, 0, 2},
		{[]float32{1e30, 1.1e30}, 1, 0, 1},
		{[]float32{1, 2, 1}, 1e-300, 0.5, 1},
		{[]float32{nan, 1, 1}, 1, 0, 2},
		{[]float32{1, nan, 1}, 1, 0.99, 2},
		{[]float32{inf, 1, 1}, 1, 0, 2},
		{[]float32{-inf, -inf}, 1, 0, 1},
	} {
		if got := Sample(c.logits, c.temperature, c.uniform); got != c.want {
			t.Errorf("Sample(%v, %v, %v) = %d, want %d", c.logits, c.temperature, c.uniform, got, c.want)
		}
	}
}

// Whatever the logits are, the token is one of theirs, and a possible one where they are finite.
func TestSampleRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-1000, 1000), 1, 300).Draw(t, "logits")
		temperature := rapid.Float64Range(0, 3).Draw(t, "temperature")
		token := Sample(logits, temperature, rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "uniform"))
		most := logits[0]
		for _, x := range logits {
			most = max(most, x)
		}
		if float64(most-logits[token]) > 87.1*temperature {
			t.Fatalf("token %d with logit %v, the largest is %v", token, logits[token], most)
		}
	})
}
