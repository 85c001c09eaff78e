package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/reweight/internal/show"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
)

const showUsage = `Usage: reweight show [flags] FILE...

Prints rollouts for a person. First what to know before training with them: how many of
the agent's tokens are actions, how many answers have none, in how many groups there is
nothing to learn or AEM changes nothing; and D, the share of the reward's variance that
the reasoning decides, where there are several answers to the same reasoning. Then in
each turn what the environment said, what the agent answered, the weight of every token
by ActFocus and AEM, and the figures behind it.

Under each action token stands a digit, the step of its weight on a scale that the last
lines explain. On a terminal, tokens have the colour of their step, unless NO_COLOR is
in the environment. Lines are as long as the terminal, or as COLUMNS says.

The advantage is that of GRPO, before the factor of AEM. The surprisal of a token is
its -log-probability by the policy that sampled it. What a file lacks is left out, and a
note says what that is. A file with actfocus_weights or aem_factors is shown with them
and with its own advantages, which its trainer used. The texts of the tokens are those
in the file, in a safetensors file the list vocab of its metadata, or those of
-vocab-file.

An audit, by python -m reweight audit or of a trainer's run, is printed too: FILE is its
audit.json, or the folder of that.

`

func showCommand(args []string, out io.Writer) error {
	var opt show.Options
	flags := cli.NewFlags("reweight show")
	chosen := flags.String("trajectory", "0", "`numbers` of the trajectories to show, from 0, and ranges: 0,4-7")
	signal := flags.String("signal", reweight.SignalEnergy.String(),
		"ActFocus: `name` of the signal: energy, ref_entropy, surprisal or log_ratio")
	rollouts := rolloutFlags(flags)
	output := flags.String("html", "", "write a page into this `file`, and print nothing")
	flags.Func("note", "a `sentence` of yours to print above, and again for more", func(note string) error {
		opt.Notes = append(opt.Notes, note)
		return nil
	})
	names, err := flags.Parse(showUsage, args, out)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("no FILE given")
	}
	if opt.Open, err = rollouts(); err != nil {
		return err
	}
	if opt.Chosen, err = show.ParseChoice(*chosen); err != nil {
		return fmt.Errorf("-trajectory %w", err)
	}
	if err := opt.Signal.UnmarshalText([]byte(*signal)); err != nil {
		return named(err)
	}
	if err := flags.NotEmpty("html"); err != nil {
		return err
	}
	if *output != "" { // before the work
		if err := checkOutput(*output, names...); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
	}
	for _, name := range names {
		audit := show.FindAudit(name)
		if audit == "" {
			continue
		}
		if len(names) > 1 || *output != "" {
			return fmt.Errorf("%s: an audit, want it alone and without -html: its page lies beside it",
				printable.Text(audit))
		}
		report, err := show.ReadAudit(audit)
		if err != nil {
			return err
		}
		return show.WriteAudit(out, report)
	}
	src, err := opt.Open.Open(names...)
	if err != nil {
		return err
	}
	defer src.Close()
	page, err := show.Read(src, opt)
	if errors.Is(err, show.ErrNoTokens) {
		err = fmt.Errorf("%s: %w", inputs(names), err)
	}
	if err != nil {
		return err
	}
	page.Title = "Rollouts of " + printable.Text(strings.Join(names, ", "))
	if *output != "" {
		if err := atomicfile.Write(*output, page.WriteHTML); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
		return nil
	}
	return page.Write(out, cli.Columns(out), cli.Coloured(out))
}
