package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/cuda"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/kernels"
)

// withGPU returns a function that opens a GPU, or the interpreter.
func withGPU(t *testing.T) func() (*gpu.Device, error) {
	return func() (*gpu.Device, error) { return testgpu.Device(t), nil }
}

// noGPU returns a function that opens none, for that reason.
func noGPU(reason string) func() (*gpu.Device, error) {
	return func() (*gpu.Device, error) { return nil, errors.New(reason) }
}

// reasons are those for which no GPU is used.
var reasons = []string{
	"there is no driver: libcuda.so.1: cannot open shared object file: No such file or directory",
	"the driver finds no device",
	"the driver is for CUDA 10.2, want 11.0 or newer",
	"device 0, Tesla V100-SXM2-16GB, has compute capability 7.0, want 8.0 or newer",
	"this program for linux/amd64 is built without CUDA, which takes linux/amd64 or linux/arm64 and no build tag nogpu",
	"cuda: cuInit failed with CUDA_ERROR_UNKNOWN (999): unknown error",
}

// TestInfoGPU: one line says what GPU there is, or why none is used, and nothing about
// a GPU makes info fail.
func TestInfoGPU(t *testing.T) {
	line := func(open func() (*gpu.Device, error)) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), []string{"info"}, &stdout, &stderr, open); status != 0 || stderr.Len() > 0 {
			t.Fatalf("status %d, %s", status, stderr.String())
		}
		for line := range strings.Lines(stdout.String()) {
			if text, ok := strings.CutPrefix(line, "GPU "); ok {
				return strings.TrimSpace(text)
			}
		}
		t.Fatalf("no line about the GPU in\n%s", stdout.String())
		return ""
	}
	for _, reason := range reasons {
		if got, want := line(noGPU(reason)), "none is used: "+reason; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	dev := testgpu.Device(t)
	got := line(func() (*gpu.Device, error) { return dev, nil })
	for _, want := range []string{dev.Info().Name + ", compute capability ", " multiprocessors, ",
		"iB, driver for CUDA "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := line(noGPU("two\nlines \x1b[31m")); strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%q", got)
	}
}

// TestInfoChecksGPU: info says whether the kernels of the GPU are right; a wrong one is status 1.
func TestInfoChecksGPU(t *testing.T) {
	for _, right := range []bool{true, false} {
		var stdout, stderr bytes.Buffer
		open := func() (*gpu.Device, error) { return testgpu.Checked(t, right), nil }
		status, want := run(t.Context(), []string{"info"}, &stdout, &stderr, open), "right: on hard rows"
		if !right {
			want = "WRONG: gpu: kernel span_means is wrong on PTX interpreter with its driver for CUDA 11.0: "
		}
		if (status == 0) != right || !strings.Contains(stdout.String(), want) ||
			right != (stderr.Len() == 0) || strings.Count(stderr.String(), "\n") > 1 {
			t.Errorf("status %d, %s%s", status, &stdout, &stderr)
		}
	}
}

// TestOpenGPU: the error is the reason alone, where there is no GPU to use.
func TestOpenGPU(t *testing.T) {
	var none *cuda.UnavailableError
	if _, err := cuda.Open(0); errors.As(err, &none) {
		if _, err := openGPU(); err == nil || err.Error() != none.Reason {
			t.Errorf("error %v, want %s", err, none.Reason)
		}
	}
	t.Setenv("REWEIGHT_LIBCUDA", filepath.Join(t.TempDir(), "none.so"))
	if dev, err := openGPU(); err == nil || dev != nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, %v", dev, err)
	}
}

// TestNoGPU: who asks for a GPU where none can be used gets one line, and status 2.
func TestNoGPU(t *testing.T) {
	for _, reason := range reasons {
		for _, command := range []string{"run", "overhead"} {
			for _, list := range []string{"cuda", "portable,cuda"} {
				var stdout, stderr bytes.Buffer
				status := run(t.Context(), append(strings.Fields(command), "-isa", list), &stdout, &stderr,
					noGPU(reason))
				if m := stderr.String(); status != 2 || strings.Count(m, "\n") != 1 ||
					!strings.Contains(m, `-isa has "cuda", and no GPU can be used: `+reason) || stdout.Len() > 0 {
					t.Errorf("bench %s -isa %s: status %d, %q, %q", command, list, status, m, stdout.String())
				}
			}
		}
	}
}

// TestWorkersOnGPU: workers are those of a CPU, and an error where there is only a GPU.
func TestWorkersOnGPU(t *testing.T) {
	const want = "-workers means nothing to -isa cuda: they share rows on the CPU"
	args := []string{"-isa", "cuda", "-workers", "2"}
	if _, err := runOnGPU(t, args...); err == nil || err.Error() != want {
		t.Errorf("run: %v", err)
	}
	g := withGPU(t)
	if err := overheadCommand(t.Context(), args, io.Discard, &cli.Progress{}, quick, g); err == nil ||
		err.Error() != want {
		t.Errorf("overhead: %v", err)
	}
}

// TestRunAsksForNoGPU: the GPU is left alone where the list has no cuda.
func TestRunAsksForNoGPU(t *testing.T) {
	asked := false
	g := func() (*gpu.Device, error) { asked = true; return nil, errors.New("none") }
	var out bytes.Buffer
	if err := runCommand(t.Context(), append(slices.Clone(little), "-isa", "portable"), &out, &cli.Progress{}, quick,
		g); err != nil || asked || strings.Contains(out.String(), "GPU") {
		t.Errorf("%v, %v\n%s", asked, err, out.String())
	}
	if err := overheadQuickly(t.Context(), io.Discard, "-isa", "portable"); err != nil {
		t.Error(err)
	}
	// By default it is looked for, and a line says why there is none.
	out.Reset()
	if err := runCommand(t.Context(), little, &out, &cli.Progress{}, quick, g); err != nil || !asked ||
		!strings.Contains(out.String(), "\nGPU           none is used: none\n") {
		t.Errorf("%v, %v\n%s", asked, err, out.String())
	}
}

func runOnGPU(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := runCommand(t.Context(), append([]string{"-rows", "4"}, args...), &out, &cli.Progress{}, quick, withGPU(t))
	return out.String(), err
}

// TestRunGPU measures kernels on a GPU, alone and beside the CPU, in every format.
func TestRunGPU(t *testing.T) {
	text := must.Get(runOnGPU(t, "-kernel", "token_stats,row_gradient,surrogate", "-vocab", "70", "-isa", "cuda",
		"-format", "json"))
	var r report.Report
	decode(t, []byte(text), &r)
	if r.Machine.GPU == nil || r.Machine.GPU.Name == "" || len(r.Results) != 3+2+1 || len(r.Failures) > 0 {
		t.Errorf("%+v", r)
	}
	for _, q := range r.Results {
		if q.ISA != "cuda" || q.CopyShare == nil || !(q.CopyGBPerS > 0) || !(q.Share.Median > 0) ||
			q.MaxULP != q.MaxULP || q.MaxAbs != q.MaxAbs || q.RowsWanted != 0 {
			t.Errorf("%+v", q)
		}
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-isa", "cuda"}, []string{"\nGPU ", "of copy", "\nmultiply  f32   cuda ", "  device  "}},
		{nil, []string{"\nmultiply  f32   portable ", "\nmultiply  f32   cuda ", "of copy"}},
	} {
		text := must.Get(runOnGPU(t, append(c.args, "-kernel", "multiply")...))
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, text)
			}
		}
	}
}

// wrongOnGPU is a check that finds multiply wrong on the GPU.
func wrongOnGPU(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
	impls []kernels.Implementation) ([]measure.Parity, error) {
	parities, err := measure.Check(ctx, k, dtype, sizes[:1], impls)
	for i := range parities {
		if k.Name == "multiply" && impls[i].Name == machine.CUDA {
			parities[i].Failure = "multiply f32 on cuda: planted"
		}
	}
	return parities, err
}

// TestMainJobGPU: the main job has the GPU's parity and speed, and says what is wrong.
func TestMainJobGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes long")
	}
	job := func() job {
		j := quickJob()
		j.gpu = withGPU(t)
		j.sizes = []int{20}
		j.speed.Sizes.Vocabs, j.speed.Sizes.Rows = []int{20}, 2
		return j
	}
	var out bytes.Buffer
	must.Do(mainCommand(t.Context(), nil, &out, job()))
	for _, want := range []string{" and " + testgpu.Device(t).Info().Name + ". This takes", " and cuda.\n",
		"\nGPU:   token_stats on ", "% of a plain copy on it, 2 x 20.\n", "of copy"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(line)); n > 101 && !strings.HasPrefix(line, "GPU:") && !strings.HasPrefix(line, "Right:") &&
			!strings.Contains(line, "This takes") {
			t.Errorf("%d columns: %s", n-1, line)
		}
	}
	j := job()
	j.checks.Check, j.speed.Kernels = wrongOnGPU, j.speed.Kernels[:1]
	out.Reset()
	err := mainCommand(t.Context(), nil, &out, j)
	if status := cli.ExitStatus("", err, io.Discard); status != 1 ||
		!strings.Contains(out.String(), "Right: NO. Some results are WRONG:\nmultiply f32 on cuda: planted\n") {
		t.Errorf("status %d, %v\n%s", status, err, out.String())
	}
	j = quickJob() // without a GPU it is the same, and a line says why
	j.gpu = noGPU(reasons[1])
	out.Reset()
	if err := mainCommand(t.Context(), nil, &out, j); err != nil ||
		!strings.Contains(out.String(), "\nGPU:   none is used: "+reasons[1]+"\n") ||
		strings.Contains(out.String(), "of copy") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestOverheadGPU measures training steps on a GPU beside those on the CPU.
func TestOverheadGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes long")
	}
	var out bytes.Buffer
	must.Do(overheadCommand(t.Context(), []string{"-rows", "4", "-vocab", "9", "-isa", "portable,cuda"}, &out,
		&cli.Progress{}, quick, withGPU(t)))
	for _, want := range []string{"Cost: ActFocus and AEM with a KL anchor: ",
		"ActFocus and AEM on the GPU with a KL anchor: ", "\nGPU ", "  cuda  "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "  cuda  "); n != 12 {
		t.Errorf("%d steps on the GPU in\n%s", n, out.String())
	}
}
