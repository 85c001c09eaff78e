package cli

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
)

// Small prints a number with four digits, and NaN as a dash.
func Small(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.4g", x)
}

// Percent prints a share, such as 0.5, as "50.0%".
func Percent(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// Ratio prints a ratio and its interval.
func Ratio(e bench.Estimate) string { return fmt.Sprintf("%.3f (%.3f-%.3f)", e.Median, e.Lo, e.Hi) }

// Shape prints rows and vocabulary, or tokens, and the workers if there are
// several.
func Shape(rows, vocab, workers int) string {
	s := humanize.Comma(int64(rows))
	if vocab > 0 {
		s += " x " + humanize.Comma(int64(vocab))
	}
	if workers > 1 {
		s += fmt.Sprintf(", %d workers", workers)
	}
	return s
}
