//go:build (amd64 || arm64) && !noasm && !purego

package reweight

import "unsafe"

// What stands between the kernels and their assembly, whatever the CPU: pieces
// of rows and arrays become pointers and numbers of chunks. The assembly takes
// whole chunks of 16. What is left goes through the portable function, whose bits are
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
	x = l.pointer(i)
	raceRead(l.bytes(x, whole))
	return x, int(l.DType()), whole, rest
}

// pointer returns where element i is.
func (l Logits) pointer(i int) unsafe.Pointer {
	switch l.DType() {
	case DTypeBF16:
		return unsafe.Pointer(&l.BF16[i])
	case DTypeF16:
		return unsafe.Pointer(&l.F16[i])
	}
	return unsafe.Pointer(&l.F32[i])
}

// bytes returns the memory of so many chunks from x on.
func (l Logits) bytes(x unsafe.Pointer, chunks int) []byte {
	return unsafe.Slice((*byte)(x), chunks*lanes*l.DType().Size())
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
	d, x := dst.pointer(0), row.pointer(0)
	raceRead(row.bytes(x, whole/lanes))
	raceWrite(dst.bytes(d, whole/lanes))
	isa.rowGradientAsm(d, x, int(row.DType()), whole/lanes, q)
	rowGradientPortable(dst.slice(whole, n), row.slice(whole, n), q)
}

func (isa ISA) maskedMoments(x []float32, role []Role, roles RoleSet, shift float64, m *momentSums) {
	if whole := len(x) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceRead(x[:whole])
		raceRead(role[:whole])
		isa.maskedMomentsAsm(&x[0], &role[0], whole/lanes, int(roles), shift, m)
		x, role = x[whole:], role[whole:]
	}
	maskedMomentsPortable(x, role, roles, shift, m)
}

func (isa ISA) actFocusWeights(dst, signal []float32, role []Role, q *actFocusConsts) {
	if whole := len(dst) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceRead(signal[:whole])
		raceRead(role[:whole])
		raceWrite(dst[:whole])
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
	raceRead(x[offsets[0]:offsets[len(sums)]])
	raceWrite(sums)
	isa.spanSumsAsm(&sums[0], &x[0], &offsets[0], len(sums))
}

func (isa ISA) minMax(lo, hi, x []float32, offsets []int32) {
	if isa == Portable || len(lo) == 0 || len(x) == 0 {
		minMaxPortable(lo, hi, x, offsets)
		return
	}
	raceRead(x[offsets[0]:offsets[len(lo)]])
	raceWrite(lo)
	raceWrite(hi)
	isa.minMaxAsm(&lo[0], &hi[0], &x[0], &offsets[0], len(lo))
}

func (isa ISA) expScale(dst, x []float32, lo, k float32, sum *laneSum) {
	if whole := len(x) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceRead(x[:whole])
		raceWrite(dst[:whole])
		isa.expScaleAsm(&dst[0], &x[0], whole/lanes, lo, k, sum)
		dst, x = dst[whole:], x[whole:]
	}
	expScalePortable(dst, x, lo, k, sum)
}

func (isa ISA) scale(dst []float32, f float32) {
	if whole := len(dst) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceWrite(dst[:whole])
		isa.scaleAsm(&dst[0], whole/lanes, f)
		dst = dst[whole:]
	}
	scalePortable(dst, f)
}

func (isa ISA) multiply(dst, a, b []float32) {
	if whole := len(dst) &^ (lanes - 1); isa != Portable && whole > 0 {
		raceRead(a[:whole])
		raceRead(b[:whole])
		raceWrite(dst[:whole])
		isa.multiplyAsm(&dst[0], &a[0], &b[0], whole/lanes)
		dst, a, b = dst[whole:], a[whole:], b[whole:]
	}
	multiplyPortable(dst, a, b)
}

// ones are the weights of a chunk where there are none.
var ones = [lanes]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

func (isa ISA) surrogate(grad, logprobs, old, adv, weights []float32, role []Role, q *surrogateConsts,
	sums *surrogateSums) {
	if whole := len(role) &^ (lanes - 1); isa != Portable && whole > 0 {
		for _, x := range [...][]float32{logprobs, old, adv} {
			raceRead(x[:whole])
		}
		raceRead(role[:whole])
		raceWrite(grad[:whole])
		w, stride := &ones[0], 0
		if weights != nil {
			raceRead(weights[:whole])
			w, stride = &weights[0], 4*lanes
			weights = weights[whole:]
		}
		isa.surrogateAsm(&grad[0], &logprobs[0], &old[0], &adv[0], w, stride, &role[0], whole/lanes, q, sums)
		grad, logprobs, old, adv, role = grad[whole:], logprobs[whole:], old[whole:], adv[whole:], role[whole:]
	}
	surrogatePortable(grad, logprobs, old, adv, weights, role, q, sums)
}
