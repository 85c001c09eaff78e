/* Token statistics: one pass over a row of logits, as in tokenstats.go. */
#include "internal.h"
#include "math.h"

enum {
	ALARM = 128,  /* on amd64, a block's lane sum above it may hide an element above 2^HEADROOM */
	HEADROOM = 8, /* a block may exceed the reference by 2^8 before the sums are rescaled */
};

float rw_split_scale(double tau, float *lo) {
	double exact = LOG2E / tau;
	float k = (float)exact;
	if ((double)k >= exact) k = float32_of(bits32(k) - 1); /* the float32 below */
	*lo = (float)(exact - (double)k);
	return k;
}

/* Takes m, the largest element of a block, as the reference, and returns whether it is
 * finite and small enough for float32 log2 units. */
static int set_reference(row_state *st, float m) {
	st->c = m * st->k;
	st->threshold = (st->c + HEADROOM) / st->k;
	return st->c > -MAX_MAGNITUDE_Y && st->c < MAX_MAGNITUDE_Y;
}

/* Moves the sums of the lanes to *S, *T and *Q. */
static void take_sums(row_state *st, double *S, double *T, double *Q) {
	*S += tree(st->s);
	*T += tree(st->t);
	*Q += tree(st->q);
	for (int j = 0; j < LANES; j++) st->s[j] = st->t[j] = st->q[j] = 0;
}

row_sums rw_sum_row_slow(const row *x, double tau) {
	float m = -INF_32;
	for (int64_t i = 0; i < x->n; i++) {
		float v = rw_at(x, i);
		if (v != v) return (row_sums){NAN_64, NAN_64, NAN_64, NAN_64};
		if (v > m) m = v;
	}
	if (!is_finite(m)) return (row_sums){m, 0, NAN_64, NAN_64};
	/* In units of 1, not log2: these sums are few and exact enough as they are. */
	double S = 0, T = 0, Q = 0;
	for (int64_t i = 0; i < x->n; i++) {
		double z = ((double)rw_at(x, i) - (double)m) / tau;
		double p = exp64(z);
		if (p > 0) {
			S += p;
			T += z * p;
			Q += p * p;
		}
	}
	double log_s = log64(S);
	return (row_sums){m, log_s, log_s - T / S, 2 * log_s - log64(Q)};
}

/* The reference is the largest element of the first block that has a finite one, in log2
 * units, and is replaced only when a block exceeds it by 2^HEADROOM: most rows are read
 * once, with no rescaling. */
row_sums rw_sum_row(int32_t isa, const row *x, double tau, row_want want) {
	row_state st;
	double S = 0, T = 0, Q = 0;
	st.k = LOG2E_32;
	st.k_lo = 0;
	st.alarm = ALARM;
	for (int j = 0; j < LANES; j++) st.s[j] = st.t[j] = st.q[j] = 0;
	if (tau != 1) {
		if (tau < SLOW_TAU_MIN || tau > SLOW_TAU_MAX) return rw_sum_row_slow(x, tau);
		st.k = rw_split_scale(tau, &st.k_lo);
	}
	int64_t i = 0, n = x->n;
	float m = -INF_32;
	for (; i < n && m < -MAX_FLOAT; i += BLOCK_SIZE) /* blocks of -Inf add nothing */
		m = rw_block_max(isa, x, i, min_i64(i + BLOCK_SIZE, n));
	if (!set_reference(&st, m)) return rw_sum_row_slow(x, tau);
	i -= BLOCK_SIZE;
	while ((i = rw_row_blocks(isa, x, i, n, &st, want)) < n) {
		/* The block at i may exceed the reference: see how far. */
		int64_t end = min_i64(i + BLOCK_SIZE, n);
		m = rw_block_max(isa, x, i, end);
		if (m <= st.threshold) { /* a false alarm: add the block as it is */
			st.alarm = INF_32;
			i = rw_row_blocks(isa, x, i, end, &st, want);
			st.alarm = ALARM;
			if (i == n) break;
			continue;
		}
		float c = st.c;
		take_sums(&st, &S, &T, &Q);
		if (!set_reference(&st, m)) return rw_sum_row_slow(x, tau);
		/* Sum of (y + d) 2^(y + d), with d the step back to the new reference. */
		double d = (double)c - (double)st.c, scale = exp64(d * LN2);
		T = (T + d * S) * scale;
		S *= scale;
		Q *= scale * scale;
	}
	take_sums(&st, &S, &T, &Q);
	if (S - S != 0 || T - T != 0) return rw_sum_row_slow(x, tau); /* a NaN or +Inf past the first block shows in one of them */
	double log_s = log64(S), k = (double)st.k + (double)st.k_lo;
	double squares = want == WANT_SQUARES ? 2 * log_s - log64(Q) : 0;
	return (row_sums){(double)st.c / k, log_s, log_s - LN2 * (T / S), squares};
}

double rw_logprob(const row_sums *q, float x, double tau) {
	if (!is_finite(q->ref)) return NAN_64; /* all -Inf, or +Inf somewhere */
	double l = ((double)x - q->ref) / tau - q->log_s;
	return l > 0 ? 0 : l;
}

/* Keeps an entropy between 0 and most, where rounding errors may take it out, and sets one
 * below 2^-100 to 0: masked ids count as 2^MIN_Y and not as 0. */
static double bound_entropy(double h, double most) {
	if (h < 0x1p-100) return 0;
	return h > most ? most : h;
}

/* One call of reweight_token_stats. */
typedef struct stats_call {
	int32_t isa;
	const reweight_stats *dst;
	const reweight_rows *logits;
	const reweight_ids *ids;
	double tau;
	row_want want;    /* of the pass at tau */
	double log_vocab; /* the largest entropy */
} stats_call;

/* Writes the outputs of row r but its lse. */
static void write_row(const stats_call *c, int64_t r, const row *x, const row_sums *q) {
	if (c->dst->entropy) store_float(c->dst->entropy + r, (float)bound_entropy(q->entropy, c->log_vocab));
	if (c->dst->logprobs)
		store_float(c->dst->logprobs + r, (float)rw_logprob(q, rw_at(x, rw_id(c->ids, r)), c->tau));
	if (c->dst->log_sum_sq_probs)
		store_float(c->dst->log_sum_sq_probs + r, (float)(0 - bound_entropy(q->squares, c->log_vocab)));
}

/* Writes the statistics of row r. */
static void stats_row(const void *call, int64_t r) {
	const stats_call *c = call;
	row x = rw_row(c->logits, r);
	if (c->dst->lse) {
		row_sums q = rw_sum_row(c->isa, &x, 1, c->tau == 1 ? c->want : WANT_SUM);
		store_float(c->dst->lse + r, (float)(q.ref + q.log_s));
		if (c->tau == 1) {
			write_row(c, r, &x, &q);
			return;
		}
	}
	if (c->want != WANT_SUM || c->dst->logprobs) {
		row_sums q = rw_sum_row(c->isa, &x, c->tau, c->want);
		write_row(c, r, &x, &q);
	}
}

int reweight_token_stats(const reweight_workspace *ws, const reweight_stats *dst, const reweight_rows *logits,
                         const reweight_ids *ids, double temperature, reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	int bad = rw_resolve(ws, &isa, error);
	if (!bad) bad = rw_check_workers(ws, error);
	if (!bad) bad = rw_check_rows(REWEIGHT_ARG_LOGITS, logits, error);
	if (bad) return bad;
	if (!dst->lse && !dst->entropy && !dst->logprobs && !dst->log_sum_sq_probs)
		return BAD(error, NO_OUTPUT, REWEIGHT_ARG_DST, -1);
	if (dst->logprobs) bad = rw_check_ids(ids, logits->rows, 0, logits->vocab, error);
	if (!bad) bad = rw_check_temperature(REWEIGHT_ARG_TEMPERATURE, temperature, error);
	if (bad) return bad;
	row_want want = dst->log_sum_sq_probs ? WANT_SQUARES : dst->entropy ? WANT_ENTROPY : WANT_SUM;
	stats_call c = {isa, dst, logits, ids, temperature, want, log64((double)logits->vocab)};
	rw_run_rows(ws, logits->rows, logits->vocab, stats_row, &c);
	return REWEIGHT_OK;
}
