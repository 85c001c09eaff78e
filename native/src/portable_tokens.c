/* The kernels on tokens, spans and groups in plain C: operation for operation those of
 * kernels_portable.go, which says in which order they sum. */
#include "internal.h"
#include "math.h"

void rw_lane_flush(lane_sum *s) {
	for (int j = 0; j < LANES; j++) {
		s->total[j] += (double)s->group[j];
		s->group[j] = 0;
	}
}

/* Adds v, element i of its piece. */
static inline void add(lane_sum *s, int64_t i, float v) {
	s->group[i % LANES] += v;
	if (i % GROUP_SIZE == GROUP_SIZE - 1) rw_lane_flush(s);
}

void rw_lane_clear(lane_sum *s) {
	for (int j = 0; j < LANES; j++) {
		s->total[j] = 0;
		s->group[j] = 0;
	}
}

void rw_lane_add(lane_sum *s, const float *x, int64_t n) {
	for (; n >= GROUP_SIZE; n -= GROUP_SIZE, x += GROUP_SIZE)
		for (int j = 0; j < LANES; j++) {
			float v = x[j];
			for (int i = LANES; i < GROUP_SIZE; i += LANES) v += x[i + j];
			s->total[j] += (double)v;
		}
	for (int64_t i = 0; i < n; i++) add(s, i, x[i]);
}

double rw_lane_sum(lane_sum *s) {
	rw_lane_flush(s);
	return tree(s->total);
}

void rw_masked_moments_portable(const float *x, const uint8_t *role, int64_t n, uint32_t roles, double shift,
                                moment_sums *m) {
	for (int64_t i = 0; i < n; i++) {
		if ((roles >> role[i] & 1) == 0) continue;
		double d = (double)x[i] - shift;
		m->sum[i % LANES] += d;
		m->squares[i % LANES] += d * d;
		m->count++;
	}
}

void rw_actfocus_weights_portable(float *dst, const float *signal, const uint8_t *role, int64_t n,
                                  const actfocus_consts *q) {
	for (int64_t i = 0; i < n; i++) {
		float w = 0;
		if (role[i] == REWEIGHT_ROLE_ACTION) {
			float d = (signal[i] - q->mu_hi) - q->mu_lo;
			float y = at_most(MAX_Y, at_least(MIN_Y, d * q->k));
			w = 1 + q->beta / (1 + exp2_32(y));
		} else if (role[i] == REWEIGHT_ROLE_REASONING) {
			w = q->alpha;
		}
		dst[i] = w;
	}
}

/* Sets sums[s] to the sum of x over span s, in the order of a row. */
void rw_span_sums_portable(double *sums, int64_t spans, const float *x, const int32_t *offsets) {
	for (int64_t s = 0; s < spans; s++) {
		double lanes[LANES] = {0};
		for (int64_t i = offsets[s]; i < offsets[s + 1]; i += BLOCK_SIZE) {
			float block[LANES] = {0};
			int64_t end = min_i64(i + BLOCK_SIZE, offsets[s + 1]);
			for (int64_t g = i; g < end; g += GROUP_SIZE) {
				float group[LANES] = {0};
				int64_t size = min_i64(GROUP_SIZE, end - g);
				for (int64_t j = 0; j < size; j++) group[j % LANES] += x[g + j];
				for (int j = 0; j < LANES; j++) block[j] += group[j];
			}
			for (int j = 0; j < LANES; j++) lanes[j] += (double)block[j];
		}
		sums[s] = tree(lanes);
	}
}

/* Sets lo[g] and hi[g] to the extremes of group g: both NaN if one is NaN, and +0 for -0. */
void rw_min_max_portable(float *lo, float *hi, int64_t groups, const float *x, const int32_t *offsets) {
	for (int64_t g = 0; g < groups; g++) {
		float low = INF_32, high = -INF_32;
		for (int64_t i = offsets[g]; i < offsets[g + 1]; i++) {
			if (x[i] != x[i]) {
				low = high = x[i];
				break;
			}
			if (x[i] < low) low = x[i];
			if (x[i] > high) high = x[i];
		}
		lo[g] = low + 0;
		hi[g] = high + 0;
	}
}

void rw_exp_scale_portable(float *dst, const float *x, int64_t n, float lo, float k, lane_sum *sum) {
	for (int64_t i = 0; i < n; i++) {
		float d = x[i] - lo;
		float e = exp2_32(at_most(MAX_Y, at_least(MIN_Y, d * k)));
		dst[i] = e;
		add(sum, i, e);
	}
}

void rw_scale_portable(float *dst, int64_t n, float f) {
	for (int64_t i = 0; i < n; i++) dst[i] *= f;
}

void rw_multiply_portable(float *dst, const float *a, const float *b, int64_t n) {
	for (int64_t i = 0; i < n; i++) dst[i] = a[i] * b[i];
}

void rw_surrogate_portable(float *grad, const float *logprobs, const float *old, const float *advantages,
                           const float *weights, const uint8_t *role, int64_t n, const surrogate_consts *q,
                           surrogate_sums *sums) {
	for (int64_t i = 0; i < n; i++) {
		float loss = 0, ratio = 0, g = 0; /* what a masked token adds */
		if (role[i] != REWEIGHT_ROLE_MASKED) {
			float w = weights == NULL ? 1 : weights[i];
			float d = logprobs[i] - old[i];
			ratio = at_most(20, at_least(-20, d));
			float rho = exp2_32(ratio * LOG2E_32), negative = -advantages[i];
			float l1 = negative * rho, l2 = negative * at_most(q->hi, at_least(q->lo, rho)), l3 = negative * q->dual;
			float l = l1;
			g = l1;
			if (l2 > l1) {
				l = l2;
				g = 0;
				sums->clipped++;
			}
			if (negative > 0 && l > l3) {
				l = l3;
				g = 0;
			}
			if (d < -20 || d > 20) g = 0;
			loss = w * l;
			g = w * g * q->scale;
			sums->tokens++;
		}
		grad[i] = g;
		add(&sums->loss, i, loss);
		add(&sums->log_ratio, i, ratio);
	}
}
