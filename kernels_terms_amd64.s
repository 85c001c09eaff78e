//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The kernels of kernels_terms_portable.go with AVX2 and FMA3: log-ratios, importance
// ratios, the divergence from the reference, the value loss. They take whole chunks of
// 16 elements, 8 at a time: names that end in 0 are lanes 0 to 7, in 1 lanes 8 to 15.

#define A_PTR SI
#define B_PTR R8
#define ROLE_PTR DX
#define LEFT CX   // chunks left
#define CONSTS BX // before the loop
#define SUMS BX   // after that
#define BITS AX   // of a mask, then their number

#define COUNT R9        // of all tokens, less the masked
#define MASKED_BYTES X0 // all ones where a token is masked, a byte each
#define MASKED4 Y0      // the same, for 4 tokens
#define D_WIDE Y1       // a - b, as float64
#define B_WIDE Y2
#define MIN_WIDE Y4     // the limits of a - b
#define MAX_WIDE Y5
#define NO_ROLE4 Y6     // the masked role is 0
#define NO_ROLE_BYTES X6
#define RAW0 Y8         // lanes 0 to 3
#define RAW1 Y9         // lanes 4 to 7
#define RAW2 Y10        // lanes 8 to 11
#define RAW3 Y11        // lanes 12 to 15
#define CLAMPED0 Y12
#define CLAMPED1 Y13
#define CLAMPED2 Y14
#define CLAMPED3 Y15

// LOG_RATIOS4 adds the 4 elements at off bytes of the float arrays and role bytes of
// the roles to the lanes raw and clamped. A masked token adds 0.
#define LOG_RATIOS4(off, role, raw, clamped) \
	VCVTPS2PD     off(A_PTR), D_WIDE; \         // float64(a)
	VCVTPS2PD     off(B_PTR), B_WIDE; \         // float64(b)
	VSUBPD        B_WIDE, D_WIDE, D_WIDE; \     // d = float64(a) - float64(b)
	VPMOVZXBQ     role(ROLE_PTR), MASKED4; \    // the roles of 4 tokens
	VPCMPEQQ      NO_ROLE4, MASKED4, MASKED4; \ // all ones where it is masked
	VANDNPD       D_WIDE, MASKED4, D_WIDE; \    // 0 there
	VADDPD        D_WIDE, raw, raw; \           // sums.raw += d
	VMAXPD        D_WIDE, MIN_WIDE, D_WIDE; \   // clamp(d, -20, 20), NaN for NaN
	VMINPD        D_WIDE, MAX_WIDE, D_WIDE; \
	VADDPD        D_WIDE, clamped, clamped      // sums.clamped += that

// func logRatiosAVX2(a, b *float32, role *Role, chunks int, sums *logRatioSums)
//
//	d = float64(a) - float64(b) where role is not masked, else 0
//	sums.raw, sums.clamped = sums.raw+d, sums.clamped+clamp(d, -20, 20)
//	where role is not masked: sums.count++
TEXT ·logRatiosAVX2(SB), NOSPLIT, $0-40
	MOVQ          a+0(FP), A_PTR
	MOVQ          b+8(FP), B_PTR
	MOVQ          role+16(FP), ROLE_PTR
	MOVQ          chunks+24(FP), LEFT
	VCVTPS2PD     minLogRatio<>(SB), MIN_WIDE              // the limits of d, as float64
	VCVTPS2PD     maxLogRatio<>(SB), MAX_WIDE
	VPXOR         NO_ROLE4, NO_ROLE4, NO_ROLE4
	MOVQ          sums+32(FP), SUMS
	VMOVUPD       (logRatioSums_raw+0)(SUMS), RAW0         // sums.raw
	VMOVUPD       (logRatioSums_raw+32)(SUMS), RAW1
	VMOVUPD       (logRatioSums_raw+64)(SUMS), RAW2
	VMOVUPD       (logRatioSums_raw+96)(SUMS), RAW3
	VMOVUPD       (logRatioSums_clamped+0)(SUMS), CLAMPED0 // sums.clamped
	VMOVUPD       (logRatioSums_clamped+32)(SUMS), CLAMPED1
	VMOVUPD       (logRatioSums_clamped+64)(SUMS), CLAMPED2
	VMOVUPD       (logRatioSums_clamped+96)(SUMS), CLAMPED3
	MOVQ          logRatioSums_count(SUMS), COUNT          // sums.count

logratios:
	VPCMPEQB      (ROLE_PTR), NO_ROLE_BYTES, MASKED_BYTES  // all ones where a token is masked
	VPMOVMSKB     MASKED_BYTES, BITS                       // a bit for each such token
	POPCNTL       BITS, BITS                               // their number
	SUBQ          BITS, COUNT                              // off sums.count
	ADDQ          $const_lanes, COUNT                      // to which all are added
	LOG_RATIOS4(0, 0, RAW0, CLAMPED0)                      // tokens 0 to 3
	LOG_RATIOS4(16, 4, RAW1, CLAMPED1)                     // tokens 4 to 7
	LOG_RATIOS4(32, 8, RAW2, CLAMPED2)                     // tokens 8 to 11
	LOG_RATIOS4(48, 12, RAW3, CLAMPED3)                    // tokens 12 to 15
	ADDQ          $CHUNK4, A_PTR                           // next chunk
	ADDQ          $CHUNK4, B_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	DECQ          LEFT
	JNE           logratios
	VMOVUPD       RAW0, (logRatioSums_raw+0)(SUMS)         // sums.raw
	VMOVUPD       RAW1, (logRatioSums_raw+32)(SUMS)
	VMOVUPD       RAW2, (logRatioSums_raw+64)(SUMS)
	VMOVUPD       RAW3, (logRatioSums_raw+96)(SUMS)
	VMOVUPD       CLAMPED0, (logRatioSums_clamped+0)(SUMS) // sums.clamped
	VMOVUPD       CLAMPED1, (logRatioSums_clamped+32)(SUMS)
	VMOVUPD       CLAMPED2, (logRatioSums_clamped+64)(SUMS)
	VMOVUPD       CLAMPED3, (logRatioSums_clamped+96)(SUMS)
	MOVQ          COUNT, logRatioSums_count(SUMS)
	VZEROUPPER
	RET

#define DST_PTR DI
#define GROUP_LEFT R10 // chunks left in the group

// NEW_GROUP empties GROUP0 and GROUP1, the sums of a group.
#define NEW_GROUP \
	VXORPS        GROUP0, GROUP0, GROUP0; \
	VXORPS        GROUP1, GROUP1, GROUP1; \
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT

// FLUSH adds them to the total of the laneSum at off and begins a new group.
#define FLUSH(off) \
	FLUSH_AVX2(GROUP0, GROUP0_LOW, SUMS, off+laneSum_total); \
	FLUSH_AVX2(GROUP1, GROUP1_LOW, SUMS, off+laneSum_total+64); \
	NEW_GROUP

// STORE_GROUP makes them the laneSum's group.
#define STORE_GROUP(off) \
	VMOVUPS       GROUP0, (off+laneSum_group)(SUMS); \
	VMOVUPS       GROUP1, (off+laneSum_group+32)(SUMS)

#define NO_ROLE Y11    // the masked role is 0
#define GROUP0 Y14
#define GROUP1 Y15
#define GROUP0_LOW X14 // their lower halves
#define GROUP1_LOW X15

#define D Y0         // a - b, clamped
#define POWER Y1     // log2 of the ratio
#define M Y2         // m and f of exp2
#define F Y3
#define U Y4         // the ratio, then what it adds to the sum, then 1
#define C Y5         // u within the bounds, or 0
#define OUT Y6       // where c is to be 0
#define IS_MASKED Y7 // all ones where a token is masked
#define MIN_D Y8
#define MAX_D Y9
#define LO Y10
#define HI Y12
#define KEEPS Y13    // all ones if q.mask is 0

// RATIOS8 does the 8 elements at off bytes of the float arrays and role bytes of the
// roles, and adds to the group's sums.
#define RATIOS8(off, role, sums) \
	VMOVUPS       off(A_PTR), D; \                 // a
	VSUBPS        off(B_PTR), D, D; \              // a - b
	CLAMP(D, MIN_D, MAX_D); \                      // clamp(a - b, -20, 20)
	VMULPS        log2E32<>(SB), D, POWER; \       // log2(u)
	EXP2_AVX2(POWER, M, F, U); \                   // u
	VMAXPS        U, LO, C; \                      // c = clamp(u, lo, hi), NaN for NaN
	VMINPS        C, HI, C; \
	VCMPPS        DIFFERS, U, C, OUT; \            // c is not u
	VANDNPS       OUT, KEEPS, OUT; \               // and mask is not 0
	VANDNPS       C, OUT, C; \                     // c = 0 there
	VPMOVZXBD     role(ROLE_PTR), IS_MASKED; \     // the roles of 8 tokens
	VPCMPEQD      NO_ROLE, IS_MASKED, IS_MASKED; \ // all ones where it is masked
	VANDNPS       C, IS_MASKED, U; \               // masked tokens add 0
	VADDPS        U, sums, sums; \                 // sum += c
	VMOVUPS       one<>(SB), U; \                  // 1
	VBLENDVPS     IS_MASKED, U, C, C; \            // for masked tokens
	VMOVUPS       C, off(DST_PTR)                  // dst

// func ratiosAVX2(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum)
//
//	u = e^clamp(a - b, -20, 20); c = clamp(u, lo, hi)
//	if mask is not 0, where c is not u: c = 0
//	where role is not masked: dst = c; sum += c; else dst = 1
//
// The sum goes to sum by groups of 8 chunks, as in expScaleAVX2.
TEXT ·ratiosAVX2(SB), NOSPLIT, $0-56
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          a+8(FP), A_PTR
	MOVQ          b+16(FP), B_PTR
	MOVQ          role+24(FP), ROLE_PTR
	MOVQ          chunks+32(FP), LEFT
	MOVQ          q+40(FP), CONSTS
	VMOVUPS       minLogRatio<>(SB), MIN_D        // the limits of a - b
	VMOVUPS       maxLogRatio<>(SB), MAX_D
	VBROADCASTSS  ratioConsts_lo(CONSTS), LO      // lo
	VBROADCASTSS  ratioConsts_hi(CONSTS), HI      // hi
	VPXOR         NO_ROLE, NO_ROLE, NO_ROLE
	VPBROADCASTD  ratioConsts_mask(CONSTS), KEEPS // mask, in every lane
	VPCMPEQD      NO_ROLE, KEEPS, KEEPS           // whether it is 0
	MOVQ          sum+48(FP), SUMS
	NEW_GROUP

ratios:
	RATIOS8(0, 0, GROUP0)                   // tokens 0 to 7
	RATIOS8(32, 8, GROUP1)                  // tokens 8 to 15
	ADDQ          $CHUNK4, A_PTR            // next chunk
	ADDQ          $CHUNK4, B_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	ADDQ          $CHUNK4, DST_PTR
	DECQ          GROUP_LEFT
	JNE           ratios_next               // the group is not full
	FLUSH(0)                                // sum.total += the group

ratios_next:
	DECQ          LEFT
	JNE           ratios
	STORE_GROUP(0)                          // sum.group
	VZEROUPPER
	RET

#define GRAD_PTR DI
#define NEW_PTR SI // logprobs
#define REF_PTR R8
#define KERNEL R9  // the number of the klKernel

// Names that share a register follow each other.
#define X Y0         // logprobs - ref
#define K Y1         // the polynomial, then the estimate
#define LOWEST Y2    // the limits of y
#define HIGHEST Y10
#define POWER_Y Y3   // log2 of e^y
#define TEN Y3
#define MASKED Y3    // all ones where a token is masked
#define Y Y4         // -x clamped
#define GRAD Y4
#define SQUARE Y5    // y^2
#define INTEGER Y6   // m of exp2
#define FAR Y6       // where |y| > 1/2
#define FRACTION Y7  // f of exp2
#define G Y7         // the derivative
#define E Y8         // e^y, then e^y - 1
#define SIGNS Y8     // the sign of x, with a 1
#define CUT Y9       // where the estimate is cut
#define GRAD_SCALE Y12
#define STRAIGHT Y13 // all ones if q.straight is not 0

// KL_BEGIN sets X for the 8 elements at off bytes of the float arrays.
#define KL_BEGIN(off) \
	VMOVUPS       off(NEW_PTR), X; \ // logprobs
	VSUBPS        off(REF_PTR), X, X // x = logprobs - ref

// KL_K1, KL_ABS, KL_K2 and KL_K3 set K and G for X.
#define KL_K1 \
	VMOVAPS       X, K; \      // k = x
	VMOVUPS       one<>(SB), G // g = 1

#define KL_ABS \
	VMOVUPS       signBit<>(SB), K; \        // every bit but this one
	VANDNPS       X, K, K; \                 // k = |x|
	VANDPS        signBit<>(SB), X, SIGNS; \ // the sign of x
	VORPS         one<>(SB), SIGNS, SIGNS; \ // 1 with that sign
	VCMPPS        DIFFERS, NO_ROLE, X, G; \  // x is not 0, nor NaN
	VANDPS        SIGNS, G, G                // g = 1 with the sign of x, or 0

#define KL_K2 \
	VMULPS        half<>(SB), X, K; \ // x/2
	VMULPS        X, K, K; \          // k = x/2*x
	VMOVAPS       X, G                // g = x

#define KL_K3 \
	VXORPS        signBit<>(SB), X, Y; \        // -x
	CLAMP(Y, LOWEST, HIGHEST); \                // y = clamp(-x, -20, 20)
	VMULPS        log2E32<>(SB), Y, POWER_Y; \  // log2(e^y) = y * log2(e)
	EXP2_AVX2(POWER_Y, INTEGER, FRACTION, E); \ // e^y
	VSUBPS        one<>(SB), E, E; \            // e^y - 1
	VMOVUPS       klC8<>(SB), K; \              // p, its highest coefficient first
	HORNER(klC7<>(SB), Y, K); \
	HORNER(klC6<>(SB), Y, K); \
	HORNER(klC5<>(SB), Y, K); \
	HORNER(klC4<>(SB), Y, K); \
	HORNER(klC3<>(SB), Y, K); \
	HORNER(half<>(SB), Y, K); \
	VMULPS        Y, Y, SQUARE; \               // y*y
	VMOVUPS       quarter<>(SB), FAR; \         // y*y where |y| = 1/2
	VCMPPS        GREATER, FAR, SQUARE, FAR; \  // |y| > 1/2: rounding y*y does not change that
	VMOVAPS       K, G; \
	HORNER(Y, SQUARE, G); \                     // -g = p*y*y + y
	VMULPS        SQUARE, K, K; \               // k = p*y*y
	VBLENDVPS     FAR, E, G, G; \               // -g = e^y - 1, where |y| > 1/2
	VSUBPS        Y, E, E; \                    // (e^y - 1) - y
	VBLENDVPS     FAR, E, K, K; \               // k, there
	VMOVUPS       ten<>(SB), TEN; \             // the limit of k
	VCMPPS        GREATER, TEN, K, CUT; \       // k > 10: also wherever the clamp moves y
	VMINPS        K, TEN, K; \                  // k = min(k, 10), NaN for NaN
	VXORPS        signBit<>(SB), G, G; \        // g
	VANDNPS       G, CUT, G                     // or 0

// KL_END does the rest for K and G, for the 8 elements at off bytes of the float arrays
// and role bytes of the roles, and adds to the group's sums.
#define KL_END(off, role, sums) \
	VBLENDVPS     STRAIGHT, X, G, G; \       // g = x, if straight is not 0
	VMULPS        GRAD_SCALE, G, G; \        // g*scale
	VPMOVZXBD     role(ROLE_PTR), MASKED; \  // the roles of 8 tokens
	VPCMPEQD      NO_ROLE, MASKED, MASKED; \ // all ones where it is masked
	VMOVUPS       off(GRAD_PTR), GRAD; \     // grad
	VADDPS        G, GRAD, G; \              // grad + g*scale
	VBLENDVPS     MASKED, GRAD, G, G; \      // masked tokens keep theirs
	VMOVUPS       G, off(GRAD_PTR); \        // grad
	VANDNPS       K, MASKED, K; \            // they add 0
	VADDPS        K, sums, sums              // sum += k

// func klAVX2(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum)
//
//	x = logprobs - ref; y = clamp(-x, -20, 20); p = 1/2 + y/6 + ...
//	kernel k1:  k, g = x, 1
//	kernel abs: k, g = |x|, sign of x
//	kernel k2:  k, g = x/2*x, x
//	kernel k3:  k, g = p*y*y, -(p*y*y + y); |y| > 1/2: k, g = (e^y - 1) - y, -(e^y - 1)
//	            k > 10: k, g = 10, 0: also where y is not -x
//	if straight is not 0: g = x
//	where role is not masked: grad += g*scale; sum += k
//
// The sum goes to sum by groups of 8 chunks, as in expScaleAVX2.
TEXT ·klAVX2(SB), NOSPLIT, $0-56
	MOVQ          grad+0(FP), GRAD_PTR
	MOVQ          logprobs+8(FP), NEW_PTR
	MOVQ          ref+16(FP), REF_PTR
	MOVQ          role+24(FP), ROLE_PTR
	MOVQ          chunks+32(FP), LEFT
	MOVQ          q+40(FP), CONSTS
	VMOVUPS       minLogRatio<>(SB), LOWEST           // the limits of y
	VMOVUPS       maxLogRatio<>(SB), HIGHEST
	VPXOR         NO_ROLE, NO_ROLE, NO_ROLE
	VBROADCASTSS  klConsts_scale(CONSTS), GRAD_SCALE  // scale
	VPBROADCASTD  klConsts_straight(CONSTS), STRAIGHT // straight, in every lane
	VPCMPEQD      NO_ROLE, STRAIGHT, STRAIGHT         // whether it is 0
	VPCMPEQD      NO_ROLE, STRAIGHT, STRAIGHT         // whether it is not
	MOVL          klConsts_kernel(CONSTS), KERNEL     // kernel
	MOVQ          sum+48(FP), SUMS
	NEW_GROUP

kl:
	KL_BEGIN(0)                             // tokens 0 to 7
	CMPL          KERNEL, $const_klAbs      // k1 is below it, k2 and k3 above
	JCS           kl_k1
	JEQ           kl_abs
	CMPL          KERNEL, $const_klK2
	JEQ           kl_k2
	KL_K3
	KL_END(0, 0, GROUP0)
	KL_BEGIN(32)                            // tokens 8 to 15
	KL_K3
	JMP           kl_end

kl_k1:
	KL_K1
	KL_END(0, 0, GROUP0)
	KL_BEGIN(32)
	KL_K1
	JMP           kl_end

kl_abs:
	KL_ABS
	KL_END(0, 0, GROUP0)
	KL_BEGIN(32)
	KL_ABS
	JMP           kl_end

kl_k2:
	KL_K2
	KL_END(0, 0, GROUP0)
	KL_BEGIN(32)
	KL_K2

kl_end:
	KL_END(32, 8, GROUP1)
	ADDQ          $CHUNK4, NEW_PTR          // next chunk
	ADDQ          $CHUNK4, REF_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	ADDQ          $CHUNK4, GRAD_PTR
	DECQ          GROUP_LEFT
	JNE           kl_next                   // the group is not full
	FLUSH(0)                                // sum.total += the group

kl_next:
	DECQ          LEFT
	JNE           kl
	STORE_GROUP(0)                          // sum.group
	VZEROUPPER
	RET

#define OLD_PTR R8
#define RETURN_PTR R9
#define CLIPPED_COUNT R11

// Names that share a register follow each other.
#define V Y0       // the new value
#define DIFF Y0    // its distance from the return, then the gradient
#define CLAMPED Y1 // c, then its distance from the return
#define LOW Y2     // old - clip
#define GAIN Y2    // the return
#define HIGH Y3    // old + clip
#define HIDDEN Y3  // all ones where a token is masked
#define FLAT Y4    // where the gradient is 0
#define LOSS Y5
#define CLIPPED Y6 // where the clamped value's term is the larger
#define CLIP Y7

// VALUE_LOSS8 does the 8 elements at off bytes of the float arrays and role bytes of
// the roles, and adds to the group's sums.
#define VALUE_LOSS8(off, role, sums) \
	VMOVUPS       off(OLD_PTR), HIGH; \              // old
	VSUBPS        CLIP, HIGH, LOW; \                 // old - clip
	VADDPS        CLIP, HIGH, HIGH; \                // old + clip
	VMOVUPS       off(NEW_PTR), V; \                 // the new value
	VMAXPS        V, LOW, CLAMPED; \                 // c, NaN for NaN
	VMINPS        CLAMPED, HIGH, CLAMPED; \
	VMOVUPS       off(RETURN_PTR), GAIN; \           // the return
	VSUBPS        GAIN, V, DIFF; \                   // d
	VSUBPS        GAIN, CLAMPED, CLAMPED; \          // dc
	VMULPS        DIFF, DIFF, LOSS; \                // d*d
	VMULPS        CLAMPED, CLAMPED, CLAMPED; \       // dc*dc
	VCMPPS        GREATER, LOSS, CLAMPED, CLIPPED; \ // dc*dc > d*d
	VMAXPS        LOSS, CLAMPED, LOSS; \             // the larger, which is d*d if one is NaN
	VMULPS        half<>(SB), LOSS, LOSS; \          // l
	VPMOVZXBD     role(ROLE_PTR), HIDDEN; \          // the roles of 8 tokens
	VPCMPEQD      NO_ROLE, HIDDEN, HIDDEN; \         // all ones where it is masked
	VORPS         HIDDEN, CLIPPED, FLAT; \           // no gradient where clipped or masked
	VMULPS        GRAD_SCALE, DIFF, DIFF; \          // d*scale
	VANDNPS       DIFF, FLAT, DIFF; \                // or 0
	VMOVUPS       DIFF, off(GRAD_PTR); \             // grad
	VANDNPS       CLIPPED, HIDDEN, CLIPPED; \        // counted where not masked
	VMOVMSKPS     CLIPPED, BITS; \                   // a bit for each clipped token
	POPCNTL       BITS, BITS; \                      // their number
	ADDQ          BITS, CLIPPED_COUNT; \             // clipped += that
	VANDNPS       LOSS, HIDDEN, LOSS; \              // masked tokens add 0
	VADDPS        LOSS, sums, sums                   // loss += l

// func valueLossAVX2(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums)
//
//	c = clamp(values, old - clip, old + clip)
//	d, dc = values - returns, c - returns
//	l = max(d*d, dc*dc) / 2; g = d, or 0 where dc*dc > d*d
//	where role is not masked: loss += l; grad = g*scale; else grad = 0
//
// The sum goes to sums by groups of 8 chunks, as in expScaleAVX2.
TEXT ·valueLossAVX2(SB), NOSPLIT, $0-64
	MOVQ          grad+0(FP), GRAD_PTR
	MOVQ          values+8(FP), NEW_PTR
	MOVQ          old+16(FP), OLD_PTR
	MOVQ          returns+24(FP), RETURN_PTR
	MOVQ          role+32(FP), ROLE_PTR
	MOVQ          chunks+40(FP), LEFT
	MOVQ          q+48(FP), CONSTS
	VPXOR         NO_ROLE, NO_ROLE, NO_ROLE
	VBROADCASTSS  valueConsts_clip(CONSTS), CLIP        // clip
	VBROADCASTSS  valueConsts_scale(CONSTS), GRAD_SCALE // scale
	MOVQ          sums+56(FP), SUMS
	MOVQ          valueSums_clipped(SUMS), CLIPPED_COUNT
	NEW_GROUP

value:
	VALUE_LOSS8(0, 0, GROUP0)               // tokens 0 to 7
	VALUE_LOSS8(32, 8, GROUP1)              // tokens 8 to 15
	ADDQ          $CHUNK4, NEW_PTR          // next chunk
	ADDQ          $CHUNK4, OLD_PTR
	ADDQ          $CHUNK4, RETURN_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	ADDQ          $CHUNK4, GRAD_PTR
	DECQ          GROUP_LEFT
	JNE           value_next                // the group is not full
	FLUSH(valueSums_loss)                   // sums.loss.total += the group

value_next:
	DECQ          LEFT
	JNE           value
	STORE_GROUP(valueSums_loss)             // sums.loss.group
	MOVQ          CLIPPED_COUNT, valueSums_clipped(SUMS)
	VZEROUPPER
	RET
