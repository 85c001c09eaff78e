package diagnose

import (
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// RoleCorrelations are over all response tokens, over reasoning and over action tokens.
type RoleCorrelations struct{ All, Reasoning, Action Correlation }

// BottleneckResult holds the correlations of [Bottleneck]: the one of the paper, embedded,
// and two that the length of episodes changes less or not at all. Successful episodes are
// often longer and visit other states. This alone can change the correlation of the paper,
// even if all groups have the same prompt.
//
// FirstTurn takes only the energies of the first span of each trajectory. GivenTurns is the
// partial correlation of the ranks given the mean number of spans in the trajectories of the
// group: it removes most of the effect of the length, not all of it. Its P has one degree of
// freedom less. It is the correlation of the paper where all groups have the same mean number
// of spans, and NaN where this number has the same order as the variance or the energy, or the
// reverse. FirstTurn and GivenTurns are NaN without SpanIDs.
type BottleneckResult struct {
	RoleCorrelations
	FirstTurn, GivenTurns RoleCorrelations
}

// Bottleneck correlates, across the groups of the batch, the variance of the
// rewards with the mean reference energy of all response tokens, of reasoning
// tokens and of action tokens, pooled over the group (ActFocus, arXiv
// 2605.14558, the action bottleneck). Groups without such a token are left out.
// Role, RefEnergy and SpanIDs, which may be missing, have one element per token,
// Rewards and GroupIDs one per trajectory; anything else, or an energy of a
// response token that is not finite, is an error.
func Bottleneck(b *reweight.Batch) (BottleneckResult, error) {
	read := reweight.Batch{Role: b.Role, SeqOffsets: b.SeqOffsets, SpanIDs: b.SpanIDs,
		RefEnergy: b.RefEnergy, Rewards: b.Rewards, GroupIDs: b.GroupIDs}
	if err := check(&read, "RefEnergy", "Rewards", "GroupIDs"); err != nil {
		return BottleneckResult{}, err
	}
	for t, energy := range b.RefEnergy {
		if b.Role[t] != reweight.RoleMasked && energy-energy != 0 {
			return BottleneckResult{}, badElement("RefEnergy", t, problem.AtResponse, energy)
		}
	}
	groups, opening := groupsOf(b), opening(b)
	var res BottleneckResult
	res.All, res.FirstTurn.All, res.GivenTurns.All = correlate(b, groups, opening, reweight.Responses)
	res.Reasoning, res.FirstTurn.Reasoning, res.GivenTurns.Reasoning =
		correlate(b, groups, opening, reweight.Roles(reweight.RoleReasoning))
	res.Action, res.FirstTurn.Action, res.GivenTurns.Action =
		correlate(b, groups, opening, reweight.Roles(reweight.RoleAction))
	return res, nil
}

// A group is the trajectories of one prompt.
type group struct {
	trajectories []int
	variance     float64 // of the rewards
	turns        float64 // mean number of spans with response tokens in a trajectory
}

// groupsOf returns the groups of the batch, in the order in which they appear.
func groupsOf(b *reweight.Batch) []*group {
	var groups []*group
	byID := make(map[int32]*group)
	for s, id := range b.GroupIDs {
		if byID[id] == nil {
			byID[id] = new(group)
			groups = append(groups, byID[id])
		}
		byID[id].trajectories = append(byID[id].trajectories, s)
	}
	for _, g := range groups {
		var rewards []float64
		turns := 0
		for _, s := range g.trajectories {
			rewards = append(rewards, float64(b.Rewards[s]))
			turns += turnsOf(b, s)
		}
		g.variance = variance(rewards)
		g.turns = float64(turns) / float64(len(g.trajectories))
	}
	return groups
}

// turnsOf returns the number of spans with response tokens in a trajectory, 0 without SpanIDs.
func turnsOf(b *reweight.Batch, s int) int {
	if len(b.SpanIDs) == 0 {
		return 0
	}
	spans := make(map[int32]bool)
	for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
		if b.Role[t] != reweight.RoleMasked {
			spans[b.SpanIDs[t]] = true
		}
	}
	return len(spans)
}

// opening says of each token whether it is a response token in the first turn of its
// trajectory. It is nil without SpanIDs.
func opening(b *reweight.Batch) []bool {
	if len(b.SpanIDs) == 0 {
		return nil
	}
	opening := make([]bool, b.Tokens())
	for s := range b.Trajectories() {
		first := int32(-1)
		for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
			if b.Role[t] == reweight.RoleMasked {
				continue
			}
			if first < 0 {
				first = b.SpanIDs[t]
			}
			opening[t] = b.SpanIDs[t] == first
		}
	}
	return opening
}

// variance returns the variance of the rewards of a group. It sums the squares of the
// differences between sorted rewards: groups with the same differences then have exactly the
// same variance and share a rank. A mean would round.
func variance(rewards []float64) float64 {
	slices.Sort(rewards)
	sum, n := 0.0, float64(len(rewards))
	for j, r := range rewards {
		for _, lower := range rewards[:j] {
			sum += float64((r - lower) * (r - lower))
		}
	}
	return sum / (n * n)
}

// correlate returns the three forms of the correlation for tokens of these roles.
func correlate(b *reweight.Batch, groups []*group, opening []bool, roles reweight.RoleSet) (
	plain, firstTurn, givenTurns Correlation,
) {
	energies, variances, turns := columns(b, groups, func(t int) bool { return roles.Has(b.Role[t]) })
	plain = spearman(energies, variances)
	if opening == nil {
		return plain, undefined, undefined
	}
	givenTurns = partial(energies, variances, turns)
	energies, variances, _ = columns(b, groups, func(t int) bool { return roles.Has(b.Role[t]) && opening[t] })
	return plain, spearman(energies, variances), givenTurns
}

// columns returns the ranks of three numbers of each group that has tokens to keep: the mean
// energy of these tokens, the variance of the rewards, and the number of turns.
func columns(b *reweight.Batch, groups []*group, keep func(token int) bool) (energies, variances, turns []float64) {
	for _, g := range groups {
		sum, n := 0.0, 0
		for _, s := range g.trajectories {
			for t := int(b.SeqOffsets[s]); t < int(b.SeqOffsets[s+1]); t++ {
				if keep(t) {
					sum += float64(b.RefEnergy[t])
					n++
				}
			}
		}
		if n > 0 {
			energies = append(energies, sum/float64(n))
			variances = append(variances, g.variance)
			turns = append(turns, g.turns)
		}
	}
	return ranks(energies), ranks(variances), ranks(turns)
}
