package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
)

// Notes say in a line each how the table of results is to be read: how fast the
// plain read was, where rows of logits lay, and how noisy the machine was.
func (r Report) Notes() []string {
	var notes []string
	for _, note := range [...]string{r.reads(), r.memoryOfGPU(), r.place(), r.noise()} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// BriefNotes are lines of at most 100 columns that say where rows of logits lay.
func (r Report) BriefNotes() []string {
	place := r.place()
	if place == "" {
		return nil
	}
	notes := []string{place}
	if at := r.From(OnCPU(r.Results)[0]); at == FromCache || at == FromBoth {
		notes = append(notes, "bench run measures rows from memory, which here takes more than a minute.")
	}
	return notes
}

// oneWorker returns the results with the first number of workers: with several, the plain
// read has as many.
func oneWorker(results []measure.Result) (some []measure.Result) {
	for _, q := range results {
		if q.Workers == results[0].Workers || q.Vocab == 0 {
			some = append(some, q)
		}
	}
	return some
}

// finite reports whether all were measured.
func finite(xs ...float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return x-x != 0 })
}

// speeds says how fast something was in several workloads, in GB/s; nothing of none.
func speeds(what string, x []float64) string {
	x = slices.DeleteFunc(x, func(v float64) bool { return !finite(v) })
	slices.Sort(x)
	n := len(x)
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("%s at %s GB/s", what, rounded((x[(n-1)/2]+x[n/2])/2))
	if n > 1 {
		text += fmt.Sprintf(" (%s-%s over %d workloads)", rounded(x[0]), rounded(x[n-1]), n)
	}
	return text
}

// sentence joins those of the parts that say something, if one does.
func sentence(begin string, parts ...string) string {
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return ""
	}
	return begin + strings.Join(parts, ", ") + "."
}

func (r Report) reads() string {
	var rows, tokens []float64
	for _, w := range workloadsOf(OnCPU(oneWorker(r.Results))) { // shared by all instruction sets
		if w.rows() {
			rows = append(rows, w[0].ReadGBPerS)
		} else {
			tokens = append(tokens, w[0].ReadGBPerS)
		}
	}
	return sentence("Plain read: ", speeds("rows of logits", rows), speeds("tokens", tokens))
}

// place says where rows of logits were read from.
func (r Report) place() string {
	var sizes []int64
	for _, q := range OnCPU(r.Results) {
		if n := rowBytes(q); n > 0 {
			sizes = append(sizes, n)
		}
	}
	if sizes == nil {
		return ""
	}
	least, most := slices.Min(sizes), slices.Max(sizes)
	size, cache := humanize.IBytes(uint64(least)), int64(r.Machine.LastCache())
	if to := humanize.IBytes(uint64(most)); to != size {
		size += " to " + to
	}
	if cache == 0 {
		return fmt.Sprintf("Rows of logits: %s, from memory or from a cache: the size of the last cache is not known.", size)
	}
	what := map[string]string{FromMemory: "from memory", FromCache: "from a cache, not from memory",
		FromBoth: "partly from a cache"}
	lo, hi := what[from(least, cache)], what[from(most, cache)]
	if lo != hi {
		hi = "the larger " + hi + ", the smaller " + lo
	}
	return fmt.Sprintf("Rows of logits: %s, %s: the last cache has %s.", size, hi, humanize.IBytes(uint64(cache)))
}

// noise says how much two measurements of the same plain read differed, or
// nothing without results.
func (r Report) noise() string {
	var nulls []bench.Estimate
	outliers, rounds := 0, 0
	for _, w := range workloadsOf(r.Results) {
		for _, q := range w {
			outliers += q.NsPerElement.Outliers
			rounds += q.NsPerElement.N
		}
		if null := w[0].Null; finite(null.Median, null.Lo, null.Hi) { // shared by all instruction sets
			nulls = append(nulls, null)
		}
	}
	if nulls == nil {
		return ""
	}
	lo, hi, widest := nulls[0].Median, nulls[0].Median, nulls[0]
	for _, e := range nulls {
		lo, hi = min(lo, e.Median), max(hi, e.Median)
		if e.Hi-e.Lo > widest.Hi-widest.Lo {
			widest = e
		}
	}
	over := fmt.Sprintf("%.3f", lo)
	if n := len(nulls); n > 1 {
		over += fmt.Sprintf("-%.3f over %d workloads", hi, n)
	}
	return fmt.Sprintf("A/A null, the plain read over itself: %s, widest interval %.3f-%.3f. Outliers: %s of %s rounds.",
		over, widest.Lo, widest.Hi, humanize.Comma(int64(outliers)), humanize.Comma(int64(rounds)))
}
