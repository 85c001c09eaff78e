// Advantages of a whole batch: GRPO and GAE.

#include "layout.cuh"

// ---------------------------------------------------------------- GRPO

struct Grpo {
	Layout layout;
	float *advantages;   // [tokens]
	const float *rewards; // [trajectories]
	const i32 *groupIDs; // [trajectories]
	float *scores;       // [trajectories] scratch: the advantage of each
	double eps;
	i64 divideByStd;
};

// isLeader returns whether no trajectory before q is of its group. It looks at the
// nearest first, because the trajectories of a group are often neighbours. A warp calls
// it.
DEVICE bool isLeader(const Grpo &p, i64 q) {
	const i32 group = p.groupIDs[q];
	for (i64 end = q; end > 0; end -= WARP) {
		const i64 e = end - WARP + lane();
		if (any(e >= 0 && p.groupIDs[e] == group)) return false;
	}
	return true;
}

// Members are the trajectories of one group among 32.
struct Members {
	u32 lanes;    // one bit each
	float reward; // of this lane's, if it is one
};

// membersOf returns the members of a group among the trajectories from base on. A warp
// calls it, a lane for each trajectory.
DEVICE Members membersOf(const Grpo &p, i32 group, i64 base) {
	const i64 q = base + lane();
	const bool member = q < p.layout.trajectories && p.groupIDs[q] == group;
	const float reward = member ? p.rewards[q] : 0;
	return {ballot(member), reward};
}

// grpo_scores gives a warp to each trajectory. That of a group's first trajectory
// computes the advantages of the whole group. All its lanes sum in the order of the
// trajectories, as the CPU does.
KERNEL(128) void grpo_scores(Grpo p) {
	const i64 end = p.layout.trajectories;
	for (i64 q = globalWarp(); q < end; q += globalWarps()) {
		const float own = p.rewards[q];
		if (!finite(own) && lane() == 0) note(p.layout.problem, WRONG_REWARD, q);
		if (!isLeader(p, q)) continue;
		const i32 group = p.groupIDs[q];
		double n = 0, mean = 0, squares = 0;
		for (i64 base = q; base < end; base += WARP) {
			const Members m = membersOf(p, group, base);
			for (u32 rest = m.lanes; rest; rest &= rest - 1) {
				n++;
				mean += (double)shuffle(m.reward, __builtin_ctz(rest));
			}
		}
		mean /= n;
		for (i64 base = q; base < end; base += WARP) {
			const Members m = membersOf(p, group, base);
			for (u32 rest = m.lanes; rest; rest &= rest - 1) {
				const double d = (double)shuffle(m.reward, __builtin_ctz(rest)) - mean;
				squares += d * d;
			}
		}
		double std = squareRoot(squares / (n - 1));
		if (n == 1) {
			mean = 0;
			std = 1;
		}
		for (i64 base = q; base < end; base += WARP) {
			const Members m = membersOf(p, group, base);
			double a = (double)m.reward - mean;
			if (p.divideByStd && a != 0) a /= std + p.eps;
			if (m.lanes >> lane() & 1) p.scores[base + lane()] = (float)a;
		}
	}
}

// grpo_advantages gives a CTA to each trajectory.
KERNEL(256) void grpo_advantages(Grpo p) {
	if (*p.layout.problem != NO_PROBLEM) {
		if (globalIndex() == 0) {
			describeLayout(p.layout);
			if (*p.layout.problem >> KIND_SHIFT == WRONG_REWARD) {
				const i64 q = problemIndex(*p.layout.problem);
				report(p.layout.status, PROBLEM_REWARD, ARG_REWARDS, q, bitsOf(p.rewards[q]));
			}
		}
		fillNaN(p.advantages, p.layout.tokens);
		return;
	}
	for (i64 q = blockIndex(); q < p.layout.trajectories; q += blockCount()) {
		const float a = p.scores[q];
		const i64 to = p.layout.offsets[q + 1];
		for (i64 t = p.layout.offsets[q] + threadIndex(); t < to; t += threadCount())
			p.advantages[t] = p.layout.role[t] == MASKED ? 0 : a;
	}
}

// ---------------------------------------------------------------- GAE

struct Gae {
	Layout layout;
	float *advantages; // [tokens]
	float *returns;    // [tokens] or 0
	const float *rewards, *values; // [tokens]
	double gamma, decay; // decay: of what is to come, gamma * lambda
};

// A Token is what the recurrence reads of one.
struct Token {
	bool response;
	float reward, value;
};

DEVICE Token tokenAt(const Gae &p, i64 t, i64 from) {
	Token k = {false, 0, 0};
	if (t < from) return k;
	const u8 role = p.layout.role[t];
	const float reward = p.rewards[t], value = p.values[t];
	if (role != MASKED) k = {true, reward, value};
	return k;
}

// gae gives a warp to each trajectory. It takes 32 tokens at a time, from the last to
// the first, and reads the next 32 meanwhile. Each lane computes its token's delta;
// what remains is one product and one sum for each token, which every lane does.
KERNEL(128) void gae(Gae p) {
	if (*p.layout.problem != NO_PROBLEM) {
		if (globalIndex() == 0) describeLayout(p.layout);
		fillNaN(p.advantages, p.layout.tokens);
		if (p.returns) fillNaN(p.returns, p.layout.tokens);
		return;
	}
	for (i64 q = globalWarp(); q < p.layout.trajectories; q += globalWarps()) {
		const i64 from = p.layout.offsets[q];
		i64 t = p.layout.offsets[q + 1] - WARP + lane();
		Token ahead = tokenAt(p, t, from);
		double next = 0, sum = 0; // value and advantage of the next response token
		for (; any(t >= from); t -= WARP) {
			const Token k = ahead;
			ahead = tokenAt(p, t - WARP, from);
			const u32 responses = ballot(k.response), later = responses >> lane() >> 1;
			const float nearest = shuffle(k.value, lane() + (later ? __builtin_ctz(later) + 1 : 0));
			const double delta = (double)k.reward + p.gamma * (later ? (double)nearest : next) - (double)k.value;
			double a = 0;
#pragma unroll 8
			for (int j = WARP - 1; j >= 0; j--) {
				const double d = shuffle(delta, j);
				if (!(responses >> j & 1)) continue;
				sum = d + p.decay * sum;
				if (lane() == j) a = sum;
			}
			if (responses) next = (double)shuffle(k.value, __builtin_ctz(responses));
			if (t >= from) {
				p.advantages[t] = (float)a;
				if (p.returns) p.returns[t] = (float)(a + (double)k.value);
			}
		}
	}
}
