/* void rw_call(void (*function)(void), uint64_t *frame, int64_t words)
 *
 * Go's stack-based convention has every argument and result on the stack, the first one 8
 * bytes above the stack pointer of the caller, and lets a function change every register
 * but SP and x18, which is the platform's. A function with locals returns with x29 = SP - 8,
 * as Go has it, so that everything is found again by SP. A frame has 1 to 12 words. */
#define SAVED 112 /* where what is saved begins: 8 bytes, 12 words, and 8 bytes to align */
#define SIZE 288  /* SAVED and 22 registers */

	.text
	.p2align 4
	.globl rw_call
	.hidden rw_call
	.type rw_call, %function
rw_call:
	.cfi_startproc
	sub sp, sp, #SIZE
	.cfi_def_cfa_offset SIZE
	stp x29, x30, [sp, #SAVED]
	.cfi_rel_offset x29, SAVED
	.cfi_rel_offset x30, SAVED + 8
	stp x19, x20, [sp, #SAVED + 16]
	.cfi_rel_offset x19, SAVED + 16
	.cfi_rel_offset x20, SAVED + 24
	stp x21, x22, [sp, #SAVED + 32]
	.cfi_rel_offset x21, SAVED + 32
	.cfi_rel_offset x22, SAVED + 40
	stp x23, x24, [sp, #SAVED + 48]
	.cfi_rel_offset x23, SAVED + 48
	.cfi_rel_offset x24, SAVED + 56
	stp x25, x26, [sp, #SAVED + 64]
	.cfi_rel_offset x25, SAVED + 64
	.cfi_rel_offset x26, SAVED + 72
	stp x27, x28, [sp, #SAVED + 80]
	.cfi_rel_offset x27, SAVED + 80
	.cfi_rel_offset x28, SAVED + 88
	stp d8, d9, [sp, #SAVED + 96]
	.cfi_rel_offset d8, SAVED + 96
	.cfi_rel_offset d9, SAVED + 104
	stp d10, d11, [sp, #SAVED + 112]
	.cfi_rel_offset d10, SAVED + 112
	.cfi_rel_offset d11, SAVED + 120
	stp d12, d13, [sp, #SAVED + 128]
	.cfi_rel_offset d12, SAVED + 128
	.cfi_rel_offset d13, SAVED + 136
	stp d14, d15, [sp, #SAVED + 144]
	.cfi_rel_offset d14, SAVED + 144
	.cfi_rel_offset d15, SAVED + 152
	stp x1, x2, [sp, #SAVED + 160]

	mov x3, x0
	add x4, sp, #8
1:	ldr x5, [x1], #8
	str x5, [x4], #8
	subs x2, x2, #1
	b.ne 1b

	blr x3

	ldp x1, x2, [sp, #SAVED + 160]
	add x4, sp, #8
2:	ldr x5, [x4], #8
	str x5, [x1], #8
	subs x2, x2, #1
	b.ne 2b

	ldp d14, d15, [sp, #SAVED + 144]
	ldp d12, d13, [sp, #SAVED + 128]
	ldp d10, d11, [sp, #SAVED + 112]
	ldp d8, d9, [sp, #SAVED + 96]
	ldp x27, x28, [sp, #SAVED + 80]
	ldp x25, x26, [sp, #SAVED + 64]
	ldp x23, x24, [sp, #SAVED + 48]
	ldp x21, x22, [sp, #SAVED + 32]
	ldp x19, x20, [sp, #SAVED + 16]
	ldp x29, x30, [sp, #SAVED]
	add sp, sp, #SIZE
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size rw_call, . - rw_call

	.section .note.GNU-stack, "", %progbits
