package gpu_test

import (
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// wantFloats wants what the CPU computed, or NaN if the CPU returned an error.
func (t *tokenTest) wantFloats(what string, p gpu.Ptr, want []float32, err error) {
	t.Helper()
	if err != nil {
		t.allNaN(what, p, len(want))
	} else {
		t.same(what, p, want)
	}
}

// TestGRPO compares random batches, wrong ones included.
func TestGRPO(t *testing.T) {
	flaws := append(slices.Clip(layoutFlaws), func(t *tokenTest, b *reweight.Batch) {
		b.Rewards[t.IntN(len(b.Rewards))] = pickOne(t, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)))
	})
	rounds(t, 2**tokenRounds, func(t *tokenTest) {
		b := t.spanBatch(t.n())
		for range max(0, t.IntN(6)-2) {
			pickOne(t, flaws...)(t, b)
		}
		opt := reweight.GRPOOptions{Eps: pickOne(t, 0, 1e-6, 1), DivideByStd: t.IntN(3) > 0}
		want := make([]float32, b.Tokens())
		wantErr := t.cpu.GRPO(want, b, opt)

		d := placeBatch(t, b)
		advantages := output[float32](t, b.Tokens())
		if t.IntN(2) == 0 {
			advantages = t.overwrite(d.Entropy)
		}
		t.check("GRPO", t.ws.GRPO(advantages, d, opt), wantErr)
		t.wantFloats("advantages", advantages, want, wantErr)
	})
}

// TestGAE compares random batches, with all that may share an array, and wrong ones
// included.
func TestGAE(t *testing.T) {
	rounds(t, 2**tokenRounds, func(t *tokenTest) {
		b := t.spanBatch(t.n())
		n := b.Tokens()
		b.Values = t.floats(n, t.draw())
		rewards := t.floats(n, t.draw())
		if t.IntN(4) == 0 {
			pickOne(t, layoutFlaws...)(t, b)
		}
		opt := reweight.GAEOptions{Gamma: pickOne(t, 0, 1, 0.99, t.Float64()), Lambda: pickOne(t, 0, 1, 0.95, t.Float64())}
		if opt.Gamma == 0 {
			opt.Lambda = 1
		}
		if t.IntN(4) == 0 { // what is left of a sum is what a product lost when it was rounded
			opt = reweight.GAEOptions{Gamma: pickOne(t, 1, 1-0x1p-40), Lambda: 1 - 0x1p-40}
			for i := range rewards {
				rewards[i], b.Values[i] = pickOne[float32](t, 1.3, -1.3), pickOne[float32](t, 0, 0, 1.3)
			}
		}
		want, wantReturns := make([]float32, n), make([]float32, n)
		wantErr := t.cpu.GAE(want, wantReturns, rewards, b, opt)

		d, from := placeBatch(t, b), array(t, rewards)
		advantages, returns := from, gpu.Ptr(0)
		if t.IntN(2) == 0 {
			advantages = output[float32](t, n)
		}
		if t.IntN(2) == 0 {
			returns = output[float32](t, n)
		}
		t.check("GAE", t.ws.GAE(t.overwrite(advantages), returns, from, d, opt), wantErr)
		t.wantFloats("advantages", advantages, want, wantErr)
		if returns != 0 {
			t.wantFloats("returns", returns, wantReturns, wantErr)
		}
	})
}

// TestNoTokens: a batch without tokens is no error, as on the CPU, and nothing is
// written, whatever the addresses: those of PyTorch's empty tensors are 0.
func TestNoTokens(t *testing.T) {
	rounds(t, 1, func(t *tokenTest) {
		b := &reweight.Batch{SeqOffsets: []int64{0, 0, 0}, GroupIDs: []int32{1, 1}, Rewards: []float32{0, 1}}
		for _, empty := range []gpu.Ptr{0, output[float32](t, 0)} {
			d := placeBatch(t, b)
			d.Role, d.SpanIDs, d.Entropy, d.Values = empty, empty, empty, empty
			t.check("AEM", t.ws.AEM(empty, d, reweight.DefaultAEM), nil)
			t.check("GRPO", t.ws.GRPO(empty, d, reweight.DefaultGRPO), nil)
			t.check("GAE", t.ws.GAE(empty, empty, empty, d, reweight.DefaultGAE), nil)
			t.check("SpanMeans of no spans", t.ws.SpanMeans(empty, empty, empty, 0, 0), nil)
			t.check("MinMax of no groups", t.ws.MinMax(empty, empty, empty, empty, 0, 0), nil)
			t.check("CopyMemory", t.ws.CopyMemory(empty, empty, 0), nil)
			offsets, means := array(t, []int32{0, 0}), output[float32](t, 1)
			t.check("SpanMeans of an empty span", t.ws.SpanMeans(means, empty, offsets, 1, 0), nil)
			t.same("mean", means, []float32{float32(math.NaN())})
		}
	})
}
