//go:build !noasm && !purego

package policy

import (
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
)

// avx2 has the loops in assembly. The environment variable REWEIGHT_ISA=portable leaves them out.
var avx2 = loopSet{multiplyRowVector, cellVector, backwardCellVector}

func init() {
	if slices.Contains(reweight.AvailableISAs(), reweight.AVX2) {
		loops = avx2
	}
}

const lanes = 8

// constants has the constants of the assembly, each in all lanes, in the order of their names there.
var constants = func() (all [16][lanes]float32) {
	for i, x := range [len(all)]float32{
		log2e, round, ln2Hi, ln2Lo, exp2, exp3, exp4, exp5, exp6, 1, 2, 87, -87, 10,
		math.Float32frombits(127), math.Float32frombits(1 << 31), // of the exponent; the sign
	} {
		all[i] = [lanes]float32{x, x, x, x, x, x, x, x}
	}
	return all
}()

// masks + 32 - n are the masks of n columns of 32.
var masks = func() (all [64]int32) {
	for i := range 32 {
		all[i] = -1
	}
	return all
}()

// multiplyRowAVX2 is multiplyRow for inner and columns of at least 1.
//
//go:noescape
func multiplyRowAVX2(c *float32, columns int, a *float32, step int, b *float32, inner int)

func multiplyRowVector(c, a, b []float32, inner, step int) {
	if inner > 0 && len(c) > 0 {
		_, _ = a[(inner-1)*step], b[inner*len(c)-1]
		multiplyRowAVX2(&c[0], len(c), &a[0], step, &b[0], inner)
	}
}

// cellAVX2 is cell for the first vectors of units of a state of the width h.
//
//go:noescape
func cellAVX2(next, candidate, gates, input, previous *float32, h, vectors int)

func cellVector(next, candidate, gates, input, previous []float32) {
	h := len(next)
	vectors := h / lanes
	if vectors > 0 {
		_, _, _, _ = candidate[h-1], gates[3*h-1], input[3*h-1], previous[h-1]
		cellAVX2(&next[0], &candidate[0], &gates[0], &input[0], &previous[0], h, vectors)
	}
	if h%lanes > 0 {
		cellFrom(vectors*lanes, next, candidate, gates, input, previous)
	}
}

// backwardCellAVX2 is backwardCell for the first vectors of units.
//
//go:noescape
func backwardCellAVX2(of *cellGradient, vectors int)

func backwardCellVector(g *cellGradient) {
	h := len(g.carried)
	vectors := h / lanes
	if vectors > 0 {
		_, _, _, _ = g.outer[h-1], g.gates[3*h-1], g.candidate[h-1], g.previous[h-1]
		_, _, _ = g.gradient[3*h-1], g.input[3*h-1], g.bias[3*h-1]
		backwardCellAVX2(g, vectors)
	}
	if h%lanes > 0 {
		backwardCellFrom(vectors*lanes, g)
	}
}
