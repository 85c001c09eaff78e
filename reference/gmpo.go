package reference

import "math"

// GMPO returns the loss of geometric-mean policy optimisation (arXiv:2507.20673) and its
// gradient. With d = new - old, which is not clamped, and s the sign of a token's A,
//
//	m = s min(s d, s clamp(d, -clipLow, clipHigh))
//	x_q = sum m / (n + 1e-8)     rho_q = exp(min(x_q, 20))     A_q = sum A / (n + 1e-8)
//	loss = mean of -A_q rho_q
//
// The sums are over the n response tokens of trajectory q, the mean is over all
// trajectories: one without response tokens adds 0, and counts. A token has a derivative
// where m is d, A is not 0 and x_q is not above 20, and counts as clipped where m is not d
// and A is not 0. (verl: compute_policy_loss_geo_mean, which does not bound x_q.)
func GMPO(b *Batch, clipLow, clipHigh float64) LossResult {
	b.perToken(b.Logprobs, b.OldLogprobs, b.Advantages)
	loss := LossResult{Gradient: make([]float64, len(b.Role))}
	trajectories := b.trajectories()
	for _, tokens := range trajectories {
		n := float64(len(tokens)) + 1e-8
		m, slope := make([]float64, len(tokens)), make([]float64, len(tokens))
		for i, t := range tokens {
			s, d := sign(b.Advantages[t]), b.Logprobs[t]-b.OldLogprobs[t]
			m[i] = s * min(s*d, s*clamp(d, -clipLow, clipHigh))
			switch {
			case s != 0 && m[i] == d:
				slope[i] = 1
			case s != 0:
				loss.ClipFraction++
			}
		}
		x, A := sum(m)/n, sum(pick(b.Advantages, tokens))/n
		rho := math.Exp(min(x, logRatioLimit))
		loss.Loss -= A * rho / float64(len(trajectories))
		for i, t := range tokens {
			if x <= logRatioLimit {
				loss.Gradient[t] = -A * rho * slope[i] / n / float64(len(trajectories))
			}
		}
	}
	loss.ClipFraction /= max(1, float64(len(b.responses())))
	loss.MeanLogRatio = b.meanLogRatio()
	return loss
}

// sign returns -1, 0 or 1.
func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}
