package report

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/cli"
)

// FromDevice is where the main input of a workload on a GPU is read from: the GPU's
// memory, or its cache where there are few rows. The driver does not tell the cache's
// size.
const FromDevice = "device"

// OnGPU returns the results of the GPU, and OnCPU all others.
func OnGPU(results []measure.Result) []measure.Result { return some(results, true) }
func OnCPU(results []measure.Result) []measure.Result { return some(results, false) }

func some(results []measure.Result, gpu bool) []measure.Result {
	return slices.DeleteFunc(slices.Clone(results), func(q measure.Result) bool {
		return (q.ISA == machine.CUDA) != gpu
	})
}

// ofCopy prints the share of a plain copy, a dash where there was none.
func ofCopy(q measure.Result) string {
	if q.CopyShare == nil {
		return "-"
	}
	return share(*q.CopyShare)
}

// share prints a share and its interval.
func share(e bench.Estimate) string {
	return cli.Percent(e.Median) + " (" + whole(e.Lo) + "-" + whole(e.Hi) + ")"
}

// GPUSpeed returns a line for each result of the GPU that fits into 100 columns.
func (r Report) GPUSpeed() (text int, header []string, rows [][]string) {
	for _, q := range OnGPU(r.Results) {
		rows = append(rows, []string{
			q.Kernel, q.DType, shapeOf(q.Rows, q.Vocab, 1), digits(1e3 * q.NsPerElement.Median), fmt.Sprintf("%.1f", q.GBPerS), share(q.Share), ofCopy(q),
		})
	}
	return 2, []string{"kernel", "type", "rows", "ps/element", "GB/s", "of read", "of copy"}, rows
}

// GPU says in a line how fast the first kernel on rows of logits is on the GPU, or why
// there are no results of one; nothing if none was asked for.
func (r Report) GPU() string {
	m := r.Machine
	if m.GPU == nil {
		if m.NoGPU == "" {
			return ""
		}
		return "none is used: " + m.NoGPU
	}
	results := OnGPU(r.Results)
	i := slices.IndexFunc(results, func(q measure.Result) bool { return q.Vocab > 0 && q.CopyShare != nil })
	if i < 0 {
		return m.GPU.Name
	}
	q := results[i]
	return fmt.Sprintf("%s on %s: %.0f GB/s, %s%% of a plain copy on it, %s.", q.Kernel, m.GPU.Name, q.GBPerS,
		whole(q.CopyShare.Median), shapeOf(q.Rows, q.Vocab, 1))
}

// memoryOfGPU says how fast the GPU's memory was, and which rows did not fit.
func (r Report) memoryOfGPU() string {
	results := OnGPU(r.Results)
	var reads, copies []float64
	for _, q := range results {
		if q.Vocab > 0 {
			reads, copies = append(reads, q.ReadGBPerS), append(copies, q.CopyGBPerS)
		}
	}
	note := sentence("GPU, rows of logits: ", speeds("plain read", reads), speeds("plain copy", copies))
	workloads := len(results)
	if fewer := slices.DeleteFunc(results, func(q measure.Result) bool { return q.RowsWanted == 0 }); len(fewer) > 0 {
		note += fmt.Sprintf(" Its memory had no room for all rows of %d of %d workloads: %s rows instead of %s.",
			len(fewer), workloads, humanize.Comma(int64(fewer[0].Rows)), humanize.Comma(int64(fewer[0].RowsWanted)))
	}
	return note
}
