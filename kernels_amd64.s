//go:build !noasm && !purego

#include "textflag.h"

// Rows of logits with AVX2 and FMA3. The arithmetic and its order are those of
// kernels_portable.go.

// Constants, a vector each: most are memory operands, for want of registers.
#define VECTOR(off, bits) \
	DATA const256<>+(off+0)(SB)/8, $(bits<<32|bits); \
	DATA const256<>+(off+8)(SB)/8, $(bits<<32|bits); \
	DATA const256<>+(off+16)(SB)/8, $(bits<<32|bits); \
	DATA const256<>+(off+24)(SB)/8, $(bits<<32|bits)
VECTOR(0, 0x3aadfb33)     // exp2C5
VECTOR(32, 0x3c1e76a9)    // exp2C4
VECTOR(64, 0x3d635b62)    // exp2C3
VECTOR(96, 0x3e75fcda)    // exp2C2
VECTOR(128, 0x3f317215)   // exp2C1
VECTOR(160, 0x3f800000)   // 1
VECTOR(192, 0x42fc0000)   // 126: above, 2^y would leave the range
VECTOR(224, 0x4b400000)   // magic
VECTOR(256, 0xc2fa0000)   // minY = -125
VECTOR(288, 0xff800000)   // -Inf
GLOBL const256<>(SB), RODATA|NOPTR, $320

#define C5 const256<>+0(SB)
#define C4 const256<>+32(SB)
#define C3 const256<>+64(SB)
#define C2 const256<>+96(SB)
#define C1 const256<>+128(SB)
#define ONE const256<>+160(SB)

#define X_PTR SI
#define TYPE AX      // 0 float32, 1 bfloat16, 2 float16
#define CHUNKS R8    // whole chunks of 16 left in the row
#define TAIL R9      // a last, padded chunk of float32, or 0
#define STATE DI
#define BLOCK R10    // chunks left in the block, the tail counted
#define GROUP R11    // chunks left in the group
#define START R12    // chunk where the block began
#define DONE R13     // chunks done
#define NEAR 2048    // bytes to prefetch ahead into the first cache: see PREFETCH for AVX-512
#define FAR 8192     // and into the second

#define GS0 Y8       // the group's sums of 2^y, lanes 0 to 7
#define GS1 Y9       // lanes 8 to 15
#define GT0 Y10      // the group's sums of y 2^y
#define GT1 Y11
#define K_ Y12
#define MINY Y13
#define MAXY Y14
#define MAGIC Y15

// LOAD2 reads 16 elements into Y0 and Y1 as float32 and steps over them.
#define LOAD2(bf16, f16, loaded) \
	CMPQ       TYPE, $1; \
	JEQ        bf16; \
	JHI        f16; \
	VMOVUPS    (X_PTR), Y0; \
	VMOVUPS    32(X_PTR), Y1; \
	ADDQ       $64, X_PTR; \
	JMP        loaded; \
bf16: \
	VPMOVZXWD  (X_PTR), Y0; \
	VPMOVZXWD  16(X_PTR), Y1; \
	VPSLLD     $16, Y0, Y0; \
	VPSLLD     $16, Y1, Y1; \
	ADDQ       $32, X_PTR; \
	JMP        loaded; \
f16: \
	VCVTPH2PS  (X_PTR), Y0; \
	VCVTPH2PS  16(X_PTR), Y1; \
	ADDQ       $32, X_PTR; \
loaded:

// FLUSH adds 8 float32 lanes to 8 float64 at off(STATE).
#define FLUSH(y, x, off) \
	VCVTPS2PD    x, Y0; \
	VEXTRACTF128 $1, y, X1; \
	VCVTPS2PD    X1, Y1; \
	VADDPD       off(STATE), Y0, Y0; \
	VADDPD       (32+off)(STATE), Y1, Y1; \
	VMOVUPD      Y0, off(STATE); \
	VMOVUPD      Y1, (32+off)(STATE)

// func rowBlocksAVX2(x unsafe.Pointer, typ, chunks int, tail *[16]float32, st *rowState, entropy bool) int
//
// The loop is that of rowBlocksAVX512, a chunk at a time. The block's sums live
// on the stack.
TEXT ·rowBlocksAVX2(SB), NOSPLIT, $192-56
	MOVQ          x+0(FP), X_PTR
	MOVQ          typ+8(FP), TYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	MOVQ          st+32(FP), STATE
	MOVBQZX       entropy+40(FP), DX
	VBROADCASTSS  0(STATE), K_
	MOVL          4(STATE), CX            // kLo's bits: 0 at temperature 1
	VBROADCASTSS  8(STATE), Y0
	VXORPS        Y1, Y1, Y1
	VSUBPS        Y0, Y1, Y0
	VMOVUPS       Y0, negc-192(SP)
	VMOVUPS       const256<>+256(SB), MINY
	VMOVUPS       const256<>+192(SB), MAXY
	VMOVUPS       const256<>+224(SB), MAGIC
	XORQ          DONE, DONE

block:
	MOVQ          CHUNKS, BLOCK
	CMPQ          TAIL, $1
	SBBQ          $-1, BLOCK              // + 1 if there is a tail
	TESTQ         BLOCK, BLOCK
	JEQ           done
	MOVQ          $64, BX
	CMPQ          BLOCK, BX
	CMOVQGT       BX, BLOCK
	MOVQ          DONE, START
	ADDQ          BLOCK, DONE
	VXORPS        Y0, Y0, Y0
	VMOVUPS       Y0, bs0-160(SP)
	VMOVUPS       Y0, bs1-128(SP)
	VMOVUPS       Y0, bt0-96(SP)
	VMOVUPS       Y0, bt1-64(SP)

group:
	MOVQ          $8, GROUP
	CMPQ          BLOCK, GROUP
	CMOVQLT       BLOCK, GROUP
	SUBQ          GROUP, BLOCK
	VXORPS        GS0, GS0, GS0
	VXORPS        GS1, GS1, GS1
	VXORPS        GT0, GT0, GT0
	VXORPS        GT1, GT1, GT1

chunk:
	SUBQ          $1, CHUNKS
	JCS           last
	LOAD2(bf16, f16, loaded)
	TESTL         CX, CX
	JNE           temperature
	VFMADD213PS   negc-192(SP), K_, Y0    // y = x*k - c
	VFMADD213PS   negc-192(SP), K_, Y1

y:
	VMAXPS        Y0, MINY, Y0            // NaN stays: it is the second operand
	VMAXPS        Y1, MINY, Y1
	VMINPS        Y0, MAXY, Y0            // a large y shows in the sums, and the row's maximum is taken then
	VMINPS        Y1, MAXY, Y1
	VADDPS        MAGIC, Y0, Y2           // the integer next to y, in the low bits
	VADDPS        MAGIC, Y1, Y3
	VSUBPS        MAGIC, Y2, Y4
	VSUBPS        MAGIC, Y3, Y5
	VSUBPS        Y4, Y0, Y4              // f
	VSUBPS        Y5, Y1, Y5
	VMOVUPS       C5, Y6
	VMOVUPS       C5, Y7
	VFMADD213PS   C4, Y4, Y6
	VFMADD213PS   C4, Y5, Y7
	VFMADD213PS   C3, Y4, Y6
	VFMADD213PS   C3, Y5, Y7
	VFMADD213PS   C2, Y4, Y6
	VFMADD213PS   C2, Y5, Y7
	PREFETCHT0    NEAR(X_PTR)
	PREFETCHT1    FAR(X_PTR)
	VFMADD213PS   C1, Y4, Y6
	VFMADD213PS   C1, Y5, Y7
	VFMADD213PS   ONE, Y4, Y6
	VFMADD213PS   ONE, Y5, Y7
	VPSLLD        $23, Y2, Y2
	VPSLLD        $23, Y3, Y3
	TESTB         DX, DX
	JEQ           no_entropy
	VPADDD        Y2, Y6, Y6              // p = 2^f 2^(y-f); a NaN here may be lost, but not in gt
	VPADDD        Y3, Y7, Y7
	VADDPS        Y6, GS0, GS0
	VADDPS        Y7, GS1, GS1
	VFMADD231PS   Y6, Y0, GT0
	VFMADD231PS   Y7, Y1, GT1
	DECQ          GROUP
	JNE           chunk
	JMP           group_done

no_entropy:
	VPADDD        ONE, Y2, Y2             // 2^(y-f)
	VPADDD        ONE, Y3, Y3
	VFMADD231PS   Y2, Y6, GS0             // the product is exact
	VFMADD231PS   Y3, Y7, GS1
	DECQ          GROUP
	JNE           chunk

group_done:
	VADDPS        bs0-160(SP), GS0, GS0
	VADDPS        bs1-128(SP), GS1, GS1
	VADDPS        bt0-96(SP), GT0, GT0
	VADDPS        bt1-64(SP), GT1, GT1
	VMOVUPS       GS0, bs0-160(SP)
	VMOVUPS       GS1, bs1-128(SP)
	VMOVUPS       GT0, bt0-96(SP)
	VMOVUPS       GT1, bt1-64(SP)
	TESTQ         BLOCK, BLOCK
	JNE           group
	VBROADCASTSS  16(STATE), Y0
	VCMPPS        $30, Y0, GS0, Y1        // bs > alarm
	VCMPPS        $30, Y0, GS1, Y2
	VORPS         Y2, Y1, Y1
	VMOVMSKPS     Y1, BX
	TESTL         BX, BX
	JNE           alarm
	FLUSH(GS0, X8, 24)
	FLUSH(GS1, X9, 88)
	FLUSH(GT0, X10, 152)
	FLUSH(GT1, X11, 216)
	TESTQ         CHUNKS, CHUNKS
	JGT           block
	JLT           done                    // the tail was taken
	TESTQ         TAIL, TAIL
	JNE           block                   // the tail is a block of its own

done:
	MOVQ          $-1, ret+48(FP)
	VZEROUPPER
	RET

alarm:
	MOVQ          START, ret+48(FP)
	VZEROUPPER
	RET

last:
	VMOVUPS       (TAIL), Y0
	VMOVUPS       32(TAIL), Y1
	JMP           loaded

temperature:
	VMOVAPS       Y0, Y2
	VMOVAPS       Y1, Y3
	VFMADD213PS   negc-192(SP), K_, Y0
	VFMADD213PS   negc-192(SP), K_, Y1
	VBROADCASTSS  4(STATE), Y4
	VFMADD231PS   Y2, Y4, Y0              // y += x*kLo
	VFMADD231PS   Y3, Y4, Y1
	JMP           y

// func blockMaxAVX2(x unsafe.Pointer, typ, chunks int, tail *[16]float32) float32
//
// The largest element; NaN if one is NaN.
TEXT ·blockMaxAVX2(SB), NOSPLIT, $0-36
	MOVQ          x+0(FP), X_PTR
	MOVQ          typ+8(FP), TYPE
	MOVQ          chunks+16(FP), CHUNKS
	MOVQ          tail+24(FP), TAIL
	VMOVUPS       const256<>+288(SB), Y4
	VMOVAPS       Y4, Y5
	VXORPS        Y6, Y6, Y6              // lanes that saw a NaN

max_chunk:
	SUBQ          $1, CHUNKS
	JCS           max_last
	LOAD2(max_bf16, max_f16, max_loaded)
	VMAXPS        Y0, Y4, Y4
	VMAXPS        Y1, Y5, Y5
	VCMPPS        $3, Y0, Y1, Y2          // unordered: a NaN in either
	VORPS         Y2, Y6, Y6
	TESTQ         CHUNKS, CHUNKS
	JGE           max_chunk

max_reduce:
	VMAXPS        Y5, Y4, Y4
	VEXTRACTF128  $1, Y4, X1
	VMAXPS        X1, X4, X0
	VPERMILPS     $0x4e, X0, X1
	VMAXPS        X1, X0, X0
	VPERMILPS     $0xb1, X0, X1
	VMAXSS        X1, X0, X0
	VMOVMSKPS     Y6, BX
	TESTL         BX, BX
	JEQ           max_return
	VPCMPEQD      X0, X0, X0              // NaN

max_return:
	VMOVSS        X0, ret+32(FP)
	VZEROUPPER
	RET

max_last:
	TESTQ         TAIL, TAIL
	JEQ           max_reduce
	VMOVUPS       (TAIL), Y0
	VMOVUPS       32(TAIL), Y1
	JMP           max_loaded
