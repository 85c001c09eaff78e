//go:build !noasm && !purego

package reweight

import "unsafe"

// detect: every arm64 has NEON, and Go's own runtime uses it unasked.
func detect() []ISA { return []ISA{Portable, NEON} }

//go:noescape
func rowBlocksNEON(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32, st *rowState, entropy bool) int

//go:noescape
func blockMaxNEON(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32) float32

//go:noescape
func rowGradientNEON(dst, x unsafe.Pointer, typ, chunks int, q *gradConsts)

//go:noescape
func maskedMomentsNEON(x *float32, role *uint8, chunks, roles int, shift float64, m *momentSums)

//go:noescape
func actFocusWeightsNEON(dst, signal *float32, role *uint8, chunks int, q *actFocusConsts)

//go:noescape
func spanSumsNEON(sums *float64, x *float32, offsets *int32, n int)

//go:noescape
func minMaxNEON(lo, hi, x *float32, offsets *int32, n int)

//go:noescape
func expScaleNEON(dst, x *float32, chunks int, lo, k float32, sum *laneSum)

//go:noescape
func scaleNEON(dst *float32, chunks int, f float32)

//go:noescape
func multiplyNEON(dst, a, b *float32, chunks int)

//go:noescape
func surrogateNEON(grad, logprobs, old, adv, weights *float32, stride int, role *uint8, chunks int, q *surrogateConsts, sums *surrogateSums)

func (p ISA) rowBlocksAsm(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32, st *rowState, entropy bool) int {
	return rowBlocksNEON(x, typ, chunks, tail, st, entropy)
}

func (p ISA) blockMaxAsm(x unsafe.Pointer, typ, chunks int, tail *[lanes]float32) float32 {
	return blockMaxNEON(x, typ, chunks, tail)
}

func (p ISA) rowGradientAsm(dst, x unsafe.Pointer, typ, chunks int, q *gradConsts) {
	rowGradientNEON(dst, x, typ, chunks, q)
}

func (p ISA) maskedMomentsAsm(x *float32, role *uint8, chunks, roles int, shift float64, m *momentSums) {
	maskedMomentsNEON(x, role, chunks, roles, shift, m)
}

func (p ISA) actFocusWeightsAsm(dst, signal *float32, role *uint8, chunks int, q *actFocusConsts) {
	actFocusWeightsNEON(dst, signal, role, chunks, q)
}

func (p ISA) spanSumsAsm(sums *float64, x *float32, offsets *int32, n int) {
	spanSumsNEON(sums, x, offsets, n)
}

func (p ISA) minMaxAsm(lo, hi, x *float32, offsets *int32, n int) {
	minMaxNEON(lo, hi, x, offsets, n)
}

func (p ISA) expScaleAsm(dst, x *float32, chunks int, lo, k float32, sum *laneSum) {
	expScaleNEON(dst, x, chunks, lo, k, sum)
}

func (p ISA) scaleAsm(dst *float32, chunks int, f float32) { scaleNEON(dst, chunks, f) }

func (p ISA) multiplyAsm(dst, a, b *float32, chunks int) { multiplyNEON(dst, a, b, chunks) }

func (p ISA) surrogateAsm(grad, logprobs, old, adv, weights *float32, stride int, role *uint8, chunks int, q *surrogateConsts, sums *surrogateSums) {
	surrogateNEON(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
}
