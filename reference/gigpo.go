package reference

import "slices"

// GiGPOOptions are the parameters of GiGPO; the paper has gamma 0.95 and omega 1.
type GiGPOOptions struct {
	Gamma       float64 // discount of span rewards, in [0, 1]
	Omega       float64 // weight of the step advantages
	DivideByStd bool    // F is std + 1e-6; false: 1
	PerStep     bool    // the group's mean and std are over spans, as in the public code; false: over trajectories
}

// GiGPO returns the advantage of every response token, [T] (arXiv:2505.10978):
//
//	A_t = E_q(t) + omega B_s(t)
//
// E is the episode relative advantage of the trajectory (GiGPOEpisode), and B the step
// relative advantage of the span (GiGPOStep).
func GiGPO(b *Batch, opt GiGPOOptions) []float64 {
	episode, step := GiGPOEpisode(b, opt), GiGPOStep(b, opt)
	a := b.spread(episode)
	for s, tokens := range b.spans() {
		for _, t := range tokens {
			a[t] += opt.Omega * step[s]
		}
	}
	return a
}

// GiGPOEpisode returns E of every trajectory, [S]:
//
//	E_q = (r_q - mean) / F     over the trajectories of the group
//
// std has n-1. A trajectory alone has mean 0 and std 1. With PerStep each trajectory
// counts once for each of its spans in the mean and the std.
func GiGPOEpisode(b *Batch, opt GiGPOOptions) []float64 {
	b.perTrajectory(b.Rewards)
	trajectory := b.trajectoryOfSpans()
	episode := make([]float64, len(b.Rewards))
	for _, group := range b.groups() {
		compared := pick(b.Rewards, group)
		if opt.PerStep {
			compared = nil
			for _, q := range trajectory {
				if b.GroupIDs[q] == b.GroupIDs[group[0]] {
					compared = append(compared, b.Rewards[q])
				}
			}
		}
		m, f := meanAndDivisor(compared, opt.DivideByStd)
		for _, q := range group {
			episode[q] = (b.Rewards[q] - m) / f
		}
	}
	return episode
}

// GiGPOStep returns B of every span, [spans], from its discounted return G, backwards over the
// spans of a trajectory:
//
//	G_s = r_s + gamma G_next(s)
//	B_s = (G_s - mean) / F     over the spans with the same group and anchor
//
// A span alone has B = 0, and so have spans whose returns are equal.
func GiGPOStep(b *Batch, opt GiGPOOptions) []float64 {
	trajectory := b.trajectoryOfSpans()
	fit(len(b.SpanRewards), len(trajectory), "span")
	fit(len(b.Anchors), len(trajectory), "span")
	returns := slices.Clone(b.SpanRewards)
	for s := len(returns) - 2; s >= 0; s-- {
		if trajectory[s+1] == trajectory[s] {
			returns[s] += opt.Gamma * returns[s+1]
		}
	}
	var states [][2]int32
	for s, q := range trajectory {
		states = append(states, [2]int32{b.GroupIDs[q], b.Anchors[s]})
	}
	step := make([]float64, len(returns))
	for _, together := range members(states) {
		compared := pick(returns, together)
		if least, largest := MinMax(compared); least == largest {
			continue // also a span alone; the mean of equal returns may differ from them by rounding
		}
		m, f := meanAndDivisor(compared, opt.DivideByStd)
		for _, s := range together {
			step[s] = (returns[s] - m) / f
		}
	}
	return step
}
