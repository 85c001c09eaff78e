package gpu

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// kernels has every kernel.
var kernels = slices.Concat(
	named(statsKernels, 2*rowBuffer+2*rowSums+rowMisfit),
	named(squaresKernels, 2*rowBuffer+3*rowSums+rowMisfit),
	named(gradientKernels, rowBuffer+2*rowSums+rowMisfit),
	[]kernel{
		{name: "read_memory", threads: memoryCTA},
		{name: "copy_memory", threads: memoryCTA},

		{name: "multiply", threads: passThreads},
		{name: "masked_moments", threads: chainThreads},
		{name: "actfocus_spread", threads: chainThreads},
		{name: "actfocus_weights", threads: passThreads},
		{name: "whiten_spread", threads: chainThreads},
		{name: "whiten", threads: passThreads},
		{name: "surrogate", threads: groupThreads},
		{name: "surrogate_total", threads: 32},
		{name: "loss_check", threads: groupThreads},
		{name: "loss_weights", threads: chainThreads},
		{name: "loss_tokens", threads: groupThreads},
		{name: "loss_segments", threads: segmentThreads},
		{name: "loss_total", threads: 256},

		{name: "span_means", threads: spanThreads},
		{name: "min_max", threads: spanThreads},
		{name: "exp_scale", threads: 128},
		{name: "check_layout", threads: 256},
		{name: "aem_tops", threads: spanThreads},
		{name: "aem_spans", threads: spanThreads},
		{name: "aem_sort", threads: spanThreads},
		{name: "aem_scopes", threads: 128},
		{name: "aem_factors", threads: 256},
		{name: "grpo_scores", threads: spanThreads},
		{name: "grpo_advantages", threads: 256},
		{name: "gae", threads: spanThreads},
	})

// kernelsOf has the kernels that the methods of a Workspace launch, but for those on rows
// of logits, which kernelsOfRows has.
var kernelsOf = map[string][]string{
	"ActFocus":        {"actfocus_spread", "actfocus_weights"},
	"ActFocusWeights": {"actfocus_weights"},
	"AEM":             {"check_layout", "aem_tops", "aem_spans", "aem_sort", "aem_scopes", "aem_factors"},
	"CopyMemory":      {"copy_memory"},
	"ExpScale":        {"exp_scale"},
	"GAE":             {"check_layout", "gae"},
	"GRPO":            {"check_layout", "grpo_scores", "grpo_advantages"},
	"Loss":            {"loss_check", "loss_weights", "loss_tokens", "loss_segments", "loss_total"},
	"MaskedMoments":   {"masked_moments"},
	"MinMax":          {"min_max"},
	"Multiply":        {"multiply"},
	"ReadMemory":      {"read_memory"},
	"SpanMeans":       {"span_means"},
	"Surrogate":       {"surrogate", "surrogate_total"},
	"Whiten":          {"whiten_spread", "whiten"},
}

// kernelsOfRows has for each DType the kernels at temperature 1 and at any other, one pair
// after another.
var kernelsOfRows = map[string][][]string{
	"TokenStats":  pairs(statsKernels, squaresKernels),
	"RowGradient": pairs(gradientKernels),
}

// pairs joins lists of pairs, one for each DType.
func pairs(lists ...[][2]string) [][]string {
	all := make([][]string, len(lists[0]))
	for _, list := range lists {
		for dtype, pair := range list {
			all[dtype] = append(all[dtype], pair[:]...)
		}
	}
	return all
}

// Prepare has the driver compile the kernels that these methods of a Workspace launch, for
// rows of logits of these formats. nil stands for all of them. A method that was not
// prepared has its kernels compiled when it is called first, which takes up to seconds,
// waits for the device, and cannot be done while a CUDA graph is captured, nor while other
// processes wait for this one in a collective operation.
func (d *Device) Prepare(methods []string, formats []reweight.DType) error {
	if methods == nil {
		methods = slices.AppendSeq(slices.Collect(maps.Keys(kernelsOf)), maps.Keys(kernelsOfRows))
	}
	var names []string
	for i, method := range methods {
		rows, onRows := kernelsOfRows[method]
		others, ok := kernelsOf[method]
		if !ok && !onRows {
			return &reweight.InputError{Arg: "methods", Index: i, Problem: problem.NoMethod.Says(method)}
		}
		names = append(names, others...)
		for dtype, list := range rows {
			if formats == nil || slices.Contains(formats, reweight.DType(dtype)) {
				names = append(names, list...)
			}
		}
	}
	for i, dtype := range formats {
		if dtype > reweight.DTypeF16 {
			return &reweight.InputError{Arg: "formats", Index: i, Problem: problem.NoFormat.Says(dtype)}
		}
	}
	for _, name := range names {
		if _, err := d.find(name); err != nil {
			return err
		}
	}
	return nil
}

// find returns the functions of a kernel, and has the driver compile it if it was not used
// before.
func (d *Device) find(name string) (both functions, err error) {
	if both, ok := d.functions[name]; ok {
		return both, nil
	}
	k := kernels[slices.IndexFunc(kernels, func(k kernel) bool { return k.name == name })]
	if both.alone, err = d.function(k, 1); err != nil {
		return functions{}, err
	}
	if both.alone.most < 1 {
		return functions{}, fmt.Errorf("gpu: kernel %s does not fit on a multiprocessor of %s", name, d.drv.Info().Name)
	}
	if k.team > 0 {
		if both.team, err = d.function(k, k.team); err != nil {
			return functions{}, err
		}
	}
	d.functions[name] = both
	return both, nil
}

// function finds a kernel whose CTAs have so many times its threads and shared memory.
func (d *Device) function(k kernel, times int) (function, error) {
	f := function{threads: times * k.threads, shared: times * k.shared}
	found, fit, err := d.drv.Function(k.name, f.threads, f.shared)
	if err != nil {
		return function{}, fmt.Errorf("gpu: kernel %s: %w", k.name, err)
	}
	f.Function, f.most = found, fit*d.drv.Info().Multiprocessors
	return f, nil
}
