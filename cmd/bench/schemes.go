package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/losses"
	"github.com/seed621a2839/reweight/cmd/bench/internal/schemes"
	"github.com/seed621a2839/reweight/cmd/bench/internal/scoring"
	"github.com/seed621a2839/reweight/cmd/bench/internal/show"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// A comparison says what bench reweight -scheme is to do.
type comparison struct {
	picked     []schemes.Scheme
	all        bool
	opt        schemes.Options
	trajectory int
	html       string   // or none
	unread     []string // flags that are given and that none of picked reads
}

// compareSchemes declares the flags that only -scheme gives a meaning to.
func compareSchemes(flags cli.Flags) func(inputs []string) (comparison, error) {
	trajectory := flags.Int("trajectory", 0, "-scheme: `number` of the trajectory to show, from 0")
	html := flags.String("html", "", "-scheme: write a page with the table and the trajectory under each scheme into this `file`")
	delta := flags.Float64("delta", 0, "-scheme: `nats` by which the policy may have moved on average for off_policy_mask; it has no default")
	return func(inputs []string) (c comparison, err error) {
		if err := flags.NotEmpty("html"); err != nil {
			return c, err
		}
		if c.trajectory = *trajectory; c.trajectory < 0 {
			return c, fmt.Errorf("-trajectory is %d, want a number from 0", c.trajectory)
		}
		if flags.Given("delta") {
			if *delta-*delta != 0 {
				return c, fmt.Errorf("-delta is %v, want a finite number", *delta)
			}
			c.opt.Delta = delta
		}
		if c.html = *html; c.html != "" { // before the work
			if err := checkOutput(c.html, inputs...); err != nil {
				return c, fmt.Errorf("-html: %w", err)
			}
		}
		return c, nil
	}
}

// givenLoss returns what the flags that are given change in the options of a loss.
func givenLoss(flags cli.Flags, given reweight.LossOptions) func(*reweight.LossOptions) {
	return func(opt *reweight.LossOptions) {
		if flags.Given("clip-low") {
			opt.ClipLow = given.ClipLow
		}
		if flags.Given("clip-high") {
			opt.ClipHigh = given.ClipHigh
		}
		if flags.Given("dual-clip") {
			opt.DualClip = given.DualClip
		}
		if flags.Given("aggregation") {
			opt.Aggregation = given.Aggregation
		}
		if flags.Given("norm-length") {
			opt.NormLength = given.NormLength
		}
		opt.KL, opt.KLCoef = given.KL, given.KLCoef
	}
}

// unreadFlags returns the flags that are given but belong to none of the schemes.
func unreadFlags(flags cli.Flags, picked []schemes.Scheme) (unread []string) {
	for _, of := range [...]struct {
		scheme string
		flags  []string
	}{
		{"actfocus", []string{"alpha", "beta", "eps", "signal"}}, {"aem", []string{"lambda", "guard", "scope"}}, {"off_policy_mask", []string{"delta"}},
	} {
		if slices.ContainsFunc(picked, func(s schemes.Scheme) bool { return s.Has(of.scheme) }) {
			continue
		}
		for _, name := range of.flags {
			if flags.Given(name) {
				unread = append(unread, "-"+name)
			}
		}
	}
	return unread
}

// do compares the schemes on files, prints the comparison and writes the page.
func (c comparison) do(opt scoring.Options, names []string, as cli.Format, out io.Writer) error {
	source, err := opt.Open.Open(names...)
	if err != nil {
		return err
	}
	defer source.Close()
	b, err := source.Batch()
	if err != nil {
		return err
	}
	if n := b.Tokens(); n > maxTokens {
		return fmt.Errorf("%s: %d tokens, want at most %d: split the file by groups", inputs(names), n, maxTokens)
	}
	if n := b.Trajectories(); c.trajectory >= n {
		return fmt.Errorf("-trajectory is %d, want 0 to %d", c.trajectory, n-1)
	}
	derived, estimates, err := origins(source.Report(), math.Inf(1)) // for the drift
	if err != nil {
		return fmt.Errorf("%s: %w", inputs(names), err)
	}
	for _, o := range source.Report().Arrays {
		if cli.CheckWidth(o, opt.Width) != nil {
			c.opt.TooWide = fmt.Sprintf("needs an entropy whose bounds are at most %v nats apart, and this one is %v: -entropy-width Inf takes it", opt.Width, cli.NewOrigin(o))
		}
	}
	var r *losses.Comparison
	err = source.Guard(func() (err error) { // somebody may make a file shorter
		need := []string{"entropy", "old_logprobs", "logprobs"} // the entropy is for the drift
		for _, s := range c.picked {
			need = append(need, s.Arrays(c.opt)...)
		}
		ws := reweight.Workspace{Workers: 1} // as Guard asks
		if err := rollout.Derive(&ws, b, need...); err != nil {
			return err
		}
		if err := rollout.Require(b, "old_logprobs", "logprobs"); err != nil {
			return cli.WithHint(err)
		}
		if err := checkFinite(b); err != nil {
			return err
		}
		r, err = losses.Compare(b, c.picked, c.all, c.opt, c.trajectory)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", inputs(names), rollout.InFile(err))
	}
	r.Derived, r.Estimates = derived, estimates
	r.Warnings = append(r.Warnings, c.surprised(r, estimates)...)
	r.Warnings = append(r.Warnings, source.Report().Warnings...)
	if len(c.unread) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("No scheme here reads %s.", strings.Join(c.unread, ", ")))
	}
	if r.Files = names; len(names) == 1 {
		r.File, r.Files = names[0], nil
	}
	if err := c.describe(&r.Rollout, opt.Open, source, b, names); err != nil {
		return err
	}
	var text bytes.Buffer // before the page is written, because it can fail
	switch as {
	case cli.JSON:
		err = cli.WriteJSON(&text, r)
	case cli.Markdown:
		err = r.WriteMarkdown(&text)
	}
	if err != nil {
		return err
	}
	if c.html != "" {
		page := show.Sides{
			Title: "Schemes on " + printable.Text(strings.Join(names, ", ")), Header: losses.Header, Rows: r.Rows(), Notes: append(r.Notes(), r.Warnings...),
			Rollout: r.Rollout.Title, Texts: r.Rollout.Texts, Role: r.Rollout.Role, Spans: r.Rollout.Spans,
		}
		for _, s := range r.Rollout.Credit {
			page.Sides = append(page.Sides, show.Side(s))
		}
		if err := atomicfile.Write(c.html, page.WriteHTML); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
	}
	if as == cli.Table { // which looks at whether out is a terminal
		return r.Write(out)
	}
	_, err = text.WriteTo(out)
	return err
}

// surprised returns a warning about each scheme of the table that takes the surprisal of a
// token, an estimate without bounds, for the token's entropy.
func (c comparison) surprised(r *losses.Comparison, estimates []cli.Origin) (warnings []string) {
	if !slices.ContainsFunc(estimates, func(o cli.Origin) bool { return o.Name == "entropy" && math.IsInf(float64(*o.Width), 1) }) {
		return nil
	}
	for _, s := range c.picked {
		if s.EntropyPerToken() && slices.ContainsFunc(r.Schemes, func(row losses.Scheme) bool { return row.Scheme == s.Name }) {
			warnings = append(warnings, s.Name+" reads the entropy of single tokens, which their surprisal does not estimate.")
		}
	}
	return warnings
}

// describe fills in what the tokens of the rollout are. It reads the files again as far as
// the trajectory; standard input and pipes cannot be, and their tokens have their ids.
func (c comparison) describe(r *losses.Rollout, opt rollout.Options, source *rollout.Source, b *reweight.Batch, names []string) error {
	if slices.ContainsFunc(names, readOnce) {
		return source.Guard(func() error {
			r.Title, r.Texts = show.IDsOf(inputs(names), source.Report(), b, c.trajectory)
			return nil
		})
	}
	again, err := opt.Open(names...)
	if err != nil {
		return err
	}
	defer again.Close()
	r.Title, r.Texts, err = show.TextsOf(again, b, c.trajectory)
	if err == nil && len(r.Texts) != len(r.Role) {
		err = errors.New("the file has changed while it was read")
	}
	return err
}

// readOnce reports whether the input is standard input or a pipe.
func readOnce(name string) bool {
	info, err := os.Stat(name)
	return name == "-" || err == nil && !info.IsDir() && !info.Mode().IsRegular()
}
