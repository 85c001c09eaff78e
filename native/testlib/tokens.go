//go:build cgo && linux

package testlib

// #include "calls.h"
import "C"

import (
	"unsafe"

	"github.com/seed621a2839/reweight"
)

// The addresses of arrays.
func floats(x []float32) *C.float        { return (*C.float)(unsafe.SliceData(x)) }
func int32s(x []int32) *C.int32_t        { return (*C.int32_t)(unsafe.SliceData(x)) }
func int64s(x []int64) *C.int64_t        { return (*C.int64_t)(unsafe.SliceData(x)) }
func roles(x []reweight.Role) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(x)) }

// MaskedMoments is that of *reweight.Workspace.
func (r *Runner) MaskedMoments(x []float32, role []reweight.Role, set reweight.RoleSet, shift float64) (reweight.Moments, error) {
	code := C.call_masked_moments(r.functions, r.workspace(), &r.moments, floats(x), roles(role), C.int64_t(len(x)), C.uint32_t(set), C.double(shift), r.errorOf())
	if err := r.result(code, false); err != nil {
		return reweight.Moments{}, err
	}
	return reweight.Moments{N: int(r.moments.n), Sum: float64(r.moments.sum), Squares: float64(r.moments.squares)}, nil
}

// ActFocusWeights is that of *reweight.Workspace.
func (r *Runner) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64, opt reweight.ActFocusOptions) error {
	code := C.call_actfocus_weights(r.functions, r.workspace(), floats(dst), floats(signal), roles(role), C.int64_t(len(dst)), C.double(mean), C.double(sigma), actFocusOptions(opt), r.errorOf())
	return r.result(code, false)
}

func actFocusOptions(opt reweight.ActFocusOptions) C.reweight_actfocus_options {
	return C.reweight_actfocus_options{alpha: C.double(opt.Alpha), beta: C.double(opt.Beta), eps: C.double(opt.Eps), signal: C.int32_t(opt.Signal)}
}

// SpanMeans is that of *reweight.Workspace.
func (r *Runner) SpanMeans(dst, x []float32, offsets []int32) error {
	code := C.call_span_means(r.functions, r.workspace(), floats(dst), C.int64_t(len(dst)), floats(x), C.int64_t(len(x)), int32s(offsets), r.errorOf())
	return r.result(code, false)
}

// MinMax is that of *reweight.Workspace.
func (r *Runner) MinMax(lo, hi, x []float32, offsets []int32) error {
	code := C.call_min_max(r.functions, r.workspace(), floats(lo), floats(hi), C.int64_t(len(lo)), floats(x), C.int64_t(len(x)), int32s(offsets), r.errorOf())
	return r.result(code, false)
}

// ExpScale is that of *reweight.Workspace.
func (r *Runner) ExpScale(dst, x []float32, lo float32, rate float64) error {
	code := C.call_exp_scale(r.functions, r.workspace(), floats(dst), floats(x), C.int64_t(len(x)), C.float(lo), C.double(rate), r.errorOf())
	return r.result(code, false)
}

// Multiply is that of *reweight.Workspace.
func (r *Runner) Multiply(dst, a, b []float32) error {
	code := C.call_multiply(r.functions, r.workspace(), floats(dst), floats(a), floats(b), C.int64_t(len(dst)), r.errorOf())
	return r.result(code, false)
}

// Surrogate is that of *reweight.Workspace.
func (r *Runner) Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64, opt reweight.LossOptions) (reweight.SurrogateSums, error) {
	ws := r.workspaceFor(len(role), 0, 0)
	defer C.free(ws.scratch)
	code := C.call_surrogate(r.functions, ws, &r.surrogate, floats(grad), floats(logprobs), floats(old), floats(advantages), floats(weights), roles(role), C.int64_t(len(role)), C.double(scale), lossOptions(opt), r.errorOf())
	if err := r.result(code, false); err != nil {
		return reweight.SurrogateSums{}, err
	}
	q := &r.surrogate
	return reweight.SurrogateSums{Tokens: int(q.tokens), Clipped: int(q.clipped), Loss: float64(q.loss), LogRatio: float64(q.log_ratio)}, nil
}

func lossOptions(opt reweight.LossOptions) C.reweight_loss_options {
	return C.reweight_loss_options{clip_low: C.double(opt.ClipLow), clip_high: C.double(opt.ClipHigh), dual_clip: C.double(opt.DualClip),
		norm_length: C.int64_t(opt.NormLength), aggregation: C.int32_t(opt.Aggregation), policy: C.int32_t(opt.Policy), sequence: C.int32_t(opt.Sequence),
		kl: C.int32_t(opt.KL), kl_coef: C.double(opt.KLCoef), tau_pos: C.double(opt.TauPos), tau_neg: C.double(opt.TauNeg), ratio_cap: C.double(opt.RatioCap),
		power_pos: C.double(opt.PowerPos), decay_pos: C.double(opt.DecayPos), power_neg: C.double(opt.PowerNeg), decay_neg: C.double(opt.DecayNeg),
		beta: C.double(opt.Beta), cov_share: C.double(opt.CovShare), cov_low: C.double(opt.CovLow), cov_high: C.double(opt.CovHigh), cov_coef: C.double(opt.CovCoef), seed: C.uint64_t(opt.Seed)}
}

// Whiten is that of *reweight.Workspace.
func (r *Runner) Whiten(dst, x []float32, role []reweight.Role) error {
	code := C.call_whiten(r.functions, r.workspace(), floats(dst), floats(x), roles(role), C.int64_t(len(role)), r.errorOf())
	return r.result(code, false)
}
