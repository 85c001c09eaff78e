package study

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Audits is the study of plan-audit.md: policies of a map are audited.
type Audits struct {
	Map
	Starts     int
	Iterations []int // of training with uniform weights before an audit
	Rate       float64
	Groups     int // prompts of an audit
}

// TheAudits is the study of plan-audit.md.
var TheAudits = Audits{TheMap, 4, []int{0, 10, 30}, 3e-3, 160}

// audited is what a policy's audit leaves.
type audited struct {
	Prompts []diagnose.AuditPrompt
	LeftOut int
}

// each calls f for all policies, as many at a time as there are CPUs.
func (a Audits) each(f func(run train.Run, iterations int) error) error {
	type policy struct {
		run        train.Run
		iterations int
	}
	var all []policy
	for start := range a.Starts {
		for _, iterations := range a.Iterations {
			for _, fluent := range a.Fluent {
				for _, errors := range a.Errors {
					run := atRate(cell(fluent, errors), a.Rate)
					run.Scheme, run.Seed = Uniform, 200+start
					all = append(all, policy{run, iterations})
				}
			}
		}
	}
	next, ended := make(chan policy, len(all)), make(chan error, len(all))
	for _, p := range all {
		next <- p
	}
	close(next)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for p := range next {
				ended <- f(p.run, p.iterations)
			}
		}()
	}
	for range all {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

func (a Audits) file(folder string, run train.Run, iterations int) string {
	return filepath.Join(folder, fmt.Sprintf("%d-%v-%d-%d.json", run.Fluent, run.Errors, run.Seed, iterations))
}

// Do makes the audits that the folder lacks, a file for each policy.
func (a Audits) Do(folder string, settings train.Settings, said func(name string)) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	starts := train.Starts{Settings: settings}
	return a.each(func(run train.Run, iterations int) error {
		path := a.file(folder, run, iterations)
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		warm, err := starts.For(run)
		if err != nil {
			return err
		}
		prompts, leftOut, err := settings.Audit(run, warm, iterations, a.Groups)
		if err != nil {
			return err
		}
		text, err := json.Marshal(audited{prompts, leftOut})
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+".part", text, 0o666); err != nil {
			return err
		}
		said(filepath.Base(path))
		return os.Rename(path+".part", path)
	})
}

// Report returns what the audits of a cell say together, of policies after some iterations, or of all of them where it
// is -1.
func (a Audits) Report(folder string, cell train.Run, iterations int) (*diagnose.AuditReport, error) {
	together := diagnose.Audit{
		Parts: train.Parts, Directions: train.Directions, Layers: []string{"all"},
		Schemes: []diagnose.AuditWeights{
			{Name: train.ActFocusWithoutBeta, Weights: []float64{1, 0.1, 0.1}},
			{Name: "alpha 0.3, tags 1", Weights: []float64{1, 1, 0.3}},
		},
	}
	for start := range a.Starts {
		for _, i := range a.Iterations {
			if iterations >= 0 && i != iterations {
				continue
			}
			cell.Seed = 200 + start
			name := a.file(folder, cell, i)
			text, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("the study is not finished: it lacks %s", name)
			} else if err != nil {
				return nil, err
			}
			var one audited
			if err := json.Unmarshal(text, &one); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			together.LeftOut += one.LeftOut
			for number, prompt := range one.Prompts {
				prompt.Key = fmt.Sprintf("%d/%d/%d", start, i, number)
				together.Prompts = append(together.Prompts, prompt)
			}
		}
	}
	return together.Report()
}

// CSV returns a line for each figure of the audits of each cell: of all policies (iteration -1), and of those after
// each number of iterations. What has too few prompts has no lines.
func (a Audits) CSV(folder string) ([]byte, error) {
	b := bytes.NewBufferString("fluent,errors,iteration,prompts,left_out,figure,value,low,high\n")
	for _, fluent := range a.Fluent {
		for _, errors := range a.Errors {
			for _, iteration := range append([]int{-1}, a.Iterations...) {
				r, err := a.Report(folder, cell(fluent, errors), iteration)
				if err != nil {
					return nil, err
				}
				line := func(figure string, i diagnose.Interval) {
					fmt.Fprintf(b, "%d,%s,%d,%d,%d,%s,%s,%s,%s\n", fluent, digits(errors), iteration,
						r.Prompts, r.LeftOut,
						figure, digits(i.Value), digits(i.Low), digits(i.High))
				}
				for i, p := range r.Parts {
					line("signal of "+p.Name, p.Signal)
					line("noise of "+p.Name, p.Noise)
					line("weight of "+p.Name, diagnose.Interval{Value: r.Weights[i], Low: r.Weights[i],
						High: r.Weights[i]})
				}
				for _, e := range append(r.Efficiencies, r.Measured) {
					line("efficiency of "+strings.ReplaceAll(e.Name, ",", ""), e.Here)
				}
			}
		}
	}
	return b.Bytes(), nil
}
