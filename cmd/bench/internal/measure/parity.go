package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/kernels"
)

// A Parity says how far the results of a kernel with one implementation are from
// the float64 reference, and whether they have the bits of the first one.
type Parity struct {
	Kernel, DType, ISA string
	Cases              int // families of input times sizes
	Errors             kernels.Errors
	Failure            string // the first result that is out of tolerance or has other bits; or empty
}

// A Checker compares the results of a kernel with the reference. It is Check, except
// in tests.
type Checker func(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
	impls []kernels.Implementation) ([]Parity, error)

// Check compares the results of a kernel with each of the implementations to the
// reference, and their bits to each other, on every family of input. Sizes are
// elements per row, of two rows, or tokens. If ctx ends, it returns its error and
// nothing else.
func Check(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
	impls []kernels.Implementation) ([]Parity, error) {
	parities := make([]Parity, len(impls))
	for i, impl := range impls {
		parities[i] = Parity{Kernel: k.Name, DType: dtype.String(), ISA: impl.Name}
	}
	for _, size := range sizes {
		for _, family := range kernels.Families {
			if dtype == reweight.DTypeF16 && family == kernels.Offset {
				continue // near 10,000, the numbers of f16 are 8 apart
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			spec := kernels.Spec{Rows: size, DType: dtype, Family: family, Seed: uint64(size)}
			if k.Rows {
				spec.Rows, spec.Vocab = 2, size
			}
			c, err := k.New(spec)
			if err != nil {
				return nil, err
			}
			c.Reference()
			var first []uint64
			for i, impl := range impls {
				c.Overwrite() // an implementation that writes nothing must not pass with the results before it
				if err := c.Run(impl.New(0)); err != nil {
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

// add adds one more case, after Run and Reference, whose results must have these bits.
func (p *Parity) add(c *kernels.Case, bits []uint64, input string) {
	p.Cases++
	e, err := c.Check()
	p.Errors.MaxULP = max(p.Errors.MaxULP, e.MaxULP)
	p.Errors.MaxAbs = max(p.Errors.MaxAbs, e.MaxAbs)
	if err == nil && !slices.Equal(c.Bits(nil), bits) {
		err = errors.New("not the bits of the first implementation")
	}
	if err != nil && p.Failure == "" {
		p.Failure = fmt.Sprintf("%s %s on %s, %s: %v", p.Kernel, p.DType, p.ISA, input, err)
	}
}

// Failures returns those of the parities that have one.
func Failures(parities []Parity) []string {
	var failures []string
	for _, q := range parities {
		if q.Failure != "" {
			failures = append(failures, q.Failure)
		}
	}
	return failures
}
