package gpuslices

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// TokenStats is that of *reweight.Workspace.
func (r *Runner) TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	if dst.Logprob == nil {
		ids = nil // not read
	}
	m := r.begin()
	x, y := in(m, raw.Logits(logits)), in(m, ids)
	lse, h, l, q := out(m, dst.LSE), out(m, dst.Entropy), out(m, dst.Logprob), out(m, dst.LogSumSqProbs)
	return r.run(func() error {
		stats := gpu.Stats{LSE: *lse, Entropy: *h, Logprob: *l, LogSumSqProbs: *q}
		return r.ws.TokenStats(stats, rows(*x, logits), gpu.IDs{Ptr: *y}, opt)
	})
}

// RowGradient is that of *reweight.Workspace.
func (r *Runner) RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	m := r.begin()
	d, x, y := out(m, raw.Logits(dst)), in(m, raw.Logits(logits)), in(m, ids)
	arrays := m.gradientInput(of)
	return r.run(func() error {
		return r.ws.RowGradient(rows(*d, dst), rows(*x, logits), gpu.IDs{Ptr: *y}, arrays(), opt)
	})
}

// gradientInput names the arrays of a call of RowGradient, and returns what gives their addresses.
func (m *memory) gradientInput(of reweight.RowGradientInput) func() gpu.RowGradientInput {
	l, h, g := in(m, of.Logprobs), in(m, of.Entropy), in(m, of.Grad)
	gh, lse := in(m, of.GradEntropy), in(m, of.LSE)
	return func() gpu.RowGradientInput {
		return gpu.RowGradientInput{Logprobs: *l, Entropy: *h, Grad: *g, GradEntropy: *gh, LSE: *lse}
	}
}

// rows returns rows of logits on the device.
func rows(p gpu.Ptr, l reweight.Logits) gpu.Rows {
	return gpu.Rows{Ptr: p, DType: l.DType(), Rows: l.Rows(), Vocab: l.Vocab}
}
