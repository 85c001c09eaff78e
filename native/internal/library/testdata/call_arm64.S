	.text
	.globl change_everything
	.type change_everything, %function
change_everything:
	mov x9, x30 /* a function with locals keeps LR, and leaves x29 = SP - 8 */
	.set i, 1
	.rept 12
	ldr x10, [sp, #8*i]
	add x10, x10, #1
	str x10, [sp, #8*i]
	.set i, i + 1
	.endr
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30
	mov x\n, #-1
	.endr
	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
	movi v\n\().16b, #255
	.endr
	sub x29, sp, #8
	ret x9

/* Register i of these has bit i of the mask. */
#define EACH(DO) \
	DO(x19, 0) DO(x20, 1) DO(x21, 2) DO(x22, 3) DO(x23, 4) DO(x24, 5) DO(x25, 6) DO(x26, 7) DO(x27, 8) DO(x28, 9) DO(x29, 10)
#define EACH_FLOAT(DO) DO(d8, 11) DO(d9, 12) DO(d10, 13) DO(d11, 14) DO(d12, 15) DO(d13, 16) DO(d14, 17) DO(d15, 18)
#define SET(register, i) mov register, 1000 + i;
#define CHECK(register, i) cmp register, 1000 + i; cset x1, ne; orr x0, x0, x1, lsl i;
#define SET_FLOAT(register, i) mov x9, 1000 + i; fmov register, x9;
#define CHECK_FLOAT(register, i) fmov x9, register; CHECK(x9, i)

	.globl check_call
	.type check_call, %function
check_call:
	stp x29, x30, [sp, #-176]!
	stp x19, x20, [sp, #16]
	stp x21, x22, [sp, #32]
	stp x23, x24, [sp, #48]
	stp x25, x26, [sp, #64]
	stp x27, x28, [sp, #80]
	stp d8, d9, [sp, #96]
	stp d10, d11, [sp, #112]
	stp d12, d13, [sp, #128]
	stp d14, d15, [sp, #144]
	mov x9, sp
	str x9, [sp, #160]
	EACH(SET)
	EACH_FLOAT(SET_FLOAT)
	bl rw_call
	mov x0, #0
	EACH(CHECK)
	EACH_FLOAT(CHECK_FLOAT)
	ldr x9, [sp, #160]
	mov x10, sp
	cmp x9, x10
	b.eq 1f
	brk #0
1:	ldp d14, d15, [sp, #144]
	ldp d12, d13, [sp, #128]
	ldp d10, d11, [sp, #112]
	ldp d8, d9, [sp, #96]
	ldp x27, x28, [sp, #80]
	ldp x25, x26, [sp, #64]
	ldp x23, x24, [sp, #48]
	ldp x21, x22, [sp, #32]
	ldp x19, x20, [sp, #16]
	ldp x29, x30, [sp], #176
	ret

	.section .note.GNU-stack, "", %progbits
