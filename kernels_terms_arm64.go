//go:build !noasm && !purego

package reweight

import "unsafe"

// TODO(skeleton): the assembly replaces these calls of the portable twins.

func (isa ISA) logRatiosAsm(a, b *float32, role *Role, chunks int, sums *logRatioSums) {
	n := chunks * lanes
	logRatiosPortable(unsafe.Slice(a, n), unsafe.Slice(b, n), unsafe.Slice(role, n), sums)
}

func (isa ISA) ratiosAsm(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum) {
	n := chunks * lanes
	ratiosPortable(unsafe.Slice(dst, n), unsafe.Slice(a, n), unsafe.Slice(b, n), unsafe.Slice(role, n), q, sum)
}

func (isa ISA) klAsm(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum) {
	n := chunks * lanes
	klPortable(unsafe.Slice(grad, n), unsafe.Slice(logprobs, n), unsafe.Slice(ref, n), unsafe.Slice(role, n), q, sum)
}

func (isa ISA) valueLossAsm(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums) {
	n := chunks * lanes
	valueLossPortable(unsafe.Slice(grad, n), unsafe.Slice(values, n), unsafe.Slice(old, n), unsafe.Slice(returns, n), unsafe.Slice(role, n), q, sums)
}
