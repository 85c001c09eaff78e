package scheme

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
)

// TestDefaults holds the constants that papers and trainers have, by hand: whatever a
// test compares with the reference takes them from the options, and would not notice.
func TestDefaults(t *testing.T) {
	type loss = reweight.LossOptions
	type shaping = reweight.ShapingOptions
	inf := math.Inf(1)
	for name, c := range map[string]struct{ got, want any }{
		"DefaultTokenStats":        {reweight.DefaultTokenStats, reweight.TokenStatsOptions{Temperature: 1}},
		"DefaultRowGradient":       {reweight.DefaultRowGradient, reweight.RowGradientOptions{Temperature: 1}},
		"DefaultActFocus":          {reweight.DefaultActFocus, reweight.ActFocusOptions{Alpha: 0.1, Beta: 0.5, Eps: 1e-8, Signal: reweight.SignalEnergy}},
		"DefaultAEM":               {reweight.DefaultAEM, reweight.AEMOptions{Lambda: 1, Guard: 0.1, Scope: reweight.ScopeGroup}},
		"DefaultGRPO":              {reweight.DefaultGRPO, reweight.GRPOOptions{Eps: 1e-6, DivideByStd: true}},
		"DefaultGAE":               {reweight.DefaultGAE, reweight.GAEOptions{Gamma: 1, Lambda: 1}},
		"DefaultEMPG":              {reweight.DefaultEMPG, reweight.EMPGOptions{K: 1, KFuture: 1, Zeta: 0.05}},
		"DefaultGTPO":              {reweight.DefaultGTPO, shaping{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: inf, Normalization: reweight.NormalizeSeparate, Scope: reweight.ScopeGroup}},
		"DefaultGRPOS":             {reweight.DefaultGRPOS, shaping{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: inf, Normalization: reweight.NormalizeJoint, Scope: reweight.ScopeGroup}},
		"DefaultGiGPO":             {reweight.DefaultGiGPO, reweight.GiGPOOptions{Gamma: 0.95, Omega: 1}},
		"DefaultReinforcePlusPlus": {reweight.DefaultReinforcePlusPlus, reweight.ReinforcePlusPlusOptions{Gamma: 1}},
		"DefaultEntropyMask":       {reweight.DefaultEntropyMask, reweight.EntropyMaskOptions{Rho: 0.2}},
		"DefaultOverlong":          {reweight.DefaultOverlong, reweight.OverlongOptions{Maximum: 20480, Buffer: 4096, Penalty: 1}},
		"DefaultCorrection":        {reweight.DefaultCorrection, reweight.CorrectionOptions{Level: reweight.CorrectToken, Low: 0, High: 2}},
		"DefaultIcePop":            {reweight.DefaultIcePop, reweight.CorrectionOptions{Level: reweight.CorrectToken, Mask: true, Low: 0.5, High: 5}},
		"DefaultRejection":         {reweight.DefaultRejection, reweight.RejectionOptions{Statistic: reweight.RejectTokenK1, Low: 0.5, High: 2}},
		"DefaultKLRewards":         {reweight.DefaultKLRewards, reweight.KLRewardsOptions{KL: reweight.KLK1, KLCoef: 0.001}},
		"DefaultValueLoss":         {reweight.DefaultValueLoss, reweight.ValueLossOptions{Clip: 0.5}},

		"DefaultLoss":      {reweight.DefaultLoss, loss{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3, Aggregation: reweight.TokenMean}},
		"DefaultGSPO":      {reweight.DefaultGSPO, loss{Policy: reweight.PolicyGSPO, ClipLow: 3e-4, ClipHigh: 4e-4, Aggregation: reweight.SeqMeanTokenMean}},
		"DefaultLUSPO":     {reweight.DefaultLUSPO, loss{Policy: reweight.PolicyGSPO, ClipLow: 3e-4, ClipHigh: 4e-4, Aggregation: reweight.SeqMeanTokenSum}},
		"DefaultGRPOSLoss": {reweight.DefaultGRPOSLoss, loss{Policy: reweight.PolicyGRPOS, ClipLow: 0.2, ClipHigh: 0.28, Aggregation: reweight.SeqMeanTokenMean}},
		"DefaultCISPO":     {reweight.DefaultCISPO, loss{Policy: reweight.PolicyCISPO, ClipLow: 1, ClipHigh: 4, Aggregation: reweight.TokenMean}},
		"DefaultSAPO":      {reweight.DefaultSAPO, loss{Policy: reweight.PolicySAPO, TauPos: 1, TauNeg: 1.05, Aggregation: reweight.SeqMeanTokenMean}},
		"DefaultPG":        {reweight.DefaultPG, loss{Policy: reweight.PolicyPG, Aggregation: reweight.TokenMean}},
		"DefaultDPPOTV":    {reweight.DefaultDPPOTV, loss{Policy: reweight.PolicyDPPOTV, ClipLow: 0.2, ClipHigh: 0.2, RatioCap: 20, Aggregation: reweight.TokenMean}},
		"DefaultVESPO":     {reweight.DefaultVESPO, loss{Policy: reweight.PolicyVESPO, PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2, Aggregation: reweight.TokenMean}},
	} {
		if c.got != c.want {
			t.Errorf("%s is %+v, want %+v", name, c.got, c.want)
		}
	}
}
