package reference

// OverlongPenalty returns what is to be added to the reward of every trajectory for
// its number n of response tokens, [S] (DAPO's soft overlong punishment,
// arXiv:2503.14476):
//
//	p = max(-P, min(0, -P (n - (maximum - buffer)) / buffer))
//
// The paper has maximum 20480, buffer 4096 and P = 1.
func OverlongPenalty(b *Batch, maximum, buffer int, penalty float64) []float64 {
	var p []float64
	for _, tokens := range b.trajectories() {
		over := float64(len(tokens) - (maximum - buffer))
		p = append(p, max(-penalty, min(0, -penalty*over/float64(buffer))))
	}
	return p
}

// GroupFilter returns 1 for the response tokens of groups whose rewards differ, and of
// groups of one, and 0 for the others, [T]: a weight (DAPO's dynamic sampling,
// arXiv:2503.14476).
func GroupFilter(b *Batch) []float64 {
	b.perTrajectory(b.Rewards)
	keep := make([]float64, len(b.Rewards))
	for _, group := range b.groups() {
		least, largest := MinMax(pick(b.Rewards, group))
		if len(group) == 1 || largest > least {
			for _, s := range group {
				keep[s] = 1
			}
		}
	}
	return b.spread(keep)
}
