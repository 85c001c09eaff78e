package study

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/studies/learn/train"
	"gonum.org/v1/gonum/stat"
)

// Rates is the study of plan-rates.md: the cells and schemes of a map at more rates.
type Rates struct {
	Map
	Upwards []float64 // rates above those of the map, or between them
	Seeds   []int
}

// TheRates is the study of plan-rates.md, and SmokeRates a part of it.
var (
	TheRates   = Rates{TheMap, []float64{6e-3, 2e-2, 3e-2}, []int{101, 102, 103, 104, 105, 106}}
	SmokeRates = Rates{SmokeMap, []float64{2e-2}, []int{101, 102}}
)

// All returns all rates, the smallest first.
func (r Rates) All() []float64 {
	return slices.Sorted(slices.Values(slices.Concat(r.Map.Rates, r.Upwards)))
}

// Runs returns all, those at the rates that the map lacks first.
func (r Rates) Runs() []train.Run {
	at := func(rates []float64) []train.Run {
		return r.Map.runs(func(train.Run) []float64 { return rates }, r.Seeds)
	}
	return append(at(r.Upwards), at(r.Map.Rates)...)
}

// A Point is what the runs of a scheme in a cell say of a rate.
type Point struct {
	Success, Final float64 // medians, during training and at the end
	Lost           int     // runs that end below a tenth of success
}

// Points has a Point for each run without a seed.
type Points map[train.Run]Point

// Points returns those of all runs, which must be done.
func (r Rates) Points(done Table) (Points, error) {
	success, final := map[train.Run][]float64{}, map[train.Run][]float64{}
	points := Points{}
	for _, run := range r.Runs() {
		row, ok := done[run]
		if !ok {
			return nil, fmt.Errorf("the study is not finished: it lacks %+v", run)
		}
		run.Seed = 0
		success[run], final[run] = append(success[run], row.Success), append(final[run], row.Final)
		points[run] = Point{median(success[run]), median(final[run]), points[run].Lost + lost(row)}
	}
	return points, nil
}

// at returns the point of a scheme in a cell at a rate.
func (points Points) at(cell train.Run, scheme string, rate float64) Point {
	cell.Scheme, cell.Rate = scheme, rate
	return points[cell]
}

// Best returns the rate of a scheme in a cell with the highest median during training, of equal ones the smallest.
func (r Rates) Best(points Points, cell train.Run, scheme string) float64 {
	best, most := 0.0, math.Inf(-1)
	for _, rate := range r.All() {
		if p := points.at(cell, scheme, rate); p.Success > most {
			best, most = rate, p.Success
		}
	}
	return best
}

// Cells returns the cells of the map.
func (r Rates) Cells() (cells []train.Run) {
	for _, fluent := range r.Fluent {
		for _, errors := range r.Errors {
			cells = append(cells, cell(fluent, errors))
		}
	}
	return cells
}

// Effects compares the schemes with uniform weights, each at its best rate, by the runs that chose it.
func (r Rates) Effects(done Table, points Points) ([]Effect, error) {
	return effects(done, r.Map.runs(func(run train.Run) []float64 {
		return []float64{r.Best(points, cell(run.Fluent, run.Errors), run.Scheme)}
	}, r.Seeds))
}

// Predictions holds the points to the predictions of plan-rates.md, in its order. A difference is that of the medians.
func (r Rates) Predictions(all Points) []Prediction {
	cells := r.Cells()
	// over is the mean difference of a scheme to uniform weights at a rate, in the cells that keep says.
	over := func(scheme string, rate float64, keep func(cell train.Run) bool) float64 {
		var found []float64
		for _, c := range cells {
			if keep(c) {
				found = append(found, all.at(c, scheme, rate).Success-all.at(c, Uniform, rate).Success)
			}
		}
		return stat.Mean(found, nil)
	}
	high, below := 0, 0
	for _, c := range cells {
		uniform := r.Best(all, c, Uniform)
		if uniform > 1e-2 {
			high++
		}
		if r.Best(all, c, "actfocus") <= uniform {
			below++
		}
	}
	var fall []string
	last, rise := math.Inf(1), math.Inf(-1)
	far, gone := 0.0, map[string]int{}
	for _, rate := range r.All() {
		if rate >= 3e-3 {
			d := over("actfocus", rate, func(c train.Run) bool { return c.Errors == 0 && c.Fluent >= 4 })
			rise, last = max(rise, d-last), d
			fall = append(fall, points(d))
		}
		if d := over("aem", rate, func(train.Run) bool { return true }); math.Abs(d) > math.Abs(far) {
			far = d
		}
		if rate > 1e-2 {
			for _, c := range cells {
				for _, scheme := range []string{Uniform, "actfocus"} {
					gone[scheme] += all.at(c, scheme, rate).Lost
				}
			}
		}
	}
	of := func(n int) string { return fmt.Sprintf("in %d of %d", n, len(cells)) }
	return []Prediction{
		{"For uniform weights the best of the six rates is above 0.01 in at most 6 of 12 cells", of(high), high > 6},
		{"ActFocus's best rate is at or below that of uniform weights in at least 9 of 12 cells", of(below), below < 9},
		{
			"At q = 0 with L of 4 and more, ActFocus's difference falls from each rate to the next, from 0.003 on",
			strings.Join(fall, ", "), rise > 0.01,
		},
		{
			"At rates above 0.01, at least twice as many of ActFocus's runs are lost as of those with uniform weights",
			fmt.Sprintf("%d and %d", gone["actfocus"], gone[Uniform]), gone["actfocus"] < 2*gone[Uniform],
		},
		{
			"AEM's median is within 3 hundredths of that of uniform weights at each rate, in the mean over the cells",
			"at most " + points(far), math.Abs(far) > 0.03,
		},
	}
}

// CSV returns a line for each point.
func (r Rates) CSV(points Points) []byte {
	b := bytes.NewBufferString("fluent,errors,scheme,rate,success,final,lost\n")
	for _, c := range r.Cells() {
		for _, scheme := range r.Schemes {
			for _, rate := range r.All() {
				p := points.at(c, scheme, rate)
				fmt.Fprintf(b, "%d,%s,%s,%s,%s,%s,%d\n", c.Fluent, digits(c.Errors), scheme, digits(rate),
					digits(p.Success), digits(p.Final), p.Lost)
			}
		}
	}
	return b.Bytes()
}

// Figure draws the points as an SVG: a panel for each cell, the rates to the right, the median during training upwards.
// Where runs are lost, the point is hollow, and their number stands beside it.
func (r Rates) Figure(all Points) []byte {
	const wide, high, left, top, gap = 210, 150, 70, 80, 26
	rates, columns := r.All(), len(r.Fluent)
	width, height := left+columns*(wide+gap), top+len(r.Errors)*(high+2*gap)+20
	colours := map[string]string{
		Uniform: "#000000", "actfocus": "#c2410c", train.ActFocusWithoutBeta: "#e69f00",
		train.ActFocusBySurprisal: "#b0508f", "aem": "#0072b2",
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text := func(x, y float64, style, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f"%s>%s</text>`+"\n", x, y, style, s)
	}
	text(left, 22, ` font-weight="bold"`, "Success during training, in hundredths, by learning rate, in thousandths: the median of six runs")
	for i, scheme := range r.Schemes {
		x := float64(left + i*165)
		fmt.Fprintf(&b, `<path d="M%.0f 42h24" stroke="%s" stroke-width="2"/>`+"\n", x, colours[scheme])
		text(x+30, 46, "", cmp.Or(schemeTitles[scheme], "uniform weights"))
	}
	for i, c := range r.Cells() {
		x0, y0 := float64(left+i/len(r.Errors)*(wide+gap)), float64(top+i%len(r.Errors)*(high+2*gap))
		x := func(rate float64) float64 { // by its logarithm
			return x0 + 8 + (wide-16)*math.Log(rate/rates[0])/math.Log(rates[len(rates)-1]/rates[0])
		}
		y := func(success float64) float64 { return y0 + high*(1-success) }
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="%d" height="%d" fill="none" stroke="#8a8f98"/>`+"\n", x0, y0,
			wide, high)
		text(x0, y0-6, "", fmt.Sprintf("L %d, q %v", c.Fluent, c.Errors))
		for _, rate := range rates {
			text(x(rate), y0+high+14, ` text-anchor="middle" font-size="11"`, digits(1000*rate))
		}
		if c.Fluent == r.Fluent[0] {
			for _, tick := range []float64{0, 0.5, 1} {
				text(x0-8, y(tick)+4, ` text-anchor="end" font-size="11"`, fmt.Sprint(100*tick))
			}
		}
		for _, scheme := range r.Schemes {
			title, colour, line := cmp.Or(schemeTitles[scheme], "uniform weights"), colours[scheme], ""
			for _, rate := range rates {
				line += fmt.Sprintf(" %.1f,%.1f", x(rate), y(all.at(c, scheme, rate).Success))
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", line[1:], colour)
			for _, rate := range rates {
				p, fill := all.at(c, scheme, rate), colour
				if p.Lost > 0 {
					fill = "#ffffff"
					style := fmt.Sprintf(` font-size="10" fill="%s"`, colour)
					text(x(rate)+6, y(p.Success)-3, style, fmt.Sprint(p.Lost))
				}
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s" stroke="%s"><title>%s at %s: %.1f, at the end %.1f, %d lost</title></circle>`+"\n",
					x(rate), y(p.Success), fill, colour, title, digits(rate), 100*p.Success, 100*p.Final, p.Lost)
			}
		}
	}
	text(left, float64(height-14), ` font-size="12"`,
		"Hollow: some of the six runs end below a tenth of success, as many as the number says.")
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}
