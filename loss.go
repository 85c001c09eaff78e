package reweight

import "math"

// An Aggregation turns the losses l and the weights w of the response tokens into
// one number.
type Aggregation uint8

const (
	TokenMean           Aggregation = iota // sum w l / sum w over the batch
	SeqMeanTokenSum                        // mean over trajectories of sum w l
	SeqMeanTokenMean                       // mean over trajectories of sum w l / sum w
	SeqMeanTokenSumNorm                    // sum over trajectories of sum w l, over NormLength
)

// aggregationNames are verl's, with underscores.
var aggregationNames = [...]string{"token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"}

// String returns the aggregation's name, as flags and reports have it.
func (a Aggregation) String() string { return nameOf(a, aggregationNames[:]) }

// MarshalText returns the aggregation's name.
func (a Aggregation) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText sets the aggregation to the one of that name.
func (a *Aggregation) UnmarshalText(name []byte) error {
	return parseName(a, "Aggregation", name, aggregationNames[:])
}

// LossOptions are the options of Loss.
type LossOptions struct {
	ClipLow     float64 // the ratio is clipped to [1-ClipLow, 1+ClipHigh]; in [0, 1]
	ClipHigh    float64 // at least 0
	DualClip    float64 // bound of the loss where A < 0, in units of |A|: above 1, or 0 for none
	Aggregation Aggregation
	NormLength  int // of SeqMeanTokenSumNorm, tokens; 0 is the longest trajectory
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
// with respect to each log-probability (verl, compute_policy_loss_vanilla):
//
//	d = clamp(Logprobs - OldLogprobs, -20, 20)    rho = e^d
//	L1 = -A rho    L2 = -A clip(rho, 1-ClipLow, 1+ClipHigh)
//	l = max(L1, L2); where A < 0: min(l, -A DualClip)
//
// aggregated as the options say. grad[t] = dL/dLogprobs[t], which is 0 at
// masked tokens and where l is clipped or d clamped. weights are ActFocus's, or
// nil for ones. If the weights that divide a sum add up to 0 (or to less than
// float32 can divide by), its loss and gradients are 0. Trajectories without
// response tokens do not count in a mean. Weights are taken as they are, negative
// ones too, and may be as large as float32 holds. But the terms w l are summed in
// float32 by groups of eight tokens: where A rho or w A rho exceeds 4e37, the
// results may be infinite or NaN, and where w A rho is below 1e-37, they are coarse.
//
// grad, weights, Role, Logprobs, OldLogprobs, Advantages and, if set,
// RefLogprobs have one element per token; grad may be any of those float
// arrays. The values of masked tokens do not matter. A wrong shape or option, or
// a weight that is not finite, is an error, and nothing is written.
func (ws *Workspace) Loss(grad, weights []float32, b *Batch, opt LossOptions) (LossResult, error) {
	var res LossResult
	isa, err := ws.ISA.resolve()
	if err != nil {
		return res, err
	}
	if err := b.checkLoss(grad, weights, &opt); err != nil {
		return res, err
	}
	if sum, _ := ws.weightSum(isa, weights, b.Role); sum-sum != 0 {
		return res, notFiniteResponse("weights", weights, b.Role)
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
		weight, large := ws.weightSum(isa, w, b.Role[from:to])
		res.WeightSum += weight
		if large {
			w = ws.divide(w, largeWeight)
			weight /= largeWeight
			if !mean {
				share *= largeWeight
			}
		}
		if mean {
			if share /= weight; !(math.Abs(share) <= math.MaxFloat32) {
				share = 0
			}
		}
		q := ws.surrogate(isa, grad[from:to], b.Logprobs[from:to], b.OldLogprobs[from:to], b.Advantages[from:to], w, b.Role[from:to], share, &opt)
		if share != 0 {
			res.Loss += float64(q.Loss * share)
		} else {
			clear(grad[from:to]) // 0 times an overflow would be NaN
		}
		res.Tokens += q.Tokens
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
	case SeqMeanTokenSumNorm:
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

// largeWeight is a weight whose product with a token's loss may overflow
// float32. Where tokens that are summed together have such weights, all of theirs
// are divided by it. It is a power of two, so that this rounds no weight above 2^-62.
const largeWeight = 0x1p64

// lossScratch holds weights that had to be made smaller.
type lossScratch struct{ weights []float32 }

// divide returns the weights divided by unit, in the workspace's scratch.
func (ws *Workspace) divide(weights []float32, unit float64) []float32 {
	ws.loss.weights = grow(ws.loss.weights, len(weights))
	for t, w := range weights {
		ws.loss.weights[t] = float32(float64(w) / unit)
	}
	return ws.loss.weights
}

// weightSum returns the sum of the weights of response tokens, and whether one
// of them may be above largeWeight.
func (ws *Workspace) weightSum(isa ISA, weights []float32, role []Role) (sum float64, large bool) {
	if weights != nil {
		m := ws.moments(isa, weights, role, Responses, 0)
		return m.Sum, m.Squares > largeWeight*largeWeight
	}
	n := 0
	for _, r := range role {
		if r != RoleMasked {
			n++
		}
	}
	return float64(n), false
}

func (b *Batch) checkLoss(grad, weights []float32, opt *LossOptions) error {
	T := b.Tokens()
	if err := checkRoles("Role", b.Role); err != nil {
		return err
	}
	err := checkLens(T, "token", length{"grad", len(grad)}, length{"Logprobs", len(b.Logprobs)},
		length{"OldLogprobs", len(b.OldLogprobs)}, length{"Advantages", len(b.Advantages)})
	if err != nil {
		return err
	}
	if err := checkWeights(weights, T); err != nil {
		return err
	}
	if len(b.RefLogprobs) != 0 {
		if err := checkLen("RefLogprobs", len(b.RefLogprobs), T, "token"); err != nil {
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
	if err := checkName("Aggregation", opt.Aggregation, aggregationNames[:]); err != nil {
		return err
	}
	if err := checkRange("ClipLow", opt.ClipLow, 0, 1); err != nil {
		return err
	}
	if err := checkNotNegative("ClipHigh", opt.ClipHigh); err != nil {
		return err
	}
	if opt.DualClip != 0 && !(opt.DualClip > 1 && opt.DualClip <= math.MaxFloat32) {
		return badInput("DualClip", "is %v, want a finite number above 1, or 0 for none", opt.DualClip)
	}
	if opt.NormLength < 0 {
		return badInput("NormLength", "is %d, want at least 0", opt.NormLength)
	}
	return nil
}

// meanK3 returns the mean over response tokens of e^x - x - 1 with x = log
// pi_ref - log pi, both clamped as verl does (kl_penalty, low_var_kl). It is summed as
// the masked moments are: token t of the batch goes to lane t mod 16, in float64 at once.
func meanK3(b *Batch) float64 {
	var sum [lanes]float64
	n := 0
	for t, r := range b.Role {
		if r == RoleMasked {
			continue
		}
		x := float64(b.RefLogprobs[t]) - float64(b.Logprobs[t])
		sum[t%lanes] += min(10, k3(max(-20, min(20, x))))
		n++
	}
	return tree(&sum) / float64(max(n, 1))
}
