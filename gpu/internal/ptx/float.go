package ptx

import "math"

// canonical32 is the NaN that every operation in float32 gives.
const canonical32 = 0x7fffffff

func f32(u uint64) float32 { return math.Float32frombits(uint32(u)) }
func f64(u uint64) float64 { return math.Float64frombits(u) }

// put32 is the register's value of a result in float32.
func put32(f float32) uint64 {
	if f != f {
		return canonical32
	}
	return uint64(math.Float32bits(f))
}

func put64(f float64) uint64 { return math.Float64bits(f) }

// fma32 gives x*y + z with one rounding. The product is exact in float64. Where the
// sum's rounding to float64 could change that to float32, it is done to odd instead:
// an inexact sum gets a last bit of 1, which keeps it off the ties of float32.
func fma32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	u := math.Float64bits(s)
	// A tie of float32 has these bits after its last one. Subnormal results have their
	// ties elsewhere.
	const tie, below, normal = 1 << 28, 1<<29 - 1, (1023 - 126) << 52
	if u&below != tie && u&^(1<<63) >= normal {
		return float32(s)
	}
	if s-s != 0 {
		return float32(s)
	}
	v := s - p // the rounding error of p + c, exact
	if err := (p - (s - v)) + (c - v); err != 0 && u&1 == 0 {
		if (err > 0) == (s > 0) {
			u++
		} else {
			u--
		}
	}
	return float32(math.Float64frombits(u))
}

// larger gives the larger of two numbers, or the one that is not NaN; -0 is below +0.
func larger[F float32 | float64](a, b F) F {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return max(a, b)
}

func smaller[F float32 | float64](a, b F) F { return -larger(-a, -b) }

func addFloats() {
	const f2, f3, f4 = "f32 f32", "f32 f32 f32", "f32 f32 f32 f32"
	addPlain("add.rn.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(f32(l.r[in.x]) + f32(l.r[in.y])) })
	addPlain("sub.rn.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(f32(l.r[in.x]) - f32(l.r[in.y])) })
	addPlain("mul.rn.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(f32(l.r[in.x]) * f32(l.r[in.y])) })
	addPlain("div.rn.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(f32(l.r[in.x]) / f32(l.r[in.y])) })
	addPlain("max.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(larger(f32(l.r[in.x]), f32(l.r[in.y]))) })
	addPlain("min.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(smaller(f32(l.r[in.x]), f32(l.r[in.y]))) })
	addPlain("max.NaN.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(max(f32(l.r[in.x]), f32(l.r[in.y]))) })
	addPlain("min.NaN.f32", f3, func(l *lane, in *instr) { l.r[in.d] = put32(min(f32(l.r[in.x]), f32(l.r[in.y]))) })
	addPlain("fma.rn.f32", f4, func(l *lane, in *instr) {
		l.r[in.d] = put32(fma32(f32(l.r[in.x]), f32(l.r[in.y]), f32(l.r[in.z])))
	})
	addPlain("neg.f32", f2, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] ^ 1<<31 })
	addPlain("abs.f32", f2, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] &^ (1 << 31) })

	const d2, d3, d4 = "f64 f64", "f64 f64 f64", "f64 f64 f64 f64"
	addPlain("add.rn.f64", d3, func(l *lane, in *instr) { l.r[in.d] = put64(f64(l.r[in.x]) + f64(l.r[in.y])) })
	addPlain("sub.rn.f64", d3, func(l *lane, in *instr) { l.r[in.d] = put64(f64(l.r[in.x]) - f64(l.r[in.y])) })
	addPlain("mul.rn.f64", d3, func(l *lane, in *instr) { l.r[in.d] = put64(f64(l.r[in.x]) * f64(l.r[in.y])) })
	addPlain("div.rn.f64", d3, func(l *lane, in *instr) { l.r[in.d] = put64(f64(l.r[in.x]) / f64(l.r[in.y])) })
	addPlain("max.f64", d3, func(l *lane, in *instr) { l.r[in.d] = put64(larger(f64(l.r[in.x]), f64(l.r[in.y]))) })
	addPlain("min.f64", d3, func(l *lane, in *instr) { l.r[in.d] = put64(smaller(f64(l.r[in.x]), f64(l.r[in.y]))) })
	addPlain("fma.rn.f64", d4, func(l *lane, in *instr) {
		l.r[in.d] = put64(math.FMA(f64(l.r[in.x]), f64(l.r[in.y]), f64(l.r[in.z])))
	})
	addPlain("neg.f64", d2, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] ^ 1<<63 })
	addPlain("abs.f64", d2, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] &^ (1 << 63) })
	addPlain("rcp.rn.f64", d2, func(l *lane, in *instr) { l.r[in.d] = put64(1 / f64(l.r[in.x])) })
	addPlain("sqrt.rn.f64", d2, func(l *lane, in *instr) { l.r[in.d] = put64(math.Sqrt(f64(l.r[in.x]))) })
}

// truth is the predicate's value of a condition.
func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
