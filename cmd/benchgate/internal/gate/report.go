package gate

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A format is a way to write the report, and the flag for it.
type format struct {
	Name, What string
	write      func(report, io.Writer) error
}

// Formats are those of the report besides the table.
var Formats = [...]format{
	{"json", "all that was measured as JSON", report.writeJSON},
	{"junit", "the verdicts as JUnit XML, for CI systems that show tests", report.writeJUnit},
	{"markdown", "a summary for a pull request", report.writeMarkdown},
	{"benchfmt", "the pairs of both builds in the Go benchmark format, for benchstat -col side", report.writeBenchfmt},
}

// outputs are the files that the report is written to in each of the formats. They are
// replaced when there is a report, and not before.
type outputs struct {
	stdout io.Writer
	names  [len(Formats)]string // empty if it is not wanted, - for standard output
	paths  [len(Formats)]string // of the others, without links
}

// check finds out whether the files can be written, before minutes of work.
func (o *outputs) check() error {
	taken := map[string]string{} // flags by file
	for i, name := range o.names {
		flag, path := "-"+Formats[i].Name, name
		if name != "" && name != "-" {
			var err error
			if path, err = target(name); err != nil {
				return fmt.Errorf("%s: %w", flag, err)
			}
			o.paths[i] = path
		}
		switch other := taken[path]; {
		case other == "" || name == "":
			taken[path] = flag
		case name == "-":
			return fmt.Errorf("%s -: only one format fits on standard output", flag)
		default:
			return fmt.Errorf("%s and %s are the same file, %s", other, flag, name)
		}
	}
	return nil
}

// target returns the path, without links, of a regular file that can be written,
// be it there or not.
func target(name string) (path string, err error) {
	if path, err = filepath.Abs(name); err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", err
		}
	} else {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path, atomicfile.Check(path)
}

// write writes the files, and to standard output the table unless a format goes
// there. If one cannot be written, the others still are.
func (o *outputs) write(r report) (err error) {
	r = r.printable()
	table := true
	for i, format := range Formats {
		switch {
		case o.names[i] == "-":
			table = false
			err = cli.Also(err, format.write(r, o.stdout))
		case o.paths[i] != "":
			if e := atomicfile.Write(o.paths[i], func(w io.Writer) error { return format.write(r, w) }); e != nil {
				err = cli.Also(err, fmt.Errorf("-%s: %w", format.Name, e))
			}
		}
	}
	if table {
		r.annotated = os.Getenv("GITHUB_ACTIONS") == "true"
		err = cli.Also(r.writeTable(o.stdout), err)
		if r.annotated {
			for _, line := range r.annotations() {
				fmt.Fprintln(o.stdout, line)
			}
		}
	}
	return err
}

// printable returns the report with escape sequences in place of what cannot be
// printed: texts in it come from git, from a file and from the programs of other
// revisions.
func (r report) printable() report {
	r.Error, r.Against = printable.Line(r.Error), printable.Line(r.Against)
	r.Machine.CPU, r.Machine.Go = printable.Line(r.Machine.CPU), printable.Line(r.Machine.Go)
	r.Notes, r.Results = slices.Clone(r.Notes), append([]Result{}, r.Results...) // in JSON, none is []
	for i := range r.Notes {
		r.Notes[i] = printable.Line(r.Notes[i])
	}
	for i := range r.Results {
		q := &r.Results[i]
		for _, text := range []*string{&q.Package, &q.Benchmark, &q.relative, &q.Message, &q.more, &q.Accepted,
			&q.Profile} {
			*text = printable.Line(*text)
		}
		q.Metrics = slices.Clone(q.Metrics)
		for j := range q.Metrics {
			q.Metrics[j].Unit = printable.Line(q.Metrics[j].Unit)
		}
	}
	return r
}

// messages are the lines about results.
func (r report) messages() []string {
	var lines []string
	for _, q := range r.Results {
		if line := q.remark(q.Message); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// newsBeside are lines about results that tell more than the rows of the table do, and what to do.
func (r report) newsBeside() []string {
	var lines, slower []string // slower are named as an acceptance names them
	for _, q := range r.Results {
		open := q.Verdict == bench.Regression && q.Accepted == ""
		if line := q.remark(q.beside()); line != "" && !(open && r.annotated) {
			lines = append(lines, line)
		}
		if open && !q.failed {
			slower = append(slower, strings.TrimPrefix("./"+q.relative+" "+q.Benchmark, "./. "))
		}
	}
	if len(slower) > 0 {
		lines = append(lines, fmt.Sprintf("To accept a regression, end a commit's message with: %s: %s REASON", trailer,
			slower[0]))
	}
	return lines
}

// beside is what the rows of the table do not say of a result. Of what failed, they say nothing.
func (q Result) beside() string {
	if q.failed || q.Ratio == nil && len(q.Metrics) == 0 {
		return q.Message
	}
	return q.more
}

// notes are the lines about the run as a whole.
func (r report) notes() []string {
	var lines []string
	if r.Error != "" {
		lines = append(lines, "It ended early: "+r.Error)
	}
	lines = append(lines, r.Notes...)
	if e := r.Null; e != nil && e.N > 0 {
		lines = append(lines, fmt.Sprintf("Noise now: of the same thing measured twice, the second takes %.4f times as long (%.4f to %.4f); %d of %d are outliers", e.Median, e.Lo, e.Hi, e.Outliers, e.N))
	}
	return lines
}

// writeTable writes what people read on a terminal.
func (r report) writeTable(w io.Writer) error {
	results, passes := r.split()
	folded := ""
	if len(passes) <= mostPasses {
		results = r.Results
	} else {
		slices.SortFunc(passes, func(a, b Result) int { return cmp.Compare(a.Ratio.Median, b.Ratio.Median) })
		folded = fmt.Sprintf("%d more pass, ratios %.2f to %.2f", len(passes), passes[0].Ratio.Median,
			passes[len(passes)-1].Ratio.Median)
	}
	if len(results) > 0 {
		if err := cli.WriteTable(w, textColumns, header, r.rows(results)); err != nil {
			return err
		}
	}
	if folded != "" {
		fmt.Fprintln(w, folded)
	}
	if len(r.Results) > 0 {
		fmt.Fprintln(w)
	}
	for _, line := range slices.Concat(r.newsBeside(), r.notes()) {
		fmt.Fprintln(w, line)
	}
	_, err := fmt.Fprintln(w, r.summary())
	return err
}

func (r report) writeJSON(w io.Writer) error { return cli.WriteJSON(w, r) }

// writeMarkdown shows what is worth a look, and folds the table of the benchmarks that pass.
func (r report) writeMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s: %s**\n\n", r.command, cli.MarkdownText(r.summary()))
	items := func(lines []string) {
		for _, line := range lines {
			fmt.Fprintf(&b, "- %s\n", cli.MarkdownText(line))
		}
	}
	worth, passes := r.split()
	if len(worth) > 0 {
		cli.WriteMarkdown(&b, textColumns, header, r.rows(worth))
		b.WriteString("\n")
	}
	items(r.newsBeside())
	if len(passes) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>%d pass</summary>\n\n", len(passes))
		cli.WriteMarkdown(&b, textColumns, header, r.rows(passes))
		b.WriteString("\n</details>\n")
	}
	b.WriteString("\n")
	items(append(r.notes(), r.machine()))
	_, err := io.WriteString(w, b.String())
	return err
}

// machine is the one that it ran on, in a line.
func (r report) machine() string {
	return fmt.Sprintf("%s, %s %s/%s", r.Machine.CPU, r.Machine.Go, r.Machine.OS, r.Machine.Arch)
}

// writeBenchfmt writes a result for each time of each pair, as go test prints them.
func (r report) writeBenchfmt(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "goos: %s\ngoarch: %s\ncpu: %s\n", r.Machine.OS, r.Machine.Arch, r.Machine.CPU)
	for i, version := range versionNames {
		fmt.Fprintf(&b, "side: %s\n", strings.Fields(version)[0])
		for _, q := range r.Results {
			fmt.Fprintf(&b, "pkg: %s\n", q.Package)
			taken := len(q.Pairs)
			if taken == 0 && len(q.Metrics) > 0 { // it reports no time
				taken = len(q.Metrics[0].pairs)
			}
			for n := range taken {
				fmt.Fprintf(&b, "%s\t%d", q.Benchmark, q.Calls)
				if n < len(q.Pairs) {
					fmt.Fprintf(&b, "\t%.6g ns/op", [...]float64{q.Pairs[n].Base, q.Pairs[n].New}[i])
				}
				for _, m := range q.Metrics {
					if n < len(m.pairs) {
						fmt.Fprintf(&b, "\t%.6g %s", [...]float64{m.pairs[n].Base, m.pairs[n].New}[i], m.Unit)
					}
				}
				b.WriteString("\n")
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// annotations are the lines by which GitHub shows regressions beside the code.
func (r report) annotations() []string {
	escape := func(s string, more ...string) string {
		return strings.NewReplacer(append(more, "%", "%25", "\r", "%0D", "\n", "%0A")...).Replace(s)
	}
	var lines []string
	for _, q := range r.Results {
		if q.Verdict != bench.Regression || q.Accepted != "" {
			continue
		}
		place := ""
		if q.file != "" {
			place = fmt.Sprintf("file=%s,line=%d,", escape(q.file, ":", "%3A", ",", "%2C"), q.line)
		}
		lines = append(lines, "::error "+place+"title=benchmark regression::"+escape(q.remark(q.Message)))
	}
	return lines
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
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

func (r report) writeJUnit(w io.Writer) error {
	s := junitSuite{Name: r.command + " against " + r.Against, Tests: len(r.Results),
		Output: strings.Join(slices.Concat(r.messages(), r.notes(), []string{r.summary()}), "\n")}
	for _, q := range r.Results {
		c := junitCase{Class: q.Package, Name: q.Benchmark}
		m := &junitMessage{cmp.Or(q.Message, q.Verdict.String())}
		switch {
		case q.Accepted != "" || q.Verdict == bench.Pass:
			c.Output = q.remark(q.Message)
		case q.Verdict == bench.Regression:
			c.Failure = m
			s.Failures++
		default:
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
