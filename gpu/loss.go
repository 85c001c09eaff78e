package gpu

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
)

// segments are what is summed by itself: Segments of surrogate.cuh.
type segments struct {
	offsets       Ptr // 0: the batch as a whole
	count, tokens int64
}

// slots returns how many groups have a place in scratch memory.
func slots(tokens, segments int) int { return tokens/shape.GroupTokens + segments }

// ctas returns how many CTAs give every group a half of a warp.
func (s *segments) ctas() int {
	return perThread(slots(int(s.tokens), int(s.count)), shape.GroupThreads/16)
}

// surrogateParams are those of surrogate.
type surrogateParams struct {
	grad, logprobs, old, advantages, weights, role Ptr
	sums, counts, status                           Ptr
	segments                                       segments
	low, high, dual, scale                         float32
}

// surrogateTotalParams are those of surrogate_total.
type surrogateTotalParams struct {
	of     surrogateParams
	result Ptr
}

// surrogateOf returns the parameters of the surrogate on segments.
func (ws *Workspace) surrogateOf(grad, logprobs, old, advantages, weights, role Ptr, s segments, scale float64,
	ppo reweight.PPO) surrogateParams {
	p := surrogateParams{grad: grad, logprobs: logprobs, old: old, advantages: advantages, weights: weights, role: role,
		sums: ws.scratch.groupSums, counts: ws.scratch.groupCounts, status: ws.status, segments: s,
		low: float32(1 - ppo.ClipLow), high: float32(1 + ppo.ClipHigh), dual: float32(ppo.DualClip),
		scale: float32(scale)}
	if ppo.DualClip == 0 {
		p.dual = float32(math.Inf(1))
	}
	return p
}

// checkLossOptions wants ppo, which is the policy of the options if that is PPO, the one that
// there is here, and a scale and options that the CPU takes.
func (ws *Workspace) checkLossOptions(scale float64, opt reweight.LossOptions, ppo bool) error {
	_, err := ws.cpu.Surrogate(nil, nil, nil, nil, nil, nil, scale, opt)
	if e, _ := err.(*reweight.InputError); !ppo && (e == nil || e.Arg != "Policy") {
		return badInput("Policy", problem.NoLoss, opt.Policy, reweight.PPO{})
	}
	return err
}

// Surrogate computes the weighted clipped surrogate of n tokens and grad, as
// reweight.Workspace.Surrogate does, and its sums into result, a reweight.SurrogateSums.
// Any policy but PPO is an error. weights 0 stands for ones. grad may be any of the float
// inputs. Where a role is wrong, grad is NaN, and so are the sums. It is two launches.
func (ws *Workspace) Surrogate(grad, result, logprobs, old, advantages, weights, role Ptr, n int, scale float64,
	opt reweight.LossOptions) error {
	ppo, ok := opt.Policy.(reweight.PPO)
	err := cmp.Or(
		checkCount("n", n, ws.size.Tokens),
		checkPtr("result", result, 8),
		checkArrays(n, array{"grad", grad, 4}, array{"logprobs", logprobs, 4}, array{"old", old, 4},
			array{"advantages", advantages, 4},
			array{"role", role, 1}),
		checkAligned("weights", weights, 4),
		ws.checkLossOptions(scale, opt, ok),
	)
	if err != nil {
		return err
	}
	p := &ws.params.total
	p.of = ws.surrogateOf(grad, logprobs, old, advantages, weights, role, segments{count: 1, tokens: int64(n)},
		scale, ppo)
	p.result = result
	if err := launch(ws, &p.of, step{"surrogate", p.of.segments.ctas()}); err != nil {
		return err
	}
	return launch(ws, p, step{"surrogate_total", 1})
}

// lossParams are those of the kernels of loss.cu.
type lossParams struct {
	of                      surrogateParams
	reference, offsets      Ptr
	trajectories            int64
	segments, state, result Ptr
	aggregation, normLength int64
}

// lossBytes returns the bytes of the state of a loss with so many segments.
func lossBytes(segments int) int {
	return sizeOf[shape.LossState]() + segments*sizeOf[shape.SegmentState]()
}

// Loss computes the clipped surrogate of the batch with token weights, its gradient with
// respect to each log-probability, and the metrics, as reweight.Workspace.Loss does, the
// latter into result, a reweight.LossResult whose last field, KLLoss, is not written. Any
// policy but PPO is an error, and so is a KLCoef. weights 0 stands for ones; RefLogprobs may
// be 0, and SeqOffsets if the aggregation is TokenMean. grad may be weights or any of the
// float arrays of the batch. If a role, an offset or a weight is wrong, grad and the
// floats of the result are NaN. It is a fill and four launches, and one more if there are weights or
// RefLogprobs.
func (ws *Workspace) Loss(grad, result, weights Ptr, b *Batch, opt reweight.LossOptions) error {
	ppo, ok := opt.Policy.(reweight.PPO)
	err := cmp.Or(
		checkCount("Tokens", b.Tokens, ws.size.Tokens),
		checkPtr("result", result, 8),
		checkArrays(b.Tokens, array{"Role", b.Role, 1}, array{"grad", grad, 4}, array{"Logprobs", b.Logprobs, 4},
			array{"OldLogprobs", b.OldLogprobs, 4}, array{"Advantages", b.Advantages, 4}),
		checkAligned("weights", weights, 4),
		checkAligned("RefLogprobs", b.RefLogprobs, 4),
		ws.checkLossOptions(0, opt, ok),
	)
	if err == nil && opt.KLCoef != 0 {
		err = badInput("KLCoef", problem.NoKL, opt.KLCoef)
	}
	if err == nil && opt.Aggregation != reweight.TokenMean {
		err = ws.checkTrajectories(b)
	}
	if err != nil {
		return err
	}
	state := ws.scratch.lossState
	p := &ws.params.loss
	*p = lossParams{reference: b.RefLogprobs, segments: state + Ptr(lossBytes(0)), state: state, result: result,
		aggregation: int64(opt.Aggregation), normLength: int64(opt.NormLength)}
	s := segments{count: 1, tokens: int64(b.Tokens)}
	if opt.Aggregation != reweight.TokenMean {
		p.offsets, p.trajectories = b.SeqOffsets, int64(b.Trajectories)
		if opt.Aggregation != reweight.SeqMeanTokenSumNorm {
			s.offsets, s.count = b.SeqOffsets, int64(b.Trajectories)
		}
	}
	p.of = ws.surrogateOf(grad, b.Logprobs, b.OldLogprobs, b.Advantages, weights, b.Role, s, 1, ppo)
	ctas := max(s.ctas(), perThread(b.Trajectories, shape.GroupThreads))
	if err := ws.fill(state, 0, lossBytes(int(s.count))); err != nil {
		return err
	}
	if err := launch(ws, p, step{"loss_check", ctas}); err != nil {
		return err
	}
	if weights != 0 || b.RefLogprobs != 0 {
		if err := launch(ws, p, step{"loss_weights", int(s.count) + 1}); err != nil {
			return err
		}
	}
	return launch(ws, p,
		step{"loss_tokens", ctas},
		step{"loss_segments", perThread(int(s.count), shape.SegmentThreads/32)},
		step{"loss_total", 1})
}
