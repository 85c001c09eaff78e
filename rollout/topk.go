package rollout

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
)

// missingLogprob is what servers write for a log-probability that they do not have, or
// that is -Inf. It and anything below it is no log-probability.
const missingLogprob = -9999

// maxLogprob is the largest value that is taken for a log-probability: a 0 that was
// computed in float32 can come out slightly above.
const maxLogprob = 1e-6

// An entropyEstimate is what is known about the entropies of a trajectory's tokens.
type entropyEstimate struct {
	entropy []float32 // [T] in nats; 0 for masked tokens
	width   float64   // the sum over the response tokens of upper - lower bound
	most    int       // the largest number of most likely tokens that were given for a token
}

// entropyFromTop estimates the entropy of each response token by the middle between the
// bounds that its candidates give (see entropyBounds).
func entropyFromTop(top [][]candidate, role []reweight.Role, vocab int) (entropyEstimate, error) {
	e := entropyEstimate{entropy: make([]float32, len(role))}
	for t, r := range role {
		if r == reweight.RoleMasked {
			continue
		}
		if len(top[t]) == 0 {
			return entropyEstimate{}, fmt.Errorf("token %d of the trajectory has no log-probabilities of the most likely tokens, but others have", t)
		}
		lower, upper, err := entropyBounds(top[t], vocab)
		if err != nil {
			return entropyEstimate{}, fmt.Errorf("token %d of the trajectory: %w", t, err)
		}
		e.entropy[t] = float32(lower + float64((upper-lower)/2))
		e.width += upper - lower
		e.most = max(e.most, likely(top[t]))
	}
	return e, nil
}

// likely returns how many of the candidates are known to be among the most likely tokens:
// those that are not extra, and an extra one that is not the least likely.
func likely(known []candidate) int {
	n := 0
	for _, c := range known {
		if !c.extra || slices.ContainsFunc(known, func(other candidate) bool {
			return !other.extra && other.logprob < c.logprob
		}) {
			n++
		}
	}
	return n
}

// entropyFromSurprisal estimates the entropy of each response token by its surprisal.
// The mean over a span is without bias if the tokens were sampled at temperature 1 from
// all of the distribution; a single one says little, and nothing bounds it.
func entropyFromSurprisal(oldLogprobs []float32, role []reweight.Role) []float32 {
	entropy := make([]float32, len(role))
	for t, r := range role {
		if r != reweight.RoleMasked {
			entropy[t] = max(0, -oldLogprobs[t])
		}
	}
	return entropy
}

// entropyBounds returns bounds of the entropy, in nats, of a distribution over vocab
// tokens of which the candidates are known. reference.EntropyBounds has the formulas.
func entropyBounds(known []candidate, vocab int) (lower, upper float64, err error) {
	if vocab < len(known) {
		return 0, 0, fmt.Errorf("%d log-probabilities are given, but the vocabulary is said to have %d tokens",
			len(known), vocab)
	}
	mass, cut := 0.0, math.Inf(1) // no token that is not given has more than cut
	for _, c := range known {
		l := float64(c.logprob)
		p := math.Exp(l)
		mass += p
		lower -= float64(p * l)
		if !c.extra {
			cut = min(cut, p)
		}
	}
	if mass > 1.01 {
		return 0, 0, fmt.Errorf("the probabilities of the most likely tokens add up to %.4g, want at most 1", mass)
	}
	rest, others := 1-mass, float64(vocab-len(known))
	if rest <= 0 || others == 0 {
		return lower, lower, nil
	}
	upper = lower - float64(rest*math.Log(rest/others))
	cut = max(cut, rest/others)
	if full := math.Floor(rest / cut); full > 0 {
		lower -= float64(float64(full*cut) * math.Log(cut))
		rest -= float64(full * cut)
	}
	if rest > 0 {
		lower -= float64(rest * math.Log(rest))
	}
	return min(lower, upper), upper, nil // rounding can put them 1e-16 the wrong way round
}
