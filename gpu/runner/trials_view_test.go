package runner

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// A view is what package gpu has for rows of logits and package reweight has not: gaps
// between rows, ids of int64, and an index of the rows that are wanted.
type view struct {
	gap, dstGap, past int // logits
	wide              bool
	index             []int64 // nil means all
}

// view draws a view of so many rows.
func (d *draws) view(rows int) *view {
	v := &view{gap: one(d, 0, d.IntN(20)), dstGap: one(d, 0, d.IntN(20)), past: d.IntN(9), wide: d.IntN(2) == 0}
	if v.dstGap = one(d, v.gap, v.dstGap); d.IntN(3) == 0 {
		return v
	}
	for _, r := range d.Perm(rows)[:1+d.IntN(rows)] {
		v.index = append(v.index, int64(r))
	}
	if d.err() {
		v.index[d.IntN(len(v.index))] = one(d, -1, int64(rows), 1<<32, -1<<40, int64(rows)+1)
	}
	return v
}

// each calls f for each row that is wanted, until one has an error. The rows are numbered
// in memory, and so are those of errors.
func (v *view) each(rows int, f func(r int) error) error {
	n := rows
	if v.index != nil {
		n = len(v.index)
	}
	for i := range n {
		r := i
		if v.index != nil {
			at := v.index[i]
			if r = int(at); at < 0 || at >= int64(rows) {
				return &reweight.InputError{Arg: "logits.Index", Index: i, Problem: fmt.Sprintf("is %d, want 0 to %d, for %d rows of logits", at, rows-1, rows)}
			}
		}
		err := f(r)
		var input *reweight.InputError
		if errors.As(err, &input) && input.Index >= 0 {
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

func bytesOfLogits(l reweight.Logits) []byte {
	switch {
	case l.F32 != nil:
		return bytesOf(l.F32)
	case l.BF16 != nil:
		return bytesOf(l.BF16)
	}
	return bytesOf(l.F16)
}

const inGap = 0xff // a byte of a NaN, in each format

// spread returns memory of the rows with gaps between them.
func (v *view) spread(l reweight.Logits, gap int) []byte {
	size := l.DType().Size()
	row, stride := l.Vocab*size, (l.Vocab+gap)*size
	x := make([]byte, v.past*size+(l.Rows()-1)*stride+row+16)[v.past*size:]
	x = x[: len(x)-16 : len(x)-16]
	for i := range x {
		x[i] = inGap
	}
	from := bytesOfLogits(l)
	for r := range l.Rows() {
		copy(x[r*stride:], from[r*row:(r+1)*row])
	}
	return x
}

// gather copies rows with gaps between them to dst, and says whether a gap was written.
func (v *view) gather(dst reweight.Logits, gap int, x []byte) error {
	size := dst.DType().Size()
	row, stride := dst.Vocab*size, (dst.Vocab+gap)*size
	to := bytesOfLogits(dst)
	for r := range dst.Rows() {
		copy(to[r*row:(r+1)*row], x[r*stride:])
		if r > 0 && !bytes.Equal(x[r*stride-gap*size:r*stride], bytes.Repeat([]byte{inGap}, gap*size)) {
			return fmt.Errorf("a gap before row %d is written", r)
		}
	}
	return nil
}

// rows names rows on the device.
func (v *view) rows(m *memory, h, index handle, l reweight.Logits, gap int) gpu.Rows {
	rows := gpu.Rows{Ptr: m.ptr(h), DType: l.DType(), Rows: l.Rows(), Vocab: l.Vocab, Stride: l.Vocab + gap}
	if v.index != nil {
		rows.Index = &gpu.Index{Ptr: m.ptr(index), N: len(v.index)}
	}
	return rows
}

// ids names the ids.
func (v *view) ids(m *memory, ids []int32) handle {
	if !v.wide || ids == nil {
		return optionalIn(m, ids)
	}
	wide := make([]int64, len(ids))
	for i, id := range ids {
		wide[i] = int64(id)
	}
	return in(m, wide)
}

// tokenStats calls TokenStats on a view of the rows.
func (v *view) tokenStats(c caller, dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error {
	r, ok := c.(*Runner)
	if !ok {
		outputs := [][]float32{dst.LSE, dst.Entropy, dst.Logprob}
		was := copies(outputs)
		err := v.each(logits.Rows(), func(r int) error {
			one := reweight.Stats{LSE: elementOf(dst.LSE, r), Entropy: elementOf(dst.Entropy, r), Logprob: elementOf(dst.Logprob, r)}
			return c.TokenStats(one, rowOf(logits, r), elementOf(ids, r), opt)
		})
		if err != nil {
			restore(outputs, was)
		}
		return err
	}
	m := r.memory.begin()
	x, i, y := in(m, v.spread(logits, v.gap)), optionalIn(m, v.index), v.ids(m, ids)
	lse, h, l := optionalOut(m, dst.LSE), optionalOut(m, dst.Entropy), optionalOut(m, dst.Logprob)
	if err := m.upload(); err != nil {
		return err
	}
	stats := gpu.Stats{LSE: m.ptr(lse), Entropy: m.ptr(h), Logprob: m.ptr(l)}
	return r.finish(r.ws.TokenStats(stats, v.rows(m, x, i, logits, v.gap), gpu.IDs{Ptr: m.ptr(y), Int64: v.wide}, opt))
}

// rowGradient calls RowGradient on a view of the rows.
func (v *view) rowGradient(c caller, dst, logits reweight.Logits, ids []int32, logprobs, entropy, grad, gradEntropy []float32, opt reweight.RowGradientOptions) error {
	r, ok := c.(*Runner)
	if !ok {
		was := bytes.Clone(bytesOfLogits(dst))
		err := v.each(logits.Rows(), func(r int) error {
			return c.RowGradient(rowOf(dst, r), rowOf(logits, r), elementOf(ids, r), elementOf(logprobs, r), elementOf(entropy, r), elementOf(grad, r), elementOf(gradEntropy, r), opt)
		})
		if err != nil {
			copy(bytesOfLogits(dst), was)
		}
		return err
	}
	m := r.memory.begin()
	to, from := v.spread(dst, v.dstGap), v.spread(logits, v.gap)
	dstGap := v.dstGap
	if unsafe.SliceData(bytesOfLogits(dst)) == unsafe.SliceData(bytesOfLogits(logits)) {
		to, dstGap = from, v.gap
	}
	d, x, i, y := out(m, to), in(m, from), optionalIn(m, v.index), v.ids(m, ids)
	l, h, g, gh := in(m, logprobs), optionalIn(m, entropy), in(m, grad), optionalIn(m, gradEntropy)
	if err := m.upload(); err != nil {
		return err
	}
	err := r.finish(r.ws.RowGradient(v.rows(m, d, i, dst, dstGap), v.rows(m, x, i, logits, v.gap), gpu.IDs{Ptr: m.ptr(y), Int64: v.wide}, m.ptr(l), m.ptr(h), m.ptr(g), m.ptr(gh), opt))
	if err != nil {
		return err
	}
	return v.gather(dst, dstGap, to)
}

func copies(x [][]float32) [][]float32 {
	c := make([][]float32, len(x))
	for i := range x {
		c[i] = append(c[i], x[i]...)
	}
	return c
}

func restore(x, was [][]float32) {
	for i := range x {
		copy(x[i], was[i])
	}
}
