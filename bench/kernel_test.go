package bench

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/kernels"
)

// quick measures as little as can be.
var quick = Sampler{Block: time.Microsecond, Rounds: 1}

var sink []byte

func TestAllocs(t *testing.T) {
	for want := range uint64(4) {
		objects, bytes, err := Allocs(func() error {
			for range want {
				sink = make([]byte, 64)
			}
			return nil
		})
		if objects != want || bytes != 64*want || err != nil {
			t.Errorf("%d objects of %d bytes and error %v, want %d of 64", objects, bytes, err, want)
		}
	}
	broken := errors.New("broken")
	if _, _, err := Allocs(func() error { return broken }); err != broken {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestLeastHeap(t *testing.T) {
	mallocs, bytes, err := leastHeap(func() error { sink = make([]byte, 4096); return nil })
	if mallocs != 1 || bytes != 4096 || err != nil {
		t.Errorf("%d objects of %d bytes and error %v, want 1 of 4096", mallocs, bytes, err)
	}
}

// TestKernel measures every kernel on every path, on little.
func TestKernel(t *testing.T) {
	paths := reweight.Available()
	for _, k := range kernels.All() {
		vocab := 0
		if k.Rows {
			vocab = 100
		}
		for _, typ := range k.Types {
			results, err := quick.Kernel(t.Context(), k, typ, 40, vocab, 2, paths)
			if err != nil {
				t.Fatal(err)
			}
			if len(results) != len(paths) {
				t.Fatalf("%s: %d results, want %d", k.Name, len(results), len(paths))
			}
			for i, r := range results {
				if r.Kernel != k.Name || r.Type != typ || r.Path != paths[i].String() || r.Rows != 40 || r.Vocab != vocab || r.Workers != 2 {
					t.Errorf("result %d of %s %s is %+v", i, k.Name, typ, r)
				}
				for _, x := range []float64{r.NsPerElement, r.GBPerS, r.RooflineShare, r.TimesReference, r.ReadGBPerS} {
					if !(x > 0) || math.IsInf(x, 0) {
						t.Errorf("%+v has a figure that is not positive", r)
					}
				}
				// In a single round, shares are those of its times.
				near(t, "roofline share", r.RooflineShare, r.GBPerS/r.ReadGBPerS, 1e-9)
				elements := 40.0 * float64(max(vocab, 1))
				near(t, "GB/s", r.GBPerS, float64(r.Bytes)/(r.NsPerElement*elements), 1e-9)
			}
		}
	}
}

// TestKernelInterrupted: what there is of the rounds so far, and the error.
func TestKernelInterrupted(t *testing.T) {
	k := kernels.All()[0]
	ctx, cancel := context.WithCancel(t.Context())
	s := Sampler{Block: time.Millisecond, Rounds: 1, Budget: 5 * time.Second}
	time.AfterFunc(300*time.Millisecond, cancel)
	results, err := s.Kernel(ctx, k, "f32", 4, 64, 1, reweight.Available())
	if err != context.Canceled || len(results) != len(reweight.Available()) || !(results[0].NsPerElement > 0) || results[0].Rounds < 1 {
		t.Errorf("%d results, %v", len(results), err)
	}
	if results, err := s.Kernel(ctx, k, "f32", 4, 64, 1, reweight.Available()); err != context.Canceled || results != nil {
		t.Errorf("before the first round: %+v, %v", results, err)
	}
	if overheads, err := s.Overheads(ctx, Steps{Tokens: 4, Vocab: 64, Workers: 1}); err != context.Canceled || overheads != nil {
		t.Errorf("before the first round: %+v, %v", overheads, err)
	}
}

// TestKernelInterval: figures lie in their intervals, and the portable
// path is about as fast as itself.
func TestKernelInterval(t *testing.T) {
	k := kernels.All()[0]
	s := Sampler{Block: 10 * time.Microsecond, Rounds: 8}
	results, err := s.Kernel(t.Context(), k, "f32", 80, 64, 1, reweight.Available())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !(r.NsLo <= r.NsPerElement && r.NsPerElement <= r.NsHi && r.ShareLo <= r.RooflineShare && r.RooflineShare <= r.ShareHi) || r.Rounds != 8 || r.Null.N != 8 || r.NsLo == r.NsHi {
			t.Errorf("%+v", r)
		}
		if p := r.TimesPortable; p == nil || r.Path == "portable" && !(p.Median > 0.2 && p.Median < 5) || !(p.Lo <= p.Median && p.Median <= p.Hi) {
			t.Errorf("%s: times portable %+v", r.Path, p)
		}
	}
}

// TestTimesReference: it does not depend on the rows, of which the reference
// has fewer.
func TestTimesReference(t *testing.T) {
	k, err := kernels.Find("token_stats")
	if err != nil {
		t.Fatal(err)
	}
	s := Sampler{Block: time.Millisecond, Rounds: 3}
	var times []float64
	for _, rows := range []int{2, 20000} {
		r, err := s.Kernel(t.Context(), k, "f32", rows, 16, 1, []reweight.ISA{reweight.Portable})
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, r[0].TimesReference)
	}
	if q := times[0] / times[1]; q < 0.1 || q > 10 {
		t.Errorf("%v times the reference with 2 rows, %v with 20,000", times[0], times[1])
	}
}

func TestKernelErrors(t *testing.T) {
	k := kernels.All()[0]
	for what, err := range map[string]error{
		"type": second(quick.Kernel(t.Context(), k, "f64", 4, 4, 1, reweight.Available())),
		"rows": second(quick.Kernel(t.Context(), k, "f32", 0, 4, 1, reweight.Available())),
		"path": second(quick.Kernel(t.Context(), k, "f32", 4, 4, 1, []reweight.ISA{200})),
	} {
		if err == nil {
			t.Errorf("no error for a wrong %s", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestRowsToStream(t *testing.T) {
	for _, c := range []struct {
		typ         string
		vocab, size int
	}{{"f32", 151936, 4}, {"bf16", 151936, 2}, {"f16", 75, 2}, {"f32", 16, 4}, {"f32", StreamBytes, 4}} {
		n := RowsToStream(c.typ, c.vocab)
		if bytes := n * c.vocab * c.size; bytes < StreamBytes || n > 1 && bytes-c.vocab*c.size >= StreamBytes {
			t.Errorf("%d rows of %d %s", n, c.vocab, c.typ)
		}
	}
	if n := RowsToStream("bf16", 1); n != maxRows {
		t.Errorf("%d rows of 1, want %d", n, maxRows)
	}
}

func TestCheck(t *testing.T) {
	paths := reweight.Available()
	for _, k := range kernels.All() {
		for _, typ := range k.Types {
			parities, err := Check(t.Context(), k, typ, []int{1, 33}, paths)
			if err != nil {
				t.Fatal(err)
			}
			want := 2 * len(kernels.Families)
			if typ == "f16" {
				want -= 2
			}
			for i, p := range parities {
				if p.Failure != "" || p.Cases != want || p.Path != paths[i].String() {
					t.Errorf("%+v, want %d cases and no failure", p, want)
				}
			}
			if len(parities) != len(paths) {
				t.Errorf("%d parities, want %d", len(parities), len(paths))
			}
		}
	}
	if _, err := Check(t.Context(), kernels.All()[0], "f32", []int{1}, []reweight.ISA{200}); err == nil {
		t.Error("no error for a path that does not exist")
	}
}

// fakeCase is a case with these errors and bits.
type fakeCase struct {
	errors kernels.Errors
	err    error
	bits   []uint64
}

func (c fakeCase) Check() (kernels.Errors, error) { return c.errors, c.err }
func (c fakeCase) Bits(dst []uint64) []uint64     { return append(dst, c.bits...) }
func (c fakeCase) addTo(p *Parity, name string)   { p.add(c, []uint64{1, 2}, name) }
func errorsOf(ulp, abs float64) kernels.Errors    { return kernels.Errors{MaxULP: ulp, MaxAbs: abs} }

func TestParityNotices(t *testing.T) {
	good := []uint64{1, 2}
	p := Parity{Kernel: "k", Type: "f32", Path: "portable"}
	fakeCase{errorsOf(0.5, 1), nil, good}.addTo(&p, "first")
	fakeCase{errorsOf(0.25, 2), nil, good}.addTo(&p, "second")
	if p.Failure != "" || p.Cases != 2 || p.Errors != errorsOf(0.5, 2) {
		t.Errorf("after two good cases: %+v", p)
	}
	q := p
	fakeCase{errorsOf(0, 0), nil, []uint64{1, 3}}.addTo(&q, "third")
	if want := "k f32 on portable, third: not the bits of the first path"; q.Failure != want {
		t.Errorf("failure %q, want %q", q.Failure, want)
	}
	fakeCase{errorsOf(9, 9), errors.New("far off"), good}.addTo(&p, "fourth")
	fakeCase{errorsOf(99, 9), errors.New("further"), good}.addTo(&p, "fifth")
	if want := "k f32 on portable, fourth: far off"; p.Failure != want {
		t.Errorf("failure %q, want %q", p.Failure, want)
	}
	if p.Errors.MaxULP != 99 || p.Cases != 4 {
		t.Errorf("after two bad cases: %+v", p)
	}
}

func TestNumberJSON(t *testing.T) {
	text, err := json.Marshal([]Number{1.5, Number(math.NaN()), Number(math.Inf(1)), Number(math.Inf(-1)), 0})
	if err != nil || string(text) != "[1.5,null,null,null,0]" {
		t.Errorf("%s, %v", text, err)
	}
}
