//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"

// The loops with AVX2, 8 lanes of float32 a vector. The arithmetic and its order are those of the
// portable loops: no product is fused with a sum.

// func multiplyRowAVX2(c *float32, columns int, a *float32, step int, b *float32, inner int)
//
// A block of 32 columns has its sums in 4 registers while it goes over inner. The last block may
// have less: masks leave out the other lanes.

#define C_PTR DI
#define LEFT CX    // columns left
#define A_START SI
#define A_PTR AX
#define STEP DX    // bytes from a number of a to the next
#define B_START BX // the block in the first row of b
#define B_PTR R8
#define ROW R9     // bytes of a row of b
#define INNER R10
#define K R11      // numbers of a left
#define TEMP R12

#define SUM0 Y0
#define SUM1 Y1
#define SUM2 Y2
#define SUM3 Y3
#define B0 Y4 // of b, then their products
#define B1 Y5
#define B2 Y6
#define B3 Y7
#define A Y8  // a number of a in all lanes
#define MASK0 Y9
#define MASK1 Y10
#define MASK2 Y11
#define MASK3 Y12

#define BLOCK 32 // columns

// ADD_PRODUCT adds a number of a times those of b to the sums and steps over them.
#define ADD_PRODUCT \
	VBROADCASTSS  (A_PTR), A; \
	VMULPS        A, B0, B0; \
	VMULPS        A, B1, B1; \
	VMULPS        A, B2, B2; \
	VMULPS        A, B3, B3; \
	VADDPS        B0, SUM0, SUM0; \
	VADDPS        B1, SUM1, SUM1; \
	VADDPS        B2, SUM2, SUM2; \
	VADDPS        B3, SUM3, SUM3; \
	ADDQ          STEP, A_PTR; \
	ADDQ          ROW, B_PTR; \
	DECQ          K

TEXT ·multiplyRowAVX2(SB), NOSPLIT, $0-48
	MOVQ          c+0(FP), C_PTR
	MOVQ          columns+8(FP), LEFT
	MOVQ          a+16(FP), A_START
	MOVQ          step+24(FP), STEP
	MOVQ          b+32(FP), B_START
	MOVQ          inner+40(FP), INNER
	SHLQ          $2, STEP
	LEAQ          (LEFT*4), ROW

multiply_block:
	MOVQ          A_START, A_PTR
	MOVQ          B_START, B_PTR
	MOVQ          INNER, K
	CMPQ          LEFT, $BLOCK
	JLT           multiply_part
	VMOVUPS       (C_PTR), SUM0
	VMOVUPS       32(C_PTR), SUM1
	VMOVUPS       64(C_PTR), SUM2
	VMOVUPS       96(C_PTR), SUM3

multiply_whole:
	VMOVUPS       (B_PTR), B0
	VMOVUPS       32(B_PTR), B1
	VMOVUPS       64(B_PTR), B2
	VMOVUPS       96(B_PTR), B3
	ADD_PRODUCT
	JNE           multiply_whole
	VMOVUPS       SUM0, (C_PTR)
	VMOVUPS       SUM1, 32(C_PTR)
	VMOVUPS       SUM2, 64(C_PTR)
	VMOVUPS       SUM3, 96(C_PTR)
	ADDQ          $(4*BLOCK), C_PTR
	ADDQ          $(4*BLOCK), B_START
	SUBQ          $BLOCK, LEFT
	JNE           multiply_block
	VZEROUPPER
	RET

multiply_part:
	SHLQ          $2, LEFT
	LEAQ          ·masks+(4*BLOCK)(SB), TEMP
	SUBQ          LEFT, TEMP
	VMOVUPS       (TEMP), MASK0
	VMOVUPS       32(TEMP), MASK1
	VMOVUPS       64(TEMP), MASK2
	VMOVUPS       96(TEMP), MASK3
	VMASKMOVPS    (C_PTR), MASK0, SUM0
	VMASKMOVPS    32(C_PTR), MASK1, SUM1
	VMASKMOVPS    64(C_PTR), MASK2, SUM2
	VMASKMOVPS    96(C_PTR), MASK3, SUM3

multiply_masked:
	VMASKMOVPS    (B_PTR), MASK0, B0
	VMASKMOVPS    32(B_PTR), MASK1, B1
	VMASKMOVPS    64(B_PTR), MASK2, B2
	VMASKMOVPS    96(B_PTR), MASK3, B3
	ADD_PRODUCT
	JNE           multiply_masked
	VMASKMOVPS    SUM0, MASK0, (C_PTR)
	VMASKMOVPS    SUM1, MASK1, 32(C_PTR)
	VMASKMOVPS    SUM2, MASK2, 64(C_PTR)
	VMASKMOVPS    SUM3, MASK3, 96(C_PTR)
	VZEROUPPER
	RET

#undef C_PTR
#undef LEFT
#undef A_START
#undef A_PTR
#undef STEP
#undef B_START
#undef B_PTR
#undef ROW
#undef INNER
#undef K
#undef TEMP
#undef A

// The constants, as operands.
#define LOG2E ·constants+0(SB)
#define ROUND ·constants+32(SB)
#define LN2HI ·constants+64(SB)
#define LN2LO ·constants+96(SB)
#define EXP2 ·constants+128(SB)
#define EXP3 ·constants+160(SB)
#define EXP4 ·constants+192(SB)
#define EXP5 ·constants+224(SB)
#define EXP6 ·constants+256(SB)
#define ONE ·constants+288(SB)
#define TWO ·constants+320(SB)
#define LARGEST ·constants+352(SB)    // 87, of sigmoid
#define LEAST ·constants+384(SB)      // -87
#define LARGEST_TANH ·constants+416(SB) // 10
#define EXPONENT ·constants+448(SB)   // 127, an integer
#define SIGN ·constants+480(SB)

#define ABOVE $0x1e // predicates of a comparison, which a NaN does not satisfy
#define BELOW $0x11

// EXP gives 2^k in SCALE and 2^k (e^r - 1) in PART, where X = k ln 2 + r. X is lost.
#define SCALE Y9
#define PART Y10
#define T Y11
#define EXP(X) \
	VMULPS        LOG2E, X, SCALE; \
	VADDPS        ROUND, SCALE, SCALE; \ // k stands in the lowest bits
	VSUBPS        ROUND, SCALE, T; \     // k
	VMULPS        LN2HI, T, PART; \
	VSUBPS        PART, X, X; \
	VMULPS        LN2LO, T, PART; \
	VSUBPS        PART, X, X; \          // r
	VPADDD        EXPONENT, SCALE, SCALE; \
	VPSLLD        $23, SCALE, SCALE; \
	VMULPS        EXP6, X, PART; \
	VADDPS        EXP5, PART, PART; \
	VMULPS        X, PART, PART; \
	VADDPS        EXP4, PART, PART; \
	VMULPS        X, PART, PART; \
	VADDPS        EXP3, PART, PART; \
	VMULPS        X, PART, PART; \
	VADDPS        EXP2, PART, PART; \
	VMULPS        X, X, T; \
	VMULPS        PART, T, PART; \
	VADDPS        PART, X, PART; \       // e^r - 1
	VMULPS        PART, SCALE, PART

// SIGMOID sets X to 1 / (1 + e^-X).
#define SIGMOID(X) \
	VCMPPS        ABOVE, LARGEST, X, Y12; \
	VCMPPS        BELOW, LEAST, X, Y13; \
	VXORPS        SIGN, X, X; \
	EXP(X); \
	VMOVUPS       ONE, T; \
	VADDPS        T, SCALE, SCALE; \
	VADDPS        PART, SCALE, SCALE; \
	VDIVPS        SCALE, T, X; \
	VBLENDVPS     Y12, T, X, X; \ // 1 above the largest
	VANDNPS       X, Y13, X        // 0 below the least

// TANH sets X to (e^2X - 1) / (e^2X + 1).
#define TANH(X) \
	VMOVUPS       SIGN, T; \
	VANDNPS       X, T, Y12; \                     // |X|
	VANDPS        X, T, Y13; \
	VORPS         ONE, Y13, Y13; \                 // 1 with the sign of X
	VCMPPS        ABOVE, LARGEST_TANH, Y12, Y12; \
	VMULPS        TWO, X, X; \
	EXP(X); \
	VSUBPS        ONE, SCALE, SCALE; \
	VADDPS        PART, SCALE, SCALE; \
	VADDPS        TWO, SCALE, PART; \
	VDIVPS        PART, SCALE, X; \
	VBLENDVPS     Y12, Y13, X, X

// func cellAVX2(next, candidate, gates, input, previous *float32, h, vectors int)

#define NEXT DI
#define CANDIDATE SI
#define GATES AX // of r; those of z are H numbers behind it, and so on
#define INPUT BX
#define PREVIOUS CX
#define H DX
#define VECTORS R8

#define R Y0
#define Z Y1
#define N Y2
#define P Y3

TEXT ·cellAVX2(SB), NOSPLIT, $0-56
	MOVQ          next+0(FP), NEXT
	MOVQ          candidate+8(FP), CANDIDATE
	MOVQ          gates+16(FP), GATES
	MOVQ          input+24(FP), INPUT
	MOVQ          previous+32(FP), PREVIOUS
	MOVQ          h+40(FP), H
	MOVQ          vectors+48(FP), VECTORS

cell_vector:
	VMOVUPS       (GATES), R
	VADDPS        (INPUT), R, R
	SIGMOID(R)
	VMOVUPS       R, (GATES)
	VMOVUPS       (GATES)(H*4), Z
	VADDPS        (INPUT)(H*4), Z, Z
	SIGMOID(Z)
	VMOVUPS       Z, (GATES)(H*4)
	VMULPS        (GATES)(H*8), R, N
	VADDPS        (INPUT)(H*8), N, N
	TANH(N)
	VMOVUPS       N, (CANDIDATE)
	VMOVUPS       ONE, P
	VSUBPS        Z, P, P
	VMULPS        N, P, P              // (1-z) n
	VMULPS        (PREVIOUS), Z, Z
	VADDPS        Z, P, P
	VMOVUPS       P, (NEXT)
	ADDQ          $32, NEXT
	ADDQ          $32, CANDIDATE
	ADDQ          $32, GATES
	ADDQ          $32, INPUT
	ADDQ          $32, PREVIOUS
	DECQ          VECTORS
	JNE           cell_vector
	VZEROUPPER
	RET

#undef NEXT
#undef CANDIDATE
#undef GATES
#undef INPUT
#undef PREVIOUS
#undef H
#undef VECTORS
#undef R
#undef Z
#undef N
#undef P

// func backwardCellAVX2(of *cellGradient, vectors int)

#define CARRIED DI
#define OUTER SI
#define GATES AX
#define CANDIDATE BX
#define PREVIOUS CX
#define GRADIENT DX
#define INPUT R8
#define BIAS R9
#define H R10
#define VECTORS R11
#define OF R12

#define G Y0       // the gradient with respect to the state
#define R Y1
#define Z Y2
#define N Y3
#define GRAD_N Y4
#define GRAD Y5    // those of r, z and hidden in turn
#define FACTOR Y6
#define UNIT Y7    // 1 in all lanes
#define SUM Y8

// ADD_TO adds a gradient to what is at an address.
#define ADD_TO(at, gradient) \
	VADDPS        at, gradient, SUM; \
	VMOVUPS       SUM, at

TEXT ·backwardCellAVX2(SB), NOSPLIT, $0-16
	MOVQ          of+0(FP), OF
	MOVQ          vectors+8(FP), VECTORS
	MOVQ          cellGradient_carried(OF), CARRIED
	MOVQ          (cellGradient_carried+8)(OF), H
	MOVQ          cellGradient_outer(OF), OUTER
	MOVQ          cellGradient_gates(OF), GATES
	MOVQ          cellGradient_candidate(OF), CANDIDATE
	MOVQ          cellGradient_previous(OF), PREVIOUS
	MOVQ          cellGradient_gradient(OF), GRADIENT
	MOVQ          cellGradient_input(OF), INPUT
	MOVQ          cellGradient_bias(OF), BIAS
	VMOVUPS       ONE, UNIT

backward_vector:
	VMOVUPS       (CARRIED), G
	VADDPS        (OUTER), G, G
	VMOVUPS       (GATES), R
	VMOVUPS       (GATES)(H*4), Z
	VMOVUPS       (CANDIDATE), N
	VSUBPS        Z, UNIT, FACTOR
	VMULPS        FACTOR, G, GRAD_N
	VMULPS        N, N, SUM
	VSUBPS        SUM, UNIT, SUM
	VMULPS        SUM, GRAD_N, GRAD_N        // g (1-z) (1 - n^2)
	ADD_TO((INPUT)(H*8), GRAD_N)
	VMULPS        FACTOR, Z, FACTOR          // z (1-z)
	VMOVUPS       (PREVIOUS), GRAD
	VSUBPS        N, GRAD, GRAD
	VMULPS        GRAD, G, GRAD
	VMULPS        FACTOR, GRAD, GRAD
	VMOVUPS       GRAD, (GRADIENT)(H*4)
	ADD_TO((INPUT)(H*4), GRAD)
	ADD_TO((BIAS)(H*4), GRAD)
	VSUBPS        R, UNIT, FACTOR
	VMULPS        FACTOR, R, FACTOR          // r (1-r)
	VMULPS        (GATES)(H*8), GRAD_N, GRAD
	VMULPS        FACTOR, GRAD, GRAD
	VMOVUPS       GRAD, (GRADIENT)
	ADD_TO((INPUT), GRAD)
	ADD_TO((BIAS), GRAD)
	VMULPS        R, GRAD_N, GRAD
	VMOVUPS       GRAD, (GRADIENT)(H*8)
	ADD_TO((BIAS)(H*8), GRAD)
	VMULPS        Z, G, G
	VMOVUPS       G, (CARRIED)
	ADDQ          $32, CARRIED
	ADDQ          $32, OUTER
	ADDQ          $32, GATES
	ADDQ          $32, CANDIDATE
	ADDQ          $32, PREVIOUS
	ADDQ          $32, GRADIENT
	ADDQ          $32, INPUT
	ADDQ          $32, BIAS
	DECQ          VECTORS
	JNE           backward_vector
	VZEROUPPER
	RET
