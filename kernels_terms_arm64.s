//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "neon_arm64.h"

// The kernels of ratios, divergences and the value loss with NEON: see
// kernels_terms_portable.go.

#define A_PTR R0
#define B_PTR R1
#define CHUNKS R2    // chunks of 16 left
#define ROLE R3
#define SUMS R4      // the logRatioSums
#define COUNT R5
#define TMP R13

#define RAW0 Q0      // raw: lanes 0 to 3, two float64 a register
#define RAW4 Q2
#define RAW8 Q4
#define RAW12 Q6
#define CLAMPED0 Q8  // clamped, likewise
#define CLAMPED4 Q10
#define CLAMPED8 Q12
#define CLAMPED12 Q14
#define TOKEN Q16    // by token, in bytes: whether its role is not masked
#define SCRATCH Q17
#define FIRST Q16    // a
#define SECOND Q20   // b
#define MASK Q24     // TOKEN in 32 bits a token
#define DIFF Q28     // d, in two registers
#define MINUS20 Q30
#define PLUS20 Q31

// LOG_RATIOS4 adds the differences of 4 elements to 4 lanes, which are two registers of
// raw and of clamped. a and b are overwritten.
#define LOG_RATIOS4(mask, a, b, raw, clamped) \
	VAND_B16(mask, a, a); \             // masked tokens add 0 - 0
	VAND_B16(mask, b, b); \
	VFCVTL_D2(a, DIFF); \               // float64(a)
	VFCVTL2_D2(a, NEXT(DIFF)); \
	VFCVTL_D2(b, a); \                  // float64(b), elements 0 and 1
	VFCVTL2_D2(b, b); \                 // elements 2 and 3
	VFSUB_D2(a, DIFF, DIFF); \          // d = float64(a) - float64(b)
	VFSUB_D2(b, NEXT(DIFF), NEXT(DIFF)); \
	VFADD_D2(DIFF, raw, raw); \         // sums.raw += d
	VFADD_D2(NEXT(DIFF), NEXT(raw), NEXT(raw)); \
	VFMIN_D2(PLUS20, DIFF, DIFF); \     // not above 20
	VFMIN_D2(PLUS20, NEXT(DIFF), NEXT(DIFF)); \
	VFMAX_D2(MINUS20, DIFF, DIFF); \    // not below -20
	VFMAX_D2(MINUS20, NEXT(DIFF), NEXT(DIFF)); \
	VFADD_D2(DIFF, clamped, clamped); \ // sums.clamped += clamp(d, -20, 20)
	VFADD_D2(NEXT(DIFF), NEXT(clamped), NEXT(clamped))

// func logRatiosNEON(a, b *float32, role *Role, chunks int, sums *logRatioSums)
//
//	for each chunk {
//		d = float64(a) - float64(b), or 0 where role is masked
//		sums.raw, sums.clamped = sums.raw + d, sums.clamped + clamp(d, -20, 20)  // 16 lanes
//		sums.count += tokens whose role is not masked
//	}
TEXT ·logRatiosNEON(SB), NOSPLIT, $0-40
	MOVD   a+0(FP), A_PTR
	MOVD   b+8(FP), B_PTR
	MOVD   role+16(FP), ROLE
	MOVD   chunks+24(FP), CHUNKS
	MOVD   sums+32(FP), SUMS
	MOVD   $constants<>(SB), CONSTANTS
	FMOVQ  CONST_MINUS20, F(MINUS20)            // the limits of d
	FMOVQ  CONST_PLUS20, F(PLUS20)
	VFCVTL_D2(MINUS20, MINUS20)                 // as float64
	VFCVTL_D2(PLUS20, PLUS20)
	LOAD4(logRatioSums_raw, SUMS, RAW0)         // sums.raw
	LOAD4(logRatioSums_raw+64, SUMS, RAW8)
	LOAD4(logRatioSums_clamped, SUMS, CLAMPED0) // sums.clamped
	LOAD4(logRatioSums_clamped+64, SUMS, CLAMPED8)
	MOVD   logRatioSums_count(SUMS), COUNT      // sums.count

logratios:
	VLD1.P 16(ROLE), [V(TOKEN).B16]                                         // the roles of 16 tokens
	VCMTST V(TOKEN).B16, V(TOKEN).B16, V(TOKEN).B16                         // role is not 0, which is masked
	WIDEN(TOKEN, SCRATCH, MASK)                                             // in 32 bits a token
	ONES_B16(TOKEN, TOKEN)                                                  // 1 for each token
	VUADDLV V(TOKEN).B16, V(TOKEN)                                          // their number
	VMOV   V(TOKEN).H[0], TMP
	ADD    TMP, COUNT                                                       // sums.count += that
	VLD1.P 64(A_PTR), FOUR_S4(FIRST)                                        // a
	VLD1.P 64(B_PTR), FOUR_S4(SECOND)                                       // b
	LOG_RATIOS4(MASK, FIRST, SECOND, RAW0, CLAMPED0)                        // tokens 0 to 3
	LOG_RATIOS4(NEXT(MASK), NEXT(FIRST), NEXT(SECOND), RAW4, CLAMPED4)      // 4 to 7
	LOG_RATIOS4(NEXT2(MASK), NEXT2(FIRST), NEXT2(SECOND), RAW8, CLAMPED8)   // 8 to 11
	LOG_RATIOS4(NEXT3(MASK), NEXT3(FIRST), NEXT3(SECOND), RAW12, CLAMPED12) // 12 to 15
	SUBS   $1, CHUNKS
	BNE    logratios                                                        // next chunk
	STORE4(RAW0, logRatioSums_raw, SUMS)                                    // sums.raw
	STORE4(RAW8, logRatioSums_raw+64, SUMS)
	STORE4(CLAMPED0, logRatioSums_clamped, SUMS)                            // sums.clamped
	STORE4(CLAMPED8, logRatioSums_clamped+64, SUMS)
	MOVD   COUNT, logRatioSums_count(SUMS)                                  // sums.count
	RET

#undef TOKEN
#undef SCRATCH
#undef SECOND
#undef MASK
#undef MINUS20
#undef PLUS20

#define DST R4
#define Q_PTR R8     // the constants
#define SUM_PTR R9   // the laneSum
#define GROUP R6     // chunks left in the group
#define FLAG R10     // q.mask

#define SECOND Q4    // b
#define KEPT Q4      // the bounds leave the ratio
#define BOUNDED Q16  // c
#define TOKEN Q0
#define SCRATCH Q1
#define MASK Q4
#define TERM Q8
#define GSUM Q20     // the group's sums, float32
#define MINUS20 Q24
#define PLUS20 Q25
#define LOG2E Q26
#define LO Q27       // q.lo for all lanes
#define HI Q29

// func ratiosNEON(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum)
//
//	g = sum.group                          // 16 lanes
//	for each chunk {
//		u = e^clamp(a - b, -20, 20); c = clamp(u, lo, hi)
//		q.mask and c is not u: c = 0
//		dst = c, or 1 where role is masked
//		g += c, or 0 where role is masked
//		after 8 chunks { sum.total += g; g = 0 }  // float64
//	}
//	sum.group = g
TEXT ·ratiosNEON(SB), NOSPLIT, $0-56
	MOVD   dst+0(FP), DST
	MOVD   a+8(FP), A_PTR
	MOVD   b+16(FP), B_PTR
	MOVD   role+24(FP), ROLE
	MOVD   chunks+32(FP), CHUNKS
	MOVD   q+40(FP), Q_PTR
	MOVD   sum+48(FP), SUM_PTR
	MOVD   $constants<>(SB), CONSTANTS
	MOVW   ratioConsts_mask(Q_PTR), FLAG                     // mask
	VLD1R.P ratioConsts_hi-ratioConsts_lo(Q_PTR), [V(LO).S4] // lo; the step leads to the next field
	VLD1R  (Q_PTR), [V(HI).S4]                               // hi
	FMOVQ  CONST_MINUS20, F(MINUS20)                         // the limits of a - b
	FMOVQ  CONST_PLUS20, F(PLUS20)
	FMOVQ  CONST_LOG2E, F(LOG2E)                             // e^d = 2^(d * log2(e))
	FMOVQ  CONST_C5, F(C5)                                   // for exp2
	FMOVQ  CONST_MAGIC, F(MAGIC)
	FMOVQ  CONST_ONE, F(ONE)
	LOAD4(laneSum_group, SUM_PTR, GSUM)                      // g = sum.group
	MOVD   $(const_groupSize/const_lanes), GROUP             // a piece begins with a group

ratios:
	VLD1.P 64(A_PTR), FOUR_S4(Y)            // a
	VLD1.P 64(B_PTR), FOUR_S4(SECOND)       // b
	FOUR(VFSUB_S4, SECOND, Y, Y)            // a - b
	FOUR_M(VFMAX_S4, MINUS20, Y, Y)         // not below -20
	FOUR_M(VFMIN_S4, PLUS20, Y, Y)          // not above 20
	FOUR_M(VFMUL_S4, LOG2E, Y, Y)           // log2(u)
	POWER                                   // u
	FOUR_M(VFMAX_S4, LO, TWO_Y, BOUNDED)    // not below lo
	FOUR_M(VFMIN_S4, HI, BOUNDED, BOUNDED)  // c = clamp(u, lo, hi)
	CBZ    FLAG, ratios_store
	FOUR(VCMEQ_S4, TWO_Y, BOUNDED, KEPT)    // c is u
	FOUR(VAND_B16, KEPT, BOUNDED, BOUNDED)  // c, or 0

ratios_store:
	VLD1.P 16(ROLE), [V(TOKEN).B16]                 // the roles, and step over them
	VCMTST V(TOKEN).B16, V(TOKEN).B16, V(TOKEN).B16 // role is not 0, which is masked
	WIDEN(TOKEN, SCRATCH, MASK)                     // in 32 bits a token
	FOUR(VAND_B16, MASK, BOUNDED, TERM)             // masked tokens add 0
	FOUR_N(VBIF_B16, MASK, ONE, BOUNDED)            // and get 1
	VST1.P FOUR_S4(BOUNDED), 64(DST)                // dst, and step over it
	FOUR(VFADD_S4, TERM, GSUM, GSUM)                // g += c
	SUBS   $1, GROUP
	BNE    ratios_next                              // the group is not full
	FLUSH4(GSUM, laneSum_total, SUM_PTR)            // sum.total += g
	CLEAR(GSUM)                                     // g = 0
	MOVD   $(const_groupSize/const_lanes), GROUP    // a new group

ratios_next:
	SUBS   $1, CHUNKS
	BNE    ratios                           // next chunk
	STORE4(GSUM, laneSum_group, SUM_PTR)    // sum.group = g
	RET

#undef TOKEN
#undef SCRATCH
#undef MASK
#undef MINUS20
#undef PLUS20
#undef LOG2E

// The coefficients of (e^y - 1 - y) / y^2, each a whole vector, twice for FILL.
#define COEFFICIENT(off, bits) \
	DATA klCoefficients<>+(off+0)(SB)/8, $(bits<<32|bits); \
	DATA klCoefficients<>+(off+8)(SB)/8, $(bits<<32|bits); \
	DATA klCoefficients<>+(off+16)(SB)/8, $(bits<<32|bits); \
	DATA klCoefficients<>+(off+24)(SB)/8, $(bits<<32|bits)
COEFFICIENT(0, 0x37d00d01)   // klC8
COEFFICIENT(32, 0x39500d01)  // klC7
COEFFICIENT(64, 0x3ab60b61)  // klC6
COEFFICIENT(96, 0x3c088889)  // klC5
COEFFICIENT(128, 0x3d2aaaab) // klC4
COEFFICIENT(160, 0x3e2aaaab) // klC3
COEFFICIENT(192, 0x3f000000) // klC2
GLOBL klCoefficients<>(SB), RODATA|NOPTR, $224

#define COEFFICIENTS R14 // their address
#define GRAD_PTR R4
#define NEW_PTR R0       // the log-probabilities
#define REF_PTR R1
#define KERNEL R10       // q.kernel
#define STRAIGHT R11     // q.straight
#define SCALE_PTR R12    // &q.scale

#define K Q0         // the value
#define REF Q4
#define D Q20        // its derivative, g
#define X Q24        // logprobs - ref
#define SIGN Q4      // the sign of x, then 1 or -1
#define ZERO Q8
#define HALF Q29
#define YC Q20       // y = clamp(-x, -20, 20), then -g
#define MINUS20 Q16
#define PLUS20 Q17
#define LOG2E Q29
#define E Q12        // e^y
#define EVEN Q0      // the accumulators of Horner's rule
#define ODD Q16
#define HIGHEST Q29
#define SQUARE Q4
#define K_FAR Q8     // k and g where y is not near 0
#define D_FAR Q12
#define FAR Q4       // |x| > 1/2
#define LIMIT Q29
#define OVER Q4      // k > 10
#define TOKEN Q4
#define SCRATCH Q5
#define MASK Q8
#define GRAD Q12
#define SCALE Q29    // q.scale for all lanes
#define KSUM Q16     // the group's sums, while they are not in memory

// func klNEON(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum)
//
//	for each chunk {
//		x = logprobs - ref; y = clamp(-x, -20, 20)
//		k1: k, g = x, 1
//		abs: k, g = |x|, 1 or -1, or 0 where x is 0 or NaN
//		k2: k, g = x/2 * x, x
//		k3: k, g = e^y - 1 - y, 1 - e^y; k > 10: k, g = 10, 0
//		straight: g = x
//		where role is not masked: sum.group += k; grad += g*scale
//		after 8 chunks { flush the group into its total }
//	}
//
// The group of the sum stays in memory.
TEXT ·klNEON(SB), NOSPLIT, $0-56
	MOVD   grad+0(FP), GRAD_PTR
	MOVD   logprobs+8(FP), NEW_PTR
	MOVD   ref+16(FP), REF_PTR
	MOVD   role+24(FP), ROLE
	MOVD   chunks+32(FP), CHUNKS
	MOVD   q+40(FP), Q_PTR
	MOVD   sum+48(FP), SUM_PTR
	MOVD   $constants<>(SB), CONSTANTS
	MOVD   $klCoefficients<>(SB), COEFFICIENTS
	MOVW   klConsts_kernel(Q_PTR), KERNEL
	MOVW   klConsts_straight(Q_PTR), STRAIGHT
	ADD    $klConsts_scale, Q_PTR, SCALE_PTR     // &q.scale
	FMOVQ  CONST_C5, F(C5)                       // for exp2
	FMOVQ  CONST_MAGIC, F(MAGIC)
	FMOVQ  CONST_ONE, F(ONE)
	MOVD   $(const_groupSize/const_lanes), GROUP // a piece begins with a group

kl:
	VLD1.P 64(NEW_PTR), FOUR_S4(X)          // logprobs
	VLD1.P 64(REF_PTR), FOUR_S4(REF)        // ref
	FOUR(VFSUB_S4, REF, X, X)               // x = logprobs - ref
	CMP    $const_klAbs, KERNEL
	BLT    kl_k1
	BEQ    kl_abs
	CMP    $const_klK3, KERNEL
	BEQ    kl_k3
	FMOVQ  CONST_HALF, F(HALF)              // k2
	FOUR_M(VFMUL_S4, HALF, X, K)            // x/2
	FOUR(VFMUL_S4, X, K, K)                 // k = x/2 * x

kl_straight:
	FOUR(VORR_B16, X, X, D)                 // g = x
	B      kl_terms

kl_k1:
	FOUR(VORR_B16, X, X, K)                 // k = x
	FILL(CONST_ONE, D)                      // g = 1
	B      kl_own

kl_abs:
	FOUR_1(VFABS_S4, X, K)                  // k = |x|
	SET_ZERO(ZERO, ZERO)
	FOUR(VEOR_B16, K, X, SIGN)              // the bit that is not the same
	FOUR_M(VFCMGT_S4, ZERO, K, D)           // |x| > 0
	FOUR_M(VORR_B16, ONE, SIGN, SIGN)       // 1 or -1
	FOUR(VAND_B16, SIGN, D, D)              // g, or 0
	B      kl_own

kl_k3:
	FMOVQ  CONST_MINUS20, F(MINUS20)        // the limits of -x
	FMOVQ  CONST_PLUS20, F(PLUS20)
	FMOVQ  CONST_LOG2E, F(LOG2E)            // e^y = 2^(y * log2(e))
	FOUR_1(VFNEG_S4, X, YC)                 // -x
	FOUR_M(VFMAX_S4, MINUS20, YC, YC)       // not below -20
	FOUR_M(VFMIN_S4, PLUS20, YC, YC)        // y = clamp(-x, -20, 20)
	FOUR_M(VFMUL_S4, LOG2E, YC, Y)          // log2(e^y)
	POWER                                   // e^y
	FMOVQ  0(COEFFICIENTS), F(HIGHEST)      // klC8
	FILL(32(COEFFICIENTS), EVEN)            // klC7
	FILL(64(COEFFICIENTS), ODD)             // klC6
	FOUR_M(VFMLA_S4, HIGHEST, YC, EVEN)     // p = klC8*y + klC7
	FOUR(VFMLA_S4, EVEN, YC, ODD)           // p = p*y + klC6
	FILL(96(COEFFICIENTS), EVEN)            // klC5
	FOUR(VFMLA_S4, ODD, YC, EVEN)           // p = p*y + klC5
	FILL(128(COEFFICIENTS), ODD)            // klC4
	FOUR(VFMLA_S4, EVEN, YC, ODD)           // p = p*y + klC4
	FILL(160(COEFFICIENTS), EVEN)           // klC3
	FOUR(VFMLA_S4, ODD, YC, EVEN)           // p = p*y + klC3
	FILL(192(COEFFICIENTS), ODD)            // klC2
	FOUR(VFMLA_S4, EVEN, YC, ODD)           // p = p*y + klC2
	FOUR_M(VFSUB_S4, ONE, E, K_FAR)         // e^y - 1
	FOUR(VFSUB_S4, YC, K_FAR, K_FAR)        // e^y - 1 - y
	FOUR(VFMUL_S4, YC, YC, SQUARE)          // y*y
	FOUR(VFMUL_S4, SQUARE, ODD, K)          // k = p * (y*y)
	FOUR(VFMLA_S4, SQUARE, ODD, YC)         // -g = p * (y*y) + y
	FMOVQ  CONST_HALF, F(LIMIT)
	FOUR_M(VFACGT_S4, LIMIT, X, FAR)        // |x| > 1/2: so is |y|
	FOUR(VBIT_B16, FAR, K_FAR, K)           // k = e^y - 1 - y
	FOUR_N(VFSUB_S4, E, ONE, D_FAR)         // 1 - e^y
	FOUR_1(VFNEG_S4, YC, D)                 // g = -(p * (y*y) + y)
	FOUR(VBIT_B16, FAR, D_FAR, D)           // g = 1 - e^y
	FMOVQ  CONST_TEN, F(LIMIT)
	FOUR_M(VFCMGT_S4, LIMIT, K, OVER)       // k > 10: also wherever the clamp moves -x
	FOUR(VBIC_B16, OVER, D, D)              // g = 0
	FOUR_N(VBIT_B16, OVER, LIMIT, K)        // k = 10

kl_own:
	CBNZ   STRAIGHT, kl_straight

kl_terms:
	VLD1.P 16(ROLE), [V(TOKEN).B16]                 // the roles, and step over them
	VLD1   (GRAD_PTR), FOUR_S4(GRAD)                // grad
	VLD1R  (SCALE_PTR), [V(SCALE).S4]               // scale
	VCMTST V(TOKEN).B16, V(TOKEN).B16, V(TOKEN).B16 // role is not 0, which is masked
	WIDEN(TOKEN, SCRATCH, MASK)                     // in 32 bits a token
	FOUR_M(VFMUL_S4, SCALE, D, D)                   // g*scale
	FOUR(VFADD_S4, D, GRAD, D)                      // grad + g*scale
	FOUR(VBIT_B16, MASK, D, GRAD)                   // masked tokens keep theirs
	VST1.P FOUR_S4(GRAD), 64(GRAD_PTR)              // grad, and step over it
	FOUR(VAND_B16, MASK, K, K)                      // masked tokens add 0
	LOAD4(laneSum_group, SUM_PTR, KSUM)             // the group so far
	FOUR(VFADD_S4, K, KSUM, KSUM)                   // += k
	STORE4(KSUM, laneSum_group, SUM_PTR)            // it goes back
	SUB    $1, CHUNKS                               // next chunk
	SUBS   $1, GROUP
	BNE    kl_next                                  // the group is not full
	FLUSH4(KSUM, laneSum_total, SUM_PTR)            // sum.total += its group
	CLEAR(KSUM)
	STORE4(KSUM, laneSum_group, SUM_PTR)            // the group = 0
	MOVD   $(const_groupSize/const_lanes), GROUP    // a new group

kl_next:
	CBNZ   CHUNKS, kl                       // next chunk of the group
	RET

#undef SQUARE
#undef OVER
#undef LIMIT
#undef TOKEN
#undef SCRATCH
#undef MASK
#undef GSUM
#undef HALF
#undef SCALE

#define VALUE_PTR R0
#define OLD_PTR R1
#define RETURN_PTR R5
#define CLIPPED R7

#define VALUE Q0     // the new values
#define OLD Q4
#define RETURN Q8
#define LIMIT Q12
#define CUT Q16      // c, then dc, then its square
#define DIST Q0      // d, then g
#define SQUARE Q4    // of d, then l
#define OVER Q20     // the square of dc is larger
#define TOKEN Q8
#define SCRATCH Q9
#define MASK Q12
#define GSUM Q24     // the group's sums, float32
#define CLIP Q28     // q.clip for all lanes
#define SCALE Q29
#define HALF Q30

// func valueLossNEON(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums)
//
//	s = sums.loss.group                    // 16 lanes
//	for each chunk {
//		c = clamp(values, old - clip, old + clip); d, dc = values - returns, c - returns
//		l, g = d*d/2, d*scale
//		dc*dc > d*d: l, g = dc*dc/2, 0     // then c is not values
//		where role is not masked: s += l; grad = g; dc*dc > d*d: clipped++
//		else: grad = 0
//		after 8 chunks { sums.loss.total += s; s = 0 }  // float64
//	}
//	sums.loss.group = s
TEXT ·valueLossNEON(SB), NOSPLIT, $0-64
	MOVD   grad+0(FP), GRAD_PTR
	MOVD   values+8(FP), VALUE_PTR
	MOVD   old+16(FP), OLD_PTR
	MOVD   returns+24(FP), RETURN_PTR
	MOVD   role+32(FP), ROLE
	MOVD   chunks+40(FP), CHUNKS
	MOVD   q+48(FP), Q_PTR
	MOVD   sums+56(FP), SUM_PTR
	MOVD   $constants<>(SB), CONSTANTS
	VLD1R.P valueConsts_scale-valueConsts_clip(Q_PTR), [V(CLIP).S4] // clip; the step leads to the next field
	VLD1R  (Q_PTR), [V(SCALE).S4]                                   // scale
	FMOVQ  CONST_HALF, F(HALF)                                      // 1/2
	MOVD   valueSums_clipped(SUM_PTR), CLIPPED                      // sums.clipped
	LOAD4(valueSums_loss+laneSum_group, SUM_PTR, GSUM)              // s = sums.loss.group
	MOVD   $(const_groupSize/const_lanes), GROUP                    // a piece begins with a group

value:
	VLD1.P 64(VALUE_PTR), FOUR_S4(VALUE)                // values
	VLD1.P 64(OLD_PTR), FOUR_S4(OLD)                    // old
	VLD1.P 64(RETURN_PTR), FOUR_S4(RETURN)              // returns
	FOUR_M(VFSUB_S4, CLIP, OLD, LIMIT)                  // old - clip
	FOUR(VFMAX_S4, LIMIT, VALUE, CUT)                   // not below that
	FOUR_M(VFADD_S4, CLIP, OLD, LIMIT)                  // old + clip
	FOUR(VFMIN_S4, LIMIT, CUT, CUT)                     // c = clamp(values, old - clip, old + clip)
	FOUR(VFSUB_S4, RETURN, VALUE, DIST)                 // d = values - returns
	FOUR(VFSUB_S4, RETURN, CUT, CUT)                    // dc = c - returns
	FOUR(VFMUL_S4, DIST, DIST, SQUARE)                  // d*d
	FOUR(VFMUL_S4, CUT, CUT, CUT)                       // dc*dc
	FOUR(VFCMGT_S4, SQUARE, CUT, OVER)                  // dc*dc > d*d
	FOUR(VBIT_B16, OVER, CUT, SQUARE)                   // the larger
	FOUR_M(VFMUL_S4, SCALE, DIST, DIST)                 // g = d*scale
	FOUR_M(VFMUL_S4, HALF, SQUARE, SQUARE)              // l, the larger / 2
	FOUR(VBIC_B16, OVER, DIST, DIST)                    // g = 0
	VLD1.P 16(ROLE), [V(TOKEN).B16]                     // the roles, and step over them
	VCMTST V(TOKEN).B16, V(TOKEN).B16, V(TOKEN).B16     // role is not 0, which is masked
	WIDEN(TOKEN, SCRATCH, MASK)                         // in 32 bits a token
	FOUR(VAND_B16, MASK, DIST, DIST)                    // masked tokens get 0
	VST1.P FOUR_S4(DIST), 64(GRAD_PTR)                  // grad, and step over it
	FOUR(VAND_B16, MASK, SQUARE, SQUARE)                // masked tokens add 0
	FOUR(VFADD_S4, SQUARE, GSUM, GSUM)                  // s += l
	FOUR(VAND_B16, MASK, OVER, OVER)                    // counted where not masked
	VADD_S4(NEXT(OVER), OVER, OVER)                     // -1 for each clipped token
	VADD_S4(NEXT3(OVER), NEXT2(OVER), NEXT2(OVER))
	VADD_S4(NEXT2(OVER), OVER, OVER)
	VADDV  V(OVER).S4, V(OVER)                          // minus their number
	VMOV   V(OVER).S[0], TMP
	SUBW   TMP, ZR, TMP                                 // their number
	ADD    TMP, CLIPPED                                 // clipped += that
	SUBS   $1, GROUP
	BNE    value_next                                   // the group is not full
	FLUSH4(GSUM, valueSums_loss+laneSum_total, SUM_PTR) // sums.loss.total += s
	CLEAR(GSUM)                                         // s = 0
	MOVD   $(const_groupSize/const_lanes), GROUP        // a new group

value_next:
	SUBS   $1, CHUNKS
	BNE    value                                        // next chunk
	STORE4(GSUM, valueSums_loss+laneSum_group, SUM_PTR) // sums.loss.group = s
	MOVD   CLIPPED, valueSums_clipped(SUM_PTR)          // sums.clipped
	RET
