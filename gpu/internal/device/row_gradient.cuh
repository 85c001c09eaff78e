// The gradient of rows of logits: rowgradient.go, a warp or a team a row. Each element has its own
// value, with no order to keep; rows.cuh is for rows whose logsumexp must be summed.

#pragma once

#include "rows.cuh"

// What the gradient of a row is made of, in float64.
struct Terms {
	double own;   // of the chosen id
	double lse2;  // the logsumexp in log2 units: log2 p_v = x_v * K - lse2
	double scale; // of the other elements; 0 if the row is done in float64
};

// rowgradient.go fills in the same struct.
struct RowGradient {
	Terms *exact;                           // 0, or where a test wants the float64 behind the results
	u8 *dst;                                // may be the logits
	i64 dstStride, dstGap;                  // bytes, as those of rows
	const float *logprobs, *entropy, *grad; // one for each row in memory; entropy is not read where the bonus is 0
	const float *gradEntropy;               // likewise, taken from the bonus; 0 for zeros
	const float *lse;                       // likewise; 0 to have it from the chosen element
	double bonus;
	Rows rows;
};

// The log-probability from which on down the logsumexp is summed again.
#define FAR_LOGPROB -64

// Two numbers as bfloat16, rounded to nearest even.
DEVICE u32 packPair(float low, float high) {
	u32 d;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
	return d;
}

template <int TYPE> DEVICE void put(u8 *p, float v) {
	if (TYPE == F32) *(float *)p = v;
	else *(u16 *)p = (u16)packPair(v, 0);
}

// Constants are gradConsts of kernels_portable.go.
struct Constants {
	Scale scale;
	float c, a, b;
};

// gradientOf is an element's gradient, as rowGradientPortable computes it. fminf takes a
// NaN to MAX_Y, but the other factor is NaN then. Below MIN_Y the power is not one of 2,
// and not used.
template <bool TEMPERED> DEVICE float gradientOf(const Constants &q, float x) {
	float y = logOf<TEMPERED>(q.scale, q.c, x);
	float e = exp2OfNumber(__builtin_fminf(MAX_Y, y)) * fma32(y, q.a, q.b);
	return y < MIN_Y ? 0 : e;
}

// A Vector is what a thread reads and writes at a time.
typedef u32 Vector __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(1))) Vector GlobalVector;

template <int TYPE, bool TEMPERED> DEVICE Vector gradientsOf(const Constants &q, Vector x) {
	Vector d;
#pragma unroll
	for (int j = 0; j < 4; j++) {
		if (TYPE == F32) d[j] = bitsOf(gradientOf<TEMPERED>(q, floatOf(x[j])));
		else d[j] = packPair(gradientOf<TEMPERED>(q, lowOf<TYPE>(x[j])), gradientOf<TEMPERED>(q, highOf<TYPE>(x[j])));
	}
	return d;
}

// A Span is a row cut into elements before an address that 16 divides, vectors, and
// elements after the last.
struct Span { int head, vectors; i64 tail; };

template <int TYPE> DEVICE Span cut(const u8 *p, i64 n) {
	const int SIZE = Format<TYPE>::SIZE, PER = sizeof(Vector) / SIZE;
	Span s;
	s.head = (int)smaller((i64)(-(u64)p % sizeof(Vector) / SIZE), n);
	s.vectors = (int)((n - s.head) / PER);
	s.tail = s.head + (i64)s.vectors * PER;
	return s;
}

// fill sets all elements of a row to v.
template <int TYPE> DEVICE void fill(u8 *d, i64 n, float v) {
	const int SIZE = Format<TYPE>::SIZE, thread = (int)threadIndex(), threads = (int)threadCount();
	Span s = cut<TYPE>(d, n);
	u32 w = TYPE == F32 ? bitsOf(v) : packPair(v, v);
	Vector all = {w, w, w, w};
	GlobalVector *to = (GlobalVector *)(d + s.head * SIZE);
	if (thread < s.head) put<TYPE>(d + thread * SIZE, v);
#pragma unroll 1
	for (int i = thread; i < s.vectors; i += threads) to[i] = all;
	if (thread < n - s.tail) put<TYPE>(d + (s.tail + thread) * SIZE, v);
}

// mapRow sets d[i] to the gradient of x[i]. d may be x.
template <int TYPE, bool TEMPERED> DEVICE void mapRow(const Constants &q, u8 *d, const u8 *x, i64 n) {
	const int SIZE = Format<TYPE>::SIZE, AT_ONCE = 4; // vectors that a thread has under way
	const int thread = (int)threadIndex(), threads = (int)threadCount();
	Span s = cut<TYPE>(x, n);
	if (((u64)d - (u64)x) % sizeof(Vector) != 0) { // the vectors of one are not those of the other
		s.vectors = 0;
		s.tail = s.head;
	}
	if (thread < s.head) put<TYPE>(d + thread * SIZE, gradientOf<TEMPERED>(q, element<TYPE>(x + thread * SIZE)));
	const GlobalVector *from = (const GlobalVector *)(x + s.head * SIZE);
	GlobalVector *to = (GlobalVector *)(d + s.head * SIZE);
#pragma unroll 1
	for (int i = thread; i < s.vectors; i += AT_ONCE * threads) {
		Vector w[AT_ONCE];
#pragma unroll
		for (int j = 0; j < AT_ONCE; j++)
			if (i + j * threads < s.vectors) w[j] = from[i + j * threads];
#pragma unroll
		for (int j = 0; j < AT_ONCE; j++)
			if (i + j * threads < s.vectors) to[i + j * threads] = gradientsOf<TYPE, TEMPERED>(q, w[j]);
	}
#pragma unroll 1
	for (i64 i = s.tail + thread; i < n; i += threads) put<TYPE>(d + i * SIZE, gradientOf<TEMPERED>(q, element<TYPE>(x + i * SIZE)));
}

// mapSlowRow is gradientRowSlow of rowgradient.go.
template <int TYPE> DEVICE void mapSlowRow(u8 *d, const u8 *x, i64 n, double lse, double g, double h, double bonus, double temperature) {
	const int SIZE = Format<TYPE>::SIZE, thread = (int)threadIndex(), threads = (int)threadCount();
	RowSums s = {};
	s.logS = lse;
	if (lse != lse) s = slowRow<TYPE>(x, n, temperature);
	syncTeam(); // all have read x, which may be d
#pragma unroll 1
	for (i64 i = thread; i < n; i += threads) {
		double l = ((double)element<TYPE>(x + i * SIZE) - s.ref) / temperature - s.logS, p = exp64(l), v = 0;
		if (p > 0) v = p * (bonus * (l + h) - g) / temperature;
		put<TYPE>(d + i * SIZE, (float)v);
	}
}

// sumRow is that of tokenstats.go. In a team every warp sums the row: few rows need it.
template <int TYPE, bool TEMPERED> DEVICE RowSums sumRow(const Rows &rows, const u8 *x, Slice<1> *mine) {
	typedef Format<TYPE> F;
	Chunk c = firstChunk(x, (i64)rows.vocab * F::SIZE);
	Sum sum = begin<TYPE, TEMPERED>(rows, x);
#pragma unroll 1
	for (bool last = false; !last; c = chunkAfter(c, 1)) {
		last = isLast(c, 1);
		load<TYPE>(mine->buffers[0], c);
		endGroup();
		awaitAllBut<0>();
		syncWarp();
		addNext<TYPE, TEMPERED>(sum, mine->buffers[0], c, mine->sums);
		syncWarp(); // all are done with the buffer
	}
	return finish<TYPE>(sum, x, rows.vocab, rows.temperature);
}

// gradientRow is that of rowgradient.go.
template <int TYPE, bool TEMPERED> DEVICE void gradientRow(const RowGradient &p, i64 row, Slice<1> *mine) {
	const i64 n = p.rows.vocab, id = idOf(p.rows, row, p.lse ? -1 : 0);
	const u8 *x = rowAt(p.rows, row);
	u8 *d = p.dst + row * p.dstStride + sequenceOf(p.rows, row) * p.dstGap;
	const double g = p.grad[row], temperature = p.rows.temperature;
	const double bonus = p.gradEntropy ? p.bonus - p.gradEntropy[row] : p.bonus;
	double l = p.logprobs[row];
	const double lse = p.lse ? p.lse[row] : NAN32;
	const bool zero = g == 0 && bonus == 0;
	if (id == NO_ID || zero || l != l || (p.lse && lse - lse != 0)) {
		fill<TYPE>(d, n, id == NO_ID || !zero ? NAN32 : 0);
		return;
	}
	const double h = bonus != 0 ? p.entropy[row] : 0;
	const float chosen = p.lse ? 0 : element<TYPE>(x + id * Format<TYPE>::SIZE);
	Constants q;
	q.scale = scaleOf<TEMPERED>(temperature);
	const double k = (double)q.scale.k + (double)q.scale.kLo;
	Terms terms;
	if (p.lse) {
		terms.lse2 = lse * temperature * k; // as an element of that value with the log-probability 0 would give it
	} else if (l > FAR_LOGPROB) {
		terms.lse2 = (double)chosen * k - l * LOG2E;
	} else {
		RowSums s = sumRow<TYPE, TEMPERED>(p.rows, x, mine);
		l = logprobOf(s, chosen, temperature);
		terms.lse2 = s.ref * k + s.logS * LOG2E;
	}
	const double py = exp64(l);
	terms.own = g * (1 - py);
	if (l > -0.5) terms.own = -(g * (k3(l) + l)); // 1 - p_y without cancellation
	if (py > 0) terms.own += bonus * (py * (l + h));
	terms.scale = 0;
	q.c = (float)terms.lse2;
	syncTeam(); // all have read the chosen element
	if (!(q.c > -MOST_Y && q.c < MOST_Y) || slowTemperature<TEMPERED>(temperature)) {
		mapSlowRow<TYPE>(d, x, n, lse, g, h, bonus, temperature);
	} else {
		const double rest = (double)q.c - terms.lse2;
		terms.scale = exp64(rest * LN2) / temperature;
		q.a = (float)((bonus * terms.scale) * LN2);
		q.b = (float)(terms.scale * (bonus * (h + rest * LN2) - g));
		mapRow<TYPE, TEMPERED>(q, d, x, n);
	}
	syncTeam(); // the chosen element is written again
	if (threadIndex() == 0) {
		if (id >= 0) put<TYPE>(d + id * Format<TYPE>::SIZE, (float)(terms.own / temperature));
		if (p.exact) p.exact[row] = terms;
	}
}

template <int TYPE, bool TEMPERED> DEVICE void rowGradient(const RowGradient &p) {
	i64 turn = blockIndex();
#pragma unroll 1
	for (i64 row = takeRow(p.rows, turn); row >= 0; row = takeRow(p.rows, turn)) gradientRow<TYPE, TEMPERED>(p, row, allSlices<1>() + warp());
}
