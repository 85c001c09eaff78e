//go:build cgo && linux

package testlib_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
	"github.com/seed621a2839/reweight/native/testlib"
)

// TestWorkers: threads share rows, and the bits are those of one. The library starts a
// thread for each 65,536 logits at most.
func TestWorkers(t *testing.T) {
	l := testlib.Open(t)
	for _, shape := range []struct{ rows, vocab int }{{1, 200_000}, {2, 70_001}, {5, 70_001}, {65, 4097}, {400, 655},
		{3000, 66}, {20_000, 7}} {
		for _, dtype := range []reweight.DType{reweight.DTypeF32, reweight.DTypeBF16} {
			t.Run(fmt.Sprintf("%v/%d x %d", dtype, shape.rows, shape.vocab), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(1, uint64(shape.vocab)))
				x, grad := make([]float32, shape.rows*shape.vocab), make([]float32, shape.rows)
				ids := make([]int32, shape.rows)
				for i := range x {
					x[i] = float32(3 * r.NormFloat64())
				}
				for i := range ids {
					ids[i], grad[i] = int32(r.IntN(shape.vocab)), float32(r.NormFloat64())
				}
				run := func(c randomcalls.Caller) randomcalls.Outcome {
					logits := reweight.Logits{Vocab: shape.vocab, F32: slices.Clone(x)}
					if dtype == reweight.DTypeBF16 {
						logits.F32, logits.BF16 = nil, make([]reweight.BF16, len(x))
						for i, v := range x {
							logits.BF16[i] = reweight.ToBF16(v)
						}
					}
					dst := reweight.Stats{LSE: make([]float32, shape.rows), Entropy: make([]float32, shape.rows),
						Logprob: make([]float32, shape.rows)}
					err := c.TokenStats(dst, logits, ids, reweight.DefaultTokenStats)
					if err == nil { // in place
						err = c.RowGradient(logits, logits, ids,
							reweight.RowGradientInput{Logprobs: dst.Logprob, Entropy: dst.Entropy, Grad: grad,
								GradEntropy: grad}, reweight.DefaultRowGradient)
					}
					return randomcalls.Outcome{err, dst, logits}
				}
				want := run(plain())
				if want[0] != nil {
					t.Fatal(want[0])
				}
				for _, workers := range []int{0, 1, 2, 3, 4, math.MaxInt32} {
					for _, c := range each(l, workers) {
						if err := randomcalls.Differ(run(c), want); err != nil {
							t.Errorf("%v, %d workers: %v", c.ISA(), workers, err)
						}
					}
				}
			})
		}
	}
}

// TestFarApart: rows with large gaps between them, and ids that 32 bits do not hold.
func TestFarApart(t *testing.T) {
	const rows, vocab, stride = 3, 5, 1 << 20
	x := make([]float32, 2*stride+vocab)
	packed := make([]float32, 0, rows*vocab)
	for r := range rows {
		for v := range vocab {
			x[r*stride+v] = float32(r*v) / 3
		}
		packed = append(packed, x[r*stride:][:vocab]...)
	}
	far := testlib.Rows{Data: x, Rows: rows, Vocab: vocab, Stride: stride}
	ids, wide := []int32{4, 0, 2}, []int64{4, 0, 2}
	var want, got reweight.Stats
	for _, s := range []*reweight.Stats{&want, &got} {
		*s = reweight.Stats{LSE: make([]float32, rows), Entropy: make([]float32, rows), Logprob: make([]float32, rows)}
	}
	must.Do(plain().TokenStats(want, reweight.Logits{Vocab: vocab, F32: packed}, ids, reweight.DefaultTokenStats))
	for _, r := range each(testlib.Open(t), 2) {
		must.Do(r.TokenStatsOfRows(got, far, wide, reweight.DefaultTokenStats))
		if err := randomcalls.Differ(randomcalls.Outcome{got}, randomcalls.Outcome{want}); err != nil {
			t.Errorf("%v: %v", r.ISA(), err)
		}
		for _, id := range []int64{5, 1 << 32, 1<<32 + 1, -1 << 32, math.MinInt64, math.MaxInt64} {
			err := r.TokenStatsOfRows(got, far, []int64{0, id, 0}, reweight.DefaultTokenStats)
			problem := fmt.Sprintf("is %d, want 0 to 4, for rows of 5 logits", id)
			want := reweight.InputError{Arg: "ids", Index: 1, Problem: problem}
			if err == nil || *err.(*reweight.InputError) != want {
				t.Errorf("%v, id %d: error %v", r.ISA(), id, err)
			}
		}
	}
}

// TestWrongRows: what a caller of C can have wrong and a caller of Go cannot is an error
// too, about the argument.
func TestWrongRows(t *testing.T) {
	x := make([]float32, 12)
	out := []float32{7, 7}
	good := testlib.Rows{Data: x, Rows: 2, Vocab: 5, Stride: 6}
	ids := []int64{0, 1}
	l := testlib.Open(t)
	stats := func(r *testlib.Runner, logits testlib.Rows, ids []int64) error {
		return r.TokenStatsOfRows(reweight.Stats{Logprob: out}, logits, ids, reweight.DefaultTokenStats)
	}
	gradient := func(r *testlib.Runner, dst testlib.Rows) error {
		return r.RowGradientOfRows(dst, good, ids, reweight.RowGradientInput{Logprobs: x[:2], Grad: x[:2]},
			reweight.DefaultRowGradient)
	}
	with := func(change func(*testlib.Rows)) testlib.Rows {
		rows := good
		change(&rows)
		return rows
	}
	for name, call := range map[string]func(r *testlib.Runner) error{
		"logits stride":   func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.Stride = 4 }), ids) },
		"logits negative": func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.Stride = -6 }), ids) },
		"logits vocab":    func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.Vocab = 0 }), ids) },
		"logits large": func(r *testlib.Runner) error {
			return stats(r, with(func(l *testlib.Rows) { l.Vocab = 1 << 31; l.Stride = 0 }), ids)
		},
		"logits many": func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.Rows = 1 << 60 }), ids) },
		"logits apart": func(r *testlib.Runner) error {
			return stats(r, with(func(l *testlib.Rows) { l.Stride = math.MaxInt }), ids)
		},
		"logits rows":  func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.Rows = -1 }), ids) },
		"logits dtype": func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.DType = 3 }), ids) },
		"logits data":  func(r *testlib.Runner) error { return stats(r, with(func(l *testlib.Rows) { l.Data = nil }), ids) },
		"ids none":     func(r *testlib.Runner) error { return stats(r, good, nil) },
		"dst stride":   func(r *testlib.Runner) error { return gradient(r, with(func(l *testlib.Rows) { l.Stride = 4 })) },
		"dst apart":    func(r *testlib.Runner) error { return gradient(r, with(func(l *testlib.Rows) { l.Stride = 5 })) },
		"dst rows":     func(r *testlib.Runner) error { return gradient(r, with(func(l *testlib.Rows) { l.Rows = 1 })) },
		"dst vocab":    func(r *testlib.Runner) error { return gradient(r, with(func(l *testlib.Rows) { l.Vocab = 4 })) },
		"dst dtype": func(r *testlib.Runner) error {
			return gradient(r, with(func(l *testlib.Rows) { l.DType = reweight.DTypeBF16 }))
		},
		"dst data": func(r *testlib.Runner) error { return gradient(r, with(func(l *testlib.Rows) { l.Data = nil })) },
		"logprobs none": func(r *testlib.Runner) error {
			return r.RowGradientOfRows(good, good, ids, reweight.RowGradientInput{Grad: x[:2]},
				reweight.DefaultRowGradient)
		},
		"entropy none": func(r *testlib.Runner) error {
			return r.RowGradientOfRows(good, good, ids,
				reweight.RowGradientInput{Logprobs: x[:2], Grad: x[:2], GradEntropy: x[:2]},
				reweight.DefaultRowGradient)
		},
		"grad none": func(r *testlib.Runner) error {
			return r.RowGradientOfRows(good, good, ids, reweight.RowGradientInput{Logprobs: x[:2]},
				reweight.DefaultRowGradient)
		},
		"workers":  func(r *testlib.Runner) error { return stats(l.Runner(r.ISA(), -1), good, ids) },
		"ISA":      func(r *testlib.Runner) error { return stats(l.Runner(99, 1), good, ids) },
		"ISA none": func(r *testlib.Runner) error { return stats(l.Runner(missing(l), 1), good, ids) },
	} {
		for _, r := range each(l, 1) {
			err := call(r)
			input, ok := err.(*reweight.InputError)
			if !ok {
				t.Errorf("%s: error %v", name, err)
				continue
			}
			t.Log(err)
			var arg, rest string
			fmt.Sscan(name, &arg, &rest)
			if input.Arg != arg && input.Arg != arg+"."+rest || input.Index != -1 {
				t.Errorf("%s: the error is about %s[%d]", name, input.Arg, input.Index)
			}
			if !slices.Equal(out, []float32{7, 7}) || slices.Max(x) != 0 || slices.Min(x) != 0 {
				t.Errorf("%s: %v and %v are written", name, out, x)
			}
		}
	}
}

// TestOneRow: what a single row has for a stride, which arrays of one row may have at will,
// does not matter, and in place neither.
func TestOneRow(t *testing.T) {
	ids, grad, logprobs := []int64{2}, []float32{1}, make([]float32, 1)
	for _, r := range each(testlib.Open(t), 1) {
		x := []float32{1, 2, 3}
		row := testlib.Rows{Data: x, Rows: 1, Vocab: 3, Stride: math.MaxInt}
		must.Do(r.TokenStatsOfRows(reweight.Stats{Logprob: logprobs}, row, ids, reweight.DefaultTokenStats))
		dst := row
		dst.Stride = 0
		must.Do(r.RowGradientOfRows(dst, row, ids, reweight.RowGradientInput{Logprobs: logprobs, Grad: grad},
			reweight.DefaultRowGradient))
		if x[0] >= 0 || x[1] >= 0 || x[2] <= 0 {
			t.Errorf("%v: the gradient is %v", r.ISA(), x)
		}
	}
}

// TestWrongWorkspace: an instruction set that there is not, or a negative number of
// threads, is an error of every method that has a use for it.
func TestWrongWorkspace(t *testing.T) {
	l := testlib.Open(t)
	for _, tr := range randomcalls.All() {
		onRows := tr.Method == "TokenStats" || tr.Method == "RowGradient"
		for seed := range uint64(20) {
			if err := tr.Run(randomcalls.New(seed, false), plain())[0]; err != nil {
				continue // of another argument
			}
			err, _ := tr.Run(randomcalls.New(seed, false), l.Runner(99, 1))[0].(*reweight.InputError)
			if tr.Method != "GRPO" && tr.Method != "GAE" && (err == nil || err.Arg != "ISA") {
				t.Errorf("%s, instruction set 99: error %v", tr.Method, err)
			}
			err, _ = tr.Run(randomcalls.New(seed, false), l.Runner(reweight.Auto, -1))[0].(*reweight.InputError)
			if onRows != (err != nil && err.Arg == "workers") {
				t.Errorf("%s, -1 threads: error %v", tr.Method, err)
			}
		}
	}
}

// missing returns an instruction set that the library has not on this machine.
func missing(l *testlib.Library) reweight.ISA {
	isa := reweight.NEON
	for slices.Contains(l.ISAs(), isa) {
		isa--
	}
	return isa
}
