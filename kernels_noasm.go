//go:build !(amd64 || arm64) || noasm || purego

package reweight

// Where there is no assembly, every instruction set is the portable one.

func detect() []ISA { return []ISA{Portable} }

func (isa ISA) blockMax(row Logits, i, n int) float32 { return blockMaxPortable(row, i, n) }

func (isa ISA) rowBlocks(row Logits, i, n int, st *rowState, want rowWant) int {
	return rowBlocksPortable(row, i, n, st, want)
}

func (isa ISA) rowGradient(dst, row Logits, q *gradConsts) { rowGradientPortable(dst, row, q) }

func (isa ISA) maskedMoments(x []float32, role []Role, roles RoleSet, shift float64, m *momentSums) {
	maskedMomentsPortable(x, role, roles, shift, m)
}

func (isa ISA) actFocusWeights(dst, signal []float32, role []Role, q *actFocusConsts) {
	actFocusWeightsPortable(dst, signal, role, q)
}

func (isa ISA) spanSums(sums []float64, x []float32, offsets []int32) {
	spanSumsPortable(sums, x, offsets)
}

func (isa ISA) minMax(lo, hi, x []float32, offsets []int32) { minMaxPortable(lo, hi, x, offsets) }

func (isa ISA) expScale(dst, x []float32, lo, k float32, sum *laneSum) {
	expScalePortable(dst, x, lo, k, sum)
}

func (isa ISA) scale(dst []float32, f float32) { scalePortable(dst, f) }

func (isa ISA) multiply(dst, a, b []float32) { multiplyPortable(dst, a, b) }

func (isa ISA) surrogate(grad, logprobs, old, adv, weights []float32, role []Role, q *surrogateConsts,
	sums *surrogateSums) {
	surrogatePortable(grad, logprobs, old, adv, weights, role, q, sums)
}
