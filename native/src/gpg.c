/* The advantages of GPG (arXiv 2504.02546). */
#include "internal.h"
#include "math.h"

int reweight_gpg_advantages(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                            reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories, paid = 0;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_outcomes(batch, error) || rw_scratch(ws, &a, rw_grpo_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	group_rewards g = rw_group_rewards(&a, batch, NULL);
	for (int64_t s = 0; s < S; s++) paid += batch->rewards[s] != 0;
	double alpha = (double)S / (double)max_i64(1, paid);
	for (int64_t s = 0; s < S; s++) {
		double advantage = alpha * rw_relative(rw_rewards_of(&g, batch, s), batch->rewards[s], 0, 0);
		rw_fill(batch, advantages, s, (float)advantage, 0);
	}
	return REWEIGHT_OK;
}
