package measure

import (
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// The calls of a kernels.Runner, each with the arrays of the device in place of the
// host's slices. They have the workloads of the catalogue, whose arguments are right.

// rows returns where rows of logits are.
func rows(d *onDevice, l reweight.Logits, output bool) gpu.Rows {
	return gpu.Rows{Ptr: d.find(raw.Logits(l), output), DType: l.DType(), Rows: l.Rows() * d.times, Vocab: l.Vocab}
}

func (d *onDevice) TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error {
	stats := gpu.Stats{LSE: out(d, dst.LSE), Entropy: out(d, dst.Entropy), Logprob: out(d, dst.Logprob), LogSumSqProbs: out(d, dst.LogSumSqProbs)}
	return d.finish(d.ws.TokenStats(stats, rows(d, logits, false), gpu.IDs{Ptr: in(d, ids)}, opt))
}

func (d *onDevice) RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput, opt reweight.RowGradientOptions) error {
	x := rows(d, logits, false)
	y := x
	if d.inPlace {
		d.same(dst, x.Ptr)
	} else {
		y = rows(d, dst, true)
	}
	arrays := gpu.RowGradientInput{Logprobs: in(d, of.Logprobs), Entropy: in(d, of.Entropy), Grad: in(d, of.Grad),
		GradEntropy: in(d, of.GradEntropy), LSE: in(d, of.LSE)}
	return d.finish(d.ws.RowGradient(y, x, gpu.IDs{Ptr: in(d, ids)}, arrays, opt))
}

func (d *onDevice) MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet, shift float64) (reweight.Moments, error) {
	err := d.ws.MaskedMoments(d.result(unsafe.Sizeof(d.moments)), in(d, x), in(d, role), len(x), roles, shift)
	err = fetch(d, d.moments[:], d.finish(err))
	return d.moments[0], err
}

func (d *onDevice) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64, opt reweight.ActFocusOptions) error {
	return d.finish(d.ws.ActFocusWeights(out(d, dst), in(d, signal), in(d, role), len(dst), mean, sigma, opt))
}

func (d *onDevice) SpanMeans(dst, x []float32, offsets []int32) error {
	return d.finish(d.ws.SpanMeans(out(d, dst), in(d, x), in(d, offsets), len(dst), len(x)))
}

func (d *onDevice) MinMax(lo, hi, x []float32, offsets []int32) error {
	return d.finish(d.ws.MinMax(out(d, lo), out(d, hi), in(d, x), in(d, offsets), len(lo), len(x)))
}

func (d *onDevice) ExpScale(dst, x []float32, lo float32, rate float64) error {
	return d.finish(d.ws.ExpScale(out(d, dst), in(d, x), len(x), lo, rate))
}

func (d *onDevice) Multiply(dst, a, b []float32) error {
	return d.finish(d.ws.Multiply(out(d, dst), in(d, a), in(d, b), len(dst)))
}

func (d *onDevice) Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64, opt reweight.LossOptions) (reweight.SurrogateSums, error) {
	err := d.ws.Surrogate(out(d, grad), d.result(unsafe.Sizeof(d.sums)), in(d, logprobs), in(d, old), in(d, advantages), in(d, weights), in(d, role), len(logprobs), scale, opt)
	err = fetch(d, d.sums[:], d.finish(err))
	return d.sums[0], err
}
