package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// A tensor is a part of the parameters, as files have it.
type tensor struct {
	name  string
	shape []int64
	part  []float32
}

func (p *Policy) tensors() []tensor {
	vocab, hidden := int64(p.Vocab), int64(p.Hidden)
	return []tensor{
		{"input", []int64{vocab, 3 * hidden}, p.Input},
		{"u", []int64{hidden, 3 * hidden}, p.U},
		{"bias", []int64{3 * hidden}, p.Bias},
		{"head", []int64{hidden, vocab}, p.Head},
		{"head_bias", []int64{vocab}, p.HeadBias},
		{"value", []int64{hidden}, p.Value},
		{"value_bias", []int64{1}, p.ValueBias},
	}
}

// Save writes the policy as a safetensors file.
func (p *Policy) Save(path string) error {
	var tensors []rollout.Tensor
	for _, t := range p.tensors() {
		tensors = append(tensors, rollout.Tensor{Name: t.name, Shape: t.shape, Data: t.part})
	}
	return rollout.Write(path, tensors, nil)
}

// Load reads a policy that Save wrote. An error names the path.
func Load(path string) (*Policy, error) {
	data, err := atomicfile.Read(path, 1<<26) // more than any policy here has
	if err != nil {
		return nil, err
	}
	p, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(path), err)
	}
	return p, nil
}

// parse reads a policy from the contents of a file. Once package rollout has checked
// them, the tensors follow one another after the header, without a gap.
func parse(data []byte) (*Policy, error) {
	file, err := rollout.Parse(data)
	if err != nil {
		return nil, err
	}
	infos := file.Tensors()
	head := slices.IndexFunc(infos, func(info rollout.Info) bool { return info.Name == "head" })
	if head < 0 {
		return nil, errors.New("no tensor head")
	}
	shape := infos[head].Shape
	if len(shape) != 2 || shape[0] < 1 || shape[1] < 1 {
		return nil, fmt.Errorf("tensor head has shape %d, want [hidden, vocabulary]", shape)
	}
	p := &Policy{Hidden: int(shape[0]), Vocab: int(shape[1])}
	tensors := p.tensors()
	if len(infos) != len(tensors) {
		return nil, fmt.Errorf("%d tensors, want %d", len(infos), len(tensors))
	}
	for _, t := range tensors {
		i := slices.IndexFunc(infos, func(info rollout.Info) bool { return info.Name == t.name })
		switch {
		case i < 0:
			return nil, fmt.Errorf("no tensor %s", t.name)
		case infos[i].DType != "F32":
			return nil, fmt.Errorf("tensor %s is of %q, want F32", t.name, infos[i].DType)
		case !slices.Equal(infos[i].Shape, t.shape):
			return nil, fmt.Errorf("tensor %s has shape %d, want %d as head has %d", t.name, infos[i].Shape, t.shape, shape)
		}
	}

	// The shapes are those of data that is there, so there is memory for them.
	p = newPolicy(p.Vocab, p.Hidden)
	tensors = p.tensors()
	data = data[8+binary.LittleEndian.Uint64(data):]
	for _, info := range infos {
		i := slices.IndexFunc(tensors, func(t tensor) bool { return t.name == info.Name })
		for j := range tensors[i].part {
			tensors[i].part[j] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*j:]))
		}
		data = data[4*len(tensors[i].part):]
	}
	return p, nil
}
