package reference

import (
	"cmp"
	"slices"
)

// Covariances returns by how much each response token raises the covariance of advantage
// and log-probability, [T], and 0 at masked tokens:
//
//	c = (A - mean A) (new - mean new)
//
// with means over the response tokens (arXiv:2505.22617).
func Covariances(b *Batch) []float64 {
	b.perToken(b.Logprobs, b.Advantages)
	responses := b.responses()
	A, l := mean(pick(b.Advantages, responses)), mean(pick(b.Logprobs, responses))
	c := make([]float64, len(b.Role))
	for _, t := range responses {
		c[t] = (b.Advantages[t] - A) * (b.Logprobs[t] - l)
	}
	return c
}

// ClipCovChoice returns which tokens Clip-Cov takes out of the loss, [T]. Candidates are
// the response tokens that PPO does not clip and whose covariance is above CovLow and below
// CovHigh. Of them max(1, floor(CovShare n)) are chosen, n being the number of response
// tokens: those whose Hash is lowest. (verl, compute_policy_loss_clip_cov, chooses by
// torch's random numbers.)
func ClipCovChoice(b *Batch, opt LossOptions) []bool {
	c := Covariances(b)
	var candidates []int
	for _, t := range b.responses() {
		_, _, clipped := Surrogate(b.Logprobs[t], b.OldLogprobs[t], b.Advantages[t], opt.ClipLow, opt.ClipHigh, 0)
		if !clipped && c[t] > opt.CovLow && c[t] < opt.CovHigh {
			candidates = append(candidates, t)
		}
	}
	slices.SortFunc(candidates, func(t, u int) int { return cmp.Compare(Hash(opt.Seed, t), Hash(opt.Seed, u)) })
	return b.first(candidates, opt.CovShare)
}

// KLCovChoice returns which tokens KL-Cov gives a penalty, [T]: the max(1, floor(share n))
// of the n response tokens whose covariance is largest, of equal ones the first. (verl:
// compute_policy_loss_kl_cov.)
func KLCovChoice(b *Batch, share float64) []bool {
	c, all := Covariances(b), b.responses()
	slices.SortStableFunc(all, func(t, u int) int { return cmp.Compare(c[u], c[t]) })
	return b.first(all, share)
}

// first marks the first max(1, floor(share n)) of the tokens, or all if there are fewer.
func (b *Batch) first(tokens []int, share float64) []bool {
	chosen := make([]bool, len(b.Role))
	for _, t := range tokens[:min(len(tokens), max(1, int(share*float64(len(b.responses())))))] {
		chosen[t] = true
	}
	return chosen
}

// responses returns the response tokens.
func (b *Batch) responses() (all []int) {
	for t, r := range b.Role {
		if r != RoleMasked {
			all = append(all, t)
		}
	}
	return all
}

// Hash returns a number that is different for each token and looks random: number t, from
// 0 on, of the generator SplitMix64 whose state is seed.
func Hash(seed uint64, t int) uint64 {
	z := seed + uint64(t+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
