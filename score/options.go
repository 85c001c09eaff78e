package score

import "github.com/seed621a2839/reweight"

// Options are the options of the schemes, and what Of asks about its source.
type Options struct {
	ActFocus reweight.ActFocusOptions
	AEM      reweight.AEMOptions
	GRPO     reweight.GRPOOptions

	// Rows says that the trajectories are rows of a table that was cut anywhere, and not
	// files: equal pieces of it count as often as there are.
	Rows bool
}

// Default holds the papers' constants.
var Default = Options{ActFocus: reweight.DefaultActFocus, AEM: reweight.DefaultAEM, GRPO: reweight.DefaultGRPO}

// Check returns an error, a *reweight.InputError, if an option is out of range.
func (opt Options) Check() error {
	one := []float32{0}
	b := &reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0},
		SpanIDs: []int32{0},
		Rewards: one, RefEnergy: one, RefEntropy: one, Entropy: one, OldLogprobs: one, RefLogprobs: one,
	}
	return opt.try(&reweight.Workspace{Workers: 1}, []float32{0}, b)
}

// try returns the errors of the schemes about these options and a batch, and writes to dst, which
// has an element per token. GRPO has none where there are no rewards.
func (opt Options) try(ws *reweight.Workspace, dst []float32, b *reweight.Batch) error {
	if _, err := ws.ActFocus(dst, b, opt.ActFocus); err != nil {
		return err
	}
	if err := ws.AEM(dst, b, opt.AEM); err != nil || len(b.Rewards) == 0 {
		return err
	}
	return ws.GRPO(dst, b, opt.GRPO)
}
