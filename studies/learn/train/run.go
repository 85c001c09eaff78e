package train

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
)

// A Run names one training run. Runs that differ in Scheme and Rate only begin with the same
// weights and meet the same episodes, so that they can be compared in pairs.
type Run struct {
	Arm       string  // what is changed of the settings: a name of arms, or nothing
	Game      string  // a name of env.Games
	Algorithm string  // grpo or ppo
	Fluent    int     // words of each response that mean nothing, and are easy to foretell
	Errors    float64 // share of the demonstrator's mistakes that are made in its reasoning; with 0 it does not reason
	Scheme    string  // a name of variants or of package scheme, or Measured with weights
	Rate      float64 // size of the steps
	Seed      int
}

// A Result is what a training run leaves.
type Result struct {
	Run
	Success   float64 // share of the episodes, mean over the iterations: the measure of the studies
	Start     float64 // success before training, on episodes kept for that
	Final     float64 // success after training, on the same episodes
	Malformed float64 // share of all responses without an answer between two tags
	Actions   float64 // share of action tokens among those of responses, in the first batch
	Decided   float64 // before training: see Settings.Decided
	Seconds   float64
	Weights   string // SHA-256 of the parameters at the end
}

// A change is what an arm of a study changes of the settings: one thing.
type change struct {
	of    func(*Settings)
	start bool // the warm start too
}

// arms are those that a Run can name.
var arms = map[string]change{
	"":           {func(s *Settings) {}, false},
	"no_penalty": {func(s *Settings) { s.Penalty = 0 }, false},
	"tags_act":   {func(s *Settings) { s.FormatActs = true }, false},
	"filter":     {func(s *Settings) { s.Keep = 0.25 }, false},
	"epochs":     {func(s *Settings) { s.Epochs = 2 }, false},
	"easy":       {func(s *Settings) { s.Mistakes = 0.2 }, true},
	"wide":       {func(s *Settings) { s.Hidden = 64 }, true},
}

// of returns the settings of a run.
func (s Settings) of(run Run) Settings {
	arms[run.Arm].of(&s)
	return s
}

// Schemes with options of their own, beside those of package scheme.
const (
	ActFocusWithoutBeta = "actfocus_beta0"     // all action tokens weigh 1
	ActFocusBySurprisal = "actfocus_surprisal" // as the adapters of trainers have it
	ActFocusAlpha0      = "actfocus_alpha0"    // reasoning weighs nothing
	ActFocusAlpha03     = "actfocus_alpha0.3"

	ActFocusAlpha0WithoutBeta  = "actfocus_alpha0_beta0"
	ActFocusAlpha03WithoutBeta = "actfocus_alpha0.3_beta0"
)

// variants say what their options change of ActFocus.
var variants = map[string]func(opt *reweight.ActFocusOptions){
	ActFocusWithoutBeta: func(opt *reweight.ActFocusOptions) { opt.Beta = 0 },
	ActFocusBySurprisal: func(opt *reweight.ActFocusOptions) { opt.Signal = reweight.SignalSurprisal },
	ActFocusAlpha0:      func(opt *reweight.ActFocusOptions) { opt.Alpha = 0 },
	ActFocusAlpha03:     func(opt *reweight.ActFocusOptions) { opt.Alpha = 0.3 },

	ActFocusAlpha0WithoutBeta:  func(opt *reweight.ActFocusOptions) { opt.Alpha, opt.Beta = 1e-6, 0 }, // both 0 are refused
	ActFocusAlpha03WithoutBeta: func(opt *reweight.ActFocusOptions) { opt.Alpha, opt.Beta = 0.3, 0 },
}

// Measured begins the name of a scheme whose weights of Parts follow: "measured:1:0.9:0.1".
const Measured = "measured"

// measured returns the weights of the parts, nil for another scheme.
func (run Run) measured() ([]float32, error) {
	name, list, _ := strings.Cut(run.Scheme, ":")
	if name != Measured {
		return nil, nil
	}
	var weights []float32
	for text := range strings.SplitSeq(list, ":") {
		w, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return nil, fmt.Errorf("scheme %q: %w", run.Scheme, err)
		}
		weights = append(weights, float32(w))
	}
	if len(weights) != len(Parts) {
		return nil, fmt.Errorf("scheme %q has %d weights, want %d", run.Scheme, len(weights), len(Parts))
	}
	return weights, nil
}

// scheme returns that of the run. PPO has the advantages of GAE, and a critic that learns
// its returns.
func (run Run) scheme() (scheme.Scheme, error) {
	name, variant := run.Scheme, variants[run.Scheme]
	if variant != nil {
		name = "actfocus"
	}
	if strings.HasPrefix(name, Measured+":") {
		name = "uniform"
	}
	if run.Algorithm == "ppo" {
		name += "+gae+value_loss"
	}
	s, err := scheme.Parse(name)
	if err != nil {
		return scheme.Scheme{}, err
	}
	if variant != nil {
		variant(&s.Options.ActFocus)
	}
	return s, nil
}
