package answers

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/gpu/internal/ptx"
	"github.com/seed621a2839/reweight/internal/shape"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A counting driver is the interpreter, and counts what a real driver would take time for.
type counting struct {
	*ptx.Device
	launches, copies, bytes, allocations int
}

func (d *counting) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr,
	s driver.Stream) error {
	d.launches++
	return d.Device.Launch(f, grid, threads, shared, params, size, s)
}

func (d *counting) Upload(dst driver.Ptr, src []byte, s driver.Stream) error {
	d.copies, d.bytes = d.copies+1, d.bytes+len(src)
	return d.Device.Upload(dst, src, s)
}

func (d *counting) Download(dst []byte, src driver.Ptr, s driver.Stream) error {
	d.copies, d.bytes = d.copies+1, d.bytes+len(dst)
	return d.Device.Download(dst, src, s)
}

func (d *counting) Alloc(bytes int) (driver.Ptr, error) {
	d.allocations++
	return d.Device.Alloc(bytes)
}

func interpreter(t *testing.T, modules map[string]string) *counting {
	t.Helper()
	if strconv.IntSize != 64 || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 { // testgpu.Supported, which imports this
		t.Skip("no GPU works with a machine like this one")
	}
	return &counting{Device: must.Get(ptx.Open(modules, ptx.Options{Seed: 1, Steps: 1 << 28}))}
}

// without are the kernels of which nothing comes alone.
var without = []string{"read_memory", "copy_memory", "check_layout"}

// TestRight: right kernels pass, each is run by its call, and nothing of the device's memory is kept.
func TestRight(t *testing.T) {
	drv := interpreter(t, must.Get(device.PTX()))
	c, seen := New(drv), map[string]bool{}
	for _, k := range shape.Kernels {
		before, steps := *drv, drv.Steps()
		what, call, _ := answerOf(k.Name)
		must.Do(c.Check(k.Name))
		if ran := drv.launches > before.launches; ran != (call != nil && !seen[what]) ||
			(call == nil) != slices.Contains(without, k.Name) {
			t.Errorf("%s: %d launches", k.Name, drv.launches-before.launches)
		}
		seen[what] = true
		t.Logf("%-32s %3d launches, %3d copies of %7d bytes, %3d allocations, %9d instructions of lanes", k.Name,
			drv.launches-before.launches, drv.copies-before.copies, drv.bytes-before.bytes,
			drv.allocations-before.allocations, drv.Steps()-steps)
	}
	t.Logf("all: %d launches, %d copies of %d bytes, %d allocations, %d instructions of lanes", drv.launches, drv.copies,
		drv.bytes, drv.allocations, drv.Steps())
	must.Do(drv.Close()) // which says what was not given back
}

var planted = flag.Int("plants", 1, "how many wrong instructions TestPlanted tries in each kernel, or more until one is caught")

// swaps are what a wrong driver might make of an instruction.
var swaps = [][2]string{{"add.rn.f32", "sub.rn.f32"}, {"add.rn.f64", "sub.rn.f64"}, {"mul.rn.f32", "add.rn.f32"},
	{"mul.rn.f64", "add.rn.f64"}, {"max.f32", "min.f32"}, {"max.u32", "min.u32"}, {"max.NaN.f32", "max.f32"}, {"setp.lt.f32", "setp.gt.f32"},
	{"setp.gt.f32", "setp.lt.f32"}, {"setp.eq", "setp.ne"}, {"setp.lt.f64", "setp.gt.f64"}, {"fma.rn.f32", "mul.rn.f32"},
	{"div.rn.f64", "mul.rn.f64"},
	{"add.s64", "sub.s64"}, {"add.s32", "sub.s32"}}

// body returns where the text of a kernel begins and ends in its module.
func body(module, kernel string) (from, to int) {
	from = strings.Index(module, ".entry "+kernel+"(")
	return from, from + strings.Index(module[from:], "\n}")
}

// A plant is a line of a kernel's text, and what stands there instead.
type plant struct {
	line       int
	is, change string
}

// plants returns what can be planted in the lines of a kernel, in any order.
func plants(lines []string) (all []plant) {
	for i, line := range lines {
		for _, swap := range swaps {
			if is := strings.Replace(line, "\t"+swap[0], "\t"+swap[1], 1); is != line {
				if swap[0][:3] == "fma" { // the product alone
					is = is[:strings.LastIndex(is, ",")] + ";\n"
				}
				all = append(all, plant{i, is, strings.TrimSpace(line) + " as " + swap[1]})
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// TestPlanted: in every kernel that has a result, an instruction is another one at a time. One at least must be caught
// in each, by an error that says all that its reader needs. The test prints how many are, and which are not: many of
// those are on ways that only an error or a lost bit of a float64 takes.
func TestPlanted(t *testing.T) {
	modules := must.Get(device.PTX())
	all, caught := 0, 0
	for _, k := range shape.Kernels {
		what, call, _ := answerOf(k.Name)
		if call == nil || testing.Short() && (strings.Contains(k.Name, "16") || strings.Contains(k.Name, "tempered")) {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			first := ""
			text := modules[k.Module]
			from, to := body(text, k.Name)
			lines := strings.SplitAfter(text[from:to], "\n")
			for i, p := range plants(lines) {
				if i >= *planted && first != "" {
					break
				}
				all++
				wrong := slices.Clone(lines)
				wrong[p.line] = p.is
				with := map[string]string{k.Module: text[:from] + strings.Join(wrong, "") + text[to:]}
				for _, of := range shape.Kernels { // the method's other kernels
					if _, needed := with[of.Module]; !needed && strings.Contains(what, of.Name) {
						with[of.Module] = modules[of.Module]
					}
				}
				err := New(interpreter(t, with)).Check(k.Name)
				if err == nil {
					t.Logf("not caught: %s", p.change)
					continue
				}
				caught++
				if strings.Contains(err.Error(), "is wrong on") {
					first = err.Error()
				}
			}
			for _, want := range []string{k.Name, "is wrong on PTX interpreter with its driver for CUDA 11.0: ",
				"REWEIGHT_GPU=off", "REWEIGHT_GPU=unchecked"} {
				if !strings.Contains(first, want) {
					t.Errorf("no error has %q: %s", want, first)
				}
			}
		})
	}
	t.Logf("%d of %d are caught", caught, all)
}

// TestFirstUse: a wrong kernel is an error of the call that uses it first, of every one after it, and of Prepare; other
// kernels are used.
func TestFirstUse(t *testing.T) {
	modules := must.Get(device.PTX())
	text := modules["spans"]
	from, to := body(text, "span_means")
	modules["spans"] = text[:from] + strings.Replace(text[from:to], "\tadd.rn.f64", "\tsub.rn.f64", 1) + text[to:]
	drv := interpreter(t, modules)
	dev := gpu.NewDevice(drv, New(drv).Check)
	ws := must.Get(dev.NewWorkspace(0, gpu.Size{}))
	p := must.Get(dev.Alloc(4096))
	must.Do(gpu.Upload(dev, p, make([]float32, 1024), 0))
	for range 2 {
		if err := ws.SpanMeans(p, p+256, p+512, 2, 20); err == nil ||
			!strings.Contains(err.Error(), "kernel span_means is wrong") {
			t.Fatalf("error %v", err)
		}
		if err := dev.Prepare([]string{"SpanMeans"}, nil); err == nil ||
			!strings.Contains(err.Error(), "kernel span_means is wrong") {
			t.Fatalf("error %v", err)
		}
	}
	must.Do(ws.MinMax(p, p+256, p+512, p+1024, 2, 20))
	launches := drv.launches
	must.Do(ws.MinMax(p, p+256, p+512, p+1024, 2, 20))
	if drv.launches != launches+1 {
		t.Errorf("the second call launches %d kernels", drv.launches-launches)
	}
	must.Do(ws.Check())
	must.Do(ws.Close())
	must.Do(dev.Free(p))
	must.Do(drv.Close())
}

// BenchmarkCPU is what the checks cost on the CPU: drawing the arrays and computing on them there.
func BenchmarkCPU(b *testing.B) {
	for _, kernel := range []string{"token_stats_bf16", "row_gradient_bf16", "loss_check", "aem_tops",
		"actfocus_spread"} {
		b.Run(kernel, func(b *testing.B) {
			_, call, _ := answerOf(kernel)
			for b.Loop() {
				must.Get(call(cpu()))
			}
		})
	}
}
