/* OTB, the optimal token baseline, and its form over turns. */
#include "internal.h"
#include "math.h"

/* A group of trajectories. */
typedef struct otb_group {
	int64_t n;                /* trajectories */
	int64_t longest, second;  /* response tokens of the two that have the most */
	int64_t first, positions; /* its positions, as many as its longest trajectory has tokens, are numbered from first */
} otb_group;

/* Sums over the trajectories that have a response token at a position. */
typedef struct otb_position {
	double returns; /* of G W */
	double weight;  /* of W */
} otb_position;

/* Lays out what a call needs. A group has at most as many positions as tokens. */
typedef struct otb_arrays {
	int32_t *ids;
	otb_group *groups;
	otb_position *at;
	double *returns;
} otb_arrays;

static otb_arrays lay_out(arena *a, int64_t tokens, int64_t trajectories) {
	return (otb_arrays){
		rw_take(a, trajectories, sizeof(int32_t)),
		rw_take(a, trajectories, sizeof(otb_group)),
		rw_take(a, tokens, sizeof(otb_position)),
		rw_take(a, tokens, sizeof(double)),
	};
}

int64_t rw_otb_scratch(int64_t tokens, int64_t trajectories) {
	arena a = {NULL, 0};
	lay_out(&a, tokens, trajectories);
	return a.used;
}

/* Returns the number of response tokens of trajectory s. */
static int64_t responses_of(const reweight_batch *batch, int64_t s) {
	int64_t from = batch->seq_offsets[s];
	return rw_responses(batch->role + from, batch->seq_offsets[s + 1] - from);
}

/* Counts a trajectory with so many response tokens, of so many tokens. */
static void add(otb_group *g, int64_t responses, int64_t tokens) {
	g->n++;
	if (responses > g->longest) {
		g->second = g->longest;
		g->longest = responses;
	} else {
		g->second = max_i64(g->second, responses);
	}
	g->positions = max_i64(g->positions, tokens);
}

int reweight_otb(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                 const reweight_otb_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) || rw_check_layout(batch, error) ||
	    rw_check_array(REWEIGHT_ARG_GROUP_IDS, batch->group_ids, S, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_TOKEN_REWARDS, batch->token_rewards, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_SUM_SQ_PROBS, batch->sum_sq_probs, batch, error) ||
	    rw_scratch(ws, &a, rw_otb_scratch(T, S), T, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	const uint8_t *role = batch->role;
	const int64_t *offsets = batch->seq_offsets;
	otb_arrays o = lay_out(&a, T, S);
	int64_t n = rw_groups_of(o.ids, batch->group_ids, S), first = 0;
	for (int64_t i = 0; i < n; i++) o.groups[i] = (otb_group){0, 0, 0, 0, 0};
	for (int64_t s = 0; s < S; s++)
		add(&o.groups[rw_group_of(o.ids, n, batch->group_ids[s])], responses_of(batch, s), offsets[s + 1] - offsets[s]);
	for (int64_t i = 0; i < n; i++) {
		o.groups[i].first = first;
		first += o.groups[i].positions;
	}
	for (int64_t p = 0; p < first; p++) o.at[p] = (otb_position){0, 0};
	for (int64_t s = 0; s < S; s++) {
		double next = 0, weight = 0;
		for (int64_t t = offsets[s + 1] - 1; t >= offsets[s]; t--) {
			if (role[t] == REWEIGHT_ROLE_MASKED) continue;
			next += (double)batch->token_rewards[t];
			o.returns[t] = next;
		}
		otb_position *p = &o.at[o.groups[rw_group_of(o.ids, n, batch->group_ids[s])].first];
		for (int64_t t = offsets[s]; t < offsets[s + 1]; t++) {
			int response = role[t] != REWEIGHT_ROLE_MASKED;
			if (response) {
				weight += 1 - 2 * exp64((double)batch->old_logprobs[t]) + (double)batch->sum_sq_probs[t];
				p->returns += o.returns[t] * weight;
				p->weight += weight;
			}
			if (response || !options->turns) p++;
		}
	}
	for (int64_t s = 0; s < S; s++) {
		const otb_group *g = &o.groups[rw_group_of(o.ids, n, batch->group_ids[s])];
		int64_t p = g->first, end = p + g->positions, responses = responses_of(batch, s); /* from end on B is 0 */
		if (g->n == 1)
			end = p;
		else if (options->zero_tail && responses == g->longest && responses > g->second)
			end = p + g->second;
		for (int64_t t = offsets[s]; t < offsets[s + 1]; t++) {
			int response = role[t] != REWEIGHT_ROLE_MASKED;
			double advantage = 0;
			if (response) {
				advantage = o.returns[t];
				if (p < end) advantage -= o.at[p].returns / (o.at[p].weight + 1e-8);
			}
			advantages[t] = (float)advantage;
			if (response || !options->turns) p++;
		}
	}
	return REWEIGHT_OK;
}
