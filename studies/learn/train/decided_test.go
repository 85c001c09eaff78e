package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/env"
)

// D is that of made-up episodes whose answers are right with known chances.
func TestDecided(t *testing.T) {
	for _, c := range []struct{ good, bad, want float64 }{ // chance after each of two kinds of reasoning
		{1, 0, 1}, {0.5, 0.5, 0}, {0.9, 0.1, 0.64}, {0.75, 0.25, 0.25},
	} {
		random := rand.New(rand.NewPCG(3, 4))
		var sum float64
		const n = 40
		for range n {
			var episodes []*episode
			for range decidedPrompts * decidedReasonings {
				chance := []float64{c.good, c.bad}[random.IntN(2)]
				for range decidedAnswers {
					episodes = append(episodes, &episode{success: random.Float64() < chance})
				}
			}
			sum += decided(episodes)
		}
		if got := sum / n; math.Abs(got-c.want) > 0.015 {
			t.Errorf("chances %v and %v: D is %.3f, want %.3f", c.good, c.bad, got, c.want)
		}
	}
	if d := decided(slices.Repeat([]*episode{{success: true}},
		decidedPrompts*decidedReasonings*decidedAnswers)); d == d {
		t.Errorf("D of answers that are always right is %v", d)
	}
}

// The answers of one reasoning differ, and the reasoning does not.
func TestDrawnAgain(t *testing.T) {
	add(t, "bandit", 1, newBandit)
	small := small
	small.Demonstrations = 9600
	run := Run{Game: "bandit", Fluent: 1, Errors: 1}
	agent := must.Get(small.WarmStart(run))
	all := slices.Repeat(starts(6, 1, forDecided, 5, 0), 3)
	for i := range all {
		all[i].again = uint64(i + 1)
	}
	other := false
	episodes := small.rules(run).firstAnswer().play(agent, all)
	for i, e := range episodes {
		first := episodes[i%6]
		end := slices.Index(e.tokens, env.AnswerStart) + 1
		if !slices.Equal(e.tokens[:end], first.tokens[:end]) {
			t.Errorf("episode %d has another reasoning", i)
		}
		other = other || !slices.Equal(e.tokens, first.tokens)
	}
	if !other {
		t.Error("all answers are the same")
	}
	// The policy has learned much of it.
	if d := small.Decided(agent, run); !(d > 0.6 && d <= 1) {
		t.Errorf("D is %.2f where the answer follows the plan", d)
	}
	run.Errors = 0
	if d := small.Decided(must.Get(small.WarmStart(run)), run); !(math.Abs(d) < 0.1) {
		t.Errorf("D is %.2f where all mistakes are in the answer", d)
	}
}
