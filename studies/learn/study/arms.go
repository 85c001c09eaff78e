package study

import (
	"cmp"
	"maps"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Arms is the study of docs/plan-arms.md: in some cells of a map, one thing after another is changed.
// A scheme keeps the rate that the map has chosen for it in the cell.
type Arms struct {
	Map
	Cells   []train.Run // Fluent and Errors
	Changes []train.Run // Arm, Game and Algorithm; what is empty stays as it is in the map
	Alphas  []string    // schemes that the map does not have, at the rate of actfocus
}

// TheArms is that of docs/plan-arms.md, and SmokeArms a part of it.
var TheArms, SmokeArms = Arms{
	Map:   TheMap,
	Cells: []train.Run{{Fluent: 4, Errors: 0}, {Fluent: 4, Errors: 1}},
	Changes: []train.Run{
		{Arm: "no_penalty"}, {Arm: "tags_act"}, {Arm: "filter"}, {Arm: "epochs"}, {Arm: "easy"},
		{Algorithm: "ppo"}, {Game: "sokoban"}, {Game: "frozenlake4"}, {Game: "shop"}, {Arm: "wide"},
	},
	Alphas: []string{train.ActFocusAlpha0, train.ActFocusAlpha03},
}, Arms{
	Map:     SmokeMap,
	Cells:   []train.Run{{Fluent: 4, Errors: 0}},
	Changes: []train.Run{{Arm: "tags_act"}, {Algorithm: "ppo"}},
	Alphas:  []string{train.ActFocusAlpha0, train.ActFocusAlpha03},
}

// runs returns those of all arms. Uniform weights without a change are runs of the map.
func (a Arms) runs(done Table) (runs []train.Run) {
	add := func(run train.Run, schemes ...string) {
		for _, run.Seed = range a.Seeds {
			for _, scheme := range schemes {
				of := train.Run{Game: a.Game, Algorithm: a.Algorithm, Fluent: run.Fluent, Errors: run.Errors, Scheme: scheme}
				if of.Scheme != Uniform && of.Scheme != "aem" {
					of.Scheme = "actfocus"
				}
				run.Scheme, run.Rate = scheme, a.best(done, of)
				runs = append(runs, run)
			}
		}
	}
	for _, cell := range a.Cells {
		cell.Game, cell.Algorithm = a.Game, a.Algorithm
		add(cell, append([]string{Uniform}, a.Alphas...)...)
	}
	for _, change := range a.Changes {
		for _, run := range a.Cells {
			run.Arm, run.Game, run.Algorithm = change.Arm, cmp.Or(change.Game, a.Game), cmp.Or(change.Algorithm, a.Algorithm)
			add(run, Uniform, "actfocus", "aem")
		}
	}
	return runs
}

// Do does the runs that the file lacks, of a map that is done, and returns both.
func (a Arms) Do(path string, of Table, settings train.Settings, said func(done, of int)) (Table, error) {
	done, err := Read(path)
	if err != nil {
		return nil, err
	}
	maps.Copy(done, of)
	runs := a.runs(done)
	all := maps.Clone(of)
	for _, run := range runs {
		all[run] = Row{}
	}
	return done, done.Do(path, settings, runs, func(rows int) { said(rows-len(of), len(all)-len(of)) })
}

// Effects compares the schemes with uniform weights.
func (a Arms) Effects(done Table) ([]Effect, error) { return effects(done, a.runs(done)) }
