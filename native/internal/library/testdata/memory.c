/* Compares memset and memmove with loops, at every place and size of a small array. */
#include <stdio.h>
#include <string.h>

enum { SIZE = 48 };

/* Called by their addresses, so that the compiler knows nothing of them. */
static void *(*volatile set)(void *, int, size_t) = memset;
static void *(*volatile move)(void *, const void *, size_t) = memmove;

static int differ(const char *a, const char *b) {
	for (int i = 0; i < SIZE; i++)
		if (a[i] != b[i]) return 1;
	return 0;
}

int main(void) {
	char got[SIZE], want[SIZE];
	for (int to = 0; to < SIZE; to++) {
		for (int n = 0; n <= SIZE - to; n++) {
			for (int from = -1; from <= SIZE - n; from++) { /* -1: memset */
				for (int i = 0; i < SIZE; i++) got[i] = want[i] = (char)(100 + i);
				for (int i = 0; i < n; i++) want[to + i] = from < 0 ? (char)0x9c : (char)(100 + from + i);
				void *result = from < 0 ? set(got + to, 0x79c, (size_t)n) : move(got + to, got + from, (size_t)n);
				if (result != got + to || differ(got, want)) {
					printf("%d bytes from %d to %d\n", n, from, to);
					return 1;
				}
			}
		}
	}
	puts("ok");
	return 0;
}
