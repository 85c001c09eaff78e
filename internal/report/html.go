package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/show"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(show.Templates("report").Parse(page))

// A grid is a table of the page; the first columns are text.
type grid struct {
	Text   int
	Header []string
	Rows   [][]string
}

// WriteHTML writes one page that needs nothing else: no font and no network. Its
// script sorts tables, and all else works without it.
func (r Report) WriteHTML(w io.Writer, rollout show.Page) error {
	results, p := r.oneWorker(), isas(r.Machine.Series())
	text, header, rows := r.Table()
	header, rows = append(header, "outliers", "A/A null"), append([][]string{}, rows...)
	data := struct {
		Report
		Title                          string
		Verdict, Figures               [][2]string
		Noisy                          string
		About                          [][]string
		Roofline, Bars                 drawing
		Kernels, Goals, Steps, Results grid
		Rollout                        show.Page
		Notes                          []string
		Drift                          string
		Mark                           string
		Workers                        int
	}{
		Report: r, Title: "Kernels of reweight on " + r.Machine.CPU, Verdict: r.verdict(), Figures: r.figures(), Noisy: Noisy(r.Nulls()),
		About: r.Machine.Rows(), Rollout: rollout, Notes: r.Notes(), Drift: r.Drift(), Mark: Ended,
	}
	if len(results) > 0 {
		data.Workers = results[0].Workers
		data.Roofline = draw(func(width float64) template.HTML { return roofline(p, results, width) })
		data.Bars = draw(func(width float64) template.HTML { return bars(p, results, width) })
	}
	data.Kernels = kernelGrid(results)
	data.Goals.Text, data.Goals.Header, data.Goals.Rows = r.Goals()
	if len(r.Overhead) > 0 {
		text, header, rows := OverheadTable(r.Overhead)
		data.Steps = grid{text, header, rows}
	}
	for i, q := range r.Results {
		rows[i] = append(rows[i], strconv.Itoa(q.NsPerElement.Outliers), cli.Ratio(q.Null))
	}
	data.Results = grid{text, header, rows}
	return pageTemplate.Execute(w, data)
}

// verdict answers three questions, each in a line: what it is about, and the answer.
func (r Report) verdict() [][2]string {
	var lines [][2]string
	add := func(about, answer string) {
		if answer != "" {
			lines = append(lines, [2]string{about, answer})
		}
	}
	switch {
	case len(r.Failures) > 0:
		add("Right", "NO. "+cli.FirstOf(r.Failures))
	case !r.Partial && len(r.Results) > 0:
		add("Right", Right("every kernel measured here", r.measuredISAs()))
	}
	add("Fast", r.Fast(nil))
	add("GPU", r.GPU())
	add("Cost", Cost(r.Overhead))
	return lines
}

// measuredISAs returns what the results are of, the slowest instruction set first and the
// GPU last.
func (r Report) measuredISAs() []string {
	seen := measured(r.Results)
	var names []string
	for _, name := range r.Machine.Series() {
		if seen[name] {
			names = append(names, name)
		}
	}
	return names
}

// figures returns up to six figures that a reader should remember, each with what it
// is.
func (r Report) figures() [][2]string {
	var figures [][2]string
	add := func(ok bool, figure, what string) {
		if ok {
			figures = append(figures, [2]string{figure, what})
		}
	}
	if results := OnGPU(r.Results); len(results) > 0 && results[0].CopyShare != nil {
		q := results[0]
		add(finite(q.CopyShare.Median), whole(q.CopyShare.Median)+"%", "of the speed of a plain copy on the GPU: "+q.Kernel)
	}
	if q := r.headline(); q != nil {
		add(finite(q.NsPerElement.Median), digits(q.NsPerElement.Median)+" ns", "a logit: "+q.Kernel+" on "+q.ISA)
		what := map[string]string{FromMemory: " from memory", FromCache: " from a cache", FromBoth: ", partly from a cache"}
		add(finite(q.Share.Median), whole(q.Share.Median)+"%", "of the speed of a plain read"+what[r.From(*q)])
		add(finite(q.TimesPortable.Median), rounded(q.TimesPortable.Median)+" times", "as fast as portable Go on one CPU")
		add(finite(q.TimesReference.Median), rounded(q.TimesReference.Median)+" times", "as fast as the float64 reference")
	}
	for i := range slices.Backward(r.Overhead) {
		if o := r.Overhead[i]; o.KL {
			add(finite(o.OverUniform.Median), fmt.Sprintf("%.3f times", o.OverUniform.Median), "the uniform training step, with ActFocus, AEM and a KL anchor")
			break
		}
	}
	return figures
}

// oneWorker returns the results with the first number of workers, which the
// charts are of.
func (r Report) oneWorker() []Result {
	var some []Result
	for _, q := range r.Results {
		if q.Workers == r.Results[0].Workers || q.Vocab == 0 {
			some = append(some, q)
		}
	}
	return some
}

// kernelGrid is the roofline in words.
func kernelGrid(results []Result) grid {
	g := grid{2, []string{"", "kernel", "rows", "ops/element", "bytes/element", "ops/byte", "Gop/s", "GB/s", "plain read GB/s", "of read", "isa"}, nil}
	for _, w := range workloadsOf(results) {
		b := w.best()
		g.Rows = append(g.Rows, []string{
			strconv.Itoa(w.Number), w.Name, w.Shape, strconv.Itoa(w.Ops), fmt.Sprintf("%.3g", w.Bytes()), fmt.Sprintf("%.3g", w.Intensity()),
			fmt.Sprintf("%.1f", float64(w.Ops)/b.NsPerElement.Median), fmt.Sprintf("%.2f", b.GBPerS), fmt.Sprintf("%.1f", b.ReadGBPerS), cli.Percent(b.Share.Median), b.ISA,
		})
	}
	return g
}
