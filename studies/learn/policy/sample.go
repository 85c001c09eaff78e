package policy

import "slices"

// Sample draws a token from softmax(logits), which are finite or -Inf, and not all -Inf;
// uniform is a number in [0, 1). A token of probability 0 (in float32) is never drawn.
func Sample(logits []float32, uniform float64) int32 {
	most := slices.Max(logits)
	weights := make([]float32, len(logits))
	var sum float64
	for i, x := range logits {
		weights[i] = exp(x - most)
		sum += float64(weights[i])
	}
	var below float64
	for i, w := range weights {
		if below += float64(w); below > uniform*sum {
			return int32(i)
		}
	}
	panic("policy: logits without a distribution")
}
