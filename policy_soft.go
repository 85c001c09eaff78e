package reweight

import (
	"cmp"
	"math"
)

// The policy losses without a clip, which hold the policy back softly.

// SAPO has a soft gate in the place of a clip (arXiv 2511.20347):
//
//	s = sigmoid(tau (rho - 1))    l = -A 4 s / tau    l' = -A 4 s (1 - s) rho
//
// No token counts as clipped. Each tau is 1e-30 to 1e30, so that one of 0 is an error.
type SAPO struct {
	TauPos float64 // tau where A > 0
	TauNeg float64 // tau elsewhere
}

// DefaultSAPO has the paper's constants.
var DefaultSAPO = LossOptions{Policy: SAPO{TauPos: 1, TauNeg: 1.05}, Aggregation: SeqMeanTokenMean}

func (SAPO) String() string       { return "sapo" }
func (SAPO) Traits() PolicyTraits { return PolicyTraits{} }

func (p SAPO) check() error {
	return cmp.Or(checkTemperature("TauPos", p.TauPos), checkTemperature("TauNeg", p.TauNeg))
}

func (p SAPO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.blocks(&x, scale, func(block *tokenBlock, y lossTokens) int64 {
		block.setRatios(isa, y.logprobs, y.old, y.role)
		block.sapo(isa, &y, p)
		return 0
	})
}

// sapo takes the sigmoid as 1 / (1 + 2^((ratio-1) * rate)), times height. Element 1 of both is
// for negative advantages.
func (block *tokenBlock) sapo(isa ISA, x *lossTokens, p SAPO) {
	n := len(x.role)
	logprobs, old, adv := x.logprobs[:n], x.old[:n], x.advantages[:n]
	ratio, loss, slope := block.ratio[:n], block.loss[:n], block.slope[:n]
	rate := [2]float32{float32(-p.TauPos * log2E), float32(-p.TauNeg * log2E)}
	height := [2]float32{float32(4 / p.TauPos), float32(4 / p.TauNeg)}
	y, e := block.a[:n], block.b[:n]
	for i, rho := range ratio {
		y[i] = float32(rho-1) * rate[negative(adv[i])]
	}
	isa.exps(e, y, 1)
	for i, a := range adv {
		e, neg := e[i], -a
		if y[i] < minY {
			e = 0 // so that the derivative vanishes
		}
		s := 1 / (1 + e)
		loss[i] = float32(neg*s) * height[negative(a)]
		slope[i] = float32(float32(float32(4*neg)*s)*float32(e*s)) * ratio[i]
		if outside(logprobs[i] - old[i]) {
			slope[i] = 0
		}
	}
}

// DRO is the policy gradient with a quadratic penalty (verl). With raw = log pi - log pi_old,
// which is not clamped,
//
//	l = -(A log pi - Beta raw^2 / 2)    l' = -(A - Beta raw)
//
// No token counts as clipped. The penalty is not scaled by A, and there are no weights of
// tokens. A Beta of 0 is an error.
type DRO struct {
	Beta float64 // of the penalty; above 0
}

// DefaultDRO lacks Beta, which has no default.
var DefaultDRO = LossOptions{Policy: DRO{}}

func (DRO) String() string       { return "dro" }
func (DRO) Traits() PolicyTraits { return PolicyTraits{Valueless: true, Unweighted: true} }
func (p DRO) check() error       { return checkPositive("Beta", p.Beta, math.MaxFloat32) }

func (p DRO) terms(ws *Workspace, isa ISA, x lossTokens, scale float64) {
	ws.blocks(&x, scale, func(block *tokenBlock, y lossTokens) int64 {
		block.setLogRatios(y.logprobs, y.old, y.role)
		block.dro(&y, p)
		return 0
	})
}

// dro is in float64: the advantage and the penalty may cancel.
func (block *tokenBlock) dro(x *lossTokens, p DRO) {
	for i, l := range x.logprobs {
		new, a := float64(l), float64(x.advantages[i])
		d := new - float64(x.old[i])
		pull := float64(p.Beta * d)
		block.loss[i] = float32(float64(pull*d)/2 - float64(a*new))
		block.slope[i] = float32(pull - a)
	}
}
