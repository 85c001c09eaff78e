package reference

import "fmt"

// A Scope says which spans AEM compares with one another.
type Scope string

// The scopes. The paper's is ScopeGroup.
const (
	ScopeGroup      Scope = "group"      // all spans of all trajectories with the same group id
	ScopeTrajectory Scope = "trajectory" // the spans of one trajectory
	ScopeBatch      Scope = "batch"      // all spans
)

// SpanEntropies returns the mean entropy Hbar of the response tokens of every
// span, [spans], and their number. role, spanIDs and entropy are [T]; spans are
// numbered from 0 and -1 means outside. A span without response tokens has
// count 0 and entropy 0.
func SpanEntropies(role []Role, spanIDs []int32, entropy []float64) (hbar []float64, count []int, err error) {
	if err := first(
		checkRoles(role),
		checkSpanIDs(role, spanIDs),
		checkLen("entropy", len(entropy), len(role), "tokens"),
	); err != nil {
		return nil, nil, err
	}
	spans := spanCount(spanIDs)
	hbar = make([]float64, spans)
	count = make([]int, spans)
	for t, s := range spanIDs {
		if s >= 0 && role[t] != RoleMasked {
			hbar[s] += entropy[t]
			count[s]++
		}
	}
	for s := range hbar {
		if count[s] > 0 {
			hbar[s] /= float64(count[s])
		}
	}
	return hbar, count, nil
}

// AEMFactors returns the factors of one group from the mean entropies of
// its spans (AEM, arXiv:2605.00425v3):
//
//	Htil_s = (Hbar_s - min) / (max - min)
//	a_s    = exp(-lambda Htil_s) / mean exp(-lambda Htil)
//
// and 1 for all of them if max - min < guard or max = min. The mean of a is 1.
// The paper has lambda 1 and guard 0.1 nats; with guard 0 there is no guard.
func AEMFactors(hbar []float64, lambda, guard float64) ([]float64, error) {
	if err := first(checkAtLeast("lambda", lambda, 0), checkAtLeast("guard", guard, 0)); err != nil {
		return nil, err
	}
	least, largest := MinMax(hbar)
	if largest-least < guard || largest == least {
		a := make([]float64, len(hbar))
		for s := range a {
			a[s] = 1
		}
		return a, nil
	}
	htil := make([]float64, len(hbar))
	for s, h := range hbar {
		htil[s] = (h - least) / (largest - least)
	}
	return ExpScale(htil, 0, lambda)
}

// AEM returns, for every span, its mean entropy and its factor
// (SpanEntropies, AEMFactors over the spans that the scope puts together), and
// the factor of every token: that of its span, and 1 for masked tokens and
// outside spans. role, spanIDs and entropy are [T], offsets [S+1], groupIDs
// [S]. No span may cross a trajectory. A span without response tokens belongs
// to no group and has factor 1.
func AEM(role []Role, spanIDs []int32, offsets []int64, groupIDs []int32, entropy []float64, lambda, guard float64, scope Scope) (spanEntropy, spanFactors, factors []float64, err error) {
	if scope != ScopeGroup && scope != ScopeTrajectory && scope != ScopeBatch {
		return nil, nil, nil, fmt.Errorf("reference: scope = %q, want %q, %q or %q", scope, ScopeGroup, ScopeTrajectory, ScopeBatch)
	}
	if err := first(
		checkOffsets(offsets, len(role)),
		checkLen("groupIDs", len(groupIDs), len(offsets)-1, "trajectories"),
	); err != nil {
		return nil, nil, nil, err
	}
	spanEntropy, count, err := SpanEntropies(role, spanIDs, entropy)
	if err != nil {
		return nil, nil, nil, err
	}
	trajectory, err := spanTrajectories(spanIDs, offsets)
	if err != nil {
		return nil, nil, nil, err
	}

	// A key for each span that has response tokens: spans with equal keys form a group.
	var spans []int
	var keys []int32
	for s := range spanEntropy {
		if count[s] == 0 {
			continue
		}
		spans = append(spans, s)
		switch scope {
		case ScopeGroup:
			keys = append(keys, groupIDs[trajectory[s]])
		case ScopeTrajectory:
			keys = append(keys, int32(trajectory[s]))
		case ScopeBatch:
			keys = append(keys, 0)
		}
	}

	spanFactors = make([]float64, len(spanEntropy))
	for s := range spanFactors {
		spanFactors[s] = 1
	}
	_, groups := members(keys)
	for _, group := range groups {
		hbar := make([]float64, len(group))
		for i, k := range group {
			hbar[i] = spanEntropy[spans[k]]
		}
		a, err := AEMFactors(hbar, lambda, guard)
		if err != nil {
			return nil, nil, nil, err
		}
		for i, k := range group {
			spanFactors[spans[k]] = a[i]
		}
	}

	factors = make([]float64, len(role))
	for t, s := range spanIDs {
		factors[t] = 1
		if s >= 0 && role[t] != RoleMasked {
			factors[t] = spanFactors[s]
		}
	}
	return spanEntropy, spanFactors, factors, nil
}

// ScaleAdvantages returns A_t a_t, both [T]: what AEM does to the advantages.
func ScaleAdvantages(advantages, factors []float64) ([]float64, error) {
	if err := checkLen("factors", len(factors), len(advantages), "tokens"); err != nil {
		return nil, err
	}
	scaled := make([]float64, len(advantages))
	for t := range scaled {
		scaled[t] = advantages[t] * factors[t]
	}
	return scaled, nil
}

func checkSpanIDs(role []Role, spanIDs []int32) error {
	if err := checkLen("spanIDs", len(spanIDs), len(role), "tokens"); err != nil {
		return err
	}
	for t, s := range spanIDs {
		if s < -1 || int(s) >= len(spanIDs) {
			return fmt.Errorf("reference: spanIDs[%d] = %d, want -1 to %d", t, s, len(spanIDs)-1)
		}
	}
	return nil
}

// spanCount returns 1 + the highest span id.
func spanCount(spanIDs []int32) int {
	spans := 0
	for _, s := range spanIDs {
		spans = max(spans, int(s)+1)
	}
	return spans
}

// spanTrajectories returns the trajectory of each span, -1 for an id that no
// token has.
func spanTrajectories(spanIDs []int32, offsets []int64) ([]int, error) {
	trajectory := make([]int, spanCount(spanIDs))
	for s := range trajectory {
		trajectory[s] = -1
	}
	for i := 0; i+1 < len(offsets); i++ {
		for t := offsets[i]; t < offsets[i+1]; t++ {
			s := spanIDs[t]
			if s < 0 {
				continue
			}
			if trajectory[s] >= 0 && trajectory[s] != i {
				return nil, fmt.Errorf("reference: spanIDs[%d] = %d is in trajectory %d, but the span began in trajectory %d", t, s, i, trajectory[s])
			}
			trajectory[s] = i
		}
	}
	return trajectory, nil
}

// responseSpans returns the trajectory of each span, of spans that are numbered from
// 0 in the order in which they begin. Every response token must be in a span, and
// every span must have a response token.
func responseSpans(role []Role, spanIDs []int32, offsets []int64) ([]int, error) {
	if err := first(checkRoles(role), checkSpanIDs(role, spanIDs), checkOffsets(offsets, len(role))); err != nil {
		return nil, err
	}
	begin := make([]int, 0, len(spanIDs))
	for t, s := range spanIDs {
		if int(s) > len(begin) {
			return nil, fmt.Errorf("reference: spanIDs[%d] = %d, want at most %d: spans are numbered in the order in which they begin", t, s, len(begin))
		}
		if int(s) == len(begin) {
			begin = append(begin, t)
		}
		if s < 0 && role[t] != RoleMasked {
			return nil, fmt.Errorf("reference: spanIDs[%d] = -1 at a response token, want its span", t)
		}
	}
	for s, tokens := range spanTokens(role, spanIDs) {
		if len(tokens) == 0 {
			return nil, fmt.Errorf("reference: spanIDs[%d] = %d is a span without response tokens", begin[s], s)
		}
	}
	return spanTrajectories(spanIDs, offsets)
}

// spanTokens lists the response tokens of each span.
func spanTokens(role []Role, spanIDs []int32) [][]int {
	tokens := make([][]int, spanCount(spanIDs))
	for t, s := range spanIDs {
		if s >= 0 && role[t] != RoleMasked {
			tokens[s] = append(tokens[s], t)
		}
	}
	return tokens
}
