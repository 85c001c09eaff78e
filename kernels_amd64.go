//go:build !noasm && !purego

package reweight

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// detect asks the CPU, and the operating system for its registers.
func detect() []ISA {
	isas := []ISA{Portable}
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.POPCNT) {
		isas = append(isas, AVX2)
		if cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512BW) {
			isas = append(isas, AVX512)
		}
	}
	return isas
}

// Each of these equals the portable function of its name on whole chunks of 16 elements, at
// least one; those for AVX-512 have the arguments of those for AVX2.

// rowBlocksAVX2 equals rowBlocksPortable on whole chunks of 16 elements at x, then
// on the padded tail unless that is nil. It stops at a block with a lane sum of 2^y
// above st.alarm and returns the block's first chunk: -1 at the end. dtype is the
// number of the DType.
//
//go:noescape
func rowBlocksAVX2(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32, st *rowState, want rowWant) int

//go:noescape
func rowBlocksAVX512(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32, st *rowState, want rowWant) int

// blockMaxAVX2 equals blockMaxPortable, with the row as rowBlocksAVX2 has it.
//
//go:noescape
func blockMaxAVX2(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32) float32

//go:noescape
func blockMaxAVX512(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32) float32

// rowGradientAVX2 equals rowGradientPortable on whole chunks of float32 or bfloat16.
// dst may be x.
//
//go:noescape
func rowGradientAVX2(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)

//go:noescape
func rowGradientAVX512(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)

//go:noescape
func maskedMomentsAVX2(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums)

//go:noescape
func maskedMomentsAVX512(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums)

//go:noescape
func actFocusWeightsAVX2(dst, signal *float32, role *Role, chunks int, q *actFocusConsts)

//go:noescape
func actFocusWeightsAVX512(dst, signal *float32, role *Role, chunks int, q *actFocusConsts)

// spanSumsAVX2 equals spanSumsPortable for n spans, at least one.
//
//go:noescape
func spanSumsAVX2(sums *float64, x *float32, offsets *int32, n int)

//go:noescape
func spanSumsAVX512(sums *float64, x *float32, offsets *int32, n int)

// minMaxAVX2 equals minMaxPortable for n groups, at least one.
//
//go:noescape
func minMaxAVX2(lo, hi, x *float32, offsets *int32, n int)

//go:noescape
func minMaxAVX512(lo, hi, x *float32, offsets *int32, n int)

// expScaleAVX2 equals expScalePortable on whole chunks. The group of sum is empty at
// the start.
//
//go:noescape
func expScaleAVX2(dst, x *float32, chunks int, lo, k float32, sum *laneSum)

//go:noescape
func expScaleAVX512(dst, x *float32, chunks int, lo, k float32, sum *laneSum)

//go:noescape
func scaleAVX2(dst *float32, chunks int, f float32)

//go:noescape
func scaleAVX512(dst *float32, chunks int, f float32)

//go:noescape
func multiplyAVX2(dst, a, b *float32, chunks int)

//go:noescape
func multiplyAVX512(dst, a, b *float32, chunks int)

// surrogateAVX2 equals surrogatePortable on whole chunks. weights advances by stride
// bytes a chunk: 0 for a chunk of ones. The groups of sums are empty at the start.
//
//go:noescape
func surrogateAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *surrogateConsts,
	sums *surrogateSums)

//go:noescape
func surrogateAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *surrogateConsts,
	sums *surrogateSums)

func (isa ISA) rowBlocksAsm(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32, st *rowState, want rowWant) int {
	if isa == AVX512 {
		return rowBlocksAVX512(x, dtype, chunks, tail, st, want)
	}
	return rowBlocksAVX2(x, dtype, chunks, tail, st, want)
}

func (isa ISA) blockMaxAsm(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32) float32 {
	if isa == AVX512 {
		return blockMaxAVX512(x, dtype, chunks, tail)
	}
	return blockMaxAVX2(x, dtype, chunks, tail)
}

func (isa ISA) rowGradientAsm(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts) {
	if isa == AVX512 {
		rowGradientAVX512(dst, x, dtype, chunks, q)
	} else {
		rowGradientAVX2(dst, x, dtype, chunks, q)
	}
}

func (isa ISA) maskedMomentsAsm(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums) {
	if isa == AVX512 {
		maskedMomentsAVX512(x, role, chunks, roles, shift, m)
	} else {
		maskedMomentsAVX2(x, role, chunks, roles, shift, m)
	}
}

func (isa ISA) actFocusWeightsAsm(dst, signal *float32, role *Role, chunks int, q *actFocusConsts) {
	if isa == AVX512 {
		actFocusWeightsAVX512(dst, signal, role, chunks, q)
	} else {
		actFocusWeightsAVX2(dst, signal, role, chunks, q)
	}
}

func (isa ISA) spanSumsAsm(sums *float64, x *float32, offsets *int32, n int) {
	if isa == AVX512 {
		spanSumsAVX512(sums, x, offsets, n)
	} else {
		spanSumsAVX2(sums, x, offsets, n)
	}
}

func (isa ISA) minMaxAsm(lo, hi, x *float32, offsets *int32, n int) {
	if isa == AVX512 {
		minMaxAVX512(lo, hi, x, offsets, n)
	} else {
		minMaxAVX2(lo, hi, x, offsets, n)
	}
}

func (isa ISA) expScaleAsm(dst, x *float32, chunks int, lo, k float32, sum *laneSum) {
	if isa == AVX512 {
		expScaleAVX512(dst, x, chunks, lo, k, sum)
	} else {
		expScaleAVX2(dst, x, chunks, lo, k, sum)
	}
}

func (isa ISA) scaleAsm(dst *float32, chunks int, f float32) {
	if isa == AVX512 {
		scaleAVX512(dst, chunks, f)
	} else {
		scaleAVX2(dst, chunks, f)
	}
}

func (isa ISA) multiplyAsm(dst, a, b *float32, chunks int) {
	if isa == AVX512 {
		multiplyAVX512(dst, a, b, chunks)
	} else {
		multiplyAVX2(dst, a, b, chunks)
	}
}

func (isa ISA) surrogateAsm(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int,
	q *surrogateConsts, sums *surrogateSums) {
	if isa == AVX512 {
		surrogateAVX512(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
	} else {
		surrogateAVX2(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
	}
}
