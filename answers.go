package reweight

import (
	"fmt"
	"math"
	"sync"

	"github.com/seed621a2839/reweight/internal/problem"
)

// The first use of an instruction set in a process compares its kernels with plain Go: a wrong one is no matter of this
// library's code, which is tested, but of a CPU or of an emulator.

// trusted has what the comparison of each instruction set found.
var trusted [len(isaNames)]struct {
	once  sync.Once
	wrong error
}

// trust returns an error if the kernels of the instruction set compute other bits than plain Go.
func (isa ISA) trust() error {
	t := &trusted[isa]
	t.once.Do(func() {
		var want, got answers
		want.of(Portable)
		got.of(isa)
		t.wrong = got.differ(&want, isa)
	})
	return t.wrong
}

// answers are results of all kernels on arrays that are hard, and where those of each kernel end.
type answers struct {
	x    [4096]float64
	n    int
	ends [len(answerNames)]int
	done int
}

var answerNames = [...]string{"rowBlocks", "blockMax", "rowGradient", "maskedMoments", "actFocusWeights", "spanSums",
	"minMax", "expScale", "scale", "multiply", "surrogate"}

func (a *answers) add(x ...float64) { a.n += copy(a.x[a.n:], x) }

func (a *answers) add32(x []float32) {
	for _, v := range x {
		a.x[a.n] = float64(v)
		a.n++
	}
}

// end ends the results of a kernel.
func (a *answers) end() {
	a.ends[a.done] = a.n
	a.done++
}

// differ says where the bits are not those of want. Every NaN counts as one.
func (a *answers) differ(want *answers, isa ISA) error {
	begin := 0
	for i, end := range want.ends {
		for j := begin; j < end; j++ {
			if x, w := a.x[j], want.x[j]; math.Float64bits(x) != math.Float64bits(w) && (x == x || w == w) {
				return badInput("ISA", problem.ISAWrong, isa,
					fmt.Sprintf("%s, result %d is %x, want %x", answerNames[i],
						j-begin, x, w))
			}
		}
		begin = end
	}
	return nil
}

const hard = 2*groupSize + 3*lanes + 5 // elements: groups, chunks and a tail

// hardRow fills a row with elements that the exponential takes in all of its ways.
func hardRow(x *[hard]float32) {
	state := uint32(1)
	for i := range x {
		state = state*1664525 + 1013904223 // a linear congruential generator
		x[i] = float32(int32(state))/(1<<29) - 1
		if i%29 == 3 {
			x[i] = [...]float32{float32(math.Inf(-1)), -90, -87.2, 6, 0}[i/29%5]
		}
	}
}

// of computes everything by the instruction set.
func (a *answers) of(isa ISA) {
	var row [hard]float32
	hardRow(&row)
	a.ofRows(isa, &row)
	a.ofTokens(isa, &row)
}

func (a *answers) ofRows(isa ISA, x *[hard]float32) {
	var upper, dst16 [hard]BF16
	var half [hard]F16
	var dst [hard]float32
	for i, v := range x {
		upper[i] = ToBF16(v)
		half[i] = F16(uint32(i)*2654435761>>20&0xb7ff | 0x400) // any sign and fraction, magnitudes below 1
	}
	rows := [...]Logits{{Vocab: hard, F32: x[:]}, {Vocab: hard, BF16: upper[:]}, {Vocab: hard, F16: half[:]}}
	for _, r := range rows {
		for want := wantSum; want <= wantSquares; want++ {
			for _, tau := range [...]float64{1, 0.7} {
				st := rowState{k: log2E32, alarm: alarm}
				if tau != 1 {
					st.k, st.kLo = splitScale(tau)
				}
				st.setReference(8)
				for j := range st.s { // a sum that is added to 0 hides how it is added
					st.s[j], st.t[j], st.q[j] = 1, 2, 3
				}
				a.add(float64(isa.rowBlocks(r, 0, hard, &st, want)))
				a.add(tree(&st.s))
				if want >= wantEntropy {
					a.add(tree(&st.t))
				}
				if want == wantSquares {
					a.add(tree(&st.q))
				}
			}
		}
	}
	a.end()
	for _, r := range rows {
		a.add(float64(isa.blockMax(r, 7, hard)))
	}
	a.end()
	for _, tau := range [...]float64{1, 0.7} {
		q := gradConsts{k: log2E32, c: 3, a: -0.25, b: 0.75}
		if tau != 1 {
			q.k, q.kLo = splitScale(tau)
		}
		isa.rowGradient(Logits{Vocab: hard, F32: dst[:]}, rows[0], &q)
		isa.rowGradient(Logits{Vocab: hard, BF16: dst16[:]}, rows[1], &q)
		a.add32(dst[:])
		for _, v := range dst16 {
			a.add(float64(v.Float32()))
		}
	}
	a.end()
}

func (a *answers) ofTokens(isa ISA, x *[hard]float32) {
	var role [hard]Role
	var y, dst [hard]float32
	for i, v := range x {
		role[i], y[i] = Role(i*i%7%3), x[(i*5+1)%hard]/8
		if v < -8 { // what is special is for rows
			x[i] = float32(i) / 512
		}
		if y[i] < -1 {
			y[i] = -1
		}
	}
	x[0], x[1], x[2] = 0, float32(math.Copysign(0, -1)), 1e-42
	var m momentSums
	isa.maskedMoments(x[:], role[:], Responses, 0.125, &m)
	a.add(float64(m.count))
	a.add(m.sum[:]...)
	a.add(m.squares[:]...)
	a.end()
	isa.actFocusWeights(dst[:], x[:], role[:], &actFocusConsts{0.25, 1e-9, 2.5, 0.1, 0.5})
	a.add32(dst[:])
	a.end()
	offsets := [...]int32{0, 1, 9, 9, 26, 58, 190, hard}
	var sums [len(offsets) - 1]float64
	isa.spanSums(sums[:], x[:], offsets[:])
	a.add(sums[:]...)
	a.end()
	var lo, hi [len(offsets) - 1]float32
	nan := *x
	nan[30] = float32(math.NaN())
	isa.minMax(lo[:], hi[:], nan[:], offsets[:])
	a.add32(lo[:])
	a.add32(hi[:])
	a.end()
	var sum laneSum
	isa.expScale(dst[:], x[:], -0.5, -3, &sum)
	a.add32(dst[:])
	a.add(sum.sum())
	a.end()
	isa.scale(dst[:], 0.3)
	a.add32(dst[:])
	a.end()
	isa.multiply(dst[:], x[:], y[:])
	a.add32(dst[:])
	a.end()
	var s surrogateSums
	var old [hard]float32
	for i, v := range y {
		old[i] = x[i] - v
	}
	old[5] += 30 // beyond the bounds of the ratio
	isa.surrogate(dst[:], x[:], old[:], y[:], nil, role[:], &surrogateConsts{0.8, 1.28, 3, 0.5}, &s)
	a.add32(dst[:])
	a.add(s.loss.sum(), s.logRatio.sum(), float64(s.tokens), float64(s.clipped))
	a.end()
}
