// What is computed of spans, groups and scopes, in the order of kernels_portable.go:
// element i of each is in lane i mod 16.
#pragma once

#include "math.cuh"

#define CHUNKS 8               // elements of a lane in a group, and loads at a time
#define GROUP (CHUNKS * LANES) // elements summed in float32 alone
#define BLOCK (8 * GROUP)      // elements of a span whose groups are summed in float32

// spanSum returns the sum of elements from to to of x in the order of a row. Each half
// of a warp sums a span of its own.
DEVICE double spanSum(const float *x, i64 from, i64 to) {
	const i64 l = lane() % LANES;
	double sum = 0;
	for (i64 b = from; b < to; b += BLOCK) {
		const i64 end = smaller(b + BLOCK, to);
		float block = 0;
		for (i64 g = b; g < end; g += GROUP) {
			float v[CHUNKS], group = 0;
#pragma unroll
			for (int j = 0; j < CHUNKS; j++) { // all loads before the first sum
				i64 i = g + j * LANES + l;
				v[j] = i < end ? x[i] : 0; // a sum that begins with 0 is never -0: 0 leaves it as it is
			}
#pragma unroll
			for (int j = 0; j < CHUNKS; j++) group += v[j];
			block += group;
		}
		sum += (double)block;
	}
	return tree(sum);
}

// extremes finds the smallest and the largest of elements from to to of x, both NaN if
// one is NaN, and +0 for -0. A warp calls it, and all its lanes get them.
DEVICE void extremes(const float *x, i64 from, i64 to, float &lo, float &hi) {
	lo = INF32;
	hi = -INF32;
	for (i64 i = from + lane(); i < to; i += CHUNKS * WARP) {
		float v[CHUNKS];
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) v[j] = x[i + j * WARP < to ? i + j * WARP : i];
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			lo = minNaN(lo, v[j]);
			hi = maxNaN(hi, v[j]);
		}
	}
	for (int h = WARP / 2; h > 0; h /= 2) {
		lo = minNaN(lo, shuffleXor(lo, h));
		hi = maxNaN(hi, shuffleXor(hi, h));
	}
	lo += 0.0f;
	hi += 0.0f;
}

// expScaleRate returns the factor of the exponent, in log2 units.
DEVICE float expScaleRate(double rate) {
	double k = -rate * LOG2E;
	return (float)(k < -(double)MAXFLOAT ? -(double)MAXFLOAT : k);
}

#define SCOPE_THREADS 128
#define SCOPE_HALVES (SCOPE_THREADS / LANES)

// expScale sets dst[i] = 2^((x[i] - lo) * k) for n elements, at least 1, and divides
// them by their mean. dst may be x. A CTA of SCOPE_THREADS threads calls it. Each half
// of a warp sums a group; then every half adds up the sums of all in order, so that
// every thread has the whole.
DEVICE void expScale(float *dst, const float *x, i64 n, float lo, float k) {
	SHARED static float sums[SCOPE_HALVES][LANES];
	const u32 l = threadIndex() % LANES, half = threadIndex() / LANES;
	double total = 0;
	for (i64 g = 0; g < n; g += SCOPE_HALVES * GROUP) {
		const i64 first = g + half * GROUP + l;
		float v[CHUNKS], sum = 0;
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) { // all loads before the first store
			i64 i = first + j * LANES;
			v[j] = i < n ? x[i] : lo;
		}
#pragma unroll
		for (int j = 0; j < CHUNKS; j++) {
			i64 i = first + j * LANES;
			float d = v[j] - lo;
			float e = exp2OfAny(atMost(MAX_Y, atLeast(MIN_Y, d * k)));
			if (i < n) {
				dst[i] = e;
				sum += e;
			}
		}
		sums[half][l] = sum;
		syncThreads();
		for (int h = 0; h < SCOPE_HALVES; h++) total += (double)sums[h][l];
		syncThreads();
	}
	const float f = (float)((double)n / tree(total));
	for (i64 i = threadIndex(); i < n; i += SCOPE_THREADS) dst[i] *= f;
}
