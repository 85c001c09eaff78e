// What the assembly files for amd64 share: constants, 2^y, and names for the
// numbers in instructions. Include go_asm.h and textflag.h first.

// VECTOR defines name<> as 8 lanes of the same 32 bits. AVX2 reads all of them as
// an operand; AVX-512 broadcasts the first into a register. The symbols are local
// to the file that includes this one, and the linker leaves out those that the file
// does not use.
#define VECTOR(name, bits) \
	DATA          name<>+0(SB)/8, $((bits)<<32|(bits)); \
	DATA          name<>+8(SB)/8, $((bits)<<32|(bits)); \
	DATA          name<>+16(SB)/8, $((bits)<<32|(bits)); \
	DATA          name<>+24(SB)/8, $((bits)<<32|(bits)); \
	GLOBL         name<>(SB), RODATA|NOPTR, $32

// The constants of the portable kernels, under the same names, as float32.
// TestConstantsAMD64 holds these bits against those of Go.
VECTOR(exp2C5, 0x3aadfb33)
VECTOR(exp2C4, 0x3c1e76a9)
VECTOR(exp2C3, 0x3d635b62)
VECTOR(exp2C2, 0x3e75fcda)
VECTOR(exp2C1, 0x3f317215)
VECTOR(magic, 0x4b400000)
VECTOR(minY, 0xc2fa0000)
VECTOR(maxY, 0x42f00000)
VECTOR(log2E32, 0x3fb8aa3b)
VECTOR(squaresFrom, 0x0d800000)

// Twice the coefficients, and the magic number plus 126, for EXP2_PAIR.
VECTOR(twiceC5, 0x3b2dfb33)
VECTOR(twiceC4, 0x3c9e76a9)
VECTOR(twiceC3, 0x3de35b62)
VECTOR(twiceC2, 0x3ef5fcda)
VECTOR(twiceC1, 0x3fb17215)
VECTOR(magic126, 0x4b40007e)

// Other float32.
VECTOR(one, 0x3f800000)
VECTOR(two, 0x40000000)
VECTOR(posInf, 0x7f800000)
VECTOR(negInf, 0xff800000)
VECTOR(minLogRatio, 0xc1a00000) // -20
VECTOR(maxLogRatio, 0x41a00000) // 20
VECTOR(signBit, 0x80000000)

// Integers.
VECTOR(intOne, 1)
VECTOR(reasoning, const_RoleReasoning)
VECTOR(action, const_RoleAction)
VECTOR(roundBF16, 0x7fff) // added to float32 bits, less than half of a bfloat16's last bit
VECTOR(quietBit, 0x40)    // in a bfloat16: a NaN with it does not signal

// How many chunks of 16 elements a group and a block have.
#define GROUP_CHUNKS (const_groupSize/const_lanes)
#define BLOCK_CHUNKS (const_blockSize/const_lanes)

// How many bytes a chunk has, with elements of 4, 2 and 1 bytes.
#define CHUNK4 (4*const_lanes)
#define CHUNK2 (2*const_lanes)
#define CHUNK1 const_lanes

// The format of a row, as the stubs' dtype has it: the DType's number. Float32 is
// 0, which is tested for with TESTQ.
#define BFLOAT16 $const_DTypeBF16

// Predicates of VCMPPS. VCMPPS LESS, b, a, dst is a < b.
#define UNORDERED $3    // a or b is NaN
#define DIFFERS $12     // false for NaN
#define LESS $17        // false for NaN
#define NOT_LESS $21    // true for NaN
#define NOT_GREATER $26 // true for NaN
#define GREATER $30     // false for NaN

// Parts of a register and shuffles.
#define UPPER_HALF $1         // of VEXTRACT
#define SWAP_PAIRS $0x4e      // of VPERMILPS: elements 2, 3, 0, 1 of four
#define SWAP_NEIGHBOURS $0xb1 // of VPERMILPS: elements 1, 0, 3, 2 of four
#define UPPER_WORDS $0xaa     // of VPBLENDW: the upper 16 bits of each 32 from the first operand

#define NEAREST_EVEN $8    // of VROUNDPS: the nearest integer, ties to even
#define NEAREST_INTEGER $8 // of VREDUCEPS: the rest to the nearest integer, ties to even
#define EXPONENT $23       // the place of the exponent in a float32
#define BF16_IN_F32 $16    // a bfloat16 is the upper 16 bits of a float32

// CLAMP moves y into [lo, hi]. A NaN stays: it is the second operand.
#define CLAMP(y, lo, hi) \
	VMAXPS        y, lo, y; \ // not below lo
	VMINPS        y, hi, y    // not above hi

// HORNER sets p = p*f + c, a step of the polynomial.
#define HORNER(c, f, p) VFMADD213PS c, f, p

// EXP2_AVX2 sets p = 2^y, with the arithmetic of exp2 in kernels_portable.go. It
// overwrites m and f, which are the m and f there.
#define EXP2_AVX2(y, m, f, p) \
	VADDPS        magic<>(SB), y, m; \ // the integer next to y, in the low bits
	VSUBPS        magic<>(SB), m, f; \ // that integer
	VSUBPS        f, y, f; \           // f = y - that integer
	VMOVUPS       exp2C5<>(SB), p; \   // the polynomial of 2^f, its highest coefficient first
	HORNER(exp2C4<>(SB), f, p); \
	HORNER(exp2C3<>(SB), f, p); \
	HORNER(exp2C2<>(SB), f, p); \
	HORNER(exp2C1<>(SB), f, p); \
	HORNER(one<>(SB), f, p); \         // p = 2^f
	VPSLLD        EXPONENT, m, m; \    // the integer in the place of the exponent
	VPADDD        one<>(SB), m, m; \   // 2^(y-f)
	VMULPS        m, p, p              // p = 2^f 2^(y-f)

// FLUSH_AVX2 adds the 8 float32 of sum, whose lower half is low, to 8 float64 at
// off(base).
#define WIDE0 Y0     // lanes 0 to 3, as float64
#define WIDE1 Y1     // lanes 4 to 7
#define WIDE1_LOW X1 // where they come from
#define FLUSH_AVX2(sum, low, base, off) \
	VCVTPS2PD     low, WIDE0; \                   // lanes 0 to 3 as float64
	VEXTRACTF128  UPPER_HALF, sum, WIDE1_LOW; \   // the upper half of sum
	VCVTPS2PD     WIDE1_LOW, WIDE1; \             // lanes 4 to 7 as float64
	VADDPD        (off)(base), WIDE0, WIDE0; \    // what was there, plus lanes 0 to 3
	VADDPD        (off+32)(base), WIDE1, WIDE1; \ // and plus lanes 4 to 7
	VMOVUPD       WIDE0, (off)(base); \
	VMOVUPD       WIDE1, (off+32)(base)

// With AVX-512 there are registers for the polynomial. BROADCAST_EXP2 fills them.
#define C5 Z20
#define C4 Z21
#define C3 Z22
#define C2 Z23
#define C1 Z24
#define ONE Z25
#define BROADCAST_EXP2 \
	VBROADCASTSS  exp2C5<>(SB), C5; \ // the coefficients of 2^f, in every lane
	VBROADCASTSS  exp2C4<>(SB), C4; \
	VBROADCASTSS  exp2C3<>(SB), C3; \
	VBROADCASTSS  exp2C2<>(SB), C2; \
	VBROADCASTSS  exp2C1<>(SB), C1; \
	VBROADCASTSS  one<>(SB), ONE

// SPLIT sets f to y less the integer next to it.
#define SPLIT(y, f) VREDUCEPS NEAREST_INTEGER, y, f

// SCALE sets p = p * 2^(y-f), where y-f is the integer next to y. It overwrites f.
#define SCALE(y, f, p) \
	VSUBPS        f, y, f; \ // y-f, the integer next to y
	VSCALEFPS     f, p, p    // p = p * 2^(y-f)

// EXP2_AVX512 sets p = 2^y and overwrites f.
#define EXP2_AVX512(y, f, p) \
	SPLIT(y, f); \         // f = y - the integer next to it
	VMOVAPS       C5, p; \ // the polynomial of 2^f, its highest coefficient first
	HORNER(C4, f, p); \
	HORNER(C3, f, p); \
	HORNER(C2, f, p); \
	HORNER(C1, f, p); \
	HORNER(ONE, f, p); \   // p = 2^f
	SCALE(y, f, p)         // p = 2^f 2^(y-f)

// FLUSH_AVX512 adds the 16 float32 of sum, whose lower half is low, to 16 float64 at
// off(base).
#define WHOLE0 Z0     // lanes 0 to 7, as float64
#define WHOLE1 Z1     // lanes 8 to 15
#define WHOLE1_LOW Y1 // where they come from
#define FLUSH_AVX512(sum, low, base, off) \
	VCVTPS2PD     low, WHOLE0; \                    // lanes 0 to 7 as float64
	VEXTRACTF32X8 UPPER_HALF, sum, WHOLE1_LOW; \    // the upper half of sum
	VCVTPS2PD     WHOLE1_LOW, WHOLE1; \             // lanes 8 to 15 as float64
	VADDPD        (off)(base), WHOLE0, WHOLE0; \    // what was there, plus lanes 0 to 7
	VADDPD        (off+64)(base), WHOLE1, WHOLE1; \ // and plus lanes 8 to 15
	VMOVUPD       WHOLE0, (off)(base); \
	VMOVUPD       WHOLE1, (off+64)(base)
