/* The gradient of the loss with respect to each logit, as in rowgradient.go. */
#include "internal.h"
#include "math.h"

/* The log-probability from which on down float32 is too coarse to give back the logsumexp:
 * the row is summed again. */
#define FAR_LOGPROB -64

/* One call of reweight_row_gradient. */
typedef struct gradient_call {
	int32_t isa;
	const reweight_rows *dst, *logits;
	const reweight_ids *ids;
	const float *logprobs, *entropy, *grad, *grad_entropy, *lse;
	double tau, bonus;
} gradient_call;

/* What a row's gradient is made of. */
typedef struct gradient_terms {
	double own;   /* tau times the chosen id's */
	double scale; /* of the other ids; 0 if the row is too large for log2 units in float32 */
	grad_consts others;
} gradient_terms;

/* Returns what the gradient of the row x is made of. l is the log-probability of its id, lse
 * its logsumexp or NaN if that is not given, h its entropy, g = dL/dl and c the weight of the
 * entropy. */
static gradient_terms terms_of(int32_t isa, const row *x, double tau, int64_t id, double l, double lse, double h, double g,
                               double c) {
	gradient_terms t = {0, 0, {LOG2E_32, 0, 0, 0, 0}};
	grad_consts *q = &t.others;
	if (tau != 1) q->k = rw_split_scale(tau, &q->k_lo);
	double k = (double)q->k + (double)q->k_lo;
	double lse2; /* the row's logsumexp in log2 units: log2 p_v = x_v k - lse2 */
	if (lse == lse) {
		lse2 = lse * tau * k; /* as a logit of that value with the log-probability 0 would give it */
	} else if (l > FAR_LOGPROB) {
		lse2 = (double)rw_at(x, id) * k - l * LOG2E;
	} else {
		row_sums s = rw_sum_row(isa, x, tau, WANT_SUM);
		l = rw_logprob(&s, rw_at(x, id), tau);
		lse2 = s.ref * k + s.log_s * LOG2E;
	}
	double py = exp64(l);
	t.own = g * (1 - py);
	if (l > -0.5) t.own = -(g * (k3(l) + l)); /* 1 - p_y without cancellation */
	if (py > 0) t.own += c * (py * (l + h));
	q->c = (float)lse2;
	if (!(q->c > -MAX_MAGNITUDE_Y && q->c < MAX_MAGNITUDE_Y) || tau < SLOW_TAU_MIN || tau > SLOW_TAU_MAX) return t;
	double rest = (double)q->c - lse2;
	t.scale = exp64(rest * LN2) / tau;
	q->a = (float)((c * t.scale) * LN2);
	q->b = (float)(t.scale * (c * (h + rest * LN2) - g));
	return t;
}

/* Does rows too large for log2 units in float32. */
static void gradient_row_slow(const row *dst, const row *x, double tau, double lse, double h, double g, double c) {
	row_sums s = {.log_s = lse};
	if (lse != lse) s = rw_sum_row_slow(x, tau);
	for (int64_t v = 0; v < x->n; v++) {
		double l = ((double)rw_at(x, v) - s.ref) / tau - s.log_s, d = 0;
		double p = exp64(l);
		if (p > 0) d = p * (c * (l + h) - g) / tau;
		rw_set(dst, v, (float)d);
	}
}

/* Sets every element to 0. The compiler is not told that these are zeros: it would call
 * memset. */
static void clear_row(const row *dst) {
	static const char zeros[64];
	const char *from = zeros;
	__asm__("" : "+r"(from));
	int64_t size = dst->n * rw_size_of(dst->dtype), i = 0;
	for (; i + 64 <= size; i += 64) memcpy(dst->data + i, from, 64);
	for (; i < size; i += 2) memcpy(dst->data + i, from, 2);
}

/* Writes the gradient of row r. */
static void gradient_row(const void *call, int64_t r) {
	const gradient_call *k = call;
	row dst = rw_row(k->dst, r), x = rw_row(k->logits, r);
	double g = (double)load_float(k->grad + r), c = k->bonus, h = 0;
	if (k->grad_entropy) c -= (double)load_float(k->grad_entropy + r);
	if (g == 0 && c == 0) {
		clear_row(&dst);
		return;
	}
	int64_t id = rw_id(k->ids, r);
	double l = (double)load_float(k->logprobs + r), lse = k->lse ? (double)load_float(k->lse + r) : (double)NAN_32;
	if (l != l || (k->lse && lse - lse != 0)) {
		for (int64_t v = 0; v < dst.n; v++) rw_set(&dst, v, NAN_32);
		return;
	}
	if (c != 0) h = (double)load_float(k->entropy + r);
	gradient_terms t = terms_of(k->isa, &x, k->tau, id, l, lse, h, g, c);
	if (t.scale == 0) {
		gradient_row_slow(&dst, &x, k->tau, lse, h, g, c);
	} else {
		rw_row_gradient(k->isa, &dst, &x, &t.others);
	}
	if (id >= 0) rw_set(&dst, id, (float)(t.own / k->tau));
}

/* Wants dst to be rows like the logits, in memory of their own or in the same places. */
static int check_dst(const reweight_rows *dst, const reweight_rows *logits, reweight_error *error) {
	int bad = rw_check_rows(REWEIGHT_ARG_DST, dst, error);
	if (bad) return bad;
	if (dst->rows != logits->rows)
		return BAD(error, OTHER_ROWS, REWEIGHT_ARG_DST, -1, dst->rows, dst->vocab, logits->rows);
	if (dst->vocab != logits->vocab)
		return BAD(error, OTHER_VOCAB, REWEIGHT_ARG_DST, -1, dst->vocab, logits->vocab);
	if (logits->dtype == REWEIGHT_F16) return BAD(error, FLOAT16, REWEIGHT_ARG_LOGITS, -1);
	if (dst->dtype != logits->dtype)
		return BAD(error, OTHER_DTYPE, REWEIGHT_ARG_DST, -1, dst->dtype, logits->dtype);
	if (dst->rows > 1 && dst->data == logits->data && rw_row(dst, 1).data != rw_row(logits, 1).data)
		return BAD(error, OTHER_STRIDE, REWEIGHT_ARG_DST, -1);
	return REWEIGHT_OK;
}

int reweight_row_gradient(const reweight_workspace *ws, const reweight_rows *dst, const reweight_rows *logits,
                          const reweight_ids *ids, const float *logprobs, const float *entropy, const float *grad,
                          const float *grad_entropy, const float *lse,
                          const reweight_row_gradient_options *options, reweight_error *error) {
	USUAL_ARITHMETIC;
	int32_t isa;
	int bad = rw_resolve(ws, &isa, error);
	if (!bad) bad = rw_check_workers(ws, error);
	if (!bad) bad = rw_check_rows(REWEIGHT_ARG_LOGITS, logits, error);
	if (!bad) bad = check_dst(dst, logits, error);
	if (bad) return bad;
	int64_t rows = logits->rows;
	double bonus = options->entropy_bonus;
	if (!is_finite(bonus)) return BAD(error, FINITE, REWEIGHT_ARG_ENTROPY_BONUS, -1, bits64(bonus));
	bad = rw_check_row_array(REWEIGHT_ARG_IDS, ids ? ids->data : NULL, rows, error);
	if (!bad) bad = rw_check_row_array(REWEIGHT_ARG_LOGPROBS, logprobs, rows, error);
	if (!bad) bad = rw_check_row_array(REWEIGHT_ARG_GRAD, grad, rows, error);
	if (!bad) bad = rw_check_ids(ids, rows, lse ? -1 : 0, logits->vocab, error);
	if (!bad && (bonus != 0 || grad_entropy)) bad = rw_check_row_array(REWEIGHT_ARG_ENTROPY, entropy, rows, error);
	if (!bad) bad = rw_check_temperature(REWEIGHT_ARG_TEMPERATURE, options->temperature, error);
	if (bad) return bad;
	gradient_call c = {isa, dst, logits, ids, logprobs, entropy, grad, grad_entropy, lse, options->temperature, bonus};
	rw_run_rows(ws, rows, logits->vocab, gradient_row, &c);
	return REWEIGHT_OK;
}
