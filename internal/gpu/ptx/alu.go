package ptx

import "math/bits"

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}
type signed interface{ int8 | int16 | int32 | int64 }

// The integer instructions are generic over U, the unsigned type of the register's
// size, and S, the type in which the operation is done. Results go to the register
// through U, so that the bits above are 0.

func addOp[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x]) + U(r[y])) }
}

func subOp[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x]) - U(r[y])) }
}

func mulOp[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x]) * U(r[y])) }
}

// divOp refuses a divisor of 0: what a GPU makes of it is not said.
func divOp[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) {
		if U(l.r[y]) == 0 {
			l.fail("a division by 0")
		}
		l.r[d] = uint64(U(l.r[x]) / U(l.r[y]))
	}
}

func madOp[U unsigned](d, x, y, z int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x])*U(r[y]) + U(r[z])) }
}

func wideSigned[S signed, U, W unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(W(int64(S(U(r[x]))) * int64(S(U(r[y]))))) }
}

func wideUnsigned[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x])) * uint64(U(r[y])) }
}

func minOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { l.r[d] = uint64(U(min(S(l.r[x]), S(l.r[y])))) }
}

func maxOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { l.r[d] = uint64(U(max(S(l.r[x]), S(l.r[y])))) }
}

func negOp[U unsigned](d, x int) func(l *lane) {
	return func(l *lane) { l.r[d] = uint64(-U(l.r[x])) }
}

// shrOp shifts in zeros, or the sign where S is signed. Shifts by more than the size
// are as shifts by the size.
func shrOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(S(r[x]) >> r[y])) }
}

func shlOp[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x]) << r[y]) }
}

// integers enters the instructions on integers of one size.
func integers[S signed, U unsigned](size string) {
	s, u, b := "s"+size, "u"+size, "b"+size
	for _, t := range []string{s, u} {
		add2("add."+t, t, t, t, addOp[U])
		add2("sub."+t, t, t, t, subOp[U])
		add2("mul.lo."+t, t, t, t, mulOp[U])
		add3("mad.lo."+t, t, t, t, t, madOp[U])
	}
	add2("div."+u, u, u, u, divOp[U])
	add2("min."+s, s, s, s, minOp[S, U])
	add2("min."+u, u, u, u, minOp[U, U])
	add2("max."+s, s, s, s, maxOp[S, U])
	add2("max."+u, u, u, u, maxOp[U, U])
	add1("neg."+s, s, s, negOp[U])
	add2("shr."+s, s, s, "u32", shrOp[S, U])
	add2("shr."+u, u, u, "u32", shrOp[U, U])
	add2("shl."+b, b, b, "u32", shlOp[U])
}

func addIntegers() {
	integers[int16, uint16]("16")
	integers[int32, uint32]("32")
	integers[int64, uint64]("64")
	add2("mul.wide.s32", "s64", "s32", "s32", wideSigned[int32, uint32, uint64])
	add2("mul.wide.u16", "u32", "u16", "u16", wideUnsigned[uint16])
	add2("mul.wide.u32", "u64", "u32", "u32", wideUnsigned[uint32])
}

// ---------------------------------------------------------------- moves and selection

func movOp(d, x int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = r[x] }
}

func selpOp(d, x, y, p int) func(l *lane) {
	return func(l *lane) {
		r := l.r
		if r[p] != 0 {
			r[d] = r[x]
		} else {
			r[d] = r[y]
		}
	}
}

func addMoves() {
	for _, size := range []string{"16", "32", "64"} {
		for _, class := range []string{"b", "u", "s", "f"} {
			t := class + size
			if t == "f16" {
				continue
			}
			add3("selp."+t, t, t, t, "pred", selpOp)
			add1("mov."+t, t, t, movOp)
		}
	}
	add1("mov.pred", "pred", "pred", movOp)
	add1("cvta.global.u64", "u64", "u64", movOp)
	add1("cvta.to.global.u64", "u64", "u64", movOp)
	check := func(l *lane, offset uint64) {
		if offset >= windowSize {
			l.fail("the address does not lie in shared memory")
		}
	}
	add1("cvta.shared.u64", "u64", "u64", func(d, x int) func(l *lane) {
		return func(l *lane) { check(l, l.r[x]); l.r[d] = l.r[x] + sharedWindow }
	})
	add1("cvta.to.shared.u64", "u64", "u64", func(d, x int) func(l *lane) {
		return func(l *lane) { check(l, l.r[x]-sharedWindow); l.r[d] = l.r[x] - sharedWindow }
	})
}

// ---------------------------------------------------------------- bits

func andOp(d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = r[x] & r[y] }
}

func orOp(d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = r[x] | r[y] }
}

func xorOp(d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = r[x] ^ r[y] }
}

func addBits() {
	for t, ones := range map[string]uint64{"pred": 1, "b16": 1<<16 - 1, "b32": 1<<32 - 1, "b64": 1<<64 - 1} {
		add2("and."+t, t, t, t, andOp)
		add2("or."+t, t, t, t, orOp)
		add2("xor."+t, t, t, t, xorOp)
		add1("not."+t, t, t, func(d, x int) func(l *lane) {
			return func(l *lane) { l.r[d] = l.r[x] ^ ones }
		})
	}
	add1("popc.b32", "u32", "b32", func(d, x int) func(l *lane) {
		return func(l *lane) { l.r[d] = uint64(bits.OnesCount32(uint32(l.r[x]))) }
	})
	for _, t := range []string{"u32", "u64"} {
		width := uint64(8 * types[t].size)
		add3("bfe."+t, t, t, "u32", "u32", func(d, x, y, z int) func(l *lane) {
			return func(l *lane) { l.r[d] = extract(l.r[x], l.r[y], l.r[z], width) }
		})
	}
}

// extract gives n bits of x from bit from on; those above the top are 0.
func extract(x, from, n, width uint64) uint64 {
	from, n = from&255, n&255
	return x >> from & (1<<min(n, width) - 1) // 0 from the width on
}
