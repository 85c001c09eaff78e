package gpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// TestRowErrors: what the host can see is told before anything is queued.
func TestRowErrors(t *testing.T) {
	m := newMachine(t)
	const p = gpu.Ptr(1 << 40) // no memory: nothing may be queued
	good := gpu.Rows{Ptr: p, DType: reweight.DTypeBF16, Rows: 4, Vocab: 10}
	rows := func(change func(r *gpu.Rows)) gpu.Rows {
		r := good
		change(&r)
		return r
	}
	all, ids := gpu.Stats{LSE: p, Entropy: p, Logprob: p, LogSumSqProbs: p}, gpu.IDs{Ptr: p}
	stats := func(l gpu.Rows) error { return m.ws.TokenStats(all, l, ids, reweight.DefaultTokenStats) }
	gradient := func(d, l gpu.Rows) error {
		return m.ws.RowGradient(d, l, ids, gpu.RowGradientInput{Logprobs: p, Entropy: p, Grad: p},
			reweight.RowGradientOptions{Temperature: 1, EntropyBonus: 1})
	}
	given := gpu.RowGradientInput{Logprobs: p, Entropy: p, Grad: p}
	tau := func(x float64) error {
		return m.ws.TokenStats(all, good, ids, reweight.TokenStatsOptions{Temperature: x})
	}
	wantErrors(t, []wrongCall{
		{stats(rows(func(r *gpu.Rows) { r.Vocab = 0 })), "logits has rows of 0 logits, want at least 1"},
		{stats(rows(func(r *gpu.Rows) { r.Vocab = -3 })), "logits has rows of -3 logits, want at least 1"},
		{stats(rows(func(r *gpu.Rows) { r.Vocab = math.MaxInt32; r.Vocab++ })), "logits has rows of 2147483648 logits, want at most 2147483647"},
		{stats(rows(func(r *gpu.Rows) { r.DType = 3 })), "logits.DType is 3, want f32, bf16 or f16"},
		{stats(rows(func(r *gpu.Rows) { r.Rows = -1 })), "logits.Rows is -1, want at least 0"},
		{stats(rows(func(r *gpu.Rows) { r.Stride = 9 })), "logits.Stride is 9, want at least 10, the logits of a row"},
		{stats(rows(func(r *gpu.Rows) { r.Stride = -10 })), "logits.Stride is -10, want at least 10, the logits of a row"},
		{stats(rows(func(r *gpu.Rows) { r.Rows, r.Stride = 3, math.MaxInt/2+1 })), "logits has 3 rows, each 4611686018427387904 logits after the one before: their addresses have more than 64 bits"},
		{stats(rows(func(r *gpu.Rows) { r.Rows, r.Index = math.MaxInt, &gpu.Index{Ptr: p, N: 1} })), "logits has 9223372036854775807 rows, each 10 logits after the one before: their addresses have more than 64 bits"},
		{stats(rows(func(r *gpu.Rows) { r.Ptr = 0 })), "logits is 0, want an address in device memory"},
		{stats(rows(func(r *gpu.Rows) { r.Ptr++ })), "logits is 0x10000000001, want a multiple of 2, the size of its elements"},
		{stats(rows(func(r *gpu.Rows) { r.Sequence = -1 })), "logits.Sequence is -1, want at least 0"},
		{stats(rows(func(r *gpu.Rows) { r.SequenceStride = 30 })), "logits.Sequence is 0, want at least 1"},
		{m.ws.TokenStats(all, good, gpu.IDs{Ptr: p, SequenceStride: 3}, reweight.DefaultTokenStats), "logits.Sequence is 0, want at least 1"},
		{stats(rows(func(r *gpu.Rows) { r.Sequence, r.SequenceStride = 2, -30 })), "logits.SequenceStride is -30, want at least 0"},
		{stats(rows(func(r *gpu.Rows) { r.Sequence, r.SequenceStride = 2, math.MaxInt/2+1 })), "logits.SequenceStride has 4 rows, each 4611686018427387904 logits after the one before: their addresses have more than 64 bits"},
		{m.ws.TokenStats(all, good, gpu.IDs{Ptr: p, SequenceStride: -3}, reweight.DefaultTokenStats), "ids.SequenceStride is -3, want at least 0"},
		{gradient(rows(func(r *gpu.Rows) { r.SequenceStride = 40 }), rows(func(r *gpu.Rows) { r.Sequence, r.SequenceStride = 2, 30 })), "dst.SequenceStride is 40, want 30 like the stride of the logits, which have the same address"},
		{stats(rows(func(r *gpu.Rows) { r.Index = &gpu.Index{Ptr: p, N: 5} })), "logits.Index has 5 elements, want 0 to 4, the rows in memory"},
		{stats(rows(func(r *gpu.Rows) { r.Index = &gpu.Index{Ptr: p, N: -1} })), "logits.Index has -1 elements, want 0 to 4, the rows in memory"},
		{stats(rows(func(r *gpu.Rows) { r.Index = &gpu.Index{N: 1} })), "logits.Index is 0, want an address in device memory"},
		{stats(rows(func(r *gpu.Rows) { r.Index = &gpu.Index{Ptr: p + 4, N: 1} })), "logits.Index is 0x10000000004, want a multiple of 8, the size of its elements"},
		{tau(0), "Temperature is 0, want 1e-30 to 1e+30"},
		{tau(-1), "Temperature is -1, want 1e-30 to 1e+30"},
		{tau(math.NaN()), "Temperature is NaN, want 1e-30 to 1e+30"},
		{tau(math.Inf(1)), "Temperature is +Inf, want 1e-30 to 1e+30"},

		{m.ws.TokenStats(gpu.Stats{}, good, ids, reweight.DefaultTokenStats), "dst has no output: LSE, Entropy, Logprob and LogSumSqProbs are all 0"},
		{m.ws.TokenStats(gpu.Stats{LSE: p + 2}, good, ids, reweight.DefaultTokenStats), "dst.LSE is 0x10000000002, want a multiple of 4, the size of its elements"},
		{m.ws.TokenStats(all, good, gpu.IDs{}, reweight.DefaultTokenStats), "ids is 0, want an address in device memory"},
		{m.ws.TokenStats(all, good, gpu.IDs{Ptr: p + 4, Int64: true}, reweight.DefaultTokenStats), "ids is 0x10000000004, want a multiple of 8, the size of its elements"},

		{gradient(rows(func(r *gpu.Rows) { r.Rows = 3 }), good), "dst has 3 rows of 10 logits, want 4 rows"},
		{gradient(rows(func(r *gpu.Rows) { r.Vocab = 9 }), good), "dst has rows of 9 logits, want 10 like the logits"},
		{gradient(rows(func(r *gpu.Rows) { r.DType = 0 }), good), "dst is f32, want bf16 like the logits"},
		{gradient(rows(func(r *gpu.Rows) { r.DType = 2 }), good), "dst is f16, want bf16 like the logits"},
		{gradient(good, rows(func(r *gpu.Rows) { r.DType = 2 })), "logits is float16, want float32 or bfloat16"},
		{gradient(rows(func(r *gpu.Rows) { r.Stride = 11 }), good), "dst.Stride is 11, want 10 like the stride of the logits, which have the same address"},
		{gradient(rows(func(r *gpu.Rows) { r.Stride = 5 }), good), "dst.Stride is 5, want at least 10, the logits of a row"},
		{gradient(rows(func(r *gpu.Rows) { r.Stride = math.MaxInt/2 + 1 }), good), "dst has 4 rows, each 4611686018427387904 logits after the one before: their addresses have more than 64 bits"},
		{gradient(rows(func(r *gpu.Rows) { r.Ptr = 0 }), good), "dst is 0, want an address in device memory"},
		{m.ws.RowGradient(good, good, ids, given, reweight.RowGradientOptions{Temperature: 1, EntropyBonus: math.Inf(1)}), "EntropyBonus is +Inf, want a finite number"},
		{m.ws.RowGradient(good, good, ids, given, reweight.RowGradientOptions{}), "Temperature is 0, want 1e-30 to 1e+30"},
		{m.ws.RowGradient(good, good, ids, gpu.RowGradientInput{Entropy: p, Grad: p}, reweight.DefaultRowGradient), "Logprobs is 0, want an address in device memory"},
		{m.ws.RowGradient(good, good, ids, gpu.RowGradientInput{Logprobs: p}, reweight.DefaultRowGradient), "Grad is 0, want an address in device memory"},
		{m.ws.RowGradient(good, good, ids, gpu.RowGradientInput{Logprobs: p, Grad: p}, reweight.RowGradientOptions{Temperature: 1, EntropyBonus: 1}), "Entropy is 0, want an address in device memory"},
		{m.ws.RowGradient(good, good, gpu.IDs{}, given, reweight.DefaultRowGradient), "ids is 0, want an address in device memory"},
		{m.ws.RowGradient(good, good, ids, gpu.RowGradientInput{Logprobs: p, Grad: p + 1}, reweight.DefaultRowGradient), "Grad is 0x10000000001, want a multiple of 4, the size of its elements"},
		{m.ws.RowGradient(good, good, ids, gpu.RowGradientInput{Logprobs: p, Grad: p, LSE: p + 2}, reweight.DefaultRowGradient), "LSE is 0x10000000002, want a multiple of 4, the size of its elements"},
		{m.ws.ReadMemory(p+8, 16), "src is 0x10000000008, want a multiple of 16, the size of its elements"},
		{m.ws.CopyMemory(p+8, p, 16), "dst is 0x10000000008, want a multiple of 16, the size of its elements"},
		{m.ws.CopyMemory(p, p+64, 24), "bytes is 24, want a multiple of 16"},
		{m.ws.ReadMemory(p, -16), "bytes is -16, want a multiple of 16"},
	})
	// Nothing to do is nothing wrong, whatever the addresses.
	for _, none := range []gpu.Rows{{Vocab: 10}, {Vocab: 10, Rows: 3, Index: &gpu.Index{}}} {
		if err := m.ws.TokenStats(gpu.Stats{}, none, gpu.IDs{}, reweight.DefaultTokenStats); err != nil {
			t.Error(err)
		}
		if err := m.ws.RowGradient(none, none, gpu.IDs{}, gpu.RowGradientInput{},
			reweight.DefaultRowGradient); err != nil {
			t.Error(err)
		}
	}
	m.must(m.ws.Check())
}

// TestFarRows: numbers of rows and their distances in bytes have 64 bits. The addresses
// are those of row 0, which is not there.
func TestFarRows(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(32, 32))
	const vocab = 70
	row := int64(1<<33 + 3) // no constant: int has 32 bits on some machines, which compile this
	for _, stride := range []int{vocab, 1 << 21} {
		l := families[0].rows(reweight.DTypeF32, 1, vocab, r)
		id := []int32{44}
		want := reweight.Stats{LSE: make([]float32, 1), Entropy: make([]float32, 1), Logprob: make([]float32, 1),
			LogSumSqProbs: make([]float32, 1)}
		m.must(m.cpu.TokenStats(want, l, id, reweight.DefaultTokenStats))
		gradient := newLogits(reweight.DTypeF32, 1, vocab)
		m.must(m.cpu.RowGradient(gradient, l, id, reweight.RowGradientInput{Logprobs: want.Logprob, Grad: []float32{2}},
			reweight.DefaultRowGradient))

		logits, out, dst := m.place(raw.Bytes(l.F32), 4), m.output(4), m.output(vocab)
		far := func(p gpu.Ptr, bytes int) gpu.Ptr { return p - gpu.Ptr(row)*gpu.Ptr(bytes) }
		rows := gpu.Rows{Ptr: far(logits.Ptr, 4*stride), Rows: int(row) + 1, Vocab: vocab, Stride: stride,
			Index: &gpu.Index{Ptr: m.place(raw.Bytes([]int64{row}), 0).Ptr, N: 1}}
		ids := gpu.IDs{Ptr: far(m.place(raw.Bytes([]int64{44}), 0).Ptr, 8), Int64: true}
		m.must(m.ws.TokenStats(gpu.Stats{LSE: far(out.Ptr, 4), Entropy: far(out.Ptr+4, 4), Logprob: far(out.Ptr+8, 4),
			LogSumSqProbs: far(out.Ptr+12, 4)}, rows, ids, reweight.DefaultTokenStats))
		to := rows
		to.Ptr = far(dst.Ptr, 4*stride)
		m.must(m.ws.RowGradient(to, rows, ids, gpu.RowGradientInput{Logprobs: far(out.Ptr+8, 4),
			Grad: far(m.place(raw.Bytes([]float32{2}), 0).Ptr, 4)}, reweight.DefaultRowGradient))
		m.must(m.ws.Check())
		got := floatsOf(m.read("stats", out))
		if got[0] != want.LSE[0] || got[1] != want.Entropy[0] || got[2] != want.Logprob[0] ||
			got[3] != want.LogSumSqProbs[0] {
			t.Errorf("stride %d: %v, want %v", stride, got, want)
		}
		for i, g := range floatsOf(m.read("gradient", dst)) {
			if g != gradient.F32[i] {
				t.Errorf("stride %d: element %d is %v, want %v", stride, i, g, gradient.F32[i])
			}
		}
		m.free()
	}
}
