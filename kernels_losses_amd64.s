//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The policy losses besides the clipped surrogate with AVX2 and FMA3. Each is a loop of
// policyLossPortable in kernels_losses_portable.go, with the method of lossConsts for
// one token. They take whole chunks of 16 elements, 8 at a time. The arguments are those
// of surrogateAVX2.
//
// A pair of lossConsts, one constant for each sign, is broadcast as 0, 1, 0, 1. A mask of
// all ones or zeros selects from it as the control of VPERMILPS: bits 11 take element 3,
// which is 1 again, and bits 00 take element 0.

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
#define TOKENS R12 // all, less the masked
#define CLIPPED_COUNT R13

// Names that share a register follow each other.
#define D Y0          // the log-ratio
#define FLAT Y0       // where the gradient is 0
#define DC Y1         // the log-ratio, kept between -20 and 20
#define POWER Y2      // log2 of what EXP2_AVX2 makes
#define G Y2          // the derivative
#define M Y3          // of exp2
#define L Y3          // the loss
#define F Y4          // of exp2
#define SCALE_NOW Y4
#define MASKED Y4
#define RHO Y5
#define NO_ROLE Y5
#define NEG Y6        // n
#define NEGATIVE Y7   // where n > 0: a negative advantage
#define CLIPPED Y7
#define MIN_D Y8
#define MAX_D Y9
#define LOSS0 Y12     // the group of the loss
#define LOSS1 Y13
#define RATIO0 Y14    // the group of logRatio
#define RATIO1 Y15
#define LOSS0_LOW X12 // their lower halves
#define LOSS1_LOW X13
#define RATIO0_LOW X14
#define RATIO1_LOW X15

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
	VMOVUPS       minLogRatio<>(SB), MIN_D; \ // the limits of d
	VMOVUPS       maxLogRatio<>(SB), MAX_D; \
	VXORPS        LOSS0, LOSS0, LOSS0; \      // the groups
	VXORPS        LOSS1, LOSS1, LOSS1; \
	VXORPS        RATIO0, RATIO0, RATIO0; \
	VXORPS        RATIO1, RATIO1, RATIO1; \
	XORL          TOKENS, TOKENS; \           // the tokens of this call
	XORL          CLIPPED_COUNT, CLIPPED_COUNT; \
	MOVQ          $GROUP_CHUNKS, left-8(SP)   // chunks left in the group

// READ8 reads the log-ratios of the 8 elements at off bytes of the float arrays.
#define READ8(off, dc) \
	VMOVUPS       off(NEW_PTR), D; \    // logprobs
	VSUBPS        off(OLD_PTR), D, D; \ // d = logprobs - old
	VMAXPS        D, MIN_D, dc; \       // not below -20
	VMINPS        dc, MAX_D, dc         // dc, not above 20

// NEGATE8 reads the advantages.
#define NEGATE8(off) \
	VMOVUPS       signBit<>(SB), NEG; \  // to change the sign
	VXORPS        off(ADV_PTR), NEG, NEG // n = -adv

// RATIOS8 sets rho to e^dc.
#define RATIOS8(dc, rho) \
	VMULPS        log2E32<>(SB), dc, POWER; \ // log2(rho) = dc * log2(e)
	EXP2_AVX2(POWER, M, F, rho)               // rho = e^dc

// SELECT sets dst to the element of the pair that belongs to the mask.
#define SELECT(pair, mask, dst) \
	VBROADCASTSD  pair(CONSTS), dst; \
	VPERMILPS     mask, dst, dst

// WRITE8 writes the gradient of the 8 elements, whose roles are at role bytes, and adds
// to the groups of loss and logRatio.
#define WRITE8(off, role, dc, loss, ratio) \
	VMULPS        off(WEIGHT_PTR), L, L; \               // w*l
	VMULPS        off(WEIGHT_PTR), G, G; \               // w*g
	VBROADCASTSS  lossConsts_scale(CONSTS), SCALE_NOW; \ // scale
	VMULPS        SCALE_NOW, G, G; \                     // w*g*scale
	VPMOVZXBD     role(ROLE_PTR), MASKED; \              // the roles of 8 tokens
	VPXOR         NO_ROLE, NO_ROLE, NO_ROLE; \           // the masked role is 0
	VPCMPEQD      NO_ROLE, MASKED, MASKED; \             // all ones where it is masked
	VANDNPS       G, MASKED, G; \                        // masked tokens get 0
	VMOVUPS       G, off(GRAD_PTR); \                    // grad
	VMOVMSKPS     MASKED, BITS; \                        // a bit for each masked token
	POPCNTL       BITS, BITS; \                          // their number
	SUBQ          BITS, TOKENS; \                        // off tokens, to which NEXT adds 16
	VANDNPS       dc, MASKED, dc; \                      // they add 0 to logRatio
	VANDNPS       L, MASKED, L; \                        // and 0 to loss
	VADDPS        L, loss, loss; \                       // loss += w*l
	VADDPS        dc, ratio, ratio                       // logRatio += dc

// COUNT_CLIPPED counts the tokens of CLIPPED that are not masked.
#define COUNT_CLIPPED \
	VANDNPS       CLIPPED, MASKED, CLIPPED; \ // counted where not masked
	VMOVMSKPS     CLIPPED, BITS; \            // a bit for each
	POPCNTL       BITS, BITS; \               // their number
	ADDQ          BITS, CLIPPED_COUNT         // clipped += that

// NEXT goes to the next chunk. Every 8 chunks it adds the groups to the totals; it jumps
// to next before that.
#define NEXT(next) \
	ADDQ          $const_lanes, TOKENS; \                                         // WRITE8 has taken off the masked
	ADDQ          $CHUNK4, NEW_PTR; \
	ADDQ          $CHUNK4, OLD_PTR; \
	ADDQ          $CHUNK4, ADV_PTR; \
	ADDQ          STRIDE, WEIGHT_PTR; \                                           // stride is 0 for sixteen ones
	ADDQ          $CHUNK1, ROLE_PTR; \
	ADDQ          $CHUNK4, GRAD_PTR; \
	DECQ          left-8(SP); \
	JNE           next; \                                                         // the groups are not full
	MOVQ          sums+72(FP), SUMS; \
	FLUSH_AVX2(LOSS0, LOSS0_LOW, SUMS, surrogateSums_loss+laneSum_total); \       // sums.loss.total += the group
	FLUSH_AVX2(LOSS1, LOSS1_LOW, SUMS, surrogateSums_loss+laneSum_total+64); \
	FLUSH_AVX2(RATIO0, RATIO0_LOW, SUMS, surrogateSums_logRatio+laneSum_total); \ // sums.logRatio.total += the group
	FLUSH_AVX2(RATIO1, RATIO1_LOW, SUMS, surrogateSums_logRatio+laneSum_total+64); \
	VXORPS        LOSS0, LOSS0, LOSS0; \                                          // new groups
	VXORPS        LOSS1, LOSS1, LOSS1; \
	VXORPS        RATIO0, RATIO0, RATIO0; \
	VXORPS        RATIO1, RATIO1, RATIO1; \
	MOVQ          $GROUP_CHUNKS, left-8(SP)

// END writes the groups that are not full and the counts.
#define END \
	MOVQ          sums+72(FP), SUMS; \
	VMOVUPS       LOSS0, (surrogateSums_loss+laneSum_group)(SUMS); \      // sums.loss
	VMOVUPS       LOSS1, (surrogateSums_loss+laneSum_group+32)(SUMS); \
	VMOVUPS       RATIO0, (surrogateSums_logRatio+laneSum_group)(SUMS); \ // sums.logRatio
	VMOVUPS       RATIO1, (surrogateSums_logRatio+laneSum_group+32)(SUMS); \
	ADDQ          TOKENS, surrogateSums_tokens(SUMS); \
	ADDQ          CLIPPED_COUNT, surrogateSums_clipped(SUMS); \
	VZEROUPPER

#define ZERO Y5   // before rho
#define VALUE Y2  // of the token's sign, as the next two
#define LINEAR Y3
#define SLOPE Y11
#define CLIPS Y10 // all ones or 0, for each sign

// SEQUENCE8 does the 8 elements at off bytes of the float arrays and role bytes of the
// roles, and adds to the groups of loss and logRatio. slope is a label for it.
#define SEQUENCE8(off, role, loss, ratio, slope) \
	READ8(off, DC); \
	NEGATE8(off); \
	VXORPS        ZERO, ZERO, ZERO; \
	VCMPPS        GREATER, ZERO, NEG, NEGATIVE; \ // n > 0: a negative advantage
	SELECT(lossConsts_slope, NEGATIVE, SLOPE); \  // slope[j]
	CMPL          lossConsts_tokenRatio(CONSTS), $0; \
	JEQ           slope; \                        // the same for all
	RATIOS8(DC, RHO); \
	VCMPPS        DIFFERS, D, DC, FLAT; \         // the clamp moves d: no gradient
	VMULPS        RHO, SLOPE, SLOPE; \            // slope[j]*rho
	VANDNPS       SLOPE, FLAT, SLOPE; \           // or 0
slope: \
	SELECT(lossConsts_value, NEGATIVE, VALUE); \   // value[j]
	SELECT(lossConsts_linear, NEGATIVE, LINEAR); \ // linear[j]
	VFMADD132PS   off(NEW_PTR), VALUE, LINEAR; \   // value[j] + linear[j]*logprobs
	VMULPS        LINEAR, NEG, L; \                // l = n*that
	VMULPS        SLOPE, NEG, G; \                 // g = n*slope
	VPERMILPS     NEGATIVE, CLIPS, CLIPPED; \      // clips[j]
	VXORPS        ZERO, ZERO, ZERO; \
	VCMPPS        DIFFERS, ZERO, NEG, NEG; \       // n is not 0
	VANDPS        NEG, CLIPPED, CLIPPED; \         // counted only there
	WRITE8(off, role, DC, loss, ratio); \
	COUNT_CLIPPED

// func sequenceLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	d = logprobs - old; dc = clamp(d, -20, 20); n = -adv; j = n > 0 ? 1 : 0
//	slope = slope[j]
//	tokenRatio: slope = dc is d ? slope*e^dc : 0
//	l, g = n*(value[j] + linear[j]*logprobs), n*slope
//	clipped = clips[j], where n is not 0
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·sequenceLossAVX2(SB), NOSPLIT, $8-80
	BEGIN
	VBROADCASTSD  lossConsts_clips(CONSTS), CLIPS // clips: 1 or 0
	VPXOR         SLOPE, SLOPE, SLOPE
	VPSUBD        CLIPS, SLOPE, CLIPS             // all ones or 0

sequence:
	SEQUENCE8(0, 0, LOSS0, RATIO0, sequence_slope0)  // tokens 0 to 7
	SEQUENCE8(32, 8, LOSS1, RATIO1, sequence_slope1) // tokens 8 to 15
	NEXT(sequence_next)

sequence_next:
	DECQ          LEFT
	JNE           sequence
	END
	RET

#define C Y4 // the factor
#define LO Y10
#define HI Y11

// CISPO8 is the like of SEQUENCE8.
#define CISPO8(off, role, loss, ratio) \
	READ8(off, DC); \
	NEGATE8(off); \
	RATIOS8(DC, RHO); \
	VMAXPS        RHO, LO, C; \               // not below lo
	VMINPS        C, HI, C; \                 // c, not above hi
	VCMPPS        DIFFERS, RHO, C, CLIPPED; \ // c is not rho
	VMULPS        C, NEG, G; \                // g = n*c
	VMULPS        off(NEW_PTR), G, L; \       // l = g*logprobs
	WRITE8(off, role, DC, loss, ratio); \
	COUNT_CLIPPED

// func cispoLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	dc = clamp(logprobs - old, -20, 20); rho = e^dc; n = -adv
//	c = clamp(rho, lo, hi); clipped = c is not rho
//	g = n*c; l = g*logprobs
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·cispoLossAVX2(SB), NOSPLIT, $8-80
	BEGIN
	VBROADCASTSS  lossConsts_lo(CONSTS), LO // lo
	VBROADCASTSS  lossConsts_hi(CONSTS), HI // hi

cispo:
	CISPO8(0, 0, LOSS0, RATIO0)          // tokens 0 to 7
	CISPO8(32, 8, LOSS1, RATIO1)         // tokens 8 to 15
	NEXT(cispo_next)

cispo_next:
	DECQ          LEFT
	JNE           cispo
	END
	RET

#define DC0 Y1      // of lanes 0 to 7
#define RHO0 Y5
#define E0 Y10      // 2^y
#define DC1 Y8      // of lanes 8 to 15, where MIN_D was
#define RHO1 Y9     // where MAX_D was
#define E1 Y11
#define SMALL Y0    // where y < minY
#define RATE Y2     // of the token's sign
#define Y Y2        // (rho-1) * rate, then clamped
#define LIMIT Y3    // of y
#define HEIGHT Y3   // of the token's sign
#define RAISED Y4   // rho - 1
#define NEG_S Y4    // less the sigmoid without its height
#define NEG_ONE Y6

// A token's work is one long chain here. Both halves of a chunk go through each part
// before the next part, so that their chains run abreast.

// SAPO_POWER8 sets e to 2^y, or 0 where y < minY.
#define SAPO_POWER8(off, rho, e) \
	VXORPS        SMALL, SMALL, SMALL; \                    // 0, to compare with
	VCMPPS        GREATER, off(ADV_PTR), SMALL, NEGATIVE; \ // a negative advantage
	SELECT(lossConsts_rate, NEGATIVE, RATE); \              // rate[j]
	VSUBPS        one<>(SB), rho, RAISED; \                 // rho - 1
	VMULPS        RAISED, RATE, Y; \                        // y = (rho - 1) * rate[j]
	VMOVUPS       minY<>(SB), LIMIT; \
	VCMPPS        LESS, LIMIT, Y, SMALL; \                  // y < minY
	VMAXPS        Y, LIMIT, Y; \                            // not below minY
	VMOVUPS       maxY<>(SB), LIMIT; \
	VMINPS        Y, LIMIT, Y; \                            // clamp(y)
	EXP2_AVX2(Y, M, F, e); \                                // 2^clamp(y)
	VANDNPS       e, SMALL, e                               // e

// SAPO_LOSS8 makes the loss and its derivative. n is not made: -s takes its sign.
#define SAPO_LOSS8(off, dc, rho, e) \
	VADDPS        one<>(SB), e, NEG_S; \                // 1 + e
	VMOVUPS       negOne<>(SB), NEG_ONE; \
	VDIVPS        NEG_S, NEG_ONE, NEG_S; \              // -s = -1 / (1 + e)
	VMOVUPS       negFour<>(SB), G; \
	VMULPS        off(ADV_PTR), G, G; \                 // 4*n
	VMULPS        NEG_S, G, G; \                        // -4*n*s
	VMULPS        NEG_S, e, e; \                        // -e*s
	VMULPS        e, G, G; \                            // 4*n*s*(e*s)
	VMULPS        rho, G, G; \                          // 4*n*s*(e*s)*rho
	VMOVUPS       off(NEW_PTR), D; \                    // logprobs
	VSUBPS        off(OLD_PTR), D, D; \                 // d
	VCMPPS        DIFFERS, D, dc, FLAT; \               // the clamp moves d: no gradient
	VANDNPS       G, FLAT, G; \                         // g
	VXORPS        L, L, L; \                            // 0, to compare with
	VCMPPS        GREATER, off(ADV_PTR), L, NEGATIVE; \ // a negative advantage
	VMULPS        off(ADV_PTR), NEG_S, NEG_S; \         // n*s
	SELECT(lossConsts_height, NEGATIVE, HEIGHT); \      // height[j]
	VMULPS        NEG_S, HEIGHT, L                      // l = n*s*height[j]

// func sapoLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv; j = n > 0 ? 1 : 0
//	y = (rho - 1) * rate[j]; e = 2^clamp(y), or 0 where y < minY
//	s = 1 / (1 + e); l = n*s*height[j]
//	g = 4*n*s*(e*s)*rho, or 0 where dc is not d
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·sapoLossAVX2(SB), NOSPLIT, $8-80
	BEGIN

sapo:
	VMOVUPS       minLogRatio<>(SB), MIN_D // the limits of d
	VMOVUPS       maxLogRatio<>(SB), MAX_D
	READ8(0, DC0)                          // tokens 0 to 7
	RATIOS8(DC0, RHO0)
	READ8(32, DC1)                         // tokens 8 to 15
	RATIOS8(DC1, RHO1)
	SAPO_POWER8(0, RHO0, E0)
	SAPO_POWER8(32, RHO1, E1)
	SAPO_LOSS8(0, DC0, RHO0, E0)
	WRITE8(0, 0, DC0, LOSS0, RATIO0)
	SAPO_LOSS8(32, DC1, RHO1, E1)
	WRITE8(32, 8, DC1, LOSS1, RATIO1)
	NEXT(sapo_next)

sapo_next:
	DECQ          LEFT
	JNE           sapo
	END
	RET

#define P_OLD Y0
#define P_NEW Y7    // then less p_old
#define POSITIVE Y2 // where n < 0: a positive advantage
#define BOUND Y3    // of the token's sign
#define FLIP Y4     // the sign bit where the advantage is not positive
#define MINY Y10
#define MAXY Y11

// PROBABILITY8 sets p to e^x, kept between 2^minY and 2^maxY.
#define PROBABILITY8(x, p) \
	VMOVUPS       log2E32<>(SB), POWER; \
	VMULPS        x, POWER, POWER; \ // log2(p) = x * log2(e)
	CLAMP(POWER, MINY, MAXY); \
	EXP2_AVX2(POWER, M, F, p)

// DPPO8 is the like of SEQUENCE8. lo and hi are next to each other: a pair.
#define DPPO8(off, role, loss, ratio) \
	READ8(off, DC); \
	NEGATE8(off); \
	RATIOS8(DC, RHO); \
	PROBABILITY8(off(NEW_PTR), P_NEW); \
	PROBABILITY8(off(OLD_PTR), P_OLD); \
	VSUBPS        P_OLD, P_NEW, P_NEW; \            // moved
	VXORPS        POSITIVE, POSITIVE, POSITIVE; \   // 0, to compare with
	VCMPPS        LESS, POSITIVE, NEG, POSITIVE; \  // n < 0: a positive advantage
	SELECT(lossConsts_lo, POSITIVE, BOUND); \       // hi there, else lo
	VANDNPS       signBit<>(SB), POSITIVE, FLIP; \
	VXORPS        FLIP, P_NEW, P_NEW; \             // moved there, else -moved
	VCMPPS        GREATER, BOUND, P_NEW, CLIPPED; \ // above the limit
	VBROADCASTSS  lossConsts_cap(CONSTS), C; \      // cap
	VMINPS        RHO, C, C; \                      // min(rho, cap)
	VANDNPS       C, CLIPPED, C; \                  // c
	VMULPS        C, NEG, G; \                      // g = n*c
	VMULPS        off(NEW_PTR), G, L; \             // l = g*logprobs
	WRITE8(off, role, DC, loss, ratio); \
	COUNT_CLIPPED

// func dppoLossAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *lossConsts, sums *surrogateSums)
//
//	dc = clamp(logprobs - old, -20, 20); rho = e^dc; n = -adv
//	moved = 2^clamp(logprobs*log2(e)) - 2^clamp(old*log2(e))
//	clipped = n < 0 ? moved > hi : -moved > lo
//	c = clipped ? 0 : min(rho, cap)
//	g = n*c; l = g*logprobs
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·dppoLossAVX2(SB), NOSPLIT, $8-80
	BEGIN
	VMOVUPS       minY<>(SB), MINY       // the limits of a probability's logarithm
	VMOVUPS       maxY<>(SB), MAXY

dppo:
	DPPO8(0, 0, LOSS0, RATIO0)           // tokens 0 to 7
	DPPO8(32, 8, LOSS1, RATIO1)          // tokens 8 to 15
	NEXT(dppo_next)

dppo_next:
	DECQ          LEFT
	JNE           dppo
	END
	RET
