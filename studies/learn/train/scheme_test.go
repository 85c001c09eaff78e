package train

import (
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/scheme"
)

// played returns a batch that knows its advantages, and the trainer that it is of.
func played(t *testing.T, algorithm string) (*trainer, *reweight.Batch) {
	tr := &trainer{Settings: Default, algorithm: algorithm, reference: talker()}
	tr.agent = talker()
	for i := range tr.agent.Parameters { // not the reference any more
		tr.agent.Parameters[i] *= 1.25
	}
	tr.seats.play(tr.agent, recorders, starts(7, 5, forTraining, 0, 0), 1)
	b := &tr.seats.batch
	must.Do(tr.describe(b))
	tr.scheme = schemes[0]
	must.Get(tr.credit(b))
	if slices.Max(b.Rewards) == 0 || slices.Max(b.Advantages) == 0 {
		t.Fatal("no episode succeeds")
	}
	return tr, b
}

// schemes are those of the papers and some that are made for GRPO.
var schemes = func() (all []scheme.Scheme) {
	for _, name := range []string{"uniform", "actfocus", "aem", "actfocus+aem", "empg", "gtpo", "entropy_mask", "gspo", "cispo", "sapo", "dppo_tv"} {
		all = append(all, scheme.MustParse(name))
	}
	return all
}()

// Each scheme leaves advantages and weights. PPO starts from the advantages of GAE,
// unless the scheme has its own.
func TestSchemes(t *testing.T) {
	made := map[string][]float32{}
	for _, algorithm := range Algorithms {
		tr, batch := played(t, algorithm)
		for _, s := range schemes {
			b := *batch
			tr.scheme = s
			weights, err := tr.credit(&b)
			if err != nil {
				t.Fatal(s.Name, err)
			}
			if weighs := s.Has("actfocus") || s.Has("entropy_mask"); (weights != nil) != weighs {
				t.Errorf("%s: weights %v", s.Name, weights)
			}
			made[algorithm+" "+s.Name] = slices.Clone(b.Advantages)
		}
		uniform := made[algorithm+" uniform"]
		for _, s := range schemes {
			changes := s.Has("aem") || s.Has("empg") || s.Has("gtpo")
			if slices.Equal(made[algorithm+" "+s.Name], uniform) == changes {
				t.Errorf("%s %s: changes the advantages: %v", algorithm, s.Name, !changes)
			}
		}
	}
	if slices.Equal(made["grpo uniform"], made["ppo uniform"]) || !slices.Equal(made["grpo gtpo"], made["ppo gtpo"]) {
		t.Error("the advantages of PPO")
	}
}
