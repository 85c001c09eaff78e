// The check of a batch's layout, which precedes the kernels that rely on it.

#include "layout.cuh"

// check_layout wants roles that there are, and trajectories that cover the tokens.
KERNEL(256) void check_layout(Layout l) {
	for (i64 t = globalIndex(); t < l.tokens; t += globalCount())
		if (l.role[t] > ACTION) note(l.problem, WRONG_ROLE, t);
	for (i64 q = globalIndex(); q <= l.trajectories; q += globalCount()) {
		i64 here = l.offsets[q];
		bool good = q == 0 ? here == 0 : here >= l.offsets[q - 1];
		if (q == l.trajectories) good = good && here == l.tokens;
		if (!good) note(l.problem, WRONG_OFFSET, q);
	}
}
