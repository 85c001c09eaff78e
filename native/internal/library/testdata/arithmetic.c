/* Calls every function in threads whose floating-point arithmetic is not the usual one, as
 * after torch.set_flush_denormal(True) and fesetround: the same bits, and the thread has
 * its own arithmetic again afterwards. */
#include "reweight.h"

#include <stdio.h>
#include <string.h>

/* The modes of a thread: x86 has them in MXCSR, of which the lower six bits say what has
 * happened so far, and arm64 in FPCR. */
#ifdef __x86_64__
static const uint64_t modes[] = {0x1f80, 0x9fc0, 0x3f80, 0x5f80, 0x7f80};

static uint64_t get_mode(void) {
	uint32_t mode;
	__asm__ volatile("stmxcsr %0" : "=m"(mode));
	return mode & ~UINT64_C(0x3f);
}

static void set_mode(uint64_t mode) {
	uint32_t low = (uint32_t)mode;
	__asm__ volatile("ldmxcsr %0" : : "m"(low) : "memory");
}
#else
static const uint64_t modes[] = {0, 1 << 24, 2 << 22, 1 << 22, 3 << 22};

static uint64_t get_mode(void) {
	uint64_t mode;
	__asm__ volatile("mrs %0, fpcr" : "=r"(mode));
	return mode;
}

static void set_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#endif

static const char *const names[] = {"usual", "flush to zero", "round down", "round up", "round to zero"};

enum { ROWS = 16, VOCAB = 16384, T = 100, S = 2 };

static float logits[ROWS * VOCAB], row_logprobs[ROWS], row_grad[ROWS], small[T], x[T], weights[T], rewards[S] = {1, 0.1f};
static int32_t ids[ROWS], span_ids[T], group_ids[S], ranges[] = {0, 7, 7, 50, T};
static int64_t seq_offsets[] = {0, T / 2, T};
static uint8_t role[T];
static char scratch[1 << 14];

/* What a function writes, of any type. */
typedef union output {
	float rows[3][ROWS], gradient[ROWS * VOCAB], arrays[2][T];
	reweight_moments moments;
	struct {
		float array[T];
		reweight_actfocus_result actfocus;
		reweight_loss_result loss;
		reweight_surrogate_sums surrogate;
	} with;
	reweight_error error;
} output;

static output want, got;

static const char *const functions[] = {
	"token_stats", "token_stats at 0.7", "row_gradient", "actfocus", "aem", "grpo", "gae", "whiten", "loss", "masked_moments",
	"actfocus_weights", "span_means", "min_max", "exp_scale", "multiply", "surrogate", "an error",
};

enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* Calls a function and returns its code. */
static int call(int function, int32_t isa, output *out) {
	reweight_workspace ws = {.isa = isa, .workers = 3, .scratch = scratch, .scratch_size = sizeof scratch};
	reweight_rows rows = {.data = logits, .rows = ROWS, .vocab = VOCAB};
	reweight_rows gradient = {.data = out->gradient, .rows = ROWS, .vocab = VOCAB};
	reweight_ids chosen = {.data = ids};
	reweight_stats dst = {.lse = out->rows[0], .entropy = out->rows[1], .logprobs = out->rows[2]};
	reweight_batch batch = {
		.tokens = T, .trajectories = S, .role = role, .seq_offsets = seq_offsets, .group_ids = group_ids, .rewards = rewards,
		.span_ids = span_ids, .ref_energy = x, .entropy = x, .old_logprobs = x, .logprobs = weights, .advantages = small,
		.ref_logprobs = x, .values = small,
	};
	reweight_row_gradient_options row_gradient = REWEIGHT_DEFAULT_ROW_GRADIENT;
	reweight_actfocus_options actfocus = REWEIGHT_DEFAULT_ACTFOCUS;
	reweight_aem_options aem = REWEIGHT_DEFAULT_AEM;
	reweight_grpo_options grpo = REWEIGHT_DEFAULT_GRPO;
	reweight_gae_options gae = REWEIGHT_DEFAULT_GAE;
	reweight_loss_options loss = REWEIGHT_DEFAULT_LOSS;
	memset(out, 0, sizeof *out);
	switch (function) {
	case 0: return reweight_token_stats(&ws, &dst, &rows, &chosen, 1, NULL);
	case 1: return reweight_token_stats(&ws, &dst, &rows, &chosen, 0.7, NULL);
	case 2:
		return reweight_row_gradient(&ws, &gradient, &rows, &chosen, row_logprobs, NULL, row_grad, NULL, NULL, &row_gradient, NULL);
	case 3: return reweight_actfocus(&ws, &out->with.actfocus, out->with.array, &batch, &actfocus, NULL);
	case 4: return reweight_aem(&ws, out->arrays[0], &batch, &aem, NULL);
	case 5: return reweight_grpo(&ws, out->arrays[0], &batch, &grpo, NULL);
	case 6: return reweight_gae(&ws, out->arrays[0], out->arrays[1], small, &batch, &gae, NULL);
	case 7: return reweight_whiten(&ws, out->arrays[0], x, role, T, NULL);
	case 8: return reweight_loss(&ws, &out->with.loss, out->with.array, weights, &batch, &loss, NULL);
	case 9: return reweight_masked_moments(&ws, &out->moments, x, role, T, 6, 0.1, NULL);
	case 10: return reweight_actfocus_weights(&ws, out->arrays[0], x, role, T, 0.1, 0.7, &actfocus, NULL);
	case 11: return reweight_span_means(&ws, out->arrays[0], 4, small, T, ranges, NULL);
	case 12: return reweight_min_max(&ws, out->arrays[0], out->arrays[1], 4, small, T, ranges, NULL);
	case 13: return reweight_exp_scale(&ws, out->arrays[0], x, T, 0.1f, 0.3, NULL);
	case 14: return reweight_multiply(&ws, out->arrays[0], small, weights, T, NULL);
	case 15:
		return reweight_surrogate(&ws, &out->with.surrogate, out->with.array, weights, x, small, weights, role, T, 0.01,
		                          &loss, NULL);
	}
	actfocus.alpha = -1e-310;
	return reweight_actfocus(&ws, NULL, weights, &batch, &actfocus, &out->error) == REWEIGHT_OK;
}

int main(void) {
	uint32_t state = 1;
	for (int i = 0; i < ROWS * VOCAB; i++) {
		state = 1664525 * state + 1013904223;
		logits[i] = (float)(int32_t)state / (float)(1 << 25);
	}
	for (int r = 0; r < ROWS; r++) {
		ids[r] = 37 * r;
		row_logprobs[r] = -9;
		row_grad[r] = 1e-3f * (float)(r + 1);
	}
	for (int t = 0; t < T; t++) {
		x[t] = logits[t] / 64;
		weights[t] = (float)(1 + t % 7) / 10;
		small[t] = (float)(t - 30) * 3e-40f;
		role[t] = (uint8_t)(t % 5 == 0 ? 0 : 1 + t % 2);
		span_ids[t] = t / 10;
	}
	int wrong = 0;
	for (int32_t isa = REWEIGHT_PORTABLE; isa <= REWEIGHT_NEON; isa++) {
		if (!reweight_has_isa(isa)) continue;
		for (int f = 0; f < FUNCTIONS; f++) {
			set_mode(modes[0]);
			if (call(f, isa, &want) != REWEIGHT_OK) {
				printf("%s fails\n", functions[f]);
				return 1;
			}
			for (int m = 1; m < 5; m++) {
				set_mode(modes[m]);
				int code = call(f, isa, &got);
				uint64_t after = get_mode();
				set_mode(modes[0]);
				if (code != REWEIGHT_OK || memcmp(&got, &want, sizeof got) != 0) {
					printf("%s, %s, %s: other results\n", functions[f], reweight_isa_name(isa), names[m]);
					wrong = 1;
				}
				if (after != modes[m]) {
					printf("%s, %s, %s: the mode is %#llx afterwards\n", functions[f], reweight_isa_name(isa), names[m],
					       (unsigned long long)after);
					wrong = 1;
				}
			}
		}
	}
	if (!wrong) puts("ok");
	return wrong;
}
