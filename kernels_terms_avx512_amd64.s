//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The kernels of kernels_terms_portable.go with AVX-512 (F, VL, DQ, BW): log-ratios,
// importance ratios, the divergence from the reference, the value loss. They take
// whole chunks of 16 elements; a chunk is one vector.

#define A_PTR SI
#define B_PTR R8
#define ROLE_PTR DX
#define LEFT CX   // chunks left
#define CONSTS BX // before the loop
#define SUMS BX   // after that
#define BITS AX   // of a mask, then their number

#define ROLE X0      // the roles of 16 tokens, a byte each
#define RESPONSE K1  // tokens that are not masked: all 16 lanes
#define RESPONSE1 K2 // lanes 8 to 15 from bit 0 on
#define COUNT R9
#define D0 Z1        // a - b, lanes 0 to 7
#define D1 Z2        // lanes 8 to 15
#define B0 Z3
#define B1 Z4
#define MIN_WIDE Z16 // the limits of a - b, as float64
#define MAX_WIDE Z17
#define RAW0 Z18
#define RAW1 Z19
#define CLAMPED0 Z20
#define CLAMPED1 Z21

// CLAMP_WIDE is CLAMP for float64.
#define CLAMP_WIDE(y, lo, hi) \
	VMAXPD        y, lo, y; \ // not below lo
	VMINPD        y, hi, y    // not above hi

// func logRatiosAVX512(a, b *float32, role *Role, chunks int, sums *logRatioSums)
//
//	for each chunk, where role is not masked {
//		d = float64(a) - float64(b)
//		sums.raw, sums.clamped, sums.count = sums.raw+d, sums.clamped+clamp(d, -20, 20), sums.count+1
//	}
TEXT ·logRatiosAVX512(SB), NOSPLIT, $0-40
	MOVQ          a+0(FP), A_PTR
	MOVQ          b+8(FP), B_PTR
	MOVQ          role+16(FP), ROLE_PTR
	MOVQ          chunks+24(FP), LEFT
	VCVTPS2PD     minLogRatio<>(SB), MIN_WIDE              // the limits of d, as float64
	VCVTPS2PD     maxLogRatio<>(SB), MAX_WIDE
	MOVQ          sums+32(FP), SUMS
	VMOVUPD       (logRatioSums_raw+0)(SUMS), RAW0         // sums.raw
	VMOVUPD       (logRatioSums_raw+64)(SUMS), RAW1
	VMOVUPD       (logRatioSums_clamped+0)(SUMS), CLAMPED0 // sums.clamped
	VMOVUPD       (logRatioSums_clamped+64)(SUMS), CLAMPED1
	MOVQ          logRatioSums_count(SUMS), COUNT          // sums.count

logratios:
	VMOVDQU       (ROLE_PTR), ROLE                         // the roles of 16 tokens
	VPTESTMB      ROLE, ROLE, RESPONSE                     // role is not masked, which is 0
	KSHIFTRW      $(const_lanes/2), RESPONSE, RESPONSE1    // the same, for lanes 8 to 15
	KMOVW         RESPONSE, BITS                           // a bit for each such token
	POPCNTL       BITS, BITS                               // their number
	ADDQ          BITS, COUNT                              // sums.count += that
	VCVTPS2PD     (A_PTR), D0                              // float64(a)
	VCVTPS2PD     32(A_PTR), D1
	VCVTPS2PD     (B_PTR), B0                              // float64(b)
	VCVTPS2PD     32(B_PTR), B1
	VSUBPD        B0, D0, D0                               // d = float64(a) - float64(b)
	VSUBPD        B1, D1, D1
	VADDPD        D0, RAW0, RESPONSE, RAW0                 // sums.raw += d, where not masked
	VADDPD        D1, RAW1, RESPONSE1, RAW1
	CLAMP_WIDE(D0, MIN_WIDE, MAX_WIDE)                     // clamp(d, -20, 20)
	CLAMP_WIDE(D1, MIN_WIDE, MAX_WIDE)
	VADDPD        D0, CLAMPED0, RESPONSE, CLAMPED0         // sums.clamped += that, there
	VADDPD        D1, CLAMPED1, RESPONSE1, CLAMPED1
	ADDQ          $CHUNK4, A_PTR                           // next chunk
	ADDQ          $CHUNK4, B_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	DECQ          LEFT
	JNE           logratios
	VMOVUPD       RAW0, (logRatioSums_raw+0)(SUMS)         // sums.raw
	VMOVUPD       RAW1, (logRatioSums_raw+64)(SUMS)
	VMOVUPD       CLAMPED0, (logRatioSums_clamped+0)(SUMS) // sums.clamped
	VMOVUPD       CLAMPED1, (logRatioSums_clamped+64)(SUMS)
	MOVQ          COUNT, logRatioSums_count(SUMS)
	VZEROUPPER
	RET

#define DST_PTR DI
#define GROUP_LEFT R10 // chunks left in the group

// NEW_GROUP empties GROUP, the sums of a group.
#define NEW_GROUP \
	VPXORD        GROUP, GROUP, GROUP; \
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT

// FLUSH adds them to the total of the laneSum at off and begins a new group.
#define FLUSH(off) \
	FLUSH_AVX512(GROUP, GROUP_LOW, SUMS, off+laneSum_total); \
	NEW_GROUP

// STORE_GROUP makes them the laneSum's group.
#define STORE_GROUP(off) VMOVUPS GROUP, (off+laneSum_group)(SUMS)

#define GROUP Z8
#define GROUP_LOW Y8 // its lower half
#define MIN_D Z11    // the limits of a - b
#define MAX_D Z12
#define LOG2E Z13
#define ZERO Z14

#define D Z1     // a - b, clamped
#define POWER Z2 // log2 of the ratio
#define F Z3     // of exp2
#define U Z4     // the ratio
#define C Z5     // u within the bounds, or 0
#define LO Z16
#define HI Z17
#define OUT K2   // where c is to be 0
#define MASKS K3 // all tokens if q.mask is not 0

// func ratiosAVX512(dst, a, b *float32, role *Role, chunks int, q *ratioConsts, sum *laneSum)
//
//	u = e^clamp(a - b, -20, 20); c = clamp(u, lo, hi)
//	if mask is not 0, where c is not u: c = 0
//	where role is not masked: dst = c; sum += c; else dst = 1
//
// The sum goes to sum by groups of 8 chunks, as in expScaleAVX512.
TEXT ·ratiosAVX512(SB), NOSPLIT, $0-56
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          a+8(FP), A_PTR
	MOVQ          b+16(FP), B_PTR
	MOVQ          role+24(FP), ROLE_PTR
	MOVQ          chunks+32(FP), LEFT
	MOVQ          q+40(FP), CONSTS
	BROADCAST_EXP2                            // the coefficients of 2^f
	VBROADCASTSS  minLogRatio<>(SB), MIN_D    // the limits of a - b
	VBROADCASTSS  maxLogRatio<>(SB), MAX_D
	VBROADCASTSS  log2E32<>(SB), LOG2E        // e^d = 2^(d * log2(e))
	VBROADCASTSS  ratioConsts_lo(CONSTS), LO  // lo
	VBROADCASTSS  ratioConsts_hi(CONSTS), HI  // hi
	VPBROADCASTD  ratioConsts_mask(CONSTS), D // mask, in every lane
	VPTESTMD      D, D, MASKS                 // whether it is not 0
	VPXORD        ZERO, ZERO, ZERO
	MOVQ          sum+48(FP), SUMS
	NEW_GROUP

ratios:
	VMOVDQU       (ROLE_PTR), ROLE          // the roles of 16 tokens
	VPTESTMB      ROLE, ROLE, RESPONSE      // role is not masked, which is 0
	VMOVUPS       (A_PTR), D                // a
	VSUBPS        (B_PTR), D, D             // a - b
	CLAMP(D, MIN_D, MAX_D)                  // clamp(a - b, -20, 20)
	VMULPS        LOG2E, D, POWER           // log2(u)
	EXP2_AVX512(POWER, F, U)                // u
	VMAXPS        U, LO, C                  // c = clamp(u, lo, hi), NaN for NaN
	VMINPS        C, HI, C
	VCMPPS        DIFFERS, U, C, MASKS, OUT // c is not u, and mask is not 0
	VMOVAPS       ZERO, OUT, C              // c = 0 there
	VADDPS        C, GROUP, RESPONSE, GROUP // sum += c, where not masked
	VBLENDMPS     C, ONE, RESPONSE, C       // 1 for masked tokens
	VMOVUPS       C, (DST_PTR)              // dst
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
#define FRACTION Z0 // f of exp2
#define X Z1        // logprobs - ref
#define K Z2        // the polynomial, then the estimate
#define G Z3        // its derivative
#define POWER_Y Z4  // log2 of e^y
#define Y Z5        // -x clamped
#define SQUARE Z6   // y^2
#define E Z7        // e^y, then e^y - 1
#define GRAD_SCALE Z15
#define KLC8 Z16
#define KLC7 Z17
#define KLC6 Z18
#define KLC5 Z19
#define KLC4 Z26
#define KLC3 Z27
#define HALF Z28    // klC2
#define QUARTER Z29
#define TEN Z30
#define SIGN Z31
#define FAR K2      // where |y| > 1/2
#define KEPT K3     // where the estimate was not cut
#define ABOVE K2    // where x > 0
#define BELOW K3    // where x < 0
#define STRAIGHT K4 // all tokens if q.straight is not 0

// func klAVX512(grad, logprobs, ref *float32, role *Role, chunks int, q *klConsts, sum *laneSum)
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
// The sum goes to sum by groups of 8 chunks, as in expScaleAVX512.
TEXT ·klAVX512(SB), NOSPLIT, $0-56
	MOVQ          grad+0(FP), GRAD_PTR
	MOVQ          logprobs+8(FP), NEW_PTR
	MOVQ          ref+16(FP), REF_PTR
	MOVQ          role+24(FP), ROLE_PTR
	MOVQ          chunks+32(FP), LEFT
	MOVQ          q+40(FP), CONSTS
	BROADCAST_EXP2                                   // the coefficients of 2^f
	VBROADCASTSS  klC8<>(SB), KLC8                   // and of p
	VBROADCASTSS  klC7<>(SB), KLC7
	VBROADCASTSS  klC6<>(SB), KLC6
	VBROADCASTSS  klC5<>(SB), KLC5
	VBROADCASTSS  klC4<>(SB), KLC4
	VBROADCASTSS  klC3<>(SB), KLC3
	VBROADCASTSS  half<>(SB), HALF
	VBROADCASTSS  quarter<>(SB), QUARTER             // y^2 where |y| = 1/2
	VBROADCASTSS  ten<>(SB), TEN                     // the limit of k
	VBROADCASTSS  minLogRatio<>(SB), MIN_D           // the limits of y
	VBROADCASTSS  maxLogRatio<>(SB), MAX_D
	VBROADCASTSS  log2E32<>(SB), LOG2E               // e^y = 2^(y * log2(e))
	VPBROADCASTD  signBit<>(SB), SIGN                // to change the sign
	VPXORD        ZERO, ZERO, ZERO
	VBROADCASTSS  klConsts_scale(CONSTS), GRAD_SCALE // scale
	VPBROADCASTD  klConsts_straight(CONSTS), X       // straight, in every lane
	VPTESTMD      X, X, STRAIGHT                     // whether it is not 0
	MOVL          klConsts_kernel(CONSTS), KERNEL    // kernel
	MOVQ          sum+48(FP), SUMS
	NEW_GROUP

kl:
	VMOVDQU       (ROLE_PTR), ROLE              // the roles of 16 tokens
	VPTESTMB      ROLE, ROLE, RESPONSE          // role is not masked, which is 0
	VMOVUPS       (NEW_PTR), X                  // logprobs
	VSUBPS        (REF_PTR), X, X               // x = logprobs - ref
	CMPL          KERNEL, $const_klAbs          // k1 is below it, k2 and k3 above
	JCS           kl_k1
	JEQ           kl_abs
	CMPL          KERNEL, $const_klK2
	JEQ           kl_k2
	VXORPS        X, SIGN, Y                    // -x
	CLAMP(Y, MIN_D, MAX_D)                      // y = clamp(-x, -20, 20)
	VMOVAPS       KLC8, K                       // p, its highest coefficient first
	HORNER(KLC7, Y, K)
	HORNER(KLC6, Y, K)
	HORNER(KLC5, Y, K)
	HORNER(KLC4, Y, K)
	HORNER(KLC3, Y, K)
	HORNER(HALF, Y, K)
	VMULPS        Y, Y, SQUARE                  // y*y
	VCMPPS        GREATER, QUARTER, SQUARE, FAR // |y| > 1/2: rounding y*y does not change that
	VMOVAPS       K, G
	HORNER(Y, SQUARE, G)                        // -g = p*y*y + y
	VMULPS        SQUARE, K, K                  // k = p*y*y
	VMULPS        LOG2E, Y, POWER_Y             // log2(e^y) = y * log2(e)
	EXP2_AVX512(POWER_Y, FRACTION, E)           // e^y
	VSUBPS        ONE, E, E                     // e^y - 1
	VMOVAPS       E, FAR, G                     // -g = e^y - 1, where |y| > 1/2
	VSUBPS        Y, E, FAR, K                  // k = (e^y - 1) - y, there
	VCMPPS        NOT_GREATER, TEN, K, KEPT     // k <= 10, or NaN: never where the clamp moves y
	VXORPS.Z      SIGN, G, KEPT, G              // g, or 0
	VMINPS        K, TEN, K                     // k = min(k, 10), NaN for NaN
	JMP           kl_add

kl_k1:
	VMOVAPS       X, K                      // k = x
	VMOVAPS       ONE, G                    // g = 1
	JMP           kl_add

kl_abs:
	VANDNPS       X, SIGN, K                // k = |x|
	VCMPPS        GREATER, ZERO, X, ABOVE   // x > 0
	VCMPPS        LESS, ZERO, X, BELOW      // x < 0
	VMOVAPS.Z     ONE, ABOVE, G             // g = 1 where x > 0, else 0
	VXORPS        ONE, SIGN, BELOW, G       // g = -1 where x < 0
	JMP           kl_add

kl_k2:
	VMULPS        HALF, X, K                // x/2
	VMULPS        X, K, K                   // k = x/2*x
	VMOVAPS       X, G                      // g = x

kl_add:
	VMOVAPS       X, STRAIGHT, G            // g = x, if straight is not 0
	VMULPS        GRAD_SCALE, G, G          // g*scale
	VMOVUPS       (GRAD_PTR), X             // grad
	VADDPS        G, X, RESPONSE, X         // grad + g*scale, where not masked
	VMOVUPS       X, (GRAD_PTR)             // grad
	VADDPS        K, GROUP, RESPONSE, GROUP // sum += k, there
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

#define V Z1       // the new value
#define DIFF Z1    // its distance from the return, then the gradient
#define CLAMPED Z2 // c, then its distance from the return
#define LOW Z3     // old - clip
#define HIGH Z4    // old + clip
#define GAIN Z4    // the return
#define LOSS Z5
#define CLIP Z16
#define CLIPPED K2 // where the clamped value's term is the larger
#define STEEP K3   // where the gradient is not 0

// func valueLossAVX512(grad, values, old, returns *float32, role *Role, chunks int, q *valueConsts, sums *valueSums)
//
//	c = clamp(values, old - clip, old + clip)
//	d, dc = values - returns, c - returns
//	l = max(d*d, dc*dc) / 2; g = d, or 0 where dc*dc > d*d
//	where role is not masked: loss += l; grad = g*scale; else grad = 0
//
// The sum goes to sums by groups of 8 chunks, as in expScaleAVX512.
TEXT ·valueLossAVX512(SB), NOSPLIT, $0-64
	MOVQ          grad+0(FP), GRAD_PTR
	MOVQ          values+8(FP), NEW_PTR
	MOVQ          old+16(FP), OLD_PTR
	MOVQ          returns+24(FP), RETURN_PTR
	MOVQ          role+32(FP), ROLE_PTR
	MOVQ          chunks+40(FP), LEFT
	MOVQ          q+48(FP), CONSTS
	VBROADCASTSS  half<>(SB), HALF
	VBROADCASTSS  valueConsts_clip(CONSTS), CLIP        // clip
	VBROADCASTSS  valueConsts_scale(CONSTS), GRAD_SCALE // scale
	MOVQ          sums+56(FP), SUMS
	MOVQ          valueSums_clipped(SUMS), CLIPPED_COUNT
	NEW_GROUP

value:
	VMOVDQU       (ROLE_PTR), ROLE                          // the roles of 16 tokens
	VPTESTMB      ROLE, ROLE, RESPONSE                      // role is not masked, which is 0
	VMOVUPS       (OLD_PTR), HIGH                           // old
	VSUBPS        CLIP, HIGH, LOW                           // old - clip
	VADDPS        CLIP, HIGH, HIGH                          // old + clip
	VMOVUPS       (NEW_PTR), V                              // the new value
	VMAXPS        V, LOW, CLAMPED                           // c, NaN for NaN
	VMINPS        CLAMPED, HIGH, CLAMPED
	VMOVUPS       (RETURN_PTR), GAIN                        // the return
	VSUBPS        GAIN, V, DIFF                             // d
	VSUBPS        GAIN, CLAMPED, CLAMPED                    // dc
	VMULPS        DIFF, DIFF, LOSS                          // d*d
	VMULPS        CLAMPED, CLAMPED, CLAMPED                 // dc*dc
	VCMPPS        GREATER, LOSS, CLAMPED, RESPONSE, CLIPPED // dc*dc > d*d, where not masked
	VMAXPS        LOSS, CLAMPED, LOSS                       // the larger, which is d*d if one is NaN
	VMULPS        HALF, LOSS, LOSS                          // l
	VADDPS        LOSS, GROUP, RESPONSE, GROUP              // loss += l, where not masked
	KANDNW        RESPONSE, CLIPPED, STEEP                  // the others have a gradient, where not masked
	VMULPS.Z      GRAD_SCALE, DIFF, STEEP, DIFF             // d*scale, 0 elsewhere
	VMOVUPS       DIFF, (GRAD_PTR)                          // grad
	KMOVW         CLIPPED, BITS                             // a bit for each clipped token
	POPCNTL       BITS, BITS                                // their number
	ADDQ          BITS, CLIPPED_COUNT                       // clipped += that
	ADDQ          $CHUNK4, NEW_PTR                          // next chunk
	ADDQ          $CHUNK4, OLD_PTR
	ADDQ          $CHUNK4, RETURN_PTR
	ADDQ          $CHUNK1, ROLE_PTR
	ADDQ          $CHUNK4, GRAD_PTR
	DECQ          GROUP_LEFT
	JNE           value_next                                // the group is not full
	FLUSH(valueSums_loss)                                   // sums.loss.total += the group

value_next:
	DECQ          LEFT
	JNE           value
	STORE_GROUP(valueSums_loss)             // sums.loss.group
	MOVQ          CLIPPED_COUNT, valueSums_clipped(SUMS)
	VZEROUPPER
	RET
