package scheme

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

// TestDefaults holds the constants that papers and trainers have, by hand: whatever a
// test compares with the reference takes them from the options, and would not notice. A golden
// case without options does, too.
func TestDefaults(t *testing.T) {
	type loss = reweight.LossOptions
	type shaping = reweight.GTPOOptions
	inf := math.Inf(1)
	held := map[string]bool{}
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
		held[name] = true
	}
	for _, e := range Entries() {
		if e.DefaultName != "" && !held[e.DefaultName] &&
			!slices.ContainsFunc(readGolden(t, e.golden), func(c *goldenCase) bool { return c.Options == nil }) {
			t.Errorf("testdata/golden/%s: no case without options, whose answer would hold %s", e.golden, e.DefaultName)
		}
	}
}

// TestZeroOptions: options that nobody has set mean something, or are refused with the name
// of the default, if they name one; and so does each number of them alone.
func TestZeroOptions(t *testing.T) {
	meant := map[string]string{
		"group_norm": "Dr. GRPO", "pass_at_k": "the difference itself", "gdpo": "the sum of differences", "kl_rewards": "the outcome as it is",
		"pg": "nothing to set", "otb": "every baseline stands", "otb_turns": "every baseline stands", "off_policy_mask": "no move at all",
	}
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
		// refused wants an error about a field that is 0, and the name of a default of such options.
		refused := func(err error) {
			input, ok := errors.AsType[*reweight.InputError](err)
			if !ok || !strings.HasPrefix(input.Problem, "is 0") || !hasField(v, input.Arg) {
				t.Errorf("%s: %v, want a field that is 0", e.Name, err)
			} else if _, name, ok := strings.Cut(input.Problem, "as in "); ok && !e.hasDefault(name) {
				t.Errorf("%s: %v names another scheme's", e.Name, err)
			}
		}
		for name, field := range Fields(v.Interface()) {
			switch field.Kind() {
			case reflect.Float64, reflect.Int:
				SetField(v.Addr().Interface(), name, reflect.Zero(field.Type()))
				err := compute()
				if (err != nil) != slices.Contains(e.NotZero, name) {
					t.Errorf("%s.%s of 0: %v", e.Name, name, err)
				} else if err != nil {
					refused(err)
				}
				v.Set(all)
			}
		}
		for _, name := range e.NotZero {
			if !hasField(v, name) {
				t.Errorf("scheme/table.go: %s has no option %s", e.Name, name)
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
		if err := compute(); meant[e.Name] == "" {
			refused(err)
		} else if err != nil {
			t.Errorf("%s: %v, want %s", e.Name, err, meant[e.Name])
		}
	}
}

func hasField(options reflect.Value, name string) bool {
	for field := range Fields(options.Interface()) {
		if field == name {
			return true
		}
	}
	return false
}

// hasDefault reports whether the variable has options of the entry's method and, of a loss, of its policy.
func (e *Entry) hasDefault(name string) bool {
	return slices.ContainsFunc(table, func(other *Entry) bool {
		same := other.Method == e.Method
		if e.loss != nil && same {
			same = reflect.TypeOf(other.loss.Policy) == reflect.TypeOf(e.loss.Policy)
		}
		return other.DefaultName == name && same
	})
}
