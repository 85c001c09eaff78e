package reweight

import (
	"cmp"
	"math"
)

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

// groupReward is the rewards of a group: their number, mean and sum of squared
// deviations.
type groupReward struct{ n, mean, squares float64 }

// eachReward checks the rewards and the groups of the batch, and calls f with each trajectory
// and the rewards of its group. That of a trajectory counts once or, unless first is nil, once
// for each of its spans, of which firstSpans has the first.
func (ws *Workspace) eachReward(b *Batch, first []int32, f func(q int, g groupReward)) error {
	if err := b.checkRewards(); err != nil {
		return err
	}
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return err
	}
	for group := range groups.each {
		g := b.sumRewards(group, first)
		for _, q := range group {
			f(q, g)
		}
	}
	return nil
}

// sumRewards sums the rewards of a group of trajectories, in their order; see eachReward.
func (b *Batch) sumRewards(group []int, first []int32) (g groupReward) {
	n := 1.0
	for _, q := range group {
		if first != nil {
			n = float64(first[q+1] - first[q])
		}
		g.n += n
		g.mean += float64(n * float64(b.Rewards[q]))
	}
	g.mean /= g.n
	for _, q := range group {
		if first != nil {
			n = float64(first[q+1] - first[q])
		}
		d := float64(b.Rewards[q]) - g.mean
		g.squares += float64(n * float64(d*d))
	}
	return g
}

// relative returns (r - mean) / (std + eps), or r - mean if it is not to be divided,
// with n-1 in the variance. A group of one has mean 0 and std 1.
func (g groupReward) relative(r float32, divide bool, eps float64) float64 {
	mean, std := g.mean, math.Sqrt(g.squares/(g.n-1))
	if g.n == 1 {
		mean, std = 0, 1
	}
	a := float64(r) - mean
	if divide && a != 0 {
		a /= std + eps
	}
	return a
}

// fill sets dst to x at the response tokens of trajectory s, to masked at its others.
func (b *Batch) fill(dst []float32, s int, x, masked float32) {
	for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
		dst[t] = masked
		if b.Role[t] != RoleMasked {
			dst[t] = x
		}
	}
}

// responses returns the number of response tokens of trajectory s.
func (b *Batch) responses(s int) int {
	return responses(b.Role[b.SeqOffsets[s]:b.SeqOffsets[s+1]])
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
// where V' and A' are those of the next response token, 0 after the last:
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

// whitenEps is added to the variance (verl, masked_whiten).
const whitenEps = 1e-8

// Whiten sets dst[t] = (x[t] - mean) / sqrt(var + 1e-8) for response tokens and
// 0 for masked ones, with the mean and the variance (n-1) over response tokens
// (verl, masked_whiten). A single response token gets 0. dst, x and role have
// the same length; dst may be x. A response token that is not finite is an
// error, and dst is not written.
func (ws *Workspace) Whiten(dst, x []float32, role []Role) error {
	isa, err := ws.ISA.resolve()
	err = cmp.Or(err, checkLens(len(role), "token", array{"dst", dst}, array{"x", x}), checkRoles("role", role))
	if err != nil {
		return err
	}
	n, mean, squares := ws.spread(isa, x, role, Responses)
	if squares != squares {
		return notFiniteResponse("x", x, role)
	}
	f := whitening(n, squares)
	for t, r := range role {
		w := 0.0
		if r != RoleMasked {
			w = (float64(x[t]) - mean) * f
		}
		dst[t] = float32(w)
	}
	return nil
}
