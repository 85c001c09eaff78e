package report

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
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

// isas are the instruction sets of the machine, measured or not. They are the
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
		k.isa = ""
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
	top := c.legend(p, measured(results)) + 14 // the highest pile has five lines
	left, bottom := 46.0, c.h-42
	x := logScale(xs, left, c.w-10)
	y := logScale(ys, bottom, top)
	c.axes(x, y, "operations per byte", "billion operations per second")
	var notes []func() // written when all marks are known
	var marks [][2]float64
	for _, roof := range [...]struct {
		rows bool
		name string
	}{{true, "rows"}, {false, "tokens"}} {
		speed := median(readsOf(results, roof.rows))
		if !finite(speed) {
			continue
		}
		// Within the frame.
		x1, x2 := max(x.lo, y.lo/speed), min(x.hi, y.hi/speed)
		c.line("roof", x.at(x1), y.at(x1*speed), x.at(x2), y.at(x2*speed))
		name := fmt.Sprintf("%s, %.3g GB/s", roof.name, speed)
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
	// The numbers of columns that all but touch stand in one pile over them, the
	// fastest on top, several abreast if they are many.
	order := slices.SortedStableFunc(slices.Values(all), func(a, b workload) int { return cmp.Compare(a.Intensity(), b.Intensity()) })
	for len(order) > 0 {
		first, n := x.at(order[0].Intensity()), 1
		for n < len(order) && x.at(order[n].Intensity())-first < 13 {
			n++
		}
		pile := slices.Clone(order[:n])
		middle := (first + x.at(order[n-1].Intensity())) / 2
		order = order[n:]
		slices.SortStableFunc(pile, func(a, b workload) int { return cmp.Compare(a.speed(), b.speed()) })
		abreast := 1 + len(pile)/5
		at := y.at(pile[len(pile)-1].speed()) - 9
		for some := range slices.Chunk(pile, abreast) {
			var numbers []string
			for _, w := range some {
				numbers = append(numbers, strconv.Itoa(w.Number))
			}
			c.text("number", "middle", middle, at, strings.Join(numbers, " "))
			marks = append(marks, [2]float64{middle, at - 4})
			at -= 11
		}
	}
	for _, write := range notes {
		write()
	}
	return c.picture("Roofline", "Operations per second of every kernel over its operations per byte, with the plain read as the roof. The table below has the figures.")
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
		class, x1+best*dx+6*dy, y1+best*dy-6*dx, math.Atan2(dy, dx)*180/math.Pi, html.EscapeString(s))
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

// A growth is how the time of a kernel grows with the size of its input.
type growth struct {
	Kernel string
	DType  string
	Of     string // what grows: vocabulary or tokens
	Lines  []growthLine
}

// A growthLine is the part of it that one instruction set measured.
type growthLine struct {
	ISA    string
	sizes  []float64
	ns     []float64 // of a row, or of a call on so many tokens
	series int
}

// growthsOf takes measurements of one kernel and type that differ in vocabulary,
// or in tokens: those of the sweep, or of the run itself where it has several.
func growthsOf(r Report) []growth {
	swept := map[string]bool{}
	for _, q := range r.Sweep {
		swept[q.Kernel+q.DType] = true
	}
	results := slices.Clone(r.Sweep)
	for _, q := range r.Results {
		if !swept[q.Kernel+q.DType] && q.Workers == r.Results[0].Workers {
			results = append(results, q)
		}
	}
	var all []growth
	for _, q := range results {
		of, size := "tokens", q.Rows
		if q.Vocab > 0 {
			of, size = "vocabulary", q.Vocab
		}
		i := slices.IndexFunc(all, func(g growth) bool { return g.Kernel == q.Kernel && g.DType == q.DType })
		if i < 0 {
			i = len(all)
			all = append(all, growth{Kernel: q.Kernel, DType: q.DType, Of: of})
		}
		g := &all[i]
		j := slices.IndexFunc(g.Lines, func(l growthLine) bool { return l.ISA == q.ISA })
		if j < 0 {
			j = len(g.Lines)
			g.Lines = append(g.Lines, growthLine{ISA: q.ISA, series: isas(r.Machine.ISAs).series(q.ISA)})
		}
		l := &g.Lines[j]
		l.sizes, l.ns = append(l.sizes, float64(size)), append(l.ns, q.NsPerElement.Median*float64(size))
	}
	// Only those that were measured at several sizes.
	var several []growth
	for _, g := range all {
		g.Lines = slices.DeleteFunc(g.Lines, func(l growthLine) bool { return slices.Max(l.sizes) == slices.Min(l.sizes) })
		if len(g.Lines) > 0 {
			several = append(several, g)
		}
	}
	return several
}

// growthPanels draws a panel for each of them, all with the same axes.
func growthPanels(p isas, all []growth, width float64) template.HTML {
	c := &canvas{w: width}
	columns, title := 4, "label"
	if width < 600 {
		columns, title = 2, "tick"
	}
	const left, between, above, below = 48.0, 14.0, 30.0, 42.0
	var xs, ys []float64
	seen, types := map[string]bool{}, map[string]bool{}
	for _, g := range all {
		types[g.DType] = true
		for _, l := range g.Lines {
			seen[l.ISA] = true
			xs, ys = append(xs, l.sizes...), append(ys, l.ns...)
		}
	}
	panel := (width - left - 8 - between*float64(columns-1)) / float64(columns)
	tall := max(120, 0.75*panel)
	top := c.legend(p, seen) - 4
	rows := (len(all) + columns - 1) / columns
	c.h = top + float64(rows)*(tall+above) + below
	for i, g := range all {
		column, row := i%columns, i/columns
		x0 := left + float64(column)*(panel+between)
		y0 := top + above + float64(row)*(tall+above)
		x := logScale(xs, x0, x0+panel)
		y := logScale(ys, y0+tall, y0)
		for _, v := range x.ticks(3) {
			c.line("grid", x.at(v), y.from, x.at(v), y.to)
			if i+columns >= len(all) {
				c.text("tick", "middle", x.at(v), y.from+15, short(v))
			}
		}
		for _, v := range y.ticks(4) {
			c.line("grid", x.from, y.at(v), x.to, y.at(v))
			if column == 0 {
				c.text("tick", "end", x.from-5, y.at(v)+4, duration(v))
			}
		}
		c.line("axis", x.from, y.from, x.to, y.from)
		c.line("axis", x.from, y.from, x.from, y.to)
		name := g.Kernel
		if len(types) > 1 {
			name += " " + g.DType
		}
		c.text(title, "start", x0, y0-6, name)
		for _, l := range g.Lines {
			for k, size := range l.sizes {
				c.mark(l.series, x.at(size), y.at(l.ns[k]), fmt.Sprintf("%s on %s: %s at %s", g.Kernel, l.ISA, duration(l.ns[k]), humanize.Comma(int64(size))))
			}
		}
	}
	of := all[0].Of
	c.text("name", "middle", left+(width-left)/2, c.h-6, of)
	return c.picture("Time against "+of, "Time of each kernel with each instruction set over the size of its input, both axes logarithmic.")
}

// duration prints nanoseconds.
func duration(ns float64) string {
	units := [...]string{"ns", "µs", "ms", "s"}
	i := 0
	for ns *= 1 + 1e-12; ns >= 1000 && i < len(units)-1; i++ {
		ns /= 1000
	}
	return strconv.FormatFloat(ns, 'g', 3, 64) + " " + units[i]
}

// A Token is one token of a rollout and what the reweighting makes of it.
type Token struct {
	Text   string
	Role   string  // masked, reasoning or action
	Weight float64 // ActFocus
	Factor float64 // AEM, 0 outside responses
}

// A Rollout is a trajectory to show.
type Rollout struct {
	Title  string
	Tokens []Token
}

// roles are the names of roles in the order of their colours.
var roles = [...]string{"masked", "reasoning", "action"}

// rolloutBars draws the weight of each token as a bar coloured by role, and the
// factor of each response as a line over them.
func rolloutBars(r Rollout, width float64) template.HTML {
	c := &canvas{w: width}
	const left, tall, above = 30.0, 72.0, 28.0
	perLine := int((width - left - 4) / 7.4)
	most := 1.0
	for _, t := range r.Tokens {
		most = max(most, t.Weight, t.Factor)
	}
	at := 4.0
	for i, role := range roles {
		c.rect("role"+strconv.Itoa(i), at, 6, 10, 10, "")
		c.text("label", "start", at+15, 15, role)
		at += textWidth(role) + 42
	}
	top := 26.0
	if at+130 > width {
		at, top = 4, 44
	}
	c.line("factor", at, top-14, at+14, top-14)
	c.text("label", "start", at+19, top-10, "AEM factor of the response")
	lines := (len(r.Tokens) + perLine - 1) / perLine
	c.h = top + float64(lines)*(tall+above) + 8
	step := (width - left - 4) / float64(perLine)
	for line := range lines {
		y0 := top + above + float64(line)*(tall+above)
		y := scale{lo: 0, hi: most * 1.03, from: y0 + tall, to: y0}
		for _, v := range [...]float64{0, 1} {
			c.line("grid", left, y.at(v), width-4, y.at(v))
			c.text("tick", "end", left-5, y.at(v)+4, short(v))
		}
		from := line * perLine
		tokens := r.Tokens[from:min(from+perLine, len(r.Tokens))]
		c.text("tick", "start", left, y0-14, fmt.Sprintf("token %d", from))
		for i, t := range tokens {
			x := left + float64(i)*step
			role := slices.Index(roles[:], t.Role)
			about := fmt.Sprintf("%d %s: %s, ActFocus weight %.3f", from+i, t.Text, t.Role, t.Weight)
			if t.Factor != 0 {
				about += fmt.Sprintf(", AEM factor %.3f", t.Factor)
			}
			height := max(1.5, y.at(0)-y.at(t.Weight))
			c.rect("role"+strconv.Itoa(role), x, y.at(0)-height, step-1.4, height, about)
			if t.Role == "action" {
				c.text("label", "middle", min(max(x, left+textWidth(t.Text)/2), width-textWidth(t.Text)/2-2), y.at(0)-height-5, t.Text)
			}
		}
		for i := 0; i < len(tokens); {
			j := i + 1
			for j < len(tokens) && tokens[j].Factor == tokens[i].Factor {
				j++
			}
			if f := tokens[i].Factor; f != 0 {
				c.line("factor", left+float64(i)*step, y.at(f), left+float64(j)*step-1.4, y.at(f))
			}
			i = j
		}
	}
	return c.picture("Weights of a rollout", "A bar for each token: its ActFocus weight, coloured by role; lines: the AEM factor of each response. The text below has every token with its figures.")
}
