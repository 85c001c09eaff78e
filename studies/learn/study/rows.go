// Package study plans many training runs, does them, and compares the schemes with
// uniform weights by paired statistics.
package study

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Uniform is the scheme that each other one is compared with.
const Uniform = "uniform"

// A Table has the results of the runs that are done. Decided is that of the warm start, with uniform
// weights, and NaN with others.
type Table map[train.Run]train.Result

var columns = []string{"arm", "game", "algorithm", "fluent", "errors", "scheme", "rate", "seed",
	"success", "start", "final", "malformed", "actions", "decided", "seconds", "weights"}

// line returns the line of a result in the file of a study.
func line(r train.Result) []string {
	return []string{
		r.Arm, r.Game, r.Algorithm, strconv.Itoa(r.Fluent), digits(r.Errors), r.Scheme, digits(r.Rate), strconv.Itoa(r.Seed),
		digits(r.Success), digits(r.Start), digits(r.Final), digits(r.Malformed), digits(r.Actions), digits(r.Decided),
		fmt.Sprintf("%.1f", r.Seconds), r.Weights,
	}
}

// digits returns all digits of a number, and nothing for NaN.
func digits(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// Read reads the file of a study; without one, no run is done.
func Read(path string) (Table, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("%s: the last line has no end: delete it, and its run is done again", path)
	}
	reader := csv.NewReader(bytes.NewReader(text))
	reader.FieldsPerRecord = len(columns)
	lines, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	done := Table{}
	for number, line := range lines {
		if number == 0 && slices.Equal(line, columns) {
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
		run := train.Run{
			Arm: line[0], Game: line[1], Algorithm: line[2], Fluent: int(float(3)), Errors: float(4),
			Scheme: line[5], Rate: float(6), Seed: int(float(7)),
		}
		done[run] = train.Result{
			Run: run, Success: float(8), Start: float(9), Final: float(10), Malformed: float(11),
			Actions: float(12), Decided: float(13), Seconds: float(14), Weights: line[15],
		}
		if wrong != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, number+1, wrong)
		}
	}
	return done, nil
}

// Do does the runs that the table lacks, as many at a time as there are CPUs, and appends a line of
// the file for each as it ends, so that it can be ended at any time, and goes on from there. It says
// after each how many are done, and of how many.
func (done Table) Do(path string, settings train.Settings, runs []train.Run, said func(done, of int)) error {
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
	left := slices.DeleteFunc(slices.Clone(runs), func(run train.Run) bool { _, ok := done[run]; return ok })
	type attempt struct {
		train.Result
		err error
	}
	next, ended := make(chan train.Run, len(left)), make(chan attempt, len(left))
	for _, run := range left {
		next <- run
	}
	close(next)
	starts := train.Starts{Settings: settings}
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for run := range next {
				result, err := do(&starts, run)
				if err != nil {
					err = fmt.Errorf("%+v: %w", run, err)
				}
				ended <- attempt{result, err}
			}
		}()
	}
	for i := range left {
		a := <-ended
		if a.err != nil {
			return a.err
		}
		done[a.Run] = a.Result
		lines.Write(line(a.Result))
		lines.Flush()
		if err := lines.Error(); err != nil {
			return err
		}
		said(i+1, len(left))
	}
	return nil
}

// Continue does the runs of a study that neither its file nor the studies before it have, and returns all of them.
func Continue(path string, before Table, runs []train.Run, settings train.Settings,
	said func(done, of int)) (Table, error) {
	done, err := Read(path)
	if err != nil {
		return nil, err
	}
	maps.Copy(done, before)
	return done, done.Do(path, settings, runs, said)
}

// do does a run.
func do(starts *train.Starts, run train.Run) (train.Result, error) {
	warm, err := starts.For(run)
	if err != nil {
		return train.Result{}, err
	}
	result, err := starts.Settings.Do(run, warm)
	if err != nil {
		return train.Result{}, err
	}
	if run.Scheme == Uniform { // the warm start of all others too
		result.Decided = starts.Settings.Decided(warm, run)
	}
	return result, nil
}
