package reweight

// GPG sets advantages to each trajectory's reward less the mean of its group, larger where
// few trajectories have a reward (group policy gradient, arXiv 2504.02546; verl,
// compute_gpg_outcome_advantage):
//
//	A = alpha (r - mean_g)    alpha = S / max(1, trajectories with a reward other than 0)
//
// with S the trajectories of the batch. A group of one has mean 0; every trajectory counts,
// in S and in its group, also one without response tokens. Masked tokens get 0. The loss of
// GPG is the policy gradient, pg.
//
// advantages has one element per token, Rewards and GroupIDs one per trajectory;
// advantages may be any array of b that is one float32 per token: none is read. A wrong
// shape or a reward that is not finite is an error, and advantages is not written.
func (ws *Workspace) GPG(advantages []float32, b *Batch) error {
	defer ws.release(ws.taken)
	if err := b.checkOutput("advantages", advantages); err != nil {
		return err
	}
	paid := 0
	for _, r := range b.Rewards {
		if r != 0 {
			paid++
		}
	}
	alpha := float64(len(b.Rewards)) / float64(max(1, paid))
	return ws.eachReward(b, nil, func(q int, g groupReward) {
		b.fill(advantages, q, float32(alpha*g.relative(b.Rewards[q], false, 0)), 0)
	})
}
