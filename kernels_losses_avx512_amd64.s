//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The policy losses besides the clipped surrogate with AVX-512 (F, VL, DQ, BW). Each
// is a loop of policyLossPortable in kernels_losses_portable.go, with the method of
// lossConsts for one token. They take whole chunks of 16 elements; a chunk is one
// vector. The arguments are those of surrogateAVX512.

#define GRAD_PTR DI
#define NEW_PTR SI // logprobs
#define OLD_PTR R8
#define ADV_PTR R9
#define WEIGHT_PTR R10
#define STRIDE R11
#define ROLE_PTR DX
#define LEFT CX    // chunks left
#define CONSTS BX
#define SUMS AX    // between groups
#define BITS AX    // of a mask, then their number
#define TOKENS R12
#define CLIPPED_COUNT R13

// Names that share a register follow each other.
#define ROLE_LOW X0  // the roles of 16 tokens, as bytes
#define D Z0         // the log-ratio
#define DC Z1        // the same, kept between -20 and 20
#define NEG Z2       // n
#define POWER Z3     // log2 of what EXP2_AVX512 makes
#define F Z4         // of exp2
#define RHO Z5
#define G Z6         // the derivative
#define L Z7         // the loss
#define LOSS Z8      // the groups
#define RATIO Z9
#define LOSS_LOW Y8  // their lower halves
#define RATIO_LOW Y9
#define MIN_D Z18
#define MAX_D Z19
#define GRAD_SCALE Z26
#define LOG2E Z27
#define SIGN Z28
#define ZERO Z29
#define MINY Z30
#define MAXY Z31
#define RESPONSE K1  // tokens that are not masked
#define INSIDE K2    // where d is dc
#define NEGATIVE K3  // where n > 0: a negative advantage
#define CLIPPED K4   // where the token is not masked

// BEGIN loads the arguments and the constants that all losses have.
#define BEGIN \
	MOVQ          grad+0(FP), GRAD_PTR; \
	MOVQ          logprobs+8(FP), NEW_PTR; \
	MOVQ          old+16(FP), OLD_PTR; \
	MOVQ          adv+24(FP), ADV_PTR; \
	MOVQ          weights+32(FP), WEIGHT_PTR; \
	MOVQ          stride+40(FP), STRIDE; \
	MOVQ          role+48(FP), ROLE_PTR; \
	MOVQ          chunks+56(FP), LEFT; \
	MOVQ          q+64(FP), CONSTS; \
	VBROADCASTSS  minLogRatio<>(SB), MIN_D; \             // the limits of d
	VBROADCASTSS  maxLogRatio<>(SB), MAX_D; \
	VBROADCASTSS  log2E32<>(SB), LOG2E; \                 // e^dc = 2^(dc * log2(e))
	BROADCAST_EXP2; \                                     // the coefficients of 2^f
	VPBROADCASTD  signBit<>(SB), SIGN; \                  // to change the sign of adv
	VPXORD        ZERO, ZERO, ZERO; \
	VBROADCASTSS  lossConsts_scale(CONSTS), GRAD_SCALE; \ // scale
	VPXORD        LOSS, LOSS, LOSS; \                     // the groups
	VPXORD        RATIO, RATIO, RATIO; \
	XORL          TOKENS, TOKENS; \                       // the tokens of this call
	XORL          CLIPPED_COUNT, CLIPPED_COUNT; \
	MOVQ          $GROUP_CHUNKS, left-8(SP)               // chunks left in the group

// READ reads the log-ratios of a chunk, at off bytes of the float arrays and roff bytes
// of the roles.
#define READ(off, roff, dc, response) \
	VMOVDQU       roff(ROLE_PTR), ROLE_LOW; \     // the roles of 16 tokens
	VPTESTMB      ROLE_LOW, ROLE_LOW, response; \ // role is not masked, which is 0
	VMOVUPS       off(NEW_PTR), D; \              // logprobs
	VSUBPS        off(OLD_PTR), D, D; \           // d = logprobs - old
	VMAXPS        D, MIN_D, dc; \                 // not below -20
	VMINPS        dc, MAX_D, dc                   // dc, not above 20

// RATIOS sets rho to e^dc.
#define RATIOS(dc, rho) \
	VMULPS        LOG2E, dc, POWER; \ // log2(rho) = dc * log2(e)
	EXP2_AVX512(POWER, F, rho)        // rho = e^dc

// WRITE writes the gradient of a chunk, adds it to the groups, and goes to the next
// chunk.
#define WRITE(dc, response) \
	VMULPS        (WEIGHT_PTR), L, L; \         // w*l
	VMULPS        (WEIGHT_PTR), G, G; \         // w*g
	VMULPS.Z      GRAD_SCALE, G, response, G; \ // w*g*scale, 0 for masked tokens
	VMOVUPS       G, (GRAD_PTR); \              // grad
	KMOVW         response, BITS; \             // a bit for each token that is not masked
	POPCNTL       BITS, BITS; \                 // their number
	ADDQ          BITS, TOKENS; \               // tokens += that
	VADDPS        L, LOSS, response, LOSS; \    // loss += w*l, where not masked
	VADDPS        dc, RATIO, response, RATIO; \ // logRatio += dc, there
	ADDQ          $CHUNK4, NEW_PTR; \           // next chunk
	ADDQ          $CHUNK4, OLD_PTR; \
	ADDQ          $CHUNK4, ADV_PTR; \
	ADDQ          STRIDE, WEIGHT_PTR; \         // stride is 0 for sixteen ones
	ADDQ          $CHUNK1, ROLE_PTR; \
	ADDQ          $CHUNK4, GRAD_PTR

// COUNT_CLIPPED counts the tokens of CLIPPED.
#define COUNT_CLIPPED \
	KMOVW         CLIPPED, BITS; \    // a bit for each
	POPCNTL       BITS, BITS; \       // their number
	ADDQ          BITS, CLIPPED_COUNT // clipped += that

// FLUSH adds the groups to the totals every 8 chunks. It jumps to next before that.
#define FLUSH(next) \
	DECQ          left-8(SP); \
	JNE           next; \                                                         // the groups are not full
	MOVQ          sums+72(FP), SUMS; \
	FLUSH_AVX512(LOSS, LOSS_LOW, SUMS, surrogateSums_loss+laneSum_total); \       // sums.loss.total += the group
	FLUSH_AVX512(RATIO, RATIO_LOW, SUMS, surrogateSums_logRatio+laneSum_total); \ // sums.logRatio.total += the group
	VPXORD        LOSS, LOSS, LOSS; \                                             // new groups
	VPXORD        RATIO, RATIO, RATIO; \
	MOVQ          $GROUP_CHUNKS, left-8(SP)

// END writes the groups that are not full and the counts.
#define END \
	MOVQ          sums+72(FP), SUMS; \
	VMOVUPS       LOSS, (surrogateSums_loss+laneSum_group)(SUMS); \      // sums.loss
	VMOVUPS       RATIO, (surrogateSums_logRatio+laneSum_group)(SUMS); \ // sums.logRatio
	ADDQ          TOKENS, surrogateSums_tokens(SUMS); \
	ADDQ          CLIPPED_COUNT, surrogateSums_clipped(SUMS); \
	VZEROUPPER

#define LINEAR Z10       // linear of the token's sign
#define VALUE0 Z11       // for advantages of at least 0
#define VALUE1 Z12       // for negative ones
#define LINEAR0 Z13
#define LINEAR1 Z14
#define SLOPE0 Z15
#define SLOPE1 Z16
#define POSITIVE K5      // where n < 0: a positive advantage
#define CLIPS0 K6        // all ones if clips[0] is 1
#define CLIPS1 K7

// func sequenceLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	d = logprobs - old; dc = clamp(d, -20, 20); n = -adv; j = n > 0 ? 1 : 0
//	slope = slope[j]
//	tokenRatio: slope = dc is d ? slope*e^dc : 0
//	l, g = n*(value[j] + linear[j]*logprobs), n*slope
//	clipped = clips[j], where n is not 0
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·sequenceLossAVX512(SB), NOSPLIT, $8-80
	BEGIN
	VBROADCASTSS  (lossConsts_value+0)(CONSTS), VALUE0   // value
	VBROADCASTSS  (lossConsts_value+4)(CONSTS), VALUE1
	VBROADCASTSS  (lossConsts_linear+0)(CONSTS), LINEAR0 // linear
	VBROADCASTSS  (lossConsts_linear+4)(CONSTS), LINEAR1
	VBROADCASTSS  (lossConsts_slope+0)(CONSTS), SLOPE0   // slope
	VBROADCASTSS  (lossConsts_slope+4)(CONSTS), SLOPE1
	MOVL          (lossConsts_clips+0)(CONSTS), BITS     // clips: 1 or 0
	NEGL          BITS                                   // all ones or 0
	KMOVW         BITS, CLIPS0
	MOVL          (lossConsts_clips+4)(CONSTS), BITS
	NEGL          BITS
	KMOVW         BITS, CLIPS1

sequence:
	READ(0, 0, DC, RESPONSE)
	VXORPS        (ADV_PTR), SIGN, NEG                   // n = -adv
	VCMPPS        GREATER, ZERO, NEG, RESPONSE, NEGATIVE // n > 0: a negative advantage
	VCMPPS        LESS, ZERO, NEG, RESPONSE, POSITIVE    // n < 0
	KANDW         CLIPS1, NEGATIVE, CLIPPED              // clipped, of the negative
	KANDW         CLIPS0, POSITIVE, POSITIVE             // and of the positive
	KORW          POSITIVE, CLIPPED, CLIPPED
	VBLENDMPS     SLOPE1, SLOPE0, NEGATIVE, G            // slope[j]
	CMPL          lossConsts_tokenRatio(CONSTS), $0
	JEQ           sequence_slope                         // the same in every chunk
	RATIOS(DC, RHO)
	VCMPPS        SAME, D, DC, INSIDE                    // the clamp did not move d
	VMULPS.Z      RHO, G, INSIDE, G                      // slope[j]*rho, or 0

sequence_slope:
	VMULPS        G, NEG, G                          // g = n*slope
	VBLENDMPS     VALUE1, VALUE0, NEGATIVE, L        // value[j]
	VBLENDMPS     LINEAR1, LINEAR0, NEGATIVE, LINEAR // linear[j]
	VFMADD231PS   (NEW_PTR), LINEAR, L               // value[j] + linear[j]*logprobs
	VMULPS        L, NEG, L                          // l = n*that
	WRITE(DC, RESPONSE)
	COUNT_CLIPPED
	FLUSH(sequence_next)

sequence_next:
	DECQ          LEFT
	JNE           sequence
	END
	RET

#define C Z10 // the factor
#define LO Z16
#define HI Z17

// func cispoLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	dc = clamp(logprobs - old, -20, 20); rho = e^dc; n = -adv
//	c = clamp(rho, lo, hi); clipped = c is not rho
//	g = n*c; l = g*logprobs
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·cispoLossAVX512(SB), NOSPLIT, $8-80
	BEGIN
	VBROADCASTSS  lossConsts_lo(CONSTS), LO // lo
	VBROADCASTSS  lossConsts_hi(CONSTS), HI // hi

cispo:
	READ(0, 0, DC, RESPONSE)
	VXORPS        (ADV_PTR), SIGN, NEG               // n = -adv
	RATIOS(DC, RHO)
	VMAXPS        RHO, LO, C                         // not below lo
	VMINPS        C, HI, C                           // c, not above hi
	VCMPPS        DIFFERS, RHO, C, RESPONSE, CLIPPED // c is not rho
	VMULPS        C, NEG, G                          // g = n*c
	VMULPS        (NEW_PTR), G, L                    // l = g*logprobs
	WRITE(DC, RESPONSE)
	COUNT_CLIPPED
	FLUSH(cispo_next)

cispo_next:
	DECQ          LEFT
	JNE           cispo
	END
	RET

#define DC0 Z1      // of the first chunk of a pair
#define RHO0 Z5
#define E0 Z2       // 2^y
#define DC1 Z10     // of the second
#define RHO1 Z11
#define E1 Z17
#define RATE Z6     // of the token's sign
#define Y Z6        // (rho-1) * rate, then not above maxY
#define HEIGHT Z7   // of the token's sign
#define NEG_S Z0    // less the sigmoid without its height
#define RATE_A Z12  // for advantages of at least 0
#define RATE_B Z13  // for negative ones
#define HEIGHT_A Z14
#define HEIGHT_B Z15
#define NEG_ONE Z16
#define NEG_FOUR Z28
#define RESPONSE0 K1 // as RESPONSE, INSIDE and NEGATIVE
#define INSIDE0 K2
#define NEGATIVE0 K3
#define RESPONSE1 K5
#define INSIDE1 K6
#define NEGATIVE1 K7
#define NORMAL K4    // where y is not below minY

// SAPO_RATIO sets rho to e^dc of the chunk at off bytes of the float arrays and roff
// bytes of the roles.
#define SAPO_RATIO(off, roff, dc, rho, response, inside) \
	READ(off, roff, dc, response); \
	VCMPPS        SAME, D, dc, inside; \ // the clamp did not move d
	RATIOS(dc, rho)

// SAPO_POWER sets e to 2^y, or 0 where y < minY. Far below, 2^y is 0 or wrong.
#define SAPO_POWER(off, rho, e, negative) \
	VCMPPS        GREATER, off(ADV_PTR), ZERO, negative; \ // a negative advantage
	VBLENDMPS     RATE_B, RATE_A, negative, RATE; \        // rate[j]
	VSUBPS        ONE, rho, e; \                           // rho - 1
	VMULPS        e, RATE, Y; \                            // y = (rho - 1) * rate[j]
	VCMPPS        NOT_LESS, MINY, Y, NORMAL; \             // y is not below minY
	VMINPS        Y, MAXY, Y; \                            // not above maxY
	EXP2_AVX512(Y, F, e); \                                // 2^y
	VMOVAPS.Z     e, NORMAL, e                             // e

// SAPO_LOSS makes the loss and its derivative of the chunk that is next. n is not made:
// -s takes its sign.
#define SAPO_LOSS(rho, e, inside, negative) \
	VADDPS        ONE, e, NEG_S; \                        // 1 + e
	VDIVPS        NEG_S, NEG_ONE, NEG_S; \                // -s = -1 / (1 + e)
	VMULPS        (ADV_PTR), NEG_FOUR, G; \               // 4*n
	VMULPS        NEG_S, G, G; \                          // -4*n*s
	VMULPS        NEG_S, e, e; \                          // -e*s
	VMULPS        e, G, G; \                              // 4*n*s*(e*s)
	VMULPS.Z      rho, G, inside, G; \                    // g, 0 where d is clamped
	VMULPS        (ADV_PTR), NEG_S, NEG_S; \              // n*s
	VBLENDMPS     HEIGHT_B, HEIGHT_A, negative, HEIGHT; \ // height[j]
	VMULPS        NEG_S, HEIGHT, L                        // l = n*s*height[j]

// func sapoLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv; j = n > 0 ? 1 : 0
//	y = (rho - 1) * rate[j]; e = 2^clamp(y), or 0 where y < minY
//	s = 1 / (1 + e); l = n*s*height[j]
//	g = 4*n*s*(e*s)*rho, or 0 where dc is not d
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
//
// A token's work is one long chain. Two chunks go through each part before the next
// part, so that their chains run abreast.
TEXT ·sapoLossAVX512(SB), NOSPLIT, $8-80
	BEGIN
	VBROADCASTSS  (lossConsts_rate+0)(CONSTS), RATE_A     // rate
	VBROADCASTSS  (lossConsts_rate+4)(CONSTS), RATE_B
	VBROADCASTSS  (lossConsts_height+0)(CONSTS), HEIGHT_A // height
	VBROADCASTSS  (lossConsts_height+4)(CONSTS), HEIGHT_B
	VBROADCASTSS  minY<>(SB), MINY                        // the limits of y
	VBROADCASTSS  maxY<>(SB), MAXY
	VBROADCASTSS  negOne<>(SB), NEG_ONE
	VBROADCASTSS  negFour<>(SB), NEG_FOUR

sapo:
	SUBQ          $2, LEFT
	JLT           sapo_last
	SAPO_RATIO(0, 0, DC0, RHO0, RESPONSE0, INSIDE0)
	SAPO_RATIO(CHUNK4, CHUNK1, DC1, RHO1, RESPONSE1, INSIDE1)
	SAPO_POWER(0, RHO0, E0, NEGATIVE0)
	SAPO_POWER(CHUNK4, RHO1, E1, NEGATIVE1)
	SAPO_LOSS(RHO0, E0, INSIDE0, NEGATIVE0)
	WRITE(DC0, RESPONSE0)
	SAPO_LOSS(RHO1, E1, INSIDE1, NEGATIVE1)
	WRITE(DC1, RESPONSE1)
	DECQ          left-8(SP)             // two chunks, with the one that FLUSH counts
	FLUSH(sapo)
	JMP           sapo

sapo_last:
	INCQ          LEFT                   // -1 if a chunk is left, else -2
	JNE           sapo_end
	SAPO_RATIO(0, 0, DC0, RHO0, RESPONSE0, INSIDE0)
	SAPO_POWER(0, RHO0, E0, NEGATIVE0)
	SAPO_LOSS(RHO0, E0, INSIDE0, NEGATIVE0)
	WRITE(DC0, RESPONSE0)

sapo_end:
	END
	RET

#define P_NEW Z10    // the new probability, then less the old one
#define P_OLD Z11
#define LIMIT Z11    // of the token's sign
#define CAP Z12
#define NOT_POSITIVE K3 // where n is not below 0
#define KEPT K5      // tokens whose probability has not moved too far

// PROBABILITY sets p to e^x, kept between 2^minY and 2^maxY.
#define PROBABILITY(x, p) \
	VMULPS        x, LOG2E, POWER; \ // log2(p) = x * log2(e)
	CLAMP(POWER, MINY, MAXY); \
	EXP2_AVX512(POWER, F, p)

// func dppoLossAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	dc = clamp(logprobs - old, -20, 20); rho = e^dc; n = -adv
//	moved = 2^clamp(logprobs*log2(e)) - 2^clamp(old*log2(e))
//	clipped = n < 0 ? moved > hi : -moved > lo
//	c = clipped ? 0 : min(rho, cap)
//	g = n*c; l = g*logprobs
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·dppoLossAVX512(SB), NOSPLIT, $8-80
	BEGIN
	VBROADCASTSS  lossConsts_lo(CONSTS), LO   // lo
	VBROADCASTSS  lossConsts_hi(CONSTS), HI   // hi
	VBROADCASTSS  lossConsts_cap(CONSTS), CAP // cap
	VBROADCASTSS  minY<>(SB), MINY            // the limits of a probability's logarithm
	VBROADCASTSS  maxY<>(SB), MAXY

dppo:
	READ(0, 0, DC, RESPONSE)
	VXORPS        (ADV_PTR), SIGN, NEG              // n = -adv
	RATIOS(DC, RHO)
	PROBABILITY((NEW_PTR), P_NEW)
	PROBABILITY((OLD_PTR), P_OLD)
	VSUBPS        P_OLD, P_NEW, P_NEW               // moved
	VCMPPS        NOT_LESS, ZERO, NEG, NOT_POSITIVE // n is not below 0
	VBLENDMPS     LO, HI, NOT_POSITIVE, LIMIT       // lo there, else hi
	VXORPS        SIGN, P_NEW, NOT_POSITIVE, P_NEW  // -moved there
	VCMPPS        NOT_GREATER, LIMIT, P_NEW, KEPT   // not above the limit: not clipped
	VMINPS.Z      RHO, CAP, KEPT, RHO               // c, 0 where clipped
	VMULPS        RHO, NEG, G                       // g = n*c
	VMULPS        (NEW_PTR), G, L                   // l = g*logprobs
	KANDNW        RESPONSE, KEPT, CLIPPED           // clipped and not masked
	WRITE(DC, RESPONSE)
	COUNT_CLIPPED
	FLUSH(dppo_next)

dppo_next:
	DECQ          LEFT
	JNE           dppo
	END
	RET
