package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/seed621a2839/reweight/bench"
)

// The formats of the gate besides the table.
var gateFormats = [...]struct {
	name, what string
	write      func(gateReport, io.Writer) error
}{
	{"json", "all that was measured as JSON", gateReport.writeJSON},
	{"junit", "the verdicts as JUnit XML, for CI systems that show tests", gateReport.writeJUnit},
	{"markdown", "a summary for a pull request", gateReport.writeMarkdown},
}

// gateOutputs are the files that the report is written to.
type gateOutputs struct {
	stdout io.Writer
	files  [len(gateFormats)]struct {
		name string // empty if it is not wanted, - for standard output
		f    *os.File
	}
}

// open opens the files, before minutes of work.
func (o *gateOutputs) open() error {
	taken := false
	for i := range o.files {
		file := &o.files[i]
		switch file.name {
		case "":
		case "-":
			if taken {
				return fmt.Errorf("-%s -: only one format fits on standard output", gateFormats[i].name)
			}
			taken = true
		default:
			var err error
			if file.f, err = os.OpenFile(file.name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
				o.close()
				return fmt.Errorf("-%s: %w", gateFormats[i].name, err)
			}
		}
	}
	return nil
}

func (o *gateOutputs) close() {
	for i := range o.files {
		if f := o.files[i].f; f != nil {
			f.Close()
		}
	}
}

// write writes them, and the table unless another format has its place. One that
// cannot be written keeps no other from being written.
func (o *gateOutputs) write(r gateReport) (err error) {
	table := true
	for i := range o.files {
		file, format := &o.files[i], gateFormats[i]
		switch {
		case file.name == "-":
			table = false
			err = also(err, format.write(r, o.stdout))
		case file.f != nil:
			e := format.write(r, file.f)
			if closed := file.f.Close(); e == nil {
				e = closed
			}
			if e != nil {
				err = also(err, fmt.Errorf("-%s: %w", format.name, e))
			}
		}
	}
	if table {
		err = also(r.writeTable(o.stdout), err)
	}
	return err
}

// cells returns the header and the rows of a table, and how many of the columns
// are text.
func (r gateReport) cells() (text int, header []string, rows [][]string) {
	header = []string{"kernel", "type", "path", "verdict", "x portable", "floor", "of read", "floor"}
	if r.base {
		header = []string{"kernel", "type", "path", "verdict", "base ns", "new ns", "ratio", "interval", "pairs"}
	}
	text = 4
	optional := func(x float64, format string) string {
		if x == 0 {
			return "-"
		}
		return fmt.Sprintf(format, x)
	}
	of := func(e *bench.Estimate, format string, unit float64) string {
		if e == nil {
			return "-"
		}
		return fmt.Sprintf(format, unit*e.Median)
	}
	for _, q := range r.Results {
		row := []string{q.Kernel, q.Type, q.Path, q.Verdict.String()}
		switch {
		case !r.base:
			row = append(row, of(q.TimesPortable, "%.1f", 1), optional(q.TimesFloor, "%.1f"), of(q.Share, "%.1f%%", 100), optional(100*q.ShareFloor, "%.1f%%"))
		case q.Ratio == nil || q.Ratio.N == 0:
			row = append(row, "-", "-", "-", "-", "0")
		default:
			row = append(row, fmt.Sprintf("%.0f", q.BaseNs), fmt.Sprintf("%.0f", q.NewNs), fmt.Sprintf("%.3f", q.Ratio.Median), interval(*q.Ratio), fmt.Sprint(q.Ratio.N))
		}
		rows = append(rows, row)
	}
	return text, header, rows
}

// remarks are the lines below a table.
func (r gateReport) remarks() []string {
	var lines []string
	for _, q := range r.Results {
		if q.Message != "" {
			lines = append(lines, q.name()+": "+q.Message)
		}
	}
	lines = append(lines, r.Notes...)
	if e := r.Null; e != nil && e.N > 0 {
		lines = append(lines, fmt.Sprintf("Noise now: what is measured again takes %.4f times as long (%.4f to %.4f); %d of %d times are outliers", e.Median, e.Lo, e.Hi, e.Outliers, e.N))
	}
	return lines
}

func (r gateReport) writeTable(w io.Writer) error {
	text, header, rows := r.cells()
	if len(rows) > 0 {
		if err := table(w, text, header, rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	for _, line := range r.remarks() {
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}

func (r gateReport) writeJSON(w io.Writer) error { return printJSON(w, r) }

// writeMarkdown has what failed in sight and all the rest folded.
func (r gateReport) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;")
	fmt.Fprintf(&b, "**bench gate: %s**\n\n", cell.Replace(r.summary()))
	for _, line := range r.remarks() {
		fmt.Fprintf(&b, "- %s\n", cell.Replace(line))
	}
	text, header, rows := r.cells()
	if len(rows) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>%s, %s %s/%s</summary>\n\n", cell.Replace(r.Machine.CPU), r.Machine.Go, r.Machine.OS, r.Machine.Arch)
		fmt.Fprintf(&b, "| %s |\n|%s%s\n", strings.Join(header, " | "), strings.Repeat(" :-- |", text), strings.Repeat(" --: |", len(header)-text))
		for _, row := range rows {
			for i := range row {
				row[i] = cell.Replace(row[i])
			}
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
		b.WriteString("\n</details>\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// The elements of JUnit XML that CI systems read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
		Output   string      `xml:"system-out"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"` // what is not known is neither a success nor a failure
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

func (r gateReport) writeJUnit(w io.Writer) error {
	s := junitSuite{Name: "bench gate against " + r.Against, Tests: len(r.Results), Output: strings.Join(append(r.remarks(), r.summary()), "\n")}
	for _, q := range r.Results {
		c := junitCase{Class: "bench.gate." + q.Path, Name: q.Kernel + " " + q.Type}
		m := &junitMessage{q.Message}
		if q.Message == "" {
			m.Message = q.Verdict.String()
		}
		switch q.Verdict {
		case bench.Regression:
			c.Failure = m
			s.Failures++
		case bench.Inconclusive, bench.Open:
			c.Skipped = m
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	text, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}
