package ptx

import "math"

var integerTypes = []string{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}

// An integerType is one of integerTypes.
type integerType struct {
	bits   int
	signed bool
	mask   uint64 // its bits
}

func integerOfType(t string) integerType {
	info := types[t]
	return integerType{8 * info.size, info.class == 's', lowBits(info.size)}
}

// extend extends the low bits of v, an integer of the type, to 64 bits.
func (t integerType) extend(v uint64) uint64 {
	if t.signed {
		unused := 64 - t.bits
		return uint64(int64(v<<unused) >> unused)
	}
	return v & t.mask
}

// roundings are the roundings to an integer.
var roundings = map[string]func(v float64) float64{
	"rni": math.RoundToEven, "rzi": math.Trunc,
}

// of converts a float that is an integer already to a signed integer. What is out of range
// becomes the nearest that there is, and NaN the highest bit alone.
func (t integerType) of(v float64) uint64 {
	limit := math.Ldexp(1, t.bits-1)
	switch {
	case v != v || v < -limit:
		return 1 << (t.bits - 1)
	case v >= limit:
		return t.mask >> 1
	}
	return uint64(int64(v)) & t.mask
}

// convert enters a conversion. The register of an integer may be wider than its type;
// then it gets zeros or the sign above.
func convert(opcode, to, from string, f func(v uint64) uint64) {
	add(opcode, func(s *statement) {
		s.want(2)
		d, size := s.wideDst(s.operands[0], to)
		s.in.d, s.in.x = d, s.slot(s.operands[1], from, types[from].class != 'f')
		s.in.run = func(l *lane, in *instr) { l.r[in.d] = f(l.r[in.x]) }
		if types[to].class == 's' && size > types[to].size {
			t, mask := integerOfType(to), lowBits(size)
			s.in.run = func(l *lane, in *instr) { l.r[in.d] = t.extend(f(l.r[in.x])) & mask }
		}
	})
}

func addConversions() {
	for _, from := range integerTypes {
		for _, to := range integerTypes {
			if from == to {
				continue
			}
			source, mask := integerOfType(from), integerOfType(to).mask
			convert("cvt."+to+"."+from, to, from, func(v uint64) uint64 { return source.extend(v) & mask })
		}
	}
	convert("cvt.f64.f32", "f64", "f32", func(v uint64) uint64 { return put64(float64(f32(v))) })
	convert("cvt.rn.f32.f64", "f32", "f64", func(v uint64) uint64 { return put32(float32(f64(v))) })
	convert("cvt.f32.f16", "f32", "f16", func(v uint64) uint64 { return put32(halfToFloat(uint16(v))) })
	for name, round := range roundings {
		convert("cvt."+name+".f64.f64", "f64", "f64", func(v uint64) uint64 { return put64(round(f64(v))) })
		for _, to := range []string{"s32", "s64"} {
			t := integerOfType(to)
			convert("cvt."+name+"."+to+".f64", to, "f64", func(v uint64) uint64 { return t.of(round(f64(v))) })
		}
	}
	for _, from := range integerTypes {
		t := integerOfType(from)
		toFloat := func(v uint64) float64 { return float64(v) }
		if t.signed {
			toFloat = func(v uint64) float64 { return float64(int64(v)) }
		}
		convert("cvt.rn.f64."+from, "f64", from, func(v uint64) uint64 { return put64(toFloat(t.extend(v))) })
	}
	// The first source goes to the high half.
	addPlain("cvt.rn.bf16x2.f32", "bf16x2 f32 f32", func(l *lane, in *instr) {
		l.r[in.d] = uint64(floatToBfloat(f32(l.r[in.x])))<<16 | uint64(floatToBfloat(f32(l.r[in.y])))
	})
}
