package measure

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/kernels"
)

// quick measures as little as can be.
var quick = bench.Sampler{Block: time.Microsecond, Rounds: 1}

// unknown is an instruction set that no machine has.
var unknown = kernels.Implementation{Name: "unknown", New: func(int) kernels.Runner {
	return &reweight.Workspace{ISA: 200}
}}

// TestKernel measures every kernel with every instruction set, on little.
func TestKernel(t *testing.T) {
	impls := kernels.Implementations()
	for _, k := range kernels.All() {
		vocab := 0
		if k.Rows {
			vocab = 100
		}
		for _, dtype := range k.DTypes {
			c := must.Get(k.New(kernels.Spec{Rows: 40, Vocab: vocab, DType: dtype}))
			results := must.Get(Kernel(t.Context(), quick, k, dtype, 40, vocab, 2, impls))
			if len(results) != len(impls) {
				t.Fatalf("%s: %d results, want %d", k.Name, len(results), len(impls))
			}
			for i, r := range results {
				if r.Kernel != k.Name || r.DType != dtype.String() || r.ISA != impls[i].Name || r.Rows != 40 ||
					r.Vocab != vocab || r.Workers != 2 {
					t.Errorf("result %d of %s %s is %+v", i, k.Name, dtype, r)
				}
				for _, x := range []float64{r.NsPerElement.Median, r.GBPerS, r.Share.Median, r.TimesReference.Median,
					r.ReadGBPerS} {
					if !(x > 0) || math.IsInf(x, 0) {
						t.Errorf("%+v has a figure that is not positive", r)
					}
				}
				// In a single round, shares are those of its times.
				near(t, "roofline share", r.Share.Median, r.GBPerS/r.ReadGBPerS, 1e-9)
				elements := 40.0 * float64(max(vocab, 1))
				near(t, "GB/s", r.GBPerS, float64(c.Bytes)/(r.NsPerElement.Median*elements), 1e-9)
			}
		}
	}
}

// interrupted ends a measurement when there is a result, after a time that a slow machine
// needs for a round, and returns its context and its error.
func interrupted(t *testing.T, do func(context.Context) (measured bool, err error)) (context.Context, error) {
	for after := 300 * time.Millisecond; ; after *= 4 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(after, cancel)
		if measured, err := do(ctx); measured || after > 5*time.Minute {
			return ctx, err
		}
	}
}

// TestKernelInterrupted: what there is of the rounds so far, and the error.
func TestKernelInterrupted(t *testing.T) {
	k := kernels.All()[0]
	s := bench.Sampler{Block: time.Millisecond, Rounds: 1, Budget: time.Hour}
	var results []Result
	ctx, err := interrupted(t, func(ctx context.Context) (measured bool, err error) {
		results, err = Kernel(ctx, s, k, reweight.DTypeF32, 4, 64, 1, kernels.Implementations())
		return len(results) > 0, err
	})
	if err != context.Canceled || len(results) != len(kernels.Implementations()) ||
		!(results[0].NsPerElement.Median > 0) || results[0].NsPerElement.N < 1 {
		t.Errorf("%d results, %v", len(results), err)
	}
	if results, err := Kernel(ctx, s, k, reweight.DTypeF32, 4, 64, 1,
		kernels.Implementations()); err != context.Canceled || results != nil {
		t.Errorf("before the first round: %+v, %v", results, err)
	}
	if overheads, err := Overheads(ctx, s,
		Steps{Tokens: 4, Vocab: 64, Workers: 1, ISA: "portable"}); err != context.Canceled || overheads != nil {
		t.Errorf("before the first round: %+v, %v", overheads, err)
	}
}

// TestKernelInterval: figures lie in their intervals, and the portable kernel is
// about as fast as itself.
func TestKernelInterval(t *testing.T) {
	k := kernels.All()[0]
	s := bench.Sampler{Block: 10 * time.Microsecond, Rounds: 8}
	results := must.Get(Kernel(t.Context(), s, k, reweight.DTypeF32, 80, 64, 1, kernels.Implementations()))
	for _, r := range results {
		for _, e := range []bench.Estimate{r.NsPerElement, r.Share, r.TimesReference, r.TimesPortable, r.Null} {
			if !(e.Lo <= e.Median && e.Median <= e.Hi) || e.N != 8 {
				t.Errorf("%+v of %+v", e, r)
			}
		}
		if r.NsPerElement.Lo == r.NsPerElement.Hi {
			t.Errorf("%+v", r)
		}
		if p := r.TimesPortable; r.ISA == "portable" && !(p.Median > 0.2 && p.Median < 5) {
			t.Errorf("%s: times portable %+v", r.ISA, p)
		}
	}
}

// TestTimesReference: it does not depend on the rows, of which the reference
// has fewer.
func TestTimesReference(t *testing.T) {
	k := must.Get(kernels.Find("token_stats"))
	s := bench.Sampler{Block: time.Millisecond, Rounds: 3}
	var times []float64
	for _, rows := range []int{2, 20000} {
		r := must.Get(Kernel(t.Context(), s, k, reweight.DTypeF32, rows, 16, 1, kernels.Implementations()))
		times = append(times, r[len(r)-1].TimesReference.Median) // the portable kernel has few rows too
	}
	if q := times[0] / times[1]; q < 0.01 || q > 100 { // on a busy machine; the rows differ by 10,000
		t.Errorf("%v times the reference with 2 rows, %v with 20,000", times[0], times[1])
	}
}

func TestKernelErrors(t *testing.T) {
	k := kernels.All()[0]
	for what, err := range map[string]error{
		"dtype": second(Kernel(t.Context(), quick, k, reweight.DType(9), 4, 4, 1, kernels.Implementations())),
		"rows":  second(Kernel(t.Context(), quick, k, reweight.DTypeF32, 0, 4, 1, kernels.Implementations())),
		"isa":   second(Kernel(t.Context(), quick, k, reweight.DTypeF32, 4, 4, 1, []kernels.Implementation{unknown})),
	} {
		if err == nil {
			t.Errorf("no error for a wrong %s", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestRowsToStream(t *testing.T) {
	for _, c := range []struct {
		dtype       reweight.DType
		vocab, size int
	}{{reweight.DTypeF32, 151936, 4}, {reweight.DTypeBF16, 151936, 2}, {reweight.DTypeF16, 75, 2},
		{reweight.DTypeF32, 16, 4}, {reweight.DTypeF32, StreamBytes, 4}} {
		n := RowsToStream(c.dtype, c.vocab, StreamBytes)
		if bytes := n * c.vocab * c.size; bytes < StreamBytes || n > 1 && bytes-c.vocab*c.size >= StreamBytes {
			t.Errorf("%d rows of %d %s", n, c.vocab, c.dtype)
		}
	}
	if n := RowsToStream(reweight.DTypeBF16, 1, StreamBytes); n != maxRows {
		t.Errorf("%d rows of 1, want %d", n, maxRows)
	}
}

func TestCheck(t *testing.T) {
	impls := kernels.Implementations()
	for _, k := range kernels.All() {
		for _, dtype := range k.DTypes {
			parities := must.Get(Check(t.Context(), k, dtype, []int{1, 33}, impls))
			want := 2 * len(kernels.Families)
			if dtype == reweight.DTypeF16 {
				want -= 2
			}
			for i, p := range parities {
				if p.Failure != "" || p.Cases != want || p.ISA != impls[i].Name {
					t.Errorf("%+v, want %d cases and no failure", p, want)
				}
			}
			if len(parities) != len(impls) {
				t.Errorf("%d parities, want %d", len(parities), len(impls))
			}
		}
	}
	if _, err := Check(t.Context(), kernels.All()[0], reweight.DTypeF32, []int{1},
		[]kernels.Implementation{unknown}); err == nil {
		t.Error("no error for an instruction set that does not exist")
	}
}

// off changes the first of three results.
type off struct {
	*reweight.Workspace
	change func(float32) float32
}

func (w off) ExpScale(dst, x []float32, lo float32, rate float64) error {
	err := w.Workspace.ExpScale(dst, x, lo, rate)
	if len(dst) == 3 {
		dst[0] = w.change(dst[0])
	}
	return err
}

func (w off) ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
	opt reweight.ActFocusOptions) error {
	err := w.Workspace.ActFocusWeights(dst, signal, role, mean, sigma, opt)
	if len(dst) == 3 {
		dst[0] = w.change(dst[0])
	}
	return err
}

// TestCheckNotices: the failure is the first result that is far off, or has another bit.
// The errors are the largest.
func TestCheckNotices(t *testing.T) {
	for _, name := range []string{"exp_scale", "actfocus_weights"} {
		for _, c := range []struct {
			change func(float32) float32
			want   string
			far    bool
		}{
			{func(x float32) float32 { return math.Nextafter32(x, 9) }, "not the bits of the first implementation", false},
			{func(x float32) float32 { return x + 9 }, ", want ", true},
		} {
			impls := []kernels.Implementation{kernels.Implementations()[0],
				{Name: "off", New: func(int) kernels.Runner { return off{new(reweight.Workspace), c.change} }}}
			all := must.Get(Check(t.Context(), must.Get(kernels.Find(name)), reweight.DTypeF32, []int{3, 5}, impls))
			p := all[1]
			place := fmt.Sprintf("%s f32 on off, %v input of 3: ", name, kernels.Families[0])
			if !strings.HasPrefix(p.Failure, place) || !strings.Contains(p.Failure, c.want) ||
				p.Cases != 2*len(kernels.Families) || all[0].Failure != "" {
				t.Errorf("%+v, want %q", p, place+c.want)
			}
			if e := p.Errors; max(e.MaxULP, e.MaxAbs) > 2 != c.far || !(max(e.MaxULP, e.MaxAbs) > 0) {
				t.Errorf("%+v", p)
			}
		}
	}
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
