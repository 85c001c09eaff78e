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

// The larger and the smaller of two numbers that are not NaN; -0 is below +0.
func larger[F float32 | float64](a, b F) F  { return max(a, b) }
func smaller[F float32 | float64](a, b F) F { return min(a, b) }

// numberOf gives the one that is not NaN, or pick of both.
func numberOf[F float32 | float64](a, b F, pick func(a, b F) F) F {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return pick(a, b)
}

func addFloats() {
	add2("add.rn.f32", "f32", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(f32(r[x]) + f32(r[y])) }
	})
	add2("sub.rn.f32", "f32", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(f32(r[x]) - f32(r[y])) }
	})
	add2("mul.rn.f32", "f32", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(f32(r[x]) * f32(r[y])) }
	})
	add2("div.rn.f32", "f32", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(f32(r[x]) / f32(r[y])) }
	})
	add2("add.rn.f64", "f64", "f64", "f64", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put64(f64(r[x]) + f64(r[y])) }
	})
	add2("sub.rn.f64", "f64", "f64", "f64", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put64(f64(r[x]) - f64(r[y])) }
	})
	add2("mul.rn.f64", "f64", "f64", "f64", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put64(f64(r[x]) * f64(r[y])) }
	})
	add2("div.rn.f64", "f64", "f64", "f64", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put64(f64(r[x]) / f64(r[y])) }
	})
	add3("fma.rn.f32", "f32", "f32", "f32", "f32", func(d, x, y, z int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(fma32(f32(r[x]), f32(r[y]), f32(r[z]))) }
	})
	add3("fma.rn.f64", "f64", "f64", "f64", "f64", func(d, x, y, z int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put64(math.FMA(f64(r[x]), f64(r[y]), f64(r[z]))) }
	})
	add1("sqrt.rn.f64", "f64", "f64", func(d, x int) func(l *lane) {
		return func(l *lane) { l.r[d] = put64(math.Sqrt(f64(l.r[x]))) }
	})
	add1("rcp.rn.f64", "f64", "f64", func(d, x int) func(l *lane) {
		return func(l *lane) { l.r[d] = put64(1 / f64(l.r[x])) }
	})
	addSigns("f32", 31)
	addSigns("f64", 63)
	add2("max.f32", "f32", "f32", "f32", pick32(larger[float32]))
	add2("min.f32", "f32", "f32", "f32", pick32(smaller[float32]))
	add2("max.f64", "f64", "f64", "f64", pick64(larger[float64]))
	add2("min.f64", "f64", "f64", "f64", pick64(smaller[float64]))
	add2("max.NaN.f32", "f32", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(max(f32(r[x]), f32(r[y]))) }
	})
	add2("min.NaN.f32", "f32", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { r := l.r; r[d] = put32(min(f32(r[x]), f32(r[y]))) }
	})
}

func pick32(pick func(a, b float32) float32) op2 {
	return func(d, x, y int) func(l *lane) {
		return func(l *lane) { l.r[d] = put32(numberOf(f32(l.r[x]), f32(l.r[y]), pick)) }
	}
}

func pick64(pick func(a, b float64) float64) op2 {
	return func(d, x, y int) func(l *lane) {
		return func(l *lane) { l.r[d] = put64(numberOf(f64(l.r[x]), f64(l.r[y]), pick)) }
	}
}

// addSigns enters what works on the sign.
func addSigns(t string, signBit int) {
	sign := uint64(1) << signBit
	add1("neg."+t, t, t, func(d, x int) func(l *lane) {
		return func(l *lane) { l.r[d] = l.r[x] ^ sign }
	})
	add1("abs."+t, t, t, func(d, x int) func(l *lane) {
		return func(l *lane) { l.r[d] = l.r[x] &^ sign }
	})
}

// truth is the predicate's value of a condition.
func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
