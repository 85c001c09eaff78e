//go:build !noasm && !purego

package reweight

import "unsafe"

// TODO(skeleton): the assembly replaces these calls of the portable twins.

func (isa ISA) policyLossAsm(kernel lossKernel, grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums) {
	n := chunks * lanes
	var w []float32
	if stride != 0 {
		w = unsafe.Slice(weights, n)
	}
	policyLossPortable(kernel, unsafe.Slice(grad, n), unsafe.Slice(logprobs, n), unsafe.Slice(old, n), unsafe.Slice(adv, n), w, unsafe.Slice(role, n), q, sums)
}
