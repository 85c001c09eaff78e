package train

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/scheme"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// small are settings with which a test takes a second.
var small = func() Settings {
	s := Default
	s.Warmup, s.Penalty, s.Echo, s.Lambda = 0, 0, false, 0.95
	s.Hidden, s.Iterations, s.Evaluation = 16, 50, 1000
	s.Demonstrations, s.WarmRate, s.LearningRate = 4800, 1e-2, 1.5e-2
	return s
}()

// Uniform weights and those of the papers find the best arm of a bandit, by GRPO and, with
// a reasoning that is part of what they learn, by PPO.
func TestBandit(t *testing.T) {
	add(t, "bandit", 1, newBandit)
	average := 0.0
	for _, p := range payoff {
		average += p / float64(len(payoff))
	}
	for _, side := range []struct {
		algorithm string
		errors    float64
	}{{"grpo", 0}, {"ppo", 0.5}} {
		warm := must.Get(small.WarmStart(Run{Game: "bandit", Errors: side.errors}))
		for _, scheme := range []string{"uniform", "actfocus+aem"} {
			run := Run{Game: "bandit", Algorithm: side.algorithm, Errors: side.errors, Scheme: scheme, Seed: 1}
			result := must.Get(small.Do(run, warm))
			t.Logf("%v %s %s: %.3f to %.3f", side.errors, side.algorithm, scheme, result.Start, result.Final)
			if math.Abs(result.Start-average) > 0.06 {
				t.Errorf("%+v: begins with a success of %.3f, want about %.3f", run, result.Start, average)
			}
			// The standard error of the measurement is 0.01.
			if math.Abs(result.Final-payoff[best]) > 0.04 {
				t.Errorf("%+v: ends with a success of %.3f, want about %.3f", run, result.Final, payoff[best])
			}
		}
	}
}

// The gradient of the whole objective, through all layers and steps, is that of
// its value: along random directions in each group of parameters.
func TestGradient(t *testing.T) {
	add(t, "bandit", 1, newBandit)
	game := env.Games["bandit"]
	settings := small
	warm := must.Get(settings.WarmStart(Run{Game: "bandit", Errors: 0.5}))
	for _, scheme := range []scheme.Scheme{scheme.MustParse("uniform"), scheme.MustParse("actfocus+aem")} {
		for _, algorithm := range Algorithms {
			tr := trainer{Settings: settings, game: game, scheme: scheme, algorithm: algorithm, reference: warm}
			tr.agent, tr.gradient = warm.Clone(), warm.Zeros()
			tr.seats.play(tr.agent, game, starts(8, 8, forTraining, 0, 0))
			b := &tr.seats.batch
			must.Do(tr.describe(b))
			weights := must.Get(tr.credit(b))
			o := objective{loss: scheme.Options.Loss, critic: reweight.ValueLossOptions{Clip: 0.5}}
			if algorithm == "ppo" {
				o.criticCoef = 0.5
			}
			// Away from the old policy, so that ratios are not 1.
			random := rand.New(rand.NewPCG(1, 2))
			for i := range tr.agent.Parameters {
				tr.agent.Parameters[i] += 0.02 * float32(random.NormFloat64())
			}
			value := func(agent *policy.Policy) float64 {
				l := learner{agent: agent, gradient: agent.Zeros()}
				loss, critic, err := l.differentiate(b, weights, o)
				if err != nil {
					t.Fatal(err)
				}
				return loss.Loss + o.criticCoef*critic.Loss
			}
			if _, _, err := tr.differentiate(b, weights, o); err != nil {
				t.Fatal(err)
			}
			groups := func(p *policy.Policy) map[string][]float32 {
				return map[string][]float32{"input": p.Input, "u": p.U, "bias": p.Bias, "head": p.Head, "head bias": p.HeadBias, "value": p.Value, "value bias": p.ValueBias}
			}
			for name, gradient := range groups(tr.gradient) {
				norm := 0.0
				for _, g := range gradient {
					norm += float64(g) * float64(g)
				}
				norm = math.Sqrt(norm)
				if norm == 0 {
					if o.criticCoef != 0 || name != "value" && name != "value bias" {
						t.Errorf("%s %s: the gradient with respect to %s is 0", scheme.Name, algorithm, name)
					}
					continue
				}
				// Half along the gradient, half at random: no part is left out, and the
				// change is large against float32's rounding.
				direction := make([]float64, len(gradient))
				want := 0.0
				for i, g := range gradient {
					direction[i] = float64(g)/norm + random.NormFloat64()/math.Sqrt(float64(len(gradient)))
					want += direction[i] * float64(g)
				}
				const step = 1e-3
				sides := [2]float64{}
				for side, sign := range []float64{1, -1} {
					moved := tr.agent.Clone()
					for i, parameters := 0, groups(moved)[name]; i < len(parameters); i++ {
						parameters[i] += float32(sign * step * direction[i])
					}
					sides[side] = value(moved)
				}
				got := (sides[0] - sides[1]) / (2 * step)
				if math.Abs(got-want) > 0.01*math.Abs(want)+1e-4 {
					t.Errorf("%s %s: along %s the objective changes by %.6f, the gradient says %.6f", scheme.Name, algorithm, name, got, want)
				}
			}
		}
	}
}

// A run gives the same bits on every instruction set, and on every CPU: those of
// the number here.
func TestSameBits(t *testing.T) {
	want := map[string]string{
		"grpo": "830d4141a52a295c54fde09ad220e4f07836160bdd4121ea246c16d32aad8f39",
		"ppo":  "08a242a1bcd800d4af4846a5d1a0251753511ff185a411bd379f923cea0b6991",
	}
	settings := Default
	settings.Mistakes = 0.35
	settings.Hidden, settings.Demonstrations, settings.WarmRate = 12, 800, 4e-2 // learns enough to succeed now and then
	settings.Iterations, settings.Groups, settings.Minibatches, settings.Evaluation = 3, 4, 2, 8
	warm := must.Get(settings.WarmStart(Run{Game: "frozenlake4", Errors: 0.5}))
	for _, algorithm := range Algorithms {
		var first string
		for i, isa := range reweight.AvailableISAs() {
			run := Run{Game: "frozenlake4", Algorithm: algorithm, Errors: 0.5, Scheme: "actfocus+aem", Fluent: 1, Seed: 3}
			result := must.Get(settings.do(run, warm, isa))
			if slices.Max(result.Success) == 0 {
				t.Errorf("%s: no episode of the training succeeds, so the test says little", algorithm)
			}
			result.Seconds = 0
			text := fmt.Sprint(result) // a NaN is not equal to itself
			if i == 0 {
				first = text
			}
			if result.Weights != want[algorithm] {
				t.Errorf("%s, %v: the parameters at the end have the hash %s, want %s", algorithm, isa, result.Weights, want[algorithm])
			}
			if text != first {
				t.Errorf("%s: %v and %v give different results", algorithm, isa, reweight.AvailableISAs()[0])
			}
		}
	}
}
