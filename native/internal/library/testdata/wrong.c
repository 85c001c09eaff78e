/* Calls every function with each of its arrays missing, and with counts that no memory has:
 * each is an error about that argument. */
#include "reweight.h"

#include <stdio.h>
#include <string.h>

enum { N = 4 };

static float x[N], out[N], out2[N];
static uint8_t role[N] = {1, 2, 1, 2};
static int32_t groups[2], spans[N] = {0, 0, 1, 1}, ranges[] = {0, 2, N};
static int64_t seq_offsets[] = {0, 2, N}, scratch[256];
static reweight_error error;

static int wrong;

/* Wants the call to have an error about the argument, and to have written nothing. */
static void expect(const char *argument, int code) {
	size_t n = strlen(argument);
	int same = code == REWEIGHT_BAD_INPUT && strcmp(error.argument, argument) == 0 && error.index == -1 &&
	           strncmp(error.message, argument, n) == 0 && error.message[n] == ' ';
	for (int i = 0; i < N; i++) same = same && out[i] == 0 && out2[i] == 0;
	if (!same) {
		printf("%s: code %d, %s, %d, %s; outputs %g, %g\n", argument, code, error.argument, (int)error.index, error.message,
		       out[0], out2[0]);
		wrong = 1;
	}
	memset(&error, 0, sizeof error);
	memset(out, 0, sizeof out);
	memset(out2, 0, sizeof out2);
}

int main(void) {
	const reweight_workspace ws = {.scratch = scratch, .scratch_size = sizeof scratch};
	const reweight_batch all = {
		.tokens = N, .trajectories = 2, .role = role, .seq_offsets = seq_offsets, .group_ids = groups, .rewards = x,
		.span_ids = spans, .ref_energy = x, .entropy = x, .old_logprobs = x, .logprobs = x, .ref_logprobs = x,
		.ref_entropy = x, .advantages = x, .values = x,
	};
	reweight_actfocus_options actfocus = REWEIGHT_DEFAULT_ACTFOCUS;
	const reweight_aem_options aem = REWEIGHT_DEFAULT_AEM;
	const reweight_grpo_options grpo = REWEIGHT_DEFAULT_GRPO;
	const reweight_gae_options gae = REWEIGHT_DEFAULT_GAE;
	reweight_loss_options loss = REWEIGHT_DEFAULT_LOSS;
	reweight_loss_result result;
	reweight_moments moments;
	reweight_surrogate_sums sums;
	reweight_batch b;
	loss.aggregation = REWEIGHT_SEQ_MEAN_TOKEN_SUM;

#define WITHOUT(field, call) (b = all, b.field = NULL, expect(#field, call))
#define WITH(argument, field, value, call) (b = all, b.field = value, expect(argument, call))
#define GIVEN(argument, call) (b = all, expect(argument, call))
#define ACTFOCUS(kind, weights) (actfocus.signal = (kind), reweight_actfocus(&ws, NULL, weights, &b, &actfocus, &error))
	WITHOUT(role, ACTFOCUS(REWEIGHT_ENERGY, out));
	WITHOUT(ref_energy, ACTFOCUS(REWEIGHT_ENERGY, out));
	WITHOUT(ref_entropy, ACTFOCUS(REWEIGHT_REF_ENTROPY, out));
	WITHOUT(old_logprobs, ACTFOCUS(REWEIGHT_SURPRISAL, out));
	WITHOUT(old_logprobs, ACTFOCUS(REWEIGHT_LOG_RATIO, out));
	WITHOUT(ref_logprobs, ACTFOCUS(REWEIGHT_LOG_RATIO, out));
	GIVEN("weights", ACTFOCUS(REWEIGHT_ENERGY, NULL));
	WITH("tokens", tokens, -1, ACTFOCUS(REWEIGHT_ENERGY, out));
	WITH("tokens", tokens, INT64_MAX, ACTFOCUS(REWEIGHT_ENERGY, out));
#define AEM(factors) reweight_aem(&ws, factors, &b, &aem, &error)
	WITHOUT(role, AEM(out));
	WITHOUT(seq_offsets, AEM(out));
	WITHOUT(span_ids, AEM(out));
	WITHOUT(entropy, AEM(out));
	WITHOUT(group_ids, AEM(out));
	GIVEN("factors", AEM(NULL));
	WITH("tokens", tokens, -1, AEM(out));
	WITH("span_ids", tokens, INT64_C(1) << 31, AEM(out));
	WITH("trajectories", trajectories, 0, AEM(out));
	WITH("trajectories", trajectories, -1, AEM(out));
	WITH("trajectories", trajectories, INT64_MAX, AEM(out));
#define GRPO(advantages) reweight_grpo(&ws, advantages, &b, &grpo, &error)
	WITHOUT(role, GRPO(out));
	WITHOUT(seq_offsets, GRPO(out));
	WITHOUT(group_ids, GRPO(out));
	WITHOUT(rewards, GRPO(out));
	GIVEN("advantages", GRPO(NULL));
	WITH("tokens", tokens, -1, GRPO(out));
	WITH("trajectories", trajectories, INT64_MIN, GRPO(out));
#define GAE(advantages, rewards) reweight_gae(&ws, advantages, out2, rewards, &b, &gae, &error)
	WITHOUT(role, GAE(out, x));
	WITHOUT(seq_offsets, GAE(out, x));
	WITHOUT(values, GAE(out, x));
	GIVEN("advantages", GAE(NULL, x));
	GIVEN("rewards", GAE(out, NULL));
	WITH("tokens", tokens, -1, GAE(out, x));
#define LOSS(grad) reweight_loss(&ws, &result, grad, x, &b, &loss, &error)
	WITHOUT(role, LOSS(out));
	WITHOUT(seq_offsets, LOSS(out));
	WITHOUT(logprobs, LOSS(out));
	WITHOUT(old_logprobs, LOSS(out));
	WITHOUT(advantages, LOSS(out));
	GIVEN("grad", LOSS(NULL));
	WITH("tokens", tokens, -1, LOSS(out));
#define WHITEN(argument, dst, x, role, n) expect(argument, reweight_whiten(&ws, dst, x, role, n, &error))
	WHITEN("dst", NULL, x, role, N);
	WHITEN("x", out, NULL, role, N);
	WHITEN("role", out, x, NULL, N);
	WHITEN("tokens", out, x, role, -1);
#define MOMENTS(argument, x, role, n) expect(argument, reweight_masked_moments(&ws, &moments, x, role, n, 7, 0, &error))
	MOMENTS("x", NULL, role, N);
	MOMENTS("role", x, NULL, N);
	MOMENTS("n", x, role, -1);
#define WEIGHTS(argument, dst, signal, role, n) expect(argument, reweight_actfocus_weights(&ws, dst, signal, role, n, 0, 1, &actfocus, &error))
	WEIGHTS("dst", NULL, x, role, N);
	WEIGHTS("signal", out, NULL, role, N);
	WEIGHTS("role", out, x, NULL, N);
	WEIGHTS("n", out, x, role, -1);
#define MEANS(argument, dst, spans, x, n, offsets) expect(argument, reweight_span_means(&ws, dst, spans, x, n, offsets, &error))
	MEANS("dst", NULL, 2, x, N, ranges);
	MEANS("x", out, 2, NULL, N, ranges);
	MEANS("offsets", out, 2, x, N, NULL);
	MEANS("offsets", out, 0, x, N, NULL);
	MEANS("spans", out, -1, x, N, ranges);
	MEANS("spans", out, INT64_MAX, x, N, ranges);
	MEANS("n", out, 2, x, -1, ranges);
#define EXTREMES(argument, lo, hi, groups, x, n, offsets) expect(argument, reweight_min_max(&ws, lo, hi, groups, x, n, offsets, &error))
	EXTREMES("lo", NULL, out2, 2, x, N, ranges);
	EXTREMES("hi", out, NULL, 2, x, N, ranges);
	EXTREMES("x", out, out2, 2, NULL, N, ranges);
	EXTREMES("offsets", out, out2, 2, x, N, NULL);
	EXTREMES("groups", out, out2, -1, x, N, ranges);
	EXTREMES("n", out, out2, 2, x, -1, ranges);
#define EXP_SCALE(argument, dst, x, n) expect(argument, reweight_exp_scale(&ws, dst, x, n, 0, 1, &error))
	EXP_SCALE("dst", NULL, x, N);
	EXP_SCALE("x", out, NULL, N);
	EXP_SCALE("x", out, x, 0);
	EXP_SCALE("n", out, x, -1);
#define MULTIPLY(argument, dst, a, b, n) expect(argument, reweight_multiply(&ws, dst, a, b, n, &error))
	MULTIPLY("dst", NULL, x, x, N);
	MULTIPLY("a", out, NULL, x, N);
	MULTIPLY("b", out, x, NULL, N);
	MULTIPLY("n", out, x, x, -1);
#define SURROGATE(argument, grad, logprobs, old, advantages, role, n) \
	expect(argument, reweight_surrogate(&ws, &sums, grad, logprobs, old, advantages, NULL, role, n, 1, &loss, &error))
	SURROGATE("grad", NULL, x, x, x, role, N);
	SURROGATE("logprobs", out, NULL, x, x, role, N);
	SURROGATE("old_logprobs", out, x, NULL, x, role, N);
	SURROGATE("advantages", out, x, x, NULL, role, N);
	SURROGATE("role", out, x, x, x, NULL, N);
	SURROGATE("n", out, x, x, x, role, -1);

	/* Scratch that is missing, or not aligned. */
	b = all;
	reweight_workspace bad = ws;
	bad.scratch = NULL;
	expect("scratch", reweight_aem(&bad, out, &b, &aem, &error));
	bad.scratch = (char *)scratch + 4;
	expect("scratch", reweight_aem(&bad, out, &b, &aem, &error));
	bad.scratch_size = -1;
	expect("scratch_size", reweight_aem(&bad, out, &b, &aem, &error));
	if (!wrong) puts("ok");
	return wrong;
}
