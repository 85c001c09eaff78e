// The logarithm and the exponential in float64, and 2^y in float32: operation for
// operation those of math.go and kernels_portable.go, so that the bits are the same.
// clang does not fuse a product and a sum here (build.sh), and every float64 operation
// of the GPU rounds to nearest as IEEE 754 says.
#pragma once

#include "common.cuh"

#define LN2 0.693147180559945309417232121458176568
#define LN2HI 0x1.62e42fefap-1 // ln 2, upper 37 bits: a product with an integer is exact
#define LN2LO 0x1.cf79abc9e3b39803f2f6af40f343267p-40
#define LOG2E 1.44269504088896340735992468100189214
#define LOG2E32 0x1.715476p+0f
#define HALF_SQRT2 0.70710678118654752440

// log64 returns the natural logarithm of a positive, finite and normal x.
DEVICE double log64(double x) {
	u64 u = bitsOf(x);
	int e = (int)(u >> 52) - 1022;
	double m = doubleOf((u & 0x000fffffffffffffull) | 0x3fe0000000000000ull); // in [1/2, 1)
	if (m < HALF_SQRT2) {
		m = 2 * m;
		e--;
	}
	double f = m - 1, s = f / (m + 1), z = s * s;
	double p = 1.0 / 25;
	p = p * z + 1.0 / 23;
	p = p * z + 1.0 / 21;
	p = p * z + 1.0 / 19;
	p = p * z + 1.0 / 17;
	p = p * z + 1.0 / 15;
	p = p * z + 1.0 / 13;
	p = p * z + 1.0 / 11;
	p = p * z + 1.0 / 9;
	p = p * z + 1.0 / 7;
	p = p * z + 1.0 / 5;
	p = p * z + 1.0 / 3;
	double r = 2 * (z * p), k = (double)e;
	return k * LN2HI + (f - (s * (f - r) - k * LN2LO));
}

// ldexp64 returns x * 2^k for x in [1/2, 2).
DEVICE double ldexp64(double x, int k) {
	u64 u = bitsOf(x);
	int e = k + ((int)(u >> 52) & 0x7ff) - 1023;
	if (e < -1075) return 0;
	if (e > 1023) return INF64;
	double unit = 1;
	if (e < -1022) { // subnormal: the product rounds
		e += 53;
		unit = 0x1p-53;
	}
	return unit * doubleOf((u & 0x800fffffffffffffull) | (u64)(e + 1023) << 52);
}

// exp64 returns e^x; 0 and +Inf beyond the range, NaN for NaN.
DEVICE double exp64(double x) {
	if (x != x) return x;
	if (x > 709.782712893384) return INF64;
	if (x < -745.1332191019412) return 0;
	double k = __builtin_rint(x * LOG2E);
	double hi = x - k * LN2HI, lo = k * LN2LO, r = hi - lo;
	double p = 1.0 / 6227020800;
	p = p * r + 1.0 / 479001600;
	p = p * r + 1.0 / 39916800;
	p = p * r + 1.0 / 3628800;
	p = p * r + 1.0 / 362880;
	p = p * r + 1.0 / 40320;
	p = p * r + 1.0 / 5040;
	p = p * r + 1.0 / 720;
	p = p * r + 1.0 / 120;
	p = p * r + 1.0 / 24;
	p = p * r + 1.0 / 6;
	p = p * r + 1.0 / 2;
	double tail = (r * r) * p + ((hi - r) - lo);
	return ldexp64(1 + (r + tail), (int)k);
}

// quotient returns x / n, rounded once, for an n from 3 to 18 and its rounded inverse,
// in three instructions. q is off by at most two units in its last place, so that the
// remainder is exact, and the last sum is off by less than 2^-50 of a unit before it is
// rounded. That could only matter at a quotient halfway between two numbers, or nearer
// to that than 1/36 of a unit without being it: n times such a number has more bits than
// x. Where a quotient is below 2^-900 it may be off.
DEVICE double quotient(double x, double n, double inverse) {
	double q = x * inverse;
	return __builtin_fma(__builtin_fma(-n, q, x), inverse, q);
}

// k3 returns e^x - 1 - x without cancellation.
DEVICE double k3(double x) {
	if (x < -0.5 || x > 0.5) return exp64(x) - 1 - x;
	double p = 0, term = x * x / 2;
#pragma unroll
	for (int n = 3; n <= 18; n++) {
		p += term;
		term = quotient(term * x, n, 1.0 / n); // a term below 2^-900 does not change p
	}
	return p;
}

// ---------------------------------------------------------------- 2^y in float32

#define MAGIC 0x1.8p23f // y + MAGIC rounds y to an integer, kept in the low bits
#define MIN_Y -125.0f   // a smaller 2^y does not change a sum, and would be subnormal
#define MAX_Y 120.0f    // sums of groups of 2^y stay finite

DEVICE float fma32(float x, float y, float z) { return __builtin_fmaf(x, y, z); }

// atLeast returns max(lo, y) and atMost min(hi, y), NaN for NaN y.
DEVICE float atLeast(float lo, float y) { return y < lo ? lo : y; }
DEVICE float atMost(float hi, float y) { return y > hi ? hi : y; }

// exp2Polynomial returns 2^f for |f| <= 1/2.
DEVICE float exp2Polynomial(float f) {
	float p = fma32(0x1.5bf666p-10f, f, 0x1.3ced52p-7f);
	p = fma32(p, f, 0x1.c6b6c4p-5f);
	p = fma32(p, f, 0x1.ebf9b4p-3f);
	p = fma32(p, f, 0x1.62e42ap-1f);
	return fma32(p, f, 1.0f);
}

// exp2OfNumber returns 2^y for -125.5 <= y <= 127. Adding to the exponent's bits is
// one instruction where exp2OfAny has two.
DEVICE float exp2OfNumber(float y) {
	float m = y + MAGIC, p = exp2Polynomial(y - (m - MAGIC));
	return floatOf(bitsOf(p) + (bitsOf(m) << 23));
}

// exp2OfAny returns the same, and NaN for NaN.
DEVICE float exp2OfAny(float y) {
	float m = y + MAGIC;
	return exp2Polynomial(y - (m - MAGIC)) * floatOf((bitsOf(m) << 23) + 0x3f800000u);
}
