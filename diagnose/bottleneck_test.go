package diagnose

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"gonum.org/v1/gonum/stat"
)

// TestBottleneckForms compares the three forms with tables that are made group by group, on
// batches with spans and without.
func TestBottleneckForms(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for round := range 60 {
		b := episodes(r, 2+round/3, 3)
		if round%5 == 4 {
			b.SpanIDs = nil
		}
		got := must.Get(Bottleneck(b))
		for _, c := range []struct {
			name                         string
			roles                        []reweight.Role
			plain, firstTurn, givenTurns Correlation
		}{
			{"all", []reweight.Role{reweight.RoleReasoning, reweight.RoleAction}, got.All, got.FirstTurn.All, got.GivenTurns.All},
			{"reasoning", []reweight.Role{reweight.RoleReasoning}, got.Reasoning, got.FirstTurn.Reasoning, got.GivenTurns.Reasoning},
			{"action", []reweight.Role{reweight.RoleAction}, got.Action, got.FirstTurn.Action, got.GivenTurns.Action},
		} {
			what := fmt.Sprintf("round %d, %s: ", round, c.name)
			energies, variances, turns := table(b, false, c.roles...)
			agree(t, what+"plain", c.plain, must.Get(Spearman(energies, variances)))
			if b.SpanIDs == nil {
				agree(t, what+"first turn", c.firstTurn, undefined)
				agree(t, what+"given turns", c.givenTurns, undefined)
				continue
			}
			agree(t, what+"given turns", c.givenTurns, partial(ranks(energies), ranks(variances), ranks(turns)))
			energies, variances, _ = table(b, true, c.roles...)
			agree(t, what+"first turn", c.firstTurn, must.Get(Spearman(energies, variances)))
		}
	}
}

func agree(t *testing.T, what string, got, want Correlation) {
	t.Helper()
	near(t, what+": rho", got.Rho, want.Rho, 1e-11)
	near(t, what+": p", got.P, want.P, 1e-11)
}

// table has, for each group with tokens of these roles, their mean energy, the variance of the
// rewards and the mean number of spans.
func table(b *reweight.Batch, firstTurn bool, roles ...reweight.Role) (energies, variances, turns []float64) {
	for _, id := range slices.Compact(slices.Sorted(slices.Values(b.GroupIDs))) {
		var rewards, energy, spans []float64
		for s, group := range b.GroupIDs {
			if group != id {
				continue
			}
			rewards = append(rewards, float64(b.Rewards[s]))
			var seen []int32
			for t := b.SeqOffsets[s]; t < b.SeqOffsets[s+1]; t++ {
				if b.SpanIDs != nil && b.Role[t] != reweight.RoleMasked && !slices.Contains(seen, b.SpanIDs[t]) {
					seen = append(seen, b.SpanIDs[t])
				}
				if slices.Contains(roles, b.Role[t]) && (!firstTurn || b.SpanIDs[t] == seen[0]) {
					energy = append(energy, float64(b.RefEnergy[t]))
				}
			}
			spans = append(spans, float64(len(seen)))
		}
		if len(energy) > 0 {
			energies = append(energies, stat.Mean(energy, nil))
			variances = append(variances, variance(rewards))
			turns = append(turns, stat.Mean(spans, nil))
		}
	}
	return energies, variances, turns
}

// episodes makes groups of about that size, of one and the same prompt: an episode ends at random, the longest
// ones succeed more often, and energies rise with the turn. A turn is an observation, a
// token of reasoning and, but for some, one of action.
func episodes(r *rand.Rand, groups, size int) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	span := int32(0)
	for range groups * size {
		turns := 1 + r.IntN(6)
		reward := float32(0)
		if r.IntN(12) < 2*turns-3 {
			reward = 1
		}
		for turn := range turns {
			b.Role, b.SpanIDs = append(b.Role, reweight.RoleMasked), append(b.SpanIDs, -1)
			if r.IntN(3) == 0 { // a span without a response token is no turn
				b.SpanIDs[len(b.SpanIDs)-1] = span
				span++
			}
			b.Role, b.SpanIDs = append(b.Role, reweight.RoleReasoning), append(b.SpanIDs, span)
			if r.IntN(2) == 0 {
				b.Role, b.SpanIDs = append(b.Role, reweight.RoleAction), append(b.SpanIDs, span)
			}
			for len(b.RefEnergy) < len(b.Role) {
				b.RefEnergy = append(b.RefEnergy, float32(float64(turn)+r.NormFloat64()))
			}
			span++
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
		b.GroupIDs, b.Rewards = append(b.GroupIDs, int32(r.IntN(groups))), append(b.Rewards, reward)
	}
	return b
}

func TestVariance(t *testing.T) {
	near(t, "variance", variance([]float64{1, 2, 3, 6}), 3.5, 1e-15)
	near(t, "variance of one", variance([]float64{4}), 0, 0)
	lost := float64(float32(-0.1))
	r := []float64{lost, lost, 0, .3, 1, 1, 1.7}
	want := variance(slices.Clone(r))
	for range r {
		r = append(r[3:], r[:3]...)
		if got := variance(slices.Clone(r)); got != want {
			t.Errorf("variance of %v = %v, want %v as in any order", r, got, want)
		}
	}
	if x, y := variance([]float64{1, 1, 1, 0, 0, 0, 0, 0, 0, 0}),
		variance([]float64{0, 0, 0, 1, 1, 1, 1, 1, 1, 1}); x != y {
		t.Errorf("3 and 7 successes of 10: variance %v and %v", x, y)
	}
}

// TestBottleneckErrors: what is wrong with a batch is named.
func TestBottleneckErrors(t *testing.T) {
	nan := float32(math.NaN())
	for want, change := range map[string]func(b *reweight.Batch){
		"Role is empty, want at least 1 token":                           func(b *reweight.Batch) { *b = reweight.Batch{} },
		"Role[3] is 7, want 0, 1 or 2":                                   func(b *reweight.Batch) { b.Role[3] = 7 },
		"SeqOffsets[2] is 3, want 4, the number of tokens":               func(b *reweight.Batch) { b.SeqOffsets[2] = 3 },
		"RefEnergy has 0 elements, want 4, one per token":                func(b *reweight.Batch) { b.RefEnergy = nil },
		"RefEnergy has 3 elements, want 4, one per token":                func(b *reweight.Batch) { b.RefEnergy = b.RefEnergy[1:] },
		"RefEnergy[1] is NaN at a response token, want a finite number":  func(b *reweight.Batch) { b.RefEnergy[1] = nan },
		"RefEnergy[2] is -Inf at a response token, want a finite number": func(b *reweight.Batch) { b.RefEnergy[2] = float32(math.Inf(-1)) },
		"Rewards has 0 elements, want 2, one per trajectory":             func(b *reweight.Batch) { b.Rewards = nil },
		"Rewards[1] is NaN, want a finite reward":                        func(b *reweight.Batch) { b.Rewards[1] = nan },
		"GroupIDs has 0 elements, want 2, one per trajectory":            func(b *reweight.Batch) { b.GroupIDs = nil },
		"GroupIDs has 3 elements, want 2, one per trajectory":            func(b *reweight.Batch) { b.GroupIDs = make([]int32, 3) },
		"SpanIDs has 3 elements, want 4, one per token":                  func(b *reweight.Batch) { b.SpanIDs = make([]int32, 3) },
		"SpanIDs[3] is -1 at a response token (role 2), want its span":   func(b *reweight.Batch) { b.SpanIDs = []int32{-1, 0, 1, -1} },
		"SpanIDs[2] is 0 in trajectory 1, but that span began in an earlier trajectory": func(b *reweight.Batch) {
			b.SpanIDs = make([]int32, 4)
		},
	} {
		b := small()
		change(b)
		_, err := Bottleneck(b)
		wantError(t, err, want)
	}
	b := small()
	b.RefEnergy[0] = nan // a masked token
	b.Entropy = make([]float32, 3)
	if _, err := Bottleneck(b); err != nil {
		t.Errorf("of what it does not read: %v", err)
	}
}

// small makes a batch of two trajectories, without spans.
func small() *reweight.Batch {
	return &reweight.Batch{Role: []reweight.Role{0, 1, 2, 2}, SeqOffsets: []int64{0, 2, 4}, GroupIDs: []int32{0, 0},
		Rewards: []float32{0, 1}, RefEnergy: []float32{0, 1, 2, 3}}
}
