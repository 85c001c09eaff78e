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

// A ValueLossResult is what ValueLoss returns.
type ValueLossResult struct {
	Loss         float64
	Gradient     []float64 // [T] dLoss/dnewValues, 0 at masked tokens
	ClipFraction float64   // share of the response tokens whose clipped term is the larger
}

// ValueLoss returns the critic's loss, ValueTerm aggregated as Loss does with
// weights of 1, its gradient and a diagnostic. role, newValues, values (of the old
// critic) and returns are [T], offsets [S+1]. verl has clip 0.5. normLength is
// LossOptions.NormLength.
func ValueLoss(role []Role, offsets []int64, newValues, values, returns []float64, clip float64, aggregation Aggregation, normLength float64) (ValueLossResult, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("newValues", newValues, role),
		checkResponse("values", values, role),
		checkResponse("returns", returns, role),
		checkAtLeast("clip", clip, 0),
		checkAggregation(aggregation, normLength),
	); err != nil {
		return ValueLossResult{}, err
	}
	loss := ValueLossResult{Gradient: make([]float64, len(role))}
	scale := tokenScales(role, offsets, ones(len(role)), LossOptions{Aggregation: aggregation, NormLength: normLength})
	response := 0
	for t, r := range role {
		if r == RoleMasked {
			continue
		}
		l, derivative, clipped := ValueTerm(newValues[t], values[t], returns[t], clip)
		loss.Loss += scale[t] * l
		loss.Gradient[t] = scale[t] * derivative
		if clipped {
			loss.ClipFraction++
		}
		response++
	}
	if response > 0 {
		loss.ClipFraction /= float64(response)
	}
	return loss, nil
}
