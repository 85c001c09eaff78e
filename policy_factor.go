package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// The policy losses that are the policy gradient, times a factor that is a constant to the
// derivative.

// PG is the policy gradient without a ratio (GPG):
//
//	l = -A log pi    l' = -A
//
// It has no constants, and no token counts as clipped.
type PG struct{}

// DefaultPG is PG, averaged over tokens.
var DefaultPG = LossOptions{Policy: PG{}}

func (PG) String() string       { return "pg" }
func (PG) Traits() PolicyTraits { return PolicyTraits{Valueless: true} }
func (PG) check() error         { return nil }

func (PG) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.sequenceTerms(isa, &x, scale, sequenceFactors{linear: [2]float32{1, 1}, slope: [2]float32{1, 1}})
}

// CISPO has the clipped ratio as a factor (arXiv 2506.13585):
//
//	c = clip(rho)    l = -c A log pi    l' = -c A
//
// A token counts as clipped where c is not rho. ClipLow and ClipHigh that are both 0 are an
// error.
type CISPO struct {
	ClipLow  float64 // at least 0
	ClipHigh float64 // at least 0
}

// DefaultCISPO has the cap of 5 that TRL recommends. The paper has no numbers.
var DefaultCISPO = LossOptions{Policy: CISPO{ClipLow: 1, ClipHigh: 4}}

func (CISPO) String() string       { return "cispo" }
func (CISPO) Traits() PolicyTraits { return PolicyTraits{Clips: true, Valueless: true} }

func (p CISPO) check() error {
	return cmp.Or(checkNotNegative("ClipLow", p.ClipLow), checkNotNegative("ClipHigh", p.ClipHigh),
		checkClips(p.ClipLow, p.ClipHigh, "DefaultCISPO"))
}

func (p CISPO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.blocks(&x, scale, func(block *tokenBlock, y lossTokens) int64 {
		block.setRatios(isa, y.logprobs, y.old, y.role)
		return block.cispo(&y, p)
	})
}

func (block *tokenBlock) cispo(x *lossTokens, p CISPO) (clipped int64) {
	n := len(x.role)
	logprobs, adv := x.logprobs[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	lo, hi := float32(1-p.ClipLow), float32(1+p.ClipHigh)
	for i, r := range x.role {
		c := atMost(hi, atLeast(lo, ratio[i]))
		if c != ratio[i] && r != RoleMasked {
			clipped++
		}
		g := -adv[i] * c
		loss[i], slope[i] = g*logprobs[i], g
	}
	return clipped
}

// A Divergence says by what DPPO measures how far the probability of a token has moved.
type Divergence uint8

const (
	DivergenceTV Divergence = iota // total variation: the difference of the probabilities
	DivergenceKL                   // the KL divergence of two outcomes, the token and any other
)

var divergenceNames = [...]string{"tv", "kl"}

// String and MarshalText return the divergence's name, as reports have it, and UnmarshalText takes it.
func (d Divergence) String() string               { return nameOf(d, divergenceNames[:]) }
func (d Divergence) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (d *Divergence) UnmarshalText(name []byte) error {
	return parseName(d, "Divergence", name, divergenceNames[:])
}

// DPPO leaves out the tokens whose probability has moved too far in the direction of the
// advantage (arXiv 2602.04879):
//
//	c = min(rho, RatioCap), but 0 at a token that is left out    l = -c A log pi    l' = -c A
//
// A token is left out, with DivergenceTV, where pi - pi_old > ClipHigh and A > 0, or
// pi - pi_old < -ClipLow and A <= 0. With DivergenceKL it is where kl > ClipHigh, A > 0 and
// pi > pi_old, or kl > ClipLow, A <= 0 and pi < pi_old; with q = pi_old,
//
//	kl = q log(q/pi) + (1-q) log((1-q + 1e-8) / (1-pi + 1e-8))
//
// A token that is left out counts as clipped. ClipLow and ClipHigh that are both 0 are an
// error, and so is a RatioCap of 0.
type DPPO struct {
	Divergence Divergence
	ClipLow    float64 // at least 0
	ClipHigh   float64 // at least 0
	RatioCap   float64 // the largest ratio; above 0
}

// DefaultDPPOTV and DefaultDPPOKL have the paper's constants.
var (
	DefaultDPPOTV = LossOptions{Policy: DPPO{Divergence: DivergenceTV, ClipLow: 0.2, ClipHigh: 0.2, RatioCap: 20}}
	DefaultDPPOKL = LossOptions{Policy: DPPO{Divergence: DivergenceKL, ClipLow: 0.05, ClipHigh: 0.05, RatioCap: 20}}
)

// String returns dppo_tv or dppo_kl.
func (p DPPO) String() string { return "dppo_" + p.Divergence.String() }

func (DPPO) Traits() PolicyTraits { return PolicyTraits{Clips: true, Valueless: true} }

func (p DPPO) check() error {
	defaults := "DefaultDPPOTV"
	if p.Divergence == DivergenceKL {
		defaults = "DefaultDPPOKL"
	}
	return cmp.Or(checkName("Divergence", p.Divergence, divergenceNames[:]),
		checkNotNegative("ClipLow", p.ClipLow), checkNotNegative("ClipHigh", p.ClipHigh),
		checkPositive("RatioCap", p.RatioCap, math.MaxFloat32), checkClips(p.ClipLow, p.ClipHigh, defaults))
}

func (p DPPO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.blocks(&x, scale, func(block *tokenBlock, y lossTokens) int64 {
		block.setRatios(isa, y.logprobs, y.old, y.role)
		if p.Divergence == DivergenceKL {
			return block.dppoKL(&y, p)
		}
		return block.dppoTV(isa, &y, p)
	})
}

func (block *tokenBlock) dppoTV(isa ISA, x *lossTokens, p DPPO) (clipped int64) {
	n := len(x.role)
	logprobs, adv := x.logprobs[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	now, then := block.a[:n], block.b[:n]
	isa.exps(now, logprobs, log2E32)
	isa.exps(then, x.old, log2E32)
	up, down, most := float32(p.ClipHigh), -float32(p.ClipLow), float32(p.RatioCap)
	for i, r := range x.role {
		moved := now[i] - then[i]
		clip := oneIf(adv[i] > 0)&oneIf(moved > up) | oneIf(!(adv[i] > 0))&oneIf(moved < down)
		clipped += clip & oneIf(r != RoleMasked)
		g := -adv[i] * choose(clip != 0, 0, atMost(most, ratio[i]))
		loss[i], slope[i] = g*logprobs[i], g
	}
	return clipped
}

// dppoKL is in float64, because 1 minus a probability near 1 cancels.
func (block *tokenBlock) dppoKL(x *lossTokens, p DPPO) (clipped int64) {
	for i, r := range x.role {
		if r == RoleMasked {
			continue
		}
		new, old, a := float64(x.logprobs[i]), float64(x.old[i]), x.advantages[i]
		limit, away := p.ClipHigh, new > old
		if !(a > 0) {
			limit, away = p.ClipLow, new < old
		}
		g := float32(0)
		if away && !(binaryKL(old, new) <= limit) {
			clipped++
		} else {
			g = -a * atMost(float32(p.RatioCap), block.ratio[i])
		}
		block.loss[i], block.slope[i] = g*x.logprobs[i], g
	}
	return clipped
}

// binaryKL returns the divergence of two outcomes, one of which has the log-probability new
// in place of old. It is NaN where float64 has none.
func binaryKL(old, new float64) float64 {
	p, q := exp64(new), exp64(old)
	rest := (1 - q + 1e-8) / (1 - p + 1e-8)
	if !(rest > 0 && rest <= math.MaxFloat64) {
		return math.NaN()
	}
	return float64(q*(old-new)) + float64((1-q)*log64(rest))
}

// VESPO has a soft factor of the trajectory's ratio (arXiv 2602.10693):
//
//	l = -phi A log pi    l' = -phi A    phi = exp(Decay + Power y - Decay e^y)
//	y = the sum of d over the trajectory, kept between log 1e-8 and 20
//
// No token counts as clipped. Four constants that are all 0 are an error: nobody has set them.
type VESPO struct {
	PowerPos, DecayPos float64 // Power and Decay where A >= 0; at least 0
	PowerNeg, DecayNeg float64 // and where A < 0
}

// DefaultVESPO has the paper's constants.
var DefaultVESPO = LossOptions{Policy: VESPO{PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2}}

func (VESPO) String() string       { return "vespo" }
func (VESPO) Traits() PolicyTraits { return PolicyTraits{Valueless: true, BySequence: true} }

func (p VESPO) check() error {
	err := cmp.Or(
		checkNotNegative("PowerPos", p.PowerPos),
		checkNotNegative("DecayPos", p.DecayPos),
		checkNotNegative("PowerNeg", p.PowerNeg),
		checkNotNegative("DecayNeg", p.DecayNeg),
	)
	if err == nil && p == (VESPO{}) {
		err = badInput("PowerPos", problem.Zeros, "DecayPos, PowerNeg and DecayNeg", "DefaultVESPO")
	}
	return err
}

// What VESPO keeps the log-ratio of a trajectory between.
const (
	minVESPOLogRatio = -18.420680743952367 // log 1e-8
	maxVESPOLogRatio = 20
)

func (p VESPO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	sum, _ := sumLogRatios(x.logprobs, x.old, x.role, true)
	y := max(minVESPOLogRatio, min(maxVESPOLogRatio, sum))
	phi := [2]float32{vespoFactor(y, p.PowerPos, p.DecayPos), vespoFactor(y, p.PowerNeg, p.DecayNeg)}
	ws.sequenceTerms(isa, &x, scale, sequenceFactors{linear: phi, slope: phi})
}

// vespoFactor returns phi, at most what float32 can hold.
func vespoFactor(y, power, decay float64) float32 {
	exponent := decay + float64(power*y) - float64(decay*exp64(y))
	return float32(min(math.MaxFloat32, exp64(exponent)))
}
