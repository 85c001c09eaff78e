package randomcalls

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
)

// A View is what others have for rows of logits and package reweight has not: gaps
// between rows, ids of int64, and, on a device, an index of the rows that are wanted.
type View struct {
	Gap    int     // logits between two rows
	DstGap int     // the same of a gradient
	Wide   bool    // whether ids are of int64
	Index  []int64 // nil means all rows

	past int // logits before the first row
}

// A Viewer is a Caller that takes views of rows.
type Viewer interface {
	TokenStatsOf(v *View, dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error
	RowGradientOf(v *View, dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
		opt reweight.RowGradientOptions) error
}

// view draws a view of so many rows.
func (d *Draws) view(rows int) *View {
	v := &View{Gap: one(d, 0, d.IntN(20)), DstGap: one(d, 0, d.IntN(20)), past: d.IntN(9), Wide: d.IntN(2) == 0}
	if v.DstGap = one(d, v.Gap, v.DstGap); !d.device || d.IntN(3) == 0 {
		return v
	}
	for _, r := range d.Perm(rows)[:1+d.IntN(rows)] {
		v.Index = append(v.Index, int64(r))
	}
	if d.err() {
		v.Index[d.IntN(len(v.Index))] = one(d, -1, int64(rows), 1<<32, -1<<40, int64(rows)+1)
	}
	return v
}

// each calls f for each row that is wanted, until one has an error. The rows are numbered
// in memory, and so are those of errors.
func (v *View) each(rows int, f func(r int) error) error {
	n := rows
	if v.Index != nil {
		n = len(v.Index)
	}
	for i := range n {
		r := i
		if v.Index != nil {
			at := v.Index[i]
			if r = int(at); at < 0 || at >= int64(rows) {
				return &reweight.InputError{Arg: "logits.Index", Index: i,
					Problem: fmt.Sprintf("is %d, want 0 to %d, for %d rows of logits", at, rows-1, rows)}
			}
		}
		err := f(r)
		if input, ok := errors.AsType[*reweight.InputError](err); ok && input.Index >= 0 {
			input.Index += r
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rowOf returns row r alone.
func rowOf(l reweight.Logits, r int) reweight.Logits {
	from, to := r*l.Vocab, (r+1)*l.Vocab
	one := reweight.Logits{Vocab: l.Vocab}
	switch {
	case l.F32 != nil:
		one.F32 = l.F32[from:to]
	case l.BF16 != nil:
		one.BF16 = l.BF16[from:to]
	default:
		one.F16 = l.F16[from:to]
	}
	return one
}

// elementOf returns the element of a row, or nil without an array.
func elementOf[E any](x []E, r int) []E {
	if x == nil {
		return nil
	}
	return x[r : r+1]
}

const inGap = 0xff // a byte of a NaN, in each format

// Spread returns memory of the rows with gaps between them.
func (v *View) Spread(l reweight.Logits, gap int) []byte {
	size := l.DType().Size()
	row, stride := l.Vocab*size, (l.Vocab+gap)*size
	x := make([]byte, v.past*size+(l.Rows()-1)*stride+row+16)[v.past*size:]
	x = x[: len(x)-16 : len(x)-16]
	for i := range x {
		x[i] = inGap
	}
	from := raw.Logits(l)
	for r := range l.Rows() {
		copy(x[r*stride:], from[r*row:(r+1)*row])
	}
	return x
}

// SpreadBoth does so for a gradient and its logits, which may be the same memory, and
// returns the gap between rows of the gradient.
func (v *View) SpreadBoth(dst, logits reweight.Logits) (to, from []byte, gap int) {
	from = v.Spread(logits, v.Gap)
	if unsafe.SliceData(raw.Logits(dst)) == unsafe.SliceData(raw.Logits(logits)) {
		return from, from, v.Gap
	}
	return v.Spread(dst, v.DstGap), from, v.DstGap
}

// Gather copies rows with gaps between them to dst. A gap that was written is an error.
func (v *View) Gather(dst reweight.Logits, gap int, x []byte) error {
	size := dst.DType().Size()
	row, stride := dst.Vocab*size, (dst.Vocab+gap)*size
	to := raw.Logits(dst)
	for r := range dst.Rows() {
		copy(to[r*row:(r+1)*row], x[r*stride:])
		if r > 0 && !bytes.Equal(x[r*stride-gap*size:r*stride], bytes.Repeat([]byte{inGap}, gap*size)) {
			return fmt.Errorf("a gap before row %d is written", r)
		}
	}
	return nil
}

// WideIDs returns the ids as int64.
func WideIDs(ids []int32) []int64 {
	wide := make([]int64, len(ids))
	for i, id := range ids {
		wide[i] = int64(id)
	}
	return wide
}

// tokenStats calls TokenStats on a view of the rows.
func (v *View) tokenStats(c Caller, dst reweight.Stats, logits reweight.Logits, ids []int32,
	opt reweight.TokenStatsOptions) error {
	if c, ok := c.(Viewer); ok {
		return c.TokenStatsOf(v, dst, logits, ids, opt)
	}
	outputs := [][]float32{dst.LSE, dst.Entropy, dst.Logprob, dst.LogSumSqProbs}
	var was [][]float32
	for _, x := range outputs {
		was = append(was, slices.Clone(x))
	}
	err := v.each(logits.Rows(), func(r int) error {
		one := reweight.Stats{LSE: elementOf(dst.LSE, r), Entropy: elementOf(dst.Entropy, r),
			Logprob: elementOf(dst.Logprob, r), LogSumSqProbs: elementOf(dst.LogSumSqProbs, r)}
		return c.TokenStats(one, rowOf(logits, r), elementOf(ids, r), opt)
	})
	for i, x := range outputs {
		if err != nil {
			copy(x, was[i])
		}
	}
	return err
}

// rowGradient calls RowGradient on a view of the rows.
func (v *View) rowGradient(c Caller, dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
	opt reweight.RowGradientOptions) error {
	if c, ok := c.(Viewer); ok {
		return c.RowGradientOf(v, dst, logits, ids, of, opt)
	}
	was := bytes.Clone(raw.Logits(dst))
	err := v.each(logits.Rows(), func(r int) error {
		one := reweight.RowGradientInput{Logprobs: elementOf(of.Logprobs, r), Entropy: elementOf(of.Entropy, r),
			Grad: elementOf(of.Grad, r), GradEntropy: elementOf(of.GradEntropy, r), LSE: elementOf(of.LSE, r)}
		return c.RowGradient(rowOf(dst, r), rowOf(logits, r), elementOf(ids, r), one, opt)
	})
	if err != nil {
		copy(raw.Logits(dst), was)
	}
	return err
}
