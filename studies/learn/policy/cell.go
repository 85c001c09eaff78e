package policy

// cell sets next to the state after a token, where previous is the state before it,
// and may be next. gates is previous U + Bias and becomes r, z and, unchanged, the third
// that is multiplied by r. candidate becomes n. input is the token's row of Input.
func cell(next, candidate, gates, input, previous []float32) {
	cellFrom(0, next, candidate, gates, input, previous)
}

// cellFrom is cell for the units from the given one on.
func cellFrom(from int, next, candidate, gates, input, previous []float32) {
	h := len(next)
	r, z, hidden := gates[from:h], gates[h+from:2*h], gates[2*h+from:3*h]
	addSigmoid(r, input[from:])
	addSigmoid(z, input[h+from:])
	next, candidate, input, previous = next[from:], candidate[from:h], input[2*h+from:], previous[from:]
	for i, r := range r {
		candidate[i] = input[i] + float32(r*hidden[i])
	}
	tanhs(candidate)
	for i, z := range z {
		next[i] = float32((1-z)*candidate[i]) + float32(z*previous[i])
	}
}

// A cellGradient is what backwardCell carries the gradient with through the cell of a row.
type cellGradient struct {
	// The gradient with respect to the state after the row, but for what is in outer, which is
	// from the loss directly. It becomes the one with respect to the state before it, but for
	// what goes through U.
	carried, outer []float32

	gates, candidate, previous []float32 // of the tape

	gradient    []float32 // becomes that with respect to h U + Bias
	input, bias []float32 // those of the token's row of Input and of Bias, which are added to
}

func backwardCell(g *cellGradient) { backwardCellFrom(0, g) }

// backwardCellFrom is backwardCell for the units from the given one on.
func backwardCellFrom(from int, c *cellGradient) {
	h := len(c.carried)
	third := func(x []float32, i int) []float32 { return x[i*h:][:h] }
	r, z, hidden := third(c.gates, 0), third(c.gates, 1), third(c.gates, 2)
	gradR, gradZ, gradHidden := third(c.gradient, 0), third(c.gradient, 1), third(c.gradient, 2)
	inputR, inputZ, inputN := third(c.input, 0), third(c.input, 1), third(c.input, 2)
	biasR, biasZ, biasHidden := third(c.bias, 0), third(c.bias, 1), third(c.bias, 2)
	carried, outer, candidate, previous := c.carried, c.outer[:h], c.candidate[:h], c.previous[:h]
	for i := from; i < h; i++ {
		r, z, n, g := r[i], z[i], candidate[i], carried[i]+outer[i]
		gradN := float32(float32(g*(1-z)) * (1 - float32(n*n)))
		gradR[i] = float32(float32(gradN*hidden[i]) * float32(r*(1-r)))
		gradZ[i] = float32(float32(g*(previous[i]-n)) * float32(z*(1-z)))
		gradHidden[i] = float32(gradN * r)
		carried[i] = float32(g * z)
		inputR[i] += gradR[i]
		inputZ[i] += gradZ[i]
		inputN[i] += gradN
		biasR[i] += gradR[i]
		biasZ[i] += gradZ[i]
		biasHidden[i] += gradHidden[i]
	}
}
