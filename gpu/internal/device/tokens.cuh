// What the kernels on tokens share: passes over arrays, and the search for the first
// token that is wrong.
#pragma once

#include "common.cuh"

// load and store copy N consecutive elements. Their address is a multiple of the size
// of N elements, so that 4 floats are one access of 16 bytes.
template <int N> DEVICE void load(float (&v)[N], const float *p) {
	const float *aligned = (const float *)__builtin_assume_aligned(p, N * sizeof(float));
	for (int j = 0; j < N; j++) v[j] = aligned[j];
}

template <int N> DEVICE void load(u8 (&v)[N], const u8 *p) {
	const u8 *aligned = (const u8 *)__builtin_assume_aligned(p, N);
	for (int j = 0; j < N; j++) v[j] = aligned[j];
}

template <int N> DEVICE void store(float *p, const float (&v)[N]) {
	float *aligned = (float *)__builtin_assume_aligned(p, N * sizeof(float));
	for (int j = 0; j < N; j++) aligned[j] = v[j];
}

#define PACK 4 // tokens that a thread takes at a time

// canPack reports whether arrays of floats and an array of roles allow accesses of
// PACK elements. An array that is not there allows them.
DEVICE bool canPack(const void *a, const void *b, const void *c, const u8 *role) {
	return ((u64)a | (u64)b | (u64)c) % (PACK * sizeof(float)) == 0 && (u64)role % PACK == 0;
}

// forTokens calls pass.at<N>(i) for tokens i to i+N, until each of n tokens has been
// in one call: for PACK at a time if pack is set, and one at a time at the end.
template <typename Pass> DEVICE void forTokens(i64 n, bool pack, const Pass &pass) {
	const i64 packed = pack ? n / PACK * PACK : 0;
	for (i64 i = globalIndex() * PACK; i < packed; i += globalCount() * PACK) pass.template at<PACK>(i);
	for (i64 i = packed + globalIndex(); i < n; i += globalCount()) pass.template at<1>(i);
}

#define RESPONSES (1 << REASONING | 1 << ACTION) // the roles that take part in the loss
