package reference

import (
	"fmt"
	"math"
)

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
	Low, High float64 // 0 <= Low <= High; Low finite, High +Inf for no upper bound
	Normalize bool    // divide by the mean of the factors
}

// DefaultCorrection is truncated importance sampling; DefaultIcePop masks.
var (
	DefaultCorrection = CorrectionOptions{Level: CorrectToken, Low: 0, High: 2}
	DefaultIcePop     = CorrectionOptions{Level: CorrectToken, Mask: true, Low: 0.5, High: 5}
)

// RolloutCorrection returns a factor of the advantage for every token, [T]: the
// importance ratio of the old policy against the engine that sampled. With
// z_t = old - rollout:
//
//	u = exp(clamp(z, -20, 20))     z is z_t, or the sum or the mean over the trajectory
//	c = clamp(u, Low, High);  with Mask: u if Low <= u <= High, else 0
//
// With Normalize c is divided by its mean, over the response tokens at the level of
// tokens and else over the trajectories that have some, if the mean is above 1e-8.
// Masked tokens have 1. role, oldLogprobs and rolloutLogprobs are [T], offsets [S+1].
func RolloutCorrection(role []Role, offsets []int64, oldLogprobs, rolloutLogprobs []float64, opt CorrectionOptions) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("oldLogprobs", oldLogprobs, role),
		checkResponse("rolloutLogprobs", rolloutLogprobs, role),
	); err != nil {
		return nil, err
	}
	switch opt.Level {
	case CorrectToken, CorrectSequence, CorrectGeometric:
	default:
		return nil, fmt.Errorf("reference: opt.Level = %q, want %q, %q or %q", opt.Level, CorrectToken, CorrectSequence, CorrectGeometric)
	}
	if err := checkAtLeast("opt.Low", opt.Low, 0); err != nil {
		return nil, err
	}
	if !(opt.High >= opt.Low) {
		return nil, fmt.Errorf("reference: opt.Low = %v and opt.High = %v, want 0 <= Low <= High", opt.Low, opt.High)
	}
	factors := make([]float64, len(role))
	for t := range factors {
		factors[t] = 1
	}
	var c []float64 // one for each ratio
	for _, tokens := range responseTokens(role, offsets) {
		if len(tokens) == 0 {
			continue
		}
		z := make([]float64, len(tokens))
		for i, t := range tokens {
			z[i] = oldLogprobs[t] - rolloutLogprobs[t]
		}
		switch opt.Level {
		case CorrectToken:
			for i, t := range tokens {
				factors[t] = opt.factor(z[i])
				c = append(c, factors[t])
			}
			continue
		case CorrectSequence:
			c = append(c, opt.factor(sum(z)))
		case CorrectGeometric:
			c = append(c, opt.factor(mean(z)))
		}
		for _, t := range tokens {
			factors[t] = c[len(c)-1]
		}
	}
	if m := mean(c); opt.Normalize && m > 1e-8 {
		for t, r := range role {
			if r != RoleMasked {
				factors[t] /= m
			}
		}
	}
	return factors, nil
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
// and k3, which do not read low; high +Inf is no bound. role, oldLogprobs and rolloutLogprobs are [T],
// offsets [S+1].
func Reject(role []Role, offsets []int64, oldLogprobs, rolloutLogprobs []float64, statistic RejectionStatistic, low, high float64) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("oldLogprobs", oldLogprobs, role),
		checkResponse("rolloutLogprobs", rolloutLogprobs, role),
	); err != nil {
		return nil, err
	}
	switch statistic {
	case RejectTokenK1, RejectSeqSumK1, RejectSeqMeanK1:
		if err := checkAbove0("low", low); err != nil {
			return nil, err
		}
		if !(high >= low) {
			return nil, fmt.Errorf("reference: low = %v and high = %v, want 0 < low <= high", low, high)
		}
	case RejectTokenK2, RejectTokenK3, RejectSeqSumK2, RejectSeqSumK3, RejectSeqMeanK2, RejectSeqMeanK3, RejectSeqMaxK2, RejectSeqMaxK3:
		if !(high >= 0) {
			return nil, fmt.Errorf("reference: high = %v, want at least 0", high)
		}
	default:
		return nil, fmt.Errorf("reference: statistic = %q, want a measure of tokens or of trajectories such as %q or %q", statistic, RejectTokenK1, RejectSeqMeanK3)
	}
	over, measure := statistic[:len(statistic)-3], statistic[len(statistic)-2:]
	keep := func(v float64) float64 {
		if measure == "k1" && (v < math.Log(low) || v > math.Log(high)) || measure != "k1" && v > high {
			return 0
		}
		return 1
	}
	weights := make([]float64, len(role))
	for _, tokens := range responseTokens(role, offsets) {
		v := make([]float64, len(tokens))
		for i, t := range tokens {
			z := clamp(oldLogprobs[t]-rolloutLogprobs[t], -logRatioLimit, logRatioLimit)
			switch measure {
			case "k1":
				v[i] = -z
			case "k2":
				v[i] = z * z / 2
			case "k3":
				v[i] = expm1MinusX(z)
			}
		}
		whole := 0.0
		switch over {
		case "seq_sum":
			whole = sum(v)
		case "seq_mean":
			whole = mean(v)
		case "seq_max":
			_, whole = MinMax(v)
		}
		for i, t := range tokens {
			if over == "token" {
				weights[t] = keep(v[i])
			} else {
				weights[t] = keep(whole)
			}
		}
	}
	return weights, nil
}

// OffPolicyMask returns a factor of the advantage for every token, [T]: 0 where the
// advantage is negative and the mean of old - new over the trajectory's response
// tokens is above delta, 1 elsewhere (DeepSeek-V3.2). role, logprobs, oldLogprobs and
// advantages are [T], offsets [S+1]; delta is finite.
func OffPolicyMask(role []Role, offsets []int64, logprobs, oldLogprobs, advantages []float64, delta float64) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("logprobs", logprobs, role),
		checkResponse("oldLogprobs", oldLogprobs, role),
		checkResponse("advantages", advantages, role),
		checkNumber("delta", delta),
	); err != nil {
		return nil, err
	}
	factors := make([]float64, len(role))
	for t := range factors {
		factors[t] = 1
	}
	for _, tokens := range responseTokens(role, offsets) {
		diff := make([]float64, len(tokens))
		for i, t := range tokens {
			diff[i] = oldLogprobs[t] - logprobs[t]
		}
		drift := mean(diff)
		for _, t := range tokens {
			if advantages[t] < 0 && drift > delta {
				factors[t] = 0
			}
		}
	}
	return factors, nil
}
