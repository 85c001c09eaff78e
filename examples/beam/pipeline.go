package main

import (
	"encoding/json"
	"path/filepath"
	"reflect"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/score"
)

func init() {
	beam.RegisterCoder(reflect.TypeFor[*score.Partial](), encode, decode)
	register.DoFn1x2[string, *score.Partial, error](new(partialFn))
	register.Combiner1[*score.Partial](new(mergeFn))
	register.DoFn2x1[string, *score.Partial, error](new(applyFn))
}

// encode and decode are what a partial is on its way between workers. A partial of no
// files is nil.
func encode(p *score.Partial) ([]byte, error) { return json.Marshal(p) }

func decode(text []byte) (p *score.Partial, err error) {
	return p, json.Unmarshal(text, &p)
}

// pipeline scores the files in two passes. The statistics of all files, merged, are a
// side input of the second.
func pipeline(files []string, folder string, opt score.Options) *beam.Pipeline {
	p, s := beam.NewPipelineWithRoot()
	names := beam.Reshuffle(s, beam.CreateList(s, files)) // to all workers
	partials := beam.ParDo(s.Scope("partial"), &partialFn{opt}, names)
	merged := beam.Combine(s.Scope("merge"), new(mergeFn), partials)
	beam.ParDo0(s.Scope("apply"), &applyFn{opt, folder}, names, beam.SideInput{Input: merged})
	return p
}

// A partialFn makes the statistics of a file.
type partialFn struct{ Options score.Options }

func (f *partialFn) ProcessElement(name string) (*score.Partial, error) {
	src, err := rollout.Open(name)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return score.Of(src, f.Options)
}

// A mergeFn merges statistics. A file that is there twice is an error.
type mergeFn struct{}

func (*mergeFn) CreateAccumulator() *score.Partial { return nil }

func (f *mergeFn) AddInput(a, b *score.Partial) (*score.Partial, error) {
	return f.MergeAccumulators(a, b)
}

func (*mergeFn) MergeAccumulators(a, b *score.Partial) (*score.Partial, error) {
	if a == nil {
		return b, nil
	}
	if b == nil {
		return a, nil
	}
	return score.Merge(a, b)
}

// An applyFn writes the weights and advantages of a file. If Beam runs it twice, it writes
// the same bytes.
type applyFn struct {
	Options score.Options
	Folder  string
}

func (f *applyFn) ProcessElement(name string, merged *score.Partial) error {
	src, err := rollout.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	offsets := []int64{0} // where each trajectory begins
	var weights, advantages []float32
	err = score.Apply(src, merged, f.Options, func(s score.Scored) error {
		offsets = append(offsets, offsets[len(offsets)-1]+int64(s.Tokens()))
		weights = append(weights, s.Weights...)
		advantages = append(advantages, s.Advantages...)
		return nil
	})
	if err != nil {
		return err
	}
	tokens := []int64{int64(len(weights))}
	return rollout.Write(filepath.Join(f.Folder, filepath.Base(name)+".safetensors"), []rollout.Tensor{
		{Name: "seq_offsets", Shape: []int64{int64(len(offsets))}, Data: offsets},
		{Name: "weights", Shape: tokens, Data: weights},
		{Name: "advantages", Shape: tokens, Data: advantages},
	}, nil)
}
