// The product of two arrays: AEM's factors onto advantages.

#include "common.cuh"

struct Multiply {
	float *dst;
	const float *a, *b;
	i64 n;
};

KERNEL(256) void multiply(Multiply p) {
	for (i64 i = globalIndex(); i < p.n; i += globalCount()) p.dst[i] = p.a[i] * p.b[i];
}
