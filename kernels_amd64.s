//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// Rows of logits with AVX2 and FMA3: their sums, their maximum, their gradient.
// The arithmetic and its order are those of kernels_portable.go. A chunk of 16
// elements is two vectors: names that end in 0 are lanes 0 to 7, in 1 lanes 8 to 15.

VECTOR(maxRowY, 0x42fc0000) // 126: 2^y is still finite

#define X_PTR SI
#define DTYPE AX   // the number of the DType: 0 is float32
#define CHUNKS R8 // whole chunks left in the row
#define TAIL R9   // a last, padded chunk of float32, or 0

#define NEAR 2048 // bytes to prefetch ahead into the first cache: see PREFETCH in kernels_avx512_amd64.s
#define FAR 8192  // and into the second

#define V0 Y0 // elements, then their y
#define V1 Y1
#define M0 Y2 // m of exp2, then its exponent
#define M1 Y3
#define F0 Y4 // f of exp2
#define F1 Y5
#define P0 Y6 // the polynomial, then 2^y
#define P1 Y7

// LOAD_CHUNK reads a chunk into V0 and V1 as float32 and steps over it.
#define LOAD_CHUNK(bf16, f16, loaded) \
	CMPQ          DTYPE, BFLOAT16; \
	JEQ           bf16; \
	JHI           f16; \
	VMOVUPS       (X_PTR), V0; \
	VMOVUPS       32(X_PTR), V1; \
	ADDQ          $CHUNK4, X_PTR; \
	JMP           loaded; \
bf16: \
	VPMOVZXWD     (X_PTR), V0; \
	VPMOVZXWD     16(X_PTR), V1; \
	VPSLLD        BF16_IN_F32, V0, V0; \
	VPSLLD        BF16_IN_F32, V1, V1; \
	ADDQ          $CHUNK2, X_PTR; \
	JMP           loaded; \
f16: \
	VCVTPH2PS     (X_PTR), V0; \
	VCVTPH2PS     16(X_PTR), V1; \
	ADDQ          $CHUNK2, X_PTR; \
loaded:

// LOAD_TAIL reads the tail into V0 and V1.
#define LOAD_TAIL \
	VMOVUPS       (TAIL), V0; \
	VMOVUPS       32(TAIL), V1

#define STATE DI
#define ENTROPY DX  // 1 if the sums of y 2^y are wanted
#define KLO_BITS CX // 0 at temperature 1
#define BLOCK R10   // chunks left in the block, the tail counted
#define GROUP R11   // chunks left in the group
#define START R12   // chunk where the block began
#define DONE R13    // chunks done
#define TEMP BX

#define GS0 Y8     // the group's sums of 2^y, later the block's
#define GS1 Y9
#define GT0 Y10    // the group's sums of y 2^y, later the block's
#define GT1 Y11
#define GS0_LOW X8 // their lower halves
#define GS1_LOW X9
#define GT0_LOW X10
#define GT1_LOW X11
#define KHI Y12
#define MINY Y13
#define MAXY Y14
#define MAGIC Y15

// Between chunks these are free.
#define NEGC Y0
#define ZERO Y1
#define ALARM Y0
#define ABOVE0 Y1
#define ABOVE1 Y2

// At a temperature, before exp2 needs them.
#define KEPT0 Y2 // the elements
#define KEPT1 Y3
#define KLO Y4

// func rowBlocksAVX2(x unsafe.Pointer, dtype, chunks int, tail *[16]float32, st *rowState, entropy bool) int
//
// The loop is that of rowBlocksAVX512, a chunk at a time. The block's sums, bs and
// bt, live on the stack, and so does -c.
TEXT ·rowBlocksAVX2(SB), NOSPLIT, $192-56
	MOVQ          x+0(FP), X_PTR
	MOVQ          dtype+8(FP), DTYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	MOVQ          st+32(FP), STATE
	MOVBQZX       entropy+40(FP), ENTROPY
	VBROADCASTSS  rowState_k(STATE), KHI
	MOVL          rowState_kLo(STATE), KLO_BITS
	VBROADCASTSS  rowState_c(STATE), NEGC
	VXORPS        ZERO, ZERO, ZERO
	VSUBPS        NEGC, ZERO, NEGC
	VMOVUPS       NEGC, negc-192(SP)
	VMOVUPS       minY<>(SB), MINY
	VMOVUPS       maxRowY<>(SB), MAXY
	VMOVUPS       magic<>(SB), MAGIC
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
	VXORPS        ZERO, ZERO, ZERO
	VMOVUPS       ZERO, bs0-160(SP)
	VMOVUPS       ZERO, bs1-128(SP)
	VMOVUPS       ZERO, bt0-96(SP)
	VMOVUPS       ZERO, bt1-64(SP)

group:
	MOVQ          $GROUP_CHUNKS, GROUP
	CMPQ          BLOCK, GROUP
	CMOVQLT       BLOCK, GROUP
	SUBQ          GROUP, BLOCK
	VXORPS        GS0, GS0, GS0
	VXORPS        GS1, GS1, GS1
	VXORPS        GT0, GT0, GT0
	VXORPS        GT1, GT1, GT1

chunk:
	SUBQ          $1, CHUNKS             // below 0: the tail
	JCS           last
	LOAD_CHUNK(bf16, f16, loaded)
	TESTL         KLO_BITS, KLO_BITS
	JNE           temperature
	VFMADD213PS   negc-192(SP), KHI, V0  // y = x*k - c
	VFMADD213PS   negc-192(SP), KHI, V1

y:
	VMAXPS        V0, MINY, V0           // NaN stays: it is the second operand
	VMAXPS        V1, MINY, V1
	VMINPS        V0, MAXY, V0           // a large y shows in the sums, and the row's maximum is taken then
	VMINPS        V1, MAXY, V1
	VADDPS        MAGIC, V0, M0          // the integer next to y, in the low bits
	VADDPS        MAGIC, V1, M1
	VSUBPS        MAGIC, M0, F0          // that integer
	VSUBPS        MAGIC, M1, F1
	VSUBPS        F0, V0, F0
	VSUBPS        F1, V1, F1
	VMOVUPS       exp2C5<>(SB), P0
	VMOVUPS       exp2C5<>(SB), P1
	HORNER(exp2C4<>(SB), F0, P0)
	HORNER(exp2C4<>(SB), F1, P1)
	HORNER(exp2C3<>(SB), F0, P0)
	HORNER(exp2C3<>(SB), F1, P1)
	HORNER(exp2C2<>(SB), F0, P0)
	HORNER(exp2C2<>(SB), F1, P1)
	PREFETCHT0    NEAR(X_PTR)
	PREFETCHT1    FAR(X_PTR)
	HORNER(exp2C1<>(SB), F0, P0)
	HORNER(exp2C1<>(SB), F1, P1)
	HORNER(one<>(SB), F0, P0)            // 2^f
	HORNER(one<>(SB), F1, P1)
	VPSLLD        EXPONENT, M0, M0
	VPSLLD        EXPONENT, M1, M1
	TESTB         ENTROPY, ENTROPY
	JEQ           no_entropy
	VPADDD        M0, P0, P0             // 2^f 2^(y-f); a NaN here may be lost, but not in gt
	VPADDD        M1, P1, P1
	VADDPS        P0, GS0, GS0
	VADDPS        P1, GS1, GS1
	VFMADD231PS   P0, V0, GT0
	VFMADD231PS   P1, V1, GT1
	DECQ          GROUP
	JNE           chunk
	JMP           group_done

no_entropy:
	VPADDD        one<>(SB), M0, M0      // 2^(y-f)
	VPADDD        one<>(SB), M1, M1
	VFMADD231PS   M0, P0, GS0            // the product is exact
	VFMADD231PS   M1, P1, GS1
	DECQ          GROUP
	JNE           chunk

group_done:
	VADDPS        bs0-160(SP), GS0, GS0  // bs += gs, bt += gt
	VADDPS        bs1-128(SP), GS1, GS1
	VADDPS        bt0-96(SP), GT0, GT0
	VADDPS        bt1-64(SP), GT1, GT1
	VMOVUPS       GS0, bs0-160(SP)
	VMOVUPS       GS1, bs1-128(SP)
	VMOVUPS       GT0, bt0-96(SP)
	VMOVUPS       GT1, bt1-64(SP)
	TESTQ         BLOCK, BLOCK
	JNE           group
	VBROADCASTSS  rowState_alarm(STATE), ALARM
	VCMPPS        GREATER, ALARM, GS0, ABOVE0
	VCMPPS        GREATER, ALARM, GS1, ABOVE1
	VORPS         ABOVE1, ABOVE0, ABOVE0
	VMOVMSKPS     ABOVE0, TEMP
	TESTL         TEMP, TEMP
	JNE           alarm
	FLUSH_AVX2(GS0, GS0_LOW, STATE, rowState_s)
	FLUSH_AVX2(GS1, GS1_LOW, STATE, rowState_s+64)
	FLUSH_AVX2(GT0, GT0_LOW, STATE, rowState_t)
	FLUSH_AVX2(GT1, GT1_LOW, STATE, rowState_t+64)
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

last:
	LOAD_TAIL
	JMP           loaded

temperature:
	VMOVAPS       V0, KEPT0
	VMOVAPS       V1, KEPT1
	VFMADD213PS   negc-192(SP), KHI, V0
	VFMADD213PS   negc-192(SP), KHI, V1
	VBROADCASTSS  rowState_kLo(STATE), KLO
	VFMADD231PS   KEPT0, KLO, V0         // y += x*kLo
	VFMADD231PS   KEPT1, KLO, V1
	JMP           y

#define MAX0 Y4
#define MAX1 Y5
#define MAX0_LOW X4
#define NANS Y6  // lanes that saw a NaN
#define NAN_NOW Y2
#define BEST X0  // 4 lanes, then 2, then 1
#define OTHER X1 // the lanes to reduce with
#define NAN_BITS BX

// func blockMaxAVX2(x unsafe.Pointer, dtype, chunks int, tail *[16]float32) float32
//
//	m, nan = -Inf, false                   // 16 lanes
//	for each chunk, the tail too {
//		m, nan = max(m, x), nan || x != x
//	}
//	return the largest of m, or NaN if any nan
TEXT ·blockMaxAVX2(SB), NOSPLIT, $0-36
	MOVQ          x+0(FP), X_PTR
	MOVQ          dtype+8(FP), DTYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	VMOVUPS       negInf<>(SB), MAX0
	VMOVAPS       MAX0, MAX1
	VXORPS        NANS, NANS, NANS

max_chunk:
	SUBQ          $1, CHUNKS                 // below 0: the tail, if there is one
	JCS           max_last
	LOAD_CHUNK(max_bf16, max_f16, max_loaded)
	VMAXPS        V0, MAX0, MAX0
	VMAXPS        V1, MAX1, MAX1
	VCMPPS        UNORDERED, V0, V1, NAN_NOW // a NaN in either
	VORPS         NAN_NOW, NANS, NANS
	TESTQ         CHUNKS, CHUNKS
	JGE           max_chunk

max_reduce:
	VMAXPS        MAX1, MAX0, MAX0       // lanes j and j+8
	VEXTRACTF128  UPPER_HALF, MAX0, OTHER
	VMAXPS        OTHER, MAX0_LOW, BEST  // j+4
	VPERMILPS     SWAP_PAIRS, BEST, OTHER
	VMAXPS        OTHER, BEST, BEST      // j+2
	VPERMILPS     SWAP_NEIGHBOURS, BEST, OTHER
	VMAXSS        OTHER, BEST, BEST      // j+1
	VMOVMSKPS     NANS, NAN_BITS
	TESTL         NAN_BITS, NAN_BITS
	JEQ           max_return
	VPCMPEQD      BEST, BEST, BEST       // all bits set: NaN

max_return:
	VMOVSS        BEST, ret+32(FP)
	VZEROUPPER
	RET

max_last:
	TESTQ         TAIL, TAIL
	JEQ           max_reduce
	LOAD_TAIL
	JMP           max_loaded

#undef KLO_BITS
#undef KHI
#undef KLO
#undef NEGC

#define DST_PTR DI
#define VECTORS CX  // vectors of 8 left
#define CONSTS BX
#define KLO_BITS DX // 0 at temperature 1

#define C Y0
#define V Y0        // elements, then their y, then the gradient
#define KEPT Y1     // the elements
#define IN_RANGE Y1 // where y is not below minY
#define CLAMPED Y2  // min(maxY, y)
#define M Y3        // of exp2
#define F Y4        // of exp2
#define P Y5        // 2^y
#define KHI Y8
#define KLO Y9
#define NEGC Y10
#define A Y11
#define B Y12

// To narrow a gradient to bfloat16.
#define UPPER Y1 // the upper 16 bits
#define ROUNDED Y2
#define ROUNDED_LOW X2
#define IS_NAN Y3

// func rowGradientAVX2(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)
//
//	for each element {                     // 8 at a time
//		y = x*k - c                        // + x*kLo, at a temperature
//		dst = y < minY ? 0 : 2^min(maxY, y) * (y*a + b)
//	}
TEXT ·rowGradientAVX2(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          x+8(FP), X_PTR
	MOVQ          dtype+16(FP), DTYPE       // float32 or bfloat16
	MOVQ          chunks+24(FP), VECTORS
	SHLQ          $1, VECTORS            // two a chunk
	MOVQ          q+32(FP), CONSTS
	VBROADCASTSS  gradConsts_k(CONSTS), KHI
	VBROADCASTSS  gradConsts_kLo(CONSTS), KLO
	MOVL          gradConsts_kLo(CONSTS), KLO_BITS
	VXORPS        NEGC, NEGC, NEGC
	VBROADCASTSS  gradConsts_c(CONSTS), C
	VSUBPS        C, NEGC, NEGC
	VBROADCASTSS  gradConsts_a(CONSTS), A
	VBROADCASTSS  gradConsts_b(CONSTS), B
	VMOVUPS       minY<>(SB), MINY
	VMOVUPS       maxY<>(SB), MAXY

gradient:
	TESTQ         DTYPE, DTYPE
	JNE           gradient_bf16
	PREFETCHT0    NEAR(X_PTR)
	VMOVUPS       (X_PTR), V
	ADDQ          $(CHUNK4/2), X_PTR
	JMP           gradient_loaded

gradient_bf16:
	PREFETCHT0    NEAR(X_PTR)
	VPMOVZXWD     (X_PTR), V
	VPSLLD        BF16_IN_F32, V, V
	ADDQ          $(CHUNK2/2), X_PTR

gradient_loaded:
	VMOVAPS       V, KEPT
	VFMADD213PS   NEGC, KHI, V           // y
	TESTL         KLO_BITS, KLO_BITS
	JEQ           gradient_y
	VFMADD231PS   KEPT, KLO, V

gradient_y:
	VCMPPS        NOT_LESS, MINY, V, IN_RANGE // NaN counts
	VMINPS        V, MAXY, CLAMPED
	EXP2_AVX2(CLAMPED, M, F, P)
	VFMADD213PS   B, A, V                     // y*a + b
	VMULPS        V, P, V
	VANDPS        IN_RANGE, V, V
	TESTQ         DTYPE, DTYPE
	JNE           gradient_narrow
	VMOVUPS       V, (DST_PTR)
	ADDQ          $(CHUNK4/2), DST_PTR
	DECQ          VECTORS
	JNE           gradient
	VZEROUPPER
	RET

gradient_narrow:
	VPSRLD        BF16_IN_F32, V, UPPER     // to nearest even: + 0x7fff + the bit that stays last
	VPAND         intOne<>(SB), UPPER, ROUNDED
	VPADDD        roundBF16<>(SB), ROUNDED, ROUNDED
	VPADDD        V, ROUNDED, ROUNDED
	VPSRLD        BF16_IN_F32, ROUNDED, ROUNDED
	VCMPPS        UNORDERED, V, V, IS_NAN   // NaN: cut and made quiet
	VPOR          quietBit<>(SB), UPPER, UPPER
	VBLENDVPS     IS_NAN, UPPER, ROUNDED, ROUNDED
	VPACKUSDW     ROUNDED, ROUNDED, ROUNDED // each half twice
	VPERMQ        QUARTERS_0_2, ROUNDED, ROUNDED
	VMOVDQU       ROUNDED_LOW, (DST_PTR)
	ADDQ          $(CHUNK2/2), DST_PTR
	DECQ          VECTORS
	JNE           gradient
	VZEROUPPER
	RET
