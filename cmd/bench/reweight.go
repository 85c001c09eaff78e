package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/losses"
	"github.com/seed621a2839/reweight/cmd/bench/internal/schemes"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

const reweightUsage = `Usage: bench reweight [flags] FILE...

Reads rollouts from files of any format that bench knows, as one batch, and prints
the loss under uniform weights, ActFocus, AEM and both, with GRPO advantages from
rewards and groups, or without rewards, with the advantages of the files. A directory
stands for the files in it, and - for standard input. docs/formats.md lists the
formats. The batch has role, span_ids, group_ids, rewards or advantages, and either
ref_energy, entropy, old_logprobs and logprobs or the logits they follow from:
ref_logits, old_logits and logits, with token_ids.

With -o DIRECTORY, files are scored as one batch that memory need not hold, on all
cores, and no loss is computed. The weights and advantages of each file, and where its
trajectories begin (seq_offsets), are written to a safetensors file of its name in the
directory, and its statistics beside it. What is there from an earlier run, which may
have been killed, is not done again, unless the files, the flags or the batch are others.
-o is a directory if it is one already, ends in a slash, or has no extension.

With -scheme, it prints a table of schemes instead: for each its loss, the norm of the
gradient with respect to the log-probabilities over all, action and reasoning tokens,
and what it does to the credit of tokens, which is minus that gradient: the share of
action tokens, how many tokens carry it, its rank correlation with uniform's. A scheme
needs the arrays that it reads only. Each has the constants of its paper; -clip-low,
-clip-high, -dual-clip, -aggregation and -norm-length hold for all where they are given, and
so do the flags of GRPO, ActFocus and AEM. For other constants, call the Go package.
-kl-coef holds for all too: it adds that many times the KL from the reference to every loss; the
file needs ref_logprobs, or ref_logits and token_ids. No KL is added to rewards: those
of tokens, for reinforce++, are as the file has them.
-html writes a page with the rollout -trajectory in the colours of each scheme. JSON and
Markdown have that rollout too.

`

func reweightCommand(args []string, out io.Writer, p *cli.Progress, compute losses.Library) error {
	opt := losses.Default()
	flags := cli.NewFlags("bench reweight")
	scoringOptions := scoringFlags(flags)
	flags.Float64Var(&opt.Loss.ClipLow, "clip-low", opt.Loss.ClipLow, "loss: the ratio is clipped below 1 minus this, 0 to 1")
	flags.Float64Var(&opt.Loss.ClipHigh, "clip-high", opt.Loss.ClipHigh, "loss: the ratio is clipped above 1 plus this, at least 0")
	flags.Float64Var(&opt.Loss.DualClip, "dual-clip", opt.Loss.DualClip, "loss: bound of the ratio where the advantage is negative, above 1; 0 for none")
	aggregation := flags.String("aggregation", opt.Loss.Aggregation.String(), "loss: `name` of the aggregation: token_mean, seq_mean_token_sum, seq_mean_token_mean or seq_mean_token_sum_norm")
	flags.IntVar(&opt.Loss.NormLength, "norm-length", opt.Loss.NormLength, "loss: `tokens` that seq_mean_token_sum_norm divides by; 0 for those of the longest trajectory")
	kl := flags.String("kl", opt.Loss.KL.String(), "-scheme: `form` of the KL: k1, k2, k3, abs, k1+, k3+ or abs+, or verl's name of it")
	flags.Float64Var(&opt.Loss.KLCoef, "kl-coef", opt.Loss.KLCoef, "-scheme: the loss has this many times the KL from the reference in it; 0 for none")
	list := flags.String("scheme", "", "compare these `names` of schemes, with commas between them, or all (see above)")
	compared := compareSchemes(flags)
	format := flags.Format(cli.Table, cli.JSON, cli.Markdown)
	output := flags.String("o", "", "write weights, advantages and grad_logprobs of ActFocus with AEM, one of each a token, to this `file`: .safetensors, .npz, or the lines of the input with them, .jsonl, .jsonl.gz or .jsonl.zst; or a directory")
	operands, err := flags.Parse(reweightUsage+schemes.Usage(), args, out)
	if err != nil {
		return err
	}
	if len(operands) == 0 {
		return errors.New("no FILE given")
	}
	as, err := format()
	if err != nil {
		return err
	}
	scored, err := scoringOptions()
	if err != nil {
		return err
	}
	opt.ActFocus, opt.AEM, opt.GRPO = scored.Score.ActFocus, scored.Score.AEM, scored.Score.GRPO
	if err = opt.Loss.Aggregation.UnmarshalText([]byte(*aggregation)); err == nil {
		err = opt.Loss.KL.UnmarshalText([]byte(*kl))
	}
	if err == nil {
		err = opt.Check()
	}
	if err != nil {
		return cli.Named(err, flagNames)
	}
	if err := flags.NotEmpty("o"); err != nil {
		return err
	}
	if err := checkNotStdout(*output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if flags.Given("scheme") {
		if flags.Given("o") {
			return errors.New("-o means nothing with -scheme, which compares and writes no arrays")
		}
		if flags.Given("kl") && !flags.Given("kl-coef") {
			return errors.New("-kl means nothing without -kl-coef")
		}
		picked, err := schemes.Parse(*list)
		if err != nil {
			return fmt.Errorf("-scheme %w", err)
		}
		c, err := compared(operands)
		if err != nil {
			return err
		}
		c.picked, c.all, c.unread = picked, *list == "all", unreadFlags(flags, picked)
		c.opt.ActFocus, c.opt.AEM, c.opt.GRPO, c.opt.Loss = opt.ActFocus, opt.AEM, opt.GRPO, givenLoss(flags, opt.Loss)
		return c.do(scored, operands, as, out)
	}
	for _, name := range [...]string{"trajectory", "html", "delta", "kl", "kl-coef"} {
		if flags.Given(name) {
			return fmt.Errorf("-%s means nothing without -scheme", name)
		}
	}
	if as == cli.Markdown {
		return errors.New("-format markdown is for -scheme")
	}
	if isDirectory(*output) {
		for _, name := range [...]string{"clip-low", "clip-high", "dual-clip", "aggregation", "norm-length"} {
			if flags.Given(name) {
				return fmt.Errorf("-%s means nothing where -o is a directory: no loss is computed", name)
			}
		}
		return scoreDirectory(scored, *output, operands, as, out, p)
	}
	var write func(path string, r results) error
	if *output != "" { // before the work
		if err = checkRollouts(*output, operands...); err == nil {
			write, err = byExtension(*output, writers)
		}
		if err != nil {
			return fmt.Errorf("-o: %w", err)
		}
		scored.Open.KeepLines = strings.Contains(filepath.Base(*output), ".jsonl")
	}
	source, err := scored.Open.Open(operands...)
	if err != nil {
		return err
	}
	defer source.Close()
	b, err := source.Batch()
	if err != nil {
		return err
	}
	var s *losses.Summary
	derived, estimates, err := origins(source.Report(), scored.Width)
	if err != nil {
		return fmt.Errorf("%s: %w", inputs(operands), err)
	}
	err = source.Guard(func() (err error) { // somebody may make a file shorter
		if s, err = summariseFile(b, opt, compute); err != nil {
			err = fmt.Errorf("%s: %w", inputs(operands), cli.WithHint(rollout.InFile(err)))
		}
		return err
	})
	if err != nil {
		return err
	}
	s.Derived, s.Estimates = derived, estimates
	s.Warnings = append(s.Warnings, source.Report().Warnings...)
	if s.Tokens.Action == 0 && s.Tokens.Reasoning > 0 {
		s.Warnings = append(s.Warnings, "ActFocus has one weight for all tokens, alpha, because none is an action.")
	}
	if s.Files = operands; len(operands) == 1 {
		s.File, s.Files = operands[0], nil
	}
	if *output != "" && s.Err() == nil {
		if err := write(*output, results{s, source, b}); err != nil {
			return fmt.Errorf("-o: %w", err)
		}
	}
	if as == cli.JSON {
		err = cli.WriteJSON(out, s)
	} else {
		err = s.Write(out)
	}
	if err == nil {
		err = s.Err()
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
// estimates. The entropy may not be one whose bounds are further apart than width.
func origins(r rollout.Report, width float64) (derived, estimates []cli.Origin, err error) {
	for _, o := range r.Arrays {
		if err := cli.CheckWidth(o, width); err != nil {
			return nil, nil, err
		}
		switch o.Kind {
		case rollout.Derived:
			derived = append(derived, cli.NewOrigin(o))
		case rollout.Estimated:
			estimates = append(estimates, cli.NewOrigin(o))
		}
	}
	return derived, estimates, nil
}

// Results are what bench reweight writes to a file.
type results struct {
	*losses.Summary
	source *rollout.Source
	batch  *reweight.Batch
}

// writers write results to the file of that path, by the extension of its name.
var writers = map[string]func(path string, r results) error{
	".safetensors": func(path string, r results) error {
		return rollout.Write(path, r.Tensors(), r.source.Report().Metadata())
	},
	".npz": func(path string, r results) error {
		if err := checkMarks(r.source.Report()); err != nil {
			return fmt.Errorf("%s: %w", printable.Text(path), err)
		}
		return rollout.WriteNPZ(path, r.Tensors())
	},
	".jsonl":     linesWriter(plain),
	".jsonl.gz":  linesWriter(gzipped),
	".jsonl.zst": linesWriter(zstandard),
}

// linesWriter returns a writer of the lines of JSON that were read, with the results in
// them, through the compressor.
func linesWriter(compress compressor) func(path string, r results) error {
	return func(path string, r results) error {
		report := r.source.Report()
		report.Vocabulary = "" // of other files
		return writeCompressed(path, compress, func(w io.Writer) error {
			return rollout.WriteLines(w, r.source.Lines(), r.batch, r.Tensors(), report.Metadata())
		})
	}
}

// maxTokens bounds the memory of a summary, which takes some 200 bytes a token: a
// small file can declare many tokens that are a hole in it.
const maxTokens = 1 << 26

// summariseFile derives what a file's batch lacks, and says which tensor is at
// fault if something is. It reads the file with one worker, in this goroutine.
func summariseFile(b *reweight.Batch, opt losses.Options, compute losses.Library) (*losses.Summary, error) {
	if n := b.Tokens(); n > maxTokens {
		return nil, &reweight.InputError{Arg: "Role", Index: -1, Problem: fmt.Sprintf("has %d tokens, want at most %d: split the file by groups", n, maxTokens)}
	}
	need := []string{"group_ids", "span_ids", "entropy", "old_logprobs", "logprobs"}
	if b.Rewards == nil && b.Advantages == nil {
		return nil, fmt.Errorf("%w, and so is advantages, which could take its place", rollout.Require(b, "rewards"))
	}
	need = append(need, opt.ActFocus.Signal.Arrays()...)
	if err := rollout.Require(b, need...); err != nil {
		return nil, err
	}
	ws := reweight.Workspace{Workers: 1} // as rollout.File.Guard asks
	// The bottleneck wants the energy whatever the signal is.
	if err := rollout.Derive(&ws, b, append(need, "ref_energy")...); err != nil {
		return nil, err
	}
	if err := checkFinite(b); err != nil {
		return nil, err
	}
	return losses.Summarise(b, opt, compute)
}

// checkFinite wants finite log-probabilities at response tokens, and finite advantages
// if there are no rewards. The loss accepts other log-probabilities: it clamps the ratio
// of one that is infinite, and is NaN for one that is NaN or for two that are infinite.
// But a token that was sampled has a probability above 0, so in a file they are
// mistakes, -Inf too.
func checkFinite(b *reweight.Batch) error {
	arrays := []struct {
		field  string
		values []float32
	}{{"OldLogprobs", b.OldLogprobs}, {"Logprobs", b.Logprobs}}
	if b.Rewards == nil && b.Advantages != nil {
		arrays = append(arrays, struct {
			field  string
			values []float32
		}{"Advantages", b.Advantages})
	}
	for t, role := range b.Role {
		if role == reweight.RoleMasked {
			continue
		}
		for _, a := range arrays {
			if v := a.values[t]; v-v != 0 {
				return &reweight.InputError{Arg: a.field, Index: t, Problem: fmt.Sprintf("is %v at a response token, want a finite number", v)}
			}
		}
	}
	return nil
}

// flagNames maps the names of options to the flags that set them.
var flagNames = map[string]string{
	"Alpha": "-alpha", "Beta": "-beta", "Eps": "-eps", "Signal": "-signal", "Lambda": "-lambda", "Guard": "-guard", "Scope": "-scope",
	"ClipLow": "-clip-low", "ClipHigh": "-clip-high", "DualClip": "-dual-clip", "Aggregation": "-aggregation", "NormLength": "-norm-length",
	"KL": "-kl", "KLCoef": "-kl-coef",
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
			return fmt.Errorf("%s is one of the files in %s, which are the input: it would be lost", printable.Text(output), printable.Text(input))
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
			return fmt.Errorf("%s would be one of the files in %s, which are the input: write it elsewhere", printable.Text(output), printable.Text(input))
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
