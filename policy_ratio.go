package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// The policy losses that clip a ratio: of the token, of the sequence, or of a trajectory.

// PPO is the clipped surrogate (arXiv 1707.06347), with the dual clip (arXiv 1912.09729):
//
//	l = max(-A rho, -A clip(rho)); where A < 0: min(l, -A DualClip)
//	l' = -A rho where l is -A rho, else 0
//
// A token counts as clipped where -A clip(rho) is the larger. PPO takes values of response
// tokens that are not finite as they are. ClipLow and ClipHigh that are both 0 are an error:
// nobody has set them. One of them may be 0.
type PPO struct {
	ClipLow  float64 // in [0, 1]
	ClipHigh float64 // at least 0
	DualClip float64 // where A < 0, l is at most -A times this: above 1, or 0 for none
}

// DefaultLoss is PPO with the constants of DAPO and verl: clip-higher, dual clip 3.
var DefaultLoss = LossOptions{Policy: PPO{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3}, Aggregation: TokenMean}

func (PPO) String() string { return "ppo" }

func (PPO) Traits() PolicyTraits { return PolicyTraits{Clips: true, AnyValues: true} }

func (p PPO) check() error {
	return cmp.Or(p.checkRanges(), checkClips(p.ClipLow, p.ClipHigh, "DefaultLoss"))
}

// checkRanges says which constant is out of range.
func (p PPO) checkRanges() error {
	err := cmp.Or(checkRange("ClipLow", p.ClipLow, 0, 1), checkNotNegative("ClipHigh", p.ClipHigh))
	if err == nil && p.DualClip != 0 && !(p.DualClip > 1 && p.DualClip <= math.MaxFloat32) {
		err = badInput("DualClip", problem.DualClip, p.DualClip)
	}
	return err
}

// checkClips wants one of the clips to be another than 0.
func checkClips(low, high float64, defaults string) error {
	return checkEither("ClipLow", low, "ClipHigh", high, defaults)
}

func (p PPO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	q := surrogateConsts{lo: float32(1 - p.ClipLow), hi: float32(1 + p.ClipHigh), dual: float32(p.DualClip),
		scale: float32(scale)}
	if p.DualClip == 0 {
		q.dual = float32(math.Inf(1))
	}
	for i := 0; i < len(x.role); i += pieceSize {
		y := x.slice(i, min(i+pieceSize, len(x.role)))
		isa.surrogate(y.grad, y.logprobs, y.old, y.advantages, y.weights, y.role, &q, &ws.kernels.surrogate)
	}
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

// GSPO is PPO with the ratio of the sequence (arXiv 2507.18071); LUSPO (arXiv 2602.05261) is
// GSPO with SeqMeanTokenSum:
//
//	s = exp(min(mean of log pi - log pi_old over the sequence, 10))
//	l = max(-A s, -A clip(s)); where A < 0: min(l, -A DualClip)
//	l' = -A s where l is -A s and the mean is at most 10, else 0
//
// This is the form with a loss for each token: where A and the weights are the same in all of
// a sequence, the sum is the sequence's loss, and its gradient. A token counts as clipped
// where -A clip(s) is the larger. ClipLow and ClipHigh that are both 0 are an error.
type GSPO struct {
	ClipLow  float64  // in [0, 1]
	ClipHigh float64  // at least 0
	DualClip float64  // where A < 0, l is at most -A times this: above 1, or 0 for none
	Sequence Sequence // the tokens that share a ratio
}

// DefaultGSPO and DefaultLUSPO have the papers' constants.
var (
	DefaultGSPO  = LossOptions{Policy: GSPO{ClipLow: 3e-4, ClipHigh: 4e-4}, Aggregation: SeqMeanTokenMean}
	DefaultLUSPO = LossOptions{Policy: GSPO{ClipLow: 3e-4, ClipHigh: 4e-4}, Aggregation: SeqMeanTokenSum}
)

func (GSPO) String() string { return "gspo" }

func (p GSPO) Traits() PolicyTraits {
	return PolicyTraits{Clips: true, BySequence: true, BySpan: p.Sequence == SequenceSpan}
}

func (p GSPO) bounds() PPO { return PPO{p.ClipLow, p.ClipHigh, p.DualClip} }

func (p GSPO) check() error {
	return cmp.Or(p.bounds().checkRanges(), checkName("Sequence", p.Sequence, sequenceNames[:]),
		checkClips(p.ClipLow, p.ClipHigh, "DefaultGSPO"))
}

// maxMeanLogRatio is the largest mean log-ratio that GSPO takes the exponential of (verl).
const maxMeanLogRatio = 10

// sum is over log-ratios.
func (GSPO) sum(_ *Workspace, _ ISA, x lossTokens) (s sequenceSum) {
	s.sum, s.n = sumLogRatios(x.logprobs, x.old, x.role, false)
	return s
}

func (p GSPO) factors(of sequenceSum) (f sequenceFactors) {
	mean := of.sum / float64(max(1, of.n))
	s := exp64(min(mean, maxMeanLogRatio))
	slope := s
	if mean > maxMeanLogRatio {
		slope = 0
	}
	f.clip(s, slope, p.bounds())
	return f
}

func (p GSPO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.sequenceTerms(isa, &x, scale, p.factors(p.sum(ws, isa, x)))
}

// GRPOS is PPO with the mean ratio of the sequence (GRPO-S, arXiv 2508.04349):
//
//	s = mean of rho over the sequence
//	l = max(-A s, -A clip(s)); where A < 0: min(l, -A DualClip)
//	l' = -A rho where l is -A s, else 0
//
// As GSPO it has a loss for each token. A token counts as clipped where -A clip(s) is the
// larger. ClipLow and ClipHigh that are both 0 are an error.
type GRPOS struct {
	ClipLow  float64  // in [0, 1]
	ClipHigh float64  // at least 0
	DualClip float64  // where A < 0, l is at most -A times this: above 1, or 0 for none
	Sequence Sequence // the tokens that share a ratio
}

// DefaultGRPOSLoss has the paper's constants. DefaultGRPOS is of the advantages.
var DefaultGRPOSLoss = LossOptions{Policy: GRPOS{ClipLow: 0.2, ClipHigh: 0.28}, Aggregation: SeqMeanTokenMean}

func (GRPOS) String() string { return "grpo_s" }

func (p GRPOS) Traits() PolicyTraits { return GSPO(p).Traits() }

func (p GRPOS) check() error {
	return cmp.Or(GSPO(p).bounds().checkRanges(), checkName("Sequence", p.Sequence, sequenceNames[:]),
		checkClips(p.ClipLow, p.ClipHigh, "DefaultGRPOSLoss"))
}

// sum is over ratios.
func (GRPOS) sum(ws *Workspace, isa ISA, x lossTokens) sequenceSum {
	all := RolloutCorrectionOptions{High: math.MaxFloat32}
	return sequenceSum{ws.importance(isa, nil, x.logprobs, x.old, x.role, &all), responses(x.role)}
}

func (p GRPOS) factors(of sequenceSum) sequenceFactors {
	f := sequenceFactors{tokenRatio: true}
	f.clip(of.sum/float64(max(1, of.n)), 1, GSPO(p).bounds())
	return f
}

func (p GRPOS) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.sequenceTerms(isa, &x, scale, p.factors(p.sum(ws, isa, x)))
}

// GMPO has one ratio for each trajectory, the geometric mean of those of its n response
// tokens, each of which is clipped (arXiv 2507.20673). Of a trajectory
//
//	l = -mean A exp(min(mean m, 20)), means being sums divided by n + 1e-8
//	m = raw = log pi - log pi_old, at most ClipHigh where A > 0, at least -ClipLow where A < 0; 0 where A = 0
//	l' = l / (n + 1e-8) where m is raw and the mean is at most 20, else 0
//
// The loss is the mean over all trajectories of the batch, whatever Aggregation says, which is
// that of the KL alone. One without response tokens adds 0 and counts. A token counts as
// clipped where m is not raw and A is not 0. A trajectory has one advantage, and no weights of
// tokens. ClipLow and ClipHigh that are both 0 are an error.
type GMPO struct {
	ClipLow  float64 // nats, at least 0
	ClipHigh float64 // nats, at least 0
}

// DefaultGMPO has the paper's constants.
var DefaultGMPO = LossOptions{Policy: GMPO{ClipLow: 0.4, ClipHigh: 0.4}}

func (GMPO) String() string { return "gmpo" }

func (GMPO) Traits() PolicyTraits {
	return PolicyTraits{Clips: true, BySequence: true, PerTrajectory: true, Unweighted: true}
}

func (p GMPO) check() error {
	return cmp.Or(checkNotNegative("ClipLow", p.ClipLow), checkNotNegative("ClipHigh", p.ClipHigh),
		checkClips(p.ClipLow, p.ClipHigh, "DefaultGMPO"))
}

// maxGMPOLogRatio is the largest mean log-ratio that GMPO takes the exponential of. Where A < 0
// nothing else bounds it, and e to its power would be beyond float32 from 89 on.
const maxGMPOLogRatio = 20

func (p GMPO) terms(ws *Workspace, _ ISA, x lossTokens, scale float64) {
	sums := &ws.kernels.surrogate
	var m, advantages [lanes]float64
	n := 0
	for i, r := range x.role {
		if r != RoleMasked {
			c, free := p.clamped(&x, i)
			m[i%lanes] += c
			advantages[i%lanes] += float64(x.advantages[i])
			sums.clipped += oneIf(!free && x.advantages[i] != 0)
			n++
		}
	}
	sums.tokens += int64(n)
	logRatio, _ := sumLogRatios(x.logprobs, x.old, x.role, true)
	sums.logRatio.total[0] += logRatio
	count := float64(n) + 1e-8
	mean := tree(&m) / count
	loss := -tree(&advantages) / count * exp64(min(mean, maxGMPOLogRatio))
	sums.loss.total[0] += loss
	slope := float32(loss / count * scale)
	if mean > maxGMPOLogRatio {
		slope = 0
	}
	for i, r := range x.role {
		g := float32(0)
		if r != RoleMasked {
			if _, free := p.clamped(&x, i); free {
				g = slope
			}
		}
		x.grad[i] = g
	}
}

// clamped returns the log-ratio of token i as its advantage has it clamped, and whether it
// is not.
func (p GMPO) clamped(x *lossTokens, i int) (m float64, free bool) {
	d, a := float64(x.logprobs[i])-float64(x.old[i]), x.advantages[i]
	switch {
	case a == 0:
		return 0, false
	case a > 0 && d > p.ClipHigh:
		return p.ClipHigh, false
	case a < 0 && d < -p.ClipLow:
		return -p.ClipLow, false
	}
	return d, true
}
