//go:build !noasm && !purego

#include "textflag.h"

// The kernels on tokens with AVX-512 (F, VL, DQ, BW), in whole
// chunks of 16 elements. Each is the loop of its twin in kernels_portable.go.

DATA const512t<>+0(SB)/4, $-125.0        // minY
DATA const512t<>+4(SB)/4, $120.0         // maxY
DATA const512t<>+8(SB)/4, $0x3aadfb33    // exp2C5
DATA const512t<>+12(SB)/4, $0x3c1e76a9   // exp2C4
DATA const512t<>+16(SB)/4, $0x3d635b62   // exp2C3
DATA const512t<>+20(SB)/4, $0x3e75fcda   // exp2C2
DATA const512t<>+24(SB)/4, $0x3f317215   // exp2C1
DATA const512t<>+28(SB)/4, $1.0
DATA const512t<>+32(SB)/4, $-20.0
DATA const512t<>+36(SB)/4, $20.0
DATA const512t<>+40(SB)/4, $0x3fb8aa3b   // log2(e)
DATA const512t<>+44(SB)/4, $0x80000000   // sign bit
DATA const512t<>+48(SB)/4, $0x7fff       // rounds to bfloat16
DATA const512t<>+52(SB)/4, $0x40         // makes a NaN quiet
DATA const512t<>+56(SB)/4, $1
DATA const512t<>+60(SB)/4, $2
GLOBL const512t<>(SB), RODATA|NOPTR, $64

#define MINY Z18
#define MAXY Z19
#define C5 Z20
#define C4 Z21
#define C3 Z22
#define C2 Z23
#define C1 Z24
#define ONE Z25

#define EXP2_CONSTANTS \
	VBROADCASTSS const512t<>+0(SB), MINY; \
	VBROADCASTSS const512t<>+4(SB), MAXY; \
	VBROADCASTSS const512t<>+8(SB), C5; \
	VBROADCASTSS const512t<>+12(SB), C4; \
	VBROADCASTSS const512t<>+16(SB), C3; \
	VBROADCASTSS const512t<>+20(SB), C2; \
	VBROADCASTSS const512t<>+24(SB), C1; \
	VBROADCASTSS const512t<>+28(SB), ONE

// EXP2: p = 2^y; f is overwritten.
#define EXP2(y, f, p) \
	VREDUCEPS   $8, y, f; \
	VMOVAPS     C5, p; \
	VFMADD213PS C4, f, p; \
	VFMADD213PS C3, f, p; \
	VFMADD213PS C2, f, p; \
	VFMADD213PS C1, f, p; \
	VFMADD213PS ONE, f, p; \
	VSUBPS      f, y, f; \
	VSCALEFPS   f, p, p

// CLAMP: y into [MINY, MAXY], NaN stays.
#define CLAMP(y) VMAXPS y, MINY, y; VMINPS y, MAXY, y

// FLUSH adds the group's 16 float32 of g (lower half y) to the float64 lo and hi,
// and empties it.
#define FLUSH(g, y, lo, hi) \
	VCVTPS2PD     y, Z0; \
	VEXTRACTF32X8 $1, g, Y1; \
	VCVTPS2PD     Y1, Z1; \
	VADDPD        Z0, lo, lo; \
	VADDPD        Z1, hi, hi; \
	VPXORD        g, g, g

// func maskedMomentsAVX512(x *float32, role *uint8, chunks, roles int, shift float64, m *momentSums)
//
//	d = float64(x) - shift, where 1<<role is in roles
//	m.sum, m.squares, m.count = m.sum+d, m.squares+d*d, m.count+1
TEXT ·maskedMomentsAVX512(SB), NOSPLIT, $0-48
	MOVQ          x+0(FP), SI
	MOVQ          role+8(FP), DX
	MOVQ          chunks+16(FP), CX
	VPBROADCASTD  roles+24(FP), Z16
	VBROADCASTSD  shift+32(FP), Z17
	VPBROADCASTD  const512t<>+56(SB), Z18 // 1
	MOVQ          m+40(FP), DI
	VMOVUPD       0(DI), Z4
	VMOVUPD       64(DI), Z5
	VMOVUPD       128(DI), Z6
	VMOVUPD       192(DI), Z7
	MOVQ          256(DI), R8

moments:
	VPMOVZXBD     (DX), Z0
	VPSLLVD       Z0, Z18, Z0             // 1 << role
	VPTESTMD      Z16, Z0, K1
	KSHIFTRW      $8, K1, K2
	KMOVW         K1, AX
	POPCNTL       AX, AX
	ADDQ          AX, R8
	VCVTPS2PD     (SI), Z0
	VCVTPS2PD     32(SI), Z1
	VSUBPD        Z17, Z0, Z0
	VSUBPD        Z17, Z1, Z1
	VADDPD        Z0, Z4, K1, Z4
	VADDPD        Z1, Z5, K2, Z5
	VMULPD        Z0, Z0, Z0              // rounded: the twin does not fuse here
	VMULPD        Z1, Z1, Z1
	VADDPD        Z0, Z6, K1, Z6
	VADDPD        Z1, Z7, K2, Z7
	ADDQ          $64, SI
	ADDQ          $16, DX
	DECQ          CX
	JNE           moments
	VMOVUPD       Z4, 0(DI)
	VMOVUPD       Z5, 64(DI)
	VMOVUPD       Z6, 128(DI)
	VMOVUPD       Z7, 192(DI)
	MOVQ          R8, 256(DI)
	VZEROUPPER
	RET

// func actFocusWeightsAVX512(dst, signal *float32, role *uint8, chunks int, q *actFocusConsts)
//
//	d = (signal - muHi) - muLo
//	dst = action: 1 + beta / (1 + 2^clamp(d*k)); reasoning: alpha; masked: 0
TEXT ·actFocusWeightsAVX512(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DI
	MOVQ          signal+8(FP), SI
	MOVQ          role+16(FP), DX
	MOVQ          chunks+24(FP), CX
	MOVQ          q+32(FP), BX
	EXP2_CONSTANTS
	VBROADCASTSS  0(BX), Z16              // muHi
	VBROADCASTSS  4(BX), Z17              // muLo
	VBROADCASTSS  8(BX), Z26              // k
	VBROADCASTSS  12(BX), Z27             // alpha
	VBROADCASTSS  16(BX), Z28             // beta
	VPBROADCASTD  const512t<>+56(SB), Z29 // 1
	VPBROADCASTD  const512t<>+60(SB), Z30 // 2

weights:
	VPMOVZXBD     (DX), Z0
	VPCMPEQD      Z29, Z0, K1             // reasoning
	VPCMPEQD      Z30, Z0, K2             // action
	VMOVAPS.Z     Z27, K1, Z5             // alpha, or 0
	KTESTW        K2, K2
	JEQ           weights_store           // 96 tokens of 100 need no exponential
	VMOVUPS       (SI), Z0
	VSUBPS        Z16, Z0, Z0
	VSUBPS        Z17, Z0, Z0
	VMULPS        Z26, Z0, Z0
	CLAMP(Z0)
	EXP2(Z0, Z1, Z2)
	VADDPS        ONE, Z2, Z2
	VDIVPS        Z2, Z28, Z2
	VADDPS        ONE, Z2, K2, Z5

weights_store:
	VMOVUPS       Z5, (DI)
	ADDQ          $64, SI
	ADDQ          $16, DX
	ADDQ          $64, DI
	DECQ          CX
	JNE           weights
	VZEROUPPER
	RET

// func expScaleAVX512(dst, x *float32, chunks int, lo, k float32, sum *laneSum)
//
//	dst = 2^clamp((x - lo) * k); sum += dst
TEXT ·expScaleAVX512(SB), NOSPLIT, $0-40
	MOVQ          dst+0(FP), DI
	MOVQ          x+8(FP), SI
	MOVQ          chunks+16(FP), CX
	VBROADCASTSS  lo+24(FP), Z16
	VBROADCASTSS  k+28(FP), Z17
	MOVQ          sum+32(FP), BX
	EXP2_CONSTANTS
	VMOVUPD       0(BX), Z4
	VMOVUPD       64(BX), Z5
	VPXORD        Z6, Z6, Z6              // the group
	MOVQ          $8, R8                  // chunks left in it

exp:
	VMOVUPS       (SI), Z0
	VSUBPS        Z16, Z0, Z0
	VMULPS        Z17, Z0, Z0
	CLAMP(Z0)
	EXP2(Z0, Z1, Z2)
	VMOVUPS       Z2, (DI)
	VADDPS        Z2, Z6, Z6
	ADDQ          $64, SI
	ADDQ          $64, DI
	DECQ          R8
	JNE           exp_next
	FLUSH(Z6, Y6, Z4, Z5)
	MOVQ          $8, R8

exp_next:
	DECQ          CX
	JNE           exp
	VMOVUPD       Z4, 0(BX)
	VMOVUPD       Z5, 64(BX)
	VMOVUPS       Z6, 128(BX)
	VZEROUPPER
	RET

// func scaleAVX512(dst *float32, chunks int, f float32)
//
//	dst = f * dst
TEXT ·scaleAVX512(SB), NOSPLIT, $0-20
	MOVQ          dst+0(FP), DI
	MOVQ          chunks+8(FP), CX
	VBROADCASTSS  f+16(FP), Z16

scale:
	VMULPS        (DI), Z16, Z0
	VMOVUPS       Z0, (DI)
	ADDQ          $64, DI
	DECQ          CX
	JNE           scale
	VZEROUPPER
	RET

// func multiplyAVX512(dst, a, b *float32, chunks int)
//
//	dst = a * b
TEXT ·multiplyAVX512(SB), NOSPLIT, $0-32
	MOVQ          dst+0(FP), DI
	MOVQ          a+8(FP), SI
	MOVQ          b+16(FP), DX
	MOVQ          chunks+24(FP), CX

multiply:
	VMOVUPS       (SI), Z0
	VMULPS        (DX), Z0, Z0
	VMOVUPS       Z0, (DI)
	ADDQ          $64, SI
	ADDQ          $64, DX
	ADDQ          $64, DI
	DECQ          CX
	JNE           multiply
	VZEROUPPER
	RET

// func surrogateAVX512(grad, logprobs, old, adv, weights *float32, stride int, role *uint8, chunks int, q *surrogateConsts, sums *surrogateSums)
//
// weights advances by stride bytes a chunk: 0 for sixteen ones.
//
//	d = logprobs - old; dc = clamp(d, -20, 20); rho = e^dc; n = -adv
//	l1, l2, l3 = n*rho, n*clamp(rho, lo, hi), n*dual
//	l = l2 > l1 ? l2 : l1; n > 0 && l > l3: l = l3
//	g = l1, or 0 where l is not l1 or dc is not d
//	where role is not masked: loss += w*l; logRatio += dc; grad = w*g*scale; else grad = 0
TEXT ·surrogateAVX512(SB), NOSPLIT, $8-80
	MOVQ          grad+0(FP), DI
	MOVQ          logprobs+8(FP), SI
	MOVQ          old+16(FP), R8
	MOVQ          adv+24(FP), R9
	MOVQ          weights+32(FP), R10
	MOVQ          stride+40(FP), R11
	MOVQ          role+48(FP), DX
	MOVQ          chunks+56(FP), CX
	MOVQ          q+64(FP), BX
	EXP2_CONSTANTS
	VBROADCASTSS  const512t<>+32(SB), MINY // -20
	VBROADCASTSS  const512t<>+36(SB), MAXY // 20
	VBROADCASTSS  0(BX), Z16              // lo
	VBROADCASTSS  4(BX), Z17              // hi
	VBROADCASTSS  8(BX), Z26              // dual
	VBROADCASTSS  12(BX), Z27             // scale
	VBROADCASTSS  const512t<>+40(SB), Z28 // log2(e)
	VPBROADCASTD  const512t<>+44(SB), Z29 // sign bit
	VPXORD        Z30, Z30, Z30           // 0
	MOVQ          sums+72(FP), BX
	VMOVUPD       0(BX), Z12              // loss
	VMOVUPD       64(BX), Z13
	VMOVUPD       192(BX), Z14            // logRatio
	VMOVUPD       256(BX), Z15
	VPXORD        Z10, Z10, Z10           // their groups
	VPXORD        Z11, Z11, Z11
	MOVQ          384(BX), R12            // tokens
	MOVQ          392(BX), R13            // clipped
	MOVQ          $8, left-8(SP)          // chunks left in the group

surrogate:
	VPMOVZXBD     (DX), Z0
	VPTESTMD      Z0, Z0, K1              // response tokens
	VMOVUPS       (SI), Z0
	VSUBPS        (R8), Z0, Z0            // d
	VCMPPS        $17, MINY, Z0, K2       // d < -20
	VCMPPS        $30, MAXY, Z0, K3       // d > 20
	KORW          K3, K2, K2
	CLAMP(Z0)
	VMULPS        Z28, Z0, Z1
	EXP2(Z1, Z2, Z3)                      // rho
	VXORPS        (R9), Z29, Z4           // n
	VMULPS        Z3, Z4, Z5              // l1
	VMAXPS        Z3, Z16, Z3
	VMINPS        Z3, Z17, Z3
	VMULPS        Z3, Z4, Z6              // l2
	VCMPPS        $30, Z5, Z6, K3         // l2 > l1: clipped
	KORW          K3, K2, K2
	VMAXPS        Z5, Z6, Z7              // l, l1 if one is NaN
	VMULPS        Z26, Z4, Z8             // l3
	VCMPPS        $30, Z30, Z4, K4        // n > 0
	VCMPPS        $30, Z8, Z7, K4, K4     // and l > l3
	VMOVAPS       Z8, K4, Z7
	KORW          K4, K2, K2
	VMOVAPS       Z30, K2, Z5             // g
	VMOVUPS       (R10), Z9               // w
	VMULPS        Z7, Z9, Z7
	VMULPS        Z5, Z9, Z5
	VMULPS.Z      Z27, Z5, K1, Z5
	VMOVUPS       Z5, (DI)
	KANDW         K1, K3, K3
	KMOVW         K1, AX
	POPCNTL       AX, AX
	ADDQ          AX, R12
	KMOVW         K3, AX
	POPCNTL       AX, AX
	ADDQ          AX, R13
	VADDPS        Z7, Z10, K1, Z10
	VADDPS        Z0, Z11, K1, Z11
	ADDQ          $64, SI
	ADDQ          $64, R8
	ADDQ          $64, R9
	ADDQ          R11, R10
	ADDQ          $16, DX
	ADDQ          $64, DI
	DECQ          left-8(SP)
	JNE           surrogate_next
	FLUSH(Z10, Y10, Z12, Z13)
	FLUSH(Z11, Y11, Z14, Z15)
	MOVQ          $8, left-8(SP)

surrogate_next:
	DECQ          CX
	JNE           surrogate
	VMOVUPD       Z12, 0(BX)
	VMOVUPD       Z13, 64(BX)
	VMOVUPS       Z10, 128(BX)
	VMOVUPD       Z14, 192(BX)
	VMOVUPD       Z15, 256(BX)
	VMOVUPS       Z11, 320(BX)
	MOVQ          R12, 384(BX)
	MOVQ          R13, 392(BX)
	VZEROUPPER
	RET

// func spanSumsAVX512(sums *float64, x *float32, offsets *int32, n int)
//
//	for each span {
//		d = 0                              // 16 lanes of float64
//		for blocks of 1,024 {
//			b = 0                          // 16 lanes of float32
//			for groups of 128 { b += the group's lanes, summed from 0 }
//			d += b
//		}
//		sums[s] = tree(d)
//	}
TEXT ·spanSumsAVX512(SB), NOSPLIT, $0-32
	MOVQ          sums+0(FP), DI
	MOVQ          x+8(FP), R8
	MOVQ          offsets+16(FP), R9
	MOVQ          n+24(FP), R10
	VPXORD        Z16, Z16, Z16

span:
	MOVLQSX       0(R9), AX
	MOVLQSX       4(R9), R11
	LEAQ          (R8)(AX*4), SI
	SUBQ          AX, R11                 // elements left in the span
	VPXORD        Z4, Z4, Z4
	VPXORD        Z5, Z5, Z5

span_block:
	MOVQ          $1024, R12              // elements left in the block
	CMPQ          R11, R12
	CMOVQLT       R11, R12
	SUBQ          R12, R11
	VPXORD        Z6, Z6, Z6

span_group:
	CMPQ          R12, $128
	JLT           span_rest
	SUBQ          $128, R12
	VADDPS        (SI), Z16, Z0
	VADDPS        64(SI), Z0, Z0
	VADDPS        128(SI), Z0, Z0
	VADDPS        192(SI), Z0, Z0
	VADDPS        256(SI), Z0, Z0
	VADDPS        320(SI), Z0, Z0
	VADDPS        384(SI), Z0, Z0
	VADDPS        448(SI), Z0, Z0
	ADDQ          $512, SI
	VADDPS        Z0, Z6, Z6
	JMP           span_group

span_rest:
	TESTQ         R12, R12
	JEQ           span_flush
	VPXORD        Z0, Z0, Z0

span_chunk:
	SUBQ          $16, R12
	JLT           span_tail
	VADDPS        (SI), Z0, Z0
	ADDQ          $64, SI
	JMP           span_chunk

span_tail:
	ADDQ          $16, R12
	MOVQ          R12, CX
	MOVL          $1, AX
	SHLL          CX, AX
	DECL          AX
	KMOVW         AX, K1                  // the lanes that are there, perhaps none
	VADDPS        (SI), Z0, K1, Z0
	VADDPS        Z0, Z6, Z6

span_flush:
	VCVTPS2PD     Y6, Z0
	VEXTRACTF32X8 $1, Z6, Y6
	VCVTPS2PD     Y6, Z1
	VADDPD        Z0, Z4, Z4
	VADDPD        Z1, Z5, Z5
	TESTQ         R11, R11
	JNE           span_block
	VADDPD        Z5, Z4, Z4              // lanes j and j+8
	VEXTRACTF64X4 $1, Z4, Y0
	VADDPD        Y0, Y4, Y0              // j+4
	VEXTRACTF128  $1, Y0, X1
	VADDPD        X1, X0, X0              // j+2
	VUNPCKHPD     X0, X0, X1
	VADDSD        X1, X0, X0              // j+1
	VMOVSD        X0, (DI)
	ADDQ          $8, DI
	ADDQ          $4, R9
	DECQ          R10
	JNE           span
	VZEROUPPER
	RET
