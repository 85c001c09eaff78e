/* What is wrong with an argument: its problem and the numbers of that. */
#include "internal.h"
#include "math.h"

int rw_bad(reweight_error *error, const reweight_error *is) {
	if (error != NULL) *error = *is;
	return REWEIGHT_BAD_INPUT;
}

int rw_check_count(int32_t argument, int64_t n, reweight_error *error) {
	if (n >= 0 && n <= MAX_COUNT) return REWEIGHT_OK;
	return BAD(error, COUNT, argument, -1, n);
}

int rw_check_array(int32_t argument, const void *array, int64_t n, reweight_error *error) {
	if (array != NULL || n == 0) return REWEIGHT_OK;
	return BAD(error, MISSING, argument, -1, n);
}

int rw_check_range(int32_t argument, double x, double low, double high, reweight_error *error) {
	if (x >= low && x <= high) return REWEIGHT_OK;
	return BAD(error, RANGE, argument, -1, bits64(x), bits64(low), bits64(high));
}

int rw_check_not_negative(int32_t argument, double x, reweight_error *error) {
	if (x >= 0 && x <= (double)MAX_FLOAT) return REWEIGHT_OK;
	return BAD(error, NOT_NEGATIVE_32, argument, -1, bits64(x));
}

int rw_check_magnitude(int32_t argument, double x, reweight_error *error) {
	if (x >= -(double)MAX_FLOAT && x <= (double)MAX_FLOAT) return REWEIGHT_OK;
	return BAD(error, FINITE_32, argument, -1, bits64(x));
}

int rw_check_name(int32_t argument, int32_t value, int32_t last, reweight_error *error) {
	if (value >= 0 && value <= last) return REWEIGHT_OK;
	return BAD(error, NAME, argument, -1, value, last, (INT64_C(2) << last) - 1);
}

int64_t rw_first_not_finite(const float *x, const uint8_t *role, int64_t n, uint32_t roles) {
	for (int64_t t = 0; t < n; t++)
		if ((roles >> role[t] & 1) != 0 && !is_finite(x[t])) return t;
	return -1;
}

int rw_not_finite_response(int32_t argument, const float *x, const uint8_t *role, int64_t n,
                           reweight_error *error) {
	int64_t t = rw_first_not_finite(x, role, n, RESPONSES);
	return BAD(error, AT_RESPONSE, argument, t, bits32(x[t]));
}

int rw_check_finite(int32_t isa, int32_t argument, const float *x, const uint8_t *role, int64_t n,
                    reweight_error *error) {
	if (is_finite(rw_moments(isa, x, role, n, RESPONSES, 0).sum)) return REWEIGHT_OK;
	return rw_not_finite_response(argument, x, role, n, error);
}
