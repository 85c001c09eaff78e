/* The groups that the trajectories of a batch are in. */
#include "internal.h"

/* Moves the id at place i down until none of those below it is larger. */
static void sink(int32_t *ids, int64_t n, int64_t i) {
	int32_t id = ids[i];
	for (int64_t child; (child = 2 * i + 1) < n; i = child) {
		if (child + 1 < n && ids[child + 1] > ids[child]) child++;
		if (ids[child] <= id) break;
		ids[i] = ids[child];
	}
	ids[i] = id;
}

/* A heapsort: it needs no memory, and no order of the ids makes it slow. */
static void sort(int32_t *ids, int64_t n) {
	for (int64_t i = n / 2 - 1; i >= 0; i--) sink(ids, n, i);
	while (n > 1) {
		int32_t last = ids[--n];
		ids[n] = ids[0];
		ids[0] = last;
		sink(ids, n, 0);
	}
}

int64_t rw_groups_of(int32_t *groups, const int32_t *ids, int64_t n) {
	for (int64_t i = 0; i < n; i++) groups[i] = ids[i];
	sort(groups, n);
	int64_t size = 0;
	for (int64_t i = 0; i < n; i++)
		if (size == 0 || groups[i] != groups[size - 1]) groups[size++] = groups[i];
	return size;
}

int64_t rw_group_of(const int32_t *groups, int64_t n, int32_t id) {
	int64_t low = 0;
	for (int64_t high = n; high - low > 1;) {
		int64_t middle = (low + high) / 2;
		if (groups[middle] <= id)
			low = middle;
		else
			high = middle;
	}
	return low;
}
