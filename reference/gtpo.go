package reference

import "math"

// A Normalization says which shaped rewards GTPO and GRPO-S normalise together.
type Normalization string

// The normalizations. The paper has NormalizeSeparate for GTPO and NormalizeJoint
// for GRPO-S.
const (
	NormalizeSeparate Normalization = "separate" // those of successes, and those of failures
	NormalizeJoint    Normalization = "joint"    // all of the scope
	NormalizeNone     Normalization = "none"     // the advantages are the shaped rewards
)

// ShapingOptions are the parameters of GTPO and GRPOS.
type ShapingOptions struct {
	Base          float64 // weight of the outcome: a1, b1
	Bonus         float64 // weight of the entropy's share: a2, b2
	Threshold     float64 // a reward above it is a success
	EntropyLow    float64 // entropies are clamped to [EntropyLow, EntropyHigh] first
	EntropyHigh   float64
	Normalization Normalization
	Scope         Scope // ScopeGroup or ScopeBatch
}

// shapingFloor is e, what GTPO and GRPO-S add to or keep denominators above.
const shapingFloor = 1e-8

// GTPO returns the advantages of the response tokens, [T], from their shaped rewards u
// (arXiv:2508.04349). In each group, O+ are the trajectories with a reward above the
// threshold, O- the others; those without response tokens are in neither. Token j of
// trajectory i is its j-th response token, d_j and h_j are the numbers of trajectories in
// O+ and O- that have one, and e = 1e-8:
//
//	O+: u_ij = a1 r_i + a2 d_j H_ij / max(sum_{O+} H_.j, e)
//	O-: u_ij = -a1 - a2 h_j v_ij / max(sum_{O-} v_.j, e)     v = 1 / (H + e)
//	A = (u - mean) / sqrt(var + e)
//
// mean and var (with n) are those of the tokens normalised together; one token, or
// equal u, have A = 0. ScopeBatch does not read GroupIDs.
func GTPO(b *Batch, opt ShapingOptions) []float64 {
	b.perToken(b.Entropy)
	H := make([]float64, len(b.Role))
	v := make([]float64, len(b.Role))
	for t := range b.Role {
		H[t] = clamp(b.Entropy[t], opt.EntropyLow, opt.EntropyHigh)
		v[t] = 1 / (H[t] + shapingFloor)
	}
	tokens := b.trajectories()
	shaped := make([]float64, len(b.Role))
	advantages := make([]float64, len(b.Role))
	for _, set := range shapingSets(b, opt) {
		for _, place := range samePlace(tokens, set.successes) {
			d, total := float64(len(place.tokens)), sum(pick(H, place.tokens))
			for k, t := range place.tokens {
				r := b.Rewards[place.trajectories[k]]
				shaped[t] = opt.Base*r + opt.Bonus*d*H[t]/max(total, shapingFloor)
			}
		}
		for _, place := range samePlace(tokens, set.failures) {
			h, total := float64(len(place.tokens)), sum(pick(v, place.tokens))
			for _, t := range place.tokens {
				shaped[t] = -opt.Base - opt.Bonus*h*v[t]/max(total, shapingFloor)
			}
		}
		normalizeShaped(advantages, shaped, tokensOf(tokens, set.successes), tokensOf(tokens, set.failures), opt.Normalization)
	}
	return advantages
}

// GRPOS returns the advantages of the response tokens, [T], which are those of their
// trajectory, from its shaped reward u (arXiv:2508.04349). O+, O- and e are those of GTPO,
// and Hbar is a trajectory's mean entropy:
//
//	O+: u_i = b1 r_i + b2 |O+| Hbar_i / max(sum_{O+} Hbar, e)
//	O-: u_i = -b1 - b2 |O-| v_i / max(sum_{O-} v, e)         v = 1 / (Hbar + e)
//	A = (u - mean) / sqrt(var + e)
//
// mean and var (with n) are those of the trajectories normalised together; one, or
// equal u, have A = 0. ScopeBatch does not read GroupIDs.
func GRPOS(b *Batch, opt ShapingOptions) []float64 {
	b.perToken(b.Entropy)
	var hbar, v []float64
	for i, tokens := range b.trajectories() {
		H := pick(b.Entropy, tokens)
		for j, h := range H {
			H[j] = clamp(h, opt.EntropyLow, opt.EntropyHigh)
		}
		hbar = append(hbar, mean(H))
		v = append(v, 1/(hbar[i]+shapingFloor))
	}
	shaped := make([]float64, len(hbar))
	advantages := make([]float64, len(hbar))
	for _, set := range shapingSets(b, opt) {
		n, total := float64(len(set.successes)), sum(pick(hbar, set.successes))
		for _, i := range set.successes {
			shaped[i] = opt.Base*b.Rewards[i] + opt.Bonus*n*hbar[i]/max(total, shapingFloor)
		}
		n, total = float64(len(set.failures)), sum(pick(v, set.failures))
		for _, i := range set.failures {
			shaped[i] = -opt.Base - opt.Bonus*n*v[i]/max(total, shapingFloor)
		}
		normalizeShaped(advantages, shaped, set.successes, set.failures, opt.Normalization)
	}
	return b.spread(advantages)
}

// A shapingSet is O+ and O- of one group, or of the batch.
type shapingSet struct{ successes, failures []int }

// shapingSets returns the sets of the scope.
func shapingSets(b *Batch, opt ShapingOptions) (sets []shapingSet) {
	b.perTrajectory(b.Rewards)
	groups := [][]int{nil}
	if opt.Scope == ScopeGroup {
		groups = b.groups()
	} else {
		for i := range b.Rewards {
			groups[0] = append(groups[0], i)
		}
	}
	tokens := b.trajectories()
	for _, group := range groups {
		var set shapingSet
		for _, i := range group {
			switch {
			case len(tokens[i]) == 0:
			case b.Rewards[i] > opt.Threshold:
				set.successes = append(set.successes, i)
			default:
				set.failures = append(set.failures, i)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// A place is the j-th response tokens of some trajectories, and those that have one.
type place struct{ tokens, trajectories []int }

// samePlace returns the first, second, ... response tokens of some trajectories.
func samePlace(tokens [][]int, trajectories []int) []place {
	var places []place
	for _, i := range trajectories {
		for j, t := range tokens[i] {
			if j == len(places) {
				places = append(places, place{})
			}
			places[j].tokens = append(places[j].tokens, t)
			places[j].trajectories = append(places[j].trajectories, i)
		}
	}
	return places
}

// tokensOf returns the tokens of some trajectories.
func tokensOf(tokens [][]int, trajectories []int) []int {
	var of []int
	for _, i := range trajectories {
		of = append(of, tokens[i]...)
	}
	return of
}

// normalizeShaped sets the advantages at the places of successes and failures.
func normalizeShaped(advantages, shaped []float64, successes, failures []int, normalization Normalization) {
	var together [][]int
	switch normalization {
	case NormalizeSeparate:
		together = [][]int{successes, failures}
	case NormalizeJoint:
		together = [][]int{append(append([]int(nil), successes...), failures...)}
	case NormalizeNone:
		copy(advantages, shaped)
	}
	for _, places := range together {
		u := pick(shaped, places)
		if least, largest := MinMax(u); least == largest {
			continue // their mean may differ from them by rounding
		}
		m, squares := mean(u), 0.0
		for _, v := range u {
			squares += (v - m) * (v - m)
		}
		for _, i := range places {
			advantages[i] = (shaped[i] - m) / math.Sqrt(squares/float64(len(u))+shapingFloor)
		}
	}
}
