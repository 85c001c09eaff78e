//go:build (amd64 || arm64) && !noasm && !purego

package reweight

import "unsafe"

// As kernels_asm.go, for the kernels of kernels_losses_portable.go and
// kernels_terms_portable.go.

func (isa ISA) policyLoss(kernel lossKernel, grad, logprobs, old, adv, weights []float32, role []Role, q *lossConsts, sums *surrogateSums) {
	if whole := len(role) &^ (lanes - 1); isa != Portable && whole > 0 {
		for _, x := range [...][]float32{logprobs, old, adv} {
			raceReadFloats(x[:whole])
		}
		raceRead(unsafe.Pointer(&role[0]), whole)
		raceWriteFloats(grad[:whole])
		w, stride := &ones[0], 0
		if weights != nil {
			raceReadFloats(weights[:whole])
			w, stride = &weights[0], 4*lanes
			weights = weights[whole:]
		}
		isa.policyLossAsm(kernel, &grad[0], &logprobs[0], &old[0], &adv[0], w, stride, &role[0], whole/lanes, q, sums)
		grad, logprobs, old, adv, role = grad[whole:], logprobs[whole:], old[whole:], adv[whole:], role[whole:]
	}
	policyLossPortable(kernel, grad, logprobs, old, adv, weights, role, q, sums)
}

func (isa ISA) logRatios(a, b []float32, role []Role, sums *logRatioSums) {
	if whole := len(role) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(a[:whole])
		raceReadFloats(b[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		isa.logRatiosAsm(&a[0], &b[0], &role[0], whole/lanes, sums)
		a, b, role = a[whole:], b[whole:], role[whole:]
	}
	logRatiosPortable(a, b, role, sums)
}

func (isa ISA) ratios(dst, a, b []float32, role []Role, q *ratioConsts, sum *laneSum) {
	if whole := len(role) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(a[:whole])
		raceReadFloats(b[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		raceWriteFloats(dst[:whole])
		isa.ratiosAsm(&dst[0], &a[0], &b[0], &role[0], whole/lanes, q, sum)
		dst, a, b, role = dst[whole:], a[whole:], b[whole:], role[whole:]
	}
	ratiosPortable(dst, a, b, role, q, sum)
}

func (isa ISA) kl(grad, logprobs, ref []float32, role []Role, q *klConsts, sum *laneSum) {
	if whole := len(role) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(logprobs[:whole])
		raceReadFloats(ref[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		raceWriteFloats(grad[:whole])
		isa.klAsm(&grad[0], &logprobs[0], &ref[0], &role[0], whole/lanes, q, sum)
		grad, logprobs, ref, role = grad[whole:], logprobs[whole:], ref[whole:], role[whole:]
	}
	klPortable(grad, logprobs, ref, role, q, sum)
}

func (isa ISA) valueLoss(grad, values, old, returns []float32, role []Role, q *valueConsts, sums *valueSums) {
	if whole := len(role) &^ (lanes - 1); isa != Portable && whole > 0 {
		for _, x := range [...][]float32{values, old, returns} {
			raceReadFloats(x[:whole])
		}
		raceRead(unsafe.Pointer(&role[0]), whole)
		raceWriteFloats(grad[:whole])
		isa.valueLossAsm(&grad[0], &values[0], &old[0], &returns[0], &role[0], whole/lanes, q, sums)
		grad, values, old, returns, role = grad[whole:], values[whole:], old[whole:], returns[whole:], role[whole:]
	}
	valueLossPortable(grad, values, old, returns, role, q, sums)
}
