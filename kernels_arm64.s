//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "neon_arm64.h"

// The kernels of rows of logits with NEON, as every ARMv8.0 has it. The arithmetic
// and its order are those of kernels_portable.go: a chunk of 16 elements is four
// vectors, and all four go through each step together.

// No argument is kept in the register in which Go 1.26 has it when it calls: R0 to R3 for the first four of rowBlocks,
// R0 for the dtype of rowGradient. A kernel that read it into a wrong one would have it nevertheless, and no test would
// notice.
#define X_PTR R4
#define DTYPE R3     // the number of the DType: 0 is float32
#define CHUNKS R1    // whole chunks of 16 left in the row
#define TAIL R2      // a last, padded chunk of float32, or 0
#define KLO R10      // kLo's bits: 0 at temperature 1
#define KLO_PTR R13

#define X Q12        // a chunk of the row, as float32

// LOAD_F32 loads 16 float32 from ptr into X and steps over them.
#define LOAD_F32(ptr) VLD1.P 64(ptr), FOUR_S4(X)

// LOAD_BF16 widens 16 bfloat16: zeros go below each. RAW and ZEROS are overwritten.
#define RAW Q4       // 16 numbers of 16 bits, in two registers
#define ZEROS Q6
#define LOAD_BF16(ptr) \
	VLD1.P 32(ptr), [V(RAW).H8, V(NEXT(RAW)).H8]; \       // 16 numbers of 16 bits
	SET_ZERO(ZEROS, ZEROS); \                             // the lower half of each float32
	VZIP1 V(RAW).H8, V(ZEROS).H8, V(X).H8; \              // elements 0 to 3
	VZIP2 V(RAW).H8, V(ZEROS).H8, V(NEXT(X)).H8; \        // elements 4 to 7
	VZIP1 V(NEXT(RAW)).H8, V(ZEROS).H8, V(NEXT2(X)).H8; \ // elements 8 to 11
	VZIP2 V(NEXT(RAW)).H8, V(ZEROS).H8, V(NEXT3(X)).H8    // elements 12 to 15

// LOAD_F16 widens 16 float16. RAW is overwritten.
#define LOAD_F16(ptr) \
	VLD1.P 32(ptr), [V(RAW).H8, V(NEXT(RAW)).H8]; \ // 16 numbers of 16 bits
	VFCVTL_S4(RAW, X); \                            // elements 0 to 3
	VFCVTL2_S4(RAW, NEXT(X)); \                     // elements 4 to 7
	VFCVTL_S4(NEXT(RAW), NEXT2(X)); \               // elements 8 to 11
	VFCVTL2_S4(NEXT(RAW), NEXT3(X))                 // elements 12 to 15

#define STATE R0
#define BLOCK R5     // chunks left in the block, the tail counted
#define GROUP R6     // chunks left in the group
#define START R7     // chunk where the block began
#define DONE R8      // chunks done
#define WANT R9      // the rowWant
#define LOCALS R11   // the 288 bytes of locals
#define SUMS R12     // st.s, then st.t and st.q
#define TMP R14

#define BS_AT 0           // where bs is in the locals
#define BT_AT 64          // where bt is
#define BQ_AT 128         // where bq is
#define GQ_AT 192         // where gq is
#define NEG_C 256(LOCALS) // -c

#define K Q8         // k, then kLo, for all lanes
#define BS Q0        // the block's sums of p, while they are not in memory
#define BT Q4        // those of y*p
#define BQ Q16       // those of p*p
#define QSUM Q16     // the group's sums of p*p, while they are not in memory
#define GSUM Q20     // the group's sums of p; later the block's
#define TSUM Q24     // those of y*p
#define TOP Q31      // the block's largest elements, by lane modulo 4
#define ABOVE Q0     // whether they are above the threshold
#define BIAS Q8      // 1: its bits are the bias of an exponent

// func rowBlocksNEON(x unsafe.Pointer, dtype, chunks int, tail *[16]float32, st *rowState, want rowWant) int
//
//	for each block {
//		bs, bt, bq, top = 0, 0, 0, -Inf    // 16 lanes each; top 4
//		for each group of 8 chunks {
//			gs, gt, gq = 0, 0, squaresFrom
//			for each chunk {
//				x = next 16 elements, or the tail
//				top = max(top, x)
//				y = max(minY, x*k - c)     // + x*kLo, at a temperature
//				p = 2^y
//				gs, gt, gq = gs + p, gt + y*p, gq + p*p  // of gt and gq what is wanted
//			}
//			bs, bt, bq = bs + gs, bt + gt, bq + gq  // bq if it is wanted
//		}
//		if any top > threshold { return the block's first chunk }
//		st.s, st.t, st.q = st.s + bs, st.t + bt, st.q + bq  // float64; st.q if it is wanted
//	}
//	return -1
//
// An element above the threshold may wrap the exponent of its p: the block is
// left out then. A NaN hides what else its lane of top saw, and makes the row's
// sums NaN. The locals are bs, bt, bq and gq, 64 bytes each, and -c in two vectors.
TEXT ·rowBlocksNEON(SB), NOSPLIT, $296-56
	MOVD   x+0(FP), X_PTR
	MOVD   dtype+8(FP), DTYPE
	MOVD   chunks+16(FP), CHUNKS
	MOVD   tail+24(FP), TAIL
	MOVD   st+32(FP), STATE
	MOVBU  want+40(FP), WANT
	MOVD   $constants<>(SB), CONSTANTS
	MOVD   $locals-288(SP), LOCALS          // bs, bt, bq, gq and -c
	MOVWU  rowState_kLo(STATE), KLO         // 0 at temperature 1
	ADD    $rowState_kLo, STATE, KLO_PTR    // &st.kLo
	ADD    $rowState_s, STATE, SUMS         // &st.s
	FMOVQ  CONST_C5, F(C5)                  // for exp2
	FMOVQ  CONST_MINY, F(MINY)              // the lower limit of y
	FMOVQ  CONST_MAGIC, F(MAGIC)            // for exp2
	ADD    $rowState_c, STATE, TMP
	VLD1R  (TMP), [V(Y).S4]                 // c
	VFNEG_S4(Y, Y)                          // -c
	FSTPQ  (F(Y), F(Y)), NEG_C              // for every chunk
	MOVD   $0, DONE                         // no chunk is done

block:
	CMP    $0, TAIL                            // is there a tail?
	CSET   NE, TMP                             // the tail is one more chunk
	ADDS   TMP, CHUNKS, BLOCK                  // the chunks that remain
	BEQ    done                                // after the tail, CHUNKS is -1
	MOVD   $(const_blockSize/const_lanes), TMP // a block has no more than this
	CMP    TMP, BLOCK
	CSEL   GT, TMP, BLOCK, BLOCK               // BLOCK = min(BLOCK, the chunks of a block)
	MOVD   DONE, START                         // the block's first chunk
	ADD    BLOCK, DONE                         // the next block's
	FMOVQ  CONST_NEGINF, F(TOP)                // top = -Inf
	CLEAR(BS)
	FSTPQ  (F(BS), F(NEXT(BS))), BS_AT(LOCALS) // bs = 0
	FSTPQ  (F(BS), F(NEXT(BS))), BS_AT+32(LOCALS)
	FSTPQ  (F(BS), F(NEXT(BS))), BT_AT(LOCALS) // bt = 0
	FSTPQ  (F(BS), F(NEXT(BS))), BT_AT+32(LOCALS)
	FSTPQ  (F(BS), F(NEXT(BS))), BQ_AT(LOCALS) // bq = 0
	FSTPQ  (F(BS), F(NEXT(BS))), BQ_AT+32(LOCALS)

group:
	MOVD   $(const_groupSize/const_lanes), GROUP // the chunks of a group
	CMP    GROUP, BLOCK
	CSEL   LT, BLOCK, GROUP, GROUP               // the row's last group may be shorter
	SUB    GROUP, BLOCK                          // what the block has after this group
	CLEAR(GSUM)                                  // gs = 0
	CLEAR(TSUM)                                  // gt = 0
	FMOVQ  CONST_SQUARESFROM, F(QSUM)            // gq = squaresFrom
	FSTPQ  (F(QSUM), F(QSUM)), GQ_AT(LOCALS)
	FSTPQ  (F(QSUM), F(QSUM)), GQ_AT+32(LOCALS)

chunk:
	SUBS   $1, CHUNKS                       // below 0: the tail
	BLT    last
	CMP    $const_DTypeBF16, DTYPE          // float32 is below it, float16 above
	BEQ    bf16
	BHI    f16
	LOAD_F32(X_PTR)

loaded:
	VLD1R  rowState_k(STATE), [V(K).S4]
	FILL(NEG_C, Y)                          // -c
	VFMAX_S4(X, TOP, TOP)                   // top = max(top, x)
	VFMAX_S4(NEXT(X), TOP, TOP)
	VFMAX_S4(NEXT2(X), TOP, TOP)
	VFMAX_S4(NEXT3(X), TOP, TOP)
	FOUR_M(VFMLA_S4, K, X, Y)               // y = x*k - c
	CBNZ   KLO, temperature                 // at a temperature y needs x*kLo too

y:
	FOUR_M(VFMAX_S4, MINY, Y, Y)            // y = max(minY, y)
	EXP2                                    // 2^f, and the exponent of 2^(y-f)
	CBZ    WANT, sum_alone                  // the sums of 2^y alone?
	FOUR(VADD_S4, TWO_I, TWO_Y, TWO_Y)      // p = 2^f 2^(y-f); a NaN here may be lost, but not in gt
	FOUR(VFADD_S4, TWO_Y, GSUM, GSUM)       // gs += p
	FOUR(VFMLA_S4, TWO_Y, Y, TSUM)          // gt += y*p
	CMP    $const_wantSquares, WANT
	BEQ    squares
	SUBS   $1, GROUP
	BNE    chunk
	B      group_done

squares:
	LOAD4(GQ_AT, LOCALS, QSUM)
	FOUR(VFMLA_S4, TWO_Y, TWO_Y, QSUM)      // gq += p*p
	STORE4(QSUM, GQ_AT, LOCALS)
	SUBS   $1, GROUP
	BNE    chunk
	LOAD4(BQ_AT, LOCALS, Y)                 // bq before this group
	FOUR(VFADD_S4, QSUM, Y, QSUM)           // bq += gq
	STORE4(QSUM, BQ_AT, LOCALS)             // for the next group
	B      group_done

sum_alone:
	FMOVQ  CONST_ONE, F(BIAS)               // to add the bias of an exponent
	FOUR_M(VADD_S4, BIAS, TWO_I, TWO_I)     // 2^(y-f)
	FOUR(VFMLA_S4, TWO_I, TWO_Y, GSUM)      // gs += 2^f 2^(y-f), whose product is exact
	SUBS   $1, GROUP
	BNE    chunk

group_done:
	LOAD4(BS_AT, LOCALS, BS)                  // bs before this group
	LOAD4(BT_AT, LOCALS, BT)                  // bt before it
	FOUR(VFADD_S4, GSUM, BS, GSUM)            // bs += gs
	FOUR(VFADD_S4, TSUM, BT, TSUM)            // bt += gt
	STORE4(GSUM, BS_AT, LOCALS)               // for the next group
	STORE4(TSUM, BT_AT, LOCALS)
	CBNZ   BLOCK, group                       // next group of the block
	ADD    $rowState_threshold, STATE, TMP    // &st.threshold
	VLD1R  (TMP), [V(ABOVE).S4]               // threshold
	VFCMGT_S4(ABOVE, TOP, ABOVE)              // top > threshold
	VUADDLV V(ABOVE).S4, V(ABOVE)             // 0 if it is in no lane
	VMOV   V(ABOVE).D[0], TMP                 // to test it
	CBNZ   TMP, above                         // the block is not added
	FLUSH4(GSUM, 0, SUMS)                     // st.s += bs
	FLUSH4(TSUM, rowState_t-rowState_s, SUMS) // st.t += bt
	CMP    $const_wantSquares, WANT
	BNE    block                              // next block: bq is not wanted
	LOAD4(BQ_AT, LOCALS, BQ)
	FLUSH4(BQ, rowState_q-rowState_s, SUMS)   // st.q += bq
	B      block                              // next block

done:
	MOVD   $-1, TMP                         // nothing stopped it
	MOVD   TMP, ret+48(FP)
	RET

above:
	MOVD   START, ret+48(FP)                // the block's first chunk
	RET

bf16:
	LOAD_BF16(X_PTR)
	B      loaded

f16:
	LOAD_F16(X_PTR)
	B      loaded

last:
	VLD1   (TAIL), FOUR_S4(X)
	B      loaded

temperature:
	VLD1R  (KLO_PTR), [V(K).S4]
	FOUR_M(VFMLA_S4, K, X, Y)               // y += x*kLo
	B      y

#undef STATE
#undef BLOCK
#undef GROUP
#undef START
#undef DONE
#undef WANT
#undef LOCALS
#undef SUMS
#undef TMP
#undef BS_AT
#undef BT_AT
#undef BQ_AT
#undef GQ_AT
#undef NEG_C
#undef K
#undef BS
#undef BT
#undef BQ
#undef QSUM
#undef GSUM
#undef TSUM
#undef TOP
#undef ABOVE
#undef BIAS

#define TOP Q20      // the largest elements, by lane, in four registers
#define LARGEST Q0   // of all lanes

// func blockMaxNEON(x unsafe.Pointer, dtype, chunks int, tail *[16]float32) float32
//
//	top = -Inf                             // 16 lanes
//	for each chunk {
//		x = next 16 elements, or the tail
//		top = max(top, x)
//	}
//	return the largest of top              // NaN if an element is NaN
TEXT ·blockMaxNEON(SB), NOSPLIT, $0-36
	MOVD   x+0(FP), X_PTR
	MOVD   dtype+8(FP), DTYPE
	MOVD   chunks+16(FP), CHUNKS
	MOVD   tail+24(FP), TAIL
	MOVD   $constants<>(SB), CONSTANTS
	FMOVQ  CONST_NEGINF, F(TOP)             // top = -Inf
	FMOVQ  CONST_NEGINF, F(NEXT(TOP))
	FMOVQ  CONST_NEGINF, F(NEXT2(TOP))
	FMOVQ  CONST_NEGINF, F(NEXT3(TOP))

max_chunk:
	SUBS   $1, CHUNKS                       // below 0: the tail
	BLT    max_last
	CMP    $const_DTypeBF16, DTYPE          // float32 is below it, float16 above
	BEQ    max_bf16
	BHI    max_f16
	LOAD_F32(X_PTR)

max_loaded:
	FOUR(VFMAX_S4, X, TOP, TOP)             // top = max(top, x)
	TBZ    $63, CHUNKS, max_chunk           // CHUNKS >= 0: not after the tail

max_reduce:
	VFMAX_S4(NEXT(TOP), TOP, TOP)           // four registers into one
	VFMAX_S4(NEXT3(TOP), NEXT2(TOP), NEXT2(TOP))
	VFMAX_S4(NEXT2(TOP), TOP, TOP)
	VFMAXV_S4(TOP, LARGEST)                 // its four lanes into one
	FMOVS  F(LARGEST), ret+32(FP)
	RET

max_bf16:
	LOAD_BF16(X_PTR)
	B      max_loaded

max_f16:
	LOAD_F16(X_PTR)
	B      max_loaded

max_last:
	CBZ    TAIL, max_reduce                 // there is none: all is done
	VLD1   (TAIL), FOUR_S4(X)
	B      max_loaded

#undef TAIL
#undef LOAD_F16
#undef TOP
#undef LARGEST

#define DST R0
#define Q_PTR R2     // the row's gradConsts
#define LOCALS R5    // -c twice, then b twice
#define TMP R6
#define A_PTR R7
#define B_PTR R8

#define NEG_C 0(LOCALS)
#define PLUS_B 32(LOCALS)

#define YS Q20       // y, which EXP2 must not overwrite; then whether it is below minY
#define YAB Q16      // y*a + b
#define K Q24        // constants, for all lanes
#define KLO_ALL Q25
#define A_ALL Q26
#define C_ALL Q0     // before the loop
#define B_ALL Q1
#define ZERO Q0      // for elements whose y is below minY
#define HALF Q0      // 0x7fff
#define LSB Q1       // 1
#define NUMBER Q4    // whether an element of dst is not NaN
#define ROUNDED Q8

// NARROW rounds register v to bfloat16 in its upper halves, to nearest even: 0x7fff
// and the bit that stays last are added. A NaN, quiet as arithmetic left it, is cut.
// m is whether v is no NaN; t is overwritten.
#define NARROW(v, m, t) \
	CUT_BF16(v, t); \      // the number, cut to 16 bits
	VAND_B16(LSB, t, t); \ // the bit that stays last
	VADD_S4(HALF, t, t); \ // + 0x7fff
	VADD_S4(v, t, t); \    // + the number
	VBIT_B16(m, t, v)      // that, where it is not NaN

// func rowGradientNEON(dst, x unsafe.Pointer, dtype, chunks int, q *gradConsts)
//
//	for each chunk {
//		y = x*k - c                        // + x*kLo, at a temperature
//		dst = y < minY ? 0 : 2^min(maxY, y) * (y*a + b)
//	}
//
// The locals are -c and b, each in two vectors.
TEXT ·rowGradientNEON(SB), NOSPLIT, $72-40
	MOVD   dst+0(FP), DST
	MOVD   x+8(FP), X_PTR
	MOVD   dtype+16(FP), DTYPE
	MOVD   chunks+24(FP), CHUNKS
	MOVD   q+32(FP), Q_PTR
	MOVD   $constants<>(SB), CONSTANTS
	MOVD   $locals-64(SP), LOCALS           // -c and b
	MOVWU  gradConsts_kLo(Q_PTR), KLO       // 0 at temperature 1
	ADD    $gradConsts_kLo, Q_PTR, KLO_PTR  // &q.kLo
	ADD    $gradConsts_a, Q_PTR, A_PTR      // &q.a
	ADD    $gradConsts_b, Q_PTR, B_PTR      // &q.b
	VLD1R  gradConsts_k(Q_PTR), [V(K).S4]
	VLD1R  (KLO_PTR), [V(KLO_ALL).S4]
	VLD1R  (A_PTR), [V(A_ALL).S4]
	ADD    $gradConsts_c, Q_PTR, TMP        // &q.c
	VLD1R  (TMP), [V(C_ALL).S4]             // c
	VLD1R  (B_PTR), [V(B_ALL).S4]
	VFNEG_S4(C_ALL, C_ALL)                  // -c
	FSTPQ  (F(C_ALL), F(C_ALL)), NEG_C      // for every chunk
	FSTPQ  (F(B_ALL), F(B_ALL)), PLUS_B
	LOAD_CONSTANTS                          // for exp2, and the limits of y

gradient:
	CBNZ   DTYPE, gradient_bf16             // float32 is 0
	LOAD_F32(X_PTR)

gradient_loaded:
	FILL(NEG_C, YS)                         // -c
	FOUR_M(VFMLA_S4, K, X, YS)              // y = x*k - c
	CBNZ   KLO, gradient_temperature        // at a temperature y needs x*kLo too

gradient_y:
	FOUR_M(VFMIN_S4, MAXY, YS, Y)           // min(maxY, y)
	POWER                                   // 2^min(maxY, y); below minY the exponent may wrap
	FILL(PLUS_B, YAB)
	FOUR_M(VFMLA_S4, A_ALL, YS, YAB)        // y*a + b
	FOUR_N(VFCMGT_S4, YS, MINY, YS)         // minY > y: not where y is NaN
	FOUR(VFMUL_S4, YAB, TWO_Y, TWO_Y)       // 2^min(maxY, y) * (y*a + b)
	SET_ZERO(ZERO, ZERO)
	FOUR_N(VBIT_B16, YS, ZERO, TWO_Y)       // 0 where y < minY
	CBNZ   DTYPE, gradient_narrow           // dst is bfloat16
	VST1.P FOUR_S4(TWO_Y), 64(DST)          // dst, and step over it
	SUBS   $1, CHUNKS
	BNE    gradient
	RET

gradient_narrow:
	FMOVQ  CONST_HALFBF16, F(HALF)                     // 0x7fff
	FMOVQ  CONST_LSB, F(LSB)                           // 1
	FOUR(VFCMEQ_S4, TWO_Y, TWO_Y, NUMBER)              // whether it is not NaN
	NARROW(TWO_Y, NUMBER, ROUNDED)                     // to bfloat16, in the upper halves
	NARROW(NEXT(TWO_Y), NEXT(NUMBER), NEXT(ROUNDED))
	NARROW(NEXT2(TWO_Y), NEXT2(NUMBER), NEXT2(ROUNDED))
	NARROW(NEXT3(TWO_Y), NEXT3(NUMBER), NEXT3(ROUNDED))
	VUZP2  V(NEXT(TWO_Y)).H8, V(TWO_Y).H8, V(TWO_Y).H8 // the upper halves of all lanes
	VUZP2  V(NEXT3(TWO_Y)).H8, V(NEXT2(TWO_Y)).H8, V(NEXT(TWO_Y)).H8
	VST1.P [V(TWO_Y).H8, V(NEXT(TWO_Y)).H8], 32(DST)   // dst, and step over it
	SUBS   $1, CHUNKS
	BNE    gradient
	RET

gradient_bf16:
	LOAD_BF16(X_PTR)
	B      gradient_loaded

gradient_temperature:
	FOUR_M(VFMLA_S4, KLO_ALL, X, YS)        // y += x*kLo
	B      gradient_y

#undef X_PTR
#undef DTYPE
#undef CHUNKS
#undef KLO
#undef KLO_PTR
#undef X
#undef LOAD_F32
#undef RAW
#undef ZEROS
#undef LOAD_BF16
#undef DST
#undef Q_PTR
#undef LOCALS
#undef TMP
#undef A_PTR
#undef B_PTR
#undef NEG_C
#undef PLUS_B
#undef YS
#undef YAB
#undef K
#undef KLO_ALL
#undef A_ALL
#undef C_ALL
#undef B_ALL
#undef ZERO
#undef HALF
#undef LSB
#undef NUMBER
#undef ROUNDED
#undef NARROW
