package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

const compareUsage = `Usage:
  reweight [flags] FILE...                  compare schemes on rollouts
  reweight show [flags] FILE...             rollouts for a person: turns, tokens and their weights
  reweight convert [flags] IN... OUT        rollouts of trainers and servers as one file of ours
  reweight score [flags] DIR FILE...        weights and advantages of many files as one batch
  reweight score partial|merge|apply ...    the same in pieces that machines can share

reweight COMMAND -h explains a command and its flags.
Exit status: 0 fine, 2 bad use or bad input, 130 interrupted.

reweight [flags] FILE... reads rollouts as one batch, from files of any format that
docs/formats.md lists, and prints a row for each scheme: the loss, the norm of its gradient
over all, action and reasoning tokens, and what the scheme does to the credit of tokens. The
credit of a token is minus the derivative of the loss by its log-probability. A directory
stands for the files in it, and - for standard input.

A scheme needs only the arrays that it reads, or the logits that they follow from:
ref_logits, old_logits and logits, with token_ids. Without -scheme and -signal, schemes are
left out that the files lack something for, and ActFocus goes by the surprisal of tokens
where there is no ref_energy. Without rewards, the advantages come from the files and not
from GRPO.

Each scheme has the constants of its paper. If you give -clip-low, -clip-high, -dual-clip,
-aggregation, -norm-length or a flag of GRPO, ActFocus or AEM, it holds for every scheme. For
other constants, call the Go package. -kl-coef adds that many times the KL from the
reference to every loss; the file needs ref_logprobs, or ref_logits and token_ids. No KL is
added to rewards, unless the scheme has kl_rewards. -html writes a page with the rollout
-trajectory in the colours of each scheme. JSON has that rollout too. -o FILE writes the
arrays of the last scheme.

`

func compareCommand(args []string, out io.Writer, p *cli.Progress, comparer compare.Comparer) error {
	c := comparison{compare: comparer}
	flags := cli.NewFlags("reweight")
	scoringOptions := scoringFlags(flags)
	given := schemeFlags(flags, "uniform", "off_policy_mask", "dro")
	list := flags.String("scheme", compare.OfPapers, "compare these `names` of schemes, with commas between them, or all (see above)")
	flags.IntVar(&c.opt.Trajectory, "trajectory", 0, "`number` of the trajectory to show, from 0")
	flags.StringVar(&c.html, "html", "", "write a page with the table and the trajectory under each scheme into this `file`")
	format := flags.Format()
	output := flags.String("o", "", "write weights, advantages and grad_logprobs of the last scheme, one number a token, to this `file`: .safetensors or .npz")
	operands, err := flags.Parse(compareUsage+compare.SchemesUsage(), args, out)
	if err != nil {
		return err
	}
	if len(operands) == 0 {
		return errors.New("no FILE given")
	}
	asJSON, err := format()
	if err != nil {
		return err
	}
	scored, err := scoringOptions()
	if err != nil {
		return err
	}
	c.uniform = scheme.MustParse("uniform")
	set := func(s *scheme.Scheme) error {
		s.Options.ActFocus, s.Options.AEM, s.Options.GRPO = scored.Score.ActFocus, scored.Score.AEM, scored.Score.GRPO
		return given(&s.Options)
	}
	if err := set(&c.uniform); err != nil {
		return err
	}
	if c.picked, err = compare.ParseSchemes(*list); err != nil {
		return fmt.Errorf("-scheme %w", err)
	}
	c.byDefault = !flags.Given("scheme") && !flags.Given("signal")
	c.opt.LeaveOut, c.opt.LeaveLacking = *list == "all", c.byDefault
	for i := range c.picked {
		if err := set(&c.picked[i]); err != nil {
			return err
		}
	}
	if err := checkOptions(c.uniform); err != nil {
		return named(err)
	}
	if delta := c.uniform.Options.OffPolicyMask.Delta; flags.Given("delta") && delta-delta != 0 {
		return fmt.Errorf("-delta is %v, want a finite number", delta)
	}
	dro := scheme.MustParse("dro")
	if err := set(&dro); err != nil {
		return err
	}
	if p := dro.Options.Loss.Policy.(reweight.DRO); flags.Given("dro-beta") &&
		!(p.Beta > 0 && p.Beta <= math.MaxFloat32) {
		return fmt.Errorf("-dro-beta is %v, want a finite number above 0", p.Beta)
	}
	if err := flags.NotEmpty("o", "html"); err != nil {
		return err
	}
	if err := checkNotStdout(*output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if flags.Given("kl") && !flags.Given("kl-coef") {
		return errors.New("-kl means nothing without -kl-coef")
	}
	if c.opt.Trajectory < 0 {
		return fmt.Errorf("-trajectory is %d, want a number from 0", c.opt.Trajectory)
	}
	if c.html != "" { // before the work
		if err := checkOutput(c.html, operands...); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
	}
	if isDirectory(*output) {
		return fmt.Errorf("-o is %s, a directory, want a file: reweight score DIR FILE... writes weights and advantages of each file to a directory", printable.Text(*output))
	}
	if *output != "" {
		if err = checkRollouts(*output, operands...); err == nil {
			c.write, err = byExtension(*output, writers)
		}
		if err != nil {
			return fmt.Errorf("-o: %w", err)
		}
		c.output = *output
	}
	c.unread = unreadFlags(flags, c.picked)
	return c.do(scored, operands, asJSON, out)
}

// checkOptions returns an error if an option of uniform is out of range: that of the library,
// which does the step with a batch of one token.
func checkOptions(uniform scheme.Scheme) error {
	one := []float32{0}
	step, err := uniform.NewStep(new(reweight.Workspace), &reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, Rewards: one,
		OldLogprobs: one, Logprobs: one, RefLogprobs: one,
	})
	if err == nil {
		_, err = step.Run()
	}
	return err
}

// inputs returns the names of inputs for an error about all of them.
func inputs(names []string) string {
	name := printable.Text(names[0])
	if names[0] == "-" {
		name = "standard input"
	}
	if more := len(names) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", name, more)
	}
	return name
}

// origins returns the arrays of a report that were derived, and those that are
// estimates.
func origins(r rollout.Report) (derived, estimates []found.Origin) {
	for _, o := range r.Arrays {
		switch o.Kind {
		case rollout.Derived:
			derived = append(derived, found.NewOrigin(o))
		case rollout.Estimated:
			estimates = append(estimates, found.NewOrigin(o))
		}
	}
	return derived, estimates
}

// writers write the results of files with that report to a file, by the extension of its
// name.
var writers = map[string]func(path string, tensors []rollout.Tensor, r rollout.Report) error{
	".safetensors": func(path string, tensors []rollout.Tensor, r rollout.Report) error {
		return rollout.Write(path, tensors, r.Metadata())
	},
	".npz": func(path string, tensors []rollout.Tensor, r rollout.Report) error {
		if err := checkMarks(r); err != nil {
			return fmt.Errorf("%s: %w", printable.Text(path), err)
		}
		return rollout.WriteNPZ(path, tensors)
	},
}

// checkFinite wants finite log-probabilities at response tokens, and finite advantages
// if there are no rewards. The loss accepts other log-probabilities: it clamps the ratio
// of one that is infinite, and is NaN for one that is NaN or for two that are infinite.
// But a token that was sampled has a probability above 0, so in a file they are
// mistakes, -Inf too.
func checkFinite(b *reweight.Batch) error {
	type array struct {
		field  string
		values []float32
	}
	arrays := []array{{"OldLogprobs", b.OldLogprobs}, {"Logprobs", b.Logprobs}}
	if b.Rewards == nil && b.Advantages != nil {
		arrays = append(arrays, array{"Advantages", b.Advantages})
	}
	for t, role := range b.Role {
		if role == reweight.RoleMasked {
			continue
		}
		for _, a := range arrays {
			if v := a.values[t]; v-v != 0 {
				return &reweight.InputError{Arg: a.field, Index: t,
					Problem: fmt.Sprintf("is %v at a response token, want a finite number", v)}
			}
		}
	}
	return nil
}

// checkOutput returns an error if the file cannot be written, or is one of the inputs
// or in a directory that is, and would be lost.
func checkOutput(output string, inputs ...string) error {
	if err := checkNotStdout(output); err != nil {
		return err
	}
	if err := atomicfile.Check(output); err != nil {
		return err
	}
	old, err := os.Stat(output)
	if err != nil {
		return nil // there is nothing yet
	}
	for _, input := range inputs {
		in, err := os.Stat(input)
		if err != nil {
			continue // it cannot be opened either
		}
		if os.SameFile(old, in) {
			return fmt.Errorf("%s is the input file, which would be lost", printable.Text(output))
		}
		if dir, err := os.Stat(filepath.Dir(output)); err == nil && os.SameFile(dir, in) {
			return fmt.Errorf("%s is one of the files in %s, which are the input: it would be lost",
				printable.Text(output), printable.Text(input))
		}
	}
	return nil
}

// checkRollouts is checkOutput for rollouts, which the next command would read too if they
// were in a directory that is an input.
func checkRollouts(output string, inputs ...string) error {
	if err := checkOutput(output, inputs...); err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(output))
	if err != nil {
		return err
	}
	for _, input := range inputs {
		if in, err := os.Stat(input); err == nil && os.SameFile(dir, in) {
			return fmt.Errorf("%s would be one of the files in %s, which are the input: write it elsewhere",
				printable.Text(output), printable.Text(input))
		}
	}
	return nil
}

// checkNotStdout returns an error if the output is "-", which is standard input among the
// inputs.
func checkNotStdout(output string) error {
	if output == "-" {
		return errors.New("- is standard output, which is not supported: give the name of a file")
	}
	return nil
}
