/* The checks of a batch. */
#include "internal.h"
#include "math.h"

int rw_check_roles(const uint8_t *role, int64_t n, reweight_error *error) {
	if (rw_check_array(REWEIGHT_ARG_ROLE, role, n, error)) return REWEIGHT_BAD_INPUT;
	int64_t t = 0;
	for (; n - t >= 32; t += 32) {
		uint64_t a, b, c, d;
		memcpy(&a, role + t, 8);
		memcpy(&b, role + t + 8, 8);
		memcpy(&c, role + t + 16, 8);
		memcpy(&d, role + t + 24, 8);
		/* Of each byte no bit above the lowest two, and not both of these. */
		uint64_t high = (a | b | c | d) & 0xfcfcfcfcfcfcfcfc;
		uint64_t both = ((a & a >> 1) | (b & b >> 1) | (c & c >> 1) | (d & d >> 1)) & 0x0101010101010101;
		if ((high | both) != 0) break;
	}
	for (; t < n; t++)
		if (role[t] > REWEIGHT_ROLE_ACTION) return BAD(error, ROLE, REWEIGHT_ARG_ROLE, t, role[t]);
	return REWEIGHT_OK;
}

int64_t rw_responses(const uint8_t *role, int64_t n) {
	int64_t responses = 0;
	for (int64_t t = 0; t < n; t++) responses += role[t] != REWEIGHT_ROLE_MASKED;
	return responses;
}

int rw_check_offsets(const reweight_batch *batch, reweight_error *error) {
	const int64_t *offsets = batch->seq_offsets, S = batch->trajectories;
	if (rw_check_count(REWEIGHT_ARG_TRAJECTORIES, S, error)) return REWEIGHT_BAD_INPUT;
	if (S == 0) return BAD(error, COUNT_POSITIVE, REWEIGHT_ARG_TRAJECTORIES, -1, S);
	if (rw_check_array(REWEIGHT_ARG_SEQ_OFFSETS, offsets, S + 1, error)) return REWEIGHT_BAD_INPUT;
	if (offsets[0] != 0) return BAD(error, FIRST_OFFSET, REWEIGHT_ARG_SEQ_OFFSETS, 0, offsets[0]);
	for (int64_t s = 1; s <= S; s++)
		if (offsets[s] < offsets[s - 1])
			return BAD(error, OFFSET, REWEIGHT_ARG_SEQ_OFFSETS, s, offsets[s], offsets[s - 1]);
	if (offsets[S] != batch->tokens)
		return BAD(error, LAST_OFFSET, REWEIGHT_ARG_SEQ_OFFSETS, S, offsets[S], batch->tokens);
	return REWEIGHT_OK;
}

int rw_check_layout(const reweight_batch *batch, reweight_error *error) {
	return rw_check_roles(batch->role, batch->tokens, error) || rw_check_offsets(batch, error);
}

int rw_check_responses(int32_t isa, int32_t argument, const float *x, const reweight_batch *batch,
                       reweight_error *error) {
	return rw_check_array(argument, x, batch->tokens, error) ||
	       rw_check_finite(isa, argument, x, batch->role, batch->tokens, error);
}

int rw_check_rewards(const reweight_batch *batch, reweight_error *error) {
	if (rw_check_array(REWEIGHT_ARG_REWARDS, batch->rewards, batch->trajectories, error)) return REWEIGHT_BAD_INPUT;
	for (int64_t s = 0; s < batch->trajectories; s++)
		if (!is_finite(batch->rewards[s]))
			return BAD(error, REWARD, REWEIGHT_ARG_REWARDS, s, bits32(batch->rewards[s]));
	return REWEIGHT_OK;
}
