package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/kernels"
)

// Every chart is drawn twice, for screens and for phones, and the page shows
// the one that fits: text stays as large as the page's.
const (
	wide   = 940
	narrow = 340
)

// A drawing is a chart in both widths.
type drawing struct{ Wide, Narrow template.HTML }

func draw(chart func(width float64) template.HTML) drawing {
	return drawing{chart(wide), chart(narrow)}
}

// isas are the instruction sets of the machine and its GPU, measured or not. They are the
// series of all charts, so that each looks the same in every report of the
// machine.
type isas []string

func (p isas) series(isa string) int { return max(0, slices.Index(p, isa)) }

// A workload is a kernel on inputs of one format and shape, which the
// instruction sets are compared on.
type workload struct {
	Number int // on the roofline, from 1
	Name   string
	Shape  string
	Ops    int // per element
	rows   bool

	results []Result // one for each instruction set
}

// Bytes is what an element must move at least.
func (w workload) Bytes() float64 { return w.results[0].GBPerS * w.results[0].NsPerElement.Median }

// Intensity is operations per byte.
func (w workload) Intensity() float64 { return float64(w.Ops) / w.Bytes() }

// best returns the fastest result.
func (w workload) best() Result {
	return slices.MinFunc(w.results, func(a, b Result) int { return cmp.Compare(a.NsPerElement.Median, b.NsPerElement.Median) })
}

// speed is that of the fastest result, in billion operations per second.
func (w workload) speed() float64 { return float64(w.Ops) / w.best().NsPerElement.Median }

func workloadsOf(results []Result) []workload {
	var all []workload
	index := map[key]int{}
	for _, r := range results {
		k := keyOf(r.Result)
		if k.isa != machine.CUDA { // the GPU has its own memory and its own reads
			k.isa = ""
		}
		i, ok := index[k]
		if !ok {
			i = len(all)
			index[k] = i
			w := workload{Number: i + 1, Name: r.Kernel + " " + r.DType, Shape: k.shape(), rows: k.vocab > 0}
			if kernel, err := kernels.Find(r.Kernel); err == nil {
				w.Ops = kernel.Ops
			}
			all = append(all, w)
		}
		all[i].results = append(all[i].results, r)
	}
	return all
}

// median of a copy of x, NaN without any.
func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	if len(x) == 0 {
		return math.NaN()
	}
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// legend draws the names of the instruction sets that were measured, in rows, and returns
// where the next row would be.
func (c *canvas) legend(p isas, measured map[string]bool) float64 {
	const x = 4.0
	at, y := x, 12.0
	for i, name := range p {
		if !measured[name] {
			continue
		}
		w := textWidth(name) + 30
		if at > x && at+w > c.w {
			at, y = x, y+18
		}
		c.mark(i, at+6, y, "")
		c.text("label", "start", at+16, y+4, name)
		at += w
	}
	return y + 18
}

// measured returns the instruction sets of the results.
func measured(results []Result) map[string]bool {
	m := map[string]bool{}
	for _, r := range results {
		m[r.ISA] = true
	}
	return m
}

// roofline places every workload by operations per byte and operations per
// second. What is bound by memory lies on the slope of the plain read.
func roofline(p isas, results []Result, width float64) template.HTML {
	c := &canvas{w: width, h: max(480, 0.56*width)}
	all := workloadsOf(results)
	var xs, ys []float64
	for _, w := range all {
		xs = append(xs, w.Intensity())
		for _, r := range w.results {
			ys = append(ys, float64(w.Ops)/r.NsPerElement.Median)
			ys = append(ys, r.ReadGBPerS*w.Intensity())
		}
	}
	const left = 46.0
	strip := c.legend(p, measured(results)) // where the numbers stand
	top := strip + numberRow*float64(numberRows(len(all), c.w-left)) + 12
	bottom := c.h - 42
	x := logScale(xs, left, c.w-10)
	y := logScale(ys, bottom, top)
	c.axes(x, y, "operations per byte", "billion operations per second")
	var notes []func() // written when all marks are known
	var marks [][2]float64
	for _, roof := range [...]struct {
		results []Result
		rows    bool
		name    string
	}{{OnCPU(results), true, "rows"}, {OnCPU(results), false, "tokens"}, {OnGPU(results), true, "rows on the GPU"}} {
		speed := median(readsOf(roof.results, roof.rows))
		if !finite(speed) {
			continue
		}
		// Within the frame.
		x1, x2 := max(x.lo, y.lo/speed), min(x.hi, y.hi/speed)
		c.line("roof", x.at(x1), y.at(x1*speed), x.at(x2), y.at(x2*speed))
		name := fmt.Sprintf("%s, %s GB/s", roof.name, three(speed))
		notes = append(notes, func() { c.along("note", x.at(x1), y.at(x1*speed), x.at(x2), y.at(x2*speed), name, marks) })
	}
	for _, w := range all {
		px := x.at(w.Intensity())
		lowest, highest := math.Inf(1), math.Inf(-1)
		for _, r := range w.results {
			py := y.at(float64(w.Ops) / r.NsPerElement.Median)
			lowest, highest = min(lowest, py), max(highest, py)
		}
		c.line("column", px, lowest, px, highest)
	}
	for _, w := range all {
		for _, r := range w.results {
			ops := float64(w.Ops) / r.NsPerElement.Median
			marks = append(marks, [2]float64{x.at(w.Intensity()), y.at(ops)})
			c.mark(p.series(r.ISA), x.at(w.Intensity()), y.at(ops),
				fmt.Sprintf("%d: %s on %s: %.3g billion operations per second, %.2g per byte", w.Number, w.Name, r.ISA, ops, w.Intensity()))
		}
	}
	c.numbers(all, func(w workload) (float64, float64) { return x.at(w.Intensity()), y.at(w.speed()) }, left, strip)
	for _, write := range notes {
		write()
	}
	return c.picture("Roofline", "Operations per second of every kernel over its operations per byte, with the plain read as the roof. The table below has the figures.")
}

// Numbers of workloads stand in rows above the chart, this far apart.
const numberStep, numberRow = 19.0, 14.0

// mostNumbers is how many workloads a roofline can show the numbers of.
const mostNumbers = 80

// numberRows returns how many rows so many numbers take.
func numberRows(n int, width float64) int {
	if n > mostNumbers {
		return 0
	}
	return int(math.Ceil(float64(n) * numberStep / (width - numberStep)))
}

// three prints a number with three digits, and a large one to the unit.
func three(x float64) string {
	if x < 1000 {
		return fmt.Sprintf("%.3g", x)
	}
	return humanize.CommafWithDigits(math.Round(x), 0)
}

// numbers writes the number of each workload above the chart, as near as can be to
// its column, and draws a line from there to its fastest mark. at returns the place of
// that.
func (c *canvas) numbers(all []workload, at func(workload) (x, y float64), left, top float64) {
	var some []workload
	for _, w := range all {
		if x, y := at(w); finite(x, y) && len(all) <= mostNumbers {
			some = append(some, w)
		}
	}
	slices.SortStableFunc(some, func(a, b workload) int { return cmp.Compare(a.Intensity(), b.Intensity()) })
	rows := max(1, numberRows(len(all), c.w-left))
	step := numberStep / float64(rows) // numbers that follow each other are in different rows
	places := make([]float64, len(some))
	from := left
	for i, w := range some {
		x, _ := at(w)
		places[i] = max(from, x)
		from = places[i] + step
	}
	to := c.w - numberStep/2
	for i := range slices.Backward(places) {
		places[i] = min(places[i], to)
		to = places[i] - step
	}
	for i, w := range some {
		x, y := at(w)
		row := top + numberRow*float64(i%rows+1)
		c.line("leader", places[i], row+2, x, y-6)
	}
	for i, w := range some {
		c.text("number", "middle", places[i], top+numberRow*float64(i%rows+1), strconv.Itoa(w.Number))
	}
}

// along writes above a line, where the fewest marks are.
func (c *canvas) along(class string, x1, y1, x2, y2 float64, s string, marks [][2]float64) {
	long, length := math.Hypot(x2-x1, y2-y1), textWidth(s)
	dx, dy := (x2-x1)/long, (y2-y1)/long
	if !finite(dx, dy) {
		return
	}
	best, fewest := 0.0, math.MaxInt
	for at := 8.0; at+length < long || at == 8; at += 8 {
		n := 0
		for _, m := range marks {
			u := (m[0]-x1)*dx + (m[1]-y1)*dy // along the line
			v := (m[0]-x1)*dy - (m[1]-y1)*dx // above it
			if u > at-8 && u < at+length+8 && v > -6 && v < 28 {
				n++
			}
		}
		if n < fewest {
			best, fewest = at, n
		}
	}
	fmt.Fprintf(&c.body, `<text class="%s" transform="translate(%.1f %.1f) rotate(%.2f)">%s</text>`+"\n",
		class, x1+best*dx+6*dy, y1+best*dy-6*dx, math.Atan2(dy, dx)*180/math.Pi, safe(s))
}

// axes draws the frame, ticks and names of two scales.
func (c *canvas) axes(x, y scale, xName, yName string) {
	most := int(max(3, (x.to-x.from)/70))
	for _, v := range x.ticks(most) {
		c.line("grid", x.at(v), y.from, x.at(v), y.to)
		c.text("tick", "middle", x.at(v), y.from+16, short(v))
	}
	for _, v := range y.ticks(int(max(3, (y.from-y.to)/40))) {
		c.line("grid", x.from, y.at(v), x.to, y.at(v))
		c.text("tick", "end", x.from-6, y.at(v)+4, short(v))
	}
	c.line("axis", x.from, y.from, x.to, y.from)
	c.line("axis", x.from, y.from, x.from, y.to)
	c.text("name", "middle", (x.from+x.to)/2, y.from+34, xName)
	c.upright("name", 11, (y.from+y.to)/2, yName)
}

// short prints ticks: 1k for 1000.
func short(v float64) string {
	prefix := ""
	if v >= 1000 {
		v, prefix = humanize.ComputeSI(v * (1 + 1e-12))
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + prefix
}

// bars draws the share of the plain read that each workload reaches with each
// instruction set, with its interval.
func bars(p isas, results []Result, width float64) template.HTML {
	const thick, gap, title = 11.0, 3.0, 17.0
	all := workloadsOf(results)
	c := &canvas{w: width}
	left, above := 226.0, 0.0
	if width < 600 { // names above the bars, not beside them
		left, above = 16, title
	}
	most := 1.1 // an interval may end beyond it
	for _, r := range results {
		if finite(r.Share.Median) {
			most = max(most, 1.1*r.Share.Median)
		}
	}
	top := c.legend(p, measured(results)) + 22
	x := scale{lo: 0, hi: most, from: left, to: c.w - 116}
	c.h = top
	for _, w := range all {
		c.h += above + float64(len(w.results))*(thick+gap) + 12
	}
	ticks := x.ticks(int(max(3, (x.to-x.from)/60)))
	for _, v := range ticks {
		c.text("tick", "middle", x.at(v), top-10, fmt.Sprintf("%.0f%%", 100*v))
	}
	y := top
	for _, w := range all {
		name, shape := w.Name, w.Shape
		if above > 0 {
			c.text("label", "start", 4, y+11, fmt.Sprintf("%d  %s", w.Number, name))
			c.text("tick", "end", c.w-4, y+11, shape)
			y += above
		} else {
			middle := y + float64(len(w.results))*(thick+gap)/2
			c.text("number", "start", 4, middle-2, strconv.Itoa(w.Number))
			c.text("label", "start", 28, middle-2, name)
			c.text("tick", "start", 28, middle+12, shape)
		}
		end := y + float64(len(w.results))*(thick+gap) + 2
		for _, v := range ticks {
			c.line("grid", x.at(v), y-2, x.at(v), end)
		}
		c.line("roof", x.at(1), y-2, x.at(1), end)
		for _, r := range w.results {
			about := fmt.Sprintf("%s on %s, %s: %s (%s to %s) of the plain read, %s ns/element", w.Name, r.ISA, shape, cli.Percent(r.Share.Median), whole(r.Share.Lo), whole(r.Share.Hi), digits(r.NsPerElement.Median))
			c.rect(fmt.Sprintf("bar s%d", p.series(r.ISA)%series), x.at(0), y, x.at(r.Share.Median)-x.at(0), thick, about)
			middle, end := y+thick/2, min(r.Share.Hi, most)
			c.line("whisker", x.at(r.Share.Lo), middle, x.at(end), middle)
			c.line("whisker", x.at(r.Share.Lo), middle-3, x.at(r.Share.Lo), middle+3)
			if end == r.Share.Hi {
				c.line("whisker", x.at(end), middle-3, x.at(end), middle+3)
			}
			c.text("tick", "start", x.at(max(r.Share.Median, end))+6, middle+4, digits(r.NsPerElement.Median)+" ns")
			y += thick + gap
		}
		y += 12
	}
	return c.picture("Share of the plain read", "For each kernel, type and shape, the speed with every instruction set as a share of a plain read of the same memory, with 95% intervals. The results table has the figures.")
}
