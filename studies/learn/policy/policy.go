// Package policy is the agents' model: a gated recurrent unit (GRU) over a small
// vocabulary, with its gradient and an optimizer.
//
// Every result is the same to the last bit on every CPU: the arithmetic is plain
// Go in float32, each product that meets a sum is wrapped in float32(), which
// forbids the compiler to fuse the two, and the order of each sum is fixed.
// The loops in assembly keep to that arithmetic and that order.
// (Gonum's matrix product has other bits on arm64 than on amd64.)
package policy

import (
	"math"
	"math/rand/v2"
)

// A Policy predicts the next token of each sequence from the tokens so far:
//
//	r, z = sigmoid(Input[token] + h U + Bias)         for the first two thirds of the 3H columns
//	n    = tanh(Input[token] + r * (h U + Bias))      for the last third
//	h'   = (1 - z) * n + z * h
//	logits = h' Head + HeadBias        value = h' . Value + ValueBias
//
// (a GRU as PyTorch has it, with a table in place of an embedding times a matrix.)
// The state h of a sequence is 0 before its first token.
type Policy struct {
	Vocab, Hidden int

	// Parameters holds all that is learned; the other slices are parts of it.
	Parameters []float32
	Input      []float32 // [Vocab, 3 Hidden]
	U          []float32 // [Hidden, 3 Hidden]
	Bias       []float32 // [3 Hidden]
	Head       []float32 // [Hidden, Vocab]
	HeadBias   []float32 // [Vocab]
	Value      []float32 // [Hidden]
	ValueBias  []float32 // [1]
}

// New returns a policy with random parameters, which seed decides. Those of Input,
// U and Head are uniform between -1/sqrt(hidden) and 1/sqrt(hidden), as PyTorch
// begins a GRU. Biases are 0, and so is Value, so that every value is 0 at first.
func New(vocab, hidden int, seed uint64) *Policy {
	p := newPolicy(vocab, hidden)
	random := rand.New(rand.NewPCG(seed, 0x706f6c696379))
	bound := 1 / math.Sqrt(float64(hidden))
	for _, part := range [][]float32{p.Input, p.U, p.Head} {
		for i := range part {
			part[i] = float32(bound * (float64(2*random.Float64()) - 1))
		}
	}
	return p
}

// newPolicy returns a policy with all parameters 0.
func newPolicy(vocab, hidden int) *Policy {
	p := &Policy{Vocab: vocab, Hidden: hidden}
	parts := []struct {
		slice *[]float32
		size  int
	}{
		{&p.Input, vocab * 3 * hidden},
		{&p.U, hidden * 3 * hidden},
		{&p.Bias, 3 * hidden},
		{&p.Head, hidden * vocab},
		{&p.HeadBias, vocab},
		{&p.Value, hidden},
		{&p.ValueBias, 1},
	}
	total := 0
	for _, part := range parts {
		total += part.size
	}
	p.Parameters = make([]float32, total)
	rest := p.Parameters
	for _, part := range parts {
		*part.slice, rest = rest[:part.size:part.size], rest[part.size:]
	}
	return p
}

// Zeros returns a policy of the same shape, all parameters 0: room for a gradient.
func (p *Policy) Zeros() *Policy { return newPolicy(p.Vocab, p.Hidden) }

// Clone returns a copy.
func (p *Policy) Clone() *Policy {
	clone := p.Zeros()
	copy(clone.Parameters, p.Parameters)
	return clone
}
