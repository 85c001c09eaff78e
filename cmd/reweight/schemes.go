package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/reweight/internal/scorefiles"
	"github.com/seed621a2839/reweight/cmd/reweight/internal/show"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// A comparison says what reweight is to do.
type comparison struct {
	picked    []scheme.Scheme
	byDefault bool          // nobody chose them, or the signal
	uniform   scheme.Scheme // that they are compared with
	opt       compare.Options
	html      string                                                              // or none
	output    string                                                              // or none
	unread    []string                                                            // flags that none of picked reads
	write     func(path string, tensors []rollout.Tensor, r rollout.Report) error // to output
	compare   compare.Comparer
}

// unreadFlags returns the flags that are given but belong to none of the schemes. Every scheme
// has GRPO's advantages or a loss where it names none.
func unreadFlags(flags cli.Flags, picked []scheme.Scheme) (unread []string) {
	for _, e := range scheme.Entries() {
		if e.Name == "uniform" || e.Name == "group_norm" || slices.ContainsFunc(picked, func(s scheme.Scheme) bool {
			return s.Has(e.Name)
		}) {
			continue
		}
		for _, f := range e.Flags {
			if flags.Given(f.Name) {
				unread = append(unread, "-"+f.Name)
			}
		}
	}
	return unread
}

// do compares the schemes on files, prints the comparison and writes the page.
func (c comparison) do(opt scorefiles.Options, names []string, asJSON bool, out io.Writer) error {
	source, err := opt.Open.Open(names...)
	if err != nil {
		return err
	}
	defer source.Close()
	b, err := source.Batch()
	if err != nil {
		return err
	}
	if err := checkSize(b.Tokens()); err != nil {
		return fmt.Errorf("%s: %w", inputs(names), err)
	}
	if n := b.Trajectories(); c.opt.Trajectory >= n {
		return fmt.Errorf("-trajectory is %d, want 0 to %d", c.opt.Trajectory, n-1)
	}
	derived, estimates := origins(source.Report())
	for _, o := range source.Report().Arrays { // that of the drift may be as wide as it is
		if found.CheckWidth(o, opt.Width) != nil {
			c.opt.TooWide = fmt.Sprintf("needs an entropy whose bounds are at most %v nats apart, and this one is %v: -entropy-width Inf takes it", opt.Width, found.NewOrigin(o))
		}
	}
	var r *compare.Comparison
	err = source.Guard(func() error { // somebody may make a file shorter
		r, err = c.computed(b)
		if err != nil {
			err = fmt.Errorf("%s: %w", inputs(names), found.WithHint(rollout.InFile(err)))
		}
		return err
	})
	if err != nil {
		return err
	}
	r.Derived, r.Estimates = derived, estimates
	if c.byDefault && b.RefEnergy == nil && b.OldLogprobs != nil {
		r.Warnings = append(r.Warnings, "ActFocus goes by the surprisal of tokens, because there is no ref_energy: -signal chooses by what.")
	}
	r.Warnings = append(r.Warnings, c.surprised(r, estimates)...)
	r.Warnings = append(r.Warnings, source.Report().Warnings...)
	if r.Tokens.Action == 0 && r.Tokens.Reasoning > 0 && slices.ContainsFunc(c.picked, func(s scheme.Scheme) bool {
		return s.Has("actfocus")
	}) {
		r.Warnings = append(r.Warnings, "ActFocus has one weight for all tokens, alpha, because none is an action.")
	}
	if len(c.unread) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("No scheme here reads %s.", strings.Join(c.unread, ", ")))
	}
	if r.Files = names; len(names) == 1 {
		r.File, r.Files = names[0], nil
	}
	if asJSON || c.html != "" { // the tables have no tokens
		if err := c.describe(&r.Rollout, opt.Open, source, b, names); err != nil {
			return err
		}
	}
	if c.output != "" {
		tensors, err := r.Tensors()
		if err == nil {
			err = c.write(c.output, tensors, source.Report())
		}
		if err != nil {
			return fmt.Errorf("-o: %w", err)
		}
	}
	if c.html != "" {
		page := show.Sides{Title: "Schemes on " + printable.Text(strings.Join(names, ", ")), Comparison: r}
		if err := atomicfile.Write(c.html, page.WriteHTML); err != nil {
			return fmt.Errorf("-html: %w", err)
		}
	}
	if asJSON {
		return cli.WriteJSON(out, r)
	}
	return r.Write(out)
}

// maxTokens bounds the memory of a comparison, which takes some 200 bytes a token: a
// small file can declare many tokens that are a hole in it.
const maxTokens = 1 << 26

func checkSize(tokens int) error {
	if tokens > maxTokens {
		return fmt.Errorf("%d tokens, want at most %d: split the file by groups", tokens, maxTokens)
	}
	return nil
}

// computed derives what the schemes read and compares them.
func (c comparison) computed(b *reweight.Batch) (*compare.Comparison, error) {
	need := []string{"entropy", "ref_energy", "old_logprobs", "logprobs"} // for the drift and the bottleneck
	for _, s := range c.picked {
		need = append(need, s.Reads()...)
	}
	ws := reweight.Workspace{Workers: 1} // as Guard asks
	if err := rollout.Derive(&ws, b, need...); err != nil {
		return nil, err
	}
	if err := rollout.Require(b, "old_logprobs", "logprobs"); err != nil {
		return nil, err
	}
	if err := checkFinite(b); err != nil {
		return nil, err
	}
	if c.byDefault && b.RefEnergy == nil {
		for i := range c.picked {
			c.picked[i].Options.ActFocus.Signal = reweight.SignalSurprisal
		}
	}
	return c.compare(b, c.picked, c.uniform, c.opt)
}

// surprised returns a warning about each scheme of the table that takes the surprisal of a
// token, an estimate without bounds, for the token's entropy.
func (c comparison) surprised(r *compare.Comparison, estimates []found.Origin) (warnings []string) {
	if !slices.ContainsFunc(estimates, func(o found.Origin) bool {
		return o.Name == "entropy" && math.IsInf(float64(*o.Width), 1)
	}) {
		return nil
	}
	for _, s := range c.picked {
		if s.SingleEntropies() && slices.ContainsFunc(r.Schemes, func(row compare.Scheme) bool {
			return row.Scheme == s.Name
		}) {
			warnings = append(warnings,
				s.Name+" reads the entropy of single tokens, which their surprisal does not estimate.")
		}
	}
	return warnings
}

// describe fills in what the tokens of the rollout are. It reads the files again as far as
// the trajectory; standard input and pipes cannot be, and their tokens have their ids.
func (c comparison) describe(r *compare.Rollout, opt rollout.Options, source *rollout.Source, b *reweight.Batch,
	names []string) error {
	if slices.ContainsFunc(names, readOnce) {
		return source.Guard(func() error {
			r.Title, r.Texts = show.IDsOf(inputs(names), source.Report(), b, c.opt.Trajectory)
			return nil
		})
	}
	again, err := opt.Open(names...)
	if err != nil {
		return err
	}
	defer again.Close()
	r.Title, r.Texts, err = show.TextsOf(again, b, c.opt.Trajectory)
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
