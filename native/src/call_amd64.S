/* void rw_call(void (*function)(void), uint64_t *frame, int64_t words)
 *
 * Go's stack-based convention has every argument and result on the stack, the first one at
 * the stack pointer of the caller, and lets a function change every register but RSP. A
 * frame has 1 to 12 words. */
#define FRAME 96 /* 12 words */

	.text
	.p2align 4
	.globl rw_call
	.hidden rw_call
	.type rw_call, @function
rw_call:
	.cfi_startproc
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq %r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	pushq %r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	pushq %r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r14, 0
	pushq %r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r15, 0
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	subq $(FRAME + 8), %rsp /* a multiple of 16, as C has it at a call */
	.cfi_adjust_cfa_offset FRAME + 8

1:	movq -8(%rsi, %rdx, 8), %rax /* the last word first */
	movq %rax, -8(%rsp, %rdx, 8)
	subq $1, %rdx
	jnz 1b

	call *%rdi

	movq (FRAME + 8)(%rsp), %rdx
	movq (FRAME + 16)(%rsp), %rsi
2:	movq -8(%rsp, %rdx, 8), %rax
	movq %rax, -8(%rsi, %rdx, 8)
	subq $1, %rdx
	jnz 2b

	addq $(FRAME + 24), %rsp
	.cfi_adjust_cfa_offset -(FRAME + 24)
	popq %r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r15
	popq %r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r14
	popq %r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r13
	popq %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	popq %rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	popq %rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size rw_call, . - rw_call

	.section .note.GNU-stack, "", @progbits
