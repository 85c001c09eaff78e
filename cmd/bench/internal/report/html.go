package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// A grid is a table of the page; the first columns are text.
type grid struct {
	Text   int
	Header []string
	Rows   [][]string
}

// WriteHTML writes one page that needs nothing else: no script, no font and no
// network.
func (r Report) WriteHTML(w io.Writer, rollout Rollout) error {
	results, p := r.oneWorker(), isas(r.Machine.ISAs)
	text, header, rows := r.Table()
	header, rows = append(header, "outliers", "A/A null"), append([][]string{}, rows...)
	data := struct {
		Report
		Title                  string
		About                  [][]string
		Roofline, Bars, Tokens drawing
		Growth                 []drawing
		Kernels, Results       grid
		Rollout                Rollout
		Notes                  []string
		Drift                  string
		Mark                   string
		Workers                int
	}{
		Report: r, Title: "Kernels of reweight on " + r.Machine.CPU, About: r.Machine.Rows(), Rollout: rollout, Notes: r.Notes(), Drift: r.Drift(), Mark: Ended,
	}
	if len(results) > 0 {
		data.Workers = results[0].Workers
		data.Roofline = draw(func(width float64) template.HTML { return roofline(p, results, width) })
		data.Bars = draw(func(width float64) template.HTML { return bars(p, results, width) })
	}
	if len(rollout.Tokens) > 0 {
		data.Tokens = draw(func(width float64) template.HTML { return rolloutBars(rollout, width) })
	}
	data.Kernels = kernelGrid(results)
	growths := growthsOf(r)
	for _, of := range [...]string{"vocabulary", "tokens"} {
		var some []growth
		for _, g := range growths {
			if g.Of == of {
				some = append(some, g)
			}
		}
		if some != nil {
			data.Growth = append(data.Growth, draw(func(width float64) template.HTML { return growthPanels(p, some, width) }))
		}
	}
	for i, q := range r.Results {
		rows[i] = append(rows[i], strconv.Itoa(q.NsPerElement.Outliers), cli.Ratio(q.Null))
	}
	data.Results = grid{text, header, rows}
	return pageTemplate.Execute(w, data)
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
