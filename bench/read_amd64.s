//go:build !noasm && !purego

#include "textflag.h"

// func sumAVX512(x *uint64, n int) uint64
//
// Reads n*8 bytes, 256 at a time; n is a multiple of 32.
TEXT ·sumAVX512(SB), NOSPLIT, $0-24
	MOVQ          x+0(FP), SI
	MOVQ          n+8(FP), CX
	VPXORQ        Z0, Z0, Z0
	VPXORQ        Z1, Z1, Z1
	VPXORQ        Z2, Z2, Z2
	VPXORQ        Z3, Z3, Z3

wide:
	SUBQ          $32, CX
	JLT           wide_done
	VPADDQ        (SI), Z0, Z0
	VPADDQ        64(SI), Z1, Z1
	VPADDQ        128(SI), Z2, Z2
	VPADDQ        192(SI), Z3, Z3
	ADDQ          $256, SI
	JMP           wide

wide_done:
	VPADDQ        Z1, Z0, Z0
	VPADDQ        Z3, Z2, Z2
	VPADDQ        Z2, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPADDQ        Y1, Y0, Y0
	VEXTRACTI128  $1, Y0, X1
	VPADDQ        X1, X0, X0
	VPSRLDQ       $8, X0, X1
	VPADDQ        X1, X0, X0
	VMOVQ         X0, ret+16(FP)
	VZEROUPPER
	RET

// func sumAVX2(x *uint64, n int) uint64
//
// Reads n*8 bytes, 256 at a time; n is a multiple of 32.
TEXT ·sumAVX2(SB), NOSPLIT, $0-24
	MOVQ          x+0(FP), SI
	MOVQ          n+8(FP), CX
	VPXOR         Y0, Y0, Y0
	VPXOR         Y1, Y1, Y1
	VPXOR         Y2, Y2, Y2
	VPXOR         Y3, Y3, Y3

narrow:
	SUBQ          $32, CX
	JLT           narrow_done
	VPADDQ        (SI), Y0, Y0
	VPADDQ        32(SI), Y1, Y1
	VPADDQ        64(SI), Y2, Y2
	VPADDQ        96(SI), Y3, Y3
	VPADDQ        128(SI), Y0, Y0
	VPADDQ        160(SI), Y1, Y1
	VPADDQ        192(SI), Y2, Y2
	VPADDQ        224(SI), Y3, Y3
	ADDQ          $256, SI
	JMP           narrow

narrow_done:
	VPADDQ        Y1, Y0, Y0
	VPADDQ        Y3, Y2, Y2
	VPADDQ        Y2, Y0, Y0
	VEXTRACTI128  $1, Y0, X1
	VPADDQ        X1, X0, X0
	VPSRLDQ       $8, X0, X1
	VPADDQ        X1, X0, X0
	VMOVQ         X0, ret+16(FP)
	VZEROUPPER
	RET
