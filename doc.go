// Package reweight computes token-level credit for training LLM agents:
// ActFocus token weights (arXiv 2605.14558), AEM advantage scaling (arXiv
// 2605.00425), the schemes that people choose between beside them, and the PPO
// and GRPO arithmetic that all plug into, as kernels that run at the speed of memory.
//
// A [Batch] holds packed rollouts, [Logits] rows of logits. The methods of a
// [Workspace] compute on them, into slices that the caller owns, and allocate
// nothing in steady state. Energies, entropies and log-probabilities are in
// nats. Every instruction set ([ISA]), number of workers and split into calls
// gives the same bits, where every NaN counts as the same. An argument that is wrong is an
// [*InputError], returned before anything is written. Finite inputs can give infinite
// results where float32 cannot hold them: in EMPG, GiGPO, GTPO, GRPOS, REINFORCE++, RLOO
// and KLRewards.
//
// Package gpu has TokenStats, ActFocus, AEM, GRPO, GAE, Whiten, the Loss of PPO and RowGradient
// for arrays in the memory of a GPU, with the same bits.
//
// Package scheme is the catalogue of the schemes, and has a step under any of them.
//
// # From logits to the loss and back
//
//   - [Workspace.TokenStats]: energies, entropies and log-probabilities of rows of logits
//   - [Workspace.OverlongPenalty]: added to the rewards
//   - [Workspace.KLRewards]: rewards of tokens, with the divergence from the reference in them
//   - [Workspace.GRPO], [Workspace.RLOO], [Workspace.GiGPO], [Workspace.ReinforcePlusPlus],
//     [Workspace.ReinforcePlusPlusBaseline], [Workspace.GTPO], [Workspace.GRPOS],
//     [Workspace.GAE], [Workspace.Whiten]: advantages
//   - [Workspace.EMPG]: advantages from those
//   - [Workspace.AEM], [Workspace.RolloutCorrection], [Workspace.OffPolicyMask]: factors of
//     the advantages, applied by [Workspace.Multiply]
//   - [Workspace.ActFocus], [Workspace.EntropyMask], [Workspace.GroupFilter], [Workspace.Reject]:
//     token weights, several of which [Workspace.Multiply] combines
//   - [Workspace.Loss]: the loss of a [PolicyLoss] and its gradient with respect to log-probabilities
//   - [Workspace.ValueLoss]: the critic's loss and its gradient with respect to values
//   - [Workspace.RowGradient]: from there to the gradient with respect to the logits
//   - [Bottleneck], [Workspace.EntropyDrift], [WeightMass]: what a batch looks like
//
// # Single kernels, for a step of your own
//
//   - [Workspace.MaskedMoments]: sums over the tokens of some roles
//   - [Workspace.ActFocusWeights]: weights from a signal, its mean and sigma
//   - [Workspace.SpanMeans], [Workspace.MinMax], [Workspace.ExpScale]: the parts of AEM
//   - [Workspace.Surrogate]: the loss's terms, sums and gradient without aggregation
package reweight
