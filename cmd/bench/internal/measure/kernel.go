// Package measure measures kernels of the catalogue, and training steps made of
// them, and compares their results with the float64 reference.
package measure

import (
	"context"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/kernels"
)

// StreamBytes is the least memory that a workload on rows of logits reads by
// default.
const StreamBytes = 64 << 20

// TokenCount is the default size of workloads on tokens; they stay in a cache,
// as they do in a training step.
const TokenCount = 65536

// maxRows bounds RowsToStream: of very short rows, each takes longer than reading
// its memory does.
const maxRows = 1 << 20

// RowsToStream returns the rows of vocab elements of that format that take so many
// bytes, or a million if that is less.
func RowsToStream(dtype reweight.DType, vocab, bytes int) int {
	size := dtype.Size()
	return min(maxRows, (bytes+vocab*size-1)/(vocab*size))
}

// A Result is the speed and the errors of a kernel on one workload with one
// instruction set.
type Result struct {
	Kernel         string         `json:"kernel"`
	DType          string         `json:"dtype"`
	ISA            string         `json:"isa"`
	Rows           int            `json:"rows"` // of logits, or tokens
	Vocab          int            `json:"vocab"`
	Workers        int            `json:"workers"`
	NsPerElement   bench.Estimate `json:"ns_per_element"`
	GBPerS         float64        `json:"gb_per_s"`        // kernels.Case.Bytes over the median time, in 1e9 bytes
	ReadGBPerS     float64        `json:"read_gb_per_s"`   // the same of the plain read, in the same rounds
	Share          bench.Estimate `json:"roofline_share"`  // GBPerS over that of a plain read of the main input
	TimesReference bench.Estimate `json:"times_reference"` // times the speed of the float64 reference
	TimesPortable  bench.Estimate `json:"times_portable"`  // times the speed of the portable kernel on one worker
	Null           bench.Estimate `json:"null"`            // the plain read's time over its own, as of two functions

	// On a GPU only, where the reads are the device's too: the speed of a plain copy of
	// the main input in the device's memory, bytes that are read and bytes that are
	// written, and GBPerS over that.
	//
	// RowsWanted is set where the GPU's memory had no room for so many rows.
	CopyGBPerS float64         `json:"copy_gb_per_s,omitempty"`
	CopyShare  *bench.Estimate `json:"copy_share,omitempty"`
	RowsWanted int             `json:"rows_wanted,omitempty"`

	AllocsPerOp uint64       `json:"allocs_per_op"`
	BytesPerOp  uint64       `json:"bytes_per_op"` // on the heap
	MaxULP      bench.Number `json:"max_ulp"`      // as kernels.Errors; see Check
	MaxAbs      bench.Number `json:"max_abs"`
}

// Kernel measures a kernel with each of the CPU's implementations, on a workload of
// that many rows of logits, or tokens. They run in turn with a plain read of the
// input's memory by as many workers, and with the float64 reference and the
// portable kernel, which have one worker and fewer rows. The results have no
// errors: those come from Check. If ctx ends, the results are those of the rounds
// so far, or none, and the error is that of ctx.
//
// The portable kernel has few rows as one of the implementations too, and its
// result is what the whole workload would take: its time by element is that of
// its arithmetic, wherever the rows lie. A workload of more than StreamBytes has
// as much more of the sampler's budget, up to 16 times.
func Kernel(ctx context.Context, s bench.Sampler, k kernels.Kernel, dtype reweight.DType, rows, vocab, workers int,
	impls []kernels.Implementation) ([]Result, error) {
	c, err := k.New(kernels.Spec{Rows: rows, Vocab: vocab, DType: dtype})
	if err != nil {
		return nil, err
	}
	few, shared := c, c // shared has a row for each worker
	if k.Rows {
		if few, err = k.New(kernels.Spec{Rows: 2, Vocab: vocab, DType: dtype}); err != nil {
			return nil, err
		}
		if shared = few; workers > 2 {
			if shared, err = k.New(kernels.Spec{Rows: workers, Vocab: vocab, DType: dtype}); err != nil {
				return nil, err
			}
		}
		s.Budget *= time.Duration(max(1, min(16, len(c.Input)/StreamBytes)))
	}
	readAll := bench.PlainRead(c.Input, workers)
	plain := kernels.Implementations()[0]
	serial := plain.New(1)
	fns := []func() error{readAll, readAll, func() error { few.Reference(); return nil },
		func() error { return few.Run(serial) }}
	results := make([]Result, len(impls))
	cases := make([]*kernels.Case, len(impls))
	for i, impl := range impls {
		ws := impl.New(workers)
		if cases[i] = c; impl.Name == plain.Name && rows > workers {
			cases[i] = shared
		}
		fns = append(fns, func() error { return cases[i].Run(ws) })
		objects, bytes, err := bench.Allocs(func() error { return few.Run(ws) })
		if err != nil {
			return nil, err
		}
		results[i] = Result{
			Kernel: k.Name, DType: dtype.String(), ISA: impl.Name, Rows: rows, Vocab: vocab, Workers: workers,
			AllocsPerOp: objects, BytesPerOp: bytes,
		}
	}
	samples, err := s.Sample(ctx, fns...)
	if err != nil && (ctx.Err() == nil || samples.Rounds() == 0) {
		return nil, err
	}
	for i := range results {
		elements := float64(c.Elements)
		whole, fewer := elements/float64(cases[i].Elements), elements/float64(few.Elements)
		results[i].measured(samples, first+i, whole, fewer, elements, float64(c.Bytes), float64(len(c.Input)))
	}
	return results, err
}

// The first functions that are timed. The plain read is measured twice, as if it were two
// functions: the difference between the two is the noise of the machine. The reference and the
// portable kernel have few rows.
const read, again, reference, portable, first = 0, 1, 2, 3, 4

// measured sets what the times of the kernel, and of those before it, say of a workload of so many
// elements, of which it must move so many bytes, with a main input of so many. The workload is
// whole times what the kernel had, and fewer times what the reference had.
func (q *Result) measured(samples bench.Samples, kernel int, whole, fewer, elements, moved, input float64) {
	ns := samples.Median(kernel).Times(whole)
	q.NsPerElement = ns.Times(1 / elements)
	q.GBPerS, q.ReadGBPerS = moved/ns.Median, input/samples.Median(read).Median
	q.Share = samples.Ratio(read, kernel).Times(moved / input / whole)
	q.TimesReference = samples.Ratio(reference, kernel).Times(fewer / whole)
	q.TimesPortable = samples.Ratio(portable, kernel).Times(fewer / whole)
	q.Null = samples.Ratio(again, read)
}
