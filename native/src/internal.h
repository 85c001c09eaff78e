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
 * returns REWEIGHT_BAD_INPUT: BAD(error, ID, REWEIGHT_ARG_IDS, r, id, vocab - 1, vocab). What
 * follows the index are the values of the problem. error may be NULL. */
#define BAD(error, problem, argument, index, ...) \
	rw_bad(error, &(reweight_error){REWEIGHT_PROBLEM_##problem, argument, index, {__VA_ARGS__}})

int rw_bad(reweight_error *error, const reweight_error *is);

/* Counts above this are not of elements in memory, and their products could overflow. */
#define MAX_COUNT ((int64_t)1 << 48)

/* Each of these returns REWEIGHT_OK, or says what is wrong with the argument. */

/* Wants a number of elements. */
int rw_check_count(int32_t argument, int64_t n, reweight_error *error);

/* Wants an array where there are elements. */
int rw_check_array(int32_t argument, const void *array, int64_t n, reweight_error *error);

/* Wants a number from low to high. */
int rw_check_range(int32_t argument, double x, double low, double high, reweight_error *error);

/* Wants a number of at least 0 that float32 can hold. */
int rw_check_not_negative(int32_t argument, double x, reweight_error *error);

/* Wants a number that float32 can hold. */
int rw_check_magnitude(int32_t argument, double x, reweight_error *error);

/* Wants the number of a name: 0 to last. */
int rw_check_name(int32_t argument, int32_t value, int32_t last, reweight_error *error);

/* Returns the first token of the roles whose x is not finite, or -1. */
int64_t rw_first_not_finite(const float *x, const uint8_t *role, int64_t n, uint32_t roles);

/* Wants finite values at response tokens. */
int rw_check_finite(int32_t isa, int32_t argument, const float *x, const uint8_t *role, int64_t n,
                    reweight_error *error);

/* Names the first response token whose x is not finite; there must be one. */
int rw_not_finite_response(int32_t argument, const float *x, const uint8_t *role, int64_t n, reweight_error *error);

/* ---- batch.c ---- */

/* Sets of roles: bit r stands for role r. */
#define ALL_ROLES UINT32_C(7) /* the assembly takes no other bits */
#define ACTIONS (UINT32_C(1) << REWEIGHT_ROLE_ACTION)
#define RESPONSES (UINT32_C(1) << REWEIGHT_ROLE_REASONING | ACTIONS)

/* Wants every role to be one of the three. */
int rw_check_roles(const uint8_t *role, int64_t n, reweight_error *error);

/* Returns the number of response tokens. */
int64_t rw_responses(const uint8_t *role, int64_t n);

/* Wants trajectories that cover the tokens. */
int rw_check_offsets(const reweight_batch *batch, reweight_error *error);

/* Wants roles, and trajectories that cover the tokens. */
int rw_check_layout(const reweight_batch *batch, reweight_error *error);

/* Wants one x per token, finite at response tokens. */
int rw_check_responses(int32_t isa, int32_t argument, const float *x, const reweight_batch *batch,
                       reweight_error *error);

/* Wants a finite reward for each trajectory. */
int rw_check_rewards(const reweight_batch *batch, reweight_error *error);

/* ---- workspace.c ---- */

/* An arena hands out memory from base on, or only adds up what would be needed if base is
 * NULL: one function per scheme lays out its scratch, and says how much that is. */
typedef struct arena {
	char *base;
	int64_t used; /* bytes */
} arena;

/* Returns n elements of size bytes each, aligned to 8 bytes; NULL if base is. */
void *rw_take(arena *a, int64_t n, int64_t size);

/* Wants want bytes of scratch, which a batch of so many tokens, trajectories and spans
 * needs, and sets *scratch to an arena of them. */
int rw_scratch(const reweight_workspace *ws, arena *scratch, int64_t want, int64_t tokens, int64_t trajectories,
               int64_t spans, reweight_error *error);

/* What the schemes need, in bytes. */
int64_t rw_token_scratch(int64_t tokens);
int64_t rw_loss_scratch(int64_t tokens, int64_t spans);
int64_t rw_aem_scratch(int64_t tokens, int64_t trajectories, int64_t spans);
int64_t rw_grpo_scratch(int64_t trajectories);
int64_t rw_reinforce_scratch(int64_t tokens, int64_t trajectories);
int64_t rw_gigpo_scratch(int64_t tokens, int64_t trajectories, int64_t spans);
int64_t rw_gtpo_scratch(int64_t tokens, int64_t trajectories);
int64_t rw_empg_scratch(int64_t tokens, int64_t trajectories, int64_t spans);
int64_t rw_group_filter_scratch(int64_t trajectories);
int64_t rw_entropy_mask_scratch(void);
int64_t rw_opo_scratch(int64_t trajectories);
int64_t rw_pass_at_k_scratch(int64_t trajectories);
int64_t rw_otb_scratch(int64_t tokens, int64_t trajectories);
int64_t rw_gdpo_scratch(int64_t trajectories);
int64_t rw_turns_scratch(int64_t trajectories, int64_t spans);

/* ---- covariance.c ---- */

/* Stands for a token that may be chosen, until it is known whether it is. */
#define CANDIDATE -1.0f

/* Returns a key that is ordered as the numbers are. */
uint64_t rw_ordered_bits(double x);

/* Sets chosen[t] of the candidates to here for the max(1, share n) of n response tokens with the
 * lowest keys, of equal ones the first, and to others for the rest. */
void rw_choose_lowest(float *chosen, const uint64_t *keys, const uint8_t *role, int64_t tokens, double share, float here,
                      float others);

/* ---- portable_tokens.c ---- */

/* A sum over tokens: of the group that is not full yet, and of those that are. The
 * assembly knows the layout of this and of the next ones. */
typedef struct lane_sum {
	double total[LANES];
	float group[LANES];
} lane_sum;

/* Sets the sum to 0: a loop, because the compiler would call memset for an initializer. */
void rw_lane_clear(lane_sum *s);

/* Adds n elements, which begin a group. */
void rw_lane_add(lane_sum *s, const float *x, int64_t n);

/* Ends the group that is not full yet: what comes next begins one. */
void rw_lane_flush(lane_sum *s);

/* Returns the whole sum. */
double rw_lane_sum(lane_sum *s);

/* The lanes of the masked moments. */
typedef struct moment_sums {
	double sum[LANES], squares[LANES];
	int64_t count;
} moment_sums;

/* A batch's constants for its weights: d = (E - mu_hi) - mu_lo, w = 1 + beta / (1 + 2^(d*k)). */
typedef struct actfocus_consts {
	float mu_hi, mu_lo, k, alpha, beta;
} actfocus_consts;

/* The clipped surrogate's constants. */
typedef struct surrogate_consts {
	float lo, hi; /* the ratio's clip range */
	float dual;   /* +Inf: off */
	float scale;  /* of the gradient */
} surrogate_consts;

/* Its sums over response tokens. */
typedef struct surrogate_sums {
	lane_sum loss; /* w * l */
	lane_sum log_ratio;
	int64_t tokens, clipped;
} surrogate_sums;

/* The kernels in plain C, on n elements. */
void rw_masked_moments_portable(const float *x, const uint8_t *role, int64_t n, uint32_t roles, double shift,
                                moment_sums *m);
void rw_actfocus_weights_portable(float *dst, const float *signal, const uint8_t *role, int64_t n,
                                  const actfocus_consts *q);
void rw_span_sums_portable(double *sums, int64_t spans, const float *x, const int32_t *offsets);
void rw_min_max_portable(float *lo, float *hi, int64_t groups, const float *x, const int32_t *offsets);
void rw_exp_scale_portable(float *dst, const float *x, int64_t n, float lo, float k, lane_sum *sum);
void rw_scale_portable(float *dst, int64_t n, float f);
void rw_multiply_portable(float *dst, const float *a, const float *b, int64_t n);
void rw_surrogate_portable(float *grad, const float *logprobs, const float *old, const float *advantages,
                           const float *weights, const uint8_t *role, int64_t n, const surrogate_consts *q,
                           surrogate_sums *sums);

/* ---- tokens.c: the same by the instruction set, for arguments that have been checked ---- */

reweight_moments rw_moments(int32_t isa, const float *x, const uint8_t *role, int64_t n, uint32_t roles, double shift);

/* Returns the number of tokens of the roles, and sets *mean to that of x over them, and
 * *squares to the sum of squares about it, NaN if an x is not finite. */
int64_t rw_spread(int32_t isa, const float *x, const uint8_t *role, int64_t n, uint32_t roles, double *mean,
                  double *squares);

void rw_actfocus_weights(int32_t isa, float *dst, const float *signal, const uint8_t *role, int64_t n, double mean,
                         double sigma, const reweight_actfocus_options *options);
void rw_span_means(int32_t isa, float *dst, int64_t spans, const float *x, int64_t n, const int32_t *offsets);
void rw_min_max(int32_t isa, float *lo, float *hi, int64_t groups, const float *x, int64_t n, const int32_t *offsets);
void rw_exp_scale(int32_t isa, float *dst, const float *x, int64_t n, float lo, double rate);

/* Sets dst[i] = 2^(x[i] * k), with the exponent kept between MIN_Y and MAX_Y. dst may be x. */
void rw_exps(int32_t isa, float *dst, const float *x, int64_t n, float k);

void rw_multiply(int32_t isa, float *dst, const float *a, const float *b, int64_t n);

/* ---- loss_terms.c ---- */

/* The arrays that the terms of a loss are computed from, and the gradient, which may be any
 * of the other float arrays. weights may be NULL, for ones. */
typedef struct loss_tokens {
	float *grad;
	const float *logprobs, *old, *advantages, *weights;
	const uint8_t *role;
	const float *chosen; /* of a policy that chooses tokens: what rw_choose has made, else NULL */
} loss_tokens;

enum { BLOCK_TOKENS = 2 * GROUP_SIZE }; /* what the loops take at a time */

/* The loops over tokens. */
typedef enum loss_kernel {
	LOSS_SEQUENCE, /* GSPO, GRPO-S, PG, VESPO: the factor is that of a sequence */
	LOSS_CISPO,
	LOSS_SAPO,
	LOSS_DPPO,
	LOSS_DPPO_KL,
	LOSS_DRO,
} loss_kernel;

/* The constants of a policy loss. Element 1 of a pair is for negative advantages, element 0
 * for the others. */
typedef struct loss_consts {
	float scale; /* of the gradient */

	float lo, hi; /* clip range: of the ratio, or of the difference of probabilities */
	float cap;    /* of the ratio */

	float value[2], linear[2], slope[2]; /* l = -A (value + linear*logprob), of which one is 0; dl = -A slope */
	int clips[2];                        /* whether such tokens count as clipped */
	int token_ratio;                     /* slope is also times the token's own ratio */

	double limits[2]; /* of the divergence: element 0 is for positive advantages */
	double beta;      /* of the quadratic penalty */

	float rate[2], height[2]; /* sigmoid = 1 / (1 + 2^((ratio-1) * rate)), times height */
} loss_consts;

/* The tokens from the first on. */
loss_tokens rw_tokens_from(const loss_tokens *x, int64_t first);

void rw_surrogate_clear(surrogate_sums *sums);
reweight_surrogate_sums rw_surrogate_result(surrogate_sums *sums);

/* Adds the weighted loss of each response token to the sums, which begin a group before and
 * after, and sets grad to its derivative by the new log-probability, times q->scale; 0 for
 * masked tokens, whose other inputs do not matter. */
void rw_policy_terms(int32_t isa, loss_kernel kernel, const loss_tokens *x, int64_t n, const loss_consts *q,
                     surrogate_sums *sums);

/* The same of PPO, in tokens.c; the tokens begin a group of the sums. */
void rw_clipped_surrogate(int32_t isa, const loss_tokens *x, int64_t n, double scale,
                          const reweight_loss_options *options, surrogate_sums *sums);

/* The same of GMPO, in gmpo.c, and of the policies that choose tokens, in covariance.c. */
void rw_geometric_mean(const loss_tokens *x, int64_t n, double scale, const reweight_loss_options *options,
                       surrogate_sums *sums);
void rw_clip_cov(int32_t isa, const loss_tokens *x, int64_t n, double scale, const reweight_loss_options *options,
                 surrogate_sums *sums);
void rw_kl_cov(int32_t isa, const loss_tokens *x, int64_t n, double scale, surrogate_sums *sums);

/* Returns, for each of n tokens, for Clip-Cov 0 where the token is chosen and 1 elsewhere, for
 * KL-Cov the coefficient where it is chosen and 0 elsewhere, in scratch of rw_choose_scratch. */
const float *rw_choose(arena *a, int32_t isa, const loss_tokens *x, int64_t n, const reweight_loss_options *options);
int64_t rw_choose_scratch(int64_t tokens, const reweight_loss_options *options);

/* Sets *sum to that of a - b over the response tokens, in float64, and returns their number.
 * With clamp, each a - b is kept between -20 and 20. */
int64_t rw_sum_log_ratios(const float *a, const float *b, const uint8_t *role, int64_t n, int clamp, double *sum);

/* The bounds of importance ratios. */
typedef struct ratio_consts {
	float lo, hi;
	int mask; /* whether a ratio out of bounds becomes 0, not the nearer bound */
} ratio_consts;

/* Sets dst to e^(a-b), with a - b kept between -20 and 20, within the bounds, and adds it to
 * sum; to 1 for masked tokens, which add nothing and whose other inputs do not matter. dst
 * may be a or b, or NULL for the sum alone. The tokens begin a group of the sum. */
void rw_importance(int32_t isa, float *dst, const float *a, const float *b, const uint8_t *role, int64_t n,
                   const ratio_consts *q, lane_sum *sum);

/* Adds the estimate of the divergence of each response token, a reweight_kl_form, to sum, and
 * its derivative by the log-probability, times scale, to grad. The tokens begin a group of
 * the sum. */
void rw_divergence(int32_t isa, float *grad, const float *logprobs, const float *ref, const uint8_t *role, int64_t n,
                   int32_t form, float scale, lane_sum *sum);

/* Adds the clipped value loss of each response token to sum, sets grad to its derivative by
 * the new value, times scale; 0 for masked tokens, whose other inputs do not matter. Returns
 * how many are clipped. grad may be any of the float inputs. The tokens begin a group of the
 * sum. */
int64_t rw_value_terms(float *grad, const float *values, const float *old, const float *returns, const uint8_t *role,
                       int64_t n, float clip, float scale, lane_sum *sum);

/* ---- actfocus.c, kl.c, loss.c ---- */

int rw_check_actfocus_options(const reweight_actfocus_options *options, reweight_error *error);
int rw_check_kl(int32_t form, double coef, reweight_error *error);
int rw_check_loss_options(const reweight_loss_options *options, reweight_error *error);

/* Wants no weights where the policy has none. */
int rw_check_unweighted(const float *weights, const reweight_loss_options *options, reweight_error *error);

/* Whether the factor of a token is that of its span. */
int rw_by_span(const reweight_loss_options *options);

/* Adds the terms of n tokens by the policy to the sums, and sets grad; they are one sequence
 * to the policies that have a factor of the sequence. */
void rw_loss_terms(int32_t isa, const loss_tokens *x, int64_t n, double scale, const reweight_loss_options *options,
                   surrogate_sums *sums);
/* ---- advantage.c ---- */

/* The rewards of a group: their number, mean and sum of squared deviations. */
typedef struct group_reward {
	double n, mean, squares;
} group_reward;

/* The groups of a batch, and the rewards of each. */
typedef struct group_rewards {
	int64_t n;
	int32_t *groups; /* the distinct group ids, in ascending order */
	group_reward *rewards;
} group_rewards;

/* Wants a finite reward and a group for each trajectory. */
int rw_check_outcomes(const reweight_batch *batch, reweight_error *error);

/* Returns the rewards of each group, summed in the order of the trajectories, in scratch of
 * rw_grpo_scratch. That of trajectory s counts times[s] times, or once if times is NULL. */
group_rewards rw_group_rewards(arena *a, const reweight_batch *batch, const int32_t *times);

/* Returns those of the group of trajectory s. */
group_reward *rw_rewards_of(const group_rewards *g, const reweight_batch *batch, int64_t s);

/* Returns (reward - mean) / (std + eps), or reward - mean if it is not to be divided, with
 * n - 1 in the variance. A group of one has mean 0 and std 1. */
double rw_relative(const group_reward *g, float reward, int divide, double eps);

/* Sets dst to x at the response tokens of trajectory s, to masked at its others. */
void rw_fill(const reweight_batch *batch, float *dst, int64_t s, float x, float masked);

/* Returns what n deviations whose squares have that sum are multiplied by. Of fewer than two, all are 0. */
double rw_whitening(int64_t n, double squares);

/* ---- reinforce.c ---- */

/* Sets *mean to that of x over the n response tokens, and *squares to the sum of squares about
 * it: token t in lane t mod 16. */
void rw_spread64(const double *x, const reweight_batch *batch, int64_t n, double *mean, double *squares);

/* Sets advantages to those of the trajectories, whitened over the response tokens of the
 * batch. Takes 8 bytes of scratch for each trajectory. */
void rw_whiten_outcomes(arena *a, const reweight_batch *batch, float *advantages, const double *relative);

/* ---- groups.c ---- */

/* Sets groups, which has room for n, to the distinct ids among n, in ascending order, and
 * returns their number. A group's number is its place there. */
int64_t rw_groups_of(int32_t *groups, const int32_t *ids, int64_t n);

/* Returns the number of the group of that id, which is one of the n. */
int64_t rw_group_of(const int32_t *groups, int64_t n, int32_t id);

/* ---- spans.c ---- */

/* The spans of a batch: how many response tokens each has, and in which order they stand
 * when they are sorted by scope. */
typedef struct span_arrays {
	int64_t spans, scopes;
	int32_t *count;   /* [spans] response tokens */
	int32_t *start;   /* [spans+1] where each span's values begin */
	float *values;    /* of response tokens, span by span */
	float *means;     /* [spans] of the values */
	int32_t *scope;   /* [spans] scope of each span */
	int32_t *place;   /* [spans] place of each span among all, sorted by scope */
	int32_t *offsets; /* [scopes+1] where each scope's places begin */
	int32_t *groups;  /* [trajectories] the distinct group ids */
} span_arrays;

/* Checks the span ids and the layout of the batch, and sets *spans to their number. */
int rw_check_spans(const reweight_batch *batch, int64_t *spans, reweight_error *error);

/* Lays out the arrays. */
void rw_take_spans(span_arrays *sp, arena *a, int64_t tokens, int64_t trajectories, int64_t spans);

/* Sets count to the response tokens of each span. A span without one is an error. */
int rw_count_responses(int32_t *count, int64_t spans, const reweight_batch *batch, reweight_error *error);

/* Counts the same, and where the values of each span begin. */
int rw_count_spans(span_arrays *sp, const reweight_batch *batch, reweight_error *error);

/* Sorts the spans that rw_count_spans has counted by their scope. */
int rw_sort_spans(span_arrays *sp, const reweight_batch *batch, int32_t scope, reweight_error *error);

/* Sets sp->means to the mean of x, whose name is argument, over the response tokens of
 * each span. */
int rw_mean_of_spans(span_arrays *sp, int32_t isa, int32_t argument, const float *x, const reweight_batch *batch,
                     reweight_error *error);

/* ---- isa.c ---- */

/* Sets *isa to the instruction set that the workspace asks for, never REWEIGHT_AUTO. One whose
 * kernels compute other bits than plain C on this CPU is an error. */
int rw_resolve(const reweight_workspace *ws, int32_t *isa, reweight_error *error);

/* ---- answers.c ---- */

/* Returns the number of the first kernel of the instruction set, from 1 on, that computes
 * other bits than plain C here, or 0. The thread has the usual arithmetic. */
int rw_wrong_kernel(int32_t isa);

/* ---- call_amd64.S, call_arm64.S ---- */

/* Calls a function of Go's stack-based calling convention. frame holds its arguments and
 * results as Go lays them out, words of 8 bytes, at most 12; the results are there
 * afterwards. */
void rw_call(void (*function)(void), uint64_t *frame, int64_t words);

/* The functions of the assembly have the names of the Go package with rw_ before them,
 * such as rw_rowBlocksAVX2. DECLARE declares the ones of a kernel, hidden so that the linker
 * wants them in the library, and ASSEMBLY is the one of isa; there are neither where the
 * library has plain C alone. */
#if defined(__x86_64__)
#define DECLARE(name) __attribute__((visibility("hidden"))) void rw_##name##AVX2(void), rw_##name##AVX512(void)
#define ASSEMBLY(name) (isa == REWEIGHT_AVX512 ? rw_##name##AVX512 : rw_##name##AVX2)
#elif defined(__aarch64__)
#define DECLARE(name) __attribute__((visibility("hidden"))) void rw_##name##NEON(void)
#define ASSEMBLY(name) rw_##name##NEON
#endif

/* The word of a pointer. */
static inline uint64_t word(const void *p) { return (uint64_t)(uintptr_t)p; }

/* ---- portable_rows.c ---- */

/* Elements of a row of logits, at any address. */
typedef struct row {
	char *data;
	int64_t n;
	int32_t dtype; /* a reweight_dtype */
} row;

/* A row's running sums in log2 units, relative to the reference c: with y = x*k - c (plus
 * x*k_lo if that is not 0), s sums 2^y, t sums y*2^y and q sums (2^y)^2. The assembly knows
 * its layout. */
typedef struct row_state {
	float k, k_lo, c;
	float threshold; /* in units of x: a block above it needs a new reference */
	float alarm;     /* the assembly of amd64 stops at a block with a lane sum above it */
	double s[LANES], t[LANES], q[LANES];
} row_state;

/* Which of the three sums a pass over a row makes. The assembly knows the numbers. */
typedef enum row_want {
	WANT_SUM,     /* s alone */
	WANT_ENTROPY, /* s and t */
	WANT_SQUARES, /* all three */
} row_want;

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
int64_t rw_row_blocks_portable(const row *x, int64_t i, int64_t n, row_state *st, row_want want);
void rw_row_gradient_portable(const row *dst, const row *x, const grad_consts *q);

/* ---- rows.c ---- */

/* Returns the largest of elements i to n, NaN if one is NaN. */
float rw_block_max(int32_t isa, const row *x, int64_t i, int64_t n);

/* Adds the blocks from element i to n, of which i begins one, to st and returns the
 * element where it stopped: n, or the start of the first block with an element above
 * st->threshold, which it leaves out. The assembly of amd64 looks at sums instead of
 * elements: it stops at a block with a lane sum of 2^y above st->alarm, which may be a
 * false alarm, and the caller looks closer. Of the sums it makes those that are wanted. */
int64_t rw_row_blocks(int32_t isa, const row *x, int64_t i, int64_t n, row_state *st, row_want want);

/* Fills dst with the gradient of the row x, float32 or bfloat16, except for the chosen id's
 * own term. dst may be x. */
void rw_row_gradient(int32_t isa, const row *dst, const row *x, const grad_consts *q);

/* Row r of m. */
row rw_row(const reweight_rows *m, int64_t r);

/* The id of row r. */
int64_t rw_id(const reweight_ids *ids, int64_t r);

/* Check the arguments of functions on rows; those that are NULL if they may not be, too. */
int rw_check_workers(const reweight_workspace *ws, reweight_error *error);
int rw_check_rows(int32_t argument, const reweight_rows *m, reweight_error *error);
int rw_check_row_array(int32_t argument, const void *array, int64_t rows, reweight_error *error);
int rw_check_ids(const reweight_ids *ids, int64_t rows, int64_t lowest, int64_t vocab, reweight_error *error);
int rw_check_temperature(int32_t argument, double temperature, reweight_error *error);

/* Calls do_row for each row of a call, from as many threads as there are workers and as
 * there is work for. */
void rw_run_rows(const reweight_workspace *ws, int64_t rows, int64_t vocab, void (*do_row)(const void *call, int64_t r),
                 const void *call);

/* ---- token_stats.c ---- */

/* What a pass over a row x leaves: sum_v exp(x_v/tau) is exp(ref/tau + log_s). Both are NaN
 * or infinite where the contract says so. */
typedef struct row_sums {
	double ref; /* in units of x, near the largest element */
	double log_s;
	double entropy; /* not bounded yet; nothing if the pass left it out */
	double squares; /* -log sum_v p_v^2, likewise */
} row_sums;

/* Passes once over the row x. */
row_sums rw_sum_row(int32_t isa, const row *x, double tau, row_want want);

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

#endif
