package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/cmd/bench/internal/measure"
	"github.com/seed621a2839/reweight/internal/cli"
)

// Ended marks what is partial, because of an interrupt or an error.
const Ended = "partial: the run ended before all was measured"

// Write prints the report: a table, or JSON.
func (r Report) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(w, r)
	}
	if err := cli.WriteTable(w, 2, nil, r.Machine.Rows()); err != nil {
		return err
	}
	if noisy := Noisy(r.Nulls()); noisy != "" {
		fmt.Fprintln(w)
		cli.Warning(w, noisy)
	}
	if len(r.Results) > 0 {
		cli.Heading(w, "Kernels")
		text, header, rows := r.Table()
		if err := cli.WriteTable(w, text, header, rows); err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s\n", strings.Join(r.Notes(), "\n"))
	}
	if text, header, rows := r.GPUSpeed(); len(rows) > 0 {
		cli.Heading(w, "The GPU beside a plain read and a plain copy there, in the same rounds")
		if err := cli.WriteTable(w, text, header, rows); err != nil {
			return err
		}
	}
	if r.Partial {
		fmt.Fprintf(w, "\n%s\n", Ended)
	}
	return nil
}

// Table returns the results as cells for people: the first columns are text, the
// others numbers with their intervals.
func (r Report) Table() (text int, header []string, rows [][]string) {
	text, header = 3, []string{"kernel", "type", "isa", "workers", "rows", "from", "ns/element", "GB/s", "of read",
		"x reference", "x portable", "rounds", "allocs", "max ulp", "max abs"}
	copied := slices.ContainsFunc(r.Results, func(q measure.Result) bool { return q.CopyShare != nil })
	if copied {
		header = append(header, "of copy")
	}
	for _, q := range r.Results {
		row := append([]string{q.Kernel, q.DType, q.ISA, strconv.Itoa(q.Workers), shapeOf(q.Rows, q.Vocab, 1),
			r.From(q)}, cells(q)...)
		if copied {
			row = append(row, ofCopy(q))
		}
		rows = append(rows, row)
	}
	return text, header, rows
}

func cells(q measure.Result) []string {
	return []string{
		fmt.Sprintf("%s (%s-%s)", digits(q.NsPerElement.Median), digits(q.NsPerElement.Lo), digits(q.NsPerElement.Hi)),
		fmt.Sprintf("%.2f", q.GBPerS),
		share(q.Share),
		fmt.Sprintf("%.1f", q.TimesReference.Median),
		fmt.Sprintf("%.1f (%.1f-%.1f)", q.TimesPortable.Median, q.TimesPortable.Lo, q.TimesPortable.Hi),
		strconv.Itoa(q.NsPerElement.N),
		strconv.FormatUint(q.AllocsPerOp, 10),
		cli.Small(float64(q.MaxULP)),
		cli.Small(float64(q.MaxAbs)),
	}
}

// digits prints times of very different sizes to three figures.
func digits(x float64) string {
	switch {
	case x < 0.01:
		return fmt.Sprintf("%.5f", x)
	case x < 10:
		return fmt.Sprintf("%.3f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return humanize.CommafWithDigits(math.Round(x), 0)
}

// whole prints a share in percent without the sign, and small ones to a tenth.
func whole(x float64) string {
	if x < 0.1 {
		return fmt.Sprintf("%.1f", 100*x)
	}
	return fmt.Sprintf("%.0f", 100*x)
}

// shapeOf prints rows and vocabulary, or tokens, and the workers if there are
// several.
func shapeOf(rows, vocab, workers int) string {
	s := humanize.Comma(int64(rows))
	if vocab > 0 {
		s += " x " + humanize.Comma(int64(vocab))
	}
	if workers > 1 {
		s += fmt.Sprintf(", %d workers", workers)
	}
	return s
}
