// Package report has the results of bench run and bench overhead, and writes them for people
// and for programs.
package report

import (
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
)

// A Report is a run of the bench.
type Report struct {
	Machine  machine.Machine  `json:"machine"`
	Partial  bool             `json:"partial"`            // the run was interrupted, or failed
	Failures []string         `json:"failures,omitempty"` // results that are wrong
	Results  []measure.Result `json:"results"`
}

// New returns the report of a run, of which there may be a part only.
func New(m machine.Machine, results measure.Results, partial bool) Report {
	return Report{Machine: m, Partial: partial, Failures: results.Failures, Results: results.Results}
}

// A workload is a kernel on inputs of one format and shape, which the instruction sets
// are compared on: one result for each.
type workload []measure.Result

func workloadsOf(results []measure.Result) (all []workload) {
	type key struct {
		kernel, dtype        string
		gpu                  bool // which has its own memory and its own reads
		rows, vocab, workers int
	}
	index := map[key]int{}
	for _, r := range results {
		k := key{r.Kernel, r.DType, r.ISA == machine.CUDA, r.Rows, r.Vocab, r.Workers}
		i, ok := index[k]
		if !ok {
			i = len(all)
			index[k] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], r)
	}
	return all
}

// rows reports whether the kernel works on rows of logits.
func (w workload) rows() bool { return w[0].Vocab > 0 }
