//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "neon_arm64.h"

// The kernels of policy losses with NEON: see kernels_losses_portable.go. Their loops
// begin and end alike, so both ends are macros.

#define NEW_PTR R0   // the log-probabilities
#define OLD_PTR R1
#define CHUNKS R2    // chunks of 16 left
#define ROLE R3
#define ADV_PTR R4
#define W_PTR R5
#define GROUP R6     // chunks left in the group
#define GRAD_PTR R7
#define Q_PTR R8     // the lossConsts
#define SUMS R9      // the surrogateSums
#define STRIDE R10
#define TOKENS R11
#define CLIPPED R12
#define TMP R13
#define LO_PTR R14   // &q.lo
#define HI_PTR R15   // &q.hi
#define CAP_PTR R16  // &q.cap
#define PAIR_PTR R14 // the next pair of q
#define PAIRS R15    // the first pair
#define TOKEN_RATIO R16

#define LOSS surrogateSums_loss
#define LOGRATIO surrogateSums_logRatio

#define DIFF Q0      // d, the difference of the log-probabilities
#define OLD Q4
#define MINUS20 Q16
#define PLUS20 Q17
#define LOG2E Q29
#define RHO Q12
#define DC Q20       // clamp(d, -20, 20)
#define GRAD Q4      // g, then w*g*scale
#define L Q8         // l, then w*l
#define CLIP Q24     // all ones where clipped, or where not
#define W Q16
#define SCALE Q29    // q.scale for all lanes
#define TOKEN Q0     // by token, in bytes: whether its role is not masked
#define SCRATCH Q1
#define MASK Q16     // TOKEN in 32 bits a token
#define LOSS_SUM Q0  // the group's sums, while they are not in memory
#define RATIO_SUM Q4
#define ZERO Q29

// BEGIN loads the arguments, and the constants that keep their registers.
#define BEGIN \
	MOVD   grad+0(FP), GRAD_PTR; \
	MOVD   logprobs+8(FP), NEW_PTR; \
	MOVD   old+16(FP), OLD_PTR; \
	MOVD   adv+24(FP), ADV_PTR; \
	MOVD   weights+32(FP), W_PTR; \
	MOVD   stride+40(FP), STRIDE; \
	MOVD   role+48(FP), ROLE; \
	MOVD   chunks+56(FP), CHUNKS; \
	MOVD   q+64(FP), Q_PTR; \
	MOVD   sums+72(FP), SUMS; \
	MOVD   $constants<>(SB), CONSTANTS; \
	FMOVQ  CONST_C5, F(C5); \                      // for exp2
	FMOVQ  CONST_MAGIC, F(MAGIC); \
	FMOVQ  CONST_ONE, F(ONE); \
	MOVD   surrogateSums_tokens(SUMS), TOKENS; \   // sums.tokens
	MOVD   surrogateSums_clipped(SUMS), CLIPPED; \ // sums.clipped
	MOVD   $(const_groupSize/const_lanes), GROUP   // a piece begins with a group

// LOG_RATIO: DIFF = d and DC = dc of the chunk.
#define LOG_RATIO \
	VLD1   (NEW_PTR), FOUR_S4(DIFF); \     // logprobs
	VLD1   (OLD_PTR), FOUR_S4(OLD); \      // old
	FMOVQ  CONST_MINUS20, F(MINUS20); \    // the limits of d
	FMOVQ  CONST_PLUS20, F(PLUS20); \
	FOUR(VFSUB_S4, OLD, DIFF, DIFF); \     // d = logprobs - old
	FOUR_M(VFMAX_S4, MINUS20, DIFF, DC); \ // not below -20
	FOUR_M(VFMIN_S4, PLUS20, DC, DC)       // dc = clamp(d, -20, 20)

// RATIO: d = e^dc for the dc of DC.
#define RATIO(d) \
	FMOVQ  CONST_LOG2E, F(LOG2E); \   // e^dc = 2^(dc * log2(e))
	FOUR_M(VFMUL_S4, LOG2E, DC, Y); \ // log2(rho) = dc * log2(e)
	POWER_TO(d)                       // rho = e^dc

// BY_SIGN: d = the next pair of q, its element 1 where the mask second is set and
// element 0 elsewhere. other is overwritten.
#define BY_SIGN(second, other, d) \
	VLD1R  (PAIR_PTR), [V(d).S4]; \          // element 0, for all lanes
	VLD1R  (PAIR_PTR), [V(NEXT(d)).S4]; \
	VLD1R  (PAIR_PTR), [V(NEXT2(d)).S4]; \
	VLD1R.P 4(PAIR_PTR), [V(NEXT3(d)).S4]; \ // and step over it
	VLD1R.P 4(PAIR_PTR), [V(other).S4]; \    // element 1
	FOUR_N(VBIT_B16, second, other, d)

// ADD_TERMS weighs the l of L and the g of GRAD, adds the terms and the tokens to the
// sums, stores grad, and steps over the chunk. MASK stays; Q0 to Q7 and SCALE are
// overwritten.
#define ADD_TERMS \
	VLD1   (W_PTR), FOUR_S4(W); \                      // w
	ADD    STRIDE, W_PTR; \                            // stride is 0 for sixteen ones
	VLD1R  lossConsts_scale(Q_PTR), [V(SCALE).S4]; \   // scale
	VLD1.P 16(ROLE), [V(TOKEN).B16]; \                 // the roles, and step over them
	FOUR(VFMUL_S4, W, L, L); \                         // w*l
	FOUR(VFMUL_S4, W, GRAD, GRAD); \                   // w*g
	FOUR_M(VFMUL_S4, SCALE, GRAD, GRAD); \             // w*g*scale
	VCMTST V(TOKEN).B16, V(TOKEN).B16, V(TOKEN).B16; \ // role is not 0, which is masked
	WIDEN(TOKEN, SCRATCH, MASK); \                     // in 32 bits a token
	ONES_B16(TOKEN, TOKEN); \                          // 1 for each token
	VUADDLV V(TOKEN).B16, V(TOKEN); \                  // their number
	VMOV   V(TOKEN).H[0], TMP; \
	ADD    TMP, TOKENS; \                              // tokens += that
	FOUR(VAND_B16, MASK, GRAD, GRAD); \                // masked tokens get 0
	VST1.P FOUR_S4(GRAD), 64(GRAD_PTR); \              // grad, and step over it
	FOUR(VAND_B16, MASK, L, L); \                      // masked tokens add 0 to loss
	FOUR(VAND_B16, MASK, DC, DC); \                    // and 0 to logRatio
	LOAD4(LOSS+laneSum_group, SUMS, LOSS_SUM); \       // the groups so far
	LOAD4(LOGRATIO+laneSum_group, SUMS, RATIO_SUM); \
	FOUR(VFADD_S4, L, LOSS_SUM, L); \                  // loss += w*l
	FOUR(VFADD_S4, DC, RATIO_SUM, DC); \               // logRatio += dc
	STORE4(L, LOSS+laneSum_group, SUMS); \             // the groups go back
	STORE4(DC, LOGRATIO+laneSum_group, SUMS); \
	ADD    $64, NEW_PTR; \                             // the next chunk
	ADD    $64, OLD_PTR; \
	ADD    $64, ADV_PTR; \
	SUB    $1, CHUNKS

// COUNT_CLIPPED counts the clipped tokens after ADD_TERMS: OP is VAND_B16 where CLIP is
// set for them, VBIC_B16 where it is set for the others.
#define COUNT_CLIPPED(OP) \
	FOUR(OP, CLIP, MASK, CLIP); \      // counted where not masked
	VADD_S4(NEXT(CLIP), CLIP, CLIP); \ // -1 for each clipped token
	VADD_S4(NEXT3(CLIP), NEXT2(CLIP), NEXT2(CLIP)); \
	VADD_S4(NEXT2(CLIP), CLIP, CLIP); \
	VADDV  V(CLIP).S4, V(CLIP); \      // minus their number
	VMOV   V(CLIP).S[0], TMP; \
	SUBW   TMP, ZR, TMP; \             // their number
	ADD    TMP, CLIPPED                // clipped += that

// NEW_GROUP adds the groups to their totals and begins new ones.
#define NEW_GROUP \
	FLUSH4(L, LOSS+laneSum_total, SUMS); \      // sums.loss.total += its group
	FLUSH4(DC, LOGRATIO+laneSum_total, SUMS); \ // sums.logRatio.total += its group
	CLEAR(L); \
	STORE4(L, LOSS+laneSum_group, SUMS); \      // the group of loss = 0
	STORE4(L, LOGRATIO+laneSum_group, SUMS); \  // the group of logRatio = 0
	MOVD   $(const_groupSize/const_lanes), GROUP

// END stores the numbers of tokens.
#define END \
	MOVD   TOKENS, surrogateSums_tokens(SUMS); \   // sums.tokens
	MOVD   CLIPPED, surrogateSums_clipped(SUMS); \ // sums.clipped
	RET

// What is the same in every loop below, after d = logprobs - old, n = -adv, and each
// loop's own l, g and clipped:
//
//	where role is not masked: loss += w*l; logRatio += clamp(d, -20, 20); grad = w*g*scale; tokens++; clipped: clipped++
//	else: grad = 0
//	after 8 chunks { flush the groups of loss and logRatio into their totals }
//
// weights advances by stride bytes a chunk: 0 for sixteen ones. The groups of the
// sums stay in memory.

#define LINEAR Q4    // linear of each sign
#define SLOPE Q4     // slope of each sign
#define ADV Q0
#define LOGPROB Q0
#define NEG Q0       // n
#define POSITIVE Q16 // n > 0, then also clips of its sign
#define NEGATIVE Q24 // 0 > n, then also clips of its sign
#define INSIDE Q24   // d is inside the clamp
#define ELEMENT1 Q29
#define CLIPS0 Q12   // all ones where tokens of the sign count as clipped
#define CLIPS1 Q13

// func sequenceLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	for each chunk {
//		j = n > 0 ? 1 : 0
//		s = tokenRatio ? slope[j] * e^clamp(d), or 0 where the clamp moves d : slope[j]
//		l, g = n * (linear[j]*logprobs + value[j]), n * s
//		clipped = n > 0 && clips[1] || n < 0 && clips[0]
//	}
TEXT ·sequenceLossNEON(SB), NOSPLIT, $0-80
	BEGIN
	ADD    $lossConsts_value, Q_PTR, PAIRS  // &q.value
	MOVW   lossConsts_tokenRatio(Q_PTR), TOKEN_RATIO

sequence:
	LOG_RATIO                               // d, dc
	CBZ    TOKEN_RATIO, sequence_pairs
	FOUR(VCMEQ_S4, DIFF, DC, INSIDE)        // the clamp leaves d
	RATIO(RHO)                              // rho

sequence_pairs:
	VLD1   (ADV_PTR), FOUR_S4(ADV)          // adv
	SET_ZERO(ZERO, ZERO)
	FOUR_N(VFCMGT_S4, ADV, ZERO, POSITIVE)  // 0 > adv: n > 0
	MOVD   PAIRS, PAIR_PTR
	BY_SIGN(POSITIVE, ELEMENT1, L)          // value
	BY_SIGN(POSITIVE, ELEMENT1, LINEAR)     // linear
	VLD1   (NEW_PTR), FOUR_S4(LOGPROB)      // logprobs
	FOUR(VFMLA_S4, LOGPROB, LINEAR, L)      // linear*logprobs + value
	BY_SIGN(POSITIVE, ELEMENT1, SLOPE)      // slope
	CBZ    TOKEN_RATIO, sequence_terms
	FOUR(VFMUL_S4, RHO, SLOPE, SLOPE)       // slope*rho
	FOUR(VAND_B16, INSIDE, SLOPE, SLOPE)    // or 0

sequence_terms:
	VLD1   (ADV_PTR), FOUR_S4(NEG)                  // adv
	VLD1R.P 4(PAIR_PTR), [V(CLIPS0).S4]             // clips
	VLD1R  (PAIR_PTR), [V(CLIPS1).S4]
	FOUR_1(VFNEG_S4, NEG, NEG)                      // n = -adv
	VCMTST V(CLIPS0).S4, V(CLIPS0).S4, V(CLIPS0).S4 // all ones for 1
	VCMTST V(CLIPS1).S4, V(CLIPS1).S4, V(CLIPS1).S4
	SET_ZERO(ZERO, ZERO)
	FOUR_N(VFCMGT_S4, NEG, ZERO, NEGATIVE)          // 0 > n
	FOUR(VFMUL_S4, NEG, L, L)                       // l = n * (linear*logprobs + value)
	FOUR(VFMUL_S4, NEG, SLOPE, GRAD)                // g = n * slope
	FOUR_M(VAND_B16, CLIPS0, NEGATIVE, NEGATIVE)    // 0 > n && clips[0]
	FOUR_M(VAND_B16, CLIPS1, POSITIVE, POSITIVE)    // n > 0 && clips[1]
	FOUR(VORR_B16, NEGATIVE, POSITIVE, CLIP)        // clipped
	ADD_TERMS
	COUNT_CLIPPED(VAND_B16)
	SUBS   $1, GROUP
	BNE    sequence_next                            // the group is not full
	NEW_GROUP

sequence_next:
	CBNZ   CHUNKS, sequence                 // next chunk
	END

#undef NEG

#define NEG Q16
#define KEPT CLIP    // all ones where not clipped
#define LIMIT Q29

// func cispoLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	for each chunk {
//		rho = e^clamp(d, -20, 20); c = clamp(rho, lo, hi)
//		l, g = n*c * logprobs, n*c
//		clipped = c is not rho
//	}
TEXT ·cispoLossNEON(SB), NOSPLIT, $0-80
	BEGIN
	ADD    $lossConsts_lo, Q_PTR, LO_PTR    // &q.lo
	ADD    $lossConsts_hi, Q_PTR, HI_PTR    // &q.hi

cispo:
	LOG_RATIO                               // d, dc
	RATIO(RHO)                              // rho
	VLD1   (ADV_PTR), FOUR_S4(NEG)          // adv
	VLD1   (NEW_PTR), FOUR_S4(LOGPROB)      // logprobs
	VLD1R  (LO_PTR), [V(LIMIT).S4]          // lo
	FOUR_M(VFMAX_S4, LIMIT, RHO, GRAD)      // not below lo
	VLD1R  (HI_PTR), [V(LIMIT).S4]          // hi
	FOUR_M(VFMIN_S4, LIMIT, GRAD, GRAD)     // c = clamp(rho, lo, hi)
	FOUR(VCMEQ_S4, RHO, GRAD, KEPT)         // c is rho
	FOUR_1(VFNEG_S4, NEG, NEG)              // n = -adv
	FOUR(VFMUL_S4, NEG, GRAD, GRAD)         // g = n*c
	FOUR(VFMUL_S4, LOGPROB, GRAD, L)        // l = g * logprobs
	ADD_TERMS
	COUNT_CLIPPED(VBIC_B16)
	SUBS   $1, GROUP
	BNE    cispo_next                       // the group is not full
	NEW_GROUP

cispo_next:
	CBNZ   CHUNKS, cispo                    // next chunk
	END

#undef RHO
#undef ADV
#undef POSITIVE
#undef NEG

#define RHO Q24
#define ADV Q4
#define POSITIVE Q8  // n > 0
#define RATE Q12     // rate of each sign
#define MIN_Y Q16
#define MAX_Y Q17
#define NO_POWER Q18 // the exponent of which POWER makes 0
#define SMALL Q4     // y < minY
#define POWER_Y Q12  // e
#define SIGMOID Q16
#define NEG Q0       // n
#define HEIGHT Q12   // height of each sign
#define FACTOR4 Q29
#define POSITIVE_AGAIN Q16
#define OLD_AGAIN Q16

// func sapoLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	for each chunk {
//		j = n > 0 ? 1 : 0
//		rho = e^clamp(d, -20, 20); y = (rho-1) * rate[j]
//		e = 2^clamp(y), or 0 where y < minY; s = 1 / (1+e)
//		l = n*s * height[j]
//		g = 4*n*s * (e*s) * rho, or 0 where the clamp moves d
//	}
TEXT ·sapoLossNEON(SB), NOSPLIT, $0-80
	BEGIN
	ADD    $lossConsts_rate, Q_PTR, PAIRS   // &q.rate

sapo:
	LOG_RATIO                                    // d, dc
	RATIO(RHO)                                   // rho
	VLD1   (ADV_PTR), FOUR_S4(ADV)               // adv
	SET_ZERO(ZERO, ZERO)
	FOUR_N(VFCMGT_S4, ADV, ZERO, POSITIVE)       // 0 > adv: n > 0
	MOVD   PAIRS, PAIR_PTR
	BY_SIGN(POSITIVE, ELEMENT1, RATE)            // rate
	FOUR_M(VFSUB_S4, ONE, RHO, Y)                // rho - 1
	FOUR(VFMUL_S4, RATE, Y, Y)                   // y = (rho-1) * rate
	FMOVQ  CONST_MINY, F(MIN_Y)
	FMOVQ  CONST_MAXY, F(MAX_Y)
	FMOVQ  CONST_NOPOWER, F(NO_POWER)
	FOUR_N(VFCMGT_S4, Y, MIN_Y, SMALL)           // minY > y
	FOUR_M(VFMIN_S4, MAX_Y, Y, Y)                // not above maxY
	FOUR_N(VBIT_B16, SMALL, NO_POWER, Y)         // the power shall be 0
	POWER                                        // e
	VLD1   (ADV_PTR), FOUR_S4(NEG)               // adv
	FMOVQ  CONST_FOUR, F(FACTOR4)                // 4
	FOUR_M(VFADD_S4, ONE, POWER_Y, SIGMOID)      // 1 + e
	FOUR_N(VFDIV_S4, SIGMOID, ONE, SIGMOID)      // s = 1 / (1+e)
	FOUR_1(VFNEG_S4, NEG, NEG)                   // n = -adv
	FOUR_M(VFMUL_S4, FACTOR4, NEG, GRAD)         // 4*n
	FOUR(VFMUL_S4, SIGMOID, POWER_Y, POWER_Y)    // e*s
	FOUR(VFMUL_S4, SIGMOID, NEG, L)              // n*s
	FOUR(VFMUL_S4, SIGMOID, GRAD, GRAD)          // 4*n*s
	FOUR(VFMUL_S4, POWER_Y, GRAD, GRAD)          // 4*n*s * (e*s)
	FOUR(VFMUL_S4, RHO, GRAD, GRAD)              // 4*n*s * (e*s) * rho
	SET_ZERO(ZERO, ZERO)
	FOUR_M(VFCMGT_S4, ZERO, NEG, POSITIVE_AGAIN) // n > 0
	BY_SIGN(POSITIVE_AGAIN, ELEMENT1, HEIGHT)    // height
	FOUR(VFMUL_S4, HEIGHT, L, L)                 // l = n*s * height
	VLD1   (NEW_PTR), FOUR_S4(DIFF)              // logprobs
	VLD1   (OLD_PTR), FOUR_S4(OLD_AGAIN)         // old
	FOUR(VFSUB_S4, OLD_AGAIN, DIFF, DIFF)        // d: EXP2 had overwritten it
	FOUR(VCMEQ_S4, DC, DIFF, DIFF)               // the clamp leaves d
	FOUR(VAND_B16, DIFF, GRAD, GRAD)             // g
	ADD_TERMS
	SUBS   $1, GROUP
	BNE    sapo_next                             // the group is not full
	NEW_GROUP

sapo_next:
	CBNZ   CHUNKS, sapo                     // next chunk
	END

#undef RHO
#undef ADV

#define P_NEW Q24    // the probability of logprobs
#define P_OLD Q12
#define MOVED Q24    // their difference
#define ADV Q0
#define FAR_UP Q4    // moved > hi
#define FAR_DOWN CLIP // moved < -lo
#define RISING Q8    // n < 0: the advantage wants more of the token
#define LOW_LIMIT Q16 // -lo for all lanes
#define HIGH_LIMIT Q17
#define RHO Q12
#define CAP Q29      // q.cap for all lanes

// PROBABILITY: d = e^l for the l at ptr, the exponent kept in [minY, maxY].
#define PROBABILITY(ptr, d) \
	VLD1   (ptr), FOUR_S4(Y); \      // l
	FMOVQ  CONST_LOG2E, F(LOG2E); \  // e^l = 2^(l * log2(e))
	FMOVQ  CONST_MINY, F(MIN_Y); \
	FMOVQ  CONST_MAXY, F(MAX_Y); \
	FOUR_M(VFMUL_S4, LOG2E, Y, Y); \ // l * log2(e)
	FOUR_M(VFMAX_S4, MIN_Y, Y, Y); \ // not below minY
	FOUR_M(VFMIN_S4, MAX_Y, Y, Y); \ // not above maxY
	POWER_TO(d)                      // e^l

// func dppoLossNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	for each chunk {
//		moved = e^logprobs - e^old
//		clipped = n < 0 ? moved > hi : moved < -lo
//		c = min(e^clamp(d, -20, 20), cap), or 0 where clipped
//		l, g = n*c * logprobs, n*c
//	}
TEXT ·dppoLossNEON(SB), NOSPLIT, $0-80
	BEGIN
	ADD    $lossConsts_lo, Q_PTR, LO_PTR    // &q.lo
	ADD    $lossConsts_hi, Q_PTR, HI_PTR    // &q.hi
	ADD    $lossConsts_cap, Q_PTR, CAP_PTR  // &q.cap

dppo:
	PROBABILITY(NEW_PTR, P_NEW)                   // e^logprobs
	PROBABILITY(OLD_PTR, P_OLD)                   // e^old
	VLD1   (ADV_PTR), FOUR_S4(ADV)                // adv
	VLD1R  (LO_PTR), [V(LOW_LIMIT).S4]            // lo
	VLD1R  (HI_PTR), [V(HIGH_LIMIT).S4]           // hi
	VFNEG_S4(LOW_LIMIT, LOW_LIMIT)                // -lo
	SET_ZERO(ZERO, ZERO)
	FOUR(VFSUB_S4, P_OLD, P_NEW, MOVED)           // moved = e^logprobs - e^old
	FOUR_M(VFCMGT_S4, ZERO, ADV, RISING)          // adv > 0: n < 0
	FOUR_M(VFCMGT_S4, HIGH_LIMIT, MOVED, FAR_UP)  // moved > hi
	FOUR_N(VFCMGT_S4, MOVED, LOW_LIMIT, FAR_DOWN) // -lo > moved
	FOUR(VBIT_B16, RISING, FAR_UP, CLIP)          // clipped = n < 0 ? moved > hi : -lo > moved
	LOG_RATIO                                     // d, dc
	RATIO(RHO)                                    // rho
	VLD1   (ADV_PTR), FOUR_S4(NEG)                // adv
	VLD1R  (CAP_PTR), [V(CAP).S4]                 // cap
	FOUR_M(VFMIN_S4, CAP, RHO, GRAD)              // min(rho, cap)
	FOUR(VBIC_B16, CLIP, GRAD, GRAD)              // c: 0 where clipped
	FOUR_1(VFNEG_S4, NEG, NEG)                    // n = -adv
	FOUR(VFMUL_S4, NEG, GRAD, GRAD)               // g = n*c
	VLD1   (NEW_PTR), FOUR_S4(LOGPROB)            // logprobs
	FOUR(VFMUL_S4, LOGPROB, GRAD, L)              // l = g * logprobs
	ADD_TERMS
	COUNT_CLIPPED(VAND_B16)
	SUBS   $1, GROUP
	BNE    dppo_next                              // the group is not full
	NEW_GROUP

dppo_next:
	CBNZ   CHUNKS, dppo                     // next chunk
	END
