//go:build cgo && linux

package testlib

// #include "calls.h"
import "C"

import (
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
)

// A view is rows of logits as the library takes them. They may lie further apart than
// those of reweight.Logits, and its fields may be wrong.
type view struct {
	data                unsafe.Pointer
	rows, vocab, stride int
	dtype               reweight.DType
}

// viewOf returns the rows of l.
func viewOf(l reweight.Logits) view {
	return view{data: unsafe.Pointer(unsafe.SliceData(raw.Logits(l))), rows: l.Rows(), vocab: l.Vocab, dtype: l.DType()}
}

func (v view) c() C.reweight_rows {
	return C.reweight_rows{data: v.data, rows: C.int64_t(v.rows), vocab: C.int64_t(v.vocab),
		stride: C.int64_t(v.stride), dtype: C.int32_t(v.dtype)}
}

// rowIDs are the ids of rows, of either width.
type rowIDs struct {
	narrow []int32
	wide   []int64
}

func (ids rowIDs) c() C.reweight_ids {
	if ids.wide != nil {
		return C.reweight_ids{data: unsafe.Pointer(unsafe.SliceData(ids.wide)), wide: 1}
	}
	return C.reweight_ids{data: unsafe.Pointer(unsafe.SliceData(ids.narrow))}
}

// TokenStats is the method of *reweight.Workspace in C.
func (r *Runner) TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	return r.tokenStats(dst, viewOf(logits), rowIDs{narrow: ids}, opt)
}

// tokenStats calls the library on any view of rows.
func (r *Runner) tokenStats(dst reweight.Stats, logits view, ids rowIDs, opt reweight.TokenStatsOptions) error {
	stats := C.reweight_stats{lse: floats(dst.LSE), entropy: floats(dst.Entropy), logprobs: floats(dst.Logprob),
		log_sum_sq_probs: floats(dst.LogSumSqProbs)}
	code := C.call_token_stats(r.functions, r.workspace(), stats, logits.c(), ids.c(), C.double(opt.Temperature),
		r.errorOf())
	return r.result(code, false)
}

// RowGradient is the method of *reweight.Workspace in C.
func (r *Runner) RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	return r.rowGradient(viewOf(dst), viewOf(logits), rowIDs{narrow: ids}, of, opt)
}

// rowGradient calls the library on any view of rows.
func (r *Runner) rowGradient(dst, logits view, ids rowIDs, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	options := C.reweight_row_gradient_options{temperature: C.double(opt.Temperature),
		entropy_bonus: C.double(opt.EntropyBonus)}
	code := C.call_row_gradient(r.functions, r.workspace(), dst.c(), logits.c(), ids.c(), floats(of.Logprobs),
		floats(of.Entropy), floats(of.Grad), floats(of.GradEntropy), floats(of.LSE), options, r.errorOf())
	return r.result(code, false)
}
