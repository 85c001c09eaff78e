package reweight

import "cmp"

// GRPOOptions are the options of [Workspace.GRPO]. The zero value is Dr. GRPO.
type GRPOOptions struct {
	Eps         float64 // added to the standard deviation, at least 0
	DivideByStd bool    // false: Dr. GRPO, to which Eps does not matter
}

// DefaultGRPO divides by the standard deviation plus 1e-6.
var DefaultGRPO = GRPOOptions{Eps: 1e-6, DivideByStd: true}

// GRPO sets advantages[t] of the response tokens of each trajectory to its
// reward relative to its group (verl, compute_grpo_outcome_advantage):
//
//	A = (r - mean_g) / (std_g + Eps)
//
// with n-1 in the variance; a group of one has mean 0 and std 1. Masked tokens
// get 0. advantages has one element per token, Rewards and GroupIDs one per
// trajectory. A wrong shape or option or a reward that is not finite is an
// error, and advantages is not written. advantages may be any array of b that
// is one per token and that GRPO does not read.
func (ws *Workspace) GRPO(advantages []float32, b *Batch, opt GRPOOptions) error {
	defer ws.release(ws.taken)
	if err := cmp.Or(b.checkOutput("advantages", advantages), checkNotNegative("Eps", opt.Eps)); err != nil {
		return err
	}
	return ws.eachReward(b, nil, func(q int, g groupReward) {
		b.fill(advantages, q, float32(g.relative(b.Rewards[q], opt.DivideByStd, opt.Eps)), 0)
	})
}

// GAEOptions are the options of [Workspace.GAE]. Gamma and Lambda that are both 0 are an error: nobody
// has set them. One of them may be 0.
type GAEOptions struct {
	Gamma  float64 // discount, in [0, 1]; 0 leaves each token its own reward
	Lambda float64 // in [0, 1]; 0 looks one token ahead
}

// DefaultGAE discounts nothing.
var DefaultGAE = GAEOptions{Gamma: 1, Lambda: 1}

// GAE sets advantages and returns of each response token, backwards over each
// trajectory (generalized advantage estimation; verl,
// compute_gae_advantage_return):
//
//	delta = r_t + Gamma V' - V_t    A_t = delta + Gamma Lambda A'    return = A_t + V_t
//
// where V' and A' belong to the next response token, and are 0 after the last:
// masked tokens are passed over, and get 0. rewards are per token. All arrays,
// Values included, have one element per token; advantages may be rewards, and
// returns may be nil. A wrong shape or option is an error, and nothing is written.
func (ws *Workspace) GAE(advantages, returns, rewards []float32, b *Batch, opt GAEOptions) error {
	T := b.Tokens()
	if err := cmp.Or(
		checkLen("advantages", len(advantages), T, "token"),
		checkOptional("returns", returns, T, "token"),
		checkLens(T, "token", array{"rewards", rewards}, array{"Values", b.Values}),
		b.checkLayout(),
		checkRange("Gamma", opt.Gamma, 0, 1),
		checkRange("Lambda", opt.Lambda, 0, 1),
		checkEither("Gamma", opt.Gamma, "Lambda", opt.Lambda, "DefaultGAE"),
	); err != nil {
		return err
	}
	decay := float64(opt.Gamma * opt.Lambda)
	for s := range b.Trajectories() {
		next, gae := 0.0, 0.0
		for t := b.SeqOffsets[s+1] - 1; t >= b.SeqOffsets[s]; t-- {
			a, v := 0.0, 0.0
			if b.Role[t] != RoleMasked {
				v = float64(b.Values[t])
				delta := float64(rewards[t]) + float64(opt.Gamma*next) - v
				gae = delta + float64(decay*gae)
				next, a = v, gae
			}
			advantages[t] = float32(a)
			if returns != nil {
				returns[t] = float32(a + v)
			}
		}
	}
	return nil
}
