/* The scratch memory of calls. */
#include "internal.h"
#include "math.h"

void *rw_take(arena *a, int64_t n, int64_t size) {
	void *memory = a->base == NULL ? NULL : a->base + a->used;
	a->used += (n * size + 7) / 8 * 8;
	return memory;
}

int rw_scratch(const reweight_workspace *ws, arena *scratch, int64_t want, int64_t tokens, int64_t trajectories,
               int64_t spans, reweight_error *error) {
	*scratch = (arena){ws->scratch, 0};
	if (ws->scratch_size < want)
		return BAD(error, SCRATCH_SIZE, REWEIGHT_ARG_SCRATCH_SIZE, -1, ws->scratch_size, want, tokens, trajectories,
		           spans);
	if (ws->scratch == NULL && want > 0) return BAD(error, SCRATCH_MISSING, REWEIGHT_ARG_SCRATCH, -1, want);
	if ((uintptr_t)ws->scratch % 8 != 0) return BAD(error, SCRATCH_ALIGNMENT, REWEIGHT_ARG_SCRATCH, -1);
	return REWEIGHT_OK;
}

int64_t rw_token_scratch(int64_t tokens) {
	arena a = {NULL, 0};
	rw_take(&a, tokens, sizeof(float));
	return a.used;
}

/* Returns n if it is a number of elements, or the nearest one. */
static int64_t count(int64_t n) { return max_i64(0, min_i64(n, MAX_COUNT)); }

int64_t reweight_scratch_size(int64_t tokens, int64_t trajectories, int64_t spans) {
	tokens = count(tokens);
	trajectories = count(trajectories);
	spans = count(spans);
	/* What the others take is less. */
	int64_t most = max_i64(rw_aem_scratch(tokens, trajectories, spans), rw_gtpo_scratch(tokens, trajectories));
	most = max_i64(most, rw_gigpo_scratch(tokens, trajectories, spans));
	most = max_i64(most, rw_empg_scratch(tokens, trajectories, spans));
	most = max_i64(most, rw_pass_at_k_scratch(trajectories));
	most = max_i64(most, rw_otb_scratch(tokens, trajectories));
	most = max_i64(most, rw_gdpo_scratch(trajectories));
	most = max_i64(most, rw_turns_scratch(trajectories, spans));
	most = max_i64(most, rw_loss_scratch(tokens, spans));
	return max_i64(most, rw_entropy_mask_scratch());
}
