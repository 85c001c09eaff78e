//go:build !noasm && !purego

package reweight

import "unsafe"

// Every arm64 CPU has NEON, so there is nothing to detect.
func detect() []ISA { return []ISA{Portable, NEON} }

// Each of these equals the portable function of its name on whole chunks of 16 elements, or on
// n spans or groups.

// rowBlocksNEON equals rowBlocksPortable on chunks whole chunks of 16 elements,
// whose DType has the number dtype, and then on tail, unless that is nil. It
// returns the number of the chunk that begins the block it stopped at, or -1.
//
//go:noescape
func rowBlocksNEON(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32, st *rowState, want rowWant) int

// blockMaxNEON equals blockMaxPortable on the same chunks and tail.
//
//go:noescape
func blockMaxNEON(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32) float32

// rowGradientNEON equals rowGradientPortable on chunks whole chunks of float32 or
// bfloat16. dst may be x.
//
//go:noescape
func rowGradientNEON(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)

//go:noescape
func maskedMomentsNEON(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums)

//go:noescape
func actFocusWeightsNEON(dst, signal *float32, role *Role, chunks int, q *actFocusConsts)

//go:noescape
func spanSumsNEON(sums *float64, x *float32, offsets *int32, n int)

//go:noescape
func minMaxNEON(lo, hi, x *float32, offsets *int32, n int)

// expScaleNEON equals expScalePortable on 16*chunks elements, from an empty
// sum.group on. dst may be x.
//
//go:noescape
func expScaleNEON(dst, x *float32, chunks int, lo, k float32, sum *laneSum)

//go:noescape
func scaleNEON(dst *float32, chunks int, f float32)

// multiplyNEON equals multiplyPortable on 16*chunks elements. dst may be a or b.
//
//go:noescape
func multiplyNEON(dst, a, b *float32, chunks int)

// surrogateNEON equals surrogatePortable on 16*chunks tokens, from empty groups of
// sums on. weights advances by stride bytes a chunk: 64, or 0 for sixteen ones. grad
// may be any of the float inputs.
//
//go:noescape
func surrogateNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *surrogateConsts,
	sums *surrogateSums)

func (isa ISA) rowBlocksAsm(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32, st *rowState, want rowWant) int {
	return rowBlocksNEON(x, dtype, chunks, tail, st, want)
}

func (isa ISA) blockMaxAsm(x unsafe.Pointer, dtype, chunks int, tail *[lanes]float32) float32 {
	return blockMaxNEON(x, dtype, chunks, tail)
}

func (isa ISA) rowGradientAsm(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts) {
	rowGradientNEON(dst, x, dtype, chunks, q)
}

func (isa ISA) maskedMomentsAsm(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums) {
	maskedMomentsNEON(x, role, chunks, roles, shift, m)
}

func (isa ISA) actFocusWeightsAsm(dst, signal *float32, role *Role, chunks int, q *actFocusConsts) {
	actFocusWeightsNEON(dst, signal, role, chunks, q)
}

func (isa ISA) spanSumsAsm(sums *float64, x *float32, offsets *int32, n int) {
	spanSumsNEON(sums, x, offsets, n)
}

func (isa ISA) minMaxAsm(lo, hi, x *float32, offsets *int32, n int) {
	minMaxNEON(lo, hi, x, offsets, n)
}

func (isa ISA) expScaleAsm(dst, x *float32, chunks int, lo, k float32, sum *laneSum) {
	expScaleNEON(dst, x, chunks, lo, k, sum)
}

func (isa ISA) scaleAsm(dst *float32, chunks int, f float32) { scaleNEON(dst, chunks, f) }

func (isa ISA) multiplyAsm(dst, a, b *float32, chunks int) { multiplyNEON(dst, a, b, chunks) }

func (isa ISA) surrogateAsm(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int,
	q *surrogateConsts, sums *surrogateSums) {
	surrogateNEON(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
}
