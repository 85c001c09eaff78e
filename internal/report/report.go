// Package report has the results of bench run and bench overhead. It writes them
// for people and for programs, reads those of bench run back, and compares them
// with an earlier run.
package report

import (
	"fmt"
	"io"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/internal/measure"
)

// A Report is a run of the bench.
type Report struct {
	Machine  machine.Machine    `json:"machine"`
	Partial  bool               `json:"partial"` // the run was interrupted, or failed
	Roofline Roofline           `json:"roofline"`
	Failures []string           `json:"failures,omitempty"` // results that are wrong
	Results  []Result           `json:"results"`
	Overhead []measure.Overhead `json:"overhead,omitempty"` // of training steps of GRPO, where they were measured
}

// A Roofline is the speed of the plain read: the median over the workloads on
// rows of logits, or on tokens if there are none of rows, with the slowest and
// the fastest of them.
type Roofline struct {
	ReadGBPerS float64 `json:"read_gb_per_s"`
	Lo         float64 `json:"read_lo"`
	Hi         float64 `json:"read_hi"`
}

// New returns the report of a run, of which there may be a part only.
func New(m machine.Machine, results measure.Results, partial bool) Report {
	r := Report{Machine: m, Partial: partial, Failures: results.Failures, Overhead: results.Overheads}
	for _, q := range results.Results {
		r.Results = append(r.Results, Result{Result: q})
	}
	r.setRoofline()
	return r
}

// A Result is a measurement, with its comparison to that of an earlier run if
// there is one.
type Result struct {
	measure.Result
	Baseline *Comparison `json:"baseline,omitempty"`
}

// WriteJSON writes the report as Read reads it.
func (r Report) WriteJSON(w io.Writer) error { return cli.WriteJSON(w, r) }

// Read reads the report of an earlier run. Errors name the file.
func Read(path string) (Report, error) {
	r, err := cli.ReadJSON[Report](path)
	if err != nil {
		return r, fmt.Errorf("not a run that this version of bench saved: %w", err)
	}
	if len(r.Results) == 0 {
		return r, fmt.Errorf("%s: no results", path)
	}
	seen := map[key]bool{}
	for _, q := range r.Results {
		k := keyOf(q.Result)
		if seen[k] {
			return r, fmt.Errorf("%s: two results of %v", path, k)
		}
		seen[k] = true
		for _, f := range [...]struct {
			name string
			e    bench.Estimate
		}{
			{"ns_per_element", q.NsPerElement},
			{"gb_per_s", exactly(q.GBPerS)},
			{"read_gb_per_s", exactly(q.ReadGBPerS)},
			{"roofline_share", q.Share},
		} {
			const least, most = 1e-6, 1e12 // what machines do lies between, and so the ratios are numbers
			if e := f.e; !(least <= e.Lo && e.Lo <= e.Median && e.Median <= e.Hi && e.Hi <= most) {
				return r, fmt.Errorf("%s: %v: %s is %v, from %v to %v: no measurement", path, k, f.name, e.Median, e.Lo, e.Hi)
			}
		}
	}
	return r, nil
}

// exactly returns an estimate without an interval.
func exactly(x float64) bench.Estimate { return bench.Estimate{Median: x, Lo: x, Hi: x} }

// A key tells results apart.
type key struct {
	kernel, dtype, isa   string
	rows, vocab, workers int
}

func keyOf(r measure.Result) key {
	return key{r.Kernel, r.DType, r.ISA, r.Rows, r.Vocab, r.Workers}
}

func (k key) String() string {
	return fmt.Sprintf("%s %s on %s, %s", k.kernel, k.dtype, k.isa, k.shape())
}

func (k key) shape() string { return shapeOf(k.rows, k.vocab, k.workers) }
