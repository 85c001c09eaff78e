package reweight

import "cmp"

// OPO sets advantages to each trajectory's reward less the baseline of its group with the
// least variance, for which a long response counts more (on-policy RL with optimal reward
// baseline, arXiv 2505.23585; verl, compute_opo_outcome_advantage):
//
//	A = r - sum_g n r / sum_g n
//
// with n the response tokens of a trajectory. The baseline of a group of one is 0. Masked
// tokens get 0.
//
// advantages has one element per token, Rewards and GroupIDs one per trajectory;
// advantages may be any array of b that is one float32 per token: none is read. A wrong
// shape or a reward that is not finite is an error, and advantages is not written.
func (ws *Workspace) OPO(advantages []float32, b *Batch) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(b.checkOutput("advantages", advantages), b.checkRewards()); err != nil {
		return err
	}
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return err
	}
	for group := range groups.each {
		baseline := 0.0
		if len(group) > 1 {
			tokens, rewards := 0.0, 0.0 // each response token has the reward of its trajectory
			for _, q := range group {
				n := float64(b.responses(q))
				tokens += n
				rewards += float64(n * float64(b.Rewards[q]))
			}
			baseline = rewards / tokens // of a group without response tokens nobody reads it
		}
		for _, q := range group {
			b.fill(advantages, q, float32(float64(b.Rewards[q])-baseline), 0)
		}
	}
	return nil
}
