//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The kernels on tokens, spans and groups with AVX-512 (F, VL, DQ, BW). Each is the loop
// of its twin in kernels_portable.go. All but those on spans and groups take whole chunks
// of 16 elements; a chunk is one vector.

// The numbers of 16 lanes, as bytes.
DATA lanes<>+0(SB)/8, $0x0706050403020100; DATA lanes<>+8(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL lanes<>(SB), RODATA|NOPTR, $16

// The first element of each quarter of a register.
DATA quarters<>+0(SB)/8, $0x0000000400000000; DATA quarters<>+8(SB)/8, $0x0000000c00000008
GLOBL quarters<>(SB), RODATA|NOPTR, $16

#define DST_PTR DI
#define X_PTR SI
#define ROLE_PTR DX
#define LEFT CX   // chunks left
#define CONSTS BX // before the loop
#define SUMS BX   // after that
#define BITS AX   // of a mask, then their number

#define COUNT R8    // of the tokens whose role is in roles
#define ROLE_BIT Z0 // 1 << role
#define D0 Z0       // x - shift, then its square, lanes 0 to 7
#define D1 Z1       // lanes 8 to 15
#define SUM0 Z4
#define SUM1 Z5
#define SQUARES0 Z6
#define SQUARES1 Z7
#define ROLES Z16
#define SHIFT Z17
#define INT_ONE Z18
#define TAKEN0 K1   // tokens whose role is in roles: all 16 lanes
#define TAKEN1 K2   // lanes 8 to 15 from bit 0 on

// func maskedMomentsAVX512(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums)
//
//	for each chunk, where 1<<role is in roles {
//		d = float64(x) - shift
//		m.sum, m.squares, m.count = m.sum+d, m.squares+d*d, m.count+1
//	}
TEXT ·maskedMomentsAVX512(SB), NOSPLIT, $0-48
	MOVQ          x+0(FP), X_PTR
	MOVQ          role+8(FP), ROLE_PTR
	MOVQ          chunks+16(FP), LEFT
	VPBROADCASTD  roles+24(FP), ROLES                    // the set of roles, for every token
	VBROADCASTSD  shift+32(FP), SHIFT                    // shift, for every token
	VPBROADCASTD  intOne<>(SB), INT_ONE                  // shifted by a role: 1<<role
	MOVQ          m+40(FP), SUMS
	VMOVUPD       (momentSums_sum+0)(SUMS), SUM0
	VMOVUPD       (momentSums_sum+64)(SUMS), SUM1
	VMOVUPD       (momentSums_squares+0)(SUMS), SQUARES0
	VMOVUPD       (momentSums_squares+64)(SUMS), SQUARES1
	MOVQ          momentSums_count(SUMS), COUNT

moments:
	VPMOVZXBD     (ROLE_PTR), ROLE_BIT                   // the roles of 16 tokens
	VPSLLVD       ROLE_BIT, INT_ONE, ROLE_BIT            // 1<<role, 0 for a role above 31
	VPTESTMD      ROLES, ROLE_BIT, TAKEN0                // whether 1<<role is in roles
	KSHIFTRW      $(const_lanes/2), TAKEN0, TAKEN1       // the same, for lanes 8 to 15
	KMOVW         TAKEN0, BITS                           // a bit for each such token
	POPCNTL       BITS, BITS                             // their number
	ADDQ          BITS, COUNT                            // m.count += that
	VCVTPS2PD     (X_PTR), D0                            // float64(x)
	VCVTPS2PD     32(X_PTR), D1
	VSUBPD        SHIFT, D0, D0                          // d = float64(x) - shift
	VSUBPD        SHIFT, D1, D1
	VADDPD        D0, SUM0, TAKEN0, SUM0                 // m.sum += d, where the role is in roles
	VADDPD        D1, SUM1, TAKEN1, SUM1
	VMULPD        D0, D0, D0                             // d*d, rounded: the twin does not fuse here
	VMULPD        D1, D1, D1
	VADDPD        D0, SQUARES0, TAKEN0, SQUARES0         // m.squares += d*d, there
	VADDPD        D1, SQUARES1, TAKEN1, SQUARES1
	ADDQ          $CHUNK4, X_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	DECQ          LEFT
	JNE           moments
	VMOVUPD       SUM0, (momentSums_sum+0)(SUMS)
	VMOVUPD       SUM1, (momentSums_sum+64)(SUMS)
	VMOVUPD       SQUARES0, (momentSums_squares+0)(SUMS)
	VMOVUPD       SQUARES1, (momentSums_squares+64)(SUMS)
	MOVQ          COUNT, momentSums_count(SUMS)
	VZEROUPPER
	RET

#undef COUNT
#undef ROLE_BIT
#undef D0
#undef D1
#undef SUM0
#undef SUM1
#undef SQUARES0
#undef SQUARES1
#undef ROLES
#undef SHIFT
#undef INT_ONE
#undef TAKEN0
#undef TAKEN1

#define MINY Z18
#define MAXY Z19

#define ROLE Z0
#define D Z0 // signal less the mean, then d*k clamped
#define F Z1 // of exp2
#define P Z2 // 2^(d*k), then beta / (1 + 2^(d*k))
#define WEIGHT Z5
#define MUHI Z16
#define MULO Z17
#define K Z26
#define ALPHA Z27
#define BETA Z28
#define REASONING Z29
#define ACTION Z30
#define IS_REASONING K1
#define IS_ACTION K2

// func actFocusWeightsAVX512(dst, signal *float32, role *Role, chunks int, q *actFocusConsts)
//
//	for each chunk {
//		d = (signal - muHi) - muLo
//		dst = action: 1 + beta / (1 + 2^clamp(d*k)); reasoning: alpha; masked: 0
//	}
TEXT ·actFocusWeightsAVX512(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          signal+8(FP), X_PTR
	MOVQ          role+16(FP), ROLE_PTR
	MOVQ          chunks+24(FP), LEFT
	MOVQ          q+32(FP), CONSTS
	VBROADCASTSS  minY<>(SB), MINY                    // the limits of d*k
	VBROADCASTSS  maxY<>(SB), MAXY
	BROADCAST_EXP2                                    // the coefficients of 2^f
	VBROADCASTSS  actFocusConsts_muHi(CONSTS), MUHI   // muHi
	VBROADCASTSS  actFocusConsts_muLo(CONSTS), MULO   // muLo
	VBROADCASTSS  actFocusConsts_k(CONSTS), K
	VBROADCASTSS  actFocusConsts_alpha(CONSTS), ALPHA
	VBROADCASTSS  actFocusConsts_beta(CONSTS), BETA
	VPBROADCASTD  reasoning<>(SB), REASONING          // these roles, for every token
	VPBROADCASTD  action<>(SB), ACTION

weights:
	VPMOVZXBD     (ROLE_PTR), ROLE              // the roles of 16 tokens
	VPCMPEQD      REASONING, ROLE, IS_REASONING // where it is reasoning
	VPCMPEQD      ACTION, ROLE, IS_ACTION       // and where it is action
	VMOVAPS.Z     ALPHA, IS_REASONING, WEIGHT   // alpha for reasoning, else 0
	KTESTW        IS_ACTION, IS_ACTION          // is any token an action?
	JEQ           weights_store                 // most tokens need no exponential
	VMOVUPS       (X_PTR), D
	VSUBPS        MUHI, D, D                    // signal - muHi
	VSUBPS        MULO, D, D                    // d = (signal - muHi) - muLo
	VMULPS        K, D, D                       // d*k
	CLAMP(D, MINY, MAXY)                        // clamp(d*k)
	EXP2_AVX512(D, F, P)                        // 2^clamp(d*k)
	VADDPS        ONE, P, P                     // 1 + 2^clamp(d*k)
	VDIVPS        P, BETA, P                    // beta / (1 + 2^clamp(d*k))
	VADDPS        ONE, P, IS_ACTION, WEIGHT     // 1 + that, for action

weights_store:
	VMOVUPS       WEIGHT, (DST_PTR)
	ADDQ          $CHUNK4, X_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	ADDQ          $CHUNK4, DST_PTR
	DECQ          LEFT
	JNE           weights
	VZEROUPPER
	RET

#undef ROLE
#undef WEIGHT
#undef MUHI
#undef MULO
#undef ALPHA
#undef BETA
#undef REASONING
#undef ACTION
#undef IS_REASONING
#undef IS_ACTION

#define GROUP_LEFT R8 // chunks left in the group

// FLUSH adds the 16 float32 of group, whose lower half is low, to the 16 float64
// of total0 and total1, and empties group.
#define FLUSH(group, low, total0, total1) \
	VCVTPS2PD     low, WHOLE0; \                   // lanes 0 to 7 as float64
	VEXTRACTF32X8 UPPER_HALF, group, WHOLE1_LOW; \ // the upper half of group
	VCVTPS2PD     WHOLE1_LOW, WHOLE1; \            // lanes 8 to 15 as float64
	VADDPD        WHOLE0, total0, total0; \        // total += group
	VADDPD        WHOLE1, total1, total1; \
	VPXORD        group, group, group

#define V Z0      // x, then (x - lo) * k clamped
#define TOTAL0 Z4 // the sums of the groups before, lanes 0 to 7
#define TOTAL1 Z5 // lanes 8 to 15
#define GROUP Z6
#define GROUP_LOW Y6
#define LO Z16

// func expScaleAVX512(dst, x *float32, chunks int, lo, k float32, sum *laneSum)
//
//	group = 0                              // 16 lanes: a piece begins with a group
//	for each chunk {
//		dst = 2^clamp((x - lo) * k)
//		group += dst
//		after 8 chunks { sum.total += group; group = 0 }
//	}
//	sum.group = group
TEXT ·expScaleAVX512(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          x+8(FP), X_PTR
	MOVQ          chunks+16(FP), LEFT
	VBROADCASTSS  lo+24(FP), LO
	VBROADCASTSS  k+28(FP), K
	MOVQ          sum+32(FP), SUMS
	VBROADCASTSS  minY<>(SB), MINY                // the limits of (x - lo) * k
	VBROADCASTSS  maxY<>(SB), MAXY
	BROADCAST_EXP2                                // the coefficients of 2^f
	VMOVUPD       (laneSum_total+0)(SUMS), TOTAL0
	VMOVUPD       (laneSum_total+64)(SUMS), TOTAL1
	VPXORD        GROUP, GROUP, GROUP
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT       // a piece begins with a group

exp:
	VMOVUPS       (X_PTR), V
	VSUBPS        LO, V, V                  // x - lo
	VMULPS        K, V, V                   // (x - lo) * k
	CLAMP(V, MINY, MAXY)                    // clamp((x - lo) * k)
	EXP2_AVX512(V, F, P)                    // 2^clamp((x - lo) * k)
	VMOVUPS       P, (DST_PTR)
	VADDPS        P, GROUP, GROUP           // group += dst
	ADDQ          $CHUNK4, X_PTR
	ADDQ          $CHUNK4, DST_PTR
	DECQ          GROUP_LEFT
	JNE           exp_next                  // the group is not full
	FLUSH(GROUP, GROUP_LOW, TOTAL0, TOTAL1) // sum.total += group; group = 0
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT // a new group

exp_next:
	DECQ          LEFT
	JNE           exp
	VMOVUPD       TOTAL0, (laneSum_total+0)(SUMS)
	VMOVUPD       TOTAL1, (laneSum_total+64)(SUMS)
	VMOVUPS       GROUP, laneSum_group(SUMS)
	VZEROUPPER
	RET

#undef MINY
#undef MAXY
#undef P
#undef K
#undef GROUP_LEFT
#undef GROUP_LOW

#define FACTOR Z16

// func scaleAVX512(dst *float32, chunks int, f float32)
//
//	dst = f * dst
TEXT ·scaleAVX512(SB), NOSPLIT, $0-20
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          chunks+8(FP), LEFT
	VBROADCASTSS  f+16(FP), FACTOR

scale:
	VMULPS        (DST_PTR), FACTOR, V
	VMOVUPS       V, (DST_PTR)
	ADDQ          $CHUNK4, DST_PTR
	DECQ          LEFT
	JNE           scale
	VZEROUPPER
	RET

#undef FACTOR

#define A_PTR SI
#define B_PTR DX

// func multiplyAVX512(dst, a, b *float32, chunks int)
//
//	dst = a * b
TEXT ·multiplyAVX512(SB), NOSPLIT, $0-32
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          a+8(FP), A_PTR
	MOVQ          b+16(FP), B_PTR
	MOVQ          chunks+24(FP), LEFT

multiply:
	VMOVUPS       (A_PTR), V
	VMULPS        (B_PTR), V, V          // a * b
	VMOVUPS       V, (DST_PTR)
	ADDQ          $CHUNK4, A_PTR
	ADDQ          $CHUNK4, B_PTR
	ADDQ          $CHUNK4, DST_PTR
	DECQ          LEFT
	JNE           multiply
	VZEROUPPER
	RET

#undef DST_PTR
#undef V
#undef A_PTR
#undef B_PTR

#define GRAD_PTR DI
#define NEW_PTR SI // logprobs
#define OLD_PTR R8
#define ADV_PTR R9
#define WEIGHT_PTR R10
#define STRIDE R11
#define TOKENS R12
#define CLIPPED_COUNT R13

// D is the log-ratio d, and F is f of exp2.
#define ROLE_LOW X0     // the roles, as bytes
#define POWER Z2        // log2 of rho
#define DC0 Z9          // of the first chunk of a pair
#define RHO0 Z3
#define DC1 Z31         // of the second
#define RHO1 Z8
#define NEG Z4          // n
#define L1 Z5
#define G Z5            // what is left of l1 in the gradient
#define L2 Z6
#define L Z7
#define L3 Z6
#define LOSS Z10        // the groups
#define RATIO Z11
#define LOSS_LOW Y10    // their lower halves
#define RATIO_LOW Y11
#define LOSS_TOTAL0 Z12 // the sums of the groups before, lanes 0 to 7
#define LOSS_TOTAL1 Z13 // lanes 8 to 15
#define RATIO_TOTAL0 Z14
#define RATIO_TOTAL1 Z15
#define HI Z17
#define MIN_D Z18
#define MAX_D Z19
#define DUAL Z26
#define GRAD_SCALE Z27
#define LOG2E Z28
#define SIGN Z29
#define ZERO Z30
#define RESPONSE0 K1    // tokens that are not masked
#define FLAT0 K2        // where the gradient is 0
#define RESPONSE1 K5
#define FLAT1 K6
#define CLIPPED K3      // where l2 > l1
#define DUAL_CLIPPED K4 // where l3 is the loss

// SURROGATE_RATIO sets rho to e^dc of the chunk at off bytes of the float arrays and roff
// bytes of the roles.
#define SURROGATE_RATIO(off, roff, dc, rho, response, flat) \
	VMOVDQU       roff(ROLE_PTR), ROLE_LOW; \     // the roles of 16 tokens
	VPTESTMB      ROLE_LOW, ROLE_LOW, response; \ // role is not masked, which is 0
	VMOVUPS       off(NEW_PTR), D; \              // logprobs
	VSUBPS        off(OLD_PTR), D, D; \           // d = logprobs - old
	VMAXPS        D, MIN_D, dc; \                 // not below -20
	VMINPS        dc, MAX_D, dc; \                // dc, not above 20
	VCMPPS        DIFFERS, D, dc, flat; \         // the clamp moves d: no gradient
	VMULPS        LOG2E, dc, POWER; \             // log2(rho) = dc * log2(e)
	EXP2_AVX512(POWER, F, rho)                    // rho = e^dc

// SURROGATE_LOSS does the rest for the chunk that is next.
#define SURROGATE_LOSS(dc, rho, response, flat) \
	VXORPS        (ADV_PTR), SIGN, NEG; \                       // n = -adv
	VMULPS        rho, NEG, L1; \                               // l1 = n*rho
	CLAMP(rho, LO, HI); \                                       // clamp(rho, lo, hi)
	VMULPS        rho, NEG, L2; \                               // l2 = n*clamp(rho, lo, hi)
	VCMPPS        GREATER, L1, L2, response, CLIPPED; \         // l2 > l1, counted where not masked
	KORW          CLIPPED, flat, flat; \                        // a clipped ratio has no gradient
	VMAXPS        L1, L2, L; \                                  // l, which is l1 if one is NaN
	VMULPS        DUAL, NEG, L3; \                              // l3 = n*dual
	VCMPPS        GREATER, ZERO, NEG, DUAL_CLIPPED; \           // n > 0: a negative advantage
	VCMPPS        GREATER, L3, L, DUAL_CLIPPED, DUAL_CLIPPED; \ // and l > l3
	VMOVAPS       L3, DUAL_CLIPPED, L; \                        // the dual clip
	KORW          DUAL_CLIPPED, flat, flat; \                   // has no gradient
	VMOVAPS       ZERO, flat, G; \                              // g = l1, or 0
	VMULPS        (WEIGHT_PTR), L, L; \                         // w*l
	VMULPS        (WEIGHT_PTR), G, G; \                         // w*g
	VMULPS.Z      GRAD_SCALE, G, response, G; \                 // w*g*scale, 0 for masked tokens
	VMOVUPS       G, (GRAD_PTR); \                              // grad
	KMOVW         response, BITS; \                             // a bit for each token that is not masked
	POPCNTL       BITS, BITS; \                                 // their number
	ADDQ          BITS, TOKENS; \                               // tokens += that
	KMOVW         CLIPPED, BITS; \                              // a bit for each clipped token
	POPCNTL       BITS, BITS; \                                 // their number
	ADDQ          BITS, CLIPPED_COUNT; \                        // clipped += that
	VADDPS        L, LOSS, response, LOSS; \                    // loss += w*l, where not masked
	VADDPS        dc, RATIO, response, RATIO; \                 // logRatio += dc, there
	ADDQ          $CHUNK4, NEW_PTR; \
	ADDQ          $CHUNK4, OLD_PTR; \
	ADDQ          $CHUNK4, ADV_PTR; \
	ADDQ          STRIDE, WEIGHT_PTR; \                         // stride is 0 for sixteen ones
	ADDQ          $CHUNK1, ROLE_PTR; \
	ADDQ          $CHUNK4, GRAD_PTR

// func surrogateAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *surrogateConsts, sums *surrogateSums)
//
// weights advances by stride bytes a chunk: 0 for sixteen ones.
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv
//	l1, l2, l3 = n*rho, n*clamp(rho, lo, hi), n*dual
//	l = l2 > l1 ? l2 : l1; n > 0 && l > l3: l = l3
//	g = l1, or 0 where l is not l1 or dc is not d
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
//
// The sums go to sums by groups of 8 chunks, as in expScaleAVX512.
// Two chunks go through each part before the next part, so that their chains run abreast.
TEXT ·surrogateAVX512(SB), NOSPLIT, $8-80
	MOVQ          grad+0(FP), GRAD_PTR
	MOVQ          logprobs+8(FP), NEW_PTR
	MOVQ          old+16(FP), OLD_PTR
	MOVQ          adv+24(FP), ADV_PTR
	MOVQ          weights+32(FP), WEIGHT_PTR
	MOVQ          stride+40(FP), STRIDE
	MOVQ          role+48(FP), ROLE_PTR
	MOVQ          chunks+56(FP), LEFT
	MOVQ          q+64(FP), CONSTS
	BROADCAST_EXP2                                                           // the coefficients of 2^f
	VBROADCASTSS  minLogRatio<>(SB), MIN_D                                   // the limits of d
	VBROADCASTSS  maxLogRatio<>(SB), MAX_D
	VBROADCASTSS  surrogateConsts_lo(CONSTS), LO
	VBROADCASTSS  surrogateConsts_hi(CONSTS), HI
	VBROADCASTSS  surrogateConsts_dual(CONSTS), DUAL                         // dual
	VBROADCASTSS  surrogateConsts_scale(CONSTS), GRAD_SCALE
	VBROADCASTSS  log2E32<>(SB), LOG2E                                       // e^dc = 2^(dc * log2(e))
	VPBROADCASTD  signBit<>(SB), SIGN                                        // to change the sign of adv
	VPXORD        ZERO, ZERO, ZERO
	MOVQ          sums+72(FP), SUMS
	VMOVUPD       (surrogateSums_loss+laneSum_total)(SUMS), LOSS_TOTAL0      // the totals of loss
	VMOVUPD       (surrogateSums_loss+laneSum_total+64)(SUMS), LOSS_TOTAL1
	VMOVUPD       (surrogateSums_logRatio+laneSum_total)(SUMS), RATIO_TOTAL0 // the totals of logRatio
	VMOVUPD       (surrogateSums_logRatio+laneSum_total+64)(SUMS), RATIO_TOTAL1
	VPXORD        LOSS, LOSS, LOSS                                           // their groups
	VPXORD        RATIO, RATIO, RATIO
	MOVQ          surrogateSums_tokens(SUMS), TOKENS
	MOVQ          surrogateSums_clipped(SUMS), CLIPPED_COUNT
	MOVQ          $GROUP_CHUNKS, left-8(SP)                                  // chunks left in the group

surrogate:
	SUBQ          $2, LEFT
	JLT           surrogate_last
	SURROGATE_RATIO(0, 0, DC0, RHO0, RESPONSE0, FLAT0)
	SURROGATE_RATIO(CHUNK4, CHUNK1, DC1, RHO1, RESPONSE1, FLAT1)
	SURROGATE_LOSS(DC0, RHO0, RESPONSE0, FLAT0)
	SURROGATE_LOSS(DC1, RHO1, RESPONSE1, FLAT1)
	SUBQ          $2, left-8(SP)
	JNE           surrogate                         // the group is not full
	FLUSH(LOSS, LOSS_LOW, LOSS_TOTAL0, LOSS_TOTAL1) // the totals += the groups
	FLUSH(RATIO, RATIO_LOW, RATIO_TOTAL0, RATIO_TOTAL1)
	MOVQ          $GROUP_CHUNKS, left-8(SP)         // a new group
	JMP           surrogate

surrogate_last:
	INCQ          LEFT                   // -1 if a chunk is left, else -2
	JNE           surrogate_end
	SURROGATE_RATIO(0, 0, DC0, RHO0, RESPONSE0, FLAT0)
	SURROGATE_LOSS(DC0, RHO0, RESPONSE0, FLAT0)

surrogate_end:
	VMOVUPD       LOSS_TOTAL0, (surrogateSums_loss+laneSum_total)(SUMS)      // sums.loss
	VMOVUPD       LOSS_TOTAL1, (surrogateSums_loss+laneSum_total+64)(SUMS)
	VMOVUPS       LOSS, (surrogateSums_loss+laneSum_group)(SUMS)
	VMOVUPD       RATIO_TOTAL0, (surrogateSums_logRatio+laneSum_total)(SUMS) // sums.logRatio
	VMOVUPD       RATIO_TOTAL1, (surrogateSums_logRatio+laneSum_total+64)(SUMS)
	VMOVUPS       RATIO, (surrogateSums_logRatio+laneSum_group)(SUMS)
	MOVQ          TOKENS, surrogateSums_tokens(SUMS)
	MOVQ          CLIPPED_COUNT, surrogateSums_clipped(SUMS)
	VZEROUPPER
	RET

#undef ROLE_PTR
#undef LEFT
#undef CONSTS
#undef SUMS
#undef BITS
#undef D
#undef F
#undef FLUSH
#undef LO
#undef GRAD_PTR
#undef NEW_PTR
#undef OLD_PTR
#undef ADV_PTR
#undef WEIGHT_PTR
#undef STRIDE
#undef TOKENS
#undef CLIPPED_COUNT
#undef ROLE_LOW
#undef POWER
#undef DC0
#undef RHO0
#undef DC1
#undef RHO1
#undef NEG
#undef L1
#undef G
#undef L2
#undef L
#undef L3
#undef LOSS
#undef RATIO
#undef LOSS_LOW
#undef RATIO_LOW
#undef LOSS_TOTAL0
#undef LOSS_TOTAL1
#undef RATIO_TOTAL0
#undef RATIO_TOTAL1
#undef HI
#undef MIN_D
#undef MAX_D
#undef DUAL
#undef GRAD_SCALE
#undef LOG2E
#undef SIGN
#undef RESPONSE0
#undef FLAT0
#undef RESPONSE1
#undef FLAT1
#undef CLIPPED
#undef DUAL_CLIPPED
#undef SURROGATE_RATIO
#undef SURROGATE_LOSS

#define SUM_PTR DI
#define X_START R8     // of x, where offsets count from
#define OFFSETS R9
#define SPANS R10      // left
#define SPAN_LEFT R11  // elements left in the span
#define BLOCK_LEFT R12 // elements left in the block
#define START AX       // of the span
#define SHORT CX       // elements in the last, shorter chunk
#define MASK AX

// GROUP is the group's sums.
#define BLOCK Z7   // the block's sums
#define BLOCK_LOW Y7
#define PRESENT K1 // lanes of the last, shorter chunk
#define TOTAL0_LOW Y4
#define HALF Y0    // of the tree: 8 lanes, then 4
#define SUM X0     // 2 lanes, then 1
#define OTHER X1   // the lanes to add

// func spanSumsAVX512(sums *float64, x *float32, offsets *int32, n int)
//
//	for each span {
//		d = 0                              // 16 lanes of float64
//		for blocks of 1,024 {
//			b = 0                          // 16 lanes of float32
//			for groups of 128 { g = 0; g += x, a chunk at a time; b += g }
//			d += b
//		}
//		sums[s] = tree(d)
//	}
TEXT ·spanSumsAVX512(SB), NOSPLIT, $0-32
	MOVQ          sums+0(FP), SUM_PTR
	MOVQ          x+8(FP), X_START
	MOVQ          offsets+16(FP), OFFSETS
	MOVQ          n+24(FP), SPANS
	VPXORD        ZERO, ZERO, ZERO

span:
	MOVLQSX       0(OFFSETS), START         // where the span begins
	MOVLQSX       4(OFFSETS), SPAN_LEFT     // where it ends
	LEAQ          (X_START)(START*4), X_PTR // its first element
	SUBQ          START, SPAN_LEFT          // its length
	VPXORD        TOTAL0, TOTAL0, TOTAL0    // d = 0
	VPXORD        TOTAL1, TOTAL1, TOTAL1

span_block:
	MOVQ          $const_blockSize, BLOCK_LEFT // a block has no more than this
	CMPQ          SPAN_LEFT, BLOCK_LEFT
	CMOVQLT       SPAN_LEFT, BLOCK_LEFT        // BLOCK_LEFT = min(BLOCK_LEFT, SPAN_LEFT)
	SUBQ          BLOCK_LEFT, SPAN_LEFT        // what the span has after this block
	VPXORD        BLOCK, BLOCK, BLOCK          // b = 0

span_group:
	CMPQ          BLOCK_LEFT, $const_groupSize    // less than a group?
	JLT           span_rest
	SUBQ          $const_groupSize, BLOCK_LEFT    // what the block has after this group
	VADDPS        (X_PTR), ZERO, GROUP            // g = 0 + x, as in its twin: -0 becomes 0
	VADDPS        (1*CHUNK4)(X_PTR), GROUP, GROUP // g += x, for the other 7 chunks
	VADDPS        (2*CHUNK4)(X_PTR), GROUP, GROUP
	VADDPS        (3*CHUNK4)(X_PTR), GROUP, GROUP
	VADDPS        (4*CHUNK4)(X_PTR), GROUP, GROUP
	VADDPS        (5*CHUNK4)(X_PTR), GROUP, GROUP
	VADDPS        (6*CHUNK4)(X_PTR), GROUP, GROUP
	VADDPS        (7*CHUNK4)(X_PTR), GROUP, GROUP
	ADDQ          $(GROUP_CHUNKS*CHUNK4), X_PTR
	VADDPS        GROUP, BLOCK, BLOCK             // b += g
	JMP           span_group

span_rest:
	TESTQ         BLOCK_LEFT, BLOCK_LEFT
	JEQ           span_flush             // whole groups only
	VPXORD        GROUP, GROUP, GROUP

span_chunk:
	SUBQ          $const_lanes, BLOCK_LEFT // below 0: less than a chunk
	JLT           span_tail
	VADDPS        (X_PTR), GROUP, GROUP    // g += x
	ADDQ          $CHUNK4, X_PTR
	JMP           span_chunk

span_tail:
	ADDQ          $const_lanes, BLOCK_LEFT       // 0 to 15 elements
	MOVQ          BLOCK_LEFT, SHORT
	MOVL          $1, MASK                       // 1 for the lanes that have an element
	SHLL          SHORT, MASK
	DECL          MASK
	KMOVW         MASK, PRESENT                  // as a mask
	VADDPS        (X_PTR), GROUP, PRESENT, GROUP // g += x there; reads no other lanes
	VADDPS        GROUP, BLOCK, BLOCK            // b += g

span_flush:
	VCVTPS2PD     BLOCK_LOW, WHOLE0            // b as float64, lanes 0 to 7
	VEXTRACTF32X8 UPPER_HALF, BLOCK, BLOCK_LOW // the upper half of b
	VCVTPS2PD     BLOCK_LOW, WHOLE1            // lanes 8 to 15
	VADDPD        WHOLE0, TOTAL0, TOTAL0       // d += b
	VADDPD        WHOLE1, TOTAL1, TOTAL1
	TESTQ         SPAN_LEFT, SPAN_LEFT
	JNE           span_block                   // next block of the span
	VADDPD        TOTAL1, TOTAL0, TOTAL0       // lanes j and j+8
	VEXTRACTF64X4 UPPER_HALF, TOTAL0, HALF     // lanes 4 to 7
	VADDPD        HALF, TOTAL0_LOW, HALF       // j+4
	VEXTRACTF128  UPPER_HALF, HALF, OTHER      // lanes 2 and 3
	VADDPD        OTHER, SUM, SUM              // j+2
	VUNPCKHPD     SUM, SUM, OTHER              // lane 1
	VADDSD        OTHER, SUM, SUM              // j+1
	VMOVSD        SUM, (SUM_PTR)               // sums[s]
	ADDQ          $8, SUM_PTR
	ADDQ          $4, OFFSETS
	DECQ          SPANS
	JNE           span
	VZEROUPPER
	RET

#undef X_PTR
#undef TOTAL0
#undef TOTAL1
#undef GROUP
#undef ZERO
#undef SUM_PTR
#undef X_START
#undef OFFSETS
#undef SPANS
#undef SPAN_LEFT
#undef BLOCK_LEFT
#undef START
#undef SHORT
#undef MASK
#undef BLOCK
#undef BLOCK_LOW
#undef PRESENT
#undef TOTAL0_LOW
#undef HALF
#undef SUM
#undef OTHER

// Most groups are short, so four of them are worked on at a time where each fits into a
// register.

// Predicates of VPCMPD and VPCMPUD: VPCMPD BELOW, b, a, dst is a < b.
#define BELOW $1
#define UNEQUAL $4
#define NOT_BELOW $5

// Quarters of two registers, of VSHUFF32X4: two of the first, then two of the second.
#define LOWER_HALVES $0x44  // 0 and 1
#define UPPER_HALVES $0xee  // 2 and 3
#define EVEN_QUARTERS $0x88 // 0 and 2
#define ODD_QUARTERS $0xdd  // 1 and 3

#define LO_PTR DI
#define HI_PTR DX
#define X_PTR SI
#define X_START R8 // of x, where offsets count from
#define OFFSETS R9
#define GROUPS R10 // left
#define LEFT CX    // elements left in the group
#define START AX   // of the group
#define MASK AX

// Four groups.
#define FIRST Z0         // the elements of the groups, one or two in a register
#define SECOND Z1
#define THIRD Z2
#define FOURTH Z3
#define INDEX Z4         // where elements are in x
#define LENGTHS X4       // of the four groups
#define LOWER01 Z4       // the lower halves of the first and the second group
#define UPPER01 Z5
#define LOWER23 Z6       // of the third and the fourth
#define UPPER23 Z7
#define LEASTS01 Z0      // 8 lanes of the first group, 8 of the second
#define LARGESTS01 Z1
#define LEASTS23 Z2
#define LARGESTS23 Z3
#define EVENS Z4         // lanes 0 to 3 of each group
#define ODDS Z5          // lanes 4 to 7
#define LARGEST_EVENS Z6 // the same, of the largest elements
#define LARGEST_ODDS Z7
#define LEASTS Z8        // a quarter for each group: 4 lanes, then 2, then 1
#define LARGESTS Z9
#define LEASTS_LOW X8
#define LARGESTS_LOW X9
#define OTHER_LEASTS Z4  // the lanes to reduce with
#define OTHER_LARGESTS Z5
#define LANES Z16        // 0 to 15
#define QUARTERS Z17
#define LENGTH_ONE X18
#define EIGHT X19
#define SIXTEEN X20
#define UNLIKE K1        // groups of another length
#define PRESENT K2       // lanes that have an element
#define NANS01 K3        // lanes with a NaN in the first or the second group
#define NANS23 K4

// One group.
#define X Z0
#define LEAST Z4
#define LARGEST Z5
#define LEAST_HALF Y4    // 8 lanes
#define LARGEST_HALF Y5
#define LEAST_LOW X4     // 4 lanes
#define LARGEST_LOW X5
#define OTHER_HALF_MIN Y2
#define OTHER_HALF_MAX Y3
#define MIN X0           // 4 lanes, then 2, then 1
#define MAX X1
#define OTHER_MIN X2     // the lanes to reduce with
#define OTHER_MAX X3
#define IS_NAN K3
#define NANS K4          // lanes that saw a NaN
#define ZERO_LOW X13
#define POSINF Z14
#define NEGINF Z15

// LOAD_GROUP sets v to the elements of group n, 1 to 16, and to the first of them in
// the lanes that have none.
#define LOAD_GROUP(n, v) \
	MOVLQSX       (4*n)(OFFSETS), START; \                   // where the group begins
	VPADDD.BCST   (4*n)(OFFSETS), LANES, INDEX; \            // where each lane's element is
	VPCMPUD.BCST  BELOW, (4*n+4)(OFFSETS), INDEX, PRESENT; \ // before the group's end?
	VBROADCASTSS  (X_START)(START*4), v; \                   // the first element
	VMOVUPS       (X_START)(START*4), PRESENT, v             // x; reads no other lanes

// func minMaxAVX512(lo, hi, x *float32, offsets *int32, n int)
//
//	for each group {
//		if it and the next three have 8 elements each, or 1 to 16, and none is NaN {
//			lo, hi = least(x)+0, largest(x)+0 of all four
//			continue with the group after them
//		}
//		mn, mx, bad = +Inf, -Inf, false    // 16 lanes
//		for 16 elements or what is left { mn, mx, bad = min(mn, x), max(mx, x), bad || x != x }
//		lo, hi = least(mn)+0, largest(mx)+0, or NaN if bad
//	}
TEXT ·minMaxAVX512(SB), NOSPLIT, $0-40
	MOVQ          lo+0(FP), LO_PTR
	MOVQ          hi+8(FP), HI_PTR
	MOVQ          x+16(FP), X_START
	MOVQ          offsets+24(FP), OFFSETS
	MOVQ          n+32(FP), GROUPS
	VBROADCASTSS  posInf<>(SB), POSINF     // where mn starts
	VBROADCASTSS  negInf<>(SB), NEGINF     // where mx starts
	VXORPS        ZERO_LOW, ZERO_LOW, ZERO_LOW
	VPBROADCASTD  intOne<>(SB), LENGTH_ONE // the least length of one of four groups
	MOVL          $(const_lanes/2), MASK
	VPBROADCASTD  MASK, EIGHT              // the usual length
	MOVL          $const_lanes, MASK
	VPBROADCASTD  MASK, SIXTEEN            // the largest
	VPMOVZXBD     lanes<>(SB), LANES
	VBROADCASTI32X4 quarters<>(SB), QUARTERS

minmax_four:
	CMPQ          GROUPS, $4
	JLT           minmax_group                     // fewer than four are left
	VMOVDQU       4(OFFSETS), LENGTHS              // where the four groups end
	VPSUBD        (OFFSETS), LENGTHS, LENGTHS      // less where they begin
	VPCMPD        UNEQUAL, EIGHT, LENGTHS, UNLIKE  // any whose length is not 8?
	KORTESTB      UNLIKE, UNLIKE
	JNE           minmax_short
	MOVLQSX       (OFFSETS), START                 // where the first begins
	LEAQ          (X_START)(START*4), X_PTR        // its first element
	VMOVUPS       (X_PTR), FIRST                   // two groups
	VMOVUPS       CHUNK4(X_PTR), SECOND            // the two after them
	VCMPPS        UNORDERED, FIRST, SECOND, NANS01 // a NaN?
	KORTESTW      NANS01, NANS01
	JNE           minmax_group                     // then one group at a time
	VSHUFF32X4    EVEN_QUARTERS, SECOND, FIRST, EVENS
	VSHUFF32X4    ODD_QUARTERS, SECOND, FIRST, ODDS
	VMINPS        ODDS, EVENS, LEASTS              // lanes j and j+4
	VMAXPS        ODDS, EVENS, LARGESTS

minmax_quarters:
	VPERMILPS     SWAP_PAIRS, LEASTS, OTHER_LEASTS      // lanes 2 and 3
	VPERMILPS     SWAP_PAIRS, LARGESTS, OTHER_LARGESTS
	VMINPS        OTHER_LEASTS, LEASTS, LEASTS          // j+2
	VMAXPS        OTHER_LARGESTS, LARGESTS, LARGESTS
	VPERMILPS     SWAP_NEIGHBOURS, LEASTS, OTHER_LEASTS // lane 1
	VPERMILPS     SWAP_NEIGHBOURS, LARGESTS, OTHER_LARGESTS
	VMINPS        OTHER_LEASTS, LEASTS, LEASTS          // j+1
	VMAXPS        OTHER_LARGESTS, LARGESTS, LARGESTS
	VPERMPS       LEASTS, QUARTERS, LEASTS              // the four groups side by side
	VPERMPS       LARGESTS, QUARTERS, LARGESTS
	VADDPS        ZERO_LOW, LEASTS_LOW, LEASTS_LOW      // +0 for -0
	VADDPS        ZERO_LOW, LARGESTS_LOW, LARGESTS_LOW
	VMOVUPS       LEASTS_LOW, (LO_PTR)
	VMOVUPS       LARGESTS_LOW, (HI_PTR)
	ADDQ          $16, LO_PTR                           // next four groups
	ADDQ          $16, HI_PTR
	ADDQ          $16, OFFSETS
	SUBQ          $4, GROUPS
	JNE           minmax_four
	VZEROUPPER
	RET

minmax_short:
	VPSUBD        LENGTH_ONE, LENGTHS, LENGTHS        // less 1: an empty group wraps around
	VPCMPUD       NOT_BELOW, SIXTEEN, LENGTHS, UNLIKE // any that is empty, or has more than 16?
	KORTESTB      UNLIKE, UNLIKE
	JNE           minmax_group                        // then one group at a time
	LOAD_GROUP(0, FIRST)
	LOAD_GROUP(1, SECOND)
	LOAD_GROUP(2, THIRD)
	LOAD_GROUP(3, FOURTH)
	VCMPPS        UNORDERED, FIRST, SECOND, NANS01    // a NaN?
	VCMPPS        UNORDERED, THIRD, FOURTH, NANS23
	KORTESTW      NANS01, NANS23
	JNE           minmax_group                        // then one group at a time
	VSHUFF32X4    LOWER_HALVES, SECOND, FIRST, LOWER01
	VSHUFF32X4    UPPER_HALVES, SECOND, FIRST, UPPER01
	VSHUFF32X4    LOWER_HALVES, FOURTH, THIRD, LOWER23
	VSHUFF32X4    UPPER_HALVES, FOURTH, THIRD, UPPER23
	VMINPS        UPPER01, LOWER01, LEASTS01          // lanes j and j+8
	VMAXPS        UPPER01, LOWER01, LARGESTS01
	VMINPS        UPPER23, LOWER23, LEASTS23
	VMAXPS        UPPER23, LOWER23, LARGESTS23
	VSHUFF32X4    EVEN_QUARTERS, LEASTS23, LEASTS01, EVENS
	VSHUFF32X4    ODD_QUARTERS, LEASTS23, LEASTS01, ODDS
	VSHUFF32X4    EVEN_QUARTERS, LARGESTS23, LARGESTS01, LARGEST_EVENS
	VSHUFF32X4    ODD_QUARTERS, LARGESTS23, LARGESTS01, LARGEST_ODDS
	VMINPS        ODDS, EVENS, LEASTS                 // j+4
	VMAXPS        LARGEST_ODDS, LARGEST_EVENS, LARGESTS
	JMP           minmax_quarters

minmax_group:
	MOVLQSX       0(OFFSETS), START         // where the group begins
	MOVLQSX       4(OFFSETS), LEFT          // where it ends
	LEAQ          (X_START)(START*4), X_PTR // its first element
	SUBQ          START, LEFT               // its length
	VMOVAPS       POSINF, LEAST             // mn = +Inf
	VMOVAPS       NEGINF, LARGEST           // mx = -Inf
	KXORW         NANS, NANS, NANS          // bad = false

minmax_16:
	CMPQ          LEFT, $const_lanes
	JLE           minmax_rest             // 0 to 16 elements
	VMOVUPS       (X_PTR), X
	VMINPS        X, LEAST, LEAST         // mn = min(mn, x)
	VMAXPS        X, LARGEST, LARGEST     // mx = max(mx, x)
	VCMPPS        UNORDERED, X, X, IS_NAN // x != x
	KORW          IS_NAN, NANS, NANS      // bad = bad || x != x
	ADDQ          $CHUNK4, X_PTR          // next 16 elements
	SUBQ          $const_lanes, LEFT
	JMP           minmax_16

minmax_rest:
	MOVL          $1, MASK                               // 1 for the lanes that have an element
	SHLL          LEFT, MASK
	DECL          MASK
	KMOVW         MASK, PRESENT                          // as a mask
	VMOVUPS.Z     (X_PTR), PRESENT, X                    // x there; reads no other lanes
	VMINPS        X, LEAST, PRESENT, LEAST               // mn = min(mn, x)
	VMAXPS        X, LARGEST, PRESENT, LARGEST           // mx = max(mx, x)
	VCMPPS        UNORDERED, X, X, IS_NAN                // x != x
	VEXTRACTF32X8 UPPER_HALF, LEAST, OTHER_HALF_MIN      // lanes 8 to 15
	VEXTRACTF32X8 UPPER_HALF, LARGEST, OTHER_HALF_MAX
	VMINPS        OTHER_HALF_MIN, LEAST_HALF, LEAST_HALF // lanes j and j+8
	VMAXPS        OTHER_HALF_MAX, LARGEST_HALF, LARGEST_HALF
	VEXTRACTF128  UPPER_HALF, LEAST_HALF, MIN            // lanes 4 to 7
	VEXTRACTF128  UPPER_HALF, LARGEST_HALF, MAX
	VMINPS        MIN, LEAST_LOW, MIN                    // j+4
	VMAXPS        MAX, LARGEST_LOW, MAX
	VPERMILPS     SWAP_PAIRS, MIN, OTHER_MIN             // lanes 2 and 3
	VPERMILPS     SWAP_PAIRS, MAX, OTHER_MAX
	VMINPS        OTHER_MIN, MIN, MIN                    // j+2
	VMAXPS        OTHER_MAX, MAX, MAX
	VPERMILPS     SWAP_NEIGHBOURS, MIN, OTHER_MIN        // lane 1
	VPERMILPS     SWAP_NEIGHBOURS, MAX, OTHER_MAX
	VMINSS        OTHER_MIN, MIN, MIN                    // j+1
	VMAXSS        OTHER_MAX, MAX, MAX
	VADDSS        ZERO_LOW, MIN, MIN                     // +0 for -0
	VADDSS        ZERO_LOW, MAX, MAX
	KORTESTW      IS_NAN, NANS                           // bad?
	JEQ           minmax_store
	VPCMPEQD      MIN, MIN, MIN                          // all bits set: NaN
	VMOVAPS       MIN, MAX

minmax_store:
	VMOVSS        MIN, (LO_PTR)
	VMOVSS        MAX, (HI_PTR)
	ADDQ          $4, LO_PTR
	ADDQ          $4, HI_PTR
	ADDQ          $4, OFFSETS
	DECQ          GROUPS
	JNE           minmax_four
	VZEROUPPER
	RET

#undef BELOW
#undef UNEQUAL
#undef NOT_BELOW
#undef LOWER_HALVES
#undef UPPER_HALVES
#undef EVEN_QUARTERS
#undef ODD_QUARTERS
#undef LO_PTR
#undef HI_PTR
#undef X_PTR
#undef X_START
#undef OFFSETS
#undef GROUPS
#undef LEFT
#undef START
#undef MASK
#undef FIRST
#undef SECOND
#undef THIRD
#undef FOURTH
#undef INDEX
#undef LENGTHS
#undef LOWER01
#undef UPPER01
#undef LOWER23
#undef UPPER23
#undef LEASTS01
#undef LARGESTS01
#undef LEASTS23
#undef LARGESTS23
#undef EVENS
#undef ODDS
#undef LARGEST_EVENS
#undef LARGEST_ODDS
#undef LEASTS
#undef LARGESTS
#undef LEASTS_LOW
#undef LARGESTS_LOW
#undef OTHER_LEASTS
#undef OTHER_LARGESTS
#undef LANES
#undef QUARTERS
#undef LENGTH_ONE
#undef EIGHT
#undef SIXTEEN
#undef UNLIKE
#undef PRESENT
#undef NANS01
#undef NANS23
#undef X
#undef LEAST
#undef LARGEST
#undef LEAST_HALF
#undef LARGEST_HALF
#undef LEAST_LOW
#undef LARGEST_LOW
#undef OTHER_HALF_MIN
#undef OTHER_HALF_MAX
#undef MIN
#undef MAX
#undef OTHER_MIN
#undef OTHER_MAX
#undef IS_NAN
#undef NANS
#undef ZERO_LOW
#undef POSINF
#undef NEGINF
#undef LOAD_GROUP
