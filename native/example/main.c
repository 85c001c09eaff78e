/* One training step's token credit from C: statistics of the logits, the weights of
 * ActFocus, the advantages of GRPO, the clipped loss, and the gradient of the logits.
 *
 *	go run ./native/build
 *	cc -Idist native/example/main.c dist/libreweight.a -pthread
 *	./a.out
 */
#include "reweight.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 8, TRAJECTORIES = 2, VOCAB = 5 };

/* Ends the program if a call found something wrong: reweight.h says what the numbers mean. */
static void check(int code, const reweight_error *error) {
	if (code != REWEIGHT_OK) {
		fprintf(stderr, "problem %u with argument %u\n", error->code, error->argument);
		exit(1);
	}
}

int main(void) {
	/* Two answers to one prompt: a token of the prompt, one of reasoning, two of action. */
	float logits[TOKENS * VOCAB] = {
		0.0f, 0.0f, 0.0f, 0.0f, 0.0f, /* what the model says before each token */
		2.0f, 1.0f, 0.5f, 0.0f, -1.0f,
		0.1f, 3.0f, 0.2f, 0.3f, 0.4f,
		4.0f, -2.0f, 1.0f, 1.0f, 0.0f,
		0.0f, 0.0f, 0.0f, 0.0f, 0.0f,
		2.0f, 1.0f, 0.5f, 0.0f, -1.0f,
		0.1f, 1.0f, 0.2f, 0.3f, 0.4f,
		1.0f, 1.0f, 1.0f, 1.0f, 2.0f,
	};
	int32_t ids[TOKENS] = {0, 0, 1, 0, 0, 1, 4, 2}; /* the tokens */
	uint8_t role[TOKENS] = {
		REWEIGHT_ROLE_MASKED, REWEIGHT_ROLE_REASONING, REWEIGHT_ROLE_ACTION, REWEIGHT_ROLE_ACTION,
		REWEIGHT_ROLE_MASKED, REWEIGHT_ROLE_REASONING, REWEIGHT_ROLE_ACTION, REWEIGHT_ROLE_ACTION,
	};
	int64_t seq_offsets[TRAJECTORIES + 1] = {0, 4, TOKENS};
	int32_t group_ids[TRAJECTORIES] = {7, 7};
	float rewards[TRAJECTORIES] = {1, 0};

	reweight_error error;
	reweight_workspace ws = {.workers = 2};
	ws.scratch_size = reweight_scratch_size(TOKENS, TRAJECTORIES, 0);
	ws.scratch = malloc((size_t)ws.scratch_size);
	if (ws.scratch == NULL) return 1;

	/* In one pass over the logits. */
	float lse[TOKENS], entropy[TOKENS], logprobs[TOKENS];
	reweight_rows rows = {.data = logits, .rows = TOKENS, .vocab = VOCAB, .dtype = REWEIGHT_F32};
	reweight_ids chosen = {.data = ids};
	reweight_stats stats = {.lse = lse, .entropy = entropy, .logprobs = logprobs};
	check(reweight_token_stats(&ws, &stats, &rows, &chosen, 1, &error), &error);

	/* The model stands for its own reference here, and for the policy that drew the tokens. */
	float ref_energy[TOKENS];
	for (int t = 0; t < TOKENS; t++) ref_energy[t] = -lse[t];
	reweight_batch batch = {
		.tokens = TOKENS, .trajectories = TRAJECTORIES, .role = role, .seq_offsets = seq_offsets,
		.group_ids = group_ids, .rewards = rewards, .ref_energy = ref_energy,
		.old_logprobs = logprobs, .logprobs = logprobs,
	};
	float weights[TOKENS], advantages[TOKENS], grad[TOKENS];
	reweight_actfocus_options actfocus = REWEIGHT_DEFAULT_ACTFOCUS;
	check(reweight_actfocus(&ws, NULL, weights, &batch, &actfocus, &error), &error);
	reweight_grpo_options grpo = REWEIGHT_DEFAULT_GRPO;
	check(reweight_grpo(&ws, advantages, &batch, &grpo, &error), &error);
	batch.advantages = advantages;
	reweight_loss_options options = REWEIGHT_DEFAULT_LOSS;
	reweight_loss_result loss;
	check(reweight_loss(&ws, &loss, grad, weights, &batch, &options, &error), &error);

	/* In place: the logits become the gradient. */
	reweight_row_gradient_options backward = REWEIGHT_DEFAULT_ROW_GRADIENT;
	check(reweight_row_gradient(&ws, &rows, &rows, &chosen, logprobs, entropy, grad, NULL, NULL, &backward, &error), &error);

	printf("loss %.6f over %d tokens\n", loss.loss, (int)loss.tokens);
	printf("token  logprob  entropy  weight  advantage  dL/dlogprob  dL/dlogit of the id\n");
	for (int t = 0; t < TOKENS; t++) {
		printf("%5d %8.4f %8.4f %7.4f %10.4f %12.4f %20.4f\n", t, logprobs[t], entropy[t], weights[t], advantages[t],
		       grad[t], logits[t * VOCAB + ids[t]]);
	}

	/* What is wrong is said in numbers, before anything is written. */
	ids[3] = 9;
	reweight_token_stats(&ws, &stats, &rows, &chosen, 1, &error);
	if (error.code == REWEIGHT_PROBLEM_ID && error.argument == REWEIGHT_ARG_IDS)
		printf("error: ids[%d] is %d, want 0 to %d, for rows of %d logits\n", (int)error.index, (int)error.values[0],
		       (int)error.values[1], (int)error.values[2]);
	free(ws.scratch);
	return 0;
}
