/* The kernels on tokens, spans and groups by the instruction set, and one by one for
 * callers who compose their own step. The assembly takes whole chunks of 16. What is left
 * goes through the portable twin, whose bits are the same: element i of the rest is in lane
 * i, as it would be after whole chunks. One call takes an array as a whole: the pieces of
 * the Go package are for its scheduler, and do not change the order of any sum. */
#include "internal.h"
#include "math.h"

#ifdef ASSEMBLY

DECLARE(maskedMoments);
DECLARE(actFocusWeights);
DECLARE(spanSums);
DECLARE(minMax);
DECLARE(expScale);
DECLARE(scale);
DECLARE(multiply);
DECLARE(surrogate);

/* Calls a function of the assembly with words of 8 bytes. */
#define CALL(function, ...) \
	do { \
		uint64_t frame[] = {__VA_ARGS__}; \
		rw_call(function, frame, sizeof frame / sizeof frame[0]); \
	} while (0)

/* Two float32 in a row share a word. */
static uint64_t word_of_floats(float a, float b) { return bits32(a) | (uint64_t)bits32(b) << 32; }

/* Returns how many whole chunks of n elements the assembly takes. */
static int64_t chunks_of(int32_t isa, int64_t n) { return isa == REWEIGHT_PORTABLE ? 0 : n / LANES; }

/* The weights of a chunk where there are none. */
static const float ones[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

#endif

/* ---- By the instruction set ---- */

static void masked_moments(int32_t isa, const float *x, const uint8_t *role, int64_t n, uint32_t roles, double shift,
                           moment_sums *m) {
#ifdef ASSEMBLY
	int64_t chunks = chunks_of(isa, n), whole = chunks * LANES;
	if (chunks > 0) {
		CALL(ASSEMBLY(maskedMoments), word(x), word(role), (uint64_t)chunks, roles, bits64(shift), word(m));
		x += whole;
		role += whole;
		n -= whole;
	}
#endif
	(void)isa;
	rw_masked_moments_portable(x, role, n, roles, shift, m);
}

static void actfocus_weights(int32_t isa, float *dst, const float *signal, const uint8_t *role, int64_t n,
                             const actfocus_consts *q) {
#ifdef ASSEMBLY
	int64_t chunks = chunks_of(isa, n), whole = chunks * LANES;
	if (chunks > 0) {
		CALL(ASSEMBLY(actFocusWeights), word(dst), word(signal), word(role), (uint64_t)chunks, word(q));
		dst += whole;
		signal += whole;
		role += whole;
		n -= whole;
	}
#endif
	(void)isa;
	rw_actfocus_weights_portable(dst, signal, role, n, q);
}

static void span_sums(int32_t isa, double *sums, int64_t spans, const float *x, int64_t n, const int32_t *offsets) {
#ifdef ASSEMBLY
	if (isa != REWEIGHT_PORTABLE && spans > 0 && n > 0) {
		CALL(ASSEMBLY(spanSums), word(sums), word(x), word(offsets), (uint64_t)spans);
		return;
	}
#endif
	(void)isa;
	(void)n;
	rw_span_sums_portable(sums, spans, x, offsets);
}

void rw_min_max(int32_t isa, float *lo, float *hi, int64_t groups, const float *x, int64_t n, const int32_t *offsets) {
#ifdef ASSEMBLY
	if (isa != REWEIGHT_PORTABLE && groups > 0 && n > 0) {
		CALL(ASSEMBLY(minMax), word(lo), word(hi), word(x), word(offsets), (uint64_t)groups);
		return;
	}
#endif
	(void)isa;
	(void)n;
	rw_min_max_portable(lo, hi, groups, x, offsets);
}

static void exp_scale(int32_t isa, float *dst, const float *x, int64_t n, float lo, float k, lane_sum *sum) {
#ifdef ASSEMBLY
	int64_t chunks = chunks_of(isa, n), whole = chunks * LANES;
	if (chunks > 0) {
		CALL(ASSEMBLY(expScale), word(dst), word(x), (uint64_t)chunks, word_of_floats(lo, k), word(sum));
		dst += whole;
		x += whole;
		n -= whole;
	}
#endif
	(void)isa;
	rw_exp_scale_portable(dst, x, n, lo, k, sum);
}

static void scale_by(int32_t isa, float *dst, int64_t n, float f) {
#ifdef ASSEMBLY
	int64_t chunks = chunks_of(isa, n), whole = chunks * LANES;
	if (chunks > 0) {
		CALL(ASSEMBLY(scale), word(dst), (uint64_t)chunks, bits32(f));
		dst += whole;
		n -= whole;
	}
#endif
	(void)isa;
	rw_scale_portable(dst, n, f);
}

void rw_multiply(int32_t isa, float *dst, const float *a, const float *b, int64_t n) {
#ifdef ASSEMBLY
	int64_t chunks = chunks_of(isa, n), whole = chunks * LANES;
	if (chunks > 0) {
		CALL(ASSEMBLY(multiply), word(dst), word(a), word(b), (uint64_t)chunks);
		dst += whole;
		a += whole;
		b += whole;
		n -= whole;
	}
#endif
	(void)isa;
	rw_multiply_portable(dst, a, b, n);
}

static void surrogate(int32_t isa, float *grad, const float *logprobs, const float *old, const float *advantages,
                      const float *weights, const uint8_t *role, int64_t n, const surrogate_consts *q,
                      surrogate_sums *sums) {
#ifdef ASSEMBLY
	int64_t chunks = chunks_of(isa, n), whole = chunks * LANES;
	if (chunks > 0) {
		const float *w = weights == NULL ? ones : weights;
		uint64_t stride = weights == NULL ? 0 : LANES * sizeof(float);
		CALL(ASSEMBLY(surrogate), word(grad), word(logprobs), word(old), word(advantages), word(w), stride,
		     word(role), (uint64_t)chunks, word(q), word(sums));
		grad += whole;
		logprobs += whole;
		old += whole;
		advantages += whole;
		if (weights != NULL) weights += whole;
		role += whole;
		n -= whole;
	}
#endif
	(void)isa;
	rw_surrogate_portable(grad, logprobs, old, advantages, weights, role, n, q, sums);
}

/* ---- What the schemes call ---- */

/* Returns a negative rate of an exponent as float32, which it may be too large for. */
static float rate32(double rate) { return (float)(rate < -(double)MAX_FLOAT ? -(double)MAX_FLOAT : rate); }

reweight_moments rw_moments(int32_t isa, const float *x, const uint8_t *role, int64_t n, uint32_t roles, double shift) {
	moment_sums m;
	for (int j = 0; j < LANES; j++) m.sum[j] = m.squares[j] = 0;
	m.count = 0;
	masked_moments(isa, x, role, n, roles, shift, &m);
	return (reweight_moments){m.count, tree(m.sum), tree(m.squares)};
}

int64_t rw_spread(int32_t isa, const float *x, const uint8_t *role, int64_t n, uint32_t roles, double *mean,
                  double *squares) {
	*mean = *squares = 0;
	reweight_moments m = rw_moments(isa, x, role, n, roles, 0);
	if (m.n == 0) return 0;
	*mean = m.sum / (double)m.n;
	reweight_moments d = rw_moments(isa, x, role, n, roles, *mean);
	/* The mean is rounded: what the sum about it is off from 0 is taken out. */
	*squares = d.squares - d.sum * d.sum / (double)d.n;
	if (*squares <= 0) *squares = 0;
	return m.n;
}

void rw_actfocus_weights(int32_t isa, float *dst, const float *signal, const uint8_t *role, int64_t n, double mean,
                         double sigma, const reweight_actfocus_options *options) {
	actfocus_consts q = {(float)mean, 0, 0, (float)options->alpha, (float)options->beta};
	q.mu_lo = (float)(mean - (double)q.mu_hi);
	if (sigma > 0) q.k = rate32(-LOG2E / sigma);
	actfocus_weights(isa, dst, signal, role, n, &q);
}

void rw_span_means(int32_t isa, float *dst, int64_t spans, const float *x, int64_t n, const int32_t *offsets) {
	double sums[64];
	for (int64_t s = 0; s < spans; s += 64) {
		int64_t size = min_i64(64, spans - s);
		span_sums(isa, sums, size, x, n, offsets + s);
		for (int64_t i = 0; i < size; i++) dst[s + i] = (float)(sums[i] / (double)(offsets[s + i + 1] - offsets[s + i]));
	}
}

void rw_exp_scale(int32_t isa, float *dst, const float *x, int64_t n, float lo, double rate) {
	lane_sum sum;
	rw_lane_clear(&sum);
	exp_scale(isa, dst, x, n, lo, rate32(-rate * LOG2E), &sum);
	scale_by(isa, dst, n, (float)((double)n / rw_lane_sum(&sum)));
}

void rw_exps(int32_t isa, float *dst, const float *x, int64_t n, float k) {
	lane_sum sum; /* of no use here */
	rw_lane_clear(&sum);
	exp_scale(isa, dst, x, n, 0, k, &sum);
}

void rw_surrogate_clear(surrogate_sums *sums) {
	rw_lane_clear(&sums->loss);
	rw_lane_clear(&sums->log_ratio);
	sums->tokens = sums->clipped = 0;
}

reweight_surrogate_sums rw_surrogate_result(surrogate_sums *sums) {
	return (reweight_surrogate_sums){sums->tokens, sums->clipped, rw_lane_sum(&sums->loss),
	                                 rw_lane_sum(&sums->log_ratio)};
}

void rw_clipped_surrogate(int32_t isa, const loss_tokens *x, int64_t n, double scale,
                          const reweight_loss_options *options, surrogate_sums *sums) {
	surrogate_consts q = {(float)(1 - options->clip_low), (float)(1 + options->clip_high), (float)options->dual_clip,
	                      (float)scale};
	if (options->dual_clip == 0) q.dual = INF_32;
	surrogate(isa, x->grad, x->logprobs, x->old, x->advantages, x->weights, x->role, n, &q, sums);
}

/* ---- One by one ---- */

int reweight_masked_moments(const reweight_workspace *ws, reweight_moments *result, const float *x,
                            const uint8_t *role, int64_t n, uint32_t roles, double shift, reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_N, n, error) ||
	    rw_check_array(REWEIGHT_ARG_X, x, n, error) || rw_check_roles(role, n, error))
		return REWEIGHT_BAD_INPUT;
	if (!is_finite(shift)) return BAD(error, FINITE, REWEIGHT_ARG_SHIFT, -1, bits64(shift));
	*result = rw_moments(isa, x, role, n, roles & ALL_ROLES, shift);
	return REWEIGHT_OK;
}

int reweight_actfocus_weights(const reweight_workspace *ws, float *dst, const float *signal, const uint8_t *role,
                              int64_t n, double mean, double sigma, const reweight_actfocus_options *options,
                              reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_N, n, error) ||
	    rw_check_array(REWEIGHT_ARG_DST, dst, n, error) || rw_check_array(REWEIGHT_ARG_SIGNAL, signal, n, error) ||
	    rw_check_roles(role, n, error) || rw_check_actfocus_options(options, error) ||
	    rw_check_magnitude(REWEIGHT_ARG_MEAN, mean, error) || rw_check_not_negative(REWEIGHT_ARG_SIGMA, sigma, error))
		return REWEIGHT_BAD_INPUT;
	rw_actfocus_weights(isa, dst, signal, role, n, mean, sigma, options);
	return REWEIGHT_OK;
}

/* Wants offsets to cut count ranges out of size elements. */
static int check_ranges(int64_t count, int64_t size, const int32_t *offsets, reweight_error *error) {
	if (rw_check_array(REWEIGHT_ARG_OFFSETS, offsets, count + 1, error)) return REWEIGHT_BAD_INPUT;
	if (offsets[0] < 0) return BAD(error, COUNT_NOT_NEGATIVE, REWEIGHT_ARG_OFFSETS, 0, offsets[0]);
	for (int64_t i = 1; i <= count; i++)
		if (offsets[i] < offsets[i - 1])
			return BAD(error, OFFSET, REWEIGHT_ARG_OFFSETS, i, offsets[i], offsets[i - 1]);
	if (offsets[count] > size)
		return BAD(error, RANGE_END, REWEIGHT_ARG_OFFSETS, count, offsets[count], size);
	return REWEIGHT_OK;
}

int reweight_span_means(const reweight_workspace *ws, float *dst, int64_t spans, const float *x, int64_t n,
                        const int32_t *offsets, reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_SPANS, spans, error) ||
	    rw_check_count(REWEIGHT_ARG_N, n, error) || rw_check_array(REWEIGHT_ARG_DST, dst, spans, error) ||
	    rw_check_array(REWEIGHT_ARG_X, x, n, error) || check_ranges(spans, n, offsets, error))
		return REWEIGHT_BAD_INPUT;
	rw_span_means(isa, dst, spans, x, n, offsets);
	return REWEIGHT_OK;
}

int reweight_min_max(const reweight_workspace *ws, float *lo, float *hi, int64_t groups, const float *x, int64_t n,
                     const int32_t *offsets, reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_GROUPS, groups, error) ||
	    rw_check_count(REWEIGHT_ARG_N, n, error) || rw_check_array(REWEIGHT_ARG_LO, lo, groups, error) ||
	    rw_check_array(REWEIGHT_ARG_HI, hi, groups, error) || rw_check_array(REWEIGHT_ARG_X, x, n, error) ||
	    check_ranges(groups, n, offsets, error))
		return REWEIGHT_BAD_INPUT;
	rw_min_max(isa, lo, hi, groups, x, n, offsets);
	return REWEIGHT_OK;
}

int reweight_exp_scale(const reweight_workspace *ws, float *dst, const float *x, int64_t n, float lo, double rate,
                       reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_N, n, error)) return REWEIGHT_BAD_INPUT;
	if (n == 0) return BAD(error, EMPTY, REWEIGHT_ARG_X, -1);
	if (rw_check_array(REWEIGHT_ARG_X, x, n, error) || rw_check_array(REWEIGHT_ARG_DST, dst, n, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_RATE, rate, error))
		return REWEIGHT_BAD_INPUT;
	if (!is_finite(lo)) return BAD(error, FINITE, REWEIGHT_ARG_LO, -1, bits64(lo));
	rw_exp_scale(isa, dst, x, n, lo, rate);
	return REWEIGHT_OK;
}

int reweight_multiply(const reweight_workspace *ws, float *dst, const float *a, const float *b, int64_t n,
                      reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_N, n, error) ||
	    rw_check_array(REWEIGHT_ARG_DST, dst, n, error) || rw_check_array(REWEIGHT_ARG_A, a, n, error) ||
	    rw_check_array(REWEIGHT_ARG_B, b, n, error))
		return REWEIGHT_BAD_INPUT;
	rw_multiply(isa, dst, a, b, n);
	return REWEIGHT_OK;
}

int reweight_surrogate(const reweight_workspace *ws, reweight_surrogate_sums *result, float *grad,
                       const float *logprobs, const float *old_logprobs, const float *advantages, const float *weights,
                       const uint8_t *role, int64_t n, double scale, const reweight_loss_options *options,
                       reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_N, n, error) ||
	    rw_check_array(REWEIGHT_ARG_GRAD, grad, n, error) ||
	    rw_check_array(REWEIGHT_ARG_LOGPROBS, logprobs, n, error) ||
	    rw_check_array(REWEIGHT_ARG_OLD_LOGPROBS, old_logprobs, n, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, n, error) || rw_check_roles(role, n, error) ||
	    rw_check_loss_options(options, error) || rw_check_unweighted(weights, options, error) ||
	    rw_check_magnitude(REWEIGHT_ARG_SCALE, scale, error))
		return REWEIGHT_BAD_INPUT;
	if (rw_by_span(options))
		return BAD(error, SPANLESS, REWEIGHT_ARG_SEQUENCE, -1, options->sequence, REWEIGHT_SEQUENCE_TRAJECTORY);
	if (options->policy != REWEIGHT_POLICY_PPO &&
	    (rw_check_finite(isa, REWEIGHT_ARG_LOGPROBS, logprobs, role, n, error) ||
	     rw_check_finite(isa, REWEIGHT_ARG_BARE_OLD_LOGPROBS, old_logprobs, role, n, error) ||
	     rw_check_finite(isa, REWEIGHT_ARG_ADVANTAGES, advantages, role, n, error) ||
	     (weights != NULL && rw_check_finite(isa, REWEIGHT_ARG_WEIGHTS, weights, role, n, error))))
		return REWEIGHT_BAD_INPUT;
	arena a;
	if (rw_scratch(ws, &a, rw_choose_scratch(n, options), n, 0, 0, error)) return REWEIGHT_BAD_INPUT;
	loss_tokens x = {grad, logprobs, old_logprobs, advantages, weights, role, NULL};
	x.chosen = rw_choose(&a, isa, &x, n, options);
	surrogate_sums sums;
	rw_surrogate_clear(&sums);
	rw_loss_terms(isa, &x, n, scale, options, &sums);
	*result = rw_surrogate_result(&sums);
	return REWEIGHT_OK;
}
