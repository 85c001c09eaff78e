// Package reference states every formula of the module once, in float64, in
// the plainest way: it is what the fast kernels are tested against, and it is
// written to be read next to the papers.
//
// Batches are packed: T tokens of S trajectories, one after another, without
// padding. Shapes stand in brackets. role [T] is 0 for a masked token (prompt
// or observation), 1 for reasoning and 2 for action; tokens with a role other
// than 0 are the response tokens. offsets [S+1] are the token ranges of the
// trajectories. Energies, entropies and log-probabilities are in nats. A masked
// token takes no part in anything, whatever its values are.
//
// Malformed input (lengths that do not match, ids and parameters outside their
// range) is an error. A NaN among the values is not in ActFocus, AEM, GRPO, GAE,
// Whiten, Loss and the diagnostics, and spreads as IEEE 754 arithmetic spreads it; in
// all other schemes a value that is read and is NaN or infinite is an error. No
// function keeps or changes its arguments.
//
// Sources: ActFocus, arXiv:2605.14558; AEM, arXiv:2605.00425v3; GRPO, GAE,
// whitening, the clipped surrogate, its aggregations and the value loss,
// volcengine/verl (verl/trainer/ppo/core_algos.py and
// verl/utils/torch_functional.py). The functions of the other schemes name theirs.
package reference
