/* Advantages: GRPO, generalized advantage estimation, whitening. */
#include "internal.h"
#include "math.h"

/* The rewards of a group: their number, mean and sum of squared deviations. */
typedef struct group_reward {
	double n, mean, squares;
} group_reward;

typedef struct grpo_arrays {
	int32_t *groups;       /* [trajectories] the distinct group ids */
	group_reward *rewards; /* [trajectories] of each group */
} grpo_arrays;

static grpo_arrays take_grpo(arena *a, int64_t trajectories) {
	grpo_arrays g;
	g.groups = rw_take(a, trajectories, sizeof *g.groups);
	g.rewards = rw_take(a, trajectories, sizeof *g.rewards);
	return g;
}

int64_t rw_grpo_scratch(int64_t trajectories) {
	arena a = {NULL, 0};
	take_grpo(&a, trajectories);
	return a.used;
}

int reweight_grpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  const reweight_grpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_rewards(batch, error) || rw_check_not_negative(REWEIGHT_ARG_EPS, options->eps, error) ||
	    rw_check_array(REWEIGHT_ARG_GROUP_IDS, batch->group_ids, S, error) ||
	    rw_scratch(ws, &a, rw_grpo_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	grpo_arrays g = take_grpo(&a, S);
	int64_t groups = rw_groups_of(g.groups, batch->group_ids, S);
	for (int64_t i = 0; i < groups; i++) g.rewards[i] = (group_reward){0, 0, 0};
	for (int64_t s = 0; s < S; s++) {
		group_reward *r = &g.rewards[rw_group_of(g.groups, groups, batch->group_ids[s])];
		r->n++;
		r->mean += (double)batch->rewards[s];
	}
	for (int64_t i = 0; i < groups; i++) g.rewards[i].mean /= g.rewards[i].n;
	for (int64_t s = 0; s < S; s++) {
		group_reward *r = &g.rewards[rw_group_of(g.groups, groups, batch->group_ids[s])];
		double d = (double)batch->rewards[s] - r->mean;
		r->squares += d * d;
	}
	for (int64_t s = 0; s < S; s++) {
		const group_reward *r = &g.rewards[rw_group_of(g.groups, groups, batch->group_ids[s])];
		double mean = r->mean, std = sqrt64(r->squares / (r->n - 1));
		if (r->n == 1) {
			mean = 0;
			std = 1;
		}
		double advantage = (double)batch->rewards[s] - mean;
		if (options->divide_by_std && advantage != 0) advantage /= std + options->eps;
		for (int64_t t = batch->seq_offsets[s]; t < batch->seq_offsets[s + 1]; t++)
			advantages[t] = batch->role[t] != REWEIGHT_ROLE_MASKED ? (float)advantage : 0;
	}
	return REWEIGHT_OK;
}

int reweight_gae(const reweight_workspace *ws, float *advantages, float *returns, const float *rewards,
                 const reweight_batch *batch, const reweight_gae_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	(void)ws;
	int64_t T = batch->tokens;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) ||
	    rw_check_array(REWEIGHT_ARG_REWARDS, rewards, T, error) ||
	    rw_check_array(REWEIGHT_ARG_VALUES, batch->values, T, error) || rw_check_layout(batch, error) ||
	    rw_check_range(REWEIGHT_ARG_GAMMA, options->gamma, 0, 1, error) ||
	    rw_check_range(REWEIGHT_ARG_LAMBDA, options->lambda, 0, 1, error))
		return REWEIGHT_BAD_INPUT;
	if (options->gamma == 0 && options->lambda == 0) return BAD(error, ZERO_GAE, REWEIGHT_ARG_GAMMA, -1);
	double decay = options->gamma * options->lambda;
	for (int64_t s = 0; s < batch->trajectories; s++) {
		double next = 0, gae = 0;
		for (int64_t t = batch->seq_offsets[s + 1] - 1; t >= batch->seq_offsets[s]; t--) {
			double advantage = 0, value = 0;
			if (batch->role[t] != REWEIGHT_ROLE_MASKED) {
				value = (double)batch->values[t];
				double delta = (double)rewards[t] + options->gamma * next - value;
				gae = delta + decay * gae;
				next = value;
				advantage = gae;
			}
			advantages[t] = (float)advantage;
			if (returns != NULL) returns[t] = (float)(advantage + value);
		}
	}
	return REWEIGHT_OK;
}

/* Added to the variance (verl, masked_whiten). */
#define WHITEN_EPS 1e-8

int reweight_whiten(const reweight_workspace *ws, float *dst, const float *x, const uint8_t *role, int64_t tokens,
                    reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_DST, dst, tokens, error) || rw_check_array(REWEIGHT_ARG_X, x, tokens, error) ||
	    rw_check_roles(role, tokens, error))
		return REWEIGHT_BAD_INPUT;
	double mean, squares;
	int64_t n = rw_spread(isa, x, role, tokens, RESPONSES, &mean, &squares);
	if (n < 2) return BAD(error, TO_WHITEN, REWEIGHT_ARG_ROLE, -1, n);
	if (squares != squares) return rw_not_finite_response(REWEIGHT_ARG_X, x, role, tokens, error);
	double variance = squares / (double)(n - 1);
	double f = 1 / sqrt64(variance + WHITEN_EPS);
	for (int64_t t = 0; t < tokens; t++)
		dst[t] = role[t] != REWEIGHT_ROLE_MASKED ? (float)(((double)x[t] - mean) * f) : 0;
	return REWEIGHT_OK;
}
