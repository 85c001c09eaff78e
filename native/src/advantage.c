/* Advantages: GRPO, generalized advantage estimation, whitening. */
#include "internal.h"
#include "math.h"

int64_t rw_grpo_scratch(int64_t trajectories) {
	arena a = {NULL, 0};
	rw_take(&a, trajectories, sizeof(int32_t));
	rw_take(&a, trajectories, sizeof(group_reward));
	return a.used;
}

int rw_check_outcomes(const reweight_batch *batch, reweight_error *error) {
	return rw_check_rewards(batch, error) ||
	       rw_check_array(REWEIGHT_ARG_GROUP_IDS, batch->group_ids, batch->trajectories, error);
}

group_reward *rw_rewards_of(const group_rewards *g, const reweight_batch *batch, int64_t s) {
	return &g->rewards[rw_group_of(g->groups, g->n, batch->group_ids[s])];
}

group_rewards rw_group_rewards(arena *a, const reweight_batch *batch, const int32_t *times) {
	int64_t S = batch->trajectories;
	group_rewards g = {0, rw_take(a, S, sizeof *g.groups), rw_take(a, S, sizeof *g.rewards)};
	g.n = rw_groups_of(g.groups, batch->group_ids, S);
	for (int64_t i = 0; i < g.n; i++) g.rewards[i] = (group_reward){0, 0, 0};
	double n = 1;
	for (int64_t s = 0; s < S; s++) {
		if (times != NULL) n = (double)times[s];
		group_reward *r = rw_rewards_of(&g, batch, s);
		r->n += n;
		r->mean += n * (double)batch->rewards[s];
	}
	for (int64_t i = 0; i < g.n; i++) g.rewards[i].mean /= g.rewards[i].n;
	for (int64_t s = 0; s < S; s++) {
		if (times != NULL) n = (double)times[s];
		group_reward *r = rw_rewards_of(&g, batch, s);
		double d = (double)batch->rewards[s] - r->mean;
		r->squares += n * (d * d);
	}
	return g;
}

double rw_relative(const group_reward *g, float reward, int divide, double eps) {
	double mean = g->mean, std = sqrt64(g->squares / (g->n - 1));
	if (g->n == 1) {
		mean = 0;
		std = 1;
	}
	double advantage = (double)reward - mean;
	if (divide && advantage != 0) advantage /= std + eps;
	return advantage;
}

void rw_fill(const reweight_batch *batch, float *dst, int64_t s, float x, float masked) {
	for (int64_t t = batch->seq_offsets[s]; t < batch->seq_offsets[s + 1]; t++)
		dst[t] = batch->role[t] != REWEIGHT_ROLE_MASKED ? x : masked;
}

int reweight_grpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  const reweight_grpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_EPS, options->eps, error) || rw_check_outcomes(batch, error) ||
	    rw_scratch(ws, &a, rw_grpo_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	group_rewards g = rw_group_rewards(&a, batch, NULL);
	for (int64_t s = 0; s < S; s++) {
		double advantage = rw_relative(rw_rewards_of(&g, batch, s), batch->rewards[s], options->divide_by_std,
		                               options->eps);
		rw_fill(batch, advantages, s, (float)advantage, 0);
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

double rw_whitening(int64_t n, double squares) {
	return 1 / sqrt64(squares / (double)max_i64(n - 1, 1) + WHITEN_EPS);
}

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
	if (squares != squares) return rw_not_finite_response(REWEIGHT_ARG_X, x, role, tokens, error);
	double f = rw_whitening(n, squares);
	for (int64_t t = 0; t < tokens; t++)
		dst[t] = role[t] != REWEIGHT_ROLE_MASKED ? (float)(((double)x[t] - mean) * f) : 0;
	return REWEIGHT_OK;
}
