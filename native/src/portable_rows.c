/* The kernels on rows of logits in plain C: what runs on machines without assembly, the
 * twins of kernels_portable.go, where the one summation order and the arithmetic are
 * explained. */
#include "internal.h"
#include "math.h"

/* Where the sum of squares of a group begins: no sum is subnormal. */
#define SQUARES_FROM 0x1p-100f

int64_t rw_size_of(int32_t dtype) { return dtype == REWEIGHT_F32 ? 4 : 2; }

float rw_at(const row *x, int64_t i) {
	const char *at = x->data + i * rw_size_of(x->dtype);
	if (x->dtype == REWEIGHT_F32) return load_float(at);
	return x->dtype == REWEIGHT_BF16 ? from_bf16(load_u16(at)) : from_f16(load_u16(at));
}

void rw_set(const row *x, int64_t i, float f) {
	char *at = x->data + i * rw_size_of(x->dtype);
	if (x->dtype == REWEIGHT_F32) {
		store_float(at, f);
	} else {
		store_u16(at, to_bf16(f));
	}
}

void rw_load16(float to[LANES], const row *x, int64_t i, int64_t n) {
	const char *from = x->data + i * rw_size_of(x->dtype);
	int m = (int)min_i64(n - i, LANES);
	switch (x->dtype) {
	case REWEIGHT_F32:
		for (int j = 0; j < m; j++) to[j] = load_float(from + 4 * j);
		break;
	case REWEIGHT_BF16:
		for (int j = 0; j < m; j++) to[j] = from_bf16(load_u16(from + 2 * j));
		break;
	default:
		for (int j = 0; j < m; j++) to[j] = from_f16(load_u16(from + 2 * j));
	}
	for (; m < LANES; m++) to[m] = -INF_32;
}

float rw_block_max_portable(const row *x, int64_t i, int64_t n) {
	float v[LANES], m = -INF_32;
	for (; i < n; i += LANES) {
		rw_load16(v, x, i, n);
		for (int j = 0; j < LANES; j++) {
			if (v[j] != v[j]) return v[j];
			if (v[j] > m) m = v[j];
		}
	}
	return m;
}

int64_t rw_row_blocks_portable(const row *x, int64_t i, int64_t n, row_state *st, row_want want) {
	for (; i < n; i += BLOCK_SIZE) {
		float s[LANES] = {0}, t[LANES] = {0}, q[LANES] = {0}, v[LANES];
		int64_t end = min_i64(i + BLOCK_SIZE, n);
		for (int64_t g = i; g < end; g += GROUP_SIZE) {
			float gs[LANES] = {0}, gt[LANES] = {0}, gq[LANES];
			for (int j = 0; j < LANES; j++) gq[j] = SQUARES_FROM;
			for (int64_t e = g; e < min_i64(g + GROUP_SIZE, end); e += LANES) {
				rw_load16(v, x, e, end);
				for (int j = 0; j < LANES; j++) {
					if (v[j] > st->threshold) return i;
					float y = fma32(v[j], st->k, -st->c);
					if (st->k_lo != 0) y = fma32(v[j], st->k_lo, y);
					y = at_least(MIN_Y, y);
					float p = exp2_32(y);
					gs[j] += p;
					if (want >= WANT_ENTROPY) gt[j] = fma32(y, p, gt[j]);
					if (want == WANT_SQUARES) gq[j] = fma32(p, p, gq[j]);
				}
			}
			for (int j = 0; j < LANES; j++) {
				s[j] += gs[j];
				t[j] += gt[j];
				q[j] += gq[j];
			}
		}
		for (int j = 0; j < LANES; j++) {
			st->s[j] += (double)s[j];
			st->t[j] += (double)t[j];
			st->q[j] += (double)q[j];
		}
	}
	return n;
}

void rw_row_gradient_portable(const row *dst, const row *x, const grad_consts *q) {
	float v[LANES];
	for (int64_t i = 0; i < x->n; i += LANES) {
		rw_load16(v, x, i, x->n);
		for (int j = 0; j < min_i64(x->n - i, LANES); j++) {
			float y = fma32(v[j], q->k, -q->c), d = 0;
			if (q->k_lo != 0) y = fma32(v[j], q->k_lo, y);
			if (!(y < MIN_Y)) d = exp2_32(at_most(MAX_Y, y)) * fma32(y, q->a, q->b);
			rw_set(dst, i + j, d);
		}
	}
}
