package reweight

import "cmp"

// RLOO sets advantages to each trajectory's reward less the mean reward of the others
// of its group (leave one out, arXiv 2402.14740):
//
//	A = n / (n-1) (r - mean_g)
//
// with n the members of the group. A group of one gets 0: there is no other. Every
// trajectory of a group counts, also one without response tokens. Masked tokens get 0.
//
// advantages has one element per token, Rewards and GroupIDs one per trajectory;
// advantages may be any array of b that is one float32 per token: none is read. A wrong
// shape or a reward that is not finite is an error, and advantages is not written.
func (ws *Workspace) RLOO(advantages []float32, b *Batch) error {
	defer ws.release(ws.taken)
	if err := b.checkOutput("advantages", advantages); err != nil {
		return err
	}
	return ws.eachReward(b, nil, func(q int, g groupReward) {
		a := 0.0
		if g.n > 1 {
			a = g.n / (g.n - 1) * (float64(b.Rewards[q]) - g.mean)
		}
		b.fill(advantages, q, float32(a), 0)
	})
}

// ReinforcePlusPlusOptions are the options of [Workspace.ReinforcePlusPlus].
type ReinforcePlusPlusOptions struct {
	Gamma float64 // discount, above 0 and at most 1
}

// DefaultReinforcePlusPlus discounts nothing.
var DefaultReinforcePlusPlus = ReinforcePlusPlusOptions{Gamma: 1}

// ReinforcePlusPlus sets advantages to the discounted sums of TokenRewards, backwards
// over the response tokens of each trajectory, whitened (REINFORCE++, arXiv 2501.03262; verl,
// compute_reinforce_plus_plus_outcome_advantage):
//
//	G_t = r_t + Gamma G_next(t)    A_t = (G_t - mean) / sqrt(var + 1e-8)
//
// where next(t) is the trajectory's next response token, after which masked tokens are
// passed over; mean and variance (n-1) are over the response tokens of the batch. The
// reward of an outcome belongs at the trajectory's last response token. Masked tokens
// get 0, and so does a response token that is the only one of the batch.
//
// In Go, returns gets the sums before they are whitened, unless it is nil. It may be
// TokenRewards in the place of advantages.
//
// advantages, TokenRewards and Role have one element per token, and SeqOffsets must be
// set. advantages may be TokenRewards. A wrong shape or option, or a reward of a response
// token that is not finite, is an error, and nothing is written.
func (ws *Workspace) ReinforcePlusPlus(advantages, returns []float32, b *Batch, opt ReinforcePlusPlusOptions) error {
	defer ws.release(ws.taken)
	T := b.Tokens()
	if err := cmp.Or(
		checkLens(T, "token", array{"advantages", advantages}, array{"TokenRewards", b.TokenRewards}),
		checkOptional("returns", returns, T, "token"),
		b.checkLayout(),
		checkRange("Gamma", opt.Gamma, 0, 1),
		checkSet("Gamma", opt.Gamma, "DefaultReinforcePlusPlus"),
	); err != nil {
		return err
	}
	sums := take[float64](ws, T)
	for q := range b.Trajectories() {
		next := 0.0
		for t := b.SeqOffsets[q+1] - 1; t >= b.SeqOffsets[q]; t-- {
			if b.Role[t] != RoleMasked {
				next = float64(b.TokenRewards[t]) + float64(opt.Gamma*next)
			}
			sums[t] = next
		}
	}
	n := responses(b.Role)
	mean, squares := spread64(sums, b.Role, n)
	if mean-mean != 0 {
		return notFiniteResponse("TokenRewards", b.TokenRewards, b.Role)
	}
	f := whitening(n, squares)
	for t, r := range b.Role {
		a, g := 0.0, 0.0
		if r != RoleMasked {
			g = sums[t]
			a = (g - mean) * f
		}
		advantages[t] = float32(a)
		if returns != nil {
			returns[t] = float32(g)
		}
	}
	return nil
}

// spread64 returns the mean of x over the n response tokens, and the sum of squares about
// it: token t in lane t mod 16.
func spread64(x []float64, role []Role, n int) (mean, squares float64) {
	var lane [lanes]float64
	for t, r := range role {
		if r != RoleMasked {
			lane[t%lanes] += x[t]
		}
	}
	mean = tree(&lane) / float64(max(n, 1))
	clear(lane[:])
	for t, r := range role {
		if r != RoleMasked {
			d := x[t] - mean
			lane[t%lanes] += float64(d * d)
		}
	}
	return mean, tree(&lane)
}

// ReinforcePlusPlusBaseline sets advantages to each trajectory's reward less the mean of
// its group, whitened over response tokens (REINFORCE++-baseline, arXiv 2501.03262;
// verl, compute_reinforce_plus_plus_baseline_outcome_advantage):
//
//	a_q = r_q - mean_g    A_t = (a_q(t) - mean) / sqrt(var + 1e-8)
//
// A group of one has mean 0; every trajectory of a group counts, also one without
// response tokens. The second mean and the variance (n-1) are over the response tokens
// of the batch, so that long trajectories count more. Masked tokens get 0, and so does a
// response token that is the only one of the batch.
//
// advantages has one element per token, Rewards and GroupIDs one per trajectory;
// advantages may be any array of b that is one float32 per token: none is read. A wrong
// shape, or a reward that is not finite, is an error, and advantages is not written.
func (ws *Workspace) ReinforcePlusPlusBaseline(advantages []float32, b *Batch) error {
	defer ws.release(ws.taken)
	if err := b.checkOutput("advantages", advantages); err != nil {
		return err
	}
	relative := take[float64](ws, b.Trajectories())
	if err := ws.eachReward(b, nil, func(q int, g groupReward) {
		relative[q] = g.relative(b.Rewards[q], false, 0)
	}); err != nil {
		return err
	}
	ws.whitenOutcomes(advantages, b, relative)
	return nil
}
