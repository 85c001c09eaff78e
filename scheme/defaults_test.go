package scheme

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
)

// TestDefaults holds the constants that papers and trainers have, by hand: whatever a
// test compares with the reference takes them from the options, and would not notice.
func TestDefaults(t *testing.T) {
	type loss = reweight.LossOptions
	type shaping = reweight.GTPOOptions
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
		"DefaultOTB":               {reweight.DefaultOTB, reweight.OTBOptions{ZeroTail: true}},
		"DefaultOTBTurns":          {reweight.DefaultOTBTurns, reweight.OTBOptions{Turns: true, ZeroTail: true}},
		"DefaultReinforcePlusPlus": {reweight.DefaultReinforcePlusPlus, reweight.ReinforcePlusPlusOptions{Gamma: 1}},
		"DefaultPassAtK":           {reweight.DefaultPassAtK, reweight.PassAtKOptions{Eps: 1e-6, DivideByStd: true}},
		"DefaultGDPO":              {reweight.DefaultGDPO, reweight.GDPOOptions{Eps: 1e-6, DivideByStd: true}},
		"DefaultEntropyMask":       {reweight.DefaultEntropyMask, reweight.EntropyMaskOptions{Rho: 0.2}},
		"DefaultOverlongPenalty":   {reweight.DefaultOverlongPenalty, reweight.OverlongPenaltyOptions{Maximum: 20480, Buffer: 4096, Penalty: 1}},
		"DefaultRolloutCorrection": {reweight.DefaultRolloutCorrection, reweight.RolloutCorrectionOptions{Level: reweight.CorrectToken, Low: 0, High: 2}},
		"DefaultIcePop":            {reweight.DefaultIcePop, reweight.RolloutCorrectionOptions{Level: reweight.CorrectToken, Mask: true, Low: 0.5, High: 5}},
		"DefaultFIPO":              {reweight.DefaultFIPO, reweight.FIPOOptions{HalfLife: 32, Filter: 10, Clip: 0.2, HighOnly: true, Safety: 4}},
		"DefaultRLSD":              {reweight.DefaultRLSD, reweight.RLSDOptions{Lambda: 0.5, Clip: 0.2}},
		"DefaultReject":            {reweight.DefaultReject, reweight.RejectOptions{Statistic: reweight.RejectTokenK1, Low: 0.5, High: 2}},
		"DefaultKLRewards":         {reweight.DefaultKLRewards, reweight.KLRewardsOptions{KL: reweight.KLK1, KLCoef: 0.001}},
		"DefaultValueLoss":         {reweight.DefaultValueLoss, reweight.ValueLossOptions{Clip: 0.5}},

		"DefaultLoss":      {reweight.DefaultLoss, loss{Policy: reweight.PPO{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3}, Aggregation: reweight.TokenMean}},
		"DefaultGSPO":      {reweight.DefaultGSPO, loss{Policy: reweight.GSPO{ClipLow: 3e-4, ClipHigh: 4e-4}, Aggregation: reweight.SeqMeanTokenMean}},
		"DefaultLUSPO":     {reweight.DefaultLUSPO, loss{Policy: reweight.GSPO{ClipLow: 3e-4, ClipHigh: 4e-4}, Aggregation: reweight.SeqMeanTokenSum}},
		"DefaultGRPOSLoss": {reweight.DefaultGRPOSLoss, loss{Policy: reweight.GRPOS{ClipLow: 0.2, ClipHigh: 0.28}, Aggregation: reweight.SeqMeanTokenMean}},
		"DefaultCISPO":     {reweight.DefaultCISPO, loss{Policy: reweight.CISPO{ClipLow: 1, ClipHigh: 4}, Aggregation: reweight.TokenMean}},
		"DefaultSAPO":      {reweight.DefaultSAPO, loss{Policy: reweight.SAPO{TauPos: 1, TauNeg: 1.05}, Aggregation: reweight.SeqMeanTokenMean}},
		"DefaultPG":        {reweight.DefaultPG, loss{Policy: reweight.PG{}, Aggregation: reweight.TokenMean}},
		"DefaultDPPOTV":    {reweight.DefaultDPPOTV, loss{Policy: reweight.DPPO{Divergence: reweight.DivergenceTV, ClipLow: 0.2, ClipHigh: 0.2, RatioCap: 20}, Aggregation: reweight.TokenMean}},
		"DefaultVESPO":     {reweight.DefaultVESPO, loss{Policy: reweight.VESPO{PowerPos: 2, DecayPos: 3, PowerNeg: 3, DecayNeg: 2}, Aggregation: reweight.TokenMean}},
		"DefaultDPPOKL":    {reweight.DefaultDPPOKL, loss{Policy: reweight.DPPO{Divergence: reweight.DivergenceKL, ClipLow: 0.05, ClipHigh: 0.05, RatioCap: 20}, Aggregation: reweight.TokenMean}},
		"DefaultDRO":       {reweight.DefaultDRO, loss{Policy: reweight.DRO{}, Aggregation: reweight.TokenMean}},
		"DefaultGMPO":      {reweight.DefaultGMPO, loss{Policy: reweight.GMPO{ClipLow: 0.4, ClipHigh: 0.4}, Aggregation: reweight.TokenMean}},
		"DefaultClipCov":   {reweight.DefaultClipCov, loss{Policy: reweight.ClipCov{ClipLow: 0.2, ClipHigh: 0.2, CovShare: 0.0002, CovLow: 1, CovHigh: 5}, Aggregation: reweight.TokenMean}},
		"DefaultKLCov":     {reweight.DefaultKLCov, loss{Policy: reweight.KLCov{CovShare: 0.0002, CovCoef: 1}, Aggregation: reweight.TokenMean}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s is %+v, want %+v", name, c.got, c.want)
		}
	}
}

// TestZeroOptions: options that nobody has set mean something, or are refused with the name
// of the default; and so does each number of them alone.
func TestZeroOptions(t *testing.T) {
	clips := func(name string) string {
		return "ClipLow is 0 like ClipHigh, want one that is not 0, as in " + name
	}
	meant := []string{"group_norm", "pass_at_k", "gdpo", "kl_rewards", "pg", "otb", "otb_turns", "off_policy_mask"} // Dr. GRPO; the difference itself; the sum of differences; the outcome as it is; nothing to set; every baseline stands; no move at all
	wants := map[string]string{
		"actfocus":     "Alpha is 0 like Beta, want one that is not 0, as in DefaultActFocus",
		"aem":          "Lambda is 0 like Guard, want one that is not 0, as in DefaultAEM",
		"overlong":     "Buffer is 0, want at least 1",
		"reinforce++":  "Gamma is 0, want above 0, as in DefaultReinforcePlusPlus",
		"gigpo":        "Gamma is 0 like Omega, want one that is not 0, as in DefaultGiGPO",
		"gtpo":         "Base is 0 like Bonus, want one that is not 0, as in DefaultGTPO",
		"grpo_s":       "Base is 0 like Bonus, want one that is not 0, as in DefaultGRPOS",
		"gae":          "Gamma is 0 like Lambda, want one that is not 0, as in DefaultGAE",
		"empg":         "K is 0 like KFuture and Zeta, want one that is not 0, as in DefaultEMPG",
		"gspo":         clips("DefaultGSPO"),
		"luspo":        clips("DefaultGSPO"),
		"grpo_s_ratio": clips("DefaultGRPOSLoss"),
		"cispo":        clips("DefaultCISPO"),
		"entropy_mask": "Rho is 0, want above 0 and at most 1",
		"sapo":         "TauPos is 0, want 1e-30 to 1e+30",
		"dppo_tv":      "RatioCap is 0, want a finite number above 0",
		"dppo_kl":      "RatioCap is 0, want a finite number above 0",
		"dro":          "Beta is 0, want a finite number above 0",
		"gmpo":         clips("DefaultGMPO"),
		"clip_cov":     "CovShare is 0, want above 0 and at most 1",
		"kl_cov":       "CovShare is 0, want above 0 and at most 1",
		"vespo":        "PowerPos is 0 like DecayPos, PowerNeg and DecayNeg, want one that is not 0, as in DefaultVESPO",
		"tis":          "High is 0, want above 0, as in DefaultRolloutCorrection",
		"icepop":       "High is 0, want above 0, as in DefaultRolloutCorrection",
		"reject":       "Low is 0, want above 0, as in DefaultReject",
		"fipo":         "HalfLife is 0, want above 0, as in DefaultFIPO",
		"rlsd":         "Lambda is 0, want above 0, as in DefaultRLSD",
		"value_loss":   "Clip is 0, want above 0, as in DefaultValueLoss",
	}
	refused := []string{"overlong.Maximum", "overlong.Buffer", "reinforce++.Gamma", "gtpo.EntropyHigh", "grpo_s.EntropyHigh", "entropy_mask.Rho",
		"sapo.TauPos", "sapo.TauNeg", "dppo_tv.RatioCap", "dppo_kl.RatioCap", "dro.Beta", "clip_cov.CovShare", "clip_cov.CovHigh", "kl_cov.CovShare", "tis.High", "icepop.High", "reject.Low", "reject.High", "value_loss.Clip",
		"fipo.HalfLife", "fipo.Filter", "fipo.Clip", "fipo.Safety", "rlsd.Lambda", "rlsd.Clip"}
	b := random(rand.New(rand.NewPCG(11, 12)), 7, 3)
	var ws reweight.Workspace
	for _, e := range Entries() {
		if e.options == nil {
			continue
		}
		s := subject{Entry: e, opt: e.Defaults()}
		s.paired(b)
		opt := &s.opt
		opt.setLoss("Beta", 0.3)
		v := reflect.ValueOf(e.options(opt)).Elem()
		all := reflect.New(v.Type()).Elem()
		all.Set(v)
		compute := func() error { return e.Compute(&ws, make([]float32, b.Tokens())[:s.size(b)], b, *opt) }
		for name, field := range Fields(v.Interface()) {
			switch field.Kind() {
			case reflect.Float64, reflect.Int:
				SetField(v.Addr().Interface(), name, reflect.Zero(field.Type()))
				if err := compute(); (err != nil) != slices.Contains(refused, e.Name+"."+name) {
					t.Errorf("%s.%s of 0: %v", e.Name, name, err)
				}
				v.Set(all)
			}
		}
		v.SetZero()
		if e.loss != nil {
			opt.Loss.Policy = e.loss.Policy
			for name, field := range Fields(*e.loss) {
				if field.Kind() == reflect.Float64 {
					opt.setLoss(name, 0.0)
				}
			}
		}
		want, ok := wants[e.Name]
		if e.Kind == Loss && !ok {
			want = clips("DefaultLoss")
		}
		err := compute()
		if slices.Contains(meant, e.Name) {
			want = "<nil>"
		} else {
			want = "reweight: " + want
		}
		if fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", e.Name, err, want)
		}
	}
}
