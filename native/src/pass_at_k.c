/* Pass@k (arXiv 2503.19595). */
#include "internal.h"
#include "math.h"

/* The trajectory with the highest reward of a group, the first of several, that reward, and
 * the next one. */
typedef struct top_two {
	int64_t first;
	float highest, second;
} top_two;

int64_t rw_pass_at_k_scratch(int64_t trajectories) {
	arena a = {NULL, rw_grpo_scratch(trajectories)};
	rw_take(&a, trajectories, sizeof(top_two));
	return a.used;
}

int reweight_pass_at_k(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                       const reweight_pass_at_k_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_EPS, options->eps, error) || rw_check_outcomes(batch, error) ||
	    rw_scratch(ws, &a, rw_pass_at_k_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	group_rewards groups = rw_group_rewards(&a, batch, NULL);
	top_two *best = rw_take(&a, S, sizeof *best);
	for (int64_t i = 0; i < groups.n; i++) best[i] = (top_two){-1, -INF_32, -INF_32};
	for (int64_t s = 0; s < S; s++) {
		const group_reward *g = rw_rewards_of(&groups, batch, s);
		top_two *top = &best[g - groups.rewards];
		float r = batch->rewards[s];
		if (g->n < 2) return BAD(error, LONELY, REWEIGHT_ARG_GROUP_IDS, s, batch->group_ids[s]);
		if (r > top->highest)
			*top = (top_two){s, r, top->highest};
		else if (r > top->second || (bits32(r) == 0 && top->second == 0)) /* 0 is above -0 */
			top->second = r;
	}
	for (int64_t s = 0; s < S; s++) {
		const group_reward *g = rw_rewards_of(&groups, batch, s);
		const top_two *top = &best[g - groups.rewards];
		double advantage = 0;
		if (top->first == s) {
			advantage = (double)top->highest - (double)top->second;
			if (options->divide_by_std && advantage != 0) advantage /= sqrt64(g->squares / (g->n - 1)) + options->eps;
		}
		rw_fill(batch, advantages, s, (float)advantage, 0);
	}
	return REWEIGHT_OK;
}
