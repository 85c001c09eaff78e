/* Token statistics of many rows, with one thread and with four, and in one that is being
 * cancelled: the same bits. */
#include "reweight.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 64, VOCAB = 16384 };

static float logits[ROWS * VOCAB];
static float one[3][ROWS], four[3][ROWS], cancelled[3][ROWS];
static int32_t ids[ROWS];

static int compute(float out[3][ROWS], int32_t workers) {
	reweight_workspace ws = {.workers = workers};
	reweight_stats stats = {.lse = out[0], .entropy = out[1], .logprobs = out[2]};
	reweight_rows rows = {.data = logits, .rows = ROWS, .vocab = VOCAB};
	reweight_ids chosen = {.data = ids};
	reweight_error error;
	int code = reweight_token_stats(&ws, &stats, &rows, &chosen, 1, &error);
	if (code != REWEIGHT_OK) printf("problem %u with argument %u\n", error.code, error.argument);
	return code;
}

/* Is cancelled before its call, and ends after it. */
static void *be_cancelled(void *returned) {
	pthread_cancel(pthread_self());
	*(int *)returned = compute(cancelled, 4) == REWEIGHT_OK;
	pthread_testcancel();
	return NULL;
}

int main(void) {
	uint32_t state = 1;
	for (int i = 0; i < ROWS * VOCAB; i++) {
		state = 1664525 * state + 1013904223;
		logits[i] = (float)(int32_t)state / (float)(1 << 28);
	}
	for (int r = 0; r < ROWS; r++) ids[r] = 37 * r;
	if (compute(one, 1) != REWEIGHT_OK || compute(four, 4) != REWEIGHT_OK) return 1;
	if (memcmp(one, four, sizeof one) != 0) {
		puts("other bits with four threads");
		return 1;
	}
	pthread_t thread;
	void *result = NULL;
	int returned = 0;
	if (pthread_create(&thread, NULL, be_cancelled, &returned) != 0 || pthread_join(thread, &result) != 0) return 1;
	if (!returned || result != PTHREAD_CANCELED || memcmp(one, cancelled, sizeof one) != 0) {
		puts(returned ? "other bits in a thread that is being cancelled" : "a call ends with its thread");
		return 1;
	}
	printf("%.9g %.9g %.9g\n", one[0][63], one[1][63], one[2][63]);
	return 0;
}
