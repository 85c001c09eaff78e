package ptx

import (
	"math"
	"math/big"
	"strings"
)

// A floatOp is an operation on numbers: what it gives exactly for finite operands (nil:
// nothing, as for 0/0), and in Go's float64 for the cases that are no matter of
// rounding, namely infinities, NaN and the sign of zero.
type floatOp struct {
	exact func(v []*big.Rat) *big.Rat
	go64  func(v []float64) float64
}

// check gives the check of the operation in a format with a number of sources.
func (op floatOp) check(t string, sources int) check {
	f := formats[t]
	s := make([]string, sources)
	for i := range s {
		s[i] = t
	}
	return check{d: t, s: s, want: func(v []uint64) uint64 {
		exact := make([]*big.Rat, len(v))
		float := make([]float64, len(v))
		finite := true
		for i, u := range v {
			finite = finite && f.isFinite(u)
			float[i] = decoded(t, u)
			if f.isFinite(u) {
				exact[i] = f.value(u)
			}
		}
		if finite {
			if r := op.exact(exact); r != nil && r.Sign() != 0 {
				return f.nearest(r)
			}
		}
		return encoded(t, op.go64(float)) // 0, infinite or NaN
	}}
}

// decoded is the number that bits of a format mean.
func decoded(t string, u uint64) float64 {
	switch f := formats[t]; {
	case t == "f64":
		return math.Float64frombits(u)
	case t == "f32":
		return float64(math.Float32frombits(uint32(u)))
	case f.isNaN(u):
		return math.NaN()
	case f.isInf(u):
		return math.Inf(1 - 2*int(truth(f.negative(u))))
	case u&^f.sign() == 0:
		return math.Copysign(0, 1-2*float64(truth(f.negative(u))))
	default:
		v, _ := f.value(u).Float64()
		return v
	}
}

// encoded gives the bits of the number of a format that is nearest to v.
func encoded(t string, v float64) uint64 {
	f := formats[t]
	switch {
	case v != v:
		return f.nan()
	case math.IsInf(v, 0):
		return f.infinity() | truth(v < 0)*f.sign()
	case v == 0:
		return truth(math.Signbit(v)) * f.sign()
	}
	return f.nearest(new(big.Rat).SetFloat64(v))
}

func floatChecks(checks map[string]check) {
	newRat := func() *big.Rat { return new(big.Rat) }
	quotient := func(x, y *big.Rat) *big.Rat {
		if y.Sign() == 0 {
			return nil
		}
		return newRat().Quo(x, y)
	}
	add := floatOp{func(v []*big.Rat) *big.Rat { return newRat().Add(v[0], v[1]) },
		func(v []float64) float64 { return v[0] + v[1] }}
	sub := floatOp{func(v []*big.Rat) *big.Rat { return newRat().Sub(v[0], v[1]) },
		func(v []float64) float64 { return v[0] - v[1] }}
	mul := floatOp{func(v []*big.Rat) *big.Rat { return newRat().Mul(v[0], v[1]) },
		func(v []float64) float64 { return v[0] * v[1] }}
	div := floatOp{func(v []*big.Rat) *big.Rat { return quotient(v[0], v[1]) },
		func(v []float64) float64 { return v[0] / v[1] }}
	rcp := floatOp{func(v []*big.Rat) *big.Rat { return quotient(big.NewRat(1, 1), v[0]) },
		func(v []float64) float64 { return 1 / v[0] }}
	fma := floatOp{func(v []*big.Rat) *big.Rat { p := newRat().Mul(v[0], v[1]); return p.Add(p, v[2]) },
		func(v []float64) float64 { return math.FMA(v[0], v[1], v[2]) }}
	sqrt := floatOp{exactSqrt, func(v []float64) float64 { return math.Sqrt(v[0]) }}
	for _, t := range []string{"f32", "f64"} {
		checks["add.rn."+t] = add.check(t, 2)
		checks["sub.rn."+t] = sub.check(t, 2)
		checks["mul.rn."+t] = mul.check(t, 2)
		checks["div.rn."+t] = div.check(t, 2)
		checks["fma.rn."+t] = fma.check(t, 3)
		signChecks(checks, t)
		for _, name := range []string{"min", "max"} {
			checks[name+"."+t] = minMaxCheck(t, name, false)
			if t == "f32" {
				checks[name+".NaN."+t] = minMaxCheck(t, name, true)
			}
		}
	}
	almost := checks["fma.rn.f32"]
	almost.extra = almostTies()
	checks["fma.rn.f32"] = almost
	checks["rcp.rn.f64"] = rcp.check("f64", 1)
	checks["sqrt.rn.f64"] = sqrt.check("f64", 1)
}

// almostTies are sources of fma whose sums are so near to a tie of float32 that float64
// takes them for one: z plus half of its last place, times 1 - 2^-32 or 1 + 2^-32 or so.
func almostTies() [][]uint64 {
	var cases [][]uint64
	bits := func(f float64) uint64 { return uint64(math.Float32bits(float32(f))) }
	for _, e := range []int{-126, -127, -128, -130, -20, 0, 60} { // of z
		last := max(e-23, -149)
		half := math.Ldexp(1, last-1)
		for _, odd := range []float64{0, 1} {
			z := math.Ldexp(1, e) + odd*math.Ldexp(1, last)
			for _, small := range []float64{0, 0x1p-15, 0x1p-16} {
				// x * y is (1 - small^2) * half.
				x, y := math.Ldexp(1+small, (last-1)/2), math.Ldexp(1-small, last-1-(last-1)/2)
				above := half * (1 + 0x1p-20)
				for _, sign := range []float64{1, -1} {
					cases = append(cases, []uint64{bits(sign * x), bits(y), bits(sign * z)},
						[]uint64{bits(sign * x), bits(-y), bits(sign * z)},
						[]uint64{bits(sign * above), bits(1), bits(sign * z)})
				}
			}
		}
	}
	return cases
}

// exactSqrt gives so many digits of a square root, which is never a tie, that rounding
// them is rounding the root.
func exactSqrt(v []*big.Rat) *big.Rat {
	if v[0].Sign() <= 0 {
		return nil
	}
	root := new(big.Float).SetPrec(400)
	root.Sqrt(new(big.Float).SetPrec(400).SetRat(v[0]))
	r, _ := root.Rat(nil)
	return r
}

func signChecks(checks map[string]check, t string) {
	sign := uint64(1) << (8*types[t].size - 1)
	checks["neg."+t] = check{d: t, s: []string{t}, want: func(v []uint64) uint64 { return v[0] ^ sign }}
	checks["abs."+t] = check{d: t, s: []string{t}, want: func(v []uint64) uint64 { return v[0] &^ sign }}
}

// minMax is the smaller or the larger of two numbers of a format: -0 is below +0; of a
// number and a NaN it is the number, or NaN where nan says so.
func minMax(t, name string, nan bool, a, b uint64) uint64 {
	f := formats[t]
	if f.isNaN(a) || f.isNaN(b) {
		switch {
		case nan || f.isNaN(a) && f.isNaN(b):
			return f.nan()
		case f.isNaN(a):
			return b
		}
		return a
	}
	// Place the numbers on a line by their bits.
	place := func(u uint64) int64 {
		if f.negative(u) {
			return -int64(u&^f.sign()) - 1
		}
		return int64(u)
	}
	if (place(a) < place(b)) == (name == "min") {
		return a
	}
	return b
}

func minMaxCheck(t, name string, nan bool) check {
	return check{d: t, s: []string{t, t}, want: func(v []uint64) uint64 { return minMax(t, name, nan, v[0], v[1]) }}
}

func halfChecks(checks map[string]check) {
	for _, t := range []string{"f16", "bf16"} {
		two := t + "x2"
		for _, name := range []string{"min", "max"} {
			checks[name+".NaN."+two] = check{d: two, s: []string{two, two}, want: func(v []uint64) uint64 {
				return minMax(t, name, true, v[0]>>16, v[1]>>16)<<16 | minMax(t, name, true, v[0]&0xffff, v[1]&0xffff)
			}}
		}
	}
}

// compareChecks compares numbers in math/big, and NaN with the rules of PTX.
func compareChecks(checks map[string]check) {
	for _, t := range []string{"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"} {
		names := strings.Fields("eq ne")
		if t[0] != 'b' {
			names = append(names, strings.Fields("lt le gt ge")...)
		}
		if t[0] == 'f' {
			names = append(names, strings.Fields("equ neu ltu leu gtu geu num nan")...)
		}
		for _, name := range names {
			compareTypeChecks(checks, t, name)
		}
	}
}

func compareTypeChecks(checks map[string]check, t, name string) {
	holds := func(v []uint64) bool {
		sign := 0
		if f, ok := formats[t]; ok {
			nan := f.isNaN(v[0]) || f.isNaN(v[1])
			switch {
			case name == "num":
				return !nan
			case name == "nan":
				return nan
			case nan:
				return len(name) == 3
			}
			x, y := new(big.Float).SetFloat64(decoded(t, v[0])), new(big.Float).SetFloat64(decoded(t, v[1]))
			sign = x.Cmp(y)
		} else {
			sign = signedValue(v[0], t).Cmp(signedValue(v[1], t))
		}
		switch name[:2] {
		case "eq":
			return sign == 0
		case "ne":
			return sign != 0
		case "lt":
			return sign < 0
		case "le":
			return sign <= 0
		case "gt":
			return sign > 0
		}
		return sign >= 0
	}
	checks["setp."+name+"."+t] = check{d: "pred", s: []string{t, t}, want: func(v []uint64) uint64 {
		return truth(holds(v))
	}}
}
