package reference

import "fmt"

// RLOO returns the advantage of every trajectory, [S]: its reward less the mean
// reward of the others of its group (arXiv:2402.14740),
//
//	A = n/(n-1) (r - mean)
//
// where mean is over all n members; a group of one has A = 0. rewards and groupIDs
// are [S].
func RLOO(rewards []float64, groupIDs []int32) ([]float64, error) {
	if err := first(
		checkLen("groupIDs", len(groupIDs), len(rewards), "trajectories"),
		checkFinite("rewards", rewards),
	); err != nil {
		return nil, err
	}
	a := make([]float64, len(rewards))
	_, groups := members(groupIDs)
	for _, group := range groups {
		n := float64(len(group))
		if n == 1 {
			continue
		}
		m := mean(pick(rewards, group))
		for _, s := range group {
			a[s] = n / (n - 1) * (rewards[s] - m)
		}
	}
	return a, nil
}

// ReinforcePlusPlus returns the advantages of REINFORCE++ (arXiv:2501.03262) and the
// returns, both [T] and 0 at masked tokens. Backwards over the response tokens of
// each trajectory
//
//	G_t = r_t + gamma G_next(t)
//
// and the advantages are the whitened returns (Whiten). role and tokenRewards are
// [T], offsets [S+1]; gamma is in [0, 1]. G passes over masked tokens unchanged.
func ReinforcePlusPlus(role []Role, offsets []int64, tokenRewards []float64, gamma float64) (advantages, returns []float64, err error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkResponse("tokenRewards", tokenRewards, role),
	); err != nil {
		return nil, nil, err
	}
	if !(gamma >= 0 && gamma <= 1) {
		return nil, nil, fmt.Errorf("reference: gamma = %v, want 0 to 1", gamma)
	}
	returns = make([]float64, len(role))
	for _, tokens := range responseTokens(role, offsets) {
		g := 0.0
		for i := len(tokens) - 1; i >= 0; i-- {
			t := tokens[i]
			g = tokenRewards[t] + gamma*g
			returns[t] = g
		}
	}
	white, err := Whiten(returns, role)
	if err != nil {
		return nil, nil, err
	}
	return masked(white, role), returns, nil
}

// ReinforcePlusPlusBaseline returns the advantages of REINFORCE++-baseline
// (arXiv:2501.03262), [T] and 0 at masked tokens: the reward less the mean of its
// group, on every response token, and then whitened (Whiten). A group of one has the
// mean 0. role is [T], offsets [S+1], rewards and groupIDs [S].
func ReinforcePlusPlusBaseline(role []Role, offsets []int64, rewards []float64, groupIDs []int32) ([]float64, error) {
	if err := checkFinite("rewards", rewards); err != nil {
		return nil, err
	}
	centred, err := GRPO(rewards, groupIDs, false)
	if err != nil {
		return nil, err
	}
	a, err := TokenAdvantages(role, offsets, centred)
	if err != nil {
		return nil, err
	}
	white, err := Whiten(a, role)
	if err != nil {
		return nil, err
	}
	return masked(white, role), nil
}
