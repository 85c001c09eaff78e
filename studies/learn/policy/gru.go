package policy

import "slices"

// Step advances the state [Hidden] of a sequence by one token.
func (p *Policy) Step(state []float32, token int32) {
	gates := slices.Clone(p.Bias)
	multiply(gates, state, p.U, p.Hidden, 3*p.Hidden)
	p.cell(state, make([]float32, p.Hidden), gates, state, token)
}

// Logits returns the logits [len(rows), Vocab] of the next token after the states
// rows of state [.., Hidden].
func (p *Policy) Logits(state []float32, rows []int) []float32 {
	logits := slices.Repeat(p.HeadBias, len(rows))
	multiply(logits, gather(state, rows, p.Hidden), p.Head, p.Hidden, p.Vocab)
	return logits
}

// Values returns the values of the states rows.
func (p *Policy) Values(state []float32, rows []int) []float32 {
	values := slices.Repeat(p.ValueBias, len(rows))
	for i, row := range rows {
		for k, x := range state[row*p.Hidden:][:p.Hidden] {
			values[i] += float32(x * p.Value[k])
		}
	}
	return values
}

// gather returns the rows of src, of some columns each.
func gather(src []float32, rows []int, columns int) []float32 {
	dst := make([]float32, 0, len(rows)*columns)
	for _, row := range rows {
		dst = append(dst, src[row*columns:][:columns]...)
	}
	return dst
}

// cell sets next to the state after token, where previous is the state before it,
// and may be next. gates is previous U + Bias and becomes r, z and, unchanged, the third
// that is multiplied by r. candidate becomes n.
func (p *Policy) cell(next, candidate, gates, previous []float32, token int32) {
	h := p.Hidden
	input := p.Input[int(token)*3*h:][:3*h]
	addSigmoid(gates[:2*h], input)
	r, z, hidden, input := gates[:h], gates[h:][:h], gates[2*h:][:h], input[2*h:][:h]
	for i, r := range r {
		candidate[i] = input[i] + float32(r*hidden[i])
	}
	tanhs(candidate)
	for i, z := range z {
		next[i] = float32((1-z)*candidate[i]) + float32(z*previous[i])
	}
}

// A Tape holds what Forward computed, for Backward.
//
// Within, rows are in the order of computation: the first token of every
// sequence, then the second ones, and so on, with the longest sequence first. The
// sequences that have a token k are then the first ones among those that have a
// token k-1.
type Tape struct {
	State []float32 // [T, Hidden] the state after each token

	starts []int   // the first row of each step, and T
	packed []int   // the place of each row in State
	tokens []int32 // of each row

	previous  []float32 // [T, Hidden] the state before each token
	gates     []float32 // [T, 3 Hidden] r, z and the third of h U + Bias that r multiplies
	candidate []float32 // [T, Hidden] n
}

// arrange orders the tokens.
func (t *Tape) arrange(tokens []int32, offsets []int64) {
	length := func(s int) int { return int(offsets[s+1] - offsets[s]) }
	order := make([]int, len(offsets)-1)
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int { return length(b) - length(a) })
	for step := 0; ; step++ {
		t.starts = append(t.starts, len(t.packed))
		for _, s := range order {
			if length(s) <= step {
				break
			}
			place := int(offsets[s]) + step
			t.packed = append(t.packed, place)
			t.tokens = append(t.tokens, tokens[place])
		}
		if t.starts[step] == len(t.packed) {
			return
		}
	}
}

// Forward runs the policy over sequences packed one after another: tokens
// offsets[s] to offsets[s+1] are sequence s. Row t of the tape's State is the state
// after token t. The states are those of Step, to the bit.
func (p *Policy) Forward(tokens []int32, offsets []int64) *Tape {
	h, n := p.Hidden, len(tokens)
	tape := &Tape{
		State:     make([]float32, n*h),
		previous:  make([]float32, n*h),
		gates:     slices.Repeat(p.Bias, n),
		candidate: make([]float32, n*h),
	}
	tape.arrange(tokens, offsets)
	for step, start := range tape.starts[:len(tape.starts)-1] {
		end := tape.starts[step+1]
		if step > 0 {
			for row := start; row < end; row++ {
				copy(tape.previous[row*h:][:h], tape.State[(tape.packed[row]-1)*h:])
			}
		}
		multiply(tape.gates[start*3*h:end*3*h], tape.previous[start*h:end*h], p.U, h, 3*h)
		for row := start; row < end; row++ {
			next, previous := tape.State[tape.packed[row]*h:][:h], tape.previous[row*h:][:h]
			p.cell(next, tape.candidate[row*h:][:h], tape.gates[row*3*h:][:3*h], previous, tape.tokens[row])
		}
	}
	return tape
}

// Backward adds the gradient of a loss to grad. It is given what the loss's
// gradient is with respect to the logits and the values after the states rows of
// the tape, which increase: gradLogits [len(rows), Vocab], gradValues
// [len(rows)] or nil. The policy must be as it was in Forward.
func (p *Policy) Backward(grad *Policy, tape *Tape, rows []int, gradLogits, gradValues []float32) {
	h := p.Hidden
	outer := p.backwardHead(grad, tape, rows, gradLogits, gradValues)
	gradient := make([]float32, len(tape.packed)*3*h)             // with respect to h U + Bias
	carried := make([]float32, (tape.starts[1]-tape.starts[0])*h) // with respect to the state after a step
	transposed := transpose(p.U, 3*h)
	for step := len(tape.starts) - 2; step >= 0; step-- {
		start, end := tape.starts[step], tape.starts[step+1]
		for row := start; row < end; row++ {
			carried := carried[(row-start)*h:][:h]
			add(carried, outer[tape.packed[row]*h:][:h])
			p.backwardCell(grad, tape, row, carried, gradient[row*3*h:][:3*h])
		}
		multiply(carried[:(end-start)*h], gradient[start*3*h:end*3*h], transposed, 3*h, h)
	}
	addProduct(grad.U, tape.previous, gradient, h, 3*h)
}

// backwardHead carries the gradient through the heads: it adds to theirs, and returns that
// with respect to the states [T, Hidden] from the loss directly.
func (p *Policy) backwardHead(grad *Policy, tape *Tape, rows []int, gradLogits, gradValues []float32) []float32 {
	h := p.Hidden
	states := gather(tape.State, rows, h)
	addProduct(grad.Head, states, gradLogits, h, p.Vocab)
	ofRows := make([]float32, len(states))
	multiply(ofRows, gradLogits, transpose(p.Head, p.Vocab), p.Vocab, h)
	outer := make([]float32, len(tape.State))
	for i, row := range rows {
		add(grad.HeadBias, gradLogits[i*p.Vocab:][:p.Vocab])
		ofRow := ofRows[i*h:][:h]
		if gradValues != nil {
			g := gradValues[i]
			grad.ValueBias[0] += g
			addScaled(grad.Value, states[i*h:][:h], g)
			addScaled(ofRow, p.Value, g)
		}
		copy(outer[row*h:], ofRow)
	}
	return outer
}

// backwardCell carries the gradient through the cell of a row. carried is the
// gradient with respect to the state after it. It becomes the gradient with respect to the
// state before it, but for what goes through U; gradient becomes that with respect to h U + Bias.
// The gradients of Input and Bias are added to.
func (p *Policy) backwardCell(grad *Policy, tape *Tape, row int, carried, gradient []float32) {
	h := p.Hidden
	gates := tape.gates[row*3*h:][:3*h]
	r, z, hidden := gates[:h], gates[h:][:h], gates[2*h:][:h]
	candidate, previous := tape.candidate[row*h:][:h], tape.previous[row*h:][:h]
	gradR, gradZ, gradHidden := gradient[:h], gradient[h:][:h], gradient[2*h:][:h]
	gradInput := grad.Input[int(tape.tokens[row])*3*h:][:3*h]
	inputN := gradInput[2*h:][:h]
	for i, g := range carried[:h] {
		r, z, n := r[i], z[i], candidate[i]
		gradN := float32(float32(g*(1-z)) * (1 - float32(n*n)))
		inputN[i] += gradN
		gradHidden[i] = float32(gradN * r)
		gradR[i] = float32(float32(gradN*hidden[i]) * float32(r*(1-r)))
		gradZ[i] = float32(float32(g*(previous[i]-n)) * float32(z*(1-z)))
		carried[i] = float32(g * z)
	}
	add(gradInput[:2*h], gradient)
	add(grad.Bias, gradient)
}
