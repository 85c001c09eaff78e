package reference

import (
	"fmt"
	"math"
)

// GRPO returns the advantage of every trajectory, [S], from its outcome reward
// and its group, both [S]:
//
//	A = (r - mean) / (std + 1e-6)
//
// mean and std (with n-1) are those of the group's rewards; a group of one has
// mean 0 and std 1. With divide false it is r - mean, as in Dr.GRPO
// (arXiv:2503.20783). (verl: compute_grpo_outcome_advantage.)
func GRPO(rewards []float64, groupIDs []int32, divide bool) ([]float64, error) {
	if err := checkLen("groupIDs", len(groupIDs), len(rewards), "trajectories"); err != nil {
		return nil, err
	}
	a := make([]float64, len(rewards))
	_, groups := members(groupIDs)
	for _, group := range groups {
		m, std := 0.0, 1.0
		if len(group) > 1 {
			r := make([]float64, len(group))
			for i, s := range group {
				r[i] = rewards[s]
			}
			m = mean(r)
			std = math.Sqrt(variance(r))
		}
		for _, s := range group {
			a[s] = rewards[s] - m
			if divide {
				a[s] /= std + 1e-6
			}
		}
	}
	return a, nil
}

// TokenAdvantages gives every response token its trajectory's advantage, and
// masked tokens 0. role is [T], offsets [S+1], advantages [S]; the result is
// [T]. (verl: the end of compute_grpo_outcome_advantage.)
func TokenAdvantages(role []Role, offsets []int64, advantages []float64) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkLen("advantages", len(advantages), len(offsets)-1, "trajectories"),
	); err != nil {
		return nil, err
	}
	a := make([]float64, len(role))
	for s := range advantages {
		for t := offsets[s]; t < offsets[s+1]; t++ {
			if role[t] != RoleMasked {
				a[t] = advantages[s]
			}
		}
	}
	return a, nil
}

// GAE returns generalised advantage estimates (arXiv:1506.02438) and returns,
// both [T], from token-level rewards and the critic's values. rewards, values
// and role are [T], offsets [S+1]. Backwards over each trajectory, from
// V' = g = 0 at its end:
//
//	delta = r_t + gamma V' - V_t
//	g     = delta + gamma lambda g'
//
// Over a masked token V' and g pass unchanged, and it gets the g that passes.
// Returns are A + V, before any whitening. (verl: compute_gae_advantage_return.)
// gamma and lambda are in [0, 1].
func GAE(rewards, values []float64, role []Role, offsets []int64, gamma, lambda float64) (advantages, returns []float64, err error) {
	if err := first(
		checkRoles(role),
		checkLen("rewards", len(rewards), len(role), "tokens"),
		checkLen("values", len(values), len(role), "tokens"),
		checkOffsets(offsets, len(role)),
	); err != nil {
		return nil, nil, err
	}
	if !(gamma >= 0 && gamma <= 1) {
		return nil, nil, fmt.Errorf("reference: gamma = %v, want 0 to 1", gamma)
	}
	if !(lambda >= 0 && lambda <= 1) {
		return nil, nil, fmt.Errorf("reference: lambda = %v, want 0 to 1", lambda)
	}
	advantages = make([]float64, len(role))
	returns = make([]float64, len(role))
	for s := 0; s+1 < len(offsets); s++ {
		nextValue, g := 0.0, 0.0
		for t := offsets[s+1] - 1; t >= offsets[s]; t-- {
			if role[t] != RoleMasked {
				delta := rewards[t] + gamma*nextValue - values[t]
				g = delta + gamma*lambda*g
				nextValue = values[t]
			}
			advantages[t] = g
			returns[t] = g + values[t]
		}
	}
	return advantages, returns, nil
}

// Whiten returns (x - mean) / sqrt(var + 1e-8), with the mean and the variance
// (with n-1) of the response tokens; x and role are [T]. As in verl
// (masked_whiten) every element is mapped, the masked ones too. Fewer than two
// response tokens are an error.
func Whiten(x []float64, role []Role) ([]float64, error) {
	if err := first(checkRoles(role), checkLen("x", len(x), len(role), "tokens")); err != nil {
		return nil, err
	}
	var response []float64
	for t, r := range role {
		if r != RoleMasked {
			response = append(response, x[t])
		}
	}
	if len(response) < 2 {
		return nil, fmt.Errorf("reference: role has %d response tokens, want at least 2 to whiten", len(response))
	}
	m := mean(response)
	scale := 1 / math.Sqrt(variance(response)+1e-8)
	white := make([]float64, len(x))
	for t := range x {
		white[t] = (x[t] - m) * scale
	}
	return white, nil
}

// variance returns sum (x - mean)^2 / (n - 1), for n of at least 2.
func variance(x []float64) float64 {
	m := mean(x)
	sum := 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(x)-1)
}
