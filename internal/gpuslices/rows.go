package gpuslices

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// TokenStats is that of *reweight.Workspace.
func (r *Runner) TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error {
	if dst.Logprob == nil {
		ids = nil // not read
	}
	m := r.memory.begin()
	x, y := m.logits(logits, false), optionalIn(m, ids)
	lse, h, l, q := optionalOut(m, dst.LSE), optionalOut(m, dst.Entropy), optionalOut(m, dst.Logprob), optionalOut(m, dst.LogSumSqProbs)
	return r.run(func() error {
		stats := gpu.Stats{LSE: m.ptr(lse), Entropy: m.ptr(h), Logprob: m.ptr(l), LogSumSqProbs: m.ptr(q)}
		return r.ws.TokenStats(stats, m.rows(x, logits), gpu.IDs{Ptr: m.ptr(y)}, opt)
	})
}

// RowGradient is that of *reweight.Workspace.
func (r *Runner) RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput, opt reweight.RowGradientOptions) error {
	m := r.memory.begin()
	d, x, y := m.logits(dst, true), m.logits(logits, false), in(m, ids)
	arrays := m.gradientInput(of)
	return r.run(func() error {
		return r.ws.RowGradient(m.rows(d, dst), m.rows(x, logits), gpu.IDs{Ptr: m.ptr(y)}, arrays(), opt)
	})
}

// gradientInput names the arrays of a call of RowGradient, and returns what gives their addresses.
func (m *memory) gradientInput(of reweight.RowGradientInput) func() gpu.RowGradientInput {
	l, h, g := in(m, of.Logprobs), optionalIn(m, of.Entropy), in(m, of.Grad)
	gh, lse := optionalIn(m, of.GradEntropy), optionalIn(m, of.LSE)
	return func() gpu.RowGradientInput {
		return gpu.RowGradientInput{Logprobs: m.ptr(l), Entropy: m.ptr(h), Grad: m.ptr(g), GradEntropy: m.ptr(gh), LSE: m.ptr(lse)}
	}
}

// logits names rows of logits.
func (m *memory) logits(l reweight.Logits, output bool) handle {
	return m.add(arg{bytes: raw.Logits(l), output: output})
}

// rows returns them on the device.
func (m *memory) rows(h handle, l reweight.Logits) gpu.Rows {
	return gpu.Rows{Ptr: m.ptr(h), DType: l.DType(), Rows: l.Rows(), Vocab: l.Vocab}
}
