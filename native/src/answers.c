/* The first use of an instruction set in a process compares its kernels with plain C, on the
 * arrays of answers.go: a wrong one is no matter of this library's code, which is tested, but
 * of a CPU or of an emulator. */
#include "internal.h"
#include "math.h"

enum { HARD = 2 * GROUP_SIZE + 3 * LANES + 5 }; /* elements: groups, chunks and a tail */

enum { KERNELS = 10, RIGHT = 15 };

/* A number of the bits of the results of each kernel, of which done are complete. */
typedef struct answers {
	uint64_t of[KERNELS];
	int done;
} answers;

/* Every NaN counts as one. */
static void add(answers *a, double x) {
	uint64_t *h = &a->of[a->done];
	*h = (*h ^ bits64(x == x ? x : NAN_64)) * UINT64_C(0x9e3779b97f4a7c15);
	*h ^= *h >> 29;
}

static void add_all(answers *a, const float *x, int64_t n) {
	for (int64_t i = 0; i < n; i++) add(a, (double)x[i]);
}

/* Fills a row with elements that the exponential takes in all of its ways. */
static void hard_row(float *x) {
	static const float special[] = {-INF_32, -90, -87.2f, 6, 0};
	uint32_t state = 1;
	for (int i = 0; i < HARD; i++) {
		state = state * 1664525 + 1013904223;
		x[i] = (float)(int32_t)state / (1 << 29) - 1;
		if (i % 29 == 3) x[i] = special[i / 29 % 5];
	}
}

static void answer_rows(answers *a, int32_t isa, float *x) {
	uint16_t upper[HARD], half[HARD];
	float dst[HARD];
	for (int i = 0; i < HARD; i++) {
		upper[i] = to_bf16(x[i]);
		/* Any sign and fraction, magnitudes below 1. */
		half[i] = (uint16_t)((((uint32_t)i * UINT32_C(2654435761)) >> 20 & 0xb7ff) | 0x400);
	}
	row rows[] = {{(char *)x, HARD, REWEIGHT_F32}, {(char *)upper, HARD, REWEIGHT_BF16}, {(char *)half, HARD, REWEIGHT_F16}};
	double tau[] = {1, 0.7};
	for (int r = 0; r < 3; r++) add(a, (double)rw_block_max(isa, &rows[r], 7, HARD));
	a->done++;
	for (int r = 0; r < 3; r++)
		for (row_want want = WANT_SUM; want <= WANT_SQUARES; want++)
			for (int k = 0; k < 2; k++) {
				row_state st = {LOG2E_32, 0, 8, INF_32, INF_32, {0}, {0}, {0}};
				if (tau[k] != 1) st.k = rw_split_scale(tau[k], &st.k_lo);
				/* A sum that is added to 0 hides how it is added. */
				for (int j = 0; j < LANES; j++) st.s[j] = 1, st.t[j] = 2, st.q[j] = 3;
				add(a, (double)rw_row_blocks(isa, &rows[r], 0, HARD, &st, want));
				add(a, tree(st.s));
				if (want >= WANT_ENTROPY) add(a, tree(st.t));
				if (want == WANT_SQUARES) add(a, tree(st.q));
			}
	a->done++;
	for (int r = 0; r < 2; r++)
		for (int k = 0; k < 2; k++) {
			grad_consts q = {LOG2E_32, 0, 3, -0.25f, 0.75f};
			if (tau[k] != 1) q.k = rw_split_scale(tau[k], &q.k_lo);
			row to = {(char *)dst, HARD, rows[r].dtype};
			rw_row_gradient(isa, &to, &rows[r], &q);
			for (int i = 0; i < HARD; i++) add(a, (double)rw_at(&to, i));
		}
	a->done++;
}

static void answer_tokens(answers *a, int32_t isa, float *x) {
	static const int32_t offsets[] = {0, 1, 9, 9, 26, 58, 190, HARD};
	enum { SPANS = sizeof offsets / sizeof offsets[0] - 1 };
	uint8_t role[HARD];
	float y[HARD], old[HARD], dst[HARD], lo[SPANS], hi[SPANS];
	for (int i = 0; i < HARD; i++) {
		role[i] = (uint8_t)(i * i % 7 % 3);
		y[i] = at_least(-1, x[(i * 5 + 1) % HARD] / 8);
		if (x[i] < -8) x[i] = (float)i / 512; /* what is special is for rows */
	}
	x[0] = 0;
	x[1] = -0.0f;
	x[2] = 1e-42f;
	reweight_moments m = rw_moments(isa, x, role, HARD, RESPONSES, 0.125);
	add(a, (double)m.n);
	add(a, m.sum);
	add(a, m.squares);
	a->done++;
	rw_actfocus_weights(isa, dst, x, role, HARD, 0.25, 0.6, &(reweight_actfocus_options)REWEIGHT_DEFAULT_ACTFOCUS);
	add_all(a, dst, HARD);
	a->done++;
	rw_span_means(isa, lo, SPANS, x, HARD, offsets);
	add_all(a, lo, SPANS);
	a->done++;
	float seen = x[30];
	x[30] = NAN_32;
	rw_min_max(isa, lo, hi, SPANS, x, HARD, offsets);
	add_all(a, lo, SPANS);
	add_all(a, hi, SPANS);
	a->done++;
	x[30] = seen;
	rw_exp_scale(isa, dst, x, HARD, -0.5f, 2);
	add_all(a, dst, HARD);
	a->done++;
	rw_multiply(isa, dst, x, y, HARD);
	add_all(a, dst, HARD);
	a->done++;
	for (int i = 0; i < HARD; i++) old[i] = x[i] - y[i];
	old[5] += 30; /* beyond the bounds of the ratio */
	surrogate_sums sums;
	rw_surrogate_clear(&sums);
	loss_tokens tokens = {dst, x, old, y, NULL, role, NULL};
	rw_clipped_surrogate(isa, &tokens, HARD, 0.5, &(reweight_loss_options)REWEIGHT_DEFAULT_LOSS, &sums);
	add_all(a, dst, HARD);
	reweight_surrogate_sums s = rw_surrogate_result(&sums);
	add(a, s.loss);
	add(a, s.log_ratio);
	add(a, (double)s.tokens);
	add(a, (double)s.clipped);
	a->done++;
}

static answers answer(int32_t isa) {
	float x[HARD];
	answers a;
	for (int k = 0; k < KERNELS; k++) a.of[k] = 0;
	a.done = 0;
	hard_row(x);
	answer_rows(&a, isa, x);
	answer_tokens(&a, isa, x);
	return a;
}

int rw_wrong_kernel(int32_t isa) {
	static uint32_t found; /* four bits for each instruction set, 0 before it is known: any thread may write it */
	uint32_t known = __atomic_load_n(&found, __ATOMIC_RELAXED) >> 4 * isa & 15;
	if (known == 0) {
		answers want = answer(REWEIGHT_PORTABLE), got = answer(isa);
		known = RIGHT;
		for (uint32_t k = KERNELS; k > 0; k--)
			if (got.of[k - 1] != want.of[k - 1]) known = k;
		__atomic_fetch_or(&found, known << 4 * isa, __ATOMIC_RELAXED);
	}
	return known == RIGHT ? 0 : (int)known;
}
