/* Advantages of turns, which are the spans. */
#include "internal.h"
#include "math.h"

#define TURNS_EPS 1e-6 /* added to the standard deviations */

/* What is compared: a turn of a group, or the outcomes of its trajectories. */
typedef struct compared {
	double n, first, sum; /* how many, the first, and the sum of what others are above it */
	double squares;       /* about the mean */
} compared;

/* A group of trajectories. */
typedef struct turn_group {
	int64_t n;              /* trajectories */
	int64_t leader;         /* the first of them */
	int64_t longest;        /* turns of the one that has the most */
	int64_t slot;           /* its turns, as many as longest, are numbered from slot */
	int64_t turns;          /* of all its trajectories */
	double sum, squares;    /* of x over these turns, and of squares about the mean */
	compared outcomes;
} turn_group;

/* The spans of a batch as the turns of its trajectories. */
typedef struct turn_arrays {
	int32_t *first; /* [trajectories+1] the first turn of each, and then the number of all */
	int32_t *group; /* [trajectories] the number of its group */
	int32_t *ids;   /* [trajectories] the distinct group ids */
	int32_t *count; /* [spans] response tokens */
	turn_group *groups;
	double *x, *relative; /* [spans] a number of each turn, and its advantage */
	compared *slots;      /* [spans] each turn of each group */
} turn_arrays;

static turn_arrays take(arena *a, int64_t trajectories, int64_t spans) {
	return (turn_arrays){
		rw_take(a, trajectories + 1, sizeof(int32_t)), rw_take(a, trajectories, sizeof(int32_t)),
		rw_take(a, trajectories, sizeof(int32_t)),     rw_take(a, spans, sizeof(int32_t)),
		rw_take(a, trajectories, sizeof(turn_group)),  rw_take(a, spans, sizeof(double)),
		rw_take(a, spans, sizeof(double)),             rw_take(a, spans, sizeof(compared)),
	};
}

int64_t rw_turns_scratch(int64_t trajectories, int64_t spans) {
	arena a = {NULL, 0};
	take(&a, trajectories, spans);
	return a.used;
}

/* Checks the rewards and the turns of the batch, and lays them out. */
static int turns_of(const reweight_workspace *ws, turn_arrays *u, float *advantages, const reweight_batch *batch,
                    reweight_error *error) {
	int64_t T = batch->tokens, S = batch->trajectories, spans;
	arena a;
	if (rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) || rw_check_spans(batch, &spans, error) ||
	    rw_scratch(ws, &a, rw_turns_scratch(S, spans), T, S, spans, error))
		return REWEIGHT_BAD_INPUT;
	*u = take(&a, S, spans);
	if (rw_count_responses(u->count, spans, batch, error) ||
	    rw_check_array(REWEIGHT_ARG_SPAN_REWARDS, batch->span_rewards, spans, error))
		return REWEIGHT_BAD_INPUT;
	for (int64_t s = 0; s < spans; s++)
		if (!is_finite(batch->span_rewards[s]))
			return BAD(error, REWARD, REWEIGHT_ARG_SPAN_REWARDS, s, bits32(batch->span_rewards[s]));
	if (rw_check_outcomes(batch, error)) return REWEIGHT_BAD_INPUT;
	int64_t n = rw_groups_of(u->ids, batch->group_ids, S), slot = 0;
	int32_t next = 0;
	for (int64_t g = 0; g < n; g++) u->groups[g] = (turn_group){.leader = -1};
	for (int64_t q = 0; q < S; q++) {
		u->first[q] = next;
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++)
			if (batch->span_ids[t] >= next) next = batch->span_ids[t] + 1;
		u->group[q] = (int32_t)rw_group_of(u->ids, n, batch->group_ids[q]);
		turn_group *g = &u->groups[u->group[q]];
		if (g->n++ == 0) g->leader = q;
		g->turns += next - u->first[q];
		g->longest = max_i64(g->longest, next - u->first[q]);
	}
	u->first[S] = next;
	for (int64_t g = 0; g < n; g++) {
		u->groups[g].slot = slot;
		slot += u->groups[g].longest;
	}
	for (int64_t i = 0; i < slot; i++) u->slots[i] = (compared){0};
	return REWEIGHT_OK;
}

/* Returns x of turn k of trajectory q, or of its last turn if it has ended before; without turns
 * the trajectory's reward. */
static double at(const turn_arrays *u, const reweight_batch *batch, int64_t q, int64_t k) {
	int64_t n = u->first[q + 1] - u->first[q];
	return n == 0 ? (double)batch->rewards[q] : u->x[u->first[q] + min_i64(k, n - 1)];
}

/* Sets relative to x of each turn less the mean of the others of the group there. */
static void less_others(turn_arrays *u, const reweight_batch *batch) {
	for (int64_t q = 0; q < batch->trajectories; q++) {
		const turn_group *g = &u->groups[u->group[q]];
		for (int64_t k = 0; k < g->longest; k++)
			u->slots[g->slot + k].sum += at(u, batch, q, k) - at(u, batch, g->leader, k);
	}
	for (int64_t q = 0; q < batch->trajectories; q++) {
		const turn_group *g = &u->groups[u->group[q]];
		for (int64_t s = u->first[q]; s < u->first[q + 1]; s++) {
			int64_t k = s - u->first[q];
			double d = u->x[s] - at(u, batch, g->leader, k);
			u->relative[s] = g->n == 1 ? u->x[s] : d - (u->slots[g->slot + k].sum - d) / (double)(g->n - 1);
		}
	}
}

/* Sets the sums of the groups. */
static void sum_turns(turn_arrays *u, const reweight_batch *batch) {
	for (int64_t q = 0; q < batch->trajectories; q++)
		for (int64_t s = u->first[q]; s < u->first[q + 1]; s++) u->groups[u->group[q]].sum += u->x[s];
	for (int64_t q = 0; q < batch->trajectories; q++) {
		turn_group *g = &u->groups[u->group[q]];
		for (int64_t s = u->first[q]; s < u->first[q + 1]; s++) {
			double d = u->x[s] - g->sum / (double)g->turns;
			g->squares += d * d;
		}
	}
}

/* Gives every response token the advantage of its turn. */
static void fill_turns(const turn_arrays *u, float *advantages, const reweight_batch *batch) {
	for (int64_t t = 0; t < batch->tokens; t++)
		advantages[t] = batch->role[t] == REWEIGHT_ROLE_MASKED ? 0 : (float)u->relative[batch->span_ids[t]];
}

int reweight_turn_returns(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                          const reweight_turn_returns_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	if (!(options->gamma > 0 && options->gamma <= 1))
		return BAD(error, SHARE, REWEIGHT_ARG_GAMMA, -1, bits64(options->gamma));
	turn_arrays u;
	if (turns_of(ws, &u, advantages, batch, error)) return REWEIGHT_BAD_INPUT;
	for (int64_t q = 0; q < batch->trajectories; q++) {
		double next = (double)batch->rewards[q], gamma = 1; /* of the reward, which comes with the last turn */
		for (int64_t s = u.first[q + 1] - 1; s >= u.first[q]; s--) {
			next = (double)batch->span_rewards[s] + gamma * next;
			gamma = options->gamma;
			u.x[s] = next;
		}
	}
	less_others(&u, batch);
	if (options->divide_by_std) sum_turns(&u, batch);
	for (int64_t q = 0; q < batch->trajectories; q++) {
		const turn_group *g = &u.groups[u.group[q]];
		if (!options->divide_by_std || g->turns < 2) continue;
		double std = sqrt64(g->squares / ((double)g->turns - 1));
		for (int64_t s = u.first[q]; std > 0 && s < u.first[q + 1]; s++) u.relative[s] /= std + TURNS_EPS;
	}
	fill_turns(&u, advantages, batch);
	return REWEIGHT_OK;
}

static void add(compared *c, double x) {
	if (c->n++ == 0) c->first = x;
	c->sum += x - c->first; /* equal ones are 0 and their mean is exact */
}

/* Returns x less the mean of what it is compared with. */
static double above(const compared *c, double x) { return x - c->first - c->sum / c->n; }

static void add_square(compared *c, double x) { c->squares += above(c, x) * above(c, x); }

static double relative(const compared *c, double x, int divide) {
	double d = above(c, x);
	return divide && c->n > 1 ? d / (sqrt64(c->squares / (c->n - 1)) + TURNS_EPS) : d;
}

/* Returns what trajectory q has earned in the end: its reward, and that of its last turn. */
static double outcome(const turn_arrays *u, const reweight_batch *batch, int64_t q) {
	double r = (double)batch->rewards[q];
	return u->first[q] < u->first[q + 1] ? r + (double)batch->span_rewards[u->first[q + 1] - 1] : r;
}

/* Adds every turn and outcome, or its square, to what it is compared with. */
static void add_all(turn_arrays *u, const reweight_batch *batch, void (*add_one)(compared *, double)) {
	for (int64_t q = 0; q < batch->trajectories; q++) {
		turn_group *g = &u->groups[u->group[q]];
		add_one(&g->outcomes, outcome(u, batch, q));
		for (int64_t s = u->first[q]; s < u->first[q + 1]; s++)
			add_one(&u->slots[g->slot + s - u->first[q]], (double)batch->span_rewards[s]);
	}
}

int reweight_mt_grpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                     const reweight_mt_grpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	if (!(options->lambda > 0 && is_finite(options->lambda)))
		return BAD(error, POSITIVE, REWEIGHT_ARG_LAMBDA, -1, bits64(options->lambda));
	turn_arrays u;
	if (turns_of(ws, &u, advantages, batch, error)) return REWEIGHT_BAD_INPUT;
	add_all(&u, batch, add);
	add_all(&u, batch, add_square);
	for (int64_t q = 0; q < batch->trajectories; q++) {
		const turn_group *g = &u.groups[u.group[q]];
		double end = relative(&g->outcomes, outcome(&u, batch, q), options->divide_by_std);
		for (int64_t s = u.first[q]; s < u.first[q + 1]; s++) {
			const compared *c = &u.slots[g->slot + s - u.first[q]];
			u.relative[s] = end;
			if (s < u.first[q + 1] - 1)
				u.relative[s] = relative(c, (double)batch->span_rewards[s], options->divide_by_std) + options->lambda * end;
		}
	}
	fill_turns(&u, advantages, batch);
	return REWEIGHT_OK;
}
