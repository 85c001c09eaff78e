package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A second implementation, in float64 and one sequence at a time. states are those
// after each token; loss is the sum of the logits and values at rows, each times
// its weight.
func reference(p *Policy, parameters []float64, tokens []int32, offsets []int64, rows []int, weights, valueWeights []float32) (states []float64, loss float64) {
	v, h := p.Vocab, p.Hidden
	part := func(n int) []float64 {
		s := parameters[:n]
		parameters = parameters[n:]
		return s
	}
	input, u, bias, head, headBias := part(v*3*h), part(h*3*h), part(3*h), part(h*v), part(v)
	value, valueBias := part(h), part(1)
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	for s := range len(offsets) - 1 {
		state := make([]float64, h)
		for t := offsets[s]; t < offsets[s+1]; t++ {
			gate := func(column int) float64 {
				g := bias[column]
				for k, x := range state {
					g += x * u[k*3*h+column]
				}
				return g
			}
			next := make([]float64, h)
			for i := range next {
				in := input[int(tokens[t])*3*h:]
				r, z := sigmoid(in[i]+gate(i)), sigmoid(in[h+i]+gate(h+i))
				n := math.Tanh(in[2*h+i] + r*gate(2*h+i))
				next[i] = (1-z)*n + z*state[i]
			}
			state = next
			states = append(states, state...)
			if at := slices.Index(rows, int(t)); at >= 0 {
				for j := range v {
					logit := headBias[j]
					for i, x := range state {
						logit += x * head[i*v+j]
					}
					loss += float64(weights[at*v+j]) * logit
				}
				y := valueBias[0]
				for i, x := range state {
					y += x * value[i]
				}
				loss += float64(valueWeights[at]) * y
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

			var tape Tape
			p.Forward(&tape, tokens, offsets)
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
			logits, values := make([]float32, len(weights)), make([]float32, len(rows))
			p.Logits(logits, tape.State, rows)
			p.Values(values, tape.State, rows)
			var got float64
			for i, w := range weights {
				got += float64(w) * float64(logits[i])
			}
			for i, w := range valueWeights {
				got += float64(w) * float64(values[i])
			}
			if math.Abs(got-loss) > 1e-5*math.Abs(loss) {
				t.Errorf("loss %v, want %v", got, loss)
			}

			grad := p.Zeros()
			for i := range grad.Parameters {
				grad.Parameters[i] = 1 // Backward adds to what is there
			}
			p.Backward(grad, &tape, rows, weights, valueWeights)
			for i, x := range parameters {
				const step = 1e-5
				parameters[i] = x + step
				_, above := reference(p, parameters, tokens, offsets, rows, weights, valueWeights)
				parameters[i] = x - step
				_, below := reference(p, parameters, tokens, offsets, rows, weights, valueWeights)
				parameters[i] = x
				want := (above-below)/(2*step) + 1
				if got := float64(grad.Parameters[i]); math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("gradient of parameter %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// The states of Forward are those of Step to the bit, whichever rows run together,
// and so are logits and values of some rows and of one. Nothing is left over from
// an earlier use of the tape.
func TestForwardIsStep(t *testing.T) {
	var tape Tape
	rapid.Check(t, func(t *rapid.T) {
		p := randomPolicy(rapid.IntRange(1, 20).Draw(t, "vocab"), rapid.IntRange(1, 20).Draw(t, "hidden"), rapid.Uint64().Draw(t, "seed"))
		lengths := rapid.SliceOfN(rapid.IntRange(0, 6), 0, 8).Draw(t, "lengths")
		tokens, offsets := packed(p.Vocab, 1, lengths...)
		p.Forward(&tape, tokens, offsets)

		// Step advances any of the sequences that are not at their end.
		h, v := p.Hidden, p.Vocab
		state := make([]float32, len(lengths)*h)
		at := slices.Clone(offsets)
		for {
			var rows []int
			var next []int32
			for s := range lengths {
				if at[s] < offsets[s+1] && rapid.Bool().Draw(t, "advance") {
					rows = append(rows, s)
					next = append(next, tokens[at[s]])
				}
			}
			p.Step(state, rows, next)
			logits, values := make([]float32, len(rows)*v), make([]float32, len(rows))
			p.Logits(logits, state, rows)
			p.Values(values, state, rows)
			for i, s := range rows {
				if !sameBits(tape.State[int(at[s])*h:][:h], state[s*h:][:h]) {
					t.Fatalf("sequence %d, token %d: Forward and Step differ", s, at[s]-offsets[s])
				}
				logit, value := make([]float32, v), make([]float32, 1)
				p.Logits(logit, tape.State, []int{int(at[s])})
				p.Values(value, tape.State, []int{int(at[s])})
				if !sameBits(logit, logits[i*v:][:v]) || !sameBits(value, values[i:i+1]) {
					t.Fatalf("sequence %d, token %d: logits or value differ", s, at[s]-offsets[s])
				}
				at[s]++
			}
			if slices.Equal(at[:len(lengths)], offsets[1:]) {
				return
			}
		}
	})
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// Without tokens there is nothing to do, and without rows no gradient.
func TestNothing(t *testing.T) {
	p := New(5, 3, 1)
	grad := p.Zeros()
	var tape Tape
	for _, offsets := range [][]int64{nil, {0}, {0, 0, 0}} {
		p.Forward(&tape, nil, offsets)
		p.Backward(grad, &tape, nil, nil, nil)
	}
	p.Step(nil, nil, nil)
	p.Logits(nil, nil, nil)
	p.Forward(&tape, []int32{1, 2}, []int64{0, 2})
	p.Backward(grad, &tape, nil, nil, nil)
	for _, g := range grad.Parameters {
		if g != 0 {
			t.Fatalf("gradient %v of nothing", g)
		}
	}
}

// train makes some steps towards the token before the last one, and returns the
// mean probability of the right token in the last step.
func train(p *Policy, adam *Adam, steps int) (probability float64) {
	var tape Tape
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
		p.Forward(&tape, tokens, offsets)
		logits := make([]float32, len(rows)*p.Vocab)
		p.Logits(logits, tape.State, rows)
		probability = 0
		scale := 1 / float32(len(rows))
		for i, target := range targets {
			row := logits[i*p.Vocab:][:p.Vocab]
			most, sum := slices.Max(row), float32(0)
			for j, x := range row {
				row[j] = exp(x - most)
				sum += row[j]
			}
			for j, x := range row {
				row[j] = float32(x / sum * scale)
			}
			probability += float64(row[target])
			row[target] -= scale
		}
		values := make([]float32, len(rows)) // towards 1
		p.Values(values, tape.State, rows)
		for i, v := range values {
			values[i] = float32(v-1) * scale
		}
		p.Backward(grad, &tape, rows, logits, values)
		adam.Update(p, grad)
	}
	return probability
}

// The parameters after some training, and draws, are the same on every CPU.
func TestGolden(t *testing.T) {
	p := New(17, 19, 7)
	train(p, &Adam{LearningRate: 0.01, MaxNorm: 0.5}, 20)
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, p.Parameters)
	random := rand.New(rand.NewPCG(1, 2))
	for start := range len(p.Input) - 30 {
		binary.Write(h, binary.LittleEndian, Sample(p.Input[start:][:30], 0.3, random.Float64()))
	}
	for _, x := range p.Input {
		binary.Write(h, binary.LittleEndian, exp(x))
	}
	const want = "d8c797a0c676f1dbf8ed1c59b9a0dc1b0804a03b3ba62626dca10afe0005de74"
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
		t.Errorf("SHA-256 %s, want %s", got, want)
	}
}

// Nothing is allocated once the memory is there.
func TestAllocations(t *testing.T) {
	const vocab = 84
	p := New(vocab, 48, 1)
	grad := p.Zeros()
	tokens, offsets := packed(vocab, 1, 5, 9, 2, 9)
	rows := []int{0, 7, 8, 24}
	state, logits, values := make([]float32, 4*48), make([]float32, 4*vocab), make([]float32, 4)
	adam := Adam{LearningRate: 0.01, MaxNorm: 1}
	var tape Tape
	if n := testing.AllocsPerRun(10, func() {
		p.Step(state, []int{0, 3}, tokens)
		p.Logits(logits, state, []int{0, 1, 2, 3})
		p.Forward(&tape, tokens, offsets)
		p.Logits(logits, tape.State, rows)
		p.Values(values, tape.State, rows)
		p.Backward(grad, &tape, rows, logits, values)
		adam.Update(p, grad)
		Sample(logits[:vocab], 1, 0.5)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
