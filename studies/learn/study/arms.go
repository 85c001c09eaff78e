package study

import (
	"cmp"
	"fmt"
	"maps"
	"math"

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

// Predictions holds the effects of the arms to those of docs/plan-arms.md, in its order; of are the map's.
func (a Arms) Predictions(of, arms []Effect) []Prediction {
	difference := func(effects []Effect, run train.Run) float64 {
		for _, e := range effects {
			e.Rate = 0
			if e.Run == run {
				return e.Difference
			}
		}
		panic(fmt.Sprintf("no effect of %+v", run))
	}
	same, aem, small, alphas := 0, 0.0, true, ""
	for _, change := range a.Changes {
		signs := 0
		for _, cell := range a.Cells {
			run := train.Run{Game: a.Game, Algorithm: a.Algorithm, Scheme: "actfocus", Fluent: cell.Fluent, Errors: cell.Errors}
			want := difference(of, run)
			run.Arm, run.Game, run.Algorithm = change.Arm, cmp.Or(change.Game, a.Game), cmp.Or(change.Algorithm, a.Algorithm)
			if math.Signbit(difference(arms, run)) == math.Signbit(want) {
				signs++
			}
			run.Scheme = "aem"
			aem += difference(arms, run) / float64(len(a.Changes)*len(a.Cells))
		}
		if signs == len(a.Cells) {
			same++
		}
	}
	for _, cell := range a.Cells {
		run := train.Run{Game: a.Game, Algorithm: a.Algorithm, Fluent: cell.Fluent, Errors: cell.Errors}
		run.Scheme = a.Alphas[0]
		none := difference(arms, run)
		run.Scheme = a.Alphas[1]
		some := difference(arms, run)
		small = small && math.Abs(some) <= math.Abs(none)
		alphas += fmt.Sprintf("; q %v: %s at 0, %s at 0.3", cell.Errors, points(none), points(some))
	}
	return []Prediction{
		{"In at least eight of the ten arms ActFocus's difference has the map's sign in both cells", fmt.Sprintf("in %d", same), same < 8},
		{"With a larger alpha the difference is smaller, in both cells", alphas[2:], !small},
		{"AEM differs from uniform weights by less than 3 hundredths", points(aem) + " hundredths", math.Abs(aem) >= 0.03},
	}
}
