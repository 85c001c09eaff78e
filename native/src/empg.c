/* EMPG (arXiv 2509.09265). */
#include "internal.h"
#include "math.h"

/* Added to both denominators. */
#define EMPG_EPS 1e-8

/* The means of a span's entropy and advantage, and what its tokens' advantages become: scale
 * times theirs, plus bonus. */
typedef struct empg_span {
	double entropy, advantage, scale, bonus;
} empg_span;

int64_t rw_empg_scratch(int64_t tokens, int64_t trajectories, int64_t spans) {
	arena a = {NULL, 0};
	span_arrays sp;
	rw_take_spans(&sp, &a, tokens, trajectories, spans);
	rw_take(&a, spans, sizeof(empg_span));
	return a.used;
}

static int check_options(const reweight_empg_options *o, reweight_error *error) {
	if (rw_check_range(REWEIGHT_ARG_K, o->k, 0, 80, error) ||
	    rw_check_range(REWEIGHT_ARG_K_FUTURE, o->k_future, 0, 80, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_ZETA, o->zeta, error))
		return REWEIGHT_BAD_INPUT;
	if (o->k == 0 && o->k_future == 0 && o->zeta == 0) return BAD(error, ZERO_EMPG, REWEIGHT_ARG_K, -1);
	return REWEIGHT_OK;
}

/* Sets the values of the spans to x at the response tokens, span by span. */
static void gather(span_arrays *sp, const float *x, const reweight_batch *batch) {
	for (int64_t t = 0; t < batch->tokens; t++)
		if (batch->role[t] != REWEIGHT_ROLE_MASKED) sp->values[sp->start[batch->span_ids[t]]++] = x[t];
	for (int64_t s = 0; s < sp->spans; s++) sp->start[s] -= sp->count[s]; /* undo the counting up */
}

static void clear(double lane[LANES]) {
	for (int j = 0; j < LANES; j++) lane[j] = 0;
}

/* Returns the mean in float64 of the values of span s: value i in lane i mod 16. */
static double mean64(const span_arrays *sp, int64_t s) {
	double lane[LANES];
	clear(lane);
	const float *values = sp->values + sp->start[s];
	for (int64_t i = 0; i < sp->count[s]; i++) lane[i % LANES] += (double)values[i];
	return tree(lane) / (double)sp->count[s];
}

int reweight_empg(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                  const reweight_empg_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories, N;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) || check_options(options, error) ||
	    rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, advantages, T, error) || rw_check_spans(batch, &N, error) ||
	    rw_scratch(ws, &a, rw_empg_scratch(T, S, N), T, S, N, error))
		return REWEIGHT_BAD_INPUT;
	span_arrays sp;
	rw_take_spans(&sp, &a, T, S, N);
	empg_span *spans = rw_take(&a, N, sizeof *spans);
	if (rw_count_spans(&sp, batch, error) ||
	    rw_check_array(REWEIGHT_ARG_ADVANTAGES, batch->advantages, T, error) ||
	    rw_check_finite(isa, REWEIGHT_ARG_ADVANTAGES, batch->advantages, batch->role, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ENTROPY, batch->entropy, T, error) ||
	    rw_check_finite(isa, REWEIGHT_ARG_ENTROPY, batch->entropy, batch->role, T, error))
		return REWEIGHT_BAD_INPUT;
	gather(&sp, batch->advantages, batch);
	for (int64_t s = 0; s < N; s++) spans[s].advantage = mean64(&sp, s);
	gather(&sp, batch->entropy, batch);
	double lo = INF_64, hi = -INF_64;
	for (int64_t s = 0; s < N; s++) {
		double h = mean64(&sp, s);
		spans[s].entropy = h;
		if (h < lo) lo = h;
		if (h > hi) hi = h;
	}
	double width = hi - lo + EMPG_EPS, n = (double)N;
	double lane[LANES]; /* span s in lane s mod 16 */
	clear(lane);
	for (int64_t s = 0; s < N; s++) {
		double x = (spans[s].entropy - lo) / width;
		spans[s].scale = exp64(-options->k * x);
		spans[s].bonus = options->zeta * exp64(-options->k_future * x); /* so far for the span before it */
		lane[s % LANES] += spans[s].scale;
	}
	double mean = tree(lane) / n + EMPG_EPS;
	/* Spans are numbered as they appear: those of a trajectory follow each other. */
	int64_t s = 0;
	for (int64_t q = 0; q < S; q++) {
		int64_t last = s - 1;
		for (int64_t t = batch->seq_offsets[q]; t < batch->seq_offsets[q + 1]; t++)
			last = max_i64(last, batch->span_ids[t]);
		for (; s < last; s++) spans[s].bonus = spans[s + 1].bonus;
		if (s == last) spans[s++].bonus = 0;
	}
	clear(lane);
	for (s = 0; s < N; s++) {
		spans[s].scale /= mean;
		lane[s % LANES] += spans[s].advantage * spans[s].scale + spans[s].bonus;
	}
	double centre = tree(lane) / n;
	for (s = 0; s < N; s++) spans[s].bonus -= centre;
	for (int64_t t = 0; t < T; t++) {
		double advantage = 0;
		if (batch->role[t] != REWEIGHT_ROLE_MASKED) {
			const empg_span *of = &spans[batch->span_ids[t]];
			advantage = (double)batch->advantages[t] * of->scale + of->bonus;
		}
		advantages[t] = (float)advantage;
	}
	return REWEIGHT_OK;
}
