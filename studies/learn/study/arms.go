package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Arms is the study of plan-arms.md: in some cells of a map, one thing after another is changed.
// A scheme keeps the rate that the map has chosen for it in the cell.
type Arms struct {
	Map
	Cells   []train.Run // of the map, without a scheme
	Changes []train.Run // Arm, Game and Algorithm; what is empty stays as it is in the map
}

// TheArms is the study of plan-arms.md, and SmokeArms a part of it.
var (
	TheArms = Arms{
		Map:   TheMap,
		Cells: []train.Run{cell(4, 0), cell(4, 1)},
		Changes: []train.Run{
			{Arm: "no_penalty"}, {Arm: "tags_act"}, {Arm: "filter"}, {Arm: "epochs"}, {Arm: "easy"},
			{Algorithm: "ppo"}, {Game: "sokoban"}, {Game: "frozenlake4"}, {Game: "shop"}, {Arm: "wide"},
		},
	}
	SmokeArms = Arms{
		Map:     SmokeMap,
		Cells:   []train.Run{cell(4, 0)},
		Changes: []train.Run{{Arm: "tags_act"}, {Algorithm: "ppo"}},
	}
)

// changed returns the cell with what a change says.
func changed(cell, change train.Run) train.Run {
	cell.Arm = change.Arm
	cell.Game, cell.Algorithm = cmp.Or(change.Game, cell.Game), cmp.Or(change.Algorithm, cell.Algorithm)
	return cell
}

// Runs returns the runs of all arms; of is the finished map. Uniform weights without a change are
// runs of the map, and schemes that the map does not have take the rate of actfocus.
func (a Arms) Runs(of Table) (runs []train.Run) {
	add := func(run train.Run, schemes ...string) {
		for _, run.Seed = range a.Seeds {
			for _, run.Scheme = range schemes {
				same := cell(run.Fluent, run.Errors)
				if same.Scheme = run.Scheme; !slices.Contains(a.Schemes, same.Scheme) {
					same.Scheme = "actfocus"
				}
				run.Rate = a.best(of, same)
				runs = append(runs, run)
			}
		}
	}
	for _, cell := range a.Cells {
		add(cell, Uniform, train.ActFocusAlpha0, train.ActFocusAlpha03)
	}
	for _, change := range a.Changes {
		for _, cell := range a.Cells {
			add(changed(cell, change), Uniform, "actfocus", "aem")
		}
	}
	return runs
}

// Effects compares the schemes with uniform weights.
func (a Arms) Effects(done Table) ([]Effect, error) { return effects(done, a.Runs(done)) }

// Predictions holds the effects of the arms to the predictions of plan-arms.md, in its order; of are the effects of the
// map.
func (a Arms) Predictions(of, arms []Effect) []Prediction {
	difference := func(effects []Effect, cell train.Run, scheme string) float64 {
		return effectOf(effects, cell, scheme).Difference
	}
	same, aem, small, alphas := 0, 0.0, true, ""
	for _, change := range a.Changes {
		signs := 0
		for _, cell := range a.Cells {
			run := changed(cell, change)
			want := difference(of, cell, "actfocus")
			if math.Signbit(difference(arms, run, "actfocus")) == math.Signbit(want) {
				signs++
			}
			aem += difference(arms, run, "aem") / float64(len(a.Changes)*len(a.Cells))
		}
		if signs == len(a.Cells) {
			same++
		}
	}
	for _, cell := range a.Cells {
		none, some := difference(arms, cell, train.ActFocusAlpha0), difference(arms, cell, train.ActFocusAlpha03)
		small = small && math.Abs(some) <= math.Abs(none)
		alphas += fmt.Sprintf("; q %v: %s at 0, %s at 0.3", cell.Errors, points(none), points(some))
	}
	return []Prediction{
		{
			"In at least eight of the ten arms ActFocus's difference has the map's sign in both cells",
			fmt.Sprintf("in %d", same), same < 8,
		},
		{"With a larger alpha the difference is smaller, in both cells", alphas[2:], !small},
		{"AEM differs from uniform weights by less than 3 hundredths", points(aem) + " hundredths", math.Abs(aem) >= 0.03},
	}
}
