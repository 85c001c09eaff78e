package reweight

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// A PolicyLoss is the loss l of a token that Loss aggregates, with its derivative l' by
// the token's log-probability. With raw = log pi - log pi_old, d = clamp(raw, -20, 20),
// rho = e^d and clip(x) = clamp(x, 1-ClipLow, 1+ClipHigh):
//
//	PolicyPPO      l = max(-A s, -A clip(s)); where A < 0: min(l, -A DualClip)
//	               s = rho    l' = -A rho
//	PolicyGSPO     the same with s = exp(min(mean raw, 10)) over the sequence    l' = -A s
//	PolicyGRPOS    the same with s = mean rho over the sequence    l' = -A rho
//	PolicyCISPO    l = -c A log pi    l' = -c A    c = clip(rho)
//	PolicySAPO     l = -A 4 s / tau    l' = -A 4 s (1 - s) rho    s = sigmoid(tau (rho - 1))
//	PolicyPG       l = -A log pi    l' = -A
//	PolicyDPPOTV   l = -c A log pi    l' = -c A    c = min(rho, RatioCap), but 0 where
//	               pi - pi_old > ClipHigh and A > 0, or pi - pi_old < -ClipLow and A <= 0
//	PolicyVESPO    l = -phi A log pi    l' = -phi A    phi = exp(Decay + Power y - Decay e^y)
//	               y = clamp(sum d, log 1e-8, 20) over the trajectory
//	PolicyDPPOKL   as PolicyDPPOTV, with c 0 where kl > ClipHigh, A > 0 and pi > pi_old, or
//	               kl > ClipLow, A <= 0 and pi < pi_old; with q = pi_old,
//	               kl = q log(q/pi) + (1-q) log((1-q + 1e-8) / (1-pi + 1e-8))
//	PolicyDRO      l = -(A log pi - Beta raw^2 / 2)    l' = -(A - Beta raw)
//	PolicyGMPO     of a trajectory with n response tokens: -A_q rho_q
//	               A_q = sum A / (n + 1e-8)    rho_q = exp(min(sum m / (n + 1e-8), 20))
//	               m = s min(s raw, s clamp(raw, -ClipLow, ClipHigh)), s the sign of A, -1, 0 or 1
//	PolicyClipCov  as PolicyPPO without the dual clip; at chosen tokens l = 0 and l' = 0
//	PolicyKLCov    l = -A rho, and + CovCoef |raw| at chosen tokens    l' = -A rho, and + CovCoef sign(raw)
//
// In the first three l' is 0 where l is not -A s. Where l' has rho in it, l' is 0 where d
// is not raw; so is GSPO's where the mean is above 10, and GMPO's where it is above 20.
// GSPO and GRPO-S have their token-level forms: l has the ratio of the sequence, and each
// token has a derivative of its own. Where A and the weights are the same in all of a
// sequence, the sum is the sequence's loss, and its gradient. The factors c and phi are
// constants to the derivative, so that a clipped token still has one, and the value of a
// loss with log pi in it means nothing by itself.
//
// Clip-Cov and KL-Cov choose among the n response tokens of the call by the covariance
// c = (A - mean A) (log pi - mean log pi), whose means are over these tokens, and which is a
// constant to the derivative. KL-Cov chooses the max(1, floor(CovShare n)) with the largest
// c, of equal ones the first. Clip-Cov chooses as many of those where -A clip(rho) is not
// the larger and CovLow < c < CovHigh, at random: token t has number t of the generator
// SplitMix64 whose state is Seed, and the lowest numbers are chosen. Give each step its own
// Seed.
//
// GMPO's loss is the mean over all trajectories of the batch, whatever Aggregation says,
// which is that of the KL alone. One without response tokens adds 0 and counts.
//
// GMPO has one advantage for each trajectory, Clip-Cov and KL-Cov choose tokens by A, and
// the penalties of KL-Cov and DRO are not scaled by A. So a factor of A or a weight of a
// token would mean something else than in the other losses: weights other than nil are an
// error with these four.
//
// A token counts as clipped in the first three where -A clip(s) is the larger, in CISPO
// where c is not rho, in DPPO-TV and DPPO-KL where c is 0, in GMPO where m is not raw and A
// is not 0, and in Clip-Cov also where it is chosen; in the others none does.
type PolicyLoss uint8

const (
	PolicyPPO     PolicyLoss = iota // clipped surrogate (arXiv 1707.06347), with the dual clip (arXiv 1912.09729)
	PolicyGSPO                      // ratio of the sequence (arXiv 2507.18071); LUSPO (arXiv 2602.05261) with SeqMeanTokenSum
	PolicyGRPOS                     // mean ratio of the sequence (arXiv 2508.04349)
	PolicyCISPO                     // clipped ratio as a factor (arXiv 2506.13585)
	PolicySAPO                      // soft clip (arXiv 2511.20347)
	PolicyPG                        // policy gradient without a ratio (GPG)
	PolicyDPPOTV                    // trust region in total variation (arXiv 2602.04879)
	PolicyVESPO                     // soft factor of the trajectory's ratio (arXiv 2602.10693)
	PolicyDPPOKL                    // trust region in the divergence of two outcomes (arXiv 2602.04879)
	PolicyDRO                       // policy gradient with a quadratic penalty (verl)
	PolicyGMPO                      // geometric mean of the ratios of a trajectory (arXiv 2507.20673)
	PolicyClipCov                   // some tokens of high covariance are left out (arXiv 2505.22617)
	PolicyKLCov                     // those of the highest have a penalty (arXiv 2505.22617)
)

// PolicyTraits say what is true of a policy loss besides its formula.
type PolicyTraits struct {
	Clips      bool // ClipLow and ClipHigh are options of it, and both 0 are an error
	Valueless  bool // log pi is in its value, which means nothing by itself: its gradient does
	BySequence bool // the factor of a token is that of its sequence, so that it reads SeqOffsets
	Spans      bool // Sequence is an option of it: the sequence may be the span
	Chooses    bool // it chooses among the tokens of the call
	Unweighted bool // it has no factors of A and no weights of tokens, which would mean something else in it
}

// Traits returns what is true of the loss; nothing is of one that there is not.
func (p PolicyLoss) Traits() PolicyTraits {
	if int(p) < len(policies) {
		return policies[p].traits
	}
	return PolicyTraits{}
}

// policies has the name, the variable with the constants and the traits of each policy loss.
var policies = [...]struct {
	name, defaults string
	traits         PolicyTraits
}{
	PolicyPPO:     {"ppo", "DefaultLoss", PolicyTraits{Clips: true}},
	PolicyGSPO:    {"gspo", "DefaultGSPO", PolicyTraits{Clips: true, BySequence: true, Spans: true}},
	PolicyGRPOS:   {"grpo_s", "DefaultGRPOSLoss", PolicyTraits{Clips: true, BySequence: true, Spans: true}},
	PolicyCISPO:   {"cispo", "DefaultCISPO", PolicyTraits{Clips: true, Valueless: true}},
	PolicySAPO:    {"sapo", "DefaultSAPO", PolicyTraits{}},
	PolicyPG:      {"pg", "DefaultPG", PolicyTraits{Valueless: true}},
	PolicyDPPOTV:  {"dppo_tv", "DefaultDPPOTV", PolicyTraits{Clips: true, Valueless: true}},
	PolicyVESPO:   {"vespo", "DefaultVESPO", PolicyTraits{Valueless: true, BySequence: true}},
	PolicyDPPOKL:  {"dppo_kl", "DefaultDPPOKL", PolicyTraits{Clips: true, Valueless: true}},
	PolicyDRO:     {"dro", "DefaultDRO", PolicyTraits{Valueless: true, Unweighted: true}},
	PolicyGMPO:    {"gmpo", "DefaultGMPO", PolicyTraits{Clips: true, BySequence: true, Unweighted: true}},
	PolicyClipCov: {"clip_cov", "DefaultClipCov", PolicyTraits{Clips: true, Chooses: true, Unweighted: true}},
	PolicyKLCov:   {"kl_cov", "DefaultKLCov", PolicyTraits{Chooses: true, Unweighted: true}},
}

var policyNames = func() (names [len(policies)]string) {
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}()

// String and MarshalText return the loss's name, as flags and reports have it, and UnmarshalText takes it.
func (p PolicyLoss) String() string               { return nameOf(p, policyNames[:]) }
func (p PolicyLoss) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
func (p *PolicyLoss) UnmarshalText(name []byte) error {
	return parseName(p, "Policy", name, policyNames[:])
}

// A Sequence says over which tokens GSPO and GRPO-S take the ratio.
type Sequence uint8

const (
	SequenceTrajectory Sequence = iota // all response tokens of a trajectory
	SequenceSpan                       // those of a span: turn by turn
)

var sequenceNames = [...]string{"trajectory", "span"}

// String and MarshalText return the sequence's name, as flags and reports have it, and UnmarshalText takes it.
func (s Sequence) String() string               { return nameOf(s, sequenceNames[:]) }
func (s Sequence) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s *Sequence) UnmarshalText(name []byte) error {
	return parseName(s, "Sequence", name, sequenceNames[:])
}

// The constants of each policy loss besides [DefaultLoss], which is PPO: the papers', and
// for the bounds of CISPO, of which the paper has none, the cap of 5 that TRL recommends.
var (
	DefaultGSPO      = LossOptions{Policy: PolicyGSPO, ClipLow: 3e-4, ClipHigh: 4e-4, Aggregation: SeqMeanTokenMean}
	DefaultLUSPO     = LossOptions{Policy: PolicyGSPO, ClipLow: 3e-4, ClipHigh: 4e-4, Aggregation: SeqMeanTokenSum}
	DefaultGRPOSLoss = LossOptions{Policy: PolicyGRPOS, ClipLow: 0.2, ClipHigh: 0.28, Aggregation: SeqMeanTokenMean}
	DefaultCISPO     = LossOptions{Policy: PolicyCISPO, ClipLow: 1, ClipHigh: 4}
	DefaultSAPO      = LossOptions{Policy: PolicySAPO, TauPos: 1, TauNeg: 1.05, Aggregation: SeqMeanTokenMean}
	DefaultPG        = LossOptions{Policy: PolicyPG}
	DefaultDPPOTV    = LossOptions{Policy: PolicyDPPOTV, ClipLow: 0.2, ClipHigh: 0.2, RatioCap: 20}
	DefaultVESPO     = LossOptions{Policy: PolicyVESPO, PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2}

	DefaultDPPOKL  = LossOptions{Policy: PolicyDPPOKL, ClipLow: 0.05, ClipHigh: 0.05, RatioCap: 20}
	DefaultDRO     = LossOptions{Policy: PolicyDRO} // Beta has no default
	DefaultGMPO    = LossOptions{Policy: PolicyGMPO, ClipLow: 0.4, ClipHigh: 0.4}
	DefaultClipCov = LossOptions{Policy: PolicyClipCov, ClipLow: 0.2, ClipHigh: 0.2, CovShare: 0.0002, CovLow: 1, CovHigh: 5}
	DefaultKLCov   = LossOptions{Policy: PolicyKLCov, CovShare: 0.0002, CovCoef: 1}
)

// checkPolicy says which option of the policy is out of range.
func (opt *LossOptions) checkPolicy() error {
	if err := checkName("Policy", opt.Policy, policyNames[:]); err != nil {
		return err
	}
	switch opt.Policy {
	case PolicyPPO, PolicyGSPO, PolicyGRPOS, PolicyClipCov:
		if err := cmp.Or(checkRange("ClipLow", opt.ClipLow, 0, 1), checkNotNegative("ClipHigh", opt.ClipHigh)); err != nil {
			return err
		}
		switch {
		case opt.Policy == PolicyClipCov:
			return opt.checkCov()
		case opt.DualClip != 0 && !(opt.DualClip > 1 && opt.DualClip <= math.MaxFloat32):
			return badInput("DualClip", problem.DualClip, opt.DualClip)
		case opt.traits().Spans:
			return checkName("Sequence", opt.Sequence, sequenceNames[:])
		}
	case PolicyCISPO, PolicyDPPOTV, PolicyDPPOKL, PolicyGMPO:
		if err := cmp.Or(checkNotNegative("ClipLow", opt.ClipLow), checkNotNegative("ClipHigh", opt.ClipHigh)); err != nil {
			return err
		}
		if opt.Policy == PolicyDPPOTV || opt.Policy == PolicyDPPOKL {
			return checkPositive("RatioCap", opt.RatioCap, math.MaxFloat32)
		}
	case PolicySAPO:
		return cmp.Or(checkTemperature("TauPos", opt.TauPos), checkTemperature("TauNeg", opt.TauNeg))
	case PolicyDRO:
		return checkPositive("Beta", opt.Beta, math.MaxFloat32)
	case PolicyKLCov:
		return cmp.Or(checkNotNegative("CovCoef", opt.CovCoef), opt.checkCov())
	case PolicyVESPO:
		return cmp.Or(
			checkNotNegative("PowerPos", opt.PowerPos),
			checkNotNegative("DecayPos", opt.DecayPos),
			checkNotNegative("PowerNeg", opt.PowerNeg),
			checkNotNegative("DecayNeg", opt.DecayNeg),
		)
	}
	return nil
}

// checkCov says which option of the choice of tokens is out of range.
func (opt *LossOptions) checkCov() error {
	return cmp.Or(
		checkShare("CovShare", opt.CovShare),
		checkFinite64("CovLow", opt.CovLow),
		checkAtLeast("CovHigh", opt.CovHigh, opt.CovLow, "CovLow"),
	)
}

// checkSet wants numbers of the policy that are not all 0.
func (opt *LossOptions) checkSet() error {
	defaults := policies[opt.Policy].defaults
	switch {
	case opt.traits().Clips:
		return checkEither("ClipLow", opt.ClipLow, "ClipHigh", opt.ClipHigh, defaults)
	case opt.Policy == PolicyVESPO && opt.PowerPos == 0 && opt.DecayPos == 0 && opt.PowerNeg == 0 && opt.DecayNeg == 0:
		return badInput("PowerPos", problem.Zeros, "DecayPos, PowerNeg and DecayNeg", defaults)
	}
	return nil
}

// traits returns those of the policy.
func (opt *LossOptions) traits() PolicyTraits { return opt.Policy.Traits() }

// bySpan reports whether the sequence of the policy is the span.
func (opt *LossOptions) bySpan() bool { return opt.Sequence == SequenceSpan && opt.traits().Spans }

// lossTokens are the arrays that the terms of a loss are computed from, and the
// gradient. weights may be nil, for ones.
type lossTokens struct {
	grad, logprobs, old, advantages, weights []float32
	role                                     []Role
	chosen                                   []float32 // of a policy that chooses tokens: what choose has made
}

// slice returns tokens from to to.
func (x *lossTokens) slice(from, to int) lossTokens {
	y := lossTokens{x.grad[from:to], x.logprobs[from:to], x.old[from:to], x.advantages[from:to], nil, x.role[from:to], nil}
	if x.weights != nil {
		y.weights = x.weights[from:to]
	}
	if x.chosen != nil {
		y.chosen = x.chosen[from:to]
	}
	return y
}

// segment computes the terms of the tokens x, which are those of the batch from token
// from on, whole trajectories of it, and returns their sums. spans are those of the batch
// where the sequence is a span.
func (ws *Workspace) segment(
	isa ISA, x *lossTokens, b *Batch, from int, spans []sequenceSum, scale float64, opt *LossOptions,
) SurrogateSums {
	ws.kernels.surrogate = surrogateSums{}
	n := len(x.role)
	switch {
	case opt.bySpan():
		for at := 0; at < n; {
			end, span := runOf(b.SpanIDs[from:], x.role, at)
			var f sequenceFactors
			if span >= 0 {
				f.set(spans[span], opt)
			}
			run := x.slice(at, end)
			ws.policyLoss(isa, &run, float32(scale), &f, opt)
			at = end
		}
	case opt.traits().BySequence:
		s, _ := slices.BinarySearch(b.SeqOffsets, int64(from))
		for at := 0; at < n; s++ {
			end := int(b.SeqOffsets[s+1]) - from
			trajectory := x.slice(at, end)
			ws.sequence(isa, &trajectory, scale, opt)
			at = end
		}
	default:
		ws.sequence(isa, x, scale, opt)
	}
	return ws.kernels.surrogate.result()
}

// runOf returns the end of the tokens, from the first on, whose response tokens are all
// of one span, and that span; -1 if there are no response tokens.
func runOf(spans []int32, role []Role, first int) (end int, span int32) {
	span = -1
	for t := first; t < len(role); t++ {
		switch {
		case role[t] == RoleMasked || spans[t] == span:
		case span >= 0:
			return t, span
		default:
			span = spans[t]
		}
	}
	return len(role), span
}

// sequence adds the terms of the tokens to the sums. They are one sequence to the
// policies that have a factor of the sequence.
func (ws *Workspace) sequence(isa ISA, x *lossTokens, scale float64, opt *LossOptions) {
	f := sequenceFactors{linear: [2]float32{1, 1}, slope: [2]float32{1, 1}} // of PolicyPG
	switch opt.Policy {
	case PolicyPPO:
		ws.clippedSurrogate(isa, x, scale, opt)
		return
	case PolicyGMPO:
		ws.geometricMean(x, scale, opt)
		return
	case PolicyClipCov:
		ws.clipCov(isa, x, scale, opt)
		return
	case PolicyKLCov:
		ws.klCov(isa, x, scale, opt)
		return
	case PolicyGSPO, PolicyGRPOS, PolicyVESPO:
		f = sequenceFactors{}
		f.set(ws.sumSequence(isa, x, opt), opt)
	}
	ws.policyLoss(isa, x, float32(scale), &f, opt)
}

// clippedSurrogate adds the terms of PPO to the sums.
func (ws *Workspace) clippedSurrogate(isa ISA, x *lossTokens, scale float64, opt *LossOptions) {
	q := surrogateConsts{lo: float32(1 - opt.ClipLow), hi: float32(1 + opt.ClipHigh), dual: float32(opt.DualClip), scale: float32(scale)}
	if opt.DualClip == 0 {
		q.dual = float32(math.Inf(1))
	}
	for i := 0; i < len(x.role); i += pieceSize {
		y := x.slice(i, min(i+pieceSize, len(x.role)))
		isa.surrogate(y.grad, y.logprobs, y.old, y.advantages, y.weights, y.role, &q, &ws.kernels.surrogate)
	}
}

// result returns the sums.
func (s *surrogateSums) result() SurrogateSums {
	return SurrogateSums{int(s.tokens), int(s.clipped), s.loss.sum(), s.logRatio.sum()}
}

// A sequenceSum is what the factor of a sequence is computed from, summed over its n response
// tokens: log-ratios for GSPO, ratios for GRPO-S, clamped log-ratios for VESPO.
type sequenceSum struct {
	sum float64
	n   int
}

// sumSequence returns the sum of the tokens of a sequence.
func (ws *Workspace) sumSequence(isa ISA, x *lossTokens, opt *LossOptions) (s sequenceSum) {
	if opt.Policy == PolicyGRPOS {
		all := RolloutCorrectionOptions{High: math.MaxFloat32}
		return sequenceSum{ws.importance(isa, nil, x.logprobs, x.old, x.role, &all), responses(x.role)}
	}
	s.sum, s.n = sumLogRatios(x.logprobs, x.old, x.role, opt.Policy == PolicyVESPO)
	return s
}

// sumSpans checks the spans of the batch and returns the sums of each.
func (ws *Workspace) sumSpans(isa ISA, b *Batch, opt *LossOptions) ([]sequenceSum, error) {
	count, err := ws.countSpans(b)
	if err != nil {
		return nil, err
	}
	spans := take[sequenceSum](ws, len(count))
	clear(spans)
	for at := 0; at < b.Tokens(); {
		end, span := runOf(b.SpanIDs, b.Role, at)
		if span >= 0 {
			x := lossTokens{logprobs: b.Logprobs[at:end], old: b.OldLogprobs[at:end], role: b.Role[at:end]}
			run := ws.sumSequence(isa, &x, opt)
			spans[span].sum += run.sum
			spans[span].n += run.n
		}
		at = end
	}
	return spans, nil
}

// The largest mean log-ratio of a sequence that GSPO takes the exponential of (verl),
// and what VESPO keeps the log-ratio of a trajectory between.
const (
	maxMeanLogRatio  = 10
	minVESPOLogRatio = -18.420680743952367 // log 1e-8
	maxVESPOLogRatio = 20
)

// set sets the factors of a sequence with that sum.
func (f *sequenceFactors) set(of sequenceSum, opt *LossOptions) {
	mean := of.sum / float64(max(1, of.n))
	switch opt.Policy {
	case PolicyGSPO:
		s := exp64(min(mean, maxMeanLogRatio))
		slope := s
		if mean > maxMeanLogRatio {
			slope = 0
		}
		f.clip(s, slope, opt)
	case PolicyGRPOS:
		f.tokenRatio = true
		f.clip(mean, 1, opt)
	case PolicyVESPO:
		y := max(minVESPOLogRatio, min(maxVESPOLogRatio, of.sum))
		f.linear = [2]float32{vespoFactor(y, opt.PowerPos, opt.DecayPos), vespoFactor(y, opt.PowerNeg, opt.DecayNeg)}
		f.slope = f.linear
	}
}

// clip sets the factors of a sequence of ratio s, as PPO clips the ratio of a token.
func (f *sequenceFactors) clip(s, slope float64, opt *LossOptions) {
	high, low := s, s // the ratio where A >= 0, and where A < 0
	f.slope = [2]float32{float32(slope), float32(slope)}
	if most := 1 + opt.ClipHigh; s > most {
		high, f.slope[0], f.clips[0] = most, 0, 1
	}
	if least := 1 - opt.ClipLow; s < least {
		low, f.slope[1], f.clips[1] = least, 0, 1
	}
	if opt.DualClip != 0 && low > opt.DualClip {
		low, f.slope[1] = opt.DualClip, 0
	}
	f.value = [2]float32{float32(high), float32(low)}
}

// vespoFactor returns phi, at most what float32 can hold.
func vespoFactor(y, power, decay float64) float32 {
	exponent := decay + float64(power*y) - float64(decay*exp64(y))
	return float32(min(math.MaxFloat32, exp64(exponent)))
}
