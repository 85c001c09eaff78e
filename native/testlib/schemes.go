//go:build cgo && linux

package testlib

// #include "calls.h"
import "C"

import (
	"math"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
)

// batch returns the batch as the library takes it. An array without elements is not set.
func batch(b *reweight.Batch) C.reweight_batch {
	var c C.reweight_batch
	for _, a := range b.Arrays() {
		field, ok := reflect.TypeOf(c).FieldByName(a.Name)
		if x := reflect.ValueOf(a.Data).Elem(); ok && x.Kind() == reflect.Slice && x.Len() > 0 {
			*(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(&c), field.Offset)) = x.UnsafePointer()
		}
	}
	c.tokens, c.trajectories = C.int64_t(b.Tokens()), C.int64_t(b.Trajectories())
	c.seq_offsets = int64s(b.SeqOffsets)
	if len(b.RewardParts) > 0 {
		c.parts = C.int64_t(len(b.RewardParts) / b.Trajectories())
	}
	return c
}

// orNil returns nil in place of an array without elements.
func orNil[E any](x []E) []E {
	if len(x) == 0 {
		return nil
	}
	return x
}

// ActFocus is the method of *reweight.Workspace in C.
func (r *Runner) ActFocus(weights []float32, b *reweight.Batch,
	opt reweight.ActFocusOptions) (reweight.ActFocusResult, error) {
	ws := r.workspaceFor(b.Tokens(), b.Trajectories(), 0)
	defer C.free(ws.scratch)
	result := &r.actFocus
	if r.silent {
		result = nil
	}
	code := C.call_actfocus(r.functions, ws, result, floats(weights), batch(b), actFocusOptions(opt), r.errorOf())
	if err := r.result(code, true); err != nil {
		return reweight.ActFocusResult{}, err
	}
	return reweight.ActFocusResult{Actions: int(r.actFocus.actions), Mean: float64(r.actFocus.mean),
		Sigma: float64(r.actFocus.sigma)}, nil
}

// AEM is the method of *reweight.Workspace in C.
func (r *Runner) AEM(factors []float32, b *reweight.Batch, opt reweight.AEMOptions) error {
	ws := r.workspaceFor(b.Tokens(), b.Trajectories(), spansOf(b))
	defer C.free(ws.scratch)
	options := C.reweight_aem_options{lambda: C.double(opt.Lambda), guard: C.double(opt.Guard),
		scope: C.int32_t(opt.Scope)}
	return r.result(C.call_aem(r.functions, ws, floats(factors), batch(b), options, r.errorOf()), true)
}

// GRPO is the method of *reweight.Workspace in C.
func (r *Runner) GRPO(advantages []float32, b *reweight.Batch, opt reweight.GRPOOptions) error {
	ws := r.workspaceFor(b.Tokens(), b.Trajectories(), 0)
	defer C.free(ws.scratch)
	options := C.reweight_grpo_options{eps: C.double(opt.Eps)}
	if opt.DivideByStd {
		options.divide_by_std = 1
	}
	return r.result(C.call_grpo(r.functions, ws, floats(advantages), batch(b), options, r.errorOf()), true)
}

// GAE is the method of *reweight.Workspace in C.
func (r *Runner) GAE(advantages, returns, rewards []float32, b *reweight.Batch, opt reweight.GAEOptions) error {
	options := C.reweight_gae_options{gamma: C.double(opt.Gamma), lambda: C.double(opt.Lambda)}
	return r.result(C.call_gae(r.functions, r.workspace(), floats(advantages), floats(returns), floats(rewards),
		batch(b), options, r.errorOf()), true)
}

// spansOf returns for how many spans a call on the batch needs scratch memory.
func spansOf(b *reweight.Batch) int {
	spans := 0
	for _, s := range b.SpanIDs {
		spans = max(spans, min(int(s)+1, b.Tokens()))
	}
	return spans
}

// Loss is the method of *reweight.Workspace in C.
func (r *Runner) Loss(grad, weights []float32, b *reweight.Batch,
	opt reweight.LossOptions) (reweight.LossResult, error) {
	ws := r.workspaceFor(b.Tokens(), b.Trajectories(), spansOf(b))
	defer C.free(ws.scratch)
	code := C.call_loss(r.functions, ws, &r.loss, floats(grad), floats(weights), batch(b), r.lossOptions(opt),
		r.errorOf())
	if err := r.result(code, true); err != nil {
		return reweight.LossResult{}, err
	}
	q := &r.loss
	return reweight.LossResult{Loss: float64(q.loss), Tokens: int(q.tokens), WeightSum: float64(q.weight_sum),
		ClipFraction: float64(q.clip_fraction), MeanLogRatio: float64(q.mean_log_ratio), KL: float64(q.kl),
		KLLoss: float64(q.kl_loss)}, nil
}

// KLRewards is the method of *reweight.Workspace in C.
func (r *Runner) KLRewards(rewards []float32, b *reweight.Batch, opt reweight.KLRewardsOptions) error {
	options := C.reweight_kl_rewards_options{kl: C.int32_t(opt.KL), kl_coef: C.double(opt.KLCoef)}
	return r.result(C.call_kl_rewards(r.functions, r.workspace(), floats(rewards), batch(b), options, r.errorOf()),
		true)
}

// ValueLoss is the method of *reweight.Workspace in C.
func (r *Runner) ValueLoss(grad []float32, b *reweight.Batch,
	opt reweight.ValueLossOptions) (reweight.ValueLossResult, error) {
	options := C.reweight_value_loss_options{clip: C.double(opt.Clip), norm_length: C.int64_t(opt.NormLength),
		aggregation: C.int32_t(opt.Aggregation)}
	code := C.call_value_loss(r.functions, r.workspace(), &r.value, floats(grad), batch(b), options, r.errorOf())
	if err := r.result(code, true); err != nil {
		return reweight.ValueLossResult{}, err
	}
	return reweight.ValueLossResult{Loss: float64(r.value.loss), Tokens: int(r.value.tokens),
		ClipFraction: float64(r.value.clip_fraction)}, nil
}

// Scheme calls the function of an entry of the catalogue.
func (r *Runner) Scheme(e *scheme.Entry, dst []float32, b *reweight.Batch, opt any) error {
	ws := r.workspaceFor(b.Tokens(), b.Trajectories(), spansOf(b))
	defer C.free(ws.scratch)
	var pinner runtime.Pinner
	defer pinner.Unpin()
	name := C.CString("reweight_" + e.C)
	defer C.free(unsafe.Pointer(name))
	return r.result(C.call_scheme(r.functions, name, ws, floats(dst), batch(b), layOut(opt, &pinner), r.errorOf()),
		true)
}

// layOut returns the options as C has them, or nil. What they point at is pinned.
func layOut(opt any, pinner *runtime.Pinner) unsafe.Pointer {
	if opt == nil {
		return nil
	}
	v := reflect.ValueOf(opt)
	memory := make([]uint64, v.NumField()) // whose fields take at most as much
	at := unsafe.Pointer(unsafe.SliceData(memory))
	offset := uintptr(0)
	put := func(size uintptr, x uint64) {
		offset = (offset + size - 1) / size * size
		if size == 4 {
			*(*uint32)(unsafe.Add(at, offset)) = uint32(x)
		} else {
			*(*uint64)(unsafe.Add(at, offset)) = x
		}
		offset += size
	}
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			put(4, map[bool]uint64{true: 1}[f.Bool()])
		case reflect.Uint8:
			put(4, f.Uint())
		case reflect.Float64:
			put(8, math.Float64bits(f.Float()))
		case reflect.Slice:
			x := orNil(f.Interface().([]float64))
			if x != nil {
				pinner.Pin(&x[0])
			}
			put(8, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(x)))))
		default:
			put(8, uint64(f.Int()))
		}
	}
	return at
}
