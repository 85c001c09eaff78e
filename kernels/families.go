package kernels

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/raw"
)

// A Family is a kind of values for a workload's main input: what rows of logits
// look like, and what they could look like at worst. Each row is drawn anew; an
// array of tokens is one row.
type Family int

const (
	Random  Family = iota // normal, with mean 0 and standard deviation 3
	Peaked                // one element is 30; the others are normal, with mean -2 and standard deviation 2.5
	Flat                  // all elements are equal
	Offset                // as Random, plus 10,000
	Masked                // about half of the elements are -Inf, one at least is finite
	OneHot                // all elements but one are -Inf
	Special               // as Random, with a NaN, or a +Inf, or one of each
)

// Families lists every family.
var Families = []Family{Random, Peaked, Flat, Offset, Masked, OneHot, Special}

func (f Family) String() string {
	return [...]string{"random", "peaked", "flat", "offset", "masked", "one_hot", "special"}[f]
}

// fill sets x to a row of the family.
func (f Family) fill(x []float32, r *rand.Rand) {
	n, inf := len(x), float32(math.Inf(1))
	normal := func() float32 { return float32(3 * r.NormFloat64()) }
	flat := float32(1.25 + float64(r.IntN(64))/4)
	for i := range x {
		switch f {
		case Random, Special:
			x[i] = normal()
		case Peaked:
			x[i] = float32(-2 + float64(2.5*r.NormFloat64())) // not fused: the same input on every CPU
		case Flat:
			x[i] = flat
		case Offset:
			x[i] = 1e4 + normal()
		case Masked:
			if x[i] = normal(); r.IntN(2) == 0 {
				x[i] = -inf
			}
		case OneHot:
			x[i] = -inf
		}
	}
	at := r.IntN(n)
	switch f {
	case Peaked:
		x[at] = 30
	case Masked:
		x[at] = 1
	case OneHot:
		x[at] = 2
	case Special:
		nan := math.Float32frombits(0x7fc00000) // float32(math.NaN()) is another on some MIPS
		switch r.IntN(3) {
		case 0:
			x[at] = nan
		case 1:
			x[at] = inf
		default:
			x[at], x[r.IntN(n)] = inf, nan
		}
	}
}

// drawn is how many logits a workload draws at least. The rows after those repeat
// them in turn: drawing takes longer than the kernels do.
const drawn = 1 << 21

// logits returns rows of the family in the given format, their memory, and a
// function that returns the same values as float64: much memory, which only the
// reference reads.
func (s Spec) logits(r *rand.Rand) (l reweight.Logits, memory []byte, wide func() []float64) {
	l.Vocab = s.Vocab
	x := make([]float32, min(s.Rows, (drawn+s.Vocab-1)/s.Vocab)*s.Vocab)
	for row := range slices.Chunk(x, s.Vocab) {
		s.Family.fill(row, r)
	}
	switch s.DType {
	case reweight.DTypeF32:
		same := func(v float32) float32 { return v }
		l.F32, memory, wide = repeated(s, x, same, same)
	case reweight.DTypeBF16:
		l.BF16, memory, wide = repeated(s, x, reweight.ToBF16, reweight.BF16.Float32)
	default:
		l.F16, memory, wide = repeated(s, x, ToF16, reweight.F16.Float32)
	}
	return l, memory, wide
}

// repeated returns what logits does: rows of logits in another format, which are the rows x
// again and again.
func repeated[E any](s Spec, x []float32, from func(float32) E,
	to func(E) float32) (rows []E, memory []byte, wide func() []float64) {
	rows = array[E](s, s.Rows*s.Vocab)
	for i, v := range x {
		rows[i] = from(v)
	}
	for n := len(x); n < len(rows); n *= 2 {
		copy(rows[n:], rows[:n])
	}
	return rows, raw.Bytes(rows), widened(rows, to)
}

// widened returns a function that returns x as float64. It converts x when it is
// first called, and the kernels do not write to x.
func widened[E any](x []E, float func(E) float32) func() []float64 {
	var wide []float64
	return func() []float64 {
		if wide == nil {
			wide = make([]float64, len(x))
			for i, v := range x {
				wide[i] = float64(float(v))
			}
		}
		return wide
	}
}

// ToF16 truncates f to half precision, which is good enough for test data.
func ToF16(f float32) reweight.F16 {
	b := math.Float32bits(f)
	sign, exp, frac := uint16(b>>16&0x8000), int(b>>23&0xff)-112, uint16(b>>13&0x3ff)
	switch {
	case f != f:
		return reweight.F16(sign | 0x7e00)
	case exp >= 31:
		return reweight.F16(sign | 0x7c00)
	case exp <= 0:
		return reweight.F16(sign)
	}
	return reweight.F16(sign | uint16(exp)<<10 | frac)
}

func (s Spec) rand() *rand.Rand { return rand.New(rand.NewPCG(s.Seed, uint64(s.Family))) }

// roles returns a role for each token. As in real rollouts, some are masked and few
// are actions.
func (s Spec) roles(r *rand.Rand) []reweight.Role {
	n := s.Rows
	role := array[reweight.Role](s, n)
	for i := range role {
		switch d := r.IntN(20); {
		case d == 0:
			role[i] = reweight.RoleAction
		case d < 12:
			role[i] = reweight.RoleReasoning
		}
	}
	role[r.IntN(n)] = reweight.RoleAction
	return role
}

// cut returns offsets that cut the tokens into ranges. For seed 0, the workload that
// is timed, each range has size tokens; for other seeds, 1 to about twice as many.
func (s Spec) cut(size int, r *rand.Rand) []int32 {
	off := []int32{0}
	for at := 0; at < s.Rows; {
		step := size
		if s.Seed != 0 {
			step = 1 + r.IntN(2*size-1)
		}
		at = min(s.Rows, at+step)
		off = append(off, int32(at))
	}
	placed := array[int32](s, len(off))
	copy(placed, off)
	return placed
}
