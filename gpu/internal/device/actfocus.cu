// ActFocus: the mean and sigma of a signal over action tokens, and the weights that
// follow from them.

#include "chains.cuh"
#include "math.cuh"
#include "tokens.cuh"

// A Curve holds a batch's constants for its weights, as actFocusConsts of
// kernels_portable.go does: d = (E - muHi) - muLo, w = 1 + beta / (1 + 2^(d*k)). k is
// NaN if the signal is in error; then all weights are NaN.
struct Curve {
	float muHi, muLo, k;
	u32 unused;
};

DEVICE Curve curveOf(double mean, double sigma) {
	Curve c = {(float)mean, 0, 0, 0};
	c.muLo = (float)(mean - (double)c.muHi);
	if (sigma > 0) {
		double k = -LOG2E / sigma;
		c.k = (float)(k < -(double)MAXFLOAT ? -(double)MAXFLOAT : k);
	}
	if (sigma != sigma) c.k = NAN32;
	return c;
}

struct ActFocusResult { // reweight.ActFocusResult
	i64 actions;
	double mean, sigma;
};

struct ActFocusSpread {
	Values signal;
	const u8 *role;
	ActFocusResult *result;
	Curve *curve;
	Status *status;
	i64 n;
	double eps;
	i64 first; // the argument that the signal's first array is
};

// One CTA.
KERNEL(CHAIN_THREADS) void actfocus_spread(ActFocusSpread p) {
	const u32 actions = 1 << ACTION;
	Spread s = spread(Masked{p.signal, p.role, actions, 0}, p.n);
	ActFocusResult r = {s.count, s.mean, 0};
	if (s.squares != s.squares) {
		r = {0, NAN64, NAN64};
		if (!reportRole(p.role, p.n, ARG_ROLE, p.status)) {
			// As on the CPU: the first array is looked at before the second, and the
			// difference last.
			i64 a = first(NotFinite{{p.signal.a, 0, PLAIN}, p.role, actions}, p.n), b = p.n, d = p.n;
			if (a == p.n && p.signal.form == DIFFERENCE) {
				b = first(NotFinite{{p.signal.b, 0, PLAIN}, p.role, actions}, p.n);
				if (b == p.n) d = first(NotFinite{p.signal, p.role, actions}, p.n);
			}
			if (threadIndex() == 0) {
				if (a < p.n) report(p.status, PROBLEM_AT_ACTION, p.first, a, bitsOf(p.signal.a[a]));
				if (b < p.n) report(p.status, PROBLEM_AT_ACTION, ARG_REF_LOGPROBS, b, bitsOf(p.signal.b[b]));
				if (d < p.n) report(p.status, PROBLEM_DIFFERENCE, p.first, d, bitsOf(p.signal.a[d]));
			}
		}
	} else if (s.count > 0) {
		r.sigma = squareRoot(s.squares / (double)s.count + p.eps);
	}
	if (threadIndex() == 0) {
		*p.result = r;
		*p.curve = curveOf(r.mean, r.sigma);
	}
}

struct ActFocusWeights {
	float *dst;
	Values signal;
	const u8 *role;
	const Curve *curve; // 0: the one of mean and sigma
	Status *status;
	i64 n;
	double mean, sigma;
	float alpha, beta;
};

struct WeightsPass {
	const ActFocusWeights &p;
	Curve c;
	template <int N> MEMBER void at(i64 i) const {
		float a[N], b[N], w[N];
		u8 role[N];
		load(a, p.signal.a + i);
		if (p.signal.form == DIFFERENCE) load(b, p.signal.b + i);
		load(role, p.role + i);
		for (int j = 0; j < N; j++) {
			w[j] = role[j] == REASONING ? p.alpha : 0;
			if (role[j] == ACTION) {
				float d = (p.signal.of(a[j], b[j]) - c.muHi) - c.muLo;
				w[j] = 1 + p.beta / (1 + exp2OfAny(atMost(MAX_Y, atLeast(MIN_Y, d * c.k))));
			}
			if (role[j] > ACTION || c.k != c.k) w[j] = NAN32;
			if (role[j] > ACTION) report(p.status, PROBLEM_ROLE, ARG_BARE_ROLE, i + j, role[j]);
		}
		store(p.dst + i, w);
	}
};

KERNEL(256) void actfocus_weights(ActFocusWeights p) {
	forTokens(p.n, canPack(p.dst, p.signal.a, p.signal.b, p.role), WeightsPass{p, p.curve ? *p.curve : curveOf(p.mean, p.sigma)});
}
