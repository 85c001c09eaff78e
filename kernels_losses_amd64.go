//go:build !noasm && !purego

package reweight

// sequenceLossAVX2 equals policyLossPortable with lossSequence on whole chunks. weights
// advances by stride bytes a chunk: 0 for a chunk of ones. The groups of sums are empty at
// the start. An element of q.clips is 0 or 1.
//
//go:noescape
func sequenceLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// sequenceLossAVX512 equals policyLossPortable with lossSequence, like sequenceLossAVX2.
//
//go:noescape
func sequenceLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// cispoLossAVX2 equals policyLossPortable with lossCISPO, like sequenceLossAVX2.
//
//go:noescape
func cispoLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// cispoLossAVX512 equals policyLossPortable with lossCISPO, like sequenceLossAVX2.
//
//go:noescape
func cispoLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// sapoLossAVX2 equals policyLossPortable with lossSAPO, like sequenceLossAVX2.
//
//go:noescape
func sapoLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// sapoLossAVX512 equals policyLossPortable with lossSAPO, like sequenceLossAVX2.
//
//go:noescape
func sapoLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// dppoLossAVX2 equals policyLossPortable with lossDPPO, like sequenceLossAVX2.
//
//go:noescape
func dppoLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// dppoLossAVX512 equals policyLossPortable with lossDPPO, like sequenceLossAVX2.
//
//go:noescape
func dppoLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

func (isa ISA) policyLossAsm(kernel lossKernel, grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums) {
	avx512 := isa == AVX512
	switch kernel {
	case lossSequence:
		if avx512 {
			sequenceLossAVX512(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		} else {
			sequenceLossAVX2(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		}
	case lossCISPO:
		if avx512 {
			cispoLossAVX512(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		} else {
			cispoLossAVX2(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		}
	case lossSAPO:
		if avx512 {
			sapoLossAVX512(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		} else {
			sapoLossAVX2(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		}
	case lossDPPO:
		if avx512 {
			dppoLossAVX512(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		} else {
			dppoLossAVX2(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
		}
	}
}
