package train

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"gonum.org/v1/gonum/stat"
)

// little are settings of runs that are too short to learn from.
var little = func() Settings {
	s := Default
	s.Hidden, s.Demonstrations, s.Iterations, s.Evaluation = 8, 400, 2, 4
	return s
}()

// The gradients of the parts of an answer add up to the one that training takes.
func TestGradientsOfParts(t *testing.T) {
	run := Run{Game: "sudoku4", Algorithm: "grpo", Fluent: 4, Errors: 1, Scheme: "uniform", Rate: 0.003, Seed: 1}
	tr := must.Get(little.trainer(run, must.Get(little.WarmStart(run))))
	b := pack(tr.play(tr.agent, starts(1, 8, forTraining, 1, 0)))
	must.Do(tr.describe(b))
	weights := must.Get(tr.directions(run, b))
	for i := range b.Trajectories() {
		one, _ := slice(b, nil, i, b.Trajectories())
		n := 0.0
		for range look(tr.agent, &one).ids {
			n++
		}
		one.Advantages = make([]float32, one.Tokens())
		for t := range one.Advantages {
			one.Advantages[t] = 1
		}
		clear(tr.gradient.Parameters)
		must.Get(tr.differentiate(&one, nil, reweight.DefaultPG))
		got := must.Get(tr.gradients(b, weights, i))
		for p, want := range tr.gradient.Parameters {
			sum := float64(got[0][p]) + float64(got[1][p]) + float64(got[2][p])
			if math.Abs(sum+n*float64(want)) > 1e-4*(1+math.Abs(sum)) {
				t.Fatalf("answer %d, parameter %d: parts have %v, the loss of a mean over %v tokens %v", i, p, sum, n, want)
			}
		}
	}
}

// The coefficients are those of docs/audit.md, by their definition.
func TestCoefficients(t *testing.T) {
	rewards := []float32{1, 0, 0.9, -0.1, 1, 0}
	both, alone := coefficients(rewards)
	n := float64(len(rewards))
	without := func(leave ...int) (others []float64) {
		for k, r := range rewards {
			if k != leave[0] && k != leave[len(leave)-1] {
				others = append(others, float64(r))
			}
		}
		return others
	}
	for i, x := range rewards {
		a := float64(x) - stat.Mean(without(i), nil)
		if math.Abs(alone[i]-a*a/n) > 1e-12 {
			t.Errorf("answer %d counts %v in T", i, alone[i])
		}
		for j, y := range rewards {
			if i == j {
				continue
			}
			mean, variance := stat.MeanVariance(without(i, j), nil)
			want := (float64(x)-mean)*(float64(y)-mean) - variance/(n-2)
			if got := both[i][j] * n * (n - 1); math.Abs(got-want) > 1e-12 {
				t.Errorf("answers %d and %d count %v in S, want %v", i, j, got, want)
			}
		}
	}
}

// An audit counts all prompts, and each part has the tokens that it should.
func TestAudit(t *testing.T) {
	run := Run{Game: "sudoku4", Algorithm: "grpo", Fluent: 4, Errors: 0, Scheme: "uniform", Rate: 0.003, Seed: 1}
	warm := must.Get(little.WarmStart(run))
	prompts, leftOut, err := little.Audit(run, warm, 1, 16)
	if err != nil || len(prompts)+leftOut != 16 {
		t.Errorf("%d prompts and %d left out: %v", len(prompts), leftOut, err)
	}
	run.Scheme = "measured:1:0.5"
	if _, err := little.Do(run, warm); err == nil {
		t.Error("two weights of three parts passed")
	}
	run.Scheme = "measured:1:1:1"
	measured := must.Get(little.Do(run, warm))
	run.Scheme = "uniform"
	if uniform := must.Get(little.Do(run, warm)); measured.Weights != uniform.Weights {
		t.Error("weights of 1 are not uniform ones")
	}
}
