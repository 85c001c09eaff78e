//go:build (amd64 || arm64) && !noasm && !purego

package reweight

import "unsafe"

// What stands between the kernels and their assembly, whatever the CPU: pieces
// of rows and arrays become pointers and numbers of chunks. The assembly takes
// whole chunks of 16. What is left goes through the portable twin, whose bits are
// the same: element i of the rest is in lane i, as it would be after whole chunks.
// The methods that end in Asm are in the CPU's own file.

// chunks hands elements i to n of the row to assembly: a pointer, a type (0
// float32, 1 bfloat16, 2 float16), the number of whole chunks of 16, and what
// is left in *tail, as float32 padded with -Inf; nil if nothing is.
func (l Logits) chunks(i, n int, tail *[lanes]float32) (x unsafe.Pointer, typ, chunks int, rest *[lanes]float32) {
	whole := (n - i) / lanes
	if (n-i)%lanes != 0 {
		load16(tail, l, i+whole*lanes, n)
		rest = tail
	}
	size := 2
	switch {
	case l.F32 != nil:
		x, size = unsafe.Pointer(&l.F32[i]), 4
	case l.BF16 != nil:
		x, typ = unsafe.Pointer(&l.BF16[i]), 1
	default:
		x, typ = unsafe.Pointer(&l.F16[i]), 2
	}
	raceRead(x, whole*lanes*size)
	return x, typ, whole, rest
}

func (p ISA) blockMax(row Logits, i, n int) float32 {
	if p == Portable {
		return blockMaxPortable(row, i, n)
	}
	var tail [lanes]float32
	x, typ, chunks, rest := row.chunks(i, n, &tail)
	return p.blockMaxAsm(x, typ, chunks, rest)
}

func (p ISA) rowBlocks(row Logits, i, n int, st *rowState, entropy bool) int {
	if p == Portable {
		return rowBlocksPortable(row, i, n, st, entropy)
	}
	var tail [lanes]float32
	x, typ, chunks, rest := row.chunks(i, n, &tail)
	stop := p.rowBlocksAsm(x, typ, chunks, rest, st, entropy)
	if stop < 0 {
		return n
	}
	return i + stop*lanes
}

func (p ISA) rowGradient(dst, row Logits, q *gradConsts) {
	n := row.size()
	whole := n &^ (lanes - 1)
	if p == Portable || whole == 0 {
		rowGradientPortable(dst, row, q)
		return
	}
	var d, x unsafe.Pointer
	size, typ := 4, 0
	if row.F32 != nil {
		d, x = unsafe.Pointer(&dst.F32[0]), unsafe.Pointer(&row.F32[0])
	} else {
		d, x, typ, size = unsafe.Pointer(&dst.BF16[0]), unsafe.Pointer(&row.BF16[0]), 1, 2
	}
	raceRead(x, whole*size)
	raceWrite(d, whole*size)
	p.rowGradientAsm(d, x, typ, whole/lanes, q)
	if whole < n {
		rowGradientPortable(dst.from(whole), row.from(whole), q)
	}
}

// from returns the elements from i on.
func (l Logits) from(i int) Logits {
	if l.F32 != nil {
		return Logits{F32: l.F32[i:]}
	}
	return Logits{BF16: l.BF16[i:]}
}

func (p ISA) maskedMoments(x []float32, role []uint8, roles uint8, shift float64, m *momentSums) {
	if whole := len(x) &^ (lanes - 1); p != Portable && whole > 0 {
		raceReadFloats(x[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		p.maskedMomentsAsm(&x[0], &role[0], whole/lanes, int(roles), shift, m)
		x, role = x[whole:], role[whole:]
	}
	maskedMomentsPortable(x, role, roles, shift, m)
}

func (p ISA) actFocusWeights(dst, signal []float32, role []uint8, q *actFocusConsts) {
	if whole := len(dst) &^ (lanes - 1); p != Portable && whole > 0 {
		raceReadFloats(signal[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		raceWriteFloats(dst[:whole])
		p.actFocusWeightsAsm(&dst[0], &signal[0], &role[0], whole/lanes, q)
		dst, signal, role = dst[whole:], signal[whole:], role[whole:]
	}
	actFocusWeightsPortable(dst, signal, role, q)
}

func (p ISA) spanSums(sums []float64, x []float32, offsets []int32) {
	if p == Portable || len(sums) == 0 || len(x) == 0 {
		spanSumsPortable(sums, x, offsets)
		return
	}
	raceReadFloats(x[offsets[0]:offsets[len(sums)]])
	raceWrite(unsafe.Pointer(&sums[0]), 8*len(sums))
	p.spanSumsAsm(&sums[0], &x[0], &offsets[0], len(sums))
}

func (p ISA) minMax(lo, hi, x []float32, offsets []int32) {
	if p == Portable || len(lo) == 0 || len(x) == 0 {
		minMaxPortable(lo, hi, x, offsets)
		return
	}
	raceReadFloats(x[offsets[0]:offsets[len(lo)]])
	raceWriteFloats(lo)
	raceWriteFloats(hi)
	p.minMaxAsm(&lo[0], &hi[0], &x[0], &offsets[0], len(lo))
}

func (p ISA) expScale(dst, x []float32, lo, k float32, sum *laneSum) {
	if whole := len(x) &^ (lanes - 1); p != Portable && whole > 0 {
		raceReadFloats(x[:whole])
		raceWriteFloats(dst[:whole])
		p.expScaleAsm(&dst[0], &x[0], whole/lanes, lo, k, sum)
		dst, x = dst[whole:], x[whole:]
	}
	expScalePortable(dst, x, lo, k, sum)
}

func (p ISA) scale(dst []float32, f float32) {
	if whole := len(dst) &^ (lanes - 1); p != Portable && whole > 0 {
		raceWriteFloats(dst[:whole])
		p.scaleAsm(&dst[0], whole/lanes, f)
		dst = dst[whole:]
	}
	scalePortable(dst, f)
}

func (p ISA) multiply(dst, a, b []float32) {
	if whole := len(dst) &^ (lanes - 1); p != Portable && whole > 0 {
		raceReadFloats(a[:whole])
		raceReadFloats(b[:whole])
		raceWriteFloats(dst[:whole])
		p.multiplyAsm(&dst[0], &a[0], &b[0], whole/lanes)
		dst, a, b = dst[whole:], a[whole:], b[whole:]
	}
	multiplyPortable(dst, a, b)
}

// ones are the weights of a chunk where there are none.
var ones = [lanes]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

func (p ISA) surrogate(grad, logprobs, old, adv, weights []float32, role []uint8, q *surrogateConsts, sums *surrogateSums) {
	if whole := len(role) &^ (lanes - 1); p != Portable && whole > 0 {
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
		p.surrogateAsm(&grad[0], &logprobs[0], &old[0], &adv[0], w, stride, &role[0], whole/lanes, q, sums)
		grad, logprobs, old, adv, role = grad[whole:], logprobs[whole:], old[whole:], adv[whole:], role[whole:]
	}
	surrogatePortable(grad, logprobs, old, adv, weights, role, q, sums)
}
