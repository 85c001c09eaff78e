// The clipped surrogate of an array of tokens.

#include "surrogate.cuh"

KERNEL(256) void surrogate(Surrogate p) {
	for (i64 slot = firstOfWarp(); slot < p.segments.slots(); slot += halves())
		surrogateOf(p, groupOf(p.segments, slot + firstOfHalf() % 2), p.scale, false, 1);
}

struct SurrogateTotal {
	Surrogate of;
	SurrogateSums *result;
};

// One warp.
KERNEL(WARP) void surrogate_total(SurrogateTotal p) {
	SurrogateSums sums = sumSegment(p.of, 0);
	if (lane() == 0) *p.result = sums;
}
