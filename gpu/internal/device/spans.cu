// The kernels on spans, groups and scopes one by one.

#include "spans.cuh"

// Ranges are elements offsets[i] to offsets[i+1] of an array of size elements.
struct Ranges {
	const i32 *offsets; // [count+1]
	i64 count, size;
	Status *status;
};

// rangeOf reads where range i begins and ends, and returns whether that is within the
// array. What is wrong is reported if this thread is to do so: where the offsets
// decrease, and at the first and the last. Any other range that is not within the
// array lies before or behind one of these.
DEVICE bool rangeOf(const Ranges &r, i64 i, bool reports, i64 &from, i64 &to) {
	from = r.offsets[i];
	to = r.offsets[i + 1];
	if (0 <= from && from <= to && to <= r.size) return true;
	if (reports) {
		if (i == 0 && from < 0) report(r.status, PROBLEM_COUNT_NOT_NEGATIVE, ARG_OFFSETS, 0, from);
		else if (to < from) report(r.status, PROBLEM_OFFSET, ARG_OFFSETS, i + 1, to, from);
		else if (i == r.count - 1 && to > r.size) report(r.status, PROBLEM_RANGE_END, ARG_OFFSETS, i + 1, to, r.size);
	}
	return false;
}

struct SpanMeans {
	float *dst; // [ranges.count]
	const float *x;
	Ranges ranges;
};

// span_means gives half a warp to each span. A span that is not within the array counts
// as an empty one, whose mean is NaN.
KERNEL(128) void span_means(SpanMeans p) {
	const bool first = lane() % LANES == 0;
	for (i64 w = globalWarp(); w * 2 < p.ranges.count; w += globalWarps()) {
		const i64 s = w * 2 + lane() / LANES;
		const bool exists = s < p.ranges.count;
		i64 from = 0, to = 0;
		if (exists && !rangeOf(p.ranges, s, first, from, to)) from = to = 0;
		const double sum = spanSum(p.x, from, to);
		if (exists && first) p.dst[s] = (float)(sum / (double)(to - from));
	}
}

struct MinMax {
	float *lo, *hi; // [ranges.count]
	const float *x;
	Ranges ranges;
};

// min_max gives a warp to each group.
KERNEL(128) void min_max(MinMax p) {
	for (i64 g = globalWarp(); g < p.ranges.count; g += globalWarps()) {
		i64 from, to;
		float lo = NAN32, hi = NAN32;
		if (rangeOf(p.ranges, g, lane() == 0, from, to)) extremes(p.x, from, to, lo, hi);
		if (lane() == 0) {
			p.lo[g] = lo;
			p.hi[g] = hi;
		}
	}
}

struct ExpScale {
	float *dst;
	const float *x;
	i64 n;
	double rate;
	float lo;
	u32 unused;
};

// exp_scale is one CTA: a scope has no more spans than it can do.
KERNEL(SCOPE_THREADS) void exp_scale(ExpScale p) {
	expScale(p.dst, p.x, p.n, p.lo, expScaleRate(p.rate));
}
