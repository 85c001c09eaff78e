//go:build !noasm && !purego

package reweight

// sequenceLossNEON equals policyLossPortable with lossSequence on 16*chunks tokens,
// from empty groups of sums on. weights advances by stride bytes a chunk: 64, or 0 for
// sixteen ones. grad may be any of the float inputs. An element of q.clips is 0 or 1.
//
//go:noescape
func sequenceLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// cispoLossNEON equals policyLossPortable with lossCISPO, like sequenceLossNEON. No
// limit is NaN.
//
//go:noescape
func cispoLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// sapoLossNEON equals policyLossPortable with lossSAPO, like sequenceLossNEON.
//
//go:noescape
func sapoLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

// dppoLossNEON equals policyLossPortable with lossDPPO, like sequenceLossNEON. No
// limit is NaN.
//
//go:noescape
func dppoLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)

func (isa ISA) policyLossAsm(kernel lossKernel, grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums) {
	switch kernel {
	case lossSequence:
		sequenceLossNEON(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
	case lossCISPO:
		cispoLossNEON(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
	case lossSAPO:
		sapoLossNEON(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
	case lossDPPO:
		dppoLossNEON(grad, logprobs, old, adv, weights, stride, role, chunks, q, sums)
	}
}
