// Values of response tokens with mean 0 and variance 1.

#include "chains.cuh"
#include "tokens.cuh"

#define WHITEN_EPS 1e-8

// A Scale says what becomes of x: (x - mean) * factor. The factor is NaN if x or the
// roles are in error; then all of dst is NaN.
struct Scale {
	double mean, factor;
};

struct WhitenSpread {
	const float *x;
	const u8 *role;
	Scale *scale;
	Status *status;
	i64 n;
};

// One CTA.
KERNEL(CHAIN_THREADS) void whiten_spread(WhitenSpread p) {
	Values x = {p.x, 0, PLAIN};
	Spread s = spread(Masked{x, p.role, RESPONSES, 0}, p.n);
	double variance = s.squares / (double)(s.count > 1 ? s.count - 1 : 1);  // of fewer than two, all are 0
	Scale scale = {s.mean, 1 / squareRoot(variance + WHITEN_EPS)};
	if (s.squares != s.squares) {
		if (!reportRole(p.role, p.n, ARG_BARE_ROLE, p.status)) {
			i64 t = first(NotFinite{x, p.role, RESPONSES}, p.n);
			if (threadIndex() == 0) report(p.status, PROBLEM_AT_RESPONSE, ARG_X, t, bitsOf(p.x[t]));
		}
		scale.factor = NAN64;
	}
	if (threadIndex() == 0) *p.scale = scale;
}

struct Whiten {
	float *dst;
	const float *x;
	const u8 *role;
	const Scale *scale;
	i64 n;
};

struct WhitenPass {
	const Whiten &p;
	Scale scale;
	template <int N> MEMBER void at(i64 i) const {
		float x[N];
		u8 role[N];
		load(x, p.x + i);
		load(role, p.role + i);
		for (int j = 0; j < N; j++) {
			double w = role[j] == MASKED ? 0 : ((double)x[j] - scale.mean) * scale.factor;
			x[j] = (float)(scale.factor != scale.factor ? NAN64 : w);
		}
		store(p.dst + i, x);
	}
};

KERNEL(256) void whiten(Whiten p) {
	forTokens(p.n, canPack(p.dst, p.x, 0, p.role), WhitenPass{p, *p.scale});
}
