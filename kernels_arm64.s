//go:build !noasm && !purego

#include "textflag.h"
#include "neon_arm64.h"

// Every kernel with NEON, as every ARMv8.0 has it. The arithmetic and its order
// are those of kernels_portable.go: a chunk of 16 elements is four vectors, and
// all four go through each step together. Macros have fixed registers, because
// those of neon_arm64.h take numbers where the assembler takes names.

// Constants twice over: LDP fills two accumulators for the next multiply-add, and
// the load units have time where the vector units have not.
#define PAIR(off, bits) \
	DATA const128<>+(off+0)(SB)/8, $(bits<<32|bits); \
	DATA const128<>+(off+8)(SB)/8, $(bits<<32|bits); \
	DATA const128<>+(off+16)(SB)/8, $(bits<<32|bits); \
	DATA const128<>+(off+24)(SB)/8, $(bits<<32|bits)
#define ONCE(off, bits) \
	DATA const128<>+(off+0)(SB)/8, $(bits<<32|bits); \
	DATA const128<>+(off+8)(SB)/8, $(bits<<32|bits)
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
GLOBL const128<>(SB), RODATA|NOPTR, $336

#define C4 0(CONST)
#define C3 32(CONST)
#define C2 64(CONST)
#define C1 96(CONST)
#define ONE 128(CONST)
#define C5 160(CONST)
#define MINY 176(CONST)
#define MAGIC 192(CONST)
#define NEGINF 208(CONST)
#define POSINF 224(CONST)
#define MAXY 240(CONST)
#define MINUS20 256(CONST)
#define PLUS20 272(CONST)
#define LOG2E 288(CONST)
#define HALFBF16 304(CONST)
#define LSB 320(CONST)

#define CONST R19

// EXP2 is for the y of V0-V3: V12-V15 = 2^f, V4-V7 = the exponent of 2^(y-f)
// without its bias. y + magic has the integer next to y in its low bits, and f is
// y less that integer. V28 holds C5 and V30 MAGIC; V8-V11 and V16-V19 are
// overwritten.
#define EXP2 \
	FOUR_M(VFADD_S4, 30, 0, 4); \
	FOUR_M(VFSUB_S4, 30, 4, 8); \
	FLDPQ C4, (F12, F13); \
	FLDPQ C4, (F14, F15); \
	FOUR(VFSUB_S4, 8, 0, 8); \
	FLDPQ C3, (F16, F17); \
	FLDPQ C3, (F18, F19); \
	VFMLA V28.S4, V8.S4, V12.S4; \
	VFMLA V28.S4, V9.S4, V13.S4; \
	VFMLA V28.S4, V10.S4, V14.S4; \
	VFMLA V28.S4, V11.S4, V15.S4; \
	VFMLA V12.S4, V8.S4, V16.S4; \
	VFMLA V13.S4, V9.S4, V17.S4; \
	VFMLA V14.S4, V10.S4, V18.S4; \
	VFMLA V15.S4, V11.S4, V19.S4; \
	FLDPQ C2, (F12, F13); \
	FLDPQ C2, (F14, F15); \
	VFMLA V16.S4, V8.S4, V12.S4; \
	VFMLA V17.S4, V9.S4, V13.S4; \
	VFMLA V18.S4, V10.S4, V14.S4; \
	VFMLA V19.S4, V11.S4, V15.S4; \
	FLDPQ C1, (F16, F17); \
	FLDPQ C1, (F18, F19); \
	VFMLA V12.S4, V8.S4, V16.S4; \
	VFMLA V13.S4, V9.S4, V17.S4; \
	VFMLA V14.S4, V10.S4, V18.S4; \
	VFMLA V15.S4, V11.S4, V19.S4; \
	FLDPQ ONE, (F12, F13); \
	FLDPQ ONE, (F14, F15); \
	VFMLA V16.S4, V8.S4, V12.S4; \
	VFMLA V17.S4, V9.S4, V13.S4; \
	VFMLA V18.S4, V10.S4, V14.S4; \
	VFMLA V19.S4, V11.S4, V15.S4; \
	VSHL $23, V4.S4, V4.S4; \
	VSHL $23, V5.S4, V5.S4; \
	VSHL $23, V6.S4, V6.S4; \
	VSHL $23, V7.S4, V7.S4

// BIAS turns the exponents of V4-V7 into 2^(y-f); V31 holds 1.
#define BIAS \
	VADD V31.S4, V4.S4, V4.S4; \
	VADD V31.S4, V5.S4, V5.S4; \
	VADD V31.S4, V6.S4, V6.S4; \
	VADD V31.S4, V7.S4, V7.S4

// POWER makes V12-V15 the 2^y of V0-V3.
#define POWER \
	EXP2; \
	BIAS; \
	FOUR(VFMUL_S4, 4, 12, 12)

// CLAMP: V0-V3 into [V29, V27], NaN stays.
#define CLAMP \
	FOUR_M(VFMAX_S4, 29, 0, 0); \
	FOUR_M(VFMIN_S4, 27, 0, 0)

// LOAD_BF16 widens 16 bfloat16 from ptr into V12-V15 and steps over them: zeros go
// below each. V4-V6 are overwritten.
#define LOAD_BF16(ptr) \
	VLD1.P 32(ptr), [V4.H8, V5.H8]; \
	VEOR V6.B16, V6.B16, V6.B16; \
	VZIP1 V4.H8, V6.H8, V12.H8; \
	VZIP2 V4.H8, V6.H8, V13.H8; \
	VZIP1 V5.H8, V6.H8, V14.H8; \
	VZIP2 V5.H8, V6.H8, V15.H8

// LOAD_F16 widens 16 float16.
#define LOAD_F16(ptr) \
	VLD1.P 32(ptr), [V4.H8, V5.H8]; \
	VFCVTL_S4(4, 12); \
	VFCVTL2_S4(4, 13); \
	VFCVTL_S4(5, 14); \
	VFCVTL2_S4(5, 15)

// WIDEN makes four masks of 32 bits out of one of 16 bytes; a and b are overwritten.
#define WIDEN(mask, a, b, d0, d1, d2, d3) \
	VZIP1 mask.B16, mask.B16, a.B16; \
	VZIP2 mask.B16, mask.B16, b.B16; \
	VZIP1 a.H8, a.H8, d0.H8; \
	VZIP2 a.H8, a.H8, d1.H8; \
	VZIP1 b.H8, b.H8, d2.H8; \
	VZIP2 b.H8, b.H8, d3.H8

// CLEAR sets four registers to 0.
#define CLEAR(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16; \
	VEOR b.B16, b.B16, b.B16; \
	VEOR c.B16, c.B16, c.B16; \
	VEOR d.B16, d.B16, d.B16

// FLUSH adds the four float32 of register v to four float64 at off(ptr).
#define FLUSH(v, off, ptr) \
	FLDPQ off(ptr), (F2, F3); \
	VFCVTL_D2(v, 0); \
	VFCVTL2_D2(v, 1); \
	VFADD_D2(0, 2, 2); \
	VFADD_D2(1, 3, 3); \
	FSTPQ (F2, F3), off(ptr)

#define X_PTR R0
#define TYPE R1      // 0 float32, 1 bfloat16, 2 float16
#define CHUNKS R2    // whole chunks of 16 left in the row
#define TAIL R3      // a last, padded chunk of float32, or 0
#define STATE R4
#define BLOCK R5     // chunks left in the block, the tail counted
#define GROUP R6     // chunks left in the group
#define START R7     // chunk where the block began
#define DONE R8      // chunks done
#define ENTROPY R9
#define KLO R10      // kLo's bits: 0 at temperature 1
#define LOCALS R11   // the block's sums of 2^y, those of y 2^y, and -c twice
#define SUMS R12     // st.s, then st.t
#define KLO_PTR R13
#define TMP R14

// func rowBlocksNEON(x unsafe.Pointer, typ, chunks int, tail *[16]float32, st *rowState, entropy bool) int
//
//	for each block {
//		bs, bt, top = 0, 0, -Inf           // 16 lanes each; top 4
//		for each group of 8 chunks {
//			gs, gt = 0, 0
//			for each chunk {
//				x = next 16 elements, or the tail
//				top = max(top, x)
//				y = max(minY, x*k - c)     // + x*kLo, at a temperature
//				p = 2^y
//				gs, gt = gs + p, gt + y*p
//			}
//			bs, bt = bs + gs, bt + gt
//		}
//		if any top > threshold { return the block's first chunk }
//		st.s, st.t = st.s + bs, st.t + bt  // float64
//	}
//	return -1
//
// An element above the threshold may wrap the exponent of its p: the block is
// left out then. A NaN hides what else its lane of top saw, and makes the row's
// sums NaN.
TEXT ·rowBlocksNEON(SB), NOSPLIT, $168-56
	MOVD   x+0(FP), X_PTR
	MOVD   typ+8(FP), TYPE
	MOVD   chunks+16(FP), CHUNKS
	MOVD   tail+24(FP), TAIL
	MOVD   st+32(FP), STATE
	MOVBU  entropy+40(FP), ENTROPY
	MOVD   $const128<>(SB), CONST
	MOVD   $locals-160(SP), LOCALS
	MOVWU  4(STATE), KLO
	ADD    $4, STATE, KLO_PTR
	ADD    $24, STATE, SUMS
	FMOVQ  C5, F28
	FMOVQ  MINY, F29
	FMOVQ  MAGIC, F30
	ADD    $8, STATE, TMP
	VLD1R  (TMP), [V0.S4]
	VFNEG_S4(0, 0)
	FSTPQ  (F0, F0), 128(LOCALS)            // -c
	MOVD   $0, DONE

block:
	CMP    $0, TAIL
	CSET   NE, TMP
	ADDS   TMP, CHUNKS, BLOCK
	BEQ    done
	MOVD   $64, TMP
	CMP    TMP, BLOCK
	CSEL   GT, TMP, BLOCK, BLOCK
	MOVD   DONE, START
	ADD    BLOCK, DONE
	FMOVQ  NEGINF, F31                      // top
	CLEAR(V0, V1, V2, V3)
	FSTPQ  (F0, F1), 0(LOCALS)
	FSTPQ  (F0, F1), 32(LOCALS)
	FSTPQ  (F0, F1), 64(LOCALS)
	FSTPQ  (F0, F1), 96(LOCALS)

group:
	MOVD   $8, GROUP
	CMP    GROUP, BLOCK
	CSEL   LT, BLOCK, GROUP, GROUP
	SUB    GROUP, BLOCK
	CLEAR(V20, V21, V22, V23)               // gs
	CLEAR(V24, V25, V26, V27)               // gt

chunk:
	SUBS   $1, CHUNKS
	BLT    last
	CMP    $1, TYPE
	BEQ    bf16
	BHI    f16
	VLD1.P 64(X_PTR), [V12.S4, V13.S4, V14.S4, V15.S4]

loaded:
	VLD1R  (STATE), [V8.S4]                 // k
	FLDPQ  128(LOCALS), (F0, F1)            // -c
	FLDPQ  128(LOCALS), (F2, F3)
	VFMAX_S4(12, 31, 31)
	VFMAX_S4(13, 31, 31)
	VFMAX_S4(14, 31, 31)
	VFMAX_S4(15, 31, 31)
	VFMLA  V8.S4, V12.S4, V0.S4             // y
	VFMLA  V8.S4, V13.S4, V1.S4
	VFMLA  V8.S4, V14.S4, V2.S4
	VFMLA  V8.S4, V15.S4, V3.S4
	CBNZ   KLO, temperature

y:
	FOUR_M(VFMAX_S4, 29, 0, 0)
	EXP2
	CBZ    ENTROPY, no_entropy
	VADD   V4.S4, V12.S4, V12.S4            // p = 2^f 2^(y-f); a NaN here may be lost, but not in gt
	VADD   V5.S4, V13.S4, V13.S4
	VADD   V6.S4, V14.S4, V14.S4
	VADD   V7.S4, V15.S4, V15.S4
	FOUR(VFADD_S4, 12, 20, 20)
	VFMLA  V12.S4, V0.S4, V24.S4
	VFMLA  V13.S4, V1.S4, V25.S4
	VFMLA  V14.S4, V2.S4, V26.S4
	VFMLA  V15.S4, V3.S4, V27.S4
	SUBS   $1, GROUP
	BNE    chunk
	B      group_done

no_entropy:
	FMOVQ  ONE, F8
	VADD   V8.S4, V4.S4, V4.S4              // 2^(y-f)
	VADD   V8.S4, V5.S4, V5.S4
	VADD   V8.S4, V6.S4, V6.S4
	VADD   V8.S4, V7.S4, V7.S4
	VFMLA  V4.S4, V12.S4, V20.S4            // the product is exact
	VFMLA  V5.S4, V13.S4, V21.S4
	VFMLA  V6.S4, V14.S4, V22.S4
	VFMLA  V7.S4, V15.S4, V23.S4
	SUBS   $1, GROUP
	BNE    chunk

group_done:
	FLDPQ  0(LOCALS), (F0, F1)
	FLDPQ  32(LOCALS), (F2, F3)
	FLDPQ  64(LOCALS), (F4, F5)
	FLDPQ  96(LOCALS), (F6, F7)
	FOUR(VFADD_S4, 20, 0, 20)
	FOUR(VFADD_S4, 24, 4, 24)
	FSTPQ  (F20, F21), 0(LOCALS)
	FSTPQ  (F22, F23), 32(LOCALS)
	FSTPQ  (F24, F25), 64(LOCALS)
	FSTPQ  (F26, F27), 96(LOCALS)
	CBNZ   BLOCK, group
	ADD    $12, STATE, TMP
	VLD1R  (TMP), [V0.S4]
	VFCMGT_S4(0, 31, 0)                     // top > threshold
	VUADDLV V0.S4, V0
	VMOV   V0.D[0], TMP
	CBNZ   TMP, above
	FLUSH(20, 0, SUMS)
	FLUSH(21, 32, SUMS)
	FLUSH(22, 64, SUMS)
	FLUSH(23, 96, SUMS)
	FLUSH(24, 128, SUMS)
	FLUSH(25, 160, SUMS)
	FLUSH(26, 192, SUMS)
	FLUSH(27, 224, SUMS)
	B      block                            // after the tail, CHUNKS is -1

done:
	MOVD   $-1, TMP
	MOVD   TMP, ret+48(FP)
	RET

above:
	MOVD   START, ret+48(FP)
	RET

bf16:
	LOAD_BF16(X_PTR)
	B      loaded

f16:
	LOAD_F16(X_PTR)
	B      loaded

last:
	VLD1   (TAIL), [V12.S4, V13.S4, V14.S4, V15.S4]
	B      loaded

temperature:
	VLD1R  (KLO_PTR), [V8.S4]
	VFMLA  V8.S4, V12.S4, V0.S4             // y += x*kLo
	VFMLA  V8.S4, V13.S4, V1.S4
	VFMLA  V8.S4, V14.S4, V2.S4
	VFMLA  V8.S4, V15.S4, V3.S4
	B      y

// func blockMaxNEON(x unsafe.Pointer, typ, chunks int, tail *[16]float32) float32
//
// The largest element; NaN if one is NaN.
TEXT ·blockMaxNEON(SB), NOSPLIT, $0-36
	MOVD   x+0(FP), X_PTR
	MOVD   typ+8(FP), TYPE
	MOVD   chunks+16(FP), CHUNKS
	MOVD   tail+24(FP), TAIL
	MOVD   $const128<>(SB), CONST
	FMOVQ  NEGINF, F20
	FMOVQ  NEGINF, F21
	FMOVQ  NEGINF, F22
	FMOVQ  NEGINF, F23

max_chunk:
	SUBS   $1, CHUNKS
	BLT    max_last
	CMP    $1, TYPE
	BEQ    max_bf16
	BHI    max_f16
	VLD1.P 64(X_PTR), [V12.S4, V13.S4, V14.S4, V15.S4]

max_loaded:
	FOUR(VFMAX_S4, 12, 20, 20)
	TBZ    $63, CHUNKS, max_chunk           // not after the tail

max_reduce:
	VFMAX_S4(21, 20, 20)
	VFMAX_S4(23, 22, 22)
	VFMAX_S4(22, 20, 20)
	VFMAXV_S4(20, 0)
	FMOVS  F0, ret+32(FP)
	RET

max_bf16:
	LOAD_BF16(X_PTR)
	B      max_loaded

max_f16:
	LOAD_F16(X_PTR)
	B      max_loaded

max_last:
	CBZ    TAIL, max_reduce
	VLD1   (TAIL), [V12.S4, V13.S4, V14.S4, V15.S4]
	B      max_loaded

#undef STATE
#undef LOCALS
#undef TMP
#define DST R3
#define Q R4         // the constants
#define LOCALS R5
#define TMP R6
#define A_PTR R7
#define B_PTR R8

// NARROW rounds register v to bfloat16 in its upper halves, to nearest even (0x7fff
// and the bit that stays last are added); a NaN, quiet as arithmetic left it, is
// cut. V0 and V1 hold HALFBF16 and LSB, and m is v == v; t is overwritten.
#define NARROW(v, m, t) \
	VUSHR $16, v.S4, t.S4; \
	VAND V1.B16, t.B16, t.B16; \
	VADD V0.S4, t.S4, t.S4; \
	VADD v.S4, t.S4, t.S4; \
	VBIT m.B16, t.B16, v.B16

// func rowGradientNEON(dst, x unsafe.Pointer, typ, chunks int, q *gradConsts)
//
//	y = x*k - c                            // + x*kLo, at a temperature
//	dst = y < minY ? 0 : 2^min(maxY, y) * (y*a + b)
TEXT ·rowGradientNEON(SB), NOSPLIT, $72-40
	MOVD   dst+0(FP), DST
	MOVD   x+8(FP), X_PTR
	MOVD   typ+16(FP), TYPE
	MOVD   chunks+24(FP), CHUNKS
	MOVD   q+32(FP), Q
	MOVD   $const128<>(SB), CONST
	MOVD   $locals-64(SP), LOCALS
	MOVWU  4(Q), KLO
	ADD    $4, Q, KLO_PTR
	ADD    $12, Q, A_PTR
	ADD    $16, Q, B_PTR
	VLD1R  (Q), [V24.S4]                    // k
	VLD1R  (KLO_PTR), [V25.S4]
	VLD1R  (A_PTR), [V26.S4]
	ADD    $8, Q, TMP
	VLD1R  (TMP), [V0.S4]
	VLD1R  (B_PTR), [V1.S4]
	VFNEG_S4(0, 0)
	FSTPQ  (F0, F0), 0(LOCALS)              // -c
	FSTPQ  (F1, F1), 32(LOCALS)             // b
	FMOVQ  MAXY, F27
	FMOVQ  C5, F28
	FMOVQ  MINY, F29
	FMOVQ  MAGIC, F30
	FMOVQ  ONE, F31

gradient:
	CBNZ   TYPE, gradient_bf16
	VLD1.P 64(X_PTR), [V12.S4, V13.S4, V14.S4, V15.S4]

gradient_loaded:
	FLDPQ  0(LOCALS), (F20, F21)
	FLDPQ  0(LOCALS), (F22, F23)
	VFMLA  V24.S4, V12.S4, V20.S4           // y
	VFMLA  V24.S4, V13.S4, V21.S4
	VFMLA  V24.S4, V14.S4, V22.S4
	VFMLA  V24.S4, V15.S4, V23.S4
	CBNZ   KLO, gradient_temperature

gradient_y:
	FOUR_M(VFMIN_S4, 27, 20, 0)
	POWER
	FLDPQ  32(LOCALS), (F16, F17)
	FLDPQ  32(LOCALS), (F18, F19)
	VFMLA  V26.S4, V20.S4, V16.S4           // y*a + b
	VFMLA  V26.S4, V21.S4, V17.S4
	VFMLA  V26.S4, V22.S4, V18.S4
	VFMLA  V26.S4, V23.S4, V19.S4
	FOUR_N(VFCMGT_S4, 20, 29, 20)           // minY > y: not where y is NaN
	FOUR(VFMUL_S4, 16, 12, 12)
	VEOR   V0.B16, V0.B16, V0.B16
	VBIT   V20.B16, V0.B16, V12.B16
	VBIT   V21.B16, V0.B16, V13.B16
	VBIT   V22.B16, V0.B16, V14.B16
	VBIT   V23.B16, V0.B16, V15.B16
	CBNZ   TYPE, gradient_narrow
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(DST)
	SUBS   $1, CHUNKS
	BNE    gradient
	RET

gradient_narrow:
	FMOVQ  HALFBF16, F0
	FMOVQ  LSB, F1
	FOUR(VFCMEQ_S4, 12, 12, 4)
	NARROW(V12, V4, V8)
	NARROW(V13, V5, V9)
	NARROW(V14, V6, V10)
	NARROW(V15, V7, V11)
	VUZP2  V13.H8, V12.H8, V12.H8           // upper halves
	VUZP2  V15.H8, V14.H8, V13.H8
	VST1.P [V12.H8, V13.H8], 32(DST)
	SUBS   $1, CHUNKS
	BNE    gradient
	RET

gradient_bf16:
	LOAD_BF16(X_PTR)
	B      gradient_loaded

gradient_temperature:
	VFMLA  V25.S4, V12.S4, V20.S4           // y += x*kLo
	VFMLA  V25.S4, V13.S4, V21.S4
	VFMLA  V25.S4, V14.S4, V22.S4
	VFMLA  V25.S4, V15.S4, V23.S4
	B      gradient_y

#undef TYPE
#undef DST
#undef Q
#define DST R1
#define ROLE R3
#define Q R4
#define M R4
#define COUNT R7

// Bytes 0 to 7 are the bits of roles, the rest belongs to none.
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

// MOMENTS4 adds 4 elements: their indices of masks are in lo and hi, and their sums
// in s and s+1 (numbers), with the squares 8 further.
#define MOMENTS4(lo, hi, s) \
	VLD1.P 16(X_PTR), [V27.S4]; \
	VTBL lo.B16, [V24.B16], V30.B16; \
	VTBL hi.B16, [V24.B16], V31.B16; \
	VFCVTL_D2(27, 28); \
	VFCVTL2_D2(27, 29); \
	VFSUB_D2(25, 28, 28); \
	VFSUB_D2(25, 29, 29); \
	VAND V30.B16, V28.B16, V28.B16; \
	VAND V31.B16, V29.B16, V29.B16; \
	VFADD_D2(28, s, s); \
	VFADD_D2(29, s+1, s+1); \
	VFMUL_D2(28, 28, 28); \
	VFMUL_D2(29, 29, 29); \
	VFADD_D2(28, s+8, s+8); \
	VFADD_D2(29, s+9, s+9)

// func maskedMomentsNEON(x *float32, role *uint8, chunks, roles int, shift float64, m *momentSums)
//
//	d = float64(x) - shift where 1<<role is in roles, else 0
//	m.sum, m.squares, m.count = m.sum+d, m.squares+d*d, m.count+1
TEXT ·maskedMomentsNEON(SB), NOSPLIT, $0-48
	MOVD   x+0(FP), X_PTR
	MOVD   role+8(FP), ROLE
	MOVD   chunks+16(FP), CHUNKS
	MOVD   roles+24(FP), TMP
	FMOVD  shift+32(FP), F25
	MOVD   m+40(FP), M
	VDUP   TMP, V26.B16
	MOVD   $roleBits<>(SB), TMP
	VLD1   (TMP), [V24.B16]
	VCMTST V24.B16, V26.B16, V26.B16        // by role: whether it is in roles
	VDUP   V25.D[0], V25.D2
	MOVD   $spread<>(SB), TMP
	VLD1.P 64(TMP), [V16.B16, V17.B16, V18.B16, V19.B16]
	VLD1   (TMP), [V20.B16, V21.B16, V22.B16, V23.B16]
	FLDPQ  0(M), (F0, F1)                   // sum
	FLDPQ  32(M), (F2, F3)
	FLDPQ  64(M), (F4, F5)
	FLDPQ  96(M), (F6, F7)
	FLDPQ  128(M), (F8, F9)                 // squares
	FLDPQ  160(M), (F10, F11)
	FLDPQ  192(M), (F12, F13)
	FLDPQ  224(M), (F14, F15)
	MOVD   256(M), COUNT

moments:
	VLD1.P 16(ROLE), [V24.B16]
	VTBL   V24.B16, [V26.B16], V24.B16      // 0 for roles that the table has not
	VUSHR  $7, V24.B16, V27.B16
	VUADDLV V27.B16, V27
	VMOV   V27.H[0], TMP
	ADD    TMP, COUNT
	MOMENTS4(V16, V17, 0)
	MOMENTS4(V18, V19, 2)
	MOMENTS4(V20, V21, 4)
	MOMENTS4(V22, V23, 6)
	SUBS   $1, CHUNKS
	BNE    moments
	FSTPQ  (F0, F1), 0(M)
	FSTPQ  (F2, F3), 32(M)
	FSTPQ  (F4, F5), 64(M)
	FSTPQ  (F6, F7), 96(M)
	FSTPQ  (F8, F9), 128(M)
	FSTPQ  (F10, F11), 160(M)
	FSTPQ  (F12, F13), 192(M)
	FSTPQ  (F14, F15), 224(M)
	MOVD   COUNT, 256(M)
	RET

// func actFocusWeightsNEON(dst, signal *float32, role *uint8, chunks int, q *actFocusConsts)
//
//	d = (signal - muHi) - muLo
//	dst = action: 1 + beta / (1 + 2^clamp(d*k)); reasoning: alpha; masked: 0
TEXT ·actFocusWeightsNEON(SB), NOSPLIT, $0-40
	MOVD   dst+0(FP), DST
	MOVD   signal+8(FP), X_PTR
	MOVD   role+16(FP), ROLE
	MOVD   chunks+24(FP), CHUNKS
	MOVD   q+32(FP), Q
	MOVD   $const128<>(SB), CONST
	VLD1R.P 4(Q), [V20.S4]                  // muHi
	VLD1R.P 4(Q), [V21.S4]                  // muLo
	VLD1R.P 4(Q), [V22.S4]                  // k
	VLD1R.P 4(Q), [V23.S4]                  // alpha
	VLD1R  (Q), [V24.S4]                    // beta
	VMOVI  $1, V25.B16                      // reasoning
	VMOVI  $2, V26.B16                      // action
	FMOVQ  MAXY, F27
	FMOVQ  C5, F28
	FMOVQ  MINY, F29
	FMOVQ  MAGIC, F30
	FMOVQ  ONE, F31

weights:
	VLD1   (ROLE), [V0.B16]
	VCMEQ  V26.B16, V0.B16, V0.B16
	VUADDLV V0.B16, V0
	VMOV   V0.H[0], TMP
	CBZ    TMP, weights_no_action           // 96 tokens of 100 need no exponential
	VLD1   (X_PTR), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR_M(VFSUB_S4, 20, 0, 0)
	FOUR_M(VFSUB_S4, 21, 0, 0)
	FOUR_M(VFMUL_S4, 22, 0, 0)
	CLAMP
	POWER
	FOUR_M(VFADD_S4, 31, 12, 12)
	FOUR_N(VFDIV_S4, 12, 24, 12)
	FOUR_M(VFADD_S4, 31, 12, 12)
	VLD1   (ROLE), [V0.B16]
	VCMEQ  V26.B16, V0.B16, V1.B16
	WIDEN(V1, V2, V3, V4, V5, V6, V7)
	VAND   V4.B16, V12.B16, V12.B16
	VAND   V5.B16, V13.B16, V13.B16
	VAND   V6.B16, V14.B16, V14.B16
	VAND   V7.B16, V15.B16, V15.B16

weights_store:
	VLD1.P 16(ROLE), [V0.B16]
	VCMEQ  V25.B16, V0.B16, V1.B16
	WIDEN(V1, V2, V3, V4, V5, V6, V7)
	VAND   V23.B16, V4.B16, V4.B16          // alpha, or 0
	VAND   V23.B16, V5.B16, V5.B16
	VAND   V23.B16, V6.B16, V6.B16
	VAND   V23.B16, V7.B16, V7.B16
	VORR   V4.B16, V12.B16, V12.B16
	VORR   V5.B16, V13.B16, V13.B16
	VORR   V6.B16, V14.B16, V14.B16
	VORR   V7.B16, V15.B16, V15.B16
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(DST)
	ADD    $64, X_PTR
	SUBS   $1, CHUNKS
	BNE    weights
	RET

weights_no_action:
	CLEAR(V12, V13, V14, V15)
	B      weights_store

#define OFFSETS R2
#define SPANS R3
#define LEFT R4      // elements left in the span or group
#define END R7       // where the last, partial vector begins
#define BASE R8

// SPAN_CHUNK adds the next 16 elements to the group's sums.
#define SPAN_CHUNK \
	VLD1.P 64(X_PTR), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	FOUR(VFADD_S4, 0, 4, 4)

// WIDEN_ADD adds the four float32 of register v to the float64 of d and d+1.
#define WIDEN_ADD(v, d) \
	VFCVTL_D2(v, 0); \
	VFCVTL2_D2(v, 1); \
	VFADD_D2(0, d, d); \
	VFADD_D2(1, d+1, d+1)

// func spanSumsNEON(sums *float64, x *float32, offsets *int32, n int)
//
//	for each span {
//		l = 0                              // 16 lanes, float64
//		for each block {
//			b = 0
//			for each group { g = 0; g += x, a chunk at a time; b += g }
//			l += b
//		}
//		sum = tree(l)
//	}
TEXT ·spanSumsNEON(SB), NOSPLIT, $0-32
	MOVD   sums+0(FP), DST
	MOVD   x+8(FP), BASE
	MOVD   offsets+16(FP), OFFSETS
	MOVD   n+24(FP), SPANS

span:
	MOVW.P 4(OFFSETS), TMP
	MOVW   (OFFSETS), LEFT
	ADD    TMP<<2, BASE, X_PTR
	SUB    TMP, LEFT
	CLEAR(V16, V17, V18, V19)               // l
	CLEAR(V20, V21, V22, V23)

span_block:
	MOVD   $1024, BLOCK                     // elements left in the block
	CMP    BLOCK, LEFT
	CSEL   LT, LEFT, BLOCK, BLOCK
	SUB    BLOCK, LEFT
	CLEAR(V24, V25, V26, V27)               // b

span_group:
	CLEAR(V4, V5, V6, V7)                   // g
	CMP    $128, BLOCK
	BLT    span_chunk
	SUB    $128, BLOCK
	SPAN_CHUNK
	SPAN_CHUNK
	SPAN_CHUNK
	SPAN_CHUNK
	SPAN_CHUNK
	SPAN_CHUNK
	SPAN_CHUNK
	SPAN_CHUNK
	FOUR(VFADD_S4, 4, 24, 24)
	CBNZ   BLOCK, span_group
	B      span_flush

span_chunk:
	SUBS   $16, BLOCK
	BLT    span_tail
	SPAN_CHUNK
	B      span_chunk

span_tail:
	AND    $12, BLOCK, TMP                  // 0 to 15 elements, in vectors of 4
	ADD    TMP<<2, X_PTR, END
	VEOR   V3.B16, V3.B16, V3.B16           // and what is left, with 0 where none is
	TBZ    $1, BLOCK, span_odd
	FMOVD.P 8(END), F3
	TBZ    $0, BLOCK, span_vectors
	VLD1   (END), V3.S[2]
	B      span_vectors

span_odd:
	TBZ    $0, BLOCK, span_vectors
	FMOVS  (END), F3

span_vectors:
	CMP    $4, TMP
	BLT    span_part0
	VLD1.P 16(X_PTR), [V0.S4]
	VFADD_S4(0, 4, 4)
	CMP    $8, TMP
	BLT    span_part1
	VLD1.P 16(X_PTR), [V0.S4]
	VFADD_S4(0, 5, 5)
	CMP    $12, TMP
	BLT    span_part2
	VLD1   (X_PTR), [V0.S4]
	VFADD_S4(0, 6, 6)
	VFADD_S4(3, 7, 7)

span_rest:
	FOUR(VFADD_S4, 4, 24, 24)

span_flush:
	WIDEN_ADD(24, 16)
	WIDEN_ADD(25, 18)
	WIDEN_ADD(26, 20)
	WIDEN_ADD(27, 22)
	CBNZ   LEFT, span_block
	FOUR(VFADD_D2, 20, 16, 16)              // lanes j and j+8
	VFADD_D2(18, 16, 16)                    // j+4
	VFADD_D2(19, 17, 17)
	VFADD_D2(17, 16, 16)                    // j+2
	VEXT   $8, V16.B16, V16.B16, V0.B16
	FADDD  F0, F16, F0                      // j+1
	FMOVD.P F0, 8(DST)
	SUBS   $1, SPANS
	BNE    span
	RET

span_part0:
	VFADD_S4(3, 4, 4)
	B      span_rest

span_part1:
	VFADD_S4(3, 5, 5)
	B      span_rest

span_part2:
	VFADD_S4(3, 6, 6)
	B      span_rest

#define LO_PTR R1
#define HI_PTR R5

// func minMaxNEON(lo, hi, x *float32, offsets *int32, n int)
//
//	for each group {
//		mn, mx = +Inf, -Inf                // 8 lanes; NaN stays
//		for 8 elements { mn, mx = min(mn, x), max(mx, x) }
//		what is left goes by 4, 2 and 1, filling a vector with copies
//		lo, hi = least(mn)+0, largest(mx)+0
//	}
TEXT ·minMaxNEON(SB), NOSPLIT, $0-40
	MOVD   lo+0(FP), LO_PTR
	MOVD   hi+8(FP), HI_PTR
	MOVD   x+16(FP), BASE
	MOVD   offsets+24(FP), OFFSETS
	MOVD   n+32(FP), SPANS
	MOVD   $const128<>(SB), CONST
	VEOR   V22.B16, V22.B16, V22.B16

minmax_group:
	MOVW.P 4(OFFSETS), TMP
	MOVW   (OFFSETS), LEFT
	ADD    TMP<<2, BASE, X_PTR
	SUB    TMP, LEFT
	FMOVQ  POSINF, F4
	FMOVQ  POSINF, F5
	FMOVQ  NEGINF, F6
	FMOVQ  NEGINF, F7

minmax_8:
	SUBS   $8, LEFT
	BLT    minmax_4
	VLD1.P 32(X_PTR), [V0.S4, V1.S4]
	VFMIN_S4(0, 4, 4)
	VFMIN_S4(1, 5, 5)
	VFMAX_S4(0, 6, 6)
	VFMAX_S4(1, 7, 7)
	B      minmax_8

minmax_4:
	TBZ    $2, LEFT, minmax_2
	VLD1.P 16(X_PTR), [V0.S4]
	VFMIN_S4(0, 4, 4)
	VFMAX_S4(0, 6, 6)

minmax_2:
	TBZ    $1, LEFT, minmax_1
	VLD1R.P 8(X_PTR), [V1.D2]
	VFMIN_S4(1, 5, 5)
	VFMAX_S4(1, 7, 7)

minmax_1:
	TBZ    $0, LEFT, minmax_reduce
	VLD1R  (X_PTR), [V0.S4]
	VFMIN_S4(0, 4, 4)
	VFMAX_S4(0, 6, 6)

minmax_reduce:
	VFMIN_S4(5, 4, 4)
	VFMAX_S4(7, 6, 6)
	VFMINV_S4(4, 0)
	VFMAXV_S4(6, 1)
	FADDS  F22, F0, F0                      // +0 for -0
	FADDS  F22, F1, F1
	FMOVS.P F0, 4(LO_PTR)
	FMOVS.P F1, 4(HI_PTR)
	SUBS   $1, SPANS
	BNE    minmax_group
	RET

#define SUM R3

// func expScaleNEON(dst, x *float32, chunks int, lo, k float32, sum *laneSum)
//
//	dst = 2^clamp((x - lo) * k); sum += dst
TEXT ·expScaleNEON(SB), NOSPLIT, $0-40
	MOVD   dst+0(FP), DST
	MOVD   x+8(FP), X_PTR
	MOVD   chunks+16(FP), CHUNKS
	FMOVS  lo+24(FP), F24
	FMOVS  k+28(FP), F25
	MOVD   sum+32(FP), SUM
	VDUP   V24.S[0], V24.S4
	VDUP   V25.S[0], V25.S4
	MOVD   $const128<>(SB), CONST
	FMOVQ  MAXY, F27
	FMOVQ  C5, F28
	FMOVQ  MINY, F29
	FMOVQ  MAGIC, F30
	FMOVQ  ONE, F31

	CLEAR(V20, V21, V22, V23)
	MOVD   $8, GROUP

exp:
	VLD1.P 64(X_PTR), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR_M(VFSUB_S4, 24, 0, 0)
	FOUR_M(VFMUL_S4, 25, 0, 0)
	CLAMP
	POWER
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(DST)
	FOUR(VFADD_S4, 12, 20, 20)
	SUBS   $1, GROUP
	BNE    exp_next
	FLUSH(20, 0, SUM)
	FLUSH(21, 32, SUM)
	FLUSH(22, 64, SUM)
	FLUSH(23, 96, SUM)
	CLEAR(V20, V21, V22, V23)
	MOVD   $8, GROUP

exp_next:
	SUBS   $1, CHUNKS
	BNE    exp
	FSTPQ  (F20, F21), 128(SUM)
	FSTPQ  (F22, F23), 160(SUM)
	RET

// func scaleNEON(dst *float32, chunks int, f float32)
//
//	dst = f * dst
TEXT ·scaleNEON(SB), NOSPLIT, $0-20
	MOVD   dst+0(FP), DST
	MOVD   chunks+8(FP), CHUNKS
	FMOVS  f+16(FP), F16
	VDUP   V16.S[0], V16.S4

scale:
	VLD1   (DST), [V0.S4, V1.S4, V2.S4, V3.S4]
	FOUR_M(VFMUL_S4, 16, 0, 0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(DST)
	SUBS   $1, CHUNKS
	BNE    scale
	RET

// func multiplyNEON(dst, a, b *float32, chunks int)
//
//	dst = a * b
TEXT ·multiplyNEON(SB), NOSPLIT, $0-32
	MOVD   dst+0(FP), DST
	MOVD   a+8(FP), A_PTR
	MOVD   b+16(FP), B_PTR
	MOVD   chunks+24(FP), CHUNKS

multiply:
	VLD1.P 64(A_PTR), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(B_PTR), [V4.S4, V5.S4, V6.S4, V7.S4]
	FOUR(VFMUL_S4, 4, 0, 0)
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(DST)
	SUBS   $1, CHUNKS
	BNE    multiply
	RET

#undef SUM
#undef Q
#undef TMP
#define OLD_PTR R1
#define ADV_PTR R4
#define W_PTR R5
#define GRAD_PTR R7
#define Q R8         // the constants
#define TOTAL R9     // the sums
#define STRIDE R10
#define TOKENS R11
#define CLIPPED R12
#define TMP R13
#define HI_BOUND R14
#define DUAL R15
#define SCALE R16

// func surrogateNEON(grad, logprobs, old, adv, weights *float32, stride int, role *uint8, chunks int, q *surrogateConsts, sums *surrogateSums)
//
// weights advances by stride bytes a chunk: 0 for sixteen ones.
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv
//	l1, l2, l3 = n*rho, n*clamp(rho, lo, hi), n*dual
//	l = l2 > l1 ? l2 : l1; n > 0 && l > l3: l = l3
//	g = l1, or 0 where l is not l1 or d is outside
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
//
// Registers, by fours: V0 n, V4 l1 and g, V8 l, V12 whether l2 > l1, V16 l3 and w,
// V20 dc, V24 where g is 0. The groups of the sums are in memory.
TEXT ·surrogateNEON(SB), NOSPLIT, $0-80
	MOVD   grad+0(FP), GRAD_PTR
	MOVD   logprobs+8(FP), X_PTR
	MOVD   old+16(FP), OLD_PTR
	MOVD   adv+24(FP), ADV_PTR
	MOVD   weights+32(FP), W_PTR
	MOVD   stride+40(FP), STRIDE
	MOVD   role+48(FP), ROLE
	MOVD   chunks+56(FP), CHUNKS
	MOVD   q+64(FP), Q
	MOVD   sums+72(FP), TOTAL
	MOVD   $const128<>(SB), CONST
	ADD    $4, Q, HI_BOUND
	ADD    $8, Q, DUAL
	ADD    $12, Q, SCALE
	MOVD   384(TOTAL), TOKENS
	MOVD   392(TOTAL), CLIPPED
	FMOVQ  MAGIC, F30
	FMOVQ  ONE, F31

surrogate_group:
	VEOR   V0.B16, V0.B16, V0.B16
	FSTPQ  (F0, F0), 128(TOTAL)             // loss
	FSTPQ  (F0, F0), 160(TOTAL)
	FSTPQ  (F0, F0), 320(TOTAL)             // logRatio
	FSTPQ  (F0, F0), 352(TOTAL)
	MOVD   $8, GROUP
	CBZ    CHUNKS, surrogate_done

surrogate:
	VLD1.P 64(X_PTR), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(OLD_PTR), [V4.S4, V5.S4, V6.S4, V7.S4]
	FMOVQ  MINUS20, F16
	FMOVQ  PLUS20, F17
	FMOVQ  LOG2E, F29
	FMOVQ  C5, F28
	FOUR(VFSUB_S4, 4, 0, 0)                 // d
	FOUR_M(VFMAX_S4, 16, 0, 20)
	FOUR_M(VFMIN_S4, 17, 20, 20)            // dc
	FOUR_M(VFCMGT_S4, 17, 0, 24)            // d > 20
	FOUR_N(VFCMGT_S4, 0, 16, 0)             // -20 > d
	VORR   V0.B16, V24.B16, V24.B16
	VORR   V1.B16, V25.B16, V25.B16
	VORR   V2.B16, V26.B16, V26.B16
	VORR   V3.B16, V27.B16, V27.B16
	FOUR_M(VFMUL_S4, 29, 20, 0)
	POWER                                   // rho
	VLD1.P 64(ADV_PTR), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1R  (Q), [V16.S4]                    // lo
	VLD1R  (HI_BOUND), [V17.S4]
	FOUR_1(VFNEG_S4, 0, 0)                  // n
	FOUR(VFMUL_S4, 12, 0, 4)                // l1
	FOUR_M(VFMAX_S4, 16, 12, 12)
	FOUR_M(VFMIN_S4, 17, 12, 12)
	FOUR(VFMUL_S4, 12, 0, 8)                // l2
	FOUR(VFCMGT_S4, 4, 8, 12)               // l2 > l1
	VBIF   V12.B16, V4.B16, V8.B16          // l
	VBIF   V13.B16, V5.B16, V9.B16
	VBIF   V14.B16, V6.B16, V10.B16
	VBIF   V15.B16, V7.B16, V11.B16
	VORR   V12.B16, V24.B16, V24.B16
	VORR   V13.B16, V25.B16, V25.B16
	VORR   V14.B16, V26.B16, V26.B16
	VORR   V15.B16, V27.B16, V27.B16
	VLD1R  (DUAL), [V28.S4]
	VEOR   V29.B16, V29.B16, V29.B16
	FOUR_M(VFMUL_S4, 28, 0, 16)             // l3
	FOUR_M(VFCMGT_S4, 29, 0, 0)             // n > 0
	VFCMGT_S4(16, 8, 28)                    // and l > l3
	VFCMGT_S4(17, 9, 29)
	VAND   V28.B16, V0.B16, V0.B16
	VAND   V29.B16, V1.B16, V1.B16
	VFCMGT_S4(18, 10, 28)
	VFCMGT_S4(19, 11, 29)
	VAND   V28.B16, V2.B16, V2.B16
	VAND   V29.B16, V3.B16, V3.B16
	VBIT   V0.B16, V16.B16, V8.B16
	VBIT   V1.B16, V17.B16, V9.B16
	VBIT   V2.B16, V18.B16, V10.B16
	VBIT   V3.B16, V19.B16, V11.B16
	VORR   V0.B16, V24.B16, V24.B16
	VORR   V1.B16, V25.B16, V25.B16
	VORR   V2.B16, V26.B16, V26.B16
	VORR   V3.B16, V27.B16, V27.B16
	VEOR   V29.B16, V29.B16, V29.B16
	VBIT   V24.B16, V29.B16, V4.B16         // g
	VBIT   V25.B16, V29.B16, V5.B16
	VBIT   V26.B16, V29.B16, V6.B16
	VBIT   V27.B16, V29.B16, V7.B16
	VLD1   (W_PTR), [V16.S4, V17.S4, V18.S4, V19.S4]
	ADD    STRIDE, W_PTR
	VLD1R  (SCALE), [V28.S4]
	VLD1.P 16(ROLE), [V0.B16]
	FOUR(VFMUL_S4, 16, 8, 8)                // w*l
	FOUR(VFMUL_S4, 16, 4, 4)                // w*g
	FOUR_M(VFMUL_S4, 28, 4, 4)
	VCMTST V0.B16, V0.B16, V0.B16           // role is not 0
	WIDEN(V0, V1, V2, V24, V25, V26, V27)
	VUSHR  $7, V0.B16, V0.B16
	VUADDLV V0.B16, V0
	VMOV   V0.H[0], TMP
	ADD    TMP, TOKENS
	VAND   V24.B16, V4.B16, V4.B16
	VAND   V25.B16, V5.B16, V5.B16
	VAND   V26.B16, V6.B16, V6.B16
	VAND   V27.B16, V7.B16, V7.B16
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(GRAD_PTR)
	VAND   V24.B16, V12.B16, V12.B16
	VAND   V25.B16, V13.B16, V13.B16
	VAND   V26.B16, V14.B16, V14.B16
	VAND   V27.B16, V15.B16, V15.B16
	VADD   V13.S4, V12.S4, V12.S4           // -1 for each
	VADD   V15.S4, V14.S4, V14.S4
	VADD   V14.S4, V12.S4, V12.S4
	VADDV  V12.S4, V12
	VMOV   V12.S[0], TMP
	SUBW   TMP, ZR, TMP
	ADD    TMP, CLIPPED
	VAND   V24.B16, V8.B16, V8.B16
	VAND   V25.B16, V9.B16, V9.B16
	VAND   V26.B16, V10.B16, V10.B16
	VAND   V27.B16, V11.B16, V11.B16
	VAND   V24.B16, V20.B16, V20.B16
	VAND   V25.B16, V21.B16, V21.B16
	VAND   V26.B16, V22.B16, V22.B16
	VAND   V27.B16, V23.B16, V23.B16
	FLDPQ  128(TOTAL), (F0, F1)
	FLDPQ  160(TOTAL), (F2, F3)
	FLDPQ  320(TOTAL), (F4, F5)
	FLDPQ  352(TOTAL), (F6, F7)
	FOUR(VFADD_S4, 8, 0, 8)
	FOUR(VFADD_S4, 20, 4, 20)
	FSTPQ  (F8, F9), 128(TOTAL)
	FSTPQ  (F10, F11), 160(TOTAL)
	FSTPQ  (F20, F21), 320(TOTAL)
	FSTPQ  (F22, F23), 352(TOTAL)
	SUB    $1, CHUNKS
	SUBS   $1, GROUP
	BNE    surrogate_next
	FLUSH(8, 0, TOTAL)
	FLUSH(9, 32, TOTAL)
	FLUSH(10, 64, TOTAL)
	FLUSH(11, 96, TOTAL)
	FLUSH(20, 192, TOTAL)
	FLUSH(21, 224, TOTAL)
	FLUSH(22, 256, TOTAL)
	FLUSH(23, 288, TOTAL)
	B      surrogate_group

surrogate_next:
	CBNZ   CHUNKS, surrogate

surrogate_done:
	MOVD   TOKENS, 384(TOTAL)
	MOVD   CLIPPED, 392(TOTAL)
	RET
