//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// Rows of logits with AVX2 and FMA3: their sums, their maximum, their gradient.
// The arithmetic and its order are those of kernels_portable.go. A chunk of 16
// elements is two vectors: names that end in 0 are lanes 0 to 7, in 1 lanes 8 to 15.

VECTOR(upperBF16, 0xffff0000) // the bits of a float32 that a bfloat16 has
VECTOR(mostY, 0x42fe0000)     // 127, as an integer of its bits: below it a y keeps its order, and a NaN is above

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
	CMPQ          DTYPE, BFLOAT16; \ // float32 is below it, float16 above
	JEQ           bf16; \
	JHI           f16; \
	VMOVUPS       (X_PTR), V0; \     // float32: lanes 0 to 7
	VMOVUPS       32(X_PTR), V1; \   // lanes 8 to 15
	ADDQ          $CHUNK4, X_PTR; \
	JMP           loaded; \
bf16: \
	VPMOVZXWD     (X_PTR), V0; \         // bfloat16: 16 bits a lane, lanes 0 to 7
	VPMOVZXWD     16(X_PTR), V1; \       // lanes 8 to 15
	VPSLLD        BF16_IN_F32, V0, V0; \ // as float32
	VPSLLD        BF16_IN_F32, V1, V1; \
	ADDQ          $CHUNK2, X_PTR; \
	JMP           loaded; \
f16: \
	VCVTPH2PS     (X_PTR), V0; \    // float16 to float32: lanes 0 to 7
	VCVTPH2PS     16(X_PTR), V1; \  // lanes 8 to 15
	ADDQ          $CHUNK2, X_PTR; \
loaded:

// LOAD_TAIL reads the tail into V0 and V1.
#define LOAD_TAIL \
	VMOVUPS       (TAIL), V0; \ // lanes 0 to 7
	VMOVUPS       32(TAIL), V1  // lanes 8 to 15

#define STATE DI
#define WANT DX     // the rowWant
#define KLO_BITS CX // 0 at temperature 1
#define BLOCK R10   // chunks left in the block, the tail counted
#define GROUP R11   // chunks left in the group
#define START R12   // chunk where the block began
#define DONE R13    // chunks done
#define TEMP R11    // where GROUP is not needed
#define LOCALS BX   // -c, bs, bt and bq, for which there are no registers left

#define MINUS_C (LOCALS) // for every chunk
#define BS0 32(LOCALS)   // the block's sums
#define BS1 64(LOCALS)
#define BT0 96(LOCALS)
#define BT1 128(LOCALS)
#define BQ0 160(LOCALS)
#define BQ1 192(LOCALS)

#define GS0 Y8     // the group's sums of 2^y, later the block's
#define GS1 Y9
#define GT0 Y10    // the group's sums of y 2^y, later the block's
#define GT1 Y11
#define NEGC_ALONE Y10 // -c, where they are not wanted
#define GS0_LOW X8 // their lower halves
#define GS1_LOW X9
#define GT0_LOW X10
#define GT1_LOW X11
#define GQ0 Y12    // the group's sums of (2^y)^2, later the block's
#define GQ1 Y13
#define GQ0_LOW X12
#define GQ1_LOW X13

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

// Before exp2 needs it.
#define KHI Y5

#define LEAST Y14 // minY

// A group of whole chunks of float32 or bfloat16 has a loop of its own, without a test in it. The loop begins the next
// chunk while it ends the last one: what an instruction waits for is ready sooner then, so that the scheduler of the
// CPU, which holds some 60 instructions, is not full of those that wait.
#define N0 Y2   // elements of the next chunk, then their y
#define N1 Y3
#define R0 Y14  // the integers next to these y; k, kLo and minY before, where there is no other register
#define R1 Y15
#define K Y12   // with squares K and MINY are in R0, chunk by chunk
#define MINY Y13

// LOAD_F32 and LOAD_BF16 read the next chunk and step over it.
#define LOAD_F32 \
	VMOVUPS       (X_PTR), N0; \
	VMOVUPS       32(X_PTR), N1; \
	ADDQ          $CHUNK4, X_PTR

#define LOAD_BF16 \
	VPMOVZXWD     (X_PTR), N0; \
	VPMOVZXWD     16(X_PTR), N1; \
	VPSLLD        BF16_IN_F32, N0, N0; \
	VPSLLD        BF16_IN_F32, N1, N1; \
	ADDQ          $CHUNK2, X_PTR

// The parts of 2^y, for both vectors: y = x*k - c.
#define TIMES_K(k, negc) \
	VFMADD213PS   negc, k, N0; \
	VFMADD213PS   negc, k, N1

#define BEGIN_Y TIMES_K(K, MINUS_C)

#define ALONE_Y TIMES_K(K, NEGC_ALONE)

#define SQUARES_Y \
	VBROADCASTSS  rowState_k(STATE), R0; \
	TIMES_K(R0, MINUS_C)

// At a temperature y = x*k - c + x*kLo, with x read again.
#define PLUS_KLO_F32 \
	VBROADCASTSS  rowState_kLo(STATE), R0; \
	VFMADD231PS   -CHUNK4(X_PTR), R0, N0; \
	VFMADD231PS   (32-CHUNK4)(X_PTR), R0, N1

#define PLUS_KLO_BF16 \
	VBROADCASTSS  rowState_kLo(STATE), R0; \
	VPMOVZXWD     -CHUNK2(X_PTR), R1; \
	VPSLLD        BF16_IN_F32, R1, R1; \
	VFMADD231PS   R1, R0, N0; \
	VPMOVZXWD     (16-CHUNK2)(X_PTR), R1; \
	VPSLLD        BF16_IN_F32, R1, R1; \
	VFMADD231PS   R1, R0, N1

#define BEGIN_Y_F32 \
	BEGIN_Y; \
	PLUS_KLO_F32

#define BEGIN_Y_BF16 \
	BEGIN_Y; \
	PLUS_KLO_BF16

#define ALONE_Y_F32 \
	ALONE_Y; \
	PLUS_KLO_F32

#define ALONE_Y_BF16 \
	ALONE_Y; \
	PLUS_KLO_BF16

#define SQUARES_Y_F32 \
	SQUARES_Y; \
	PLUS_KLO_F32

#define SQUARES_Y_BF16 \
	SQUARES_Y; \
	PLUS_KLO_BF16

// y = max(minY, y)
#define AT_LEAST(least) \
	VMAXPS        N0, least, N0; \ // a NaN stays: it is the second operand
	VMAXPS        N1, least, N1

#define CLAMP_Y AT_LEAST(MINY)

#define SQUARES_CLAMP \
	VMOVUPS       minY<>(SB), R0; \
	AT_LEAST(R0)

#define ROUND_Y \
	VROUNDPS      NEAREST_EVEN, N0, R0; \
	VROUNDPS      NEAREST_EVEN, N1, R1

// NEXT makes the next chunk the one at hand: f = y - the integer next to it.
#define NEXT \
	VSUBPS        R0, N0, F0; \
	VSUBPS        R1, N1, F1; \
	VMOVAPS       N0, V0; \
	VMOVAPS       N1, V1

// STEP is a step of the polynomial.
#define STEP(c) \
	HORNER(c<>(SB), F0, P0); \
	HORNER(c<>(SB), F1, P1)

// EXPONENTS puts the integer next to y in the place of the exponent, where f was. A large y shows in the sums, and the
// row's maximum is taken then.
#define EXPONENTS \
	VPMINSD       mostY<>(SB), V0, F0; \
	VPMINSD       mostY<>(SB), V1, F1; \
	VCVTPS2DQ     F0, F0; \
	VCVTPS2DQ     F1, F1; \
	VPSLLD        EXPONENT, F0, F0; \
	VPSLLD        EXPONENT, F1, F1

// ADD_SUMS adds 2^y and y 2^y, ADD_SQUARES (2^y)^2 too, ADD_ALONE 2^y alone: as the general loop does.
#define ADD_SUMS \
	VPADDD        F0, P0, P0; \
	VPADDD        F1, P1, P1; \
	VADDPS        P0, GS0, GS0; \
	VADDPS        P1, GS1, GS1; \
	VFMADD231PS   P0, V0, GT0; \
	VFMADD231PS   P1, V1, GT1

#define ADD_SQUARES \
	ADD_SUMS; \
	VFMADD231PS   P0, P0, GQ0; \
	VFMADD231PS   P1, P1, GQ1

#define ADD_ALONE \
	VPADDD        one<>(SB), F0, F0; \
	VPADDD        one<>(SB), F1, F1; \
	VFMADD231PS   F0, P0, GS0; \
	VFMADD231PS   F1, P1, GS1

// GROUP_LOOP adds GROUP chunks.
#define GROUP_LOOP(again, last, LOAD, BEGIN, CLAMP, ADD, done) \
	LOAD; \
	BEGIN; \
	CLAMP; \
	ROUND_Y; \
	NEXT; \
	DECQ          GROUP; \
	JEQ           last; \
again: \
	VMOVUPS       exp2C5<>(SB), P0; \
	VMOVAPS       P0, P1; \
	LOAD; \
	STEP(exp2C4); \
	BEGIN; \
	STEP(exp2C3); \
	PREFETCHT0    NEAR(X_PTR); \
	PREFETCHT1    FAR(X_PTR); \
	CLAMP; \
	STEP(exp2C2); \
	ROUND_Y; \
	STEP(exp2C1); \
	STEP(one); \
	EXPONENTS; \
	ADD; \
	NEXT; \
	DECQ          GROUP; \
	JNE           again; \
last: \
	VMOVUPS       exp2C5<>(SB), P0; \
	VMOVAPS       P0, P1; \
	STEP(exp2C4); \
	STEP(exp2C3); \
	STEP(exp2C2); \
	STEP(exp2C1); \
	STEP(one); \
	EXPONENTS; \
	ADD; \
	JMP           done

// func rowBlocksAVX2(x unsafe.Pointer, dtype, chunks int, tail *[16]float32, st *rowState, want rowWant) int
//
//	for chunks remain {                    // a block: 64 chunks
//		bs, bt, bq = 0, 0, 0               // 16 lanes each
//		for 8 chunks or what remains {     // a group
//			gs, gt, gq = 0, 0, squaresFrom
//			for each chunk, the tail too {
//				y = x*k - c                // + x*kLo, at a temperature
//				y = max(minY, y)
//				p = 2^y                    // of a y from 127 on: at least 2^126, or NaN
//				gs, gt, gq = gs+p, gt+y*p, gq+p*p  // of gt and gq what is wanted
//			}
//			bs, bt, bq = bs+gs, bt+gt, bq+gq  // bq if it is wanted
//		}
//		if any bs > st.alarm { return the block's first chunk }
//		st.s, st.t, st.q = st.s+bs, st.t+bt, st.q+bq  // float64; st.q if it is wanted
//	}
//	return -1
//
// The locals have an address that 32 divides: a vector that two cache lines share takes longer to read.
TEXT ·rowBlocksAVX2(SB), NOSPLIT, $248-56
	MOVQ          x+0(FP), X_PTR
	MOVQ          dtype+8(FP), DTYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	MOVQ          st+32(FP), STATE
	MOVBQZX       want+40(FP), WANT
	LEAQ          locals-248(SP), LOCALS        // 224 bytes and what they may be moved by
	ADDQ          $31, LOCALS
	ANDQ          $-32, LOCALS
	MOVL          rowState_kLo(STATE), KLO_BITS // 0 at temperature 1
	VBROADCASTSS  rowState_c(STATE), NEGC
	VXORPS        ZERO, ZERO, ZERO
	VSUBPS        NEGC, ZERO, NEGC              // -c
	VMOVUPS       NEGC, MINUS_C                 // for every chunk
	VMOVUPS       minY<>(SB), MINY              // the limits of y
	XORQ          DONE, DONE                    // no chunk is done

block:
	MOVQ          CHUNKS, BLOCK          // the chunks that remain
	CMPQ          TAIL, $1               // carry if there is no tail
	SBBQ          $-1, BLOCK             // + 1 if there is one
	TESTQ         BLOCK, BLOCK
	JEQ           done                   // none does
	MOVQ          $BLOCK_CHUNKS, TEMP    // a block has no more than this
	CMPQ          BLOCK, TEMP
	CMOVQGT       TEMP, BLOCK            // BLOCK = min(BLOCK, BLOCK_CHUNKS)
	MOVQ          DONE, START            // the block's first chunk
	ADDQ          BLOCK, DONE            // the next block's
	VXORPS        ZERO, ZERO, ZERO
	VMOVUPS       ZERO, BS0              // bs = 0
	VMOVUPS       ZERO, BS1
	VMOVUPS       ZERO, BT0              // bt = 0
	VMOVUPS       ZERO, BT1
	VMOVUPS       ZERO, BQ0              // bq = 0
	VMOVUPS       ZERO, BQ1

group:
	MOVQ          $GROUP_CHUNKS, GROUP   // GROUP = min(GROUP_CHUNKS, BLOCK)
	CMPQ          BLOCK, GROUP
	CMOVQLT       BLOCK, GROUP
	SUBQ          GROUP, BLOCK           // what the block has after this group
	VXORPS        GS0, GS0, GS0          // gs = 0
	VXORPS        GS1, GS1, GS1
	VXORPS        GT0, GT0, GT0          // gt = 0
	VXORPS        GT1, GT1, GT1
	CMPB          WANT, $const_wantSquares
	JEQ           group_squares
	CMPQ          CHUNKS, GROUP
	JLT           general                // the tail is in it
	CMPQ          DTYPE, BFLOAT16
	JHI           general                // float16
	VBROADCASTSS  rowState_k(STATE), K
	JEQ           group_bf16
	SUBQ          GROUP, CHUNKS
	TESTL         KLO_BITS, KLO_BITS
	JNE           tau_f32
	TESTB         WANT, WANT
	JEQ           alone_f32
	GROUP_LOOP(sums_f32_again, sums_f32_last, LOAD_F32, BEGIN_Y, CLAMP_Y, ADD_SUMS, sums_done)

alone_f32:
	VMOVUPS       MINUS_C, NEGC_ALONE
	GROUP_LOOP(alone_f32_again, alone_f32_last, LOAD_F32, ALONE_Y, CLAMP_Y, ADD_ALONE, group_done)

tau_f32:
	TESTB         WANT, WANT
	JEQ           alone_tau_f32
	GROUP_LOOP(sums_tau_f32_again, sums_tau_f32_last, LOAD_F32, BEGIN_Y_F32, CLAMP_Y, ADD_SUMS, sums_done)

alone_tau_f32:
	VMOVUPS       MINUS_C, NEGC_ALONE
	GROUP_LOOP(alone_tau_f32_again, alone_tau_f32_last, LOAD_F32, ALONE_Y_F32, CLAMP_Y, ADD_ALONE, group_done)

group_bf16:
	SUBQ          GROUP, CHUNKS
	TESTL         KLO_BITS, KLO_BITS
	JNE           tau_bf16
	TESTB         WANT, WANT
	JEQ           alone_bf16
	GROUP_LOOP(sums_bf16_again, sums_bf16_last, LOAD_BF16, BEGIN_Y, CLAMP_Y, ADD_SUMS, sums_done)

alone_bf16:
	VMOVUPS       MINUS_C, NEGC_ALONE
	GROUP_LOOP(alone_bf16_again, alone_bf16_last, LOAD_BF16, ALONE_Y, CLAMP_Y, ADD_ALONE, group_done)

tau_bf16:
	TESTB         WANT, WANT
	JEQ           alone_tau_bf16
	GROUP_LOOP(sums_tau_bf16_again, sums_tau_bf16_last, LOAD_BF16, BEGIN_Y_BF16, CLAMP_Y, ADD_SUMS, sums_done)

alone_tau_bf16:
	VMOVUPS       MINUS_C, NEGC_ALONE
	GROUP_LOOP(alone_tau_bf16_again, alone_tau_bf16_last, LOAD_BF16, ALONE_Y_BF16, CLAMP_Y, ADD_ALONE, group_done)

group_squares:
	VMOVUPS       squaresFrom<>(SB), GQ0 // gq = squaresFrom
	VMOVAPS       GQ0, GQ1
	CMPQ          CHUNKS, GROUP
	JLT           general
	CMPQ          DTYPE, BFLOAT16
	JHI           general
	JEQ           squares_bf16
	SUBQ          GROUP, CHUNKS
	TESTL         KLO_BITS, KLO_BITS
	JNE           squares_tau_f32
	GROUP_LOOP(sq_f32_again, sq_f32_last, LOAD_F32, SQUARES_Y, SQUARES_CLAMP, ADD_SQUARES, squares_done)

squares_tau_f32:
	GROUP_LOOP(sq_tau_f32_again, sq_tau_f32_last, LOAD_F32, SQUARES_Y_F32, SQUARES_CLAMP, ADD_SQUARES, squares_done)

squares_bf16:
	SUBQ          GROUP, CHUNKS
	TESTL         KLO_BITS, KLO_BITS
	JNE           squares_tau_bf16
	GROUP_LOOP(sq_bf16_again, sq_bf16_last, LOAD_BF16, SQUARES_Y, SQUARES_CLAMP, ADD_SQUARES, squares_done)

squares_tau_bf16:
	GROUP_LOOP(sq_tau_bf16_again, sq_tau_bf16_last, LOAD_BF16, SQUARES_Y_BF16, SQUARES_CLAMP, ADD_SQUARES, squares_done)

general:
	VMOVUPS       minY<>(SB), LEAST

chunk:
	SUBQ          $1, CHUNKS             // below 0: the tail
	JCS           last
	LOAD_CHUNK(bf16, f16, loaded)
	VBROADCASTSS  rowState_k(STATE), KHI
	TESTL         KLO_BITS, KLO_BITS     // at a temperature y needs x*kLo too
	JNE           temperature
	VFMADD213PS   MINUS_C, KHI, V0       // y = x*k - c
	VFMADD213PS   MINUS_C, KHI, V1

y:
	VMAXPS        V0, LEAST, V0          // y = max(minY, y): NaN stays, it is the second operand
	VMAXPS        V1, LEAST, V1
	VROUNDPS      NEAREST_EVEN, V0, F0   // the integer next to y
	VROUNDPS      NEAREST_EVEN, V1, F1
	VPMINSD       mostY<>(SB), V0, M0    // a large y shows in the sums, and the row's maximum is taken then
	VPMINSD       mostY<>(SB), V1, M1
	VCVTPS2DQ     M0, M0                 // that integer, as int32
	VCVTPS2DQ     M1, M1
	VSUBPS        F0, V0, F0             // f = y - that integer
	VSUBPS        F1, V1, F1
	VMOVUPS       exp2C5<>(SB), P0       // the polynomial of 2^f begins with C5
	VMOVUPS       exp2C5<>(SB), P1
	HORNER(exp2C4<>(SB), F0, P0)         // p = p*f + C4
	HORNER(exp2C4<>(SB), F1, P1)
	HORNER(exp2C3<>(SB), F0, P0)         // p = p*f + C3
	HORNER(exp2C3<>(SB), F1, P1)
	HORNER(exp2C2<>(SB), F0, P0)         // p = p*f + C2
	HORNER(exp2C2<>(SB), F1, P1)
	PREFETCHT0    NEAR(X_PTR)            // elements of later chunks
	PREFETCHT1    FAR(X_PTR)
	HORNER(exp2C1<>(SB), F0, P0)         // p = p*f + C1
	HORNER(exp2C1<>(SB), F1, P1)
	HORNER(one<>(SB), F0, P0)            // p = p*f + 1 = 2^f
	HORNER(one<>(SB), F1, P1)
	VPSLLD        EXPONENT, M0, M0       // the integer in the place of the exponent
	VPSLLD        EXPONENT, M1, M1
	TESTB         WANT, WANT             // the sums of 2^y alone?
	JEQ           sum_alone
	VPADDD        M0, P0, P0             // p = 2^f 2^(y-f); a NaN here may be lost, but not in gt
	VPADDD        M1, P1, P1
	VADDPS        P0, GS0, GS0           // gs += p
	VADDPS        P1, GS1, GS1
	VFMADD231PS   P0, V0, GT0            // gt += y*p
	VFMADD231PS   P1, V1, GT1
	CMPB          WANT, $const_wantSquares
	JNE           added
	VFMADD231PS   P0, P0, GQ0            // gq += p*p
	VFMADD231PS   P1, P1, GQ1

added:
	DECQ          GROUP
	JNE           chunk
	CMPB          WANT, $const_wantEntropy
	JCS           group_done             // bt and bq are not wanted
	JEQ           sums_done              // bq is not

squares_done:
	VADDPS        BQ0, GQ0, GQ0          // bq += gq
	VADDPS        BQ1, GQ1, GQ1
	VMOVUPS       GQ0, BQ0               // it stays on the stack for the next group
	VMOVUPS       GQ1, BQ1

sums_done:
	VADDPS        BT0, GT0, GT0          // bt += gt
	VADDPS        BT1, GT1, GT1
	VMOVUPS       GT0, BT0
	VMOVUPS       GT1, BT1

group_done:
	VADDPS        BS0, GS0, GS0                 // bs += gs
	VADDPS        BS1, GS1, GS1
	VMOVUPS       GS0, BS0
	VMOVUPS       GS1, BS1
	TESTQ         BLOCK, BLOCK
	JNE           group                         // next group of the block
	VBROADCASTSS  rowState_alarm(STATE), ALARM  // st.alarm
	VCMPPS        GREATER, ALARM, GS0, ABOVE0   // bs > st.alarm
	VCMPPS        GREATER, ALARM, GS1, ABOVE1
	VORPS         ABOVE1, ABOVE0, ABOVE0        // in lanes j or j+8
	VMOVMSKPS     ABOVE0, TEMP                  // a bit for each such j
	TESTL         TEMP, TEMP
	JNE           alarm                         // the block is not added
	FLUSH_AVX2(GS0, GS0_LOW, STATE, rowState_s) // st.s += bs
	FLUSH_AVX2(GS1, GS1_LOW, STATE, rowState_s+64)
	TESTB         WANT, WANT
	JEQ           flushed                       // bt is not wanted
	FLUSH_AVX2(GT0, GT0_LOW, STATE, rowState_t) // st.t += bt
	FLUSH_AVX2(GT1, GT1_LOW, STATE, rowState_t+64)
	CMPB          WANT, $const_wantSquares
	JNE           flushed                       // bq is not wanted
	FLUSH_AVX2(GQ0, GQ0_LOW, STATE, rowState_q) // st.q += bq
	FLUSH_AVX2(GQ1, GQ1_LOW, STATE, rowState_q+64)

flushed:
	TESTQ         CHUNKS, CHUNKS
	JGT           block                         // next block
	JLT           done                          // the tail was taken
	TESTQ         TAIL, TAIL
	JNE           block                         // the tail is a block of its own

done:
	MOVQ          $-1, ret+48(FP)        // nothing stopped it
	VZEROUPPER
	RET

alarm:
	MOVQ          START, ret+48(FP)      // the block's first chunk
	VZEROUPPER
	RET

last:
	LOAD_TAIL
	JMP           loaded

sum_alone:
	VPADDD        one<>(SB), M0, M0      // 2^(y-f)
	VPADDD        one<>(SB), M1, M1
	VFMADD231PS   M0, P0, GS0            // gs += 2^f 2^(y-f), whose product is exact
	VFMADD231PS   M1, P1, GS1
	JMP           added

temperature:
	VMOVAPS       V0, KEPT0                // x, for x*kLo
	VMOVAPS       V1, KEPT1
	VFMADD213PS   MINUS_C, KHI, V0         // y = x*k - c
	VFMADD213PS   MINUS_C, KHI, V1
	VBROADCASTSS  rowState_kLo(STATE), KLO
	VFMADD231PS   KEPT0, KLO, V0           // y += x*kLo
	VFMADD231PS   KEPT1, KLO, V1
	JMP           y

#undef FAR
#undef M0
#undef M1
#undef F0
#undef F1
#undef P0
#undef P1
#undef STATE
#undef WANT
#undef KLO_BITS
#undef BLOCK
#undef GROUP
#undef START
#undef DONE
#undef TEMP
#undef LOCALS
#undef MINUS_C
#undef BS0
#undef BS1
#undef BT0
#undef BT1
#undef BQ0
#undef BQ1
#undef GS0
#undef GS1
#undef GT0
#undef GT1
#undef NEGC_ALONE
#undef GS0_LOW
#undef GS1_LOW
#undef GT0_LOW
#undef GT1_LOW
#undef GQ0
#undef GQ1
#undef GQ0_LOW
#undef GQ1_LOW
#undef KHI
#undef NEGC
#undef ZERO
#undef ALARM
#undef ABOVE0
#undef ABOVE1
#undef KEPT0
#undef KEPT1
#undef KLO
#undef N0
#undef N1
#undef R0
#undef R1
#undef K
#undef LEAST

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
	VMOVUPS       negInf<>(SB), MAX0     // m = -Inf
	VMOVAPS       MAX0, MAX1
	VXORPS        NANS, NANS, NANS       // nan = false

max_chunk:
	SUBQ          $1, CHUNKS                  // below 0: the tail, if there is one
	JCS           max_last
	LOAD_CHUNK(max_bf16, max_f16, max_loaded)
	VMAXPS        V0, MAX0, MAX0              // m = max(m, x)
	VMAXPS        V1, MAX1, MAX1
	VCMPPS        UNORDERED, V0, V1, NAN_NOW  // a NaN in either
	VORPS         NAN_NOW, NANS, NANS         // nan = nan || x != x
	TESTQ         CHUNKS, CHUNKS              // below 0: the tail was taken
	JGE           max_chunk

max_reduce:
	VMAXPS        MAX1, MAX0, MAX0             // lanes j and j+8
	VEXTRACTF128  UPPER_HALF, MAX0, OTHER      // lanes 4 to 7
	VMAXPS        OTHER, MAX0_LOW, BEST        // j+4
	VPERMILPS     SWAP_PAIRS, BEST, OTHER      // lanes 2 and 3
	VMAXPS        OTHER, BEST, BEST            // j+2
	VPERMILPS     SWAP_NEIGHBOURS, BEST, OTHER // lane 1
	VMAXSS        OTHER, BEST, BEST            // j+1
	VMOVMSKPS     NANS, NAN_BITS               // a bit for each lane that saw a NaN
	TESTL         NAN_BITS, NAN_BITS
	JEQ           max_return                   // none did
	VPCMPEQD      BEST, BEST, BEST             // all bits set: NaN

max_return:
	VMOVSS        BEST, ret+32(FP)
	VZEROUPPER
	RET

max_last:
	TESTQ         TAIL, TAIL
	JEQ           max_reduce             // there is none: all is done
	LOAD_TAIL
	JMP           max_loaded

#undef CHUNKS
#undef TAIL
#undef V0
#undef V1
#undef LOAD_CHUNK
#undef LOAD_TAIL
#undef MAX0
#undef MAX1
#undef MAX0_LOW
#undef NANS
#undef NAN_NOW
#undef BEST
#undef OTHER
#undef NAN_BITS

#define DST_PTR DI
#define CHUNKS CX
#define CONSTS BX
#define KLO_BITS DX // 0 at temperature 1
#define NAN_BITS DX

// Of a chunk of bfloat16, names that end in 0 are its even elements, and in 1 its odd ones: an odd one is a float32
// with zeros in the place of the even one before it.
#define C Y0
#define V0 Y0     // elements, then their y, then the gradient
#define V1 Y1
#define F0 Y2     // min(maxY, y), then f of exp2, then the gradient rounded to bfloat16
#define F1 Y3
#define M0 Y4     // m of exp2, then the integer next to y in the place of the exponent
#define M1 Y5
#define P0 Y6     // that integer, then the polynomial, then 2^y
#define P1 Y7
#define KEPT0 Y2  // the elements, for x*kLo
#define KEPT1 Y3
#define IN_RANGE Y4 // where y is not below minY
#define IS_NAN Y4
#define KHI Y8
#define KLO Y9
#define NEGC Y10
#define A Y11
#define B Y12
#define MAGIC Y14
#define MAXY Y15

// GRADIENT sets V, which was y, to y*a + b times 2^min(maxY, y), or to 0 where y is below minY. Elsewhere 2^y is a
// normal number, so that its exponent is a sum; what it is below minY, or of a NaN, does not matter.
#define GRADIENT \
	VMINPS        V0, MAXY, F0; \ // a NaN stays: it is the second operand
	VMINPS        V1, MAXY, F1; \
	VADDPS        MAGIC, F0, M0; \ // the integer next to y, in the low bits
	VADDPS        MAGIC, F1, M1; \
	VSUBPS        MAGIC, M0, P0; \ // that integer
	VSUBPS        MAGIC, M1, P1; \
	VSUBPS        P0, F0, F0; \    // f = y - that integer
	VSUBPS        P1, F1, F1; \
	VMOVUPS       exp2C5<>(SB), P0; \
	VMOVAPS       P0, P1; \
	STEP(exp2C4); \
	STEP(exp2C3); \
	STEP(exp2C2); \
	STEP(exp2C1); \
	STEP(one); \
	VPSLLD        EXPONENT, M0, M0; \
	VPSLLD        EXPONENT, M1, M1; \
	VPADDD        M0, P0, P0; \    // 2^y
	VPADDD        M1, P1, P1; \
	VCMPPS        NOT_LESS, MINY, V0, IN_RANGE; \ // NaN counts
	VFMADD213PS   B, A, V0; \      // y*a + b
	VMULPS        V0, P0, V0; \
	VANDPS        IN_RANGE, V0, V0; \
	VCMPPS        NOT_LESS, MINY, V1, IN_RANGE; \
	VFMADD213PS   B, A, V1; \
	VMULPS        V1, P1, V1; \
	VANDPS        IN_RANGE, V1, V1

// y = x*k - c
#define Y_AT_1 \
	VFMADD213PS   NEGC, KHI, V0; \
	VFMADD213PS   NEGC, KHI, V1

// At a temperature y = x*k - c + x*kLo.
#define Y_AT_TEMPERATURE \
	VMOVAPS       V0, KEPT0; \
	VMOVAPS       V1, KEPT1; \
	Y_AT_1; \
	VFMADD231PS   KEPT0, KLO, V0; \
	VFMADD231PS   KEPT1, KLO, V1

#define GRADIENT_F32(again, SCALE) \
again: \
	PREFETCHT0    NEAR(X_PTR); \ // elements of later chunks
	VMOVUPS       (X_PTR), V0; \
	VMOVUPS       32(X_PTR), V1; \
	ADDQ          $CHUNK4, X_PTR; \
	SCALE; \
	GRADIENT; \
	VMOVUPS       V0, (DST_PTR); \
	VMOVUPS       V1, 32(DST_PTR); \
	ADDQ          $CHUNK4, DST_PTR; \
	DECQ          CHUNKS; \
	JNE           again; \
	JMP           gradient_done

// ROUND sets rounded to the bits of v, of which the upper 16 are the bfloat16 next to it, to even between two.
#define ROUND(v, rounded) \
	VPSRLD        BF16_IN_F32, v, rounded; \
	VPAND         intOne<>(SB), rounded, rounded; \ // the bit that stays last
	VPADDD        roundBF16<>(SB), rounded, rounded; \
	VPADDD        v, rounded, rounded

// CUT_NAN sets rounded to v where v is NaN, a quiet one, as all that arithmetic gives.
#define CUT_NAN(v, rounded) \
	VCMPPS        UNORDERED, v, v, IS_NAN; \
	VBLENDVPS     IS_NAN, v, rounded, rounded

#define GRADIENT_BF16(again, pack, nan, SCALE) \
again: \
	PREFETCHT0    NEAR(X_PTR); \ // elements of later chunks
	VMOVUPS       (X_PTR), V1; \
	VPSLLD        BF16_IN_F32, V1, V0; \ // the even elements, as float32
	VPAND         upperBF16<>(SB), V1, V1; \ // the odd ones
	ADDQ          $CHUNK2, X_PTR; \
	SCALE; \
	GRADIENT; \
	VCMPPS        UNORDERED, V1, V0, IS_NAN; \
	VMOVMSKPS     IS_NAN, NAN_BITS; \
	ROUND(V0, F0); \
	ROUND(V1, F1); \
	TESTL         NAN_BITS, NAN_BITS; \
	JNE           nan; \
pack: \
	VPSRLD        BF16_IN_F32, F0, F0; \
	VPBLENDW      UPPER_WORDS, F1, F0, F0; \
	VMOVUPS       F0, (DST_PTR); \
	ADDQ          $CHUNK2, DST_PTR; \
	DECQ          CHUNKS; \
	JNE           again; \
	JMP           gradient_done; \
nan: \
	CUT_NAN(V0, F0); \
	CUT_NAN(V1, F1); \
	JMP           pack

// func rowGradientAVX2(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)
//
//	for each element {                     // a chunk of 16 at a time
//		y = x*k - c                        // + x*kLo, at a temperature
//		dst = y < minY ? 0 : 2^min(maxY, y) * (y*a + b)
//	}
TEXT ·rowGradientAVX2(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          x+8(FP), X_PTR
	MOVQ          dtype+16(FP), DTYPE              // float32 or bfloat16
	MOVQ          chunks+24(FP), CHUNKS
	MOVQ          q+32(FP), CONSTS
	VBROADCASTSS  gradConsts_k(CONSTS), KHI
	VBROADCASTSS  gradConsts_kLo(CONSTS), KLO
	MOVL          gradConsts_kLo(CONSTS), KLO_BITS // 0 at temperature 1
	VXORPS        NEGC, NEGC, NEGC
	VBROADCASTSS  gradConsts_c(CONSTS), C
	VSUBPS        C, NEGC, NEGC                    // -c
	VBROADCASTSS  gradConsts_a(CONSTS), A
	VBROADCASTSS  gradConsts_b(CONSTS), B
	VMOVUPS       minY<>(SB), MINY                 // the limits of y
	VMOVUPS       maxY<>(SB), MAXY
	VMOVUPS       magic<>(SB), MAGIC
	TESTQ         DTYPE, DTYPE                     // float32 is 0
	JNE           gradient_bf16
	TESTL         KLO_BITS, KLO_BITS
	JNE           gradient_temperature_f32
	GRADIENT_F32(gradient_f32_again, Y_AT_1)

gradient_temperature_f32:
	GRADIENT_F32(temperature_f32_again, Y_AT_TEMPERATURE)

gradient_bf16:
	TESTL         KLO_BITS, KLO_BITS
	JNE           gradient_temperature_bf16
	GRADIENT_BF16(gradient_bf16_again, gradient_bf16_pack, gradient_bf16_nan, Y_AT_1)

gradient_temperature_bf16:
	GRADIENT_BF16(temperature_bf16_again, temperature_bf16_pack, temperature_bf16_nan, Y_AT_TEMPERATURE)

gradient_done:
	VZEROUPPER
	RET

#undef X_PTR
#undef DTYPE
#undef CHUNKS
#undef NEAR
#undef MINY
#undef MAXY
#undef DST_PTR
#undef CONSTS
#undef KLO_BITS
#undef NAN_BITS
#undef C
#undef V0
#undef V1
#undef F0
#undef F1
#undef M0
#undef M1
#undef P0
#undef P1
#undef KEPT0
#undef KEPT1
#undef IN_RANGE
#undef IS_NAN
#undef KHI
#undef KLO
#undef NEGC
#undef A
#undef B
#undef MAGIC
