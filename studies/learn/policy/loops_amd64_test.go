//go:build !noasm && !purego

package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
)

// edges are values at which something changes: zeros, infinities, NaN, subnormal numbers, and those next to
// the limits of sigmoid and tanh, where a power of 2 is the largest or the least.
var edges = func() (all []float32) {
	inf := float32(math.Inf(1))
	for _, x := range []float32{0, 1e-40, 1, 1e-3, 0.5, 10, 87, 88.7, 1e30, math.MaxFloat32, inf, float32(math.NaN())} {
		for _, x := range []float32{x, math.Nextafter32(x, 0), math.Nextafter32(x, inf)} {
			all = append(all, x, -x)
		}
	}
	return all
}()

var draws = map[string]func(r *rand.Rand) float32{
	"usual": func(r *rand.Rand) float32 { return float32(r.NormFloat64()) },
	"wide":  func(r *rand.Rand) float32 { return float32(40 * r.NormFloat64()) },
	"bits":  func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) },
	"edges": func(r *rand.Rand) float32 { return edges[r.IntN(len(edges))] },
	"seldom": func(r *rand.Rand) float32 {
		if r.IntN(50) == 0 {
			return edges[r.IntN(len(edges))]
		}
		return float32(3 * r.NormFloat64())
	},
}

// arena has the numbers of a call, so that a number written in a wrong place is seen. Two of the same
// seed have the same.
type arena struct {
	*rand.Rand
	all  []float32
	used int
}

func newArena(seed uint64, draw func(r *rand.Rand) float32) *arena {
	a := &arena{Rand: rand.New(rand.NewPCG(seed, 1)), all: make([]float32, 8<<10)}
	for i := range a.all {
		a.all[i] = draw(a.Rand)
	}
	return a
}

// floats returns the next n numbers, which begin at any place of a vector.
func (a *arena) floats(n int) []float32 {
	from := a.used + a.IntN(2*lanes)
	a.used = from + n
	return a.all[from:a.used:a.used]
}

// Every loop in assembly has the bits of the portable one, at any length and alignment, and writes
// nothing else.
func TestAVX2(t *testing.T) {
	if !slices.Contains(reweight.AvailableISAs(), reweight.AVX2) {
		t.Skip("no AVX2")
	}
	for loop, call := range map[string]func(of loopSet, a *arena){
		"multiplyRow": func(of loopSet, a *arena) {
			columns, inner, step := a.IntN(140), a.IntN(40), a.IntN(4)
			of.multiplyRow(a.floats(columns), a.floats(inner*step+1), a.floats(inner*columns), inner, step)
		},
		"cell": func(of loopSet, a *arena) {
			h := a.IntN(70)
			next := a.floats(h)
			previous := next
			if a.IntN(2) == 0 {
				previous = a.floats(h)
			}
			of.cell(next, a.floats(h), a.floats(3*h), a.floats(3*h), previous)
		},
		"backwardCell": func(of loopSet, a *arena) {
			h := a.IntN(70)
			of.backwardCell(&cellGradient{
				carried: a.floats(h), outer: a.floats(h),
				gates: a.floats(3 * h), candidate: a.floats(h), previous: a.floats(h),
				gradient: a.floats(3 * h), input: a.floats(3 * h), bias: a.floats(3 * h),
			})
		},
	} {
		for name, draw := range draws {
			t.Run(loop+"/"+name, func(t *testing.T) {
				for seed := range uint64(400) {
					got, want := newArena(seed, draw), newArena(seed, draw)
					call(avx2, got)
					call(portable, want)
					for i, w := range want.all {
						if g := got.all[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
							t.Fatalf("seed %d: number %d of %d is %v (%x), want %v (%x)", seed, i, want.used,
								g, math.Float32bits(g), w, math.Float32bits(w))
						}
					}
				}
			})
		}
	}
}

// What is true of the loops of this CPU is true of the portable ones.
func TestPortable(t *testing.T) {
	defer func(before loopSet) { loops = before }(loops)
	loops = portable
	t.Run("Golden", TestGolden)
	t.Run("Reference", TestReference)
	t.Run("ForwardIsStep", TestForwardIsStep)
	t.Run("Multiply", TestMultiply)
}

func BenchmarkTrain(b *testing.B) {
	for name, set := range map[string]loopSet{"portable": portable, "best": loops} {
		b.Run(name, func(b *testing.B) {
			defer func(before loopSet) { loops = before }(loops)
			loops = set
			for b.Loop() {
				train(New(84, 32, 1), 20)
			}
		})
	}
}
