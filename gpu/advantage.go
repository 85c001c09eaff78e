package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
)

// grpoParams are those of the kernels of GRPO in advantage.cu.
type grpoParams struct {
	layout                        layoutParams
	advantages, rewards, groupIDs Ptr
	scores                        Ptr // [Trajectories] scratch
	eps                           float64
	divideByStd                   int64
}

// gaeParams are those of gae in advantage.cu.
type gaeParams struct {
	layout                               layoutParams
	advantages, returns, rewards, values Ptr
	gamma, decay                         float64
}

// GRPO sets advantages[t] of the response tokens of each trajectory to its reward
// relative to its group, and those of masked tokens to 0. It reads Role, SeqOffsets,
// GroupIDs and Rewards. advantages has one element per token, and may be any array of b
// that is one per token and that GRPO does not read. If something is wrong on the device,
// all advantages are NaN. The workspace must be made for the batch; it holds 4 bytes of
// scratch for each trajectory.
//
// The work grows with the number of groups times that of trajectories, because the first
// trajectory of each group looks for its others among all, 32 at a time.
func (ws *Workspace) GRPO(advantages Ptr, b *Batch, opt reweight.GRPOOptions) error {
	err := cmp.Or(
		ws.cpu.GRPO(nil, &nothing, opt),
		ws.checkBatch(b, array{"advantages", advantages, 4}),
		checkArrays(b.Trajectories, array{"Rewards", b.Rewards, 4}, array{"GroupIDs", b.GroupIDs, 4}),
	)
	if err != nil {
		return err
	}
	p := &ws.params.grpo
	p.advantages, p.rewards, p.groupIDs, p.eps, p.divideByStd = advantages, b.Rewards, b.GroupIDs, opt.Eps, 0
	if opt.DivideByStd {
		p.divideByStd = 1
	}
	if err := ws.startBatch(&p.layout, b); err != nil {
		return err
	}
	return launch(ws, p, step{"grpo_scores", perWarp(b.Trajectories)}, step{"grpo_advantages", b.Trajectories})
}

// GAE sets advantages and returns of each response token, backwards over each
// trajectory. It reads Role, SeqOffsets and Values. advantages, returns and rewards have
// one element per token; advantages may be rewards, and returns may be 0, which
// stands for none. If something is wrong on the device, all advantages and returns are
// NaN. The workspace must be made for the batch; it holds no scratch for it.
func (ws *Workspace) GAE(advantages, returns, rewards Ptr, b *Batch, opt reweight.GAEOptions) error {
	err := cmp.Or(
		ws.cpu.GAE(nil, nil, nil, &nothing, opt),
		ws.checkBatch(b, array{"advantages", advantages, 4}, array{"rewards", rewards, 4},
			array{"Values", b.Values, 4}),
		checkAligned("returns", returns, 4),
	)
	if err != nil {
		return err
	}
	p := &ws.params.gae
	p.advantages, p.returns, p.rewards, p.values = advantages, returns, rewards, b.Values
	p.gamma, p.decay = opt.Gamma, float64(opt.Gamma*opt.Lambda)
	if err := ws.startBatch(&p.layout, b); err != nil {
		return err
	}
	return launch(ws, p, step{"gae", perWarp(b.Trajectories)})
}
