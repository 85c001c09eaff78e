/* Clip-Cov and KL-Cov of reweight_policy_loss: tokens whose advantage and log-probability have the
 * highest covariance are those that lower the entropy of the policy most (arXiv 2505.22617). */
#include "internal.h"
#include "math.h"
#include "policies.h"

uint64_t rw_ordered_bits(double x) {
	uint64_t b = bits64(x);
	return b >> 63 != 0 ? ~b : b | UINT64_C(1) << 63;
}

/* Returns number t, from 0 on, of the generator SplitMix64 whose state is seed. */
static uint64_t split_mix(uint64_t seed, int64_t t) {
	uint64_t z = seed + (uint64_t)(t + 1) * 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* Returns the k-th lowest key of the candidates, of which there are at least *k, and sets *k to
 * how many of the k lowest have this key. It finds the bits of the key from the top, 8 in each
 * pass. */
static uint64_t lowest(const uint64_t *keys, const float *chosen, int64_t n, int64_t *k) {
	uint64_t key = 0;
	for (int rest = 56; rest >= 0; rest -= 8) {
		int64_t count[256] = {0};
		for (int64_t t = 0; t < n; t++)
			if (chosen[t] == CANDIDATE && keys[t] >> rest >> 8 == key) count[keys[t] >> rest & 255]++;
		uint64_t at = 0;
		for (; count[at] < *k; at++) *k -= count[at];
		key = key << 8 | at;
	}
	return key;
}

void rw_choose_lowest(float *chosen, const uint64_t *keys, const uint8_t *role, int64_t tokens, double share, float here,
                      float others) {
	int64_t candidates = 0;
	for (int64_t t = 0; t < tokens; t++) candidates += chosen[t] == CANDIDATE;
	if (candidates == 0) return;
	int64_t k = min_i64(candidates, max_i64(1, (int64_t)(share * (double)rw_responses(role, tokens))));
	uint64_t last = lowest(keys, chosen, tokens, &k);
	for (int64_t t = 0; t < tokens; t++)
		if (chosen[t] == CANDIDATE) chosen[t] = keys[t] < last || (keys[t] == last && k-- > 0) ? here : others;
}

/* Whether the policy chooses tokens. */
static int by_covariance(const reweight_loss_options *o) {
	return rw_policies[o->policy].chooses;
}

int64_t rw_choose_scratch(int64_t tokens, const reweight_loss_options *o) {
	arena a = {NULL, 0};
	if (!by_covariance(o)) return 0;
	rw_take(&a, tokens, sizeof(uint64_t));
	rw_take(&a, tokens, sizeof(float));
	return a.used;
}

const float *rw_choose(arena *a, int32_t isa, const loss_tokens *x, int64_t n, const reweight_loss_options *o) {
	if (!by_covariance(o)) return NULL;
	uint64_t *keys = rw_take(a, n, sizeof *keys);
	float *chosen = rw_take(a, n, sizeof *chosen);
	double responses = (double)rw_responses(x->role, n);
	double advantage = rw_moments(isa, x->advantages, x->role, n, RESPONSES, 0).sum / responses;
	double logprob = rw_moments(isa, x->logprobs, x->role, n, RESPONSES, 0).sum / responses;
	int clips = o->policy == REWEIGHT_POLICY_CLIP_COV;
	if (clips) { /* the ratios, until they are replaced */
		ratio_consts q = {0, MAX_FLOAT, 0};
		lane_sum sum;
		rw_lane_clear(&sum);
		rw_importance(isa, chosen, x->logprobs, x->old, x->role, n, &q, &sum);
	}
	float others = clips ? 1 : 0, here = clips ? 0 : (float)o->cov_coef;
	float lo = (float)(1 - o->clip_low), hi = (float)(1 + o->clip_high);
	for (int64_t t = 0; t < n; t++) {
		float rho = clips ? chosen[t] : 1, neg = -x->advantages[t];
		chosen[t] = others;
		if (x->role[t] == REWEIGHT_ROLE_MASKED) continue;
		double c = ((double)x->advantages[t] - advantage) * ((double)x->logprobs[t] - logprob) + 0; /* no -0 */
		keys[t] = ~rw_ordered_bits(c);
		if (clips) {
			if (neg * at_most(hi, at_least(lo, rho)) > neg * rho || !(c > o->cov_low && c < o->cov_high)) continue;
			keys[t] = split_mix(o->seed, t);
		}
		chosen[t] = CANDIDATE;
	}
	rw_choose_lowest(chosen, keys, x->role, n, o->cov_share, here, others);
	return chosen;
}

void rw_clip_cov(int32_t isa, const loss_tokens *x, int64_t n, double scale, const reweight_loss_options *o,
                 surrogate_sums *sums) {
	reweight_loss_options clip = {.clip_low = o->clip_low, .clip_high = o->clip_high};
	loss_tokens y = *x;
	y.weights = x->chosen;
	rw_clipped_surrogate(isa, &y, n, scale, &clip, sums);
	for (int64_t t = 0; t < n; t++) sums->clipped += x->chosen[t] == 0;
}

/* The terms of chosen tokens are in float64: the advantage and the penalty may cancel. */
void rw_kl_cov(int32_t isa, const loss_tokens *x, int64_t n, double scale, surrogate_sums *sums) {
	reweight_loss_options no_clip = {.clip_low = 1, .clip_high = INF_64};
	float log_ratio[BLOCK_TOKENS], advantages[BLOCK_TOKENS];
	for (int64_t from = 0; from < n; from += BLOCK_TOKENS) {
		int64_t size = min_i64(BLOCK_TOKENS, n - from);
		loss_tokens y = rw_tokens_from(x, from);
		for (int64_t i = 0; i < size; i++) { /* before the gradient is in place of one of them */
			log_ratio[i] = y.logprobs[i] - y.old[i];
			advantages[i] = y.advantages[i];
		}
		rw_clipped_surrogate(isa, &y, size, scale, &no_clip, sums);
		for (int64_t i = 0; i < size; i++) {
			if (y.chosen[i] == 0) continue;
			double c = (double)y.chosen[i], d = (double)log_ratio[i], g = 0;
			if (d >= -20 && d <= 20) g = -(double)advantages[i] * exp64(d);
			if (d > 0) g += c;
			if (d < 0) g -= c;
			y.grad[i] = (float)g * (float)scale;
			sums->loss.total[i % LANES] += c * (d < 0 ? -d : d);
		}
	}
}
