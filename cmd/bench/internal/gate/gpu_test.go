package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/gputest"
	"github.com/seed621a2839/reweight/kernels"
)

func withGPU(t *testing.T) *cli.GPU {
	return &cli.GPU{Open: func() (*gpu.Device, error) { return gputest.Device(t), nil }}
}

// TestGateComparesGPUs: the GPU is one more implementation where both builds can use it. If
// nobody asked for it, a note says why it is not, and else an error.
func TestGateComparesGPUs(t *testing.T) {
	const without, with = "token_stats f32 pass, token_stats bf16 pass, multiply f32 pass", ", token_stats f32 pass, token_stats bf16 pass, multiply f32 pass"
	for _, c := range []struct {
		base, now, want, note, err string
	}{
		{"gpu", "gpu", without + with, "", ""},
		{"good", "gpu", without, "cuda is not compared: the bench of good: it has no kernels for a GPU", "the bench of good: it has no kernels for a GPU"},
		{"gpu", "blind", without, "cuda is not compared: the bench of blind: the driver finds no device", "the bench of blind: the driver finds no device"},
	} {
		g := gate{Options: Options{Progress: &cli.Progress{}}}
		g.report.Machine.GPU = &cli.Graphics{}
		if err := compareWith(t, t.Context(), &g, c.base, c.now); err != nil || verdicts(g.report) != c.want || !strings.Contains(strings.Join(g.report.remarks(), "\n"), c.note) {
			t.Errorf("%s to %s: %v, %s, %v", c.base, c.now, err, verdicts(g.report), g.report.Notes)
		}
		for i, q := range g.report.Results {
			if (q.ISA == cli.CUDA) != (i >= 3) {
				t.Errorf("%+v", q)
			}
		}
		g = gate{Options: Options{Progress: &cli.Progress{}, ISAs: &cli.Choice{GPU: new(gpu.Device)}}}
		err := compareWith(t, t.Context(), &g, c.base, c.now)
		if c.err == "" && (err != nil || len(g.report.Results) != 3) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s to %s, asked for: %v, %s", c.base, c.now, err, verdicts(g.report))
		}
	}
	g := gate{Options: Options{Progress: &cli.Progress{}}}
	g.report.Machine.NoGPU = "there is no driver"
	if err := compareWith(t, t.Context(), &g, "gpu", "gpu"); err != nil || verdicts(g.report) != without || !slices.Contains(g.report.Notes, "No GPU: there is no driver") {
		t.Errorf("%v, %s, %v", err, verdicts(g.report), g.report.Notes)
	}
}

// TestWorkerOnGPU: the worker checks, counts and times kernels on the GPU.
func TestWorkerOnGPU(t *testing.T) {
	requests := []request{
		{Do: "check", Kernel: "multiply", DType: "f32", ISA: cli.CUDA, Rows: 40},
		{Do: "check", Kernel: "token_stats_lse", DType: "bf16", ISA: cli.CUDA, Rows: 4, Vocab: 33},
		{Do: "count", Kernel: "multiply", DType: "f32", ISA: cli.CUDA, Rows: 40, Block: time.Microsecond},
		{Do: "time", Kernel: "multiply", DType: "f32", ISA: cli.CUDA, Rows: 40, Calls: 1, Blocks: 2},
		{Do: "time", Kernel: "token_stats", DType: "f32", ISA: cli.CUDA, Rows: 0, Vocab: 4, Calls: 1, Blocks: 2},
	}
	ask := func(args []string, g *cli.GPU) (hello greeting, answers []answer) {
		t.Helper()
		var in, out bytes.Buffer
		for _, q := range requests {
			if err := json.NewEncoder(&in).Encode(q); err != nil {
				t.Fatal(err)
			}
		}
		if err := Worker(args, &in, &out, g); err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(&out)
		if err := d.Decode(&hello); err != nil {
			t.Fatal(err)
		}
		for {
			var a answer
			if err := d.Decode(&a); errors.Is(err, io.EOF) {
				return hello, answers
			} else if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
	}
	hello, a := ask([]string{cli.CUDA}, withGPU(t))
	if !slices.Contains(hello.ISAs, cli.CUDA) || hello.NoGPU != "" || hello.check() != nil || len(a) != len(requests) {
		t.Fatalf("%+v, %+v", hello, a)
	}
	if a[0].Failure+a[0].Error != "" || a[1].Failure+a[1].Error != "" || a[2].Calls < 1 || len(a[3].Ns) != 2 || !(a[3].Ns[0] > 0) || a[4].Error == "" {
		t.Errorf("%+v", a)
	}
	for why, c := range map[string]struct {
		args []string
		g    *cli.GPU
	}{
		"none here": {[]string{cli.CUDA}, &cli.GPU{Open: func() (*gpu.Device, error) { return nil, errors.New("none here") }}},
		"":          {nil, &cli.GPU{Open: func() (*gpu.Device, error) { t.Error("nobody asked for a GPU"); return nil, nil }}},
	} {
		hello, a := ask(c.args, c.g)
		if slices.Contains(hello.ISAs, cli.CUDA) || hello.NoGPU != why || !strings.Contains(a[0].Error, `isa is "cuda"`) {
			t.Errorf("%+v, %+v", hello, a)
		}
	}
}

// TestFloorsOfGPU: the GPU is compared with floors if there are any, or if it was asked
// for; and a line says when it is not.
func TestFloorsOfGPU(t *testing.T) {
	dev := new(gpu.Device)
	with := floorFile{ISAs: map[string]isaFloors{cli.CUDA: {}}}
	here := gate{Options: Options{GPU: &cli.GPU{Open: func() (*gpu.Device, error) { return dev, nil }}}}
	here.report.Machine.GPU = &cli.Graphics{Name: "NVIDIA Test"}
	here.report.Machine.CPU = "a CPU"
	asked, only, recording := here, here, here
	asked.ISAs, only.ISAs, recording.Record = &cli.Choice{GPU: dev}, &cli.Choice{CPU: kernels.Implementations()}, true
	for _, c := range []struct {
		name   string
		g      gate
		floors floorFile
		want   *gpu.Device
	}{
		{"floors", here, with, dev}, {"no floors", here, floorFile{}, nil}, {"asked", asked, floorFile{}, dev}, {"others asked", only, with, nil},
		{"recording", recording, floorFile{}, dev}, {"no GPU", gate{}, with, nil},
	} {
		if got := c.g.flooredGPU(c.floors); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if got := here.recordedOn(cli.CUDA) + ", " + here.recordedOn("avx2"); got != "NVIDIA Test, a CPU" {
		t.Error(got)
	}

	// What is measured on it is a result like any other.
	g := gate{Options: Options{Sampler: quick}}
	k, err := kernels.Find("multiply")
	if err != nil {
		t.Fatal(err)
	}
	real := gputest.Device(t)
	measured, err := g.measureOnGPU(t.Context(), real, measure.Shape{Kernel: k, DType: reweight.DTypeF32, Rows: 40})
	if err != nil || len(measured) != 1 || measured[0].ISA != cli.CUDA || measured[0].failure != "" || !(measured[0].TimesPortable.Median > 0) {
		t.Errorf("%+v, %v", measured, err)
	}

	name := filepath.Join(t.TempDir(), "floors.json")
	if err := os.WriteFile(name, []byte(`{"vocab":151936,"isas":{"cuda":{"cpu":"NVIDIA Test","floors":[{"kernel":"multiply","dtype":"f32","times_portable":5}]}}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	opt := Options{Floors: name, Kernels: []kernels.Kernel{k}, Sampler: quick, Progress: &cli.Progress{}, GPU: &cli.GPU{Open: func() (*gpu.Device, error) { return nil, errors.New("none here") }}}
	var out bytes.Buffer
	Run(t.Context(), opt, &out) // about the CPU it may say anything
	if !strings.Contains(out.String(), "The floors of cuda were not looked at. No GPU: none here\n") {
		t.Errorf("%s", out.String())
	}
	if testing.Short() {
		t.Skip("the interpreter takes long")
	}
	opt.ISAs = &cli.Choice{GPU: real}
	opt.GPU = withGPU(t)
	opt.Record = true
	if err := Run(t.Context(), opt, io.Discard); err != nil {
		t.Fatal(err)
	}
	f, err := readFloors(name)
	if err != nil {
		t.Fatal(err)
	}
	if q, ok := f.find(cli.CUDA, "multiply", "f32"); !ok || q.TimesPortable == 5 || f.ISAs[cli.CUDA].CPU != real.Info().Name || len(f.ISAs) != 1 {
		t.Errorf("%+v", f)
	}
	opt.Record = false
	out.Reset()
	err = Run(t.Context(), opt, &out) // its times are those of few rounds: only its verdicts count
	if s := cli.ExitStatus("", err, io.Discard); s > 1 || !strings.Contains(out.String(), "multiply  f32   cuda ") || strings.Contains(out.String(), bench.Inconclusive.String()) {
		t.Errorf("status %d, %v\n%s", s, err, out.String())
	}
}
