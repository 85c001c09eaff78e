package ptx

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

var integerRoundings = map[string]func(r *big.Rat) *big.Int{"rni": roundEven, "rzi": roundZero}

func convertChecks(checks map[string]check) {
	integers := []string{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}
	for _, from := range integers {
		for _, to := range integers {
			if from == to {
				continue
			}
			// A register that is wider than the type gets zeros or the sign above.
			for _, register := range []string{registerType(to), "b32", "b64"} {
				if types[register].size < types[to].size {
					continue
				}
				checks[fmt.Sprintf("cvt.%s.%s to %s", to, from, register)] = check{d: register, s: []string{"b64"},
					text: "cvt." + to + "." + from + " D, S0",
					want: func(v []uint64) uint64 {
						n := signedValue(truncated(signedValue(v[0], from), 8*types[to].size), to)
						return truncated(n, 8*types[register].size)
					}}
			}
		}
		checks["cvt.rn.f64."+from] = check{d: "f64", s: []string{registerType(from)}, want: func(v []uint64) uint64 {
			return formats["f64"].nearest(new(big.Rat).SetInt(signedValue(v[0], from)))
		}}
	}
	f := formats["f64"]
	for name, round := range integerRoundings {
		for _, to := range []string{"s32", "s64"} {
			checks["cvt."+name+"."+to+".f64"] = check{d: to, s: []string{"f64"}, want: func(v []uint64) uint64 {
				return integerOfFloat(v[0], to, round)
			}}
		}
		checks["cvt."+name+".f64.f64"] = check{d: "f64", s: []string{"f64"}, want: func(v []uint64) uint64 {
			switch {
			case f.isNaN(v[0]):
				return f.nan()
			case f.isInf(v[0]):
				return v[0]
			}
			// A zero keeps the sign of what was rounded to it.
			return f.nearest(new(big.Rat).SetInt(round(f.value(v[0]))))&^f.sign() | v[0]&f.sign()
		}}
	}
	checks["cvt.f64.f32"] = check{d: "f64", s: []string{"f32"}, want: func(v []uint64) uint64 {
		return rounded("f64", "f32", v[0])
	}}
	checks["cvt.f32.f16"] = check{d: "f32", s: []string{"f16"}, want: func(v []uint64) uint64 {
		return rounded("f32", "f16", v[0])
	}}
	checks["cvt.rn.f32.f64"] = check{d: "f32", s: []string{"f64"}, want: func(v []uint64) uint64 {
		return rounded("f32", "f64", v[0])
	}}
	checks["cvt.rn.bf16x2.f32"] = check{d: "bf16x2", s: []string{"f32", "f32"}, want: func(v []uint64) uint64 {
		return rounded("bf16", "f32", v[0])<<16 | rounded("bf16", "f32", v[1])
	}}
}

// rounded converts between formats.
func rounded(to, from string, u uint64) uint64 {
	f := formats[from]
	if !f.isFinite(u) || u&^f.sign() == 0 {
		return encoded(to, decoded(from, u))
	}
	return formats[to].nearest(f.value(u))
}

// integerOfFloat rounds to an integer of type to, a signed one. What is too large becomes the
// largest there is, and NaN the highest bit.
func integerOfFloat(u uint64, to string, round func(r *big.Rat) *big.Int) uint64 {
	f, bits := formats["f64"], 8*types[to].size
	high := mask(uint(bits - 1))
	low := new(big.Int).Not(high)
	n := low
	switch {
	case f.isInf(u) && !f.negative(u):
		n = high
	case f.isFinite(u):
		n = round(f.value(u))
		if n.Cmp(low) < 0 {
			n = low
		}
		if n.Cmp(high) > 0 {
			n = high
		}
	}
	return truncated(n, bits)
}

// TestHalves tries every float16, and the neighbourhoods in float32 of every fifth bfloat16,
// and of the ties between two of them.
func TestHalves(t *testing.T) {
	for h := range 1 << 16 {
		if got, want := put32(halfToFloat(uint16(h))), rounded("f32", "f16", uint64(h)); got != want {
			t.Fatalf("float16 %#x is %#x, want %#x", h, got, want)
		}
		if h%5 != 0 {
			continue
		}
		for _, low := range []uint32{0, 1, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff} {
			u := uint32(h)<<16 | low
			if got, want := uint64(floatToBfloat(math.Float32frombits(u))),
				rounded("bf16", "f32", uint64(u)); got != want {
				t.Fatalf("float32 %#x is bfloat16 %#x, want %#x", u, got, want)
			}
		}
	}
}
