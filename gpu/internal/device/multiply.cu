// The product of two arrays: AEM's factors onto advantages.

#include "tokens.cuh"

struct Multiply {
	float *dst;
	const float *a, *b;
	i64 n;
};

struct MultiplyPass {
	const Multiply &p;
	template <int N> MEMBER void at(i64 i) const {
		float a[N], b[N];
		load(a, p.a + i);
		load(b, p.b + i);
		for (int j = 0; j < N; j++) a[j] *= b[j];
		store(p.dst + i, a);
	}
};

KERNEL(256) void multiply(Multiply p) { forTokens(p.n, canPack(p.dst, p.a, p.b, 0), MultiplyPass{p}); }
