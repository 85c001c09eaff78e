//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "neon_arm64.h"

// The kernels of tokens and spans with NEON: see kernels_arm64.s.

#define X_PTR R0
#define DST R1
#define CHUNKS R2    // chunks of 16 left
#define ROLE R3
#define TMP R6

#define MOMENTS R4   // the momentSums
#define COUNT R7

#define SUM0 Q0      // lanes 0 to 3, two float64 a register
#define SUM4 Q2
#define SUM8 Q4
#define SUM12 Q6
#define SQUARES0 Q8
#define SQUARES4 Q10
#define SQUARES8 Q12
#define SQUARES12 Q14
#define SPREAD0 Q16  // indices for lanes 0 to 3
#define SPREAD4 Q18
#define SPREAD8 Q20
#define SPREAD12 Q22
#define IN Q24       // by token: all ones if its role is in roles, else 0
#define ROLE_BITS Q24
#define SHIFT Q25
#define BY_ROLE Q26  // by role: whether it is in roles
#define X4 Q27       // four elements
#define INS Q27      // by token: 1 if its role is in roles
#define DIFF Q28     // x - shift, or 0, in two registers
#define MASK Q30     // for them, in two registers

// MOMENTS4 adds the next 4 elements to 4 lanes, which are two registers of each
// argument: the indices of their masks, their sums and their sums of squares.
#define MOMENTS4(spread, sum, squares) \
	VLD1.P 16(X_PTR), [V(X4).S4]; \
	VTBL V(spread).B16, [V(IN).B16], V(MASK).B16; \ // all ones where the role is in roles
	VTBL V(NEXT(spread)).B16, [V(IN).B16], V(NEXT(MASK)).B16; \
	VFCVTL_D2(X4, DIFF); \                          // float64(x)
	VFCVTL2_D2(X4, NEXT(DIFF)); \
	VFSUB_D2(SHIFT, DIFF, DIFF); \                  // d = float64(x) - shift
	VFSUB_D2(SHIFT, NEXT(DIFF), NEXT(DIFF)); \
	VAND_B16(MASK, DIFF, DIFF); \                   // 0 where the role is not in roles
	VAND_B16(NEXT(MASK), NEXT(DIFF), NEXT(DIFF)); \
	VFADD_D2(DIFF, sum, sum); \                     // m.sum += d
	VFADD_D2(NEXT(DIFF), NEXT(sum), NEXT(sum)); \
	VFMUL_D2(DIFF, DIFF, DIFF); \                   // d*d, rounded: the twin does not fuse here
	VFMUL_D2(NEXT(DIFF), NEXT(DIFF), NEXT(DIFF)); \
	VFADD_D2(DIFF, squares, squares); \             // m.squares += d*d
	VFADD_D2(NEXT(DIFF), NEXT(squares), NEXT(squares))

// func maskedMomentsNEON(x *float32, role *Role, chunks, roles int, shift float64, m *momentSums)
//
//	for each chunk {
//		d = float64(x) - shift where 1<<role is in roles, else 0
//		m.sum, m.squares = m.sum + d, m.squares + d*d  // 16 lanes
//		m.count += tokens whose 1<<role is in roles
//	}
TEXT ·maskedMomentsNEON(SB), NOSPLIT, $0-48
	MOVD   x+0(FP), X_PTR
	MOVD   role+8(FP), ROLE
	MOVD   chunks+16(FP), CHUNKS
	MOVD   roles+24(FP), TMP
	FMOVD  shift+32(FP), F(SHIFT)
	MOVD   m+40(FP), MOMENTS
	VDUP   TMP, V(BY_ROLE).B16                              // roles in every byte
	MOVD   $roleBits<>(SB), TMP                             // by role: its bit, 1<<role
	VLD1   (TMP), [V(ROLE_BITS).B16]
	VCMTST V(ROLE_BITS).B16, V(BY_ROLE).B16, V(BY_ROLE).B16 // all ones for a role in roles, else 0
	VDUP   V(SHIFT).D[0], V(SHIFT).D2                       // shift, in both lanes
	MOVD   $spread<>(SB), TMP                               // the indices that spread a mask
	VLD1.P 64(TMP), FOUR_B16(SPREAD0)
	VLD1   (TMP), FOUR_B16(SPREAD8)
	LOAD4(momentSums_sum, MOMENTS, SUM0)
	LOAD4(momentSums_sum+64, MOMENTS, SUM8)
	LOAD4(momentSums_squares, MOMENTS, SQUARES0)
	LOAD4(momentSums_squares+64, MOMENTS, SQUARES8)
	MOVD   momentSums_count(MOMENTS), COUNT

moments:
	VLD1.P 16(ROLE), [V(IN).B16]                  // the roles of 16 tokens
	VTBL   V(IN).B16, [V(BY_ROLE).B16], V(IN).B16 // all ones if in roles; 0 for roles that the table has not
	ONES_B16(IN, INS)                             // 1 for each such token
	VUADDLV V(INS).B16, V(INS)                    // their number
	VMOV   V(INS).H[0], TMP
	ADD    TMP, COUNT                             // m.count += that
	MOMENTS4(SPREAD0, SUM0, SQUARES0)             // tokens 0 to 3
	MOMENTS4(SPREAD4, SUM4, SQUARES4)             // tokens 4 to 7
	MOMENTS4(SPREAD8, SUM8, SQUARES8)             // tokens 8 to 11
	MOMENTS4(SPREAD12, SUM12, SQUARES12)          // tokens 12 to 15
	SUBS   $1, CHUNKS
	BNE    moments
	STORE4(SUM0, momentSums_sum, MOMENTS)
	STORE4(SUM8, momentSums_sum+64, MOMENTS)
	STORE4(SQUARES0, momentSums_squares, MOMENTS)
	STORE4(SQUARES8, momentSums_squares+64, MOMENTS)
	MOVD   COUNT, momentSums_count(MOMENTS)
	RET

#undef MOMENTS
#undef COUNT
#undef SUM0
#undef SUM4
#undef SUM8
#undef SUM12
#undef SQUARES0
#undef SQUARES4
#undef SQUARES8
#undef SQUARES12
#undef SPREAD0
#undef SPREAD4
#undef SPREAD8
#undef SPREAD12
#undef IN
#undef ROLE_BITS
#undef SHIFT
#undef BY_ROLE
#undef X4
#undef INS
#undef DIFF
#undef MASK
#undef MOMENTS4

#define Q_PTR R4     // the batch's actFocusConsts

#define ROLES Q0     // the bytes of role
#define IS Q1        // by token, in bytes: whether it has that role
#define SCRATCH Q2
#define MASK Q4      // IS in 32 bits a token
#define WEIGHT Q12
#define MU_HI Q20    // constants, for all lanes
#define MU_LO Q21
#define K Q22
#define ALPHA Q23
#define BETA Q24
#define REASONING Q25 // that role in every byte
#define ACTION Q26

// func actFocusWeightsNEON(dst, signal *float32, role *Role, chunks int, q *actFocusConsts)
//
//	for each chunk {
//		d = (signal - muHi) - muLo
//		dst = action: 1 + beta / (1 + 2^clamp(d*k)); reasoning: alpha; masked: 0
//	}
//
// Of 100 tokens 96 need no exponential: a chunk without an action goes without.
TEXT ·actFocusWeightsNEON(SB), NOSPLIT, $0-40
	MOVD   dst+0(FP), DST
	MOVD   signal+8(FP), X_PTR
	MOVD   role+16(FP), ROLE
	MOVD   chunks+24(FP), CHUNKS
	MOVD   q+32(FP), Q_PTR
	MOVD   $constants<>(SB), CONSTANTS
	VLD1R.P actFocusConsts_muLo-actFocusConsts_muHi(Q_PTR), [V(MU_HI).S4]  // muHi; the step leads to the next field
	VLD1R.P actFocusConsts_k-actFocusConsts_muLo(Q_PTR), [V(MU_LO).S4]     // muLo
	VLD1R.P actFocusConsts_alpha-actFocusConsts_k(Q_PTR), [V(K).S4]
	VLD1R.P actFocusConsts_beta-actFocusConsts_alpha(Q_PTR), [V(ALPHA).S4]
	VLD1R  (Q_PTR), [V(BETA).S4]
	VMOVI  $const_RoleReasoning, V(REASONING).B16                          // reasoning, in every byte
	VMOVI  $const_RoleAction, V(ACTION).B16                                // action, in every byte
	LOAD_CONSTANTS                                                         // for exp2, and the limits of d*k

weights:
	VLD1   (ROLE), [V(ROLES).B16]                    // the roles of 16 tokens
	VCMEQ  V(ACTION).B16, V(ROLES).B16, V(ROLES).B16 // all ones where it is action
	VUADDLV V(ROLES).B16, V(ROLES)                   // their sum
	VMOV   V(ROLES).H[0], TMP                        // 0 without an action
	CBZ    TMP, weights_no_action
	VLD1   (X_PTR), FOUR_S4(Y)
	FOUR_M(VFSUB_S4, MU_HI, Y, Y)                    // signal - muHi
	FOUR_M(VFSUB_S4, MU_LO, Y, Y)                    // d = (signal - muHi) - muLo
	FOUR_M(VFMUL_S4, K, Y, Y)                        // d*k
	CLAMP                                            // clamp(d*k)
	POWER                                            // 2^clamp(d*k)
	FOUR_M(VFADD_S4, ONE, TWO_Y, TWO_Y)              // 1 + 2^clamp(d*k)
	FOUR_N(VFDIV_S4, TWO_Y, BETA, WEIGHT)            // beta / (1 + 2^clamp(d*k))
	FOUR_M(VFADD_S4, ONE, WEIGHT, WEIGHT)            // 1 + beta / (1 + 2^clamp(d*k))
	VLD1   (ROLE), [V(ROLES).B16]                    // the roles: EXP2 has overwritten them
	VCMEQ  V(ACTION).B16, V(ROLES).B16, V(IS).B16    // all ones where it is action
	WIDEN(IS, SCRATCH, MASK)                         // in 32 bits a token
	FOUR(VAND_B16, MASK, WEIGHT, WEIGHT)             // 0 for other roles

weights_store:
	VLD1.P 16(ROLE), [V(ROLES).B16]                  // the roles, and step over them
	VCMEQ  V(REASONING).B16, V(ROLES).B16, V(IS).B16 // all ones where it is reasoning
	WIDEN(IS, SCRATCH, MASK)                         // in 32 bits a token
	FOUR_M(VAND_B16, ALPHA, MASK, MASK)              // alpha, or 0
	FOUR(VORR_B16, MASK, WEIGHT, WEIGHT)             // both in one
	VST1.P FOUR_S4(WEIGHT), 64(DST)                  // dst, and step over it
	ADD    $64, X_PTR
	SUBS   $1, CHUNKS
	BNE    weights
	RET

weights_no_action:
	CLEAR(WEIGHT)                           // no token is an action
	B      weights_store

#undef Q_PTR
#undef ROLES
#undef IS
#undef SCRATCH
#undef MASK
#undef WEIGHT
#undef MU_HI
#undef MU_LO
#undef K
#undef ALPHA
#undef BETA
#undef REASONING
#undef ACTION

#define OFFSETS R2
#define SPANS R3     // spans or groups left
#define LEFT R4      // elements left in the span or group
#define BLOCK R5     // elements left in the block
#define END R7       // where the last, partial vector begins
#define BASE R8      // element 0 of the first span

#define X Q0         // a chunk, or a vector of what is left
#define REST Q3      // the last 1 to 3 elements, then 0
#define GSUM Q4      // the group's sums, float32
#define LANES0 Q16   // the span's sums: lanes 0 to 3, two float64 a register
#define LANES2 Q17
#define LANES4 Q18
#define LANES8 Q20
#define LANES12 Q22
#define BSUM Q24     // the block's sums, float32
#define SUM Q0       // the span's sum

// SPAN_CHUNK adds the next 16 elements to the group's sums.
#define SPAN_CHUNK \
	VLD1.P 64(X_PTR), FOUR_S4(X); \ // the next chunk of x
	FOUR(VFADD_S4, X, GSUM, GSUM)   // g += x

// WIDEN_ADD adds the four float32 of register v to the float64 of d and NEXT(d). LOW
// and HIGH are overwritten.
#define WIDEN_ADD(v, d) \
	VFCVTL_D2(v, LOW); \             // elements 0 and 1 as float64
	VFCVTL2_D2(v, HIGH); \           // elements 2 and 3
	VFADD_D2(LOW, d, d); \           // the sums of elements 0 and 1
	VFADD_D2(HIGH, NEXT(d), NEXT(d)) // of elements 2 and 3

// func spanSumsNEON(sums *float64, x *float32, offsets *int32, n int)
//
//	for each span {
//		l = 0                              // 16 lanes, float64
//		for each block {
//			b = 0                          // 16 lanes
//			for each group { g = 0; g += x, a chunk at a time; b += g }
//			l += b
//		}
//		sum = tree(l)
//	}
//
// What is left of a span after whole chunks, 0 to 15 elements, is added by 4, and
// then by 1 to 3 that were loaded by 8 and 4 bytes: nothing is read past the end.
TEXT ·spanSumsNEON(SB), NOSPLIT, $0-32
	MOVD   sums+0(FP), DST
	MOVD   x+8(FP), BASE
	MOVD   offsets+16(FP), OFFSETS
	MOVD   n+24(FP), SPANS

span:
	MOVW.P 4(OFFSETS), TMP                  // where the span begins
	MOVW   (OFFSETS), LEFT                  // where it ends
	ADD    TMP<<2, BASE, X_PTR              // the span's first element
	SUB    TMP, LEFT                        // its length
	CLEAR(LANES0)                           // l = 0
	CLEAR(LANES8)

span_block:
	MOVD   $const_blockSize, BLOCK          // a block has no more than this
	CMP    BLOCK, LEFT
	CSEL   LT, LEFT, BLOCK, BLOCK           // BLOCK = min(BLOCK, LEFT)
	SUB    BLOCK, LEFT                      // what the span has after this block
	CLEAR(BSUM)                             // b = 0

span_group:
	CLEAR(GSUM)
	CMP    $const_groupSize, BLOCK                 // less than a group?
	BLT    span_chunk
	SUB    $const_groupSize, BLOCK                 // what the block has after this group
	SPAN_CHUNK; SPAN_CHUNK; SPAN_CHUNK; SPAN_CHUNK // a whole group of 8 chunks
	SPAN_CHUNK; SPAN_CHUNK; SPAN_CHUNK; SPAN_CHUNK
	FOUR(VFADD_S4, GSUM, BSUM, BSUM)               // b += g
	CBNZ   BLOCK, span_group
	B      span_flush

span_chunk:
	SUBS   $const_lanes, BLOCK              // below 0: less than a chunk
	BLT    span_tail
	SPAN_CHUNK                              // g += x
	B      span_chunk

span_tail:                                      // BLOCK is 16 less than what is left: the same low bits
	AND    $12, BLOCK, TMP                  // elements in whole vectors
	ADD    TMP<<2, X_PTR, END               // the elements after them
	SET_ZERO(REST, REST)                    // 0 to 3 elements, then 0
	TBZ    $1, BLOCK, span_odd
	FMOVD.P 8(END), F(REST)                 // two elements
	TBZ    $0, BLOCK, span_vectors          // no third
	VLD1   (END), V(REST).S[2]              // the third
	B      span_vectors

span_odd:
	TBZ    $0, BLOCK, span_vectors          // none
	FMOVS  (END), F(REST)                   // the only one

span_vectors:
	CMP    $4, TMP                           // lanes 0 to 3
	BLT    span_part0
	VLD1.P 16(X_PTR), [V(X).S4]
	VFADD_S4(X, GSUM, GSUM)                  // g += x
	CMP    $8, TMP                           // lanes 4 to 7
	BLT    span_part1
	VLD1.P 16(X_PTR), [V(X).S4]
	VFADD_S4(X, NEXT(GSUM), NEXT(GSUM))      // g += x
	CMP    $12, TMP                          // lanes 8 to 11
	BLT    span_part2
	VLD1   (X_PTR), [V(X).S4]
	VFADD_S4(X, NEXT2(GSUM), NEXT2(GSUM))    // g += x
	VFADD_S4(REST, NEXT3(GSUM), NEXT3(GSUM)) // lanes 12 to 15: the rest

span_rest:
	FOUR(VFADD_S4, GSUM, BSUM, BSUM)        // b += g

span_flush:
	WIDEN_ADD(BSUM, LANES0)                 // l += b, lanes 0 to 3
	WIDEN_ADD(NEXT(BSUM), LANES4)           // lanes 4 to 7
	WIDEN_ADD(NEXT2(BSUM), LANES8)          // lanes 8 to 11
	WIDEN_ADD(NEXT3(BSUM), LANES12)         // lanes 12 to 15
	CBNZ   LEFT, span_block                 // next block of the span
	FOUR(VFADD_D2, LANES8, LANES0, LANES0)  // lanes j and j+8
	VFADD_D2(LANES4, LANES0, LANES0)        // j and j+4
	VFADD_D2(NEXT(LANES4), LANES2, LANES2)
	VFADD_D2(LANES2, LANES0, LANES0)        // j and j+2
	SWAP_D2(LANES0, SUM)                    // the upper lane
	FADDD  F(SUM), F(LANES0), F(SUM)        // j and j+1
	FMOVD.P F(SUM), 8(DST)                  // sum, and step over it
	SUBS   $1, SPANS
	BNE    span
	RET

span_part0:
	VFADD_S4(REST, GSUM, GSUM)              // the rest in lanes 0 to 3
	B      span_rest

span_part1:
	VFADD_S4(REST, NEXT(GSUM), NEXT(GSUM))  // the rest in lanes 4 to 7
	B      span_rest

span_part2:
	VFADD_S4(REST, NEXT2(GSUM), NEXT2(GSUM)) // the rest in lanes 8 to 11
	B      span_rest

#undef BLOCK
#undef END
#undef REST
#undef GSUM
#undef LANES0
#undef LANES2
#undef LANES4
#undef LANES8
#undef LANES12
#undef BSUM
#undef SUM
#undef SPAN_CHUNK
#undef WIDEN_ADD

#define MIN_PTR R1
#define MAX_PTR R5

#define MIN Q4       // the least elements by lane, in two registers
#define MAX Q6       // the largest
#define ZERO Q22
#define LEAST Q0     // of all lanes
#define LARGEST Q1

// func minMaxNEON(lo, hi, x *float32, offsets *int32, n int)
//
//	for each group {
//		mn, mx = +Inf, -Inf                // 8 lanes; NaN stays
//		for 8 elements { mn, mx = min(mn, x), max(mx, x) }
//		what is left goes by 4, 2 and 1, filling a vector with copies
//		lo, hi = least(mn)+0, largest(mx)+0
//	}
TEXT ·minMaxNEON(SB), NOSPLIT, $0-40
	MOVD   lo+0(FP), MIN_PTR
	MOVD   hi+8(FP), MAX_PTR
	MOVD   x+16(FP), BASE
	MOVD   offsets+24(FP), OFFSETS
	MOVD   n+32(FP), SPANS
	MOVD   $constants<>(SB), CONSTANTS
	SET_ZERO(ZERO, ZERO)

minmax_group:
	MOVW.P 4(OFFSETS), TMP                  // where the group begins
	MOVW   (OFFSETS), LEFT                  // where it ends
	ADD    TMP<<2, BASE, X_PTR              // the group's first element
	SUB    TMP, LEFT                        // its length
	FMOVQ  CONST_POSINF, F(MIN)             // mn = +Inf
	FMOVQ  CONST_POSINF, F(NEXT(MIN))
	FMOVQ  CONST_NEGINF, F(MAX)             // mx = -Inf
	FMOVQ  CONST_NEGINF, F(NEXT(MAX))

minmax_8:
	SUBS   $8, LEFT                            // below 0: less than 8 elements
	BLT    minmax_4
	VLD1.P 32(X_PTR), [V(X).S4, V(NEXT(X)).S4]
	VFMIN_S4(X, MIN, MIN)                      // mn = min(mn, x)
	VFMIN_S4(NEXT(X), NEXT(MIN), NEXT(MIN))
	VFMAX_S4(X, MAX, MAX)                      // mx = max(mx, x)
	VFMAX_S4(NEXT(X), NEXT(MAX), NEXT(MAX))
	B      minmax_8

minmax_4:                                       // LEFT is 8 less than what is left: the same low bits
	TBZ    $2, LEFT, minmax_2               // no four elements
	VLD1.P 16(X_PTR), [V(X).S4]
	VFMIN_S4(X, MIN, MIN)                   // mn = min(mn, x)
	VFMAX_S4(X, MAX, MAX)                   // mx = max(mx, x)

minmax_2:
	TBZ    $1, LEFT, minmax_1               // no two elements
	VLD1R.P 8(X_PTR), [V(NEXT(X)).D2]       // two elements, twice
	VFMIN_S4(NEXT(X), NEXT(MIN), NEXT(MIN)) // mn = min(mn, x)
	VFMAX_S4(NEXT(X), NEXT(MAX), NEXT(MAX)) // mx = max(mx, x)

minmax_1:
	TBZ    $0, LEFT, minmax_reduce          // no odd element
	VLD1R  (X_PTR), [V(X).S4]               // one, four times
	VFMIN_S4(X, MIN, MIN)                   // mn = min(mn, x)
	VFMAX_S4(X, MAX, MAX)                   // mx = max(mx, x)

minmax_reduce:
	VFMIN_S4(NEXT(MIN), MIN, MIN)           // two registers into one
	VFMAX_S4(NEXT(MAX), MAX, MAX)
	VFMINV_S4(MIN, LEAST)                   // its four lanes into one
	VFMAXV_S4(MAX, LARGEST)
	FADDS  F(ZERO), F(LEAST), F(LEAST)      // +0 for -0
	FADDS  F(ZERO), F(LARGEST), F(LARGEST)
	FMOVS.P F(LEAST), 4(MIN_PTR)            // lo, and step over it
	FMOVS.P F(LARGEST), 4(MAX_PTR)          // hi, and step over it
	SUBS   $1, SPANS
	BNE    minmax_group
	RET

#undef TMP
#undef OFFSETS
#undef SPANS
#undef LEFT
#undef BASE
#undef MIN_PTR
#undef MAX_PTR
#undef MIN
#undef MAX
#undef ZERO
#undef LEAST
#undef LARGEST

#define SUM_PTR R3   // the laneSum
#define GROUP R6     // chunks left in the group

#define GSUM Q20     // the group's sums, float32
#define LOWEST Q24   // lo for all lanes
#define K Q25

// func expScaleNEON(dst, x *float32, chunks int, lo, k float32, sum *laneSum)
//
//	g = 0                                  // 16 lanes
//	for each chunk {
//		dst = 2^clamp((x - lo) * k)
//		g += dst
//		after 8 chunks { sum.total += g; g = 0 }  // float64
//	}
//	sum.group = g
TEXT ·expScaleNEON(SB), NOSPLIT, $0-40
	MOVD   dst+0(FP), DST
	MOVD   x+8(FP), X_PTR
	MOVD   chunks+16(FP), CHUNKS
	FMOVS  lo+24(FP), F(LOWEST)
	FMOVS  k+28(FP), F(K)
	MOVD   sum+32(FP), SUM_PTR
	VDUP   V(LOWEST).S[0], V(LOWEST).S4
	VDUP   V(K).S[0], V(K).S4
	MOVD   $constants<>(SB), CONSTANTS
	LOAD_CONSTANTS                               // for exp2, and the limits of (x - lo) * k
	CLEAR(GSUM)
	MOVD   $(const_groupSize/const_lanes), GROUP // a piece begins with a group

exp:
	VLD1.P 64(X_PTR), FOUR_S4(Y)
	FOUR_M(VFSUB_S4, LOWEST, Y, Y)               // x - lo
	FOUR_M(VFMUL_S4, K, Y, Y)                    // (x - lo) * k
	CLAMP                                        // clamp((x - lo) * k)
	POWER                                        // 2^clamp((x - lo) * k)
	VST1.P FOUR_S4(TWO_Y), 64(DST)               // dst, and step over it
	FOUR(VFADD_S4, TWO_Y, GSUM, GSUM)            // g += dst
	SUBS   $1, GROUP
	BNE    exp_next                              // the group is not full
	FLUSH4(GSUM, laneSum_total, SUM_PTR)         // sum.total += g
	CLEAR(GSUM)
	MOVD   $(const_groupSize/const_lanes), GROUP // a new group

exp_next:
	SUBS   $1, CHUNKS
	BNE    exp
	STORE4(GSUM, laneSum_group, SUM_PTR)    // sum.group = g
	RET

#undef X_PTR
#undef SUM_PTR
#undef GSUM
#undef LOWEST
#undef K

#define FACTOR Q16   // f for all lanes

// func scaleNEON(dst *float32, chunks int, f float32)
//
//	for each chunk { dst = f * dst }
TEXT ·scaleNEON(SB), NOSPLIT, $0-20
	MOVD   dst+0(FP), DST
	MOVD   chunks+8(FP), CHUNKS
	FMOVS  f+16(FP), F(FACTOR)
	VDUP   V(FACTOR).S[0], V(FACTOR).S4

scale:
	VLD1   (DST), FOUR_S4(X)
	FOUR_M(VFMUL_S4, FACTOR, X, X)
	VST1.P FOUR_S4(X), 64(DST)              // dst, and step over it
	SUBS   $1, CHUNKS
	BNE    scale
	RET

#undef FACTOR

#define A_PTR R7
#define B_PTR R8

#define MULTIPLIER Q4

// func multiplyNEON(dst, a, b *float32, chunks int)
//
//	for each chunk { dst = a * b }
TEXT ·multiplyNEON(SB), NOSPLIT, $0-32
	MOVD   dst+0(FP), DST
	MOVD   a+8(FP), A_PTR
	MOVD   b+16(FP), B_PTR
	MOVD   chunks+24(FP), CHUNKS

multiply:
	VLD1.P 64(A_PTR), FOUR_S4(X)
	VLD1.P 64(B_PTR), FOUR_S4(MULTIPLIER)
	FOUR(VFMUL_S4, MULTIPLIER, X, X)        // a * b
	VST1.P FOUR_S4(X), 64(DST)              // dst, and step over it
	SUBS   $1, CHUNKS
	BNE    multiply
	RET

#undef DST
#undef X
#undef A_PTR
#undef B_PTR
#undef MULTIPLIER

#define NEW_PTR R0   // the log-probabilities
#define OLD_PTR R1
#define ADV_PTR R4
#define W_PTR R5
#define GRAD_PTR R7
#define Q_PTR R8     // the surrogateConsts
#define SUMS R9      // the surrogateSums
#define STRIDE R10
#define TOKENS R11
#define CLIPPED R12
#define TMP R13
#define HI_PTR R14   // &q.hi
#define DUAL_PTR R15 // &q.dual
#define SCALE_PTR R16 // &q.scale

#define LOSS surrogateSums_loss
#define LOGRATIO surrogateSums_logRatio

#define DIFF Q0      // d, the difference of the log-probabilities
#define BELOW Q0     // -20 > d
#define NEG Q0       // n = -adv
#define ON_DUAL Q0   // n > 0, then also l > l3
#define TOKEN Q0     // by token, in bytes: whether its role is not masked
#define SCRATCH Q1
#define LOSS_SUM Q0  // the group's sums, while they are not in memory
#define RATIO_SUM Q4
#define OLD Q4
#define L1 Q4
#define GRAD Q4      // g, then w*g*scale
#define L Q8         // l2, then l, then w*l
#define RHO Q12      // rho, then rho clamped
#define CLIP Q12     // l2 > l1
#define MINUS20 Q16
#define PLUS20 Q17
#define CLIP_LO Q16  // q.lo for all lanes
#define CLIP_HI Q17
#define L3 Q16
#define W Q16
#define DC Q20
#define NO_GRAD Q24  // where g is 0: d outside, l not l1
#define MASK Q24     // TOKEN in 32 bits a token
#define LOG2E Q29
#define DUAL Q28     // q.dual for all lanes
#define ZERO Q29
#define OVER Q28     // l > l3, in two registers
#define SCALE Q28    // q.scale for all lanes

// func surrogateNEON(grad, logprobs, old, adv, weights *float32, stride int, role *Role, chunks int, q *surrogateConsts, sums *surrogateSums)
//
//	for each chunk {
//		d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv
//		l1, l2, l3 = n*rho, n*clamp(rho, lo, hi), n*dual
//		l = l2 > l1 ? l2 : l1; n > 0 && l > l3: l = l3
//		g = l1, or 0 where l is not l1 or d is outside
//		where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; tokens++; l2 > l1: clipped++
//		else: grad = 0
//		after 8 chunks { flush the groups of loss and logRatio into their totals }
//	}
//
// weights advances by stride bytes a chunk: 0 for sixteen ones. The groups of the
// sums stay in memory.
TEXT ·surrogateNEON(SB), NOSPLIT, $0-80
	MOVD   grad+0(FP), GRAD_PTR
	MOVD   logprobs+8(FP), NEW_PTR
	MOVD   old+16(FP), OLD_PTR
	MOVD   adv+24(FP), ADV_PTR
	MOVD   weights+32(FP), W_PTR
	MOVD   stride+40(FP), STRIDE
	MOVD   role+48(FP), ROLE
	MOVD   chunks+56(FP), CHUNKS
	MOVD   q+64(FP), Q_PTR
	MOVD   sums+72(FP), SUMS
	MOVD   $constants<>(SB), CONSTANTS
	ADD    $surrogateConsts_hi, Q_PTR, HI_PTR       // &q.hi
	ADD    $surrogateConsts_dual, Q_PTR, DUAL_PTR   // &q.dual
	ADD    $surrogateConsts_scale, Q_PTR, SCALE_PTR // &q.scale
	MOVD   surrogateSums_tokens(SUMS), TOKENS       // sums.tokens
	MOVD   surrogateSums_clipped(SUMS), CLIPPED     // sums.clipped
	FMOVQ  CONST_MAGIC, F(MAGIC)                    // for exp2
	FMOVQ  CONST_ONE, F(ONE)

surrogate_group:
	SET_ZERO(LOSS_SUM, LOSS_SUM)
	FSTPQ  (F(LOSS_SUM), F(LOSS_SUM)), LOSS+laneSum_group(SUMS)     // the group of loss = 0
	FSTPQ  (F(LOSS_SUM), F(LOSS_SUM)), LOSS+laneSum_group+32(SUMS)
	FSTPQ  (F(LOSS_SUM), F(LOSS_SUM)), LOGRATIO+laneSum_group(SUMS) // the group of logRatio = 0
	FSTPQ  (F(LOSS_SUM), F(LOSS_SUM)), LOGRATIO+laneSum_group+32(SUMS)
	MOVD   $(const_groupSize/const_lanes), GROUP                    // chunks left in the group
	CBZ    CHUNKS, surrogate_done

surrogate:
	VLD1.P 64(NEW_PTR), FOUR_S4(DIFF)                 // logprobs
	VLD1.P 64(OLD_PTR), FOUR_S4(OLD)                  // old
	FMOVQ  CONST_MINUS20, F(MINUS20)                  // the limits of d
	FMOVQ  CONST_PLUS20, F(PLUS20)
	FMOVQ  CONST_LOG2E, F(LOG2E)                      // e^dc = 2^(dc * log2(e))
	FMOVQ  CONST_C5, F(C5)                            // for exp2
	FOUR(VFSUB_S4, OLD, DIFF, DIFF)                   // d = logprobs - old
	FOUR_M(VFMAX_S4, MINUS20, DIFF, DC)               // not below -20
	FOUR_M(VFMIN_S4, PLUS20, DC, DC)                  // dc = clamp(d, -20, 20)
	FOUR_M(VFCMGT_S4, PLUS20, DIFF, NO_GRAD)          // d > 20
	FOUR_N(VFCMGT_S4, DIFF, MINUS20, BELOW)           // -20 > d
	FOUR(VORR_B16, BELOW, NO_GRAD, NO_GRAD)           // the clamp moves d: no gradient
	FOUR_M(VFMUL_S4, LOG2E, DC, Y)                    // log2(rho) = dc * log2(e)
	POWER                                             // rho = e^dc
	VLD1.P 64(ADV_PTR), FOUR_S4(NEG)                  // adv
	VLD1R  surrogateConsts_lo(Q_PTR), [V(CLIP_LO).S4]
	VLD1R  (HI_PTR), [V(CLIP_HI).S4]
	FOUR_1(VFNEG_S4, NEG, NEG)                        // n = -adv
	FOUR(VFMUL_S4, RHO, NEG, L1)                      // l1 = n*rho
	FOUR_M(VFMAX_S4, CLIP_LO, RHO, RHO)               // not below lo
	FOUR_M(VFMIN_S4, CLIP_HI, RHO, RHO)               // clamp(rho, lo, hi)
	FOUR(VFMUL_S4, RHO, NEG, L)                       // l2 = n*clamp(rho, lo, hi)
	FOUR(VFCMGT_S4, L1, L, CLIP)                      // l2 > l1
	FOUR(VBIF_B16, CLIP, L1, L)                       // l = l1 where l2 is not above it
	FOUR(VORR_B16, CLIP, NO_GRAD, NO_GRAD)            // a clipped ratio has no gradient
	VLD1R  (DUAL_PTR), [V(DUAL).S4]                   // dual
	SET_ZERO(ZERO, ZERO)
	FOUR_M(VFMUL_S4, DUAL, NEG, L3)                   // l3 = n*dual
	FOUR_M(VFCMGT_S4, ZERO, NEG, ON_DUAL)             // n > 0
	VFCMGT_S4(L3, L, OVER)                            // l > l3, two registers at a time
	VFCMGT_S4(NEXT(L3), NEXT(L), NEXT(OVER))
	VAND_B16(OVER, ON_DUAL, ON_DUAL)                  // n > 0 && l > l3
	VAND_B16(NEXT(OVER), NEXT(ON_DUAL), NEXT(ON_DUAL))
	VFCMGT_S4(NEXT2(L3), NEXT2(L), OVER)              // l > l3, the other two registers
	VFCMGT_S4(NEXT3(L3), NEXT3(L), NEXT(OVER))
	VAND_B16(OVER, NEXT2(ON_DUAL), NEXT2(ON_DUAL))    // n > 0 && l > l3
	VAND_B16(NEXT(OVER), NEXT3(ON_DUAL), NEXT3(ON_DUAL))
	FOUR(VBIT_B16, ON_DUAL, L3, L)                    // l = l3 there
	FOUR(VORR_B16, ON_DUAL, NO_GRAD, NO_GRAD)         // has no gradient
	SET_ZERO(ZERO, ZERO)
	FOUR_N(VBIT_B16, NO_GRAD, ZERO, GRAD)             // g = l1, or 0
	VLD1   (W_PTR), FOUR_S4(W)                        // w
	ADD    STRIDE, W_PTR                              // stride is 0 for sixteen ones
	VLD1R  (SCALE_PTR), [V(SCALE).S4]
	VLD1.P 16(ROLE), [V(TOKEN).B16]                   // the roles, and step over them
	FOUR(VFMUL_S4, W, L, L)                           // w*l
	FOUR(VFMUL_S4, W, GRAD, GRAD)                     // w*g
	FOUR_M(VFMUL_S4, SCALE, GRAD, GRAD)               // w*g*scale
	VCMTST V(TOKEN).B16, V(TOKEN).B16, V(TOKEN).B16   // role is not 0, which is masked
	WIDEN(TOKEN, SCRATCH, MASK)                       // in 32 bits a token
	ONES_B16(TOKEN, TOKEN)                            // 1 for each token
	VUADDLV V(TOKEN).B16, V(TOKEN)                    // their number
	VMOV   V(TOKEN).H[0], TMP
	ADD    TMP, TOKENS                                // tokens += that
	FOUR(VAND_B16, MASK, GRAD, GRAD)                  // masked tokens get 0
	VST1.P FOUR_S4(GRAD), 64(GRAD_PTR)                // grad, and step over it
	FOUR(VAND_B16, MASK, CLIP, CLIP)                  // counted where not masked
	VADD_S4(NEXT(CLIP), CLIP, CLIP)                   // -1 for each clipped token
	VADD_S4(NEXT3(CLIP), NEXT2(CLIP), NEXT2(CLIP))
	VADD_S4(NEXT2(CLIP), CLIP, CLIP)
	VADDV  V(CLIP).S4, V(CLIP)                        // minus their number
	VMOV   V(CLIP).S[0], TMP
	SUBW   TMP, ZR, TMP                               // their number
	ADD    TMP, CLIPPED                               // clipped += that
	FOUR(VAND_B16, MASK, L, L)                        // masked tokens add 0 to loss
	FOUR(VAND_B16, MASK, DC, DC)                      // and 0 to logRatio
	LOAD4(LOSS+laneSum_group, SUMS, LOSS_SUM)         // the groups so far
	LOAD4(LOGRATIO+laneSum_group, SUMS, RATIO_SUM)
	FOUR(VFADD_S4, L, LOSS_SUM, L)                    // loss += w*l
	FOUR(VFADD_S4, DC, RATIO_SUM, DC)                 // logRatio += dc
	STORE4(L, LOSS+laneSum_group, SUMS)               // the groups go back
	STORE4(DC, LOGRATIO+laneSum_group, SUMS)
	SUB    $1, CHUNKS
	SUBS   $1, GROUP
	BNE    surrogate_next                             // the group is not full
	FLUSH4(L, LOSS+laneSum_total, SUMS)               // sums.loss.total += its group
	FLUSH4(DC, LOGRATIO+laneSum_total, SUMS)          // sums.logRatio.total += its group
	B      surrogate_group                            // a new group

surrogate_next:
	CBNZ   CHUNKS, surrogate

surrogate_done:
	MOVD   TOKENS, surrogateSums_tokens(SUMS)
	MOVD   CLIPPED, surrogateSums_clipped(SUMS)
	RET

#undef CHUNKS
#undef ROLE
#undef GROUP
#undef NEW_PTR
#undef OLD_PTR
#undef ADV_PTR
#undef W_PTR
#undef GRAD_PTR
#undef Q_PTR
#undef SUMS
#undef STRIDE
#undef TOKENS
#undef CLIPPED
#undef TMP
#undef HI_PTR
#undef DUAL_PTR
#undef SCALE_PTR
#undef LOSS
#undef LOGRATIO
#undef DIFF
#undef BELOW
#undef NEG
#undef ON_DUAL
#undef TOKEN
#undef SCRATCH
#undef LOSS_SUM
#undef RATIO_SUM
#undef OLD
#undef L1
#undef GRAD
#undef L
#undef RHO
#undef CLIP
#undef MINUS20
#undef PLUS20
#undef CLIP_LO
#undef CLIP_HI
#undef L3
#undef W
#undef DC
#undef NO_GRAD
#undef MASK
#undef LOG2E
#undef DUAL
#undef ZERO
#undef OVER
#undef SCALE
