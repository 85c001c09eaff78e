package ptx

import "math"

// The NaN that operations in float16 and bfloat16 give.
const canonical16 = 0x7fff

// halfToFloat widens a float16, which is exact.
func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10)&0x1f, uint32(h&0x3ff)
	switch {
	case exponent == 0: // zero or subnormal: fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case exponent == 31 && fraction != 0:
		return math.Float32frombits(canonical32)
	case exponent == 31:
		return math.Float32frombits(sign | 0x7f800000)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// floatToHalf rounds to float16, to the nearest, ties to even.
func floatToHalf(f float32) uint16 {
	u := math.Float32bits(f)
	sign, m := uint16(u>>16&0x8000), u&0x7fffffff
	const smallestNormal, overflow, infinity = (127 - 14) << 23, (127 + 16) << 23, 0x7f800000
	switch {
	case m > infinity:
		return canonical16
	case m >= overflow:
		return sign | 0x7c00
	case m < smallestNormal:
		// Adding 1/2 lets the float32 addition round at 2^-24, the last place of a
		// subnormal, and leaves it in the lowest bits.
		return sign | uint16(math.Float32bits(math.Float32frombits(m)+0.5)&0x7ff)
	}
	m -= (127 - 15) << 23
	m += 1<<12 - 1 + m>>13&1 // may carry into the exponent, up to infinity
	return sign | uint16(m>>13)
}

func bfloatToFloat(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// floatToBfloat rounds to bfloat16, to the nearest, ties to even.
func floatToBfloat(f float32) uint16 {
	if f != f {
		return canonical16
	}
	u := math.Float32bits(f)
	return uint16((u + 1<<15 - 1 + u>>16&1) >> 16)
}

// A halfFormat is float16 or bfloat16.
type halfFormat struct {
	name  string
	float func(h uint16) float32
}

// pick gives the larger or the smaller of two. NaN: as PTX's .NaN, any NaN gives NaN;
// without it the other number.
func (f *halfFormat) pick(a, b uint16, larger, nan bool) uint16 {
	x, y := f.float(a), f.float(b)
	switch {
	case x != x && y != y, nan && (x != x || y != y):
		return canonical16
	case x != x:
		return b
	case y != y:
		return a
	}
	v := min(x, y)
	if larger {
		v = max(x, y)
	}
	if math.Float32bits(v) == math.Float32bits(x) {
		return a
	}
	return b
}

func addHalves() {
	for _, f := range []halfFormat{{"f16", halfToFloat}, {"bf16", bfloatToFloat}} {
		for _, larger := range []bool{false, true} {
			for _, nan := range []bool{false, true} {
				opcode := map[bool]string{false: "min", true: "max"}[larger]
				if nan {
					opcode += ".NaN"
				}
				one, two := f.name, f.name+"x2"
				add2(opcode+"."+one, one, one, one, func(d, x, y int) func(l *lane) {
					return func(l *lane) { l.r[d] = uint64(f.pick(uint16(l.r[x]), uint16(l.r[y]), larger, nan)) }
				})
				add2(opcode+"."+two, two, two, two, func(d, x, y int) func(l *lane) {
					return func(l *lane) {
						a, b := l.r[x], l.r[y]
						l.r[d] = uint64(f.pick(uint16(a>>16), uint16(b>>16), larger, nan))<<16 | uint64(f.pick(uint16(a), uint16(b), larger, nan))
					}
				})
			}
		}
		for t, signs := range map[string]uint64{f.name: 0x8000, f.name + "x2": 0x80008000} {
			add1("neg."+t, t, t, func(d, x int) func(l *lane) {
				return func(l *lane) { l.r[d] = l.r[x] ^ signs }
			})
			add1("abs."+t, t, t, func(d, x int) func(l *lane) {
				return func(l *lane) { l.r[d] = l.r[x] &^ signs }
			})
		}
	}
}
