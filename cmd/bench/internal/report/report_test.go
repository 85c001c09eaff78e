package report

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/kernels"
)

// sample is a run of all kernels on three paths, with figures that are made up.
func sample() Report {
	r := Report{Machine: machine.Machine{
		CPU: "Test CPU", CPUs: 4, GOMAXPROCS: 4, OS: "linux", Arch: "amd64", Features: []string{"AVX2"}, Go: "go1.26",
		ISAs: []string{"portable", "two", "three"}, Chosen: "three", Why: "because",
	}}
	result := func(k kernels.Kernel, dtype, isa string, ns float64, rows, vocab int) measure.Result {
		bytes := 4.0
		about := func(x float64) bench.Estimate {
			return bench.Estimate{Median: x, Lo: 0.9 * x, Hi: 1.1 * x, N: 9, Outliers: 1}
		}
		q := measure.Result{
			Kernel: k.Name, DType: dtype, ISA: isa, Rows: rows, Vocab: vocab, Workers: 1, NsPerElement: about(ns),
			GBPerS: bytes / ns, ReadGBPerS: 20, Share: about(bytes / ns / 20),
			TimesReference: about(50 / ns), TimesPortable: bench.Estimate{Median: 5 / ns, Lo: 4 / ns, Hi: 6 / ns, N: 9},
			Null: bench.Estimate{Median: 1.01, Lo: 0.98, Hi: 1.03, N: 9}, MaxULP: 0.25, MaxAbs: 1e-7, AllocsPerOp: 2,
			BytesPerOp: 64,
		}
		return q
	}
	for _, k := range kernels.All() {
		rows, vocab := 65536, 0
		if k.Rows {
			rows, vocab = 111, 151936
		}
		for _, format := range k.DTypes {
			dtype := format.String()
			for i, isa := range r.Machine.ISAs {
				ns := []float64{5, 0.3, 0.2}[i]
				r.Results = append(r.Results, result(k, dtype, isa, ns, rows, vocab))
			}
		}
	}
	return r
}

// failing takes so many bytes.
type failing int

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if *f -= failing(len(b)); *f < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWriteErrors: no writer keeps an error to itself.
func TestWriteErrors(t *testing.T) {
	for _, as := range []bool{false, true} {
		for _, space := range []failing{0, 700} {
			if err := sample().Write(&space, as); !errors.Is(err, errFull) {
				t.Errorf("JSON %v: %v", as, err)
			}
		}
	}
}

// TestHostileText: texts from files are escaped in every format.
func TestHostileText(t *testing.T) {
	const hostile = "x\n::error::bad\r\x1b[31m\u202e\u2028\x7f\u009b2J\x00<script>|&"
	r := sample()
	r.Machine.CPU, r.Machine.Why, r.Results[0].Kernel, r.Failures = hostile, hostile, hostile, []string{hostile}
	for _, as := range []bool{false, true} {
		var out bytes.Buffer
		must.Do(r.Write(&out, as))
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.ContainsFunc(line, func(r rune) bool {
				return !strconv.IsPrint(r)
			}) {
				t.Errorf("JSON %v: %q", as, line)
			}
		}
	}
}
