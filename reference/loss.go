package reference

import "math"

// logRatioLimit is where verl clamps differences of log-probabilities.
const logRatioLimit = 20

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
	// SeqMeanTokenSumNorm is sum w l / NormLength.
	SeqMeanTokenSumNorm Aggregation = "seq_mean_token_sum_norm"
)

// Aggregating says how the losses of tokens become one.
type Aggregating struct {
	Aggregation Aggregation
	NormLength  float64 // for SeqMeanTokenSumNorm; 0 means the tokens of the longest trajectory
}

// A LossResult is a loss, its gradient and diagnostics.
type LossResult struct {
	Loss         float64
	Gradient     []float64 // [T], 0 at masked tokens
	ClipFraction float64   // share of the response tokens that are clipped
	MeanLogRatio float64   // of Loss: mean over the response tokens of clamp(new - old, -20, 20)
}

// sum aggregates the terms of the response tokens. weights are [T], or nil for ones.
func (opt Aggregating) sum(b *Batch, weights []float64,
	term func(t int) (l, derivative float64, clipped bool)) LossResult {
	if weights == nil {
		weights = ones(len(b.Role))
	}
	b.perToken(weights)
	scale := opt.scales(b, weights)
	loss := LossResult{Gradient: make([]float64, len(b.Role))}
	response := 0.0
	for t, r := range b.Role {
		if r == RoleMasked {
			continue
		}
		l, derivative, clipped := term(t)
		loss.Loss += scale[t] * weights[t] * l
		loss.Gradient[t] = scale[t] * weights[t] * derivative
		if clipped {
			loss.ClipFraction++
		}
		response++
	}
	loss.ClipFraction /= max(1, response)
	return loss
}

// scales returns the factor of each token by which the aggregation multiplies w_t l_t
// before it sums over all response tokens.
func (opt Aggregating) scales(b *Batch, weights []float64) []float64 {
	trajectories := b.trajectories()
	total, counting, longest := 0.0, 0.0, 0.0
	for s, tokens := range trajectories {
		total += sum(pick(weights, tokens))
		if len(tokens) > 0 {
			counting++
		}
		longest = max(longest, float64(b.SeqOffsets[s+1]-b.SeqOffsets[s]))
	}
	scale := make([]float64, len(b.Role))
	for _, tokens := range trajectories {
		by := 0.0 // what a sum is divided by; one that is divided by 0 is 0
		switch opt.Aggregation {
		case TokenMean:
			by = total
		case SeqMeanTokenSum:
			by = counting
		case SeqMeanTokenMean:
			by = sum(pick(weights, tokens)) * counting
		case SeqMeanTokenSumNorm:
			by = longest
			if opt.NormLength != 0 {
				by = opt.NormLength
			}
		}
		for _, t := range tokens {
			if by != 0 {
				scale[t] = 1 / by
			}
		}
	}
	return scale
}

// A Policy is a loss of tokens.
type Policy string

// The policy losses.
const (
	PolicyPPO    Policy = "ppo"     // the ratio of the token, clipped (arXiv:1707.06347)
	PolicyGSPO   Policy = "gspo"    // the ratio of the sequence, clipped (arXiv:2507.18071)
	PolicyGRPOS  Policy = "grpo_s"  // the mean ratio over the sequence, clipped (arXiv:2508.04349)
	PolicyCISPO  Policy = "cispo"   // arXiv:2506.13585
	PolicySAPO   Policy = "sapo"    // arXiv:2511.20347
	PolicyPG     Policy = "pg"      // verl: gpg
	PolicyDPPOTV Policy = "dppo_tv" // arXiv:2602.04879
	PolicyVESPO  Policy = "vespo"   // arXiv:2602.10693

	PolicyDPPOKL  Policy = "dppo_kl"  // arXiv:2602.04879
	PolicyDRO     Policy = "dro"      // verl: dro
	PolicyGMPO    Policy = "gmpo"     // the geometric mean of the ratios (arXiv:2507.20673)
	PolicyClipCov Policy = "clip_cov" // arXiv:2505.22617
	PolicyKLCov   Policy = "kl_cov"   // arXiv:2505.22617
)

// A Sequence says over which tokens GSPO and GRPO-S take the ratio.
type Sequence string

// The sequences.
const (
	SequenceTrajectory Sequence = "trajectory"
	SequenceSpan       Sequence = "span" // turn by turn
)

// LossOptions are the parameters of Loss.
type LossOptions struct {
	Aggregating
	Policy   Policy
	Sequence Sequence // GSPO, GRPO-S: the tokens that share a ratio

	ClipLow, ClipHigh  float64 // a ratio is clipped to [1 - ClipLow, 1 + ClipHigh]
	DualClip           float64 // PPO, GSPO, GRPO-S: bounds the ratio where A < 0, above 1; 0 turns it off
	TauPos, TauNeg     float64 // SAPO: temperature where A > 0 and elsewhere
	RatioCap           float64 // DPPO-TV, DPPO-KL: the largest ratio
	PowerPos, DecayPos float64 // VESPO: k and b where A >= 0
	PowerNeg, DecayNeg float64 // and where A < 0
	Beta               float64 // DRO: of the quadratic penalty

	CovShare        float64 // Clip-Cov, KL-Cov: share of the response tokens that are chosen
	CovLow, CovHigh float64 // Clip-Cov: between which a covariance is chosen
	CovCoef         float64 // KL-Cov: of |new - old|
	Seed            uint64  // Clip-Cov: of the choice
}

// Loss returns the weighted loss of a policy, its gradient with respect to Logprobs and two
// diagnostics. weights are [T], or nil for ones. Negative weights are taken as they are;
// those of masked tokens are not read. Trajectories without response tokens do not count
// in the means over trajectories. If the weights that divide a sum add up to 0, that sum
// is 0.
//
// With the weights of ActFocus and TokenMean, PPO is the loss of ActFocus
// (arXiv:2605.14558), without weights that of verl (compute_policy_loss, agg_loss).
// verl's ppo_kl is -MeanLogRatio.
//
// GMPO, Clip-Cov, KL-Cov and DRO are without weights.
func Loss(b *Batch, weights []float64, opt LossOptions) LossResult {
	b.perToken(b.Logprobs, b.OldLogprobs, b.Advantages)
	if opt.Policy == PolicyGMPO {
		return GMPO(b, opt.ClipLow, opt.ClipHigh)
	}
	var chosen []bool
	switch opt.Policy {
	case PolicyClipCov:
		chosen = ClipCovChoice(b, opt)
	case PolicyKLCov:
		chosen = KLCovChoice(b, opt.CovShare)
	}
	l, derivative := make([]float64, len(b.Role)), make([]float64, len(b.Role))
	clipped := make([]bool, len(b.Role))
	sequences := b.trajectories()
	if opt.Sequence == SequenceSpan && (opt.Policy == PolicyGSPO || opt.Policy == PolicyGRPOS) {
		sequences = b.spans()
	}
	for _, tokens := range sequences {
		if len(tokens) == 0 {
			continue
		}
		new, old := pick(b.Logprobs, tokens), pick(b.OldLogprobs, tokens)
		gspo, gspoSlope := GSPORatio(new, old)
		grpos := GRPOSRatio(new, old)
		phi := VESPOFactor(new, old, opt.PowerPos, opt.DecayPos)
		phiNeg := VESPOFactor(new, old, opt.PowerNeg, opt.DecayNeg)
		for i, t := range tokens {
			A := b.Advantages[t]
			switch opt.Policy {
			case PolicyPPO:
				l[t], derivative[t], clipped[t] = Surrogate(new[i], old[i], A, opt.ClipLow, opt.ClipHigh, opt.DualClip)
			case PolicyGSPO:
				l[t], derivative[t], clipped[t] = ClippedRatio(gspo, gspoSlope, A, opt.ClipLow, opt.ClipHigh,
					opt.DualClip)
			case PolicyGRPOS:
				_, slope := Ratio(new[i], old[i])
				l[t], derivative[t], clipped[t] = ClippedRatio(grpos, slope, A, opt.ClipLow, opt.ClipHigh, opt.DualClip)
			case PolicyCISPO:
				l[t], derivative[t], clipped[t] = CISPO(new[i], old[i], A, opt.ClipLow, opt.ClipHigh)
			case PolicySAPO:
				l[t], derivative[t] = SAPO(new[i], old[i], A, opt.TauPos, opt.TauNeg)
			case PolicyPG:
				l[t], derivative[t] = PG(new[i], A)
			case PolicyDPPOTV:
				l[t], derivative[t], clipped[t] = DPPOTV(new[i], old[i], A, opt.ClipLow, opt.ClipHigh, opt.RatioCap)
			case PolicyDPPOKL:
				l[t], derivative[t], clipped[t] = DPPOKL(new[i], old[i], A, opt.ClipLow, opt.ClipHigh, opt.RatioCap)
			case PolicyDRO:
				l[t], derivative[t] = DRO(new[i], old[i], A, opt.Beta)
			case PolicyClipCov:
				l[t], derivative[t], clipped[t] = Surrogate(new[i], old[i], A, opt.ClipLow, opt.ClipHigh, 0)
				if chosen[t] {
					l[t], derivative[t], clipped[t] = 0, 0, true
				}
			case PolicyKLCov:
				l[t], derivative[t], _ = Surrogate(new[i], old[i], A, 1, math.Inf(1), 0)
				if d := new[i] - old[i]; chosen[t] {
					l[t] += opt.CovCoef * math.Abs(d)
					derivative[t] += opt.CovCoef * sign(d)
				}
			case PolicyVESPO:
				factor := phi
				if A < 0 {
					factor = phiNeg
				}
				l[t], derivative[t] = PG(new[i], factor*A)
			}
		}
	}
	loss := opt.sum(b, weights, func(t int) (float64, float64, bool) { return l[t], derivative[t], clipped[t] })
	loss.MeanLogRatio = b.meanLogRatio()
	return loss
}

// meanLogRatio returns the mean over the response tokens of clamp(new - old, -20, 20).
func (b *Batch) meanLogRatio() float64 {
	d := differences(b.Logprobs, b.OldLogprobs, b.responses())
	for i := range d {
		d[i] = clamp(d[i], -logRatioLimit, logRatioLimit)
	}
	return sum(d) / max(1, float64(len(d)))
}

// Surrogate returns the PPO clipped surrogate of one token, its derivative with
// respect to the new log-probability, and whether the clip acted: ClippedRatio of Ratio.
// (verl: compute_policy_loss.)
func Surrogate(
	logprob, oldLogprob, advantage, clipLow, clipHigh, dualClip float64,
) (l, derivative float64, clipped bool) {
	rho, slope := Ratio(logprob, oldLogprob)
	return ClippedRatio(rho, slope, advantage, clipLow, clipHigh, dualClip)
}

// Ratio returns rho = e^clamp(new - old, -20, 20) and its derivative with respect to
// the new log-probability, which is 0 where new - old is outside [-20, 20].
func Ratio(logprob, oldLogprob float64) (rho, derivative float64) {
	diff := logprob - oldLogprob
	rho = math.Exp(clamp(diff, -logRatioLimit, logRatioLimit))
	if diff < -logRatioLimit || diff > logRatioLimit {
		return rho, 0
	}
	return rho, rho
}

// GSPORatio returns the importance ratio of a sequence, and what its derivative is
// taken to be with respect to each new log-probability, from the log-probabilities of
// its response tokens:
//
//	x = mean (new - old)     s = exp(min(x, 10))     s' = s, and 0 where x > 10
//
// The differences are not clamped. This is GSPO-token, s pi / sg[pi]: where the
// advantage and the weight are constant over the sequence, the gradient of every
// aggregation is that of GSPO, in which each token has s/n.
func GSPORatio(logprobs, oldLogprobs []float64) (s, slope float64) {
	diff := make([]float64, len(logprobs))
	for t := range diff {
		diff[t] = logprobs[t] - oldLogprobs[t]
	}
	x := mean(diff)
	s = math.Exp(min(x, 10))
	if x > 10 {
		return s, 0
	}
	return s, s
}

// GRPOSRatio returns the mean ratio of the response tokens of a sequence. Its
// derivative with respect to a new log-probability is taken to be that of the token's
// own ratio.
func GRPOSRatio(logprobs, oldLogprobs []float64) float64 {
	rho := make([]float64, len(logprobs))
	for t := range rho {
		rho[t], _ = Ratio(logprobs[t], oldLogprobs[t])
	}
	return mean(rho)
}

// ClippedRatio returns the clipped loss of a ratio s, its derivative where slope is
// that of s, and whether the clip acted (L2 > L1):
//
//	L1 = -A s     L2 = -A clip(s, 1 - clipLow, 1 + clipHigh)
//	l  = max(L1, L2);  if A < 0 and dualClip > 0: min(l, -A dualClip)
//
// The derivative is -A slope, and 0 where L2 > L1 and where the dual clip acts, which is
// arXiv:1912.09729.
func ClippedRatio(s, slope, advantage, clipLow, clipHigh, dualClip float64) (l, derivative float64, clipped bool) {
	L1 := -advantage * s
	L2 := -advantage * clamp(s, 1-clipLow, 1+clipHigh)
	l = max(L1, L2)
	clipped = L2 > L1
	dualClipped := advantage < 0 && dualClip > 0 && l > -advantage*dualClip
	if dualClipped {
		l = -advantage * dualClip
	}
	if !clipped && !dualClipped {
		derivative = -advantage * slope
	}
	return l, derivative, clipped
}

// CISPO returns the loss of one token, its derivative and whether the ratio was
// clipped. The clipped ratio is a constant factor, so that every token has a gradient:
//
//	c = clip(rho, 1 - clipLow, 1 + clipHigh)     l = -c A new     l' = -c A
func CISPO(logprob, oldLogprob, advantage, clipLow, clipHigh float64) (l, derivative float64, clipped bool) {
	rho, _ := Ratio(logprob, oldLogprob)
	c := clamp(rho, 1-clipLow, 1+clipHigh)
	return -c * advantage * logprob, -c * advantage, c != rho
}

// SAPO returns the loss of one token and its derivative:
//
//	s = 1 / (1 + e^(-tau (rho - 1)))     l = -A 4 s / tau     l' = -A 4 s (1 - s) rho
//
// tau is tauPos where A > 0 and tauNeg elsewhere. The derivative is 0 where new - old
// is outside [-20, 20].
func SAPO(logprob, oldLogprob, advantage, tauPos, tauNeg float64) (l, derivative float64) {
	tau := tauNeg
	if advantage > 0 {
		tau = tauPos
	}
	rho, slope := Ratio(logprob, oldLogprob)
	s := sigmoid(tau * (rho - 1))
	rest := sigmoid(-tau * (rho - 1)) // 1 - s, which would cancel
	return -advantage * 4 * s / tau, -advantage * 4 * s * rest * slope
}

// PG returns the loss of one token without any ratio, -A new, and its derivative.
func PG(logprob, advantage float64) (l, derivative float64) {
	return -advantage * logprob, -advantage
}

// DPPOTV returns the loss of one token, its derivative, and whether the token was
// dropped because its probability has moved too far in the direction of the advantage:
//
//	keep: e^new - e^old <= clipHigh where A > 0, e^new - e^old >= -clipLow elsewhere
//	c = min(rho, ratioCap), and 0 where not kept     l = -c A new     l' = -c A
func DPPOTV(logprob, oldLogprob, advantage, clipLow, clipHigh, ratioCap float64) (l, derivative float64, clipped bool) {
	moved := math.Exp(logprob) - math.Exp(oldLogprob)
	if advantage > 0 {
		clipped = moved > clipHigh
	} else {
		clipped = moved < -clipLow
	}
	if clipped {
		return 0, 0, true
	}
	rho, _ := Ratio(logprob, oldLogprob)
	c := min(rho, ratioCap)
	return -c * advantage * logprob, -c * advantage, false
}

// DPPOKL is DPPOTV with the divergence of two coins, which show heads with the
// probabilities q = e^old and p = e^new, in the place of p - q:
//
//	kl = q (old - new) + (1 - q) log((1 - q + 1e-8) / (1 - p + 1e-8))
//	keep: kl <= clipHigh or p <= q where A > 0, kl <= clipLow or p >= q elsewhere
//
// A token whose probability goes back towards the old one is kept however far it is.
func DPPOKL(logprob, oldLogprob, advantage, clipLow, clipHigh, ratioCap float64) (l, derivative float64, clipped bool) {
	p, q := math.Exp(logprob), math.Exp(oldLogprob)
	kl := q*(oldLogprob-logprob) + (1-q)*math.Log((1-q+1e-8)/(1-p+1e-8))
	if advantage > 0 {
		clipped = !(kl <= clipHigh || p <= q)
	} else {
		clipped = !(kl <= clipLow || p >= q)
	}
	if clipped {
		return 0, 0, true
	}
	rho, _ := Ratio(logprob, oldLogprob)
	c := min(rho, ratioCap)
	return -c * advantage * logprob, -c * advantage, false
}

// DRO returns the loss of one token and its derivative, with d = new - old, which is not
// clamped:
//
//	l = -(A new - beta d^2 / 2)     l' = -(A - beta d)
func DRO(logprob, oldLogprob, advantage, beta float64) (l, derivative float64) {
	d := logprob - oldLogprob
	pull := float64(beta * d) // rounded: where it equals the advantage, a fused product leaves what rounding took
	return -(advantage*logprob - pull*d/2), -(advantage - pull)
}

// VESPOFactor returns the factor phi of the tokens of a trajectory, a constant to the
// gradient, from the log-probabilities of its response tokens:
//
//	y   = clamp(sum clamp(new - old, -20, 20), log 1e-8, 20)
//	phi = exp(decay + power y - decay e^y)
//
// The loss of a token is -phi A new.
func VESPOFactor(logprobs, oldLogprobs []float64, power, decay float64) float64 {
	d := make([]float64, len(logprobs))
	for t := range d {
		d[t] = clamp(logprobs[t]-oldLogprobs[t], -logRatioLimit, logRatioLimit)
	}
	y := clamp(sum(d), math.Log(1e-8), 20)
	return math.Exp(decay + power*y - decay*math.Exp(y))
}
