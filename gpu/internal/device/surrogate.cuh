// The clipped surrogate of groups of 128 tokens, and its sums over trajectories.
//
// The sums have the order of laneSum in kernels_portable.go: each lane adds the values
// of a group in float32, and the groups in float64. A half of a warp takes a group and
// leaves its lanes in scratch memory; the chain over the groups of a trajectory comes in
// another launch, when all are there.
#pragma once

#include "math.cuh"
#include "tokens.cuh"

#define GROUP 128
#define HALF (WARP / 2)
#define STEPS (GROUP / LANES) // tokens of a lane in a group
#define MAX_RATIO 20.0f       // of |log pi - log pi_old|

// A Segment is what is summed by itself: a trajectory, or the whole batch. Its groups
// are counted from its first token.
struct Segment {
	i64 begin, end;
	MEMBER i64 groups() const { return (end - begin + GROUP - 1) / GROUP; }
};

// Segments are the trajectories of a batch, or if offsets is 0 the batch as a whole.
struct Segments {
	const i64 *offsets; // [count+1]
	i64 count, tokens;

	MEMBER Segment at(i64 s) const { return offsets ? Segment{offsets[s], offsets[s + 1]} : Segment{0, tokens}; }

	// Each group has a slot in scratch memory. Segment s has no more groups than there
	// are slots from its first one to that of segment s+1.
	MEMBER i64 firstSlot(i64 s) const { return (offsets ? offsets[s] / GROUP : 0) + s; }
	MEMBER i64 slots() const { return tokens / GROUP + count; }

	// ofSlot returns the last segment whose first slot is not behind the given one.
	MEMBER i64 ofSlot(i64 slot) const {
		i64 s = 0;
		for (i64 above = count; above - s > 1;) {
			i64 middle = (s + above) / 2;
			if (firstSlot(middle) <= slot) s = middle;
			else above = middle;
		}
		return s;
	}
};

// A Group is 128 tokens of a segment, or the fewer that are left; begin is not below
// end if there are none.
struct Group {
	i64 slot, segment, begin, end;
};

DEVICE Group groupOf(const Segments &segments, i64 slot) {
	Group g = {slot, 0, 0, 0};
	if (slot >= segments.slots()) return g;
	g.segment = segments.ofSlot(slot);
	Segment s = segments.at(g.segment);
	// The offsets may be wrong: then none of what they say is read.
	i64 group = slot - segments.firstSlot(g.segment);
	if (s.begin < 0 || s.begin > s.end || s.end > segments.tokens || group < 0 || group >= s.groups()) return g;
	g.begin = s.begin + group * GROUP;
	g.end = smaller(g.begin + GROUP, s.end);
	return g;
}

// The first slot of this thread's half of the warp, and how many slots all halves take
// at a time. Both halves of a warp make the same number of steps.
DEVICE i64 firstOfHalf() { return globalIndex() / HALF; }
DEVICE i64 halves() { return globalCount() / HALF; }
DEVICE i64 firstOfWarp() { return firstOfHalf() / 2 * 2; }

// ---------------------------------------------------------------- tokens

struct Surrogate {
	float *grad;
	const float *logprobs, *old, *advantages, *weights; // weights 0: ones
	const u8 *role;
	float (*sums)[2][LANES]; // [slots] scratch: of the losses and of the log-ratios
	u32 *counts;             // [slots] scratch: tokens, and 2^16 times those that are clipped
	Status *status;
	Segments segments;
	float low, high, dual; // the ratio's clip range; the bound of the loss, +Inf for none
	float scale;           // of the gradient
};

// surrogateOf does what surrogatePortable of kernels_portable.go does, for a group.
// scale multiplies the gradients, unit the weights; a scale that is zero sets the
// gradients to 0, whatever they are. All threads of a warp call it.
DEVICE void surrogateOf(const Surrogate &p, const Group &g, float scale, bool zero, double unit) {
	const u32 t = lane() % LANES;
	float logprob[STEPS], old[STEPS], advantage[STEPS], weight[STEPS];
	u32 role[STEPS];
#pragma unroll
	for (int j = 0; j < STEPS; j++) { // all loads before the first store: grad may be an input
		i64 i = g.begin + j * LANES + t;
		logprob[j] = old[j] = advantage[j] = 0;
		weight[j] = 1;
		role[j] = MASKED;
		if (i >= g.end) continue;
		role[j] = p.role[i];
		logprob[j] = p.logprobs[i];
		old[j] = p.old[i];
		advantage[j] = p.advantages[i];
		if (p.weights) weight[j] = p.weights[i];
	}
	float losses = 0, ratios = 0;
	u32 counts = 0;
#pragma unroll
	for (int j = 0; j < STEPS; j++) {
		i64 i = g.begin + j * LANES + t;
		float loss = 0, ratio = 0, gradient = 0;
		if (role[j] > ACTION) {
			report(p.status, PROBLEM_ROLE, ARG_BARE_ROLE, i, role[j]);
			loss = ratio = gradient = NAN32;
		} else if (role[j] != MASKED) {
			float w = (float)(weight[j] * unit);
			float d = logprob[j] - old[j];
			ratio = atMost(MAX_RATIO, atLeast(-MAX_RATIO, d));
			float rho = exp2OfAny(ratio * LOG2E32), neg = -advantage[j];
			float l1 = neg * rho, l2 = neg * atMost(p.high, atLeast(p.low, rho)), l3 = neg * p.dual, l = l1;
			gradient = l1;
			if (l2 > l1) {
				l = l2;
				gradient = 0;
				counts += 1 << 16;
			}
			if (neg > 0 && l > l3) {
				l = l3;
				gradient = 0;
			}
			if (d < -MAX_RATIO || d > MAX_RATIO) gradient = 0;
			loss = w * l;
			gradient = (w * gradient) * scale;
			if (zero) gradient = 0;
			counts++;
		}
		if (i < g.end) p.grad[i] = gradient;
		losses += loss;
		ratios += ratio;
	}
	for (int h = HALF / 2; h > 0; h /= 2) counts += shuffleXor(counts, h);
	if (g.begin >= g.end) return;
	p.sums[g.slot][0][t] = losses;
	p.sums[g.slot][1][t] = ratios;
	if (t == 0) p.counts[g.slot] = counts;
}

// ---------------------------------------------------------------- segments

struct SurrogateSums { // reweight.SurrogateSums
	i64 tokens, clipped;
	double loss, logRatio;
};

#define READ_AHEAD 32 // groups that are read before those before them are added

DEVICE void readGroups(float (&v)[READ_AHEAD], const float *lanes, i64 first, i64 groups) {
#pragma unroll
	for (int j = 0; j < READ_AHEAD; j++) v[j] = first + j < groups ? lanes[(first + j) * 2 * LANES] : 0;
}

// sumSegment returns the sums of a segment. A warp calls it, and lane 0 gets the
// result: the lower half adds the losses, the upper half the log-ratios.
DEVICE SurrogateSums sumSegment(const Surrogate &p, i64 s) {
	const i64 slot = p.segments.firstSlot(s), groups = p.segments.at(s).groups();
	i64 tokens = 0, clipped = 0;
	for (i64 g = lane(); g < groups; g += WARP) {
		tokens += p.counts[slot + g] & 0xffff;
		clipped += p.counts[slot + g] >> 16;
	}
	const float *lanes = &p.sums[slot][0][0] + lane();
	float next[READ_AHEAD];
	double acc = 0;
	readGroups(next, lanes, 0, groups);
	for (i64 g = 0; g < groups; g += READ_AHEAD) {
		float v[READ_AHEAD];
#pragma unroll
	for (int j = 0; j < READ_AHEAD; j++) v[j] = next[j];
		readGroups(next, lanes, g + READ_AHEAD, groups);
#pragma unroll
	for (int j = 0; j < READ_AHEAD; j++) acc += (double)v[j]; // 0 changes nothing: acc is never -0
	}
	for (int h = WARP / 2; h > 0; h /= 2) {
		tokens += shuffleXor(tokens, h);
		clipped += shuffleXor(clipped, h);
	}
	double sum = tree(acc);
	return {tokens, clipped, sum, shuffle(sum, LANES)};
}
