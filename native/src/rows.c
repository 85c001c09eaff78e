/* Rows of logits: which implementation of a kernel runs, and how the rows of a call are
 * shared among threads. */
#define _POSIX_C_SOURCE 200809L /* signal.h and pthread.h have pthread_sigmask */

#include <pthread.h>
#include <signal.h>

#include "internal.h"
#include "math.h"

/* ---- Kernels ---- */

#ifdef ASSEMBLY
DECLARE(blockMax);
DECLARE(rowBlocks);
DECLARE(rowGradient);

/* Puts what the assembly wants of elements i to n of x into the first four words of its
 * frame: where they begin, their dtype, the number of whole chunks of 16, and tail, which
 * then holds what is left as float32, padded with -Inf; 0 if nothing is left. */
static void set_chunks(uint64_t *frame, const row *x, int64_t i, int64_t n, float tail[LANES]) {
	int64_t whole = (n - i) / LANES;
	frame[0] = word(x->data + i * rw_size_of(x->dtype));
	frame[1] = (uint64_t)x->dtype;
	frame[2] = (uint64_t)whole;
	frame[3] = 0;
	if ((n - i) % LANES != 0) {
		rw_load16(tail, x, i + whole * LANES, n);
		frame[3] = word(tail);
	}
}
#endif

float rw_block_max(int32_t isa, const row *x, int64_t i, int64_t n) {
#ifdef ASSEMBLY
	if (isa != REWEIGHT_PORTABLE) {
		float tail[LANES];
		uint64_t frame[5];
		set_chunks(frame, x, i, n, tail);
		rw_call(ASSEMBLY(blockMax), frame, 5);
		return float32_of((uint32_t)frame[4]);
	}
#endif
	(void)isa;
	return rw_block_max_portable(x, i, n);
}

int64_t rw_row_blocks(int32_t isa, const row *x, int64_t i, int64_t n, row_state *st, row_want want) {
#ifdef ASSEMBLY
	if (isa != REWEIGHT_PORTABLE) {
		float tail[LANES];
		uint64_t frame[7];
		set_chunks(frame, x, i, n, tail);
		frame[4] = word(st);
		frame[5] = want;
		rw_call(ASSEMBLY(rowBlocks), frame, 7);
		int64_t stop = (int64_t)frame[6]; /* a chunk, or -1 */
		return stop < 0 ? n : i + stop * LANES;
	}
#endif
	(void)isa;
	return rw_row_blocks_portable(x, i, n, st, want);
}

void rw_row_gradient(int32_t isa, const row *dst, const row *x, const grad_consts *q) {
	row d = *dst, rest = *x;
#ifdef ASSEMBLY
	int64_t whole = x->n / LANES;
	if (isa != REWEIGHT_PORTABLE && whole > 0) {
		uint64_t frame[5] = {word(d.data), word(rest.data), (uint64_t)x->dtype, (uint64_t)whole, word(q)};
		rw_call(ASSEMBLY(rowGradient), frame, 5);
		int64_t bytes = whole * LANES * rw_size_of(x->dtype);
		d.data += bytes;
		rest.data += bytes;
		rest.n -= whole * LANES;
	}
#endif
	(void)isa;
	rw_row_gradient_portable(&d, &rest, q);
}

/* ---- Arguments ---- */

static int64_t stride_of(const reweight_rows *m) { return m->stride != 0 ? m->stride : m->vocab; }

row rw_row(const reweight_rows *m, int64_t r) {
	row x = {(char *)m->data + r * stride_of(m) * rw_size_of(m->dtype), m->vocab, m->dtype};
	return x;
}

int64_t rw_id(const reweight_ids *ids, int64_t r) {
	return ids->wide ? load_i64((const char *)ids->data + 8 * r) : load_i32((const char *)ids->data + 4 * r);
}

int rw_check_workers(const reweight_workspace *ws, reweight_error *error) {
	if (ws->workers < 0) return BAD(error, COUNT_NOT_NEGATIVE, REWEIGHT_ARG_WORKERS, -1, ws->workers);
	return REWEIGHT_OK;
}

int rw_check_rows(int32_t argument, const reweight_rows *m, reweight_error *error) {
	if (m->vocab < 1) return BAD(error, NO_VOCAB, argument, -1, m->vocab);
	if (m->vocab > INT32_MAX)
		return BAD(error, VOCAB_SIZE, argument, -1, m->vocab, INT32_MAX);
	if (m->rows < 0) return BAD(error, ROW_COUNT, argument, -1, m->rows);
	if (stride_of(m) < m->vocab)
		return BAD(error, STRIDE, argument, -1, m->stride, m->vocab);
	if (m->rows > 1 && m->rows > MAX_COUNT / stride_of(m))
		return BAD(error, ROWS_SIZE, argument, -1, m->rows, stride_of(m));
	if (m->dtype < REWEIGHT_F32 || m->dtype > REWEIGHT_F16)
		return BAD(error, DTYPE, argument, -1, m->dtype, REWEIGHT_F16, 7);
	if (m->data == NULL && m->rows > 0)
		return BAD(error, ROWS_MISSING, argument, -1, m->rows, m->vocab);
	return REWEIGHT_OK;
}

int rw_check_row_array(int32_t argument, const void *array, int64_t rows, reweight_error *error) {
	if (array == NULL && rows > 0)
		return BAD(error, PER_ROW_MISSING, argument, -1, rows);
	return REWEIGHT_OK;
}

int rw_check_ids(const reweight_ids *ids, int64_t rows, int64_t lowest, int64_t vocab, reweight_error *error) {
	int bad = rw_check_row_array(REWEIGHT_ARG_IDS, ids == NULL ? NULL : ids->data, rows, error);
	if (bad) return bad;
	for (int64_t r = 0; r < rows; r++) {
		int64_t id = rw_id(ids, r);
		if (id >= lowest && id < vocab) continue;
		if (lowest < 0) return BAD(error, ID_OR_NONE, REWEIGHT_ARG_IDS, r, id, vocab - 1, vocab);
		return BAD(error, ID, REWEIGHT_ARG_IDS, r, id, vocab - 1, vocab);
	}
	return REWEIGHT_OK;
}

int rw_check_temperature(int32_t argument, double temperature, reweight_error *error) {
	return rw_check_range(argument, temperature, 1e-30, 1e30, error);
}

/* ---- Threads ---- */

enum {
	STACK_SIZE = 256 << 10, /* bytes */
	MOST_WORKERS = 512,
	SHARE = 64 * BLOCK_SIZE, /* logits that are worth a thread: to start and to join it takes 10 to 100 us */
};

/* The call at hand for its workers. */
typedef struct crew {
	void (*do_row)(const void *call, int64_t r);
	const void *call;
	int64_t rows;
	int64_t take; /* rows that a worker takes at a time */
	int64_t next; /* the first row that no worker has taken */
} crew;

/* Does rows until none is left. */
static void *take_rows(void *c) {
	crew *k = c;
	for (;;) {
		int64_t r = __atomic_fetch_add(&k->next, k->take, __ATOMIC_RELAXED);
		if (r >= k->rows) return NULL;
		for (int64_t end = min_i64(r + k->take, k->rows); r < end; r++) k->do_row(k->call, r);
	}
}

/* Starts up to n threads that take rows, and returns how many there are. They are born
 * with every signal blocked but those that a fault of their own raises, so that the
 * program's handlers run in its own threads. Bit s-1 of a mask stands for signal s, and
 * 32 to 34 are the C library's. */
static int64_t start(pthread_t *threads, int64_t n, crew *k) {
	pthread_attr_t attributes;
	if (pthread_attr_init(&attributes) != 0) return 0;
	pthread_attr_setstacksize(&attributes, STACK_SIZE);
	static const uint64_t keep = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) |
	                             1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1) | 7ull << 31;
	const uint64_t most = ~keep;
	sigset_t blocked, before;
	for (size_t i = 0; i < sizeof blocked; i++) ((volatile char *)&blocked)[i] = 0;
	memcpy(&blocked, &most, sizeof most);
	int masked = pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0;
	int64_t started = 0;
	while (started < n && pthread_create(&threads[started], &attributes, take_rows, k) == 0) started++;
	if (masked) pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

/* The task of a thread that was there before the call. */
static void task(void *c) {
	USUAL_ARITHMETIC;
	take_rows(c);
}

/* Does the rows in n threads, the caller's among them, or in as many as start. The
 * caller's is not cancelled before these have ended, because they use its stack. Of other
 * threads all are asked for: OpenMP ends those that a call leaves out. */
static void share_rows(const reweight_workspace *ws, int64_t n, crew *k) {
	pthread_t threads[MOST_WORKERS - 1];
	int cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (ws->parallel) {
		ws->parallel(task, k, (unsigned)min_i64(ws->workers, MOST_WORKERS), 0);
	} else {
		int64_t started = start(threads, n - 1, k);
		take_rows(k);
		while (started > 0) pthread_join(threads[--started], NULL);
	}
	pthread_setcancelstate(cancel, &cancel);
}

void rw_run_rows(const reweight_workspace *ws, int64_t rows, int64_t vocab, void (*do_row)(const void *call, int64_t r),
                 const void *call) {
	int64_t n = min_i64(ws->workers, min_i64(rows, MOST_WORKERS));
	n = max_i64(1, min_i64(n, rows * vocab / SHARE));
	/* Enough logits at a time to hide the counter, few enough to share well. */
	int64_t take = max_i64(1, min_i64(PIECE_SIZE / vocab, rows / (4 * n)));
	n = min_i64(n, (rows + take - 1) / take);
	crew k = {do_row, call, rows, take, 0};
	if (n > 1) {
		share_rows(ws, n, &k);
	} else {
		take_rows(&k);
	}
}
