package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// onGPU adds results of a GPU, with figures that are made up.
func onGPU(r Report) Report {
	r.Machine.GPU = &machine.Graphics{Name: "NVIDIA Test", Capability: "9.0", Multiprocessors: 132, Memory: 80 << 30,
		Driver: "12.4"}
	for _, c := range []struct {
		kernel, dtype       string
		rows, wanted, vocab int
		share               float64
		rounds              int
	}{
		{"token_stats", "f32", 8192, 0, 151936, 0.95, 20},
		{"token_stats", "bf16", 8192, 0, 151936, 0.80, 20},
		{"token_stats", "f32", 2048, 8192, 262144, 0.90, 20},
		{"token_stats", "f32", 64, 0, 151936, 0.3, 20},
		{"row_gradient", "f32", 8192, 0, 151936, 0.95, 3},
		{"token_stats_lse", "f32", 8192, 0, 151936, 0.95, 20},
		{"multiply", "f32", 65536, 0, 0, 0.1, 20},
	} {
		about := func(x float64) bench.Estimate {
			return bench.Estimate{Median: x, Lo: 0.99 * x, Hi: 1.01 * x, N: c.rounds}
		}
		share := about(c.share)
		q := measure.Result{
			Kernel: c.kernel, DType: c.dtype, ISA: machine.CUDA, Rows: c.rows, RowsWanted: c.wanted, Vocab: c.vocab,
			Workers: 1, NsPerElement: about(0.00134), GBPerS: 3000 * c.share,
			ReadGBPerS: 3100, CopyGBPerS: 3000, Share: about(c.share * 3000 / 3100), CopyShare: &share,
			TimesReference: about(9000), TimesPortable: about(4000), Null: about(1),
		}
		r.Results = append(r.Results, q)
	}
	return r
}

// TestReportOfGPU: the GPU's results are in everything that is printed, and leave the
// figures of the CPU alone.
func TestReportOfGPU(t *testing.T) {
	cpu, both := sample(), onGPU(sample())
	if both.Fast(nil) != cpu.Fast(nil) || both.place() != cpu.place() || both.reads() != cpu.reads() {
		t.Errorf("%s, %s, %s", both.Fast(nil), both.place(), both.reads())
	}
	_, _, want := cpu.Brief()
	if _, _, got := both.Brief(); len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	if got, want := both.GPU(), "token_stats on NVIDIA Test: 2850 GB/s, 95% of a plain copy on it, 8,192 x 151,936."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	only := onGPU(Report{})
	note := "GPU, rows of logits: plain read at 3,100 GB/s (3,100-3,100 over 6 workloads), plain copy at 3,000 GB/s (3,000-3,000 over 6 workloads). Its memory had no room for all rows of 1 of 7 workloads: 2,048 rows instead of 8,192."
	if !slices.Contains(both.Notes(), note) || !slices.Contains(only.Notes(), note) {
		t.Errorf("%q", both.Notes())
	}
	if cpu.GPU() != "" || cpu.memoryOfGPU() != "" {
		t.Errorf("%q, %q", cpu.GPU(), cpu.memoryOfGPU())
	}
	cpu.Machine.NoGPU = "the driver finds no device"
	if got := cpu.GPU(); got != "none is used: the driver finds no device" {
		t.Errorf("%q", got)
	}
	var b bytes.Buffer
	must.Do(both.Write(&b, false))
	for _, want := range []string{"a plain copy there", "0.00134 (0.00133-0.00135)", "95.0% (94-96)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
