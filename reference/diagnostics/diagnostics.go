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

// A BottleneckResult has the correlations of Bottleneck.
type BottleneckResult struct{ All, Reasoning, Action Correlation }

// Bottleneck correlates, across groups, the variance of the rewards with the mean energy of
// the tokens: of all response tokens, of the reasoning tokens and of the action tokens,
// pooled over the trajectories of the group (ActFocus, arXiv:2605.14558, the action
// bottleneck). A group without such tokens is left out.
func Bottleneck(b *reference.Batch) BottleneckResult {
	correlate := func(roles ...reference.Role) Correlation {
		var variances, energies []float64
		for _, id := range slices.Compact(slices.Sorted(slices.Values(b.GroupIDs))) {
			var rewards, energy []float64
			for s, group := range b.GroupIDs {
				if group != id {
					continue
				}
				rewards = append(rewards, b.Rewards[s])
				for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
					if slices.Contains(roles, b.Role[t]) {
						energy = append(energy, b.RefEnergy[t])
					}
				}
			}
			if len(energy) > 0 {
				variances = append(variances, RewardVariance(rewards))
				energies = append(energies, stat.Mean(energy, nil))
			}
		}
		return Spearman(variances, energies)
	}
	return BottleneckResult{
		All:       correlate(reference.RoleReasoning, reference.RoleAction),
		Reasoning: correlate(reference.RoleReasoning),
		Action:    correlate(reference.RoleAction),
	}
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
	rho := stat.Correlation(ranks(x), ranks(y), nil)
	if len(x) < 3 {
		return Correlation{rho, math.NaN()}
	}
	df := float64(len(x) - 2)
	t := math.Abs(rho) * math.Sqrt(df/((1-rho)*(1+rho)))
	return Correlation{rho, 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Survival(t)}
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
