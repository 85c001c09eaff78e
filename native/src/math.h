/* The logarithm and the exponential in float64, 2^y in float32, and what else the
 * arithmetic is made of: operation for operation those of math.go, kernels_portable.go
 * and logits.go, so that the bits are the same. The compiler fuses no product and sum
 * here (-ffp-contract=off), and nothing calls the mathematics library, whose last bits
 * differ from one system to another. */
#ifndef REWEIGHT_MATH_H
#define REWEIGHT_MATH_H

#include <string.h>

#include "internal.h"

#define LN2 0.693147180559945309417232121458176568
#define LN2_HI 0x1.62e42fefap-1 /* ln 2, upper 37 bits: a product with an integer is exact */
#define LN2_LO 0x1.cf79abc9e3b39803f2f6af40f343267p-40
#define LOG2E 1.44269504088896340735992468100189214
#define HALF_SQRT2 0.70710678118654752440
#define LOG2E_32 0x1.715476p+0f

#define MAX_FLOAT 0x1.fffffep127f
#define INF_32 __builtin_inff()
#define INF_64 __builtin_inf()
#define NAN_32 __builtin_nanf("")
#define NAN_64 __builtin_nan("")

#define MAGIC 0x1.8p23f /* y + MAGIC rounds y to an integer, kept in the low bits */
#define MIN_Y -125.0f   /* a smaller 2^y does not change a sum, and would be subnormal */
#define MAX_Y 120.0f    /* sums of groups of 2^y stay finite */

/* ---- Bits, and elements at any address ---- */

static inline uint32_t bits32(float x) {
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

static inline float float32_of(uint32_t u) {
	float x;
	memcpy(&x, &u, sizeof x);
	return x;
}

static inline uint64_t bits64(double x) {
	uint64_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

static inline double float64_of(uint64_t u) {
	double x;
	memcpy(&x, &u, sizeof x);
	return x;
}

/* The element at p, and x to there, where p need not be aligned: with a load of the
 * language's own, the compiler could take p for aligned. */
static inline float load_float(const void *p) {
	float x;
	memcpy(&x, p, sizeof x);
	return x;
}

static inline void store_float(void *p, float x) { memcpy(p, &x, sizeof x); }

static inline uint16_t load_u16(const void *p) {
	uint16_t x;
	memcpy(&x, p, sizeof x);
	return x;
}

static inline void store_u16(void *p, uint16_t x) { memcpy(p, &x, sizeof x); }

static inline int32_t load_i32(const void *p) {
	int32_t x;
	memcpy(&x, p, sizeof x);
	return x;
}

static inline int64_t load_i64(const void *p) {
	int64_t x;
	memcpy(&x, p, sizeof x);
	return x;
}

/* ---- The thread's arithmetic ---- */

/* The arithmetic that a program begins with rounds to nearest, has subnormal numbers, and
 * raises no signal. Programs change that for a thread: PyTorch's set_flush_denormal and
 * libraries that were linked with -ffast-math have subnormal numbers taken for 0, and
 * fesetround rounds otherwise. The lowest six bits of MXCSR only say what has happened. */
#if defined(__x86_64__)
#define USUAL_MODE 0x1f80
#define MODE_BITS UINT32_C(0xffc0)
#elif defined(__aarch64__)
#define USUAL_MODE 0
#define MODE_BITS UINT64_MAX
#endif

#ifdef USUAL_MODE
static inline void set_mode(uint64_t mode) {
#ifdef __x86_64__
	uint32_t mxcsr = (uint32_t)mode;
	__asm__ volatile("ldmxcsr %0" : : "m"(mxcsr) : "memory");
#else
	__asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#endif
}

/* Gives the thread the usual arithmetic, and returns what it has had. */
static inline uint64_t begin_arithmetic(void) {
#ifdef __x86_64__
	uint32_t before;
	__asm__ volatile("stmxcsr %0" : "=m"(before) : : "memory");
#else
	uint64_t before;
	__asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
#endif
	if ((before & MODE_BITS) != USUAL_MODE) set_mode(USUAL_MODE);
	return before;
}

/* Gives the thread its own arithmetic back. */
static inline void end_arithmetic(const uint64_t *before) {
	if ((*before & MODE_BITS) != USUAL_MODE) set_mode(*before);
}

/* The first line of each exported function that computes: until it returns, its thread
 * has the usual arithmetic, and so have those that it starts, which begin with the same. */
#define USUAL_ARITHMETIC __attribute__((cleanup(end_arithmetic), unused)) uint64_t arithmetic = begin_arithmetic()
#else
#define USUAL_ARITHMETIC (void)0
#endif

/* ---- Small formats ---- */

/* The value of the bits of a bfloat16, exactly. */
static inline float from_bf16(uint16_t b) { return float32_of((uint32_t)b << 16); }

/* Rounds to the nearest bfloat16, ties to even; NaN stays NaN. */
static inline uint16_t to_bf16(float f) {
	uint32_t u = bits32(f);
	if (f != f) return (uint16_t)(u >> 16 | 0x40); /* quiet: a payload in the lower half must not turn into infinity */
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* The value of the bits of a half-precision number, exactly. */
static inline float from_f16(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
	switch (exponent) {
	case 0: /* zero or subnormal */
		return float32_of(sign | bits32((float)fraction * 0x1p-24f));
	case 0x1f: /* infinity or NaN (made quiet, as the hardware's conversion does) */
		if (fraction != 0) fraction |= 0x200;
		return float32_of(sign | 0x7f800000 | fraction << 13);
	}
	return float32_of(sign | (exponent + 112) << 23 | fraction << 13);
}

/* ---- float32 ---- */

static inline int is_finite(double x) { return x - x == 0; }

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Returns s = p + z as it is if it is exact. If s was rounded, moves it one step towards
 * the exact sum, so that s is no longer halfway between two float32. */
static inline double fma32_tie(double p, double z, double s) {
	double t = s - p;
	double e = (p - (s - t)) + (z - t); /* the rounding error of p + z, exact */
	if ((e > 0 && s > 0) || (e < 0 && s < 0)) return float64_of(bits64(s) + 1);
	if (e > 0 || e < 0) return float64_of(bits64(s) - 1);
	return s; /* exact, infinite or NaN */
}

/* Returns x * y + z, rounded once. The product is exact in float64 and the sum is rounded
 * to 53 bits. Rounding that to 24 bits again is wrong only if the 53-bit sum is halfway
 * between two float32, where its low 28 bits are 0, and the exact sum is not. */
static inline float fma32(float x, float y, float z) {
	double p = (double)x * (double)y;
	double s = p + (double)z;
	if (__builtin_expect(bits64(s) << 36 == 0, 0)) s = fma32_tie(p, (double)z, s);
	return (float)s;
}

/* Returns 2^y for MIN_Y <= y <= 127, NaN for NaN: a polynomial of degree 5 for the
 * fraction of y, of at most 1/2 on either side, and the integer added to the exponent.
 * Beyond, the exponent wraps: callers discard that. */
static inline float exp2_32(float y) {
	float m = y + MAGIC;
	float f = y - (m - MAGIC);
	float p = fma32(0x1.5bf666p-10f, f, 0x1.3ced52p-7f);
	p = fma32(p, f, 0x1.c6b6c4p-5f);
	p = fma32(p, f, 0x1.ebf9b4p-3f);
	p = fma32(p, f, 0x1.62e42ap-1f);
	p = fma32(p, f, 1);
	return p * float32_of((bits32(m) << 23) + 0x3f800000);
}

/* Returns max(lo, y), NaN for NaN y: the assembly's operand order. */
static inline float at_least(float lo, float y) { return y < lo ? lo : y; }

/* Returns min(hi, y), NaN for NaN y. */
static inline float at_most(float hi, float y) { return y > hi ? hi : y; }

/* ---- float64 ---- */

/* Sums the lanes: j and j+8 are added, then j and j+4, j+2, j+1. */
static inline double tree(double l[LANES]) {
	for (int h = LANES / 2; h > 0; h /= 2)
		for (int j = 0; j < h; j++) l[j] += l[j + h];
	return l[0];
}

/* Returns the natural logarithm of a positive, finite x, within 1 ulp. */
static inline double log64(double x) {
	int e = -1022;
	if (x < 0x1p-1022) { /* subnormal */
		x *= 0x1p52;
		e -= 52;
	}
	uint64_t u = bits64(x);
	e += (int)(u >> 52);
	double m = float64_of((u & 0x000fffffffffffff) | 0x3fe0000000000000); /* in [1/2, 1) */
	if (m < HALF_SQRT2) {
		m = 2 * m;
		e--;
	}
	/* log m = 2 atanh(s) with s = (m-1) / (m+1), |s| < 0.1716. */
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
	/* 2s = f - s*f, so log m = f - s*(f - 2 z p): the large term is exact. */
	double r = 2 * (z * p), k = (double)e;
	return k * LN2_HI + (f - (s * (f - r) - k * LN2_LO));
}

/* Returns x * 2^k for a normal x, rounded once where that is subnormal. */
static inline double ldexp64(double x, int k) {
	uint64_t u = bits64(x);
	int e = k + (int)(u >> 52 & 0x7ff) - 1023;
	uint64_t sign = u & 0x8000000000000000;
	if (e < -1075) return float64_of(sign);
	if (e > 1023) return float64_of(sign | 0x7ff0000000000000);
	double unit = 1;
	if (e < -1022) { /* subnormal: the product rounds */
		e += 53;
		unit = 0x1p-53;
	}
	return unit * float64_of((u & 0x800fffffffffffff) | (uint64_t)(e + 1023) << 52);
}

/* Returns the square root of x, correctly rounded. Without errno (-fno-math-errno) it is one
 * instruction of amd64 and of arm64. On other CPUs the compiler may call the mathematics
 * library for it. */
static inline double sqrt64(double x) { return __builtin_sqrt(x); }

/* Returns x rounded to an integer, ties to even, for |x| < 2^51. */
static inline double round_to_even(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/* Returns e^x, within 1 ulp; 0 and +Inf beyond the range, NaN for NaN. */
static inline double exp64(double x) {
	if (x != x) return x;
	if (x > 709.782712893384) return INF_64;
	if (x < -745.1332191019412) return 0;
	double k = round_to_even(x * LOG2E);
	double hi = x - k * LN2_HI, lo = k * LN2_LO, r = hi - lo;
	/* The part above 1 + r, so that its rounding does not touch them. */
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

/* Returns e^x - 1 - x without cancellation. */
static inline double k3(double x) {
	if (x < -0.5 || x > 0.5) return exp64(x) - 1 - x;
	double p = 0, term = x * x / 2;
	for (int n = 3; n <= 18; n++) {
		p += term;
		term = term * x / n;
	}
	return p;
}

#endif
