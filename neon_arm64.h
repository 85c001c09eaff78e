// What the files of NEON kernels share: names of vector registers, instructions
// that the assembler of Go 1.26 does not know, constants, and macros for a chunk of
// 16 elements, which is four vectors of four float32.

// Names of vector registers.
//
// Go writes one vector register in three ways: V12 in vector instructions, F12 in
// FMOVQ, FLDPQ and FSTPQ, and its number, 12, in an instruction made of its fields.
// A kernel names the register once, after Arm's name for it: "#define X Q12". Then
// V(X), F(X) and N(X) write it in these ways, and NEXT(X), NEXT2(X) and NEXT3(X) are
// the registers after it. Most names stand for four registers that hold a chunk.
#define Q0(pick) pick(0, F0, V0, Q1)
#define Q1(pick) pick(1, F1, V1, Q2)
#define Q2(pick) pick(2, F2, V2, Q3)
#define Q3(pick) pick(3, F3, V3, Q4)
#define Q4(pick) pick(4, F4, V4, Q5)
#define Q5(pick) pick(5, F5, V5, Q6)
#define Q6(pick) pick(6, F6, V6, Q7)
#define Q7(pick) pick(7, F7, V7, Q8)
#define Q8(pick) pick(8, F8, V8, Q9)
#define Q9(pick) pick(9, F9, V9, Q10)
#define Q10(pick) pick(10, F10, V10, Q11)
#define Q11(pick) pick(11, F11, V11, Q12)
#define Q12(pick) pick(12, F12, V12, Q13)
#define Q13(pick) pick(13, F13, V13, Q14)
#define Q14(pick) pick(14, F14, V14, Q15)
#define Q15(pick) pick(15, F15, V15, Q16)
#define Q16(pick) pick(16, F16, V16, Q17)
#define Q17(pick) pick(17, F17, V17, Q18)
#define Q18(pick) pick(18, F18, V18, Q19)
#define Q19(pick) pick(19, F19, V19, Q20)
#define Q20(pick) pick(20, F20, V20, Q21)
#define Q21(pick) pick(21, F21, V21, Q22)
#define Q22(pick) pick(22, F22, V22, Q23)
#define Q23(pick) pick(23, F23, V23, Q24)
#define Q24(pick) pick(24, F24, V24, Q25)
#define Q25(pick) pick(25, F25, V25, Q26)
#define Q26(pick) pick(26, F26, V26, Q27)
#define Q27(pick) pick(27, F27, V27, Q28)
#define Q28(pick) pick(28, F28, V28, Q29)
#define Q29(pick) pick(29, F29, V29, Q30)
#define Q30(pick) pick(30, F30, V30, Q31)
#define Q31(pick) pick(31, F31, V31, Q0)

#define PICK_N(n, f, v, next) n
#define PICK_F(n, f, v, next) f
#define PICK_V(n, f, v, next) v
#define PICK_NEXT(n, f, v, next) next

#define N(q) q(PICK_N)
#define F(q) q(PICK_F)
#define V(q) q(PICK_V)
#define NEXT(q) q(PICK_NEXT)
#define NEXT2(q) NEXT(NEXT(q))
#define NEXT3(q) NEXT(NEXT(NEXT(q)))

// Vector instructions that the assembler does not know, as words made of their
// fields. A macro has the name that Go gives the instruction, then the arrangement
// of its destination (of the source, where that is a scalar); its operands are
// names of registers, in Go's order: the destination is last, and d = n - m for
// VFSUB, d = n / m for VFDIV, d = n > m for VFCMGT. Fields: Arm Architecture
// Reference Manual, C4.1, "Advanced SIMD".

// Three registers of one arrangement: 0 1 u 01110 size 1 m opcode 1 n d.
#define THREE_SAME(u, size, opcode, m, n, d) WORD $(1<<30 | (u)<<29 | 0x0e<<24 | (size)<<22 | 1<<21 | N(m)<<16 | (opcode)<<11 | 1<<10 | N(n)<<5 | N(d))

#define VFADD_S4(m, n, d) THREE_SAME(0, 0, 0x1a, m, n, d)
#define VFADD_D2(m, n, d) THREE_SAME(0, 1, 0x1a, m, n, d)
#define VFSUB_S4(m, n, d) THREE_SAME(0, 2, 0x1a, m, n, d)
#define VFSUB_D2(m, n, d) THREE_SAME(0, 3, 0x1a, m, n, d)
#define VFMUL_S4(m, n, d) THREE_SAME(1, 0, 0x1b, m, n, d)
#define VFMUL_D2(m, n, d) THREE_SAME(1, 1, 0x1b, m, n, d)
#define VFDIV_S4(m, n, d) THREE_SAME(1, 0, 0x1f, m, n, d)
#define VFMAX_S4(m, n, d) THREE_SAME(0, 0, 0x1e, m, n, d) // NaN if one is NaN
#define VFMIN_S4(m, n, d) THREE_SAME(0, 2, 0x1e, m, n, d) // NaN if one is NaN
#define VFCMEQ_S4(m, n, d) THREE_SAME(0, 0, 0x1c, m, n, d)
#define VFCMGT_S4(m, n, d) THREE_SAME(1, 2, 0x1c, m, n, d)

// Two registers, or one across its lanes: 0 q u 01110 size 1 kind opcode 10 n d,
// where kind is 0000 or 1000.
#define TWO_REG(q, u, size, kind, opcode, n, d) WORD $((q)<<30 | (u)<<29 | 0x0e<<24 | (size)<<22 | 1<<21 | (kind)<<17 | (opcode)<<12 | 2<<10 | N(n)<<5 | N(d))

#define VFNEG_S4(n, d) TWO_REG(1, 1, 2, 0, 0x0f, n, d)
#define VFCVTL_S4(n, d) TWO_REG(0, 0, 0, 0, 0x17, n, d)  // float16, lower half
#define VFCVTL2_S4(n, d) TWO_REG(1, 0, 0, 0, 0x17, n, d) // upper half
#define VFCVTL_D2(n, d) TWO_REG(0, 0, 1, 0, 0x17, n, d)  // float32, lower half
#define VFCVTL2_D2(n, d) TWO_REG(1, 0, 1, 0, 0x17, n, d) // upper half
#define VFMAXV_S4(n, d) TWO_REG(1, 1, 0, 8, 0x0f, n, d)  // NaN if one is NaN
#define VFMINV_S4(n, d) TWO_REG(1, 1, 2, 8, 0x0f, n, d)

// Instructions that the assembler knows, in the same form.
#define VADD_S4(m, n, d) VADD V(m).S4, V(n).S4, V(d).S4
#define VFMLA_S4(m, n, d) VFMLA V(m).S4, V(n).S4, V(d).S4 // d += n * m, rounded once
#define VAND_B16(m, n, d) VAND V(m).B16, V(n).B16, V(d).B16
#define VORR_B16(m, n, d) VORR V(m).B16, V(n).B16, V(d).B16
#define VEOR_B16(m, n, d) VEOR V(m).B16, V(n).B16, V(d).B16
#define VBIT_B16(m, n, d) VBIT V(m).B16, V(n).B16, V(d).B16 // d = n where m is set
#define VBIF_B16(m, n, d) VBIF V(m).B16, V(n).B16, V(d).B16 // d = n where m is not set
#define TO_EXPONENT(n, d) VSHL $23, V(n).S4, V(d).S4        // an integer's low bits into a float32's exponent
#define CUT_BF16(n, d) VUSHR $16, V(n).S4, V(d).S4          // a float32's upper 16 bits, as an integer
#define ONES_B16(n, d) VUSHR $7, V(n).B16, V(d).B16         // 1 in each byte that is all ones, 0 in one of zeros
#define SWAP_D2(n, d) VEXT $8, V(n).B16, V(n).B16, V(d).B16 // the upper float64, then the lower
#define SET_ZERO(n, d) VEOR_B16(n, n, d)

// The same instruction for four vectors, in registers that follow each other.
// FOUR_M and FOUR_N have one m or one n for all four, FOUR_1 has no m.
#define FOUR(OP, m, n, d) OP(m, n, d); OP(NEXT(m), NEXT(n), NEXT(d)); OP(NEXT2(m), NEXT2(n), NEXT2(d)); OP(NEXT3(m), NEXT3(n), NEXT3(d))
#define FOUR_M(OP, m, n, d) OP(m, n, d); OP(m, NEXT(n), NEXT(d)); OP(m, NEXT2(n), NEXT2(d)); OP(m, NEXT3(n), NEXT3(d))
#define FOUR_N(OP, m, n, d) OP(m, n, d); OP(NEXT(m), n, NEXT(d)); OP(NEXT2(m), n, NEXT2(d)); OP(NEXT3(m), n, NEXT3(d))
#define FOUR_1(OP, n, d) OP(n, d); OP(NEXT(n), NEXT(d)); OP(NEXT2(n), NEXT2(d)); OP(NEXT3(n), NEXT3(d))

// CLEAR sets four registers to 0.
#define CLEAR(d) FOUR_1(SET_ZERO, d, d)

// Constants, each a whole vector; those of PAIR are there twice: LDP fills two
// accumulators for the next multiply-add, and the load units have time where the
// vector units have not.
#define PAIR(off, bits) \
	ONCE(off, bits); \
	ONCE(off+16, bits)
#define ONCE(off, bits) \
	DATA constants<>+(off+0)(SB)/8, $(bits<<32|bits); \
	DATA constants<>+(off+8)(SB)/8, $(bits<<32|bits)
PAIR(0, 0x3c1e76a9)   // exp2C4
PAIR(32, 0x3d635b62)  // exp2C3
PAIR(64, 0x3e75fcda)  // exp2C2
PAIR(96, 0x3f317215)  // exp2C1
PAIR(128, 0x3f800000) // 1
ONCE(160, 0x3aadfb33) // exp2C5
ONCE(176, 0xc2fa0000) // minY = -125
ONCE(192, 0x4b400000) // magic
ONCE(208, 0xff800000) // -Inf
ONCE(224, 0x7f800000) // +Inf
ONCE(240, 0x42f00000) // maxY = 120
ONCE(256, 0xc1a00000) // -20
ONCE(272, 0x41a00000) // 20
ONCE(288, 0x3fb8aa3b) // log2(e)
ONCE(304, 0x7fff)     // rounds to bfloat16
ONCE(320, 1)
ONCE(336, 0x0d800000) // squaresFrom = 2^-100
GLOBL constants<>(SB), RODATA|NOPTR, $352

// By role: bytes 0 to 7 are the bits of roles, the rest belongs to none.
DATA roleBits<>+0(SB)/8, $0x8040201008040201
DATA roleBits<>+8(SB)/8, $0
GLOBL roleBits<>(SB), RODATA|NOPTR, $16

// Indices that spread the bytes of lanes 2i and 2i+1 over a vector of float64.
#define SPREAD(i) \
	DATA spread<>+(16*i)(SB)/8, $((2*i)*0x0101010101010101); \
	DATA spread<>+(16*i+8)(SB)/8, $((2*i+1)*0x0101010101010101)
SPREAD(0)
SPREAD(1)
SPREAD(2)
SPREAD(3)
SPREAD(4)
SPREAD(5)
SPREAD(6)
SPREAD(7)
GLOBL spread<>(SB), RODATA|NOPTR, $128

#define CONSTANTS R19 // the address of constants, in every kernel that uses one

#define CONST_C4 0(CONSTANTS)
#define CONST_C3 32(CONSTANTS)
#define CONST_C2 64(CONSTANTS)
#define CONST_C1 96(CONSTANTS)
#define CONST_ONE 128(CONSTANTS)
#define CONST_C5 160(CONSTANTS)
#define CONST_MINY 176(CONSTANTS)
#define CONST_MAGIC 192(CONSTANTS)
#define CONST_NEGINF 208(CONSTANTS)
#define CONST_POSINF 224(CONSTANTS)
#define CONST_MAXY 240(CONSTANTS)
#define CONST_MINUS20 256(CONSTANTS)
#define CONST_PLUS20 272(CONSTANTS)
#define CONST_LOG2E 288(CONSTANTS)
#define CONST_HALFBF16 304(CONSTANTS)
#define CONST_LSB 320(CONSTANTS)
#define CONST_SQUARESFROM 336(CONSTANTS)

// FOUR_S4 is the list of four registers that a load or store of a chunk takes,
// FOUR_B16 the same list for bytes.
#define FOUR_S4(d) [V(d).S4, V(NEXT(d)).S4, V(NEXT2(d)).S4, V(NEXT3(d)).S4]
#define FOUR_B16(d) [V(d).B16, V(NEXT(d)).B16, V(NEXT2(d)).B16, V(NEXT3(d)).B16]

// FILL makes all four registers the vector that is at an address twice.
#define FILL(at, d) \
	FLDPQ at, (F(d), F(NEXT(d))); \      // the first two registers
	FLDPQ at, (F(NEXT2(d)), F(NEXT3(d))) // the other two

// LOAD4 and STORE4 move four registers from and to memory at off(ptr).
#define LOAD4(off, ptr, d) \
	FLDPQ off(ptr), (F(d), F(NEXT(d))); \         // the first two registers
	FLDPQ off+32(ptr), (F(NEXT2(d)), F(NEXT3(d))) // the other two
#define STORE4(s, off, ptr) \
	FSTPQ (F(s), F(NEXT(s))), off(ptr); \         // the first two registers
	FSTPQ (F(NEXT2(s)), F(NEXT3(s))), off+32(ptr) // the other two

// WIDEN makes four masks of 32 bits, from d on, out of one of 16 bytes; scratch and
// the register after it are overwritten.
#define WIDEN(mask, scratch, d) \
	VZIP1 V(mask).B16, V(mask).B16, V(scratch).B16; \                 // each byte twice: tokens 0 to 7
	VZIP2 V(mask).B16, V(mask).B16, V(NEXT(scratch)).B16; \           // tokens 8 to 15
	VZIP1 V(scratch).H8, V(scratch).H8, V(d).H8; \                    // each byte four times: tokens 0 to 3
	VZIP2 V(scratch).H8, V(scratch).H8, V(NEXT(d)).H8; \              // tokens 4 to 7
	VZIP1 V(NEXT(scratch)).H8, V(NEXT(scratch)).H8, V(NEXT2(d)).H8; \ // tokens 8 to 11
	VZIP2 V(NEXT(scratch)).H8, V(NEXT(scratch)).H8, V(NEXT3(d)).H8    // tokens 12 to 15

// The registers of EXP2 and what is built on it.
#define Y Q0         // in: the exponents y
#define TWO_I Q4     // 2^(y-f), or its exponent without the bias
#define FRAC Q8      // f, y less the integer next to it
#define TWO_Y Q12    // out: 2^f, or 2^y
#define HORNER Q16   // the other accumulator of Horner's rule
#define MAXY Q27     // constants
#define C5 Q28
#define MINY Q29
#define MAGIC Q30
#define ONE Q31

// LOAD_CONSTANTS loads the constants that EXP2, POWER and CLAMP use.
#define LOAD_CONSTANTS \
	FMOVQ CONST_MAXY, F(MAXY); \   // the upper limit of y
	FMOVQ CONST_C5, F(C5); \       // the highest coefficient of 2^f
	FMOVQ CONST_MINY, F(MINY); \   // the lower limit of y
	FMOVQ CONST_MAGIC, F(MAGIC); \ // finds the integer next to y
	FMOVQ CONST_ONE, F(ONE)        // its bits are the bias of an exponent

// EXP2 is for the y of Y: TWO_Y = 2^f, TWO_I = the exponent of 2^(y-f), without its
// bias. y + magic has the integer next to y in its low bits, and f is y less that
// integer. C5 and MAGIC hold their constants; FRAC and HORNER are overwritten.
#define EXP2 \
	FOUR_M(VFADD_S4, MAGIC, Y, TWO_I); \    // the integer next to y, in the low bits
	FOUR_M(VFSUB_S4, MAGIC, TWO_I, FRAC); \ // that integer
	FILL(CONST_C4, TWO_Y); \                // C4
	FOUR(VFSUB_S4, FRAC, Y, FRAC); \        // f = y - that integer
	FILL(CONST_C3, HORNER); \               // C3
	FOUR_M(VFMLA_S4, C5, FRAC, TWO_Y); \    // p = C5*f + C4
	FOUR(VFMLA_S4, TWO_Y, FRAC, HORNER); \  // p = p*f + C3
	FILL(CONST_C2, TWO_Y); \                // C2
	FOUR(VFMLA_S4, HORNER, FRAC, TWO_Y); \  // p = p*f + C2
	FILL(CONST_C1, HORNER); \               // C1
	FOUR(VFMLA_S4, TWO_Y, FRAC, HORNER); \  // p = p*f + C1
	FILL(CONST_ONE, TWO_Y); \               // 1
	FOUR(VFMLA_S4, HORNER, FRAC, TWO_Y); \  // p = p*f + 1 = 2^f
	FOUR_1(TO_EXPONENT, TWO_I, TWO_I)       // the integer in the place of the exponent

// POWER makes TWO_Y the 2^y of Y. ONE, whose bits are the bias, holds its constant too.
#define POWER POWER_TO(TWO_Y)

// POWER_TO puts them into four other registers.
#define POWER_TO(d) \
	EXP2; \                               // 2^f, and the exponent of 2^(y-f)
	FOUR_M(VADD_S4, ONE, TWO_I, TWO_I); \ // 2^(y-f)
	FOUR(VFMUL_S4, TWO_I, TWO_Y, d)       // 2^y = 2^f 2^(y-f)

// CLAMP: Y into [MINY, MAXY], NaN stays.
#define CLAMP \
	FOUR_M(VFMAX_S4, MINY, Y, Y); \ // not below minY
	FOUR_M(VFMIN_S4, MAXY, Y, Y)    // not above maxY

// FLUSH adds the four float32 of register v to four float64 at off(ptr), FLUSH4
// those of four registers to sixteen. LOW, HIGH and WIDE are overwritten.
#define LOW Q0       // the lower two of v, as float64
#define HIGH Q1      // the upper two
#define WIDE Q2      // the sums, in two registers
#define FLUSH(v, off, ptr) \
	FLDPQ off(ptr), (F(WIDE), F(NEXT(WIDE))); \ // what is there
	VFCVTL_D2(v, LOW); \                        // elements 0 and 1 as float64
	VFCVTL2_D2(v, HIGH); \                      // elements 2 and 3
	VFADD_D2(LOW, WIDE, WIDE); \                // the sums of elements 0 and 1
	VFADD_D2(HIGH, NEXT(WIDE), NEXT(WIDE)); \   // of elements 2 and 3
	FSTPQ (F(WIDE), F(NEXT(WIDE))), off(ptr)
#define FLUSH4(v, off, ptr) \
	FLUSH(v, off, ptr); \           // lanes 0 to 3
	FLUSH(NEXT(v), off+32, ptr); \  // lanes 4 to 7
	FLUSH(NEXT2(v), off+64, ptr); \ // lanes 8 to 11
	FLUSH(NEXT3(v), off+96, ptr)    // lanes 12 to 15
