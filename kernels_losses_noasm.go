//go:build !(amd64 || arm64) || noasm || purego

package reweight

func (isa ISA) policyLoss(kernel lossKernel, grad, logprobs, old, adv, weights []float32, role []Role, q *lossConsts, sums *surrogateSums) {
	policyLossPortable(kernel, grad, logprobs, old, adv, weights, role, q, sums)
}

func (isa ISA) logRatios(a, b []float32, role []Role, sums *logRatioSums) {
	logRatiosPortable(a, b, role, sums)
}

func (isa ISA) ratios(dst, a, b []float32, role []Role, q *ratioConsts, sum *laneSum) {
	ratiosPortable(dst, a, b, role, q, sum)
}

func (isa ISA) kl(grad, logprobs, ref []float32, role []Role, q *klConsts, sum *laneSum) {
	klPortable(grad, logprobs, ref, role, q, sum)
}

func (isa ISA) valueLoss(grad, values, old, returns []float32, role []Role, q *valueConsts, sums *valueSums) {
	valueLossPortable(grad, values, old, returns, role, q, sums)
}
