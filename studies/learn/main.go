// Learn trains small agents from scratch with the schemes of the papers and with uniform weights, in
// many regimes, and says where a scheme helps: the study of plan.md, the study of plan-arms.md,
// which changes one thing after another of it, and those of plan-tags.md and plan-rates.md.
//
//	go -C studies/learn run . -smoke             # a part of both with little training: seconds
//	go -C studies/learn run . -map -out map      # the map: hours of two cores
//	go -C studies/learn run . -arms -out map     # its arms, after it: an hour
//	go -C studies/learn run . -tags -out map     # tags, alpha and beta, after both: ten minutes
//	go -C studies/learn run . -posthoc -out map  # two questions that came up after the map: minutes
//	go -C studies/learn run . -audit -out map    # audits of the map's policies: two hours
//	go -C studies/learn run . -measured -out map # training with the weights that they name: ten minutes
//	go -C studies/learn run . -rates -out map    # more rates, after the map: an hour or two
//
// It goes on from the runs that are in the folder of -out, and can be ended at any time. When all
// are done it prints what came of the plan's predictions, and leaves tables and a figure beside the
// runs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed621a2839/reweight/studies/learn/study"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// A job is one of the studies, which a flag chooses.
type job struct {
	name, doc string
	do        func(folder string) error
}

var jobs = []job{
	{"map", "do the map of plan.md", func(folder string) error { return doMap(study.TheMap, folder, train.Default) }},
	{"arms", "do the arms of plan-arms.md, for which the map must be done", func(folder string) error {
		return doArms(study.TheArms, folder, train.Default)
	}},
	{"tags", "do the runs of plan-tags.md, after map and arms", func(folder string) error {
		return doTags(study.TheTags, folder, train.Default)
	}},
	{"rates", "do the runs of plan-rates.md, after the map", func(folder string) error {
		return doRates(study.TheRates, folder, train.Default)
	}},
	{"posthoc", "do what was asked after the map was seen", func(folder string) error {
		return doPostHoc(study.TheMap, folder, train.Default)
	}},
	{"audit", "do the audits of plan-audit.md, after the map", func(folder string) error {
		return doAudits(study.TheAudits, folder, train.Default)
	}},
	{"measured", "do the runs of plan-audit.md, after the audits and the rates", func(folder string) error {
		return doMeasured(study.TheAudits, study.TheRates.Seeds, folder, train.Default)
	}},
	{"smoke", "do a part of map and arms with little training, which shows that they run", func(folder string) error {
		little := train.Default
		little.Demonstrations, little.Iterations = little.Demonstrations/8, little.Iterations/4
		if err := doMap(study.SmokeMap, folder, little); err != nil {
			return err
		}
		return doArms(study.SmokeArms, folder, little)
	}},
}

func main() {
	wanted := make([]*bool, len(jobs))
	for i, j := range jobs {
		wanted[i] = flag.Bool(j.name, false, j.doc)
	}
	out := flag.String("out", "learn-out", "the `folder` for the runs of each study, the effects and the figure")
	flag.Parse()
	var chosen []job
	var names []string
	for i, j := range jobs {
		names = append(names, "-"+j.name)
		if *wanted[i] {
			chosen = append(chosen, j)
		}
	}
	err := fmt.Errorf("want one of %s, and nothing else", strings.Join(names, ", "))
	if len(chosen) == 1 && flag.NArg() == 0 {
		err = chosen[0].do(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "learn:", err)
		os.Exit(1)
	}
}

func said(done, of int) { fmt.Fprintf(os.Stderr, "%d of %d runs\n", done, of) }

// doMap does what the folder lacks of a map, and says what came of it.
func doMap(m study.Map, folder string, settings train.Settings) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	rows, err := m.Do(filepath.Join(folder, "runs.csv"), settings, said)
	if err != nil {
		return err
	}
	effects, err := m.Effects(rows)
	if err != nil {
		return err
	}
	if len(m.Errors) > 1 { // a part of the map has no predictions
		predictions, err := study.Predictions(effects)
		if err != nil {
			return err
		}
		verdicts(predictions)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "effects.csv"), study.EffectsCSV(effects), 0o666),
		os.WriteFile(filepath.Join(folder, "map.svg"), m.Figure(effects), 0o666))
}

// doArms does what the folder lacks of the arms of its map, and says what came of them.
func doArms(a study.Arms, folder string, settings train.Settings) error {
	rows, err := study.Read(filepath.Join(folder, "runs.csv"))
	if err != nil {
		return err
	}
	of, err := a.Map.Effects(rows)
	if err != nil {
		return err
	}
	if rows, err = study.Continue(filepath.Join(folder, "arms.csv"), rows, a.Runs(rows), settings, said); err != nil {
		return err
	}
	effects, err := a.Effects(rows)
	if err != nil {
		return err
	}
	if len(a.Cells) > 1 { // nor has a part of the arms
		verdicts(a.Predictions(of, effects))
	}
	return os.WriteFile(filepath.Join(folder, "arms-effects.csv"), study.EffectsCSV(effects), 0o666)
}

// doTags does what the folder lacks of the study of the tags, after its map and its arms.
func doTags(s study.Tags, folder string, settings train.Settings) error {
	rows, err := read(folder, "runs.csv", "arms.csv")
	if err != nil {
		return err
	}
	if rows, err = study.Continue(filepath.Join(folder, "tags.csv"), rows, s.Runs(), settings, said); err != nil {
		return err
	}
	effects, err := s.Effects(rows)
	if err != nil {
		return err
	}
	if len(s.Cells) > 1 { // a part of it has no predictions
		verdicts(s.Predictions(effects))
	}
	return os.WriteFile(filepath.Join(folder, "tags-effects.csv"), study.EffectsCSV(effects), 0o666)
}

// doRates does what the folder lacks of the study of the rates, after its map, and says what came of it.
func doRates(r study.Rates, folder string, settings train.Settings) error {
	rows, err := read(folder, "runs.csv")
	if err != nil {
		return err
	}
	if rows, err = study.Continue(filepath.Join(folder, "rates.csv"), rows, r.Runs(), settings, said); err != nil {
		return err
	}
	points, err := r.Points(rows)
	if err != nil {
		return err
	}
	effects, err := r.Effects(rows, points)
	if err != nil {
		return err
	}
	if len(r.Errors) > 1 { // a part of it has no predictions
		verdicts(r.Predictions(points))
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "rates-points.csv"), r.CSV(points), 0o666),
		os.WriteFile(filepath.Join(folder, "rates-effects.csv"), study.EffectsCSV(effects), 0o666),
		os.WriteFile(filepath.Join(folder, "rates.svg"), r.Figure(points), 0o666))
}

// doPostHoc does what was asked after the map was seen.
func doPostHoc(m study.Map, folder string, settings train.Settings) error {
	rows, err := read(folder, "runs.csv")
	if err != nil {
		return err
	}
	file := filepath.Join(folder, "posthoc.csv")
	if _, err := study.Continue(file, rows, study.PostHoc(), settings, said); err != nil {
		return err
	}
	idle, err := m.AEMIdle(settings, rows)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "aem-idle.csv"), idle, 0o666)
}

// doAudits makes the audits that the folder lacks, and says in audit.csv what those of each cell say.
func doAudits(a study.Audits, folder string, settings train.Settings) error {
	audits := filepath.Join(folder, "audits")
	if err := a.Do(audits, settings, func(name string) { fmt.Fprintln(os.Stderr, name) }); err != nil {
		return err
	}
	text, err := a.CSV(audits)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "audit.csv"), text, 0o666)
}

// doMeasured does the runs with the weights of the audits, and those that they are compared with, and says what came
// of them.
func doMeasured(a study.Audits, seeds []int, folder string, settings train.Settings) error {
	rows, err := read(folder, "runs.csv", "rates.csv")
	if err != nil {
		return err
	}
	audited, err := study.ReadAudited(filepath.Join(folder, "audit.csv"))
	if err != nil {
		return err
	}
	runs, err := a.MeasuredRuns(audited, seeds)
	if err != nil {
		return err
	}
	if rows, err = study.Continue(filepath.Join(folder, "measured.csv"), rows, runs, settings, said); err != nil {
		return err
	}
	all, err := a.Compare(audited, seeds, rows)
	if err != nil {
		return err
	}
	p := study.MeasuredPrediction(all)
	fmt.Printf("5. %s: %s\n", p.Text, p.Verdict())
	return nil
}

// read returns the runs of these files.
func read(folder string, files ...string) (study.Table, error) {
	all := study.Table{}
	for _, file := range files {
		rows, err := study.Read(filepath.Join(folder, file))
		if err != nil {
			return nil, err
		}
		maps.Copy(all, rows)
	}
	return all, nil
}

func verdicts(predictions []study.Prediction) {
	for i, p := range predictions {
		fmt.Printf("%d. %s: %s\n", i+1, p.Text, p.Verdict())
	}
}
