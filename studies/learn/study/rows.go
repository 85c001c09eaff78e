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

// A Row is what is kept of a run. A line of the file of a study is one of them.
type Row struct {
	train.Run
	Success   float64 // mean over the iterations, the measure of the studies
	Start     float64 // before training
	Final     float64 // after training
	Malformed float64 // share of all responses
	Actions   float64 // share of action tokens
	Decided   float64 // train.Settings.Decided of the warm start, with uniform weights
	Seconds   float64
	Weights   string // SHA-256 of the parameters at the end
}

var columns = []string{"arm", "game", "algorithm", "fluent", "errors", "scheme", "rate", "seed",
	"success", "start", "final", "malformed", "actions", "decided", "seconds", "weights"}

func (r *Row) line() []string {
	return []string{r.Arm, r.Game, r.Algorithm, strconv.Itoa(r.Fluent), digits(r.Errors), r.Scheme, digits(r.Rate), strconv.Itoa(r.Seed),
		digits(r.Success), digits(r.Start), digits(r.Final), digits(r.Malformed), digits(r.Actions), digits(r.Decided), fmt.Sprintf("%.1f", r.Seconds), r.Weights}
}

// digits returns all digits of a number, and nothing for NaN.
func digits(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// A Table has the rows of the runs that are done.
type Table map[train.Run]Row

// Read reads the file of a study; without one, no run is done.
func Read(path string) (Table, error) {
	done := Table{}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("%s: the last line has no end: delete it, and its run is done again", path)
	}
	lines := csv.NewReader(bytes.NewReader(text))
	lines.FieldsPerRecord = len(columns)
	for number := 1; ; number++ {
		line, err := lines.Read()
		if err == io.EOF {
			return done, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if number == 1 && slices.Equal(line, columns) {
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
		run := train.Run{Arm: line[0], Game: line[1], Algorithm: line[2], Fluent: int(float(3)), Errors: float(4), Scheme: line[5], Rate: float(6), Seed: int(float(7))}
		done[run] = Row{run, float(8), float(9), float(10), float(11), float(12), float(13), float(14), line[15]}
		if wrong != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, number, wrong)
		}
	}
}

// Do does the runs that the table lacks, and appends a line of the file for each as it ends, so that
// it can be ended at any time, and goes on from there. It says after each how many rows there are.
func (done Table) Do(path string, settings train.Settings, runs []train.Run, said func(rows int)) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := csv.NewWriter(file)
	if info, err := file.Stat(); err != nil {
		return err
	} else if info.Size() == 0 {
		lines.Write(columns) // the first error stays, and Error returns it
	}
	var left []train.Run
	for _, run := range runs {
		if _, ok := done[run]; !ok {
			left = append(left, run)
		}
	}
	starts := train.Starts{Settings: settings}
	return each(left, func(run train.Run) (train.Result, error) {
		warm, err := starts.For(run)
		if err != nil {
			return train.Result{}, err
		}
		r, err := settings.Do(run, warm)
		if err == nil && run.Scheme == Uniform { // the warm start of all others too
			r.Decided, err = settings.Decided(warm, run)
		}
		return r, err
	}, func(r train.Result) error {
		row := Row{r.Run, stat.Mean(r.Success, nil), r.Start, r.Final, r.Malformed, r.Actions, r.Decided, r.Seconds, r.Weights}
		done[r.Run] = row
		lines.Write(row.line())
		lines.Flush()
		said(len(done))
		return lines.Error()
	})
}
