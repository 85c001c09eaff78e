/* RLSD (arXiv 2604.03128). */
#include "internal.h"
#include "math.h"

/* Wants a number above 0 and at most 1. */
static int check_share(int32_t argument, double x, reweight_error *error) {
	if (x == 0) return BAD(error, ABOVE_ZERO_RLSD, argument, -1);
	return rw_check_range(argument, x, 0, 1, error);
}

/* Whether trajectory s has a teacher: a teacher_logprobs that is not NaN at a response token. */
static int taught(const reweight_batch *batch, int64_t s) {
	for (int64_t t = batch->seq_offsets[s]; t < batch->seq_offsets[s + 1]; t++)
		if (batch->role[t] != REWEIGHT_ROLE_MASKED && batch->teacher_logprobs[t] == batch->teacher_logprobs[t])
			return 1;
	return 0;
}

int reweight_rlsd(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                  const reweight_rlsd_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_FACTORS, factors, T, error) ||
	    rw_check_array(REWEIGHT_ARG_TEACHER_LOGPROBS, batch->teacher_logprobs, T, error) ||
	    rw_check_layout(batch, error) || check_share(REWEIGHT_ARG_LAMBDA, options->lambda, error) ||
	    check_share(REWEIGHT_ARG_CLIP, options->clip, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_ADVANTAGES, batch->advantages, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, batch, error))
		return REWEIGHT_BAD_INPUT;
	for (int64_t s = 0; s < batch->trajectories; s++) {
		if (!taught(batch, s)) continue;
		int64_t from = batch->seq_offsets[s];
		const float *x = batch->teacher_logprobs + from;
		int64_t t = rw_first_not_finite(x, batch->role + from, batch->seq_offsets[s + 1] - from, RESPONSES);
		if (t >= 0) return BAD(error, AT_RESPONSE, REWEIGHT_ARG_TEACHER_LOGPROBS, from + t, bits32(x[t]));
	}
	double low = 1 - options->clip, high = 1 + options->clip;
	for (int64_t s = 0; s < batch->trajectories; s++) {
		int has = taught(batch, s); /* before factors are in place of teacher_logprobs */
		for (int64_t t = batch->seq_offsets[s]; t < batch->seq_offsets[s + 1]; t++) {
			float a = batch->advantages[t];
			double factor = 1;
			if (has && batch->role[t] != REWEIGHT_ROLE_MASKED && a != 0 && !(options->negative_only && a > 0)) {
				double d = (double)batch->teacher_logprobs[t] - (double)batch->old_logprobs[t];
				double w = exp64(a < 0 ? -d : d);
				if (w < low) w = low;
				if (w > high) w = high;
				factor = (1 - options->lambda) + options->lambda * w;
			}
			factors[t] = (float)factor;
		}
	}
	return REWEIGHT_OK;
}
