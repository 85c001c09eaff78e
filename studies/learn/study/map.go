package study

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// A Map is the study of docs/plan.md: in which regime does a scheme help, each at its own best rate?
type Map struct {
	Games   []string
	Fluent  []int     // words of each answer that mean nothing
	Errors  []float64 // share of the mistakes made in the reasoning; with 0 it says nothing else
	Schemes []string  // the first is what the others are compared with
	Rates   []float64
	Tuning  []int // seeds that choose the rate
	Seeds   []int // seeds that compare schemes
}

// TheMap is that of docs/plan.md, and SmokeMap a part of it for tests.
var (
	TheMap = Map{
		Games:   []string{"sudoku4"},
		Fluent:  []int{0, 4, 12, 36},
		Errors:  []float64{0, 0.5, 1},
		Schemes: []string{Uniform, "actfocus", train.ActFocusWithoutBeta, "aem", train.ActFocusBySurprisal},
		Rates:   []float64{1e-3, 3e-3, 1e-2},
		Tuning:  []int{101, 102, 103},
		Seeds:   []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
	}
	SmokeMap = Map{
		Games: []string{"sudoku4"}, Fluent: []int{0, 4}, Errors: []float64{0}, Schemes: []string{Uniform, "actfocus"},
		Rates: []float64{1e-3, 3e-3}, Tuning: []int{101}, Seeds: []int{1, 2},
	}
)

// A MapRun is what is kept of a run. A line of its file is one of them.
type MapRun struct {
	train.Run
	Success   float64 // mean over the iterations, the measure of the study
	Start     float64
	Final     float64
	Malformed float64 // share of all responses
	Actions   float64 // share of action tokens
	Decided   float64 // train.Settings.Decided of the warm start
	Seconds   float64
	Weights   string
}

func (m Map) runs(rate func(cell train.Run) []float64, seeds []int) (runs []train.Run) {
	for _, seed := range seeds {
		for _, fluent := range m.Fluent {
			for _, errors := range m.Errors {
				for _, game := range m.Games {
					for _, scheme := range m.Schemes {
						run := train.Run{Game: game, Algorithm: "grpo", Reasoning: "useful", Scheme: scheme, Fluent: fluent, Errors: errors}
						if errors == 0 {
							run.Reasoning = "none"
						}
						for _, rate := range rate(run) {
							run.Rate, run.Seed = rate, seed
							runs = append(runs, run)
						}
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

func (m Map) Comparing(done map[train.Run]MapRun) []train.Run {
	best := func(run train.Run) []float64 {
		var means []float64
		for _, rate := range m.Rates {
			var sum float64
			for _, seed := range m.Tuning {
				run.Rate, run.Seed = rate, seed
				sum += done[run].Success
			}
			means = append(means, sum)
		}
		return []float64{m.Rates[slices.Index(means, slices.Max(means))]}
	}
	return m.runs(best, m.Seeds)
}

// Do does the runs that the file lacks, and appends a line for each as it ends, so that it can be
// ended at any time, and goes on from there. It says after each how many are done, of how many
// that are known yet.
func (m Map) Do(path string, settings train.Settings, said func(done, of int)) error {
	done, err := ReadMap(path)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := csv.NewWriter(file)
	if info, err := file.Stat(); err != nil {
		return err
	} else if info.Size() == 0 {
		lines.Write(mapColumns)
	}
	starts := train.Starts{Settings: settings}
	part := func(all []train.Run) error {
		var left []train.Run
		for _, run := range all {
			if _, ok := done[run]; !ok {
				left = append(left, run)
			}
		}
		return Do(left, func(run train.Run) (train.Result, error) {
			warm, err := starts.For(run)
			if err != nil {
				return train.Result{}, err
			}
			r, err := settings.Do(run, warm)
			if err == nil && run.Scheme == m.Schemes[0] { // the warm start of all others too
				r.Decided, err = settings.Decided(warm, run)
			}
			return r, err
		}, func(r train.Result) error {
			run := MapRun{r.Run, stat.Mean(r.Success, nil), r.Start, r.Final, r.Malformed, r.Actions, r.Decided, r.Seconds, r.Weights}
			done[r.Run] = run
			lines.Write(run.line())
			lines.Flush()
			said(len(done), len(m.Choosing())+len(m.runs(func(train.Run) []float64 { return m.Rates[:1] }, m.Seeds)))
			return lines.Error()
		})
	}
	if err := part(m.Choosing()); err != nil {
		return err
	}
	return part(m.Comparing(done))
}

var mapColumns = []string{"game", "fluent", "errors", "scheme", "rate", "seed", "success", "start", "final", "malformed", "actions", "decided", "seconds", "weights"}

func (r *MapRun) line() []string {
	return []string{r.Game, strconv.Itoa(r.Fluent), digits(r.Errors), r.Scheme, digits(r.Rate), strconv.Itoa(r.Seed),
		digits(r.Success), digits(r.Start), digits(r.Final), digits(r.Malformed), digits(r.Actions), digits(r.Decided), fmt.Sprintf("%.1f", r.Seconds), r.Weights}
}

// ReadMap reads the file of a map; without one, no run is done.
func ReadMap(path string) (map[train.Run]MapRun, error) {
	done := map[train.Run]MapRun{}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("%s: the last line has no end: delete it, and its run is done again", path)
	}
	lines := csv.NewReader(bytes.NewReader(text))
	lines.FieldsPerRecord = len(mapColumns)
	for number := 1; ; number++ {
		line, err := lines.Read()
		if err == io.EOF {
			return done, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if number == 1 && slices.Equal(line, mapColumns) {
			continue
		}
		var wrong error
		float := func(i int) float64 {
			if line[i] == "" {
				return math.NaN()
			}
			x, err := strconv.ParseFloat(line[i], 64)
			wrong = errors.Join(wrong, err)
			return x
		}
		run := train.Run{Game: line[0], Algorithm: "grpo", Reasoning: "useful", Scheme: line[3], Fluent: int(float(1)), Errors: float(2), Rate: float(4), Seed: int(float(5))}
		if run.Errors == 0 {
			run.Reasoning = "none"
		}
		done[run] = MapRun{run, float(6), float(7), float(8), float(9), float(10), float(11), float(12), line[13]}
		if wrong != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, number, wrong)
		}
	}
}
