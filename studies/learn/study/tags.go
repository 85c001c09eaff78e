package study

import (
	"math"

	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
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

// Predictions holds the effects to the predictions of plan-tags.md, in its order.
func (s Tags) Predictions(all []Effect) []Prediction {
	// mean is the mean of some measure over the effects that keep says.
	mean := func(measure func(e Effect) float64, keep func(e Effect) bool) float64 {
		var found []float64
		for _, e := range all {
			if keep(e) {
				found = append(found, measure(e))
			}
		}
		return stat.Mean(found, nil)
	}
	during := func(e Effect) float64 { return e.Difference }
	of := func(arm string, q float64, alpha string) float64 {
		return mean(during, func(e Effect) bool { return e.Arm == arm && e.Errors == q && alphaOf[e.Scheme] == alpha })
	}
	acts := func(beta string) float64 {
		return mean(during, func(e Effect) bool {
			return e.Arm == "tags_act" && alphaOf[e.Scheme] != "0" && betaOf[e.Scheme] == beta
		})
	}
	asReasoning, asActions := of("", 0, "0"), of("tags_act", 0, "0")
	tenth, third := of("tags_act", 0, "0.1"), of("tags_act", 0, "0.3")
	tenth1, third1 := of("tags_act", 1, "0.1"), of("tags_act", 1, "0.3")
	beta := acts("0") - acts("0.5")
	final := math.Inf(-1)
	for _, e := range all {
		if e.Arm == "tags_act" && alphaOf[e.Scheme] != "0" {
			final = max(final, e.Final)
		}
	}
	two := func(x, y float64) string { return points(x) + " and " + points(y) }
	return []Prediction{
		{
			"At q 0 with alpha 0, tags as actions lose less than a third of what tags as reasoning lose",
			two(asActions, asReasoning), -asActions >= -asReasoning/3,
		},
		{
			"At q 0 with tags as actions, alpha 0.1 and 0.3 differ by less than 2 hundredths",
			two(tenth, third), math.Abs(third-tenth) >= 0.02,
		},
		{
			"At q 1 with tags as actions, alpha 0.3 loses at most two thirds of what alpha 0.1 loses",
			two(third1, tenth1), -third1 > -tenth1*2/3,
		},
		{"With tags as actions, beta 0 and 0.5 differ by at most 2 hundredths", points(beta), math.Abs(beta) > 0.02},
		{"With tags as actions, no success at the end is above that with uniform weights by 2 hundredths", "at most " + points(final), final > 0.02},
	}
}

// alphaOf and betaOf are the options of the forms.
var (
	alphaOf = map[string]string{
		"actfocus": "0.1", train.ActFocusWithoutBeta: "0.1", train.ActFocusAlpha0: "0", train.ActFocusAlpha0WithoutBeta: "0",
		train.ActFocusAlpha03: "0.3", train.ActFocusAlpha03WithoutBeta: "0.3",
	}
	betaOf = map[string]string{
		"actfocus": "0.5", train.ActFocusAlpha0: "0.5", train.ActFocusAlpha03: "0.5",
		train.ActFocusWithoutBeta: "0", train.ActFocusAlpha0WithoutBeta: "0", train.ActFocusAlpha03WithoutBeta: "0",
	}
)

// Effects compares the forms with uniform weights.
func (s Tags) Effects(done Table) ([]Effect, error) { return effects(done, s.Runs()) }
