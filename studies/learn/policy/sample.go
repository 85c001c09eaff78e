package policy

import "math"

// Sample draws a token from softmax(logits / temperature); uniform is a number in
// [0, 1). At temperature 0, or too near to 0 to divide by, it is the most likely
// token. A token of probability 0 (in float32) is never drawn. If a logit is NaN or
// +Inf, or all are -Inf, there is no distribution to draw from, and the last token
// is returned.
func Sample(logits []float32, temperature, uniform float64) int32 {
	most := 0
	for i, x := range logits {
		if x > logits[most] {
			most = i
		}
	}
	inverse := float32(1 / temperature)
	if inverse > math.MaxFloat32 {
		return int32(most)
	}
	var room [128]float32
	weights := append(room[:0], logits...)
	for i, x := range weights {
		weights[i] = exp(float32((x - logits[most]) * inverse))
	}
	var sum float64
	for _, w := range weights {
		sum += float64(w)
	}
	bound := uniform * sum
	last := len(weights) - 1
	var below float64
	for i, w := range weights {
		if below += float64(w); below > bound {
			return int32(i)
		}
		if w > 0 {
			last = i
		}
	}
	return int32(last)
}
