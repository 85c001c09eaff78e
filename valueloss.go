package reweight

import "cmp"

// ValueLossOptions are the options of [Workspace.ValueLoss].
type ValueLossOptions struct {
	Clip        float64 // the new value counts within this of the old one; above 0
	Aggregation Aggregation
	NormLength  int // of SeqMeanTokenSumNorm, tokens; 0 is the longest trajectory
}

// DefaultValueLoss clips at 0.5.
var DefaultValueLoss = ValueLossOptions{Clip: 0.5}

// ValueLossResult is what ValueLoss returns besides the gradient.
type ValueLossResult struct {
	Loss         float64
	Tokens       int     // response tokens
	ClipFraction float64 // share of them whose clipped term is the larger
}

// ValueLoss computes the clipped loss of the critic and its gradient with respect to
// NewValues (verl, compute_value_loss):
//
//	c = clamp(v, v_old - Clip, v_old + Clip)    l = max((v - G)^2, (c - G)^2) / 2
//
// with v of NewValues, v_old of Values and G of Returns, aggregated as the options say
// with weights of 1. grad[t] = dL/dNewValues[t], which is 0 at masked tokens and where the
// clipped term is the larger and c is not v. Trajectories without response tokens do not
// count in a mean. The squares are summed in float32 by groups of eight tokens: where
// v - G exceeds 6e18, the results may be infinite.
//
// grad, Role, NewValues, Values and Returns have one element per token; grad may be
// any of those float arrays. SeqOffsets is read by all aggregations but [TokenMean]. The
// values of masked tokens do not matter. A wrong shape or option, or a value of a
// response token that is not finite, is an error, and nothing is written.
func (ws *Workspace) ValueLoss(grad []float32, b *Batch, opt ValueLossOptions) (ValueLossResult, error) {
	var res ValueLossResult
	isa, err := ws.ISA.resolve()
	T := b.Tokens()
	read := [...]array{{"NewValues", b.NewValues}, {"Values", b.Values}, {"Returns", b.Returns}}
	if err = cmp.Or(
		err,
		checkRoles("Role", b.Role),
		checkLen("grad", len(grad), T, "token"),
		checkLens(T, "token", read[:]...),
		checkNotNegative("Clip", opt.Clip),
		checkName("Aggregation", opt.Aggregation, aggregationNames[:]),
		checkCount("NormLength", opt.NormLength),
		checkSet("Clip", opt.Clip, "DefaultValueLoss"),
	); err != nil {
		return res, err
	}
	if opt.Aggregation != TokenMean {
		if err := checkOffsets(b.SeqOffsets, T); err != nil {
			return res, err
		}
	}
	if err := ws.checkFinite(isa, b.Role, read[:]...); err != nil {
		return res, err
	}
	clipped := int64(0)
	b.shares(opt.Aggregation, opt.NormLength, func(from, to int, share float64) {
		sum, n := ws.valueLoss(grad[from:to], b.NewValues[from:to], b.Values[from:to], b.Returns[from:to],
			b.Role[from:to],
			float32(opt.Clip), float32(share))
		res.Loss += float64(sum * share)
		clipped += n
	})
	res.Tokens = responses(b.Role)
	res.ClipFraction = float64(clipped) / float64(max(1, res.Tokens))
	return res, nil
}
