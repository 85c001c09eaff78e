/* What the files of the library share: the layouts that the assembly knows, and the
 * functions of one file that another calls. Everything that is not static here begins with
 * rw_, so that the static library takes no name of its user. */
#ifndef REWEIGHT_INTERNAL_H
#define REWEIGHT_INTERNAL_H

#include "../reweight.h"

#if defined(__FAST_MATH__) || __FLT_EVAL_METHOD__ != 0
#error "the bits depend on float arithmetic as IEEE 754 has it: no -ffast-math, no x87"
#endif

/* The one summation order of kernels_portable.go, which has the same names. */
enum {
	LANES = 16,
	GROUP_SIZE = 8 * LANES,
	BLOCK_SIZE = 8 * GROUP_SIZE,
	PIECE_SIZE = 64 * BLOCK_SIZE,
};

/* ---- errors.c ---- */

/* Says what is wrong with an argument, or with its element index unless that is -1, and
 * returns REWEIGHT_BAD_INPUT. problem is the rest of a sentence that begins with the
 * argument's name. In it %d stands for an int64_t, %g for a double and %h for a float
 * (passed as a double), both with the fewest digits that give the number back, and %s for
 * a string. error may be NULL. */
int rw_bad(reweight_error *error, const char *argument, int64_t index, const char *problem, ...);

/* ---- isa.c ---- */

/* Sets *isa to the instruction set that the workspace asks for, never REWEIGHT_AUTO. */
int rw_resolve(const reweight_workspace *ws, int32_t *isa, reweight_error *error);

/* ---- call_amd64.S, call_arm64.S ---- */

/* Calls a function of Go's stack-based calling convention. frame holds its arguments and
 * results as Go lays them out, words of 8 bytes, at most 12; the results are there
 * afterwards. */
void rw_call(void (*function)(void), uint64_t *frame, int64_t words);

/* ---- portable_rows.c ---- */

/* Elements of a row of logits, at any address. */
typedef struct row {
	char *data;
	int64_t n;
	int32_t dtype; /* a reweight_dtype */
} row;

/* A row's running sums in log2 units, relative to the reference c: with y = x*k - c (plus
 * x*k_lo if that is not 0), s sums 2^y and t sums y*2^y. The assembly knows its layout. */
typedef struct row_state {
	float k, k_lo, c;
	float threshold; /* in units of x: a block above it needs a new reference */
	float alarm;     /* the assembly of amd64 stops at a block with a lane sum above it */
	double s[LANES], t[LANES];
} row_state;

/* A row's constants for its gradient: an element becomes 2^y * (y*a + b) with y = x*k - c
 * (plus x*k_lo), and 0 where y < MIN_Y. The assembly knows its layout. */
typedef struct grad_consts {
	float k, k_lo, c, a, b;
} grad_consts;

/* The bytes of an element. */
int64_t rw_size_of(int32_t dtype);

/* Element i of x. */
float rw_at(const row *x, int64_t i);

/* Stores f as element i of x, float32 or bfloat16, rounded to it. */
void rw_set(const row *x, int64_t i, float f);

/* Fills to with elements i to i+16 of x, -Inf from n on. */
void rw_load16(float to[LANES], const row *x, int64_t i, int64_t n);

/* Each kernel in plain C: see rows.c for what they do. */
float rw_block_max_portable(const row *x, int64_t i, int64_t n);
int64_t rw_row_blocks_portable(const row *x, int64_t i, int64_t n, row_state *st, int entropy);
void rw_row_gradient_portable(const row *dst, const row *x, const grad_consts *q);

/* ---- rows.c ---- */

/* Returns the largest of elements i to n, NaN if one is NaN. */
float rw_block_max(int32_t isa, const row *x, int64_t i, int64_t n);

/* Adds the blocks from element i to n, of which i begins one, to st and returns the
 * element where it stopped: n, or the start of the first block with an element above
 * st->threshold, which it leaves out. The assembly of amd64 looks at sums instead of
 * elements: it stops at a block with a lane sum of 2^y above st->alarm, which may be a
 * false alarm, and the caller looks closer. The sums st->t are wanted only if entropy is
 * set. */
int64_t rw_row_blocks(int32_t isa, const row *x, int64_t i, int64_t n, row_state *st, int entropy);

/* Fills dst with the gradient of the row x, float32 or bfloat16, except for the chosen id's
 * own term. dst may be x. */
void rw_row_gradient(int32_t isa, const row *dst, const row *x, const grad_consts *q);

/* Row r of m. */
row rw_row(const reweight_rows *m, int64_t r);

/* The id of row r. */
int64_t rw_id(const reweight_ids *ids, int64_t r);

/* Check the arguments of functions on rows; those that are NULL if they may not be, too. */
int rw_check_workers(const reweight_workspace *ws, reweight_error *error);
int rw_check_rows(const char *argument, const reweight_rows *m, reweight_error *error);
int rw_check_row_array(const char *argument, const void *array, int64_t rows, reweight_error *error);
int rw_check_ids(const reweight_ids *ids, int64_t rows, int64_t vocab, reweight_error *error);
int rw_check_temperature(double temperature, reweight_error *error);

/* Calls do_row for each row of a call, from as many threads as there are workers and as
 * there is work for. */
void rw_run_rows(int32_t workers, int64_t rows, int64_t vocab, void (*do_row)(const void *call, int64_t r),
                 const void *call);

/* ---- token_stats.c ---- */

/* What a pass over a row x leaves: sum_v exp(x_v/tau) is exp(ref/tau + log_s). Both are NaN
 * or infinite where the contract says so. */
typedef struct row_sums {
	double ref; /* in units of x, near the largest element */
	double log_s;
	double entropy; /* not bounded yet; nothing if the pass left it out */
} row_sums;

/* Passes once over the row x. */
row_sums rw_sum_row(int32_t isa, const row *x, double tau, int entropy);

/* Sums the rows that the way in float32 cannot: those with a NaN, with an infinite maximum,
 * or with elements too large for log2 units in float32. */
row_sums rw_sum_row_slow(const row *x, double tau);

/* Returns the log-probability of an element of value x; it is formed before anything is
 * rounded to float32. */
double rw_logprob(const row_sums *q, float x, double tau);

/* Returns log2(e) / tau as the sum of a float32 and a smaller positive one, *lo. That must
 * not be 0 or negative: x may be -Inf. */
float rw_split_scale(double tau, float *lo);

enum { MAX_MAGNITUDE_Y = 1 << 20 }; /* log2 units of the reference beyond which a row goes the slow way */
#define SLOW_TAU_MIN 0x1p-18        /* the temperatures beyond which it does, too */
#define SLOW_TAU_MAX 0x1p18

/* The functions of the assembly have the names of the Go package with rw_ before them,
 * such as rw_rowBlocksAVX2. They are declared as void f(void) where they are called. */

#endif
