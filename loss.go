package reweight

import (
	"fmt"
	"math"
)

// responses is the set of roles that take part in the loss (maskedMoments).
const responses = 1<<RoleReasoning | 1<<RoleAction

// An Aggregation turns token losses into one number. With weights w, and sums
// over response tokens:
type Aggregation uint8

const (
	TokenMean        Aggregation = iota // sum w l / sum w over the batch
	SeqMeanTokenSum                     // mean over trajectories of sum w l
	SeqMeanTokenMean                    // mean over trajectories of sum w l / sum w
	SeqTokenSumNorm                     // sum over trajectories of sum w l, over NormLength
)

// LossOptions are the options of Loss.
type LossOptions struct {
	ClipLow     float64 // the ratio is clipped to [1-ClipLow, 1+ClipHigh]; in [0, 1]
	ClipHigh    float64 // at least 0
	DualClip    float64 // bound of the loss where A < 0, in units of |A|: above 1, or 0 for none
	Aggregation Aggregation
	NormLength  int // of SeqTokenSumNorm, tokens; 0 is the longest trajectory
}

// DefaultLoss holds the constants of DAPO and verl: clip-higher, dual clip 3.
var DefaultLoss = LossOptions{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3, Aggregation: TokenMean}

// LossResult is what Loss returns besides the gradient.
type LossResult struct {
	Loss         float64
	Tokens       int     // response tokens
	WeightSum    float64 // sum of w over them
	ClipFraction float64 // share of response tokens whose clipped term is the larger
	MeanLogRatio float64 // mean of log pi - log pi_old over response tokens, nats
	KL           float64 // mean of the k3 estimate against RefLogprobs, nats; 0 without them
}

// Loss computes the PPO clipped surrogate with token weights and its gradient
// by each log-probability (verl, compute_policy_loss_vanilla):
//
//	d = clamp(Logprobs - OldLogprobs, -20, 20)    rho = e^d
//	L1 = -A rho    L2 = -A clip(rho, 1-ClipLow, 1+ClipHigh)
//	l = max(L1, L2); where A < 0: min(l, -A DualClip)
//
// aggregated as the options say. grad[t] = dL/dLogprobs[t], which is 0 at
// masked tokens and where l is clipped or d clamped. weights are ActFocus's, or
// nil for ones. If the weights that divide a sum add up to 0 (or to less
// than float32 can divide by), its loss and gradients are 0. Trajectories without response tokens do not count in a mean.
//
// grad, weights, Role, Logprobs, OldLogprobs, Advantages and, if set,
// RefLogprobs have one element per token; grad may be any of those float
// arrays. The values of masked tokens do not matter. A wrong shape or option, or
// a weight that is not finite, is an error, and nothing is written.
func (ws *Workspace) Loss(grad, weights []float32, b *Batch, opt LossOptions) (LossResult, error) {
	var res LossResult
	path, err := ws.Path.resolve()
	if err != nil {
		return res, err
	}
	if err := b.checkLoss(grad, weights, &opt); err != nil {
		return res, err
	}
	if weights != nil {
		if w := ws.weightSum(path, weights, b.Role); w-w != 0 {
			return res, fmt.Errorf("reweight: the weights of response tokens add up to %v, want a finite sum", w)
		}
	}
	T := b.Tokens()
	if len(b.RefLogprobs) != 0 {
		res.KL = meanK3(b)
	}
	seqs, longest := 0, int64(0) // trajectories with response tokens; tokens of the longest
	if opt.Aggregation != TokenMean {
		for s := range b.Trajectories() {
			from, to := b.SeqOffsets[s], b.SeqOffsets[s+1]
			longest = max(longest, to-from)
			for _, r := range b.Role[from:to] {
				if r != RoleMasked {
					seqs++
					break
				}
			}
		}
	}
	// add takes tokens from..to, whose losses are multiplied by share, or by
	// share over the sum of their weights.
	clipped, logRatio := 0, 0.0
	add := func(from, to int, share float64, mean bool) {
		w := weights
		if w != nil {
			w = w[from:to]
		}
		weight := ws.weightSum(path, w, b.Role[from:to])
		if mean {
			if share /= weight; !(math.Abs(share) <= math.MaxFloat32) {
				share = 0
			}
		}
		q := ws.surrogate(path, grad[from:to], b.Logprobs[from:to], b.OldLogprobs[from:to], b.Advantages[from:to], w, b.Role[from:to], share, &opt)
		if share != 0 {
			res.Loss += float64(q.Loss * share)
		}
		res.Tokens += q.Tokens
		res.WeightSum += weight
		clipped += q.Clipped
		logRatio += q.LogRatio
	}
	norm := opt.NormLength
	if norm == 0 {
		norm = max(1, int(longest))
	}
	switch opt.Aggregation {
	case TokenMean:
		add(0, T, 1, true)
	case SeqTokenSumNorm:
		add(0, T, 1/float64(norm), false)
	default:
		for s := range b.Trajectories() {
			add(int(b.SeqOffsets[s]), int(b.SeqOffsets[s+1]), 1/float64(max(seqs, 1)), opt.Aggregation == SeqMeanTokenMean)
		}
	}
	if res.Tokens > 0 {
		res.ClipFraction = float64(clipped) / float64(res.Tokens)
		res.MeanLogRatio = logRatio / float64(res.Tokens)
	}
	return res, nil
}

// weightSum returns the sum of the weights of response tokens.
func (ws *Workspace) weightSum(path ISA, weights []float32, role []uint8) float64 {
	if weights != nil {
		return ws.moments(path, weights, role, responses, 0).Sum
	}
	n := 0
	for _, r := range role {
		if r != RoleMasked {
			n++
		}
	}
	return float64(n)
}

func (b *Batch) checkLoss(grad, weights []float32, opt *LossOptions) error {
	T := b.Tokens()
	if err := checkRoles(b.Role); err != nil {
		return err
	}
	for _, a := range [...]struct {
		name string
		n    int
	}{{"grad", len(grad)}, {"Logprobs", len(b.Logprobs)}, {"OldLogprobs", len(b.OldLogprobs)}, {"Advantages", len(b.Advantages)}} {
		if err := need(a.name, a.n, T); err != nil {
			return err
		}
	}
	if weights != nil {
		if err := need("weights", len(weights), T); err != nil {
			return err
		}
	}
	if len(b.RefLogprobs) != 0 {
		if err := need("RefLogprobs", len(b.RefLogprobs), T); err != nil {
			return err
		}
	}
	if err := opt.check(); err != nil {
		return err
	}
	if opt.Aggregation != TokenMean {
		return checkOffsets(b.SeqOffsets, T)
	}
	return nil
}

// check says which option is out of range.
func (opt *LossOptions) check() error {
	switch {
	case opt.Aggregation > SeqTokenSumNorm:
		return fmt.Errorf("reweight: Aggregation = %d, want %d to %d", opt.Aggregation, TokenMean, SeqTokenSumNorm)
	case !(opt.ClipLow >= 0 && opt.ClipLow <= 1):
		return fmt.Errorf("reweight: ClipLow = %v, want 0 to 1", opt.ClipLow)
	case !(opt.ClipHigh >= 0 && opt.ClipHigh <= math.MaxFloat32):
		return fmt.Errorf("reweight: ClipHigh = %v, want a finite number of at least 0", opt.ClipHigh)
	case opt.DualClip != 0 && !(opt.DualClip > 1 && opt.DualClip <= math.MaxFloat32):
		return fmt.Errorf("reweight: DualClip = %v, want a finite number above 1, or 0 for none", opt.DualClip)
	case opt.NormLength < 0:
		return fmt.Errorf("reweight: NormLength = %d, want at least 0", opt.NormLength)
	}
	return nil
}

// meanK3 returns the mean over response tokens of e^x - x - 1 with x = log
// pi_ref - log pi, both clamped as verl does (kl_penalty, low_var_kl).
func meanK3(b *Batch) float64 {
	sum, n := 0.0, 0
	for t, r := range b.Role {
		if r == RoleMasked {
			continue
		}
		x := float64(b.RefLogprobs[t]) - float64(b.Logprobs[t])
		sum += min(10, k3(max(-20, min(20, x))))
		n++
	}
	return sum / float64(max(n, 1))
}
