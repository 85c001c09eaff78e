// Package scorefiles reads and writes the files of reweight score, and scores many files of
// rollouts as one batch.
package scorefiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

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

// Partial returns the statistics of files, and what was found in them.
func Partial(opt Options, names ...string) (*score.Partial, rollout.Report, error) {
	src, err := opt.Open.Open(names...)
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
	for _, f := range p.Files() {
		if f.Entropy == nil {
			continue
		}
		if err := found.CheckWidth(*f.Entropy, opt.Width); err != nil {
			return fmt.Errorf("%s: %w", printable.Text(f.Name), err)
		}
	}
	return nil
}

// maxPartial bounds the files that ReadPartial reads, in bytes. It is that of a million
// groups of some hundred spans.
const maxPartial = min(1<<30, math.MaxInt/4)

// ReadPartial reads a file of statistics. Errors begin with its name.
func ReadPartial(name string) (*score.Partial, error) {
	p := new(score.Partial)
	if err := readJSON(name, p); err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(name), err)
	}
	return p, nil
}

func readJSON(name string, v any) error {
	info, err := os.Stat(name) // before the file is opened, which waits for the other end of a pipe
	if err != nil {
		return atomicfile.Cause(err)
	}
	if err := atomicfile.CheckRegular(info); err != nil {
		return err
	}
	if info.Size() > maxPartial {
		return fmt.Errorf("has %d bytes, want at most %d", info.Size(), int64(maxPartial))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return atomicfile.Cause(err)
	}
	return json.Unmarshal(text, v)
}

// WritePartial writes statistics to the file of that path, or if it is empty, to out.
func WritePartial(p *score.Partial, path string, out io.Writer) error {
	text, err := p.MarshalJSON() // json.Marshal would make two more copies of it
	if err != nil {
		return err
	}
	write := func(w io.Writer) error {
		_, err := w.Write(text)
		if err == nil {
			_, err = w.Write([]byte{'\n'})
		}
		return err
	}
	if path == "" {
		return write(out)
	}
	return atomicfile.Write(path, write)
}

// Apply writes the scores of a file of the batch to output, a safetensors file: weights
// and advantages [T], and seq_offsets [S+1].
func Apply(opt Options, name, output string, merged *score.Partial) error {
	if err := opt.checkWidth(merged); err != nil {
		return err
	}
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
		return fmt.Errorf("%w (the flags have to be those of reweight score partial)", err)
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
