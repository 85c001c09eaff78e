package score

import "github.com/seed621a2839/reweight"

// Options are the options of the schemes.
type Options struct {
	ActFocus reweight.ActFocusOptions
	AEM      reweight.AEMOptions
	GRPO     reweight.GRPOOptions
}

// Default holds the papers' constants.
var Default = Options{reweight.DefaultActFocus, reweight.DefaultAEM, reweight.DefaultGRPO}

// Check returns an error, a *reweight.InputError, if an option is out of range.
func (opt Options) Check() error {
	one := []float32{0}
	b := &reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, SpanIDs: []int32{0},
		Rewards: one, RefEnergy: one, RefEntropy: one, Entropy: one, OldLogprobs: one, RefLogprobs: one,
	}
	ws := reweight.Workspace{Workers: 1}
	result := []float32{0}
	if _, err := ws.ActFocus(result, b, opt.ActFocus); err != nil {
		return err
	}
	if err := ws.AEM(result, b, opt.AEM); err != nil {
		return err
	}
	return ws.GRPO(result, b, opt.GRPO)
}
