package policy

import "slices"

// Step advances the states of some sequences by one token each: state is
// [.., Hidden], one row a sequence, and token[i] is read by row rows[i]. No row
// may be there twice.
func (p *Policy) Step(state []float32, rows []int, token []int32) {
	h := p.Hidden
	p.gather(state, rows)
	p.gates = grow(p.gates, len(rows)*3*h)
	repeat(p.gates, p.Bias)
	multiply(p.gates, p.states, p.U, h, 3*h)
	for i, row := range rows {
		next := state[row*h:][:h]
		p.cell(next, next, p.gates[i*3*h:][:3*h], p.states[i*h:][:h], token[i])
	}
}

// Logits sets dst [len(rows), Vocab] to the logits of the next token after the
// states rows of state [.., Hidden].
func (p *Policy) Logits(dst, state []float32, rows []int) {
	p.gather(state, rows)
	dst = dst[:len(rows)*p.Vocab]
	repeat(dst, p.HeadBias)
	multiply(dst, p.states, p.Head, p.Hidden, p.Vocab)
}

// Values sets dst[i] to the value of the state rows[i].
func (p *Policy) Values(dst, state []float32, rows []int) {
	for i, row := range rows {
		sum := p.ValueBias[0]
		for k, x := range state[row*p.Hidden:][:p.Hidden] {
			sum += float32(x * p.Value[k])
		}
		dst[i] = sum
	}
}

// gather sets p.states to the states rows of state.
func (p *Policy) gather(state []float32, rows []int) {
	p.states = grow(p.states, len(rows)*p.Hidden)
	gather(p.states, state, rows, p.Hidden)
}

// gather copies the rows of src, of some columns each, to dst.
func gather(dst, src []float32, rows []int, columns int) {
	for i, row := range rows {
		copy(dst[i*columns:][:columns], src[row*columns:])
	}
}

// repeat sets each row of dst to row.
func repeat(dst, row []float32) {
	for len(dst) > 0 {
		dst = dst[copy(dst, row):]
	}
}

// cell sets next to the state after token, where previous is the state before it.
// gates is previous U + Bias and becomes r, z and, unchanged, the third that
// is multiplied by r. candidate becomes n, and may be next.
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

// A Tape holds what Forward computed, for Backward. Its memory is reused.
//
// Within, rows are in the order of computation: the first token of every
// sequence, then the second ones, and so on, with the longest sequence first. The
// sequences that have a token k are then the first ones among those that have a
// token k-1.
type Tape struct {
	State []float32 // [T, Hidden] the state after each token

	order  []int   // sequences, the longest first
	starts []int   // the first row of each step, and T
	packed []int   // the place of each row in State
	tokens []int32 // of each row

	previous  []float32 // [T, Hidden] the state before each token
	gates     []float32 // [T, 3 Hidden] r, z and the third of h U + Bias that r multiplies
	candidate []float32 // [T, Hidden] n

	// What follows is room for Backward.
	gradient   []float32 // [T, 3 Hidden] with respect to h U + Bias
	carried    []float32 // [sequences, Hidden] with respect to the state after a step
	outer      []float32 // [len(rows), Hidden] with respect to the states rows, from the loss
	outerRow   []int     // [T] the row of outer for each place in State, or -1
	states     []float32 // [len(rows), Hidden] the states rows
	transposed []float32 // of a matrix
}

// arrange orders the tokens.
func (t *Tape) arrange(tokens []int32, offsets []int64) {
	sequences := max(len(offsets)-1, 0)
	length := func(s int) int { return int(offsets[s+1] - offsets[s]) }
	t.order = grow(t.order, sequences)
	for s := range t.order {
		t.order[s] = s
	}
	slices.SortStableFunc(t.order, func(a, b int) int { return length(b) - length(a) })

	t.starts, t.packed, t.tokens = t.starts[:0], t.packed[:0], t.tokens[:0]
	for step := 0; ; step++ {
		t.starts = append(t.starts, len(t.packed))
		for _, s := range t.order {
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
// offsets[s] to offsets[s+1] are sequence s. Row t of tape.State is the state
// after token t. The states are those of Step, to the bit.
func (p *Policy) Forward(tape *Tape, tokens []int32, offsets []int64) {
	h := p.Hidden
	tape.arrange(tokens, offsets)
	n := len(tape.packed)
	tape.State = grow(tape.State, n*h)
	tape.previous = grow(tape.previous, n*h)
	tape.gates = grow(tape.gates, n*3*h)
	tape.candidate = grow(tape.candidate, n*h)
	if n == 0 {
		return
	}
	clear(tape.previous[:tape.starts[1]*h])
	for step, start := range tape.starts[:len(tape.starts)-1] {
		end := tape.starts[step+1]
		gates := tape.gates[start*3*h : end*3*h]
		repeat(gates, p.Bias)
		multiply(gates, tape.previous[start*h:end*h], p.U, h, 3*h)
		following := tape.previous[end*h:]
		if step+2 < len(tape.starts) {
			following = tape.previous[end*h : tape.starts[step+2]*h]
		}
		for row := start; row < end; row++ {
			next := tape.State[tape.packed[row]*h:][:h]
			p.cell(next, tape.candidate[row*h:][:h], tape.gates[row*3*h:][:3*h], tape.previous[row*h:][:h], tape.tokens[row])
			following = following[copy(following, next):]
		}
	}
}

// Backward adds the gradient of a loss to grad. It is given what the loss's
// gradient is with respect to the logits and the values after the states rows of
// the tape, which increase: gradLogits [len(rows), Vocab], gradValues
// [len(rows)] or nil. The policy must be as it was in Forward.
func (p *Policy) Backward(grad *Policy, tape *Tape, rows []int, gradLogits, gradValues []float32) {
	p.backwardHead(grad, tape, rows, gradLogits, gradValues)

	h := p.Hidden
	sequences := tape.starts[min(1, len(tape.starts)-1)]
	tape.gradient = grow(tape.gradient, len(tape.packed)*3*h)
	tape.carried = grow(tape.carried, sequences*h)
	clear(tape.carried)
	tape.transposed = grow(tape.transposed, len(p.U))
	transpose(tape.transposed, p.U, 3*h)
	for step := len(tape.starts) - 2; step >= 0; step-- {
		start, end := tape.starts[step], tape.starts[step+1]
		for row := start; row < end; row++ {
			p.backwardCell(grad, tape, row, tape.carried[(row-start)*h:][:h])
		}
		multiply(tape.carried[:(end-start)*h], tape.gradient[start*3*h:end*3*h], tape.transposed, 3*h, h)
	}
	tape.addProduct(grad.U, tape.previous, tape.gradient, h, 3*h)
}

// backwardHead carries the gradient through the heads: it adds to theirs and
// sets tape.outer.
func (p *Policy) backwardHead(grad *Policy, tape *Tape, rows []int, gradLogits, gradValues []float32) {
	h := p.Hidden
	gradLogits = gradLogits[:len(rows)*p.Vocab]
	tape.states = grow(tape.states, len(rows)*h)
	gather(tape.states, tape.State, rows, h)
	tape.addProduct(grad.Head, tape.states, gradLogits, h, p.Vocab)
	for i := range rows {
		add(grad.HeadBias, gradLogits[i*p.Vocab:][:p.Vocab])
	}

	tape.outer = grow(tape.outer, len(rows)*h)
	clear(tape.outer)
	tape.transposed = grow(tape.transposed, len(p.Head))
	transpose(tape.transposed, p.Head, p.Vocab)
	multiply(tape.outer, gradLogits, tape.transposed, p.Vocab, h)
	if gradValues != nil {
		for i, g := range gradValues[:len(rows)] {
			grad.ValueBias[0] += g
			addScaled(grad.Value, tape.states[i*h:][:h], g)
			addScaled(tape.outer[i*h:][:h], p.Value, g)
		}
	}

	tape.outerRow = grow(tape.outerRow, len(tape.packed))
	for t := range tape.outerRow {
		tape.outerRow[t] = -1
	}
	for i, row := range rows {
		tape.outerRow[row] = i
	}
}

// backwardCell carries the gradient through the cell of a row. carried is the
// gradient with respect to the state after it, but for what comes from the loss
// directly. It becomes the gradient with respect to the state before it, but for
// what goes through U. The gradients of Input and Bias are added to.
func (p *Policy) backwardCell(grad *Policy, tape *Tape, row int, carried []float32) {
	h := p.Hidden
	if i := tape.outerRow[tape.packed[row]]; i >= 0 {
		add(carried, tape.outer[i*h:][:h])
	}
	gates := tape.gates[row*3*h:][:3*h]
	r, z, hidden := gates[:h], gates[h:][:h], gates[2*h:][:h]
	candidate, previous := tape.candidate[row*h:][:h], tape.previous[row*h:][:h]
	gradient := tape.gradient[row*3*h:][:3*h]
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
