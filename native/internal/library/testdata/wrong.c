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

/* Wants the call to have a problem with the argument, and to have written nothing. */
static void expect(uint32_t problem, uint32_t argument, int code) {
	int same = code == REWEIGHT_BAD_INPUT && error.code == problem && error.argument == argument && error.index == -1;
	for (int i = 0; i < N; i++) same = same && out[i] == 0 && out2[i] == 0;
	if (!same) {
		printf("problem %u of argument %u: code %d, %u, %u, %d; outputs %g, %g\n", problem, argument, code, error.code,
		       error.argument, (int)error.index, out[0], out2[0]);
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

#define EXPECT(problem, argument, call) expect(REWEIGHT_PROBLEM_##problem, REWEIGHT_ARG_##argument, call)
#define WITHOUT(field, argument, call) (b = all, b.field = NULL, EXPECT(MISSING, argument, call))
#define WITH(field, value, problem, argument, call) (b = all, b.field = value, EXPECT(problem, argument, call))
#define GIVEN(argument, call) (b = all, EXPECT(MISSING, argument, call))
#define ACTFOCUS(kind, weights) (actfocus.signal = (kind), reweight_actfocus(&ws, NULL, weights, &b, &actfocus, &error))
	WITHOUT(role, ROLE, ACTFOCUS(REWEIGHT_ENERGY, out));
	WITHOUT(ref_energy, REF_ENERGY, ACTFOCUS(REWEIGHT_ENERGY, out));
	WITHOUT(ref_entropy, REF_ENTROPY, ACTFOCUS(REWEIGHT_REF_ENTROPY, out));
	WITHOUT(old_logprobs, OLD_LOGPROBS, ACTFOCUS(REWEIGHT_SURPRISAL, out));
	WITHOUT(old_logprobs, OLD_LOGPROBS, ACTFOCUS(REWEIGHT_LOG_RATIO, out));
	WITHOUT(ref_logprobs, REF_LOGPROBS, ACTFOCUS(REWEIGHT_LOG_RATIO, out));
	GIVEN(WEIGHTS, ACTFOCUS(REWEIGHT_ENERGY, NULL));
	WITH(tokens, -1, COUNT, TOKENS, ACTFOCUS(REWEIGHT_ENERGY, out));
	WITH(tokens, INT64_MAX, COUNT, TOKENS, ACTFOCUS(REWEIGHT_ENERGY, out));
#define AEM(factors) reweight_aem(&ws, factors, &b, &aem, &error)
	WITHOUT(role, ROLE, AEM(out));
	WITHOUT(seq_offsets, SEQ_OFFSETS, AEM(out));
	WITHOUT(span_ids, SPAN_IDS, AEM(out));
	WITHOUT(entropy, ENTROPY, AEM(out));
	WITHOUT(group_ids, GROUP_IDS, AEM(out));
	GIVEN(FACTORS, AEM(NULL));
	WITH(tokens, -1, COUNT, TOKENS, AEM(out));
	WITH(tokens, INT64_C(1) << 31, SPAN_TOKENS, SPAN_IDS, AEM(out));
	WITH(trajectories, 0, COUNT_POSITIVE, TRAJECTORIES, AEM(out));
	WITH(trajectories, -1, COUNT, TRAJECTORIES, AEM(out));
	WITH(trajectories, INT64_MAX, COUNT, TRAJECTORIES, AEM(out));
#define GRPO(advantages) reweight_grpo(&ws, advantages, &b, &grpo, &error)
	WITHOUT(role, ROLE, GRPO(out));
	WITHOUT(seq_offsets, SEQ_OFFSETS, GRPO(out));
	WITHOUT(group_ids, GROUP_IDS, GRPO(out));
	WITHOUT(rewards, REWARDS, GRPO(out));
	GIVEN(ADVANTAGES, GRPO(NULL));
	WITH(tokens, -1, COUNT, TOKENS, GRPO(out));
	WITH(trajectories, INT64_MIN, COUNT, TRAJECTORIES, GRPO(out));
#define GAE(advantages, rewards) reweight_gae(&ws, advantages, out2, rewards, &b, &gae, &error)
	WITHOUT(role, ROLE, GAE(out, x));
	WITHOUT(seq_offsets, SEQ_OFFSETS, GAE(out, x));
	WITHOUT(values, VALUES, GAE(out, x));
	GIVEN(ADVANTAGES, GAE(NULL, x));
	GIVEN(REWARDS, GAE(out, NULL));
	WITH(tokens, -1, COUNT, TOKENS, GAE(out, x));
#define LOSS(grad) reweight_loss(&ws, &result, grad, x, &b, &loss, &error)
	WITHOUT(role, ROLE, LOSS(out));
	WITHOUT(seq_offsets, SEQ_OFFSETS, LOSS(out));
	WITHOUT(logprobs, LOGPROBS, LOSS(out));
	WITHOUT(old_logprobs, OLD_LOGPROBS, LOSS(out));
	WITHOUT(advantages, ADVANTAGES, LOSS(out));
	GIVEN(GRAD, LOSS(NULL));
	WITH(tokens, -1, COUNT, TOKENS, LOSS(out));
#define WHITEN(problem, argument, dst, x, role, n) EXPECT(problem, argument, reweight_whiten(&ws, dst, x, role, n, &error))
	WHITEN(MISSING, DST, NULL, x, role, N);
	WHITEN(MISSING, X, out, NULL, role, N);
	WHITEN(MISSING, ROLE, out, x, NULL, N);
	WHITEN(COUNT, TOKENS, out, x, role, -1);
#define MOMENTS(problem, argument, x, role, n) EXPECT(problem, argument, reweight_masked_moments(&ws, &moments, x, role, n, 7, 0, &error))
	MOMENTS(MISSING, X, NULL, role, N);
	MOMENTS(MISSING, ROLE, x, NULL, N);
	MOMENTS(COUNT, N, x, role, -1);
#define WEIGHTS(problem, argument, dst, signal, role, n) EXPECT(problem, argument, reweight_actfocus_weights(&ws, dst, signal, role, n, 0, 1, &actfocus, &error))
	WEIGHTS(MISSING, DST, NULL, x, role, N);
	WEIGHTS(MISSING, SIGNAL, out, NULL, role, N);
	WEIGHTS(MISSING, ROLE, out, x, NULL, N);
	WEIGHTS(COUNT, N, out, x, role, -1);
#define MEANS(problem, argument, dst, spans, x, n, offsets) EXPECT(problem, argument, reweight_span_means(&ws, dst, spans, x, n, offsets, &error))
	MEANS(MISSING, DST, NULL, 2, x, N, ranges);
	MEANS(MISSING, X, out, 2, NULL, N, ranges);
	MEANS(MISSING, OFFSETS, out, 2, x, N, NULL);
	MEANS(MISSING, OFFSETS, out, 0, x, N, NULL);
	MEANS(COUNT, SPANS, out, -1, x, N, ranges);
	MEANS(COUNT, SPANS, out, INT64_MAX, x, N, ranges);
	MEANS(COUNT, N, out, 2, x, -1, ranges);
#define EXTREMES(problem, argument, lo, hi, groups, x, n, offsets) EXPECT(problem, argument, reweight_min_max(&ws, lo, hi, groups, x, n, offsets, &error))
	EXTREMES(MISSING, LO, NULL, out2, 2, x, N, ranges);
	EXTREMES(MISSING, HI, out, NULL, 2, x, N, ranges);
	EXTREMES(MISSING, X, out, out2, 2, NULL, N, ranges);
	EXTREMES(MISSING, OFFSETS, out, out2, 2, x, N, NULL);
	EXTREMES(COUNT, GROUPS, out, out2, -1, x, N, ranges);
	EXTREMES(COUNT, N, out, out2, 2, x, -1, ranges);
#define EXP_SCALE(problem, argument, dst, x, n) EXPECT(problem, argument, reweight_exp_scale(&ws, dst, x, n, 0, 1, &error))
	EXP_SCALE(MISSING, DST, NULL, x, N);
	EXP_SCALE(MISSING, X, out, NULL, N);
	EXP_SCALE(EMPTY, X, out, x, 0);
	EXP_SCALE(COUNT, N, out, x, -1);
#define MULTIPLY(problem, argument, dst, a, b, n) EXPECT(problem, argument, reweight_multiply(&ws, dst, a, b, n, &error))
	MULTIPLY(MISSING, DST, NULL, x, x, N);
	MULTIPLY(MISSING, A, out, NULL, x, N);
	MULTIPLY(MISSING, B, out, x, NULL, N);
	MULTIPLY(COUNT, N, out, x, x, -1);
#define SURROGATE(problem, argument, grad, logprobs, old, advantages, role, n) \
	EXPECT(problem, argument, reweight_surrogate(&ws, &sums, grad, logprobs, old, advantages, NULL, role, n, 1, &loss, &error))
	SURROGATE(MISSING, GRAD, NULL, x, x, x, role, N);
	SURROGATE(MISSING, LOGPROBS, out, NULL, x, x, role, N);
	SURROGATE(MISSING, OLD_LOGPROBS, out, x, NULL, x, role, N);
	SURROGATE(MISSING, ADVANTAGES, out, x, x, NULL, role, N);
	SURROGATE(MISSING, ROLE, out, x, x, x, NULL, N);
	SURROGATE(COUNT, N, out, x, x, x, role, -1);

	/* Scratch that is missing, or not aligned. */
	b = all;
	reweight_workspace bad = ws;
	bad.scratch = NULL;
	EXPECT(SCRATCH_MISSING, SCRATCH, reweight_aem(&bad, out, &b, &aem, &error));
	bad.scratch = (char *)scratch + 4;
	EXPECT(SCRATCH_ALIGNMENT, SCRATCH, reweight_aem(&bad, out, &b, &aem, &error));
	bad.scratch_size = -1;
	EXPECT(SCRATCH_SIZE, SCRATCH_SIZE, reweight_aem(&bad, out, &b, &aem, &error));
	if (!wrong) puts("ok");
	return wrong;
}
