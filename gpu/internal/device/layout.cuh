// What the kernels on whole batches share: how a batch is packed, and how they find
// out which of its problems the CPU would have named.
//
// Such a call is several kernels, one after another. Each notes the problems it finds,
// and the key with the smallest value stays: kinds in the order in which the CPU
// looks for them, and of one kind the smallest index. Later kernels do nothing when
// an earlier one has found a problem, so they may trust what was checked. One of the
// last describes the problem in the status word, and the outputs become NaN.
#pragma once

#include "common.cuh"

// A Layout is a batch of tokens in trajectories without padding.
struct Layout {
	const u8 *role;     // [tokens]
	const i64 *offsets; // [trajectories+1] tokens offsets[q] to offsets[q+1] are trajectory q
	i64 tokens, trajectories;
	u64 *problem; // of this call
	Status *status;
};

// The kinds of problems, in the order in which the CPU looks for them. The index of
// each is in brackets.
enum {
	WRONG_ROLE,     // [token]
	WRONG_OFFSET,   // [boundary of trajectories]
	WRONG_REWARD,   // [trajectory]
	WRONG_SPAN_ID,  // [token]
	TOO_MANY_SPANS, // [0]
	EMPTY_SPAN,     // [span]
	WRONG_ENTROPY,  // [token]
};

#define NO_PROBLEM (~0ull) // what the host fills in before the first kernel
#define KIND_SHIFT 56

DEVICE u64 problemKey(u64 kind, i64 index) { return kind << KIND_SHIFT | (u64)index; }

DEVICE i64 problemIndex(u64 key) { return (i64)(key & (problemKey(1, 0) - 1)); }

// note notes a problem.
DEVICE void note(u64 *problem, u64 kind, i64 index) {
	u64 was;
	asm volatile("atom.global.min.u64 %0, [%1], %2;" : "=l"(was) : "l"(problem), "l"(problemKey(kind, index)) : "memory");
}

// noteFirst notes the problem of the first lane that has one, and returns whether one
// has. A warp calls it.
DEVICE bool noteFirst(u64 *problem, u64 kind, i64 index, bool wrong) {
	u32 lanes = ballot(wrong);
	if (lanes && lane() == __builtin_ctz(lanes)) note(problem, kind, index);
	return lanes != 0;
}

// describeLayout reports a problem of the layout; other problems it leaves alone. One
// thread calls it.
DEVICE void describeLayout(const Layout &l) {
	const i64 i = problemIndex(*l.problem);
	switch (*l.problem >> KIND_SHIFT) {
	case WRONG_ROLE:
		report(l.status, PROBLEM_ROLE, ARG_ROLE, i, l.role[i]);
		break;
	case WRONG_OFFSET:
		if (i == 0) report(l.status, PROBLEM_FIRST_OFFSET, ARG_SEQ_OFFSETS, 0, l.offsets[0]);
		else if (l.offsets[i] < l.offsets[i - 1]) report(l.status, PROBLEM_OFFSET, ARG_SEQ_OFFSETS, i, l.offsets[i], l.offsets[i - 1]);
		else report(l.status, PROBLEM_LAST_OFFSET, ARG_SEQ_OFFSETS, i, l.offsets[i], l.tokens);
		break;
	}
}

// fillNaN sets n elements to NaN. All threads of a launch call it.
DEVICE void fillNaN(float *dst, i64 n) {
	for (i64 i = globalIndex(); i < n; i += globalCount()) dst[i] = NAN32;
}
