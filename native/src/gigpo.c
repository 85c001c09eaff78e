/* GiGPO (arXiv 2505.10978). */
#include "internal.h"
#include "math.h"

/* Added to the standard deviations. */
#define GIGPO_EPS 1e-6

/* A span: its group and anchor, its discounted return, and then its advantage. */
typedef struct step {
	int32_t group, anchor;
	double value;
} step;

typedef struct gigpo_arrays {
	span_arrays sp;
	int32_t *turns; /* [trajectories] spans of each */
	step *steps;    /* [spans] */
	int32_t *order; /* [spans] sorted by group and anchor */
} gigpo_arrays;

static gigpo_arrays take(arena *a, int64_t tokens, int64_t trajectories, int64_t spans) {
	gigpo_arrays g;
	rw_take_spans(&g.sp, a, tokens, trajectories, spans);
	g.turns = rw_take(a, trajectories, sizeof *g.turns);
	g.steps = rw_take(a, spans, sizeof *g.steps);
	g.order = rw_take(a, spans, sizeof *g.order);
	return g;
}

int64_t rw_gigpo_scratch(int64_t tokens, int64_t trajectories, int64_t spans) {
	arena a = {NULL, 0};
	take(&a, tokens, trajectories, spans);
	return a.used + rw_grpo_scratch(trajectories);
}

static int check_options(const reweight_gigpo_options *o, reweight_error *error) {
	if (rw_check_range(REWEIGHT_ARG_GAMMA, o->gamma, 0, 1, error) ||
	    rw_check_magnitude(REWEIGHT_ARG_OMEGA, o->omega, error))
		return REWEIGHT_BAD_INPUT;
	if (o->gamma == 0 && o->omega == 0) return BAD(error, ZERO_GIGPO, REWEIGHT_ARG_GAMMA, -1);
	return REWEIGHT_OK;
}

/* Sets turns to the number of spans of each trajectory: these are numbered as they appear. */
static void count_turns(gigpo_arrays *g, const reweight_batch *batch) {
	int32_t next = 0;
	for (int64_t q = 0; q < batch->trajectories; q++) {
		int32_t first = next;
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++)
			if (batch->span_ids[t] >= next) next = batch->span_ids[t] + 1;
		g->turns[q] = next - first;
	}
}

/* Sets steps to the spans with their discounted returns. */
static void discount(gigpo_arrays *g, const reweight_batch *batch, double gamma) {
	int64_t s = g->sp.spans;
	for (int64_t q = batch->trajectories - 1; q >= 0; q--) {
		double value = 0;
		for (int32_t i = 0; i < g->turns[q]; i++) {
			s--;
			value = (double)batch->span_rewards[s] + gamma * value;
			g->steps[s] = (step){batch->group_ids[q], batch->anchors[s], value};
		}
	}
}

/* Whether span a comes before span b: by group, anchor and number. */
static int before(const step *steps, int32_t a, int32_t b) {
	if (steps[a].group != steps[b].group) return steps[a].group < steps[b].group;
	if (steps[a].anchor != steps[b].anchor) return steps[a].anchor < steps[b].anchor;
	return a < b;
}

static void sink(int32_t *order, int64_t n, int64_t i, const step *steps) {
	int32_t s = order[i];
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && before(steps, order[child], order[child + 1])) child++;
		if (!before(steps, s, order[child])) break;
		order[i] = order[child];
	}
	order[i] = s;
}

/* A heapsort: it needs no memory, and no order of the spans makes it slow. */
static void sort(int32_t *order, int64_t n, const step *steps) {
	for (int64_t i = n / 2 - 1; i >= 0; i--) sink(order, n, i, steps);
	while (n > 1) {
		int32_t last = order[--n];
		order[n] = order[0];
		order[0] = last;
		sink(order, n, 0, steps);
	}
}

/* Turns the returns into advantages within spans of the same group and anchor. */
static void compare(gigpo_arrays *g, int divide) {
	step *steps = g->steps;
	int64_t spans = g->sp.spans;
	for (int64_t s = 0; s < spans; s++) g->order[s] = (int32_t)s;
	sort(g->order, spans, steps);
	for (int64_t from = 0, to; from < spans; from = to) {
		step first = steps[g->order[from]];
		for (to = from + 1; to < spans; to++) {
			const step *next = &steps[g->order[to]];
			if (next->group != first.group || next->anchor != first.anchor) break;
		}
		/* Less the first return, equal ones are 0 and their mean is exact. */
		double n = (double)(to - from), sum = 0, squares = 0;
		for (int64_t i = from; i < to; i++) {
			step *s = &steps[g->order[i]];
			s->value -= first.value;
			sum += s->value;
		}
		double mean = sum / n;
		for (int64_t i = from; i < to; i++) {
			step *s = &steps[g->order[i]];
			double d = s->value - mean;
			squares += d * d;
			s->value = d;
		}
		if (!divide || n <= 1) continue;
		double f = sqrt64(squares / (n - 1)) + GIGPO_EPS;
		for (int64_t i = from; i < to; i++) steps[g->order[i]].value /= f;
	}
}

int reweight_gigpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                   const reweight_gigpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories, spans;
	arena a;
	if (check_options(options, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) || rw_check_spans(batch, &spans, error) ||
	    rw_scratch(ws, &a, rw_gigpo_scratch(T, S, spans), T, S, spans, error))
		return REWEIGHT_BAD_INPUT;
	gigpo_arrays g = take(&a, T, S, spans);
	if (rw_count_spans(&g.sp, batch, error) || rw_check_array(REWEIGHT_ARG_ANCHORS, batch->anchors, spans, error) ||
	    rw_check_array(REWEIGHT_ARG_SPAN_REWARDS, batch->span_rewards, spans, error))
		return REWEIGHT_BAD_INPUT;
	for (int64_t s = 0; s < spans; s++)
		if (!is_finite(batch->span_rewards[s]))
			return BAD(error, REWARD, REWEIGHT_ARG_SPAN_REWARDS, s, bits32(batch->span_rewards[s]));
	if (rw_check_outcomes(batch, error)) return REWEIGHT_BAD_INPUT;
	count_turns(&g, batch);
	group_rewards groups = rw_group_rewards(&a, batch, options->per_step ? g.turns : NULL);
	discount(&g, batch, options->gamma);
	compare(&g, options->divide_by_std);
	for (int64_t q = 0; q < S; q++) {
		double episode = rw_relative(rw_rewards_of(&groups, batch, q), batch->rewards[q], options->divide_by_std,
		                             GIGPO_EPS);
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++) {
			double advantage = 0;
			if (batch->role[t] != REWEIGHT_ROLE_MASKED)
				advantage = episode + options->omega * g.steps[batch->span_ids[t]].value;
			advantages[t] = (float)advantage;
		}
	}
	return REWEIGHT_OK;
}
