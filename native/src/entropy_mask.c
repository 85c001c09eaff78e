/* The tokens with the highest entropies (arXiv 2506.01939). */
#include "internal.h"
#include "math.h"

#define COUNTS 2048 /* of 11 bits */

int64_t rw_entropy_mask_scratch(void) { return COUNTS * (int64_t)sizeof(int64_t); }

/* Returns a key that is ordered as the numbers are. */
static uint32_t ordered_bits(float x) {
	uint32_t b = bits32(x);
	return b >> 31 != 0 ? ~b : b | UINT32_C(1) << 31;
}

/* Returns the k-th largest of the finite x of response tokens, of which there are at least k.
 * It finds the bits of its key from the top, 11, 11 and 10, in one pass over x each. */
static float largest(int64_t *count, const float *x, const uint8_t *role, int64_t n, int64_t k) {
	static const int widths[] = {11, 11, 10};
	int found = 0; /* so many upper bits */
	uint64_t key = 0;
	for (int i = 0; i < 3; i++) {
		int bits = widths[i], rest = 32 - found - bits;
		for (int64_t c = 0; c < COUNTS; c++) count[c] = 0;
		for (int64_t t = 0; t < n; t++) {
			if (role[t] == REWEIGHT_ROLE_MASKED) continue;
			uint64_t v = (uint64_t)ordered_bits(x[t]) >> rest;
			if (v >> bits == key) count[v & ((UINT64_C(1) << bits) - 1)]++;
		}
		int64_t at = (INT64_C(1) << bits) - 1;
		for (; count[at] < k; at--) k -= count[at];
		found += bits;
		key = key << bits | (uint64_t)at;
	}
	uint32_t b = (uint32_t)key;
	return float32_of(b >> 31 != 0 ? b & ~(UINT32_C(1) << 31) : ~b);
}

int reweight_entropy_mask(const reweight_workspace *ws, float *mask, const reweight_batch *batch,
                          const reweight_entropy_mask_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int64_t T = batch->tokens;
	int32_t isa;
	arena a;
	if (rw_resolve(ws, &isa, error) || rw_check_count(REWEIGHT_ARG_TOKENS, T, error) ||
	    rw_check_array(REWEIGHT_ARG_MASK, mask, T, error) || rw_check_roles(batch->role, T, error))
		return REWEIGHT_BAD_INPUT;
	if (!(options->rho > 0 && options->rho <= 1))
		return BAD(error, SHARE, REWEIGHT_ARG_RHO, -1, bits64(options->rho));
	if (rw_check_array(REWEIGHT_ARG_ENTROPY, batch->entropy, T, error) ||
	    rw_check_finite(isa, REWEIGHT_ARG_ENTROPY, batch->entropy, batch->role, T, error) ||
	    rw_scratch(ws, &a, rw_entropy_mask_scratch(), T, batch->trajectories, 0, error))
		return REWEIGHT_BAD_INPUT;
	int64_t n = rw_responses(batch->role, T);
	float threshold = 0;
	if (n > 0) {
		int64_t k = (int64_t)(options->rho * (double)n + 0.9999);
		threshold = largest(rw_take(&a, COUNTS, sizeof(int64_t)), batch->entropy, batch->role, T,
		                    min_i64(n, max_i64(1, k)));
	}
	for (int64_t t = 0; t < T; t++)
		mask[t] = batch->role[t] != REWEIGHT_ROLE_MASKED && batch->entropy[t] >= threshold ? 1 : 0;
	return REWEIGHT_OK;
}
