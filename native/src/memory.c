/* What compilers call by themselves: memset to clear a struct, and memmove for a loop that
 * shifts an array. Some do so, some do not. The library has its own, which no other
 * program sees, and needs nobody's. */
#include <stdint.h>
#include <string.h>

void *memset(void *dst, int c, size_t n) {
	char *to = dst;
	uint64_t bytes = UINT64_C(0x0101010101010101) * (unsigned char)c;
	size_t i = 0;
	for (; n - i >= 8; i += 8) memcpy(to + i, &bytes, 8);
	for (; i < n; i++) to[i] = (char)c;
	return dst;
}

void *memmove(void *dst, const void *src, size_t n) {
	char *to = dst;
	const char *from = src;
	uint64_t bytes;
	if ((uintptr_t)to - (uintptr_t)from >= n) { /* dst does not begin inside src */
		size_t i = 0;
		for (; n - i >= 8; i += 8) {
			memcpy(&bytes, from + i, 8);
			memcpy(to + i, &bytes, 8);
		}
		for (; i < n; i++) to[i] = from[i];
		return dst;
	}
	for (; n >= 8; n -= 8) { /* from the end */
		memcpy(&bytes, from + n - 8, 8);
		memcpy(to + n - 8, &bytes, 8);
	}
	for (; n > 0; n--) to[n - 1] = from[n - 1];
	return dst;
}
