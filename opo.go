package reweight

import "cmp"

// opoGroup is the trajectories of a group, their response tokens, and the rewards of
// these tokens: each has that of its trajectory.
type opoGroup struct{ trajectories, tokens, rewards float64 }

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
	groups, err := ws.groupsOf(b)
	if err != nil {
		return err
	}
	perGroup := take[opoGroup](ws, len(groups))
	clear(perGroup)
	for q, r := range b.Rewards {
		g, n := &perGroup[groups.of(b.GroupIDs[q])], float64(b.responses(q))
		g.trajectories++
		g.tokens += n
		g.rewards += float64(n * float64(r))
	}
	for q, r := range b.Rewards {
		baseline := 0.0
		if g := perGroup[groups.of(b.GroupIDs[q])]; g.trajectories > 1 {
			baseline = g.rewards / g.tokens // of a group without response tokens nobody reads it
		}
		b.fill(advantages, q, float32(float64(r)-baseline), 0)
	}
	return nil
}
