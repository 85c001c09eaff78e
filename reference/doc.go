// Package reference states every formula of the module once, in float64, in
// the plainest way: it is what the fast kernels are tested against, and it is
// written to be read next to the papers.
//
// A scheme takes a Batch, and reads the fields that its formula names. Kernels take
// slices. Shapes stand in brackets. Energies, entropies and log-probabilities are in nats.
// A masked token takes no part in anything, whatever its values are, and gets the value
// that the function says, or 0.
//
// The arguments are those that package reweight accepts, which says what is wrong with
// others. Here there are no errors: lengths that do not fit panic, and the results for
// other values that make no sense, such as NaN, are what IEEE 754 arithmetic gives. No
// function keeps or changes its arguments.
//
// Sources: ActFocus, arXiv:2605.14558; AEM, arXiv:2605.00425v3; GRPO, GAE,
// whitening, the clipped surrogate, its aggregations and the value loss,
// volcengine/verl (verl/trainer/ppo/core_algos.py and
// verl/utils/torch_functional.py). The functions of the other schemes name theirs.
package reference
