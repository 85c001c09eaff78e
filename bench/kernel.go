package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/kernels"
)

// StreamBytes is the least memory that a workload on rows of logits reads by
// default: more than most caches hold. A cache larger than that keeps part of
// it, for the plain read as for the kernel.
const StreamBytes = 64 << 20

// TokenCount is the default size of workloads on tokens; they stay in a cache,
// as they do in a training step.
const TokenCount = 65536

// maxRows bounds RowsToStream: rows of a few elements cost more than their
// memory.
const maxRows = 1 << 20

// RowsToStream returns the rows of vocab elements of that type that make up
// StreamBytes, or a million if that is less.
func RowsToStream(typ string, vocab int) int {
	size := 4
	if typ != "f32" {
		size = 2
	}
	return min(maxRows, (StreamBytes+vocab*size-1)/(vocab*size))
}

// A Result is the speed and the errors of one path of a kernel on one workload.
// Intervals are as Estimate's.
type Result struct {
	Kernel         string    `json:"kernel"`
	Type           string    `json:"dtype"`
	Path           string    `json:"path"`
	Rows           int       `json:"rows"` // of logits, or tokens
	Vocab          int       `json:"vocab"`
	Workers        int       `json:"workers"`
	NsPerElement   float64   `json:"ns_per_element"`
	NsLo           float64   `json:"ns_lo"`
	NsHi           float64   `json:"ns_hi"`
	GBPerS         float64   `json:"gb_per_s"`       // 1e9 bytes; what must be read and written at least
	ReadGBPerS     float64   `json:"read_gb_per_s"`  // of the plain read, in the same rounds
	RooflineShare  float64   `json:"roofline_share"` // of the speed of a plain read of the main input
	ShareLo        float64   `json:"share_lo"`
	ShareHi        float64   `json:"share_hi"`
	TimesReference float64   `json:"times_reference"`          // times the speed of the float64 reference
	TimesPortable  *Estimate `json:"times_portable,omitempty"` // times the speed of the portable path on one worker
	Rounds         int       `json:"rounds"`
	Outliers       int       `json:"outliers"` // of the rounds' times
	Null           Estimate  `json:"null"`     // the plain read over itself, as if it were two functions
	AllocsPerOp    uint64    `json:"allocs_per_op"`
	BytesPerOp     uint64    `json:"bytes_per_op"`                 // on the heap
	Cycles         float64   `json:"cycles_per_element,omitempty"` // in user mode; one worker only, and where they can be counted
	Instructions   float64   `json:"instructions_per_element,omitempty"`
	MaxULP         Number    `json:"max_ulp"` // as kernels.Errors; see Check
	MaxAbs         Number    `json:"max_abs"`

	Bytes int64     `json:"-"` // that GBPerS is of
	Times []float64 `json:"-"` // nanoseconds of a call, by round
}

// A Number is null in JSON if it is NaN or infinite, and NaN if it was null.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func (n *Number) UnmarshalJSON(text []byte) error {
	f := math.NaN()
	if string(text) != "null" {
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
	}
	*n = Number(f)
	return nil
}

// Kernel measures the paths of a kernel on a workload of so many rows of logits,
// or tokens: each in turn with a plain read of its input's memory by as many
// workers, and with the float64 reference and the portable path, which have one
// worker and fewer rows. The results have no errors: those come from Check. Where
// ctx ends it, they are those of the rounds so far, or none, with the error.
func (s Sampler) Kernel(ctx context.Context, k kernels.Kernel, typ string, rows, vocab, workers int, paths []reweight.ISA) ([]Result, error) {
	c, err := k.New(kernels.Spec{Rows: rows, Vocab: vocab, Type: typ})
	if err != nil {
		return nil, err
	}
	few := c
	if k.Rows {
		if few, err = k.New(kernels.Spec{Rows: 2, Vocab: vocab, Type: typ}); err != nil {
			return nil, err
		}
	}
	// The plain read comes twice, as two functions: what they seem to differ by
	// is the noise of the machine.
	const read, again, reference, portable, first = 0, 1, 2, 3, 4
	readAll := PlainRead(c.Input(), workers)
	plain := &reweight.Workspace{Path: reweight.Portable, Workers: 1}
	fns := []func() error{readAll, readAll, few.Reference, func() error { return few.Run(plain) }}
	results := make([]Result, len(paths))
	for i, path := range paths {
		ws := &reweight.Workspace{Path: path, Workers: workers}
		fns = append(fns, func() error { return c.Run(ws) })
		objects, bytes, err := Allocs(func() error { return few.Run(ws) })
		if err != nil {
			return nil, err
		}
		results[i] = Result{
			Kernel: k.Name, Type: typ, Path: path.String(), Rows: rows, Vocab: vocab, Workers: workers,
			AllocsPerOp: objects, BytesPerOp: bytes, Bytes: c.Bytes,
		}
	}
	samples, err := s.Sample(ctx, fns...)
	if err != nil && (ctx.Err() == nil || samples.Rounds() == 0) {
		return nil, err
	}
	null := samples.Ratio(again, read)
	fewer := float64(c.Elements) / float64(few.Elements)
	for i := range results {
		r := &results[i]
		ns := samples.Median(first + i)
		perElement := ns.Times(1 / float64(c.Elements))
		r.NsPerElement, r.NsLo, r.NsHi = perElement.Median, perElement.Lo, perElement.Hi
		r.Rounds, r.Outliers, r.Null = ns.N, ns.Outliers, null
		r.GBPerS, r.Times = float64(c.Bytes)/ns.Median, samples[first+i]
		share := samples.Ratio(read, first+i).Times(float64(c.Bytes) / float64(len(c.Input())))
		r.RooflineShare, r.ShareLo, r.ShareHi = share.Median, share.Lo, share.Hi
		r.TimesReference = fewer * samples.Ratio(reference, first+i).Median
		times := samples.Ratio(portable, first+i).Times(fewer)
		r.TimesPortable = &times
		r.ReadGBPerS = float64(len(c.Input())) / samples.Median(read).Median
		if err == nil && workers == 1 {
			var n Counts
			var ok bool
			if n, ok, err = Count(fns[first+i]); ok {
				r.Cycles = float64(n.Cycles) / float64(c.Elements)
				r.Instructions = float64(n.Instructions) / float64(c.Elements)
			}
		}
	}
	return results, err
}

// A Parity says how far a path of a kernel is from the float64 reference, and
// whether it has the bits of the first path.
type Parity struct {
	Kernel, Type, Path string
	Cases              int // families of input times sizes
	Errors             kernels.Errors
	Failure            string // the first result that is out of tolerance or has other bits; or empty
}

// Check holds the paths of a kernel against the reference and against each
// other on every family of input. Sizes are elements per row, of two rows, or
// tokens. Where ctx ends it, there is nothing but the error.
func Check(ctx context.Context, k kernels.Kernel, typ string, sizes []int, paths []reweight.ISA) ([]Parity, error) {
	parities := make([]Parity, len(paths))
	for i, path := range paths {
		parities[i] = Parity{Kernel: k.Name, Type: typ, Path: path.String()}
	}
	for _, size := range sizes {
		for _, family := range kernels.Families {
			if typ == "f16" && family == kernels.Offset {
				continue // f16 holds 10,000 +- 10 in steps of 8
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			spec := kernels.Spec{Rows: size, Type: typ, Family: family, Seed: uint64(size)}
			if k.Rows {
				spec.Rows, spec.Vocab = 2, size
			}
			c, err := k.New(spec)
			if err != nil {
				return nil, err
			}
			if err := c.Reference(); err != nil {
				return nil, err
			}
			var first []uint64
			for i, path := range paths {
				if err := c.Run(&reweight.Workspace{Path: path}); err != nil {
					return nil, err
				}
				if first == nil {
					first = c.Bits(nil)
				}
				parities[i].add(c, first, fmt.Sprintf("%v input of %d", family, size))
			}
		}
	}
	return parities, nil
}

// A checked is a kernels.Case that has run, with its reference.
type checked interface {
	Check() (kernels.Errors, error)
	Bits([]uint64) []uint64
}

// add takes one more case into account, whose results must have these bits.
func (p *Parity) add(c checked, bits []uint64, input string) {
	p.Cases++
	e, err := c.Check()
	p.Errors.MaxULP = max(p.Errors.MaxULP, e.MaxULP)
	p.Errors.MaxAbs = max(p.Errors.MaxAbs, e.MaxAbs)
	if err == nil && !slices.Equal(c.Bits(nil), bits) {
		err = errors.New("not the bits of the first path")
	}
	if err != nil && p.Failure == "" {
		p.Failure = fmt.Sprintf("%s %s on %s, %s: %v", p.Kernel, p.Type, p.Path, input, err)
	}
}
