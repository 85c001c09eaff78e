/* What the losses besides PPO's compute for each token: operation for operation
 * lossterms.go, with the exponentials of the assembly. A loop takes a block of tokens at a
 * time, whose exponentials are computed before. */
#include "internal.h"
#include "math.h"

/* What is computed for the tokens of a block before it is used. */
typedef struct token_block {
	float log_ratio[BLOCK_TOKENS], ratio[BLOCK_TOKENS]; /* clamped log-ratios, or 0 where masked; e to their power */
	float a[BLOCK_TOKENS], b[BLOCK_TOKENS];             /* further exponentials */
	float loss[BLOCK_TOKENS];                           /* of each token, times its weight; 0 where masked */
} token_block;

/* Returns x, or 0 if the role is masked. */
static inline float masked(uint8_t role, float x) { return role != REWEIGHT_ROLE_MASKED ? x : 0; }

/* Returns 1 if the sign of x is negative, and 0 if not. */
static inline int negative(float x) { return (int)(bits32(x) >> 31); }

/* Whether a log-ratio is clamped. */
static inline int outside(float d) { return d < -20 || d > 20; }

/* Sets the log-ratios a - b of n tokens, kept between -20 and 20. */
static void set_log_ratios(token_block *block, const float *a, const float *b, const uint8_t *role, int64_t n) {
	for (int64_t i = 0; i < n; i++)
		block->log_ratio[i] = masked(role[i], at_most(20, at_least(-20, a[i] - b[i])));
}

/* Sets the ratios too. */
static void set_ratios(int32_t isa, token_block *block, const float *a, const float *b, const uint8_t *role,
                       int64_t n) {
	set_log_ratios(block, a, b, role, n);
	rw_exps(isa, block->ratio, block->log_ratio, n, LOG2E_32);
}

/* ---- The terms of the policies ----
 *
 * Each of these sets the weighted loss of the n tokens of a block and the gradient, and
 * returns how many response tokens are clipped. grad may be any of the other arrays. */

/* The policies where the factor of a token is that of its sequence, for each sign of the
 * advantage. */
static int64_t sequence_terms(token_block *block, const loss_tokens *x, int64_t n, const loss_consts *q) {
	int64_t clipped = 0;
	if (q->clips[0] || q->clips[1]) {
		for (int64_t i = 0; i < n; i++) {
			float a = masked(x->role[i], x->advantages[i]);
			clipped += (a > 0 && q->clips[0]) || (a < 0 && q->clips[1]);
		}
	}
	for (int64_t i = 0; i < n; i++) {
		float w = x->weights[i], neg = -x->advantages[i];
		int j = negative(x->advantages[i]);
		float l = neg * (q->value[j] + q->linear[j] * x->logprobs[i]), g = q->slope[j];
		if (q->token_ratio) {
			g *= block->ratio[i];
			if (outside(x->logprobs[i] - x->old[i])) g = 0;
		}
		block->loss[i] = masked(x->role[i], w * l);
		x->grad[i] = masked(x->role[i], w * (neg * g) * q->scale);
	}
	return clipped;
}

/* CISPO: the clipped ratio is a constant factor. */
static int64_t cispo_terms(token_block *block, const loss_tokens *x, int64_t n, const loss_consts *q) {
	int64_t clipped = 0;
	for (int64_t i = 0; i < n; i++) {
		float w = x->weights[i], ratio = block->ratio[i];
		float c = at_most(q->hi, at_least(q->lo, ratio));
		clipped += c != ratio && x->role[i] != REWEIGHT_ROLE_MASKED;
		float g = -x->advantages[i] * c;
		block->loss[i] = masked(x->role[i], w * (g * x->logprobs[i]));
		x->grad[i] = masked(x->role[i], w * g * q->scale);
	}
	return clipped;
}

/* SAPO, whose factor is a sigmoid of the ratio. */
static int64_t sapo_terms(int32_t isa, token_block *block, const loss_tokens *x, int64_t n, const loss_consts *q) {
	float *y = block->a, *e = block->b;
	for (int64_t i = 0; i < n; i++) y[i] = (block->ratio[i] - 1) * q->rate[negative(x->advantages[i])];
	rw_exps(isa, e, y, n, 1);
	for (int64_t i = 0; i < n; i++) {
		float w = x->weights[i], neg = -x->advantages[i];
		float power = y[i] < MIN_Y ? 0 : e[i]; /* so that the derivative vanishes */
		float s = 1 / (1 + power);
		float l = neg * s * q->height[negative(x->advantages[i])];
		float g = 4 * neg * s * (power * s) * block->ratio[i];
		if (outside(x->logprobs[i] - x->old[i])) g = 0;
		block->loss[i] = masked(x->role[i], w * l);
		x->grad[i] = masked(x->role[i], w * g * q->scale);
	}
	return 0;
}

/* DPPO-TV: the capped ratio is a constant factor, 0 where the probability has moved too far
 * in the advantage's direction. */
static int64_t dppo_terms(int32_t isa, token_block *block, const loss_tokens *x, int64_t n, const loss_consts *q) {
	int64_t clipped = 0;
	float *now = block->a, *then = block->b;
	rw_exps(isa, now, x->logprobs, n, LOG2E_32);
	rw_exps(isa, then, x->old, n, LOG2E_32);
	for (int64_t i = 0; i < n; i++) {
		float w = x->weights[i], moved = now[i] - then[i];
		int clip = x->advantages[i] > 0 ? moved > q->hi : moved < -q->lo;
		clipped += clip && x->role[i] != REWEIGHT_ROLE_MASKED;
		float g = -x->advantages[i] * (clip ? 0 : at_most(q->cap, block->ratio[i]));
		block->loss[i] = masked(x->role[i], w * (g * x->logprobs[i]));
		x->grad[i] = masked(x->role[i], w * g * q->scale);
	}
	return clipped;
}

/* Returns the divergence of two outcomes, one of which has the log-probability new in place of
 * old; NaN where float64 has none. */
static double binary_kl(double old, double new) {
	double p = exp64(new), q = exp64(old), rest = (1 - q + 1e-8) / (1 - p + 1e-8);
	if (!(rest > 0 && is_finite(rest))) return NAN_64;
	return q * (old - new) + (1 - q) * log64(rest);
}

/* DPPO-KL: the same with the divergence of two outcomes, the token and any other, in float64,
 * because 1 minus a probability near 1 cancels. */
static int64_t dppo_kl_terms(token_block *block, const loss_tokens *x, int64_t n, const loss_consts *q) {
	int64_t clipped = 0;
	for (int64_t i = 0; i < n; i++) {
		float l = 0, g = 0;
		if (x->role[i] != REWEIGHT_ROLE_MASKED) {
			double new = (double)x->logprobs[i], old = (double)x->old[i];
			float a = x->advantages[i], w = x->weights[i];
			int away = a > 0 ? new > old : new < old;
			if (away && !(binary_kl(old, new) <= q->limits[a > 0 ? 0 : 1]))
				clipped++;
			else
				g = -a * at_most(q->cap, block->ratio[i]);
			l = w * (g * x->logprobs[i]);
			g = w * g * q->scale;
		}
		block->loss[i] = l;
		x->grad[i] = g;
	}
	return clipped;
}

/* DRO, in float64: the advantage and the penalty may cancel. */
static void dro_terms(token_block *block, const loss_tokens *x, int64_t n, const loss_consts *q) {
	for (int64_t i = 0; i < n; i++) {
		float l = 0, g = 0;
		if (x->role[i] != REWEIGHT_ROLE_MASKED) {
			double new = (double)x->logprobs[i], a = (double)x->advantages[i];
			double d = new - (double)x->old[i], pull = q->beta * d;
			l = (float)(pull * d / 2 - a * new);
			g = (float)(pull - a) * q->scale;
		}
		block->loss[i] = l;
		x->grad[i] = g;
	}
}

loss_tokens rw_tokens_from(const loss_tokens *x, int64_t first) {
	return (loss_tokens){x->grad + first,       x->logprobs + first, x->old + first, x->advantages + first,
	                     x->weights == NULL ? NULL : x->weights + first, x->role + first,
	                     x->chosen == NULL ? NULL : x->chosen + first};
}

void rw_policy_terms(int32_t isa, loss_kernel kernel, const loss_tokens *x, int64_t n, const loss_consts *q,
                     surrogate_sums *sums) {
	float ones[BLOCK_TOKENS];
	if (x->weights == NULL)
		for (int i = 0; i < BLOCK_TOKENS; i++) ones[i] = 1;
	token_block block;
	for (int64_t from = 0; from < n; from += BLOCK_TOKENS) {
		int64_t size = min_i64(BLOCK_TOKENS, n - from);
		loss_tokens y = rw_tokens_from(x, from);
		if (y.weights == NULL) y.weights = ones;
		if (kernel == LOSS_DRO || (kernel == LOSS_SEQUENCE && !q->token_ratio))
			set_log_ratios(&block, y.logprobs, y.old, y.role, size);
		else
			set_ratios(isa, &block, y.logprobs, y.old, y.role, size);
		switch (kernel) {
		case LOSS_SEQUENCE: sums->clipped += sequence_terms(&block, &y, size, q); break;
		case LOSS_CISPO: sums->clipped += cispo_terms(&block, &y, size, q); break;
		case LOSS_SAPO: sums->clipped += sapo_terms(isa, &block, &y, size, q); break;
		case LOSS_DPPO: sums->clipped += dppo_terms(isa, &block, &y, size, q); break;
		case LOSS_DPPO_KL: sums->clipped += dppo_kl_terms(&block, &y, size, q); break;
		case LOSS_DRO: dro_terms(&block, &y, size, q); break;
		}
		rw_lane_add(&sums->loss, block.loss, size);
		rw_lane_add(&sums->log_ratio, block.log_ratio, size);
	}
	sums->tokens += rw_responses(x->role, n);
	rw_lane_flush(&sums->loss); /* what comes next begins a group */
	rw_lane_flush(&sums->log_ratio);
}

/* ---- Ratios ---- */

int64_t rw_sum_log_ratios(const float *a, const float *b, const uint8_t *role, int64_t n, int clamp, double *sum) {
	double low = clamp ? -20 : -INF_64, high = clamp ? 20 : INF_64, lanes[LANES] = {0};
	for (int64_t i = 0; i < n; i++) {
		double d = role[i] != REWEIGHT_ROLE_MASKED ? (double)a[i] - (double)b[i] : 0;
		if (d < low) d = low;
		if (d > high) d = high;
		lanes[i % LANES] += d;
	}
	*sum = tree(lanes);
	return rw_responses(role, n);
}

void rw_importance(int32_t isa, float *dst, const float *a, const float *b, const uint8_t *role, int64_t n,
                   const ratio_consts *q, lane_sum *sum) {
	token_block block;
	for (int64_t from = 0; from < n; from += BLOCK_TOKENS) {
		int64_t size = min_i64(BLOCK_TOKENS, n - from);
		const uint8_t *r = role + from;
		set_ratios(isa, &block, a + from, b + from, r, size);
		float *kept = block.loss;
		for (int64_t i = 0; i < size; i++) {
			float c = at_most(q->hi, at_least(q->lo, block.ratio[i]));
			if (q->mask && c != block.ratio[i]) c = 0;
			kept[i] = masked(r[i], c);
		}
		rw_lane_add(sum, kept, size);
		if (dst != NULL)
			for (int64_t i = 0; i < size; i++) dst[from + i] = r[i] != REWEIGHT_ROLE_MASKED ? kept[i] : 1;
	}
}

/* ---- The divergence from the reference ---- */

/* e^y - 1 - y = y^2 (1/2 + y/6 + ...) for |y| <= 1/2, where the difference would lose its
 * last places: relative error at most 5e-8 before rounding. */
static const float kl_series[] = {0x1.a01a02p-16f, 0x1.a01a02p-13f, 0x1.6c16c2p-10f, 0x1.111112p-7f,
                                  0x1.555556p-5f,  0x1.555556p-3f,  0.5f};

/* Returns min(10, e - y - 1) with e = e^y, for y between -20 and 20, and sets *derivative to
 * that by -y, which is 0 where the value was cut: also wherever y was clamped to 20. */
static float k3_term(float y, float e, float *derivative) {
	float k;
	if (y == 0) { /* every masked token, for which fma32 would be slow */
		*derivative = -0.0f;
		return 0;
	}
	if (y < -0.5f || y > 0.5f) {
		k = e - 1 - y;
		*derivative = 1 - e;
	} else {
		float p = kl_series[0];
		for (int i = 1; i < 7; i++) p = fma32(p, y, kl_series[i]);
		float square = y * y;
		k = p * square;
		*derivative = -fma32(p, square, y);
	}
	if (k > 10) {
		k = 10;
		*derivative = 0;
	}
	return k;
}

void rw_divergence(int32_t isa, float *grad, const float *logprobs, const float *ref, const uint8_t *role, int64_t n,
                   int32_t form, float scale, lane_sum *sum) {
	token_block block;
	for (int64_t from = 0; from < n; from += BLOCK_TOKENS) {
		int64_t size = min_i64(BLOCK_TOKENS, n - from);
		const float *l = logprobs + from, *m = ref + from;
		const uint8_t *r = role + from;
		if (form == REWEIGHT_KL_K3 || form == REWEIGHT_KL_K3_PLUS) set_ratios(isa, &block, m, l, r, size);
		for (int64_t i = 0; i < size; i++) {
			float x = masked(r[i], l[i] - m[i]), k = x, g = x; /* g: that of k2, and of the forms with a plus */
			switch (form) {
			case REWEIGHT_KL_K1: g = 1; break;
			case REWEIGHT_KL_ABS: g = (float)((x > 0) - (x < 0)); /* fall through */
			case REWEIGHT_KL_ABS_PLUS: k = __builtin_fabsf(x); break;
			case REWEIGHT_KL_K2: k = 0.5f * x * x; break;
			case REWEIGHT_KL_K3: k = k3_term(block.log_ratio[i], block.ratio[i], &g); break;
			case REWEIGHT_KL_K3_PLUS: {
				float own;
				k = k3_term(block.log_ratio[i], block.ratio[i], &own);
			}
			}
			grad[from + i] += masked(r[i], g * scale);
			block.loss[i] = k;
		}
		rw_lane_add(sum, block.loss, size);
	}
}

/* ---- The loss of the critic ---- */

int64_t rw_value_terms(float *grad, const float *values, const float *old, const float *returns, const uint8_t *role,
                       int64_t n, float clip, float scale, lane_sum *sum) {
	int64_t clipped = 0;
	float loss[BLOCK_TOKENS];
	for (int64_t from = 0; from < n; from += BLOCK_TOKENS) {
		int64_t size = min_i64(BLOCK_TOKENS, n - from);
		for (int64_t i = 0; i < size; i++) {
			int64_t t = from + i;
			float low = old[t] - clip, high = old[t] + clip, c = values[t];
			if (c < low) c = low;
			if (c > high) c = high;
			float d = values[t] - returns[t], dc = c - returns[t];
			float square = d * d, cut = dc * dc;
			loss[i] = masked(role[t], 0.5f * (cut > square ? cut : square));
			grad[t] = masked(role[t], cut > square ? 0 : d * scale);
			clipped += cut > square && role[t] != REWEIGHT_ROLE_MASKED;
		}
		rw_lane_add(sum, loss, size);
	}
	return clipped;
}
