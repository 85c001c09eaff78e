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
	trajectories := b.trajectories()
	H := make([][]float64, len(trajectories))
	for i, tokens := range trajectories {
		H[i] = opt.clamped(pick(b.Entropy, tokens))
	}
	advantages := make([]float64, len(b.Role))
	for i, A := range shape(b, H, opt) {
		for j, t := range trajectories[i] {
			advantages[t] = A[j]
		}
	}
	return advantages
}

// clamped returns the entropies between the bounds.
func (opt *ShapingOptions) clamped(H []float64) []float64 {
	for j, h := range H {
		H[j] = clamp(h, opt.EntropyLow, opt.EntropyHigh)
	}
	return H
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
	trajectories := b.trajectories()
	hbar, advantages := make([][]float64, len(trajectories)), make([]float64, len(trajectories))
	for i, tokens := range trajectories {
		if len(tokens) > 0 {
			hbar[i] = []float64{mean(opt.clamped(pick(b.Entropy, tokens)))}
		}
	}
	for i, A := range shape(b, hbar, opt) {
		advantages[i] = sum(A) // of one, or none
	}
	return b.spread(advantages)
}

// shape returns the advantages A_ij of the entropies H_ij: of each response token of trajectory
// i, or of the trajectory itself.
func shape(b *Batch, H [][]float64, opt ShapingOptions) [][]float64 {
	b.perTrajectory(b.Rewards)
	scopes := members(make([]int32, len(H)))
	if opt.Scope == ScopeGroup {
		scopes = b.groups()
	}
	v, u := make([][]float64, len(H)), make([][]float64, len(H))
	for i := range H {
		for _, h := range H[i] {
			v[i] = append(v[i], 1/(h+shapingFloor))
		}
		u[i] = make([]float64, len(H[i]))
	}
	for _, scope := range scopes {
		var successes, failures []int
		for _, i := range scope {
			if b.Rewards[i] > opt.Threshold {
				successes = append(successes, i)
			} else {
				failures = append(failures, i)
			}
		}
		for _, i := range successes {
			for j := range u[i] {
				u[i][j] = opt.Base*b.Rewards[i] + opt.Bonus*share(H, successes, i, j)
			}
		}
		for _, i := range failures {
			for j := range u[i] {
				u[i][j] = -opt.Base - opt.Bonus*share(v, failures, i, j)
			}
		}
		switch opt.Normalization {
		case NormalizeSeparate:
			normalizeShaped(u, successes)
			normalizeShaped(u, failures)
		case NormalizeJoint:
			normalizeShaped(u, scope)
		}
	}
	return u
}

// share returns n x_ij / max(sum x_.j, e), the sum over those n of the trajectories that have
// an x_.j.
func share(x [][]float64, trajectories []int, i, j int) float64 {
	var all []float64
	for _, k := range trajectories {
		if j < len(x[k]) {
			all = append(all, x[k][j])
		}
	}
	return float64(len(all)) * x[i][j] / max(sum(all), shapingFloor)
}

// normalizeShaped turns the shaped rewards of trajectories into advantages.
func normalizeShaped(u [][]float64, trajectories []int) {
	var all []float64
	for _, i := range trajectories {
		all = append(all, u[i]...)
	}
	least, largest := MinMax(all)
	m, squares := mean(all), 0.0
	for _, x := range all {
		squares += (x - m) * (x - m)
	}
	for _, i := range trajectories {
		for j := range u[i] {
			if u[i][j] -= m; least == largest { // their mean may differ from them by rounding
				u[i][j] = 0
			}
			u[i][j] /= math.Sqrt(squares/float64(len(all)) + shapingFloor)
		}
	}
}
