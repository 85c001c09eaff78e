// Package diagnostics states what is reported of a batch, as package reference states the
// schemes. Statistics are gonum's. Tests alone import it.
package diagnostics

import (
	"math"
	"slices"

	"github.com/seed621a2839/reweight/reference"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// A Correlation is a Spearman rank correlation and its two-sided p value.
type Correlation struct{ Rho, P float64 }

// RoleCorrelations are of all response tokens, of reasoning and of action tokens.
type RoleCorrelations struct{ All, Reasoning, Action Correlation }

// A BottleneckResult has the correlations of Bottleneck: the paper's, and two that the
// length of episodes moves less or not at all. They are NaN if the batch has no spans.
type BottleneckResult struct {
	RoleCorrelations
	FirstTurn, GivenTurns RoleCorrelations
}

// Bottleneck correlates, across groups, the variance of the rewards with the mean energy of
// the tokens: of all response tokens, of the reasoning tokens and of the action tokens,
// pooled over the trajectories of the group (ActFocus, arXiv:2605.14558, the action
// bottleneck). A group without such tokens is left out. FirstTurn takes the energies of the
// first span of each trajectory; GivenTurns is Partial, given the mean number of spans of
// the group's trajectories.
func Bottleneck(b *reference.Batch) BottleneckResult {
	correlate := func(firstTurn bool, roles ...reference.Role) (plain, given Correlation) {
		var variances, energies, turns []float64
		for _, id := range slices.Compact(slices.Sorted(slices.Values(b.GroupIDs))) {
			var rewards, energy, spans []float64
			for s, group := range b.GroupIDs {
				if group != id {
					continue
				}
				rewards = append(rewards, b.Rewards[s])
				var seen []int32
				for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
					if b.SpanIDs != nil && b.Role[t] != reference.RoleMasked && !slices.Contains(seen, b.SpanIDs[t]) {
						seen = append(seen, b.SpanIDs[t])
					}
					if slices.Contains(roles, b.Role[t]) && (!firstTurn || b.SpanIDs != nil && b.SpanIDs[t] == seen[0]) {
						energy = append(energy, b.RefEnergy[t])
					}
				}
				spans = append(spans, float64(len(seen)))
			}
			if len(energy) > 0 {
				variances = append(variances, RewardVariance(rewards))
				energies = append(energies, stat.Mean(energy, nil))
				turns = append(turns, stat.Mean(spans, nil))
			}
		}
		if b.SpanIDs == nil {
			return Spearman(variances, energies), Correlation{math.NaN(), math.NaN()}
		}
		return Spearman(variances, energies), Partial(variances, energies, turns)
	}
	var res BottleneckResult
	res.All, res.GivenTurns.All = correlate(false, reference.RoleReasoning, reference.RoleAction)
	res.Reasoning, res.GivenTurns.Reasoning = correlate(false, reference.RoleReasoning)
	res.Action, res.GivenTurns.Action = correlate(false, reference.RoleAction)
	res.FirstTurn.All, _ = correlate(true, reference.RoleReasoning, reference.RoleAction)
	res.FirstTurn.Reasoning, _ = correlate(true, reference.RoleReasoning)
	res.FirstTurn.Action, _ = correlate(true, reference.RoleAction)
	return res
}

// RewardVariance returns the variance sum (R - mean)^2 / n of the rewards of a group. It is
// computed as sum_{i<j} (R_i - R_j)^2 / n^2 over the sorted rewards. Two groups with the
// same rewards in another order, or with successes and failures exchanged, then have
// exactly the same variance and share a rank.
func RewardVariance(rewards []float64) float64 {
	r := slices.Sorted(slices.Values(rewards))
	sum := 0.0
	for i := range r {
		for j := range i {
			sum += (r[i] - r[j]) * (r[i] - r[j])
		}
	}
	n := float64(len(r))
	return sum / (n * n)
}

// Spearman returns the rank correlation of x and y, equally long: the Pearson correlation
// of their ranks, ties by average rank. P is the two-sided p value of
// t = rho sqrt((n-2) / (1-rho^2)) under Student's t distribution with n-2 degrees of
// freedom. Rho is NaN where a side is constant or there are fewer than two pairs, and P
// for fewer than three.
func Spearman(x, y []float64) Correlation {
	if len(x) < 2 {
		return Correlation{math.NaN(), math.NaN()}
	}
	return tested(stat.Correlation(ranks(x), ranks(y), nil), len(x)-2)
}

// Partial returns the partial rank correlation of x and y given z: the Pearson correlation
// of what regression on the ranks of z leaves of the ranks of x and y,
//
//	(r_xy - r_xz r_yz) / sqrt((1 - r_xz^2) (1 - r_yz^2))
//
// with n-3 degrees of freedom. It is Spearman's of x and y where z is constant, and NaN
// where z has the order of x or of y, or its reverse.
func Partial(x, y, z []float64) Correlation {
	xy, xz, yz := Spearman(x, y), Spearman(x, z).Rho, Spearman(y, z).Rho
	if math.IsNaN(xz) || math.IsNaN(yz) {
		return xy
	}
	left := (1 - xz) * (1 + xz) * (1 - yz) * (1 + yz)
	if left < 1e-14 {
		return Correlation{math.NaN(), math.NaN()}
	}
	return tested((xy.Rho-xz*yz)/math.Sqrt(left), len(x)-3)
}

// tested adds the p value of a correlation with so many degrees of freedom.
func tested(rho float64, df int) Correlation {
	if df < 1 {
		return Correlation{rho, math.NaN()}
	}
	t := math.Abs(rho) * math.Sqrt(float64(df)/((1-rho)*(1+rho)))
	return Correlation{rho, 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(df)}.Survival(t)}
}

// ranks returns the rank of each element, from 1; equal elements share the mean of their
// ranks.
func ranks(x []float64) []float64 {
	ranks := make([]float64, len(x))
	for i, v := range x {
		below, equal := 0.0, 0.0
		for _, w := range x {
			if w < v {
				below++
			} else if w == v {
				equal++
			}
		}
		ranks[i] = below + (equal+1)/2
	}
	return ranks
}

// EntropyDrift returns, for every span, A_s (S_s - H_s): the advantage times the
// difference of the surprisal S_s = -sum log pi_old and the entropy H_s = sum H, both
// sums over the response tokens of the span (AEM, arXiv:2605.00425v3).
// A_s is the mean advantage of these tokens, which with GRPO all have the same.
// The result is [spans], 0 for a span without response tokens.
func EntropyDrift(b *reference.Batch) []float64 {
	drift := make([]float64, 1+slices.Max(append([]int32{-1}, b.SpanIDs...)))
	for s := range drift {
		var advantages, excess []float64
		for t, of := range b.SpanIDs {
			if int(of) == s && b.Role[t] != reference.RoleMasked {
				advantages = append(advantages, b.Advantages[t])
				excess = append(excess, -b.OldLogprobs[t]-b.Entropy[t])
			}
		}
		if n := float64(len(excess)); n > 0 {
			drift[s] = stat.Mean(advantages, nil) * n * stat.Mean(excess, nil)
		}
	}
	return drift
}
