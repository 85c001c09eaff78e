package train

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

var algorithms = []string{"grpo", "ppo"}

// small are settings with which a test takes a second.
var small = func() Settings {
	s := Default
	s.Warmup, s.Penalty = 0, 0
	s.Hidden, s.Iterations, s.Evaluation = 16, 50, 1000
	s.Demonstrations, s.WarmRate = 4800, 1e-2
	return s
}()

// Uniform weights and those of the papers find the best arm of a bandit, by GRPO and, with
// a reasoning that is part of what they learn, by PPO.
func TestBandit(t *testing.T) {
	add(t, "bandit", 1, newBandit)
	average := floats.Sum(payoff[:]) / float64(len(payoff))
	for i, algorithm := range algorithms {
		run := Run{Game: "bandit", Algorithm: algorithm, Errors: float64(i) / 2, Rate: 1.5e-2}
		warm := must.Get(small.WarmStart(run))
		run.Seed = 1
		for _, run.Scheme = range []string{"uniform", "actfocus+aem"} {
			result := must.Get(small.Do(run, warm))
			t.Logf("%+v: %.3f to %.3f", run, result.Start, result.Final)
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
	warm := must.Get(small.WarmStart(Run{Game: "bandit", Errors: 0.5}))
	for _, algorithm := range algorithms {
		for _, scheme := range []string{"uniform", "actfocus+aem"} {
			tr := must.Get(small.trainer(Run{Game: "bandit", Algorithm: algorithm, Scheme: scheme}, warm))
			b := pack(tr.play(tr.agent, starts(8, 8, forTraining, 0, 0)))
			must.Do(tr.describe(b))
			weights := must.Get(tr.credit(b))
			// Away from the old policy, so that ratios are not 1.
			random := rand.New(rand.NewPCG(1, 2))
			for i := range tr.agent.Parameters {
				tr.agent.Parameters[i] += 0.02 * float32(random.NormFloat64())
			}
			must.Get(tr.differentiate(b, weights, tr.scheme.Options.Loss))
			groups := func(p *policy.Policy) map[string][]float32 {
				return map[string][]float32{"input": p.Input, "u": p.U, "bias": p.Bias, "head": p.Head,
					"head bias": p.HeadBias, "value": p.Value, "value bias": p.ValueBias}
			}
			for name, group := range groups(tr.gradient) {
				gradient := make([]float64, len(group))
				for i, g := range group {
					gradient[i] = float64(g)
				}
				norm := floats.Norm(gradient, 2)
				if norm == 0 {
					if algorithm == "ppo" || name != "value" && name != "value bias" {
						t.Errorf("%s %s: the gradient with respect to %s is 0", scheme, algorithm, name)
					}
					continue
				}
				// Half along the gradient, half at random: no part is left out, and the
				// change is large against float32's rounding.
				direction := make([]float64, len(gradient))
				for i, g := range gradient {
					direction[i] = g/norm + random.NormFloat64()/math.Sqrt(float64(len(gradient)))
				}
				const step = 1e-3
				value := func(along float64) float64 {
					moved := newLearner(tr.agent.Clone())
					parameters := groups(moved.agent)[name]
					for i := range parameters {
						parameters[i] += float32(along * direction[i])
					}
					return must.Get(moved.differentiate(b, weights, tr.scheme.Options.Loss))
				}
				got, want := (value(step)-value(-step))/(2*step), floats.Dot(direction, gradient)
				if math.Abs(got-want) > 0.01*math.Abs(want)+1e-4 {
					t.Errorf("%s %s: along %s the objective changes by %.6f, want %.6f", scheme, algorithm,
						name, got, want)
				}
			}
		}
	}
}

// The minibatches of a batch are valid batches, and one after another they are
// the batch.
func TestSlice(t *testing.T) {
	for _, algorithm := range algorithms {
		_, _, b := played(algorithm)
		weights := slices.Clone(b.Entropy) // any numbers
		arrays := func(b *reweight.Batch, weights []float32) [][]float32 {
			return [][]float32{b.OldLogprobs, b.RefLogprobs, b.Advantages, b.Values, b.Returns, weights}
		}
		for minibatches := 1; minibatches <= b.Trajectories(); minibatches++ {
			all := reweight.Batch{SeqOffsets: []int64{0}}
			floats := make([][]float32, 6)
			for number := range minibatches {
				part, partWeights := slice(b, weights, number, minibatches)
				must.Do(part.Validate())
				if few := b.Trajectories() / minibatches; part.Trajectories() < few || part.Trajectories() > few+1 {
					t.Errorf("part %d of %d has %d of %d trajectories", number, minibatches, part.Trajectories(),
						b.Trajectories())
				}
				for _, offset := range part.SeqOffsets[1:] {
					all.SeqOffsets = append(all.SeqOffsets, int64(len(all.Role))+offset)
				}
				all.Role = append(all.Role, part.Role...)
				all.TokenIDs = append(all.TokenIDs, part.TokenIDs...)
				for i, array := range arrays(&part, partWeights) {
					floats[i] = append(floats[i], array...)
				}
			}
			if !slices.Equal(all.SeqOffsets, b.SeqOffsets) || !slices.Equal(all.Role, b.Role) ||
				!slices.Equal(all.TokenIDs, b.TokenIDs) || !slices.EqualFunc(floats, arrays(b, weights), slices.Equal) {
				t.Errorf("%s: %d minibatches are not the batch", algorithm, minibatches)
			}
		}
		if _, none := slice(b, nil, 0, 1); none != nil {
			t.Error("a part has weights, the batch has none")
		}
		if (b.Returns != nil) != (algorithm == "ppo") || slices.Equal(b.OldLogprobs, b.RefLogprobs) {
			t.Error("the batch lacks something")
		}
	}
}

// Groups whose rewards do not vary most weigh nothing.
func TestKeep(t *testing.T) {
	b := &reweight.Batch{
		Role:       make([]reweight.Role, 9),
		Rewards:    []float32{0, 0, 0, 1, 1, 1, 0, 0.5},
		SeqOffsets: []int64{0, 1, 2, 3, 4, 5, 6, 7, 9},
	}
	for _, c := range []struct {
		weights []float32
		share   float64
		want    []float32
	}{
		{nil, 0.25, []float32{0, 0, 1, 1, 0, 0, 0, 0, 0}},
		{nil, 0.5, []float32{0, 0, 1, 1, 0, 0, 1, 1, 1}},
		{[]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.3, []float32{0, 0, 3, 4, 0, 0, 7, 8, 9}},
	} {
		if got := keep(b, c.weights, 2, c.share); !slices.Equal(got, c.want) {
			t.Errorf("share %v: %v, want %v", c.share, got, c.want)
		}
	}
}

// A run gives the same bits on every instruction set, and on every CPU.
func TestSameBits(t *testing.T) {
	holdBits(t, map[string]Run{"830d4141a52a295c": {}, "08a242a1bcd800d4": {Algorithm: "ppo"}})
}

// So does one with each arm, game and scheme, and the bits are those of the studies.
func TestArmsAndSchemes(t *testing.T) {
	holdBits(t, map[string]Run{
		"1cecf9a3f354d5c9": {Algorithm: "ppo", Scheme: "aem"},
		"5b0f0e9d4e924009": {Arm: "no_penalty"},
		"8aac158c46a21fcc": {Arm: "tags_act"},
		"9d7bebd3c28bd634": {Arm: "filter"},
		"f35ee5d02ca0db7e": {Arm: "epochs"},
		"9c6ca8f24169bb31": {Arm: "easy"},
		"548b65db468ef99a": {Arm: "wide"},
		"8458783a81a35f15": {Game: "sokoban"},
		"d6e9ec6ef6d22033": {Game: "sudoku4"},
		"c07b99b9ceb7d1eb": {Game: "shop"},
		"40931bf890d794c4": {Scheme: "uniform"},
		"c7a4863ebe06c8ed": {Scheme: ActFocusWithoutBeta},
		"8c139189aa4ad805": {Scheme: ActFocusBySurprisal},
		"5c05e95f6a5170db": {Scheme: ActFocusAlpha0},
		"8de528a8534ed292": {Scheme: ActFocusAlpha03},
	})
}

// holdBits holds runs to the first digits of the hashes of their parameters at the end.
func holdBits(t *testing.T, runs map[string]Run) {
	settings := Default
	settings.Hidden, settings.Demonstrations, settings.WarmRate = 12, 800, 4e-2 // learns enough to succeed now and then
	settings.Iterations, settings.Groups, settings.Minibatches, settings.Evaluation = 3, 4, 2, 8
	settings.Mistakes, settings.Starts = 0.35, 1
	starts := Starts{Settings: settings}
	for want, c := range runs {
		run := c
		run.Game, run.Algorithm = cmp.Or(c.Game, "frozenlake4"), cmp.Or(c.Algorithm, "grpo")
		run.Scheme = cmp.Or(c.Scheme, "actfocus+aem")
		run.Fluent, run.Errors, run.Rate, run.Seed = 1, 0.5, 3e-3, 3
		warm := must.Get(starts.For(Run{Arm: run.Arm, Game: run.Game, Errors: 0.5}))
		var first string
		for _, isa := range reweight.AvailableISAs() {
			result := must.Get(settings.do(run, warm, isa))
			if c == (Run{}) && result.Success == 0 {
				t.Error("no episode of the training succeeds, so the test says little")
			}
			if result.Weights[:16] != want {
				t.Errorf("%+v, %v: the parameters at the end have the hash %s, want %s", run, isa,
					result.Weights[:16], want)
			}
			result.Seconds = 0
			text := fmt.Sprint(result) // a NaN is not equal to itself
			if first = cmp.Or(first, text); text != first {
				t.Errorf("%v and %v give different results", isa, reweight.AvailableISAs()[0])
			}
		}
	}
}
