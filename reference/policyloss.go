package reference

import (
	"fmt"
	"math"
)

// A Policy is a loss of tokens that PolicyLoss knows. The clipped surrogate of PPO
// has a function of its own, Loss.
type Policy string

// The policy losses.
const (
	PolicyGSPO   Policy = "gspo"    // the ratio of the sequence, clipped (arXiv:2507.18071)
	PolicyGRPOS  Policy = "grpo_s"  // the mean ratio over the sequence, clipped (arXiv:2508.04349)
	PolicyCISPO  Policy = "cispo"   // arXiv:2506.13585
	PolicySAPO   Policy = "sapo"    // arXiv:2511.20347
	PolicyPG     Policy = "pg"      // verl: gpg
	PolicyDPPOTV Policy = "dppo_tv" // arXiv:2602.04879
	PolicyVESPO  Policy = "vespo"   // arXiv:2602.10693
)

// A Sequence says over which tokens GSPO and GRPO-S take the ratio.
type Sequence string

// The sequences.
const (
	SequenceTrajectory Sequence = "trajectory"
	SequenceSpan       Sequence = "span" // turn by turn
)

// PolicyOptions are the parameters of PolicyLoss. The dual clip is for GSPO and
// GRPO-S only.
type PolicyOptions struct {
	LossOptions
	Policy   Policy
	Sequence Sequence // GSPO, GRPO-S: the tokens that share a ratio

	TauPos, TauNeg     float64 // SAPO: temperature where A > 0 and elsewhere
	RatioCap           float64 // DPPO-TV: the largest ratio
	PowerPos, DecayPos float64 // VESPO: k and b where A >= 0, at least 0
	PowerNeg, DecayNeg float64 // and where A < 0
}

// The constants of the papers. LUSPO (arXiv:2602.05261) is GSPO with another
// aggregation.
var (
	DefaultGSPO = PolicyOptions{Policy: PolicyGSPO, Sequence: SequenceTrajectory,
		LossOptions: LossOptions{ClipLow: 3e-4, ClipHigh: 4e-4, Aggregation: SeqMeanTokenMean}}
	DefaultLUSPO = PolicyOptions{Policy: PolicyGSPO, Sequence: SequenceTrajectory,
		LossOptions: LossOptions{ClipLow: 3e-4, ClipHigh: 4e-4, Aggregation: SeqMeanTokenSum}}
	DefaultGRPOSLoss = PolicyOptions{Policy: PolicyGRPOS, Sequence: SequenceTrajectory,
		LossOptions: LossOptions{ClipLow: 0.2, ClipHigh: 0.28, Aggregation: SeqMeanTokenMean}}
	DefaultCISPO = PolicyOptions{Policy: PolicyCISPO,
		LossOptions: LossOptions{ClipLow: 1, ClipHigh: 4, Aggregation: TokenMean}}
	DefaultSAPO = PolicyOptions{Policy: PolicySAPO, TauPos: 1, TauNeg: 1.05,
		LossOptions: LossOptions{Aggregation: SeqMeanTokenMean}}
	DefaultPG     = PolicyOptions{Policy: PolicyPG, LossOptions: LossOptions{Aggregation: TokenMean}}
	DefaultDPPOTV = PolicyOptions{Policy: PolicyDPPOTV, RatioCap: 20,
		LossOptions: LossOptions{ClipLow: 0.2, ClipHigh: 0.2, Aggregation: TokenMean}}
	DefaultVESPO = PolicyOptions{Policy: PolicyVESPO, PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2,
		LossOptions: LossOptions{Aggregation: TokenMean}}
)

// PolicyLoss returns the loss of a batch, its gradient and two diagnostics as Loss
// does, with another loss l of each token. role, logprobs, oldLogprobs, advantages
// and weights are [T], offsets [S+1]; spanIDs is [T] with SequenceSpan, and not read
// otherwise. If the weights that divide a sum add up to 0, that sum is 0.
func PolicyLoss(role []Role, offsets []int64, spanIDs []int32, logprobs, oldLogprobs, advantages, weights []float64, opt PolicyOptions) (LossResult, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("logprobs", logprobs, role),
		checkResponse("oldLogprobs", oldLogprobs, role),
		checkResponse("advantages", advantages, role),
		checkResponse("weights", weights, role),
		checkAggregation(opt.Aggregation, opt.NormLength),
		opt.check(),
	); err != nil {
		return LossResult{}, err
	}
	T := len(role)
	l := make([]float64, T)
	derivative := make([]float64, T)
	clipped := make([]bool, T)

	sequences := responseTokens(role, offsets)
	if opt.Sequence == SequenceSpan && (opt.Policy == PolicyGSPO || opt.Policy == PolicyGRPOS) {
		if _, err := responseSpans(role, spanIDs, offsets); err != nil {
			return LossResult{}, err
		}
		sequences = spanTokens(role, spanIDs)
	}
	for _, tokens := range sequences {
		if len(tokens) == 0 {
			continue
		}
		new, old := pick(logprobs, tokens), pick(oldLogprobs, tokens)
		gspo, gspoSlope := GSPORatio(new, old)
		grpos := GRPOSRatio(new, old)
		phi := VESPOFactor(new, old, opt.PowerPos, opt.DecayPos)
		phiNeg := VESPOFactor(new, old, opt.PowerNeg, opt.DecayNeg)
		for i, t := range tokens {
			A := advantages[t]
			switch opt.Policy {
			case PolicyGSPO:
				l[t], derivative[t], clipped[t] = ClippedRatio(gspo, gspoSlope, A, opt.ClipLow, opt.ClipHigh, opt.DualClip)
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
			case PolicyVESPO:
				factor := phi
				if A < 0 {
					factor = phiNeg
				}
				l[t], derivative[t] = -factor*A*new[i], -factor*A
			}
		}
	}

	loss := LossResult{Gradient: make([]float64, T)}
	scale := tokenScales(role, offsets, weights, opt.LossOptions)
	response := 0
	for t, r := range role {
		if r == RoleMasked {
			continue
		}
		loss.Loss += scale[t] * weights[t] * l[t]
		loss.Gradient[t] = scale[t] * weights[t] * derivative[t]
		loss.MeanLogRatio += clamp(logprobs[t]-oldLogprobs[t], -logRatioLimit, logRatioLimit)
		if clipped[t] {
			loss.ClipFraction++
		}
		response++
	}
	if response > 0 {
		loss.ClipFraction /= float64(response)
		loss.MeanLogRatio /= float64(response)
	}
	return loss, nil
}

func (opt *PolicyOptions) check() error {
	switch opt.Policy {
	case PolicyGSPO, PolicyGRPOS:
		if opt.Sequence != SequenceTrajectory && opt.Sequence != SequenceSpan {
			return fmt.Errorf("reference: opt.Sequence = %q, want %q or %q", opt.Sequence, SequenceTrajectory, SequenceSpan)
		}
		return first(
			checkAtLeast("opt.ClipLow", opt.ClipLow, 0),
			checkAtLeast("opt.ClipHigh", opt.ClipHigh, 0),
			checkDualClip(opt.DualClip),
		)
	case PolicyCISPO:
		return first(checkAtLeast("opt.ClipLow", opt.ClipLow, 0), checkAtLeast("opt.ClipHigh", opt.ClipHigh, 0))
	case PolicySAPO:
		return first(checkAbove0("opt.TauPos", opt.TauPos), checkAbove0("opt.TauNeg", opt.TauNeg))
	case PolicyDPPOTV:
		return first(
			checkAtLeast("opt.ClipLow", opt.ClipLow, 0),
			checkAtLeast("opt.ClipHigh", opt.ClipHigh, 0),
			checkAbove0("opt.RatioCap", opt.RatioCap),
		)
	case PolicyVESPO:
		return first(
			checkAtLeast("opt.PowerPos", opt.PowerPos, 0),
			checkAtLeast("opt.DecayPos", opt.DecayPos, 0),
			checkAtLeast("opt.PowerNeg", opt.PowerNeg, 0),
			checkAtLeast("opt.DecayNeg", opt.DecayNeg, 0),
		)
	case PolicyPG:
		return nil
	}
	return fmt.Errorf("reference: opt.Policy = %q, want %q, %q, %q, %q, %q, %q or %q", opt.Policy,
		PolicyGSPO, PolicyGRPOS, PolicyCISPO, PolicySAPO, PolicyPG, PolicyDPPOTV, PolicyVESPO)
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
// The derivative is -A slope, and 0 where L2 > L1 and where the dual clip acts.
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
