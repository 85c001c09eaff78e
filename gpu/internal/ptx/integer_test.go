package ptx

import (
	"fmt"
	"math/big"
)

// registerChecks has a check for every instruction on registers.
func registerChecks() map[string]check {
	checks := map[string]check{}
	for _, add := range []func(map[string]check){integerChecks, bitChecks, moveChecks, floatChecks, halfChecks,
		compareChecks, convertChecks} {
		add(checks)
	}
	return checks
}

// integerCheck is a check whose oracle computes with integers of any size.
func integerCheck(d string, s []string, f func(v []*big.Int) *big.Int) check {
	return check{d: d, s: s, want: func(v []uint64) uint64 {
		n := make([]*big.Int, len(v))
		for i := range v {
			n[i] = signedValue(v[i], s[i])
		}
		return truncated(f(n), 8*types[d].size)
	}}
}

func integerChecks(checks map[string]check) {
	newInt := func() *big.Int { return new(big.Int) }
	for _, t := range []string{"s16", "u16", "s32", "u32", "s64", "u64"} {
		bits := uint(8 * types[t].size)
		t2, t3 := []string{t, t}, []string{t, t, t}
		checks["add."+t] = integerCheck(t, t2, func(v []*big.Int) *big.Int { return newInt().Add(v[0], v[1]) })
		checks["sub."+t] = integerCheck(t, t2, func(v []*big.Int) *big.Int { return newInt().Sub(v[0], v[1]) })
		checks["mul.lo."+t] = integerCheck(t, t2, func(v []*big.Int) *big.Int { return newInt().Mul(v[0], v[1]) })
		checks["mad.lo."+t] = integerCheck(t, t3, func(v []*big.Int) *big.Int {
			p := newInt().Mul(v[0], v[1])
			return p.Add(p, v[2])
		})
		checks["min."+t] = integerCheck(t, t2, func(v []*big.Int) *big.Int {
			if v[0].Cmp(v[1]) < 0 {
				return v[0]
			}
			return v[1]
		})
		checks["max."+t] = integerCheck(t, t2, func(v []*big.Int) *big.Int {
			if v[0].Cmp(v[1]) < 0 {
				return v[1]
			}
			return v[0]
		})
		if t[0] == 'u' {
			checks["div."+t] = check{d: t, s: t2, text: fmt.Sprintf("or.b%d S1, S1, 1; div.%s D, S0, S1", bits, t),
				want: func(v []uint64) uint64 { return v[0] / (v[1] | 1) }}
		}
		if t[0] == 's' {
			checks["neg."+t] = integerCheck(t, []string{t}, func(v []*big.Int) *big.Int { return newInt().Neg(v[0]) })
		}
		if wide := map[string]string{"s32": "s64", "u32": "u64"}[t]; wide != "" {
			checks["mul.wide."+t] = integerCheck(wide, t2, func(v []*big.Int) *big.Int {
				return newInt().Mul(v[0], v[1])
			})
		}
		// A shift by the size or more is a shift by the size.
		checks["shr."+t] = integerCheck(t, []string{t, "u32"}, func(v []*big.Int) *big.Int {
			return newInt().Rsh(v[0], min(bits, uint(v[1].Uint64())))
		})
	}
	for _, t := range []string{"b16", "b32", "b64"} {
		bits := uint(8 * types[t].size)
		checks["shl."+t] = integerCheck(t, []string{t, "u32"}, func(v []*big.Int) *big.Int {
			return newInt().Lsh(v[0], min(bits, uint(v[1].Uint64())))
		})
	}
}

// bitwise makes a result of size bits, each by itself.
func bitwise(size int, bit func(i int) uint64) uint64 {
	v := uint64(0)
	for i := range size {
		v |= bit(i) & 1 << i
	}
	return v
}

func bitChecks(checks map[string]check) {
	for _, t := range []string{"pred", "b16", "b32", "b64"} {
		n := max(1, 8*types[t].size)
		for name, of := range map[string]func(sum uint64) bool{
			"and": func(sum uint64) bool { return sum == 2 },
			"or":  func(sum uint64) bool { return sum > 0 },
			"xor": func(sum uint64) bool { return sum == 1 },
		} {
			checks[name+"."+t] = check{d: t, s: []string{t, t}, want: func(v []uint64) uint64 {
				return bitwise(n, func(i int) uint64 { return truth(of(v[0]>>i&1 + v[1]>>i&1)) })
			}}
		}
		checks["not."+t] = check{d: t, s: []string{t}, want: func(v []uint64) uint64 {
			return bitwise(n, func(i int) uint64 { return truth(v[0]>>i&1 == 0) })
		}}
	}
	checks["popc.b32"] = check{d: "u32", s: []string{"b32"}, want: func(v []uint64) uint64 {
		count := uint64(0)
		for i := range 32 {
			count += v[0] >> i & 1
		}
		return count
	}}
	for _, t := range []string{"u32", "u64"} {
		n := 8 * types[t].size
		checks["bfe."+t] = check{d: t, s: []string{t, "u32", "u32"}, want: func(v []uint64) uint64 {
			from, count := int(v[1]&255), int(v[2]&255)
			return bitwise(n, func(i int) uint64 {
				if i < count && from+i < n {
					return v[0] >> (from + i)
				}
				return 0
			})
		}}
	}
}

func moveChecks(checks map[string]check) {
	same := func(v []uint64) uint64 { return v[0] }
	for _, t := range []string{"b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"} {
		checks["mov."+t] = check{d: t, s: []string{t}, want: same}
		checks["selp."+t] = check{d: t, s: []string{t, t, "pred"}, want: func(v []uint64) uint64 {
			if v[2] == 1 {
				return v[0]
			}
			return v[1]
		}}
	}
	checks["mov.pred"] = check{d: "pred", s: []string{"pred"}, want: same}
	checks["mov.pred constant"] = check{d: "pred", s: []string{"pred"}, text: "mov.pred D, -1",
		want: func([]uint64) uint64 { return 1 }}
	checks["cvta.global.u64"] = check{d: "u64", s: []string{"u64"}, want: same}
	checks["cvta.to.global.u64"] = check{d: "u64", s: []string{"u64"}, want: same}
}
