//go:build !noasm && !purego

#include "textflag.h"

// Sums of spans and extremes of groups with AVX2. Each is the loop of its twin in
// kernels_portable.go.

// Eight int32 of -1, then eight of 0: from the place of -n elements before the
// middle on, a mask for n.
DATA spans256<>+0(SB)/8, $-1
DATA spans256<>+8(SB)/8, $-1
DATA spans256<>+16(SB)/8, $-1
DATA spans256<>+24(SB)/8, $-1
DATA spans256<>+32(SB)/8, $0
DATA spans256<>+40(SB)/8, $0
DATA spans256<>+48(SB)/8, $0
DATA spans256<>+56(SB)/8, $0
DATA spans256<>+64(SB)/4, $0x7f800000 // +Inf
DATA spans256<>+68(SB)/4, $0xff800000 // -Inf
GLOBL spans256<>(SB), RODATA|NOPTR, $72

// func spanSumsAVX2(sums *float64, x *float32, offsets *int32, n int)
//
// The loop is that of spanSumsAVX512, two vectors a chunk.
TEXT ·spanSumsAVX2(SB), NOSPLIT, $0-32
	MOVQ          sums+0(FP), DI
	MOVQ          x+8(FP), R8
	MOVQ          offsets+16(FP), R9
	MOVQ          n+24(FP), R10
	VXORPS        Y15, Y15, Y15
	LEAQ          spans256<>+0(SB), BX

span:
	MOVLQSX       0(R9), AX
	MOVLQSX       4(R9), R11
	LEAQ          (R8)(AX*4), SI
	SUBQ          AX, R11                 // elements left in the span
	VXORPS        Y4, Y4, Y4
	VXORPS        Y5, Y5, Y5
	VXORPS        Y6, Y6, Y6
	VXORPS        Y7, Y7, Y7

span_block:
	MOVQ          $1024, R12              // elements left in the block
	CMPQ          R11, R12
	CMOVQLT       R11, R12
	SUBQ          R12, R11
	VXORPS        Y8, Y8, Y8
	VXORPS        Y9, Y9, Y9

span_group:
	CMPQ          R12, $128
	JLT           span_rest
	SUBQ          $128, R12
	VADDPS        (SI), Y15, Y0
	VADDPS        32(SI), Y15, Y1
	VADDPS        64(SI), Y0, Y0
	VADDPS        96(SI), Y1, Y1
	VADDPS        128(SI), Y0, Y0
	VADDPS        160(SI), Y1, Y1
	VADDPS        192(SI), Y0, Y0
	VADDPS        224(SI), Y1, Y1
	VADDPS        256(SI), Y0, Y0
	VADDPS        288(SI), Y1, Y1
	VADDPS        320(SI), Y0, Y0
	VADDPS        352(SI), Y1, Y1
	VADDPS        384(SI), Y0, Y0
	VADDPS        416(SI), Y1, Y1
	VADDPS        448(SI), Y0, Y0
	VADDPS        480(SI), Y1, Y1
	ADDQ          $512, SI
	VADDPS        Y0, Y8, Y8
	VADDPS        Y1, Y9, Y9
	JMP           span_group

span_rest:
	TESTQ         R12, R12
	JEQ           span_flush
	VXORPS        Y0, Y0, Y0
	VXORPS        Y1, Y1, Y1

span_chunk:
	SUBQ          $16, R12
	JLT           span_tail
	VADDPS        (SI), Y0, Y0
	VADDPS        32(SI), Y1, Y1
	ADDQ          $64, SI
	JMP           span_chunk

span_tail:
	ADDQ          $16, R12                // 0 to 15 elements: 0 is added where none is
	MOVQ          $8, AX
	CMPQ          R12, AX
	CMOVQLT       R12, AX                 // in the lower half
	SUBQ          AX, R12                 // in the upper
	NEGQ          AX
	NEGQ          R12
	VMOVUPS       32(BX)(AX*4), Y2
	VMOVUPS       32(BX)(R12*4), Y3
	VMASKMOVPS    (SI), Y2, Y2
	VMASKMOVPS    32(SI), Y3, Y3
	VADDPS        Y2, Y0, Y0
	VADDPS        Y3, Y1, Y1
	VADDPS        Y0, Y8, Y8
	VADDPS        Y1, Y9, Y9
	XORQ          R12, R12

span_flush:
	VCVTPS2PD     X8, Y0
	VEXTRACTF128  $1, Y8, X8
	VCVTPS2PD     X8, Y1
	VCVTPS2PD     X9, Y2
	VEXTRACTF128  $1, Y9, X9
	VCVTPS2PD     X9, Y3
	VADDPD        Y0, Y4, Y4
	VADDPD        Y1, Y5, Y5
	VADDPD        Y2, Y6, Y6
	VADDPD        Y3, Y7, Y7
	TESTQ         R11, R11
	JNE           span_block
	VADDPD        Y6, Y4, Y4              // lanes j and j+8
	VADDPD        Y7, Y5, Y5
	VADDPD        Y5, Y4, Y0              // j+4
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

// func minMaxAVX2(lo, hi, x *float32, offsets *int32, n int)
//
//	for each group {
//		mn, mx, bad = +Inf, -Inf, false    // 8 lanes
//		for 8 elements or what is left { mn, mx, bad = min(mn, x), max(mx, x), bad || x != x }
//		lo, hi = least(mn)+0, largest(mx)+0, or NaN if bad
//	}
TEXT ·minMaxAVX2(SB), NOSPLIT, $0-40
	MOVQ          lo+0(FP), DI
	MOVQ          hi+8(FP), DX
	MOVQ          x+16(FP), R8
	MOVQ          offsets+24(FP), R9
	MOVQ          n+32(FP), R10
	VBROADCASTSS  spans256<>+64(SB), Y14  // +Inf
	VBROADCASTSS  spans256<>+68(SB), Y15  // -Inf
	VXORPS        X13, X13, X13
	LEAQ          spans256<>+0(SB), BX

minmax_group:
	MOVLQSX       0(R9), AX
	MOVLQSX       4(R9), CX
	LEAQ          (R8)(AX*4), SI
	SUBQ          AX, CX                  // elements left in the group
	VMOVAPS       Y14, Y4
	VMOVAPS       Y15, Y5
	VXORPS        Y6, Y6, Y6

minmax_8:
	SUBQ          $8, CX
	JLT           minmax_tail
	VMOVUPS       (SI), Y0
	VMINPS        Y0, Y4, Y4
	VMAXPS        Y0, Y5, Y5
	VCMPPS        $3, Y0, Y0, Y0
	VORPS         Y0, Y6, Y6
	ADDQ          $32, SI
	JMP           minmax_8

minmax_tail:
	ADDQ          $8, CX
	JEQ           minmax_reduce
	NEGQ          CX
	VMOVUPS       32(BX)(CX*4), Y1
	VMASKMOVPS    (SI), Y1, Y0
	VBLENDVPS     Y1, Y0, Y14, Y2
	VBLENDVPS     Y1, Y0, Y15, Y3
	VMINPS        Y2, Y4, Y4
	VMAXPS        Y3, Y5, Y5
	VCMPPS        $3, Y0, Y0, Y0
	VORPS         Y0, Y6, Y6

minmax_reduce:
	VEXTRACTF128  $1, Y4, X0
	VEXTRACTF128  $1, Y5, X1
	VMINPS        X0, X4, X0
	VMAXPS        X1, X5, X1
	VPERMILPS     $0x4e, X0, X2
	VPERMILPS     $0x4e, X1, X3
	VMINPS        X2, X0, X0
	VMAXPS        X3, X1, X1
	VPERMILPS     $0xb1, X0, X2
	VPERMILPS     $0xb1, X1, X3
	VMINSS        X2, X0, X0
	VMAXSS        X3, X1, X1
	VADDSS        X13, X0, X0             // +0 for -0
	VADDSS        X13, X1, X1
	VMOVMSKPS     Y6, AX
	TESTL         AX, AX
	JEQ           minmax_store
	VPCMPEQD      X0, X0, X0              // NaN
	VMOVAPS       X0, X1

minmax_store:
	VMOVSS        X0, (DI)
	VMOVSS        X1, (DX)
	ADDQ          $4, DI
	ADDQ          $4, DX
	ADDQ          $4, R9
	DECQ          R10
	JNE           minmax_group
	VZEROUPPER
	RET
