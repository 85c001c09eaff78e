/* ActFocus (arXiv 2605.14558). */
#include "internal.h"
#include "math.h"

int rw_check_actfocus_options(const reweight_actfocus_options *options, reweight_error *error) {
	if (rw_check_range(REWEIGHT_ARG_ALPHA, options->alpha, 0, 1, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_BETA, options->beta, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_EPS, options->eps, error) ||
	    rw_check_name(REWEIGHT_ARG_SIGNAL, options->signal, REWEIGHT_LOG_RATIO, error))
		return REWEIGHT_BAD_INPUT;
	if (options->alpha == 0 && options->beta == 0) return BAD(error, ZERO_ACTFOCUS, REWEIGHT_ARG_ALPHA, -1);
	return REWEIGHT_OK;
}

/* The arrays of the batch that a signal is made of: one, or a second one too. */
typedef struct source {
	int32_t names[2]; /* of a reweight_argument; 0 if there is none */
	const float *arrays[2];
} source;

static source source_of(const reweight_batch *batch, int32_t signal) {
	switch (signal) {
	case REWEIGHT_ENERGY:
		return (source){{REWEIGHT_ARG_REF_ENERGY, 0}, {batch->ref_energy, NULL}};
	case REWEIGHT_REF_ENTROPY:
		return (source){{REWEIGHT_ARG_REF_ENTROPY, 0}, {batch->ref_entropy, NULL}};
	case REWEIGHT_SURPRISAL:
		return (source){{REWEIGHT_ARG_OLD_LOGPROBS, 0}, {batch->old_logprobs, NULL}};
	}
	return (source){{REWEIGHT_ARG_OLD_LOGPROBS, REWEIGHT_ARG_REF_LOGPROBS}, {batch->old_logprobs, batch->ref_logprobs}};
}

/* Sets *signal to the signal of each token: an array of the batch, one that is computed into the
 * workspace, or where beta is 0 and an array is missing the weights, which are set to 0. */
static int signal_of(const reweight_workspace *ws, const float **signal, float *weights, const reweight_batch *batch,
                     const reweight_actfocus_options *options, reweight_error *error) {
	int64_t T = batch->tokens;
	int32_t kind = options->signal;
	source from = source_of(batch, kind);
	if (options->beta == 0 && (from.arrays[0] == NULL || (from.names[1] != 0 && from.arrays[1] == NULL))) {
		for (int64_t t = 0; t < T; t++) weights[t] = 0;
		*signal = weights;
		return REWEIGHT_OK;
	}
	for (int i = 0; i < 2 && from.names[i] != 0; i++)
		if (rw_check_array(from.names[i], from.arrays[i], T, error)) return REWEIGHT_BAD_INPUT;
	*signal = from.arrays[0];
	if (kind != REWEIGHT_SURPRISAL && kind != REWEIGHT_LOG_RATIO) return REWEIGHT_OK;
	arena a;
	if (rw_scratch(ws, &a, rw_token_scratch(T), T, batch->trajectories, 0, error)) return REWEIGHT_BAD_INPUT;
	float *x = rw_take(&a, T, sizeof *x);
	for (int64_t t = 0; t < T; t++)
		x[t] = kind == REWEIGHT_SURPRISAL ? -batch->old_logprobs[t] : batch->old_logprobs[t] - batch->ref_logprobs[t];
	*signal = x;
	return REWEIGHT_OK;
}

/* Names the array and the action token that make the signal not finite; there is one. */
static int signal_not_finite(const float *signal, const reweight_batch *batch, int32_t kind, reweight_error *error) {
	source from = source_of(batch, kind);
	for (int i = 0; i < 2 && from.names[i] != 0; i++) {
		int64_t t = rw_first_not_finite(from.arrays[i], batch->role, batch->tokens, ACTIONS);
		if (t >= 0)
			return BAD(error, AT_ACTION, from.names[i], t, bits32(from.arrays[i][t]));
	}
	/* Both log-probabilities are finite, and their difference is not. */
	int64_t t = rw_first_not_finite(signal, batch->role, batch->tokens, ACTIONS);
	return BAD(error, DIFFERENCE, from.names[0], t, bits32(from.arrays[0][t]));
}

int reweight_actfocus(const reweight_workspace *ws, reweight_actfocus_result *result, float *weights,
                      const reweight_batch *batch, const reweight_actfocus_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	const float *signal;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_WEIGHTS, weights, T, error) || rw_check_roles(batch->role, T, error) ||
	    rw_check_actfocus_options(options, error) || signal_of(ws, &signal, weights, batch, options, error))
		return REWEIGHT_BAD_INPUT;
	reweight_actfocus_result r = {0, 0, 0};
	double squares;
	r.actions = rw_spread(isa, signal, batch->role, T, ACTIONS, &r.mean, &squares);
	if (squares != squares) return signal_not_finite(signal, batch, options->signal, error);
	if (r.actions > 0) r.sigma = sqrt64(squares / (double)r.actions + options->eps);
	/* These hold for finite signals: beyond, float32 could not hold the constants. */
	if (rw_check_magnitude(REWEIGHT_ARG_MEAN, r.mean, error) ||
	    rw_check_not_negative(REWEIGHT_ARG_SIGMA, r.sigma, error))
		return REWEIGHT_BAD_INPUT;
	rw_actfocus_weights(isa, weights, signal, batch->role, T, r.mean, r.sigma, options);
	if (result != NULL) *result = r;
	return REWEIGHT_OK;
}
