package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
)

// Notes say in a line each how the table of results is to be read: how fast the
// plain read was, where rows of logits lay, and how noisy the machine was.
func (r Report) Notes() []string {
	var notes []string
	for _, note := range [...]string{r.reads(), r.place(), r.noise()} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// readsOf returns the speed of the plain read in each workload on rows of
// logits, or on tokens, in ascending order.
func readsOf(results []Result, rows bool) []float64 {
	var speeds []float64
	for _, w := range workloadsOf(results) { // shared by all instruction sets
		if speed := w.results[0].ReadGBPerS; w.rows == rows && finite(speed) {
			speeds = append(speeds, speed)
		}
	}
	slices.Sort(speeds)
	return speeds
}

// setRoofline sets it from the results.
func (r *Report) setRoofline() {
	r.Roofline = Roofline{}
	results := r.oneWorker()
	for _, rows := range [...]bool{true, false} {
		if x := readsOf(results, rows); x != nil {
			r.Roofline = Roofline{median(x), x[0], x[len(x)-1]}
			return
		}
	}
}

func (r Report) reads() string {
	var parts []string
	for _, of := range [...]struct {
		rows bool
		name string
	}{{true, "rows of logits"}, {false, "tokens"}} {
		switch x := readsOf(r.oneWorker(), of.rows); len(x) {
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

// place says where rows of logits were read from. It says memory only if the
// size of the largest cache is known and smaller.
func (r Report) place() string {
	var least, most, row uint64
	var typ string
	for _, q := range r.Results {
		if q.Vocab == 0 {
			continue
		}
		var dtype reweight.DType
		if dtype.UnmarshalText([]byte(q.DType)) != nil {
			continue // from a file
		}
		one := uint64(q.Vocab) * uint64(dtype.Size())
		if n := uint64(q.Rows) * one; most == 0 {
			least, most, row, typ = n, n, one, q.DType
		} else {
			least, most = min(least, n), max(most, n)
		}
	}
	if most == 0 {
		return ""
	}
	size, cache := humanize.IBytes(least), uint64(r.Machine.L3)
	if to := humanize.IBytes(most); to != size {
		size += " to " + to
	}
	switch {
	case cache == 0:
		return fmt.Sprintf("Rows of logits: %s, from memory or a cache: how large the largest cache is is not known.", size)
	case cache < least:
		return fmt.Sprintf("Rows of logits: %s, from memory: the L3 cache has %s.", size, humanize.IBytes(cache))
	case cache < most:
		return fmt.Sprintf("Rows of logits: %s, the larger from memory, the smaller inside a cache of %s.", size, humanize.IBytes(cache))
	}
	return fmt.Sprintf("Rows of logits: %s, inside a cache of %s: not memory. bench run -rows %d of %s exceeds it.",
		size, humanize.IBytes(cache), (5*cache/4+row-1)/row, typ)
}

// noise says how much two measurements of the same plain read differed, or
// nothing without results.
func (r Report) noise() string {
	var nulls []bench.Estimate
	outliers, rounds := 0, 0
	for _, w := range workloadsOf(r.Results) {
		for _, q := range w.results {
			outliers += q.NsPerElement.Outliers
			rounds += q.NsPerElement.N
		}
		if null := w.results[0].Null; finite(null.Median, null.Lo, null.Hi) { // shared by all instruction sets
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
