/* AEM (arXiv 2605.00425). */
#include "internal.h"
#include "math.h"

static int check_options(const reweight_aem_options *options, reweight_error *error) {
	if (rw_check_range(REWEIGHT_ARG_LAMBDA, options->lambda, 0, 80, error)) return REWEIGHT_BAD_INPUT;
	if (!(options->guard >= 0)) return BAD(error, NOT_NEGATIVE, REWEIGHT_ARG_GUARD, -1, bits64(options->guard));
	if (rw_check_name(REWEIGHT_ARG_SCOPE, options->scope, REWEIGHT_SCOPE_BATCH, error)) return REWEIGHT_BAD_INPUT;
	if (options->lambda == 0 && options->guard == 0) return BAD(error, ZERO_AEM, REWEIGHT_ARG_LAMBDA, -1);
	return REWEIGHT_OK;
}

/* What is computed of the spans, sorted by scope. */
typedef struct aem_arrays {
	span_arrays sp;
	float *means;   /* [spans] of the entropies */
	float *factors; /* [spans] */
	float *lo, *hi; /* [scopes] extremes of the means; there are no more scopes than trajectories */
} aem_arrays;

static aem_arrays take_aem(arena *a, int64_t tokens, int64_t trajectories, int64_t spans) {
	aem_arrays aem;
	rw_take_spans(&aem.sp, a, tokens, trajectories, spans);
	aem.means = rw_take(a, spans, sizeof *aem.means);
	aem.factors = rw_take(a, spans, sizeof *aem.factors);
	aem.lo = rw_take(a, trajectories, sizeof *aem.lo);
	aem.hi = rw_take(a, trajectories, sizeof *aem.hi);
	return aem;
}

int64_t rw_aem_scratch(int64_t tokens, int64_t trajectories, int64_t spans) {
	arena a = {NULL, 0};
	take_aem(&a, tokens, trajectories, spans);
	return a.used;
}

int reweight_aem(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                 const reweight_aem_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens, S = batch->trajectories, spans;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) || check_options(options, error) ||
	    rw_check_count(REWEIGHT_ARG_TOKENS, T, error) || rw_check_array(REWEIGHT_ARG_FACTORS, factors, T, error) ||
	    rw_check_array(REWEIGHT_ARG_ENTROPY, batch->entropy, T, error) || rw_check_spans(batch, &spans, error) ||
	    rw_scratch(ws, &a, rw_aem_scratch(T, S, spans), T, S, spans, error))
		return REWEIGHT_BAD_INPUT;
	aem_arrays aem = take_aem(&a, T, S, spans);
	span_arrays *sp = &aem.sp;
	if (rw_count_spans(sp, batch, error) || rw_sort_spans(sp, batch, options->scope, error) ||
	    rw_mean_of_spans(sp, isa, REWEIGHT_ARG_ENTROPY, batch->entropy, batch, error))
		return REWEIGHT_BAD_INPUT;
	for (int64_t s = 0; s < spans; s++) aem.means[sp->place[s]] = sp->means[s];
	rw_min_max(isa, aem.lo, aem.hi, sp->scopes, aem.means, spans, sp->offsets);
	for (int64_t g = 0; g < sp->scopes; g++) {
		int64_t from = sp->offsets[g], n = sp->offsets[g + 1] - from;
		double width = (double)aem.hi[g] - (double)aem.lo[g];
		if (width < options->guard || options->lambda >= width * (double)MAX_FLOAT)
			for (int64_t p = 0; p < n; p++) aem.factors[from + p] = 1;
		else
			rw_exp_scale(isa, aem.factors + from, aem.means + from, n, aem.lo[g], options->lambda / width);
	}
	for (int64_t t = 0; t < T; t++)
		factors[t] = batch->role[t] != REWEIGHT_ROLE_MASKED ? aem.factors[sp->place[batch->span_ids[t]]] : 1;
	return REWEIGHT_OK;
}
