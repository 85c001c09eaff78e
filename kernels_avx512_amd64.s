//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// Rows of logits with AVX-512 (F, VL, DQ, BW): their sums, their maximum, their
// gradient. The arithmetic and its order are those of kernels_portable.go. A chunk
// of 16 elements is one vector.

// Word j of the lower or the upper half of 32 bfloat16 to word 2j+1: with the
// even words zeroed, that is their float32.
#define LOWER_WORD(j) DATA widen<>+(4*j)(SB)/4, $(j<<16)
#define UPPER_WORD(j) DATA widen<>+(64+4*j)(SB)/4, $((j+16)<<16)
LOWER_WORD(0); LOWER_WORD(1); LOWER_WORD(2); LOWER_WORD(3)
LOWER_WORD(4); LOWER_WORD(5); LOWER_WORD(6); LOWER_WORD(7)
LOWER_WORD(8); LOWER_WORD(9); LOWER_WORD(10); LOWER_WORD(11)
LOWER_WORD(12); LOWER_WORD(13); LOWER_WORD(14); LOWER_WORD(15)
UPPER_WORD(0); UPPER_WORD(1); UPPER_WORD(2); UPPER_WORD(3)
UPPER_WORD(4); UPPER_WORD(5); UPPER_WORD(6); UPPER_WORD(7)
UPPER_WORD(8); UPPER_WORD(9); UPPER_WORD(10); UPPER_WORD(11)
UPPER_WORD(12); UPPER_WORD(13); UPPER_WORD(14); UPPER_WORD(15)
GLOBL widen<>(SB), RODATA|NOPTR, $128

#define X_PTR SI
#define DTYPE AX   // the number of the DType: 0 is float32
#define CHUNKS R8 // whole chunks left in the row
#define TAIL R9   // a last, padded chunk of float32, or 0
#define TEMP BX

#define V0 Z0         // elements, then their y
#define V1 Z1
#define V2 Z2
#define V3 Z3
#define WIDEN_LOW Z30 // the widening indices for bfloat16
#define WIDEN_HIGH Z31
#define ODD K1        // the words that then hold a value
#define ODD_WORDS $0xaaaaaaaa

// LOAD_WIDEN fills the registers that LOAD4 needs for bfloat16.
#define LOAD_WIDEN \
	VMOVDQU32     widen<>+0(SB), WIDEN_LOW; \
	VMOVDQU32     widen<>+64(SB), WIDEN_HIGH; \
	MOVL          ODD_WORDS, TEMP; \
	KMOVD         TEMP, ODD

// PREFETCH asks for the 64 bytes at i*64 from the batch of four chunks that was just
// loaded: near ahead into the first cache, far ahead into the second. The arithmetic
// fills the reorder buffer before enough loads are under way, and the hardware's own
// prefetch stops at the end of each page.
#define NEAR 2048
#define FAR 8192
#define PREFETCH(i) \
	PREFETCHT0    (NEAR-4*CHUNK4+CHUNK4*i)(X_PTR); \
	PREFETCHT1    (FAR-4*CHUNK4+CHUNK4*i)(X_PTR)

// LOAD4 reads four chunks into V0 to V3 as float32 and steps over them.
#define LOAD4(bf16, f16, loaded) \
	CMPQ          DTYPE, BFLOAT16; \
	JEQ           bf16; \
	JHI           f16; \
	VMOVUPS       (X_PTR), V0; \
	VMOVUPS       64(X_PTR), V1; \
	VMOVUPS       128(X_PTR), V2; \
	VMOVUPS       192(X_PTR), V3; \
	ADDQ          $(4*CHUNK4), X_PTR; \
	JMP           loaded; \
bf16: \
	VMOVDQU16     (X_PTR), V1; \
	VMOVDQU16     64(X_PTR), V3; \
	VPERMW.Z      V1, WIDEN_LOW, ODD, V0; \
	VPERMW.Z      V1, WIDEN_HIGH, ODD, V1; \
	VPERMW.Z      V3, WIDEN_LOW, ODD, V2; \
	VPERMW.Z      V3, WIDEN_HIGH, ODD, V3; \
	ADDQ          $(4*CHUNK2), X_PTR; \
	JMP           loaded; \
f16: \
	VCVTPH2PS     (X_PTR), V0; \
	VCVTPH2PS     32(X_PTR), V1; \
	VCVTPH2PS     64(X_PTR), V2; \
	VCVTPH2PS     96(X_PTR), V3; \
	ADDQ          $(4*CHUNK2), X_PTR; \
loaded:

// LOAD1 reads the next chunk into V0, or the tail after the last: CHUNKS is
// then -1.
#define LOAD1(more, bf16, f16, loaded) \
	SUBQ          $1, CHUNKS; \
	JCC           more; \
	VMOVUPS       (TAIL), V0; \
	JMP           loaded; \
more: \
	CMPQ          DTYPE, BFLOAT16; \
	JEQ           bf16; \
	JHI           f16; \
	VMOVUPS       (X_PTR), V0; \
	ADDQ          $CHUNK4, X_PTR; \
	JMP           loaded; \
bf16: \
	VPMOVZXWD     (X_PTR), V0; \
	VPSLLD        BF16_IN_F32, V0, V0; \
	ADDQ          $CHUNK2, X_PTR; \
	JMP           loaded; \
f16: \
	VCVTPH2PS     (X_PTR), V0; \
	ADDQ          $CHUNK2, X_PTR; \
loaded:

#define STATE DI
#define ENTROPY DX  // 1 if the sums of y 2^y are wanted
#define KLO_BITS CX // 0 at temperature 1
#define BLOCK R10   // chunks left in the block, the tail counted
#define GROUP R11   // chunks left in the group
#define START R12   // chunk where the block began
#define DONE R13    // chunks done

#define F0 Z4      // f of exp2
#define F1 Z5
#define F2 Z6
#define F3 Z7
#define P0 Z8      // the polynomial, then 2^y
#define P1 Z9
#define P2 Z10
#define P3 Z11
#define KHI Z16
#define NEGC Z17
#define MINY Z18
#define KLO Z19
#define GS Z26     // the group's sums of 2^y, a lane each
#define GT Z27     // the group's sums of y 2^y
#define BS Z28     // the block's
#define BT Z29
#define BS_LOW Y28 // their lower halves
#define BT_LOW Y29
#define ABOVE K2   // lanes above the alarm

// At a temperature, before exp2 needs them.
#define KEPT0 Z4 // the elements
#define KEPT1 Z5
#define KEPT2 Z6
#define KEPT3 Z7

// Between chunks these are free.
#define ZERO Z0
#define ALARM Z0
#define WHOLE0 Z0 // lanes 0 to 7, as float64
#define WHOLE1 Z1 // lanes 8 to 15
#define WHOLE1_LOW Y1

// HORNER4 is HORNER for four chunks.
#define HORNER4(c) \
	HORNER(c, F0, P0); \
	HORNER(c, F1, P1); \
	HORNER(c, F2, P2); \
	HORNER(c, F3, P3)

// FLUSH adds the 16 float32 of sum, whose lower half is low, to 16 float64 at
// off(STATE).
#define FLUSH(sum, low, off) \
	VCVTPS2PD     low, WHOLE0; \
	VEXTRACTF32X8 UPPER_HALF, sum, WHOLE1_LOW; \
	VCVTPS2PD     WHOLE1_LOW, WHOLE1; \
	VADDPD        (off)(STATE), WHOLE0, WHOLE0; \
	VADDPD        (off+64)(STATE), WHOLE1, WHOLE1; \
	VMOVUPD       WHOLE0, (off)(STATE); \
	VMOVUPD       WHOLE1, (off+64)(STATE)

// func rowBlocksAVX512(x unsafe.Pointer, dtype, chunks int, tail *[16]float32, st *rowState, entropy bool) int
//
//	for chunks remain {                    // a block: 64 chunks
//		bs, bt = 0, 0
//		for 8 chunks or what remains {     // a group
//			gs, gt = 0, 0
//			for each chunk {               // 4 at a time, then one by one
//				y = max(minY, x*k - c)     // + x*kLo, at a temperature
//				p = 2^y
//				gs, gt = gs+p, gt+y*p
//			}
//			bs, bt = bs+gs, bt+gt
//		}
//		if any bs > st.alarm { return the block's first chunk }
//		st.s, st.t = st.s+bs, st.t+bt
//	}
//	return -1
TEXT ·rowBlocksAVX512(SB), NOSPLIT, $0-56
	MOVQ          x+0(FP), X_PTR
	MOVQ          dtype+8(FP), DTYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	MOVQ          st+32(FP), STATE
	MOVBQZX       entropy+40(FP), ENTROPY
	VBROADCASTSS  rowState_k(STATE), KHI
	VBROADCASTSS  rowState_kLo(STATE), KLO
	MOVL          rowState_kLo(STATE), KLO_BITS
	VBROADCASTSS  rowState_c(STATE), NEGC
	VPXORD        ZERO, ZERO, ZERO
	VSUBPS        NEGC, ZERO, NEGC
	VBROADCASTSS  minY<>(SB), MINY
	BROADCAST_EXP2
	LOAD_WIDEN
	XORQ          DONE, DONE

block:
	MOVQ          CHUNKS, BLOCK
	CMPQ          TAIL, $1               // carry if there is no tail
	SBBQ          $-1, BLOCK             // + 1 if there is one
	TESTQ         BLOCK, BLOCK
	JEQ           done
	MOVQ          $BLOCK_CHUNKS, TEMP
	CMPQ          BLOCK, TEMP
	CMOVQGT       TEMP, BLOCK
	MOVQ          DONE, START
	ADDQ          BLOCK, DONE
	VPXORD        BS, BS, BS
	VPXORD        BT, BT, BT

group:
	MOVQ          $GROUP_CHUNKS, GROUP
	CMPQ          BLOCK, GROUP
	CMOVQLT       BLOCK, GROUP
	SUBQ          GROUP, BLOCK
	VPXORD        GS, GS, GS
	VPXORD        GT, GT, GT

four:
	CMPQ          GROUP, $4
	JLT           one
	CMPQ          CHUNKS, $4             // the group may count the tail
	JLT           one
	SUBQ          $4, GROUP
	SUBQ          $4, CHUNKS
	LOAD4(four_bf16, four_f16, four_loaded)
	TESTL         KLO_BITS, KLO_BITS
	JNE           four_temperature
	VFMADD213PS   NEGC, KHI, V0          // y = x*k - c
	VFMADD213PS   NEGC, KHI, V1
	VFMADD213PS   NEGC, KHI, V2
	VFMADD213PS   NEGC, KHI, V3

four_y:
	VMAXPS        V0, MINY, V0           // NaN stays: it is the second operand
	VMAXPS        V1, MINY, V1
	VMAXPS        V2, MINY, V2
	VMAXPS        V3, MINY, V3
	SPLIT(V0, F0)
	SPLIT(V1, F1)
	SPLIT(V2, F2)
	SPLIT(V3, F3)
	VMOVAPS       C5, P0
	VMOVAPS       C5, P1
	VMOVAPS       C5, P2
	VMOVAPS       C5, P3
	HORNER4(C4)
	PREFETCH(0)
	HORNER4(C3)
	PREFETCH(1)
	HORNER4(C2)
	PREFETCH(2)
	HORNER4(C1)
	PREFETCH(3)
	HORNER4(ONE)                         // 2^f
	SCALE(V0, F0, P0)                    // 2^y
	SCALE(V1, F1, P1)
	SCALE(V2, F2, P2)
	SCALE(V3, F3, P3)
	VADDPS        P0, GS, GS             // in the order of the chunks
	VADDPS        P1, GS, GS
	VADDPS        P2, GS, GS
	VADDPS        P3, GS, GS
	TESTB         ENTROPY, ENTROPY
	JEQ           four
	VFMADD231PS   P0, V0, GT
	VFMADD231PS   P1, V1, GT
	VFMADD231PS   P2, V2, GT
	VFMADD231PS   P3, V3, GT
	JMP           four

four_temperature:
	VMOVAPS       V0, KEPT0
	VMOVAPS       V1, KEPT1
	VMOVAPS       V2, KEPT2
	VMOVAPS       V3, KEPT3
	VFMADD213PS   NEGC, KHI, V0
	VFMADD213PS   NEGC, KHI, V1
	VFMADD213PS   NEGC, KHI, V2
	VFMADD213PS   NEGC, KHI, V3
	VFMADD231PS   KEPT0, KLO, V0         // y += x*kLo
	VFMADD231PS   KEPT1, KLO, V1
	VFMADD231PS   KEPT2, KLO, V2
	VFMADD231PS   KEPT3, KLO, V3
	JMP           four_y

one:
	TESTQ         GROUP, GROUP
	JEQ           group_done
	DECQ          GROUP
	LOAD1(one_more, one_bf16, one_f16, one_loaded)
	VMOVAPS       V0, KEPT0
	VFMADD213PS   NEGC, KHI, V0
	TESTL         KLO_BITS, KLO_BITS
	JEQ           one_y
	VFMADD231PS   KEPT0, KLO, V0

one_y:
	VMAXPS        V0, MINY, V0
	EXP2_AVX512(V0, F0, P0)
	VADDPS        P0, GS, GS
	VFMADD231PS   P0, V0, GT             // also where it is not wanted
	JMP           one

group_done:
	VADDPS        GS, BS, BS
	VADDPS        GT, BT, BT
	TESTQ         BLOCK, BLOCK
	JNE           group
	VBROADCASTSS  rowState_alarm(STATE), ALARM
	VCMPPS        GREATER, ALARM, BS, ABOVE
	KORTESTW      ABOVE, ABOVE
	JNE           alarm
	FLUSH(BS, BS_LOW, rowState_s)
	FLUSH(BT, BT_LOW, rowState_t)
	TESTQ         CHUNKS, CHUNKS
	JGT           block
	JLT           done                   // the tail was taken
	TESTQ         TAIL, TAIL
	JNE           block                  // the tail is a block of its own

done:
	MOVQ          $-1, ret+48(FP)
	VZEROUPPER
	RET

alarm:
	MOVQ          START, ret+48(FP)
	VZEROUPPER
	RET

#define MAX0 Z4
#define MAX1 Z5
#define MAX2 Z6
#define MAX3 Z7
#define MAX0_LOW Y4
#define NANS K2      // lanes that saw a NaN
#define NAN0 K3      // of the chunks just loaded
#define NAN1 K4
#define BEST_HALF Y0 // 8 lanes
#define BEST X0      // 4 lanes, then 2, then 1
#define OTHER X1     // the lanes to reduce with

// func blockMaxAVX512(x unsafe.Pointer, dtype, chunks int, tail *[16]float32) float32
//
//	m, nan = -Inf, false                   // 16 lanes, four times over
//	for each chunk, the tail too {         // 4 at a time, then one by one
//		m, nan = max(m, x), nan || x != x
//	}
//	return the largest of m, or NaN if any nan
TEXT ·blockMaxAVX512(SB), NOSPLIT, $0-36
	MOVQ          x+0(FP), X_PTR
	MOVQ          dtype+8(FP), DTYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	VBROADCASTSS  negInf<>(SB), MAX0
	VMOVAPS       MAX0, MAX1
	VMOVAPS       MAX0, MAX2
	VMOVAPS       MAX0, MAX3
	LOAD_WIDEN
	KXORW         NANS, NANS, NANS

max_four:
	CMPQ          CHUNKS, $4
	JLT           max_one
	SUBQ          $4, CHUNKS
	LOAD4(max_four_bf16, max_four_f16, max_four_loaded)
	VMAXPS        V0, MAX0, MAX0
	VMAXPS        V1, MAX1, MAX1
	VMAXPS        V2, MAX2, MAX2
	VMAXPS        V3, MAX3, MAX3
	VCMPPS        UNORDERED, V0, V1, NAN0 // a NaN in either
	VCMPPS        UNORDERED, V2, V3, NAN1
	KORW          NAN0, NANS, NANS
	KORW          NAN1, NANS, NANS
	JMP           max_four

max_one:
	MOVQ          CHUNKS, TEMP
	CMPQ          TAIL, $1               // carry if there is no tail
	SBBQ          $-1, TEMP              // + 1 if there is one
	JLE           max_reduce
	LOAD1(max_one_more, max_one_bf16, max_one_f16, max_one_loaded)
	VMAXPS        V0, MAX0, MAX0
	VCMPPS        UNORDERED, V0, V0, NAN0
	KORW          NAN0, NANS, NANS
	TESTQ         CHUNKS, CHUNKS         // below 0: the tail was taken
	JGE           max_one

max_reduce:
	VMAXPS        MAX1, MAX0, MAX0
	VMAXPS        MAX3, MAX2, MAX2
	VMAXPS        MAX2, MAX0, MAX0
	VEXTRACTF32X8 UPPER_HALF, MAX0, BEST_HALF
	VMAXPS        BEST_HALF, MAX0_LOW, BEST_HALF // lanes j and j+8
	VEXTRACTF128  UPPER_HALF, BEST_HALF, OTHER
	VMAXPS        OTHER, BEST, BEST              // j+4
	VPERMILPS     SWAP_PAIRS, BEST, OTHER
	VMAXPS        OTHER, BEST, BEST              // j+2
	VPERMILPS     SWAP_NEIGHBOURS, BEST, OTHER
	VMAXSS        OTHER, BEST, BEST              // j+1
	KORTESTW      NANS, NANS
	JEQ           max_return
	VPCMPEQD      BEST, BEST, BEST               // all bits set: NaN

max_return:
	VMOVSS        BEST, ret+32(FP)
	VZEROUPPER
	RET

#define DST_PTR DI
#define CONSTS BX

#define C Z0
#define V Z0        // elements, then their y, then the gradient
#define KEPT Z1     // the elements
#define CLAMPED Z2  // min(maxY, y)
#define F Z3        // of exp2
#define P Z4        // 2^y
#define MAXY Z26
#define A Z27
#define B Z28
#define IN_RANGE K1 // where y is not below minY

// To narrow a gradient to bfloat16.
#define UPPER Z1 // the upper 16 bits
#define ROUNDED Z2
#define ROUND Z29
#define QUIET Z30
#define LAST_BIT Z31
#define IS_NAN K1

// func rowGradientAVX512(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)
//
//	for each chunk {
//		y = x*k - c                        // + x*kLo, at a temperature
//		dst = y < minY ? 0 : 2^min(maxY, y) * (y*a + b)
//	}
TEXT ·rowGradientAVX512(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          x+8(FP), X_PTR
	MOVQ          dtype+16(FP), DTYPE       // float32 or bfloat16
	MOVQ          chunks+24(FP), CHUNKS
	MOVQ          q+32(FP), CONSTS
	VBROADCASTSS  minY<>(SB), MINY
	VBROADCASTSS  maxY<>(SB), MAXY
	BROADCAST_EXP2
	VBROADCASTSS  gradConsts_k(CONSTS), KHI
	VBROADCASTSS  gradConsts_kLo(CONSTS), KLO
	MOVL          gradConsts_kLo(CONSTS), KLO_BITS
	VPXORD        NEGC, NEGC, NEGC
	VBROADCASTSS  gradConsts_c(CONSTS), C
	VSUBPS        C, NEGC, NEGC
	VBROADCASTSS  gradConsts_a(CONSTS), A
	VBROADCASTSS  gradConsts_b(CONSTS), B
	VPBROADCASTD  roundBF16<>(SB), ROUND
	VPBROADCASTD  quietBit<>(SB), QUIET
	VPBROADCASTD  intOne<>(SB), LAST_BIT

gradient:
	TESTQ         DTYPE, DTYPE
	JNE           gradient_bf16
	PREFETCHT0    NEAR(X_PTR)
	VMOVUPS       (X_PTR), V
	ADDQ          $CHUNK4, X_PTR
	JMP           gradient_loaded

gradient_bf16:
	PREFETCHT0    NEAR(X_PTR)
	VPMOVZXWD     (X_PTR), V
	VPSLLD        BF16_IN_F32, V, V
	ADDQ          $CHUNK2, X_PTR

gradient_loaded:
	VMOVAPS       V, KEPT
	VFMADD213PS   NEGC, KHI, V           // y
	TESTL         KLO_BITS, KLO_BITS
	JEQ           gradient_y
	VFMADD231PS   KEPT, KLO, V

gradient_y:
	VCMPPS        NOT_LESS, MINY, V, IN_RANGE // NaN counts
	VMINPS        V, MAXY, CLAMPED
	EXP2_AVX512(CLAMPED, F, P)
	VFMADD213PS   B, A, V                     // y*a + b
	VMULPS.Z      V, P, IN_RANGE, V
	TESTQ         DTYPE, DTYPE
	JNE           gradient_narrow
	VMOVUPS       V, (DST_PTR)
	ADDQ          $CHUNK4, DST_PTR
	DECQ          CHUNKS
	JNE           gradient
	VZEROUPPER
	RET

gradient_narrow:
	VPSRLD        BF16_IN_F32, V, UPPER   // to nearest even: + 0x7fff + the bit that stays last
	VPANDD        LAST_BIT, UPPER, ROUNDED
	VPADDD        ROUND, ROUNDED, ROUNDED
	VPADDD        V, ROUNDED, ROUNDED
	VPSRLD        BF16_IN_F32, ROUNDED, ROUNDED
	VCMPPS        UNORDERED, V, V, IS_NAN // NaN: cut and made quiet
	VPORD         QUIET, UPPER, IS_NAN, ROUNDED
	VPMOVDW       ROUNDED, (DST_PTR)
	ADDQ          $CHUNK2, DST_PTR
	DECQ          CHUNKS
	JNE           gradient
	VZEROUPPER
	RET
