package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

const convertUsage = `Usage: reweight convert [flags] IN... OUT

Reads rollouts from files of any format that reweight knows, as one batch, and writes
them to one file: safetensors, which reweight reads fastest, by the name's extension
.safetensors; lines of JSON by .jsonl; a NumPy archive by .npz. A directory stands for
the files in it, and - for standard input. The memory needed is that of one
trajectory, except for .npz: that of the batch.

`

func convertCommand(args []string, out io.Writer, p *cli.Progress) error {
	flags := cli.NewFlags("reweight convert")
	options := rolloutFlags(flags)
	format := flags.Format()
	operands, err := flags.Parse(convertUsage, args, out)
	if err != nil {
		return err
	}
	if len(operands) < 2 {
		return errors.New("want the names of one input or more, and the name of the output")
	}
	asJSON, err := format()
	if err != nil {
		return err
	}
	opt, err := options()
	if err != nil {
		return err
	}
	inputs, output := operands[:len(operands)-1], operands[len(operands)-1]
	if err := checkRollouts(output, inputs...); err != nil {
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
	in := &conversion{source: source, p: p}
	if err := write(output, in); err != nil {
		return err
	}
	p.Clear()
	report := source.Report()
	if report.Texts && !strings.HasSuffix(output, ".jsonl") {
		report.Dropped = append(report.Dropped, "texts")
	}
	if report.Vocabulary != "" && strings.HasSuffix(output, ".npz") {
		report.Dropped = append(report.Dropped, "__metadata__.vocab")
	}
	slices.Sort(report.Dropped)
	read := found.NewReport(report)
	if asJSON {
		return cli.WriteJSON(out, struct {
			Output string `json:"output"`
			found.Report
		}{output, read})
	}
	fmt.Fprintf(out, "%s: ", printable.Text(output))
	return read.Write(out)
}

// converters write all trajectories of a source to a file, by the extension of its name.
var converters = map[string]func(path string, in *conversion) error{
	".safetensors": toSafetensors,
	".jsonl":       toJSONL,
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
	return none, fmt.Errorf("%s: want a name that ends in one of %v", printable.Text(name),
		slices.Sorted(maps.Keys(all)))
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

func toJSONL(path string, in *conversion) error {
	var words rollout.Vocabulary // of the file, which a line has no place for but the texts of its tokens
	var file string
	err := atomicfile.Write(path, func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<16)
		err := in.each(func(t *rollout.Trajectory) error {
			if t.File != file {
				file, words = t.File, rollout.ListedVocabulary(in.source.Report().Vocabulary)
			}
			if t.Texts == nil {
				t.Texts = words.Texts(t.TokenIDs)
			}
			return rollout.WriteJSONL(buffered, t)
		})
		if err == nil {
			err = checkMarks(in.source.Report())
		}
		return cmp.Or(err, buffered.Flush())
	})
	return cmp.Or(in.failed, err)
}

func toNPZ(path string, in *conversion) error {
	in.p.Next("reading all of the batch")
	b, err := in.source.Batch()
	if err != nil {
		return err
	}
	if err := checkMarks(in.source.Report()); err != nil {
		return fmt.Errorf("%s: %w", printable.Text(path), err)
	}
	in.p.Next("writing %s", printable.Text(path))
	return in.source.Guard(func() error { return rollout.WriteNPZ(path, rollout.Tensors(b)) })
}

// checkMarks returns an error if the report has an estimate, for an output that cannot
// say so.
func checkMarks(r rollout.Report) error {
	for _, o := range r.Arrays {
		if o.Kind == rollout.Estimated {
			return fmt.Errorf("%s is an estimate, and only .safetensors has a place that says so", o.Name)
		}
	}
	return nil
}

// A conversion is the source of one, and shows its progress.
type conversion struct {
	source *rollout.Source
	p      *cli.Progress
	shown  time.Time // when the progress was last shown
	failed error     // to read, which is no error about the output
}

// each calls do with each trajectory.
func (c *conversion) each(do func(*rollout.Trajectory) error) error {
	for {
		if time.Since(c.shown) > 100*time.Millisecond {
			r := c.source.Report()
			c.p.Next("%s trajectories, %s tokens", humanize.Comma(int64(r.Trajectories)),
				humanize.Comma(int64(r.Tokens)))
			c.shown = time.Now()
		}
		t, err := c.source.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			c.failed = err
			return err
		}
		if err := c.source.Guard(func() error { return do(t) }); err != nil {
			return err
		}
	}
}
