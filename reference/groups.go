package reference

import "math"

// OPO returns the advantage of every response token, [T]: the reward of its trajectory less
// the mean reward of the response tokens of its group, each of which has that of its
// trajectory (arXiv:2505.23585),
//
//	A = r - sum n r / sum n
//
// where n is the number of response tokens of a trajectory; a group of one has the
// baseline 0. (verl: compute_opo_outcome_advantage.)
func OPO(b *Batch) []float64 {
	b.perTrajectory(b.Rewards)
	a, tokens := make([]float64, len(b.Rewards)), b.trajectories()
	for _, group := range b.groups() {
		n, paid := 0.0, 0.0
		for _, s := range group {
			n += float64(len(tokens[s]))
			paid += float64(len(tokens[s])) * b.Rewards[s]
		}
		baseline := 0.0
		if len(group) > 1 {
			baseline = paid / n
		}
		for _, s := range group {
			a[s] = b.Rewards[s] - baseline
		}
	}
	return b.spread(a)
}

// PassAtK returns the advantage of every response token, [T]. Of each group only the
// trajectory with the highest reward has one, which is
//
//	A = (highest - second highest) / (std + 1e-6)
//
// with n-1 in std, or without the divisor (arXiv:2503.19595). The groups have at least two
// trajectories. (verl: compute_grpo_passk_outcome_advantage.)
func PassAtK(b *Batch, divide bool) []float64 {
	b.perTrajectory(b.Rewards)
	a := make([]float64, len(b.Rewards))
	for _, group := range b.groups() {
		first, second := group[0], math.Inf(-1)
		for _, s := range group[1:] {
			if r := b.Rewards[s]; r > b.Rewards[first] {
				first, second = s, b.Rewards[first]
			} else {
				second = max(second, r)
			}
		}
		_, f := meanAndDivisor(pick(b.Rewards, group), divide)
		a[first] = (b.Rewards[first] - second) / f
	}
	return b.spread(a)
}

// GPG returns the advantage of every response token, [T], from the outcome rewards of its
// group (arXiv:2504.02546):
//
//	A = alpha (r - mean)     alpha = S / max(1, trajectories whose reward is not 0)
//
// S is the number of trajectories, and a group of one has mean 0.
// (verl: compute_gpg_outcome_advantage.)
func GPG(b *Batch) []float64 {
	a, paid := GRPO(b, false), 0.0
	for _, r := range b.Rewards {
		if r != 0 {
			paid++
		}
	}
	for t := range a {
		a[t] *= float64(len(b.Rewards)) / max(1, paid)
	}
	return a
}

// GDPO returns the advantage of every response token, [T]: that of GRPO from each part of
// the reward alone, in RewardParts, added up with weights and whitened (arXiv:2601.05242),
//
//	a_q = sum_k w_k (r_qk - mean_k) / (std_k + 1e-6)
//
// or without the divisor. weights nil stand for ones.
// (verl: compute_gdpo_outcome_advantage.)
func GDPO(b *Batch, divide bool, weights []float64) []float64 {
	S := len(b.SeqOffsets) - 1
	parts := len(b.RewardParts) / S
	if weights == nil {
		weights = ones(parts)
	}
	fit(len(b.RewardParts), S*len(weights), "part of a trajectory")
	a := make([]float64, len(b.Role))
	for k, w := range weights {
		part := *b
		part.Rewards = nil
		for s := range S {
			part.Rewards = append(part.Rewards, b.RewardParts[s*parts+k])
		}
		for t, x := range GRPO(&part, divide) {
			a[t] += w * x
		}
	}
	return b.masked(Whiten(b, a))
}
