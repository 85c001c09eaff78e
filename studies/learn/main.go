// Learn trains small agents from scratch with the schemes of the papers and with uniform weights, in
// many regimes, and says where a scheme helps: the study of plan.md, and the study of
// plan-arms.md, which changes one thing after another of it.
//
//	go -C studies/learn run . -smoke             # a part of both with little training: seconds
//	go -C studies/learn run . -map -out map      # the map: hours of two cores
//	go -C studies/learn run . -arms -out map     # its arms, after it: an hour
//
// It goes on from the runs that are in the folder of -out, and can be ended at any time. When all
// are done it prints what came of the plan's predictions, and leaves tables and a figure beside the
// runs.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight/studies/learn/study"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

func main() {
	whole := flag.Bool("map", false, "do the map of plan.md")
	arms := flag.Bool("arms", false, "do the arms of plan-arms.md, for which the map must be done")
	smoke := flag.Bool("smoke", false, "do a part of both with little training, which shows that they run")
	out := flag.String("out", "learn-out", "the `folder` for runs.csv and arms.csv, the effects and the figure")
	flag.Parse()
	err := errors.New("want one of -map, -arms and -smoke, and nothing else")
	switch {
	case flag.NArg() > 0:
	case *whole && !*arms && !*smoke:
		err = doMap(study.TheMap, *out, train.Default)
	case *arms && !*whole && !*smoke:
		err = doArms(study.TheArms, *out, train.Default)
	case *smoke && !*whole && !*arms:
		little := train.Default
		little.Demonstrations, little.Iterations = little.Demonstrations/8, little.Iterations/4
		if err = doMap(study.SmokeMap, *out, little); err == nil {
			err = doArms(study.SmokeArms, *out, little)
		}
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
	if rows, err = a.Do(filepath.Join(folder, "arms.csv"), rows, settings, said); err != nil {
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

func verdicts(predictions []study.Prediction) {
	for i, p := range predictions {
		fmt.Printf("%d. %s: %s\n", i+1, p.Text, p.Verdict())
	}
}
