package reference

// A Scope says which spans AEM compares with one another.
type Scope string

// The scopes. The paper's is ScopeGroup.
const (
	ScopeGroup      Scope = "group"      // all spans of all trajectories with the same group id
	ScopeTrajectory Scope = "trajectory" // the spans of one trajectory
	ScopeBatch      Scope = "batch"      // all spans
)

// AEM returns the factor of every token, [T] (arXiv:2605.00425v3): AEMSpans's of its
// span, and 1 for masked tokens and outside spans.
func AEM(b *Batch, lambda, guard float64, scope Scope) []float64 {
	factors := ones(len(b.Role))
	a := AEMSpans(b, lambda, guard, scope)
	for s, tokens := range b.spans() {
		for _, t := range tokens {
			factors[t] = a[s]
		}
	}
	return factors
}

// AEMSpans returns the factor a of every span, [spans]: AEMFactors of the mean entropies
// of the spans that the scope puts together. A span without response tokens belongs to
// none and has factor 1.
func AEMSpans(b *Batch, lambda, guard float64, scope Scope) []float64 {
	hbar := SpanEntropies(b)
	trajectory := b.trajectoryOfSpans()
	factors := ones(len(hbar))
	var spans []int // with response tokens
	var scopes []int32
	for s, tokens := range b.spans() {
		if len(tokens) == 0 {
			continue
		}
		of := int32(0)
		switch scope {
		case ScopeGroup:
			of = b.GroupIDs[trajectory[s]]
		case ScopeTrajectory:
			of = int32(trajectory[s])
		}
		spans, scopes = append(spans, s), append(scopes, of)
	}
	for _, together := range members(scopes) {
		var h []float64
		for _, i := range together {
			h = append(h, hbar[spans[i]])
		}
		for i, a := range AEMFactors(h, lambda, guard) {
			factors[spans[together[i]]] = a
		}
	}
	return factors
}

// SpanEntropies returns the mean entropy Hbar of the response tokens of every span,
// [spans], NaN without any.
func SpanEntropies(b *Batch) []float64 {
	b.perToken(b.Entropy)
	var hbar []float64
	for _, tokens := range b.spans() {
		hbar = append(hbar, mean(pick(b.Entropy, tokens)))
	}
	return hbar
}

// AEMFactors returns the factors of one group from the mean entropies of
// its spans (arXiv:2605.00425v3):
//
//	Htil_s = (Hbar_s - min) / (max - min)
//	a_s    = exp(-lambda Htil_s) / mean exp(-lambda Htil)
//
// and 1 for all of them if max - min < guard or max = min. The mean of a is 1.
// The paper has lambda 1 and guard 0.1 nats; with guard 0 there is no guard.
func AEMFactors(hbar []float64, lambda, guard float64) []float64 {
	least, largest := MinMax(hbar)
	if largest-least < guard || largest == least {
		return ones(len(hbar))
	}
	htil := make([]float64, len(hbar))
	for s, h := range hbar {
		htil[s] = (h - least) / (largest - least)
	}
	return ExpScale(htil, 0, lambda)
}
