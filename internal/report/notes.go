package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/measure"
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

// readsOf returns the speed of the plain read in each workload on rows of
// logits, or on tokens, in ascending order.
func readsOf(results []measure.Result, rows bool) []float64 {
	var speeds []float64
	for _, w := range workloadsOf(results) { // shared by all instruction sets
		if speed := w[0].ReadGBPerS; w.rows() == rows && finite(speed) {
			speeds = append(speeds, speed)
		}
	}
	slices.Sort(speeds)
	return speeds
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

// median returns that of numbers in ascending order.
func median(x []float64) float64 { return (x[(len(x)-1)/2] + x[len(x)/2]) / 2 }

// finite reports whether all were measured.
func finite(xs ...float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return x-x != 0 })
}

func (r Report) reads() string {
	var parts []string
	for _, of := range [...]struct {
		rows bool
		name string
	}{{true, "rows of logits"}, {false, "tokens"}} {
		switch x := readsOf(OnCPU(oneWorker(r.Results)), of.rows); len(x) {
		case 0:
		case 1:
			parts = append(parts, fmt.Sprintf("%s at %.1f GB/s", of.name, x[0]))
		default:
			parts = append(parts, fmt.Sprintf("%s at %.1f GB/s (%.1f-%.1f over %d workloads)", of.name, median(x), x[0], x[len(x)-1], len(x)))
		}
	}
	if parts == nil {
		return ""
	}
	return "Plain read: " + strings.Join(parts, ", ") + "."
}

// place says where rows of logits were read from.
func (r Report) place() string {
	var least, most int64
	for _, q := range OnCPU(r.Results) {
		if n := rowBytes(q); n > 0 {
			if most == 0 {
				least = n
			}
			least, most = min(least, n), max(most, n)
		}
	}
	if most == 0 {
		return ""
	}
	size, cache := humanize.IBytes(uint64(least)), int64(r.Machine.LastCache())
	if to := humanize.IBytes(uint64(most)); to != size {
		size += " to " + to
	}
	lo, hi := from(least, cache), from(most, cache)
	if cache == 0 {
		return fmt.Sprintf("Rows of logits: %s, from memory or from a cache: the size of the last cache is not known.", size)
	}
	what := map[string]string{FromMemory: "from memory", FromCache: "from a cache, not from memory", FromBoth: "partly from a cache"}
	where := what[hi]
	if lo != hi {
		where = "the larger " + what[hi] + ", the smaller " + what[lo]
	}
	return fmt.Sprintf("Rows of logits: %s, %s: the last cache has %s.", size, where, humanize.IBytes(uint64(cache)))
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
	return fmt.Sprintf("A/A null, the plain read over itself: %s, widest interval %.3f-%.3f. Outliers: %s of %s rounds.",
		over(lo, hi, len(nulls)), widest.Lo, widest.Hi, humanize.Comma(int64(outliers)), humanize.Comma(int64(rounds)))
}

func over(lo, hi float64, workloads int) string {
	if workloads == 1 {
		return fmt.Sprintf("%.3f", lo)
	}
	return fmt.Sprintf("%.3f-%.3f over %d workloads", lo, hi, workloads)
}
