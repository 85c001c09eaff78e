//go:build cgo && linux

package testlib

// #include "calls.h"
import "C"

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// The addresses of arrays.
func floats(x []float32) *C.float        { return (*C.float)(unsafe.SliceData(x)) }
func int32s(x []int32) *C.int32_t        { return (*C.int32_t)(unsafe.SliceData(x)) }
func int64s(x []int64) *C.int64_t        { return (*C.int64_t)(unsafe.SliceData(x)) }
func roles(x []reweight.Role) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(x)) }

// MaskedMoments is the method of *reweight.Workspace in C.
func (r *Runner) MaskedMoments(x []float32, role []reweight.Role, set reweight.RoleSet,
	shift float64) (reweight.Moments, error) {
	code := C.call_masked_moments(r.functions, r.workspace(), &r.moments, floats(x), roles(role), C.int64_t(len(x)),
		C.uint32_t(set), C.double(shift), r.errorOf())
	if err := r.result(code, false); err != nil {
		return reweight.Moments{}, err
	}
	return reweight.Moments{N: int(r.moments.n), Sum: float64(r.moments.sum), Squares: float64(r.moments.squares)}, nil
}

// ActFocusWeights is the method of *reweight.Workspace in C.
func (r *Runner) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
	opt reweight.ActFocusOptions) error {
	code := C.call_actfocus_weights(r.functions, r.workspace(), floats(dst), floats(signal), roles(role),
		C.int64_t(len(dst)), C.double(mean), C.double(sigma), actFocusOptions(opt), r.errorOf())
	return r.result(code, false)
}

func actFocusOptions(opt reweight.ActFocusOptions) C.reweight_actfocus_options {
	return C.reweight_actfocus_options{alpha: C.double(opt.Alpha), beta: C.double(opt.Beta), eps: C.double(opt.Eps),
		signal: C.int32_t(opt.Signal)}
}

// SpanMeans is the method of *reweight.Workspace in C.
func (r *Runner) SpanMeans(dst, x []float32, offsets []int32) error {
	code := C.call_span_means(r.functions, r.workspace(), floats(dst), C.int64_t(len(dst)), floats(x),
		C.int64_t(len(x)), int32s(offsets), r.errorOf())
	return r.result(code, false)
}

// MinMax is the method of *reweight.Workspace in C.
func (r *Runner) MinMax(lo, hi, x []float32, offsets []int32) error {
	code := C.call_min_max(r.functions, r.workspace(), floats(lo), floats(hi), C.int64_t(len(lo)), floats(x),
		C.int64_t(len(x)), int32s(offsets), r.errorOf())
	return r.result(code, false)
}

// ExpScale is the method of *reweight.Workspace in C.
func (r *Runner) ExpScale(dst, x []float32, lo float32, rate float64) error {
	code := C.call_exp_scale(r.functions, r.workspace(), floats(dst), floats(x), C.int64_t(len(x)), C.float(lo),
		C.double(rate), r.errorOf())
	return r.result(code, false)
}

// Multiply is the method of *reweight.Workspace in C.
func (r *Runner) Multiply(dst, a, b []float32) error {
	code := C.call_multiply(r.functions, r.workspace(), floats(dst), floats(a), floats(b), C.int64_t(len(dst)),
		r.errorOf())
	return r.result(code, false)
}

// Surrogate is the method of *reweight.Workspace in C.
func (r *Runner) Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64,
	opt reweight.LossOptions) (reweight.SurrogateSums, error) {
	ws := r.workspaceFor(len(role), 0, 0)
	defer C.free(ws.scratch)
	code := C.call_surrogate(r.functions, ws, &r.surrogate, floats(grad), floats(logprobs), floats(old),
		floats(advantages), floats(weights), roles(role), C.int64_t(len(role)), C.double(scale), r.lossOptions(opt),
		r.errorOf())
	if err := r.result(code, false); err != nil {
		return reweight.SurrogateSums{}, err
	}
	q := &r.surrogate
	return reweight.SurrogateSums{Tokens: int(q.tokens), Clipped: int(q.clipped), Loss: float64(q.loss),
		LogRatio: float64(q.log_ratio)}, nil
}

// lossOptions returns the options as C has them. Those of the last call are kept while its policy
// is at the same address: no call of a kernel allocates then.
func (r *Runner) lossOptions(opt reweight.LossOptions) C.reweight_loss_options {
	address := func(p *reweight.Policy) unsafe.Pointer { return (*[2]unsafe.Pointer)(unsafe.Pointer(p))[1] }
	if opt != r.lossOf || address(&opt.Policy) != address(&r.lossOf.Policy) { // for -0 is 0
		r.lossOf, r.lossOptionsOf = opt, layOutLoss(opt)
	}
	r.lossOptionsOf.kl_coef = C.double(opt.KLCoef)
	return r.lossOptionsOf
}

// layOutLoss lays the options out as C has them. What the policy does not have stays 0.
func layOutLoss(opt reweight.LossOptions) (c C.reweight_loss_options) {
	for name, v := range scheme.Fields(opt) {
		field, ok := reflect.TypeOf(c).FieldByName(problem.Snake(name))
		if !ok { // Divergence, which is in the name of the policy
			continue
		}
		at := unsafe.Add(unsafe.Pointer(&c), field.Offset)
		switch v.Kind() {
		case reflect.Interface: // a policy or none
			*(*int32)(at) = int32(slices.Index(native.Names(problem.Argument{C: "policy"}), fmt.Sprint(v.Interface())))
		case reflect.Uint8:
			*(*int32)(at) = int32(v.Uint())
		case reflect.Float64:
			*(*float64)(at) = v.Float()
		case reflect.Int:
			*(*int64)(at) = v.Int()
		case reflect.Uint64:
			*(*uint64)(at) = v.Uint()
		}
	}
	return c
}

// Whiten is the method of *reweight.Workspace in C.
func (r *Runner) Whiten(dst, x []float32, role []reweight.Role) error {
	code := C.call_whiten(r.functions, r.workspace(), floats(dst), floats(x), roles(role), C.int64_t(len(role)),
		r.errorOf())
	return r.result(code, false)
}
