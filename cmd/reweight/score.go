package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/seed621a2839/reweight/cmd/reweight/internal/scorefiles"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/scheme"
	"github.com/seed621a2839/reweight/score"
)

const scoreUsage = `Usage:
  reweight score [flags] DIR FILE...                           files as one batch
  reweight score partial [flags] FILE... [-o OUT]              the statistics of files
  reweight score merge PARTIAL... [-o OUT]                     of statistics, those of all files
  reweight score apply [flags] -merged MERGED FILE... -o OUT   the scores of files

Scores files of rollouts by ActFocus and AEM as one batch that memory need not hold, on all
cores. The scores of each FILE are written to the directory DIR, to a file of its name with
.safetensors after it: weights and advantages, one of each a token, and where its
trajectories begin (seq_offsets). DIR is made if it is not there. No loss is computed.

partial, merge and apply do the same in pieces that machines can share: the statistics of
each file are made where it is, merged in any order and grouping, and with those of all
files each file is scored on its own. The bits of the scores depend on none of that.
Statistics are lines of JSON, printed or written to OUT. A directory that is called partial,
merge or apply is written ./partial and so on.

`

const partialUsage = `Usage: reweight score partial [flags] FILE... [-o OUT]

Prints the statistics of files of rollouts, or writes them to OUT: what scoring them
as part of a larger batch needs to know. -signal and the flags about the files
(-action-open, -action-close, -action-tags, -tags-as, -group-size, -vocab, -surprisal-entropy) have
to be the same for all files of a batch, and for reweight score apply. The other flags of
ActFocus, AEM and GRPO count for reweight score apply only, which has to have the same ones
for all files.

`

const mergeUsage = `Usage: reweight score merge PARTIAL... [-o OUT]

Prints the statistics of all files of the PARTIALs, which reweight score partial or
reweight score merge has made, or writes them to OUT. A directory stands for the files in
it. A file that is in two of them is an error.

`

const applyUsage = `Usage: reweight score apply [flags] -merged MERGED FILE... -o OUT

Writes the scores of a file of rollouts, as part of the batch that MERGED has the
statistics of, to the safetensors file OUT: the weights of ActFocus and the advantages
of GRPO with AEM, F32 [T], and where each trajectory begins, seq_offsets, I64 [S+1].
If OUT is a directory or ends in a slash, the scores of each FILE are written there, to a
file of its name with .safetensors after it; several commands can write to one directory.

`

// scoreCommand returns the name of the command too.
func scoreCommand(args []string, out, stderr io.Writer, p *cli.Progress) (string, error) {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	debug.SetGCPercent(10) // the statistics of many files are most of the memory
	switch command {
	case "partial":
		return "reweight score partial", partialCommand(args[1:], out, p)
	case "merge":
		return "reweight score merge", mergeCommand(args[1:], out, stderr)
	case "apply":
		return "reweight score apply", applyCommand(args[1:], out, p)
	}
	return "reweight score", directoryCommand(args, out, p)
}

// scoringFlags declares the flags of the schemes and of files of rollouts.
func scoringFlags(flags cli.Flags) func() (scorefiles.Options, error) {
	values := schemeFlags(flags, "actfocus", "aem", "group_norm")
	open := rolloutFlags(flags)
	width := flags.Float64("entropy-width", 0.1, "refuse entropies whose bounds are further apart, in `nats` on average; Inf also takes entropies without bounds")
	return func() (opt scorefiles.Options, err error) {
		of := scheme.MustParse("uniform").Options
		if err := values(&of); err != nil {
			return opt, err
		}
		s := score.Options{ActFocus: of.ActFocus, AEM: of.AEM, GRPO: of.GRPO}
		if err := s.Check(); err != nil {
			return opt, named(err)
		}
		opt.Score = s
		if opt.Open, err = open(); err != nil {
			return opt, err
		}
		if opt.Width = *width; !(opt.Width >= 0) {
			err = fmt.Errorf("-entropy-width is %v, want a number of at least 0", opt.Width)
		}
		return opt, err
	}
}

// directoryCommand scores files as one batch into a directory, and prints a summary.
func directoryCommand(args []string, out io.Writer, p *cli.Progress) error {
	flags := cli.NewFlags("reweight score")
	options := scoringFlags(flags)
	format := flags.Format()
	operands, err := flags.Parse(scoreUsage, args, out)
	if err != nil {
		return err
	}
	switch {
	case len(operands) == 0:
		return errors.New("want DIR and FILE..., or partial, merge or apply (reweight score -h explains them)")
	case len(operands) == 1:
		return fmt.Errorf("%q is alone, want DIR and FILE..., or partial, merge or apply before it", operands[0])
	}
	asJSON, err := format()
	if err != nil {
		return err
	}
	opt, err := options()
	if err != nil {
		return err
	}
	dir, names := operands[0], operands[1:]
	if info, err := os.Stat(dir); dir == "" || dir == "-" || err == nil && !info.IsDir() {
		return fmt.Errorf("DIR is %q, which is no directory: the directory for the scores comes before the files", dir)
	}
	if err := checkApart(dir, names); err != nil {
		return err
	}
	s, err := scorefiles.Directory(opt, dir, p, names...)
	if err != nil {
		return err
	}
	p.Clear()
	if asJSON {
		return cli.WriteJSON(out, s)
	}
	return s.Write(out)
}

func partialCommand(args []string, out io.Writer, progress *cli.Progress) error {
	flags := cli.NewFlags("reweight score partial")
	options := scoringFlags(flags)
	rows := flags.Bool("rows", false, "the trajectories are rows of a table and no file: equal pieces of it all count")
	output := flags.String("o", "", "write the statistics to this `file` and print nothing")
	names, err := flags.Parse(partialUsage, args, out)
	if err != nil {
		return err
	}
	opt, err := options()
	if err != nil {
		return err
	}
	opt.Score.Rows = *rows
	if err := checkScore(flags, names, *output); err != nil {
		return err
	}
	p, err := scorefiles.Partial(opt, progress, names...)
	if err != nil {
		return err
	}
	progress.Clear()
	return scorefiles.WritePartial(p, *output, out)
}

func mergeCommand(args []string, out, stderr io.Writer) error {
	flags := cli.NewFlags("reweight score merge")
	output := flags.String("o", "", "write the statistics to this `file` and print nothing")
	names, err := flags.Parse(mergeUsage, args, out)
	if err != nil {
		return err
	}
	if err := checkScore(flags, names, *output); err != nil {
		return err
	}
	merged, err := scorefiles.Merge(func(name string) {
		cli.Warning(stderr, fmt.Sprintf("Warning: %s is left out: it is incomplete, and its run was killed or still writes it.", printable.Text(name)))
	}, names...)
	if err != nil {
		return err
	}
	return scorefiles.WritePartial(merged, *output, out)
}

func applyCommand(args []string, out io.Writer, p *cli.Progress) error {
	flags := cli.NewFlags("reweight score apply")
	options := scoringFlags(flags)
	from := flags.String("merged", "", "the statistics of all files of the batch, a `file`")
	output := flags.String("o", "", "write the scores to this safetensors `file`")
	names, err := flags.Parse(applyUsage, args, out)
	if err != nil {
		return err
	}
	opt, err := options()
	if err != nil {
		return err
	}
	switch {
	case *from == "":
		return errors.New("no -merged given, which reweight score merge makes")
	case *output == "":
		return errors.New("no -o given")
	case len(names) == 0:
		return errors.New("no FILE given")
	}
	into := isDirectory(*output)
	if into {
		err = checkApart(*output, names)
	} else {
		err = checkScore(flags, append(names, *from), *output)
	}
	if err != nil {
		return err
	}
	if info, err := os.Stat(names[0]); !into && (len(names) > 1 || err == nil && info.IsDir()) {
		return fmt.Errorf("-o is %s, want a directory for the scores of several files, ending in a slash if it is new", printable.Text(*output))
	}
	merged, err := scorefiles.ReadPartial(*from)
	if err != nil {
		return err
	}
	if !into {
		return scorefiles.Apply(opt, names[0], *output, merged)
	}
	return scorefiles.ApplyAll(opt, *output, merged, p, names...)
}

// checkScore returns an error if there are no inputs or the output cannot be written.
func checkScore(flags cli.Flags, inputs []string, output string) error {
	if len(inputs) == 0 {
		return errors.New("no files given")
	}
	if err := flags.NotEmpty("o"); err != nil || output == "" {
		return err
	}
	if err := checkOutput(output, inputs...); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return nil
}

// isDirectory reports whether an output is a directory: it is one already, or ends like one.
func isDirectory(output string) bool {
	info, err := os.Stat(output)
	return err == nil && info.IsDir() || output != "" && os.IsPathSeparator(output[len(output)-1])
}

// checkApart returns an error if standard input is scored into a directory, or the directory
// is or has an input: with the scores in it, it would be no directory of rollouts any more.
func checkApart(dir string, names []string) error {
	into, dirErr := os.Stat(dir)
	for _, name := range names {
		if name == "-" {
			return errors.New("standard input cannot be scored into a directory, which reads its inputs twice: give the name of a file")
		}
		at := name
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			at = filepath.Dir(name)
		}
		if in, err := os.Stat(at); err == nil && dirErr == nil && os.SameFile(into, in) {
			return fmt.Errorf("%s is the input %s or its directory: scores need a directory of their own",
				printable.Text(dir), printable.Text(name))
		}
	}
	return nil
}
