// Package kernels is the catalogue of the kernels of package reweight. For each
// it has the name, workloads of any size, dtype and family of input, the answers of
// package reference in float64, the tolerance that results are compared with, and
// what a run must read, write and compute.
//
// Tests, fuzzing and the bench walk this list, so they test and measure a kernel
// that is added here. Everything that can run the kernels implements one interface,
// Runner. docs/kernels.md says how to add a kernel.
package kernels

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
)

// A Kernel is one entry of the catalogue.
type Kernel struct {
	Name   string           // "exp_scale": in flags, reports and testdata
	Doc    string           // one line
	DTypes []reweight.DType // that its main input may have
	Rows   bool             // whether it works on rows of logits; otherwise on tokens
	OnlyGo bool             // whether no GPU has it: the catalogue runs it on package reweight alone

	code  code                        // the functions that it is made of
	build func(s Spec) (*Case, error) // see New
}

// A code names the functions that a kernel is made of. Only TestNothingIsForgotten
// reads it: it looks for each of them in the files where they belong.
type code struct {
	method    string   // of *reweight.Workspace and, unless OnlyGo, of Runner: "ExpScale"
	assembly  []string // functions that are assembly on every CPU: "expScale"; OnlyGo: none
	reference string   // function of package reference: "ExpScale"
	device    string   // file of gpu/internal/device that has the GPU's kernel: "spans"
}

var (
	anyFloat  = []reweight.DType{reweight.DTypeF32, reweight.DTypeBF16, reweight.DTypeF16}
	twoFloats = []reweight.DType{reweight.DTypeF32, reweight.DTypeBF16}
	float     = []reweight.DType{reweight.DTypeF32}
)

// catalogue lists every kernel.
var catalogue = slices.Concat(rowKernels, tokenKernels, lossKernels)

// On returns the implementations that have the kernel: all, unless package
// reweight alone has it.
func (k Kernel) On(impls []Implementation) []Implementation {
	if !k.OnlyGo {
		return impls
	}
	var have []Implementation
	for _, impl := range impls {
		if _, ok := impl.New(1).(*reweight.Workspace); ok {
			have = append(have, impl)
		}
	}
	return have
}

// A Spec says what a workload looks like.
type Spec struct {
	Rows   int            // rows of logits, or tokens
	Vocab  int            // logits per row; 0 for kernels on tokens
	DType  reweight.DType // of the main input: one of the kernel's
	Family Family         // of the main input's values
	Seed   uint64         // of everything random: equal specs make equal workloads

	memory func(bytes int) []byte // allocates the arrays; nil for the heap
}

// array returns n zeroed elements in the spec's memory.
func array[E any](s Spec, n int) []E {
	if s.memory == nil {
		return make([]E, n)
	}
	var e E
	b := s.memory(n * int(unsafe.Sizeof(e)))
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// A Case is a workload: the inputs of a call, its outputs, and the answers of
// package reference that the outputs are compared with.
type Case struct {
	Elements int // logits, or tokens

	// Bytes is the memory that one run must read and write: every input once and
	// every output once, however often a kernel does it.
	Bytes int64

	// Input is the memory of the main input: the logits, or the first array of
	// tokens. The bench compares a kernel's speed with a plain read of it.
	Input []byte

	Run func(impl Runner) error // runs the kernel once

	// Reference computes the answers in float64, for Check. It takes many times as long
	// as Run.
	Reference func()

	outputs []output
}

// An output is one result of a kernel. Its error is |got - want|. An element passes
// if one of these is true:
//
//   - It equals the reference, or both are NaN, or infinite in float32.
//   - ulps is set, and the error is at most ulps units in the last place of float32
//     at max(|want|, 2).
//   - ulps is not set, and the error minus half*|want|, the rounding to the output's
//     dtype, is at most bound, or where bound is not set, at most abs + rel*|want|.
//
// For a sum, the error is divided by the sum of its terms' magnitudes.
type output struct {
	name     string
	elements int
	got      func(i int) float64
	memory   []byte    // where Run writes it
	want     []float64 // has no elements before the first Reference if there are many
	terms    []float64 // for sums, set with want: the sum of the terms' magnitudes
	ulps     float64
	abs, rel float64
	bound    func(i int) float64 // for element i: see docs/accuracy.md
	half     float64             // relative error of rounding to the output's dtype: 0x1p-24 for float32
}

// All returns the catalogue.
func All() []Kernel { return slices.Clone(catalogue) }

// Find returns the kernel of that name.
func Find(name string) (Kernel, error) {
	for _, k := range catalogue {
		if k.Name == name {
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("kernels: no kernel %q", name)
}

// New builds a workload of the kernel. A spec without rows, or with a dtype that the
// kernel does not take, is an error.
func (k Kernel) New(s Spec) (*Case, error) {
	if s.Rows < 1 || k.Rows && s.Vocab < 1 {
		return nil, fmt.Errorf("kernels: %s of %d rows of %d, want at least 1", k.Name, s.Rows, s.Vocab)
	}
	if !slices.Contains(k.DTypes, s.DType) {
		return nil, fmt.Errorf("kernels: %s does not take dtype %v, want one of %v", k.Name, s.DType, k.DTypes)
	}
	return k.build(s)
}

// Errors are the largest errors of a case. MaxULP is of the outputs whose
// tolerance is given in units in the last place of float32 at max(|want|, 2).
// MaxAbs is of the others, without what rounding to their dtype costs; for a
// sum it is divided by the sum of its terms' magnitudes.
type Errors struct{ MaxULP, MaxAbs float64 }

// Check compares the outputs of the last Run with the answers of the last
// Reference. Its error names the first element that is out of tolerance.
func (c *Case) Check() (Errors, error) {
	var e Errors
	var first error
	for o := range c.outputs {
		out := &c.outputs[o]
		for i, want := range out.want {
			got := out.got(i)
			if got == want || got != got && want != want || math.IsInf(got, 0) && got == float64(float32(want)) {
				continue
			}
			d := math.Abs(got - want)
			if out.terms != nil {
				d /= out.terms[i]
			}
			ok := false
			if out.ulps > 0 {
				u := d / ulp32(want)
				ok = u <= out.ulps
				e.MaxULP = max(e.MaxULP, u)
			} else {
				d = max(0, d-math.Abs(want)*out.half)
				if out.bound != nil {
					ok = d <= out.bound(i)
				} else {
					ok = d <= out.abs+out.rel*math.Abs(want)
				}
				e.MaxAbs = max(e.MaxAbs, d)
			}
			if !ok && first == nil {
				first = fmt.Errorf("%s[%d] = %v, want %v", out.name, i, got, want)
			}
		}
	}
	return e, first
}

// Overwrite overwrites the outputs with a pattern, so that the results of an earlier run
// are not taken for the results of the next one.
func (c *Case) Overwrite() {
	for _, out := range c.outputs {
		for i := range out.memory {
			out.memory[i] = 0x55
		}
	}
}

// Bits appends the bits of every output to dst. Every NaN has the same pattern. Two
// implementations agree if their bits are equal.
func (c *Case) Bits(dst []uint64) []uint64 {
	for o := range c.outputs {
		out := &c.outputs[o]
		for i := range out.elements {
			v := out.got(i)
			if v != v {
				v = math.NaN()
			}
			dst = append(dst, math.Float64bits(v))
		}
	}
	return dst
}

// ulp32 returns the unit in the last place of float32 at max(|x|, 2).
func ulp32(x float64) float64 {
	_, e := math.Frexp(max(math.Abs(x), 2))
	return math.Ldexp(1, e-24)
}

// f32 returns an output of float32. The caller sets its tolerance.
func f32(name string, got []float32) output {
	return output{name: name, elements: len(got), got: func(i int) float64 { return float64(got[i]) },
		memory: raw.Bytes(got), want: make([]float64, len(got)), half: 0x1p-24}
}

// sums returns an output of counts and sums in float64. The caller sets its
// tolerance.
func sums(name string, got []float64) output {
	return output{name: name, elements: len(got), got: func(i int) float64 { return got[i] }, memory: raw.Bytes(got),
		want: make([]float64, len(got)), terms: make([]float64, len(got))}
}
