package reweight

import (
	"cmp"
	"math"
	"slices"
)

// The policy losses that choose tokens by the covariance c of advantage and log-probability, a
// constant to the derivative: where it is highest, a token lowers the entropy of the policy
// most (arXiv 2505.22617).

// ClipCov is PPO without the dual clip that leaves out some tokens of high covariance c
// (Clip-Cov, arXiv 2505.22617):
//
//	l = max(-A rho, -A clip(rho))    l' = -A rho where l is -A rho, else 0
//	c = (A - mean A) (log pi - mean log pi)    l = l' = 0 at chosen tokens
//
// with means over the n response tokens of the call. Of the tokens where -A clip(rho) is not
// the larger and CovLow < c < CovHigh it chooses max(1, floor(CovShare n)) at random: token t
// has number t of the generator SplitMix64 whose state is Seed, and the lowest numbers are
// chosen. Give each step its own Seed. A token counts as clipped where -A clip(rho) is the
// larger and where it is chosen. It chooses by A, and has no weights of tokens. ClipLow and
// ClipHigh that are both 0 are an error, and so is a CovShare of 0.
type ClipCov struct {
	ClipLow  float64 // in [0, 1]
	ClipHigh float64 // at least 0
	CovShare float64 // share of the response tokens that are chosen; above 0, at most 1
	CovLow   float64 // a token is chosen where its covariance is between these; finite
	CovHigh  float64 // at least CovLow
	Seed     uint64  // of the choice; another one for each step
}

// DefaultClipCov has the paper's constants.
var DefaultClipCov = LossOptions{Policy: ClipCov{ClipLow: 0.2, ClipHigh: 0.2, CovShare: 0.0002, CovLow: 1, CovHigh: 5}}

func (ClipCov) String() string { return "clip_cov" }

func (ClipCov) Traits() PolicyTraits {
	return PolicyTraits{Clips: true, Chooses: true, Unweighted: true}
}

func (p ClipCov) check() error {
	return cmp.Or(PPO{ClipLow: p.ClipLow, ClipHigh: p.ClipHigh}.checkRanges(), checkShare("CovShare", p.CovShare),
		checkFinite64("CovLow", p.CovLow), checkAtLeast("CovHigh", p.CovHigh, p.CovLow, "CovLow"),
		checkClips(p.ClipLow, p.ClipHigh, "DefaultClipCov"))
}

func (p ClipCov) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	x.weights = x.chosen
	PPO{ClipLow: p.ClipLow, ClipHigh: p.ClipHigh}.terms(ws, isa, x, scale)
	for _, c := range x.chosen {
		ws.kernels.surrogate.clipped += oneIf(c == 0)
	}
}

// choose returns 0 where a token is chosen and 1 elsewhere: the weights of the terms.
func (p ClipCov) choose(ws *Workspace, isa ISA, x lossTokens) []float32 {
	best, mean := ws.newChoices(x.role, p.CovShare), ws.covarianceMeans(isa, &x)
	lo, hi := float32(1-p.ClipLow), float32(1+p.ClipHigh)
	block := &ws.kernels.block
	for from := 0; from < len(x.role); from += tokenBlockSize {
		y := x.slice(from, min(from+tokenBlockSize, len(x.role)))
		block.setRatios(isa, y.logprobs, y.old, y.role)
		for i, r := range y.role {
			if r == RoleMasked {
				continue
			}
			c := mean.covariance(&y, i)
			neg, rho := -y.advantages[i], block.ratio[i]
			if float32(neg*atMost(hi, atLeast(lo, rho))) > float32(neg*rho) || !(c > p.CovLow && c < p.CovHigh) {
				continue
			}
			best.add(splitMix(p.Seed, from+i), from+i)
		}
	}
	return ws.mark(&best, len(x.role), 1, 0)
}

// KLCov gives a penalty to the tokens of the highest covariance c (KL-Cov, arXiv 2505.22617):
//
//	l = -A rho, and + CovCoef |raw| at chosen tokens
//	l' = -A rho, and + CovCoef sign(raw) at chosen tokens
//	raw = log pi - log pi_old    c = (A - mean A) (log pi - mean log pi)
//
// with means over the n response tokens of the call. It chooses the max(1, floor(CovShare n))
// tokens with the largest c, of equal ones the first. No token counts as clipped. It chooses by
// A, which the penalty is not scaled by, and has no weights of tokens. A CovShare of 0 is an
// error.
type KLCov struct {
	CovShare float64 // share of the response tokens that are chosen; above 0, at most 1
	CovCoef  float64 // of the penalty; at least 0
}

// DefaultKLCov has the paper's constants.
var DefaultKLCov = LossOptions{Policy: KLCov{CovShare: 0.0002, CovCoef: 1}}

func (KLCov) String() string       { return "kl_cov" }
func (KLCov) Traits() PolicyTraits { return PolicyTraits{Chooses: true, Unweighted: true} }

func (p KLCov) check() error {
	return cmp.Or(checkNotNegative("CovCoef", p.CovCoef), checkShare("CovShare", p.CovShare))
}

// terms computes those of chosen tokens in float64: the advantage and the penalty may cancel.
func (p KLCov) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	sums, block := &ws.kernels.surrogate, &ws.kernels.block
	q := surrogateConsts{hi: float32(inf), dual: float32(inf), scale: float32(scale)} // no clip
	for from := 0; from < len(x.role); from += tokenBlockSize {
		y := x.slice(from, min(from+tokenBlockSize, len(x.role)))
		for i, c := range y.chosen {
			if c != 0 { // before the gradient is in place of one of them
				block.a[i], block.b[i] = y.logprobs[i]-y.old[i], y.advantages[i]
			}
		}
		isa.surrogate(y.grad, y.logprobs, y.old, y.advantages, nil, y.role, &q, sums)
		for i, c := range y.chosen {
			if c == 0 {
				continue
			}
			d, g := float64(block.a[i]), 0.0
			if !outside(block.a[i]) {
				g = float64(-float64(block.b[i]) * exp64(d))
			}
			switch {
			case d > 0:
				g += float64(c)
			case d < 0:
				g -= float64(c)
			}
			y.grad[i] = float32(g) * q.scale
			sums.loss.total[i%lanes] += float64(float64(c) * math.Abs(d))
		}
	}
}

// choose returns CovCoef where a token is chosen, and 0 elsewhere.
func (p KLCov) choose(ws *Workspace, isa ISA, x lossTokens) []float32 {
	best, mean := ws.newChoices(x.role, p.CovShare), ws.covarianceMeans(isa, &x)
	for t, r := range x.role {
		if r != RoleMasked {
			best.add(^orderedBits64(mean.covariance(&x, t)), t)
		}
	}
	return ws.mark(&best, len(x.role), 0, float32(p.CovCoef))
}

// A choice is a token that may be chosen. The lowest keys are.
type choice struct {
	key   uint64
	token int
}

// choices are the k best choices, of twice as many at most.
type choices struct {
	best []choice
	k    int
	last uint64 // the key of the k-th of those before
}

// newChoices returns no choices yet, for so large a share of the response tokens.
func (ws *Workspace) newChoices(role []Role, share float64) choices {
	k := max(1, int(share*float64(responses(role))))
	return choices{take[choice](ws, 2*k)[:0], k, math.MaxUint64}
}

// covarianceMeans are those over the response tokens.
type covarianceMeans struct{ advantage, logprob float64 }

func (ws *Workspace) covarianceMeans(isa ISA, x *lossTokens) covarianceMeans {
	n := float64(responses(x.role))
	return covarianceMeans{
		ws.moments(isa, x.advantages, x.role, Responses, 0).Sum / n,
		ws.moments(isa, x.logprobs, x.role, Responses, 0).Sum / n,
	}
}

// covariance returns c of a token, and 0 for -0.
func (m covarianceMeans) covariance(x *lossTokens, t int) float64 {
	return float64((float64(x.advantages[t])-m.advantage)*(float64(x.logprobs[t])-m.logprob)) + 0
}

// add adds a token unless k keys are lower.
func (s *choices) add(key uint64, token int) {
	if key > s.last {
		return
	}
	if s.best = append(s.best, choice{key, token}); len(s.best) == 2*s.k {
		s.best = first(s.best, s.k)
		s.last = s.best[s.k-1].key
	}
}

// mark returns an array of tokens that has here at the tokens of the choices and others
// elsewhere.
func (ws *Workspace) mark(s *choices, tokens int, others, here float32) []float32 {
	chosen := take[float32](ws, tokens)
	for t := range chosen {
		chosen[t] = others
	}
	for _, c := range first(s.best, s.k) {
		chosen[c.token] = here
	}
	return chosen
}

// first returns the k choices with the lowest keys, in order, or all if there are fewer.
// Among equal keys those of the first tokens come first.
func first(all []choice, k int) []choice {
	slices.SortFunc(all, func(a, b choice) int { return cmp.Or(cmp.Compare(a.key, b.key), a.token-b.token) })
	return all[:min(k, len(all))]
}

// orderedBits64 returns a key that is ordered as the numbers are.
func orderedBits64(x float64) uint64 {
	b := math.Float64bits(x)
	if b>>63 != 0 {
		return ^b
	}
	return b | 1<<63
}

// splitMix returns number t, from 0 on, of the generator SplitMix64 whose state is seed.
func splitMix(seed uint64, t int) uint64 {
	z := seed + uint64(t+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
