/* GDPO (arXiv 2601.05242). */
#include "internal.h"
#include "math.h"

int64_t rw_gdpo_scratch(int64_t trajectories) {
	arena a = {NULL, rw_grpo_scratch(trajectories)};
	rw_take(&a, trajectories, sizeof(double));
	rw_take(&a, trajectories, sizeof(float));
	rw_take(&a, trajectories, sizeof(int64_t));
	return a.used;
}

/* Wants as many parts for each trajectory, all of them finite. */
static int check_parts(const reweight_batch *batch, reweight_error *error) {
	int64_t parts = batch->parts;
	if (rw_check_count(REWEIGHT_ARG_PARTS, parts, error)) return REWEIGHT_BAD_INPUT;
	if (parts == 0) return BAD(error, COUNT_POSITIVE, REWEIGHT_ARG_PARTS, -1, parts);
	if (rw_check_array(REWEIGHT_ARG_REWARD_PARTS, batch->reward_parts, parts, error)) return REWEIGHT_BAD_INPUT;
	for (int64_t i = 0; i < batch->trajectories * parts; i++)
		if (!is_finite(batch->reward_parts[i]))
			return BAD(error, REWARD, REWEIGHT_ARG_REWARD_PARTS, i, bits32(batch->reward_parts[i]));
	return REWEIGHT_OK;
}

/* Wants weights that float32 can hold, or none. */
static int check_weights(const double *weights, int64_t parts, reweight_error *error) {
	if (weights == NULL) return REWEIGHT_OK;
	for (int64_t k = 0; k < parts; k++)
		if (!(weights[k] >= -(double)MAX_FLOAT && weights[k] <= (double)MAX_FLOAT))
			return BAD(error, FINITE_32, REWEIGHT_ARG_REWARD_WEIGHTS, k, bits64(weights[k]));
	return REWEIGHT_OK;
}

int reweight_gdpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  const reweight_gdpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories, K = batch->parts;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_EPS, options->eps, error) || check_parts(batch, error) ||
	    check_weights(options->reward_weights, K, error) ||
	    rw_check_array(REWEIGHT_ARG_GROUP_IDS, batch->group_ids, S, error) ||
	    rw_scratch(ws, &a, rw_gdpo_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	double *relative = rw_take(&a, S, sizeof *relative);
	float *rewards = rw_take(&a, S, sizeof *rewards);
	reweight_batch part = *batch;
	part.rewards = rewards;
	for (int64_t s = 0; s < S; s++) relative[s] = 0;
	for (int64_t k = 0; k < K; k++) {
		for (int64_t s = 0; s < S; s++) rewards[s] = batch->reward_parts[s * K + k];
		arena scratch = a;
		group_rewards g = rw_group_rewards(&scratch, &part, NULL);
		double weight = options->reward_weights != NULL ? options->reward_weights[k] : 1;
		for (int64_t s = 0; s < S; s++)
			relative[s] += weight * rw_relative(rw_rewards_of(&g, &part, s), rewards[s], options->divide_by_std, options->eps);
	}
	rw_whiten_outcomes(&a, batch, advantages, relative);
	return REWEIGHT_OK;
}
