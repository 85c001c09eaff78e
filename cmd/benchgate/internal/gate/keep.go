package gate

import (
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/history"
	"github.com/seed621a2839/reweight/internal/printable"
)

// checkHistory finds out whether the file of -history can be written, before minutes of work.
func (g *gate) checkHistory(files *outputs) error {
	if g.History == "" {
		return nil
	}
	path, err := target(g.History)
	if err == nil {
		err = history.Check(path)
	}
	if err != nil {
		return fmt.Errorf("-history: %w", err)
	}
	g.History = path
	if i := slices.Index(files.paths[:], path); i >= 0 {
		return fmt.Errorf("-%s and -history are the same file, %s", Formats[i].Name, printable.Text(path))
	}
	return nil
}

// keep adds what was measured to the file of -history: of a commit, and to the end.
func (g *gate) keep() error {
	if g.History == "" || g.report.Partial {
		return nil
	}
	if g.changed {
		g.note("Nothing is added to -history: the working tree has changes, so that it is no commit")
		return nil
	}
	if points := g.report.points(); len(points) > 0 {
		if err := history.Append(g.History, points); err != nil {
			return fmt.Errorf("-history: %w", err)
		}
	}
	return nil
}

// points are the lines of -history: what was measured with the functions where the linker puts them, whatever the
// verdict is.
func (r report) points() (points []history.Point) {
	for _, q := range r.Results {
		if len(q.Pairs) < bench.FewestRounds || q.failed {
			continue
		}
		var ratios []float64
		for _, p := range q.Pairs {
			ratios = append(ratios, p.New/p.Base)
		}
		e := bench.Samples{ratios}.Median(0)
		points = append(points, history.Point{Date: r.Date, Commit: r.HeadCommit, Reference: r.BaseCommit,
			Package: q.Package, Benchmark: q.Benchmark, Ratio: digits5(e.Median), Lo: digits5(e.Lo), Hi: digits5(e.Hi),
			Pairs: e.N, Ns: digits5(q.NewNs), ReferenceNs: digits5(q.BaseNs),
			Machine: fmt.Sprintf("%s, %s/%s", r.Machine.CPU, r.Machine.OS, r.Machine.Arch), Go: r.Machine.Go,
			Version: r.Version})
	}
	return points
}

// digits5 rounds to five digits: the rest is noise.
func digits5(x float64) float64 {
	scale := math.Pow(10, 4-math.Floor(math.Log10(x)))
	return math.Round(x*scale) / scale
}
