package policy

import "slices"

// Step advances the state [Hidden] of a sequence by one token.
func (p *Policy) Step(state []float32, token int32) {
	gates := slices.Clone(p.Bias)
	multiply(gates, state, p.U, p.Hidden, 3*p.Hidden)
	loops.cell(state, make([]float32, p.Hidden), gates, p.input(token), state)
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

// input returns the row of a token.
func (p *Policy) input(token int32) []float32 { return p.Input[int(token)*3*p.Hidden:][:3*p.Hidden] }

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
			gates, input := tape.gates[row*3*h:][:3*h], p.input(tape.tokens[row])
			loops.cell(next, tape.candidate[row*h:][:h], gates, input, previous)
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
			loops.backwardCell(&cellGradient{
				carried: carried[(row-start)*h:][:h], outer: outer[tape.packed[row]*h:][:h],
				gates: tape.gates[row*3*h:][:3*h], candidate: tape.candidate[row*h:][:h],
				previous: tape.previous[row*h:][:h],
				gradient: gradient[row*3*h:][:3*h], input: grad.input(tape.tokens[row]), bias: grad.Bias,
			})
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
	loops.multiplyRow(grad.HeadBias, []float32{1}, gradLogits, len(rows), 0)
	if gradValues != nil {
		for _, g := range gradValues {
			grad.ValueBias[0] += g
		}
		addProduct(grad.Value, gradValues, states, 1, h)
		multiply(ofRows, gradValues, p.Value, 1, h)
	}
	outer := make([]float32, len(tape.State))
	for i, row := range rows {
		copy(outer[row*h:], ofRows[i*h:][:h])
	}
	return outer
}
