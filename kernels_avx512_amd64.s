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
	VMOVDQU32     widen<>+0(SB), WIDEN_LOW; \   // for the lower half of 32 bfloat16
	VMOVDQU32     widen<>+64(SB), WIDEN_HIGH; \ // for the upper half
	MOVL          ODD_WORDS, TEMP; \            // even words become 0
	KMOVD         TEMP, ODD

#define BATCH 4 // how many chunks LOAD4 reads

// PREFETCH asks for the 64 bytes at i*64 from the batch that was just loaded: near ahead
// into the first cache, far ahead into the second. The arithmetic fills the reorder
// buffer before enough loads are under way, and the hardware's own prefetch stops at
// the end of each page.
#define NEAR 2048
#define FAR 8192
#define PREFETCH(i) \
	PREFETCHT0    (NEAR-BATCH*CHUNK4+CHUNK4*i)(X_PTR); \ // into the first cache
	PREFETCHT1    (FAR-BATCH*CHUNK4+CHUNK4*i)(X_PTR)     // into the second

// LOAD4 reads four chunks into V0 to V3 as float32 and steps over them.
#define LOAD4(bf16, f16, loaded) \
	CMPQ          DTYPE, BFLOAT16; \        // float32 is below it, float16 above
	JEQ           bf16; \
	JHI           f16; \
	VMOVUPS       (X_PTR), V0; \            // float32: chunks 0 to 3 of the batch
	VMOVUPS       64(X_PTR), V1; \
	VMOVUPS       128(X_PTR), V2; \
	VMOVUPS       192(X_PTR), V3; \
	ADDQ          $(BATCH*CHUNK4), X_PTR; \ // next batch
	JMP           loaded; \
bf16: \
	VMOVDQU16     (X_PTR), V1; \             // bfloat16: chunks 0 and 1
	VMOVDQU16     64(X_PTR), V3; \           // chunks 2 and 3
	VPERMW.Z      V1, WIDEN_LOW, ODD, V0; \  // chunk 0 as float32
	VPERMW.Z      V1, WIDEN_HIGH, ODD, V1; \ // chunk 1
	VPERMW.Z      V3, WIDEN_LOW, ODD, V2; \  // chunk 2
	VPERMW.Z      V3, WIDEN_HIGH, ODD, V3; \ // chunk 3
	ADDQ          $(BATCH*CHUNK2), X_PTR; \  // next batch
	JMP           loaded; \
f16: \
	VCVTPH2PS     (X_PTR), V0; \            // float16 to float32: chunks 0 to 3
	VCVTPH2PS     32(X_PTR), V1; \
	VCVTPH2PS     64(X_PTR), V2; \
	VCVTPH2PS     96(X_PTR), V3; \
	ADDQ          $(BATCH*CHUNK2), X_PTR; \ // next batch
loaded:

// LOAD1 reads the next chunk into V0, or the tail after the last: CHUNKS is
// then -1.
#define LOAD1(more, bf16, f16, loaded) \
	SUBQ          $1, CHUNKS; \ // below 0: the tail
	JCC           more; \
	VMOVUPS       (TAIL), V0; \ // the tail is float32
	JMP           loaded; \
more: \
	CMPQ          DTYPE, BFLOAT16; \ // float32 is below it, float16 above
	JEQ           bf16; \
	JHI           f16; \
	VMOVUPS       (X_PTR), V0; \     // from float32
	ADDQ          $CHUNK4, X_PTR; \
	JMP           loaded; \
bf16: \
	VPMOVZXWD     (X_PTR), V0; \         // bfloat16, 16 bits a lane
	VPSLLD        BF16_IN_F32, V0, V0; \ // as float32
	ADDQ          $CHUNK2, X_PTR; \
	JMP           loaded; \
f16: \
	VCVTPH2PS     (X_PTR), V0; \    // from float16
	ADDQ          $CHUNK2, X_PTR; \
loaded:

#define STATE DI
#define WANT DX     // the rowWant
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
#define GQ Z12     // the group's sums of (2^y)^2
#define BQ Z13     // the block's
#define BQ_LOW Y13 // their lower half
#define FROM Z14   // where they begin
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

// HORNER4 is HORNER for four chunks.
#define HORNER4(c) \
	HORNER(c, F0, P0); \ // p = p*f + c
	HORNER(c, F1, P1); \
	HORNER(c, F2, P2); \
	HORNER(c, F3, P3)

// func rowBlocksAVX512(x unsafe.Pointer, dtype, chunks int, tail *[16]float32, st *rowState, want rowWant) int
//
//	for chunks remain {                    // a block: 64 chunks
//		bs, bt, bq = 0, 0, 0
//		for 8 chunks or what remains {     // a group
//			gs, gt, gq = 0, 0, squaresFrom
//			for each chunk {               // 4 at a time, then one by one
//				y = max(minY, x*k - c)     // + x*kLo, at a temperature
//				p = 2^y
//				gs, gt, gq = gs+p, gt+y*p, gq+p*p  // of gt and gq what is wanted
//			}
//			bs, bt, bq = bs+gs, bt+gt, bq+gq
//		}
//		if any bs > st.alarm { return the block's first chunk }
//		st.s, st.t, st.q = st.s+bs, st.t+bt, st.q+bq  // st.q if it is wanted
//	}
//	return -1
TEXT ·rowBlocksAVX512(SB), NOSPLIT, $0-56
	MOVQ          x+0(FP), X_PTR
	MOVQ          dtype+8(FP), DTYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	MOVQ          st+32(FP), STATE
	MOVBQZX       want+40(FP), WANT
	VBROADCASTSS  rowState_k(STATE), KHI
	VBROADCASTSS  rowState_kLo(STATE), KLO
	MOVL          rowState_kLo(STATE), KLO_BITS // 0 at temperature 1
	VBROADCASTSS  rowState_c(STATE), NEGC
	VPXORD        ZERO, ZERO, ZERO
	VSUBPS        NEGC, ZERO, NEGC              // -c
	VBROADCASTSS  minY<>(SB), MINY              // the lower limit of y
	VBROADCASTSS  squaresFrom<>(SB), FROM       // where gq begins
	BROADCAST_EXP2                              // the coefficients of 2^f
	LOAD_WIDEN                                  // for bfloat16
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
	VPXORD        BS, BS, BS             // bs, bt, bq = 0, 0, 0
	VPXORD        BT, BT, BT
	VPXORD        BQ, BQ, BQ

group:
	MOVQ          $GROUP_CHUNKS, GROUP   // GROUP = min(GROUP_CHUNKS, BLOCK)
	CMPQ          BLOCK, GROUP
	CMOVQLT       BLOCK, GROUP
	SUBQ          GROUP, BLOCK           // what the block has after this group
	VPXORD        GS, GS, GS             // gs, gt, gq = 0, 0, squaresFrom
	VPXORD        GT, GT, GT
	VMOVAPS       FROM, GQ

four:
	CMPQ          GROUP, $BATCH             // less than a batch: one by one
	JLT           one
	CMPQ          CHUNKS, $BATCH            // the group may count the tail
	JLT           one
	SUBQ          $BATCH, GROUP             // chunks left after this batch
	SUBQ          $BATCH, CHUNKS
	LOAD4(four_bf16, four_f16, four_loaded)
	TESTL         KLO_BITS, KLO_BITS        // at a temperature y needs x*kLo too
	JNE           four_temperature
	VFMADD213PS   NEGC, KHI, V0             // y = x*k - c
	VFMADD213PS   NEGC, KHI, V1
	VFMADD213PS   NEGC, KHI, V2
	VFMADD213PS   NEGC, KHI, V3

four_y:
	VMAXPS        V0, MINY, V0           // y = max(minY, y): NaN stays, it is the second operand
	VMAXPS        V1, MINY, V1
	VMAXPS        V2, MINY, V2
	VMAXPS        V3, MINY, V3
	SPLIT(V0, F0)                        // f = y - the integer next to it
	SPLIT(V1, F1)
	SPLIT(V2, F2)
	SPLIT(V3, F3)
	VMOVAPS       C5, P0                 // the polynomial of 2^f begins with C5
	VMOVAPS       C5, P1
	VMOVAPS       C5, P2
	VMOVAPS       C5, P3
	HORNER4(C4)                          // p = p*f + C4
	PREFETCH(0)                          // elements of later chunks
	HORNER4(C3)                          // p = p*f + C3
	PREFETCH(1)
	HORNER4(C2)                          // p = p*f + C2
	PREFETCH(2)
	HORNER4(C1)                          // p = p*f + C1
	PREFETCH(3)
	HORNER4(ONE)                         // p = p*f + 1 = 2^f
	SCALE(V0, F0, P0)                    // p = 2^f 2^(y-f)
	SCALE(V1, F1, P1)
	SCALE(V2, F2, P2)
	SCALE(V3, F3, P3)
	VADDPS        P0, GS, GS             // gs += p, in the order of the chunks
	VADDPS        P1, GS, GS
	VADDPS        P2, GS, GS
	VADDPS        P3, GS, GS
	TESTB         WANT, WANT             // the sums of 2^y alone?
	JEQ           four
	VFMADD231PS   P0, V0, GT             // gt += y*p
	VFMADD231PS   P1, V1, GT
	VFMADD231PS   P2, V2, GT
	VFMADD231PS   P3, V3, GT
	CMPB          WANT, $const_wantSquares
	JNE           four
	VFMADD231PS   P0, P0, GQ             // gq += p*p
	VFMADD231PS   P1, P1, GQ
	VFMADD231PS   P2, P2, GQ
	VFMADD231PS   P3, P3, GQ
	JMP           four

four_temperature:
	VMOVAPS       V0, KEPT0              // x, for x*kLo
	VMOVAPS       V1, KEPT1
	VMOVAPS       V2, KEPT2
	VMOVAPS       V3, KEPT3
	VFMADD213PS   NEGC, KHI, V0          // y = x*k - c
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
	JEQ           group_done                       // the group is done
	DECQ          GROUP                            // one chunk less
	LOAD1(one_more, one_bf16, one_f16, one_loaded)
	VMOVAPS       V0, KEPT0                        // x, for x*kLo
	VFMADD213PS   NEGC, KHI, V0                    // y = x*k - c
	TESTL         KLO_BITS, KLO_BITS
	JEQ           one_y                            // no temperature
	VFMADD231PS   KEPT0, KLO, V0                   // y += x*kLo

one_y:
	VMAXPS        V0, MINY, V0           // y = max(minY, y)
	EXP2_AVX512(V0, F0, P0)              // p = 2^y
	VADDPS        P0, GS, GS             // gs += p
	VFMADD231PS   P0, V0, GT             // gt += y*p, also where it is not wanted
	VFMADD231PS   P0, P0, GQ             // gq += p*p, likewise
	JMP           one

group_done:
	VADDPS        GS, BS, BS                    // bs += gs
	VADDPS        GT, BT, BT                    // bt += gt
	VADDPS        GQ, BQ, BQ                    // bq += gq
	TESTQ         BLOCK, BLOCK
	JNE           group                         // next group of the block
	VBROADCASTSS  rowState_alarm(STATE), ALARM  // st.alarm
	VCMPPS        GREATER, ALARM, BS, ABOVE     // bs > st.alarm
	KORTESTW      ABOVE, ABOVE                  // in any lane?
	JNE           alarm                         // the block is not added
	FLUSH_AVX512(BS, BS_LOW, STATE, rowState_s) // st.s += bs
	FLUSH_AVX512(BT, BT_LOW, STATE, rowState_t) // st.t += bt
	CMPB          WANT, $const_wantSquares
	JNE           flushed                       // bq is not wanted
	FLUSH_AVX512(BQ, BQ_LOW, STATE, rowState_q) // st.q += bq

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

#undef FAR
#undef PREFETCH
#undef STATE
#undef WANT
#undef GQ
#undef BQ
#undef BQ_LOW
#undef FROM
#undef BLOCK
#undef GROUP
#undef START
#undef DONE
#undef F0
#undef F1
#undef F2
#undef F3
#undef P0
#undef P1
#undef P2
#undef P3
#undef GS
#undef GT
#undef BS
#undef BT
#undef BS_LOW
#undef BT_LOW
#undef ABOVE
#undef KEPT0
#undef KEPT1
#undef KEPT2
#undef KEPT3
#undef ZERO
#undef ALARM
#undef HORNER4

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
	VBROADCASTSS  negInf<>(SB), MAX0     // m = -Inf
	VMOVAPS       MAX0, MAX1
	VMOVAPS       MAX0, MAX2
	VMOVAPS       MAX0, MAX3
	LOAD_WIDEN                           // for bfloat16
	KXORW         NANS, NANS, NANS       // nan = false

max_four:
	CMPQ          CHUNKS, $BATCH                        // less than a batch: one by one
	JLT           max_one
	SUBQ          $BATCH, CHUNKS                        // chunks left after this batch
	LOAD4(max_four_bf16, max_four_f16, max_four_loaded)
	VMAXPS        V0, MAX0, MAX0                        // m = max(m, x)
	VMAXPS        V1, MAX1, MAX1
	VMAXPS        V2, MAX2, MAX2
	VMAXPS        V3, MAX3, MAX3
	VCMPPS        UNORDERED, V0, V1, NAN0               // a NaN in either
	VCMPPS        UNORDERED, V2, V3, NAN1
	KORW          NAN0, NANS, NANS                      // nan = nan || x != x
	KORW          NAN1, NANS, NANS
	JMP           max_four

max_one:
	MOVQ          CHUNKS, TEMP                                     // the chunks that remain
	CMPQ          TAIL, $1                                         // carry if there is no tail
	SBBQ          $-1, TEMP                                        // + 1 if there is one
	JLE           max_reduce                                       // none does
	LOAD1(max_one_more, max_one_bf16, max_one_f16, max_one_loaded)
	VMAXPS        V0, MAX0, MAX0                                   // m = max(m, x)
	VCMPPS        UNORDERED, V0, V0, NAN0                          // x != x
	KORW          NAN0, NANS, NANS                                 // nan = nan || x != x
	TESTQ         CHUNKS, CHUNKS                                   // below 0: the tail was taken
	JGE           max_one

max_reduce:
	VMAXPS        MAX1, MAX0, MAX0               // four vectors of m into one
	VMAXPS        MAX3, MAX2, MAX2
	VMAXPS        MAX2, MAX0, MAX0
	VEXTRACTF32X8 UPPER_HALF, MAX0, BEST_HALF    // lanes 8 to 15
	VMAXPS        BEST_HALF, MAX0_LOW, BEST_HALF // lanes j and j+8
	VEXTRACTF128  UPPER_HALF, BEST_HALF, OTHER   // lanes 4 to 7
	VMAXPS        OTHER, BEST, BEST              // j+4
	VPERMILPS     SWAP_PAIRS, BEST, OTHER        // lanes 2 and 3
	VMAXPS        OTHER, BEST, BEST              // j+2
	VPERMILPS     SWAP_NEIGHBOURS, BEST, OTHER   // lane 1
	VMAXSS        OTHER, BEST, BEST              // j+1
	KORTESTW      NANS, NANS                     // did any lane see a NaN?
	JEQ           max_return
	VPCMPEQD      BEST, BEST, BEST               // all bits set: NaN

max_return:
	VMOVSS        BEST, ret+32(FP)
	VZEROUPPER
	RET

#undef TAIL
#undef TEMP
#undef V0
#undef V1
#undef V2
#undef V3
#undef WIDEN_LOW
#undef WIDEN_HIGH
#undef ODD
#undef ODD_WORDS
#undef LOAD_WIDEN
#undef BATCH
#undef LOAD4
#undef LOAD1
#undef MAX0
#undef MAX1
#undef MAX2
#undef MAX3
#undef MAX0_LOW
#undef NANS
#undef NAN0
#undef NAN1
#undef BEST_HALF
#undef BEST
#undef OTHER

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
	MOVQ          dtype+16(FP), DTYPE              // float32 or bfloat16
	MOVQ          chunks+24(FP), CHUNKS
	MOVQ          q+32(FP), CONSTS
	VBROADCASTSS  minY<>(SB), MINY                 // the limits of y
	VBROADCASTSS  maxY<>(SB), MAXY
	BROADCAST_EXP2                                 // the coefficients of 2^f
	VBROADCASTSS  gradConsts_k(CONSTS), KHI
	VBROADCASTSS  gradConsts_kLo(CONSTS), KLO
	MOVL          gradConsts_kLo(CONSTS), KLO_BITS // 0 at temperature 1
	VPXORD        NEGC, NEGC, NEGC
	VBROADCASTSS  gradConsts_c(CONSTS), C
	VSUBPS        C, NEGC, NEGC                    // -c
	VBROADCASTSS  gradConsts_a(CONSTS), A
	VBROADCASTSS  gradConsts_b(CONSTS), B
	VPBROADCASTD  roundBF16<>(SB), ROUND           // to round to bfloat16
	VPBROADCASTD  quietBit<>(SB), QUIET
	VPBROADCASTD  intOne<>(SB), LAST_BIT

gradient:
	TESTQ         DTYPE, DTYPE           // float32 is 0
	JNE           gradient_bf16
	PREFETCHT0    NEAR(X_PTR)            // elements of later chunks
	VMOVUPS       (X_PTR), V             // x, from float32
	ADDQ          $CHUNK4, X_PTR
	JMP           gradient_loaded

gradient_bf16:
	PREFETCHT0    NEAR(X_PTR)            // elements of later chunks
	VPMOVZXWD     (X_PTR), V             // bfloat16, 16 bits a lane
	VPSLLD        BF16_IN_F32, V, V      // x, from bfloat16
	ADDQ          $CHUNK2, X_PTR

gradient_loaded:
	VMOVAPS       V, KEPT                // x, for x*kLo
	VFMADD213PS   NEGC, KHI, V           // y = x*k - c
	TESTL         KLO_BITS, KLO_BITS
	JEQ           gradient_y             // no temperature
	VFMADD231PS   KEPT, KLO, V           // y += x*kLo

gradient_y:
	VCMPPS        NOT_LESS, MINY, V, IN_RANGE // not y < minY; NaN counts
	VMINPS        V, MAXY, CLAMPED            // min(maxY, y)
	EXP2_AVX512(CLAMPED, F, P)                // 2^min(maxY, y)
	VFMADD213PS   B, A, V                     // y*a + b
	VMULPS.Z      V, P, IN_RANGE, V           // 2^min(maxY, y) * (y*a + b), 0 where y < minY
	TESTQ         DTYPE, DTYPE
	JNE           gradient_narrow             // dst is bfloat16
	VMOVUPS       V, (DST_PTR)
	ADDQ          $CHUNK4, DST_PTR
	DECQ          CHUNKS
	JNE           gradient
	VZEROUPPER
	RET

gradient_narrow:
	VPSRLD        BF16_IN_F32, V, UPPER         // to nearest even: + 0x7fff + the bit that stays last
	VPANDD        LAST_BIT, UPPER, ROUNDED      // the bit that stays last
	VPADDD        ROUND, ROUNDED, ROUNDED       // + 0x7fff
	VPADDD        V, ROUNDED, ROUNDED           // + the gradient
	VPSRLD        BF16_IN_F32, ROUNDED, ROUNDED // cut to the upper 16 bits
	VCMPPS        UNORDERED, V, V, IS_NAN       // NaN: cut and made quiet
	VPORD         QUIET, UPPER, IS_NAN, ROUNDED
	VPMOVDW       ROUNDED, (DST_PTR)            // dst, 16 bits a lane
	ADDQ          $CHUNK2, DST_PTR
	DECQ          CHUNKS
	JNE           gradient
	VZEROUPPER
	RET

#undef X_PTR
#undef DTYPE
#undef CHUNKS
#undef NEAR
#undef KLO_BITS
#undef KHI
#undef NEGC
#undef MINY
#undef KLO
#undef DST_PTR
#undef CONSTS
#undef C
#undef V
#undef KEPT
#undef CLAMPED
#undef F
#undef P
#undef MAXY
#undef A
#undef B
#undef IN_RANGE
#undef UPPER
#undef ROUNDED
#undef ROUND
#undef QUIET
#undef LAST_BIT
#undef IS_NAN
