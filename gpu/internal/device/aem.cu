// AEM of a whole batch: factors from the mean entropies of its spans. One kernel
// follows the other on the stream:
//
//	check_layout  roles and trajectories (layout.cu)
//	aem_tops      the largest span id of each trajectory
//	aem_spans     checks the spans, and computes the mean entropy of each
//	aem_sort      sorts the means by scope
//	aem_scopes    makes factors of a scope's means
//	aem_factors   gives each token the factor of its span
//
// No kernel uses an id as an index before it is checked.

#include "layout.cuh"
#include "spans.cuh"

struct Aem {
	Layout layout;
	float *factors;       // [tokens]
	const float *entropy; // [tokens]
	const i32 *spanIDs;   // [tokens]
	const i32 *groupIDs;  // [trajectories], if scope is GROUP_SCOPE
	double lambda, guard;
	i64 scope;
	i64 mostSpans;

	// Scratch, one for each token: the entropies of response tokens, span by span.
	// Those of a trajectory are between its offsets.
	float *values;
	// One for each trajectory.
	u32 *tops;   // its largest span id plus 1, or 0 without a span
	u32 *firsts; // its first span
	u32 *counts; // of its spans
	i32 *scopes; // a number that trajectories of the same scope share
	u32 *places; // of its first span's mean among those sorted by scope
	u32 *sizes;  // spans of its scope, if it is the first with spans there, or 0
	// One for each span.
	u32 *responses; // tokens
	u32 *ends;      // of its values
	u32 *spots;     // of its mean among those sorted by scope
	float *means;
	float *sorted; // means by scope, then factors
};

enum { GROUP_SCOPE, TRAJECTORY_SCOPE, BATCH_SCOPE }; // aem.go of package reweight has the same

#define LARGEST_MEAN 1e30 // spans.go of package reweight has the same

DEVICE u32 shuffleUp(u32 v, u32 distance) { return shuffle(v, lane() - distance & WARP - 1); }

DEVICE u32 larger(u32 a, u32 b) { return a > b ? a : b; }

// largest and sumOf combine one value of each lane; all lanes get the result.
DEVICE u32 largest(u32 v) {
	for (int h = WARP / 2; h > 0; h /= 2) v = larger(v, shuffleXor(v, h));
	return v;
}
DEVICE u32 sumOf(u32 v) {
	for (int h = WARP / 2; h > 0; h /= 2) v += shuffleXor(v, h);
	return v;
}

// largestUpTo and sumUpTo combine the values of the lanes up to this one.
DEVICE u32 largestUpTo(u32 v) {
#pragma unroll
	for (u32 h = 1; h < WARP; h *= 2) {
		u32 below = shuffleUp(v, h);
		if (lane() >= h) v = larger(v, below);
	}
	return v;
}
DEVICE u32 sumUpTo(u32 v) {
#pragma unroll
	for (u32 h = 1; h < WARP; h *= 2) {
		u32 below = shuffleUp(v, h);
		if (lane() >= h) v += below;
	}
	return v;
}

// matching returns the lanes that have the same id.
DEVICE u32 matching(i32 id) { return __nvvm_match_any_sync_i32(ALL_LANES, id); }

// idTop returns a span id plus 1, or 0 for an id that is no span's.
DEVICE u32 idTop(i32 id) { return id < 0 ? 0 : (u32)id + 1; }

// aem_tops gives a warp to each trajectory.
KERNEL(128) void aem_tops(Aem p) {
	if (*p.layout.problem != NO_PROBLEM) return;
	for (i64 q = globalWarp(); q < p.layout.trajectories; q += globalWarps()) {
		const i64 to = p.layout.offsets[q + 1];
		u32 top = 0;
#pragma unroll 4
		for (i64 t = p.layout.offsets[q] + lane(); t < to; t += WARP) top = larger(top, idTop(p.spanIDs[t]));
		top = largest(top);
		if (lane() == 0) p.tops[q] = top;
	}
}

// firstSpanOf returns the number of the first span of trajectory q: how many spans
// earlier trajectories have, if these are numbered right. A warp calls it.
DEVICE u32 firstSpanOf(const Aem &p, i64 q) {
	u32 first = 0;
#pragma unroll 4
	for (i64 e = lane(); e < q; e += WARP) first = larger(first, p.tops[e]);
	return largest(first);
}

// A warp reads AHEAD chunks of 32 tokens at a time, so that the loads of one chunk do
// not wait for the work on another.
#define AHEAD 4

// readTokens reads the span ids and roles of the chunks from base on. What is behind
// the trajectory, which ends before token to, is outside spans and masked.
DEVICE void readTokens(const Aem &p, i64 base, i64 to, i32 (&id)[AHEAD], u32 (&role)[AHEAD]) {
#pragma unroll
	for (int j = 0; j < AHEAD; j++) {
		const i64 t = base + j * WARP + lane();
		id[j] = t < to ? p.spanIDs[t] : -1;
		role[j] = t < to ? p.layout.role[t] : MASKED;
	}
}

// checkSpanIDs checks the span ids of the trajectory with tokens from to to as
// checkSpans of spans.go does, and counts the response tokens of its spans if count is
// set. It returns whether all is right. A warp calls it.
//
// The checks of a token use the largest id before it. So they are right up to the first
// wrong token of the batch, and no later one has a say.
DEVICE bool checkSpanIDs(const Aem &p, i64 from, i64 to, u32 first, bool count) {
	u32 next = first; // spans seen so far
	for (i64 base = from; base < to; base += AHEAD * WARP) {
		i32 id[AHEAD];
		u32 role[AHEAD];
		readTokens(p, base, to, id, role);
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			u32 before = next; // spans seen before the token of this lane
			if (any(idTop(id[j]) > next)) { // a span begins, as in few chunks
				u32 seen = larger(next, largestUpTo(idTop(id[j])));
				before = shuffleUp(seen, 1);
				if (lane() == 0) before = next;
				next = shuffle(seen, WARP - 1);
			}
			bool wrong = id[j] < -1 || (id[j] >= 0 && ((u32)id[j] < first || (u32)id[j] > before)) || (id[j] == -1 && role[j] != MASKED);
			if (noteFirst(p.layout.problem, WRONG_SPAN_ID, base + j * WARP + lane(), wrong)) return false;
			if (!count) continue;
			bool response = id[j] >= 0 && role[j] != MASKED;
			u32 peers = matching(response ? id[j] : -1);
			if (response && lane() == __builtin_ctz(peers)) p.responses[id[j]] += __builtin_popcount(peers);
			syncWarp(); // before another lane counts
		}
	}
	return true;
}

// placeSpans says where the values of each span of a trajectory begin: in ends, from
// where they are counted up. A warp calls it.
DEVICE void placeSpans(const Aem &p, i64 from, u32 first, u32 top) {
	u32 at = (u32)from;
	for (u32 base = first; base < top; base += WARP) {
		u32 s = base + lane();
		u32 n = s < top ? p.responses[s] : 0;
		noteFirst(p.layout.problem, EMPTY_SPAN, s, s < top && n == 0);
		u32 end = at + sumUpTo(n);
		if (s < top) p.ends[s] = end - n;
		at = shuffle(end, WARP - 1);
	}
	syncWarp(); // before another lane reads them
}

// gather copies the entropies of the trajectory's response tokens to the places of
// their spans, in the order of the tokens. A warp calls it.
DEVICE void gather(const Aem &p, i64 from, i64 to) {
	const u32 lanesBelow = (1u << lane()) - 1;
	for (i64 base = from; base < to; base += AHEAD * WARP) {
		i32 id[AHEAD];
		u32 role[AHEAD];
		float x[AHEAD];
		readTokens(p, base, to, id, role);
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			const i64 t = base + j * WARP + lane();
			x[j] = t < to ? p.entropy[t] : 0;
		}
#pragma unroll
		for (int j = 0; j < AHEAD; j++) {
			bool response = id[j] >= 0 && role[j] != MASKED;
			bool wrong = response && !(__builtin_fabs((double)x[j]) <= LARGEST_MEAN);
			noteFirst(p.layout.problem, WRONG_ENTROPY, base + j * WARP + lane(), wrong);
			u32 peers = matching(response ? id[j] : -1);
			u32 place = response ? p.ends[id[j]] : 0;
			syncWarp(); // all have read it
			if (response) {
				p.values[place + __builtin_popcount(peers & lanesBelow)] = x[j];
				if (lane() == __builtin_ctz(peers)) p.ends[id[j]] = place + __builtin_popcount(peers);
			}
			syncWarp();
		}
	}
}

// scopeOf returns a number that trajectories of the same scope share.
DEVICE i32 scopeOf(const Aem &p, i64 q) {
	if (p.scope == GROUP_SCOPE) return p.groupIDs[q];
	return p.scope == TRAJECTORY_SCOPE ? (i32)q : 0;
}

// aem_spans gives a warp to each trajectory. It goes on when a trajectory has a wrong
// span: the problem that the CPU would have named may be in another.
KERNEL(128) void aem_spans(Aem p) {
	if (*p.layout.problem < problemKey(WRONG_SPAN_ID, 0)) return;
	for (i64 q = globalWarp(); q < p.layout.trajectories; q += globalWarps()) {
		const i64 from = p.layout.offsets[q], to = p.layout.offsets[q + 1];
		const u32 first = firstSpanOf(p, q), top = p.tops[q];
		const bool fits = top <= p.mostSpans;
		if (!fits && lane() == 0) note(p.layout.problem, TOO_MANY_SPANS, 0);
		if (fits)
			for (u32 s = first + lane(); s < top; s += WARP) p.responses[s] = 0;
		syncWarp(); // before another lane counts
		// A right id is below top, so what fits can be counted.
		if (!checkSpanIDs(p, from, to, first, fits) || !fits) continue;
		if (lane() == 0) {
			p.firsts[q] = first;
			p.counts[q] = top == 0 ? 0 : top - first;
			p.scopes[q] = scopeOf(p, q);
		}
		placeSpans(p, from, first, top);
		gather(p, from, to);
		for (u32 base = first; base < top; base += WARP / LANES) {
			u32 s = base + lane() / LANES, end = 0, n = 0;
			if (s < top) {
				end = p.ends[s];
				n = p.responses[s];
			}
			double sum = spanSum(p.values, (i64)end - n, end);
			if (s < top && lane() % LANES == 0) p.means[s] = (float)(sum / (double)n);
		}
	}
}

// aem_sort gives a warp to each trajectory. The warp counts the spans that stand before
// the trajectory's: those of smaller scopes, and in its own scope those of earlier
// trajectories. It looks at every trajectory for that, 32 at a time.
KERNEL(128) void aem_sort(Aem p) {
	if (*p.layout.problem != NO_PROBLEM) return;
	for (i64 q = globalWarp(); q < p.layout.trajectories; q += globalWarps()) {
		const i32 scope = p.scopes[q];
		u32 smaller = 0, earlier = 0, size = 0;
#pragma unroll 4
		for (i64 e = lane(); e < p.layout.trajectories; e += WARP) {
			const i32 other = p.scopes[e];
			const u32 n = p.counts[e];
			if (other < scope) smaller += n;
			if (other == scope) size += n;
			if (other == scope && e < q) earlier += n;
		}
		smaller = sumOf(smaller);
		earlier = sumOf(earlier);
		size = sumOf(size);
		const u32 n = p.counts[q], first = p.firsts[q], place = smaller + earlier;
		for (u32 i = lane(); i < n; i += WARP) {
			p.sorted[place + i] = p.means[first + i];
			p.spots[first + i] = place + i;
		}
		if (lane() == 0) {
			p.places[q] = place;
			p.sizes[q] = n > 0 && earlier == 0 ? size : 0;
		}
	}
}

// describeSpans reports a problem of the spans. A warp calls it.
DEVICE void describeSpans(const Aem &p) {
	const u64 key = *p.layout.problem;
	const i64 i = problemIndex(key);
	Status *const status = p.layout.status;
	switch (key >> KIND_SHIFT) {
	case WRONG_SPAN_ID: {
		u32 q = 0; // the trajectory of token i
		for (i64 e = lane() + 1; e <= p.layout.trajectories; e += WARP) q += p.layout.offsets[e] <= i;
		q = sumOf(q);
		const u32 first = firstSpanOf(p, q);
		u32 next = first;
		for (i64 t = p.layout.offsets[q] + lane(); t < i; t += WARP) next = larger(next, idTop(p.spanIDs[t]));
		next = largest(next);
		const i32 id = p.spanIDs[i];
		if (lane() != 0) break;
		if (id < -1 || idTop(id) > next + 1) report(status, PROBLEM_SPAN_ORDER, ARG_SPAN_IDS, i, id, next);
		else if (id >= 0) report(status, PROBLEM_SPAN_TRAJECTORY, ARG_SPAN_IDS, i, id, q);
		else report(status, PROBLEM_SPAN_MISSING, ARG_SPAN_IDS, i, p.layout.role[i]);
		break;
	}
	case TOO_MANY_SPANS: {
		const u32 spans = firstSpanOf(p, p.layout.trajectories);
		if (lane() == 0) report(status, PROBLEM_SPAN_COUNT, ARG_SPAN_IDS, -1, spans, p.mostSpans);
		break;
	}
	case EMPTY_SPAN:
		if (lane() == 0) report(status, PROBLEM_SPAN_EMPTY, ARG_SPAN_IDS, -1, i);
		break;
	case WRONG_ENTROPY:
		if (lane() == 0) report(status, PROBLEM_SPAN_MEAN, ARG_ENTROPY, i, bitsOf(p.entropy[i]), p.spanIDs[i]);
		break;
	}
}

// aem_scopes gives a CTA to each scope. It describes a problem, rather than aem_factors,
// because factors may be the entropies.
KERNEL(SCOPE_THREADS) void aem_scopes(Aem p) {
	if (*p.layout.problem != NO_PROBLEM) {
		if (globalIndex() == 0) describeLayout(p.layout);
		if (globalWarp() == 0) describeSpans(p);
		return;
	}
	for (i64 q = blockIndex(); q < p.layout.trajectories; q += blockCount()) {
		const u32 n = p.sizes[q];
		if (n == 0) continue;
		float *scope = p.sorted + p.places[q];
		float lo, hi;
		extremes(scope, 0, n, lo, hi); // in each warp
		const double width = (double)hi - (double)lo;
		syncThreads(); // all warps have read what is now replaced
		if (width < p.guard || p.lambda >= width * (double)MAXFLOAT) {
			for (u32 i = threadIndex(); i < n; i += SCOPE_THREADS) scope[i] = 1;
			continue;
		}
		expScale(scope, scope, n, lo, expScaleRate(p.lambda / width));
	}
}

// aem_factors gives a thread to each token.
KERNEL(256) void aem_factors(Aem p) {
	if (*p.layout.problem != NO_PROBLEM) {
		fillNaN(p.factors, p.layout.tokens);
		return;
	}
	for (i64 t = globalIndex(); t < p.layout.tokens; t += globalCount()) {
		const i32 id = p.spanIDs[t];
		p.factors[t] = id >= 0 && p.layout.role[t] != MASKED ? p.sorted[p.spots[id]] : 1.0f;
	}
}
