package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/kernels"
)

// within100 holds every line against 100 columns.
func within100(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// largest is a report of all kernels with figures that need the most room.
func largest() Report {
	r := Report{Machine: machine.Machine{ISAs: []string{"portable", "avx2", "avx512"}, Chosen: "avx512", L3: 1 << 30}}
	for _, k := range kernels.All() {
		rows, vocab := 65536, 0
		if k.Rows {
			rows, vocab = 888, 151936
		}
		for i, isa := range r.Machine.ISAs {
			ns := []float64{99_999, 999, 999}[i]
			e := bench.Estimate{Median: 10.5, Lo: 9.99, Hi: 99.9, N: 3}
			r.Results = append(r.Results, measure.Result{
				Kernel: k.Name, DType: "f32", ISA: isa, Rows: rows, Vocab: vocab, Workers: 1,
				NsPerElement: bench.Estimate{Median: ns, Lo: ns, Hi: ns},
				GBPerS:       9999, ReadGBPerS: 9999, Share: e, TimesReference: bench.Estimate{Median: 99_999},
				Null: bench.Estimate{Median: 1, Lo: 0.001, Hi: 999, N: 3},
			})
		}
	}
	return r
}

// steps are training steps whose figures need the most room.
func steps() []measure.Overhead {
	var all []measure.Overhead
	for _, advantages := range []string{"grpo", "ppo"} {
		for _, kl := range []bool{false, true} {
			for _, name := range []string{"actfocus", "aem", "actfocus+aem"} {
				e := bench.Estimate{Median: 12.345, Lo: 10.123, Hi: 15.678, N: 1000}
				all = append(all, measure.Overhead{
					Step: name, Advantages: advantages, KL: kl, ISA: "portable", Tokens: 16_777_216, Vocab: 16,
					Workers: 1024, OverUniform: e, Null: e,
					Verdict: "at most +123.5%", Reason: "not decided: at least +12.3%, the null reaches +121.4%",
					ExtraBytes: 999 << 30, Allocs: 9999, PeakBytes: 999 << 30,
					UniformNs: bench.Estimate{Median: 99_999e6},
				})
			}
		}
	}
	return all
}

// TestBriefWidth: what the main job prints fits into 100 columns, whatever the
// figures.
func TestBriefWidth(t *testing.T) {
	r := largest()
	var out bytes.Buffer
	table := func(text int, header []string, rows [][]string) {
		must.Do(cli.WriteTable(&out, text, header, rows))
	}
	table(r.Brief())
	table(Overhead{Overhead: steps()}.Brief())
	for _, share := range []int{0, 1, 256 << 20, 1 << 30} { // where rows lie
		r.Machine.L3 = share
		fmt.Fprintln(&out, "Fast:  "+r.Fast([]measure.Result{r.Results[2]}))
		fmt.Fprintln(&out, strings.Join(r.BriefNotes(), "\n"))
	}
	for _, verdict := range []string{"free within noise", "costs 1234.5%", "costs under 2%", "at most +123.5%"} {
		all := steps()
		for i := range all {
			all[i].Verdict = verdict
		}
		fmt.Fprintln(&out, "Cost:  "+Cost(all))
	}
	fmt.Fprintln(&out, "Right: "+Right("every kernel", r.Machine.ISAs))
	fmt.Fprintln(&out, Noisy(r.Nulls()))
	fmt.Fprintln(&out, Checked([]measure.Parity{{Kernel: "k", Cases: 999_999,
		Errors: kernels.Errors{MaxULP: 0.12345, MaxAbs: 0.00012345}}}, []int{1, 1_515_936}))
	within100(t, out.String())
}

// TestBrief: the fastest instruction set of each workload, and how many times as
// fast it is as the others.
func TestBrief(t *testing.T) {
	r := sample()
	r.Machine.L3 = 1 << 20
	small := r.Results[2] // a workload that fits a cache
	small.Rows = 1
	r.Results = append(r.Results, small)
	_, header, rows := r.Brief()
	want := []string{"kernel", "from", "ns", "GB/s", "of read", "x two", "x portable", "x float64"}
	if !slices.Equal(header, want) {
		t.Errorf("header %q, want %q", header, want)
	}
	want = []string{"token_stats", "memory", "0.200", "20.0", "100% (90-110)", "1.5", "25.0", "250"}
	if !slices.Equal(rows[0], want) {
		t.Errorf("row %q, want %q", rows[0], want)
	}
	last := rows[len(rows)-1]
	want = []string{"token_stats, 1 rows", "cache", "0.200", "20.0", "100% (90-110)", "-", "-", "250"}
	if !slices.Equal(last, want) {
		t.Errorf("row %q, want %q", last, want)
	}
}

// TestFast: a share says where both were read from.
func TestFast(t *testing.T) {
	r := sample()
	cached := r.Results[2]
	cached.Share.Median = 0.5
	for l3, want := range map[int]string{
		1 << 20:  "100% of a plain read from memory, 50% from a cache.",
		1 << 30:  "100% of a plain read, both from a cache.",
		60 << 20: "100% of a plain read, both partly from a cache.",
		0:        "100% of a plain read.",
	} {
		r.Machine.L3 = l3
		if got, want := r.Fast([]measure.Result{cached}), "token_stats on three: 0.200 ns a logit, "+want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := (Report{}).Fast(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestCost(t *testing.T) {
	all := steps()
	all[len(all)-1].Verdict = "free within noise"
	all[len(all)-4].Verdict = "costs under 2%"
	if got, want := Cost(all), "ActFocus and AEM with a KL anchor: free within noise; without an anchor: costs under 2%."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	gpu := append(all, measure.Overhead{Step: "actfocus+aem", ISA: machine.CUDA, KL: true, Verdict: "costs 9%"},
		measure.Overhead{Step: "actfocus+aem", ISA: machine.CUDA, Verdict: "costs 30%"})
	if got, want := Cost(gpu), Cost(all)+" ActFocus and AEM on the GPU with a KL anchor: costs 9%; without an anchor: costs 30%."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Cost(all[:3]); got != "" {
		t.Errorf("of a part: %q", got)
	}
}

// TestNoisy: an interval beyond 0.9 to 1.1 is told, with the largest factor.
func TestNoisy(t *testing.T) {
	null := func(lo, hi float64) bench.Estimate { return bench.Estimate{Median: 1, Lo: lo, Hi: hi, N: 9} }
	for _, c := range []struct {
		nulls []bench.Estimate
		want  string
	}{
		{nil, ""},
		{[]bench.Estimate{null(0.9, 1.1), null(0.99, 1.01)}, ""},
		{[]bench.Estimate{null(0.99, 1.01), null(0.95, 1.101)}, "up to 1.101 times"},
		{[]bench.Estimate{null(0.5, 1.2), null(0.95, 1.3)}, "up to 2.000 times"},
		{[]bench.Estimate{{}}, ""},
	} {
		if got := Noisy(c.nulls); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.nulls, got, c.want)
		}
	}
}

// TestOverheadWidth: so does bench overhead.
func TestOverheadWidth(t *testing.T) {
	var out bytes.Buffer
	must.Do((Overhead{Overhead: steps()}).Write(&out, false))
	within100(t, out.String())
	if !strings.HasPrefix(out.String(), "Cost: ") || !strings.Contains(out.String(), "\nNoisy: ") ||
		!strings.Contains(out.String(), "not decided: at least +12.3%, the null reaches +121.4%") {
		t.Errorf("printed\n%s", out.String())
	}
}
