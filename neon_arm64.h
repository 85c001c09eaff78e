// Vector instructions that the assembler of Go 1.26 does not know, as words made
// of their fields. A macro has the name that Go gives the instruction, then the
// arrangement of its destination (of the source, where that is a scalar); its
// operands are the numbers of V registers, in Go's order: the destination is last,
// and d = n - m for VFSUB, d = n > m for VFCMGT. Fields: Arm Architecture Reference Manual, C4.1, "Advanced SIMD".
// TestWords decodes every word.

// Three registers of one arrangement: 0 1 u 01110 size 1 m opcode 1 n d.
#define THREE_SAME(u, size, opcode, m, n, d) WORD $(1<<30 | (u)<<29 | 0x0e<<24 | (size)<<22 | 1<<21 | (m)<<16 | (opcode)<<11 | 1<<10 | (n)<<5 | (d))

#define VFADD_S4(m, n, d) THREE_SAME(0, 0, 0x1a, m, n, d)
#define VFADD_D2(m, n, d) THREE_SAME(0, 1, 0x1a, m, n, d)
#define VFSUB_S4(m, n, d) THREE_SAME(0, 2, 0x1a, m, n, d)
#define VFSUB_D2(m, n, d) THREE_SAME(0, 3, 0x1a, m, n, d)
#define VFMUL_S4(m, n, d) THREE_SAME(1, 0, 0x1b, m, n, d)
#define VFMUL_D2(m, n, d) THREE_SAME(1, 1, 0x1b, m, n, d)
#define VFDIV_S4(m, n, d) THREE_SAME(1, 0, 0x1f, m, n, d)
#define VFMAX_S4(m, n, d) THREE_SAME(0, 0, 0x1e, m, n, d) // NaN if one is NaN
#define VFMIN_S4(m, n, d) THREE_SAME(0, 2, 0x1e, m, n, d) // NaN if one is NaN
#define VFCMEQ_S4(m, n, d) THREE_SAME(0, 0, 0x1c, m, n, d)
#define VFCMGT_S4(m, n, d) THREE_SAME(1, 2, 0x1c, m, n, d)

// Two registers, or one across its lanes: 0 q u 01110 size 1 kind opcode 10 n d,
// where kind is 0000 or 1000.
#define TWO_REG(q, u, size, kind, opcode, n, d) WORD $((q)<<30 | (u)<<29 | 0x0e<<24 | (size)<<22 | 1<<21 | (kind)<<17 | (opcode)<<12 | 2<<10 | (n)<<5 | (d))

#define VFNEG_S4(n, d) TWO_REG(1, 1, 2, 0, 0x0f, n, d)
#define VFCVTL_S4(n, d) TWO_REG(0, 0, 0, 0, 0x17, n, d)  // float16, lower half
#define VFCVTL2_S4(n, d) TWO_REG(1, 0, 0, 0, 0x17, n, d) // upper half
#define VFCVTL_D2(n, d) TWO_REG(0, 0, 1, 0, 0x17, n, d)  // float32, lower half
#define VFCVTL2_D2(n, d) TWO_REG(1, 0, 1, 0, 0x17, n, d) // upper half
#define VFMAXV_S4(n, d) TWO_REG(1, 1, 0, 8, 0x0f, n, d)  // NaN if one is NaN
#define VFMINV_S4(n, d) TWO_REG(1, 1, 2, 8, 0x0f, n, d)

// The same instruction for four vectors, in registers that follow each other.
// FOUR_M and FOUR_N have one m or one n for all four, FOUR_1 has no m.
#define FOUR(OP, m, n, d) OP(m, n, d); OP(m+1, n+1, d+1); OP(m+2, n+2, d+2); OP(m+3, n+3, d+3)
#define FOUR_M(OP, m, n, d) OP(m, n, d); OP(m, n+1, d+1); OP(m, n+2, d+2); OP(m, n+3, d+3)
#define FOUR_N(OP, m, n, d) OP(m, n, d); OP(m+1, n, d+1); OP(m+2, n, d+2); OP(m+3, n, d+3)
#define FOUR_1(OP, n, d) OP(n, d); OP(n+1, d+1); OP(n+2, d+2); OP(n+3, d+3)
