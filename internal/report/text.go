package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/internal/cli"
	"golang.org/x/perf/benchfmt"
)

// Ended marks what is partial, because of an interrupt or an error.
const Ended = "partial: the run ended before all was measured"

// Write prints the report in that format.
func (r Report) Write(w io.Writer, as cli.Format) error {
	switch as {
	case cli.Markdown:
		return r.WriteMarkdown(w)
	case cli.CSV:
		return r.WriteCSV(w)
	case cli.JSON:
		return r.WriteJSON(w)
	case cli.Go:
		return r.WriteGo(w)
	}
	return r.writeTable(w)
}

func (r Report) writeTable(w io.Writer) error {
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
		r.WriteNotes(w)
	}
	if err := r.writeGoals(w); err != nil {
		return err
	}
	if drift := r.Drift(); drift != "" {
		fmt.Fprintf(w, "\n%s\n", drift)
	}
	if r.Partial {
		fmt.Fprintf(w, "\n%s\n", Ended)
	}
	return nil
}

// WriteNotes says how the table is to be read.
func (r Report) WriteNotes(w io.Writer) { fmt.Fprintf(w, "\n%s\n", strings.Join(r.Notes(), "\n")) }

// Table returns the results as cells for people: the first columns are text, the
// others numbers with their intervals.
func (r Report) Table() (text int, header []string, rows [][]string) {
	text, header = 3, []string{"kernel", "type", "isa", "workers", "rows", "from", "ns/element", "GB/s", "of read", "x reference", "x portable", "rounds", "allocs", "max ulp", "max abs"}
	compared, copied := false, false
	for _, q := range r.Results {
		compared, copied = compared || q.Baseline != nil, copied || q.CopyShare != nil
	}
	if copied {
		header = append(header, "of copy")
	}
	if compared {
		header = append(header, "against baseline")
	}
	for _, q := range r.Results {
		row := append([]string{q.Kernel, q.DType, q.ISA, strconv.Itoa(q.Workers), shapeOf(q.Rows, q.Vocab, 1), r.From(q)}, cells(q)...)
		if copied {
			row = append(row, ofCopy(q))
		}
		if compared {
			against := "-"
			if q.Baseline != nil {
				against = q.Baseline.String()
			}
			row = append(row, against)
		}
		rows = append(rows, row)
	}
	return text, header, rows
}

func cells(q Result) []string {
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

// WriteMarkdown writes the machine, the results and how to read them.
func (r Report) WriteMarkdown(w io.Writer) error {
	m := r.Machine
	var b strings.Builder
	if r.Partial {
		fmt.Fprintf(&b, "**%s**\n\n", Ended)
	}
	fmt.Fprintf(&b, "%s, %s, %s/%s\n\n", cli.MarkdownText(m.CPU), m.Go, m.OS, m.Arch)
	if noisy := Noisy(r.Nulls()); noisy != "" {
		fmt.Fprintf(&b, "**%s**\n\n", noisy)
	}
	text, header, rows := r.Table()
	if err := cli.WriteMarkdown(&b, text, header, rows); err != nil {
		return err
	}
	for _, note := range r.Notes() {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	if text, header, rows := r.Goals(); len(rows) > 0 {
		fmt.Fprintf(&b, "\n%s\n\n", goalsTitle)
		if err := cli.WriteMarkdown(&b, text, header, rows); err != nil {
			return err
		}
	}
	if drift := r.Drift(); drift != "" {
		fmt.Fprintf(&b, "\n%s\n", drift)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// csvHeader names the columns of WriteCSV as JSON does.
var csvHeader = []string{
	"kernel", "dtype", "isa", "rows", "vocab", "workers", "ns_per_element", "ns_lo", "ns_hi", "gb_per_s", "read_gb_per_s", "roofline_share",
	"share_lo", "share_hi", "times_reference", "times_portable", "times_portable_lo", "times_portable_hi", "rounds", "outliers", "null", "null_lo", "null_hi",
	"allocs_per_op", "bytes_per_op", "cycles_per_element", "instructions_per_element", "max_ulp", "max_abs",
	"copy_gb_per_s", "copy_share", "copy_share_lo", "copy_share_hi", "baseline_ratio", "baseline_lo", "baseline_hi", "baseline_read_ratio", "baseline_verdict", "partial",
}

// WriteCSV writes a line for each result with all digits. What was not measured
// is empty.
func (r Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	c.Write(csvHeader) // the first error stays, and Error returns it
	f := func(x float64) string {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return ""
		}
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	counted := func(x float64) string { // 0 means that it was not
		if x == 0 {
			return ""
		}
		return f(x)
	}
	n := strconv.Itoa
	for _, q := range r.Results {
		ns, share, portable := q.NsPerElement, q.Share, q.TimesPortable
		row := []string{
			q.Kernel, q.DType, q.ISA, n(q.Rows), n(q.Vocab), n(q.Workers), f(ns.Median), f(ns.Lo), f(ns.Hi), f(q.GBPerS), f(q.ReadGBPerS), f(share.Median), f(share.Lo), f(share.Hi),
			f(q.TimesReference.Median), f(portable.Median), f(portable.Lo), f(portable.Hi), n(ns.N), n(ns.Outliers), f(q.Null.Median), f(q.Null.Lo), f(q.Null.Hi),
			strconv.FormatUint(q.AllocsPerOp, 10), strconv.FormatUint(q.BytesPerOp, 10), counted(q.Cycles), counted(q.Instructions), f(float64(q.MaxULP)), f(float64(q.MaxAbs)),
		}
		if e := q.CopyShare; e != nil {
			row = append(row, f(q.CopyGBPerS), f(e.Median), f(e.Lo), f(e.Hi))
		} else {
			row = append(row, "", "", "", "")
		}
		if b := q.Baseline; b != nil {
			row = append(row, f(b.Ratio.Median), f(b.Ratio.Lo), f(b.Ratio.Hi), f(float64(b.Read)), b.Word)
		} else {
			row = append(row, "", "", "", "", "")
		}
		c.Write(append(row, strconv.FormatBool(r.Partial)))
	}
	c.Flush()
	return c.Error()
}

// WriteGo writes the standard Go benchmark format, a line for each round: the
// times of one benchmark are what benchstat takes its intervals from. The count
// of iterations is 1, the round.
func (r Report) WriteGo(w io.Writer) error {
	b := benchfmt.NewWriter(w)
	pairs := []string{"goos", r.Machine.OS, "goarch", r.Machine.Arch, "pkg", "github.com/seed621a2839/reweight/bench", "cpu", r.Machine.CPU, "go", r.Machine.Go}
	if r.Partial {
		pairs = append(pairs, "note", Ended)
	}
	var config []benchfmt.Config
	for kv := range slices.Chunk(pairs, 2) {
		config = append(config, benchfmt.Config{Key: kv[0], Value: []byte(kv[1]), File: true})
	}
	for _, q := range r.Results {
		elements := float64(q.Rows) * float64(max(1, q.Vocab))
		bytes := q.GBPerS * q.NsPerElement.Median * elements
		name := fmt.Sprintf("Kernel/name=%s/type=%s/rows=%d/vocab=%d/workers=%d/isa=%s", q.Kernel, q.DType, q.Rows, q.Vocab, q.Workers, q.ISA)
		for _, ns := range q.Times {
			line := &benchfmt.Result{Config: config, Name: benchfmt.Name(name), Iters: 1, Values: []benchfmt.Value{
				{Value: ns, Unit: "ns/op"}, {Value: 1e3 * bytes / ns, Unit: "MB/s"},
				{Value: float64(q.BytesPerOp), Unit: "B/op"}, {Value: float64(q.AllocsPerOp), Unit: "allocs/op"},
			}}
			if err := b.Write(line); err != nil {
				return err
			}
		}
	}
	return nil
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
