/* OPO (arXiv 2505.23585). */
#include "internal.h"
#include "math.h"

/* The trajectories of a group, their response tokens, and the rewards of these tokens: each
 * has that of its trajectory. */
typedef struct opo_group {
	double trajectories, tokens, rewards;
} opo_group;

int64_t rw_opo_scratch(int64_t trajectories) {
	arena a = {NULL, 0};
	rw_take(&a, trajectories, sizeof(int32_t));
	rw_take(&a, trajectories, sizeof(opo_group));
	return a.used;
}

int reweight_opo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                 reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_outcomes(batch, error) || rw_scratch(ws, &a, rw_opo_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	int32_t *ids = rw_take(&a, S, sizeof *ids);
	opo_group *groups = rw_take(&a, S, sizeof *groups);
	int64_t n = rw_groups_of(ids, batch->group_ids, S);
	for (int64_t i = 0; i < n; i++) groups[i] = (opo_group){0, 0, 0};
	for (int64_t s = 0; s < S; s++) {
		opo_group *g = &groups[rw_group_of(ids, n, batch->group_ids[s])];
		int64_t from = batch->seq_offsets[s];
		double tokens = (double)rw_responses(batch->role + from, batch->seq_offsets[s + 1] - from);
		g->trajectories++;
		g->tokens += tokens;
		g->rewards += tokens * (double)batch->rewards[s];
	}
	for (int64_t s = 0; s < S; s++) {
		const opo_group *g = &groups[rw_group_of(ids, n, batch->group_ids[s])];
		double baseline = 0;
		if (g->trajectories > 1) baseline = g->rewards / g->tokens; /* of a group without response tokens nobody reads it */
		rw_fill(batch, advantages, s, (float)((double)batch->rewards[s] - baseline), 0);
	}
	return REWEIGHT_OK;
}
