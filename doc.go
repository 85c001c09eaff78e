// Package reweight computes token-level credit for training LLM agents:
// ActFocus token weights, AEM advantage scaling, and the PPO and GRPO
// arithmetic that both plug into, as kernels that run at the speed of memory.
package reweight
