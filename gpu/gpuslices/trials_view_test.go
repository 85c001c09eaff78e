package gpuslices

import (
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
)

// What package gpu has and package reweight has not, for package randomcalls: views of rows,
// and a workspace with too few places for spans.

// rowsOf returns rows on the device.
func rowsOf(v *randomcalls.View, p, index gpu.Ptr, l reweight.Logits, gap int) gpu.Rows {
	of := rows(p, l)
	of.Stride = l.Vocab + gap
	if v.Index != nil {
		of.Index = &gpu.Index{Ptr: index, N: len(v.Index)}
	}
	return of
}

// idsOf names the ids.
func idsOf(v *randomcalls.View, m *memory, ids []int32) *gpu.Ptr {
	if !v.Wide {
		return in(m, ids)
	}
	return in(m, randomcalls.WideIDs(ids))
}

// TokenStatsOf calls TokenStats on a view of the rows.
func (r *Runner) TokenStatsOf(v *randomcalls.View, dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	m := r.begin()
	x, i, y := in(m, v.Spread(logits, v.Gap)), in(m, v.Index), idsOf(v, m, ids)
	lse, h, l, q := out(m, dst.LSE), out(m, dst.Entropy), out(m, dst.Logprob), out(m, dst.LogSumSqProbs)
	return r.run(func() error {
		stats := gpu.Stats{LSE: *lse, Entropy: *h, Logprob: *l, LogSumSqProbs: *q}
		return r.ws.TokenStats(stats, rowsOf(v, *x, *i, logits, v.Gap), gpu.IDs{Ptr: *y, Int64: v.Wide}, opt)
	})
}

// RowGradientOf calls RowGradient on a view of the rows.
func (r *Runner) RowGradientOf(v *randomcalls.View, dst, logits reweight.Logits, ids []int32,
	of reweight.RowGradientInput, opt reweight.RowGradientOptions) error {
	m := r.begin()
	to, from, gap := v.SpreadBoth(dst, logits)
	d, x, i, y := out(m, to), in(m, from), in(m, v.Index), idsOf(v, m, ids)
	arrays := m.gradientInput(of)
	err := r.run(func() error {
		return r.ws.RowGradient(rowsOf(v, *d, *i, dst, gap), rowsOf(v, *x, *i, logits, v.Gap),
			gpu.IDs{Ptr: *y, Int64: v.Wide}, arrays(), opt)
	})
	if err != nil {
		return err
	}
	return v.Gather(dst, gap, to)
}

// AEMWithin calls AEM with a workspace that has places for so many spans.
func (r *Runner) AEMWithin(spans int, factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error {
	size := gpu.Size{Tokens: len(b.Role), Trajectories: b.Trajectories(), Spans: spans}
	ws, err := r.dev.NewWorkspace(0, size)
	if err != nil {
		return err
	}
	before, beforeSize := r.ws, r.size
	size.Spans = math.MaxInt32 // the runner is not to make it larger
	r.ws, r.size = ws, size
	err = r.AEM(factors, b, opt)
	r.ws, r.size = before, beforeSize
	if e := ws.Close(); err == nil {
		err = e
	}
	return err
}
