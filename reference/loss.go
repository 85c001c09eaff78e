package reference

import (
	"fmt"
	"math"
)

// logRatioLimit is where verl clamps differences of log-probabilities.
const logRatioLimit = 20

// Surrogate returns the PPO clipped surrogate of one token, its derivative with
// respect to the new log-probability, and whether the clip acted (L2 > L1):
//
//	d = clamp(new - old, -20, 20)     rho = e^d
//	L1 = -A rho                       L2 = -A clip(rho, 1 - clipLow, 1 + clipHigh)
//	l  = max(L1, L2);  if A < 0 and dualClip > 0: min(l, -A dualClip)
//
// The derivative is -A rho, and 0 where L2 > L1, where the dual clip acts, and
// where new - old is outside [-20, 20]. (verl: compute_policy_loss; the dual
// clip is arXiv:1912.09729.)
func Surrogate(logprob, oldLogprob, advantage, clipLow, clipHigh, dualClip float64) (l, derivative float64, clipped bool) {
	rho, slope := Ratio(logprob, oldLogprob)
	return ClippedRatio(rho, slope, advantage, clipLow, clipHigh, dualClip)
}

// An Aggregation turns the losses of the tokens into one number. The names and
// the meaning without weights are verl's (agg_loss).
type Aggregation string

// The aggregations, for the losses l and the weights w of the response tokens.
const (
	// TokenMean is sum w l / sum w.
	TokenMean Aggregation = "token_mean"
	// SeqMeanTokenSum is the mean over trajectories of sum w l.
	SeqMeanTokenSum Aggregation = "seq_mean_token_sum"
	// SeqMeanTokenMean is the mean over trajectories of sum w l / sum w; a
	// trajectory whose weights sum to 0 adds 0 to it, and counts.
	SeqMeanTokenMean Aggregation = "seq_mean_token_mean"
	// SeqMeanTokenSumNorm is sum w l / LossOptions.NormLength.
	SeqMeanTokenSumNorm Aggregation = "seq_mean_token_sum_norm"
)

// LossOptions are the parameters of Loss.
type LossOptions struct {
	ClipLow     float64 // rho is clipped to [1 - ClipLow, 1 + ClipHigh]
	ClipHigh    float64
	DualClip    float64 // the dual clip's bound on rho where A < 0, above 1; 0 turns it off
	Aggregation Aggregation
	NormLength  float64 // for SeqMeanTokenSumNorm; 0 means the tokens of the longest trajectory
}

// DefaultLoss clips to [0.8, 1.28], has the dual clip at 3, and is the token mean.
var DefaultLoss = LossOptions{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3, Aggregation: TokenMean}

// A LossResult is what Loss returns.
type LossResult struct {
	Loss         float64
	Gradient     []float64 // [T] dLoss/dlogprobs, 0 at masked tokens
	ClipFraction float64   // share of the response tokens with L2 > L1
	MeanLogRatio float64   // mean over the response tokens of clamp(new - old, -20, 20)
}

// Loss returns the weighted clipped surrogate of a batch, its gradient
// and two diagnostics. role, logprobs, oldLogprobs, advantages and weights are
// [T], offsets [S+1]. Negative weights are taken as they are; those of masked tokens
// are not read. Trajectories without response tokens do not count in the means over
// trajectories. If the weights sum to 0, value and gradient are 0.
//
// With the weights of ActFocusWeights and TokenMean this is the loss of
// ActFocus (arXiv:2605.14558), with UniformWeights that of verl
// (compute_policy_loss, agg_loss). verl's ppo_kl is -MeanLogRatio.
func Loss(role []Role, offsets []int64, logprobs, oldLogprobs, advantages, weights []float64, opt LossOptions) (LossResult, error) {
	T := len(role)
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, T),
		checkLen("logprobs", len(logprobs), T, "tokens"),
		checkLen("oldLogprobs", len(oldLogprobs), T, "tokens"),
		checkLen("advantages", len(advantages), T, "tokens"),
		checkLen("weights", len(weights), T, "tokens"),
		checkAtLeast("opt.ClipLow", opt.ClipLow, 0),
		checkAtLeast("opt.ClipHigh", opt.ClipHigh, 0),
		checkDualClip(opt.DualClip),
		checkAggregation(opt.Aggregation, opt.NormLength),
	); err != nil {
		return LossResult{}, err
	}
	loss := LossResult{Gradient: make([]float64, T)}
	l := make([]float64, T)
	derivative := make([]float64, T)
	response, weightSum := 0, 0.0
	for t, r := range role {
		if r == RoleMasked {
			continue
		}
		var clipped bool
		l[t], derivative[t], clipped = Surrogate(logprobs[t], oldLogprobs[t], advantages[t], opt.ClipLow, opt.ClipHigh, opt.DualClip)
		if clipped {
			loss.ClipFraction++
		}
		loss.MeanLogRatio += clamp(logprobs[t]-oldLogprobs[t], -logRatioLimit, logRatioLimit)
		response++
		weightSum += weights[t]
	}
	if response == 0 {
		return loss, nil
	}
	loss.ClipFraction /= float64(response)
	loss.MeanLogRatio /= float64(response)
	if weightSum == 0 {
		return loss, nil
	}

	scale := tokenScales(role, offsets, weights, opt)
	for t, r := range role {
		if r != RoleMasked {
			loss.Loss += scale[t] * weights[t] * l[t]
			loss.Gradient[t] = scale[t] * weights[t] * derivative[t]
		}
	}
	return loss, nil
}

// checkDualClip returns an error unless the bound is above 1, or 0 for none: within
// [0, 1] it would act where the policy has not moved.
func checkDualClip(dualClip float64) error {
	if dualClip != 0 && !(dualClip > 1) || math.IsInf(dualClip, 1) {
		return fmt.Errorf("reference: opt.DualClip = %v, want a finite number above 1, or 0 for none", dualClip)
	}
	return nil
}

func checkAggregation(aggregation Aggregation, normLength float64) error {
	switch aggregation {
	case TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm:
		return checkAtLeast("opt.NormLength", normLength, 0)
	}
	return fmt.Errorf("reference: opt.Aggregation = %q, want %q, %q, %q or %q",
		aggregation, TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm)
}

// tokenScales returns the factor of each token by which an aggregation multiplies
// w_t l_t before it sums over all response tokens.
func tokenScales(role []Role, offsets []int64, weights []float64, opt LossOptions) []float64 {
	S := len(offsets) - 1
	seqWeight := make([]float64, S) // sum of w over the response tokens
	seqTokens := make([]int, S)     // number of response tokens
	total, counting, longest := 0.0, 0, int64(0)
	for s := range S {
		for t := offsets[s]; t < offsets[s+1]; t++ {
			if role[t] != RoleMasked {
				seqWeight[s] += weights[t]
				seqTokens[s]++
			}
		}
		total += seqWeight[s]
		if seqTokens[s] > 0 {
			counting++
		}
		longest = max(longest, offsets[s+1]-offsets[s])
	}
	norm := opt.NormLength
	if norm == 0 {
		norm = float64(longest)
	}

	scale := make([]float64, len(role))
	for s := range S {
		for t := offsets[s]; t < offsets[s+1]; t++ {
			switch opt.Aggregation {
			case TokenMean:
				if total != 0 {
					scale[t] = 1 / total
				}
			case SeqMeanTokenSum:
				scale[t] = 1 / float64(counting)
			case SeqMeanTokenMean:
				if seqWeight[s] != 0 {
					scale[t] = 1 / seqWeight[s] / float64(counting)
				}
			case SeqMeanTokenSumNorm:
				scale[t] = 1 / norm
			}
		}
	}
	return scale
}

// K3 returns the k3 estimate of KL(new || ref) at one token:
//
//	x = clamp(ref - new, -20, 20)     k = clamp(e^x - x - 1, -10, 10)
//
// (verl: kl_penalty, "low_var_kl"; http://joschu.net/blog/kl-approx.html.)
func K3(logprob, refLogprob float64) float64 {
	x := clamp(refLogprob-logprob, -logRatioLimit, logRatioLimit)
	return clamp(expm1MinusX(x), -10, 10)
}

// K3Mean returns the mean of K3 over the response tokens, 0 without any. role,
// logprobs and refLogprobs are [T].
func K3Mean(role []Role, logprobs, refLogprobs []float64) (float64, error) {
	if err := first(
		checkRoles(role),
		checkLen("logprobs", len(logprobs), len(role), "tokens"),
		checkLen("refLogprobs", len(refLogprobs), len(role), "tokens"),
	); err != nil {
		return 0, err
	}
	sum, n := 0.0, 0
	for t, r := range role {
		if r != RoleMasked {
			sum += K3(logprobs[t], refLogprobs[t])
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	return sum / float64(n), nil
}

// expm1MinusX returns e^x - 1 - x. Near 0 the differences cancel, also Expm1(x) - x,
// so there it is summed as x^2/2! + x^3/3! + ...
func expm1MinusX(x float64) float64 {
	if math.Abs(x) > 0.5 {
		return math.Expm1(x) - x
	}
	sum, term := 0.0, x
	for k := 2.0; k <= 20; k++ {
		term *= x / k
		sum += term
	}
	return sum
}

// clamp returns x between lo and hi; NaN stays NaN.
func clamp(x, lo, hi float64) float64 { return min(max(x, lo), hi) }
