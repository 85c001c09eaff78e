package study

import (
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Tags is the study of plan-tags.md: forms of ActFocus, with tags as reasoning and as actions, at one rate.
type Tags struct {
	Cells []train.Run // of the map, with Rate
	Arms  []string
	Forms []string // the first is Uniform
	Seeds []int
}

// TheTags is the study of plan-tags.md, and SmokeTags a part of it.
var (
	TheTags = Tags{
		Cells: []train.Run{atRate(cell(4, 0), 1e-2), atRate(cell(4, 1), 1e-2)},
		Arms:  []string{"", "tags_act"},
		Forms: []string{
			Uniform, train.ActFocusAlpha0, "actfocus", train.ActFocusAlpha03,
			train.ActFocusAlpha0WithoutBeta, train.ActFocusWithoutBeta, train.ActFocusAlpha03WithoutBeta,
		},
		Seeds: TheMap.Seeds,
	}
	SmokeTags = Tags{
		Cells: []train.Run{atRate(cell(4, 0), 3e-3)},
		Arms:  []string{"tags_act"},
		Forms: []string{Uniform, train.ActFocusAlpha03WithoutBeta},
		Seeds: SmokeMap.Seeds,
	}
)

func atRate(run train.Run, rate float64) train.Run {
	run.Rate = rate
	return run
}

// Runs returns all runs, also those that the map and its arms have.
func (s Tags) Runs() (runs []train.Run) {
	for _, seed := range s.Seeds {
		for _, run := range s.Cells {
			for _, run.Arm = range s.Arms {
				for _, run.Scheme = range s.Forms {
					run.Seed = seed
					runs = append(runs, run)
				}
			}
		}
	}
	return runs
}

// Effects compares the forms with uniform weights.
func (s Tags) Effects(done Table) ([]Effect, error) { return effects(done, s.Runs()) }
