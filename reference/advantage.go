package reference

import (
	"math"
	"slices"
)

// GRPO returns the advantage of every response token, [T], from the outcome rewards of
// its group:
//
//	A = (r - mean) / (std + 1e-6)
//
// mean and std (with n-1) are those of the group's rewards; a group of one has
// mean 0 and std 1. With divide false it is r - mean, as in Dr.GRPO
// (arXiv:2503.20783). (verl: compute_grpo_outcome_advantage.)
func GRPO(b *Batch, divide bool) []float64 {
	b.perTrajectory(b.Rewards)
	a := make([]float64, len(b.Rewards))
	for _, group := range b.groups() {
		m, f := meanAndDivisor(pick(b.Rewards, group), divide)
		for _, s := range group {
			a[s] = (b.Rewards[s] - m) / f
		}
	}
	return b.spread(a)
}

// meanAndDivisor returns the mean of x, and std + 1e-6 or 1. Fewer than two elements
// have mean 0 and std 1.
func meanAndDivisor(x []float64, divideByStd bool) (m, f float64) {
	std := 1.0
	if len(x) > 1 {
		m = mean(x)
		std = math.Sqrt(variance(x))
	}
	if !divideByStd {
		return m, 1
	}
	return m, std + 1e-6
}

// RLOO returns the advantage of every response token, [T]: the reward of its trajectory
// less the mean reward of the others of its group (arXiv:2402.14740),
//
//	A = n/(n-1) (r - mean)
//
// where mean is over all n members; a group of one has A = 0.
func RLOO(b *Batch) []float64 {
	b.perTrajectory(b.Rewards)
	a := make([]float64, len(b.Rewards))
	for _, group := range b.groups() {
		n := float64(len(group))
		if n == 1 {
			continue
		}
		m := mean(pick(b.Rewards, group))
		for _, s := range group {
			a[s] = n / (n - 1) * (b.Rewards[s] - m)
		}
	}
	return b.spread(a)
}

// GAE returns generalised advantage estimates (arXiv:1506.02438) and returns,
// both [T], from TokenRewards and Values. Backwards over each trajectory, from
// V' = g = 0 at its end:
//
//	delta = r_t + gamma V' - V_t
//	g     = delta + gamma lambda g'
//
// Over a masked token V' and g pass unchanged, and it gets the g that passes.
// Returns are A + V, before any whitening. (verl: compute_gae_advantage_return.)
func GAE(b *Batch, gamma, lambda float64) (advantages, returns []float64) {
	b.perToken(b.TokenRewards, b.Values)
	advantages = make([]float64, len(b.Role))
	returns = make([]float64, len(b.Role))
	for s := 0; s+1 < len(b.SeqOffsets); s++ {
		nextValue, g := 0.0, 0.0
		for t := b.SeqOffsets[s+1] - 1; t >= b.SeqOffsets[s]; t-- {
			if b.Role[t] != RoleMasked {
				delta := b.TokenRewards[t] + gamma*nextValue - b.Values[t]
				g = delta + gamma*lambda*g
				nextValue = b.Values[t]
			}
			advantages[t] = g
			returns[t] = g + b.Values[t]
		}
	}
	return advantages, returns
}

// Whiten returns (x - mean) / sqrt(var + 1e-8), [T], with the mean and the variance
// (with n-1) of the response tokens. As in verl (masked_whiten) every element is mapped,
// the masked ones too. verl fails where there are fewer than two: here all elements are 0.
func Whiten(b *Batch, x []float64) []float64 {
	b.perToken(x)
	white := make([]float64, len(x))
	response := pick(x, b.responses())
	if len(response) < 2 {
		return white
	}
	m := mean(response)
	scale := 1 / math.Sqrt(variance(response)+1e-8)
	for t := range x {
		white[t] = (x[t] - m) * scale
	}
	return white
}

// ReinforcePlusPlus returns the advantages of REINFORCE++ (arXiv:2501.03262), [T]: the
// whitened Discounted rewards.
func ReinforcePlusPlus(b *Batch, gamma float64) []float64 {
	return b.masked(Whiten(b, Discounted(b, gamma)))
}

// Discounted returns the rewards to come of every response token, [T], from TokenRewards.
// Backwards over the response tokens of each trajectory
//
//	G_t = r_t + gamma G_next(t)
func Discounted(b *Batch, gamma float64) []float64 {
	b.perToken(b.TokenRewards)
	returns := make([]float64, len(b.Role))
	for _, tokens := range b.trajectories() {
		g := 0.0
		for i := len(tokens) - 1; i >= 0; i-- {
			t := tokens[i]
			g = b.TokenRewards[t] + gamma*g
			returns[t] = g
		}
	}
	return returns
}

// ReinforcePlusPlusBaseline returns the advantages of REINFORCE++-baseline
// (arXiv:2501.03262), [T]: the reward less the mean of its group, on every response
// token, and then whitened. A group of one has the mean 0.
func ReinforcePlusPlusBaseline(b *Batch) []float64 {
	return b.masked(Whiten(b, GRPO(b, false)))
}

// OTBOptions are the options of OTB.
type OTBOptions struct {
	Turns    bool // positions count response tokens alone
	ZeroTail bool // no baseline where the longest trajectory of a group is alone
}

// OTB returns the advantages of the optimal token baseline, [T] (verl:
// optimal_token_baseline, and tir_optimal_token_baseline with Turns), from TokenRewards,
// OldLogprobs and SumSqProbs. With G the Discounted rewards at gamma 1 and W_t the sum of
//
//	w = 1 - 2 e^l_old + sum_v p_v^2
//
// over the response tokens of the trajectory up to t, A_t = G_t - B, where
//
//	B = sum G W / (sum W + 1e-8)
//
// over the trajectories of the group that have a response token at the position of t in
// its trajectory. B is 0 in a group of one and, with ZeroTail, in a trajectory with more
// response tokens than any other of its group, from the position on that is the second
// largest number of them.
func OTB(b *Batch, opt OTBOptions) []float64 {
	b.perToken(b.TokenRewards, b.OldLogprobs, b.SumSqProbs)
	trajectories := b.trajectories()
	G := Discounted(b, 1)
	W := make([]float64, len(G))
	for _, tokens := range trajectories {
		w := 0.0
		for _, t := range tokens {
			w += 1 - 2*math.Exp(b.OldLogprobs[t]) + b.SumSqProbs[t]
			W[t] = w
		}
	}
	position := func(q, i int) int {
		if opt.Turns {
			return i
		}
		return trajectories[q][i] - int(b.SeqOffsets[q])
	}
	a := make([]float64, len(G))
	for _, members := range b.groups() {
		baseline := map[int]float64{}
		total := map[int]float64{}
		var lengths []int
		for _, q := range members {
			lengths = append(lengths, len(trajectories[q]))
			for i, t := range trajectories[q] {
				baseline[position(q, i)] += G[t] * W[t]
				total[position(q, i)] += W[t]
			}
		}
		slices.Sort(lengths)
		for _, q := range members {
			end := len(b.Role) // where B is not 0
			if n := len(members); n == 1 {
				end = 0
			} else if opt.ZeroTail && len(trajectories[q]) > lengths[n-2] {
				end = lengths[n-2]
			}
			for i, t := range trajectories[q] {
				p := position(q, i)
				a[t] = G[t]
				if p < end {
					a[t] -= baseline[p] / (total[p] + 1e-8)
				}
			}
		}
	}
	return a
}
