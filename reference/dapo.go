package reference

import "fmt"

// OverlongPenalty returns what is to be added to the reward of every trajectory for
// its number n of response tokens, [S] (DAPO, arXiv:2503.14476):
//
//	p = max(-P, min(0, -P (n - (maximum - buffer)) / buffer))
//
// role is [T], offsets [S+1]; buffer is above 0 and maximum at least buffer. The
// paper has maximum 20480, buffer 4096 and P = 1.
func OverlongPenalty(role []Role, offsets []int64, maximum, buffer int, penalty float64) ([]float64, error) {
	if err := first(
		checkRoles(role),
		checkOffsets(offsets, len(role)),
		checkAtLeast("penalty", penalty, 0),
	); err != nil {
		return nil, err
	}
	if buffer <= 0 {
		return nil, fmt.Errorf("reference: buffer = %d, want at least 1", buffer)
	}
	if maximum < buffer {
		return nil, fmt.Errorf("reference: maximum = %d, want at least buffer = %d", maximum, buffer)
	}
	p := make([]float64, len(offsets)-1)
	for s, tokens := range responseTokens(role, offsets) {
		over := float64(len(tokens) - (maximum - buffer))
		p[s] = max(-penalty, min(0, -penalty*over/float64(buffer)))
	}
	return p, nil
}

// GroupFilter returns 1 for the trajectories of groups whose rewards differ, and of
// groups of one, and 0 for the others, [S] (DAPO, arXiv:2503.14476). rewards and
// groupIDs are [S]. TokenAdvantages spreads the result over the response tokens: it
// is a weight.
func GroupFilter(rewards []float64, groupIDs []int32) ([]float64, error) {
	if err := first(
		checkLen("groupIDs", len(groupIDs), len(rewards), "trajectories"),
		checkFinite("rewards", rewards),
	); err != nil {
		return nil, err
	}
	keep := make([]float64, len(rewards))
	_, groups := members(groupIDs)
	for _, group := range groups {
		least, largest := MinMax(pick(rewards, group))
		if len(group) == 1 || largest > least {
			for _, s := range group {
				keep[s] = 1
			}
		}
	}
	return keep, nil
}
