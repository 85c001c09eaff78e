/* RLOO, REINFORCE++ and REINFORCE++-baseline. */
#include "internal.h"
#include "math.h"

int reweight_rloo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_outcomes(batch, error) || rw_scratch(ws, &a, rw_grpo_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	group_rewards g = rw_group_rewards(&a, batch, NULL);
	for (int64_t s = 0; s < S; s++) {
		const group_reward *r = rw_rewards_of(&g, batch, s);
		double advantage = 0;
		if (r->n > 1) advantage = r->n / (r->n - 1) * ((double)batch->rewards[s] - r->mean);
		rw_fill(batch, advantages, s, (float)advantage, 0);
	}
	return REWEIGHT_OK;
}

int64_t rw_reinforce_scratch(int64_t tokens, int64_t trajectories) {
	return max_i64(8 * tokens, rw_grpo_scratch(trajectories) + 16 * trajectories);
}

int reweight_reinforce_plus_plus(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                 const reweight_reinforce_plus_plus_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) ||
	    rw_check_array(REWEIGHT_ARG_TOKEN_REWARDS, batch->token_rewards, T, error) || rw_check_layout(batch, error) ||
	    rw_check_range(REWEIGHT_ARG_GAMMA, options->gamma, 0, 1, error))
		return REWEIGHT_BAD_INPUT;
	if (options->gamma == 0) return BAD(error, ABOVE_ZERO_REINFORCE_PLUS_PLUS, REWEIGHT_ARG_GAMMA, -1);
	if (rw_scratch(ws, &a, rw_reinforce_scratch(T, S), T, S, 0, error)) return REWEIGHT_BAD_INPUT;
	double *sums = rw_take(&a, T, sizeof *sums);
	for (int64_t s = 0; s < S; s++) {
		double next = 0;
		for (int64_t t = batch->seq_offsets[s + 1] - 1; t >= batch->seq_offsets[s]; t--) {
			if (batch->role[t] != REWEIGHT_ROLE_MASKED) next = (double)batch->token_rewards[t] + options->gamma * next;
			sums[t] = next;
		}
	}
	int64_t n = rw_responses(batch->role, T);
	double mean, squares;
	rw_spread64(sums, batch, n, &mean, &squares);
	if (!is_finite(mean))
		return rw_not_finite_response(REWEIGHT_ARG_TOKEN_REWARDS, batch->token_rewards, batch->role, T, error);
	double f = rw_whitening(n, squares);
	for (int64_t t = 0; t < T; t++)
		advantages[t] = batch->role[t] != REWEIGHT_ROLE_MASKED ? (float)((sums[t] - mean) * f) : 0;
	return REWEIGHT_OK;
}

void rw_spread64(const double *x, const reweight_batch *batch, int64_t n, double *mean, double *squares) {
	double lane[LANES];
	for (int j = 0; j < LANES; j++) lane[j] = 0;
	for (int64_t t = 0; t < batch->tokens; t++)
		if (batch->role[t] != REWEIGHT_ROLE_MASKED) lane[t % LANES] += x[t];
	*mean = tree(lane) / (double)max_i64(n, 1);
	for (int j = 0; j < LANES; j++) lane[j] = 0;
	for (int64_t t = 0; t < batch->tokens; t++) {
		if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
		double d = x[t] - *mean;
		lane[t % LANES] += d * d;
	}
	*squares = tree(lane);
}

int reweight_reinforce_plus_plus_baseline(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                          reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) || rw_check_layout(batch, error) ||
	    rw_check_outcomes(batch, error) || rw_scratch(ws, &a, rw_reinforce_scratch(T, S), T, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	group_rewards g = rw_group_rewards(&a, batch, NULL);
	double *relative = rw_take(&a, S, sizeof *relative);
	for (int64_t s = 0; s < S; s++) relative[s] = rw_relative(rw_rewards_of(&g, batch, s), batch->rewards[s], 0, 0);
	rw_whiten_outcomes(&a, batch, advantages, relative);
	return REWEIGHT_OK;
}

void rw_whiten_outcomes(arena *a, const reweight_batch *batch, float *advantages, const double *relative) {
	int64_t S = batch->trajectories, n = 0;
	int64_t *count = rw_take(a, S, sizeof *count);
	double total = 0, squares = 0;
	for (int64_t s = 0; s < S; s++) {
		int64_t from = batch->seq_offsets[s];
		count[s] = rw_responses(batch->role + from, batch->seq_offsets[s + 1] - from);
		n += count[s];
		total += (double)count[s] * relative[s];
	}
	double mean = total / (double)max_i64(n, 1);
	for (int64_t s = 0; s < S; s++) {
		double d = relative[s] - mean;
		squares += (double)count[s] * (d * d);
	}
	double f = rw_whitening(n, squares);
	for (int64_t s = 0; s < S; s++) rw_fill(batch, advantages, s, (float)((relative[s] - mean) * f), 0);
}
