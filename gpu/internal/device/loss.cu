// The loss, as loss.go computes it, in five launches: loss_check looks at the roles, the
// offsets and the weights, loss_weights sums the weights and the KL, loss_tokens has
// the surrogate of each token, loss_segments its sums over trajectories, and loss_total
// those over the batch.

#include "chains.cuh"
#include "surrogate.cuh"

#define LARGE_WEIGHT 0x1p64

// The aggregations; loss.go of package reweight has the same.
enum { TOKEN_MEAN, SEQ_MEAN_TOKEN_SUM, SEQ_MEAN_TOKEN_MEAN, SEQ_MEAN_TOKEN_SUM_NORM };

// What is known of a segment.
struct SegmentState {
	i64 responses;       // counted by loss_check, from 0
	double sum, squares; // of the weights of response tokens, if there are weights
	SurrogateSums sums;
};

// What is known of the batch: 0 at first.
struct LossState {
	u32 wrong;     // an input is in error
	u32 sequences; // trajectories with response tokens
	u64 longest;   // tokens of the longest trajectory
	double k3;     // sum over response tokens
};

struct LossResult { // reweight.LossResult
	double loss;
	i64 tokens;
	double weightSum, clipFraction, meanLogRatio, kl;
};

struct Loss {
	Surrogate of; // of.segments: what the aggregation sums by itself
	const float *reference; // log-probabilities, or 0
	const i64 *offsets;     // of the trajectories if the aggregation needs them, or 0
	i64 trajectories;
	SegmentState *segments; // scratch
	LossState *state;       // scratch
	LossResult *result;
	i64 aggregation;
	i64 normLength; // 0: the longest trajectory
};

DEVICE u32 atomicAdd(u32 *p, u32 v) {
	u32 was;
	asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(was) : "l"(p), "r"(v) : "memory");
	return was;
}
DEVICE u64 atomicAdd(i64 *p, u64 v) {
	u64 was;
	asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(was) : "l"(p), "l"(v) : "memory");
	return was;
}
DEVICE void atomicMax(u64 *p, u64 v) {
	u64 was;
	asm volatile("atom.global.max.u64 %0, [%1], %2;" : "=l"(was) : "l"(p), "l"(v) : "memory");
}

// ---------------------------------------------------------------- loss_check

DEVICE void wrong(const Loss &p, u32 code, u32 argument, i64 index, i64 value, i64 second = 0) {
	report(p.of.status, code, argument, index, value, second);
	p.state->wrong = 1;
}

// checkOffsets looks at where trajectory s begins, and the last thread at the end.
DEVICE void checkOffset(const Loss &p, i64 s) {
	i64 at = p.offsets[s];
	if (s == 0) {
		if (at != 0) wrong(p, PROBLEM_FIRST_OFFSET, ARG_SEQ_OFFSETS, 0, at);
		return;
	}
	i64 before = p.offsets[s - 1];
	if (at < before) {
		wrong(p, PROBLEM_OFFSET, ARG_SEQ_OFFSETS, s, at, before);
	} else {
		atomicMax(&p.state->longest, at - before);
		if (s == p.trajectories && at != p.of.segments.tokens) wrong(p, PROBLEM_LAST_OFFSET, ARG_SEQ_OFFSETS, s, at, p.of.segments.tokens);
	}
}

KERNEL(256) void loss_check(Loss p) {
	if (p.offsets)
		for (i64 s = globalIndex(); s <= p.trajectories; s += globalCount()) checkOffset(p, s);
	for (i64 slot = firstOfWarp(); slot < p.of.segments.slots(); slot += halves()) {
		Group g = groupOf(p.of.segments, slot + firstOfHalf() % 2);
		u32 responses = 0;
		for (int j = 0; j < STEPS; j++) {
			i64 i = g.begin + j * LANES + lane() % LANES;
			if (i >= g.end) continue;
			u32 role = p.of.role[i];
			if (role > ACTION) wrong(p, PROBLEM_ROLE, ARG_ROLE, i, role);
			if (role == MASKED) continue;
			responses++;
			if (p.of.weights && !finite(p.of.weights[i])) wrong(p, PROBLEM_AT_RESPONSE, ARG_WEIGHTS, i, bitsOf(p.of.weights[i]));
		}
		for (int h = HALF / 2; h > 0; h /= 2) responses += shuffleXor(responses, h);
		// The first group with responses counts the trajectory.
		if (responses && lane() % LANES == 0 && atomicAdd(&p.segments[g.segment].responses, responses) == 0) atomicAdd(&p.state->sequences, 1);
	}
}

// ---------------------------------------------------------------- loss_weights

// The terms of the KL: the k3 estimate at response tokens, clamped as meanK3 of loss.go
// does.
struct K3Terms {
	const float *logprobs, *reference;
	const u8 *role;

	struct Token {
		float logprob, reference;
		u32 role;
	};
	MEMBER static Token none() { return {0, 0, MASKED}; }
	MEMBER Token read(i64 i) const { return {logprobs[i], reference[i], role[i]}; }
	MEMBER bool term(const Token &t, double &value) const {
		value = 0;
		if (t.role == MASKED) return false;
		double x = (double)t.reference - (double)t.logprob;
		x = x > 20 ? 20 : x;
		x = x < -20 ? -20 : x;
		double k = k3(x);
		value = k > 10 ? 10 : k;
		return true;
	}
};

// A CTA for the KL, if it is wanted, and one for each segment, if there are weights.
KERNEL(CHAIN_THREADS) void loss_weights(Loss p) {
	if (p.state->wrong) return;
	const i64 first = p.reference ? 1 : 0, last = first + (p.of.weights ? p.of.segments.count : 0);
	for (i64 job = blockIndex(); job < last; job += blockCount()) {
		if (job < first) {
			Sums s = sumTokens(K3Terms{p.of.logprobs, p.reference, p.of.role}, 0, p.of.segments.tokens);
			if (threadIndex() == 0) p.state->k3 = s.sum;
		} else {
			Segment segment = p.of.segments.at(job - first);
			Sums s = sumTokens(Masked{{p.of.weights, 0, PLAIN}, p.of.role, RESPONSES, 0}, segment.begin, segment.end);
			if (threadIndex() == 0) {
				p.segments[job - first].sum = s.sum;
				p.segments[job - first].squares = s.squares;
			}
		}
	}
}

// ---------------------------------------------------------------- loss_tokens

// A Share is what the losses and the gradients of a segment are multiplied by, and its
// weights before that.
struct Share {
	double weight; // sum of the weights
	double share, unit;
};

DEVICE Share shareOf(const Loss &p, i64 s) {
	const SegmentState &segment = p.segments[s];
	Share q = {(double)segment.responses, 1, 1};
	bool large = false;
	if (p.of.weights) {
		q.weight = segment.sum;
		large = segment.squares > LARGE_WEIGHT * LARGE_WEIGHT;
	}
	double divisor = q.weight;
	if (p.aggregation == SEQ_MEAN_TOKEN_SUM_NORM) {
		i64 norm = p.normLength ? p.normLength : (i64)p.state->longest;
		q.share = 1 / (double)(norm > 1 ? norm : 1);
	} else if (p.aggregation != TOKEN_MEAN) {
		q.share = 1 / (double)(p.state->sequences > 1 ? p.state->sequences : 1);
	}
	const bool mean = p.aggregation == TOKEN_MEAN || p.aggregation == SEQ_MEAN_TOKEN_MEAN;
	if (large) {
		q.unit = 1 / LARGE_WEIGHT;
		divisor /= LARGE_WEIGHT;
		if (!mean) q.share *= LARGE_WEIGHT;
	}
	if (mean) {
		q.share /= divisor;
		if (!(q.share >= -(double)MAXFLOAT && q.share <= (double)MAXFLOAT)) q.share = 0;
	}
	return q;
}

KERNEL(256) void loss_tokens(Loss p) {
	if (p.state->wrong) {
		for (i64 i = globalIndex(); i < p.of.segments.tokens; i += globalCount()) p.of.grad[i] = NAN32;
		return;
	}
	for (i64 slot = firstOfWarp(); slot < p.of.segments.slots(); slot += halves()) {
		Group g = groupOf(p.of.segments, slot + firstOfHalf() % 2);
		Share q = shareOf(p, g.segment);
		surrogateOf(p.of, g, (float)q.share, q.share == 0, q.unit);
	}
}

// ---------------------------------------------------------------- loss_segments, loss_total

// A warp a segment.
KERNEL(128) void loss_segments(Loss p) {
	if (p.state->wrong) return;
	for (i64 s = globalIndex() / WARP; s < p.of.segments.count; s += globalCount() / WARP) {
		SurrogateSums sums = sumSegment(p.of, s);
		if (lane() == 0) p.segments[s].sums = sums;
	}
}

// What loss_total adds up over the segments, in their order. The counts are integers
// below 2^53: their sums are exact.
enum { WEIGHTS, LOSSES, LOG_RATIOS, TOKENS, CLIPPED, TOTALS };

#define TOTAL_THREADS 256

// One CTA.
KERNEL(TOTAL_THREADS) void loss_total(Loss p) {
	SHARED static double addends[TOTALS][TOTAL_THREADS];
	SHARED static double sums[TOTALS];
	const u32 t = threadIndex();
	const i64 count = p.of.segments.count;
	const bool wrong = p.state->wrong;
	double acc = 0;
	for (i64 first = 0; first < count; first += TOTAL_THREADS) {
		const i64 s = first + t;
		for (int k = 0; k < TOTALS; k++) addends[k][t] = 0;
		if (s < count && !wrong) {
			const SurrogateSums &q = p.segments[s].sums;
			Share share = shareOf(p, s);
			addends[WEIGHTS][t] = share.weight;
			if (share.share != 0) addends[LOSSES][t] = q.loss * share.share;
			addends[LOG_RATIOS][t] = q.logRatio;
			addends[TOKENS][t] = (double)q.tokens;
			addends[CLIPPED][t] = (double)q.clipped;
		}
		syncThreads();
		if (t < TOTALS) {
#pragma unroll 8
			for (u32 k = 0; k < TOTAL_THREADS; k++) acc += addends[t][k];
		}
		syncThreads();
	}
	if (t < TOTALS) sums[t] = acc;
	syncThreads();
	if (t != 0) return;
	LossResult r = {NAN64, 0, NAN64, NAN64, NAN64, NAN64};
	if (!wrong) {
		double n = sums[TOKENS];
		r = {sums[LOSSES], (i64)n, sums[WEIGHTS], 0, 0, 0};
		if (n > 0) {
			r.clipFraction = sums[CLIPPED] / n;
			r.meanLogRatio = sums[LOG_RATIOS] / n;
		}
		if (p.reference) r.kl = p.state->k3 / (n > 1 ? n : 1);
	}
	*p.result = r;
}
