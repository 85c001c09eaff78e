//go:build !noasm && !purego

package reweight

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// detect asks the CPU, and the operating system for its registers.
func detect() []ISA {
	isas := []ISA{Portable}
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C) {
		isas = append(isas, AVX2)
		if cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512BW) {
			isas = append(isas, AVX512)
		}
	}
	return isas
}

//go:noescape
func rowBlocksAVX2(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32, st *rowState, entropy bool) int

//go:noescape
func rowBlocksAVX512(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32, st *rowState, entropy bool) int

//go:noescape
func blockMaxAVX2(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32) float32

//go:noescape
func blockMaxAVX512(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32) float32

// chunks hands elements i to n of the row to assembly: a pointer, a type (0
// float32, 1 bfloat16, 2 float16), the number of whole chunks of 16, and what
// is left in *tail, as float32 padded with -Inf; nil if nothing is.
func (l Logits) chunks(i, n int, tail *[lanes]float32) (x unsafe.Pointer, typ, chunks int, rest *[lanes]float32) {
	whole := (n - i) / lanes
	if (n-i)%lanes != 0 {
		load16(tail, l, i+whole*lanes, n)
		rest = tail
	}
	size := 2
	switch {
	case l.F32 != nil:
		x, size = unsafe.Pointer(&l.F32[i]), 4
	case l.BF16 != nil:
		x, typ = unsafe.Pointer(&l.BF16[i]), 1
	default:
		x, typ = unsafe.Pointer(&l.F16[i]), 2
	}
	raceRead(x, whole*lanes*size)
	return x, typ, whole, rest
}

func (p ISA) blockMax(row Logits, i, n int) float32 {
	if p == Portable {
		return blockMaxPortable(row, i, n)
	}
	var tail [lanes]float32
	x, typ, chunks, rest := row.chunks(i, n, &tail)
	if p == AVX512 {
		return blockMaxAVX512(x, typ, chunks, rest)
	}
	return blockMaxAVX2(x, typ, chunks, rest)
}

func (p ISA) rowBlocks(row Logits, i, n int, st *rowState, entropy bool) int {
	if p == Portable {
		return rowBlocksPortable(row, i, n, st, entropy)
	}
	var tail [lanes]float32
	x, typ, chunks, rest := row.chunks(i, n, &tail)
	stop := 0
	if p == AVX512 {
		stop = rowBlocksAVX512(x, typ, chunks, rest, st, entropy)
	} else {
		stop = rowBlocksAVX2(x, typ, chunks, rest, st, entropy)
	}
	if stop < 0 {
		return n
	}
	return i + stop*lanes
}

func (p ISA) rowGradient(dst, row Logits, q *gradConsts) { rowGradientPortable(dst, row, q) }

func (p ISA) maskedMoments(x []float32, role []uint8, roles uint8, shift float64, m *momentSums) {
	maskedMomentsPortable(x, role, roles, shift, m)
}

func (p ISA) actFocusWeights(dst, signal []float32, role []uint8, q *actFocusConsts) {
	actFocusWeightsPortable(dst, signal, role, q)
}

func (p ISA) spanSums(sums []float64, x []float32, offsets []int32) {
	spanSumsPortable(sums, x, offsets)
}

func (p ISA) minMax(lo, hi, x []float32, offsets []int32) { minMaxPortable(lo, hi, x, offsets) }

func (p ISA) expScale(dst, x []float32, lo, k float32, sum *[lanes]float64) {
	expScalePortable(dst, x, lo, k, sum)
}

func (p ISA) scale(dst []float32, f float32) { scalePortable(dst, f) }

func (p ISA) multiply(dst, a, b []float32) { multiplyPortable(dst, a, b) }

func (p ISA) surrogate(grad, logprobs, old, adv, weights []float32, role []uint8, q *surrogateConsts, sums *surrogateSums) {
	surrogatePortable(grad, logprobs, old, adv, weights, role, q, sums)
}
