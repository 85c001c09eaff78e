package gpu

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
)

// Prepare has the driver compile the kernels that these methods of a Workspace launch, for
// rows of logits of these formats, and compares each with the CPU on a few rows or tokens: any other bit is an error.
// nil stands for all of them. A method that was not
// prepared has its kernels compiled and checked when it is called first, which takes up to seconds,
// waits for the device, and cannot be done while a CUDA graph is captured, nor while other
// processes wait for this one in a collective operation.
func (d *Device) Prepare(methods []string, formats []reweight.DType) error {
	if methods == nil {
		methods = slices.AppendSeq(slices.Collect(maps.Keys(shape.KernelsOf)), maps.Keys(shape.KernelsOfRows))
	}
	var names []string
	for i, method := range methods {
		rows, onRows := shape.KernelsOfRows[method]
		others, ok := shape.KernelsOf[method]
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

// find returns the functions of a kernel, and has the driver compile it, and a check of it done, if it was not used
// before.
func (d *Device) find(name string) (both functions, err error) {
	if both, ok := d.functions[name]; ok {
		return both, nil
	}
	k := shape.Kernels[slices.IndexFunc(shape.Kernels, func(k shape.Kernel) bool { return k.Name == name })]
	if both.alone, err = d.function(k, 1); err != nil {
		return functions{}, err
	}
	if both.alone.most < 1 {
		return functions{}, fmt.Errorf("gpu: kernel %s does not fit on a multiprocessor of %s", name, d.drv.Info().Name)
	}
	if k.Team > 0 {
		if both.team, err = d.function(k, k.Team); err != nil {
			return functions{}, err
		}
	}
	if d.first != nil {
		// It works on the default stream, which is of no use while any stream is captured.
		if err := d.notCaptured(0, problem.CapturedCompiler); err != nil {
			return functions{}, err
		}
		if err := d.first(name); err != nil {
			return functions{}, err
		}
	}
	d.functions[name] = both
	return both, nil
}

// function finds a kernel whose CTAs have so many times its threads and shared memory.
func (d *Device) function(k shape.Kernel, times int) (function, error) {
	f := function{threads: times * k.Threads, shared: times * k.Shared}
	found, fit, err := d.drv.Function(k.Name, f.threads, f.shared)
	if err != nil {
		return function{}, fmt.Errorf("gpu: kernel %s: %w", k.Name, err)
	}
	f.Function, f.most = found, fit*d.drv.Info().Multiprocessors
	return f, nil
}
