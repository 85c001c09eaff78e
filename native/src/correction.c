/* Corrections for the engine that sampled, and for a policy that has moved on. */
#include "internal.h"
#include "math.h"

/* The mean of the factors that they are not divided by any more. */
#define LEAST_MEAN 1e-8

/* Wants 0 <= low <= high, of which high may be +Inf. */
static int check_bounds(double low, double high, reweight_error *error) {
	if (rw_check_not_negative(REWEIGHT_ARG_LOW, low, error)) return REWEIGHT_BAD_INPUT;
	if (!(high >= low)) return BAD(error, AT_LEAST_LOW, REWEIGHT_ARG_HIGH, -1, bits64(high), bits64(low));
	return REWEIGHT_OK;
}

/* Checks the layout and the log-probabilities of both policies. */
static int check_rollout(int32_t isa, const reweight_batch *batch, reweight_error *error) {
	return rw_check_layout(batch, error) ||
	       rw_check_responses(isa, REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, batch, error) ||
	       rw_check_responses(isa, REWEIGHT_ARG_ROLLOUT_LOGPROBS, batch->rollout_logprobs, batch, error);
}

static double clamp20(double x) {
	if (x > 20) x = 20;
	return x < -20 ? -20 : x;
}

/* Each token has its own ratio. */
static void correct_tokens(float *factors, const reweight_batch *batch, const reweight_rollout_correction_options *o) {
	const float *x = batch->old_logprobs, *y = batch->rollout_logprobs, low = (float)o->low, high = (float)o->high;
	lane_sum sum; /* of the response tokens */
	for (int j = 0; j < LANES; j++) {
		sum.total[j] = 0;
		sum.group[j] = 0;
	}
	for (int64_t t = 0; t < batch->tokens; t++) {
		float factor = 1;
		if (batch->role[t] != REWEIGHT_ROLE_MASKED) {
			float d = at_most(20, at_least(-20, x[t] - y[t]));
			float u = exp2_32(at_most(MAX_Y, at_least(MIN_Y, d * LOG2E_32)));
			factor = at_most(high, at_least(low, u));
			if (o->mask && factor != u) factor = 0;
			sum.group[t % LANES] += factor;
		}
		factors[t] = factor;
		if (t % GROUP_SIZE != GROUP_SIZE - 1) continue;
		for (int j = 0; j < LANES; j++) {
			sum.total[j] += (double)sum.group[j];
			sum.group[j] = 0;
		}
	}
	if (!o->normalize) return;
	double mean = rw_lane_sum(&sum) / (double)rw_responses(batch->role, batch->tokens);
	if (!(mean > LEAST_MEAN)) return;
	for (int64_t t = 0; t < batch->tokens; t++)
		if (batch->role[t] != REWEIGHT_ROLE_MASKED) factors[t] = (float)((double)factors[t] / mean);
}

/* Sets *sum to that of x - y over the response tokens of trajectory s, token i in lane i mod
 * 16, and returns their number. */
static int64_t log_ratio(const float *x, const float *y, const reweight_batch *batch, int64_t s, double *sum) {
	int64_t from = batch->seq_offsets[s], n = 0;
	double lane[LANES];
	for (int j = 0; j < LANES; j++) lane[j] = 0;
	for (int64_t t = from; t < batch->seq_offsets[s + 1]; t++) {
		if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
		lane[(t - from) % LANES] += (double)x[t] - (double)y[t];
		n++;
	}
	*sum = tree(lane);
	return n;
}

/* The tokens of a trajectory share a ratio. */
static void correct_trajectories(float *factors, const reweight_batch *batch, double *of,
                                 const reweight_rollout_correction_options *o) {
	int64_t S = batch->trajectories, n = 0;
	double sum = 0;
	for (int64_t s = 0; s < S; s++) {
		double x;
		int64_t tokens = log_ratio(batch->old_logprobs, batch->rollout_logprobs, batch, s, &x);
		of[s] = 0;
		if (tokens == 0) continue;
		if (o->level == REWEIGHT_LEVEL_GEOMETRIC) x /= (double)tokens;
		double u = exp64(clamp20(x)), c = u;
		if (!(c < o->high)) c = o->high;
		if (!(c > o->low)) c = o->low;
		if (o->mask && c != u) c = 0;
		of[s] = c;
		n++;
		sum += c;
	}
	double mean = sum / (double)n;
	int divide = o->normalize && mean > LEAST_MEAN;
	for (int64_t s = 0; s < S; s++) rw_fill(batch, factors, s, (float)(divide ? of[s] / mean : of[s]), 1);
}

int reweight_rollout_correction(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                                const reweight_rollout_correction_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) ||
	    rw_check_name(REWEIGHT_ARG_LEVEL, options->level, REWEIGHT_LEVEL_GEOMETRIC, error) ||
	    check_bounds(options->low, options->high, error))
		return REWEIGHT_BAD_INPUT;
	if (options->high == 0) return BAD(error, ABOVE_ZERO_ROLLOUT_CORRECTION, REWEIGHT_ARG_HIGH, -1);
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_FACTORS, factors, T, error) || check_rollout(isa, batch, error) ||
	    rw_scratch(ws, &a, 8 * S, T, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	if (options->level == REWEIGHT_LEVEL_TOKEN)
		correct_tokens(factors, batch, options);
	else
		correct_trajectories(factors, batch, rw_take(&a, S, sizeof(double)), options);
	return REWEIGHT_OK;
}

/* What makes one number of the estimates of a trajectory's tokens. */
enum { OVER_TOKEN, OVER_SUM, OVER_MEAN, OVER_MAX };

/* Sets *k to which estimate the statistic is of, 1, 2 or 3, and *over to over what. */
static void form_of(int32_t statistic, int *k, int *over) {
	*k = statistic % 3 + 1;
	*over = statistic / 3;
	if (statistic >= REWEIGHT_STATISTIC_SEQ_MAX_K2) {
		*k = statistic - REWEIGHT_STATISTIC_SEQ_MAX_K2 + 2;
		*over = OVER_MAX;
	}
}

/* Returns the estimate k of the divergence of a token with that log-ratio. */
static double estimate(int k, double z) {
	z = clamp20(z);
	if (k == 1) return -z;
	if (k == 2) return z * z / 2;
	double x = k3(z);
	return x > 0 ? x : 0;
}

static int check_reject(const reweight_reject_options *o, int k, reweight_error *error) {
	if (k != 1) {
		if (!(o->high >= 0)) return BAD(error, NOT_NEGATIVE, REWEIGHT_ARG_HIGH, -1, bits64(o->high));
		return o->high == 0 ? BAD(error, ABOVE_ZERO_REJECT, REWEIGHT_ARG_HIGH, -1) : REWEIGHT_OK;
	}
	if (o->low == 0) return BAD(error, ABOVE_ZERO_REJECT, REWEIGHT_ARG_LOW, -1);
	return check_bounds(o->low, o->high, error);
}

int reweight_reject(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                    const reweight_reject_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	int k, over;
	if (rw_resolve(ws, &isa, error) ||
	    rw_check_name(REWEIGHT_ARG_STATISTIC, options->statistic, REWEIGHT_STATISTIC_SEQ_MAX_K3, error))
		return REWEIGHT_BAD_INPUT;
	form_of(options->statistic, &k, &over);
	if (check_reject(options, k, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_WEIGHTS, weights, T, error) || check_rollout(isa, batch, error))
		return REWEIGHT_BAD_INPUT;
	double low = 0, high = options->high; /* k2 and k3 are at least 0 */
	if (k == 1) {
		low = log64(options->low);
		if (is_finite(high)) high = log64(high);
	}
	for (int64_t s = 0; s < batch->trajectories; s++) {
		int64_t n = 0, from = batch->seq_offsets[s];
		double most = 0, lane[LANES]; /* token i of the trajectory in lane i mod 16 */
		for (int j = 0; j < LANES; j++) lane[j] = 0;
		for (int64_t t = from; t < batch->seq_offsets[s + 1]; t++) {
			if (batch->role[t] == REWEIGHT_ROLE_MASKED) {
				if (over == OVER_TOKEN) weights[t] = 0;
				continue;
			}
			double v = estimate(k, (double)batch->old_logprobs[t] - (double)batch->rollout_logprobs[t]);
			if (over == OVER_TOKEN) weights[t] = low <= v && v <= high ? 1 : 0;
			n++;
			lane[(t - from) % LANES] += v;
			if (v > most) most = v;
		}
		if (over == OVER_TOKEN) continue;
		double v = most;
		if (over != OVER_MAX) v = tree(lane);
		if (over == OVER_MEAN) v /= (double)n;
		rw_fill(batch, weights, s, low <= v && v <= high ? 1 : 0, 0);
	}
	return REWEIGHT_OK;
}

int reweight_off_policy_mask(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                             const reweight_off_policy_mask_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	if (rw_resolve(ws, &isa, error)) return REWEIGHT_BAD_INPUT;
	if (!is_finite(options->delta)) return BAD(error, FINITE, REWEIGHT_ARG_DELTA, -1, bits64(options->delta));
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_FACTORS, factors, T, error) || rw_check_layout(batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_ADVANTAGES, batch->advantages, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_LOGPROBS, batch->logprobs, batch, error))
		return REWEIGHT_BAD_INPUT;
	for (int64_t s = 0; s < batch->trajectories; s++) {
		double sum;
		int64_t tokens = log_ratio(batch->old_logprobs, batch->logprobs, batch, s, &sum);
		int left = sum / (double)tokens > options->delta;
		for (int64_t t = batch->seq_offsets[s]; t < batch->seq_offsets[s + 1]; t++)
			factors[t] = left && batch->role[t] != REWEIGHT_ROLE_MASKED && batch->advantages[t] < 0 ? 0 : 1;
	}
	return REWEIGHT_OK;
}
