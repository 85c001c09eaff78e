/* reweight: token-level credit for people who train LLM agents.
 *
 * The kernels and schemes of the Go package github.com/seed621a2839/reweight, with the
 * same results to the last bit, where every NaN counts as the same. The library has no
 * runtime: it starts no thread that outlives a call, allocates nothing, installs no signal
 * handler and remembers nothing but what instructions the CPU has, so that it works in any
 * thread and after fork. It needs memcpy and pthreads: link with -pthread.
 *
 * Every function returns REWEIGHT_OK or another reweight_code. An error is found before
 * anything is written. Arrays are the caller's; none is kept after the call. Where it is
 * not said that an array may be NULL, NULL is an error if there are elements; where it is
 * not said that a struct may be NULL, it is not, and that is not checked. Unless a function
 * says otherwise, an array that is written does not overlap another one. Arrays need only
 * the alignment of their elements. Log-probabilities, energies and entropies are in nats.
 *
 * A thread that rounds in another way than to nearest, or takes subnormal numbers for 0,
 * as after torch.set_flush_denormal(True) or with a library linked with -ffast-math, gets
 * the same results, and goes on in its own way after the call.
 */
#ifndef REWEIGHT_H
#define REWEIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REWEIGHT_API __attribute__((visibility("default")))

typedef enum reweight_code {
	REWEIGHT_OK = 0,
	REWEIGHT_BAD_INPUT = 1, /* an argument is wrong: see reweight_error */
} reweight_code;

/* What is wrong with the arguments of a call, in numbers. The caller owns it, and a call that
 * succeeds leaves it alone. Every function takes NULL for it. */
typedef struct reweight_error {
	uint32_t code;     /* a reweight_problem */
	uint32_t argument; /* a reweight_argument: a parameter, a field or an option */
	int64_t index;     /* the element that is wrong, or -1 if it is the whole argument */
	int64_t values[5]; /* the values of the problem's sentence, in its order */
} reweight_error;

/* Each problem with the sentence that it stands for, whose subject is the argument: with code
 * REWEIGHT_PROBLEM_ID, argument REWEIGHT_ARG_IDS, index 3 and the values 75, 74 and 75 it is
 * "ids[3] is 75, want 0 to 74, for rows of 75 logits". In place of a value %d stands for an
 * integer, %f for a float and %g for a double, which have their bits in values, %s for a name
 * of the argument that has this number, and [%s] for the names whose bits are set. */
/* generated */
typedef enum reweight_problem {
	REWEIGHT_PROBLEM_COUNT = 1, /* is %d, want 0 to 2^48 */
	REWEIGHT_PROBLEM_COUNT_RANGE = 2, /* is %d, want 0 to %d */
	REWEIGHT_PROBLEM_COUNT_NOT_NEGATIVE = 3, /* is %d, want at least 0 */
	REWEIGHT_PROBLEM_COUNT_POSITIVE = 4, /* is %d, want at least 1 */
	REWEIGHT_PROBLEM_RANGE = 5, /* is %g, want %g to %g */
	REWEIGHT_PROBLEM_NOT_NEGATIVE = 6, /* is %g, want at least 0 */
	REWEIGHT_PROBLEM_NOT_NEGATIVE_32 = 7, /* is %g, want 0 to 3.4e38 */
	REWEIGHT_PROBLEM_FINITE = 8, /* is %g, want a finite number */
	REWEIGHT_PROBLEM_FINITE_32 = 9, /* is %g, want a number that float32 can hold */
	REWEIGHT_PROBLEM_ID_OR_NONE = 10, /* is %d, want -1 to %d, for rows of %d logits */
	REWEIGHT_PROBLEM_DUAL_CLIP = 11, /* is %g, want a finite number above 1, or 0 for none */
	REWEIGHT_PROBLEM_NAME = 12, /* is %d, want 0 to %d: one of [%s] */
	REWEIGHT_PROBLEM_MISSING = 13, /* is NULL, want %d elements */
	REWEIGHT_PROBLEM_EMPTY = 14, /* is empty, want at least 1 element */
	REWEIGHT_PROBLEM_ISA = 15, /* is %s, want one of [%s], which this machine and this library have */
	REWEIGHT_PROBLEM_SCRATCH_SIZE = 16, /* is %d, want %d for %d tokens, %d trajectories and %d spans */
	REWEIGHT_PROBLEM_SCRATCH_MISSING = 17, /* is NULL, want %d bytes */
	REWEIGHT_PROBLEM_SCRATCH_ALIGNMENT = 18, /* is not aligned to 8 bytes */
	REWEIGHT_PROBLEM_ROWS_MISSING = 19, /* is NULL, want %d rows of %d logits */
	REWEIGHT_PROBLEM_PER_ROW_MISSING = 20, /* is NULL, want %d elements, one per row */
	REWEIGHT_PROBLEM_NO_OUTPUT = 21, /* has no output: lse, entropy, logprobs and log_sum_sq_probs are all NULL */
	REWEIGHT_PROBLEM_NO_VOCAB = 22, /* has rows of %d logits, want at least 1 */
	REWEIGHT_PROBLEM_VOCAB_SIZE = 23, /* has rows of %d logits, want at most %d */
	REWEIGHT_PROBLEM_ROW_COUNT = 24, /* has %d rows, want at least 0 */
	REWEIGHT_PROBLEM_STRIDE = 25, /* has a stride of %d, want at least %d, the logits of a row */
	REWEIGHT_PROBLEM_ROWS_SIZE = 26, /* has %d rows, %d elements apart, want at most 2^48 elements in all */
	REWEIGHT_PROBLEM_DTYPE = 27, /* has the dtype %d, want 0 to %d: one of [%s] */
	REWEIGHT_PROBLEM_OTHER_ROWS = 28, /* has %d rows of %d logits, want %d rows */
	REWEIGHT_PROBLEM_OTHER_VOCAB = 29, /* has rows of %d logits, want %d like the logits */
	REWEIGHT_PROBLEM_OTHER_DTYPE = 30, /* is %s, want %s like the logits */
	REWEIGHT_PROBLEM_OTHER_STRIDE = 31, /* is logits with another stride, want the same */
	REWEIGHT_PROBLEM_FLOAT16 = 32, /* is float16, want float32 or bfloat16 */
	REWEIGHT_PROBLEM_ID = 33, /* is %d, want 0 to %d, for rows of %d logits */
	REWEIGHT_PROBLEM_ROW_INDEX = 34, /* is %d, want 0 to %d, for %d rows of logits */
	REWEIGHT_PROBLEM_ROLE = 35, /* is %d, want 0, 1 or 2 */
	REWEIGHT_PROBLEM_AT_RESPONSE = 36, /* is %f at a response token, want a finite number */
	REWEIGHT_PROBLEM_AT_ACTION = 37, /* is %f at an action token, want a finite number */
	REWEIGHT_PROBLEM_DIFFERENCE = 38, /* is %f, too far from the reference's log-probability for float32 to hold the difference */
	REWEIGHT_PROBLEM_FIRST_OFFSET = 39, /* is %d, want 0 */
	REWEIGHT_PROBLEM_OFFSET = 40, /* is %d, below the %d before it */
	REWEIGHT_PROBLEM_LAST_OFFSET = 41, /* is %d, want %d, the number of tokens */
	REWEIGHT_PROBLEM_RANGE_END = 42, /* is %d, want at most %d, the elements of x */
	REWEIGHT_PROBLEM_REWARD = 43, /* is %f, want a finite reward */
	REWEIGHT_PROBLEM_SPAN_TOKENS = 44, /* has %d elements, want at most %d: tokens of spans are counted in 32 bits */
	REWEIGHT_PROBLEM_SPAN_ORDER = 45, /* is %d, want -1 to %d: spans are numbered from 0 in the order in which they appear */
	REWEIGHT_PROBLEM_SPAN_TRAJECTORY = 46, /* is %d in trajectory %d, but that span began in an earlier trajectory */
	REWEIGHT_PROBLEM_SPAN_MISSING = 47, /* is -1 at a response token (role %d), want its span */
	REWEIGHT_PROBLEM_SPAN_COUNT = 48, /* has %d spans, want at most %d, for which the workspace was made */
	REWEIGHT_PROBLEM_SPAN_EMPTY = 49, /* has no response token in span %d, want at least one in each */
	REWEIGHT_PROBLEM_SPAN_MEAN = 50, /* is %f in span %d, want a finite number of at most 1e+30 */
	REWEIGHT_PROBLEM_POSITIVE = 51, /* is %g, want a finite number above 0 */
	REWEIGHT_PROBLEM_SPANLESS = 52, /* is %s, want %s: there are no spans here */
	REWEIGHT_PROBLEM_ABOVE_ZERO_VALUE_LOSS = 53, /* is 0, want above 0, as in REWEIGHT_DEFAULT_VALUE_LOSS */
	REWEIGHT_PROBLEM_ZERO_ACTFOCUS = 54, /* is 0 like beta, want one that is not 0, as in REWEIGHT_DEFAULT_ACTFOCUS */
	REWEIGHT_PROBLEM_ZERO_AEM = 55, /* is 0 like guard, want one that is not 0, as in REWEIGHT_DEFAULT_AEM */
	REWEIGHT_PROBLEM_ZERO_GAE = 56, /* is 0 like lambda, want one that is not 0, as in REWEIGHT_DEFAULT_GAE */
	REWEIGHT_PROBLEM_ZERO_LOSS = 57, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_LOSS */
	REWEIGHT_PROBLEM_ZERO_GSPO = 58, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_GSPO */
	REWEIGHT_PROBLEM_ZERO_GRPO_S_LOSS = 59, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_GRPO_S_LOSS */
	REWEIGHT_PROBLEM_ZERO_CISPO = 60, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_CISPO */
	REWEIGHT_PROBLEM_ZERO_DPPO_TV = 61, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_DPPO_TV */
	REWEIGHT_PROBLEM_ZERO_VESPO = 62, /* is 0 like decay_pos, power_neg and decay_neg, want one that is not 0, as in REWEIGHT_DEFAULT_VESPO */
	REWEIGHT_PROBLEM_ZERO_GIGPO = 63, /* is 0 like omega, want one that is not 0, as in REWEIGHT_DEFAULT_GIGPO */
	REWEIGHT_PROBLEM_ZERO_GTPO = 64, /* is 0 like bonus, want one that is not 0, as in REWEIGHT_DEFAULT_GTPO */
	REWEIGHT_PROBLEM_ZERO_GRPO_S = 65, /* is 0 like bonus, want one that is not 0, as in REWEIGHT_DEFAULT_GRPO_S */
	REWEIGHT_PROBLEM_ZERO_EMPG = 66, /* is 0 like k_future and zeta, want one that is not 0, as in REWEIGHT_DEFAULT_EMPG */
	REWEIGHT_PROBLEM_ABOVE_ZERO_REINFORCE_PLUS_PLUS = 67, /* is 0, want above 0, as in REWEIGHT_DEFAULT_REINFORCE_PLUS_PLUS */
	REWEIGHT_PROBLEM_ABOVE_ZERO_GTPO = 68, /* is 0, want above 0, as in REWEIGHT_DEFAULT_GTPO */
	REWEIGHT_PROBLEM_ABOVE_ZERO_GRPO_S = 69, /* is 0, want above 0, as in REWEIGHT_DEFAULT_GRPO_S */
	REWEIGHT_PROBLEM_ABOVE_ZERO_ROLLOUT_CORRECTION = 70, /* is 0, want above 0, as in REWEIGHT_DEFAULT_ROLLOUT_CORRECTION */
	REWEIGHT_PROBLEM_ABOVE_ZERO_REJECT = 71, /* is 0, want above 0, as in REWEIGHT_DEFAULT_REJECT */
	REWEIGHT_PROBLEM_AT_LEAST_LOW = 72, /* is %g, want at least the %g of low */
	REWEIGHT_PROBLEM_AT_LEAST_ENTROPY_LOW = 73, /* is %g, want at least the %g of entropy_low */
	REWEIGHT_PROBLEM_AT_LEAST_BUFFER = 74, /* is %d, want at least the %d of buffer */
	REWEIGHT_PROBLEM_SHARE = 75, /* is %g, want above 0 and at most 1 */
	REWEIGHT_PROBLEM_GROUP_OR_BATCH = 76, /* is %s, want group or batch */
	REWEIGHT_PROBLEM_LONELY = 77, /* is %d, which no other trajectory has, want at least 2 in each group */
	REWEIGHT_PROBLEM_ABOVE_ZERO_FIPO = 78, /* is 0, want above 0, as in REWEIGHT_DEFAULT_FIPO */
	REWEIGHT_PROBLEM_ABOVE_ZERO_RLSD = 79, /* is 0, want above 0, as in REWEIGHT_DEFAULT_RLSD */
	REWEIGHT_PROBLEM_AT_LEAST_COV_LOW = 80, /* is %g, want at least the %g of cov_low */
	REWEIGHT_PROBLEM_ZERO_DPPO_KL = 81, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_DPPO_KL */
	REWEIGHT_PROBLEM_ZERO_GMPO = 82, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_GMPO */
	REWEIGHT_PROBLEM_ZERO_CLIP_COV = 83, /* is 0 like clip_high, want one that is not 0, as in REWEIGHT_DEFAULT_CLIP_COV */
	REWEIGHT_PROBLEM_ABOVE = 84, /* is %g, want a number above 0, or +Inf */
	REWEIGHT_PROBLEM_NO_WEIGHTS = 85, /* is given, want none: this policy has no weights of tokens */
	REWEIGHT_PROBLEM_ISA_WRONG = 86, /* is %s, whose kernel %d computes other bits than portable on this CPU: use portable */
} reweight_problem;

typedef enum reweight_argument {
	REWEIGHT_ARG_TOKENS = 1,
	REWEIGHT_ARG_TRAJECTORIES = 2,
	REWEIGHT_ARG_ROLE = 3,
	REWEIGHT_ARG_SEQ_OFFSETS = 4,
	REWEIGHT_ARG_GROUP_IDS = 5,
	REWEIGHT_ARG_REWARDS = 6,
	REWEIGHT_ARG_SPAN_IDS = 7,
	REWEIGHT_ARG_REF_ENERGY = 8,
	REWEIGHT_ARG_ENTROPY = 9,
	REWEIGHT_ARG_OLD_LOGPROBS = 10,
	REWEIGHT_ARG_LOGPROBS = 11,
	REWEIGHT_ARG_REF_LOGPROBS = 12,
	REWEIGHT_ARG_REF_ENTROPY = 13,
	REWEIGHT_ARG_ADVANTAGES = 14,
	REWEIGHT_ARG_VALUES = 15,
	REWEIGHT_ARG_AGGREGATION = 16,
	REWEIGHT_ARG_ALPHA = 17,
	REWEIGHT_ARG_BETA = 18,
	REWEIGHT_ARG_CLIP_HIGH = 19,
	REWEIGHT_ARG_CLIP_LOW = 20,
	REWEIGHT_ARG_DUAL_CLIP = 21,
	REWEIGHT_ARG_ENTROPY_BONUS = 22,
	REWEIGHT_ARG_EPS = 23,
	REWEIGHT_ARG_GAMMA = 24,
	REWEIGHT_ARG_GUARD = 25,
	REWEIGHT_ARG_ISA = 26,
	REWEIGHT_ARG_LAMBDA = 27,
	REWEIGHT_ARG_NORM_LENGTH = 28,
	REWEIGHT_ARG_SCOPE = 29,
	REWEIGHT_ARG_SCRATCH = 30,
	REWEIGHT_ARG_SCRATCH_SIZE = 31,
	REWEIGHT_ARG_SIGNAL = 32,
	REWEIGHT_ARG_TEMPERATURE = 33,
	REWEIGHT_ARG_WORKERS = 34,
	REWEIGHT_ARG_A = 35,
	REWEIGHT_ARG_B = 36,
	REWEIGHT_ARG_DST = 37,
	REWEIGHT_ARG_FACTORS = 38,
	REWEIGHT_ARG_GRAD = 39,
	REWEIGHT_ARG_GROUPS = 40,
	REWEIGHT_ARG_HI = 41,
	REWEIGHT_ARG_IDS = 42,
	REWEIGHT_ARG_LO = 43,
	REWEIGHT_ARG_LOGITS = 44,
	REWEIGHT_ARG_LOGITS_INDEX = 45,
	REWEIGHT_ARG_MEAN = 46,
	REWEIGHT_ARG_N = 47,
	REWEIGHT_ARG_OFFSETS = 48,
	REWEIGHT_ARG_RATE = 49,
	REWEIGHT_ARG_SCALE = 50,
	REWEIGHT_ARG_SHIFT = 51,
	REWEIGHT_ARG_SIGMA = 52,
	REWEIGHT_ARG_SPANS = 53,
	REWEIGHT_ARG_WEIGHTS = 54,
	REWEIGHT_ARG_X = 55,
	REWEIGHT_ARG_BARE_ROLE = 56,
	REWEIGHT_ARG_TOKEN_REWARDS = 57,
	REWEIGHT_ARG_ANCHORS = 58,
	REWEIGHT_ARG_SPAN_REWARDS = 59,
	REWEIGHT_ARG_BASE = 60,
	REWEIGHT_ARG_BONUS = 61,
	REWEIGHT_ARG_BUFFER = 62,
	REWEIGHT_ARG_ENTROPY_HIGH = 63,
	REWEIGHT_ARG_ENTROPY_LOW = 64,
	REWEIGHT_ARG_K = 65,
	REWEIGHT_ARG_K_FUTURE = 66,
	REWEIGHT_ARG_MAXIMUM = 67,
	REWEIGHT_ARG_NORMALIZATION = 68,
	REWEIGHT_ARG_OMEGA = 69,
	REWEIGHT_ARG_PENALTY = 70,
	REWEIGHT_ARG_RHO = 71,
	REWEIGHT_ARG_THRESHOLD = 72,
	REWEIGHT_ARG_ZETA = 73,
	REWEIGHT_ARG_MASK = 74,
	REWEIGHT_ARG_PENALTIES = 75,
	REWEIGHT_ARG_RETURNS = 76,
	REWEIGHT_ARG_NEW_VALUES = 77,
	REWEIGHT_ARG_CLIP = 78,
	REWEIGHT_ARG_DECAY_NEG = 79,
	REWEIGHT_ARG_DECAY_POS = 80,
	REWEIGHT_ARG_KL = 81,
	REWEIGHT_ARG_KL_COEF = 82,
	REWEIGHT_ARG_POLICY = 83,
	REWEIGHT_ARG_POWER_NEG = 84,
	REWEIGHT_ARG_POWER_POS = 85,
	REWEIGHT_ARG_RATIO_CAP = 86,
	REWEIGHT_ARG_SEQUENCE = 87,
	REWEIGHT_ARG_TAU_NEG = 88,
	REWEIGHT_ARG_TAU_POS = 89,
	REWEIGHT_ARG_BARE_OLD_LOGPROBS = 90,
	REWEIGHT_ARG_ROLLOUT_LOGPROBS = 91,
	REWEIGHT_ARG_DELTA = 92,
	REWEIGHT_ARG_HIGH = 93,
	REWEIGHT_ARG_LEVEL = 94,
	REWEIGHT_ARG_LOW = 95,
	REWEIGHT_ARG_STATISTIC = 96,
	REWEIGHT_ARG_TEACHER_LOGPROBS = 97,
	REWEIGHT_ARG_FILTER = 98,
	REWEIGHT_ARG_HALF_LIFE = 99,
	REWEIGHT_ARG_SAFETY = 100,
	REWEIGHT_ARG_SUM_SQ_PROBS = 101,
	REWEIGHT_ARG_REWARD_PARTS = 102,
	REWEIGHT_ARG_PARTS = 103,
	REWEIGHT_ARG_REWARD_WEIGHTS = 104,
	REWEIGHT_ARG_COV_COEF = 105,
	REWEIGHT_ARG_COV_HIGH = 106,
	REWEIGHT_ARG_COV_LOW = 107,
	REWEIGHT_ARG_COV_SHARE = 108,
	REWEIGHT_ARG_MU = 109,
	REWEIGHT_ARG_ENTROPY_DROP = 110,
	REWEIGHT_ARG_MAX_SHARE = 111,
} reweight_argument;
/* end of generated */

/* The instruction set that the kernels are written in. All give the same bits. */
typedef enum reweight_isa {
	REWEIGHT_AUTO = 0,     /* the best that this machine has */
	REWEIGHT_PORTABLE = 1, /* plain C, on every machine */
	REWEIGHT_AVX2 = 2,     /* amd64 with AVX2, FMA3, F16C and POPCNT */
	REWEIGHT_AVX512 = 3,   /* amd64 with AVX-512 F, VL, DQ and BW */
	REWEIGHT_NEON = 4,     /* arm64, every one */
} reweight_isa;

/* Has up to so many threads call task(argument) at once, the caller's among them, and returns
 * when all have returned; flags is 0. GOMP_parallel of GNU's OpenMP is one such function. */
typedef void (*reweight_parallel)(void (*task)(void *argument), void *argument, unsigned threads, unsigned flags);

/* The settings and the scratch memory of calls. Threads that call at the same time need a
 * workspace each. All zero is ready for every function that needs no scratch. */
typedef struct reweight_workspace {
	int32_t isa;         /* a reweight_isa; one that the machine lacks is an error (grpo and gae do not look) */
	int32_t workers;     /* threads that share rows of logits, the caller's among them; 0 means 1 */
	void *scratch;       /* aligned to 8 bytes, unspecified contents */
	int64_t scratch_size; /* bytes: see reweight_scratch_size */
	reweight_parallel parallel; /* whose threads share rows; NULL: threads that end with the call */
} reweight_workspace;

/* The bytes of scratch that suffice for every function on a batch of so many tokens,
 * trajectories and spans. There are no more spans than tokens. */
REWEIGHT_API int64_t reweight_scratch_size(int64_t tokens, int64_t trajectories, int64_t spans);

/* The version of the library, three numbers with dots between them. */
REWEIGHT_API const char *reweight_version(void);

/* Whether this machine and this library have the instruction set: 1 or 0. */
REWEIGHT_API int32_t reweight_has_isa(int32_t isa);

/* What REWEIGHT_AUTO stands for here. */
REWEIGHT_API int32_t reweight_best_isa(void);

/* The name of an instruction set: "avx2"; "" if there is none of that number. */
REWEIGHT_API const char *reweight_isa_name(int32_t isa);

/* ---- Rows of logits ---- */

typedef enum reweight_dtype {
	REWEIGHT_F32 = 0,  /* IEEE 754 single precision */
	REWEIGHT_BF16 = 1, /* bfloat16 */
	REWEIGHT_F16 = 2,  /* IEEE 754 half precision */
} reweight_dtype;

/* Rows of vocab logits each. Row r begins at data + r * stride elements. Rows need no
 * alignment. */
typedef struct reweight_rows {
	void *data;
	int64_t rows;
	int64_t vocab;  /* logits of a row, 1 to 2^31 - 1 */
	int64_t stride; /* elements from one row to the next, at least vocab; 0 means vocab */
	int32_t dtype;  /* a reweight_dtype */
} reweight_rows;

/* The chosen id of each row. */
typedef struct reweight_ids {
	const void *data; /* [rows] */
	int32_t wide;     /* 1: int64_t; 0: int32_t */
} reweight_ids;

/* The outputs of reweight_token_stats, [rows] each; NULL is not computed. */
typedef struct reweight_stats {
	float *lse;      /* logsumexp of the raw logits; the energy E is -lse */
	float *entropy;  /* entropy H of softmax(x / temperature) */
	float *logprobs; /* log-probability of the row's id under softmax(x / temperature) */
	float *log_sum_sq_probs; /* log of the sum of the squared probabilities of softmax(x / temperature) */
} reweight_stats;

/* Computes the statistics of each row: one pass over it, two if the temperature is not 1
 * and lse is wanted. ids is read only if dst->logprobs is set, and may be NULL otherwise.
 * temperature is 1e-30 to 1e30; lse is always at 1. A row with a NaN has NaN
 * throughout; one with +inf, or all -inf, has that lse, and NaN for the others. */
REWEIGHT_API int reweight_token_stats(const reweight_workspace *ws, const reweight_stats *dst,
                                      const reweight_rows *logits, const reweight_ids *ids, double temperature,
                                      reweight_error *error);

typedef struct reweight_row_gradient_options {
	double temperature;   /* of the policy: 1e-30 to 1e30 */
	double entropy_bonus; /* c in the loss L - c * sum_t H_t; finite */
} reweight_row_gradient_options;

/* This and the other defaults initialize a variable of their struct. */
#define REWEIGHT_DEFAULT_ROW_GRADIENT {1, 0}

/* Writes the gradient of the loss with respect to each logit. With z = x / temperature,
 * p = softmax(z), y the row's id, l its log-probability, H the row's entropy,
 * g = dL/dl and c = entropy_bonus - dL/dH:
 *
 *   dst_v = (g ([v = y] - p_v) + c p_v (log p_v + H)) / temperature
 *
 * dst has the shape and dtype of logits, float32 or bfloat16. It is logits itself, with
 * the same stride, or does not overlap it. logprobs and entropy are those of
 * reweight_token_stats for the same logits and temperature. grad is dL/dl of each row.
 * grad_entropy is dL/dH of each row; NULL stands for zeros. entropy is read only where c
 * is not 0, and may be NULL if entropy_bonus is 0 and grad_entropy is NULL. All are
 * [rows]. A row with g = 0 and c = 0 is not read and gets 0. A logit of -inf gets 0; if it
 * is the chosen one, g / temperature. A row whose log-probability is NaN gets NaN.
 *
 * lse is the logsumexp of z of each row, or NULL to have it from the chosen logit and
 * logprobs. It is for logits that have been computed a second time, whose last bits may
 * differ, or that are some columns of the rows: p_v is exp(z_v - lse), the chosen logit is
 * not read, and an id may be -1, which is that of another column. logprobs and entropy are
 * those of the whole row. reweight_token_stats gives this lse where its temperature is 1. A
 * row whose lse is not finite gets NaN. */
REWEIGHT_API int reweight_row_gradient(const reweight_workspace *ws, const reweight_rows *dst,
                                       const reweight_rows *logits, const reweight_ids *ids, const float *logprobs,
                                       const float *entropy, const float *grad, const float *grad_entropy,
                                       const float *lse, const reweight_row_gradient_options *options,
                                       reweight_error *error);

/* ---- Batches of rollouts ---- */

/* What a token is to the loss. */
enum {
	REWEIGHT_ROLE_MASKED = 0,    /* prompt or observation: no part in the loss */
	REWEIGHT_ROLE_REASONING = 1, /* response token outside the action body */
	REWEIGHT_ROLE_ACTION = 2,    /* strictly between <answer> and </answer> */
};

/* A packed batch: T tokens of S trajectories, one trajectory after another. A padded
 * batch of B rows of T tokens is packed too, with B trajectories of T tokens, if padding
 * has role 0. Each function names the arrays that it reads; the others may be NULL. */
typedef struct reweight_batch {
	int64_t tokens;             /* T */
	int64_t trajectories;       /* S */
	const uint8_t *role;        /* [T] */
	const int64_t *seq_offsets; /* [S+1] where each trajectory begins, and T */
	const int32_t *group_ids;   /* [S] trajectories of the same prompt share one */
	const float *rewards;       /* [S] outcome rewards */
	const int32_t *span_ids;    /* [T] response of each token, numbered from 0; -1 outside */
	const float *ref_energy;    /* [T] energy under the frozen reference */
	const float *entropy;       /* [T] of the old policy */
	const float *old_logprobs;  /* [T] of the sampled token under the old policy */
	const float *logprobs;      /* [T] under the current policy */
	const float *ref_logprobs;  /* [T] under the reference */
	const float *ref_entropy;   /* [T] of the reference */
	const float *advantages;    /* [T] */
	const float *values;        /* [T] of the old critic */
	const float *rollout_logprobs; /* [T] of the sampled token, by the engine that sampled */
	const float *token_rewards; /* [T] */
	const int32_t *anchors;     /* [spans] number of the state before each span */
	const float *span_rewards;  /* [spans] */
	const float *returns;       /* [T] what the critic is to predict */
	const float *new_values;    /* [T] of the current critic */
	const float *teacher_logprobs; /* [T] of the sampled token under a teacher; NaN throughout a trajectory without one */
	const float *sum_sq_probs;  /* [T] sum of the squared probabilities of the vocabulary, old policy */
	const float *entropy_drop;  /* [T] sum of p^2 (entropy + log p) over the vocabulary, old policy */
	const float *reward_parts;  /* [S, parts] parts of the outcome rewards, one trajectory after another */
	int64_t parts;              /* at least 1 where reward_parts are read */
} reweight_batch;

/* ---- ActFocus (arXiv 2605.14558) ---- */

typedef enum reweight_signal {
	REWEIGHT_ENERGY = 0,      /* ref_energy */
	REWEIGHT_REF_ENTROPY = 1, /* ref_entropy */
	REWEIGHT_SURPRISAL = 2,   /* -old_logprobs */
	REWEIGHT_LOG_RATIO = 3,   /* old_logprobs - ref_logprobs */
} reweight_signal;

typedef struct reweight_actfocus_options {
	double alpha;   /* weight of reasoning tokens, in [0, 1] */
	double beta;    /* strength of the action tokens' signal, at least 0; alpha or beta is not 0 */
	double eps;     /* inside the root of sigma, at least 0 */
	int32_t signal; /* a reweight_signal */
} reweight_actfocus_options;

#define REWEIGHT_DEFAULT_ACTFOCUS {0.1, 0.5, 1e-08, REWEIGHT_ENERGY}

typedef struct reweight_actfocus_result {
	int64_t actions;    /* n, action tokens */
	double mean, sigma; /* of the signal over action tokens; 0 if there are none */
} reweight_actfocus_result;

/* Sets weights[t]: alpha for reasoning tokens, 0 for masked ones, and for action tokens
 * 1 + beta * sigmoid((signal - mean) / sigma), with the mean over the n action tokens and
 * sigma = sqrt(sum (signal - mean)^2 / n + eps). Reads role and the arrays of the signal;
 * weights may be an array of the signal. Needs scratch for SURPRISAL and LOG_RATIO. A signal
 * of an action token that is not finite is an error. result may be NULL. */
REWEIGHT_API int reweight_actfocus(const reweight_workspace *ws, reweight_actfocus_result *result, float *weights,
                                   const reweight_batch *batch, const reweight_actfocus_options *options,
                                   reweight_error *error);

/* ---- AEM (arXiv 2605.00425) ---- */

typedef enum reweight_scope {
	REWEIGHT_SCOPE_GROUP = 0,      /* all spans of all trajectories of a group */
	REWEIGHT_SCOPE_TRAJECTORY = 1, /* all spans of a trajectory */
	REWEIGHT_SCOPE_BATCH = 2,      /* all spans */
} reweight_scope;

typedef struct reweight_aem_options {
	double lambda; /* strength, 0 to 80 */
	double guard;  /* a scope whose span entropies differ by less is left alone; at least 0; lambda or guard is not 0 */
	int32_t scope; /* a reweight_scope */
} reweight_aem_options;

#define REWEIGHT_DEFAULT_AEM {1, 0.1, REWEIGHT_SCOPE_GROUP}

/* Sets factors[t], which the advantage of token t is to be multiplied by. With H the mean
 * entropy of the response tokens of a span, and min, max and mean over the spans of its
 * scope:
 *
 *   factor = exp(-lambda h) / mean exp(-lambda h)        h = (H - min) / (max - min)
 *
 * It is 1 for masked tokens, and in scopes where max - min is below guard, or so small that
 * lambda over it is infinite. Reads role, seq_offsets, span_ids, entropy, and group_ids for
 * the scope GROUP. factors may be entropy. Needs scratch. There are at most 2^31 - 1 tokens.
 * Spans are numbered from 0 in the order in which they appear, each within one trajectory
 * and with at least one response token; every response token is in one. An entropy of a
 * response token that is not finite or beyond 1e30 is an error. */
REWEIGHT_API int reweight_aem(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                              const reweight_aem_options *options, reweight_error *error);

/* ---- Advantages ---- */

typedef struct reweight_grpo_options {
	double eps;            /* added to the standard deviation, at least 0 */
	int32_t divide_by_std; /* 0: Dr. GRPO */
} reweight_grpo_options;

#define REWEIGHT_DEFAULT_GRPO {1e-06, 1}

/* Sets advantages[t] of the response tokens of each trajectory to (reward - mean) /
 * (std + eps) of its group (verl, compute_grpo_outcome_advantage), and of masked tokens to
 * 0. The variance has n-1; a group of one has mean 0 and std 1. Reads role, seq_offsets,
 * group_ids and rewards, which are finite. Needs scratch. */
REWEIGHT_API int reweight_grpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                               const reweight_grpo_options *options, reweight_error *error);

typedef struct reweight_gae_options {
	double gamma;  /* discount, in [0, 1] */
	double lambda; /* in [0, 1]; gamma or lambda is not 0 */
} reweight_gae_options;

#define REWEIGHT_DEFAULT_GAE {1, 1}

/* Sets advantages A and returns, backwards over each trajectory (verl,
 * compute_gae_advantage_return):
 *
 *   delta = r_t + gamma V' - V_t        A_t = delta + gamma lambda A'        return = A_t + V_t
 *
 * V' and A' are those of the next response token, 0 after the last: masked tokens are
 * passed over, and get 0. rewards are per token, [T]. Reads role, seq_offsets and values.
 * advantages may be rewards; returns may be NULL. */
REWEIGHT_API int reweight_gae(const reweight_workspace *ws, float *advantages, float *returns, const float *rewards,
                              const reweight_batch *batch, const reweight_gae_options *options, reweight_error *error);

/* Sets dst[t] = (x[t] - mean) / sqrt(var + 1e-8) for response tokens, 0 for masked ones
 * (verl, masked_whiten). All are [tokens]; dst may be x. Fewer than two response tokens,
 * or one that is not finite, is an error. */
REWEIGHT_API int reweight_whiten(const reweight_workspace *ws, float *dst, const float *x, const uint8_t *role,
                                 int64_t tokens, reweight_error *error);

/* ---- The divergence from the reference ---- */

/* An estimate k of the divergence of a token, with its derivative k' by its log-probability.
 * With x = log pi - log pi_ref and y = clamp(-x, -20, 20):
 *
 *   K3        k = min(10, e^y - y - 1)    k' = 1 - e^y, but 0 where y or k was cut
 *   K2        k = x^2/2    k' = x
 *   K1        k = x        k' = 1
 *   ABS       k = |x|      k' = the sign of x, 0 at 0
 *   K3_PLUS, K1_PLUS, ABS_PLUS    k of K3, K1, ABS    k' = x */
typedef enum reweight_kl_form {
	REWEIGHT_KL_K3 = 0,       /* verl: low_var_kl */
	REWEIGHT_KL_K2 = 1,       /* verl: mse */
	REWEIGHT_KL_K1 = 2,       /* verl: kl */
	REWEIGHT_KL_ABS = 3,      /* verl: abs */
	REWEIGHT_KL_K3_PLUS = 4,  /* verl: low_var_kl+ */
	REWEIGHT_KL_K1_PLUS = 5,  /* verl: kl+ */
	REWEIGHT_KL_ABS_PLUS = 6, /* verl: abs+ */
} reweight_kl_form;

typedef struct reweight_kl_rewards_options {
	double kl_coef; /* finite; 0 leaves the outcome alone, and reads no log-probability */
	int32_t kl;     /* a reweight_kl_form, of old_logprobs against ref_logprobs */
} reweight_kl_rewards_options;

#define REWEIGHT_DEFAULT_KL_REWARDS {0.001, REWEIGHT_KL_K1}

/* Sets rewards[t] of each response token (verl, apply_kl_penalty):
 *
 *   r_t = [t is the last response token of q] r_q - kl_coef k_t
 *
 * with the reward r_q of its trajectory and the divergence k_t of old_logprobs from
 * ref_logprobs. Masked tokens get 0. rewards is [T], and may be one of those two. Reads role,
 * seq_offsets, rewards of the batch and, unless kl_coef is 0, old_logprobs and ref_logprobs;
 * a value of a response token that is not finite is an error. */
REWEIGHT_API int reweight_kl_rewards(const reweight_workspace *ws, float *rewards, const reweight_batch *batch,
                                     const reweight_kl_rewards_options *options, reweight_error *error);

/* ---- Losses ---- */

typedef enum reweight_aggregation {
	REWEIGHT_TOKEN_MEAN = 0,              /* sum w l / sum w over the batch */
	REWEIGHT_SEQ_MEAN_TOKEN_SUM = 1,      /* mean over trajectories of sum w l */
	REWEIGHT_SEQ_MEAN_TOKEN_MEAN = 2,     /* mean over trajectories of sum w l / sum w */
	REWEIGHT_SEQ_MEAN_TOKEN_SUM_NORM = 3, /* sum over trajectories of sum w l, over norm_length */
} reweight_aggregation;

/* The loss l of a token, with its derivative l' by the token's log-probability. With
 * raw = log pi - log pi_old, d = clamp(raw, -20, 20), rho = e^d and
 * clip(x) = clamp(x, 1-clip_low, 1+clip_high):
 *
 *   PPO      l = max(-A s, -A clip(s)); where A < 0: min(l, -A dual_clip)
 *            s = rho    l' = -A rho
 *   GSPO     the same with s = exp(min(mean raw, 10)) over the sequence    l' = -A s
 *   GRPO_S   the same with s = mean rho over the sequence    l' = -A rho
 *   CISPO    l = -c A log pi    l' = -c A    c = clip(rho)
 *   SAPO     l = -A 4 s / tau    l' = -A 4 s (1 - s) rho    s = sigmoid(tau (rho - 1))
 *   PG       l = -A log pi    l' = -A
 *   DPPO_TV  l = -c A log pi    l' = -c A    c = min(rho, ratio_cap), but 0 where
 *            pi - pi_old > clip_high and A > 0, or pi - pi_old < -clip_low and A <= 0
 *   VESPO    l = -phi A log pi    l' = -phi A    phi = exp(decay + power y - decay e^y)
 *            y = clamp(sum d, log 1e-8, 20) over the trajectory
 *   DPPO_KL  as DPPO_TV, with c 0 where kl > clip_high, A > 0 and pi > pi_old, or
 *            kl > clip_low, A <= 0 and pi < pi_old; with q = pi_old,
 *            kl = q log(q/pi) + (1-q) log((1-q + 1e-8) / (1-pi + 1e-8))
 *   DRO      l = -(A log pi - beta raw^2 / 2)    l' = -(A - beta raw)
 *   GMPO     of a trajectory with n response tokens: -A_q rho_q
 *            A_q = sum A / (n + 1e-8)    rho_q = exp(min(sum m / (n + 1e-8), 20))
 *            m = s min(s raw, s clamp(raw, -clip_low, clip_high)), s the sign of A, -1, 0 or 1
 *   CLIP_COV as PPO without the dual clip; at chosen tokens l = 0 and l' = 0
 *   KL_COV   l = -A rho, and + cov_coef |raw| at chosen tokens
 *            l' = -A rho, and + cov_coef sign(raw)
 *
 * In the first three l' is 0 where l is not -A s. Where l' has rho in it, l' is 0 where d is
 * not raw; so is GSPO's where the mean is above 10, and GMPO's where it is above 20. A token
 * counts as clipped in the first three where -A clip(s) is the larger, in CISPO where c is not
 * rho, in DPPO_TV and DPPO_KL where c is 0, in GMPO where m is not raw and A is not 0, and in
 * CLIP_COV also where it is chosen; in the others none does.
 *
 * CLIP_COV and KL_COV choose among the n response tokens of the call by the covariance
 * c = (A - mean A) (log pi - mean log pi), with means over these tokens. KL_COV chooses the
 * max(1, floor(cov_share n)) with the largest c, of equal ones the first. CLIP_COV chooses as
 * many of those where -A clip(rho) is not the larger and cov_low < c < cov_high, at random:
 * token t has number t of the generator SplitMix64 whose state is seed, and the lowest are
 * chosen. GMPO's loss is the mean over all trajectories of the batch, whatever the aggregation,
 * which is that of the KL alone; one without response tokens adds 0 and counts. DRO, GMPO,
 * CLIP_COV and KL_COV have no weights of tokens: weights other than NULL are an error. */
typedef enum reweight_policy_loss {
	REWEIGHT_POLICY_PPO = 0,       /* clipped surrogate (arXiv 1707.06347), with the dual clip (arXiv 1912.09729) */
	REWEIGHT_POLICY_GSPO = 1,      /* ratio of the sequence (arXiv 2507.18071) */
	REWEIGHT_POLICY_GRPO_S = 2,    /* mean ratio of the sequence (arXiv 2508.04349) */
	REWEIGHT_POLICY_CISPO = 3,     /* clipped ratio as a factor (arXiv 2506.13585) */
	REWEIGHT_POLICY_SAPO = 4,      /* soft clip (arXiv 2511.20347) */
	REWEIGHT_POLICY_PG = 5,        /* policy gradient without a ratio (GPG) */
	REWEIGHT_POLICY_DPPO_TV = 6,   /* trust region in total variation (arXiv 2602.04879) */
	REWEIGHT_POLICY_VESPO = 7,     /* soft factor of the trajectory's ratio (arXiv 2602.10693) */
	REWEIGHT_POLICY_DPPO_KL = 8,   /* trust region in the divergence of two outcomes (arXiv 2602.04879) */
	REWEIGHT_POLICY_DRO = 9,       /* policy gradient with a quadratic penalty (verl) */
	REWEIGHT_POLICY_GMPO = 10,     /* geometric mean of the ratios of a trajectory (arXiv 2507.20673) */
	REWEIGHT_POLICY_CLIP_COV = 11, /* some tokens of high covariance are left out (arXiv 2505.22617) */
	REWEIGHT_POLICY_KL_COV = 12,   /* those of the highest have a penalty (arXiv 2505.22617) */
} reweight_policy_loss;

/* The tokens that share a ratio in GSPO and GRPO_S. */
typedef enum reweight_sequence {
	REWEIGHT_SEQUENCE_TRAJECTORY = 0, /* all response tokens of a trajectory */
	REWEIGHT_SEQUENCE_SPAN = 1,       /* those of a span: turn by turn */
} reweight_sequence;

/* Those that the policy does not use do not matter. */
typedef struct reweight_loss_options {
	double clip_low;     /* PPO, GSPO, GRPO_S, CLIP_COV: in [0, 1]; CISPO, DPPO, GMPO: at least 0 */
	double clip_high;    /* of the same, at least 0; clip_low or clip_high is not 0 */
	double dual_clip;    /* PPO, GSPO, GRPO_S: bound of the loss where A < 0, in units of |A|: above 1, or 0 for none */
	int64_t norm_length; /* of SEQ_MEAN_TOKEN_SUM_NORM, tokens; 0 is the longest trajectory */
	int32_t aggregation; /* a reweight_aggregation */
	int32_t policy;      /* a reweight_policy_loss */
	int32_t sequence;    /* GSPO, GRPO_S: a reweight_sequence */
	int32_t kl;          /* a reweight_kl_form, of logprobs against ref_logprobs: it is added to the loss, */
	double kl_coef;      /* times this, a finite number; 0 adds none */
	double tau_pos;      /* SAPO: tau where A > 0; 1e-30 to 1e30 */
	double tau_neg;      /* and elsewhere */
	double ratio_cap;    /* DPPO_TV, DPPO_KL: the largest ratio; above 0 */
	double power_pos;    /* VESPO: power and decay where A >= 0; at least 0, and not all four are 0 */
	double decay_pos;
	double power_neg;    /* and where A < 0 */
	double decay_neg;
	double beta;         /* DRO: of the penalty; above 0, without a default */
	double cov_share;    /* CLIP_COV, KL_COV: share of the response tokens that are chosen; above 0, at most 1 */
	double cov_low;      /* CLIP_COV: a token is chosen where its covariance is between these; finite */
	double cov_high;     /* at least cov_low */
	double cov_coef;     /* KL_COV: of the penalty of chosen tokens; at least 0 */
	uint64_t seed;       /* CLIP_COV: of the choice; another one for each step */
} reweight_loss_options;

#define REWEIGHT_DEFAULT_LOSS {0.2, 0.28, 3, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_PPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_GSPO {0.0003, 0.0004, 0, 0, REWEIGHT_SEQ_MEAN_TOKEN_MEAN, REWEIGHT_POLICY_GSPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_LUSPO {0.0003, 0.0004, 0, 0, REWEIGHT_SEQ_MEAN_TOKEN_SUM, REWEIGHT_POLICY_GSPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_GRPO_S_LOSS {0.2, 0.28, 0, 0, REWEIGHT_SEQ_MEAN_TOKEN_MEAN, REWEIGHT_POLICY_GRPO_S, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_CISPO {1, 4, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_CISPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_SAPO {0, 0, 0, 0, REWEIGHT_SEQ_MEAN_TOKEN_MEAN, REWEIGHT_POLICY_SAPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 1, 1.05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_PG {0, 0, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_PG, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_DPPO_TV {0.2, 0.2, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_DPPO_TV, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_VESPO {0, 0, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_VESPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 2, 3, 3, 2, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_DPPO_KL {0.05, 0.05, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_DPPO_KL, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_DRO {0, 0, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_DRO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_GMPO {0.4, 0.4, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_GMPO, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REWEIGHT_DEFAULT_CLIP_COV {0.2, 0.2, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_CLIP_COV, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0002, 1, 5, 0, 0}
#define REWEIGHT_DEFAULT_KL_COV {0, 0, 0, 0, REWEIGHT_TOKEN_MEAN, REWEIGHT_POLICY_KL_COV, REWEIGHT_SEQUENCE_TRAJECTORY, REWEIGHT_KL_K3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0002, 0, 0, 1, 0}

typedef struct reweight_loss_result {
	double loss;
	int64_t tokens;        /* response tokens */
	double weight_sum;     /* sum of w over them */
	double clip_fraction;  /* share of response tokens that count as clipped */
	double mean_log_ratio; /* mean of log pi - log pi_old over response tokens */
	double kl;             /* mean of the k3 estimate against ref_logprobs; 0 without them */
	double kl_loss;        /* the part of loss that kl_coef adds */
} reweight_loss_result;

/* Computes the loss of a policy with token weights w, and grad[t] = dL/dlogprobs[t], which is
 * 0 at masked tokens. weights NULL stands for ones; they are finite. A sum that is divided by
 * weights which add up to 0 is 0, and so are its gradients. kl_coef adds the divergence of
 * each response token, aggregated in the same way with weights of 1. Reads role, logprobs,
 * old_logprobs and advantages; ref_logprobs if set or if kl_coef is not 0; seq_offsets unless
 * the aggregation is TOKEN_MEAN and the policy none of GSPO, GRPO_S, VESPO and GMPO; span_ids
 * where the sequence is the span. grad may be weights or any of those float arrays. With another
 * policy than PPO a value of a response token that is not finite is an error, and so is one of
 * logprobs or ref_logprobs with a kl_coef. Needs scratch if weights is set, if kl_coef is not
 * 0 and grad is logprobs or ref_logprobs, where the sequence is the span, and with CLIP_COV
 * and KL_COV. */
REWEIGHT_API int reweight_loss(const reweight_workspace *ws, reweight_loss_result *result, float *grad,
                               const float *weights, const reweight_batch *batch, const reweight_loss_options *options,
                               reweight_error *error);

typedef struct reweight_value_loss_options {
	double clip;         /* the new value counts within this of the old one; above 0 */
	int64_t norm_length; /* of SEQ_MEAN_TOKEN_SUM_NORM, tokens; 0 is the longest trajectory */
	int32_t aggregation; /* a reweight_aggregation */
} reweight_value_loss_options;

#define REWEIGHT_DEFAULT_VALUE_LOSS {0.5, 0, REWEIGHT_TOKEN_MEAN}

typedef struct reweight_value_loss_result {
	double loss;
	int64_t tokens;       /* response tokens */
	double clip_fraction; /* share of them whose clipped term is the larger */
} reweight_value_loss_result;

/* Computes the clipped loss of the critic, and grad[t] = dL/dnew_values[t] (verl,
 * compute_value_loss):
 *
 *   c = clamp(v, v_old - clip, v_old + clip)    l = max((v - G)^2, (c - G)^2) / 2
 *
 * with v of new_values, v_old of values and G of returns, aggregated with weights of 1. grad
 * is 0 at masked tokens and where the clipped term is the larger. Reads role, those three
 * and, unless the aggregation is TOKEN_MEAN, seq_offsets. grad may be any of the three. A
 * value of a response token that is not finite is an error. */
REWEIGHT_API int reweight_value_loss(const reweight_workspace *ws, reweight_value_loss_result *result, float *grad,
                                     const reweight_batch *batch, const reweight_value_loss_options *options,
                                     reweight_error *error);
/* generated schemes */
/* ---- OverlongPenalty ---- */

typedef struct reweight_overlong_penalty_options {
	int64_t maximum; /* response tokens from which the penalty is full, at least buffer */
	int64_t buffer; /* tokens before it over which the penalty grows, above 0 */
	double penalty; /* at maximum, at least 0; 0: there is none */
} reweight_overlong_penalty_options;

#define REWEIGHT_DEFAULT_OVERLONG_PENALTY {20480, 4096, 1}

/* Sets penalties[q], which is to be added to the reward of trajectory q with n_q response
 * tokens (DAPO, arXiv 2503.14476):
 *
 *   p_q = max(-penalty, min(0, -penalty (n_q - (maximum - buffer)) / buffer))
 *
 * It is 0 up to maximum - buffer tokens and -penalty from maximum on. Observations between
 * the turns do not count: they are not the policy's.
 *
 * penalties has one element per trajectory, and may be rewards, which is not read. A wrong
 * shape or option is an error, and penalties is not written. */
REWEIGHT_API int reweight_overlong_penalty(const reweight_workspace *ws, float *penalties, const reweight_batch *batch,
                                           const reweight_overlong_penalty_options *options, reweight_error *error);

/* ---- GroupFilter ---- */

/* Sets weights to 1 at the response tokens of groups whose rewards differ, or which have one
 * member, to 0 elsewhere (DAPO's dynamic sampling, arXiv 2503.14476): trajectories whose
 * advantages are all 0 leave numerator and denominator of the loss. rewards are compared
 * exactly. Every trajectory of a group counts, also one without response tokens.
 *
 * weights has one element per token, rewards and group_ids one per trajectory; weights may
 * be any array of the batch that is one float32 per token: none is read. A wrong shape or a
 * reward that is not finite is an error, and weights is not written. */
REWEIGHT_API int reweight_group_filter(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                                       reweight_error *error);

/* ---- RLOO ---- */

/* Sets advantages to each trajectory's reward less the mean reward of the others of its
 * group (leave one out, arXiv 2402.14740):
 *
 *   A = n / (n-1) (r - mean_g)
 *
 * with n the members of the group. A group of one gets 0: there is no other. Every
 * trajectory of a group counts, also one without response tokens. Masked tokens get 0.
 *
 * advantages has one element per token, rewards and group_ids one per trajectory; advantages
 * may be any array of the batch that is one float32 per token: none is read. A wrong shape
 * or a reward that is not finite is an error, and advantages is not written. */
REWEIGHT_API int reweight_rloo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                               reweight_error *error);

/* ---- ReinforcePlusPlus ---- */

typedef struct reweight_reinforce_plus_plus_options {
	double gamma; /* discount, above 0 and at most 1 */
} reweight_reinforce_plus_plus_options;

#define REWEIGHT_DEFAULT_REINFORCE_PLUS_PLUS {1}

/* Sets advantages to the discounted sums of token_rewards, backwards over the response
 * tokens of each trajectory, whitened (REINFORCE++, arXiv 2501.03262; verl,
 * compute_reinforce_plus_plus_outcome_advantage):
 *
 *   G_t = r_t + gamma G_next(t)    A_t = (G_t - mean) / sqrt(var + 1e-8)
 *
 * where next(t) is the trajectory's next response token, after which masked tokens are
 * passed over; mean and variance (n-1) are over the response tokens of the batch. The reward
 * of an outcome belongs at the trajectory's last response token. Masked tokens get 0, and so
 * does a response token that is the only one of the batch.
 *
 * advantages, token_rewards and role have one element per token, and seq_offsets must be
 * set. advantages may be token_rewards. A wrong shape or option, or a reward of a response
 * token that is not finite, is an error, and nothing is written. */
REWEIGHT_API int reweight_reinforce_plus_plus(const reweight_workspace *ws, float *advantages,
                                              const reweight_batch *batch,
                                              const reweight_reinforce_plus_plus_options *options,
                                              reweight_error *error);

/* ---- ReinforcePlusPlusBaseline ---- */

/* Sets advantages to each trajectory's reward less the mean of its group, whitened over
 * response tokens (REINFORCE++-baseline, arXiv 2501.03262; verl,
 * compute_reinforce_plus_plus_baseline_outcome_advantage):
 *
 *   a_q = r_q - mean_g    A_t = (a_q(t) - mean) / sqrt(var + 1e-8)
 *
 * A group of one has mean 0; every trajectory of a group counts, also one without response
 * tokens. The second mean and the variance (n-1) are over the response tokens of the batch,
 * so that long trajectories count more. Masked tokens get 0, and so does a response token
 * that is the only one of the batch.
 *
 * advantages has one element per token, rewards and group_ids one per trajectory; advantages
 * may be any array of the batch that is one float32 per token: none is read. A wrong shape,
 * or a reward that is not finite, is an error, and advantages is not written. */
REWEIGHT_API int reweight_reinforce_plus_plus_baseline(const reweight_workspace *ws, float *advantages,
                                                       const reweight_batch *batch, reweight_error *error);

/* ---- OTB ---- */

typedef struct reweight_otb_options {
	int32_t turns; /* positions count response tokens alone, not all tokens of the trajectory */
	int32_t zero_tail; /* no baseline where the longest trajectory of its group is alone */
} reweight_otb_options;

#define REWEIGHT_DEFAULT_OTB {0, 1}

/* Sets advantages to the rewards to come of each response token, less a baseline of its
 * position that makes the variance of the gradient small (optimal token baseline; verl,
 * compute_optimal_token_baseline_advantage and, with turns,
 * compute_multi_turn_optimal_token_baseline_advantage):
 *
 *   G_t = sum of token_rewards from t on              W_t = sum of w up to t
 *   w_t = 1 - 2 e^old_logprobs[t] + sum_sq_probs[t]     A_t = G_t - B of the position of t
 *   B   = sum G W / (sum W + 1e-8)
 *
 * The first two sums are over the response tokens of a trajectory. Those of B are over the
 * trajectories of a group that have a response token at that position: its place in the
 * trajectory, masked tokens counted, or, with turns, among its response tokens. w estimates
 * the squared norm of the gradient of the token's log-probability with respect to the
 * logits.
 *
 * A group of one trajectory has B = 0; every trajectory counts, also one without response
 * tokens. With zero_tail, a trajectory with more response tokens than any other of its group
 * has B = 0 from the position on that is the second largest number of them. The reward of an
 * outcome belongs at the trajectory's last response token. verl multiplies w by the squared
 * weight of its rollout correction where it has one; this does not. Masked tokens get 0.
 *
 * advantages, token_rewards, old_logprobs and sum_sq_probs have one element per token,
 * group_ids one per trajectory; advantages may be any array of the batch that is one float32
 * per token: all are read before it is written. A wrong shape, or a value of a response
 * token that is not finite, is an error, and advantages is not written. */
REWEIGHT_API int reweight_otb(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                              const reweight_otb_options *options, reweight_error *error);

/* ---- GiGPO ---- */

typedef struct reweight_gigpo_options {
	double gamma; /* discount of span rewards, in [0, 1]; 0: a span counts its own reward alone */
	double omega; /* weight of the step advantages, finite; 0 leaves them out */
	int32_t divide_by_std; /* plus 1e-6, of the group; false: by 1 */
	int32_t per_step; /* the group's mean and std are over spans, as in the public code; false: over trajectories */
} reweight_gigpo_options;

#define REWEIGHT_DEFAULT_GIGPO {0.95, 1, 0, 0}

/* Sets advantages from groups of trajectories, and from groups of spans that started in the
 * same state (arXiv 2505.10978):
 *
 *   E_q = (rewards[q] - mean) / F        over the trajectories of q's group
 *   G_s = span_rewards[s] + gamma G_next(s)
 *   B_s = (G_s - mean) / F               over the spans of s's group with the anchor of s
 *   A_t = E_q(t) + omega B_s(t)
 *
 * where next(s) is the next span of the same trajectory. F is 1, or with divide_by_std the
 * standard deviation (n-1) plus 1e-6. A group of one trajectory has mean 0 and std 1; a span
 * that shares its anchor with no other has B 0, and so have spans whose returns are equal.
 * With per_step, mean and std of E are over the spans of the group, each with its
 * trajectory's reward, so that long trajectories count more; then it is a group of one span
 * that has mean 0 and std 1. Trajectories without response tokens count in their group,
 * unless per_step. Masked tokens get 0.
 *
 * advantages, role and span_ids have one element per token, at most 2^31 - 1; rewards and
 * group_ids one per trajectory; anchors and span_rewards one per span; seq_offsets must be
 * set. advantages may be any array of the batch that is one float32 per token: none is read.
 * A span needs at least one response token. Wrong shapes, spans or options, or a reward that
 * is not finite, is an error, and advantages is not written. */
REWEIGHT_API int reweight_gigpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                const reweight_gigpo_options *options, reweight_error *error);

/* ---- TurnReturns ---- */

typedef struct reweight_turn_returns_options {
	double gamma; /* discount of later turns, above 0 and at most 1 */
	int32_t divide_by_std; /* plus 1e-6, of the returns of all turns of the group: this makes the gradient biased */
} reweight_turn_returns_options;

#define REWEIGHT_DEFAULT_TURN_RETURNS {1, 0}

/* Sets advantages to what each turn and the turns after it earn, less what the other
 * trajectories of the group earn from there on. A turn is a span, K of them are in a
 * trajectory:
 *
 *   G_k = span_rewards[k] + gamma G_k+1    G_K = span_rewards[K] + rewards[q]
 *   b_k = mean over the others p of the group of G_min(k, K_p) of p
 *   A_t = G_k(t) - b_k(t)
 *
 * So a trajectory that has ended before turn k counts in b_k by its last turn, and one
 * without turns by its reward. As b_k does not depend on this trajectory, and always has the
 * same number of terms, the policy gradient is unbiased, also where the policy decides when
 * an episode ends. A group of one has b_k = 0. With divide_by_std, A is divided by the
 * standard deviation (n-1) of G over all turns of the group, if it has more than one. Masked
 * tokens get 0.
 *
 * rewards is added to the last turn: it must not contain the rewards of turns again.
 *
 * advantages, role and span_ids have one element per token, at most 2^31 - 1; rewards and
 * group_ids one per trajectory; span_rewards one per span; seq_offsets must be set.
 * advantages may be any array of b that is one float32 per token: none is read. A span needs
 * at least one response token. Wrong shapes, spans or options, or a reward that is not
 * finite, is an error, and advantages is not written. */
REWEIGHT_API int reweight_turn_returns(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                       const reweight_turn_returns_options *options, reweight_error *error);

/* ---- MTGRPO ---- */

typedef struct reweight_mt_grpo_options {
	double lambda; /* of the outcome in turns before the last, above 0 */
	int32_t divide_by_std; /* plus 1e-6, of what is compared; false: by 1 */
} reweight_mt_grpo_options;

#define REWEIGHT_DEFAULT_MT_GRPO {0.5, 1}

/* Sets advantages to what each turn has earned relative to the same turn of the group, and
 * what the trajectory has earned in the end relative to the group (after arXiv 2505.11821).
 * A turn is a span, K of them are in a trajectory:
 *
 *   B_k = (span_rewards[k] - mean) / F                    over the turns k of q's group
 *   E_q = (rewards[q] + span_rewards[K] - mean) / F       over the trajectories of q's group
 *   A_t = B_k(t) + lambda E_q(t) where k < K, E_q(t) where k = K
 *
 * F is 1, or with divide_by_std the standard deviation (n-1) plus 1e-6. What is alone has B
 * or E 0, and so have equal rewards. A trajectory without turns has E of its reward. Masked
 * tokens get 0.
 *
 * Where the policy decides when an episode ends, the gradient is biased: a trajectory that
 * goes on has the mean of the turn's rewards subtracted, and one that ends has not, as if
 * going on cost that much. There is no such bias in the returns of turns.
 *
 * advantages, role and span_ids have one element per token, at most 2^31 - 1; rewards and
 * group_ids one per trajectory; span_rewards one per span; seq_offsets must be set.
 * advantages may be any array of b that is one float32 per token: none is read. A span needs
 * at least one response token. Wrong shapes, spans or options, or a reward that is not
 * finite, is an error, and advantages is not written. */
REWEIGHT_API int reweight_mt_grpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                  const reweight_mt_grpo_options *options, reweight_error *error);

/* ---- GTPO ---- */

typedef enum reweight_normalization {
	REWEIGHT_NORMALIZATION_SEPARATE = 0,
	REWEIGHT_NORMALIZATION_JOINT = 1,
	REWEIGHT_NORMALIZATION_NONE = 2,
} reweight_normalization;

typedef struct reweight_gtpo_options {
	double base; /* weight of the reward: the paper's alpha 1, beta 1; at least 0 */
	double bonus; /* weight of the entropy's share: its alpha 2, beta 2; at least 0 */
	double threshold; /* a reward above it is a success */
	double entropy_low; /* entropies are clamped to [entropy_low, entropy_high] first, nats; at least 0 */
	double entropy_high; /* at least entropy_low, above 0; +Inf for no bound */
	int32_t normalization; /* a reweight_normalization */
	int32_t scope; /* a reweight_scope: REWEIGHT_SCOPE_GROUP or REWEIGHT_SCOPE_BATCH: trajectories that are compared */
} reweight_gtpo_options;

#define REWEIGHT_DEFAULT_GTPO {1, 0.1, 0.5, 0, __builtin_inf(), REWEIGHT_NORMALIZATION_SEPARATE, REWEIGHT_SCOPE_GROUP}

/* Sets advantages from rewards that are shaped by the entropy of each token among the tokens
 * at its position (arXiv 2508.04349). In each group, O+ are the trajectories with a reward r
 * above threshold and O- the others; H is entropy clamped to [entropy_low, entropy_high]; j
 * numbers the response tokens of a trajectory, and d_j, h_j are the members of O+ and O-
 * that have a j-th:
 *
 *   O+: u_ij = base r_i + bonus d_j H_ij / max(sum_{O+} H_.j, 1e-8)
 *   O-: u_ij = -base - bonus h_j v_ij / max(sum_{O-} v_.j, 1e-8)    v = 1 / (H + 1e-8)
 *   A = (u - mean) / sqrt(var + 1e-8)
 *
 * with mean and population variance over the tokens of O+ and of O- separately
 * (REWEIGHT_NORMALIZATION_SEPARATE, the paper's equation 6), over both
 * (REWEIGHT_NORMALIZATION_JOINT), or A = u (REWEIGHT_NORMALIZATION_NONE). Separately, the
 * outcome's sign is lost: half of the tokens of successes get a negative advantage. A set of
 * one token gets 0. With REWEIGHT_SCOPE_BATCH the whole batch is one group. Masked tokens
 * get 0.
 *
 * advantages, role and entropy have one element per token, rewards one per trajectory, and
 * group_ids too for REWEIGHT_SCOPE_GROUP, which alone reads them. advantages may be entropy.
 * A wrong shape or option, or a reward or an entropy of a response token that is not finite,
 * is an error, and advantages is not written. */
REWEIGHT_API int reweight_gtpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                               const reweight_gtpo_options *options, reweight_error *error);

/* ---- GRPOS ---- */

#define REWEIGHT_DEFAULT_GRPO_S {1, 0.1, 0.5, 0, __builtin_inf(), REWEIGHT_NORMALIZATION_JOINT, REWEIGHT_SCOPE_GROUP}

/* Sets advantages from rewards that are shaped by the mean entropy of each trajectory
 * (GRPO-S, arXiv 2508.04349). In each group, O+ are the trajectories with a reward r above
 * threshold and O- the others, and Hbar_i is the mean over trajectory i of entropy clamped
 * to [entropy_low, entropy_high]:
 *
 *   O+: u_i = base r_i + bonus |O+| Hbar_i / max(sum_{O+} Hbar, 1e-8)
 *   O-: u_i = -base - bonus |O-| v_i / max(sum_{O-} v, 1e-8)    v = 1 / (Hbar + 1e-8)
 *   A = (u - mean) / sqrt(var + 1e-8)
 *
 * with mean and population variance over the trajectories of O+ and O- together
 * (REWEIGHT_NORMALIZATION_JOINT), of each (REWEIGHT_NORMALIZATION_SEPARATE), or A = u
 * (REWEIGHT_NORMALIZATION_NONE). The response tokens of trajectory i get its A; a trajectory
 * without any is in neither set. A set of one trajectory gets 0. Masked tokens get 0.
 *
 * The arguments are as in gtpo, with the same shapes, errors and aliasing. */
REWEIGHT_API int reweight_grpo_s(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                 const reweight_gtpo_options *options, reweight_error *error);

/* ---- OPO ---- */

/* Sets advantages to each trajectory's reward less the baseline of its group with the least
 * variance, for which a long response counts more (on-policy RL with optimal reward
 * baseline, arXiv 2505.23585; verl, compute_opo_outcome_advantage):
 *
 *   A = r - sum_g n r / sum_g n
 *
 * with n the response tokens of a trajectory. The baseline of a group of one is 0. Masked
 * tokens get 0.
 *
 * advantages has one element per token, rewards and group_ids one per trajectory; advantages
 * may be any array of the batch that is one float32 per token: none is read. A wrong shape
 * or a reward that is not finite is an error, and advantages is not written. */
REWEIGHT_API int reweight_opo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                              reweight_error *error);

/* ---- PassAtK ---- */

typedef struct reweight_pass_at_k_options {
	double eps; /* added to the standard deviation, at least 0 */
	int32_t divide_by_std; /* false: the difference itself, to which eps does not matter */
} reweight_pass_at_k_options;

#define REWEIGHT_DEFAULT_PASS_AT_K {1e-06, 1}

/* Sets advantages to how far the highest reward of each group is above the second highest,
 * at the response tokens of the trajectory that has it (the gradient of the expected
 * maximum, arXiv 2503.19595; verl, compute_grpo_passk_outcome_advantage):
 *
 *   A = (r_first - r_second) / (std_g + eps)
 *
 * with n-1 in the variance of the group's rewards, or without that divisor. All other tokens
 * get 0. Where several have the highest reward, A is 0.
 *
 * advantages has one element per token, rewards and group_ids one per trajectory; advantages
 * may be any array of the batch that is one float32 per token: none is read. A wrong shape
 * or option, a reward that is not finite, or a group of one trajectory, is an error, and
 * advantages is not written. */
REWEIGHT_API int reweight_pass_at_k(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                    const reweight_pass_at_k_options *options, reweight_error *error);

/* ---- GDPO ---- */

typedef struct reweight_gdpo_options {
	double eps; /* added to the standard deviation, at least 0 */
	int32_t divide_by_std; /* false: the differences themselves, to which eps does not matter */
	const double *reward_weights; /* of the parts, one each; NULL stands for ones */
} reweight_gdpo_options;

#define REWEIGHT_DEFAULT_GDPO {1e-06, 1, NULL}

/* Sets advantages to what GRPO makes of each part of the reward alone, added up and whitened
 * over response tokens, so that no part drowns another one (group reward-decoupled
 * normalization, arXiv 2601.05242; verl, compute_gdpo_outcome_advantage):
 *
 *   a_q = sum_k reward_weights[k] (r_qk - mean_gk) / (std_gk + eps)
 *   A_t = (a_q(t) - mean) / sqrt(var + 1e-8)
 *
 * with r_qk the part k of the reward of trajectory q, and n-1 in the variance of a part in a
 * group; a group of one has mean 0 and std 1. Every trajectory of a group counts, also one
 * without response tokens. The last mean and the variance (n-1) are over the response tokens
 * of the batch, so that long trajectories count more. Masked tokens get 0, and so does a
 * response token that is the only one of the batch.
 *
 * advantages has one element per token, group_ids one per trajectory, and reward_parts as
 * many for each trajectory, one trajectory after another; advantages may be any array of b
 * that is one float32 per token: none is read. A wrong shape or option, or a part that is
 * not finite, is an error, and advantages is not written. */
REWEIGHT_API int reweight_gdpo(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                               const reweight_gdpo_options *options, reweight_error *error);

/* ---- GPG ---- */

/* Sets advantages to each trajectory's reward less the mean of its group, larger where few
 * trajectories have a reward (group policy gradient, arXiv 2504.02546; verl,
 * compute_gpg_outcome_advantage):
 *
 *   A = alpha (r - mean_g)    alpha = S / max(1, trajectories with a reward other than 0)
 *
 * with S the trajectories of the batch. A group of one has mean 0; every trajectory counts,
 * in S and in its group, also one without response tokens. Masked tokens get 0. The loss of
 * GPG is the policy gradient, pg.
 *
 * advantages has one element per token, rewards and group_ids one per trajectory; advantages
 * may be any array of the batch that is one float32 per token: none is read. A wrong shape
 * or a reward that is not finite is an error, and advantages is not written. */
REWEIGHT_API int reweight_gpg_advantages(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                                         reweight_error *error);

/* ---- EMPG ---- */

typedef struct reweight_empg_options {
	double k; /* k: how fast the scale of a span's advantage falls with its entropy, 0 to 80; 0: it is 1 */
	double k_future; /* k': how fast the bonus falls with the next span's entropy, 0 to 80; 0: not at all */
	double zeta; /* of the bonus, at least 0; 0: there is none */
} reweight_empg_options;

#define REWEIGHT_DEFAULT_EMPG {1, 1, 0.05}

/* Sets advantages from batch->advantages and the entropies of spans (arXiv 2509.09265). With
 * Hbar_s the mean of entropy over the response tokens of span s, and minimum, maximum and
 * means over the N spans of the batch:
 *
 *   x_s = (Hbar_s - min) / (max - min + 1e-8)
 *   g_s = exp(-k x_s) / (mean exp(-k x) + 1e-8)    f_s = exp(-k_future x_s)
 *   M_t = batch->advantages[t] g_s(t) + zeta f_next(s)
 *   A_t = M_t - mean_s mean_{t in s} M_t
 *
 * where next(s) is the next span of the same trajectory; the last one has no bonus. Where
 * all Hbar are equal, x is 0. The means are in float64, because the width that x is divided
 * by may be small. One span alone gives advantages of 0, to rounding. Masked tokens get 0.
 * batch->advantages is usually what GRPO makes; where it varies within a span, the span's
 * mean counts in the last line.
 *
 * advantages, role, span_ids, batch->advantages and entropy (in nats) have one element per
 * token, at most 2^31 - 1, and seq_offsets must be set. advantages may be batch->advantages
 * or entropy. A span needs at least one response token. Wrong shapes, spans or options, or
 * an entropy or an advantage of a response token that is not finite, is an error, and
 * advantages is not written. */
REWEIGHT_API int reweight_empg(const reweight_workspace *ws, float *advantages, const reweight_batch *batch,
                               const reweight_empg_options *options, reweight_error *error);

/* ---- EntropyMask ---- */

typedef struct reweight_entropy_mask_options {
	double rho; /* share of response tokens to keep, in (0, 1] */
} reweight_entropy_mask_options;

#define REWEIGHT_DEFAULT_ENTROPY_MASK {0.2}

/* Sets mask to 1 at the response tokens with the highest entropies, to 0 elsewhere (arXiv
 * 2506.01939). Of the n response tokens of the batch,
 *
 *   K = min(n, max(1, floor(rho n + 0.9999)))    threshold = the K-th largest entropy
 *   mask_t = 1 where entropy[t] >= threshold
 *
 * All tokens at the threshold are kept, so that their order does not matter. The mask is
 * meant for the weights of Loss: it leaves numerator and denominator of its means. As a
 * factor of the advantage it leaves only the numerator.
 *
 * mask, role and entropy have one element per token; mask may be entropy. A wrong shape, a
 * rho out of range, or an entropy of a response token that is not finite, is an error, and
 * mask is not written. */
REWEIGHT_API int reweight_entropy_mask(const reweight_workspace *ws, float *mask, const reweight_batch *batch,
                                       const reweight_entropy_mask_options *options, reweight_error *error);

/* ---- ClipB ---- */

typedef struct reweight_clip_b_options {
	double mu; /* standard deviations below the mean from which on tokens are left out, above 0 */
} reweight_clip_b_options;

#define REWEIGHT_DEFAULT_CLIP_B {2.5}

/* Sets weights[t] to 0 at the response tokens with A_t < 0 at which a step would change the
 * entropy of the policy by far more than at others, and to 1 at the rest (arXiv 2602.03392;
 * Trinity-RFT, ClipBAdvantageFn):
 *
 *   S_t = p_t (entropy[t] + log p_t)    log p_t = old_logprobs[t]
 *   w_t = 0 where A_t < 0 and S_t - mean < -mu std, else 1
 *
 * with the mean and the standard deviation (n) of S over the n response tokens of the batch.
 * S is below 0 at tokens that are less likely than the entropy lets expect: to make them
 * less likely still sharpens the policy. A standard deviation below 1e-12 leaves out
 * nothing. Masked tokens get 0.
 *
 * weights, role, old_logprobs, entropy and advantages have one element per token; weights
 * may be any of those three float arrays. A wrong shape or option, or a value of a response
 * token that is not finite, is an error, and weights is not written. */
REWEIGHT_API int reweight_clip_b(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                                 const reweight_clip_b_options *options, reweight_error *error);

/* ---- ClipV ---- */

typedef struct reweight_clip_v_options {
	double mu; /* standard deviations from which on a token may be left out, above 0 */
	double max_share; /* share of the response tokens that are left out at most, in (0, 1] */
} reweight_clip_v_options;

#define REWEIGHT_DEFAULT_CLIP_V {8.5, 0.0001}

/* Sets weights[t] to 0 at the response tokens with A_t < 0 at which a step would lower the
 * entropy of the policy most, by what it does to the whole vocabulary, and to 1 at the rest
 * (arXiv 2602.03392; Trinity-RFT, ClipVAdvantageFn):
 *
 *   D_t = entropy_drop[t] - p_t (entropy[t] + log p_t)    log p_t = old_logprobs[t]
 *   w_t = 0 where A_t < 0 and D_t > mu std, else 1
 *
 * with the standard deviation (n) of D over the n response tokens of the batch. Of these
 * tokens at most max(1, floor(max_share n)) have 0: those of the largest D, of equal ones
 * the first. A standard deviation below 1e-12 leaves out nothing. Masked tokens get 0.
 * Trinity-RFT leaves out tokens with A_t = 0 beyond the bound, too.
 *
 * entropy_drop[t] is the mean of p (entropy[t] + log p) over what the old policy could have
 * sampled in the place of token t: the sum of p^2 (entropy[t] + log p) over the vocabulary.
 *
 * weights, role, old_logprobs, entropy, entropy_drop and advantages have one element per
 * token; weights may be any of those four float arrays. A wrong shape or option, or a value
 * of a response token that is not finite, is an error, and weights is not written. */
REWEIGHT_API int reweight_clip_v(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                                 const reweight_clip_v_options *options, reweight_error *error);

/* ---- RolloutCorrection ---- */

typedef enum reweight_level {
	REWEIGHT_LEVEL_TOKEN = 0,
	REWEIGHT_LEVEL_SEQUENCE = 1,
	REWEIGHT_LEVEL_GEOMETRIC = 2,
} reweight_level;

typedef struct reweight_rollout_correction_options {
	int32_t level; /* a reweight_level */
	int32_t mask; /* a ratio outside [low, high] becomes 0 (IcePop); false: the nearer bound (TIS) */
	double low; /* 0 <= low <= high; low finite, 0 for no lower bound; high above 0, +Inf for no upper bound */
	double high; /* 0 <= low <= high; low finite, 0 for no lower bound; high above 0, +Inf for no upper bound */
	int32_t normalize; /* divide by the mean of the factors */
} reweight_rollout_correction_options;

#define REWEIGHT_DEFAULT_ROLLOUT_CORRECTION {REWEIGHT_LEVEL_TOKEN, 0, 0, 2, 0}

/* Sets factors that the advantages are to be multiplied by, because the engine that sampled
 * is not quite the old policy: truncated importance sampling (TIS) or masked (IcePop), as
 * verl, TRL and OpenRLHF have them. With z_t = old_logprobs - rollout_logprobs, x the
 * level's exponent (z_t, its sum over the trajectory or its mean) and u = e^x, x kept
 * between -20 and 20:
 *
 *   truncate: c = u kept between low and high
 *   mask:     c = u where low <= u <= high, else 0
 *   normalize: c / mean c, if that mean is above 1e-8
 *
 * The mean is over response tokens, for the levels of trajectories over those that have any.
 * The factor of masked tokens is 1. As a factor of the advantage it scales the loss and
 * leaves its denominators.
 *
 * factors, role, old_logprobs and rollout_logprobs have one element per token, and
 * seq_offsets must be set; factors may be old_logprobs or rollout_logprobs. A wrong shape or
 * option, or a log-probability of a response token that is not finite, is an error, and
 * factors is not written. */
REWEIGHT_API int reweight_rollout_correction(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                                             const reweight_rollout_correction_options *options, reweight_error *error);

/* ---- Reject ---- */

typedef enum reweight_statistic {
	REWEIGHT_STATISTIC_TOKEN_K1 = 0,
	REWEIGHT_STATISTIC_TOKEN_K2 = 1,
	REWEIGHT_STATISTIC_TOKEN_K3 = 2,
	REWEIGHT_STATISTIC_SEQ_SUM_K1 = 3,
	REWEIGHT_STATISTIC_SEQ_SUM_K2 = 4,
	REWEIGHT_STATISTIC_SEQ_SUM_K3 = 5,
	REWEIGHT_STATISTIC_SEQ_MEAN_K1 = 6,
	REWEIGHT_STATISTIC_SEQ_MEAN_K2 = 7,
	REWEIGHT_STATISTIC_SEQ_MEAN_K3 = 8,
	REWEIGHT_STATISTIC_SEQ_MAX_K2 = 9,
	REWEIGHT_STATISTIC_SEQ_MAX_K3 = 10,
} reweight_statistic;

typedef struct reweight_reject_options {
	int32_t statistic; /* a reweight_statistic */
	double low; /* k1: the least e^statistic that is kept, above 0; k2 and k3 do not read it */
	double high; /* k1: the largest e^statistic, at least low; k2, k3: the largest statistic; +Inf: no bound */
} reweight_reject_options;

#define REWEIGHT_DEFAULT_REJECT {REWEIGHT_STATISTIC_TOKEN_K1, 0.5, 2}

/* Sets weights to 1 at the response tokens that are kept, to 0 elsewhere: those where the
 * engine that sampled is too far from the old policy leave numerator and denominator of the
 * loss (verl's rollout rejection). With v the statistic of the token or of its trajectory,
 * and z kept between -20 and 20 in it, a token is kept if
 *
 *   k1:     log low <= v <= log high
 *   k2, k3: v <= high
 *
 * To ask for several, multiply their weights.
 *
 * weights, role, old_logprobs and rollout_logprobs have one element per token, and
 * seq_offsets must be set; weights may be old_logprobs or rollout_logprobs. A wrong shape or
 * option, or a log-probability of a response token that is not finite, is an error, and
 * weights is not written. */
REWEIGHT_API int reweight_reject(const reweight_workspace *ws, float *weights, const reweight_batch *batch,
                                 const reweight_reject_options *options, reweight_error *error);

/* ---- OffPolicyMask ---- */

typedef struct reweight_off_policy_mask_options {
	double delta; /* nats, finite; there is no default */
} reweight_off_policy_mask_options;

/* Sets factors of the advantages to 0 at the tokens whose advantage is negative and whose
 * trajectory the policy has left, to 1 elsewhere (DeepSeek-V3.2; TRL and slime have it too):
 *
 *   0 where advantages[t] < 0 and mean over the trajectory of old_logprobs - logprobs > delta
 *
 * with the mean over response tokens, in nats. The sources have no default for delta.
 *
 * factors, role, advantages, old_logprobs and logprobs have one element per token, and
 * seq_offsets must be set; factors may be any of the three float arrays. A wrong shape, a
 * delta that is not finite, or a value of a response token that is not finite, is an error,
 * and factors is not written. */
REWEIGHT_API int reweight_off_policy_mask(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                                          const reweight_off_policy_mask_options *options, reweight_error *error);

/* ---- FIPO ---- */

typedef struct reweight_fipo_options {
	double half_life; /* tokens after which a later token counts half, above 0 */
	double filter; /* a ratio above this does not count for the tokens before it, above 0; infinite: all count */
	double clip; /* factors are at most 1 + clip; above 0 */
	int32_t high_only; /* factors are at least 1, and not 1 - clip */
	double safety; /* a ratio above which a token with A < 0 has a factor from 0.8 to 1, above 0; infinite: none */
} reweight_fipo_options;

#define REWEIGHT_DEFAULT_FIPO {32, 10, 0.2, 1, 4}

/* Sets factors[t] by what the policy has done to the tokens after t since the rollout: above
 * 1 where they have become likelier (future-KL influenced policy optimization, arXiv
 * 2603.19835). With d_t = logprobs[t] - old_logprobs[t], which is 0 at masked tokens and
 * where e^d_t is above filter, backwards from the trajectory's last response token,
 *
 *   K_t = d_t + 2^(-1/half_life) K_t+1    f_t = clamp(e^K_t, 1, 1 + clip)
 *
 * or clamp(e^K_t, 1 - clip, 1 + clip) without high_only. Where A_t < 0 and e^d_t is above
 * safety, f_t is then clamped to [0.8, 1]. Masked tokens count as distance, as every other
 * position. K is in float64, and its exponential is taken of -20 to 20. Masked tokens get 1.
 *
 * The factors multiply the advantages before the loss, to whose derivative they are
 * constants. They follow the current policy: compute them for every minibatch. On the first
 * pass over a rollout logprobs are old_logprobs, and all factors are 1.
 *
 * factors, role, logprobs, old_logprobs and advantages have one element per token, and
 * seq_offsets must be set; factors may be any of those three float arrays. A wrong shape or
 * option, or a value of a response token that is not finite, is an error, and factors is not
 * written. */
REWEIGHT_API int reweight_fipo(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                               const reweight_fipo_options *options, reweight_error *error);

/* ---- RLSD ---- */

typedef struct reweight_rlsd_options {
	double lambda; /* how much of the factor is the teacher's, above 0 and at most 1 */
	double clip; /* the teacher's part is from 1 - clip to 1 + clip; in (0, 1] */
	int32_t negative_only; /* where A > 0, the factor is 1 */
} reweight_rlsd_options;

#define REWEIGHT_DEFAULT_RLSD {0.5, 0.2, 0}

/* Sets factors[t] by what a teacher thinks of token t, that is, the same model with the
 * answer in its prompt: above 1 where the teacher agrees with the sign of the advantage
 * (self-distilled RLVR, arXiv 2604.03128):
 *
 *   w_t = e^(sgn(A_t) (teacher_logprobs[t] - old_logprobs[t]))
 *   f_t = (1 - lambda) + lambda clamp(w_t, 1 - clip, 1 + clip)
 *
 * The factors are constants to the derivative of the loss, and at least 0. A trajectory
 * whose teacher_logprobs are NaN at every response token has no teacher: its factors are 1.
 * Masked tokens get 1.
 *
 * factors, role, old_logprobs, advantages and teacher_logprobs have one element per token,
 * and seq_offsets must be set; factors may be any of those three float arrays. A wrong shape
 * or option, or another value of a response token that is not finite, is an error, and
 * factors is not written. */
REWEIGHT_API int reweight_rlsd(const reweight_workspace *ws, float *factors, const reweight_batch *batch,
                               const reweight_rlsd_options *options, reweight_error *error);
/* end of generated schemes */

/* ---- The kernels one by one, for callers who compose their own step ---- */

typedef struct reweight_moments {
	int64_t n;
	double sum, squares; /* of x - shift and (x - shift)^2 */
} reweight_moments;

/* Sums x - shift and its square over the tokens whose role r has bit r set in roles. x and
 * role are [n]; shift is finite. */
REWEIGHT_API int reweight_masked_moments(const reweight_workspace *ws, reweight_moments *result, const float *x,
                                         const uint8_t *role, int64_t n, uint32_t roles, double shift,
                                         reweight_error *error);

/* Sets dst[t] as reweight_actfocus does, with the given mean and sigma of the signal; sigma
 * is at least 0, and 0 makes every sigmoid 1/2. All are [n]; dst may be signal. */
REWEIGHT_API int reweight_actfocus_weights(const reweight_workspace *ws, float *dst, const float *signal,
                                           const uint8_t *role, int64_t n, double mean, double sigma,
                                           const reweight_actfocus_options *options, reweight_error *error);

/* Sets dst[s] to the mean of x over the elements from offsets[s] to before offsets[s+1], NaN
 * for an empty span. dst is [spans], offsets [spans+1], x [n]. */
REWEIGHT_API int reweight_span_means(const reweight_workspace *ws, float *dst, int64_t spans, const float *x, int64_t n,
                                     const int32_t *offsets, reweight_error *error);

/* Sets lo[g] and hi[g] to the extremes of x over the elements from offsets[g] to before
 * offsets[g+1]: both NaN if one is NaN, +inf and -inf for an empty group. lo and hi are
 * [groups], offsets [groups+1], x [n]. */
REWEIGHT_API int reweight_min_max(const reweight_workspace *ws, float *lo, float *hi, int64_t groups, const float *x,
                                  int64_t n, const int32_t *offsets, reweight_error *error);

/* Sets dst[i] = exp(-rate (x[i] - lo)), with the exponent kept between -86 and 83, and
 * divides by the mean of these. dst and x are [n], n at least 1; rate is at least 0, and
 * lo is finite. dst may be x. */
REWEIGHT_API int reweight_exp_scale(const reweight_workspace *ws, float *dst, const float *x, int64_t n, float lo,
                                    double rate, reweight_error *error);

/* Sets dst[i] = a[i] * b[i]. All are [n]; dst may be a or b. */
REWEIGHT_API int reweight_multiply(const reweight_workspace *ws, float *dst, const float *a, const float *b, int64_t n,
                                   reweight_error *error);

typedef struct reweight_surrogate_sums {
	int64_t tokens;
	int64_t clipped;  /* those that count as clipped */
	double loss;      /* of weight times loss */
	double log_ratio; /* of the clamped log-ratio */
} reweight_surrogate_sums;

/* Computes the weighted loss of each response token as the policy defines it, its sums, and
 * grad[t] = scale * dl_t/dlogprobs[t] * weight; the aggregation and the KL are not used. All
 * tokens are one trajectory, and there are no spans: a sequence of SPAN is an error for GSPO
 * and GRPO_S. weights NULL stands for ones. All are [n]; grad may be any of the float arrays.
 * With another policy than PPO a value of a response token that is not finite is an error.
 * CLIP_COV and KL_COV choose among these tokens, and need scratch. */
REWEIGHT_API int reweight_surrogate(const reweight_workspace *ws, reweight_surrogate_sums *result, float *grad,
                                    const float *logprobs, const float *old_logprobs, const float *advantages,
                                    const float *weights, const uint8_t *role, int64_t n, double scale,
                                    const reweight_loss_options *options, reweight_error *error);

#ifdef __cplusplus
}
#endif

#endif
