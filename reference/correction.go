package reference

import "math"

// A CorrectionLevel says which tokens share an importance ratio.
type CorrectionLevel string

// The levels.
const (
	CorrectToken     CorrectionLevel = "token"     // each its own
	CorrectSequence  CorrectionLevel = "sequence"  // a trajectory: the product
	CorrectGeometric CorrectionLevel = "geometric" // a trajectory: the geometric mean
)

// CorrectionOptions are the parameters of RolloutCorrection.
type CorrectionOptions struct {
	Level     CorrectionLevel
	Mask      bool    // a ratio outside [Low, High] becomes 0 (IcePop); false: the nearer bound (TIS)
	Low, High float64 // 0 <= Low <= High; High +Inf for no upper bound
	Normalize bool    // divide by the mean of the factors
}

// RolloutCorrection returns a factor of the advantage for every token, [T]: the
// importance ratio of the old policy against the engine that sampled. With
// z_t = old - rollout:
//
//	u = exp(clamp(z, -20, 20))     z is z_t, or the sum or the mean over the trajectory
//	c = clamp(u, Low, High);  with Mask: u if Low <= u <= High, else 0
//
// With Normalize c is divided by its mean, over the response tokens at the level of
// tokens and else over the trajectories that have some, if the mean is above 1e-8.
// Masked tokens have 1.
func RolloutCorrection(b *Batch, opt CorrectionOptions) []float64 {
	b.perToken(b.OldLogprobs, b.RolloutLogprobs)
	factors := ones(len(b.Role))
	var c []float64 // one for each ratio
	for _, tokens := range b.trajectories() {
		if len(tokens) == 0 {
			continue
		}
		z := differences(b.OldLogprobs, b.RolloutLogprobs, tokens)
		switch opt.Level {
		case CorrectSequence:
			z = []float64{sum(z)}
		case CorrectGeometric:
			z = []float64{mean(z)}
		}
		for i, t := range tokens {
			factors[t] = opt.factor(z[min(i, len(z)-1)])
		}
		for _, x := range z {
			c = append(c, opt.factor(x))
		}
	}
	if m := mean(c); opt.Normalize && m > 1e-8 {
		for t, r := range b.Role {
			if r != RoleMasked {
				factors[t] /= m
			}
		}
	}
	return factors
}

// factor returns the ratio whose logarithm is z, truncated or masked.
func (opt *CorrectionOptions) factor(z float64) float64 {
	u := math.Exp(clamp(z, -logRatioLimit, logRatioLimit))
	c := clamp(u, opt.Low, opt.High)
	if opt.Mask && c != u {
		return 0
	}
	return c
}

// A RejectionStatistic is what Reject compares with bounds. The names are verl's.
type RejectionStatistic string

// The statistics: a measure of one token, or its sum, mean or maximum over the
// trajectory.
const (
	RejectTokenK1   RejectionStatistic = "token_k1"
	RejectTokenK2   RejectionStatistic = "token_k2"
	RejectTokenK3   RejectionStatistic = "token_k3"
	RejectSeqSumK1  RejectionStatistic = "seq_sum_k1"
	RejectSeqSumK2  RejectionStatistic = "seq_sum_k2"
	RejectSeqSumK3  RejectionStatistic = "seq_sum_k3"
	RejectSeqMeanK1 RejectionStatistic = "seq_mean_k1"
	RejectSeqMeanK2 RejectionStatistic = "seq_mean_k2"
	RejectSeqMeanK3 RejectionStatistic = "seq_mean_k3"
	RejectSeqMaxK2  RejectionStatistic = "seq_max_k2"
	RejectSeqMaxK3  RejectionStatistic = "seq_max_k3"
)

// Reject returns 1 at the response tokens that are kept and 0 elsewhere, [T]: a
// weight. With z = clamp(old - rollout, -20, 20), a token's measure is
//
//	k1: -z     k2: z^2/2     k3: e^z - 1 - z
//
// and v is that measure, or its sum, mean or maximum over the trajectory's response
// tokens. Tokens are kept where log low <= v <= log high for k1, and v <= high for k2
// and k3, which do not read low; high +Inf is no bound.
func Reject(b *Batch, statistic RejectionStatistic, low, high float64) []float64 {
	b.perToken(b.OldLogprobs, b.RolloutLogprobs)
	over, measure := statistic[:len(statistic)-3], statistic[len(statistic)-2:]
	keep := func(v float64) float64 {
		if measure == "k1" && (v < math.Log(low) || v > math.Log(high)) || measure != "k1" && v > high {
			return 0
		}
		return 1
	}
	weights := make([]float64, len(b.Role))
	for _, tokens := range b.trajectories() {
		v := differences(b.OldLogprobs, b.RolloutLogprobs, tokens)
		for i, z := range v {
			z = clamp(z, -logRatioLimit, logRatioLimit)
			switch measure {
			case "k1":
				v[i] = -z
			case "k2":
				v[i] = z * z / 2
			case "k3":
				v[i] = expm1MinusX(z)
			}
		}
		_, largest := MinMax(v)
		whole := map[RejectionStatistic]float64{"seq_sum": sum(v), "seq_mean": mean(v), "seq_max": largest}
		for i, t := range tokens {
			if of, ok := whole[over]; ok {
				v[i] = of
			}
			weights[t] = keep(v[i])
		}
	}
	return weights
}

// OffPolicyMask returns a factor of the advantage for every token, [T]: 0 where the
// advantage is negative and the mean of old - new over the trajectory's response
// tokens is above delta, 1 elsewhere (DeepSeek-V3.2).
func OffPolicyMask(b *Batch, delta float64) []float64 {
	b.perToken(b.Logprobs, b.OldLogprobs, b.Advantages)
	factors := ones(len(b.Role))
	for _, tokens := range b.trajectories() {
		drift := mean(differences(b.OldLogprobs, b.Logprobs, tokens))
		for _, t := range tokens {
			if b.Advantages[t] < 0 && drift > delta {
				factors[t] = 0
			}
		}
	}
	return factors
}
