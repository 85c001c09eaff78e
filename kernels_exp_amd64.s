//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The parts of exp_scale with AVX2 and FMA3. Each is the loop of its twin in
// kernels_portable.go, and takes whole chunks of 16 elements. The exponential takes
// two chunks at a time, an operation on all of them before the next one, because
// each step of 2^y waits for the one before it.

#define DST_PTR DI
#define X_PTR SI
#define LEFT CX       // chunks left
#define SUMS BX
#define GROUP_LEFT R8 // chunks left in the group

// Names that share a register follow each other. Those that end in 0 are lanes 0 to 7
// of the first chunk, in 1 its lanes 8 to 15, in 2 and 3 the same of the second.
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
	VXORPS        group, group, group    // group = 0

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
	VXORPS        GROUP0, GROUP0, GROUP0    // group = 0
	VXORPS        GROUP1, GROUP1, GROUP1
	MOVQ          $GROUP_CHUNKS, GROUP_LEFT // a piece begins with a group

exp_pair:
	SUBQ          $2, LEFT                   // below 0: less than two chunks
	JLT           exp_rest
	VBROADCASTSS  lo+24(FP), LO              // lo, in every lane
	VBROADCASTSS  k+28(FP), K                // k, in every lane
	VMOVUPS       (X_PTR), V0                // x
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
	VMOVUPS       P0, (DST_PTR)              // dst
	VMOVUPS       P1, 32(DST_PTR)
	VMOVUPS       P2, CHUNK4(DST_PTR)
	VMOVUPS       P3, (CHUNK4+32)(DST_PTR)
	VADDPS        P0, GROUP0, GROUP0         // group += dst, the first chunk before the second
	VADDPS        P1, GROUP1, GROUP1
	VADDPS        P2, GROUP0, GROUP0
	VADDPS        P3, GROUP1, GROUP1
	ADDQ          $(2*CHUNK4), X_PTR         // next two chunks
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
	VBROADCASTSS  lo+24(FP), LO           // lo, in every lane
	VBROADCASTSS  k+28(FP), K             // k, in every lane
	VMOVUPS       (X_PTR), V0             // x
	VMOVUPS       32(X_PTR), V1
	VSUBPS        LO, V0, V0              // x - lo
	VSUBPS        LO, V1, V1
	VMULPS        K, V0, V0               // (x - lo) * k
	VMULPS        K, V1, V1
	CLAMP(V0, MINY, MAXY)                 // clamp((x - lo) * k)
	CLAMP(V1, MINY, MAXY)
	EXP2_AVX2(V0, M0, F0, P0)             // 2^clamp((x - lo) * k)
	EXP2_AVX2(V1, M1, F1, P1)
	VMOVUPS       P0, (DST_PTR)           // dst
	VMOVUPS       P1, 32(DST_PTR)
	VADDPS        P0, GROUP0, GROUP0      // group += dst: a single chunk fills no group
	VADDPS        P1, GROUP1, GROUP1

exp_sum:
	VMOVUPS       GROUP0, (laneSum_group+0)(SUMS) // sum.group
	VMOVUPS       GROUP1, (laneSum_group+32)(SUMS)
	VZEROUPPER
	RET

#define FACTOR Y8

// func scaleAVX2(dst *float32, chunks int, f float32)
//
//	dst = f * dst
TEXT ·scaleAVX2(SB), NOSPLIT, $0-20
	MOVQ          dst+0(FP), DST_PTR
	MOVQ          chunks+8(FP), LEFT
	VBROADCASTSS  f+16(FP), FACTOR       // f, in every lane

scale:
	VMULPS        (DST_PTR), FACTOR, V0  // f * dst
	VMULPS        32(DST_PTR), FACTOR, V1
	VMOVUPS       V0, (DST_PTR)          // dst
	VMOVUPS       V1, 32(DST_PTR)
	ADDQ          $CHUNK4, DST_PTR       // next chunk
	DECQ          LEFT
	JNE           scale
	VZEROUPPER
	RET
