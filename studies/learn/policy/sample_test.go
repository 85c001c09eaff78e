package policy

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Chi-square of 100000 draws; 24.3 is its 0.1 % quantile for 7 degrees of freedom.
func TestSampleFrequencies(t *testing.T) {
	logits := []float32{0.3, -2, 1.7, float32(math.Inf(-1)), 0, -0.4, 2.2, 0.9, -1}
	const n = 100000
	random := rand.New(rand.NewPCG(1, 2))
	counts := make([]int, len(logits))
	for range n {
		counts[Sample(logits, random.Float64())]++
	}
	var total, chi float64
	for _, x := range logits {
		total += math.Exp(float64(x))
	}
	for i, x := range logits {
		want := n * math.Exp(float64(x)) / total
		if want == 0 {
			if counts[i] > 0 {
				t.Errorf("token %d of probability 0 drawn", i)
			}
			continue
		}
		chi += (float64(counts[i]) - want) * (float64(counts[i]) - want) / want
	}
	if chi > 24.3 {
		t.Errorf("chi-square %v of counts %v", chi, counts)
	}
}

func TestSampleEdges(t *testing.T) {
	below := math.Nextafter(1, 0)
	for _, c := range []struct {
		logits  []float32
		uniform float64
		want    int32
	}{
		{[]float32{1, 2}, 0, 0},
		{[]float32{-200, 2, 3, -200}, 0, 1},
		{[]float32{-200, 2, 3, -200}, below, 2},
		{[]float32{0, 0, 0}, 1.0 / 3, 1},
		{[]float32{0, 0, 0}, below, 2},
		{[]float32{5}, below, 0},
		{[]float32{1e30, 1.1e30}, 0, 1},
	} {
		if got := Sample(c.logits, c.uniform); got != c.want {
			t.Errorf("Sample(%v, %v) = %d, want %d", c.logits, c.uniform, got, c.want)
		}
	}
}
