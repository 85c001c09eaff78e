/* DAPO (arXiv 2503.14476): the overlong penalty, and the filter of groups. */
#include "internal.h"
#include "math.h"

int reweight_overlong_penalty(const reweight_workspace *ws, float *penalties, const reweight_batch *batch,
                              const reweight_overlong_penalty_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	(void)ws;
	int64_t S = batch->trajectories;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_count(REWEIGHT_ARG_TRAJECTORIES, S, error) ||
	    rw_check_array(REWEIGHT_ARG_PENALTIES, penalties, S, error) || rw_check_layout(batch, error))
		return REWEIGHT_BAD_INPUT;
	if (options->buffer < 1) return BAD(error, COUNT_POSITIVE, REWEIGHT_ARG_BUFFER, -1, options->buffer);
	if (options->maximum < options->buffer)
		return BAD(error, AT_LEAST_BUFFER, REWEIGHT_ARG_MAXIMUM, -1, options->maximum, options->buffer);
	if (rw_check_not_negative(REWEIGHT_ARG_PENALTY, options->penalty, error)) return REWEIGHT_BAD_INPUT;
	for (int64_t q = 0; q < S; q++) {
		int64_t from = batch->seq_offsets[q];
		int64_t over = rw_responses(batch->role + from, batch->seq_offsets[q + 1] - from) -
		               (options->maximum - options->buffer);
		double penalty = 0;
		if (over > 0) {
			double grown = options->penalty * (double)over / (double)options->buffer;
			penalty -= grown < options->penalty ? grown : options->penalty;
		}
		penalties[q] = (float)penalty;
	}
	return REWEIGHT_OK;
}

/* The number of a group's rewards and their extremes. */
typedef struct reward_range {
	int64_t n;
	float lo, hi;
} reward_range;

int64_t rw_group_filter_scratch(int64_t trajectories) {
	arena a = {NULL, 0};
	rw_take(&a, trajectories, sizeof(int32_t));
	rw_take(&a, trajectories, sizeof(reward_range));
	return a.used;
}

int reweight_group_filter(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                          reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t S = batch->trajectories;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, batch->tokens, error) ||
	    rw_check_array(REWEIGHT_ARG_WEIGHTS, weights, batch->tokens, error) || rw_check_layout(batch, error) ||
	    rw_check_outcomes(batch, error) || rw_scratch(ws, &a, rw_group_filter_scratch(S), batch->tokens, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	int32_t *groups = rw_take(&a, S, sizeof *groups);
	reward_range *ranges = rw_take(&a, S, sizeof *ranges);
	int64_t n = rw_groups_of(groups, batch->group_ids, S);
	for (int64_t i = 0; i < n; i++) ranges[i] = (reward_range){0, 0, 0};
	for (int64_t q = 0; q < S; q++) {
		reward_range *g = &ranges[rw_group_of(groups, n, batch->group_ids[q])];
		float r = batch->rewards[q];
		if (g->n++ == 0) g->lo = g->hi = r;
		if (r < g->lo) g->lo = r;
		if (r > g->hi) g->hi = r;
	}
	for (int64_t q = 0; q < S; q++) {
		const reward_range *g = &ranges[rw_group_of(groups, n, batch->group_ids[q])];
		rw_fill(batch, weights, q, g->n == 1 || g->hi > g->lo ? 1 : 0, 0);
	}
	return REWEIGHT_OK;
}
