/* What the files of the library share: the layouts that the assembly knows, and the
 * functions of one file that another calls. Everything that is not static here begins with
 * rw_, so that the static library takes no name of its user. */
#ifndef REWEIGHT_INTERNAL_H
#define REWEIGHT_INTERNAL_H

#include "../reweight.h"

#if defined(__FAST_MATH__) || __FLT_EVAL_METHOD__ != 0
#error "the bits depend on float arithmetic as IEEE 754 has it: no -ffast-math, no x87"
#endif

/* The one summation order of kernels_portable.go, which has the same names. */
enum {
	LANES = 16,
	GROUP_SIZE = 8 * LANES,
	BLOCK_SIZE = 8 * GROUP_SIZE,
	PIECE_SIZE = 64 * BLOCK_SIZE,
};

/* ---- errors.c ---- */

/* Says what is wrong with an argument, or with its element index unless that is -1, and
 * returns REWEIGHT_BAD_INPUT. problem is the rest of a sentence that begins with the
 * argument's name. In it %d stands for an int64_t, %g for a double and %h for a float
 * (passed as a double), both with the fewest digits that give the number back, and %s for
 * a string. error may be NULL. */
int rw_bad(reweight_error *error, const char *argument, int64_t index, const char *problem, ...);

/* ---- isa.c ---- */

/* Sets *isa to the instruction set that the workspace asks for, never REWEIGHT_AUTO. */
int rw_resolve(const reweight_workspace *ws, int32_t *isa, reweight_error *error);

/* ---- call_amd64.S, call_arm64.S ---- */

/* Calls a function of Go's stack-based calling convention. frame holds its arguments and
 * results as Go lays them out, words of 8 bytes, at most 12; the results are there
 * afterwards. */
void rw_call(void (*function)(void), uint64_t *frame, int64_t words);

/* The functions of the assembly have the names of the Go package with rw_ before them,
 * such as rw_rowBlocksAVX2. They are declared as void f(void) where they are called. */

#endif
