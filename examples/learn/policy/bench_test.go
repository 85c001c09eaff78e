package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkMatMul(b *testing.B) {
	for _, size := range [][3]int{{64, 64, 192}, {64, 48, 144}, {64, 192, 64}, {64, 64, 84}, {1, 64, 192}} {
		rows, inner, columns := size[0], size[1], size[2]
		b.Run(fmt.Sprintf("%dx%dx%d", rows, inner, columns), func(b *testing.B) {
			x, y, z := uniform(rows*inner, 1), uniform(inner*columns, 2), make([]float32, rows*columns)
			for b.Loop() {
				clear(z)
				multiply(z, x, y, inner, columns)
			}
			b.ReportMetric(2*float64(rows*inner*columns)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
		})
	}
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

func BenchmarkActivation(b *testing.B) {
	x, y, z := uniform(192, 1), uniform(192, 2), make([]float32, 192)
	for _, function := range []struct {
		name string
		call func()
	}{
		{"sigmoid", func() { copy(z, x); addSigmoid(z, y) }},
		{"tanh", func() { copy(z, x); tanhs(z) }},
	} {
		b.Run(function.name, func(b *testing.B) {
			for b.Loop() {
				function.call()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(x)), "ns/element")
		})
	}
}

// A batch of 64 sequences of 80 tokens, half of which have logits.
const sequences, length, vocab = 64, 80, 84

func batch() (tokens []int32, offsets []int64, rows []int) {
	random := rand.New(rand.NewPCG(1, 0))
	for range sequences {
		offsets = append(offsets, int64(len(tokens)))
		for k := range length {
			if k%2 == 1 {
				rows = append(rows, len(tokens))
			}
			tokens = append(tokens, random.Int32N(vocab))
		}
	}
	return tokens, append(offsets, int64(len(tokens))), rows
}

func perToken(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*sequences*length), "ns/token")
}

func BenchmarkStep(b *testing.B) {
	for _, hidden := range []int{48, 64} {
		b.Run(fmt.Sprint("hidden=", hidden), func(b *testing.B) {
			p := New(vocab, hidden, 1)
			tokens, _, _ := batch()
			state, logits := make([]float32, sequences*hidden), make([]float32, sequences*vocab)
			rows := make([]int, sequences)
			for i := range rows {
				rows[i] = i
			}
			for b.Loop() {
				clear(state)
				for k := range length {
					p.Step(state, rows, tokens[k*sequences:][:sequences])
					if k%2 == 1 {
						p.Logits(logits, state, rows)
					}
				}
			}
			perToken(b)
		})
	}
}

func BenchmarkForwardBackward(b *testing.B) {
	for _, hidden := range []int{48, 64} {
		b.Run(fmt.Sprint("hidden=", hidden), func(b *testing.B) {
			p := New(vocab, hidden, 1)
			grad := p.Zeros()
			tokens, offsets, rows := batch()
			gradLogits, gradValues := uniform(len(rows)*vocab, 2), uniform(len(rows), 3)
			logits := make([]float32, len(rows)*vocab)
			var tape Tape
			for b.Loop() {
				p.Forward(&tape, tokens, offsets)
				p.Logits(logits, tape.State, rows)
				p.Backward(grad, &tape, rows, gradLogits, gradValues)
			}
			perToken(b)
		})
	}
}

func BenchmarkSample(b *testing.B) {
	logits := uniform(vocab, 1)
	random := rand.New(rand.NewPCG(1, 0))
	for b.Loop() {
		Sample(logits, 1, random.Float64())
	}
}

func BenchmarkUpdate(b *testing.B) {
	p := New(vocab, 64, 1)
	grad := p.Zeros()
	g := uniform(len(grad.Parameters), 1)
	adam := Adam{LearningRate: 1e-3, MaxNorm: 1}
	for b.Loop() {
		copy(grad.Parameters, g)
		adam.Update(p, grad)
	}
}
