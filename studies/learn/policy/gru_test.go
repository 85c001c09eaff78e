package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// A second implementation, in float64 and one sequence at a time. states are those
// after each token; loss is the sum of the logits and values at rows, each times
// its weight.
func reference(
	p *Policy, parameters []float64, tokens []int32, offsets []int64, rows []int, weights, valueWeights []float32,
) (states []float64, loss float64) {
	v, h := p.Vocab, p.Hidden
	part := func(rows, columns int) *mat.Dense {
		m := mat.NewDense(rows, columns, parameters[:rows*columns])
		parameters = parameters[rows*columns:]
		return m
	}
	input, u, bias, head, headBias := part(v, 3*h), part(h, 3*h), part(1, 3*h), part(h, v), part(1, v)
	value, valueBias := part(h, 1), part(1, 1)
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	affine := func(x, matrix, bias *mat.Dense) []float64 {
		var y mat.Dense
		y.Mul(x, matrix)
		y.Add(&y, bias)
		return y.RawRowView(0)
	}
	for s := range len(offsets) - 1 {
		state := mat.NewDense(1, h, nil)
		for t := offsets[s]; t < offsets[s+1]; t++ {
			in, gates := input.RawRowView(int(tokens[t])), affine(state, u, bias)
			for i, before := range state.RawRowView(0) {
				r, z := sigmoid(in[i]+gates[i]), sigmoid(in[h+i]+gates[h+i])
				n := math.Tanh(in[2*h+i] + r*gates[2*h+i])
				state.Set(0, i, (1-z)*n+z*before)
			}
			states = append(states, state.RawRowView(0)...)
			if at := slices.Index(rows, int(t)); at >= 0 {
				loss += floats.Dot(widen(weights[at*v:][:v]), affine(state, head, headBias))
				loss += float64(valueWeights[at]) * affine(state, value, valueBias)[0]
			}
		}
	}
	return states, loss
}

// randomPolicy returns a policy with no parameter 0, and larger ones than New's.
func randomPolicy(vocab, hidden int, seed uint64) *Policy {
	p := New(vocab, hidden, seed)
	copy(p.Parameters, uniform(len(p.Parameters), seed))
	return p
}

// packed returns sequences of these lengths.
func packed(vocab int, seed uint64, lengths ...int) (tokens []int32, offsets []int64) {
	random := rand.New(rand.NewPCG(seed, 1))
	offsets = []int64{0}
	for _, n := range lengths {
		for range n {
			tokens = append(tokens, random.Int32N(int32(vocab)))
		}
		offsets = append(offsets, int64(len(tokens)))
	}
	return tokens, offsets
}

// uniform returns n numbers between -1 and 1.
func uniform(n int, seed uint64) []float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*random.Float32() - 1
	}
	return x
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, x := range x {
		y[i] = float64(x)
	}
	return y
}

// Forward and Backward against the reference, whose gradient is that of central differences.
func TestReference(t *testing.T) {
	for _, shape := range [][2]int{{5, 4}, {7, 5}, {13, 9}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			p := randomPolicy(shape[0], shape[1], 1)
			tokens, offsets := packed(p.Vocab, 2, 3, 0, 7, 1, 7)
			rows := []int{0, 2, 3, 5, 9, 10, 17}
			weights, valueWeights := uniform(len(rows)*p.Vocab, 3), uniform(len(rows), 4)

			tape := p.Forward(tokens, offsets)
			parameters := widen(p.Parameters)
			states, loss := reference(p, parameters, tokens, offsets, rows, weights, valueWeights)
			if len(tape.State) != len(states) {
				t.Fatalf("%d states, want %d", len(tape.State), len(states))
			}
			for i, want := range states {
				if math.Abs(float64(tape.State[i])-want) > 1e-6 {
					t.Fatalf("state %d is %v, want %v", i, tape.State[i], want)
				}
			}
			got := floats.Dot(widen(weights), widen(p.Logits(tape.State, rows)))
			got += floats.Dot(widen(valueWeights), widen(p.Values(tape.State, rows)))
			if math.Abs(got-loss) > 1e-5*math.Abs(loss) {
				t.Errorf("loss %v, want %v", got, loss)
			}

			grad := p.Zeros()
			for i := range grad.Parameters {
				grad.Parameters[i] = 1 // Backward adds to what is there
			}
			p.Backward(grad, tape, rows, weights, valueWeights)
			ofLoss := fd.Gradient(nil, func(parameters []float64) float64 {
				_, loss := reference(p, parameters, tokens, offsets, rows, weights, valueWeights)
				return loss
			}, parameters, &fd.Settings{Formula: fd.Central, Step: 1e-5})
			for i, want := range ofLoss {
				want++
				if got := float64(grad.Parameters[i]); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("gradient of parameter %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// The states of Forward are those of Step to the bit, and so are logits and values of all rows
// and of one.
func TestForwardIsStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20)
		p := randomPolicy(size.Draw(t, "vocab"), size.Draw(t, "hidden"), rapid.Uint64().Draw(t, "seed"))
		tokens, offsets := packed(p.Vocab, 1, rapid.SliceOfN(rapid.IntRange(0, 6), 1, 8).Draw(t, "lengths")...)
		tape := p.Forward(tokens, offsets)
		var states, logits, values []float32
		var rows []int
		for s, end := range offsets[1:] {
			state := make([]float32, p.Hidden)
			for _, token := range tokens[offsets[s]:end] {
				p.Step(state, token)
				states = append(states, state...)
				logits = append(logits, p.Logits(state, []int{0})...)
				values = append(values, p.Values(state, []int{0})...)
				rows = append(rows, len(rows))
			}
		}
		if !sameBits(states, tape.State) {
			t.Fatal("Forward and Step differ")
		}
		if !sameBits(logits, p.Logits(tape.State, rows)) || !sameBits(values, p.Values(tape.State, rows)) {
			t.Fatal("logits or values differ")
		}
	})
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// train makes some steps towards logits of 1 at the token before the last one, 0 elsewhere, and values of 1.
func train(p *Policy, steps int) {
	var adam Adam
	grad := p.Zeros()
	for step := range steps {
		tokens, offsets := packed(p.Vocab, uint64(step), 12, 3, 7, 12, 9, 12, 5, 12, 12, 10)
		var rows []int
		var targets []int32
		for s := range len(offsets) - 1 {
			for t := offsets[s] + 1; t < offsets[s+1]; t++ {
				rows = append(rows, int(t))
				targets = append(targets, tokens[t-1])
			}
		}
		tape := p.Forward(tokens, offsets)
		logits := p.Logits(tape.State, rows)
		scale := 1 / float32(len(rows))
		for i, target := range targets {
			row := logits[i*p.Vocab:][:p.Vocab]
			for j, x := range row {
				row[j] = float32(x * scale)
			}
			row[target] -= scale
		}
		values := p.Values(tape.State, rows)
		for i, v := range values {
			values[i] = float32(v-1) * scale
		}
		p.Backward(grad, tape, rows, logits, values)
		adam.Update(p, grad, 0.01)
	}
}

// The parameters after some training, and draws, are the same on every CPU.
func TestGolden(t *testing.T) {
	p := New(17, 19, 7)
	train(p, 20)
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, p.Parameters)
	random := rand.New(rand.NewPCG(1, 2))
	for start := range len(p.Input) - 30 {
		binary.Write(h, binary.LittleEndian, Sample(p.Input[start:][:30], random.Float64()))
	}
	for _, x := range p.Input {
		binary.Write(h, binary.LittleEndian, exp(x))
	}
	const want = "88fee2c378fe9e51e310e8b827666e57b529fcb25b8e945cc689977b5ce1be3e"
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		t.Errorf("SHA-256 %s, want %s", got, want)
	}
}
