//go:build !noasm && !purego

package reweight

// logRatiosNEON equals logRatiosPortable on 16*chunks tokens.
//
//go:noescape
func logRatiosNEON(a, b *float32, role *Role, chunks int, sums *logRatioSums)

// ratiosNEON equals ratiosPortable on 16*chunks tokens, from an empty group of sum
// on. dst may be a or b. No limit is NaN.
//
//go:noescape
func ratiosNEON(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum)

// klNEON equals klPortable on 16*chunks tokens, from an empty group of sum on.
//
//go:noescape
func klNEON(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum)

// valueLossNEON equals valueLossPortable on 16*chunks tokens, from an empty group of
// sums on. grad may be any of the float inputs. The clip range is at least 0.
//
//go:noescape
func valueLossNEON(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums)

func (isa ISA) logRatiosAsm(a, b *float32, role *Role, chunks int, sums *logRatioSums) {
	logRatiosNEON(a, b, role, chunks, sums)
}

func (isa ISA) ratiosAsm(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum) {
	ratiosNEON(dst, a, b, role, chunks, q, sum)
}

func (isa ISA) klAsm(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum) {
	klNEON(grad, logprobs, ref, role, chunks, q, sum)
}

func (isa ISA) valueLossAsm(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums) {
	valueLossNEON(grad, values, old, returns, role, chunks, q, sums)
}
