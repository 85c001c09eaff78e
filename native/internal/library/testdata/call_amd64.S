	.text
	.globl change_everything
	.type change_everything, @function
change_everything:
	.set i, 1
	.rept 12
	incq 8*i(%rsp)
	.set i, i + 1
	.endr
	movq $-1, %rax
	movq %rax, %rbx
	movq %rax, %rcx
	movq %rax, %rdx
	movq %rax, %rsi
	movq %rax, %rdi
	movq %rax, %rbp
	movq %rax, %r8
	movq %rax, %r9
	movq %rax, %r10
	movq %rax, %r11
	movq %rax, %r12
	movq %rax, %r13
	movq %rax, %r14
	movq %rax, %r15
	ret

/* Register i of these has bit i of the mask. */
#define EACH(DO) DO(rbx, 0) DO(rbp, 1) DO(r12, 2) DO(r13, 3) DO(r14, 4) DO(r15, 5)
#define SAVE(register, i) pushq %register;
#define SET(register, i) movq $(1000 + i), %register;
#define CHECK(register, i) cmpq $(1000 + i), %register; setne %cl; movzbl %cl, %ecx; shlq $i, %rcx; orq %rcx, %rax;

	.globl check_call
	.type check_call, @function
check_call:
	EACH(SAVE)
	movq %rsp, stack(%rip)
	EACH(SET)
	subq $8, %rsp
	call rw_call
	addq $8, %rsp
	xorl %eax, %eax
	EACH(CHECK)
	cmpq %rsp, stack(%rip)
	je 1f
	ud2
1:	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbp
	popq %rbx
	ret

	.bss
	.p2align 3
stack:
	.skip 8

	.section .note.GNU-stack, "", @progbits
