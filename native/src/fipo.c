/* FIPO (arXiv 2603.19835). */
#include "internal.h"
#include "math.h"

static double clamp(double x, double low, double high) {
	if (x < low) x = low;
	return x > high ? high : x;
}

/* Wants a number above 0 and at most most. */
static int check_positive(int32_t argument, double x, double most, reweight_error *error) {
	if (x == 0) return BAD(error, ABOVE_ZERO_FIPO, argument, -1);
	if (x > 0 && x <= most) return REWEIGHT_OK;
	if (most == INF_64) return BAD(error, ABOVE, argument, -1, bits64(x));
	return BAD(error, POSITIVE, argument, -1, bits64(x));
}

int reweight_fipo(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                  const reweight_fipo_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_FACTORS, factors, T, error) || rw_check_layout(batch, error) ||
	    check_positive(REWEIGHT_ARG_HALF_LIFE, options->half_life, 0x1.fffffffffffffp1023, error) ||
	    check_positive(REWEIGHT_ARG_FILTER, options->filter, INF_64, error) ||
	    check_positive(REWEIGHT_ARG_CLIP, options->clip, (double)MAX_FLOAT, error) ||
	    check_positive(REWEIGHT_ARG_SAFETY, options->safety, INF_64, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_ADVANTAGES, batch->advantages, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_LOGPROBS, batch->logprobs, batch, error))
		return REWEIGHT_BAD_INPUT;
	double gamma = exp64(-LN2 / options->half_life);
	double low = options->high_only ? 1 : 1 - options->clip, high = 1 + options->clip;
	for (int64_t s = 0; s < batch->trajectories; s++) {
		double k = 0;
		for (int64_t t = batch->seq_offsets[s + 1] - 1; t >= batch->seq_offsets[s]; t--) {
			double factor = 1;
			k *= gamma;
			if (batch->role[t] != REWEIGHT_ROLE_MASKED) {
				double d = (double)batch->logprobs[t] - (double)batch->old_logprobs[t], ratio = exp64(d);
				if (ratio <= options->filter) k += d;
				factor = clamp(exp64(clamp(k, -20, 20)), low, high);
				if (batch->advantages[t] < 0 && ratio > options->safety) factor = clamp(factor, 0.8, 1);
			}
			factors[t] = (float)factor;
		}
	}
	return REWEIGHT_OK;
}
