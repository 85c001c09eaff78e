package reference

// ValueTerm returns the clipped loss of one value v of the critic, its derivative
// with respect to v, and whether the clipped term is the larger:
//
//	c = clamp(v, old - clip, old + clip)
//	l = max((v - G)^2, (c - G)^2) / 2
//
// The derivative is v - G, and 0 where the clipped term is the larger. (verl:
// compute_value_loss.)
func ValueTerm(v, old, target, clip float64) (l, derivative float64, clipped bool) {
	c := clamp(v, old-clip, old+clip)
	square, clippedSquare := (v-target)*(v-target), (c-target)*(c-target)
	if clippedSquare > square {
		return clippedSquare / 2, 0, true
	}
	return square / 2, v - target, false
}

// ValueLoss returns the critic's loss of NewValues, ValueTerm aggregated as Loss does with
// weights of 1, its gradient and the share of the clipped. The old critic's are Values,
// the targets Returns. verl has clip 0.5.
func ValueLoss(b *Batch, clip float64, opt Aggregating) LossResult {
	b.perToken(b.NewValues, b.Values, b.Returns)
	return opt.sum(b, nil, func(t int) (l, derivative float64, clipped bool) {
		return ValueTerm(b.NewValues[t], b.Values[t], b.Returns[t], clip)
	})
}
