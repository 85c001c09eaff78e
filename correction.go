package reweight

import (
	"cmp"

	"github.com/seed621a2839/reweight/internal/problem"
)

// A CorrectionLevel says which tokens share an importance ratio.
type CorrectionLevel uint8

const (
	CorrectToken     CorrectionLevel = iota // each its own
	CorrectSequence                         // a trajectory: the product
	CorrectGeometric                        // a trajectory: the geometric mean
)

var correctionLevelNames = [...]string{"token", "sequence", "geometric"}

// String and MarshalText return the level's name, as flags and reports have it, and UnmarshalText takes it.
func (l CorrectionLevel) String() string               { return nameOf(l, correctionLevelNames[:]) }
func (l CorrectionLevel) MarshalText() ([]byte, error) { return []byte(l.String()), nil }
func (l *CorrectionLevel) UnmarshalText(name []byte) error {
	return parseName(l, "Level", name, correctionLevelNames[:])
}

// RolloutCorrectionOptions are the options of [Workspace.RolloutCorrection]. A High of 0, which would make
// all factors 0, is an error: nobody has set it.
type RolloutCorrectionOptions struct {
	Level     CorrectionLevel
	Mask      bool    // a ratio outside [Low, High] becomes 0 (IcePop); false: the nearer bound (TIS)
	Low, High float64 // 0 <= Low <= High; Low finite, 0 for no lower bound; High above 0, +Inf for no upper bound
	Normalize bool    // divide by the mean of the factors
}

// DefaultRolloutCorrection is truncated importance sampling; DefaultIcePop masks.
var (
	DefaultRolloutCorrection = RolloutCorrectionOptions{Level: CorrectToken, Low: 0, High: 2}
	DefaultIcePop            = RolloutCorrectionOptions{Level: CorrectToken, Mask: true, Low: 0.5, High: 5}
)

// check says which option is out of range.
func (opt *RolloutCorrectionOptions) check() error {
	return cmp.Or(
		checkName("Level", opt.Level, correctionLevelNames[:]),
		checkBounds(opt.Low, opt.High),
		checkSet("High", opt.High, "DefaultRolloutCorrection"),
	)
}

// RolloutCorrection sets factors that the advantages are to be multiplied by, because
// the engine that sampled is not quite the old policy: truncated importance sampling
// (TIS) or masked (IcePop), as verl, TRL and OpenRLHF have them. With
// z_t = OldLogprobs - RolloutLogprobs, x the level's exponent (z_t, its sum over the
// trajectory or its mean) and u = e^x, x kept between -20 and 20:
//
//	truncate: c = u kept between Low and High
//	Mask:     c = u where Low <= u <= High, else 0
//	Normalize: c / mean c, if that mean is above 1e-8
//
// The mean is over response tokens, for the levels of trajectories over those that have
// any. The factor of masked tokens is 1. As a factor of the advantage it scales the loss
// and leaves its denominators.
//
// factors, Role, OldLogprobs and RolloutLogprobs have one element per token, and
// SeqOffsets must be set; factors may be OldLogprobs or RolloutLogprobs. A wrong shape or
// option, or a log-probability of a response token that is not finite, is an error, and
// factors is not written.
func (ws *Workspace) RolloutCorrection(factors []float32, b *Batch, opt RolloutCorrectionOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, opt.check(), checkLen("factors", len(factors), b.Tokens(), "token")); err != nil {
		return err
	}
	if err := ws.checkRollout(isa, b); err != nil {
		return err
	}
	if opt.Level == CorrectToken {
		ws.correctTokens(isa, factors, b, &opt)
	} else {
		ws.correctTrajectories(factors, b, &opt)
	}
	return nil
}

// checkRollout checks the layout and the log-probabilities of both policies.
func (ws *Workspace) checkRollout(isa ISA, b *Batch) error {
	if err := b.checkLayout(); err != nil {
		return err
	}
	return ws.checkResponses(isa, b.Role, array{"OldLogprobs", b.OldLogprobs},
		array{"RolloutLogprobs", b.RolloutLogprobs})
}

// leastMean is the mean of the factors that they are not divided by any more.
const leastMean = 1e-8

// correctTokens is RolloutCorrection where each token has its own ratio.
func (ws *Workspace) correctTokens(isa ISA, factors []float32, b *Batch, opt *RolloutCorrectionOptions) {
	mean := ws.importance(isa, factors, b.OldLogprobs, b.RolloutLogprobs, b.Role, opt) / float64(responses(b.Role))
	if !opt.Normalize || !(mean > leastMean) {
		return
	}
	for t, r := range b.Role {
		if r != RoleMasked {
			factors[t] = float32(float64(factors[t]) / mean)
		}
	}
}

// correctTrajectories is RolloutCorrection where the tokens of a trajectory share a ratio.
func (ws *Workspace) correctTrajectories(factors []float32, b *Batch, opt *RolloutCorrectionOptions) {
	perTrajectory := take[float64](ws, b.Trajectories())
	n, sum := 0, 0.0
	for s := range perTrajectory {
		x, tokens := logRatio(b.OldLogprobs, b.RolloutLogprobs, b, s)
		if tokens == 0 {
			continue
		}
		if opt.Level == CorrectGeometric {
			x /= float64(tokens)
		}
		u := exp64(max(-20, min(20, x)))
		c := max(opt.Low, min(opt.High, u))
		if opt.Mask && c != u {
			c = 0
		}
		perTrajectory[s] = c
		n++
		sum += c
	}
	if mean := sum / float64(n); opt.Normalize && mean > leastMean {
		for s := range perTrajectory {
			perTrajectory[s] /= mean
		}
	}
	for s, c := range perTrajectory {
		b.fill(factors, s, float32(c), 1)
	}
}

// logRatio returns the sum of x - y over the response tokens of trajectory s, and their
// number.
func logRatio(x, y []float32, b *Batch, s int) (sum float64, tokens int) {
	from, to := b.SeqOffsets[s], b.SeqOffsets[s+1]
	return sumLogRatios(x[from:to], y[from:to], b.Role[from:to], false)
}

// A RejectionStatistic is what Reject compares with bounds: the sum, mean or largest of
// an estimate of the divergence of each token, with z = OldLogprobs - RolloutLogprobs.
type RejectionStatistic uint8

const (
	RejectTokenK1  RejectionStatistic = iota // -z
	RejectTokenK2                            // z^2 / 2
	RejectTokenK3                            // e^z - 1 - z
	RejectSeqSumK1                           // of a trajectory, here and below
	RejectSeqSumK2
	RejectSeqSumK3
	RejectSeqMeanK1
	RejectSeqMeanK2
	RejectSeqMeanK3
	RejectSeqMaxK2
	RejectSeqMaxK3
)

var rejectionNames = [...]string{"token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3",
	"seq_mean_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3"}

// String and MarshalText return the statistic's name, as verl, flags and reports have it, and UnmarshalText takes it.
func (r RejectionStatistic) String() string               { return nameOf(r, rejectionNames[:]) }
func (r RejectionStatistic) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
func (r *RejectionStatistic) UnmarshalText(name []byte) error {
	return parseName(r, "Statistic", name, rejectionNames[:])
}

// estimate returns which estimate the statistic is of, 1, 2 or 3.
func (r RejectionStatistic) estimate() int {
	if r >= RejectSeqMaxK2 {
		return int(r-RejectSeqMaxK2) + 2
	}
	return int(r%3) + 1
}

// RejectOptions are the options of [Workspace.Reject]. Bounds of 0 are an error: nobody has set them.
type RejectOptions struct {
	Statistic RejectionStatistic
	Low       float64 // k1: the least e^statistic that is kept, above 0; k2 and k3 do not read it
	High      float64 // k1: the largest e^statistic, at least Low; k2, k3: the largest statistic; +Inf: no bound
}

// DefaultReject rejects tokens whose ratio is not between 0.5 and 2.
var DefaultReject = RejectOptions{Statistic: RejectTokenK1, Low: 0.5, High: 2}

// check says which option is out of range.
func (opt *RejectOptions) check() error {
	if err := checkName("Statistic", opt.Statistic, rejectionNames[:]); err != nil {
		return err
	}
	if opt.Statistic.estimate() != 1 {
		if !(opt.High >= 0) {
			return badInput("High", problem.NotNegative, opt.High)
		}
		return checkSet("High", opt.High, "DefaultReject")
	}
	return cmp.Or(checkSet("Low", opt.Low, "DefaultReject"), checkBounds(opt.Low, opt.High))
}

// Reject sets weights to 1 at the response tokens that are kept, to 0 elsewhere: those
// where the engine that sampled is too far from the old policy leave numerator and
// denominator of the loss (verl's rollout rejection). With v the statistic of the token
// or of its trajectory, and z kept between -20 and 20 in it, a token is kept if
//
//	k1:     log Low <= v <= log High
//	k2, k3: v <= High
//
// To ask for several, multiply their weights.
//
// weights, Role, OldLogprobs and RolloutLogprobs have one element per token, and
// SeqOffsets must be set; weights may be OldLogprobs or RolloutLogprobs. A wrong shape or
// option, or a log-probability of a response token that is not finite, is an error, and
// weights is not written.
func (ws *Workspace) Reject(weights []float32, b *Batch, opt RejectOptions) error {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, opt.check(), checkLen("weights", len(weights), b.Tokens(), "token")); err != nil {
		return err
	}
	if err := ws.checkRollout(isa, b); err != nil {
		return err
	}
	k := opt.Statistic.estimate()
	low, high := 0.0, opt.High // k2 and k3 are at least 0
	if k == 1 {
		low = log64(opt.Low)
		if high < inf {
			high = log64(high)
		}
	}
	keep := func(v float64) float32 {
		if low <= v && v <= high {
			return 1
		}
		return 0
	}
	for s := range b.Trajectories() {
		n, largest := 0, 0.0
		var lane [lanes]float64 // token i of the trajectory in lane i mod 16
		for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
			if b.Role[t] == RoleMasked {
				weights[t] = 0
				continue
			}
			v := estimate(k, float64(b.OldLogprobs[t])-float64(b.RolloutLogprobs[t]))
			weights[t] = keep(v)
			n++
			lane[(t-b.SeqOffsets[s])%lanes] += v
			largest = max(largest, v)
		}
		switch {
		case opt.Statistic >= RejectSeqMaxK2:
			b.fill(weights, s, keep(largest), 0)
		case opt.Statistic >= RejectSeqMeanK1:
			b.fill(weights, s, keep(tree(&lane)/float64(n)), 0)
		case opt.Statistic >= RejectSeqSumK1:
			b.fill(weights, s, keep(tree(&lane)), 0)
		}
	}
	return nil
}

// estimate returns the estimate k of the divergence of a token with that log-ratio.
func estimate(k int, z float64) float64 {
	z = max(-20, min(20, z))
	switch k {
	case 1:
		return -z
	case 2:
		return float64(z*z) / 2
	}
	return max(0, k3(z))
}

// OffPolicyMask sets factors of the advantages to 0 at the tokens whose advantage is
// negative and whose trajectory the policy has left, to 1 elsewhere (DeepSeek-V3.2; TRL
// and slime have it too):
//
//	0 where Advantages[t] < 0 and mean over the trajectory of OldLogprobs - Logprobs > delta
//
// with the mean over response tokens, in nats. The sources have no default for delta.
//
// factors, Role, Advantages, OldLogprobs and Logprobs have one element per token, and
// SeqOffsets must be set; factors may be any of the three float arrays. A wrong shape, a
// delta that is not finite, or a value of a response token that is not finite, is an
// error, and factors is not written.
func (ws *Workspace) OffPolicyMask(factors []float32, b *Batch, delta float64) error {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, checkFinite64("delta", delta), b.checkOutput("factors", factors)); err != nil {
		return err
	}
	if err := ws.checkPolicies(isa, b); err != nil {
		return err
	}
	for s := range b.Trajectories() {
		sum, tokens := logRatio(b.OldLogprobs, b.Logprobs, b, s)
		left := sum/float64(tokens) > delta
		for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
			f := float32(1)
			if left && b.Role[t] != RoleMasked && b.Advantages[t] < 0 {
				f = 0
			}
			factors[t] = f
		}
	}
	return nil
}
