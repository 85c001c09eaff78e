// Learn trains small agents from scratch on a few games, with uniform weights on
// the tokens and with those of ActFocus, AEM and both, and says whether the agents
// learn faster or better with them. It needs nothing but two CPU cores and some
// minutes:
//
//	go -C studies/learn run .
//
// This trains agents of 10 seeds on two games in about 5 minutes, and prints a table in
// which each scheme is compared with uniform weights: the difference, its 95% interval,
// and a p value corrected for the number of comparisons. With -full, all games are
// played, with GRPO and PPO, 16 seeds each and more kinds of reasoning, in about an hour.
//
// With -map, it does the runs of docs/plan.md, each scheme in many regimes and at its own best
// rate, and goes on where it was ended.
//
// The folder of -out gets a table with a line for each run, which grows while the
// program trains, a table of the comparisons, and a figure of each measure.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/seed621a2839/reweight/scheme"
	"github.com/seed621a2839/reweight/studies/learn/study"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

func main() {
	full := flag.Bool("full", false, "all games with GRPO and PPO, and other kinds of reasoning: about an hour")
	out := flag.String("out", "learn-out", "the `folder` for runs.csv, comparisons.csv and the figures")
	seeds := flag.Int("seeds", 0, fmt.Sprintf("`number` of seeds, 1 to %d (default %d, with -full %d)", study.MaxSeeds, study.QuickSeeds, study.FullSeeds))
	game := flag.String("game", "", "only the game of this `name`: frozenlake4 or sudoku4, with -full also frozenlake6, sokoban or shop")
	schemes := flag.String("schemes", strings.Join(study.Schemes, ","), "`names` of the schemes to compare with uniform weights, as package scheme has them, joined by commas")
	rate := flag.Float64("learning-rate", train.Default.LearningRate, "`size` of the steps, the same for all schemes")
	regimes := flag.Bool("map", false, "the map of docs/plan.md: hours, which may be cut into pieces. It goes on from the runs.csv that is in the folder")
	smoke := flag.Bool("smoke", false, "a part of the map, which shows that it runs: a minute or two")
	flag.Parse()
	if *regimes || *smoke {
		m := study.TheMap
		if *smoke {
			m = study.SmokeMap
		}
		if err := drawMap(m, *out, train.OfMap); err != nil {
			fmt.Fprintln(os.Stderr, "learn:", err)
			os.Exit(1)
		}
		return
	}
	cells := study.Quick
	if *full {
		cells = study.Full()
	}
	if *seeds == 0 {
		*seeds = study.QuickSeeds
		if *full {
			*seeds = study.FullSeeds
		}
	}
	settings := train.Default
	settings.LearningRate = *rate
	err := check(flag.Args(), *seeds, *rate)
	if *game != "" && err == nil {
		cells = slices.DeleteFunc(slices.Clone(cells), func(c study.Cell) bool { return c.Game != *game })
		if len(cells) == 0 {
			err = fmt.Errorf("-game %q: this study has no game of that name", *game)
		}
	}
	names := strings.Split(*schemes, ",")
	for i, name := range names {
		s, wrong := scheme.Parse(name)
		if wrong != nil && err == nil {
			err = fmt.Errorf("-schemes: %w", wrong)
		}
		names[i] = s.Name
	}
	if err == nil {
		err = run(cells, names, *seeds, settings, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "learn:", err)
		os.Exit(1)
	}
}

func check(args []string, seeds int, rate float64) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case seeds < 1 || seeds > study.MaxSeeds:
		return fmt.Errorf("-seeds %d: want 1 to %d", seeds, study.MaxSeeds)
	case !(rate > 0 && rate <= 0.1): // a NaN is neither
		return fmt.Errorf("-learning-rate %v: want a number above 0, at most 0.1", rate)
	}
	return nil
}

// drawMap does the runs of the map that the folder's runs.csv lacks, prints the effects and what came
// of the plan's predictions, and leaves them as effects.csv and a figure.
func drawMap(m study.Map, folder string, settings train.Settings) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	path := filepath.Join(folder, "runs.csv")
	if err := m.Do(path, settings, func(done, of int) { fmt.Fprintf(os.Stderr, "%d of %d runs\n", done, of) }); err != nil {
		return err
	}
	done, err := study.ReadMap(path)
	if err != nil {
		return err
	}
	effects, err := m.Effects(done)
	if err != nil {
		return err
	}
	study.PrintEffects(os.Stdout, effects)
	if len(m.Errors) == len(study.TheMap.Errors) { // a part of the map has no predictions
		for i, p := range study.Predictions(effects) {
			fmt.Printf("%d. %s: %s\n", i+1, p.Text, p.Verdict())
		}
	}
	return create(folder, map[string]func(io.Writer) error{
		"effects.csv": func(w io.Writer) error { return study.WriteEffects(w, effects) },
		"map.svg":     func(w io.Writer) error { return study.WriteMapFigure(w, effects) },
	})
}

// create writes files into the folder.
func create(folder string, files map[string]func(io.Writer) error) error {
	for name, write := range files {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := write(f); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// run does the study, writes its files into the folder and prints the comparisons.
func run(cells []study.Cell, schemes []string, seeds int, settings train.Settings, folder string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, "runs.csv"))
	if err != nil {
		return err
	}
	defer file.Close()
	lines := study.NewRunWriter(file)
	starts := train.Starts{Settings: settings}
	runs := study.Runs(cells, schemes, seeds)
	var results []train.Result
	err = study.Do(runs, func(run train.Run) (train.Result, error) {
		warm, err := starts.For(run)
		if err != nil {
			return train.Result{}, err
		}
		return settings.Do(run, warm)
	}, func(r train.Result) error {
		results = append(results, r)
		if done := len(results); done*10/len(runs) > (done-1)*10/len(runs) {
			fmt.Fprintf(os.Stderr, "%d of %d runs\n", done, len(runs))
		}
		return lines.Write(r)
	})
	if err != nil {
		return err
	}
	all := study.Compare(cells, schemes, results)
	files := map[string]func(io.Writer) error{"comparisons.csv": func(w io.Writer) error { return study.WriteComparisons(w, all) }}
	for _, measure := range study.Measures {
		files[string(measure)+".svg"] = func(w io.Writer) error { return study.WriteFigure(w, measure, all) }
	}
	if err := create(folder, files); err != nil {
		return err
	}
	table(os.Stdout, all)
	return nil
}

// table prints the comparisons as a table.
func table(w io.Writer, all []study.Comparison) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "game\talgorithm\treasoning\tmeasure\tscheme\tuniform\treweighted\tdifference\t95% interval\tp, corrected\tverdict")
	for i := range all {
		c := &all[i]
		interval := "–" // of one seed
		if c.Low == c.Low {
			interval = fmt.Sprintf("%+.3g to %+.3g", c.Low, c.High)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.3g\t%.3g\t%+.3g\t%s\t%.3f\t%s\n", c.Game, c.Algorithm, c.Reasoning, c.Measure, c.Scheme,
			c.Uniform, c.Reweighted, c.Difference, interval, c.Adjusted, c.Verdict())
	}
	t.Flush()
	fmt.Fprintf(w, `
final is the success after training, area the mean success during training, both as a
share of a perfect player's; updates is the number of iterations until the last %d have a
mean of %.0f%%. Differences are means over pairs of runs with equal seeds, with Student's
95%% intervals; p is that of an exact permutation test, corrected for all comparisons by
Holm's method. A comparison without a verdict shows no difference: the interval says how
large it may be.
`, study.Recent, 100*study.Level)
}
