package reference

import (
	"fmt"
	"math"
)

// GiGPOOptions are the parameters of GiGPO.
type GiGPOOptions struct {
	Gamma       float64 // discount of span rewards, in [0, 1]
	Omega       float64 // weight of the step advantages
	DivideByStd bool    // F is std + 1e-6; false: 1
	PerStep     bool    // the group's mean and std are over spans, as the public code has them; false: over trajectories
}

// DefaultGiGPO has the paper's constants.
var DefaultGiGPO = GiGPOOptions{Gamma: 0.95, Omega: 1}

// A GiGPOResult is what GiGPO returns.
type GiGPOResult struct {
	Advantages []float64 // [T], 0 at masked tokens
	Episode    []float64 // [S] E
	Returns    []float64 // [spans] G
	Step       []float64 // [spans] B
}

// GiGPO returns advantages from groups of trajectories, and from groups of spans
// that begin in the same state (arXiv:2505.10978):
//
//	E_q = (r_q - mean) / F          over the trajectories of the group
//	G_s = r_s + gamma G_next(s)     backwards over the spans of a trajectory
//	B_s = (G_s - mean) / F          over the spans with the same group and anchor
//	A_t = E_q(t) + omega B_s(t)
//
// std has n-1. A trajectory alone has mean 0 and std 1, a span alone B = 0, and so
// have spans whose returns are equal. With PerStep each trajectory counts once for
// each of its spans in the mean and the std of E. role and spanIDs are [T], offsets
// [S+1], groupIDs and rewards [S], anchors and spanRewards [spans].
func GiGPO(role []Role, spanIDs []int32, offsets []int64, groupIDs []int32, rewards []float64, anchors []int32, spanRewards []float64, opt GiGPOOptions) (GiGPOResult, error) {
	trajectory, err := responseSpans(role, spanIDs, offsets)
	if err != nil {
		return GiGPOResult{}, err
	}
	spans := len(trajectory)
	if err := first(
		checkLen("groupIDs", len(groupIDs), len(offsets)-1, "trajectories"),
		checkLen("rewards", len(rewards), len(offsets)-1, "trajectories"),
		checkLen("anchors", len(anchors), spans, "spans"),
		checkLen("spanRewards", len(spanRewards), spans, "spans"),
		checkFinite("rewards", rewards),
		checkFinite("spanRewards", spanRewards),
		checkNumber("opt.Omega", opt.Omega),
	); err != nil {
		return GiGPOResult{}, err
	}
	if !(opt.Gamma >= 0 && opt.Gamma <= 1) {
		return GiGPOResult{}, fmt.Errorf("reference: opt.Gamma = %v, want 0 to 1", opt.Gamma)
	}

	episode := make([]float64, len(rewards))
	_, groups := members(groupIDs)
	for _, group := range groups {
		compared := pick(rewards, group)
		if opt.PerStep {
			compared = nil
			for _, q := range trajectory {
				if groupIDs[q] == groupIDs[group[0]] {
					compared = append(compared, rewards[q])
				}
			}
		}
		m, f := meanAndDivisor(compared, opt.DivideByStd)
		for _, q := range group {
			episode[q] = (rewards[q] - m) / f
		}
	}

	returns := make([]float64, spans)
	for s := spans - 1; s >= 0; s-- {
		returns[s] = spanRewards[s]
		if s+1 < spans && trajectory[s+1] == trajectory[s] {
			returns[s] += opt.Gamma * returns[s+1]
		}
	}
	states := make([][2]int32, spans)
	for s := range states {
		states[s] = [2]int32{groupIDs[trajectory[s]], anchors[s]}
	}
	step := make([]float64, spans)
	_, groups = members(states)
	for _, group := range groups {
		compared := pick(returns, group)
		if least, largest := MinMax(compared); least == largest {
			continue // also a span alone; the mean of equal returns may differ from them by rounding
		}
		m, f := meanAndDivisor(compared, opt.DivideByStd)
		for _, s := range group {
			step[s] = (returns[s] - m) / f
		}
	}

	advantages := make([]float64, len(role))
	for t, s := range spanIDs {
		if role[t] != RoleMasked {
			advantages[t] = episode[trajectory[s]] + opt.Omega*step[s]
		}
	}
	return GiGPOResult{Advantages: advantages, Episode: episode, Returns: returns, Step: step}, nil
}

// meanAndDivisor returns the mean of x, and std + 1e-6 or 1. Fewer than two elements
// have mean 0 and std 1.
func meanAndDivisor(x []float64, divideByStd bool) (m, f float64) {
	std := 1.0
	if len(x) > 1 {
		m = mean(x)
		std = math.Sqrt(variance(x))
	}
	if !divideByStd {
		return m, 1
	}
	return m, std + 1e-6
}
