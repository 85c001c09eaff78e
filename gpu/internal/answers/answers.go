// Package answers compares the kernels of a GPU with the CPU before anybody trusts them: each of them when it is used
// first, on a few rows and tokens that are hard. A wrong kernel is no matter of this library's code, which is tested,
// but of the driver that compiled it, of the GPU, or of its memory.
package answers

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/shape"
)

// A Checker compares the kernels of a device with the CPU.
type Checker struct {
	info    gpu.Info
	devices []*gpu.Device    // the device, and the device without teams of warps
	found   map[string]error // what came out, by the kernel, or the method that launches it
}

// New returns a Checker for the device behind a driver.
func New(drv driver.Driver) *Checker {
	return &Checker{drv.Info(), []*gpu.Device{gpu.NewDevice(drv, nil), gpu.NewDevice(alone{drv}, nil)},
		map[string]error{}}
}

// alone is a driver on whose device no team of warps fits, so that each warp has rows of its own, as it has where there
// are many rows.
type alone struct{ driver.Driver }

// Function finds a kernel, and says that no CTA of it fits if it is one of a team.
func (d alone) Function(name string, threads, shared int) (driver.Function, int, error) {
	f, fit, err := d.Driver.Function(name, threads, shared)
	if k := shape.Kernels[slices.IndexFunc(shape.Kernels,
		func(k shape.Kernel) bool { return k.Name == name })]; threads > k.Threads {
		fit = 0
	}
	return f, fit, err
}

// Check compares what a kernel computes with the CPU, alone or with the others that its method launches. It waits for
// the device, and does so once.
func (c *Checker) Check(kernel string) error {
	what, call, onRows := answerOf(kernel)
	if call == nil {
		return nil
	}
	err, done := c.found[what]
	if !done {
		err = c.check(what, call, onRows)
		c.found[what] = err
	}
	return err
}

// answerOf returns what is checked when a kernel is used first, by which call, and whether the kernel is one on rows,
// which teams of warps and single warps run. The call is nil if nothing comes of the kernel.
func answerOf(kernel string) (what string, call answer, onRows bool) {
	if call, is := rowAnswer(kernel); is {
		return "kernel " + kernel, call, true
	}
	fewest := 0
	for method, c := range methods { // of several methods, the one with the fewest kernels
		of := shape.KernelsOf[method]
		if kernel != "check_layout" && slices.Contains(of, kernel) && (fewest == 0 || len(of) < fewest) {
			what, call, fewest = "kernel "+strings.Join(of, " or "), c, len(of)
		}
	}
	return what, call, false
}

func (c *Checker) check(what string, call answer, onRows bool) error {
	want, err := call(cpu())
	if err != nil {
		return fmt.Errorf("gpu: the check of %s: %w", what, err)
	}
	for i, dev := range c.devices {
		if i > 0 && !onRows {
			break
		}
		got, err := onDevice(dev, call)
		wrong := ""
		switch input, is := errors.AsType[*reweight.InputError](err); {
		case is: // what is right has been called wrong
			wrong = input.Error()
		case err != nil:
			return fmt.Errorf("gpu: the check of %s: %w", what, err)
		default:
			wrong = differ(got, want)
		}
		if wrong != "" {
			return fmt.Errorf("gpu: %s is wrong on %s with its driver for CUDA %d.%d: %s. With the environment variable "+
				"REWEIGHT_GPU=off no GPU is used; with REWEIGHT_GPU=unchecked it is used without this check",
				what, c.info.Name, c.info.Driver[0], c.info.Driver[1], wrong)
		}
	}
	return nil
}

// differ says which results differ in a bit, or nothing. Every NaN counts as one.
func differ(got, want []result) string {
	var wrong []string
	for i, w := range want {
		n, at := 0, -1
		for j, x := range w.x {
			if y := got[i].x[j]; math.Float64bits(x) != math.Float64bits(y) && (x == x || y == y) {
				if n++; at < 0 {
					at = j
				}
			}
		}
		if n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d of %d numbers of %s differ from the CPU's, element %d is %v (%[5]x), want %v (%[6]x)",
				n, len(w.x), w.name, at, got[i].x[at], w.x[at]))
		}
	}
	return strings.Join(wrong, "; ")
}
