// Package score computes the token weights of ActFocus and the advantages of GRPO and AEM
// for rollouts that lie in many files, as if all of them were one batch.
//
// ActFocus needs the mean and the deviation of a signal over the action tokens of the
// batch, GRPO the rewards of a group, AEM the mean entropies of a group's spans. So the
// work has two passes with a small step between them:
//
//   - [Of] reads files and returns a [Partial]: the statistics of their trajectories.
//   - a [Merger] puts partials together, and has the partials of all files at the end.
//   - [Apply] reads files again and gives each trajectory its weights and advantages.
//
// Both passes can read different files in different processes: a partial travels as lines
// of JSON, and takes some hundred bytes, and for each group some hundred more and about six
// for each of its trajectories and spans. Memory does not depend on the size of the files:
// both passes hold one trajectory at a time, besides the statistics; where groups are made by
// counting, Apply holds the trajectories of one group.
//
// # The same bits, however the files are split
//
// A partial has sums as exact integers, and a group's rewards and mean entropies of spans
// sorted. So the weights and advantages of a trajectory do not depend on how the trajectories
// of the batch are split into files, on the order of files, or on the order and the tree in
// which partials are merged: the bits are the same. Which file a partial is of is a part of
// it, and a file that is there twice is an error of the Merger. Two files of which nothing
// tells that they are not one (the same samples, rewards and group ids) can be put into one
// file.
//
// These bits can differ from the bits of [reweight.Workspace.ActFocus], GRPO and AEM on one
// batch of all trajectories, for which the order of the tokens counts:
//
//   - Mean and variance of the signal, and of a group's rewards, are from the exact
//     sums, rounded once to float64. There, sums are rounded on the way, and the last
//     digits of a mean or a deviation can differ.
//   - AEM's mean over the spans of a scope is summed in the order of the spans' entropies,
//     there in the order of the spans.
//
// On the rollouts of testdata, weights and advantages differ by at most one unit in the
// last place of float32.
package score
