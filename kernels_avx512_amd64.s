//go:build !noasm && !purego

#include "textflag.h"

// Rows of logits with AVX-512 (F, VL, DQ, BW). The arithmetic and its order are
// those of kernels_portable.go.

// Constants, each once: broadcast into a register at the start.
DATA const512<>+0(SB)/4, $-125.0         // minY
DATA const512<>+4(SB)/4, $0x3aadfb33     // exp2C5
DATA const512<>+8(SB)/4, $0x3c1e76a9     // exp2C4
DATA const512<>+12(SB)/4, $0x3d635b62    // exp2C3
DATA const512<>+16(SB)/4, $0x3e75fcda    // exp2C2
DATA const512<>+20(SB)/4, $0x3f317215    // exp2C1
DATA const512<>+24(SB)/4, $1.0
DATA const512<>+28(SB)/4, $0xff800000    // -Inf
GLOBL const512<>(SB), RODATA|NOPTR, $32

// Word j of the lower or the upper half of 32 bfloat16 to word 2j+1: with the
// even words zeroed, that is their float32.
#define W2(j) DATA widen16<>+(4*j)(SB)/4, $(j<<16)
#define W2H(j) DATA widen16<>+(64+4*j)(SB)/4, $((j+16)<<16)
W2(0); W2(1); W2(2); W2(3); W2(4); W2(5); W2(6); W2(7)
W2(8); W2(9); W2(10); W2(11); W2(12); W2(13); W2(14); W2(15)
W2H(0); W2H(1); W2H(2); W2H(3); W2H(4); W2H(5); W2H(6); W2H(7)
W2H(8); W2H(9); W2H(10); W2H(11); W2H(12); W2H(13); W2H(14); W2H(15)
GLOBL widen16<>(SB), RODATA|NOPTR, $128

#define X_PTR SI
#define TYPE AX      // 0 float32, 1 bfloat16, 2 float16
#define CHUNKS R8    // whole chunks of 16 left in the row
#define TAIL R9      // a last, padded chunk of float32, or 0
#define STATE DI
#define BLOCK R10    // chunks left in the block, the tail counted
#define GROUP R11    // chunks left in the group
#define START R12    // chunk where the block began
#define DONE R13     // chunks done

#define K_ Z16
#define NEGC Z17
#define MINY Z18
#define C5 Z19
#define C4 Z20
#define C3 Z21
#define C2 Z22
#define C1 Z23
#define ONE Z24
#define KLO Z25
#define GS Z26       // the group's sums of 2^y, a lane each
#define GT Z27       // the group's sums of y 2^y
#define BS Z28       // the block's
#define BT Z29
#define WLO Z30      // widening indices for bfloat16
#define WHI Z31
#define ODD K1       // words that hold a value there

// PREFETCH asks for the 64 bytes at i*64 from the batch that was just loaded: near
// ahead into the first cache, far ahead into the second. The arithmetic fills the
// reorder buffer before enough loads are under way, and the hardware's own
// prefetch stops at the end of each page.
#define NEAR 2048
#define FAR 8192
#define PREFETCH(i) \
	PREFETCHT0 (NEAR-256+64*i)(X_PTR); \
	PREFETCHT1 (FAR-256+64*i)(X_PTR)

// LOAD4 reads 64 elements into Z0 to Z3 as float32 and steps over them.
#define LOAD4(bf16, f16, loaded) \
	CMPQ       TYPE, $1; \
	JEQ        bf16; \
	JHI        f16; \
	VMOVUPS    (X_PTR), Z0; \
	VMOVUPS    64(X_PTR), Z1; \
	VMOVUPS    128(X_PTR), Z2; \
	VMOVUPS    192(X_PTR), Z3; \
	ADDQ       $256, X_PTR; \
	JMP        loaded; \
bf16: \
	VMOVDQU16  (X_PTR), Z1; \
	VMOVDQU16  64(X_PTR), Z3; \
	VPERMW.Z   Z1, WLO, ODD, Z0; \
	VPERMW.Z   Z1, WHI, ODD, Z1; \
	VPERMW.Z   Z3, WLO, ODD, Z2; \
	VPERMW.Z   Z3, WHI, ODD, Z3; \
	ADDQ       $128, X_PTR; \
	JMP        loaded; \
f16: \
	VCVTPH2PS  (X_PTR), Z0; \
	VCVTPH2PS  32(X_PTR), Z1; \
	VCVTPH2PS  64(X_PTR), Z2; \
	VCVTPH2PS  96(X_PTR), Z3; \
	ADDQ       $128, X_PTR; \
loaded:

// LOAD1 reads the next chunk into Z0, or the tail after the last: CHUNKS is
// then -1.
#define LOAD1(more, bf16, f16, loaded) \
	SUBQ       $1, CHUNKS; \
	JCC        more; \
	VMOVUPS    (TAIL), Z0; \
	JMP        loaded; \
more: \
	CMPQ       TYPE, $1; \
	JEQ        bf16; \
	JHI        f16; \
	VMOVUPS    (X_PTR), Z0; \
	ADDQ       $64, X_PTR; \
	JMP        loaded; \
bf16: \
	VPMOVZXWD  (X_PTR), Z0; \
	VPSLLD     $16, Z0, Z0; \
	ADDQ       $32, X_PTR; \
	JMP        loaded; \
f16: \
	VCVTPH2PS  (X_PTR), Z0; \
	ADDQ       $32, X_PTR; \
loaded:

// SPLIT: y to its distance f from the nearest integer.
#define SPLIT(y, f) VREDUCEPS $8, y, f

// HORNER: p = p*f + c.
#define HORNER(c, f, p) VFMADD213PS c, f, p

// SCALE: p *= 2^(y-f), the integer next to y.
#define SCALE(y, f, p) VSUBPS f, y, f; VSCALEFPS f, p, p

// FLUSH adds the float32 lanes b to 16 float64 at off(STATE).
#define FLUSH(b, by, off) \
	VCVTPS2PD     by, Z0; \
	VEXTRACTF32X8 $1, b, Y1; \
	VCVTPS2PD     Y1, Z1; \
	VADDPD        off(STATE), Z0, Z0; \
	VADDPD        (64+off)(STATE), Z1, Z1; \
	VMOVUPD       Z0, off(STATE); \
	VMOVUPD       Z1, (64+off)(STATE)

// func rowBlocksAVX512(x unsafe.Pointer, typ, chunks int, tail *[16]float32, st *rowState, entropy bool) int
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
	MOVQ          typ+8(FP), TYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	MOVQ          st+32(FP), STATE
	MOVBQZX       entropy+40(FP), DX
	VBROADCASTSS  0(STATE), K_
	VBROADCASTSS  4(STATE), KLO
	MOVL          4(STATE), CX            // kLo's bits: 0 at temperature 1
	VBROADCASTSS  8(STATE), NEGC
	VPXORD        Z0, Z0, Z0
	VSUBPS        NEGC, Z0, NEGC
	VBROADCASTSS  const512<>+0(SB), MINY
	VBROADCASTSS  const512<>+4(SB), C5
	VBROADCASTSS  const512<>+8(SB), C4
	VBROADCASTSS  const512<>+12(SB), C3
	VBROADCASTSS  const512<>+16(SB), C2
	VBROADCASTSS  const512<>+20(SB), C1
	VBROADCASTSS  const512<>+24(SB), ONE
	VMOVDQU32     widen16<>+0(SB), WLO
	VMOVDQU32     widen16<>+64(SB), WHI
	MOVL          $0xaaaaaaaa, BX
	KMOVD         BX, ODD
	XORQ          DONE, DONE

block:
	MOVQ          CHUNKS, BLOCK
	CMPQ          TAIL, $1
	SBBQ          $-1, BLOCK              // + 1 if there is a tail
	TESTQ         BLOCK, BLOCK
	JEQ           done
	MOVQ          $64, BX
	CMPQ          BLOCK, BX
	CMOVQGT       BX, BLOCK
	MOVQ          DONE, START
	ADDQ          BLOCK, DONE
	VPXORD        BS, BS, BS
	VPXORD        BT, BT, BT

group:
	MOVQ          $8, GROUP
	CMPQ          BLOCK, GROUP
	CMOVQLT       BLOCK, GROUP
	SUBQ          GROUP, BLOCK
	VPXORD        GS, GS, GS
	VPXORD        GT, GT, GT

four:
	CMPQ          GROUP, $4
	JLT           one
	CMPQ          CHUNKS, $4
	JLT           one
	SUBQ          $4, GROUP
	SUBQ          $4, CHUNKS
	LOAD4(four_bf16, four_f16, four_loaded)
	TESTL         CX, CX
	JNE           four_temperature
	VFMADD213PS   NEGC, K_, Z0            // y = x*k - c
	VFMADD213PS   NEGC, K_, Z1
	VFMADD213PS   NEGC, K_, Z2
	VFMADD213PS   NEGC, K_, Z3

four_y:
	VMAXPS        Z0, MINY, Z0            // NaN stays: it is the second operand
	VMAXPS        Z1, MINY, Z1
	VMAXPS        Z2, MINY, Z2
	VMAXPS        Z3, MINY, Z3
	SPLIT(Z0, Z4)
	SPLIT(Z1, Z5)
	SPLIT(Z2, Z6)
	SPLIT(Z3, Z7)
	VMOVAPS       C5, Z8
	VMOVAPS       C5, Z9
	VMOVAPS       C5, Z10
	VMOVAPS       C5, Z11
	HORNER(C4, Z4, Z8)
	HORNER(C4, Z5, Z9)
	HORNER(C4, Z6, Z10)
	HORNER(C4, Z7, Z11)
	PREFETCH(0)
	HORNER(C3, Z4, Z8)
	HORNER(C3, Z5, Z9)
	HORNER(C3, Z6, Z10)
	HORNER(C3, Z7, Z11)
	PREFETCH(1)
	HORNER(C2, Z4, Z8)
	HORNER(C2, Z5, Z9)
	HORNER(C2, Z6, Z10)
	HORNER(C2, Z7, Z11)
	PREFETCH(2)
	HORNER(C1, Z4, Z8)
	HORNER(C1, Z5, Z9)
	HORNER(C1, Z6, Z10)
	HORNER(C1, Z7, Z11)
	PREFETCH(3)
	HORNER(ONE, Z4, Z8)
	HORNER(ONE, Z5, Z9)
	HORNER(ONE, Z6, Z10)
	HORNER(ONE, Z7, Z11)
	SCALE(Z0, Z4, Z8)
	SCALE(Z1, Z5, Z9)
	SCALE(Z2, Z6, Z10)
	SCALE(Z3, Z7, Z11)
	VADDPS        Z8, GS, GS
	VADDPS        Z9, GS, GS
	VADDPS        Z10, GS, GS
	VADDPS        Z11, GS, GS
	TESTB         DX, DX
	JEQ           four
	VFMADD231PS   Z8, Z0, GT
	VFMADD231PS   Z9, Z1, GT
	VFMADD231PS   Z10, Z2, GT
	VFMADD231PS   Z11, Z3, GT
	JMP           four

four_temperature:
	VMOVAPS       Z0, Z4
	VMOVAPS       Z1, Z5
	VMOVAPS       Z2, Z6
	VMOVAPS       Z3, Z7
	VFMADD213PS   NEGC, K_, Z0
	VFMADD213PS   NEGC, K_, Z1
	VFMADD213PS   NEGC, K_, Z2
	VFMADD213PS   NEGC, K_, Z3
	VFMADD231PS   Z4, KLO, Z0             // y += x*kLo
	VFMADD231PS   Z5, KLO, Z1
	VFMADD231PS   Z6, KLO, Z2
	VFMADD231PS   Z7, KLO, Z3
	JMP           four_y

one:
	TESTQ         GROUP, GROUP
	JEQ           group_done
	DECQ          GROUP
	LOAD1(one_more, one_bf16, one_f16, one_loaded)
	VMOVAPS       Z0, Z4
	VFMADD213PS   NEGC, K_, Z0
	TESTL         CX, CX
	JEQ           one_y
	VFMADD231PS   Z4, KLO, Z0

one_y:
	VMAXPS        Z0, MINY, Z0
	SPLIT(Z0, Z4)
	VMOVAPS       C5, Z8
	HORNER(C4, Z4, Z8)
	HORNER(C3, Z4, Z8)
	HORNER(C2, Z4, Z8)
	HORNER(C1, Z4, Z8)
	HORNER(ONE, Z4, Z8)
	SCALE(Z0, Z4, Z8)
	VADDPS        Z8, GS, GS
	VFMADD231PS   Z8, Z0, GT
	JMP           one

group_done:
	VADDPS        GS, BS, BS
	VADDPS        GT, BT, BT
	TESTQ         BLOCK, BLOCK
	JNE           group
	VBROADCASTSS  16(STATE), Z0
	VCMPPS        $30, Z0, BS, K2         // bs > alarm
	KORTESTW      K2, K2
	JNE           alarm
	FLUSH(BS, Y28, 24)
	FLUSH(BT, Y29, 152)
	TESTQ         CHUNKS, CHUNKS
	JGT           block
	JLT           done                    // the tail was taken
	TESTQ         TAIL, TAIL
	JNE           block                   // the tail is a block of its own

done:
	MOVQ          $-1, ret+48(FP)
	VZEROUPPER
	RET

alarm:
	MOVQ          START, ret+48(FP)
	VZEROUPPER
	RET

// func blockMaxAVX512(x unsafe.Pointer, typ, chunks int, tail *[16]float32) float32
//
// The largest element; NaN if one is NaN.
TEXT ·blockMaxAVX512(SB), NOSPLIT, $0-36
	MOVQ          x+0(FP), X_PTR
	MOVQ          typ+8(FP), TYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	VBROADCASTSS  const512<>+28(SB), Z4
	VMOVAPS       Z4, Z5
	VMOVAPS       Z4, Z6
	VMOVAPS       Z4, Z7
	VMOVDQU32     widen16<>+0(SB), WLO
	VMOVDQU32     widen16<>+64(SB), WHI
	MOVL          $0xaaaaaaaa, BX
	KMOVD         BX, ODD
	KXORW         K2, K2, K2              // lanes that saw a NaN

max_four:
	CMPQ          CHUNKS, $4
	JLT           max_one
	SUBQ          $4, CHUNKS
	LOAD4(max_four_bf16, max_four_f16, max_four_loaded)
	VMAXPS        Z0, Z4, Z4
	VMAXPS        Z1, Z5, Z5
	VMAXPS        Z2, Z6, Z6
	VMAXPS        Z3, Z7, Z7
	VCMPPS        $3, Z0, Z1, K3          // unordered: a NaN in either
	VCMPPS        $3, Z2, Z3, K4
	KORW          K3, K2, K2
	KORW          K4, K2, K2
	JMP           max_four

max_one:
	MOVQ          CHUNKS, BX
	CMPQ          TAIL, $1
	SBBQ          $-1, BX                 // + 1 if there is a tail
	JLE           max_reduce
	LOAD1(max_one_more, max_one_bf16, max_one_f16, max_one_loaded)
	VMAXPS        Z0, Z4, Z4
	VCMPPS        $3, Z0, Z0, K3
	KORW          K3, K2, K2
	TESTQ         CHUNKS, CHUNKS
	JGE           max_one

max_reduce:
	VMAXPS        Z5, Z4, Z4
	VMAXPS        Z7, Z6, Z6
	VMAXPS        Z6, Z4, Z4
	VEXTRACTF32X8 $1, Z4, Y0
	VMAXPS        Y0, Y4, Y0
	VEXTRACTF128  $1, Y0, X1
	VMAXPS        X1, X0, X0
	VPERMILPS     $0x4e, X0, X1
	VMAXPS        X1, X0, X0
	VPERMILPS     $0xb1, X0, X1
	VMAXSS        X1, X0, X0
	KORTESTW      K2, K2
	JEQ           max_return
	VPCMPEQD      X0, X0, X0              // NaN

max_return:
	VMOVSS        X0, ret+32(FP)
	VZEROUPPER
	RET
