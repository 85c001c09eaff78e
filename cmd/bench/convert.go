package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

const convertUsage = `Usage: bench convert [flags] IN... OUT

Reads rollouts from files of any format that bench knows, as one batch, and writes
them to one file: safetensors, which bench reads fastest, by the name's extension
.safetensors; lines of JSON by .jsonl, .jsonl.gz and .jsonl.zst; a NumPy archive by
.npz. A directory stands for the files in it, and - for standard input. The memory
needed is that of one trajectory, except for .npz: that of the batch.

`

func convertCommand(ctx context.Context, args []string, out io.Writer, p *cli.Progress) error {
	flags := cli.NewFlags("bench convert")
	options := flags.RolloutFlags()
	format := flags.Format(cli.Table, cli.JSON)
	operands, err := flags.Parse(convertUsage, args, out)
	if err != nil {
		return err
	}
	if len(operands) < 2 {
		return errors.New("want the names of one input or more, and that of the output")
	}
	as, err := format()
	if err != nil {
		return err
	}
	opt, err := options()
	if err != nil {
		return err
	}
	inputs, output := operands[:len(operands)-1], operands[len(operands)-1]
	if err := checkOutput(output, inputs...); err != nil {
		return err
	}
	write, err := byExtension(output, converters)
	if err != nil {
		return err
	}
	source, err := opt.Open(inputs...)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := write(output, &conversion{ctx: ctx, source: source, p: p}); err != nil {
		return err
	}
	found := cli.NewFound(source.Report())
	if as == cli.JSON {
		return cli.WriteJSON(out, struct {
			Output string `json:"output"`
			cli.Found
		}{output, found})
	}
	fmt.Fprintf(out, "%s: ", printable.Text(output))
	return found.Write(out)
}

// A converter writes all trajectories of a source to the file of that path.
type converter func(path string, in *conversion) error

// converters are the converters by the extension of the output's name.
var converters = map[string]converter{
	".safetensors": toSafetensors,
	".npz":         toNPZ,
}

// byExtension returns what stands for the extension that the name of a file ends in.
func byExtension[T any](name string, all map[string]T) (T, error) {
	for extension, one := range all {
		if strings.HasSuffix(name, extension) {
			return one, nil
		}
	}
	var none T
	return none, fmt.Errorf("%s: want a name that ends in one of %v", printable.Text(name), slices.Sorted(maps.Keys(all)))
}

func toSafetensors(path string, in *conversion) error {
	w, err := rollout.NewWriter(path)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := in.each(w.Add); err != nil {
		return err
	}
	in.p.Next("writing %s", printable.Text(path))
	return w.Close(in.source.Report().Metadata())
}

func toNPZ(path string, in *conversion) error {
	in.p.Next("reading all of the batch")
	b, err := in.source.Batch()
	if err != nil {
		return err
	}
	if err := checkMarks(path, in.source.Report()); err != nil {
		return err
	}
	return in.source.Guard(func() error { return rollout.WriteNPZ(path, rollout.Tensors(b)) })
}

// checkMarks returns an error if the report has an estimate: a file of that path has no
// place that could say so.
func checkMarks(path string, r rollout.Report) error {
	for _, o := range r.Arrays {
		if o.Kind == rollout.Estimated {
			return fmt.Errorf("%s: %s is an estimate, and a .npz file has no place that says so: write .safetensors", printable.Text(path), o.Name)
		}
	}
	return nil
}

// A conversion is the source of one, and shows its progress.
type conversion struct {
	ctx    context.Context
	source *rollout.Source
	p      *cli.Progress
	shown  time.Time // when the progress was last shown
}

// each calls do with each trajectory.
func (c *conversion) each(do func(*rollout.Trajectory) error) error {
	for {
		if c.ctx.Err() != nil {
			return errNothingWritten
		}
		if time.Since(c.shown) > 100*time.Millisecond {
			r := c.source.Report()
			c.p.Next("%s trajectories, %s tokens", humanize.Comma(int64(r.Trajectories)), humanize.Comma(int64(r.Tokens)))
			c.shown = time.Now()
		}
		t, err := c.source.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil && c.ctx.Err() != nil { // what was read ended because of that
			return errNothingWritten
		}
		if err != nil {
			return err
		}
		if err := c.source.Guard(func() error { return do(t) }); err != nil {
			return err
		}
	}
}

// errNothingWritten is the error of a command that was interrupted before its output was
// complete.
var errNothingWritten error = nothingWritten{}

type nothingWritten struct{}

func (nothingWritten) Error() string        { return "interrupted: nothing is written" }
func (nothingWritten) Is(target error) bool { return target == cli.ErrInterrupted }
