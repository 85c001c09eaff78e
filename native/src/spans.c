/* Spans: the responses of a batch, and the scopes that they are compared in. */
#include "internal.h"
#include "math.h"

/* Bounds what is averaged over spans, so that neither the sum of a group of eight nor the
 * difference of two means overflows float32. */
#define LARGEST_MEAN 1e30

/* Wants spans numbered 0, 1, 2, ... in the order in which they first appear, each within
 * one trajectory, and every response token in one. */
int rw_check_spans(const reweight_batch *batch, int64_t *spans, reweight_error *error) {
	int64_t T = batch->tokens;
	if (rw_check_array(REWEIGHT_ARG_SPAN_IDS, batch->span_ids, T, error)) return REWEIGHT_BAD_INPUT;
	if (T > INT32_MAX)
		return BAD(error, SPAN_TOKENS, REWEIGHT_ARG_SPAN_IDS, -1, T, INT32_MAX);
	if (rw_check_layout(batch, error)) return REWEIGHT_BAD_INPUT;
	int64_t next = 0, first = 0; /* spans seen so far; those seen before this trajectory */
	int64_t s = 0;
	for (int64_t t = 0; t < T; t++) {
		int64_t id = batch->span_ids[t];
		for (; t >= batch->seq_offsets[s + 1]; s++) first = next;
		if (id < -1 || id > next)
			return BAD(error, SPAN_ORDER, REWEIGHT_ARG_SPAN_IDS, t, id, next);
		if (id >= 0 && id < first)
			return BAD(error, SPAN_TRAJECTORY, REWEIGHT_ARG_SPAN_IDS, t, id, s);
		if (id == -1 && batch->role[t] != REWEIGHT_ROLE_MASKED)
			return BAD(error, SPAN_MISSING, REWEIGHT_ARG_SPAN_IDS, t, batch->role[t]);
		if (id == next) next++;
	}
	*spans = next;
	return REWEIGHT_OK;
}

void rw_take_spans(span_arrays *sp, arena *a, int64_t tokens, int64_t trajectories, int64_t spans) {
	sp->spans = spans;
	sp->scopes = 1;
	sp->count = rw_take(a, spans, sizeof *sp->count);
	sp->start = rw_take(a, spans + 1, sizeof *sp->start);
	sp->values = rw_take(a, tokens, sizeof *sp->values);
	sp->means = rw_take(a, spans, sizeof *sp->means);
	sp->scope = rw_take(a, spans, sizeof *sp->scope);
	sp->place = rw_take(a, spans, sizeof *sp->place);
	sp->offsets = rw_take(a, trajectories + 1, sizeof *sp->offsets);
	sp->groups = rw_take(a, trajectories, sizeof *sp->groups);
}

int rw_count_responses(int32_t *count, int64_t spans, const reweight_batch *batch, reweight_error *error) {
	for (int64_t s = 0; s < spans; s++) count[s] = 0;
	for (int64_t t = 0; t < batch->tokens; t++)
		if (batch->role[t] != REWEIGHT_ROLE_MASKED) count[batch->span_ids[t]]++;
	for (int64_t s = 0; s < spans; s++)
		if (count[s] == 0) return BAD(error, SPAN_EMPTY, REWEIGHT_ARG_SPAN_IDS, -1, s);
	return REWEIGHT_OK;
}

int rw_count_spans(span_arrays *sp, const reweight_batch *batch, reweight_error *error) {
	if (rw_count_responses(sp->count, sp->spans, batch, error)) return REWEIGHT_BAD_INPUT;
	sp->start[0] = 0;
	for (int64_t s = 0; s < sp->spans; s++) sp->start[s + 1] = sp->start[s] + sp->count[s];
	return REWEIGHT_OK;
}

int rw_sort_spans(span_arrays *sp, const reweight_batch *batch, int32_t scope, reweight_error *error) {
	int64_t S = batch->trajectories;
	if (scope == REWEIGHT_SCOPE_GROUP) {
		if (rw_check_array(REWEIGHT_ARG_GROUP_IDS, batch->group_ids, S, error)) return REWEIGHT_BAD_INPUT;
		sp->scopes = rw_groups_of(sp->groups, batch->group_ids, S);
	} else if (scope == REWEIGHT_SCOPE_TRAJECTORY) {
		sp->scopes = S;
	}
	for (int64_t q = 0; q < S; q++) {
		int64_t g = 0;
		if (scope == REWEIGHT_SCOPE_GROUP)
			g = rw_group_of(sp->groups, sp->scopes, batch->group_ids[q]);
		else if (scope == REWEIGHT_SCOPE_TRAJECTORY)
			g = q;
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++)
			if (batch->span_ids[t] >= 0) sp->scope[batch->span_ids[t]] = (int32_t)g;
	}
	/* A counting sort: offsets[g] is the number of spans of scope g, then where these end,
	 * then where they begin. */
	for (int64_t g = 0; g <= sp->scopes; g++) sp->offsets[g] = 0;
	for (int64_t s = 0; s < sp->spans; s++) sp->offsets[sp->scope[s]]++;
	for (int64_t g = 0; g < sp->scopes; g++) sp->offsets[g + 1] += sp->offsets[g];
	for (int64_t s = sp->spans - 1; s >= 0; s--) sp->place[s] = --sp->offsets[sp->scope[s]];
	return REWEIGHT_OK;
}

int rw_mean_of_spans(span_arrays *sp, int32_t isa, int32_t argument, const float *x, const reweight_batch *batch,
                     reweight_error *error) {
	for (int64_t t = 0; t < batch->tokens; t++) {
		if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
		int32_t s = batch->span_ids[t];
		if (!(x[t] >= -LARGEST_MEAN && x[t] <= LARGEST_MEAN))
			return BAD(error, SPAN_MEAN, argument, t, bits32(x[t]), s);
		sp->values[sp->start[s]++] = x[t];
	}
	for (int64_t s = 0; s < sp->spans; s++) sp->start[s] -= sp->count[s]; /* undo the counting up */
	rw_span_means(isa, sp->means, sp->spans, sp->values, sp->start[sp->spans], sp->start);
	return REWEIGHT_OK;
}
