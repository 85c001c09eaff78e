package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/cli"
)

// Where the main input of a workload is read from.
const (
	FromMemory  = "memory"
	FromCache   = "cache"
	FromBoth    = "cache, memory"
	FromUnknown = "unknown"
)

// timesCache is how many times the last cache rows of logits must take to be called
// read from memory: at most an eighth of them is left there from the last reading.
const timesCache = 8

// from says where rows of so many bytes are read from when the last cache has that
// size, 0 if it is not known.
func from(bytes, cache int64) string {
	switch {
	case cache == 0:
		return FromUnknown
	case bytes >= timesCache*cache:
		return FromMemory
	case bytes <= cache:
		return FromCache
	}
	return FromBoth
}

// rowBytes returns the bytes of the rows of logits of a result, and 0 of tokens.
func rowBytes(q measure.Result) int64 {
	var dtype reweight.DType
	if q.Vocab == 0 || dtype.UnmarshalText([]byte(q.DType)) != nil {
		return 0
	}
	return int64(q.Rows) * int64(q.Vocab) * int64(dtype.Size())
}

// From says where the main input of a result was read from. Tokens stay in a cache.
func (r Report) From(q measure.Result) string {
	if q.ISA == machine.CUDA {
		return FromDevice
	}
	if q.Vocab == 0 {
		return FromCache
	}
	return from(rowBytes(q), int64(r.Machine.LastCache()))
}

// The intervals of A/A nulls lie within these on a quiet machine. They should be 1.
const quietLo, quietHi = 0.9, 1.1

// Noisy returns a line for people if an interval of the A/A nulls reaches beyond 0.9
// to 1.1, and else nothing.
func Noisy(nulls []bench.Estimate) string {
	noisy, reach := false, 1.0
	for _, e := range nulls {
		if e.Lo > 0 && finite(e.Lo, e.Hi) {
			noisy = noisy || e.Lo < quietLo || e.Hi > quietHi
			reach = max(reach, e.Hi, 1/e.Lo)
		}
	}
	if !noisy {
		return ""
	}
	return fmt.Sprintf("Noisy: the same code took up to %s times as long. This run decides nothing below that factor.", digits(reach))
}

// Nulls returns the A/A nulls of the results, one for each workload.
func (r Report) Nulls() []bench.Estimate {
	var nulls []bench.Estimate
	for _, w := range workloadsOf(r.Results) {
		nulls = append(nulls, w[0].Null) // shared by all instruction sets
	}
	return nulls
}

// OverheadNulls returns the A/A nulls of training steps.
func OverheadNulls(overheads []measure.Overhead) []bench.Estimate {
	var nulls []bench.Estimate
	for _, o := range overheads {
		nulls = append(nulls, o.Null)
	}
	return nulls
}

// best returns the result of the workload on the fastest instruction set.
func (r Report) best(w workload) measure.Result {
	for _, name := range slices.Backward(r.Machine.ISAs) { // the last is the fastest
		if q := w.on(name); q != nil {
			return *q
		}
	}
	return w[0]
}

// Brief returns a line for each workload of the CPU: the figures of its fastest instruction
// set, and how many times as fast that is as each of the others. It fits into 100
// columns.
func (r Report) Brief() (text int, header []string, rows [][]string) {
	others := []string{}
	if n := len(r.Machine.ISAs); n > 0 {
		others = slices.Clone(r.Machine.ISAs[:n-1])
		slices.Reverse(others)
	}
	header = []string{"kernel", "from", "ns", "GB/s", "of read"}
	for _, name := range others {
		header = append(header, "x "+name)
	}
	header = append(header, "x float64")
	for _, w := range workloadsOf(OnCPU(r.Results)) {
		q := r.best(w)
		where := r.From(q)
		if where == FromBoth {
			where = "both"
		}
		name := q.Kernel
		if first := r.Results[slices.IndexFunc(r.Results,
			func(first measure.Result) bool { return first.Kernel == q.Kernel })]; first.Rows != q.Rows {
			name += fmt.Sprintf(", %d rows", q.Rows)
		}
		row := []string{
			name, where, digits(q.NsPerElement.Median), rounded(q.GBPerS),
			fmt.Sprintf("%s%% (%s-%s)", whole(q.Share.Median), whole(q.Share.Lo), whole(q.Share.Hi)),
		}
		for _, name := range others {
			times := "-"
			if o := w.on(name); o != nil {
				times = rounded(o.NsPerElement.Median / q.NsPerElement.Median)
			}
			row = append(row, times)
		}
		rows = append(rows, append(row, rounded(q.TimesReference.Median)))
	}
	return 2, header, rows
}

// rounded prints to a tenth, and large numbers to the unit.
func rounded(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return humanize.CommafWithDigits(math.Round(x), 0)
}

// Fast says in a line how fast the first kernel on rows of logits, token_stats, is on the best
// instruction set, or nothing if none was measured. Cached is the same kernel on rows that a
// cache holds, if that was measured.
func (r Report) Fast(cached []measure.Result) string {
	all := workloadsOf(OnCPU(r.Results))
	i := slices.IndexFunc(all, workload.rows)
	if i < 0 {
		return ""
	}
	q := r.best(all[i])
	line := fmt.Sprintf("%s on %s: %s ns a logit, %s%% of a plain read", q.Kernel, q.ISA, digits(q.NsPerElement.Median),
		whole(q.Share.Median))
	switch r.From(q) {
	case FromMemory:
		line += " from memory"
		if len(cached) > 0 {
			line += ", " + whole(cached[len(cached)-1].Share.Median) + "% from a cache"
		}
	case FromCache:
		line += ", both from a cache"
	case FromBoth:
		line += ", both partly from a cache"
	}
	return line + "."
}

// Cost says in a line what ActFocus with AEM costs a training step, with and without
// a KL anchor, or nothing if that was not measured. Of several instruction sets,
// shapes or kinds of advantages it takes the last. The GPU has its own part of the line.
func Cost(overheads []measure.Overhead) string {
	var parts []string
	for _, on := range [...]struct {
		gpu  bool
		what string
	}{{false, "ActFocus and AEM"}, {true, "ActFocus and AEM on the GPU"}} {
		verdicts := map[bool]string{} // with and without an anchor
		for _, o := range overheads {
			if (o.ISA == machine.CUDA) == on.gpu && o.Step == "actfocus+aem" {
				verdicts[o.KL] = o.Verdict
			}
		}
		if len(verdicts) == 2 {
			part := fmt.Sprintf("%s with a KL anchor: %s; without an anchor: %s.", on.what, verdicts[true],
				verdicts[false])
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// Brief returns a line for each training step that fits into 100 columns.
func (r Overhead) Brief() (text int, header []string, rows [][]string) {
	for _, o := range r.Overhead {
		anchor := "no"
		if o.KL {
			anchor = "yes"
		}
		allocs := strconv.FormatUint(o.Allocs, 10)
		rows = append(rows, []string{o.Step, anchor, o.Verdict, cli.Ratio(o.OverUniform), extraMemory(o), allocs})
	}
	return 3, []string{"step", "KL anchor", "verdict", "times uniform", "extra memory", "allocs"}, rows
}

// Right says in a line that a check of these kernels found nothing wrong.
func Right(kernels string, isas []string) string {
	if len(isas) == 1 {
		return kernels + " agrees with float64."
	}
	return kernels + " agrees with float64, with the same bits on " + list(isas) + "."
}

// list names several things in a sentence.
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Checked says in a line what was checked.
func Checked(parities []measure.Parity, sizes []int) string {
	cases := 0
	seen := map[string]bool{}
	for _, p := range parities {
		cases += p.Cases
		seen[p.Kernel+p.DType] = true
	}
	return fmt.Sprintf("Checked: %d kernels and number formats against float64, %s cases, sizes 1 to %s.",
		len(seen), humanize.Comma(int64(cases)), humanize.Comma(int64(slices.Max(sizes))))
}

// on returns the workload's result with that instruction set, or nil.
func (w workload) on(isa string) *measure.Result {
	i := slices.IndexFunc(w, func(q measure.Result) bool { return q.ISA == isa })
	if i < 0 {
		return nil
	}
	return &w[i]
}
