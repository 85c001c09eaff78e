package study

import (
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// WriteFigure draws the differences of one measure to uniform weights with their
// intervals as an SVG: a row for each cell, and a colour for each scheme. A filled mark
// shows a difference after the correction for all comparisons, an open one does not.
func WriteFigure(w io.Writer, measure Measure, all []Comparison) error {
	colours := []color.Color{color.RGBA{0x1f, 0x77, 0xb4, 255}, color.RGBA{0xff, 0x7f, 0x0e, 255}, color.RGBA{0x2c, 0xa0, 0x2c, 255}, color.RGBA{0x94, 0x67, 0xbd, 255}}
	what, scale := map[Measure]string{
		Final:   "success after training, hundredths of a perfect player's",
		Area:    "mean success during training, hundredths of a perfect player's",
		Updates: "iterations until 60% of a perfect player's success",
	}[measure], 100.0
	if measure == Updates {
		scale = 1
	}
	p := plot.New()
	p.X.Label.Text = "difference to uniform weights: " + what
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	var cells []Cell
	var schemes []string
	for _, c := range all {
		if !slices.Contains(cells, c.Cell) {
			cells = append(cells, c.Cell)
		}
		if !slices.Contains(schemes, c.Scheme) {
			schemes = append(schemes, c.Scheme)
		}
	}
	for _, c := range all {
		if c.Measure != measure || math.IsNaN(c.Low) {
			continue
		}
		scheme := slices.Index(schemes, c.Scheme)
		y := -float64(slices.Index(cells, c.Cell)) + 0.25 - 0.5*float64(scheme)/float64(max(1, len(schemes)-1))
		line, err := plotter.NewLine(plotter.XYs{{X: scale * c.Low, Y: y}, {X: scale * c.High, Y: y}})
		if err != nil {
			return err
		}
		mark, err := plotter.NewScatter(plotter.XYs{{X: scale * c.Difference, Y: y}})
		if err != nil {
			return err
		}
		line.Color = colours[scheme%len(colours)]
		mark.Color, mark.Shape = line.Color, draw.RingGlyph{}
		if c.Verdict() != "" {
			mark.Shape = draw.CircleGlyph{}
		}
		p.Add(line, mark)
	}
	var ticks []plot.Tick
	for i, c := range cells {
		ticks = append(ticks, plot.Tick{Value: -float64(i), Label: c.Game + " " + c.Algorithm + " " + c.Reasoning})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max = 0.5-float64(len(cells)), 0.5
	for i, name := range schemes {
		line := &plotter.Line{LineStyle: plotter.DefaultLineStyle}
		line.Color = colours[i%len(colours)]
		p.Legend.Add(name, line)
	}
	p.Legend.Top, p.Legend.Left = true, true
	to, err := p.WriterTo(20*vg.Centimeter, vg.Length(2+len(cells))*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	_, err = to.WriteTo(w)
	return err
}
