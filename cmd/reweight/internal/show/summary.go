package show

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"gonum.org/v1/gonum/stat"
)

// A beginning is a number that trajectories share if they have the same tokens up to their first
// action: the same prompt and the same reasoning. It is 0 where that is not known.
type beginning uint64

var beginnings = maphash.MakeSeed()

func beginningOf(b *reweight.Batch) beginning {
	action := slices.Index(b.Role, reweight.RoleAction)
	if action < 0 || b.TokenIDs == nil {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(beginnings)
	for _, id := range b.TokenIDs[:action] {
		maphash.WriteComparable(&h, id)
	}
	return beginning(h.Sum64() | 1)
}

// summary says in whole sentences what one should know of rollouts before training with them. What a loss
// multiplies the advantages by is left out where multiplied says that a note has it.
func summary(b *reweight.Batch, c Credit, begins []beginning, multiplied bool) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	actions, responses := 0, 0
	var onActions, weight float64
	for t, r := range b.Role {
		if r == reweight.RoleMasked {
			continue
		}
		w := 0.0
		if c.Weights != nil {
			w = float64(c.Weights[t])
		}
		responses++
		weight += w
		if r == reweight.RoleAction {
			actions++
			onActions += w
		}
	}
	if responses == 0 {
		return nil
	}
	share := fmt.Sprintf("Actions are %.1f%% of the agent's %s tokens", 100*float64(actions)/float64(responses),
		humanize.Comma(int64(responses)))
	if weight > 0 && actions > 0 {
		share += fmt.Sprintf(", and have %.1f%% of the weight by ActFocus", 100*onActions/weight)
	}
	add("%s.", share)

	answers, malformed := 0, 0
	groups := map[int32][]int{} // trajectories
	for s := range b.Trajectories() {
		from, to := b.SeqOffsets[s], b.SeqOffsets[s+1]
		for _, turn := range turnsOf(b, from, to) {
			if turn.Agent < turn.End {
				answers++
				if !slices.Contains(b.Role[from:to][turn.Agent:turn.End], reweight.RoleAction) {
					malformed++
				}
			}
		}
		if b.GroupIDs != nil {
			groups[b.GroupIDs[s]] = append(groups[b.GroupIDs[s]], s)
		}
	}
	add("Answers without an action: %d of %d.", malformed, answers)
	equal, unchanged := 0, 0
	for _, members := range groups {
		alike, ones := b.Rewards != nil, c.Factors != nil
		for _, s := range members {
			alike = alike && b.Rewards[s] == b.Rewards[members[0]]
			for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1] && ones; t++ {
				ones = c.Factors[t] == 1 || b.Role[t] == reweight.RoleMasked
			}
		}
		if alike {
			equal++
		}
		if ones {
			unchanged++
		}
	}
	if len(groups) > 0 && b.Rewards != nil {
		add("Groups in which all rewards are equal: %d of %d.", equal, len(groups))
	}
	if len(groups) > 0 && c.Factors != nil {
		add("Groups in which AEM changes nothing, because the entropies of the answers are alike: %d of %d.", unchanged, len(groups))
	}
	switch d := decided(b, groups, begins); {
	case d.reasonings > 0 && 4*d.shared > 3*d.known: // those that are equal by luck are the short and frequent ones
		add("D, the share of the reward's variance given the prompt that the reasoning decides: %.2f, from %d reasonings that have several answers.", d.share, d.reasonings)
	case d.known > 0:
		add("In which tokens the signal is, and whether other weights of them help, is not to be seen in rollouts alone: " +
			"python -m reweight audit measures it, with the model that drew them.")
	}
	if weight > 0 && actions > 0 && actions < responses && !multiplied {
		mean := weight / float64(responses)
		add("A loss that is a mean over tokens divides by the sum of the weights: it multiplies the advantages of actions by %.3g on average, and those of reasoning by %.3g.",
			onActions/float64(actions)/mean, (weight-onActions)/float64(responses-actions)/mean)
	}
	return all
}

// A decision is how much of the reward the reasoning decides.
type decision struct {
	share      float64 // D
	reasonings int     // that it was estimated from
	known      int     // trajectories of groups whose beginning is known
	shared     int     // of these, those whose beginning another one of the group has
}

// decided estimates
//
//	D = Var over reasonings of E[R | prompt, reasoning] / Var(R | prompt)
//
// from the groups with at least two reasonings that have at least two answers each. Both variances are
// unbiased, so that D may be a little below 0. Without such groups, or where no reward differs, there is
// no D: 0 reasonings.
func decided(b *reweight.Batch, groups map[int32][]int, begins []beginning) (d decision) {
	if b.Rewards == nil {
		return d
	}
	var between, within float64                           // sums over groups of estimates of the variances
	for _, id := range slices.Sorted(maps.Keys(groups)) { // sums in one order
		rewards := map[beginning][]float64{}
		var order []beginning
		for _, s := range groups[id] {
			begin := begins[s]
			if begin == 0 {
				continue
			}
			if rewards[begin] == nil {
				order = append(order, begin)
			}
			rewards[begin] = append(rewards[begin], float64(b.Rewards[s]))
			d.known++
		}
		var means, variances []float64
		var ofMeans float64 // what the means vary by though the reasonings were alike
		for _, begin := range order {
			if r := rewards[begin]; len(r) > 1 {
				mean, variance := stat.MeanVariance(r, nil)
				means, variances = append(means, mean), append(variances, variance)
				ofMeans += variance / float64(len(r))
				d.shared += len(r)
			}
		}
		if n := len(means); n > 1 {
			d.reasonings += n
			within += stat.Mean(variances, nil)
			between += stat.Variance(means, nil) - ofMeans/float64(n)
		}
	}
	if between+within == 0 {
		d.reasonings = 0
	} else {
		d.share = between / (between + within)
	}
	return d
}
