/* What is wrong with an argument, in words. The C library's printf is not used: it may
 * allocate, and it does not know how to write a number with the fewest digits. */
#include <stdarg.h>

#include "internal.h"
#include "math.h"

/* A text that is being written into a buffer of a fixed size: what does not fit is left
 * out, and the end is marked in any case. */
typedef struct text {
	char *to;
	int64_t size; /* bytes, the end mark included */
	int64_t n;    /* characters written */
} text;

static void put(text *t, char c) {
	if (t->n < t->size - 1) {
		t->to[t->n++] = c;
	}
	t->to[t->n] = 0;
}

static void put_string(text *t, const char *s) {
	for (; *s != 0; s++) put(t, *s);
}

static void put_integer(text *t, int64_t x) {
	uint64_t rest = (uint64_t)x;
	if (x < 0) {
		put(t, '-');
		rest = 0 - rest;
	}
	char digits[20];
	int n = 0;
	do {
		digits[n++] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest != 0);
	while (n > 0) put(t, digits[--n]);
}

/* An integer of up to 1,152 bits, the lowest first. What a double needs is at most its
 * largest exponent, 1,077 bits with the units below, times 10 and 2. */
enum { LIMBS = 36 };

typedef struct big {
	uint32_t limb[LIMBS];
} big;

/* Sets x to value * 2^shift. */
static void big_set(big *x, uint64_t value, int shift) {
	for (int i = 0; i < LIMBS; i++) x->limb[i] = 0;
	int i = shift / 32;
	shift %= 32;
	uint64_t low = (value & 0xffffffff) << shift;
	uint64_t high = ((value >> 32) << shift) + (low >> 32);
	x->limb[i] = (uint32_t)low;
	x->limb[i + 1] = (uint32_t)high;
	x->limb[i + 2] = (uint32_t)(high >> 32);
}

static void big_times10(big *x) {
	uint64_t carry = 0;
	for (int i = 0; i < LIMBS; i++) {
		carry += (uint64_t)x->limb[i] * 10;
		x->limb[i] = (uint32_t)carry;
		carry >>= 32;
	}
}

static void big_add(big *x, const big *y) {
	uint64_t carry = 0;
	for (int i = 0; i < LIMBS; i++) {
		carry += (uint64_t)x->limb[i] + y->limb[i];
		x->limb[i] = (uint32_t)carry;
		carry >>= 32;
	}
}

/* Takes y, which is not larger, from x. */
static void big_subtract(big *x, const big *y) {
	uint64_t borrow = 0;
	for (int i = 0; i < LIMBS; i++) {
		uint64_t d = (uint64_t)x->limb[i] - y->limb[i] - borrow;
		x->limb[i] = (uint32_t)d;
		borrow = d >> 63;
	}
}

/* Returns the sign of x - y. */
static int big_compare(const big *x, const big *y) {
	for (int i = LIMBS - 1; i >= 0; i--) {
		if (x->limb[i] != y->limb[i]) {
			return x->limb[i] < y->limb[i] ? -1 : 1;
		}
	}
	return 0;
}

/* Returns the sign of x + y - z. */
static int big_compare_sum(const big *x, const big *y, const big *z) {
	big sum = *x;
	big_add(&sum, y);
	return big_compare(&sum, z);
}

/* Writes to digits the fewest that tell mantissa * 2^exponent from its neighbours, the
 * nearest to it of that many, and returns their number, at most 17. *point is the place of
 * the decimal point: the number is 0.d1d2d3... * 10^point. narrow says that the neighbour
 * below is half as far as the one above. The method is that of Steele and White (How to
 * print floating-point numbers accurately, 1990): remainder / unit is what is left of the
 * number, and anything within below / unit and above / unit of it reads back as the same. */
static int shortest(uint64_t mantissa, int exponent, int narrow, char *digits, int *point) {
	big remainder, unit, below, above;
	int up = exponent > 0 ? exponent : 0, down = exponent < 0 ? -exponent : 0;
	big_set(&remainder, mantissa, up + 1 + narrow);
	big_set(&unit, 1, down + 1 + narrow);
	big_set(&below, 1, up);
	big_set(&above, 1, up + narrow);
	/* The middle between two numbers is read as the one with the even mantissa. */
	int even = mantissa % 2 == 0;
	*point = 0;
	while (big_compare_sum(&remainder, &above, &unit) >= 1 - even) {
		big_times10(&unit);
		++*point;
	}
	for (int n = 0;;) {
		big_times10(&remainder);
		big_times10(&below);
		big_times10(&above);
		char digit = '0';
		while (big_compare(&remainder, &unit) >= 0) {
			big_subtract(&remainder, &unit);
			digit++;
		}
		int low = big_compare(&remainder, &below) < even;
		int high = big_compare_sum(&remainder, &above, &unit) > -even;
		if (n == 0 && digit == '0' && !high) {
			--*point;
			continue;
		}
		if (low || high) {
			/* Of both ends the nearer, and the even one of two that are as near. */
			int half = big_compare_sum(&remainder, &remainder, &unit);
			int round_up = low && high ? half > 0 || (half == 0 && digit % 2 != 0) : high;
			digits[n++] = (char)(digit + round_up);
			return n;
		}
		digits[n++] = digit;
	}
}

/* Writes x with the fewest digits that give it back, of all doubles or, if it is a float,
 * of all floats, as Go's %v does: 0.1, 1e-08, 3.4e+38, NaN, +Inf. */
static void put_number(text *t, double x, int is_float) {
	uint64_t bits = bits64(x);
	if (x != x) {
		put_string(t, "NaN");
		return;
	}
	if (x - x != 0) {
		put_string(t, x > 0 ? "+Inf" : "-Inf");
		return;
	}
	if (bits >> 63 != 0) put(t, '-');
	if (x == 0) {
		put(t, '0');
		return;
	}
	/* x is mantissa * 2^exponent, with the mantissa and the exponent that its format has. */
	uint64_t mantissa = bits & 0xfffffffffffff;
	int exponent = (int)(bits >> 52 & 0x7ff) - 1075;
	int lowest = -1074, size = 53;
	if (exponent < lowest) {
		exponent = lowest;
	} else {
		mantissa += (uint64_t)1 << 52;
	}
	if (is_float) {
		/* Every float is a normal double. Those below 2^-126 have fewer bits than 24. */
		lowest = -149;
		size = 24;
		int shift = exponent + 29 < lowest ? lowest - exponent : 29;
		mantissa >>= shift;
		exponent += shift;
	}
	int narrow = mantissa == (uint64_t)1 << (size - 1) && exponent > lowest;
	char digits[17];
	int point;
	int n = shortest(mantissa, exponent, narrow, digits, &point);
	int power = point - 1;
	if (power < -4 || power > 5) {
		put(t, digits[0]);
		for (int i = 1; i < n; i++) {
			if (i == 1) put(t, '.');
			put(t, digits[i]);
		}
		put(t, 'e');
		put(t, power < 0 ? '-' : '+');
		power = power < 0 ? -power : power;
		if (power < 10) put(t, '0');
		put_integer(t, power);
		return;
	}
	/* Place i has digit i; the places before and after the digits have zeros. */
	for (int i = point < 1 ? point - 1 : 0; i < n || i < point; i++) {
		if (i == point) put(t, '.');
		put(t, i >= 0 && i < n ? digits[i] : '0');
	}
}

int rw_bad(reweight_error *error, const char *argument, int64_t index, const char *problem, ...) {
	if (error == NULL) {
		return REWEIGHT_BAD_INPUT;
	}
	error->index = index;
	text t = {error->argument, sizeof error->argument, 0};
	put_string(&t, argument);
	t = (text){error->message, sizeof error->message, 0};
	put_string(&t, argument);
	if (index >= 0) {
		put(&t, '[');
		put_integer(&t, index);
		put(&t, ']');
	}
	put(&t, ' ');
	va_list values;
	va_start(values, problem);
	for (const char *p = problem; *p != 0; p++) {
		if (*p != '%') {
			put(&t, *p);
			continue;
		}
		switch (*++p) {
		case 'd':
			put_integer(&t, va_arg(values, int64_t));
			break;
		case 'g':
			put_number(&t, va_arg(values, double), 0);
			break;
		case 'h':
			put_number(&t, va_arg(values, double), 1);
			break;
		case 's':
			put_string(&t, va_arg(values, const char *));
			break;
		}
	}
	va_end(values);
	return REWEIGHT_BAD_INPUT;
}

int rw_check_count(const char *argument, int64_t n, reweight_error *error) {
	if (n >= 0 && n <= MAX_COUNT) return REWEIGHT_OK;
	return rw_bad(error, argument, -1, "is %d, want 0 to 2^48", n);
}

int rw_check_array(const char *argument, const void *array, int64_t n, reweight_error *error) {
	if (array != NULL || n == 0) return REWEIGHT_OK;
	return rw_bad(error, argument, -1, "is NULL, want %d elements", n);
}

int rw_check_range(const char *argument, double x, double low, double high, reweight_error *error) {
	if (x >= low && x <= high) return REWEIGHT_OK;
	return rw_bad(error, argument, -1, "is %g, want %g to %g", x, low, high);
}

int rw_check_not_negative(const char *argument, double x, reweight_error *error) {
	if (x >= 0 && x <= (double)MAX_FLOAT) return REWEIGHT_OK;
	return rw_bad(error, argument, -1, "is %g, want 0 to 3.4e38", x);
}

int rw_check_magnitude(const char *argument, double x, reweight_error *error) {
	if (x >= -(double)MAX_FLOAT && x <= (double)MAX_FLOAT) return REWEIGHT_OK;
	return rw_bad(error, argument, -1, "is %g, want a number that float32 can hold", x);
}

int rw_check_name(const char *argument, int32_t value, int32_t last, const char *names, reweight_error *error) {
	if (value >= 0 && value <= last) return REWEIGHT_OK;
	return rw_bad(error, argument, -1, "is %d, want 0 to %d: one of [%s]", (int64_t)value, (int64_t)last, names);
}

int64_t rw_first_not_finite(const float *x, const uint8_t *role, int64_t n, uint32_t roles) {
	for (int64_t t = 0; t < n; t++)
		if ((roles >> role[t] & 1) != 0 && !is_finite(x[t])) return t;
	return -1;
}

int rw_not_finite_response(const char *argument, const float *x, const uint8_t *role, int64_t n,
                           reweight_error *error) {
	int64_t t = rw_first_not_finite(x, role, n, RESPONSES);
	return rw_bad(error, argument, t, "is %h at a response token, want a finite number", (double)x[t]);
}
