package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/seed621a2839/reweight/examples/learn/study"
)

// Terminal prints the learning curves of each cell and its comparisons, 80 columns
// wide, or as wide as the environment's COLUMNS says. There are colours if w is a
// terminal, unless the environment has NO_COLOR.
func Terminal(w io.Writer, s *study.Summary) error {
	if s.Runs == 0 {
		return errEmpty
	}
	var b bytes.Buffer
	for _, cell := range s.Cells {
		fmt.Fprintf(&b, "%s\n\n", cellTitle(s, cell))
		plot(&b, s, cell, columns(), colours(w))
		if err := table(&b, s, cell); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	footnotes(&b, s)
	_, err := w.Write(b.Bytes())
	return err
}

// columns returns the width to print in.
func columns() int {
	n, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil {
		return 80
	}
	return min(max(n, 40), 160)
}

func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// The colours of the schemes in a terminal, which uniform weights leave as it is.
// The last schemes share theirs with others.
var terminalColours = []asciigraph.AnsiColor{
	asciigraph.Default, asciigraph.DodgerBlue, asciigraph.DarkOrange, asciigraph.MediumSeaGreen,
	asciigraph.MediumPurple, asciigraph.HotPink, asciigraph.Goldenrod, asciigraph.SlateGray,
	asciigraph.DodgerBlue, asciigraph.DarkOrange, asciigraph.MediumSeaGreen,
}

// plot draws the curves of a cell. Each scheme has a character of its own, so that
// colour is not all that tells them apart.
func plot(b *bytes.Buffer, s *study.Summary, cell study.Cell, width int, coloured bool) {
	var curves [][]float64
	var chars []asciigraph.CharSet
	var colour []asciigraph.AnsiColor
	var legend bytes.Buffer
	n, used := 0, 0
	rows := 10 // of 10% each, and more where luck gave a batch more than a perfect player has
	for _, scheme := range s.Schemes {
		q, look := curve(s, cell, scheme), styleOf(scheme)
		var mean []float64
		known := false
		for _, m := range q.Mean {
			mean = append(mean, 100*m)
			known = known || finite(m)
			for finite(m) && 10*m > float64(rows) {
				rows++
			}
		}
		if !known {
			continue
		}
		n = max(n, len(mean))
		curves, chars = append(curves, mean), append(chars, asciigraph.CreateCharSet(look.plot))
		paint := asciigraph.Default
		if coloured {
			paint = terminalColours[look.number]
		}
		colour = append(colour, paint)
		entry := look.plot + " " + look.title
		long := 3 + utf8.RuneCountInString(entry)
		if used += long; used > width {
			legend.WriteByte('\n')
			used = long
		}
		if paint != asciigraph.Default {
			entry = paint.String() + entry + asciigraph.Default.String()
		}
		legend.WriteString("   " + entry)
	}
	if len(curves) == 0 {
		b.WriteString("  no run is done\n\n")
		return
	}
	fmt.Fprintln(b, asciigraph.PlotMany(curves,
		asciigraph.Width(width-10), asciigraph.Height(rows), asciigraph.LowerBound(0), asciigraph.UpperBound(float64(10*rows)),
		asciigraph.SeriesChars(chars...), asciigraph.SeriesColors(colour...),
		asciigraph.YAxisValueFormatter(func(y float64) string { return fmt.Sprintf("%.0f%%", y) }),
		asciigraph.XAxisRange(1, float64(max(n, 2))),
		asciigraph.XAxisValueFormatter(func(x float64) string { return fmt.Sprintf("%.0f", x) }),
	))
	fmt.Fprintf(b, "\n%s\n\n", legend.String())
}

// table prints the comparisons of a cell.
func table(b *bytes.Buffer, s *study.Summary, cell study.Cell) error {
	var rows [][]string
	for _, m := range study.Measures {
		name := string(m)
		for _, scheme := range s.Schemes[1:] {
			q := comparison(s, cell, scheme, m)
			word := verdict(q)
			if word == unshown {
				word = "none shown"
			}
			rows = append(rows, []string{name, styleOf(scheme).short, value(m, q.Uniform), value(m, q.Reweighted), interval(q), pValue(q.Adjusted), word})
			name = ""
		}
	}
	align := []tw.Align{tw.AlignLeft, tw.AlignLeft, tw.AlignRight, tw.AlignRight, tw.AlignRight, tw.AlignRight, tw.AlignLeft}
	var out bytes.Buffer
	t := tablewriter.NewTable(&out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Symbols:  tw.NewSymbols(tw.StyleASCII),
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.Lines{ShowHeaderLine: tw.On}},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithTrimSpace(tw.Off),
	)
	t.Header("measure", "scheme", "uniform", "scheme's", "difference", "p", "verdict")
	if err := t.Bulk(rows); err != nil {
		return err
	}
	if err := t.Render(); err != nil {
		return err
	}
	for line := range strings.Lines(out.String()) {
		fmt.Fprintln(b, strings.TrimRight(line, " \n"))
	}
	return nil
}

// footnotes says how to read the tables.
func footnotes(b *bytes.Buffer, s *study.Summary) {
	seeds := "seeds"
	if s.Seeds == 1 {
		seeds = "seed"
	}
	fmt.Fprintf(b, "%d runs of %d, %d %s a cell and scheme, %s of training.\n", s.Runs, s.Planned, s.Seeds, seeds, duration(s.Seconds))
	fmt.Fprintf(b, `Success is given as a share of a perfect player's.
  final    success after training
  area     mean success during training
  updates  iterations until the last %d have a mean of %.0f%%; less is better
Differences to uniform weights are means over pairs of equal seeds, with 95%%
intervals: in hundredths of a perfect player's success, or in iterations.
p is that of a permutation test, corrected for all %d comparisons (Holm).
A verdict of better or worse needs p of at most %.2f.
`, study.Recent, 100*study.Level, len(s.Comparisons), alpha)
	fmt.Fprintf(b, "%s stands for what cannot be computed, such as an interval from one seed.\n", none)
	if warning := tooFew(s); warning != "" {
		fmt.Fprintln(b, strings.Replace(warning, ": ", ":\n", 1))
	}
}

// tooFew warns of a study whose p values cannot show anything.
func tooFew(s *study.Summary) string {
	if s.Attainable <= alpha {
		return ""
	}
	if !(s.Attainable < 1) {
		return "This study has too few seeds to show a difference by its p values: take more with -seeds, or look at the intervals."
	}
	return fmt.Sprintf("This study has too few seeds to show a difference by its p values: after the correction for %d comparisons, none can be below %.2f.", len(s.Comparisons), s.Attainable)
}
