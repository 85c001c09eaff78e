package ptx

import (
	"math/bits"
	"strings"
)

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

func madOp[U unsigned](d, x, y, z int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x])*U(r[y]) + U(r[z])) }
}

func wideSigned[S signed, U, W unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(W(int64(S(U(r[x]))) * int64(S(U(r[y]))))) }
}

func wideUnsigned[U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(U(r[x])) * uint64(U(r[y])) }
}

func wideSignedAdd[S signed, U, W unsigned](d, x, y, z int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(W(int64(S(U(r[x])))*int64(S(U(r[y]))) + int64(r[z]))) }
}

func wideUnsignedAdd[U, W unsigned](d, x, y, z int) func(l *lane) {
	return func(l *lane) { r := l.r; r[d] = uint64(W(uint64(U(r[x]))*uint64(U(r[y])) + r[z])) }
}

// highSigned gives the high half of the product of two integers of size bytes.
func highSigned[S signed, U unsigned](x, y uint64, size int) uint64 {
	if size == 8 {
		hi, _ := bits.Mul64(x, y)
		if int64(x) < 0 {
			hi -= y
		}
		if int64(y) < 0 {
			hi -= x
		}
		return hi
	}
	return uint64(U(int64(S(U(x))) * int64(S(U(y))) >> (8 * size)))
}

// highUnsigned is highSigned for unsigned integers.
func highUnsigned[U unsigned](x, y uint64, size int) uint64 {
	if size == 8 {
		hi, _ := bits.Mul64(x, y)
		return hi
	}
	return uint64(U(uint64(U(x)) * uint64(U(y)) >> (8 * size)))
}

// divisor fails if a divisor is 0: PTX does not define the result.
func (l *lane) divisor(y uint64) {
	if y == 0 {
		l.fail("an integer is divided by zero")
	}
}

func divOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { l.divisor(l.r[y]); l.r[d] = uint64(U(S(l.r[x]) / S(l.r[y]))) }
}

func remOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { l.divisor(l.r[y]); l.r[d] = uint64(U(S(l.r[x]) % S(l.r[y]))) }
}

func minOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { l.r[d] = uint64(U(min(S(l.r[x]), S(l.r[y])))) }
}

func maxOp[S signed | unsigned, U unsigned](d, x, y int) func(l *lane) {
	return func(l *lane) { l.r[d] = uint64(U(max(S(l.r[x]), S(l.r[y])))) }
}

func sadOp[S signed | unsigned, U unsigned](d, x, y, z int) func(l *lane) {
	return func(l *lane) {
		a, b := S(l.r[x]), S(l.r[y])
		l.r[d] = uint64(U(max(a, b)) - U(min(a, b)) + U(l.r[z]))
	}
}

func absOp[S signed, U unsigned](d, x int) func(l *lane) {
	return func(l *lane) {
		v := S(l.r[x])
		if v < 0 {
			v = -v
		}
		l.r[d] = uint64(U(v))
	}
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
	s, u := "s"+size, "u"+size
	bytes := types[s].size
	for _, t := range []string{s, u} {
		add2("add."+t, t, t, t, addOp[U])
		add2("sub."+t, t, t, t, subOp[U])
		add2("mul.lo."+t, t, t, t, mulOp[U])
		add3("mad.lo."+t, t, t, t, t, madOp[U])
	}
	add2("div."+s, s, s, s, divOp[S, U])
	add2("div."+u, u, u, u, divOp[U, U])
	add2("rem."+s, s, s, s, remOp[S, U])
	add2("rem."+u, u, u, u, remOp[U, U])
	add2("min."+s, s, s, s, minOp[S, U])
	add2("min."+u, u, u, u, minOp[U, U])
	add2("max."+s, s, s, s, maxOp[S, U])
	add2("max."+u, u, u, u, maxOp[U, U])
	add3("sad."+s, s, s, s, s, sadOp[S, U])
	add3("sad."+u, u, u, u, u, sadOp[U, U])
	add1("abs."+s, s, s, absOp[S, U])
	add1("neg."+s, s, s, negOp[U])
	add2("shr."+s, s, s, "u32", shrOp[S, U])
	add2("shr."+u, u, u, "u32", shrOp[U, U])
	add2("shr.b"+size, "b"+size, "b"+size, "u32", shrOp[U, U])
	add2("shl.b"+size, "b"+size, "b"+size, "u32", shlOp[U])
	high := func(f func(x, y uint64, size int) uint64) op2 {
		return func(d, x, y int) func(l *lane) {
			return func(l *lane) { l.r[d] = f(l.r[x], l.r[y], bytes) }
		}
	}
	highAdd := func(f func(x, y uint64, size int) uint64) op3 {
		return func(d, x, y, z int) func(l *lane) {
			return func(l *lane) { l.r[d] = uint64(U(f(l.r[x], l.r[y], bytes) + l.r[z])) }
		}
	}
	add2("mul.hi."+s, s, s, s, high(highSigned[S, U]))
	add2("mul.hi."+u, u, u, u, high(highUnsigned[U]))
	add3("mad.hi."+s, s, s, s, s, highAdd(highSigned[S, U]))
	add3("mad.hi."+u, u, u, u, u, highAdd(highUnsigned[U]))
}

func addIntegers() {
	integers[int16, uint16]("16")
	integers[int32, uint32]("32")
	integers[int64, uint64]("64")
	add2("mul.wide.s16", "s32", "s16", "s16", wideSigned[int16, uint16, uint32])
	add2("mul.wide.u16", "u32", "u16", "u16", wideUnsigned[uint16])
	add2("mul.wide.s32", "s64", "s32", "s32", wideSigned[int32, uint32, uint64])
	add2("mul.wide.u32", "u64", "u32", "u32", wideUnsigned[uint32])
	add3("mad.wide.s16", "s32", "s16", "s16", "s32", wideSignedAdd[int16, uint16, uint32])
	add3("mad.wide.u16", "u32", "u16", "u16", "u32", wideUnsignedAdd[uint16, uint32])
	add3("mad.wide.s32", "s64", "s32", "s32", "s64", wideSignedAdd[int32, uint32, uint64])
	add3("mad.wide.u32", "u64", "u32", "u32", "u64", wideUnsignedAdd[uint32, uint64])
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
			add("mov."+t, func(s *statement) { s.move(t) })
		}
	}
	add1("mov.pred", "pred", "pred", movOp)
	add1("cvta.global.u64", "u64", "u64", movOp)
	add1("cvta.to.global.u64", "u64", "u64", movOp)
	for name, base := range map[string]uint64{"shared": sharedWindow, "local": localWindow, "const": constWindow} {
		check := func(l *lane, offset uint64) {
			if offset >= windowSize {
				l.fail("the address does not lie in %s memory", name)
			}
		}
		add1("cvta."+name+".u64", "u64", "u64", func(d, x int) func(l *lane) {
			return func(l *lane) { check(l, l.r[x]); l.r[d] = l.r[x] + base }
		})
		add1("cvta.to."+name+".u64", "u64", "u64", func(d, x int) func(l *lane) {
			return func(l *lane) { check(l, l.r[x]-base); l.r[d] = l.r[x] - base }
		})
	}
}

// move compiles mov, which also packs registers into one and unpacks them.
func (s *statement) move(t string) {
	s.want(2, 2)
	switch {
	case s.operands[0].kind == list:
		s.unpack(t, s.operands[0].parts)
	case s.operands[1].kind == list:
		s.pack(t, s.operands[1].parts)
	default:
		s.in.run = movOp(s.dst(0, t), s.src(1, t))
	}
}

// part is the type of one of n equal parts of type t.
func (s *statement) part(t string, n int) string {
	size := types[t].size / n
	if types[t].class != 'b' || size < 2 || size*n != types[t].size {
		s.fail("%d parts of %s", n, t)
	}
	return map[int]string{2: "b16", 4: "b32", 8: "b64"}[size]
}

func (s *statement) pack(t string, parts []operand) {
	d, part := s.dst(0, t), s.part(t, len(parts))
	width := 8 * types[part].size
	from := make([]int, len(parts))
	for i, p := range parts {
		from[i] = s.slot(p, part, false)
	}
	s.in.run = func(l *lane) {
		v := uint64(0)
		for i, x := range from {
			v |= l.r[x] << (i * width)
		}
		l.r[d] = v
	}
}

func (s *statement) unpack(t string, parts []operand) {
	x, part := s.src(1, t), s.part(t, len(parts))
	width := 8 * types[part].size
	to := make([]int, len(parts))
	for i, p := range parts {
		to[i] = s.target(p, part)
	}
	s.in.run = func(l *lane) {
		v := l.r[x]
		for i, d := range to {
			l.r[d] = v >> (i * width) & (1<<width - 1)
		}
	}
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
	unary := func(opcode, d, x string, f func(v uint64) uint64) {
		add1(opcode, d, x, func(d, x int) func(l *lane) {
			return func(l *lane) { l.r[d] = f(l.r[x]) }
		})
	}
	unary("popc.b32", "u32", "b32", func(v uint64) uint64 { return uint64(bits.OnesCount32(uint32(v))) })
	unary("popc.b64", "u32", "b64", func(v uint64) uint64 { return uint64(bits.OnesCount64(v)) })
	unary("clz.b32", "u32", "b32", func(v uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(v))) })
	unary("clz.b64", "u32", "b64", func(v uint64) uint64 { return uint64(bits.LeadingZeros64(v)) })
	unary("brev.b32", "b32", "b32", func(v uint64) uint64 { return uint64(bits.Reverse32(uint32(v))) })
	unary("brev.b64", "b64", "b64", bits.Reverse64)
	ternary := func(opcode, d, x, y, z string, f func(x, y, z uint64) uint64) {
		add3(opcode, d, x, y, z, func(d, x, y, z int) func(l *lane) {
			return func(l *lane) { l.r[d] = f(l.r[x], l.r[y], l.r[z]) }
		})
	}
	for _, t := range []string{"u32", "s32", "u64", "s64"} {
		width := 8 * types[t].size
		sign := strings.HasPrefix(t, "s")
		ternary("bfe."+t, t, t, "u32", "u32", func(x, from, n uint64) uint64 { return extract(x, from, n, width, sign) })
	}
	for _, t := range []string{"b32", "b64"} {
		width := 8 * types[t].size
		add("bfi."+t, func(s *statement) {
			s.want(5, 5)
			d, x, y, from, n := s.dst(0, t), s.src(1, t), s.src(2, t), s.src(3, "u32"), s.src(4, "u32")
			s.in.run = func(l *lane) { l.r[d] = insert(l.r[x], l.r[y], l.r[from], l.r[n], width) }
		})
	}
	ternary("prmt.b32", "b32", "b32", "b32", "b32", permute)
	ternary("shf.l.wrap.b32", "b32", "b32", "b32", "u32", func(x, y, n uint64) uint64 { return (y<<32 | x) << (n & 31) >> 32 })
	ternary("shf.r.wrap.b32", "b32", "b32", "b32", "u32", func(x, y, n uint64) uint64 { return (y<<32 | x) >> (n & 31) & fullMask })
	ternary("shf.l.clamp.b32", "b32", "b32", "b32", "u32", func(x, y, n uint64) uint64 { return (y<<32 | x) << min(n, 32) >> 32 })
	ternary("shf.r.clamp.b32", "b32", "b32", "b32", "u32", func(x, y, n uint64) uint64 { return (y<<32 | x) >> min(n, 32) & fullMask })
	add("lop3.b32", func(s *statement) {
		s.want(5, 5)
		d, x, y, z, table := s.dst(0, "b32"), s.src(1, "b32"), s.src(2, "b32"), s.src(3, "b32"), s.integer(4)
		if table > 255 {
			s.fail("a table of %d", table)
		}
		s.in.run = func(l *lane) { l.r[d] = logic(l.r[x], l.r[y], l.r[z], table) }
	})
}

// extract gives n bits of x from bit from on; those above the top are the sign, or 0.
func extract(x, from, n uint64, width int, sign bool) uint64 {
	from, n = from&255, n&255
	top := uint64(width - 1)
	fill := uint64(0)
	if sign && n > 0 {
		fill = x >> min(from+n-1, top) & 1
	}
	v := x >> from // 0 from the width on
	if left := width - int(min(from, uint64(width))); int(n) > left {
		n = uint64(left)
	}
	v &= 1<<n - 1
	if fill == 1 {
		v |= ^uint64(0) << n
	}
	return v & (^uint64(0) >> (64 - width))
}

// insert gives y with n bits from bit from on taken from x.
func insert(x, y, from, n uint64, width int) uint64 {
	from, n = from&255, n&255
	ones := (uint64(1)<<n - 1) << from & (^uint64(0) >> (64 - width))
	return y&^ones | x<<from&ones
}

// permute picks four of the eight bytes of y and x; bit 3 of a selector asks for the
// sign of the byte instead.
func permute(x, y, selectors uint64) uint64 {
	v := uint64(0)
	for i := range 4 {
		s := selectors >> (4 * i) & 15
		b := (y<<32 | x) >> (8 * (s & 7)) & 255
		if s&8 != 0 {
			b = b >> 7 * 255
		}
		v |= b << (8 * i)
	}
	return v
}

// logic gives for each bit the entry of the table that the three bits choose.
func logic(x, y, z uint64, table int) uint64 {
	v := uint64(0)
	for i := range 8 {
		if table>>i&1 == 0 {
			continue
		}
		a, b, c := x, y, z
		if i&4 == 0 {
			a = ^a
		}
		if i&2 == 0 {
			b = ^b
		}
		if i&1 == 0 {
			c = ^c
		}
		v |= a & b & c
	}
	return v & fullMask
}
