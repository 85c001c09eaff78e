package ptx

import (
	"math"
)

var integerTypes = []string{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}

// integerTo gives the bits of an integer of type t as a register of size bytes holds
// them: zeros or the sign above.
func integerTo(v uint64, t string, size int) uint64 {
	info := types[t]
	v = integerFrom(v, t)
	if info.class == 'u' || size == 8 {
		return v
	}
	return v & (1<<(8*size) - 1)
}

// integerFrom extends the low bits of a register, an integer of type t, to 64 bits.
func integerFrom(v uint64, t string) uint64 {
	info := types[t]
	unused := 64 - 8*info.size
	if info.class == 's' {
		return uint64(int64(v<<unused) >> unused)
	}
	return v << unused >> unused
}

// roundings are the roundings to an integer.
var roundings = map[string]func(v float64) float64{
	"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil,
}

// integerOf converts a float that is an integer already to an integer of type t. What
// is out of range becomes the nearest that there is. NaN becomes 0, or the highest bit
// alone where the float or the integer has 64 bits.
func integerOf(v float64, t string, wide bool) uint64 {
	info := types[t]
	bits := 8 * info.size
	if v != v {
		if wide || bits == 64 {
			return 1 << (bits - 1)
		}
		return 0
	}
	if info.class == 's' {
		limit := math.Ldexp(1, bits-1)
		switch {
		case v >= limit:
			return 1<<(bits-1) - 1
		case v < -limit:
			return 1 << (bits - 1)
		}
		return uint64(int64(v)) & (^uint64(0) >> (64 - bits))
	}
	switch {
	case v >= math.Ldexp(1, bits):
		return ^uint64(0) >> (64 - bits)
	case v < 0:
		return 0
	}
	return uint64(v)
}

// convert enters a conversion whose registers may be wider than integer types.
func convert(opcode, to, from string, f func(v uint64) uint64) {
	add(opcode, func(s *statement) {
		s.want(2, 2)
		d, size := s.wideDst(s.operands[0], to)
		x := s.wideSrc(1, from)
		if types[to].class != 'f' && types[to].class != 'b' && size > types[to].size {
			s.in.run = func(l *lane) { l.r[d] = integerTo(f(l.r[x]), to, size) }
			return
		}
		s.in.run = func(l *lane) { l.r[d] = f(l.r[x]) }
	})
}

// wideSrc is wide for integers, and src for floats, whose registers have their size.
func (s *statement) wideSrc(i int, t string) int {
	if class := types[t].class; class == 's' || class == 'u' {
		return s.wide(i, t)
	}
	return s.src(i, t)
}

func addConversions() {
	for _, from := range integerTypes {
		for _, to := range integerTypes {
			if from == to {
				continue
			}
			// Only the closures of the frequent conversions are made by hand.
			bits := 8 * types[to].size
			convert("cvt."+to+"."+from, to, from, func(v uint64) uint64 {
				return integerFrom(v, from) & (^uint64(0) >> (64 - bits))
			})
		}
	}
	addFloatConversions()
	addHalfConversions()
}

func addFloatConversions() {
	convert("cvt.f64.f32", "f64", "f32", func(v uint64) uint64 { return put64(float64(f32(v))) })
	convert("cvt.rn.f32.f64", "f32", "f64", func(v uint64) uint64 { return put32(float32(f64(v))) })
	for name, round := range roundings {
		convert("cvt."+name+".f32.f32", "f32", "f32", func(v uint64) uint64 { return put32(float32(round(float64(f32(v))))) })
		convert("cvt."+name+".f64.f64", "f64", "f64", func(v uint64) uint64 { return put64(round(f64(v))) })
		for _, to := range integerTypes {
			convert("cvt."+name+"."+to+".f32", to, "f32", func(v uint64) uint64 { return integerOf(round(float64(f32(v))), to, false) })
			convert("cvt."+name+"."+to+".f64", to, "f64", func(v uint64) uint64 { return integerOf(round(f64(v)), to, true) })
		}
	}
	for _, from := range integerTypes {
		if types[from].class == 's' {
			convert("cvt.rn.f32."+from, "f32", from, func(v uint64) uint64 { return put32(float32(int64(integerFrom(v, from)))) })
			convert("cvt.rn.f64."+from, "f64", from, func(v uint64) uint64 { return put64(float64(int64(integerFrom(v, from)))) })
		} else {
			convert("cvt.rn.f32."+from, "f32", from, func(v uint64) uint64 { return put32(float32(integerFrom(v, from))) })
			convert("cvt.rn.f64."+from, "f64", from, func(v uint64) uint64 { return put64(float64(integerFrom(v, from))) })
		}
	}
}

func addHalfConversions() {
	convert("cvt.f32.f16", "f32", "f16", func(v uint64) uint64 { return put32(halfToFloat(uint16(v))) })
	convert("cvt.f64.f16", "f64", "f16", func(v uint64) uint64 { return put64(float64(halfToFloat(uint16(v)))) })
	convert("cvt.rn.f16.f32", "f16", "f32", func(v uint64) uint64 { return uint64(floatToHalf(f32(v))) })
	convert("cvt.rn.bf16.f32", "bf16", "f32", func(v uint64) uint64 { return uint64(floatToBfloat(f32(v))) })
	// The first source goes to the high half.
	add2("cvt.rn.f16x2.f32", "f16x2", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { l.r[d] = uint64(floatToHalf(f32(l.r[x])))<<16 | uint64(floatToHalf(f32(l.r[y]))) }
	})
	add2("cvt.rn.bf16x2.f32", "bf16x2", "f32", "f32", func(d, x, y int) func(l *lane) {
		return func(l *lane) { l.r[d] = uint64(floatToBfloat(f32(l.r[x])))<<16 | uint64(floatToBfloat(f32(l.r[y]))) }
	})
}
