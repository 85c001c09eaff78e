// Package scorefiles reads and writes the files of reweight score, and scores many files of
// rollouts as one batch.
package scorefiles

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/score"
)

// Options are the options of both passes.
type Options struct {
	Score score.Options
	Open  rollout.Options
	Width float64 // AEM takes no entropies whose bounds are further apart on average
}

// partial returns the statistics of a file, and what was found in it.
func partial(opt Options, name string) (*score.Partial, rollout.Report, error) {
	src, err := opt.Open.Open(name)
	if err != nil {
		return nil, rollout.Report{}, err
	}
	defer src.Close()
	p, err := score.Of(src, opt.Score)
	if err != nil {
		return nil, rollout.Report{}, found.WithHint(err)
	}
	return p, src.Report(), opt.checkWidth(p)
}

// checkWidth returns an error about the first file whose entropies are too wide an
// estimate.
func (opt Options) checkWidth(p *score.Partial) error {
	for f := range p.Files() {
		if f.Entropy == nil {
			continue
		}
		if err := found.CheckWidth(*f.Entropy, opt.Width); err != nil {
			return fmt.Errorf("%s: %w", printable.Text(f.Name), err)
		}
	}
	return nil
}

// Merge returns the statistics of all files of the partials in the files of these names.
// Directories stand for the files in them, but for hidden ones. What a killed run has left is
// told to leftOut and not read.
func Merge(leftOut func(name string), names ...string) (*score.Partial, error) {
	var m score.Merger
	add := func(name string) error {
		if atomicfile.IsTemporary(name) {
			leftOut(name)
			return nil
		}
		p, err := ReadPartial(name)
		if err != nil {
			return err
		}
		return m.Add(p)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = eachIn(name, add)
		} else {
			err = add(name)
		}
		if err != nil {
			return nil, err
		}
	}
	return m.Merged()
}

// eachIn calls do with the files in a directory, but for hidden ones that are no temporary
// files.
func eachIn(dir string, do func(name string) error) error {
	file, err := os.Open(dir)
	defer file.Close()
	for err == nil {
		var names []string
		names, err = file.Readdirnames(1000) // there may be very many
		for _, name := range names {
			path := filepath.Join(dir, name)
			if strings.HasPrefix(name, ".") && !atomicfile.IsTemporary(path) {
				continue
			}
			if err := do(path); err != nil {
				return err
			}
		}
	}
	if err == io.EOF {
		return nil
	}
	return fmt.Errorf("%s: %w", printable.Text(dir), atomicfile.Cause(err))
}

// ReadPartial reads a file of statistics, or a pipe. Errors begin with its name.
func ReadPartial(name string) (p *score.Partial, err error) {
	file, err := os.Open(name)
	if err == nil {
		defer file.Close()
		p, err = score.Decode(file)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(name), atomicfile.Cause(err))
	}
	return p, nil
}

// WritePartial writes statistics to the file of that path, or if it is empty, to out.
func WritePartial(p *score.Partial, path string, out io.Writer) error {
	if path == "" {
		return p.Encode(out)
	}
	return atomicfile.Write(path, p.Encode)
}

// Apply writes the scores of a file of the batch to output, a safetensors file: weights
// and advantages [T], and seq_offsets [S+1].
func Apply(opt Options, name, output string, merged *score.Partial) error {
	if err := opt.checkWidth(merged); err != nil {
		return err
	}
	return apply(opt, name, output, merged)
}

func apply(opt Options, name, output string, merged *score.Partial) error {
	src, err := opt.Open.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	weights, err := rollout.NewColumn(output, "weights")
	if err != nil {
		return err
	}
	defer weights.Close()
	advantages, err := rollout.NewColumn(output, "advantages")
	if err != nil {
		return err
	}
	defer advantages.Close()
	offsets := []int64{0}
	err = score.Apply(src, merged, opt.Score, func(s score.Scored) error {
		offsets = append(offsets, offsets[len(offsets)-1]+int64(s.Tokens()))
		if err := weights.Append(s.Weights); err != nil {
			return err
		}
		return advantages.Append(s.Advantages)
	})
	if errors.Is(err, score.ErrNotInBatch) {
		return fmt.Errorf("%w (the flags have to be the same as for reweight score partial)", err)
	}
	if err != nil {
		return err
	}
	tensors := []rollout.Tensor{{Name: "seq_offsets", Shape: []int64{int64(len(offsets))}, Data: offsets}}
	for _, column := range []*rollout.Column{weights, advantages} {
		t, err := column.Tensor()
		if err != nil {
			return err
		}
		tensors = append(tensors, t)
	}
	return rollout.Write(output, tensors, src.Report().Metadata())
}
