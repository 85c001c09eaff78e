package measure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/kernels"
	"github.com/seed621a2839/reweight/scheme"
)

// A Shape is a kernel on inputs of one dtype and size.
type Shape struct {
	Kernel      kernels.Kernel
	DType       reweight.DType
	Rows, Vocab int // Vocab is 0 for kernels on tokens
	Workers     []int
}

// String names the shape for a line of progress.
func (s Shape) String() string {
	if !s.Kernel.Rows {
		return s.Kernel.Name + " " + s.DType.String()
	}
	return fmt.Sprintf("%s %v, vocabulary of %s", s.Kernel.Name, s.DType, humanize.Comma(int64(s.Vocab)))
}

// CheckSize is the size for Check: the vocabulary, or a number of tokens for
// which the float64 reference does not take long.
func (s Shape) CheckSize() int {
	if s.Kernel.Rows {
		return s.Vocab
	}
	return min(s.Rows, TokenCount)
}

// Shapes returns every kernel in every format and size. Without a number of rows,
// rows of logits are as many as it takes to stream, and tokens are TokenCount.
func Shapes(ks []kernels.Kernel, sizes Sizes) []Shape {
	var shapes []Shape
	for _, k := range ks {
		for _, dtype := range k.DTypes {
			if !k.Rows {
				shapes = append(shapes, Shape{k, dtype, cmp.Or(sizes.Rows, TokenCount), 0, []int{1}})
				continue
			}
			for _, vocab := range sizes.Vocabs {
				shapes = append(shapes, Shape{k, dtype, cmp.Or(sizes.Rows, RowsToStream(dtype, vocab, cmp.Or(sizes.Stream, StreamBytes))), vocab, sizes.Workers})
			}
		}
	}
	return shapes
}

// FirstDTypes returns the kernels with only the first of their dtypes.
func FirstDTypes(ks []kernels.Kernel) []kernels.Kernel {
	ks = slices.Clone(ks)
	for i := range ks {
		ks[i].DTypes = ks[i].DTypes[:1]
	}
	return ks
}

// A Plan says what to measure, and how.
type Plan struct {
	Sampler  bench.Sampler
	Check    Checker
	Kernels  []kernels.Kernel
	CPU      []kernels.Implementation // none if only the GPU is measured
	GPU      *gpu.Device              // or nil
	Goals    bool                     // measure the GPU at the sizes that its goals are about
	Sizes    Sizes
	Schemes  []scheme.Scheme // that Overheads measures in place of ActFocus, AEM and both
	Progress *cli.Progress
}

// Work of steps that differ, in the units of Progress.
const (
	checkWork    = 1 // Check of one kernel and dtype at the sizes of the main job
	measureWork  = 9
	overheadWork = 17
)

// Shapes returns what the plan measures on the CPU.
func (p Plan) Shapes() []Shape {
	if len(p.CPU) == 0 {
		return nil
	}
	return Shapes(p.Kernels, p.Sizes)
}

// Results are the results of a plan.
type Results struct {
	Results  []Result
	Failures []string // results that are wrong
}

// Run measures and checks every shape. With an error, the results are what there is by
// then.
func (p Plan) Run(ctx context.Context) (Results, error) {
	p.Progress.Expect(p.SpeedWork())
	return p.measure(ctx, true)
}

// Speed is Run without the checks: what it fails by are results of the GPU.
func (p Plan) Speed(ctx context.Context) (Results, error) { return p.measure(ctx, false) }

func (p Plan) measure(ctx context.Context, checks bool) (all Results, err error) {
	add := func(results []Result, parities []Parity) {
		all.Failures = append(all.Failures, Failures(parities)...)
		for i := range results {
			q := &results[i]
			q.MaxULP, q.MaxAbs = bench.Number(math.NaN()), bench.Number(math.NaN())
			if len(parities) > 0 {
				e := parities[i%len(parities)].Errors // the instruction sets come again for each number of workers
				q.MaxULP, q.MaxAbs = bench.Number(e.MaxULP), bench.Number(e.MaxAbs)
			}
		}
		all.Results = append(all.Results, results...)
	}
	for _, s := range p.Shapes() {
		results, err := p.onCPU(ctx, s)
		var parities []Parity
		if err == nil && checks {
			parities, err = p.Check(ctx, s.Kernel, s.DType, []int{s.CheckSize()}, p.CPU)
		}
		if add(results, parities); err != nil {
			return all, err
		}
	}
	for _, s := range p.GPUShapes() {
		p.Progress.NextOf(measureWork, "measuring %s on the GPU", s)
		results, failure, err := OnGPU(ctx, p.Sampler, p.GPU, s.Kernel, s.DType, s.Rows, s.Vocab)
		if failure != "" {
			all.Failures = append(all.Failures, failure)
		}
		var parities []Parity
		if err == nil && checks {
			parities, err = p.checkGPU(ctx, s.Kernel, s.DType, []int{s.CheckSize()})
		}
		if add(results, parities); err != nil {
			return all, err
		}
	}
	return all, nil
}

// SpeedWork is the work of Speed, for progress.
func (p Plan) SpeedWork() int {
	n := 0
	for _, s := range p.Shapes() {
		n += len(s.Workers)
	}
	n += len(p.GPUShapes())
	return measureWork * n
}

// onCPU measures a shape with every instruction set, for each number of workers.
func (p Plan) onCPU(ctx context.Context, s Shape) ([]Result, error) {
	var all []Result
	for _, n := range s.Workers {
		p.Progress.NextOf(measureWork, "measuring %s", s)
		results, err := Kernel(ctx, p.Sampler, s.Kernel, s.DType, s.Rows, s.Vocab, n, p.CPU)
		if all = append(all, results...); err != nil {
			return all, err
		}
	}
	return all, nil
}

// Parities checks every kernel with every dtype at these sizes. With an error, the
// results are what there is by then.
func (p Plan) Parities(ctx context.Context, sizes []int) ([]Parity, error) {
	var all []Parity
	for _, k := range p.Kernels {
		for _, dtype := range k.DTypes {
			p.Progress.NextOf(checkWork, "checking %s %v", k.Name, dtype)
			parities, err := p.Check(ctx, k, dtype, sizes, p.CPU)
			if err != nil {
				return all, err
			}
			all = append(all, parities...)
			if parities, err = p.checkGPU(ctx, k, dtype, sizes); err != nil {
				return all, err
			}
			all = append(all, parities...)
		}
	}
	return all, nil
}

// ParityWork is the work of Parities, for progress.
func (p Plan) ParityWork() int {
	n := 0
	for _, k := range p.Kernels {
		n += len(k.DTypes)
	}
	return checkWork * n
}

// Overheads measures training steps of every size with every instruction set,
// with and without a KL anchor: with the advantages of PPO for each true, and of
// GRPO for each false. With an error, the results are what there is by then.
func (p Plan) Overheads(ctx context.Context, ppo ...bool) ([]Overhead, error) {
	var all []Overhead
	for _, name := range p.steps() {
		for _, vocab := range p.Sizes.Vocabs {
			for _, workers := range p.Sizes.Workers {
				for _, ppo := range ppo {
					for _, kl := range [...]bool{false, true} {
						for _, some := range p.inTurn() {
							p.Progress.NextOf(overheadWork, "measuring training steps on %s, vocabulary of %s", name, humanize.Comma(int64(vocab)))
							q := Steps{Tokens: cmp.Or(p.Sizes.Rows, StepRows(vocab)), Vocab: vocab, Workers: workers, ISA: name, PPO: ppo, KL: kl, Schemes: some}
							if some != nil {
								q.Tokens = max(q.Tokens, FewestOfSchemes)
							}
							if name == machine.CUDA {
								q.GPU, q.Tokens = p.GPU, cmp.Or(p.Sizes.Rows, gpuStepRows)
							}
							o, err := Overheads(ctx, p.Sampler, q)
							if all = append(all, o...); err != nil {
								return all, err
							}
						}
					}
				}
			}
		}
	}
	return all, nil
}

// inTurn returns the schemes that are measured together, each time as many as take the
// rounds that ActFocus, AEM and both get.
func (p Plan) inTurn() [][]scheme.Scheme {
	if len(p.Schemes) == 0 {
		return [][]scheme.Scheme{nil}
	}
	return slices.Collect(slices.Chunk(p.Schemes, 3))
}

// steps returns the names of what training steps are measured on.
func (p Plan) steps() (names []string) {
	for _, impl := range p.CPU {
		names = append(names, impl.Name)
	}
	if p.GPU != nil {
		names = append(names, machine.CUDA)
	}
	return names
}

// OverheadWork is the work of Overheads with that many kinds of advantages, for
// progress.
func (p Plan) OverheadWork(advantages int) int {
	return overheadWork * 2 * advantages * len(p.inTurn()) * len(p.Sizes.Vocabs) * len(p.Sizes.Workers) * len(p.steps())
}
