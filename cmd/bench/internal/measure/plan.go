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
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/cli"
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
				shapes = append(shapes, Shape{k, dtype, cmp.Or(sizes.Rows,
					RowsToStream(dtype, vocab, cmp.Or(sizes.Stream, StreamBytes))), vocab, sizes.Workers})
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

// Tasks are measurements and checks, which are done one after another.
type Tasks []task

type task struct {
	work int // in units that take about the same time each
	what string
	do   func(ctx context.Context) error
}

// Work of tasks that differ.
const (
	checkWork    = 1 // Check of one kernel and dtype at the sizes of the main job
	measureWork  = 9
	overheadWork = 17
)

// Do does the tasks until one has an error, which it returns.
func (all Tasks) Do(ctx context.Context, p *cli.Progress) error {
	work := 0
	for _, t := range all {
		work += t.work
	}
	p.Expect(work)
	for _, t := range all {
		p.NextOf(t.work, "%s", t.what)
		if err := t.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

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

// add adds results, and what their checks have found, if there were any.
func (r *Results) add(results []Result, parities []Parity) {
	for i := range results {
		q := &results[i]
		q.MaxULP, q.MaxAbs = bench.Number(math.NaN()), bench.Number(math.NaN())
		if len(parities) > 0 {
			q.MaxULP, q.MaxAbs = bench.Number(parities[i].Errors.MaxULP), bench.Number(parities[i].Errors.MaxAbs)
		}
	}
	r.Results = append(r.Results, results...)
}

// Run measures and checks every shape. With an error, the results are what there is by
// then.
func (p Plan) Run(ctx context.Context) (r Results, err error) {
	err = p.Speed(&r, true).Do(ctx, p.Progress)
	return r, err
}

// Speed returns the tasks that measure every shape, and with checks compare its results with the
// reference. Without, what fails are results of the GPU.
func (p Plan) Speed(to *Results, checks bool) (all Tasks) {
	for _, s := range p.Shapes() {
		var parities []Parity // of the first number of workers
		for _, n := range s.Workers {
			all = append(all, task{measureWork, "measuring " + s.String(), func(ctx context.Context) error {
				results, err := Kernel(ctx, p.Sampler, s.Kernel, s.DType, s.Rows, s.Vocab, n, p.CPU)
				if err == nil && checks && parities == nil {
					parities, err = p.Check(ctx, s.Kernel, s.DType, []int{s.CheckSize()}, p.CPU)
					to.Failures = append(to.Failures, Failures(parities)...)
				}
				to.add(results, parities)
				return err
			}})
		}
	}
	for _, s := range p.GPUShapes() {
		all = append(all, task{measureWork, "measuring " + s.String() + " on the GPU", func(ctx context.Context) error {
			results, failure, err := OnGPU(ctx, p.Sampler, p.GPU, s.Kernel, s.DType, s.Rows, s.Vocab)
			if failure != "" {
				to.Failures = append(to.Failures, failure)
			}
			var parities []Parity
			if err == nil && checks {
				parities, err = p.checkGPU(ctx, s.Kernel, s.DType, []int{s.CheckSize()})
				to.Failures = append(to.Failures, Failures(parities)...)
			}
			to.add(results, parities)
			return err
		}})
	}
	return all
}

// Parities returns the tasks that check every kernel with every dtype at these sizes.
func (p Plan) Parities(to *[]Parity, sizes []int) (all Tasks) {
	for _, k := range p.Kernels {
		for _, dtype := range k.DTypes {
			all = append(all, task{checkWork, fmt.Sprintf("checking %s %v", k.Name, dtype),
				func(ctx context.Context) error {
					onCPU, err := p.Check(ctx, k, dtype, sizes, p.CPU)
					*to = append(*to, onCPU...)
					if err != nil {
						return err
					}
					onGPU, err := p.checkGPU(ctx, k, dtype, sizes)
					*to = append(*to, onGPU...)
					return err
				}})
		}
	}
	return all
}

// Overheads returns the tasks that measure training steps of every size with every instruction
// set, with and without a KL anchor: with the advantages of PPO for each true, and of GRPO for
// each false.
func (p Plan) Overheads(to *[]Overhead, ppo ...bool) (all Tasks) {
	var names []string
	for _, impl := range p.CPU {
		names = append(names, impl.Name)
	}
	if p.GPU != nil {
		names = append(names, machine.CUDA)
	}
	inTurn := slices.Collect(slices.Chunk(p.Schemes, 3)) // as many as ActFocus, AEM and both
	if inTurn == nil {
		inTurn = [][]scheme.Scheme{nil}
	}
	add := func(q Steps) {
		q.Tokens = cmp.Or(p.Sizes.Rows, StepRows(q.Vocab))
		if q.Schemes != nil {
			q.Tokens = max(q.Tokens, FewestOfSchemes)
		}
		if q.ISA == machine.CUDA {
			q.GPU, q.Tokens = p.GPU, cmp.Or(p.Sizes.Rows, gpuStepRows)
		}
		what := fmt.Sprintf("measuring training steps on %s, vocabulary of %s", q.ISA, humanize.Comma(int64(q.Vocab)))
		all = append(all, task{overheadWork, what, func(ctx context.Context) error {
			o, err := Overheads(ctx, p.Sampler, q)
			*to = append(*to, o...)
			return err
		}})
	}
	for _, name := range names {
		for _, vocab := range p.Sizes.Vocabs {
			for _, workers := range p.Sizes.Workers {
				for _, ppo := range ppo {
					for _, kl := range [...]bool{false, true} {
						for _, some := range inTurn {
							add(Steps{Vocab: vocab, Workers: workers, ISA: name, PPO: ppo, KL: kl, Schemes: some})
						}
					}
				}
			}
		}
	}
	return all
}
