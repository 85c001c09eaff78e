//go:build !noasm && !purego

#include "textflag.h"

// The kernels on tokens with AVX2 and FMA3, in whole chunks of
// 16 elements, 8 at a time. Each is the loop of its twin in kernels_portable.go.

#define VECTOR(off, bits) \
	DATA const256t<>+(off+0)(SB)/8, $(bits<<32|bits); \
	DATA const256t<>+(off+8)(SB)/8, $(bits<<32|bits); \
	DATA const256t<>+(off+16)(SB)/8, $(bits<<32|bits); \
	DATA const256t<>+(off+24)(SB)/8, $(bits<<32|bits)
VECTOR(0, 0x3aadfb33)     // exp2C5
VECTOR(32, 0x3c1e76a9)    // exp2C4
VECTOR(64, 0x3d635b62)    // exp2C3
VECTOR(96, 0x3e75fcda)    // exp2C2
VECTOR(128, 0x3f317215)   // exp2C1
VECTOR(160, 0x3f800000)   // 1
VECTOR(192, 0x4b400000)   // magic
VECTOR(224, 0xc2fa0000)   // minY
VECTOR(256, 0x42f00000)   // maxY
VECTOR(288, 0xc1a00000)   // -20
VECTOR(320, 0x41a00000)   // 20
VECTOR(352, 0x3fb8aa3b)   // log2(e)
VECTOR(384, 0x80000000)   // sign bit
VECTOR(416, 0x7fff)       // rounds to bfloat16
VECTOR(448, 0x40)         // makes a NaN quiet
VECTOR(480, 1)
VECTOR(512, 2)
DATA const256t<>+544(SB)/8, $1 // four int64 of 1
DATA const256t<>+552(SB)/8, $1
DATA const256t<>+560(SB)/8, $1
DATA const256t<>+568(SB)/8, $1
GLOBL const256t<>(SB), RODATA|NOPTR, $576

#define C5 const256t<>+0(SB)
#define C4 const256t<>+32(SB)
#define C3 const256t<>+64(SB)
#define C2 const256t<>+96(SB)
#define C1 const256t<>+128(SB)
#define ONE const256t<>+160(SB)
#define MAGIC const256t<>+192(SB)

// EXP2: p = 2^y for y in range; m and f are overwritten.
#define EXP2(y, m, f, p) \
	VADDPS      MAGIC, y, m; \
	VSUBPS      MAGIC, m, f; \
	VSUBPS      f, y, f; \
	VMOVUPS     C5, p; \
	VFMADD213PS C4, f, p; \
	VFMADD213PS C3, f, p; \
	VFMADD213PS C2, f, p; \
	VFMADD213PS C1, f, p; \
	VFMADD213PS ONE, f, p; \
	VPSLLD      $23, m, m; \
	VPADDD      ONE, m, m; \
	VMULPS      m, p, p

// CLAMP: y into [lo, hi], NaN stays.
#define CLAMP(y, lo, hi) VMAXPS y, lo, y; VMINPS y, hi, y

// MOMENTS4 adds 4 elements from x and role to the lanes sum and squares.
#define MOMENTS4(x, role, sum, squares) \
	VPMOVZXBQ   role, Y0; \
	VPSLLVQ     Y0, Y4, Y0; \
	VPAND       Y5, Y0, Y0; \
	VPCMPEQQ    Y7, Y0, Y0; \
	VMOVMSKPD   Y0, AX; \
	POPCNTL     AX, AX; \
	SUBQ        AX, R8; \
	VCVTPS2PD   x, Y1; \
	VSUBPD      Y6, Y1, Y1; \
	VANDNPD     Y1, Y0, Y1; \
	VADDPD      Y1, sum, sum; \
	VMULPD      Y1, Y1, Y1; \
	VADDPD      Y1, squares, squares

// func maskedMomentsAVX2(x *float32, role *uint8, chunks, roles int, shift float64, m *momentSums)
//
//	d = float64(x) - shift where 1<<role is in roles, else 0
//	m.sum, m.squares, m.count = m.sum+d, m.squares+d*d, m.count+1
TEXT ·maskedMomentsAVX2(SB), NOSPLIT, $0-48
	MOVQ          x+0(FP), SI
	MOVQ          role+8(FP), DX
	MOVQ          chunks+16(FP), CX
	VMOVDQU       const256t<>+544(SB), Y4 // 1
	VPBROADCASTQ  roles+24(FP), Y5
	VBROADCASTSD  shift+32(FP), Y6
	VPXOR         Y7, Y7, Y7
	MOVQ          m+40(FP), DI
	VMOVUPD       0(DI), Y8
	VMOVUPD       32(DI), Y9
	VMOVUPD       64(DI), Y10
	VMOVUPD       96(DI), Y11
	VMOVUPD       128(DI), Y12
	VMOVUPD       160(DI), Y13
	VMOVUPD       192(DI), Y14
	VMOVUPD       224(DI), Y15
	MOVQ          256(DI), R8             // count: of all, less those left out

moments:
	MOMENTS4((SI), (DX), Y8, Y12)
	MOMENTS4(16(SI), 4(DX), Y9, Y13)
	MOMENTS4(32(SI), 8(DX), Y10, Y14)
	MOMENTS4(48(SI), 12(DX), Y11, Y15)
	ADDQ          $16, R8
	ADDQ          $64, SI
	ADDQ          $16, DX
	DECQ          CX
	JNE           moments
	VMOVUPD       Y8, 0(DI)
	VMOVUPD       Y9, 32(DI)
	VMOVUPD       Y10, 64(DI)
	VMOVUPD       Y11, 96(DI)
	VMOVUPD       Y12, 128(DI)
	VMOVUPD       Y13, 160(DI)
	VMOVUPD       Y14, 192(DI)
	VMOVUPD       Y15, 224(DI)
	MOVQ          R8, 256(DI)
	VZEROUPPER
	RET

// func actFocusWeightsAVX2(dst, signal *float32, role *uint8, chunks int, q *actFocusConsts)
//
//	d = (signal - muHi) - muLo
//	dst = action: 1 + beta / (1 + 2^clamp(d*k)); reasoning: alpha; masked: 0
TEXT ·actFocusWeightsAVX2(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DI
	MOVQ          signal+8(FP), SI
	MOVQ          role+16(FP), DX
	MOVQ          chunks+24(FP), CX
	SHLQ          $1, CX                  // 8 at a time
	MOVQ          q+32(FP), BX
	VBROADCASTSS  0(BX), Y8               // muHi
	VBROADCASTSS  4(BX), Y9               // muLo
	VBROADCASTSS  8(BX), Y10              // k
	VBROADCASTSS  12(BX), Y11             // alpha
	VBROADCASTSS  16(BX), Y12             // beta
	VMOVUPS       const256t<>+224(SB), Y13 // minY
	VMOVUPS       const256t<>+256(SB), Y14 // maxY

weights:
	VPMOVZXBD     (DX), Y0
	VPCMPEQD      const256t<>+480(SB), Y0, Y6 // reasoning
	VPCMPEQD      const256t<>+512(SB), Y0, Y7 // action
	VANDPS        Y11, Y6, Y6             // alpha, or 0
	VMOVMSKPS     Y7, AX
	TESTL         AX, AX
	JEQ           weights_store           // 96 tokens of 100 need no exponential
	VMOVUPS       (SI), Y0
	VSUBPS        Y8, Y0, Y0
	VSUBPS        Y9, Y0, Y0
	VMULPS        Y10, Y0, Y0
	CLAMP(Y0, Y13, Y14)
	EXP2(Y0, Y1, Y2, Y3)
	VADDPS        ONE, Y3, Y3
	VDIVPS        Y3, Y12, Y3
	VADDPS        ONE, Y3, Y3
	VBLENDVPS     Y7, Y3, Y6, Y6

weights_store:
	VMOVUPS       Y6, (DI)
	ADDQ          $32, SI
	ADDQ          $8, DX
	ADDQ          $32, DI
	DECQ          CX
	JNE           weights
	VZEROUPPER
	RET

// FLUSH adds the group's 8 float32 of g (lower half x) to 8 float64 at off(BX),
// and empties it.
#define FLUSH(g, x, off) \
	VCVTPS2PD    x, Y0; \
	VEXTRACTF128 $1, g, X1; \
	VCVTPS2PD    X1, Y1; \
	VADDPD       off(BX), Y0, Y0; \
	VADDPD       (32+off)(BX), Y1, Y1; \
	VMOVUPD      Y0, off(BX); \
	VMOVUPD      Y1, (32+off)(BX); \
	VXORPS       g, g, g

// func expScaleAVX2(dst, x *float32, chunks int, lo, k float32, sum *laneSum)
//
//	dst = 2^clamp((x - lo) * k); sum += dst
TEXT ·expScaleAVX2(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DI
	MOVQ          x+8(FP), SI
	MOVQ          chunks+16(FP), CX
	VBROADCASTSS  lo+24(FP), Y10
	VBROADCASTSS  k+28(FP), Y11
	MOVQ          sum+32(FP), BX
	VMOVUPS       const256t<>+224(SB), Y12 // minY
	VMOVUPS       const256t<>+256(SB), Y13 // maxY
	VXORPS        Y14, Y14, Y14           // the group, lanes 0 to 7
	VXORPS        Y15, Y15, Y15           // lanes 8 to 15
	MOVQ          $8, R8                  // chunks left in it

exp:
	VMOVUPS       (SI), Y0
	VMOVUPS       32(SI), Y4
	VSUBPS        Y10, Y0, Y0
	VSUBPS        Y10, Y4, Y4
	VMULPS        Y11, Y0, Y0
	VMULPS        Y11, Y4, Y4
	CLAMP(Y0, Y12, Y13)
	CLAMP(Y4, Y12, Y13)
	EXP2(Y0, Y1, Y2, Y3)
	EXP2(Y4, Y5, Y6, Y7)
	VMOVUPS       Y3, (DI)
	VMOVUPS       Y7, 32(DI)
	VADDPS        Y3, Y14, Y14
	VADDPS        Y7, Y15, Y15
	ADDQ          $64, SI
	ADDQ          $64, DI
	DECQ          R8
	JNE           exp_next
	FLUSH(Y14, X14, 0)
	FLUSH(Y15, X15, 64)
	MOVQ          $8, R8

exp_next:
	DECQ          CX
	JNE           exp
	VMOVUPS       Y14, 128(BX)
	VMOVUPS       Y15, 160(BX)
	VZEROUPPER
	RET

// func scaleAVX2(dst *float32, chunks int, f float32)
//
//	dst = f * dst
TEXT ·scaleAVX2(SB), NOSPLIT, $0-20
	MOVQ          dst+0(FP), DI
	MOVQ          chunks+8(FP), CX
	VBROADCASTSS  f+16(FP), Y8

scale:
	VMULPS        (DI), Y8, Y0
	VMULPS        32(DI), Y8, Y1
	VMOVUPS       Y0, (DI)
	VMOVUPS       Y1, 32(DI)
	ADDQ          $64, DI
	DECQ          CX
	JNE           scale
	VZEROUPPER
	RET

// func multiplyAVX2(dst, a, b *float32, chunks int)
//
//	dst = a * b
TEXT ·multiplyAVX2(SB), NOSPLIT, $0-32
	MOVQ          dst+0(FP), DI
	MOVQ          a+8(FP), SI
	MOVQ          b+16(FP), DX
	MOVQ          chunks+24(FP), CX

multiply:
	VMOVUPS       (SI), Y0
	VMOVUPS       32(SI), Y1
	VMULPS        (DX), Y0, Y0
	VMULPS        32(DX), Y1, Y1
	VMOVUPS       Y0, (DI)
	VMOVUPS       Y1, 32(DI)
	ADDQ          $64, SI
	ADDQ          $64, DX
	ADDQ          $64, DI
	DECQ          CX
	JNE           multiply
	VZEROUPPER
	RET

// SURROGATE8 does the 8 elements at off bytes of the float arrays and role bytes
// of the roles, and adds to the groups of loss and logRatio.
#define SURROGATE8(off, role, loss, ratio) \
	VMOVUPS   off(SI), Y0; \
	VSUBPS    off(R8), Y0, Y0; \
	VCMPPS    $17, Y8, Y0, Y6; \
	VCMPPS    $30, Y9, Y0, Y7; \
	VORPS     Y7, Y6, Y6; \
	CLAMP(Y0, Y8, Y9); \
	VMULPS    const256t<>+352(SB), Y0, Y1; \
	EXP2(Y1, Y2, Y3, Y4); \
	VMOVUPS   const256t<>+384(SB), Y5; \
	VXORPS    off(R9), Y5, Y5; \
	VMULPS    Y4, Y5, Y1; \
	CLAMP(Y4, Y10, Y11); \
	VMULPS    Y4, Y5, Y2; \
	VCMPPS    $30, Y1, Y2, Y7; \
	VORPS     Y7, Y6, Y6; \
	VMAXPS    Y1, Y2, Y2; \
	VMULPS    dual-64(SP), Y5, Y3; \
	VXORPS    Y4, Y4, Y4; \
	VCMPPS    $30, Y4, Y5, Y4; \
	VCMPPS    $30, Y3, Y2, Y5; \
	VANDPS    Y5, Y4, Y4; \
	VBLENDVPS Y4, Y3, Y2, Y2; \
	VORPS     Y4, Y6, Y6; \
	VANDNPS   Y1, Y6, Y1; \
	VMOVUPS   off(R10), Y3; \
	VMULPS    Y2, Y3, Y2; \
	VMULPS    Y1, Y3, Y1; \
	VMULPS    scale-32(SP), Y1, Y1; \
	VPMOVZXBD role(DX), Y3; \
	VPXOR     Y4, Y4, Y4; \
	VPCMPEQD  Y4, Y3, Y3; \
	VANDNPS   Y1, Y3, Y1; \
	VMOVUPS   Y1, off(DI); \
	VANDNPS   Y7, Y3, Y7; \
	VMOVMSKPS Y7, AX; \
	POPCNTL   AX, AX; \
	ADDQ      AX, R13; \
	VMOVMSKPS Y3, AX; \
	POPCNTL   AX, AX; \
	SUBQ      AX, R12; \
	VANDNPS   Y0, Y3, Y0; \
	VANDNPS   Y2, Y3, Y3; \
	VADDPS    Y3, loss, loss; \
	VADDPS    Y0, ratio, ratio

// func surrogateAVX2(grad, logprobs, old, adv, weights *float32, stride int, role *uint8, chunks int, q *surrogateConsts, sums *surrogateSums)
//
// weights advances by stride bytes a chunk: 0 for sixteen ones.
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv
//	l1, l2, l3 = n*rho, n*clamp(rho, lo, hi), n*dual
//	l = l2 > l1 ? l2 : l1; n > 0 && l > l3: l = l3
//	g = l1, or 0 where l is not l1 or dc is not d
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·surrogateAVX2(SB), NOSPLIT, $72-80
	MOVQ          grad+0(FP), DI
	MOVQ          logprobs+8(FP), SI
	MOVQ          old+16(FP), R8
	MOVQ          adv+24(FP), R9
	MOVQ          weights+32(FP), R10
	MOVQ          stride+40(FP), R11
	MOVQ          role+48(FP), DX
	MOVQ          chunks+56(FP), CX
	MOVQ          q+64(FP), BX
	VMOVUPS       const256t<>+288(SB), Y8 // -20
	VMOVUPS       const256t<>+320(SB), Y9 // 20
	VBROADCASTSS  0(BX), Y10              // lo
	VBROADCASTSS  4(BX), Y11              // hi
	VBROADCASTSS  8(BX), Y0
	VMOVUPS       Y0, dual-64(SP)
	VBROADCASTSS  12(BX), Y0
	VMOVUPS       Y0, scale-32(SP)
	MOVQ          sums+72(FP), BX
	VXORPS        Y12, Y12, Y12           // loss: the group, lanes 0 to 7
	VXORPS        Y13, Y13, Y13           // lanes 8 to 15
	VXORPS        Y14, Y14, Y14           // logRatio
	VXORPS        Y15, Y15, Y15
	MOVQ          384(BX), R12            // tokens: all, less the masked
	MOVQ          392(BX), R13            // clipped
	MOVQ          $8, left-72(SP)         // chunks left in the group

surrogate:
	SURROGATE8(0, 0, Y12, Y14)
	SURROGATE8(32, 8, Y13, Y15)
	ADDQ          $16, R12
	ADDQ          $64, SI
	ADDQ          $64, R8
	ADDQ          $64, R9
	ADDQ          R11, R10
	ADDQ          $16, DX
	ADDQ          $64, DI
	DECQ          left-72(SP)
	JNE           surrogate_next
	FLUSH(Y12, X12, 0)
	FLUSH(Y13, X13, 64)
	FLUSH(Y14, X14, 192)
	FLUSH(Y15, X15, 256)
	MOVQ          $8, left-72(SP)

surrogate_next:
	DECQ          CX
	JNE           surrogate
	VMOVUPS       Y12, 128(BX)
	VMOVUPS       Y13, 160(BX)
	VMOVUPS       Y14, 320(BX)
	VMOVUPS       Y15, 352(BX)
	MOVQ          R12, 384(BX)
	MOVQ          R13, 392(BX)
	VZEROUPPER
	RET
