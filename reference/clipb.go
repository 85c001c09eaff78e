package reference

import "math"

// ClipB returns 1 at response tokens and 0 elsewhere, [T], but for the response tokens with A < 0
// and S below its mean by more than mu standard deviations, which have 0 too (arXiv:2602.03392):
//
//	S = p (entropy + log p),  p = e^old
//
// with the mean and the standard deviation (n) over all response tokens. Where that is below
// 1e-12, all have 1. (Trinity-RFT: ClipBAdvantageFn.)
func ClipB(b *Batch, mu float64) []float64 {
	b.perToken(b.OldLogprobs, b.Entropy, b.Advantages)
	weights, responses := make([]float64, len(b.Role)), b.responses()
	var S []float64
	for _, t := range responses {
		S = append(S, math.Exp(b.OldLogprobs[t])*(b.Entropy[t]+b.OldLogprobs[t]))
	}
	if len(S) == 0 {
		return weights
	}
	m, squares := mean(S), 0.0
	for _, s := range S {
		squares += (s - m) * (s - m)
	}
	std := math.Sqrt(squares / float64(len(S)))
	for i, t := range responses {
		if std < 1e-12 || b.Advantages[t] >= 0 || S[i]-m >= -mu*std {
			weights[t] = 1
		}
	}
	return weights
}
