package cli

import (
	"fmt"
	"math"
	"strings"

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

// Counted returns so many of a thing in words.
func Counted(n int, thing string) string {
	if n != 1 {
		thing = strings.Replace(thing+"s", "ys", "ies", 1)
	}
	return humanize.Comma(int64(n)) + " " + thing
}
