//go:build (amd64 || arm64) && !noasm && !purego

package reweight

import "unsafe"

// What stands between the kernels and their assembly, whatever the CPU: pieces
// of rows and arrays become pointers and numbers of chunks. The assembly takes
// whole chunks of 16. What is left goes through the portable twin, whose bits are
// the same: element i of the rest is in lane i, as it would be after whole chunks.
// The methods that end in Asm are in the CPU's own file.

// chunks prepares elements i to n of the row for assembly. It returns a pointer to
// them, the number of their DType, the number of whole chunks of 16, and tail,
// which holds what is left as float32, padded with -Inf; nil if nothing is left.
func (l Logits) chunks(i, n int, tail *[lanes]float32) (x unsafe.Pointer, dtype, chunks int, rest *[lanes]float32) {
	whole := (n - i) / lanes
	if (n-i)%lanes != 0 {
		load16(tail, l, i+whole*lanes, n)
		rest = tail
	}
	format := l.DType()
	switch format {
	case DTypeF32:
		x = unsafe.Pointer(&l.F32[i])
	case DTypeBF16:
		x = unsafe.Pointer(&l.BF16[i])
	default:
		x = unsafe.Pointer(&l.F16[i])
	}
	raceRead(x, whole*lanes*format.Size())
	return x, int(format), whole, rest
}

func (isa ISA) blockMax(row Logits, i, n int) float32 {
	if isa == Portable {
		return blockMaxPortable(row, i, n)
	}
	var tail [lanes]float32
	x, dtype, chunks, rest := row.chunks(i, n, &tail)
	return isa.blockMaxAsm(x, dtype, chunks, rest)
}

func (isa ISA) rowBlocks(row Logits, i, n int, st *rowState, want rowWant) int {
	if isa == Portable {
		return rowBlocksPortable(row, i, n, st, want)
	}
	var tail [lanes]float32
	x, dtype, chunks, rest := row.chunks(i, n, &tail)
	stop := isa.rowBlocksAsm(x, dtype, chunks, rest, st, want)
	if stop < 0 {
		return n
	}
	return i + stop*lanes
}

func (isa ISA) rowGradient(dst, row Logits, q *gradConsts) {
	n := row.size()
	whole := n &^ (lanes - 1)
	if isa == Portable || whole == 0 {
		rowGradientPortable(dst, row, q)
		return
	}
	var d, x unsafe.Pointer
	format := row.DType()
	if format == DTypeF32 {
		d, x = unsafe.Pointer(&dst.F32[0]), unsafe.Pointer(&row.F32[0])
	} else {
		d, x = unsafe.Pointer(&dst.BF16[0]), unsafe.Pointer(&row.BF16[0])
	}
	raceRead(x, whole*format.Size())
	raceWrite(d, whole*format.Size())
	isa.rowGradientAsm(d, x, int(format), whole/lanes, q)
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

func (isa ISA) maskedMoments(x []float32, role []Role, roles RoleSet, shift float64, m *momentSums) {
	if whole := len(x) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(x[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		isa.maskedMomentsAsm(&x[0], &role[0], whole/lanes, int(roles), shift, m)
		x, role = x[whole:], role[whole:]
	}
	maskedMomentsPortable(x, role, roles, shift, m)
}

func (isa ISA) actFocusWeights(dst, signal []float32, role []Role, q *actFocusConsts) {
	if whole := len(dst) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(signal[:whole])
		raceRead(unsafe.Pointer(&role[0]), whole)
		raceWriteFloats(dst[:whole])
		isa.actFocusWeightsAsm(&dst[0], &signal[0], &role[0], whole/lanes, q)
		dst, signal, role = dst[whole:], signal[whole:], role[whole:]
	}
	actFocusWeightsPortable(dst, signal, role, q)
}

func (isa ISA) spanSums(sums []float64, x []float32, offsets []int32) {
	if isa == Portable || len(sums) == 0 || len(x) == 0 {
		spanSumsPortable(sums, x, offsets)
		return
	}
	raceReadFloats(x[offsets[0]:offsets[len(sums)]])
	raceWrite(unsafe.Pointer(&sums[0]), 8*len(sums))
	isa.spanSumsAsm(&sums[0], &x[0], &offsets[0], len(sums))
}

func (isa ISA) minMax(lo, hi, x []float32, offsets []int32) {
	if isa == Portable || len(lo) == 0 || len(x) == 0 {
		minMaxPortable(lo, hi, x, offsets)
		return
	}
	raceReadFloats(x[offsets[0]:offsets[len(lo)]])
	raceWriteFloats(lo)
	raceWriteFloats(hi)
	isa.minMaxAsm(&lo[0], &hi[0], &x[0], &offsets[0], len(lo))
}

func (isa ISA) expScale(dst, x []float32, lo, k float32, sum *laneSum) {
	if whole := len(x) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(x[:whole])
		raceWriteFloats(dst[:whole])
		isa.expScaleAsm(&dst[0], &x[0], whole/lanes, lo, k, sum)
		dst, x = dst[whole:], x[whole:]
	}
	expScalePortable(dst, x, lo, k, sum)
}

func (isa ISA) scale(dst []float32, f float32) {
	if whole := len(dst) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceWriteFloats(dst[:whole])
		isa.scaleAsm(&dst[0], whole/lanes, f)
		dst = dst[whole:]
	}
	scalePortable(dst, f)
}

func (isa ISA) multiply(dst, a, b []float32) {
	if whole := len(dst) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceReadFloats(a[:whole])
		raceReadFloats(b[:whole])
		raceWriteFloats(dst[:whole])
		isa.multiplyAsm(&dst[0], &a[0], &b[0], whole/lanes)
		dst, a, b = dst[whole:], a[whole:], b[whole:]
	}
	multiplyPortable(dst, a, b)
}

// ones are the weights of a chunk where there are none.
var ones = [lanes]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

func (isa ISA) surrogate(grad, logprobs, old, adv, weights []float32, role []Role, q *surrogateConsts, sums *surrogateSums) {
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
		isa.surrogateAsm(&grad[0], &logprobs[0], &old[0], &adv[0], w, stride, &role[0], whole/lanes, q, sums)
		grad, logprobs, old, adv, role = grad[whole:], logprobs[whole:], old[whole:], adv[whole:], role[whole:]
	}
	surrogatePortable(grad, logprobs, old, adv, weights, role, q, sums)
}
