package train

import (
	"maps"
	"slices"
)

// A change is what an arm of a study changes of the settings: one thing.
type change struct {
	of    func(*Settings)
	start bool // the warm start too
}

// arms are those that a Run can name.
var arms = map[string]change{
	"no_penalty": {func(s *Settings) { s.Penalty = 0 }, false},
	"tags_act":   {func(s *Settings) { s.FormatActs = true }, false},
	"filter":     {func(s *Settings) { s.Keep = 0.25 }, false},
	"epochs":     {func(s *Settings) { s.Epochs = 2 }, false},
	"easy":       {func(s *Settings) { s.Mistakes = 0.2 }, true},
	"wide":       {func(s *Settings) { s.Hidden = 64 }, true},
}

// of returns the settings of a run.
func (s Settings) of(run Run) (Settings, error) {
	if run.Arm == "" {
		return s, nil
	}
	a, ok := arms[run.Arm]
	if !ok {
		return s, unknown("arm", run.Arm, slices.Sorted(maps.Keys(arms)))
	}
	a.of(&s)
	return s, nil
}
