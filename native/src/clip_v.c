/* Clip_V (arXiv 2602.03392). */
#include "internal.h"
#include "math.h"

int reweight_clip_v(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                    const reweight_clip_v_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_WEIGHTS, weights, T, error) || rw_check_roles(batch->role, T, error))
		return REWEIGHT_BAD_INPUT;
	if (!(options->mu > 0 && is_finite(options->mu)))
		return BAD(error, POSITIVE, REWEIGHT_ARG_MU, -1, bits64(options->mu));
	if (!(options->max_share > 0 && options->max_share <= 1))
		return BAD(error, SHARE, REWEIGHT_ARG_MAX_SHARE, -1, bits64(options->max_share));
	if (rw_check_responses(isa, REWEIGHT_ARG_ADVANTAGES, batch->advantages, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_OLD_LOGPROBS, batch->old_logprobs, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_ENTROPY, batch->entropy, batch, error) ||
	    rw_check_responses(isa, REWEIGHT_ARG_ENTROPY_DROP, batch->entropy_drop, batch, error) ||
	    rw_scratch(ws, &a, 16 * T, T, batch->trajectories, 0, error))
		return REWEIGHT_BAD_INPUT;
	double *drop = rw_take(&a, T, sizeof *drop);
	uint64_t *keys = rw_take(&a, T, sizeof *keys);
	for (int64_t t = 0; t < T; t++) {
		if (batch->role[t] == REWEIGHT_ROLE_MASKED) continue;
		double l = (double)batch->old_logprobs[t];
		drop[t] = (double)batch->entropy_drop[t] - exp64(l) * ((double)batch->entropy[t] + l);
	}
	double mean, squares;
	int64_t n = rw_responses(batch->role, T);
	rw_spread64(drop, batch, n, &mean, &squares);
	double std = sqrt64(squares / (double)max_i64(n, 1)), bound = options->mu * std;
	for (int64_t t = 0; t < T; t++) {
		int masked = batch->role[t] == REWEIGHT_ROLE_MASKED;
		int beyond = !masked && std >= 1e-12 && batch->advantages[t] < 0 && drop[t] > bound;
		if (beyond) keys[t] = ~rw_ordered_bits(drop[t]);
		weights[t] = beyond ? CANDIDATE : (float)!masked;
	}
	rw_choose_lowest(weights, keys, batch->role, T, options->max_share, 0, 1);
	return REWEIGHT_OK;
}
