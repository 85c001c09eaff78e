//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The kernels on tokens, spans and groups with AVX2 and FMA3. Each is the loop of
// its twin in kernels_portable.go. All but those on spans and groups take whole
// chunks of 16 elements, 8 at a time: names that end in 0 are lanes 0 to 7, in 1
// lanes 8 to 15.

// Four int64 of 1.
DATA longOne<>+0(SB)/8, $1; DATA longOne<>+8(SB)/8, $1
DATA longOne<>+16(SB)/8, $1; DATA longOne<>+24(SB)/8, $1
GLOBL longOne<>(SB), RODATA|NOPTR, $32

// Eight int32 of -1, then eight of 0: from n elements before the middle on, a
// mask for n.
DATA masks<>+0(SB)/8, $-1; DATA masks<>+8(SB)/8, $-1
DATA masks<>+16(SB)/8, $-1; DATA masks<>+24(SB)/8, $-1
DATA masks<>+32(SB)/8, $0; DATA masks<>+40(SB)/8, $0
DATA masks<>+48(SB)/8, $0; DATA masks<>+56(SB)/8, $0
GLOBL masks<>(SB), RODATA|NOPTR, $64
#define MIDDLE 32 // where it is, in bytes

#define DST_PTR DI
#define X_PTR SI
#define ROLE_PTR DX
#define LEFT CX   // chunks left, or vectors of 8
#define CONSTS BX // before the loop
#define SUMS BX   // after that
#define BITS AX   // of a mask, then their number

#define COUNT R8   // of all tokens, less those left out
#define SKIPPED Y0 // tokens whose role is not in roles
#define DIFF Y1    // x - shift, then its square
#define LONG_ONE Y4
#define ROLES Y5
#define SHIFT Y6
#define ZERO Y7
#define SUM0 Y8    // lanes 0 to 3
#define SUM1 Y9    // lanes 4 to 7
#define SUM2 Y10   // lanes 8 to 11
#define SUM3 Y11   // lanes 12 to 15
#define SQUARES0 Y12
#define SQUARES1 Y13
#define SQUARES2 Y14
#define SQUARES3 Y15

// MOMENTS4 adds 4 elements from x and role to the lanes sum and squares. A token
// that is left out adds 0.
#define MOMENTS4(x, role, sum, squares) \
	VPMOVZXBQ     role, SKIPPED; \              // the roles of 4 tokens
	VPSLLVQ       SKIPPED, LONG_ONE, SKIPPED; \ // 1 << role, 0 for a role above 63
	VPAND         ROLES, SKIPPED, SKIPPED; \    // 0 where the role is not in roles
	VPCMPEQQ      ZERO, SKIPPED, SKIPPED; \     // all ones there
	VMOVMSKPD     SKIPPED, BITS; \              // a bit for each such token
	POPCNTL       BITS, BITS; \                 // their number
	SUBQ          BITS, COUNT; \                // off m.count, to which the loop adds 16
	VCVTPS2PD     x, DIFF; \                    // float64(x)
	VSUBPD        SHIFT, DIFF, DIFF; \          // d = float64(x) - shift
	VANDNPD       DIFF, SKIPPED, DIFF; \        // 0 where the role is not in roles
	VADDPD        DIFF, sum, sum; \             // m.sum += d
	VMULPD        DIFF, DIFF, DIFF; \           // d*d, rounded: the twin does not fuse here
	VADDPD        DIFF, squares, squares        // m.squares += d*d

// func maskedMomentsAVX2(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums)
//
//	d = float64(x) - shift where 1<<role is in roles, else 0
//	m.sum, m.squares, m.count = m.sum+d, m.squares+d*d, m.count+1
TEXT ·maskedMomentsAVX2(SB), NOSPLIT, $0-48
	MOVQ          x+0(FP), X_PTR
	MOVQ          role+8(FP), ROLE_PTR
	MOVQ          chunks+16(FP), LEFT
	VMOVDQU       longOne<>(SB), LONG_ONE                // shifted by a role: 1<<role
	VPBROADCASTQ  roles+24(FP), ROLES                    // the set of roles, for every token
	VBROADCASTSD  shift+32(FP), SHIFT                    // shift, for every token
	VPXOR         ZERO, ZERO, ZERO
	MOVQ          m+40(FP), SUMS
	VMOVUPD       (momentSums_sum+0)(SUMS), SUM0
	VMOVUPD       (momentSums_sum+32)(SUMS), SUM1
	VMOVUPD       (momentSums_sum+64)(SUMS), SUM2
	VMOVUPD       (momentSums_sum+96)(SUMS), SUM3
	VMOVUPD       (momentSums_squares+0)(SUMS), SQUARES0
	VMOVUPD       (momentSums_squares+32)(SUMS), SQUARES1
	VMOVUPD       (momentSums_squares+64)(SUMS), SQUARES2
	VMOVUPD       (momentSums_squares+96)(SUMS), SQUARES3
	MOVQ          momentSums_count(SUMS), COUNT

moments:
	MOMENTS4((X_PTR), (ROLE_PTR), SUM0, SQUARES0)        // tokens 0 to 3
	MOMENTS4(16(X_PTR), 4(ROLE_PTR), SUM1, SQUARES1)     // tokens 4 to 7
	MOMENTS4(32(X_PTR), 8(ROLE_PTR), SUM2, SQUARES2)     // tokens 8 to 11
	MOMENTS4(48(X_PTR), 12(ROLE_PTR), SUM3, SQUARES3)    // tokens 12 to 15
	ADDQ          $const_lanes, COUNT                    // MOMENTS4 has taken off those that are not in roles
	ADDQ          $CHUNK4, X_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	DECQ          LEFT
	JNE           moments
	VMOVUPD       SUM0, (momentSums_sum+0)(SUMS)
	VMOVUPD       SUM1, (momentSums_sum+32)(SUMS)
	VMOVUPD       SUM2, (momentSums_sum+64)(SUMS)
	VMOVUPD       SUM3, (momentSums_sum+96)(SUMS)
	VMOVUPD       SQUARES0, (momentSums_squares+0)(SUMS)
	VMOVUPD       SQUARES1, (momentSums_squares+32)(SUMS)
	VMOVUPD       SQUARES2, (momentSums_squares+64)(SUMS)
	VMOVUPD       SQUARES3, (momentSums_squares+96)(SUMS)
	MOVQ          COUNT, momentSums_count(SUMS)
	VZEROUPPER
	RET

#undef COUNT
#undef SKIPPED
#undef DIFF
#undef LONG_ONE
#undef ROLES
#undef SHIFT
#undef ZERO
#undef SUM0
#undef SUM1
#undef SUM2
#undef SUM3
#undef SQUARES0
#undef SQUARES1
#undef SQUARES2
#undef SQUARES3
#undef MOMENTS4

#define ROLE Y0
#define D Y0      // signal less the mean, then d*k clamped
#define M0 Y1     // m and f of exp2
#define F0 Y2
#define P0 Y3     // 2^(d*k), then an action token's weight
#define WEIGHT Y6 // alpha where the token is reasoning, else 0
#define IS_ACTION Y7
#define MUHI Y8
#define MULO Y9
#define ALPHA Y10
#define K Y11
#define MINY Y12
#define MAXY Y13
#define BETA Y14

// func actFocusWeightsAVX2(dst, signal *float32, role *Role, chunks int, q *actFocusConsts)
//
//	for each element {                     // 8 at a time
//		d = (signal - muHi) - muLo
//		dst = action: 1 + beta / (1 + 2^clamp(d*k)); reasoning: alpha; masked: 0
//	}
TEXT ·actFocusWeightsAVX2(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          signal+8(FP), X_PTR
	MOVQ          role+16(FP), ROLE_PTR
	MOVQ          chunks+24(FP), LEFT
	SHLQ          $1, LEFT                            // vectors of 8
	MOVQ          q+32(FP), CONSTS
	VBROADCASTSS  actFocusConsts_muHi(CONSTS), MUHI   // muHi
	VBROADCASTSS  actFocusConsts_muLo(CONSTS), MULO   // muLo
	VBROADCASTSS  actFocusConsts_k(CONSTS), K
	VBROADCASTSS  actFocusConsts_alpha(CONSTS), ALPHA
	VBROADCASTSS  actFocusConsts_beta(CONSTS), BETA
	VMOVUPS       minY<>(SB), MINY                    // the limits of d*k
	VMOVUPS       maxY<>(SB), MAXY

weights:
	VPMOVZXBD     (ROLE_PTR), ROLE              // the roles of 8 tokens
	VPCMPEQD      reasoning<>(SB), ROLE, WEIGHT // all ones where it is reasoning
	VPCMPEQD      action<>(SB), ROLE, IS_ACTION // and where it is action
	VANDPS        ALPHA, WEIGHT, WEIGHT         // alpha for reasoning, else 0
	VMOVMSKPS     IS_ACTION, BITS               // a bit for each action
	TESTL         BITS, BITS
	JEQ           weights_store                 // most tokens need no exponential
	VMOVUPS       (X_PTR), D
	VSUBPS        MUHI, D, D                    // signal - muHi
	VSUBPS        MULO, D, D                    // d = (signal - muHi) - muLo
	VMULPS        K, D, D                       // d*k
	CLAMP(D, MINY, MAXY)                        // clamp(d*k)
	EXP2_AVX2(D, M0, F0, P0)                    // 2^clamp(d*k)
	VADDPS        one<>(SB), P0, P0             // 1 + 2^clamp(d*k)
	VDIVPS        P0, BETA, P0                  // beta / (1 + 2^clamp(d*k))
	VADDPS        one<>(SB), P0, P0             // 1 + beta / (1 + 2^clamp(d*k))
	VBLENDVPS     IS_ACTION, P0, WEIGHT, WEIGHT // that, for action

weights_store:
	VMOVUPS       WEIGHT, (DST_PTR)
	ADDQ          $(CHUNK4/2), X_PTR
	ADDQ          $(CHUNK1/2), ROLE_PTR
	ADDQ          $(CHUNK4/2), DST_PTR
	DECQ          LEFT
	JNE           weights
	VZEROUPPER
	RET

#undef ROLE
#undef M0
#undef F0
#undef P0
#undef WEIGHT
#undef IS_ACTION
#undef MUHI
#undef MULO
#undef ALPHA
#undef K
#undef MINY
#undef MAXY
#undef BETA

// The exponential takes two chunks at a time, an operation on all of them before the next
// one, because each step of 2^y waits for the one before it. Names that share a register
// follow each other. Those that end in 0 are lanes 0 to 7 of the first chunk, in 1 its
// lanes 8 to 15, in 2 and 3 the same of the second.
#define GROUP_LEFT R8 // chunks left in the group
#define V0 Y0          // elements, then their y
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define P0 Y0          // 2^f, or twice that, then 2^y
#define P1 Y1
#define P2 Y2
#define P3 Y3
#define LO Y4
#define K Y5
#define M0 Y4          // m of exp2
#define M1 Y5
#define M2 Y6
#define M3 Y7
#define MAGIC Y8
#define F0 Y8          // f of exp2
#define F1 Y9
#define F2 Y10
#define F3 Y11
#define MINY Y12
#define MAXY Y13
#define GROUP0 Y14
#define GROUP1 Y15
#define GROUP0_LOW X14 // their lower halves
#define GROUP1_LOW X15

// HORNER4 is a step of the polynomial for two chunks.
#define HORNER4(c) \
	HORNER(c, F0, P0); \
	HORNER(c, F1, P1); \
	HORNER(c, F2, P2); \
	HORNER(c, F3, P3)

// EXP2_PAIR sets P0 to P3 to 2^V0 to 2^V3, with the bits of EXP2_AVX2 and four
// operations less: as magic126 is magic + 126, the shift alone makes 2^(y-f-1), half
// of what it is there, and the polynomial is twice what it is there. As 126 is even,
// ties go to the same integer; no step underflows, so doubling changes no rounding.
#define EXP2_PAIR \
	VMOVUPS       magic126<>(SB), MAGIC; \
	VADDPS        MAGIC, V0, M0; \           // 126 + the integer next to y, in the low bits
	VADDPS        MAGIC, V1, M1; \
	VADDPS        MAGIC, V2, M2; \
	VADDPS        MAGIC, V3, M3; \
	VSUBPS        magic126<>(SB), M0, F0; \  // that integer
	VSUBPS        magic126<>(SB), M1, F1; \
	VSUBPS        magic126<>(SB), M2, F2; \
	VSUBPS        magic126<>(SB), M3, F3; \
	VSUBPS        F0, V0, F0; \              // f = y - that integer
	VSUBPS        F1, V1, F1; \
	VSUBPS        F2, V2, F2; \
	VSUBPS        F3, V3, F3; \
	VMOVUPS       twiceC5<>(SB), P0; \       // twice the polynomial of 2^f
	VMOVUPS       twiceC5<>(SB), P1; \
	VMOVUPS       twiceC5<>(SB), P2; \
	VMOVUPS       twiceC5<>(SB), P3; \
	HORNER4(twiceC4<>(SB)); \
	HORNER4(twiceC3<>(SB)); \
	HORNER4(twiceC2<>(SB)); \
	HORNER4(twiceC1<>(SB)); \
	HORNER4(two<>(SB)); \                    // p = 2^(f+1)
	VPSLLD        EXPONENT, M0, M0; \        // 2^(y-f-1)
	VPSLLD        EXPONENT, M1, M1; \
	VPSLLD        EXPONENT, M2, M2; \
	VPSLLD        EXPONENT, M3, M3; \
	VMULPS        M0, P0, P0; \              // p = 2^(f+1) 2^(y-f-1)
	VMULPS        M1, P1, P1; \
	VMULPS        M2, P2, P2; \
	VMULPS        M3, P3, P3

// FLUSH is FLUSH_AVX2 to the sums, and empties group.
#define FLUSH(group, low, off) \
	FLUSH_AVX2(group, low, SUMS, off); \ // total += group
	VXORPS        group, group, group

// func expScaleAVX2(dst, x *float32, chunks int, lo, k float32, sum *laneSum)
//
//	group = 0                              // 16 lanes: a piece begins with a group
//	for each chunk {                       // two at a time
//		dst = 2^clamp((x - lo) * k)
//		group += dst
//		after 8 chunks { sum.total += group; group = 0 }
//	}
//	sum.group = group
TEXT ·expScaleAVX2(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          x+8(FP), X_PTR
	MOVQ          chunks+16(FP), LEFT
	MOVQ          sum+32(FP), SUMS
	VMOVUPS       minY<>(SB), MINY          // the limits of (x - lo) * k
	VMOVUPS       maxY<>(SB), MAXY
	VXORPS        GROUP0, GROUP0, GROUP0
	VXORPS        GROUP1, GROUP1, GROUP1
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT // a piece begins with a group

exp_pair:
	SUBQ          $2, LEFT                   // below 0: less than two chunks
	JLT           exp_rest
	VBROADCASTSS  lo+24(FP), LO
	VBROADCASTSS  k+28(FP), K
	VMOVUPS       (X_PTR), V0
	VMOVUPS       32(X_PTR), V1
	VMOVUPS       CHUNK4(X_PTR), V2
	VMOVUPS       (CHUNK4+32)(X_PTR), V3
	VSUBPS        LO, V0, V0                 // x - lo
	VSUBPS        LO, V1, V1
	VSUBPS        LO, V2, V2
	VSUBPS        LO, V3, V3
	VMULPS        K, V0, V0                  // (x - lo) * k
	VMULPS        K, V1, V1
	VMULPS        K, V2, V2
	VMULPS        K, V3, V3
	VMAXPS        V0, MINY, V0               // clamp((x - lo) * k): as CLAMP, in which a NaN
	VMAXPS        V1, MINY, V1               // stays as it is the second operand
	VMAXPS        V2, MINY, V2
	VMAXPS        V3, MINY, V3
	VMINPS        V0, MAXY, V0
	VMINPS        V1, MAXY, V1
	VMINPS        V2, MAXY, V2
	VMINPS        V3, MAXY, V3
	EXP2_PAIR                                // 2^clamp((x - lo) * k)
	VMOVUPS       P0, (DST_PTR)
	VMOVUPS       P1, 32(DST_PTR)
	VMOVUPS       P2, CHUNK4(DST_PTR)
	VMOVUPS       P3, (CHUNK4+32)(DST_PTR)
	VADDPS        P0, GROUP0, GROUP0         // group += dst, the first chunk before the second
	VADDPS        P1, GROUP1, GROUP1
	VADDPS        P2, GROUP0, GROUP0
	VADDPS        P3, GROUP1, GROUP1
	ADDQ          $(2*CHUNK4), X_PTR
	ADDQ          $(2*CHUNK4), DST_PTR
	SUBQ          $2, GROUP_LEFT
	JNE           exp_pair                   // the group is not full
	FLUSH(GROUP0, GROUP0_LOW, laneSum_total) // sum.total += group; group = 0
	FLUSH(GROUP1, GROUP1_LOW, laneSum_total+64)
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT  // a new group
	JMP           exp_pair

exp_rest:
	ADDQ          $2, LEFT                // 0 or 1 chunk
	JEQ           exp_sum
	VBROADCASTSS  lo+24(FP), LO
	VBROADCASTSS  k+28(FP), K
	VMOVUPS       (X_PTR), V0
	VMOVUPS       32(X_PTR), V1
	VSUBPS        LO, V0, V0              // x - lo
	VSUBPS        LO, V1, V1
	VMULPS        K, V0, V0               // (x - lo) * k
	VMULPS        K, V1, V1
	CLAMP(V0, MINY, MAXY)                 // clamp((x - lo) * k)
	CLAMP(V1, MINY, MAXY)
	EXP2_AVX2(V0, M0, F0, P0)             // 2^clamp((x - lo) * k)
	EXP2_AVX2(V1, M1, F1, P1)
	VMOVUPS       P0, (DST_PTR)
	VMOVUPS       P1, 32(DST_PTR)
	VADDPS        P0, GROUP0, GROUP0      // group += dst: a single chunk fills no group
	VADDPS        P1, GROUP1, GROUP1

exp_sum:
	VMOVUPS       GROUP0, (laneSum_group+0)(SUMS)
	VMOVUPS       GROUP1, (laneSum_group+32)(SUMS)
	VZEROUPPER
	RET

#undef GROUP_LEFT
#undef V2
#undef V3
#undef P0
#undef P1
#undef P2
#undef P3
#undef LO
#undef K
#undef M0
#undef M1
#undef M2
#undef M3
#undef MAGIC
#undef F0
#undef F1
#undef F2
#undef F3
#undef MINY
#undef MAXY
#undef GROUP0
#undef GROUP1
#undef GROUP0_LOW
#undef GROUP1_LOW
#undef HORNER4
#undef EXP2_PAIR
#undef FLUSH

#define FACTOR Y8

// func scaleAVX2(dst *float32, chunks int, f float32)
//
//	dst = f * dst
TEXT ·scaleAVX2(SB), NOSPLIT, $0-20
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          chunks+8(FP), LEFT
	VBROADCASTSS  f+16(FP), FACTOR

scale:
	VMULPS        (DST_PTR), FACTOR, V0
	VMULPS        32(DST_PTR), FACTOR, V1
	VMOVUPS       V0, (DST_PTR)
	VMOVUPS       V1, 32(DST_PTR)
	ADDQ          $CHUNK4, DST_PTR
	DECQ          LEFT
	JNE           scale
	VZEROUPPER
	RET

#undef V0
#undef V1
#undef FACTOR

#define V0 Y0 // elements
#define V1 Y4
#define A_PTR SI
#define B_PTR DX

// func multiplyAVX2(dst, a, b *float32, chunks int)
//
//	dst = a * b
TEXT ·multiplyAVX2(SB), NOSPLIT, $0-32
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          a+8(FP), A_PTR
	MOVQ          b+16(FP), B_PTR
	MOVQ          chunks+24(FP), LEFT

multiply:
	VMOVUPS       (A_PTR), V0
	VMOVUPS       32(A_PTR), V1
	VMULPS        (B_PTR), V0, V0        // a * b
	VMULPS        32(B_PTR), V1, V1
	VMOVUPS       V0, (DST_PTR)
	VMOVUPS       V1, 32(DST_PTR)
	ADDQ          $CHUNK4, A_PTR
	ADDQ          $CHUNK4, B_PTR
	ADDQ          $CHUNK4, DST_PTR
	DECQ          LEFT
	JNE           multiply
	VZEROUPPER
	RET

#undef DST_PTR
#undef V1
#undef A_PTR
#undef B_PTR

#define GRAD_PTR DI
#define NEW_PTR SI // logprobs
#define OLD_PTR R8
#define ADV_PTR R9
#define WEIGHT_PTR R10
#define STRIDE R11
#define TOKENS R12 // all, less the masked
#define CLIPPED_COUNT R13

// Names that share a register follow each other. D is the log-ratio d.
#define FLAT Y0       // where the gradient is 0
#define POWER Y1      // log2 of rho
#define L1 Y1
#define G Y1          // what is left of l1 in the gradient
#define M Y2          // of exp2
#define L2 Y2
#define L Y2
#define F Y3          // of exp2
#define L3 Y3         // then the loss with the dual clip
#define MASKED Y3
#define RHO Y4
#define NO_ROLE Y4
#define DUAL Y4       // where l3 is the loss
#define NEG Y5        // n
#define DC Y6
#define CLIPPED Y7    // where l2 > l1
#define MIN_D Y8
#define MAX_D Y9
#define LO Y10
#define HI Y11
#define LOSS0 Y12     // the group of the loss
#define LOSS1 Y13
#define RATIO0 Y14    // the group of logRatio
#define RATIO1 Y15
#define LOSS0_LOW X12 // their lower halves
#define LOSS1_LOW X13
#define RATIO0_LOW X14
#define RATIO1_LOW X15

// FLUSH is FLUSH_AVX2 to the sums, and empties group.
#define FLUSH(group, low, off) \
	FLUSH_AVX2(group, low, SUMS, off); \ // total += group
	VXORPS        group, group, group

// SURROGATE8 does the 8 elements at off bytes of the float arrays and role bytes
// of the roles, and adds to the groups of loss and logRatio.
#define SURROGATE8(off, role, loss, ratio) \
	VMOVUPS       off(NEW_PTR), D; \              // logprobs
	VSUBPS        off(OLD_PTR), D, D; \           // d = logprobs - old
	VMAXPS        D, MIN_D, DC; \                 // not below -20
	VMINPS        DC, MAX_D, DC; \                // dc, not above 20
	VCMPPS        DIFFERS, D, DC, FLAT; \         // the clamp moves d: no gradient
	VMULPS        log2E32<>(SB), DC, POWER; \     // log2(rho) = dc * log2(e)
	EXP2_AVX2(POWER, M, F, RHO); \                // rho = e^dc
	VMOVUPS       signBit<>(SB), NEG; \           // to change the sign
	VXORPS        off(ADV_PTR), NEG, NEG; \       // n = -adv
	VMULPS        RHO, NEG, L1; \                 // l1 = n*rho
	CLAMP(RHO, LO, HI); \                         // clamp(rho, lo, hi)
	VMULPS        RHO, NEG, L2; \                 // l2 = n*clamp(rho, lo, hi)
	VCMPPS        GREATER, L1, L2, CLIPPED; \     // l2 > l1
	VORPS         CLIPPED, FLAT, FLAT; \          // a clipped ratio has no gradient
	VMAXPS        L1, L2, L; \                    // l, which is l1 if one is NaN
	VMULPS        dual-64(SP), NEG, L3; \         // l3 = n*dual
	VXORPS        DUAL, DUAL, DUAL; \             // 0, to compare with
	VCMPPS        NOT_GREATER, DUAL, NEG, DUAL; \ // all ones, a NaN, but for negative advantages
	VORPS         DUAL, L3, L3; \                 // l3, or that
	VMINPS        L, L3, L3; \                    // n > 0 && l > l3 ? l3 : l
	VCMPPS        DIFFERS, L, L3, DUAL; \         // the dual clip
	VORPS         DUAL, FLAT, FLAT; \             // has no gradient
	VANDNPS       L1, FLAT, G; \                  // g = l1, or 0
	VMULPS        off(WEIGHT_PTR), L3, L; \       // w*l
	VMULPS        off(WEIGHT_PTR), G, G; \        // w*g
	VMULPS        scale-32(SP), G, G; \           // w*g*scale
	VPMOVZXBD     role(ROLE_PTR), MASKED; \       // the roles of 8 tokens
	VPXOR         NO_ROLE, NO_ROLE, NO_ROLE; \    // the masked role is 0
	VPCMPEQD      NO_ROLE, MASKED, MASKED; \      // all ones where it is masked
	VANDNPS       G, MASKED, G; \                 // masked tokens get 0
	VMOVUPS       G, off(GRAD_PTR); \             // grad
	VANDNPS       CLIPPED, MASKED, CLIPPED; \     // counted where not masked
	VMOVMSKPS     CLIPPED, BITS; \                // a bit for each clipped token
	POPCNTL       BITS, BITS; \                   // their number
	ADDQ          BITS, CLIPPED_COUNT; \          // clipped++
	VMOVMSKPS     MASKED, BITS; \                 // a bit for each masked token
	POPCNTL       BITS, BITS; \                   // their number
	SUBQ          BITS, TOKENS; \                 // off tokens, to which the loop adds 16
	VANDNPS       DC, MASKED, DC; \               // they add 0 to logRatio
	VANDNPS       L, MASKED, L; \                 // and 0 to loss
	VADDPS        L, loss, loss; \                // loss += w*l
	VADDPS        DC, ratio, ratio                // logRatio += dc

// func surrogateAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *surrogateConsts, sums *surrogateSums)
//
// weights advances by stride bytes a chunk: 0 for sixteen ones.
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv
//	l1, l2, l3 = n*rho, n*clamp(rho, lo, hi), n*dual
//	l = l2 > l1 ? l2 : l1; n > 0 && l > l3: l = l3
//	g = l1, or 0 where l is not l1 or dc is not d
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
//
// The sums go to sums by groups of 8 chunks, as in expScaleAVX2.
TEXT ·surrogateAVX2(SB), NOSPLIT, $72-80
	MOVQ          grad+0(FP), GRAD_PTR
	MOVQ          logprobs+8(FP), NEW_PTR
	MOVQ          old+16(FP), OLD_PTR
	MOVQ          adv+24(FP), ADV_PTR
	MOVQ          weights+32(FP), WEIGHT_PTR
	MOVQ          stride+40(FP), STRIDE
	MOVQ          role+48(FP), ROLE_PTR
	MOVQ          chunks+56(FP), LEFT
	MOVQ          q+64(FP), CONSTS
	VMOVUPS       minLogRatio<>(SB), MIN_D          // the limits of d
	VMOVUPS       maxLogRatio<>(SB), MAX_D
	VBROADCASTSS  surrogateConsts_lo(CONSTS), LO
	VBROADCASTSS  surrogateConsts_hi(CONSTS), HI
	VBROADCASTSS  surrogateConsts_dual(CONSTS), V0  // dual
	VMOVUPS       V0, dual-64(SP)
	VBROADCASTSS  surrogateConsts_scale(CONSTS), V0
	VMOVUPS       V0, scale-32(SP)
	MOVQ          sums+72(FP), SUMS
	VXORPS        LOSS0, LOSS0, LOSS0               // the groups of loss
	VXORPS        LOSS1, LOSS1, LOSS1
	VXORPS        RATIO0, RATIO0, RATIO0            // the groups of logRatio
	VXORPS        RATIO1, RATIO1, RATIO1
	MOVQ          surrogateSums_tokens(SUMS), TOKENS
	MOVQ          surrogateSums_clipped(SUMS), CLIPPED_COUNT
	MOVQ          $GROUP_CHUNKS, left-72(SP)        // chunks left in the group

surrogate:
	SURROGATE8(0, 0, LOSS0, RATIO0)                                 // tokens 0 to 7
	SURROGATE8(32, 8, LOSS1, RATIO1)                                // tokens 8 to 15
	ADDQ          $const_lanes, TOKENS                              // SURROGATE8 has taken off the masked
	ADDQ          $CHUNK4, NEW_PTR
	ADDQ          $CHUNK4, OLD_PTR
	ADDQ          $CHUNK4, ADV_PTR
	ADDQ          STRIDE, WEIGHT_PTR                                // stride is 0 for sixteen ones
	ADDQ          $CHUNK1, ROLE_PTR
	ADDQ          $CHUNK4, GRAD_PTR
	DECQ          left-72(SP)
	JNE           surrogate_next                                    // the group is not full
	FLUSH(LOSS0, LOSS0_LOW, surrogateSums_loss+laneSum_total)       // sums.loss.total += the group
	FLUSH(LOSS1, LOSS1_LOW, surrogateSums_loss+laneSum_total+64)
	FLUSH(RATIO0, RATIO0_LOW, surrogateSums_logRatio+laneSum_total) // sums.logRatio.total += the group
	FLUSH(RATIO1, RATIO1_LOW, surrogateSums_logRatio+laneSum_total+64)
	MOVQ          $GROUP_CHUNKS, left-72(SP)                        // a new group

surrogate_next:
	DECQ          LEFT
	JNE           surrogate
	VMOVUPS       LOSS0, (surrogateSums_loss+laneSum_group)(SUMS)      // sums.loss.group
	VMOVUPS       LOSS1, (surrogateSums_loss+laneSum_group+32)(SUMS)
	VMOVUPS       RATIO0, (surrogateSums_logRatio+laneSum_group)(SUMS) // sums.logRatio.group
	VMOVUPS       RATIO1, (surrogateSums_logRatio+laneSum_group+32)(SUMS)
	MOVQ          TOKENS, surrogateSums_tokens(SUMS)
	MOVQ          CLIPPED_COUNT, surrogateSums_clipped(SUMS)
	VZEROUPPER
	RET

#undef ROLE_PTR
#undef CONSTS
#undef SUMS
#undef D
#undef V0
#undef GRAD_PTR
#undef NEW_PTR
#undef OLD_PTR
#undef ADV_PTR
#undef WEIGHT_PTR
#undef STRIDE
#undef TOKENS
#undef CLIPPED_COUNT
#undef FLAT
#undef POWER
#undef L1
#undef G
#undef M
#undef L2
#undef L
#undef F
#undef L3
#undef MASKED
#undef RHO
#undef NO_ROLE
#undef DUAL
#undef NEG
#undef DC
#undef CLIPPED
#undef MIN_D
#undef MAX_D
#undef LO
#undef HI
#undef LOSS0
#undef LOSS1
#undef RATIO0
#undef RATIO1
#undef LOSS0_LOW
#undef LOSS1_LOW
#undef RATIO0_LOW
#undef RATIO1_LOW
#undef FLUSH
#undef SURROGATE8

#define SUM_PTR DI
#define X_START R8      // of x, where offsets count from
#define OFFSETS R9
#define SPANS R10       // left
#define SPAN_LEFT R11   // elements left in the span
#define BLOCK R12       // elements left in the block
#define MASKS BX
#define TEMP AX
#define LOWER_COUNT AX  // of the last, shorter chunk: elements in lanes 0 to 7
#define UPPER_COUNT R12 // in lanes 8 to 15

#define G0 Y0     // the group's sums
#define G1 Y1
#define MASK0 Y2
#define MASK1 Y3
#define REST0 Y2  // what the masks let through
#define REST1 Y3
#define TOTAL0 Y4 // the span's sums in float64, lanes 0 to 3
#define TOTAL1 Y5 // lanes 4 to 7
#define TOTAL2 Y6 // lanes 8 to 11
#define TOTAL3 Y7 // lanes 12 to 15
#define BLOCK0 Y8 // the block's sums
#define BLOCK1 Y9
#define BLOCK0_LOW X8
#define BLOCK1_LOW X9
#define LANES0 Y0 // the block's sums as float64, lanes 0 to 3
#define LANES1 Y1
#define LANES2 Y2
#define LANES3 Y3
#define HALF Y0   // of the tree: 4 lanes
#define SUM X0    // 2 lanes, then 1
#define OTHER X1  // the lanes to add
#define ZEROS Y15

// ADD2 adds the chunk at off bytes to the group.
#define ADD2(off) \
	VADDPS        (off)(X_PTR), G0, G0; \ // lanes 0 to 7
	VADDPS        (off+32)(X_PTR), G1, G1 // lanes 8 to 15

// func spanSumsAVX2(sums *float64, x *float32, offsets *int32, n int)
//
//	for each span {
//		total = 0                          // 16 lanes of float64
//		for each block { b = 0; for each group { g = 0; g += x, a chunk at a time; b += g }; total += b }
//		sum = tree(total)
//	}
TEXT ·spanSumsAVX2(SB), NOSPLIT, $0-32
	MOVQ          sums+0(FP), SUM_PTR
	MOVQ          x+8(FP), X_START
	MOVQ          offsets+16(FP), OFFSETS
	MOVQ          n+24(FP), SPANS
	VXORPS        ZEROS, ZEROS, ZEROS
	LEAQ          masks<>(SB), MASKS     // for the last, shorter chunk

span:
	MOVLQSX       0(OFFSETS), TEMP         // where the span begins
	MOVLQSX       4(OFFSETS), SPAN_LEFT    // where it ends
	LEAQ          (X_START)(TEMP*4), X_PTR // its first element
	SUBQ          TEMP, SPAN_LEFT          // its length
	VXORPS        TOTAL0, TOTAL0, TOTAL0
	VXORPS        TOTAL1, TOTAL1, TOTAL1
	VXORPS        TOTAL2, TOTAL2, TOTAL2
	VXORPS        TOTAL3, TOTAL3, TOTAL3

span_block:
	MOVQ          $const_blockSize, BLOCK // a block has no more than this
	CMPQ          SPAN_LEFT, BLOCK
	CMOVQLT       SPAN_LEFT, BLOCK        // BLOCK = min(BLOCK, SPAN_LEFT)
	SUBQ          BLOCK, SPAN_LEFT        // what the span has after this block
	VXORPS        BLOCK0, BLOCK0, BLOCK0  // b = 0
	VXORPS        BLOCK1, BLOCK1, BLOCK1

span_group:
	CMPQ          BLOCK, $const_groupSize          // less than a group?
	JLT           span_rest
	SUBQ          $const_groupSize, BLOCK          // what the block has after this group
	VADDPS        (X_PTR), ZEROS, G0               // g = 0 + x, as in its twin: -0 becomes 0
	VADDPS        32(X_PTR), ZEROS, G1
	ADD2(1*CHUNK4); ADD2(2*CHUNK4); ADD2(3*CHUNK4) // g += x, for the other 7 chunks
	ADD2(4*CHUNK4); ADD2(5*CHUNK4); ADD2(6*CHUNK4); ADD2(7*CHUNK4)
	ADDQ          $(GROUP_CHUNKS*CHUNK4), X_PTR
	VADDPS        G0, BLOCK0, BLOCK0               // b += g
	VADDPS        G1, BLOCK1, BLOCK1
	JMP           span_group

span_rest:
	TESTQ         BLOCK, BLOCK
	JEQ           span_flush             // whole groups only
	VXORPS        G0, G0, G0
	VXORPS        G1, G1, G1

span_chunk:
	SUBQ          $const_lanes, BLOCK    // below 0: less than a chunk
	JLT           span_tail
	ADD2(0)                              // g += x
	ADDQ          $CHUNK4, X_PTR
	JMP           span_chunk

span_tail:
	ADDQ          $const_lanes, UPPER_COUNT           // 0 to 15 elements: 0 is added where none is
	MOVQ          $(const_lanes/2), LOWER_COUNT       // lanes 0 to 7 take at most 8 of them
	CMPQ          UPPER_COUNT, LOWER_COUNT
	CMOVQLT       UPPER_COUNT, LOWER_COUNT            // LOWER_COUNT = min(UPPER_COUNT, 8)
	SUBQ          LOWER_COUNT, UPPER_COUNT            // lanes 8 to 15 take the others
	NEGQ          LOWER_COUNT                         // that many before the middle of masks
	NEGQ          UPPER_COUNT
	VMOVUPS       MIDDLE(MASKS)(LOWER_COUNT*4), MASK0 // all ones where there is an element
	VMOVUPS       MIDDLE(MASKS)(UPPER_COUNT*4), MASK1
	VMASKMOVPS    (X_PTR), MASK0, REST0               // x where there is an element, else 0
	VMASKMOVPS    32(X_PTR), MASK1, REST1
	VADDPS        REST0, G0, G0                       // g += x
	VADDPS        REST1, G1, G1
	VADDPS        G0, BLOCK0, BLOCK0                  // b += g
	VADDPS        G1, BLOCK1, BLOCK1
	XORQ          BLOCK, BLOCK                        // the block is done

span_flush:
	VCVTPS2PD     BLOCK0_LOW, LANES0             // b as float64, lanes 0 to 3
	VEXTRACTF128  UPPER_HALF, BLOCK0, BLOCK0_LOW // lanes 4 to 7
	VCVTPS2PD     BLOCK0_LOW, LANES1
	VCVTPS2PD     BLOCK1_LOW, LANES2             // lanes 8 to 11
	VEXTRACTF128  UPPER_HALF, BLOCK1, BLOCK1_LOW // lanes 12 to 15
	VCVTPS2PD     BLOCK1_LOW, LANES3
	VADDPD        LANES0, TOTAL0, TOTAL0         // total += b
	VADDPD        LANES1, TOTAL1, TOTAL1
	VADDPD        LANES2, TOTAL2, TOTAL2
	VADDPD        LANES3, TOTAL3, TOTAL3
	TESTQ         SPAN_LEFT, SPAN_LEFT
	JNE           span_block                     // next block of the span
	VADDPD        TOTAL2, TOTAL0, TOTAL0         // lanes j and j+8
	VADDPD        TOTAL3, TOTAL1, TOTAL1
	VADDPD        TOTAL1, TOTAL0, HALF           // j+4
	VEXTRACTF128  UPPER_HALF, HALF, OTHER        // the upper two lanes
	VADDPD        OTHER, SUM, SUM                // j+2
	VUNPCKHPD     SUM, SUM, OTHER                // the upper lane
	VADDSD        OTHER, SUM, SUM                // j+1
	VMOVSD        SUM, (SUM_PTR)                 // sum
	ADDQ          $8, SUM_PTR
	ADDQ          $4, OFFSETS
	DECQ          SPANS
	JNE           span
	VZEROUPPER
	RET

#undef SUM_PTR
#undef SPANS
#undef SPAN_LEFT
#undef BLOCK
#undef LOWER_COUNT
#undef UPPER_COUNT
#undef G0
#undef G1
#undef MASK0
#undef MASK1
#undef REST0
#undef REST1
#undef TOTAL0
#undef TOTAL1
#undef TOTAL2
#undef TOTAL3
#undef BLOCK0
#undef BLOCK1
#undef BLOCK0_LOW
#undef BLOCK1_LOW
#undef LANES0
#undef LANES1
#undef LANES2
#undef LANES3
#undef HALF
#undef SUM
#undef OTHER
#undef ZEROS
#undef ADD2

#define LO_PTR DI
#define HI_PTR DX
#define GROUPS R10 // left

#define X Y0
#define IS_NAN Y0
#define MASK Y1
#define X_OR_POSINF Y2 // +Inf where the group has ended
#define X_OR_NEGINF Y3
#define LEAST Y4
#define LARGEST Y5
#define LEAST_LOW X4
#define LARGEST_LOW X5
#define NANS Y6        // lanes that saw a NaN
#define ZERO_LOW X13
#define POSINF Y14
#define NEGINF Y15
#define MIN X0         // 4 lanes, then 2, then 1
#define MAX X1
#define OTHER_MIN X2   // the lanes to reduce with
#define OTHER_MAX X3

// func minMaxAVX2(lo, hi, x *float32, offsets *int32, n int)
//
//	for each group {
//		mn, mx, bad = +Inf, -Inf, false    // 8 lanes
//		for 8 elements or what is left { mn, mx, bad = min(mn, x), max(mx, x), bad || x != x }
//		lo, hi = least(mn)+0, largest(mx)+0, or NaN if bad
//	}
TEXT ·minMaxAVX2(SB), NOSPLIT, $0-40
	MOVQ          lo+0(FP), LO_PTR
	MOVQ          hi+8(FP), HI_PTR
	MOVQ          x+16(FP), X_START
	MOVQ          offsets+24(FP), OFFSETS
	MOVQ          n+32(FP), GROUPS
	VBROADCASTSS  posInf<>(SB), POSINF   // where mn starts
	VBROADCASTSS  negInf<>(SB), NEGINF   // where mx starts
	VXORPS        ZERO_LOW, ZERO_LOW, ZERO_LOW
	LEAQ          masks<>(SB), MASKS     // for the last, shorter vector

minmax_group:
	MOVLQSX       0(OFFSETS), TEMP         // where the group begins
	MOVLQSX       4(OFFSETS), LEFT         // where it ends
	LEAQ          (X_START)(TEMP*4), X_PTR // its first element
	SUBQ          TEMP, LEFT               // its length
	VMOVAPS       POSINF, LEAST            // mn = +Inf
	VMOVAPS       NEGINF, LARGEST          // mx = -Inf
	VXORPS        NANS, NANS, NANS         // bad = false

minmax_8:
	SUBQ          $(const_lanes/2), LEFT  // below 0: less than 8 elements
	JLT           minmax_tail
	VMOVUPS       (X_PTR), X
	VMINPS        X, LEAST, LEAST         // mn = min(mn, x)
	VMAXPS        X, LARGEST, LARGEST     // mx = max(mx, x)
	VCMPPS        UNORDERED, X, X, IS_NAN // x != x
	VORPS         IS_NAN, NANS, NANS      // bad = bad || x != x
	ADDQ          $(CHUNK4/2), X_PTR
	JMP           minmax_8

minmax_tail:
	ADDQ          $(const_lanes/2), LEFT        // 0 to 7 elements
	JEQ           minmax_reduce                 // none is left
	NEGQ          LEFT                          // that many before the middle of masks
	VMOVUPS       MIDDLE(MASKS)(LEFT*4), MASK   // all ones where there is an element
	VMASKMOVPS    (X_PTR), MASK, X              // x, 0 elsewhere
	VBLENDVPS     MASK, X, POSINF, X_OR_POSINF  // x, +Inf elsewhere
	VBLENDVPS     MASK, X, NEGINF, X_OR_NEGINF  // x, -Inf elsewhere
	VMINPS        X_OR_POSINF, LEAST, LEAST     // mn = min(mn, x)
	VMAXPS        X_OR_NEGINF, LARGEST, LARGEST // mx = max(mx, x)
	VCMPPS        UNORDERED, X, X, IS_NAN       // x != x
	VORPS         IS_NAN, NANS, NANS            // bad = bad || x != x

minmax_reduce:
	VEXTRACTF128  UPPER_HALF, LEAST, MIN          // lanes 4 to 7
	VEXTRACTF128  UPPER_HALF, LARGEST, MAX
	VMINPS        MIN, LEAST_LOW, MIN             // lanes j and j+4
	VMAXPS        MAX, LARGEST_LOW, MAX
	VPERMILPS     SWAP_PAIRS, MIN, OTHER_MIN      // lanes 2 and 3
	VPERMILPS     SWAP_PAIRS, MAX, OTHER_MAX
	VMINPS        OTHER_MIN, MIN, MIN             // j+2
	VMAXPS        OTHER_MAX, MAX, MAX
	VPERMILPS     SWAP_NEIGHBOURS, MIN, OTHER_MIN // lane 1
	VPERMILPS     SWAP_NEIGHBOURS, MAX, OTHER_MAX
	VMINSS        OTHER_MIN, MIN, MIN             // j+1
	VMAXSS        OTHER_MAX, MAX, MAX
	VADDSS        ZERO_LOW, MIN, MIN              // +0 for -0
	VADDSS        ZERO_LOW, MAX, MAX
	VMOVMSKPS     NANS, BITS                      // a bit for each lane that saw a NaN
	TESTL         BITS, BITS
	JEQ           minmax_store                    // none did
	VPCMPEQD      MIN, MIN, MIN                   // all bits set: NaN
	VMOVAPS       MIN, MAX

minmax_store:
	VMOVSS        MIN, (LO_PTR)
	VMOVSS        MAX, (HI_PTR)
	ADDQ          $4, LO_PTR
	ADDQ          $4, HI_PTR
	ADDQ          $4, OFFSETS
	DECQ          GROUPS
	JNE           minmax_group
	VZEROUPPER
	RET

#undef MIDDLE
#undef X_PTR
#undef LEFT
#undef BITS
#undef X_START
#undef OFFSETS
#undef MASKS
#undef TEMP
#undef LO_PTR
#undef HI_PTR
#undef GROUPS
#undef X
#undef IS_NAN
#undef MASK
#undef X_OR_POSINF
#undef X_OR_NEGINF
#undef LEAST
#undef LARGEST
#undef LEAST_LOW
#undef LARGEST_LOW
#undef NANS
#undef ZERO_LOW
#undef POSINF
#undef NEGINF
#undef MIN
#undef MAX
#undef OTHER_MIN
#undef OTHER_MAX
