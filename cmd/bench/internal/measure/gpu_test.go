package measure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/kernels"
)

// TestOnGPU measures every kernel on a GPU, or on the interpreter, on little.
func TestOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes long")
	}
	dev := testgpu.Device(t)
	for _, k := range kernels.All() {
		if k.OnlyGo {
			continue
		}
		rows, vocab := 40, 0
		if k.Rows {
			rows, vocab = 4, 70
		}
		for _, dtype := range k.DTypes {
			results, failure, err := OnGPU(t.Context(), quick, dev, k, dtype, rows, vocab)
			if err != nil || failure != "" || len(results) != 1 {
				t.Fatalf("%s %v: %d results, %q, %v", k.Name, dtype, len(results), failure, err)
			}
			q := results[0]
			if q.Kernel != k.Name || q.DType != dtype.String() || q.ISA != machine.CUDA || q.Rows != rows ||
				q.Vocab != vocab || q.Workers != 1 {
				t.Errorf("%+v", q)
			}
			for name, x := range map[string]float64{
				"ns": q.NsPerElement.Median, "GB/s": q.GBPerS, "read": q.ReadGBPerS, "copy": q.CopyGBPerS, "share": q.Share.Median, "copy's share": q.CopyShare.Median,
				"reference": q.TimesReference.Median, "portable": q.TimesPortable.Median, "null": q.Null.Median,
			} {
				if !(x > 0) {
					t.Errorf("%s %v: %s is %v", k.Name, dtype, name, x)
				}
			}
			// The shares are those of the speeds, as far as one round tells.
			if got, want := q.CopyShare.Median, q.GBPerS/q.CopyGBPerS; !(got > 0.99*want && got < 1.01*want) {
				t.Errorf("%s %v: share of the copy %v, want %v", k.Name, dtype, got, want)
			}
			if got, want := q.Share.Median, q.GBPerS/q.ReadGBPerS; !(got > 0.99*want && got < 1.01*want) {
				t.Errorf("%s %v: share of the read %v, want %v", k.Name, dtype, got, want)
			}
		}
	}
}

// find returns the kernel of that name.
func find(t *testing.T, name string) kernels.Kernel {
	t.Helper()
	return must.Get(kernels.Find(name))
}

// TestResidentChecks: what is on the device is compared with the CPU, bit by bit, and
// each copy of the rows with the first.
func TestResidentChecks(t *testing.T) {
	dev := testgpu.Device(t)
	const rows, times, vocab = 2, 3, 50
	for _, name := range []string{"token_stats", "row_gradient"} {
		for _, c := range []struct {
			row  int // whose first logit is changed; -1 for none
			want string
		}{{-1, ""}, {0, "not the bits of"}, {rows, "has other bits than the first"}, {rows*times - 1, "copy 3 of 3"}} {
			r := must.Get(newCopies(dev, find(t, name), reweight.DTypeF32, rows, times, vocab))
			if c.row >= 0 {
				must.Do(gpu.Upload(dev, r.main+gpu.Ptr(4*vocab*c.row), []float32{5}, 0))
			}
			failure, err := r.Check()
			if err != nil || (failure == "") != (c.want == "") || !strings.Contains(failure, c.want) {
				t.Errorf("%s, row %d changed: %q, %v, want %q", name, c.row, failure, err, c.want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	k := find(t, "surrogate") // the sums, which are no array, are compared too
	r := must.Get(newResident(dev, k, reweight.DTypeF32, 40, 0))
	if failure, err := r.Check(); failure != "" || err != nil {
		t.Errorf("%q, %v", failure, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestFitting: rows that the device has no memory for are halved until it has, but not
// below 64. Tokens are not halved, and other errors are what they are.
func TestFitting(t *testing.T) {
	none := errors.New("none")
	for _, c := range []struct {
		kernel           string
		rows, room, want int // want is 0 for an error
		err              error
	}{
		{"token_stats", 8192, 8192, 8192, nil},
		{"token_stats", 8192, 3000, 2048, nil},
		{"token_stats", 100, 99, 0, nil},
		{"token_stats", 8192, 10, 0, nil},
		{"multiply", 8192, 3000, 0, nil},
		{"token_stats", 8192, 10, 0, none},
	} {
		tried := 0
		r, rows, err := fitting(find(t, c.kernel), c.rows, func(rows int) (*resident, error) {
			tried++
			switch {
			case rows <= c.room:
				return &resident{}, nil
			case c.err != nil:
				return nil, c.err
			}
			return nil, errors.Join(&fullError{rows, none}, nil)
		})
		if (r == nil) != (c.want == 0) || (err == nil) != (c.want > 0) || err == nil && rows != c.want ||
			c.err != nil && tried != 1 {
			t.Errorf("%+v: %d rows after %d tries, %v", c, rows, tried, err)
		}
	}
	var full *fullError
	if r, err := newResident(testgpu.Device(t), find(t, "token_stats"), reweight.DTypeF32, 1<<20,
		1<<20); !errors.As(err, &full) || r != nil {
		t.Errorf("%v", err)
	}
}

// TestOnGPUInterrupted: what was measured by then is a result.
func TestOnGPUInterrupted(t *testing.T) {
	dev := testgpu.Device(t)
	s := bench.Sampler{Block: time.Microsecond, Rounds: 1 << 30, Budget: time.Hour}
	var results []Result
	ctx, err := interrupted(t, func(ctx context.Context) (measured bool, err error) {
		results, _, err = OnGPU(ctx, s, dev, find(t, "multiply"), reweight.DTypeF32, 40, 0)
		return len(results) > 0, err
	})
	if !errors.Is(err, context.Canceled) || len(results) != 1 || results[0].NsPerElement.N < 1 {
		t.Errorf("%+v, %v", results, err)
	}
	results, _, err = OnGPU(ctx, s, dev, find(t, "multiply"), reweight.DTypeF32, 40, 0)
	if !errors.Is(err, context.Canceled) || results != nil {
		t.Errorf("before the first round: %+v, %v", results, err)
	}
}

// TestCheckGPU compares kernels at all placements, and notices what is wrong.
func TestCheckGPU(t *testing.T) {
	dev := testgpu.Device(t)
	for _, name := range []string{"token_stats", "row_gradient_bonus", "surrogate"} {
		all, err := Plan{GPU: dev, Check: Check}.checkGPU(t.Context(), find(t, name), reweight.DTypeF32, []int{1, 19})
		if err != nil || len(all) != 1 || all[0].Failure != "" || all[0].ISA != machine.CUDA ||
			all[0].Cases != 2*len(kernels.Families) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	wrong := func(ctx context.Context, k kernels.Kernel, dtype reweight.DType, sizes []int,
		impls []kernels.Implementation) ([]Parity, error) {
		all, err := Check(ctx, k, dtype, sizes, impls)
		all[len(all)-1].Failure = "at the end" // of the last placement
		return all, err
	}
	all, err := Plan{GPU: dev, Check: wrong}.checkGPU(t.Context(), find(t, "multiply"), reweight.DTypeF32, []int{3})
	if err != nil || len(all) != 1 || all[0].Failure != "at the end" {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestDivisor(t *testing.T) {
	for _, c := range [][3]int{{8192, 8, 8}, {8192, 13, 8}, {12, 5, 4}, {7, 5, 1}, {7, 7, 7}, {1, 9, 1}, {8192, 1, 1}} {
		if got := divisor(c[0], c[1]); got != c[2] {
			t.Errorf("the largest divisor of %d up to %d is %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// TestGPUShapes: with goals, two kernels are measured at their sizes.
func TestGPUShapes(t *testing.T) {
	p := Plan{Kernels: kernels.All(), Sizes: Sizes{Vocabs: []int{64}}, Goals: true}
	if shapes := p.GPUShapes(); shapes != nil {
		t.Errorf("without a GPU: %v", shapes)
	}
	p.GPU = testgpu.Device(t)
	count := map[string]int{}
	for _, s := range p.GPUShapes() {
		if s.Kernel.OnlyGo {
			t.Errorf("%v, which GPUs do not have", s)
		}
		count[s.Kernel.Name+" "+s.DType.String()]++
		if s.Kernel.Rows && s.Kernel.Name != "token_stats" && s.Kernel.Name != "row_gradient" &&
			(s.Rows != GPURows || s.Vocab != 64) {
			t.Errorf("%v", s)
		}
	}
	for name, want := range map[string]int{"token_stats f32": 12, "token_stats bf16": 12, "token_stats f16": 12,
		"row_gradient f32": 12, "row_gradient bf16": 12, "row_gradient_bonus f32": 1, "multiply f32": 1} {
		if count[name] != want {
			t.Errorf("%s: %d shapes, want %d", name, count[name], want)
		}
	}
	p.Goals, p.Sizes.Rows = false, 3
	for _, s := range p.GPUShapes() {
		if s.Rows != 3 || s.Kernel.Rows && s.Vocab != 64 {
			t.Errorf("%v", s)
		}
	}
}
