// Learn trains small agents from scratch on a few games, with uniform weights on
// the tokens and with those of ActFocus, AEM and both, and says whether the agents
// learn faster or better with them. It needs nothing but two CPU cores and some
// minutes:
//
//	go -C examples/learn run . -quick
//
// This trains agents of 10 seeds on two games in about 5 minutes. It prints the
// curves and a table in which each scheme is compared with uniform weights: the
// difference, its 95% interval, and a p value corrected for the number of
// comparisons. With -full, all games are played, with GRPO and PPO, 16 seeds each
// and more kinds of reasoning, in about an hour. With -game, one game of the study is
// played: frozenlake4 or sudoku4, and with -full also frozenlake6, sokoban or shop.
// With -schemes, other schemes of package reweight are compared with uniform weights:
// -schemes gtpo,gspo, or all.
//
// The folder learn-out (another one with -out) gets the same as a page, learn.html,
// and two tables: learn.csv has a row for each comparison, runs.csv one for each run.
// Success is a share of a perfect player's in learn.csv, and a share of the episodes in
// runs.csv, which has the perfect player's in a column. In runs/ there is a file for
// each finished run, in a folder that is named after the settings. Runs that are there
// are not trained again: interrupt the program with Ctrl-C when you like, and start it
// again to go on. An interrupt loses only the runs and the warm starts that are under
// way. The runs of -quick are part of -full. With -learning-rate, all is trained with
// another size of the steps, because a difference may hold at one size only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/examples/learn/env"
	"github.com/seed621a2839/reweight/examples/learn/report"
	"github.com/seed621a2839/reweight/examples/learn/study"
	"github.com/seed621a2839/reweight/examples/learn/train"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // another interrupt ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, trainer))
}

// trainer returns what does a run: it trains with the settings, from a warm start
// that is kept in the folder.
func trainer(folder string, settings train.Settings) study.Trainer {
	starts := train.Starts{Settings: settings, Folder: filepath.Join(folder, "starts")}
	return func(ctx context.Context, run train.Run) (train.Result, error) {
		warm, err := starts.For(ctx, run)
		if err != nil {
			return train.Result{}, err
		}
		return settings.Do(ctx, run, warm)
	}
}

// options are what the flags say.
type options struct {
	cells    []study.Cell
	schemes  []string
	seeds    int
	settings train.Settings
	out      string
}

// parse reads the flags.
func parse(args []string, games []string, stdout io.Writer) (options, error) {
	flags := flag.NewFlagSet("learn", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	quick := flags.Bool("quick", false, "two games with GRPO: about 5 minutes (the default)")
	full := flags.Bool("full", false, "all games with GRPO and PPO, and other kinds of reasoning: about an hour")
	out := flags.String("out", "learn-out", "the `folder` for the finished runs, learn.html, learn.csv and runs.csv")
	seeds := flags.Int("seeds", 0, fmt.Sprintf("`number` of seeds, 1 to %d (default %d, with -full %d)",
		study.MaxSeeds, study.QuickSeeds, study.FullSeeds))
	game := flags.String("game", "", "only the game of this `name`: frozenlake4 or sudoku4, with -full also frozenlake6, sokoban or shop")
	list := flags.String("schemes", strings.Join(study.DefaultSchemes, ","),
		"`names` of the schemes, joined by commas, or all; uniform is always one of them:\n"+strings.Join(schemeNames(), ", "))
	rate := flags.Float64("learning-rate", train.Default.LearningRate, "`size` of the steps, the same for all schemes: at most 0.1")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stdout, "usage: learn [-quick | -full] [-seeds number] [-schemes names] [-game name] [-learning-rate size] [-out folder]")
			flags.SetOutput(stdout)
			flags.PrintDefaults()
		}
		return options{}, err
	}
	schemes, err := parseSchemes(*list)
	if err != nil {
		return options{}, err
	}
	o := options{cells: study.Quick(), schemes: schemes, seeds: study.QuickSeeds, settings: train.Default, out: *out}
	o.settings.LearningRate = *rate
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *quick && *full:
		return o, errors.New("-quick and -full exclude each other")
	case given["seeds"] && (*seeds < 1 || *seeds > study.MaxSeeds):
		return o, fmt.Errorf("-seeds %d: want 1 to %d", *seeds, study.MaxSeeds)
	case !(*rate > 0 && *rate <= 0.1): // a NaN is neither
		return o, fmt.Errorf("-learning-rate %v: want a number above 0, at most 0.1", *rate)
	case o.out == "":
		return o, errors.New("-out: want the name of a folder")
	}
	if *full {
		o.cells, o.seeds = study.Full(games), study.FullSeeds
	}
	if given["seeds"] {
		o.seeds = *seeds
	}
	if given["game"] {
		var names []string
		for _, cell := range o.cells {
			if !slices.Contains(names, cell.Game) {
				names = append(names, cell.Game)
			}
		}
		if !slices.Contains(names, *game) {
			return o, fmt.Errorf("-game %q: this study has %s", *game, strings.Join(names, ", "))
		}
		o.cells = slices.DeleteFunc(o.cells, func(c study.Cell) bool { return c.Game != *game })
	}
	return o, nil
}

// schemeNames returns the names of train.Schemes.
func schemeNames() []string {
	var names []string
	for _, scheme := range train.Schemes {
		names = append(names, scheme.Name)
	}
	return names
}

// parseSchemes returns the schemes of a list, in the order of train.Schemes, the
// first of which is always there.
func parseSchemes(list string) ([]string, error) {
	known := schemeNames()
	if list == "all" {
		return known, nil
	}
	wrong := func(problem string) error {
		return fmt.Errorf("-schemes %q: %s; the names are %s, or all", list, problem, strings.Join(known, ", "))
	}
	asked := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(known, name) {
			return nil, wrong(fmt.Sprintf("no scheme is named %q", name))
		}
		if asked[name] {
			return nil, wrong(name + " is there twice")
		}
		asked[name] = true
	}
	asked[known[0]] = true
	if len(asked) == 1 {
		return nil, wrong("there is nothing to compare with " + known[0])
	}
	return slices.DeleteFunc(known, func(name string) bool { return !asked[name] }), nil
}

// errInterrupted is wrapped by the error of a study that an interrupt ended.
var errInterrupted = errors.New("interrupted")

// run does what the arguments say and returns the exit status: 2 if they are
// wrong, 130 after an interrupt, 1 after another error. Every error is one line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, trainer func(folder string, settings train.Settings) study.Trainer) int {
	var games []string
	for _, game := range env.Games {
		games = append(games, game.Name)
	}
	o, err := parse(args, games, stdout)
	status := 2
	if err == nil {
		err = o.study(ctx, stdout, stderr, trainer(o.out, o.settings))
		status = 1
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errInterrupted):
		status = 130
	}
	fmt.Fprintf(stderr, "learn: %s\n", printable.Line(err.Error()))
	return status
}

// files returns the paths of the page, of the comparisons and of the runs.
func (o options) files() (page, table, runs string) {
	return filepath.Join(o.out, "learn.html"), filepath.Join(o.out, "learn.csv"), filepath.Join(o.out, "runs.csv")
}

// checkFolder makes the folder, and returns an error if one of the files could not
// be written there: that must not be found out after an hour of training.
func (o options) checkFolder() error {
	if err := os.MkdirAll(o.out, 0o777); err != nil {
		return fmt.Errorf("%s: %w", printable.Text(o.out), atomicfile.Cause(err))
	}
	page, table, runs := o.files()
	for _, path := range []string{page, table, runs} {
		if err := atomicfile.Check(path); err != nil {
			return err
		}
	}
	return nil
}

// study trains what is missing, then writes and prints what was found: after an
// interrupt, what was found by then.
func (o options) study(ctx context.Context, stdout, stderr io.Writer, do study.Trainer) error {
	if err := o.checkFolder(); err != nil {
		return err
	}
	store := study.Store{Dir: filepath.Join(o.out, "runs"), Settings: o.settings.Fingerprint()}
	runs := study.Runs(o.cells, o.schemes, o.seeds)
	results, err := store.Do(ctx, runs, do, study.NewProgress(stderr))
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %d of %d runs are done, and the same command goes on from there", errInterrupted, len(results), len(runs))
	} else if err != nil {
		return err
	}
	if len(results) == 0 {
		return err
	}
	if showErr := o.show(stdout, results); showErr != nil {
		return showErr
	}
	return err
}

// show writes and prints what the results say.
func (o options) show(stdout io.Writer, results []train.Result) error {
	summary, err := study.Summarize(o.cells, o.schemes, o.seeds, results)
	if err != nil {
		return err
	}
	page, table, runs := o.files()
	if err := report.Page(page, summary, o.settings); err != nil {
		return err
	}
	if err := report.CSV(table, summary); err != nil {
		return err
	}
	if err := report.Runs(runs, results); err != nil {
		return err
	}
	if err := report.Terminal(stdout, summary); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nThe page is %s, the comparisons are %s, the runs are %s.\n",
		printable.Text(page), printable.Text(table), printable.Text(runs))
	return err
}
