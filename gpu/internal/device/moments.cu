// Sums of x - shift and its square over the tokens of a set of roles.

#include "chains.cuh"
#include "tokens.cuh"

struct Moments { // reweight.Moments
	i64 count;
	double sum, squares;
};

struct MaskedMoments {
	const float *x;
	const u8 *role;
	Moments *result;
	Status *status;
	i64 n;
	double shift;
	u64 roles;
};

// One CTA.
KERNEL(CHAIN_THREADS) void masked_moments(MaskedMoments p) {
	Sums s = sumTokens(Masked{{p.x, 0, PLAIN}, p.role, (u32)p.roles, p.shift}, 0, p.n);
	if (s.sum != s.sum && reportRole(p.role, p.n, ARG_BARE_ROLE, p.status)) s = {NAN64, NAN64, 0};
	if (threadIndex() == 0) *p.result = {s.count, s.sum, s.squares};
}
