package reference

import (
	"math"
	"testing"
)

// An episode of a game of two turns: in the first the policy stops, or goes on by one of two ways,
// and in the second it chooses one of two answers, with probabilities of their own after each way.
type episode struct {
	probability float64
	rewards     []float64 // of its turns
	outcome     float64
	scores      [][]float64 // d log π/dθ of the choice of each turn
}

// episodes returns all of them. θ has three logits for the first turn, and two for each way of the
// second. With endings, the last turns have rewards, too.
func episodes(endings bool) (all []episode) {
	softmax := func(logits ...float64) (p []float64) {
		total := 0.0
		for _, z := range logits {
			total += math.Exp(z)
		}
		for _, z := range logits {
			p = append(p, math.Exp(z)/total)
		}
		return p
	}
	score := func(p []float64, first, chosen int) []float64 {
		s := make([]float64, 7)
		for i, x := range p {
			s[first+i] = -x
		}
		s[first+chosen]++
		return s
	}
	last := func(r float64) float64 {
		if endings {
			return r
		}
		return 0
	}
	start := softmax(0.3, -0.2, 0.5)
	all = append(all, episode{start[0], []float64{last(0.7)}, 0.4, [][]float64{score(start, 0, 0)}})
	for way, r := range []float64{1.3, -0.6} {
		answer := softmax(0.1-float64(way), 0.8)
		for a, outcome := range []float64{2, -0.5} {
			all = append(all, episode{
				start[1+way] * answer[a], []float64{r, last(0.9 - 2*float64(a))}, outcome + 0.25*float64(way),
				[][]float64{score(start, 0, 1+way), score(answer, 3+2*way, a)},
			})
		}
	}
	return all
}

// gradient returns dJ/dθ of J, the expected sum of all rewards.
func gradient(all []episode) []float64 {
	g := make([]float64, 7)
	for _, e := range all {
		earned := sum(e.rewards) + e.outcome
		for _, s := range e.scores {
			for i := range g {
				g[i] += e.probability * earned * s[i]
			}
		}
	}
	return g
}

// expected returns the mean, over all groups of n episodes, of the policy gradient with those
// advantages.
func expected(all []episode, n int, advantages func(b *Batch) []float64) []float64 {
	g := make([]float64, 7)
	for number := range int(math.Pow(float64(len(all)), float64(n))) {
		b, p := &Batch{SeqOffsets: []int64{0}}, 1.0
		var scores [][]float64
		for range n {
			e := all[number%len(all)]
			number /= len(all)
			p *= e.probability
			for k, r := range e.rewards { // a turn is a token
				b.SpanIDs = append(b.SpanIDs, int32(len(b.Role)))
				b.Role, b.SpanRewards = append(b.Role, RoleAction), append(b.SpanRewards, r)
				scores = append(scores, e.scores[k])
			}
			b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
			b.Rewards, b.GroupIDs = append(b.Rewards, e.outcome), append(b.GroupIDs, 7)
		}
		for t, a := range advantages(b) {
			for i := range g {
				g[i] += p * a * scores[t][i] / float64(n)
			}
		}
	}
	return g
}

// furthest returns the largest difference of elements.
func furthest(x, y []float64) (d float64) {
	for i := range x {
		d = max(d, math.Abs(x[i]-y[i]))
	}
	return d
}

// TestTurnsUnbiased: over all groups of the game, in which the policy decides when an episode ends, the expected
// gradient of TurnReturns is the true one. So is it of a group of one, which has no baseline. Divided by the standard
// deviation it is not, and of MTGRPO it is not either: but for the factor (n-1)/n of a mean that contains the own
// reward, it lacks E[r_1] dP/dθ, where r_1 is the reward of the first turn and P the probability that an episode goes
// on after it.
func TestTurnsUnbiased(t *testing.T) {
	for _, endings := range []bool{false, true} {
		all := episodes(endings)
		want, bias, first := gradient(all), make([]float64, 7), 0.0
		for _, e := range all {
			first += e.probability * e.rewards[0]
		}
		for _, e := range all {
			if len(e.rewards) > 1 {
				for i := range bias {
					bias[i] -= first * e.probability * e.scores[0][i]
				}
			}
		}
		for _, n := range []int{1, 2, 3} {
			got := expected(all, n, func(b *Batch) []float64 { return TurnReturns(b, 1, false) })
			if d := furthest(got, want); !(d <= 1e-12) {
				t.Errorf("groups of %d: %v, want %v: %g off", n, got, want, d)
			} else {
				t.Logf("groups of %d: at most %.1e off", n, d)
			}
			if n == 1 {
				continue
			}
			got = expected(all, n, func(b *Batch) []float64 { return MTGRPO(b, 1, false) })
			for i := range got {
				got[i] = got[i]*float64(n)/float64(n-1) - want[i]
			}
			if d := furthest(got, bias); !(d <= 1e-12) || furthest(got, make([]float64, 7)) < 0.004 {
				t.Errorf("MTGRPO in groups of %d has the bias %v, want %v: %g off", n, got, bias, d)
			} else {
				t.Logf("MTGRPO in groups of %d has the bias %.4f, at most %.1e off its formula", n, got, d)
			}
		}
		got := expected(all, 3, func(b *Batch) []float64 { return TurnReturns(b, 1, true) })
		if d := furthest(got, want); d < 0.01 {
			t.Errorf("divided by the standard deviation: %g off, want a bias", d)
		}
	}
}
