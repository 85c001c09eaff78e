/* The loss of a policy, and the loss of the critic: policy*.go, loss.go and valueloss.go. */
#include "internal.h"
#include "math.h"
#include "policies.h"

/* ---- The options ---- */

/* Wants a share above 0 and at most 1 of the tokens to choose. */
static int check_cov_share(double share, reweight_error *error) {
	if (share > 0 && share <= 1) return REWEIGHT_OK;
	return BAD(error, SHARE, REWEIGHT_ARG_COV_SHARE, -1, bits64(share));
}

/* Says which option of CLIP_COV's choice of tokens is out of range. */
static int check_cov(const reweight_loss_options *o, reweight_error *error) {
	if (check_cov_share(o->cov_share, error)) return REWEIGHT_BAD_INPUT;
	if (!is_finite(o->cov_low)) return BAD(error, FINITE, REWEIGHT_ARG_COV_LOW, -1, bits64(o->cov_low));
	if (!(o->cov_high >= o->cov_low))
		return BAD(error, AT_LEAST_COV_LOW, REWEIGHT_ARG_COV_HIGH, -1, bits64(o->cov_high), bits64(o->cov_low));
	return REWEIGHT_OK;
}

/* Wants a number above 0 that float32 can hold. */
static int check_positive(int32_t argument, double x, reweight_error *error) {
	if (x > 0 && x <= (double)MAX_FLOAT) return REWEIGHT_OK;
	return BAD(error, POSITIVE, argument, -1, bits64(x));
}

/* Says which option of the policy is out of range. */
static int check_policy(const reweight_loss_options *o, reweight_error *error) {
	if (rw_check_name(REWEIGHT_ARG_POLICY, o->policy, REWEIGHT_POLICY_KL_COV, error)) return REWEIGHT_BAD_INPUT;
	double dual = o->dual_clip;
	switch (o->policy) {
	case REWEIGHT_POLICY_PPO:
	case REWEIGHT_POLICY_GSPO:
	case REWEIGHT_POLICY_GRPO_S:
	case REWEIGHT_POLICY_CLIP_COV:
		if (rw_check_range(REWEIGHT_ARG_CLIP_LOW, o->clip_low, 0, 1, error) ||
		    rw_check_not_negative(REWEIGHT_ARG_CLIP_HIGH, o->clip_high, error))
			return REWEIGHT_BAD_INPUT;
		if (o->policy == REWEIGHT_POLICY_CLIP_COV) return check_cov(o, error);
		if (dual != 0 && !(dual > 1 && dual <= (double)MAX_FLOAT))
			return BAD(error, DUAL_CLIP, REWEIGHT_ARG_DUAL_CLIP, -1, bits64(dual));
		if (!rw_policies[o->policy].spans) return REWEIGHT_OK;
		return rw_check_name(REWEIGHT_ARG_SEQUENCE, o->sequence, REWEIGHT_SEQUENCE_SPAN, error);
	case REWEIGHT_POLICY_CISPO:
	case REWEIGHT_POLICY_DPPO_TV:
	case REWEIGHT_POLICY_DPPO_KL:
	case REWEIGHT_POLICY_GMPO:
		if (rw_check_not_negative(REWEIGHT_ARG_CLIP_LOW, o->clip_low, error) ||
		    rw_check_not_negative(REWEIGHT_ARG_CLIP_HIGH, o->clip_high, error))
			return REWEIGHT_BAD_INPUT;
		if (o->policy == REWEIGHT_POLICY_DPPO_TV || o->policy == REWEIGHT_POLICY_DPPO_KL)
			return check_positive(REWEIGHT_ARG_RATIO_CAP, o->ratio_cap, error);
		return REWEIGHT_OK;
	case REWEIGHT_POLICY_DRO: return check_positive(REWEIGHT_ARG_BETA, o->beta, error);
	case REWEIGHT_POLICY_KL_COV:
		return rw_check_not_negative(REWEIGHT_ARG_COV_COEF, o->cov_coef, error) || check_cov_share(o->cov_share, error);
	case REWEIGHT_POLICY_SAPO:
		return rw_check_temperature(REWEIGHT_ARG_TAU_POS, o->tau_pos, error) ||
		       rw_check_temperature(REWEIGHT_ARG_TAU_NEG, o->tau_neg, error);
	case REWEIGHT_POLICY_VESPO:
		return rw_check_not_negative(REWEIGHT_ARG_POWER_POS, o->power_pos, error) ||
		       rw_check_not_negative(REWEIGHT_ARG_DECAY_POS, o->decay_pos, error) ||
		       rw_check_not_negative(REWEIGHT_ARG_POWER_NEG, o->power_neg, error) ||
		       rw_check_not_negative(REWEIGHT_ARG_DECAY_NEG, o->decay_neg, error);
	}
	return REWEIGHT_OK;
}

/* Wants numbers of the policy that are not all 0. */
static int check_set(const reweight_loss_options *o, reweight_error *error) {
	int32_t zero = rw_policies[o->policy].zero_clips;
	if (zero && o->clip_low == 0 && o->clip_high == 0)
		return rw_bad(error, &(reweight_error){zero, REWEIGHT_ARG_CLIP_LOW, -1, {0}});
	if (o->policy == REWEIGHT_POLICY_VESPO && o->power_pos == 0 && o->decay_pos == 0 && o->power_neg == 0 && o->decay_neg == 0)
		return BAD(error, ZERO_VESPO, REWEIGHT_ARG_POWER_POS, -1);
	return REWEIGHT_OK;
}

static int check_aggregation(int32_t aggregation, reweight_error *error) {
	return rw_check_name(REWEIGHT_ARG_AGGREGATION, aggregation, REWEIGHT_SEQ_MEAN_TOKEN_SUM_NORM, error);
}

static int check_norm_length(int64_t length, reweight_error *error) {
	if (length >= 0) return REWEIGHT_OK;
	return BAD(error, COUNT_NOT_NEGATIVE, REWEIGHT_ARG_NORM_LENGTH, -1, length);
}

int rw_check_loss_options(const reweight_loss_options *o, reweight_error *error) {
	return check_aggregation(o->aggregation, error) || check_policy(o, error) || check_set(o, error) ||
	       check_norm_length(o->norm_length, error) || rw_check_kl(o->kl, o->kl_coef, error);
}

int rw_check_unweighted(const float *weights, const reweight_loss_options *o, reweight_error *error) {
	if (weights == NULL || !rw_policies[o->policy].unweighted) return REWEIGHT_OK;
	return BAD(error, NO_WEIGHTS, REWEIGHT_ARG_WEIGHTS, -1);
}

int rw_by_span(const reweight_loss_options *o) {
	return o->sequence == REWEIGHT_SEQUENCE_SPAN && rw_policies[o->policy].spans;
}

static int check_loss(const float *grad, const float *weights, const reweight_batch *batch, const reweight_loss_options *options,
                      reweight_error *error) {
	int64_t T = batch->tokens;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) || rw_check_roles(batch->role, T, error) ||
	    rw_check_array(REWEIGHT_ARG_GRAD, grad, T, error) ||
	    rw_check_array(REWEIGHT_ARG_LOGPROBS, batch->logprobs, T, error) ||
	    rw_check_array(REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, batch->advantages, T, error) ||
	    (options->kl_coef != 0 && rw_check_array(REWEIGHT_ARG_REF_LOGPROBS, batch->ref_logprobs, T, error)) ||
	    rw_check_loss_options(options, error) || rw_check_unweighted(weights, options, error))
		return REWEIGHT_BAD_INPUT;
	if (options->aggregation == REWEIGHT_TOKEN_MEAN && !rw_policies[options->policy].by_sequence) return REWEIGHT_OK;
	return rw_check_offsets(batch, error);
}

/* Wants finite values at response tokens, of the arrays that the policy and the KL read. PPO
 * takes them as they are. */
static int check_values(int32_t isa, const reweight_batch *b, const reweight_loss_options *o, reweight_error *error) {
	int other = o->policy != REWEIGHT_POLICY_PPO;
	if (!other && o->kl_coef == 0) return REWEIGHT_OK;
	int64_t T = b->tokens;
	return rw_check_finite(isa, REWEIGHT_ARG_LOGPROBS, b->logprobs, b->role, T, error) ||
	       (other && (rw_check_finite(isa, REWEIGHT_ARG_OLD_LOGPROBS, b->old_logprobs, b->role, T, error) ||
	                  rw_check_finite(isa, REWEIGHT_ARG_ADVANTAGES, b->advantages, b->role, T, error))) ||
	       (b->ref_logprobs != NULL &&
	        rw_check_finite(isa, REWEIGHT_ARG_REF_LOGPROBS, b->ref_logprobs, b->role, T, error));
}

/* ---- The terms of a policy ---- */

/* The largest mean log-ratio of a sequence that GSPO takes the exponential of (verl), and
 * what VESPO keeps the log-ratio of a trajectory between: log 1e-8 and 20. */
#define MAX_MEAN_LOG_RATIO 10
#define MIN_VESPO_LOG_RATIO -18.420680743952367
#define MAX_VESPO_LOG_RATIO 20

/* Sets the factors of a sequence of ratio s, as PPO clips the ratio of a token. */
static void clip(loss_consts *q, double s, double slope, const reweight_loss_options *o) {
	double high = s, low = s; /* the ratio where A >= 0, and where A < 0 */
	q->slope[0] = q->slope[1] = (float)slope;
	if (s > 1 + o->clip_high) {
		high = 1 + o->clip_high;
		q->slope[0] = 0;
		q->clips[0] = 1;
	}
	if (s < 1 - o->clip_low) {
		low = 1 - o->clip_low;
		q->slope[1] = 0;
		q->clips[1] = 1;
	}
	if (o->dual_clip != 0 && low > o->dual_clip) {
		low = o->dual_clip;
		q->slope[1] = 0;
	}
	q->value[0] = (float)high;
	q->value[1] = (float)low;
}

/* Returns phi of VESPO, at most what float32 can hold. */
static float vespo_factor(double y, double power, double decay) {
	double phi = exp64(decay + power * y - decay * exp64(y));
	return (float)(phi > (double)MAX_FLOAT ? (double)MAX_FLOAT : phi);
}

/* Sets the factors of a sequence with that sum over n response tokens. */
static void set_sequence(loss_consts *q, double sum, int64_t n, const reweight_loss_options *o) {
	double mean = sum / (double)max_i64(1, n);
	if (o->policy == REWEIGHT_POLICY_GSPO) {
		int cut = mean > MAX_MEAN_LOG_RATIO;
		double s = exp64(cut ? MAX_MEAN_LOG_RATIO : mean);
		clip(q, s, cut ? 0 : s, o);
	} else if (o->policy == REWEIGHT_POLICY_GRPO_S) {
		q->token_ratio = 1;
		clip(q, mean, 1, o);
	} else {
		double y = sum > MAX_VESPO_LOG_RATIO ? MAX_VESPO_LOG_RATIO : sum < MIN_VESPO_LOG_RATIO ? MIN_VESPO_LOG_RATIO : sum;
		q->linear[0] = q->slope[0] = vespo_factor(y, o->power_pos, o->decay_pos);
		q->linear[1] = q->slope[1] = vespo_factor(y, o->power_neg, o->decay_neg);
	}
}

/* Sets *sum to what the factor of a sequence is computed from, summed over its response
 * tokens, and returns their number: log-ratios for GSPO, ratios for GRPO-S, clamped
 * log-ratios for VESPO. */
static int64_t sum_sequence(int32_t isa, const float *logprobs, const float *old, const uint8_t *role, int64_t n,
                            const reweight_loss_options *o, double *sum) {
	if (o->policy != REWEIGHT_POLICY_GRPO_S)
		return rw_sum_log_ratios(logprobs, old, role, n, o->policy == REWEIGHT_POLICY_VESPO, sum);
	ratio_consts q = {0, MAX_FLOAT, 0};
	lane_sum total;
	rw_lane_clear(&total);
	rw_importance(isa, NULL, logprobs, old, role, n, &q, &total);
	*sum = rw_lane_sum(&total);
	return rw_responses(role, n);
}

void rw_loss_terms(int32_t isa, const loss_tokens *x, int64_t n, double scale, const reweight_loss_options *o,
                   surrogate_sums *sums) {
	loss_consts q = {.scale = (float)scale};
	loss_kernel kernel = LOSS_SEQUENCE;
	double sum;
	switch (o->policy) {
	case REWEIGHT_POLICY_PPO: rw_clipped_surrogate(isa, x, n, scale, o, sums); return;
	case REWEIGHT_POLICY_CISPO:
		kernel = LOSS_CISPO;
		q.lo = (float)(1 - o->clip_low);
		q.hi = (float)(1 + o->clip_high);
		break;
	case REWEIGHT_POLICY_SAPO:
		kernel = LOSS_SAPO;
		q.rate[0] = (float)(-o->tau_pos * LOG2E);
		q.rate[1] = (float)(-o->tau_neg * LOG2E);
		q.height[0] = (float)(4 / o->tau_pos);
		q.height[1] = (float)(4 / o->tau_neg);
		break;
	case REWEIGHT_POLICY_PG: q.linear[0] = q.linear[1] = q.slope[0] = q.slope[1] = 1; break;
	case REWEIGHT_POLICY_DPPO_TV:
		kernel = LOSS_DPPO;
		q.lo = (float)o->clip_low;
		q.hi = (float)o->clip_high;
		q.cap = (float)o->ratio_cap;
		break;
	case REWEIGHT_POLICY_DPPO_KL:
		kernel = LOSS_DPPO_KL;
		q.limits[0] = o->clip_high;
		q.limits[1] = o->clip_low;
		q.cap = (float)o->ratio_cap;
		break;
	case REWEIGHT_POLICY_DRO:
		kernel = LOSS_DRO;
		q.beta = o->beta;
		break;
	case REWEIGHT_POLICY_GMPO: rw_geometric_mean(x, n, scale, o, sums); return;
	case REWEIGHT_POLICY_CLIP_COV: rw_clip_cov(isa, x, n, scale, o, sums); return;
	case REWEIGHT_POLICY_KL_COV: rw_kl_cov(isa, x, n, scale, sums); return;
	default: {
		int64_t responses = sum_sequence(isa, x->logprobs, x->old, x->role, n, o, &sum);
		set_sequence(&q, sum, responses, o);
	}
	}
	rw_policy_terms(isa, kernel, x, n, &q, sums);
}

/* ---- What an aggregation sums together ---- */

/* The segments of a batch, one at a time: tokens from..to, which are those of the
 * trajectories first..last. Their losses count share times or, if mean is set, share over the
 * sum of their weights. */
typedef struct segments {
	const reweight_batch *batch;
	int64_t first, last, from, to;
	double share;
	int mean, whole; /* whole: the batch is one segment */
	int64_t left;
} segments;

/* Returns the segments of the aggregation, before the first. */
static segments segments_of(const reweight_batch *b, int32_t aggregation, int64_t norm_length) {
	segments s = {.batch = b, .share = 1};
	s.mean = aggregation == REWEIGHT_TOKEN_MEAN || aggregation == REWEIGHT_SEQ_MEAN_TOKEN_MEAN;
	s.whole = aggregation == REWEIGHT_TOKEN_MEAN || aggregation == REWEIGHT_SEQ_MEAN_TOKEN_SUM_NORM;
	s.left = s.whole ? 1 : b->trajectories;
	if (aggregation == REWEIGHT_TOKEN_MEAN) return s;
	int64_t seqs = 0, longest = 0; /* trajectories with response tokens; tokens of the longest */
	for (int64_t q = 0; q < b->trajectories; q++) {
		int64_t t = b->seq_offsets[q], end = b->seq_offsets[q + 1];
		longest = max_i64(longest, end - t);
		while (t < end && b->role[t] == REWEIGHT_ROLE_MASKED) t++;
		seqs += t < end;
	}
	int64_t norm = norm_length != 0 ? norm_length : max_i64(1, longest);
	s.share = 1 / (double)(s.whole ? norm : max_i64(1, seqs));
	return s;
}

/* Goes on to the next segment and returns 1, or 0 if there is none. */
static int next(segments *s) {
	if (s->left-- == 0) return 0;
	s->first = s->last;
	s->last = s->whole ? s->batch->trajectories : s->first + 1;
	s->from = s->whole ? 0 : s->batch->seq_offsets[s->first];
	s->to = s->whole ? s->batch->tokens : s->batch->seq_offsets[s->last];
	return 1;
}

/* Returns the share of a segment whose weights are all 1. */
static double share_of_ones(const segments *s) {
	if (!s->mean) return s->share;
	return s->share / (double)max_i64(1, rw_responses(s->batch->role + s->from, s->to - s->from));
}

/* ---- The loss ---- */

/* A weight whose product with a token's loss may overflow float32. Where tokens that are
 * summed together have such weights, all of theirs are divided by it. It is a power of two,
 * so that this rounds no weight above 2^-62. */
#define LARGE_WEIGHT 0x1p64

/* Returns the sum of the weights of response tokens, and sets *large to whether one of
 * them may be above LARGE_WEIGHT. */
static double weight_sum(int32_t isa, const float *weights, const uint8_t *role, int64_t n, int *large) {
	*large = 0;
	if (weights == NULL) return (double)rw_responses(role, n);
	reweight_moments m = rw_moments(isa, weights, role, n, RESPONSES, 0);
	*large = m.squares > LARGE_WEIGHT * LARGE_WEIGHT;
	return m.sum;
}

/* Returns the mean over response tokens of e^x - x - 1 with x = log pi_ref - log pi, both
 * clamped as verl does (kl_penalty, low_var_kl). It is summed as the masked moments are. */
static double mean_k3(const reweight_batch *batch) {
	double sum[LANES] = {0};
	for (int64_t t = 0; t < batch->tokens; t++) {
		if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
		double x = (double)batch->ref_logprobs[t] - (double)batch->logprobs[t];
		double k = k3(x > 20 ? 20 : x < -20 ? -20 : x);
		sum[t % LANES] += k > 10 ? 10 : k;
	}
	return tree(sum) / (double)max_i64(rw_responses(batch->role, batch->tokens), 1);
}

/* The scratch memory of a loss: arrays that are NULL are not needed. */
typedef struct loss_arrays {
	float *smaller; /* [tokens] weights that have to be made smaller */
	float *kept;    /* [tokens] log-probabilities that the gradient overwrites */
	double *sums;   /* [spans] of log-ratios or ratios */
	int32_t *count; /* [spans] response tokens */
} loss_arrays;

static loss_arrays take_loss(arena *a, int64_t weights, int64_t kept, int64_t spans) {
	loss_arrays l;
	l.smaller = rw_take(a, weights, sizeof *l.smaller);
	l.kept = rw_take(a, kept, sizeof *l.kept);
	l.sums = rw_take(a, spans, sizeof *l.sums);
	l.count = rw_take(a, spans, sizeof *l.count);
	return l;
}

int64_t rw_loss_scratch(int64_t tokens, int64_t spans) {
	arena a = {NULL, 0}, chosen = {NULL, 0};
	take_loss(&a, tokens, tokens, spans);
	take_loss(&chosen, 0, tokens, 0); /* where there is a choice, there are no weights and no spans */
	return max_i64(a.used, chosen.used + rw_choose_scratch(tokens, &(reweight_loss_options){.policy = REWEIGHT_POLICY_KL_COV}));
}

/* Returns the end of the tokens, from the first of n on, whose response tokens are all of
 * one span, and sets *span to that; to -1 if there are no response tokens. */
static int64_t run_of(const int32_t *spans, const uint8_t *role, int64_t first, int64_t n, int32_t *span) {
	*span = -1;
	for (int64_t t = first; t < n; t++) {
		if (role[t] == REWEIGHT_ROLE_MASKED || spans[t] == *span) continue;
		if (*span >= 0) return t;
		*span = spans[t];
	}
	return n;
}

/* Sets l->sums to what sum_sequence has of each span, and l->count to its response tokens. */
static void sum_spans(loss_arrays *l, int64_t spans, int32_t isa, const reweight_batch *b,
                      const reweight_loss_options *o) {
	for (int64_t s = 0; s < spans; s++) l->sums[s] = 0;
	for (int64_t at = 0, end; at < b->tokens; at = end) {
		int32_t span;
		double sum;
		end = run_of(b->span_ids, b->role, at, b->tokens, &span);
		if (span < 0) continue;
		sum_sequence(isa, b->logprobs + at, b->old_logprobs + at, b->role + at, end - at, o, &sum);
		l->sums[span] += sum;
	}
}

/* Computes the terms of a segment, whose weights are those of x, and adds to the sums. */
static void segment_terms(int32_t isa, const loss_tokens *x, const segments *s, double scale,
                          const reweight_loss_options *o, const loss_arrays *l, surrogate_sums *sums) {
	int64_t n = s->to - s->from;
	if (rw_by_span(o)) {
		const int32_t *spans = s->batch->span_ids + s->from;
		for (int64_t at = 0, end; at < n; at = end) {
			int32_t span;
			end = run_of(spans, x->role, at, n, &span);
			loss_consts q = {.scale = (float)scale};
			if (span >= 0) set_sequence(&q, l->sums[span], l->count[span], o);
			loss_tokens run = rw_tokens_from(x, at);
			rw_policy_terms(isa, LOSS_SEQUENCE, &run, end - at, &q, sums);
		}
	} else if (rw_policies[o->policy].by_sequence) {
		const int64_t *offsets = s->batch->seq_offsets;
		for (int64_t q = s->first; q < s->last; q++) {
			loss_tokens trajectory = rw_tokens_from(x, offsets[q] - s->from);
			rw_loss_terms(isa, &trajectory, offsets[q + 1] - offsets[q], scale, o, sums);
		}
	} else {
		rw_loss_terms(isa, x, n, scale, o, sums);
	}
}

/* Adds the gradient of the divergence from the reference to grad, and returns what it adds to
 * the loss. */
static double add_kl(int32_t isa, float *grad, const float *logprobs, const float *ref, const reweight_batch *b,
                     const reweight_loss_options *o) {
	double loss = 0;
	for (segments s = segments_of(b, o->aggregation, o->norm_length); next(&s);) {
		double share = share_of_ones(&s) * o->kl_coef;
		lane_sum sum;
		rw_lane_clear(&sum);
		rw_divergence(isa, grad + s.from, logprobs + s.from, ref + s.from, b->role + s.from, s.to - s.from, o->kl,
		              (float)share, &sum);
		loss += rw_lane_sum(&sum) * share;
	}
	return loss;
}

int reweight_loss(const reweight_workspace *ws, reweight_loss_result *result, float *grad, const float *weights,
                  const reweight_batch *batch, const reweight_loss_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, spans = 0;
	int32_t isa;
	int large;
	if (rw_resolve(ws, &isa, error) || check_loss(grad, weights, batch, options, error)) return REWEIGHT_BAD_INPUT;
	if (!is_finite(weight_sum(isa, weights, batch->role, T, &large)))
		return rw_not_finite_response(REWEIGHT_ARG_WEIGHTS, weights, batch->role, T, error);
	if (check_values(isa, batch, options, error) || (rw_by_span(options) && rw_check_spans(batch, &spans, error)))
		return REWEIGHT_BAD_INPUT;
	/* What grad overwrites before the divergence is computed. */
	int keep = options->kl_coef != 0 && (grad == batch->logprobs || grad == batch->ref_logprobs);
	arena a = {NULL, 0};
	take_loss(&a, weights != NULL ? T : 0, keep ? T : 0, spans);
	if (rw_scratch(ws, &a, a.used + rw_choose_scratch(T, options), T, batch->trajectories, spans, error))
		return REWEIGHT_BAD_INPUT;
	loss_arrays l = take_loss(&a, weights != NULL ? T : 0, keep ? T : 0, spans);
	if (rw_by_span(options)) {
		if (rw_count_responses(l.count, spans, batch, error)) return REWEIGHT_BAD_INPUT;
		sum_spans(&l, spans, isa, batch, options);
	}
	const float *logprobs = batch->logprobs, *ref = batch->ref_logprobs;
	if (keep) {
		for (int64_t t = 0; t < T; t++) l.kept[t] = grad[t];
		if (grad == batch->logprobs) logprobs = l.kept;
		if (grad == batch->ref_logprobs) ref = l.kept;
	}
	reweight_loss_result r = {0};
	if (batch->ref_logprobs != NULL) r.kl = mean_k3(batch);
	int64_t clipped = 0;
	double log_ratio = 0;
	loss_tokens all = {grad, batch->logprobs, batch->old_logprobs, batch->advantages, weights, batch->role, NULL};
	all.chosen = rw_choose(&a, isa, &all, T, options);
	segments s = segments_of(batch, options->aggregation, options->norm_length);
	if (options->policy == REWEIGHT_POLICY_GMPO)
		s = (segments){.batch = batch, .share = 1 / (double)batch->trajectories, .left = batch->trajectories};
	while (next(&s)) {
		int64_t n = s.to - s.from;
		if (n == 0) continue;
		loss_tokens x = rw_tokens_from(&all, s.from);
		double share = s.share, weight = weight_sum(isa, x.weights, x.role, n, &large);
		r.weight_sum += weight;
		if (large) {
			for (int64_t t = 0; t < n; t++) l.smaller[t] = (float)((double)x.weights[t] / LARGE_WEIGHT);
			x.weights = l.smaller;
			weight /= LARGE_WEIGHT;
			if (!s.mean) share *= LARGE_WEIGHT;
		}
		if (s.mean) {
			share /= weight;
			if (!(share >= -(double)MAX_FLOAT && share <= (double)MAX_FLOAT)) share = 0;
		}
		surrogate_sums sums;
		rw_surrogate_clear(&sums);
		segment_terms(isa, &x, &s, share, options, &l, &sums);
		reweight_surrogate_sums q = rw_surrogate_result(&sums);
		if (share != 0)
			r.loss += q.loss * share;
		else /* 0 times an overflow would be NaN */
			for (int64_t t = 0; t < n; t++) x.grad[t] = 0;
		r.tokens += q.tokens;
		clipped += q.clipped;
		log_ratio += q.log_ratio;
	}
	if (r.tokens > 0) {
		r.clip_fraction = (double)clipped / (double)r.tokens;
		r.mean_log_ratio = log_ratio / (double)r.tokens;
	}
	if (options->kl_coef != 0) {
		r.kl_loss = add_kl(isa, grad, logprobs, ref, batch, options);
		r.loss += r.kl_loss;
	}
	*result = r;
	return REWEIGHT_OK;
}

/* ---- The value loss ---- */

int reweight_value_loss(const reweight_workspace *ws, reweight_value_loss_result *result, float *grad,
                        const reweight_batch *batch, const reweight_value_loss_options *options,
                        reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	const uint8_t *role = batch->role;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) || rw_check_roles(role, T, error) ||
	    rw_check_array(REWEIGHT_ARG_GRAD, grad, T, error) ||
	    rw_check_array(REWEIGHT_ARG_NEW_VALUES, batch->new_values, T, error) ||
	    rw_check_array(REWEIGHT_ARG_VALUES, batch->values, T, error) ||
	    rw_check_array(REWEIGHT_ARG_RETURNS, batch->returns, T, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_CLIP, options->clip, error) ||
	    check_aggregation(options->aggregation, error) || check_norm_length(options->norm_length, error))
		return REWEIGHT_BAD_INPUT;
	if (options->clip == 0) return BAD(error, ABOVE_ZERO_VALUE_LOSS, REWEIGHT_ARG_CLIP, -1);
	if ((options->aggregation != REWEIGHT_TOKEN_MEAN && rw_check_offsets(batch, error)) ||
	    rw_check_finite(isa, REWEIGHT_ARG_NEW_VALUES, batch->new_values, role, T, error) ||
	    rw_check_finite(isa, REWEIGHT_ARG_VALUES, batch->values, role, T, error) ||
	    rw_check_finite(isa, REWEIGHT_ARG_RETURNS, batch->returns, role, T, error))
		return REWEIGHT_BAD_INPUT;
	reweight_value_loss_result r = {0};
	int64_t clipped = 0;
	for (segments s = segments_of(batch, options->aggregation, options->norm_length); next(&s);) {
		double share = share_of_ones(&s);
		lane_sum sum;
		rw_lane_clear(&sum);
		clipped += rw_value_terms(grad + s.from, batch->new_values + s.from, batch->values + s.from,
		                          batch->returns + s.from, role + s.from, s.to - s.from, (float)options->clip,
		                          (float)share, &sum);
		r.loss += rw_lane_sum(&sum) * share;
	}
	r.tokens = rw_responses(role, T);
	r.clip_fraction = (double)clipped / (double)max_i64(1, r.tokens);
	*result = r;
	return REWEIGHT_OK;
}
