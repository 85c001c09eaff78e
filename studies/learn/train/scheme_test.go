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
	tr.seats.play(tr.agent, recorders, starts(7, 5, forTraining, 0, 0))
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

// The schemes with options of their own differ from ActFocus in the one that their name says.
func TestVariants(t *testing.T) {
	for name, change := range map[string]func(opt *reweight.ActFocusOptions){
		ActFocusWithoutBeta: func(opt *reweight.ActFocusOptions) { opt.Beta = 0 },
		ActFocusBySurprisal: func(opt *reweight.ActFocusOptions) { opt.Signal = reweight.SignalSurprisal },
		ActFocusAlpha0:      func(opt *reweight.ActFocusOptions) { opt.Alpha = 0 },
		ActFocusAlpha03:     func(opt *reweight.ActFocusOptions) { opt.Alpha = 0.3 },
	} {
		want := reweight.DefaultActFocus
		change(&want)
		if s := must.Get(schemeNamed(name)); s.Name != name || !s.Has("actfocus") || s.Options.ActFocus != want {
			t.Errorf("%s is %+v, want %+v", name, s.Options.ActFocus, want)
		}
	}
}

// Each arm changes one thing of the settings, and its warm start is its own if that is changed too.
func TestArms(t *testing.T) {
	for name, change := range map[string]func(s *Settings){
		"no_penalty": func(s *Settings) { s.Penalty = 0 },
		"tags_act":   func(s *Settings) { s.FormatActs = true },
		"filter":     func(s *Settings) { s.Keep = 0.25 },
		"epochs":     func(s *Settings) { s.Epochs = 2 },
		"easy":       func(s *Settings) { s.Mistakes = 0.2 },
		"wide":       func(s *Settings) { s.Hidden = 64 },
		"":           func(s *Settings) {},
	} {
		want := Default
		change(&want)
		if got := must.Get(Default.of(Run{Arm: name})); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	add(t, "choice", 0.4, newChoice)
	starts := Starts{Settings: tiny}
	plain := must.Get(starts.For(Run{Game: "choice"}))
	for name, arm := range arms {
		if shared := must.Get(starts.For(Run{Game: "choice", Arm: name})) == plain; shared == arm.start {
			t.Errorf("%s: the warm start of the map is taken: %v", name, shared)
		}
	}
	if wide := must.Get(starts.For(Run{Game: "choice", Arm: "wide"})); wide.Hidden != 64 {
		t.Errorf("the wide agent has the width %d", wide.Hidden)
	}
}
