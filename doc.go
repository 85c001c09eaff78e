// Package reweight computes token-level credit for training LLM agents:
// ActFocus token weights (arXiv 2605.14558), AEM advantage scaling (arXiv
// 2605.00425), and the PPO and GRPO arithmetic that both plug into, as kernels
// that run at the speed of memory.
//
// A [Batch] holds packed rollouts, [Logits] rows of logits; the methods of a
// [Workspace] compute on them, into slices that the caller owns, and allocate
// nothing in steady state. Energies, entropies and log-probabilities are in
// nats. Every implementation ([ISA]), number of workers and split into calls
// gives the same bits.
package reweight
