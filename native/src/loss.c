/* The clipped surrogate. */
#include "internal.h"
#include "math.h"

int rw_check_loss_options(const reweight_loss_options *options, reweight_error *error) {
	if (rw_check_name(REWEIGHT_ARG_AGGREGATION, options->aggregation, REWEIGHT_SEQ_MEAN_TOKEN_SUM_NORM, error) ||
	    rw_check_range(REWEIGHT_ARG_CLIP_LOW, options->clip_low, 0, 1, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_CLIP_HIGH, options->clip_high, error))
		return REWEIGHT_BAD_INPUT;
	double dual = options->dual_clip;
	if (dual != 0 && !(dual > 1 && dual <= (double)MAX_FLOAT))
		return BAD(error, DUAL_CLIP, REWEIGHT_ARG_DUAL_CLIP, -1, bits64(dual));
	if (options->norm_length < 0)
		return BAD(error, COUNT_NOT_NEGATIVE, REWEIGHT_ARG_NORM_LENGTH, -1, options->norm_length);
	if (options->clip_low == 0 && options->clip_high == 0) return BAD(error, ZERO_LOSS, REWEIGHT_ARG_CLIP_LOW, -1);
	return REWEIGHT_OK;
}

static int check_loss(const float *grad, const reweight_batch *batch, const reweight_loss_options *options,
                      reweight_error *error) {
	int64_t T = batch->tokens;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) || rw_check_roles(batch->role, T, error) ||
	    rw_check_array(REWEIGHT_ARG_GRAD, grad, T, error) ||
	    rw_check_array(REWEIGHT_ARG_LOGPROBS, batch->logprobs, T, error) ||
	    rw_check_array(REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, batch->advantages, T, error) || rw_check_loss_options(options, error))
		return REWEIGHT_BAD_INPUT;
	return options->aggregation == REWEIGHT_TOKEN_MEAN ? REWEIGHT_OK : rw_check_offsets(batch, error);
}

/* A weight whose product with a token's loss may overflow float32. Where tokens that are
 * summed together have such weights, all of theirs are divided by it. It is a power of two,
 * so that this rounds no weight above 2^-62. */
#define LARGE_WEIGHT 0x1p64

/* Returns the sum of the weights of response tokens, and sets *large to whether one of
 * them may be above LARGE_WEIGHT. */
static double weight_sum(int32_t isa, const float *weights, const uint8_t *role, int64_t n, int *large) {
	*large = 0;
	if (weights != NULL) {
		reweight_moments m = rw_moments(isa, weights, role, n, RESPONSES, 0);
		*large = m.squares > LARGE_WEIGHT * LARGE_WEIGHT;
		return m.sum;
	}
	int64_t tokens = 0;
	for (int64_t t = 0; t < n; t++) tokens += role[t] != REWEIGHT_ROLE_MASKED;
	return (double)tokens;
}

/* Returns the mean over response tokens of e^x - x - 1 with x = log pi_ref - log pi, both
 * clamped as verl does (kl_penalty, low_var_kl). It is summed as the masked moments are. */
static double mean_k3(const reweight_batch *batch) {
	double sum[LANES] = {0};
	int64_t n = 0;
	for (int64_t t = 0; t < batch->tokens; t++) {
		if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
		double x = (double)batch->ref_logprobs[t] - (double)batch->logprobs[t];
		double k = k3(x > 20 ? 20 : x < -20 ? -20 : x);
		sum[t % LANES] += k > 10 ? 10 : k;
		n++;
	}
	return tree(sum) / (double)max_i64(n, 1);
}

/* A call of reweight_loss, and what it has summed up so far. */
typedef struct call {
	int32_t isa;
	float *grad;
	const float *weights; /* NULL: ones */
	float *smaller;       /* [tokens] scratch for weights that have to be made smaller */
	const reweight_batch *batch;
	const reweight_loss_options *options;
	reweight_loss_result result;
	int64_t clipped;
	double log_ratio;
} call;

/* Adds tokens from..to, whose losses are multiplied by share, or by share over the sum of
 * their weights if mean is set. */
static void add(call *c, int64_t from, int64_t to, double share, int mean) {
	int64_t n = to - from;
	if (n == 0) return;
	const reweight_batch *b = c->batch;
	const uint8_t *role = b->role + from;
	const float *w = c->weights == NULL ? NULL : c->weights + from;
	int large;
	double weight = weight_sum(c->isa, w, role, n, &large);
	c->result.weight_sum += weight;
	if (large) {
		for (int64_t t = 0; t < n; t++) c->smaller[t] = (float)((double)w[t] / LARGE_WEIGHT);
		w = c->smaller;
		weight /= LARGE_WEIGHT;
		if (!mean) share *= LARGE_WEIGHT;
	}
	if (mean) {
		share /= weight;
		if (!(share >= -(double)MAX_FLOAT && share <= (double)MAX_FLOAT)) share = 0;
	}
	float *grad = c->grad + from;
	reweight_surrogate_sums q = rw_surrogate(c->isa, grad, b->logprobs + from, b->old_logprobs + from,
	                                         b->advantages + from, w, role, n, share, c->options);
	if (share != 0)
		c->result.loss += q.loss * share;
	else /* 0 times an overflow would be NaN */
		for (int64_t t = 0; t < n; t++) grad[t] = 0;
	c->result.tokens += q.tokens;
	c->clipped += q.clipped;
	c->log_ratio += q.log_ratio;
}

int reweight_loss(const reweight_workspace *ws, reweight_loss_result *result, float *grad, const float *weights,
                  const reweight_batch *batch, const reweight_loss_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories;
	const int64_t *offsets = batch->seq_offsets;
	call c = {.grad = grad, .weights = weights, .batch = batch, .options = options};
	if (rw_resolve(ws, &c.isa, error) || check_loss(grad, batch, options, error)) return REWEIGHT_BAD_INPUT;
	if (weights != NULL) {
		arena a;
		if (rw_scratch(ws, &a, rw_token_scratch(T), T, S, 0, error)) return REWEIGHT_BAD_INPUT;
		c.smaller = rw_take(&a, T, sizeof *c.smaller);
	}
	int large;
	if (!is_finite(weight_sum(c.isa, weights, batch->role, T, &large)))
		return rw_not_finite_response(REWEIGHT_ARG_WEIGHTS, weights, batch->role, T, error);
	if (batch->ref_logprobs != NULL) c.result.kl = mean_k3(batch);
	int64_t seqs = 0, longest = 0; /* trajectories with response tokens; tokens of the longest */
	if (options->aggregation != REWEIGHT_TOKEN_MEAN) {
		for (int64_t s = 0; s < S; s++) {
			longest = max_i64(longest, offsets[s + 1] - offsets[s]);
			int64_t t = offsets[s];
			while (t < offsets[s + 1] && batch->role[t] == REWEIGHT_ROLE_MASKED) t++;
			if (t < offsets[s + 1]) seqs++;
		}
	}
	int64_t norm = options->norm_length != 0 ? options->norm_length : max_i64(1, longest);
	switch (options->aggregation) {
	case REWEIGHT_TOKEN_MEAN:
		add(&c, 0, T, 1, 1);
		break;
	case REWEIGHT_SEQ_MEAN_TOKEN_SUM_NORM:
		add(&c, 0, T, 1 / (double)norm, 0);
		break;
	default:
		for (int64_t s = 0; s < S; s++)
			add(&c, offsets[s], offsets[s + 1], 1 / (double)max_i64(seqs, 1),
			    options->aggregation == REWEIGHT_SEQ_MEAN_TOKEN_MEAN);
	}
	if (c.result.tokens > 0) {
		c.result.clip_fraction = (double)c.clipped / (double)c.result.tokens;
		c.result.mean_log_ratio = c.log_ratio / (double)c.result.tokens;
	}
	*result = c.result;
	return REWEIGHT_OK;
}
