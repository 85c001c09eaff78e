//go:build !noasm && !purego

#include "go_asm.h"
#include "textflag.h"
#include "exp2_amd64.h"

// The kernel on groups with AVX-512 (F, VL, DQ). It is the loop of its twin in
// kernels_portable.go. Most groups are short, so four of them are worked on at a time
// where each fits into a register.

// The numbers of 16 lanes, as bytes.
DATA lanes<>+0(SB)/8, $0x0706050403020100; DATA lanes<>+8(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL lanes<>(SB), RODATA|NOPTR, $16

// The first element of each quarter of a register.
DATA quarters<>+0(SB)/8, $0x0000000400000000; DATA quarters<>+8(SB)/8, $0x0000000c00000008
GLOBL quarters<>(SB), RODATA|NOPTR, $16

// Predicates of VPCMPD and VPCMPUD: VPCMPD BELOW, b, a, dst is a < b.
#define BELOW $1
#define UNEQUAL $4
#define NOT_BELOW $5

// Quarters of two registers, of VSHUFF32X4: two of the first, then two of the second.
#define LOWER_HALVES $0x44  // 0 and 1
#define UPPER_HALVES $0xee  // 2 and 3
#define EVEN_QUARTERS $0x88 // 0 and 2
#define ODD_QUARTERS $0xdd  // 1 and 3

#define LO_PTR DI
#define HI_PTR DX
#define X_PTR SI
#define X_START R8 // of x, where offsets count from
#define OFFSETS R9
#define GROUPS R10 // left
#define LEFT CX    // elements left in the group
#define START AX   // of the group
#define MASK AX

// Four groups.
#define FIRST Z0         // the elements of the groups, one or two in a register
#define SECOND Z1
#define THIRD Z2
#define FOURTH Z3
#define INDEX Z4         // where elements are in x
#define LENGTHS X4       // of the four groups
#define LOWER01 Z4       // the lower halves of the first and the second group
#define UPPER01 Z5
#define LOWER23 Z6       // of the third and the fourth
#define UPPER23 Z7
#define LEASTS01 Z0      // 8 lanes of the first group, 8 of the second
#define LARGESTS01 Z1
#define LEASTS23 Z2
#define LARGESTS23 Z3
#define EVENS Z4         // lanes 0 to 3 of each group
#define ODDS Z5          // lanes 4 to 7
#define LARGEST_EVENS Z6 // the same, of the largest elements
#define LARGEST_ODDS Z7
#define LEASTS Z8        // a quarter for each group: 4 lanes, then 2, then 1
#define LARGESTS Z9
#define LEASTS_LOW X8
#define LARGESTS_LOW X9
#define OTHER_LEASTS Z4  // the lanes to reduce with
#define OTHER_LARGESTS Z5
#define LANES Z16        // 0 to 15
#define QUARTERS Z17
#define LENGTH_ONE X18
#define EIGHT X19
#define SIXTEEN X20
#define UNLIKE K1        // groups of another length
#define PRESENT K2       // lanes that have an element
#define NANS01 K3        // lanes with a NaN in the first or the second group
#define NANS23 K4

// One group.
#define X Z0
#define LEAST Z4
#define LARGEST Z5
#define LEAST_HALF Y4    // 8 lanes
#define LARGEST_HALF Y5
#define LEAST_LOW X4     // 4 lanes
#define LARGEST_LOW X5
#define OTHER_HALF_MIN Y2
#define OTHER_HALF_MAX Y3
#define MIN X0           // 4 lanes, then 2, then 1
#define MAX X1
#define OTHER_MIN X2     // the lanes to reduce with
#define OTHER_MAX X3
#define IS_NAN K3
#define NANS K4          // lanes that saw a NaN
#define ZERO_LOW X13
#define POSINF Z14
#define NEGINF Z15

// LOAD_GROUP sets v to the elements of group n, 1 to 16, and to the first of them in
// the lanes that have none.
#define LOAD_GROUP(n, v) \
	MOVLQSX       (4*n)(OFFSETS), START; \                   // where the group begins
	VPADDD.BCST   (4*n)(OFFSETS), LANES, INDEX; \            // where each lane's element is
	VPCMPUD.BCST  BELOW, (4*n+4)(OFFSETS), INDEX, PRESENT; \ // before the group's end?
	VBROADCASTSS  (X_START)(START*4), v; \                   // the first element
	VMOVUPS       (X_START)(START*4), PRESENT, v             // x; reads no other lanes

// func minMaxAVX512(lo, hi, x *float32, offsets *int32, n int)
//
//	for each group {
//		if it and the next three have 8 elements each, or 1 to 16, and none is NaN {
//			lo, hi = least(x)+0, largest(x)+0 of all four
//			continue with the group after them
//		}
//		mn, mx, bad = +Inf, -Inf, false    // 16 lanes
//		for 16 elements or what is left { mn, mx, bad = min(mn, x), max(mx, x), bad || x != x }
//		lo, hi = least(mn)+0, largest(mx)+0, or NaN if bad
//	}
TEXT ·minMaxAVX512(SB), NOSPLIT, $0-40
	MOVQ          lo+0(FP), LO_PTR
	MOVQ          hi+8(FP), HI_PTR
	MOVQ          x+16(FP), X_START
	MOVQ          offsets+24(FP), OFFSETS
	MOVQ          n+32(FP), GROUPS
	VBROADCASTSS  posInf<>(SB), POSINF     // where mn starts
	VBROADCASTSS  negInf<>(SB), NEGINF     // where mx starts
	VXORPS        ZERO_LOW, ZERO_LOW, ZERO_LOW
	VPBROADCASTD  intOne<>(SB), LENGTH_ONE // the least length of one of four groups
	MOVL          $(const_lanes/2), MASK
	VPBROADCASTD  MASK, EIGHT              // the usual length
	MOVL          $const_lanes, MASK
	VPBROADCASTD  MASK, SIXTEEN            // the largest
	VPMOVZXBD     lanes<>(SB), LANES
	VBROADCASTI32X4 quarters<>(SB), QUARTERS

minmax_four:
	CMPQ          GROUPS, $4
	JLT           minmax_group                     // fewer than four are left
	VMOVDQU       4(OFFSETS), LENGTHS              // where the four groups end
	VPSUBD        (OFFSETS), LENGTHS, LENGTHS      // less where they begin
	VPCMPD        UNEQUAL, EIGHT, LENGTHS, UNLIKE  // any whose length is not 8?
	KORTESTB      UNLIKE, UNLIKE
	JNE           minmax_short
	MOVLQSX       (OFFSETS), START                 // where the first begins
	LEAQ          (X_START)(START*4), X_PTR        // its first element
	VMOVUPS       (X_PTR), FIRST                   // two groups
	VMOVUPS       CHUNK4(X_PTR), SECOND            // the two after them
	VCMPPS        UNORDERED, FIRST, SECOND, NANS01 // a NaN?
	KORTESTW      NANS01, NANS01
	JNE           minmax_group                     // then one group at a time
	VSHUFF32X4    EVEN_QUARTERS, SECOND, FIRST, EVENS
	VSHUFF32X4    ODD_QUARTERS, SECOND, FIRST, ODDS
	VMINPS        ODDS, EVENS, LEASTS              // lanes j and j+4
	VMAXPS        ODDS, EVENS, LARGESTS

minmax_quarters:
	VPERMILPS     SWAP_PAIRS, LEASTS, OTHER_LEASTS      // lanes 2 and 3
	VPERMILPS     SWAP_PAIRS, LARGESTS, OTHER_LARGESTS
	VMINPS        OTHER_LEASTS, LEASTS, LEASTS          // j+2
	VMAXPS        OTHER_LARGESTS, LARGESTS, LARGESTS
	VPERMILPS     SWAP_NEIGHBOURS, LEASTS, OTHER_LEASTS // lane 1
	VPERMILPS     SWAP_NEIGHBOURS, LARGESTS, OTHER_LARGESTS
	VMINPS        OTHER_LEASTS, LEASTS, LEASTS          // j+1
	VMAXPS        OTHER_LARGESTS, LARGESTS, LARGESTS
	VPERMPS       LEASTS, QUARTERS, LEASTS              // the four groups side by side
	VPERMPS       LARGESTS, QUARTERS, LARGESTS
	VADDPS        ZERO_LOW, LEASTS_LOW, LEASTS_LOW      // +0 for -0
	VADDPS        ZERO_LOW, LARGESTS_LOW, LARGESTS_LOW
	VMOVUPS       LEASTS_LOW, (LO_PTR)                  // lo
	VMOVUPS       LARGESTS_LOW, (HI_PTR)                // hi
	ADDQ          $16, LO_PTR                           // next four groups
	ADDQ          $16, HI_PTR
	ADDQ          $16, OFFSETS
	SUBQ          $4, GROUPS
	JNE           minmax_four
	VZEROUPPER
	RET

minmax_short:
	VPSUBD        LENGTH_ONE, LENGTHS, LENGTHS        // less 1: an empty group wraps around
	VPCMPUD       NOT_BELOW, SIXTEEN, LENGTHS, UNLIKE // any that is empty, or has more than 16?
	KORTESTB      UNLIKE, UNLIKE
	JNE           minmax_group                        // then one group at a time
	LOAD_GROUP(0, FIRST)
	LOAD_GROUP(1, SECOND)
	LOAD_GROUP(2, THIRD)
	LOAD_GROUP(3, FOURTH)
	VCMPPS        UNORDERED, FIRST, SECOND, NANS01    // a NaN?
	VCMPPS        UNORDERED, THIRD, FOURTH, NANS23
	KORTESTW      NANS01, NANS23
	JNE           minmax_group                        // then one group at a time
	VSHUFF32X4    LOWER_HALVES, SECOND, FIRST, LOWER01
	VSHUFF32X4    UPPER_HALVES, SECOND, FIRST, UPPER01
	VSHUFF32X4    LOWER_HALVES, FOURTH, THIRD, LOWER23
	VSHUFF32X4    UPPER_HALVES, FOURTH, THIRD, UPPER23
	VMINPS        UPPER01, LOWER01, LEASTS01          // lanes j and j+8
	VMAXPS        UPPER01, LOWER01, LARGESTS01
	VMINPS        UPPER23, LOWER23, LEASTS23
	VMAXPS        UPPER23, LOWER23, LARGESTS23
	VSHUFF32X4    EVEN_QUARTERS, LEASTS23, LEASTS01, EVENS
	VSHUFF32X4    ODD_QUARTERS, LEASTS23, LEASTS01, ODDS
	VSHUFF32X4    EVEN_QUARTERS, LARGESTS23, LARGESTS01, LARGEST_EVENS
	VSHUFF32X4    ODD_QUARTERS, LARGESTS23, LARGESTS01, LARGEST_ODDS
	VMINPS        ODDS, EVENS, LEASTS                 // j+4
	VMAXPS        LARGEST_ODDS, LARGEST_EVENS, LARGESTS
	JMP           minmax_quarters

minmax_group:
	MOVLQSX       0(OFFSETS), START         // where the group begins
	MOVLQSX       4(OFFSETS), LEFT          // where it ends
	LEAQ          (X_START)(START*4), X_PTR // its first element
	SUBQ          START, LEFT               // its length
	VMOVAPS       POSINF, LEAST             // mn = +Inf
	VMOVAPS       NEGINF, LARGEST           // mx = -Inf
	KXORW         NANS, NANS, NANS          // bad = false

minmax_16:
	CMPQ          LEFT, $const_lanes
	JLE           minmax_rest             // 0 to 16 elements
	VMOVUPS       (X_PTR), X              // x
	VMINPS        X, LEAST, LEAST         // mn = min(mn, x)
	VMAXPS        X, LARGEST, LARGEST     // mx = max(mx, x)
	VCMPPS        UNORDERED, X, X, IS_NAN // x != x
	KORW          IS_NAN, NANS, NANS      // bad = bad || x != x
	ADDQ          $CHUNK4, X_PTR          // next 16 elements
	SUBQ          $const_lanes, LEFT
	JMP           minmax_16

minmax_rest:
	MOVL          $1, MASK                               // 1 for the lanes that have an element
	SHLL          LEFT, MASK
	DECL          MASK
	KMOVW         MASK, PRESENT                          // as a mask
	VMOVUPS.Z     (X_PTR), PRESENT, X                    // x there; reads no other lanes
	VMINPS        X, LEAST, PRESENT, LEAST               // mn = min(mn, x)
	VMAXPS        X, LARGEST, PRESENT, LARGEST           // mx = max(mx, x)
	VCMPPS        UNORDERED, X, X, IS_NAN                // x != x
	VEXTRACTF32X8 UPPER_HALF, LEAST, OTHER_HALF_MIN      // lanes 8 to 15
	VEXTRACTF32X8 UPPER_HALF, LARGEST, OTHER_HALF_MAX
	VMINPS        OTHER_HALF_MIN, LEAST_HALF, LEAST_HALF // lanes j and j+8
	VMAXPS        OTHER_HALF_MAX, LARGEST_HALF, LARGEST_HALF
	VEXTRACTF128  UPPER_HALF, LEAST_HALF, MIN            // lanes 4 to 7
	VEXTRACTF128  UPPER_HALF, LARGEST_HALF, MAX
	VMINPS        MIN, LEAST_LOW, MIN                    // j+4
	VMAXPS        MAX, LARGEST_LOW, MAX
	VPERMILPS     SWAP_PAIRS, MIN, OTHER_MIN             // lanes 2 and 3
	VPERMILPS     SWAP_PAIRS, MAX, OTHER_MAX
	VMINPS        OTHER_MIN, MIN, MIN                    // j+2
	VMAXPS        OTHER_MAX, MAX, MAX
	VPERMILPS     SWAP_NEIGHBOURS, MIN, OTHER_MIN        // lane 1
	VPERMILPS     SWAP_NEIGHBOURS, MAX, OTHER_MAX
	VMINSS        OTHER_MIN, MIN, MIN                    // j+1
	VMAXSS        OTHER_MAX, MAX, MAX
	VADDSS        ZERO_LOW, MIN, MIN                     // +0 for -0
	VADDSS        ZERO_LOW, MAX, MAX
	KORTESTW      IS_NAN, NANS                           // bad?
	JEQ           minmax_store
	VPCMPEQD      MIN, MIN, MIN                          // all bits set: NaN
	VMOVAPS       MIN, MAX

minmax_store:
	VMOVSS        MIN, (LO_PTR) // lo
	VMOVSS        MAX, (HI_PTR) // hi
	ADDQ          $4, LO_PTR    // next group
	ADDQ          $4, HI_PTR
	ADDQ          $4, OFFSETS
	DECQ          GROUPS
	JNE           minmax_four
	VZEROUPPER
	RET
