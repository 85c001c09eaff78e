/* GMPO of reweight_policy_loss: one ratio for each trajectory, the geometric mean of those of its
 * tokens, each of which is clipped (arXiv 2507.20673). */
#include "internal.h"
#include "math.h"

/* Sets *m to the log-ratio of token i as its advantage has it clamped, and returns whether it is
 * not. */
static int clamped_log_ratio(const loss_tokens *x, int64_t i, const reweight_loss_options *o, double *m) {
	double d = (double)x->logprobs[i] - (double)x->old[i];
	float a = x->advantages[i];
	*m = d;
	if (a == 0)
		*m = 0;
	else if (a > 0 && d > o->clip_high)
		*m = o->clip_high;
	else if (a < 0 && d < -o->clip_low)
		*m = -o->clip_low;
	else
		return 1;
	return 0;
}

/* The largest mean log-ratio that GMPO takes the exponential of. Where A < 0 nothing else bounds
 * it, and e to its power would be beyond float32 from 89 on. */
#define MAX_GMPO_LOG_RATIO 20

void rw_geometric_mean(const loss_tokens *x, int64_t n, double scale, const reweight_loss_options *o,
                       surrogate_sums *sums) {
	double m[LANES] = {0}, advantages[LANES] = {0}, c, log_ratio;
	for (int64_t i = 0; i < n; i++) {
		if (x->role[i] == REWEIGHT_ROLE_MASKED) continue;
		sums->clipped += !clamped_log_ratio(x, i, o, &c) && x->advantages[i] != 0;
		m[i % LANES] += c;
		advantages[i % LANES] += (double)x->advantages[i];
	}
	int64_t responses = rw_sum_log_ratios(x->logprobs, x->old, x->role, n, 1, &log_ratio);
	sums->tokens += responses;
	sums->log_ratio.total[0] += log_ratio;
	double count = (double)responses + 1e-8, mean = tree(m) / count;
	int cut = mean > MAX_GMPO_LOG_RATIO;
	double loss = -tree(advantages) / count * exp64(cut ? MAX_GMPO_LOG_RATIO : mean);
	sums->loss.total[0] += loss;
	float slope = cut ? 0 : (float)(loss / count * scale);
	for (int64_t i = 0; i < n; i++)
		x->grad[i] = x->role[i] != REWEIGHT_ROLE_MASKED && clamped_log_ratio(x, i, o, &c) ? slope : 0;
}
