package study

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// A Figure is one of the audit of a cell: of all its policies, where Iteration is -1, or of those after so many
// iterations.
type Figure struct {
	Fluent    int
	Errors    float64
	Iteration int
	Name      string // such as "efficiency of actfocus"
}

// Audited are the figures of audit.csv.
type Audited map[Figure]diagnose.Interval

// ReadAudited reads audit.csv.
func ReadAudited(path string) (Audited, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := Audited{}
	for _, line := range lines[1:] {
		var err error
		number := func(i int) float64 {
			x, bad := strconv.ParseFloat(line[i], 64)
			err = cmp.Or(err, bad)
			return x
		}
		f := Figure{int(number(0)), number(1), int(number(2)), line[5]}
		all[f] = diagnose.Interval{Value: number(6), Low: number(7), High: number(8)}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
}

// A Gain is what an audit says of a scheme in a cell, and what the scheme gained there over uniform weights.
type Gain struct {
	Cell       train.Run
	Scheme     string
	Efficiency diagnose.Interval
	Equal      float64 // mean success during training, at the same small rates
	Best       float64 // the same, at the rates that are best for each
}

// Gains returns one for each cell of the map and each of its schemes, by the audits after these iterations.
func (a Audits) Gains(of Audited, iteration int, rows Table, all []Effect) (gains []Gain, err error) {
	for _, e := range all {
		c := cell(e.Fluent, e.Errors)
		g := Gain{Cell: c, Scheme: e.Scheme, Best: e.Difference}
		var ok bool
		if g.Efficiency, ok = of[Figure{c.Fluent, c.Errors, iteration, "efficiency of " + e.Scheme}]; !ok {
			return nil, fmt.Errorf("audit.csv lacks %s at L %d, q %v", e.Scheme, c.Fluent, c.Errors)
		}
		for _, rate := range equalRates {
			for _, seed := range a.Tuning {
				run := atRate(c, rate)
				run.Seed, run.Scheme = seed, e.Scheme
				with := rows[run].Success
				run.Scheme = Uniform
				g.Equal += (with - rows[run].Success) / float64(len(equalRates)*len(a.Tuning))
			}
		}
		gains = append(gains, g)
	}
	return gains, nil
}

// equalRates are those at which plan-audit.md compares.
var equalRates = []float64{1e-3, 3e-3}

// Correlation is Spearman's, of the efficiencies with the gains. It is that of their logarithms, where these exist.
func Correlation(gains []Gain, of func(g Gain) float64) (float64, error) {
	var x, y []float64
	for _, g := range gains {
		x, y = append(x, g.Efficiency.Value), append(y, of(g))
	}
	c, err := diagnose.Spearman(x, y)
	return c.Rho, err
}

// AtEqual and AtBest are the gains of a Gain.
func AtEqual(g Gain) float64 { return g.Equal }
func AtBest(g Gain) float64  { return g.Best }

// Predictions holds the audits to the first four predictions of plan-audit.md.
func (a Audits) Predictions(of Audited, gains []Gain) ([]Prediction, error) {
	equal, err := Correlation(gains, AtEqual)
	if err != nil {
		return nil, err
	}
	best, err := Correlation(gains, AtBest)
	if err != nil {
		return nil, err
	}
	least, most, far := math.Inf(1), math.Inf(-1), 0.0
	for _, fluent := range a.Fluent {
		at := func(errors float64, name string) float64 { return of[Figure{fluent, errors, -1, name}].Value }
		least, most = min(least, at(0, "signal of action")), max(most, at(1, "signal of action"))
		for _, errors := range a.Errors {
			far = max(far, math.Abs(at(errors, "efficiency of actfocus")-at(errors,
				"efficiency of "+train.ActFocusWithoutBeta)))
		}
	}
	return []Prediction{
		{"The efficiency goes with the gain at equal rates: Spearman's correlation above 0.8", fmt.Sprintf("%+.2f", equal), !(equal > 0.8)},
		{"With the gain at the best rates the correlation is lower by 0.2 or more", fmt.Sprintf("%+.2f", best), !(best <= equal-0.2)},
		{
			"Actions have more than 0.8 of the signal where q is 0, and less than 0.2 where q is 1",
			fmt.Sprintf("at least %.2f, and at most %.2f", least, most), !(least > 0.8 && most < 0.2),
		},
		{"ActFocus's efficiencies with and without beta differ by less than 0.1 in each cell", fmt.Sprintf("by up to %.2f", far), !(far < 0.1)},
	}, nil
}

// Figure draws the gains as an SVG: a panel for each audit, the efficiency to the right, the gain upwards.
func (a Audits) Figure(panels map[int][]Gain) []byte {
	const side, left, top, gap, most, far = 300, 70, 70, 60, 0.25, 6.0
	width, height := left+len(a.Iterations)*(side+gap), top+side+90
	colours := map[float64]string{0: "#0072b2", 0.5: "#8a8f98", 1: "#c2410c"}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text := func(x, y float64, style, s string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f"%s>%s</text>`+"\n", x, y, style, s)
	}
	text(left, 22, ` font-weight="bold"`, "What the audit said, and what training did: 12 cells, four schemes")
	names := map[int]string{0: "at the start", 10: "after 10 iterations", 30: "after 30 iterations"}
	for i, iteration := range a.Iterations {
		x0 := float64(left + i*(side+gap))
		x := func(efficiency float64) float64 { // by its logarithm, within the panel
			return x0 + side/2 + side/2*math.Log(min(far, max(1/far, efficiency)))/math.Log(far)
		}
		y := func(gain float64) float64 { return top + side/2 - side/2*min(most, max(-most, gain))/most }
		text(x0, top-10, ` font-weight="bold"`, "Audited "+names[iteration])
		fmt.Fprintf(&b, `<rect x="%.0f" y="%d" width="%d" height="%d" fill="none" stroke="#8a8f98"/>`+"\n", x0, top,
			side, side)
		fmt.Fprintf(&b, `<path d="M%.0f %dV%dM%.0f %.0fH%.0f" stroke="#8a8f98" stroke-dasharray="4 3"/>`+"\n",
			x(1), top, top+side, x0, y(0), x0+side)
		for _, tick := range []float64{1 / far, 0.5, 1, 2, far} {
			text(x(tick), top+side+18, ` text-anchor="middle" font-size="11"`, strconv.FormatFloat(tick, 'g', 2, 64))
		}
		if i == 0 {
			for _, tick := range []float64{-most, 0, most} {
				text(x0-8, y(tick)+4, ` text-anchor="end" font-size="11"`, points(tick))
			}
			text(x0, top+side+38, ` font-size="12"`, "efficiency over uniform weights, by the audit")
		}
		for _, g := range panels[iteration] {
			about := fmt.Sprintf("L %d, q %v, %s: efficiency %.2f, %s hundredths", g.Cell.Fluent, g.Cell.Errors,
				schemeTitles[g.Scheme],
				g.Efficiency.Value, points(g.Equal))
			at, up, colour := x(g.Efficiency.Value), y(g.Equal), colours[g.Cell.Errors]
			if g.Scheme == "aem" {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="none" stroke="%s"><title>%s</title></circle>`+"\n", at, up, colour, about)
			} else {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`+"\n", at, up,
					colour, about)
			}
		}
	}
	text(left, float64(height-34), ` font-size="12"`,
		"Upwards: mean success during training against uniform weights at rates 0.001 and 0.003, in hundredths. Full: ActFocus; hollow: AEM.")
	text(left, float64(height-14), ` font-size="12"`,
		"Mistakes are made in the reasoning: never (blue), half of them (grey), always (orange). What lies outside is drawn at the edge.")
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}
