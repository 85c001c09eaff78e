//go:build cgo && linux

package testlib

import (
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
)

// What the library has and package reweight has not, for package randomcalls: views of rows.

// spread returns the view of rows that stand in x, with gaps between them.
func spread(l reweight.Logits, x []byte, gap int) view {
	v := viewOf(l)
	v.data, v.stride = unsafe.Pointer(unsafe.SliceData(x)), l.Vocab+gap
	return v
}

func idsOf(v *randomcalls.View, ids []int32) rowIDs {
	if v.Wide && ids != nil {
		return rowIDs{wide: randomcalls.WideIDs(ids)}
	}
	return rowIDs{narrow: ids}
}

// TokenStatsOf calls TokenStats on a view of the rows.
func (r *Runner) TokenStatsOf(v *randomcalls.View, dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	return r.tokenStats(dst, spread(logits, v.Spread(logits, v.Gap), v.Gap), idsOf(v, ids), opt)
}

// RowGradientOf calls RowGradient on a view of the rows.
func (r *Runner) RowGradientOf(v *randomcalls.View, dst, logits reweight.Logits, ids []int32,
	of reweight.RowGradientInput, opt reweight.RowGradientOptions) error {
	to, from, gap := v.SpreadBoth(dst, logits)
	err := r.rowGradient(spread(dst, to, gap), spread(logits, from, v.Gap), idsOf(v, ids), of, opt)
	if err != nil {
		return err
	}
	return v.Gather(dst, gap, to)
}

// ISA returns the runner's instruction set.
func (r *Runner) ISA() reweight.ISA { return r.isa }

// Lack lets calls have so many bytes of scratch memory less than they need.
func (r *Runner) Lack(bytes int64) { r.lacking = bytes }

// Rows are rows of float32 logits of any shape, or of another dtype by their bytes.
type Rows struct {
	Data                []float32
	Rows, Vocab, Stride int
	DType               reweight.DType
}

func (r Rows) view() view {
	return view{unsafe.Pointer(unsafe.SliceData(r.Data)), r.Rows, r.Vocab, r.Stride, r.DType}
}

// TokenStatsOfRows calls TokenStats without any check of lengths.
func (r *Runner) TokenStatsOfRows(dst reweight.Stats, logits Rows, ids []int64, opt reweight.TokenStatsOptions) error {
	return r.tokenStats(dst, logits.view(), rowIDs{wide: ids}, opt)
}

// RowGradientOfRows calls RowGradient without any check of lengths.
func (r *Runner) RowGradientOfRows(dst, logits Rows, ids []int64, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	return r.rowGradient(dst.view(), logits.view(), rowIDs{wide: ids}, of, opt)
}

// Silence lets calls have no address for an error, nor for a result that they can do
// without: they return ErrSilent.
func (r *Runner) Silence() { r.silent = true }

// ErrSilent is the error of a call without an address for it.
var ErrSilent = errSilent

// Load loads the shared library at path.
var Load = load
