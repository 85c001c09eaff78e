package reference

import (
	"math"
	"slices"
	"sort"
)

// A Correlation is a Spearman rank correlation over N pairs and its two-sided p
// value. Rho is NaN where it is undefined (fewer than two pairs, or one side
// constant), and P for fewer than three pairs.
type Correlation struct {
	Rho, P float64
	N      int
}

// A BottleneckResult is what Bottleneck returns. The slices have one element
// per group, in the order in which the groups first appear.
type BottleneckResult struct {
	GroupIDs       []int32
	RewardVariance []float64 // RewardVariance of each group's rewards: a group of one has 0

	// Mean energy of the group's tokens, pooled over its trajectories: all
	// response tokens, the reasoning tokens, the action tokens. NaN for a
	// group without such tokens; a correlation leaves out a group that has NaN.
	AllEnergy, ReasoningEnergy, ActionEnergy []float64

	All, Reasoning, Action Correlation // of RewardVariance with each of them
}

// Bottleneck correlates, across groups, the variance of the rewards with
// the mean energy of the tokens (ActFocus, arXiv:2605.14558). role and energy
// are [T], offsets [S+1], groupIDs and rewards [S].
func Bottleneck(role []Role, offsets []int64, groupIDs []int32, rewards, energy []float64) (BottleneckResult, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkLen("groupIDs", len(groupIDs), len(offsets)-1, "trajectories"),
		checkLen("rewards", len(rewards), len(offsets)-1, "trajectories"),
		checkLen("energy", len(energy), len(role), "tokens"),
	); err != nil {
		return BottleneckResult{}, err
	}
	var b BottleneckResult
	var groups [][]int
	b.GroupIDs, groups = members(groupIDs)
	for _, group := range groups {
		var r, all, rea, act []float64
		for _, s := range group {
			r = append(r, rewards[s])
			for t := offsets[s]; t < offsets[s+1]; t++ {
				switch role[t] {
				case RoleReasoning:
					all = append(all, energy[t])
					rea = append(rea, energy[t])
				case RoleAction:
					all = append(all, energy[t])
					act = append(act, energy[t])
				}
			}
		}
		b.RewardVariance = append(b.RewardVariance, RewardVariance(r))
		b.AllEnergy = append(b.AllEnergy, mean(all))
		b.ReasoningEnergy = append(b.ReasoningEnergy, mean(rea))
		b.ActionEnergy = append(b.ActionEnergy, mean(act))
	}
	b.All = spearmanPresent(b.RewardVariance, b.AllEnergy)
	b.Reasoning = spearmanPresent(b.RewardVariance, b.ReasoningEnergy)
	b.Action = spearmanPresent(b.RewardVariance, b.ActionEnergy)
	return b, nil
}

// EntropyDrift returns, for every span, A_s (S_s - H_s): the advantage times the
// difference of the surprisal S_s = -sum log pi_old and the entropy H_s = sum H, both
// sums over the response tokens of the span (AEM, arXiv:2605.00425v3).
// A_s is the mean advantage of these tokens, which with GRPO all have the same.
// role, spanIDs, advantages, oldLogprobs and entropy are [T]; the result is
// [spans], 0 for a span without response tokens.
func EntropyDrift(role []Role, spanIDs []int32, advantages, oldLogprobs, entropy []float64) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkSpanIDs(role, spanIDs),
		checkLen("advantages", len(advantages), len(role), "tokens"),
		checkLen("oldLogprobs", len(oldLogprobs), len(role), "tokens"),
		checkLen("entropy", len(entropy), len(role), "tokens"),
	); err != nil {
		return nil, err
	}
	spans := spanCount(spanIDs)
	count := make([]float64, spans)
	A := make([]float64, spans)
	S := make([]float64, spans)
	H := make([]float64, spans)
	for t, s := range spanIDs {
		if s >= 0 && role[t] != RoleMasked {
			count[s]++
			A[s] += advantages[t]
			S[s] -= oldLogprobs[t]
			H[s] += entropy[t]
		}
	}
	drift := make([]float64, spans)
	for s := range drift {
		if count[s] > 0 {
			drift[s] = A[s] / count[s] * (S[s] - H[s])
		}
	}
	return drift, nil
}

// WeightMass returns the sum of the weights of the response tokens and the
// share of it that the action tokens carry, 0 if the sum is 0. role and weights
// are [T]. With UniformWeights it is the share before reweighting.
func WeightMass(role []Role, weights []float64) (sum, actionShare float64, err error) {
	if err := first(checkRoles(role), checkLen("weights", len(weights), len(role), "tokens")); err != nil {
		return 0, 0, err
	}
	actions := 0.0
	for t, r := range role {
		if r != RoleMasked {
			sum += weights[t]
		}
		if r == RoleAction {
			actions += weights[t]
		}
	}
	if sum == 0 {
		return 0, 0, nil
	}
	return sum, actions / sum, nil
}

// Spearman returns the rank correlation of x and y, equally long: the Pearson
// correlation of their ranks, ties by average rank. P is the two-sided p value
// of t = rho sqrt((N-2) / (1-rho^2)) under Student's t distribution with N-2
// degrees of freedom.
func Spearman(x, y []float64) (Correlation, error) {
	if err := checkLen("y", len(y), len(x), "pairs"); err != nil {
		return Correlation{}, err
	}
	return spearman(x, y), nil
}

func spearman(x, y []float64) Correlation {
	rho := pearson(Ranks(x), Ranks(y))
	return Correlation{Rho: rho, P: correlationP(rho, len(x)), N: len(x)}
}

// Ranks returns the rank of each element, from 1; equal elements share the mean
// of their ranks. If an element is NaN there is no order, and every rank is NaN.
func Ranks(x []float64) []float64 {
	ranks := make([]float64, len(x))
	if slices.ContainsFunc(x, math.IsNaN) {
		for i := range ranks {
			ranks[i] = math.NaN()
		}
		return ranks
	}
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return x[order[i]] < x[order[j]] })
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			ranks[order[k]] = float64(i+1+j) / 2 // the mean of i+1 ... j
		}
		i = j
	}
	return ranks
}

// spearmanPresent is spearman over the pairs whose y is not NaN.
func spearmanPresent(x, y []float64) Correlation {
	var xs, ys []float64
	for i := range y {
		if !math.IsNaN(y[i]) {
			xs = append(xs, x[i])
			ys = append(ys, y[i])
		}
	}
	return spearman(xs, ys)
}

// pearson returns the linear correlation, NaN if a side is constant or empty.
func pearson(x, y []float64) float64 {
	mx, my := mean(x), mean(y)
	var xy, xx, yy float64
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
		yy += (y[i] - my) * (y[i] - my)
	}
	return xy / math.Sqrt(xx*yy)
}

// correlationP returns the two-sided p value of a correlation of n pairs. With
// t = rho sqrt(df / (1-rho^2)) it is I_x(df/2, 1/2) at x = df/(df+t^2), which
// is 1 - rho^2.
func correlationP(rho float64, n int) float64 {
	if n < 3 || math.IsNaN(rho) {
		return math.NaN()
	}
	return RegularizedBeta((1-rho)*(1+rho), float64(n-2)/2, 0.5)
}

// RegularizedBeta returns the regularised incomplete beta function I_x(a, b) for
// positive a and b; an x that rounding put outside [0, 1] counts as 0 or 1. It
// is the continued fraction of Abramowitz and Stegun 26.5.8, evaluated from its
// start by Lentz's method.
func RegularizedBeta(x, a, b float64) float64 {
	if x <= 0 {
		return 0
	}
	if x > (a+1)/(a+b+2) { // where it converges slowly, the other tail does not
		return 1 - RegularizedBeta(1-x, b, a)
	}
	lga, _ := math.Lgamma(a)
	lgb, _ := math.Lgamma(b)
	lgab, _ := math.Lgamma(a + b)
	front := math.Exp(a*math.Log(x)+b*math.Log1p(-x)+lgab-lga-lgb) / a

	f, c, d := 1.0, 1.0, 0.0
	for i := 0; i <= 1000; i++ {
		m := float64(i / 2)
		var numerator float64
		switch {
		case i == 0:
			numerator = 1
		case i%2 == 0:
			numerator = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		default:
			numerator = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		d = 1 / (1 + numerator*d)
		c = 1 + numerator/c
		f *= c * d
		if math.Abs(c*d-1) < 1e-15 {
			break
		}
	}
	return front * (f - 1)
}

// RewardVariance returns the variance sum (R - mean)^2 / n of the rewards of a
// group, NaN for an empty group. It is computed as sum_{i<j} (R_i - R_j)^2 / n^2 over
// the sorted rewards. Two groups with the same rewards in another order, or with
// successes and failures exchanged, then have exactly the same variance and share a
// rank.
func RewardVariance(rewards []float64) float64 {
	r := slices.Clone(rewards)
	slices.Sort(r)
	sum := 0.0
	for i := range r {
		for j := range i {
			sum += (r[i] - r[j]) * (r[i] - r[j])
		}
	}
	n := float64(len(r))
	return sum / (n * n)
}
