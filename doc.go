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
// results where float32 cannot hold them, such as the difference of rewards of 3e38 and -3e38.
//
// Package scheme is the catalogue of the schemes, and has a step under any of them. Package
// diagnose says what a batch looks like.
//
// # From logits to the loss and back
//
//   - [Workspace.TokenStats]: energies, entropies and log-probabilities of rows of logits
//   - [Workspace.Whiten]: advantages of mean 0 and deviation 1
//   - the schemes, below: rewards, advantages, their factors, token weights and losses
//   - [Workspace.RowGradient]: from there to the gradient with respect to the logits
//
// # The schemes
//
//   - [Workspace.OverlongPenalty], [Workspace.KLRewards]: rewards of tokens, or what is added
//     to the rewards of trajectories
//   - [Workspace.GRPO], [Workspace.RLOO], [Workspace.ReinforcePlusPlus],
//     [Workspace.ReinforcePlusPlusBaseline], [Workspace.OTB], [Workspace.GiGPO],
//     [Workspace.TurnReturns], [Workspace.MTGRPO], [Workspace.GTPO], [Workspace.GRPOS],
//     [Workspace.OPO], [Workspace.PassAtK], [Workspace.GDPO], [Workspace.GPG],
//     [Workspace.GAE]: advantages
//   - [Workspace.EMPG]: advantages from those that another one has made
//   - [Workspace.AEM], [Workspace.RolloutCorrection], [Workspace.OffPolicyMask],
//     [Workspace.FIPO], [Workspace.RLSD]: factors of the advantages, which
//     [Workspace.Multiply] applies
//   - [Workspace.ActFocus], [Workspace.GroupFilter], [Workspace.EntropyMask],
//     [Workspace.ClipB], [Workspace.ClipV], [Workspace.Reject]: weights of tokens, several of
//     which [Workspace.Multiply] combines
//   - [Workspace.Loss]: the loss of a [Policy], and its gradient with respect to
//     log-probabilities
//   - [Workspace.ValueLoss]: the loss of the critic, and its gradient with respect to values
//
// The C library and Python have every method of Workspace. Package gpu has, for arrays in
// the memory of a GPU and with the same bits, [Workspace.AEM], [Workspace.ActFocus],
// [Workspace.ActFocusWeights], [Workspace.ExpScale], [Workspace.GAE], [Workspace.GRPO],
// [Workspace.MaskedMoments], [Workspace.MinMax], [Workspace.Multiply],
// [Workspace.RowGradient], [Workspace.SpanMeans], [Workspace.TokenStats],
// [Workspace.Whiten], and of [Workspace.Loss] and [Workspace.Surrogate] the one of PPO.
//
// # Single kernels, for a step of your own
//
//   - [Workspace.MaskedMoments]: sums over the tokens of some roles
//   - [Workspace.ActFocusWeights]: weights from a signal, its mean and sigma
//   - [Workspace.SpanMeans], [Workspace.MinMax], [Workspace.ExpScale]: the parts of AEM
//   - [Workspace.Surrogate]: the loss's terms, sums and gradient without aggregation
package reweight

//go:generate go run ./internal/generate
