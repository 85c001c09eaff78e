package ptx

import "math"

// canonical16 is the NaN that operations in float16 and bfloat16 give.
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

func bfloatToFloat(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// floatToBfloat rounds to bfloat16, to the nearest, ties to even.
func floatToBfloat(f float32) uint16 {
	if f != f {
		return canonical16
	}
	u := math.Float32bits(f)
	return uint16((u + 1<<15 - 1 + u>>16&1) >> 16)
}

// addHalves enters the larger and the smaller of two pairs. Any NaN gives NaN.
func addHalves() {
	for t, float := range map[string]func(h uint16) float32{"f16x2": halfToFloat, "bf16x2": bfloatToFloat} {
		for name, of := range map[string]func(x, y float32) float32{"max": larger[float32], "min": smaller[float32]} {
			pick := func(a, b uint16) uint64 {
				x, y := float(a), float(b)
				switch {
				case x != x || y != y:
					return canonical16
				case math.Float32bits(of(x, y)) == math.Float32bits(x):
					return uint64(a)
				}
				return uint64(b)
			}
			addPlain(name+".NaN."+t, t+" "+t+" "+t, func(l *lane, in *instr) {
				a, b := l.r[in.x], l.r[in.y]
				l.r[in.d] = pick(uint16(a>>16), uint16(b>>16))<<16 | pick(uint16(a), uint16(b))
			})
		}
	}
}
