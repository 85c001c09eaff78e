package reweight

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/internal/problem"
)

// An Aggregation turns the losses l and the weights w of the response tokens into
// one number:
//
//	TokenMean              sum w l / sum w over the batch
//	SeqMeanTokenSum        mean over trajectories of sum w l
//	SeqMeanTokenMean       mean over trajectories of sum w l / sum w
//	SeqMeanTokenSumNorm    sum w l over the batch / NormLength
//
// The means are over the trajectories that have response tokens.
type Aggregation uint8

const (
	TokenMean Aggregation = iota
	SeqMeanTokenSum
	SeqMeanTokenMean
	SeqMeanTokenSumNorm
)

// aggregationNames are verl's, with underscores.
var aggregationNames = [...]string{"token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"}

// String and MarshalText return the aggregation's name, as flags and reports have it, and UnmarshalText takes it.
func (a Aggregation) String() string               { return nameOf(a, aggregationNames[:]) }
func (a Aggregation) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
func (a *Aggregation) UnmarshalText(name []byte) error {
	return parseName(a, "Aggregation", name, aggregationNames[:])
}

// LossOptions are the options of [Workspace.Loss]. Those without a Policy are an error:
// [DefaultLoss] is of [PPO], and each of the others has its default beside its type.
type LossOptions struct {
	Policy      Policy // the loss of a token, such as PPO{ClipLow: 0.2, ClipHigh: 0.28}
	Aggregation Aggregation
	NormLength  int // of SeqMeanTokenSumNorm, tokens; 0 is the longest trajectory, with its masked tokens

	KL     KLForm  // the divergence of Logprobs from RefLogprobs that is added to the loss,
	KLCoef float64 // times this, a finite number; 0 adds none
}

// LossResult is what Loss returns besides the gradient.
type LossResult struct {
	Loss         float64
	Tokens       int     // response tokens
	WeightSum    float64 // sum of w over them
	ClipFraction float64 // share of response tokens that count as clipped: see the policy
	MeanLogRatio float64 // mean of log pi - log pi_old over response tokens, nats
	KL           float64 // mean of the k3 estimate against RefLogprobs, nats; 0 without them
	KLLoss       float64 // the part of Loss that KLCoef adds
}

// Loss computes the loss of a policy with token weights and its gradient with
// respect to each log-probability. The terms are those of the [Policy], aggregated as the
// options say; with [DefaultLoss] they are the clipped surrogate of [PPO] (verl,
// compute_policy_loss_vanilla). grad[t] = dL/dLogprobs[t], which is 0 at masked tokens.
//
// weights are ActFocus's, or nil for ones. If the weights that divide a sum add up to
// 0 (or to less than float32 can divide by), its loss and gradients are 0.
// Trajectories without response tokens do not count in a mean. Weights are taken as
// they are, negative ones too, and may be as large as float32 holds. But the terms w l
// are summed in float32 by groups of eight tokens: where A rho or w A rho exceeds 4e37,
// the results may be infinite or NaN, and where w A rho is below 1e-37, they are coarse.
// The same goes for the other policies, with their factors of A in place of rho.
//
// A factor of a token may scale its advantage or its weight. In every policy, to scale A
// by a factor of at least 0 scales the loss and the gradient of its token by it, and no
// denominator. (Not so in DRO, GMPO, Clip-Cov and KL-Cov, with which weights that are not nil
// are an error.) (A change of A's sign does more: the signs have their own bounds and
// constants.) A factor of the weight also enters the sums of weights that divide (in
// [TokenMean] and [SeqMeanTokenMean]), so that a token with weight 0 leaves the mean.
// Corrections of importance and AEM's factors scale A; choices of tokens are weights.
//
// KLCoef adds the divergence from the reference: KLCoef times the KL of each response
// token, aggregated in the same way with weights of 1.
//
// grad, weights, Role, Logprobs, OldLogprobs, Advantages and, if set or if KLCoef is not
// 0, RefLogprobs have one element per token; grad may be any of those float
// arrays. SeqOffsets is read by all aggregations but TokenMean and by the policies that
// take the ratio of a sequence, SpanIDs where the sequence is a span. Nothing is allocated, but
// to make a Policy in the call itself may allocate: make the options once. The values of
// masked tokens do not matter. A wrong shape or option, or a weight that is not finite,
// is an error, and nothing is written. So is, with another policy than PPO, any value of
// a response token that is not finite; with PPO and KLCoef, one of Logprobs or
// RefLogprobs.
func (ws *Workspace) Loss(grad, weights []float32, b *Batch, opt LossOptions) (LossResult, error) {
	defer ws.release(ws.taken)
	var res LossResult
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, b.checkLoss(grad, weights, &opt)); err != nil {
		return res, err
	}
	if sum, _ := ws.weightSum(isa, weights, b.Role); sum-sum != 0 {
		return res, notFiniteResponse("weights", weights, b.Role)
	}
	traits := opt.Policy.Traits()
	if err := ws.checkLossValues(isa, b, traits, opt.KLCoef != 0); err != nil {
		return res, err
	}
	var spans []sequenceSum // where the sequence is a span
	if traits.BySpan {
		if spans, err = ws.sumSpans(isa, b, opt.Policy.(sequencePolicy)); err != nil {
			return res, err
		}
	}
	if len(b.RefLogprobs) != 0 {
		res.KL = meanK3(b)
	}
	all := lossTokens{grad, b.Logprobs, b.OldLogprobs, b.Advantages, weights, b.Role, nil}
	if traits.Chooses {
		all.chosen = opt.Policy.(chooser).choose(ws, isa, all)
	}
	var logprobs, ref []float32 // of the KL, which is computed after grad
	if opt.KLCoef != 0 {
		logprobs, ref = ws.keep(b.Logprobs, grad), ws.keep(b.RefLogprobs, grad)
	}
	clipped, logRatio := 0, 0.0
	add := func(from, to int, share float64, mean bool) {
		x := all.slice(from, to)
		weight, large := ws.weightSum(isa, x.weights, x.role)
		res.WeightSum += weight
		if large {
			x.weights = ws.divide(x.weights, largeWeight)
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
		q := ws.segment(isa, &x, b, from, spans, share, opt.Policy, traits)
		if share != 0 {
			res.Loss += float64(q.Loss * share)
		} else {
			clear(x.grad) // 0 times an overflow would be NaN
		}
		res.Tokens += q.Tokens
		clipped += q.Clipped
		logRatio += q.LogRatio
	}
	if traits.PerTrajectory {
		S := b.Trajectories()
		for s := range S {
			add(int(b.SeqOffsets[s]), int(b.SeqOffsets[s+1]), 1/float64(S), false)
		}
	} else {
		b.segments(opt.Aggregation, opt.NormLength, add)
	}
	if res.Tokens > 0 {
		res.ClipFraction = float64(clipped) / float64(res.Tokens)
		res.MeanLogRatio = logRatio / float64(res.Tokens)
	}
	if opt.KLCoef != 0 {
		res.KLLoss = ws.addKL(isa, grad, logprobs, ref, b, &opt)
		res.Loss += res.KLLoss
	}
	return res, nil
}

// segments calls f for the tokens that the aggregation sums together, in order. Their
// losses count share times or, if mean is set, share over the sum of their weights.
func (b *Batch) segments(aggregation Aggregation, normLength int, f func(from, to int, share float64, mean bool)) {
	seqs, longest := 0, int64(0) // trajectories with response tokens; tokens of the longest
	if aggregation != TokenMean {
		for s := range b.Trajectories() {
			from, to := b.SeqOffsets[s], b.SeqOffsets[s+1]
			longest = max(longest, to-from)
			if slices.ContainsFunc(b.Role[from:to], func(r Role) bool { return r != RoleMasked }) {
				seqs++
			}
		}
	}
	norm := normLength
	if norm == 0 {
		norm = max(1, int(longest))
	}
	switch aggregation {
	case TokenMean:
		f(0, b.Tokens(), 1, true)
	case SeqMeanTokenSumNorm:
		f(0, b.Tokens(), 1/float64(norm), false)
	default:
		for s := range b.Trajectories() {
			f(int(b.SeqOffsets[s]), int(b.SeqOffsets[s+1]), 1/float64(max(seqs, 1)), aggregation == SeqMeanTokenMean)
		}
	}
}

// shares calls f for the same tokens where every weight is 1: their losses count share
// times.
func (b *Batch) shares(aggregation Aggregation, normLength int, f func(from, to int, share float64)) {
	b.segments(aggregation, normLength, func(from, to int, share float64, mean bool) {
		if mean {
			share /= float64(max(1, responses(b.Role[from:to])))
		}
		f(from, to, share)
	})
}

// largeWeight is a weight whose product with a token's loss may overflow
// float32. Where tokens that are summed together have such weights, all of theirs
// are divided by it. It is a power of two, so that this rounds no weight above 2^-62.
const largeWeight = 0x1p64

// divide returns the weights divided by unit.
func (ws *Workspace) divide(weights []float32, unit float64) []float32 {
	divided := take[float32](ws, len(weights))
	for t, w := range weights {
		divided[t] = float32(float64(w) / unit)
	}
	return divided
}

// weightSum returns the sum of the weights of response tokens, and whether one
// of them may be above largeWeight.
func (ws *Workspace) weightSum(isa ISA, weights []float32, role []Role) (sum float64, large bool) {
	if weights != nil {
		m := ws.moments(isa, weights, role, Responses, 0)
		return m.Sum, m.Squares > largeWeight*largeWeight
	}
	return float64(responses(role)), false
}

// responses returns the number of response tokens.
func responses(role []Role) int {
	n := 0
	for _, r := range role {
		if r != RoleMasked {
			n++
		}
	}
	return n
}

func (b *Batch) checkLoss(grad, weights []float32, opt *LossOptions) error {
	T := b.Tokens()
	if err := cmp.Or(
		checkRoles("Role", b.Role),
		checkLens(T, "token", array{"grad", grad}, array{"Logprobs", b.Logprobs},
			array{"OldLogprobs", b.OldLogprobs}, array{"Advantages", b.Advantages}),
		checkOptional("weights", weights, T, "token"),
	); err != nil {
		return err
	}
	if len(b.RefLogprobs) != 0 || opt.KLCoef != 0 {
		if err := checkLen("RefLogprobs", len(b.RefLogprobs), T, "token"); err != nil {
			return err
		}
	}
	if err := opt.check(weights); err != nil {
		return err
	}
	if opt.Aggregation != TokenMean || opt.Policy.Traits().BySequence {
		return checkOffsets(b.SeqOffsets, T)
	}
	return nil
}

// checkLossValues wants finite values at response tokens, of the arrays that the policy
// and the KL, if there is one, read.
func (ws *Workspace) checkLossValues(isa ISA, b *Batch, traits PolicyTraits, kl bool) error {
	new, ref := array{"Logprobs", b.Logprobs}, array{"RefLogprobs", b.RefLogprobs}
	switch {
	case traits.AnyValues && kl:
		return ws.checkFinite(isa, b.Role, new, ref)
	case traits.AnyValues:
		return nil
	}
	old, advantages := array{"OldLogprobs", b.OldLogprobs}, array{"Advantages", b.Advantages}
	return ws.checkFinite(isa, b.Role, new, old, advantages, ref)
}

// check says which option is out of range, or that the policy has no weights.
func (opt *LossOptions) check(weights []float32) error {
	if err := cmp.Or(
		checkName("Aggregation", opt.Aggregation, aggregationNames[:]),
		checkPolicy(opt.Policy),
		checkCount("NormLength", opt.NormLength),
		checkKL(opt.KL, opt.KLCoef),
	); err != nil {
		return err
	}
	if weights != nil && opt.Policy.Traits().Unweighted {
		return badInput("weights", problem.NoWeights)
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
		sum[t%lanes] += KLK3.value(float64(b.Logprobs[t]) - float64(b.RefLogprobs[t]))
		n++
	}
	return tree(&sum) / float64(max(n, 1))
}
