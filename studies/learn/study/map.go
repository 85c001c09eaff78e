package study

import (
	"slices"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// A Map is the study of plan.md: in which regime does a scheme help, each at its own best rate?
type Map struct {
	Fluent  []int     // words of each answer that mean nothing
	Errors  []float64 // share of the mistakes made in the reasoning; with 0 it says nothing else
	Schemes []string  // the first is Uniform
	Rates   []float64
	Tuning  []int // seeds that choose the rate
	Seeds   []int // seeds that compare schemes
}

// TheMap is the study of plan.md, and SmokeMap a part of it for tests.
var (
	TheMap = Map{
		Fluent:  []int{0, 4, 12, 36},
		Errors:  []float64{0, 0.5, 1},
		Schemes: []string{Uniform, "actfocus", train.ActFocusWithoutBeta, "aem", train.ActFocusBySurprisal},
		Rates:   []float64{1e-3, 3e-3, 1e-2},
		Tuning:  []int{101, 102, 103},
		Seeds:   []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
	}
	SmokeMap = Map{
		Fluent:  []int{0, 4},
		Errors:  []float64{0},
		Schemes: []string{Uniform, "actfocus", "aem"},
		Rates:   []float64{1e-3, 3e-3},
		Tuning:  []int{101},
		Seeds:   []int{1, 2},
	}
)

// cell returns a run of a map, without scheme, rate and seed.
func cell(fluent int, errors float64) train.Run {
	return train.Run{Game: "sudoku4", Algorithm: "grpo", Fluent: fluent, Errors: errors}
}

func (m Map) runs(rates func(train.Run) []float64, seeds []int) (runs []train.Run) {
	for _, seed := range seeds {
		for _, fluent := range m.Fluent {
			for _, errors := range m.Errors {
				for _, scheme := range m.Schemes {
					run := cell(fluent, errors)
					run.Scheme = scheme
					for _, rate := range rates(run) {
						run.Rate, run.Seed = rate, seed
						runs = append(runs, run)
					}
				}
			}
		}
	}
	return runs
}

// Choosing returns the runs that choose the rates, and Comparing those that compare the schemes at
// them: in each cell the rate of a scheme is that with the best mean success among done.
func (m Map) Choosing() []train.Run {
	return m.runs(func(train.Run) []float64 { return m.Rates }, m.Tuning)
}

func (m Map) Comparing(done Table) []train.Run {
	return m.runs(func(run train.Run) []float64 { return []float64{m.best(done, run)} }, m.Seeds)
}

// best is the rate of the run's scheme in its cell.
func (m Map) best(done Table, run train.Run) float64 {
	var means []float64
	for _, rate := range m.Rates {
		var sum float64
		for _, seed := range m.Tuning {
			run.Rate, run.Seed = rate, seed
			sum += done[run].Success
		}
		means = append(means, sum)
	}
	return m.Rates[slices.Index(means, slices.Max(means))]
}

// Do does the runs of the map that the file lacks.
func (m Map) Do(path string, settings train.Settings, said func(done, of int)) (Table, error) {
	done, err := Read(path)
	if err != nil {
		return nil, err
	}
	if err := done.Do(path, settings, m.Choosing(), said); err != nil {
		return nil, err
	}
	return done, done.Do(path, settings, m.Comparing(done), said)
}

// Effects compares the schemes with uniform weights.
func (m Map) Effects(done Table) ([]Effect, error) { return effects(done, m.Comparing(done)) }
