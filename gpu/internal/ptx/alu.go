package ptx

import (
	"math/bits"
	"strings"
)

type unsigned interface {
	uint8 | uint16 | uint32 | uint64
}
type signed interface{ int8 | int16 | int32 | int64 }

// integers enters the instructions on integers of one size. U is the unsigned type of that
// size, and S the signed one. Results go to the register through U, so that the bits above
// are 0.
func integers[S signed, U unsigned](size string) {
	s, u, b := "s"+size, "u"+size, "b"+size
	for _, t := range []string{s, u} {
		three := strings.Repeat(t+" ", 3)
		addPlain("add."+t, three, func(l *lane, in *instr) { l.r[in.d] = uint64(U(l.r[in.x]) + U(l.r[in.y])) })
		addPlain("sub."+t, three, func(l *lane, in *instr) { l.r[in.d] = uint64(U(l.r[in.x]) - U(l.r[in.y])) })
		addPlain("mul.lo."+t, three, func(l *lane, in *instr) { l.r[in.d] = uint64(U(l.r[in.x]) * U(l.r[in.y])) })
		addPlain("mad.lo."+t, three+t, func(l *lane, in *instr) {
			l.r[in.d] = uint64(U(l.r[in.x])*U(l.r[in.y]) + U(l.r[in.z]))
		})
	}
	three := strings.Repeat(s+" ", 3)
	addPlain("min."+s, three, func(l *lane, in *instr) { l.r[in.d] = uint64(U(min(S(l.r[in.x]), S(l.r[in.y])))) })
	addPlain("max."+s, three, func(l *lane, in *instr) { l.r[in.d] = uint64(U(max(S(l.r[in.x]), S(l.r[in.y])))) })
	addPlain("neg."+s, s+" "+s, func(l *lane, in *instr) { l.r[in.d] = uint64(-U(l.r[in.x])) })
	three = strings.Repeat(u+" ", 3)
	addPlain("min."+u, three, func(l *lane, in *instr) { l.r[in.d] = min(l.r[in.x], l.r[in.y]) })
	addPlain("max."+u, three, func(l *lane, in *instr) { l.r[in.d] = max(l.r[in.x], l.r[in.y]) })
	addPlain("div."+u, three, func(l *lane, in *instr) {
		if l.r[in.y] == 0 { // what a GPU makes of it is not said
			l.fail("a division by 0")
		}
		l.r[in.d] = l.r[in.x] / l.r[in.y]
	})
	// Shifts to the right bring zeros, or the sign of a signed number. Shifts by more than
	// the size are as shifts by the size.
	addPlain("shr."+s, s+" "+s+" u32", func(l *lane, in *instr) { l.r[in.d] = uint64(U(S(l.r[in.x]) >> l.r[in.y])) })
	addPlain("shr."+u, u+" "+u+" u32", func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] >> l.r[in.y] })
	addPlain("shl."+b, b+" "+b+" u32", func(l *lane, in *instr) { l.r[in.d] = uint64(U(l.r[in.x]) << l.r[in.y]) })
}

func addIntegers() {
	integers[int16, uint16]("16")
	integers[int32, uint32]("32")
	integers[int64, uint64]("64")
	addPlain("mul.wide.u32", "u64 u32 u32", func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] * l.r[in.y] })
	addPlain("mul.wide.s32", "s64 s32 s32", func(l *lane, in *instr) {
		l.r[in.d] = uint64(int64(int32(l.r[in.x])) * int64(int32(l.r[in.y])))
	})
}

// ---------------------------------------------------------------- moves and selection

func move(l *lane, in *instr) { l.r[in.d] = l.r[in.x] }

func addMoves() {
	for _, t := range strings.Fields("b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64") {
		addPlain("mov."+t, t+" "+t, move)
		addPlain("selp."+t, strings.Repeat(t+" ", 3)+"pred", func(l *lane, in *instr) {
			from := in.x
			if l.r[in.z] == 0 {
				from = in.y
			}
			l.r[in.d] = l.r[from]
		})
	}
	addPlain("mov.pred", "pred pred", move)
	// Global memory has the same addresses in the generic space, in which nothing else is.
	addPlain("cvta.global.u64", "u64 u64", move)
	addPlain("cvta.to.global.u64", "u64 u64", move)
}

// ---------------------------------------------------------------- bits

func addBits() {
	for t, ones := range map[string]uint64{"pred": 1, "b16": 1<<16 - 1, "b32": 1<<32 - 1, "b64": 1<<64 - 1} {
		three := strings.Repeat(t+" ", 3)
		addPlain("and."+t, three, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] & l.r[in.y] })
		addPlain("or."+t, three, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] | l.r[in.y] })
		addPlain("xor."+t, three, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] ^ l.r[in.y] })
		addPlain("not."+t, t+" "+t, func(l *lane, in *instr) { l.r[in.d] = l.r[in.x] ^ ones })
	}
	addPlain("popc.b32", "u32 b32", func(l *lane, in *instr) { l.r[in.d] = uint64(bits.OnesCount64(l.r[in.x])) })
	for t, width := range map[string]uint64{"u32": 32, "u64": 64} {
		// n bits of x from one on; those above the top are 0.
		addPlain("bfe."+t, t+" "+t+" u32 u32", func(l *lane, in *instr) {
			from, n := l.r[in.y]&255, l.r[in.z]&255
			l.r[in.d] = l.r[in.x] >> from & (1<<min(n, width) - 1)
		})
	}
}
