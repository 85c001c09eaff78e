/* The divergence from the reference, in the reward. */
#include "internal.h"
#include "math.h"

int rw_check_kl(int32_t form, double coef, reweight_error *error) {
	return rw_check_name(REWEIGHT_ARG_KL, form, REWEIGHT_KL_ABS_PLUS, error) ||
	       rw_check_magnitude(REWEIGHT_ARG_KL_COEF, coef, error);
}

/* Returns the divergence's estimate of a token. */
static double estimate(int32_t form, double x) {
	switch (form) {
	case REWEIGHT_KL_K1:
	case REWEIGHT_KL_K1_PLUS: return x;
	case REWEIGHT_KL_ABS:
	case REWEIGHT_KL_ABS_PLUS: return __builtin_fabs(x);
	case REWEIGHT_KL_K2: return x * x / 2;
	}
	double k = k3(x > 20 ? -20 : x < -20 ? 20 : -x);
	return k > 10 ? 10 : k;
}

int reweight_kl_rewards(const reweight_workspace *ws, float *rewards, const reweight_batch *batch,
                        const reweight_kl_rewards_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_REWARDS, rewards, T, error) || rw_check_layout(batch, error) ||
	    rw_check_rewards(batch, error) || rw_check_kl(options->kl, options->kl_coef, error))
		return REWEIGHT_BAD_INPUT;
	const float *old = batch->old_logprobs, *ref = batch->ref_logprobs;
	double coef = options->kl_coef;
	if (coef != 0 && (rw_check_array(REWEIGHT_ARG_OLD_LOGPROBS, old, T, error) ||
	                  rw_check_array(REWEIGHT_ARG_REF_LOGPROBS, ref, T, error) ||
	                  rw_check_finite(isa, REWEIGHT_ARG_OLD_LOGPROBS, old, batch->role, T, error) ||
	                  rw_check_finite(isa, REWEIGHT_ARG_REF_LOGPROBS, ref, batch->role, T, error)))
		return REWEIGHT_BAD_INPUT;
	for (int64_t q = 0; q < batch->trajectories; q++) {
		double last = (double)batch->rewards[q]; /* of the response token that comes last */
		for (int64_t t = batch->seq_offsets[q + 1] - 1; t >= batch->seq_offsets[q]; t--) {
			double r = 0;
			if (batch->role[t] != REWEIGHT_ROLE_MASKED) {
				r = last;
				last = 0;
				if (coef != 0) r -= coef * estimate(options->kl, (double)old[t] - (double)ref[t]);
			}
			rewards[t] = (float)r;
		}
	}
	return REWEIGHT_OK;
}
