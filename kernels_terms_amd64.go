//go:build !noasm && !purego

package reweight

// logRatiosAVX2 equals logRatiosPortable on whole chunks. Here and below there is at
// least one.
//
//go:noescape
func logRatiosAVX2(a, b *float32, role *Role, chunks int, sums *logRatioSums)

// logRatiosAVX512 equals logRatiosPortable on whole chunks.
//
//go:noescape
func logRatiosAVX512(a, b *float32, role *Role, chunks int, sums *logRatioSums)

// ratiosAVX2 equals ratiosPortable on whole chunks. The groups of sums, here and below,
// are empty at the start.
//
//go:noescape
func ratiosAVX2(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum)

// ratiosAVX512 equals ratiosPortable on whole chunks.
//
//go:noescape
func ratiosAVX512(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum)

// klAVX2 equals klPortable on whole chunks.
//
//go:noescape
func klAVX2(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum)

// klAVX512 equals klPortable on whole chunks.
//
//go:noescape
func klAVX512(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum)

// valueLossAVX2 equals valueLossPortable on whole chunks.
//
//go:noescape
func valueLossAVX2(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums)

// valueLossAVX512 equals valueLossPortable on whole chunks.
//
//go:noescape
func valueLossAVX512(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums)

func (isa ISA) logRatiosAsm(a, b *float32, role *Role, chunks int, sums *logRatioSums) {
	if isa == AVX512 {
		logRatiosAVX512(a, b, role, chunks, sums)
	} else {
		logRatiosAVX2(a, b, role, chunks, sums)
	}
}

func (isa ISA) ratiosAsm(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum) {
	if isa == AVX512 {
		ratiosAVX512(dst, a, b, role, chunks, q, sum)
	} else {
		ratiosAVX2(dst, a, b, role, chunks, q, sum)
	}
}

func (isa ISA) klAsm(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum) {
	if isa == AVX512 {
		klAVX512(grad, logprobs, ref, role, chunks, q, sum)
	} else {
		klAVX2(grad, logprobs, ref, role, chunks, q, sum)
	}
}

func (isa ISA) valueLossAsm(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums) {
	if isa == AVX512 {
		valueLossAVX512(grad, values, old, returns, role, chunks, q, sums)
	} else {
		valueLossAVX2(grad, values, old, returns, role, chunks, q, sums)
	}
}
