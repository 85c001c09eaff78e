/* GTPO and GRPO-S (arXiv 2508.04349). */
#include "internal.h"
#include "math.h"

/* Added to entropies that are divided by and to variances, and the smallest sum of entropies
 * that is divided by. */
#define SHAPING_EPS 1e-8

/* The successes of a scope, which have an even number, or its failures, which have the next. */
typedef struct shaping_set {
	int64_t longest, first; /* number of positions, and the first of them */
	/* Of the shaped rewards that are normalised together, less one of them, so that equal
	 * ones are exactly 0. */
	int64_t n;
	double base, mean, scale;
	double sum[LANES]; /* of these, then of squares: value j of a trajectory in lane j mod 16 */
} shaping_set;

/* A set's values at one position. */
typedef struct shaping_position {
	double n, sum, share;
} shaping_position;

/* values are entropies, then shaped rewards, then advantages: one of each response token, or
 * of each trajectory with response tokens. */
typedef struct shaping {
	int64_t trajectories, sets_used;
	double *values;
	int64_t *start; /* [trajectories+1] where each trajectory's values begin */
	int64_t *set;   /* [trajectories] of each */
	shaping_set *sets;
	shaping_position *positions; /* of each set, as many as its longest trajectory has values */
	int32_t *groups;
} shaping;

static shaping take(arena *a, int64_t tokens, int64_t trajectories) {
	shaping sc = {.trajectories = trajectories};
	sc.values = rw_take(a, tokens, sizeof *sc.values);
	sc.start = rw_take(a, trajectories + 1, sizeof *sc.start);
	sc.set = rw_take(a, trajectories, sizeof *sc.set);
	sc.sets = rw_take(a, 2 * trajectories, sizeof *sc.sets);
	sc.positions = rw_take(a, tokens, sizeof *sc.positions);
	sc.groups = rw_take(a, trajectories, sizeof *sc.groups);
	return sc;
}

int64_t rw_gtpo_scratch(int64_t tokens, int64_t trajectories) {
	arena a = {NULL, 0};
	take(&a, tokens, trajectories);
	return a.used;
}

static int check_options(const reweight_gtpo_options *o, int per_token, reweight_error *error) {
	if (rw_check_not_negative(REWEIGHT_ARG_BASE, o->base, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_BONUS, o->bonus, error))
		return REWEIGHT_BAD_INPUT;
	if (!is_finite(o->threshold)) return BAD(error, FINITE, REWEIGHT_ARG_THRESHOLD, -1, bits64(o->threshold));
	if (rw_check_not_negative(REWEIGHT_ARG_ENTROPY_LOW, o->entropy_low, error)) return REWEIGHT_BAD_INPUT;
	if (!(o->entropy_high >= o->entropy_low))
		return BAD(error, AT_LEAST_ENTROPY_LOW, REWEIGHT_ARG_ENTROPY_HIGH, -1, bits64(o->entropy_high),
		           bits64(o->entropy_low));
	if (rw_check_name(REWEIGHT_ARG_NORMALIZATION, o->normalization, REWEIGHT_NORMALIZATION_NONE, error) ||
	    rw_check_name(REWEIGHT_ARG_SCOPE, o->scope, REWEIGHT_SCOPE_BATCH, error))
		return REWEIGHT_BAD_INPUT;
	if (o->scope == REWEIGHT_SCOPE_TRAJECTORY) return BAD(error, GROUP_OR_BATCH, REWEIGHT_ARG_SCOPE, -1, o->scope);
	if (o->base == 0 && o->bonus == 0)
		return per_token ? BAD(error, ZERO_GTPO, REWEIGHT_ARG_BASE, -1) : BAD(error, ZERO_GRPO_S, REWEIGHT_ARG_BASE, -1);
	if (o->entropy_high == 0)
		return per_token ? BAD(error, ABOVE_ZERO_GTPO, REWEIGHT_ARG_ENTROPY_HIGH, -1)
		                 : BAD(error, ABOVE_ZERO_GRPO_S, REWEIGHT_ARG_ENTROPY_HIGH, -1);
	return REWEIGHT_OK;
}

static void clear(double lane[LANES]) {
	for (int j = 0; j < LANES; j++) lane[j] = 0;
}

/* Sets values to the clamped entropies H of response tokens or to the mean of each
 * trajectory's, and to v = 1 / (H + 1e-8) for failures. */
static void collect(shaping *sc, const reweight_batch *batch, const reweight_gtpo_options *o, int per_token) {
	int64_t n = 0;
	for (int64_t q = 0; q < sc->trajectories; q++) {
		int64_t first = n;
		double sum[LANES];
		clear(sum);
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++) {
			if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
			double h = (double)batch->entropy[t];
			if (!(h > o->entropy_low)) h = o->entropy_low;
			if (!(h < o->entropy_high)) h = o->entropy_high;
			sc->values[n] = h;
			sum[(n - first) % LANES] += h;
			n++;
		}
		if (!per_token && n > first) {
			sc->values[first] = tree(sum) / (double)(n - first);
			n = first + 1;
		}
		if (sc->set[q] % 2 != 0)
			for (int64_t i = first; i < n; i++) sc->values[i] = 1 / (sc->values[i] + SHAPING_EPS);
		sc->start[q] = first;
		sc->start[q + 1] = n;
	}
}

/* Turns values into shaped rewards. */
static void shape(shaping *sc, const float *rewards, const reweight_gtpo_options *o) {
	for (int64_t q = 0; q < sc->trajectories; q++) {
		shaping_set *set = &sc->sets[sc->set[q]];
		set->longest = max_i64(set->longest, sc->start[q + 1] - sc->start[q]);
	}
	int64_t n = 0;
	for (int64_t s = 0; s < sc->sets_used; s++) {
		sc->sets[s].first = n;
		n += sc->sets[s].longest;
	}
	for (int64_t j = 0; j < n; j++) sc->positions[j] = (shaping_position){0, 0, 0};
	for (int64_t q = 0; q < sc->trajectories; q++) {
		shaping_position *p = sc->positions + sc->sets[sc->set[q]].first;
		for (int64_t i = sc->start[q]; i < sc->start[q + 1]; i++, p++) {
			p->n++;
			p->sum += sc->values[i];
		}
	}
	for (int64_t j = 0; j < n; j++) {
		shaping_position *p = &sc->positions[j];
		p->share = o->bonus * p->n / (p->sum > SHAPING_EPS ? p->sum : SHAPING_EPS);
	}
	for (int64_t q = 0; q < sc->trajectories; q++) {
		const shaping_position *p = sc->positions + sc->sets[sc->set[q]].first;
		double base = o->base * (double)rewards[q], sign = 1;
		if (sc->set[q] % 2 != 0) {
			base = -o->base;
			sign = -1;
		}
		for (int64_t i = sc->start[q]; i < sc->start[q + 1]; i++, p++)
			sc->values[i] = base + sign * p->share * sc->values[i];
	}
}

/* Turns shaped rewards into advantages, within as many sets that follow each other as
 * together says. */
static void normalize(shaping *sc, int64_t together) {
	for (int64_t q = 0; q < sc->trajectories; q++) {
		shaping_set *set = &sc->sets[sc->set[q] / together * together];
		const double *u = sc->values + sc->start[q];
		for (int64_t j = 0; j < sc->start[q + 1] - sc->start[q]; j++) {
			if (set->n == 0) set->base = u[j];
			set->n++;
			set->sum[j % LANES] += u[j] - set->base;
		}
	}
	for (int64_t s = 0; s < sc->sets_used; s++) {
		shaping_set *set = &sc->sets[s];
		set->mean = tree(set->sum) / (double)set->n;
		clear(set->sum);
	}
	for (int64_t q = 0; q < sc->trajectories; q++) {
		shaping_set *set = &sc->sets[sc->set[q] / together * together];
		double *u = sc->values + sc->start[q];
		for (int64_t j = 0; j < sc->start[q + 1] - sc->start[q]; j++) {
			double d = u[j] - set->base - set->mean;
			set->sum[j % LANES] += d * d;
			u[j] = d;
		}
	}
	for (int64_t s = 0; s < sc->sets_used; s++) {
		shaping_set *set = &sc->sets[s];
		set->scale = 1 / sqrt64(tree(set->sum) / (double)set->n + SHAPING_EPS);
	}
	for (int64_t q = 0; q < sc->trajectories; q++) {
		double scale = sc->sets[sc->set[q] / together * together].scale;
		for (int64_t i = sc->start[q]; i < sc->start[q + 1]; i++) sc->values[i] *= scale;
	}
}

/* GTPO if per_token, else GRPO-S. */
static int shaped(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  const reweight_gtpo_options *options, int per_token, reweight_error *error) {
	int64_t T = batch->tokens, S = batch->trajectories;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) || check_options(options, per_token, error) ||
	    rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) || rw_check_layout(batch, error) ||
	    rw_check_rewards(batch, error) || rw_check_array(REWEIGHT_ARG_ENTROPY, batch->entropy, T, error) ||
	    rw_check_finite(isa, REWEIGHT_ARG_ENTROPY, batch->entropy, batch->role, T, error))
		return REWEIGHT_BAD_INPUT;
	int grouped = options->scope == REWEIGHT_SCOPE_GROUP;
	if ((grouped && rw_check_array(REWEIGHT_ARG_GROUP_IDS, batch->group_ids, S, error)) ||
	    rw_scratch(ws, &a, rw_gtpo_scratch(T, S), T, S, 0, error))
		return REWEIGHT_BAD_INPUT;
	shaping sc = take(&a, T, S);
	int64_t scopes = grouped ? rw_groups_of(sc.groups, batch->group_ids, S) : 1;
	for (int64_t q = 0; q < S; q++) {
		sc.set[q] = grouped ? 2 * rw_group_of(sc.groups, scopes, batch->group_ids[q]) : 0;
		if (!((double)batch->rewards[q] > options->threshold)) sc.set[q]++;
	}
	sc.sets_used = 2 * scopes;
	for (int64_t s = 0; s < sc.sets_used; s++) {
		shaping_set *set = &sc.sets[s];
		set->longest = set->first = set->n = 0;
		set->base = set->mean = set->scale = 0;
		clear(set->sum);
	}
	collect(&sc, batch, options, per_token);
	shape(&sc, batch->rewards, options);
	if (options->normalization == REWEIGHT_NORMALIZATION_SEPARATE) normalize(&sc, 1);
	if (options->normalization == REWEIGHT_NORMALIZATION_JOINT) normalize(&sc, 2);
	for (int64_t q = 0; q < S; q++) {
		int64_t i = sc.start[q];
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++) {
			if (batch->role[t] == REWEIGHT_ROLE_MASKED) {
				advantages[t] = 0;
				continue;
			}
			advantages[t] = (float)sc.values[i];
			if (per_token) i++;
		}
	}
	return REWEIGHT_OK;
}

int reweight_gtpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  const reweight_gtpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	return shaped(ws, advantages, batch, options, 1, error);
}

int reweight_grpo_s(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                    const reweight_gtpo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	return shaped(ws, advantages, batch, options, 0, error);
}
