package report

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/examples/learn/study"
	"github.com/seed621a2839/reweight/examples/learn/train"
	"pgregory.net/rapid"
)

var nan = math.NaN()

// fake makes up a study of these cells and schemes.
func fake(cells []study.Cell, schemes []string, seeds, iterations int) *study.Summary {
	random := rand.New(rand.NewPCG(1, 2))
	s := &study.Summary{
		Runs: len(cells) * len(schemes) * seeds, Planned: len(cells) * len(schemes) * seeds,
		Seeds: seeds, Seconds: 5400, Cells: cells, Schemes: schemes, Attainable: 0.004,
	}
	for i, cell := range cells {
		ends := make([]float64, len(schemes))
		for k, scheme := range schemes {
			q := study.Curve{Cell: cell, Scheme: scheme}
			end, speed := 0.6+0.35*random.Float64(), 10+10*random.Float64()
			ends[k] = end
			for j := range iterations {
				mean := 0.15 + (end-0.15)*(1-math.Exp(-float64(j)/speed)) + 0.02*random.NormFloat64()
				width := 0.03 + 0.05*random.Float64()
				if seeds < 2 {
					width = nan
				}
				q.Mean = append(q.Mean, mean)
				q.Low, q.High = append(q.Low, mean-width), append(q.High, mean+width)
			}
			s.Curves = append(s.Curves, q)
			e := study.Explanation{
				Cell: cell, Scheme: scheme, Start: 0.15, Final: end, EntropyStart: 1.21, EntropyEnd: 0.6 + 0.1*random.Float64(),
				ActionEntropyStart: 0.8, ActionEntropyEnd: 0.3, Drift: -0.01 * random.Float64(),
			}
			for t := range e.Bottleneck {
				e.Bottleneck[t] = train.Correlations{All: bench.Number(random.Float64() / 2), Reasoning: bench.Number(random.Float64()/2 - 0.25), Action: bench.Number(random.Float64())}
			}
			s.Explanations = append(s.Explanations, e)
			if k == 0 {
				continue
			}
			for _, m := range study.Measures {
				c := study.Comparison{Cell: cell, Scheme: scheme, Measure: m, Pairs: seeds, Uniform: ends[0], Reweighted: end}
				size := 0.06
				if m == study.Updates {
					c.Uniform, c.Reweighted, size = 31, 31+10*(ends[0]-end), 4
					c.UniformCensored, c.ReweightedCensored = 1, i%3
				}
				c.Difference = c.Reweighted - c.Uniform
				c.Low, c.High = c.Difference-size, c.Difference+size
				c.P = math.Exp(-math.Abs(c.Difference/size) * 2)
				c.Adjusted = min(1, 5*c.P)
				if seeds < 2 {
					c.Low, c.High, c.P, c.Adjusted = nan, nan, nan, nan
				}
				s.Comparisons = append(s.Comparisons, c)
			}
		}
	}
	return s
}

// full has as many cells as the whole study.
func full(seeds int) *study.Summary { return fullOf(study.DefaultSchemes, seeds) }

func fullOf(schemes []string, seeds int) *study.Summary {
	var cells []study.Cell
	for _, game := range []string{"frozenlake4", "frozenlake6", "sokoban", "sudoku4", "shop"} {
		for _, algorithm := range []string{"grpo", "ppo"} {
			cells = append(cells, study.Cell{Game: game, Algorithm: algorithm, Reasoning: "useful"})
		}
	}
	for _, game := range []string{"sokoban", "sudoku4"} {
		for _, reasoning := range []string{"none", "noise"} {
			cells = append(cells, study.Cell{Game: game, Algorithm: "grpo", Reasoning: reasoning})
		}
	}
	return fake(cells, schemes, seeds, 80)
}

func pageOf(t *testing.T, s *study.Summary) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := Page(path, s, train.Default); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkXML(t, string(text))
	return string(text)
}

// checkXML: the page and with it each picture is well-formed, and ids are unique.
func checkXML(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	d.Entity = xml.HTMLEntity
	ids := map[string]bool{}
	pictures := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			line, column := d.InputPos()
			t.Fatalf("line %d, column %d: %v", line, column, err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if start.Name.Local == "svg" {
			pictures++
		}
		for _, a := range start.Attr {
			switch a.Name.Local {
			case "id":
				if ids[a.Value] {
					t.Errorf("two elements have the id %s", a.Value)
				}
				ids[a.Value] = true
			case "src", "href", "onload", "onclick":
				t.Errorf("<%s %s=%q>", start.Name.Local, a.Name.Local, a.Value)
			case "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "d":
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", start.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
		if name := start.Name.Local; name == "script" || name == "link" || name == "img" || name == "iframe" {
			t.Errorf("the page has a %s", name)
		}
	}
	if pictures < len(study.Measures) {
		t.Errorf("the page has %d pictures", pictures)
	}
	for _, word := range []string{"http:", "https:", "@import", "url(", "ZgotmplZ"} {
		if strings.Contains(text, word) {
			t.Errorf("the page has %s", word)
		}
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// words returns what a reader sees of the page, its pictures left out.
func words(page string) string {
	page = regexp.MustCompile(`(?s)<(svg|style).*?</(svg|style)>`).ReplaceAllString(page, "")
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(page, " ")), " "))
}

func TestPageHasAllNumbers(t *testing.T) {
	s := full(16)
	s.Explanations[0].Bottleneck[2].All = bench.Number(nan)
	page := pageOf(t, s)
	if len(page) > 400_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	seen := words(page)
	for _, c := range s.Comparisons {
		row := fmt.Sprintf("%s %s %s %d %s %s %s %s %s %s", cellTitle(s, c.Cell), styleOf(c.Scheme).short, c.Measure, c.Pairs, value(c.Measure, c.Uniform),
			value(c.Measure, c.Reweighted), interval(c), pValue(c.P), pValue(c.Adjusted), verdict(c))
		if !strings.Contains(seen, row) {
			t.Errorf("the page lacks %q", row)
		}
	}
	for _, c := range s.Comparisons[:9] {
		if cell := fmt.Sprintf("%s p %s, %s", interval(c), pValue(c.Adjusted), verdict(c)); c.Measure == study.Final && !strings.Contains(seen, cell) {
			t.Errorf("the table of final success lacks %q", cell)
		}
	}
	for _, e := range s.Explanations {
		for _, text := range []string{
			fmt.Sprintf("%.2f → %.2f", e.EntropyStart, e.EntropyEnd), number("%+.4f", e.Drift),
			number("%+.2f", float64(e.Bottleneck[0].Action)) + " → " + number("%+.2f", float64(e.Bottleneck[1].Action)) + " → " + number("%+.2f", float64(e.Bottleneck[2].Action)),
		} {
			if !strings.Contains(seen, text) {
				t.Errorf("the page lacks %q", text)
			}
		}
	}
	// The means over all cells, with a correlation that one cell does not have.
	for _, scheme := range s.Schemes {
		rho, drift, n := 0.0, 0.0, 0.0
		for _, e := range s.Explanations {
			if e.Scheme == scheme {
				drift += e.Drift
				n++
				if x := float64(e.Bottleneck[2].All); finite(x) {
					rho += x
				}
			}
		}
		known := n
		if scheme == s.Schemes[0] {
			known--
		}
		row := regexp.QuoteMeta(number("%+.2f", rho/known)) + ` [^e]*→ 0\.30 ` + regexp.QuoteMeta(number("%+.4f", drift/n))
		if ok, _ := regexp.MatchString(styleOf(scheme).short+" [^ ]* → [^ ]* → "+row, seen); !ok {
			t.Errorf("the page lacks %s", row)
		}
	}
	if n := strings.Count(page, "<svg role"); n != len(s.Cells)+len(study.Measures) {
		t.Errorf("the page has %d charts", n)
	}
	if !strings.Contains(seen, "Does the reasoning matter?") || !strings.Contains(seen, gameTitle("sokoban")+", GRPO noise as reasoning 15% →") {
		t.Error("the page does not compare kinds of reasoning")
	}
	if strings.Contains(seen, "not complete") || strings.Contains(seen, "too few seeds") {
		t.Error("the page warns of a complete study")
	}
}

// allSchemes has the names of train.Schemes.
func allSchemes() []string {
	var names []string
	for _, scheme := range train.Schemes {
		names = append(names, scheme.Name)
	}
	return names
}

// TestStyles: each scheme has a style of its own, and dashes and a colour on the page.
func TestStyles(t *testing.T) {
	names := allSchemes()
	if len(styles) != len(names) || len(terminalColours) != len(names) {
		t.Fatalf("%d styles and %d colours for %d schemes", len(styles), len(terminalColours), len(names))
	}
	seen := map[string]bool{}
	dashes := map[string]string{}
	for i, name := range names {
		look := styleOf(name)
		if styles[i].name != name || look.number != i {
			t.Errorf("%s has the style of %s", name, styles[i].name)
		}
		for _, text := range []string{look.title, "short " + look.short, "plot " + look.plot, look.about} {
			if seen[text] || text == "" {
				t.Errorf("%s: %q is that of another scheme", name, text)
			}
			seen[text] = true
		}
		if !strings.Contains(pageText, fmt.Sprintf(".s%d { --ink-of: var(--s", i)) {
			t.Errorf("%s has no colour on the page", name)
		}
		dash := regexp.MustCompile(fmt.Sprintf(`\.curve\.s%d \{ stroke-dasharray: ([0-9. ]+);`, i)).FindStringSubmatch(pageText)
		if (dash == nil) != (i == 0) {
			t.Errorf("%s has dashes: %v", name, dash)
		} else if i > 0 {
			if other, twice := dashes[dash[1]]; twice {
				t.Errorf("%s has the dashes of %s", name, other)
			}
			dashes[dash[1]] = name
		}
	}
}

// TestNumberOfSchemes: from two schemes to all, everything is there, on the page and in a
// terminal of 80 columns.
func TestNumberOfSchemes(t *testing.T) {
	for _, n := range []int{2, many, many + 1, len(train.Schemes)} {
		schemes := append([]string{"uniform"}, allSchemes()[len(train.Schemes)-n+1:]...)
		s := fullOf(schemes, 16)
		page := pageOf(t, s)
		seen := words(page)
		var b bytes.Buffer
		if err := Terminal(&b, s); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 80 {
				t.Errorf("%d schemes: a line of %d columns: %s", n, width, line)
			}
		}
		for _, name := range schemes {
			look := styleOf(name)
			if !strings.Contains(page, fmt.Sprintf(`class="curve s%d"`, look.number)) || !strings.Contains(seen, look.title+" "+html.UnescapeString(look.about)) {
				t.Errorf("%d schemes: the page lacks %s", n, name)
			}
			if !strings.Contains(b.String(), look.plot+" "+look.title) {
				t.Errorf("%d schemes: the legend in the terminal lacks %s", n, name)
			}
		}
		for _, q := range s.Comparisons {
			row := interval(q) + " p " + pValue(q.Adjusted) + ", " + verdict(q)
			if n > many {
				row = styleOf(q.Scheme).title + " " + percent(q.Reweighted) + " " + interval(q) + " " + pValue(q.Adjusted) + " " + verdict(q)
			}
			if q.Measure == study.Final && !strings.Contains(seen, row) {
				t.Errorf("%d schemes: the table of final success lacks %q", n, row)
			}
		}
		if bands := strings.Count(page, `class="band`) / len(s.Cells); (n <= many && bands != n) || (n > many && bands != 1) {
			t.Errorf("%d schemes have %d bands", n, bands)
		}
	}
}

// TestProse: the page tells the numbers of the settings, and of the games it has.
func TestProse(t *testing.T) {
	s := full(16)
	seen := words(pageOf(t, s))
	for _, text := range []string{
		"of 14,037 parameters", "25,600 episodes", "8 groups of 8 episodes", "4 minibatches", "learning rate of 0.003", "at 0.2 below and 0.28 above 1",
		"lambda 0.95", "256 episodes", "there are 4 for each game", "names the cell", "no inner walls", "probability of 0.2", "do ActFocus and AEM help them?",
	} {
		if !strings.Contains(seen, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
	s = fake([]study.Cell{{Game: "sudoku4", Algorithm: "grpo", Reasoning: "useful"}}, []string{"uniform", "gspo"}, 4, 10)
	seen = words(pageOf(t, s))
	for _, text := range []string{"FrozenLake", "Sokoban has", "gamma", "ActFocus help"} {
		if strings.Contains(seen, text) {
			t.Errorf("the page of Sudoku with GRPO has %q", text)
		}
	}
	if !strings.Contains(seen, "does GSPO help them?") {
		t.Error("the page does not ask for GSPO")
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		measure     study.Measure
		difference  float64
		p           float64
		want, shown string
	}{
		{study.Final, 0.1, 0.01, better, "+10.0 [+5.0, +15.0]"},
		{study.Final, -0.1, 0.01, worse, "−10.0 [−15.0, −5.0]"},
		{study.Area, 0.1, 0.05, better, "+10.0 [+5.0, +15.0]"},
		{study.Area, 0.1, 0.0501, unshown, "+10.0 [+5.0, +15.0]"},
		{study.Updates, 0.1, 0.01, worse, "+0.1 [+0.1, +0.2]"},
		{study.Updates, -0.1, 0.01, better, "−0.1 [−0.2, −0.1]"},
		{study.Final, 0.1, nan, none, "+10.0 [+5.0, +15.0]"},
		{study.Final, -0.0001, 1, unshown, "0.0 [0.0, 0.0]"},
		{study.Final, nan, nan, none, "– [–, –]"},
	} {
		q := study.Comparison{Measure: c.measure, Difference: c.difference, Low: c.difference - math.Abs(c.difference)/2, High: c.difference + math.Abs(c.difference)/2, Adjusted: c.p}
		if got := verdict(q); got != c.want {
			t.Errorf("%s %v, p %v: %s, want %s", c.measure, c.difference, c.p, got, c.want)
		}
		if got := interval(q); got != c.shown && finite(c.difference) {
			t.Errorf("%s %v: %s, want %s", c.measure, c.difference, got, c.shown)
		}
	}
	if got := interval(study.Comparison{Measure: study.Final, Difference: 0.031, Low: nan, High: nan}); got != "+3.1" {
		t.Errorf("without interval: %s", got)
	}
	for p, want := range map[float64]string{0.0004: "<0.001", 0.0123: "0.012", 1: "1.000"} {
		if got := pValue(p); got != want {
			t.Errorf("p %v is shown as %s", p, got)
		}
	}
}

// TestForest: a difference to the right is more, an interval has its ends where
// the axis says, and only a comparison that shows something has a filled mark.
func TestForest(t *testing.T) {
	s := full(16)
	x := forestScale(s, study.Final, 62, 318)
	for _, q := range s.Comparisons {
		if q.Measure != study.Final {
			continue
		}
		var c canvas
		c.forestRow(x, 100, 330, q)
		want := fmt.Sprintf(`x1="%.1f" y1="100.0" x2="%.1f"`, x.at(100*q.Low), x.at(100*q.High))
		if !strings.Contains(c.body.String(), want) {
			t.Errorf("no line %s in %s", want, c.body.String())
		}
		if filled := strings.Contains(c.body.String(), "mark shown"); filled != (q.Adjusted <= 0.05) {
			t.Errorf("adjusted p %v: filled %v", q.Adjusted, filled)
		}
	}
	if x.at(10) <= x.at(0) || x.at(x.lo) != 62 || x.at(x.hi) != 318 {
		t.Errorf("scale %v", x)
	}
	s.Comparisons[0].High = 30 // an interval from two seeds can be of any size
	if y := forestScale(s, study.Final, 62, 318); y.hi > 120 {
		t.Errorf("the scale goes to %v", y.hi)
	}
	var c canvas
	c.forestRow(forestScale(s, study.Final, 62, 318), 100, 330, s.Comparisons[0])
	if !strings.Contains(c.body.String(), `<path class="interval`) {
		t.Error("an interval beyond the scale has no arrow")
	}
}

func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Float64Range(-1000, 1000).Draw(t, "lo")
		s := scale{lo, lo + rapid.Float64Range(1e-3, 1000).Draw(t, "width"), 0, 100}
		most := rapid.IntRange(2, 9).Draw(t, "most")
		all := s.ticks(most)
		if len(all) == 0 || len(all) > most {
			t.Fatalf("%d ticks in %v", len(all), s)
		}
		for _, tick := range all {
			if at := s.at(tick); at < -1e-6 || at > 100+1e-6 {
				t.Fatalf("tick %v is outside %v", tick, s)
			}
		}
	})
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SliceOfN(rapid.Float64Range(10, 160), 1, 11).Draw(t, "at")
		moved := spread(at, 12, 10, 160)
		for i := range at {
			if moved[i] < 10-1e-6 || moved[i] > 160+1e-6 {
				t.Fatalf("%v became %v", at, moved)
			}
			for j := range i {
				if d := math.Abs(moved[i] - moved[j]); d < 11.5 {
					t.Fatalf("%v became %v", at, moved)
				}
				if (at[i] < at[j] && moved[i] > moved[j]) || (at[i] > at[j] && moved[i] < moved[j]) {
					t.Fatalf("%v became %v: another order", at, moved)
				}
			}
		}
	})
	if got := spread([]float64{100, 50, 140}, 12, 10, 160); got[0] != 100 || got[1] != 50 || got[2] != 140 {
		t.Errorf("labels with room were moved to %v", got)
	}
}

// TestHostileNames: what comes from a file is text, in the page and on a terminal.
func TestHostileNames(t *testing.T) {
	hostile := "<script>alert('&\"')</script>\x1b[2J\x00\u202e"
	cells := []study.Cell{{Game: hostile, Algorithm: "grpo", Reasoning: "useful"}, {Game: hostile, Algorithm: hostile, Reasoning: "]]>" + hostile}, {Game: hostile, Algorithm: "grpo", Reasoning: hostile}}
	s := fake(cells, study.DefaultSchemes, 4, 10)
	page := pageOf(t, s)
	var b bytes.Buffer
	if err := Terminal(&b, s); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"page": page, "terminal": b.String()} {
		for _, bad := range []string{"\x1b", "\x00", "\u202e"} {
			if strings.Contains(text, bad) {
				t.Errorf("the %s has %q", name, bad)
			}
		}
	}
	if strings.Contains(page, "<script") {
		t.Error("the page has a script")
	}
}

// TestOneSeed: there is no interval, no p value and no verdict.
func TestOneSeed(t *testing.T) {
	s := full(1)
	s.Attainable = 1
	page := pageOf(t, s)
	if strings.Contains(page, `class="band`) || strings.Contains(page, `class="interval`) || strings.Contains(page, "NaN") {
		t.Error("the page has an interval or a NaN")
	}
	if seen := words(page); !strings.Contains(seen, "no p value") || !strings.Contains(seen, "too few seeds") || strings.Contains(seen, "≤") {
		t.Error("the page does not say that there are too few seeds")
	}
	var b bytes.Buffer
	if err := Terminal(&b, s); err != nil || strings.Contains(b.String(), "NaN") || !strings.Contains(b.String(), "too few seeds") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestUnfinished: what is not there is a dash or a word, and never a panic.
func TestUnfinished(t *testing.T) {
	whole := full(2)
	for i, spoil := range []func(*study.Summary){
		func(s *study.Summary) { s.Curves, s.Comparisons, s.Explanations = nil, nil, nil },
		func(s *study.Summary) {
			s.Curves, s.Comparisons, s.Explanations = s.Curves[:1], s.Comparisons[:0], s.Explanations[:1]
		},
		func(s *study.Summary) { s.Cells = s.Cells[:1]; s.Comparisons[0].Difference = nan },
		func(s *study.Summary) {
			for i := range s.Curves {
				q := &s.Curves[i]
				q.Mean, q.Low, q.High = append([]float64{nan}, q.Mean[:i%3]...), q.Low[:i%3+1], q.High[:i%3+1]
			}
		},
		func(s *study.Summary) {
			for i := range s.Comparisons {
				s.Comparisons[i].Low, s.Comparisons[i].High = math.Inf(-1), math.Inf(1)
			}
			for i := range s.Curves {
				s.Curves[i].Mean = []float64{nan, nan}
			}
		},
	} {
		s := full(2)
		s.Runs, s.Planned = 3, whole.Planned
		spoil(s)
		page := pageOf(t, s)
		if strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || !strings.Contains(words(page), "not complete: 3 of 112 runs") {
			t.Errorf("case %d: %s", i, words(page))
		}
		var b bytes.Buffer
		if err := Terminal(&b, s); err != nil || strings.Contains(b.String(), "NaN") {
			t.Errorf("case %d: %v\n%s", i, err, b.String())
		}
		if err := CSV(filepath.Join(t.TempDir(), "x.csv"), s); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

func TestEmpty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	s := &study.Summary{Planned: 4}
	for name, err := range map[string]error{"Terminal": Terminal(io.Discard, s), "Page": Page(path, s, train.Default), "CSV": CSV(path, s), "Runs": Runs(path, nil)} {
		if !errors.Is(err, errEmpty) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was written")
	}
}

func TestTerminal(t *testing.T) {
	s := full(16)
	for columns, most := range map[string]int{"": 80, "120": 120, "x": 80, "100000": 160} {
		t.Setenv("COLUMNS", columns)
		var b bytes.Buffer
		if err := Terminal(&b, s); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(b.String()) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
		}
		if widest > most || widest < most-8 {
			t.Errorf("COLUMNS=%s: the widest line has %d columns", columns, widest)
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Error("there are colours in what is no terminal")
		}
		for _, cell := range s.Cells {
			if !strings.Contains(b.String(), cellTitle(s, cell)+"\n") {
				t.Errorf("%v is not there", cell)
			}
		}
		for _, c := range s.Comparisons {
			if !strings.Contains(b.String(), interval(c)) {
				t.Errorf("%s is not there", interval(c))
			}
		}
	}
}

func TestColours(t *testing.T) {
	s := full(2)
	var plain, painted bytes.Buffer
	plot(&plain, s, s.Cells[0], 80, false)
	plot(&painted, s, s.Cells[0], 80, true)
	if got := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(painted.String(), ""); got != plain.String() || painted.Len() == plain.Len() {
		t.Errorf("colours change more than the colour:\n%s\n%s", plain.String(), painted.String())
	}
	t.Setenv("NO_COLOR", "1")
	if colours(os.Stderr) {
		t.Error("colours although NO_COLOR is set")
	}
}

// TestCSV: every number comes back to the bit.
func TestCSV(t *testing.T) {
	s := full(16)
	s.Comparisons[0].P, s.Comparisons[0].Game = nan, "a \"game\",\nwith commas"
	path := filepath.Join(t.TempDir(), "x.csv")
	if err := CSV(path, s); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 1+len(s.Comparisons) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, c := range s.Comparisons {
		row := map[string]string{}
		for k, name := range rows[0] {
			row[name] = rows[i+1][k]
		}
		for name, want := range map[string]float64{"uniform": c.Uniform, "reweighted": c.Reweighted, "difference": c.Difference, "low": c.Low, "high": c.High, "p": c.P, "adjusted_p": c.Adjusted} {
			got := nan
			if row[name] != "" {
				fmt.Sscan(row[name], &got)
			}
			if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Errorf("row %d: %s is %v, want %v", i, name, got, want)
			}
		}
		if row["game"] != c.Game || row["scheme"] != c.Scheme || row["measure"] != string(c.Measure) || row["verdict"] != strings.ReplaceAll(verdict(c), none, "") {
			t.Errorf("row %d: %v", i, row)
		}
		if (row["uniform_censored"] == "") != (c.Measure != study.Updates) {
			t.Errorf("row %d: %v", i, row)
		}
	}
}

func TestRuns(t *testing.T) {
	results := []train.Result{
		{
			Run: train.Run{Game: "shop", Algorithm: "ppo", Reasoning: "none", Scheme: "aem", Seed: 3}, Perfect: 0.75, Start: 0.125, Final: 0.5,
			Success: []float64{0.25, 0.5, 0.75, 1}, Entropy: []float64{2, 1.5, 1, 0.5}, ActionEntropy: []float64{1, 1, 1, 0.25}, Drift: []float64{-1, 0, 0, 0},
			ClipFraction: []float64{0, 0, 0.5, 0.5}, KL: []float64{0, 0, 0, 1}, Bottleneck: []train.Correlations{{All: 0.5, Reasoning: bench.Number(nan), Action: 1}, {}, {Action: -0.5}},
			Weights: "abc", Seconds: 7.5,
		},
		{Run: train.Run{Game: "shop", Algorithm: "ppo", Reasoning: "none", Scheme: "aem", Seed: 4}},
	}
	path := filepath.Join(t.TempDir(), "runs.csv")
	if err := Runs(path, results); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	want := `game,algorithm,reasoning,scheme,seed,iterations,perfect,start,final,mean_success,entropy_start,entropy_end,action_entropy_start,action_entropy_end,` +
		`mean_drift,mean_clip_fraction,mean_kl,bottleneck_all_1,bottleneck_reasoning_1,bottleneck_action_1,bottleneck_all_2,bottleneck_reasoning_2,bottleneck_action_2,` +
		`bottleneck_all_3,bottleneck_reasoning_3,bottleneck_action_3,seconds,weights
shop,ppo,none,aem,3,4,0.75,0.125,0.5,0.625,2,0.5,1,0.25,-0.25,0.25,0.25,0.5,,1,0,0,0,0,0,-0.5,7.5,abc
shop,ppo,none,aem,4,0,0,0,0,,,,,,,,,,,,,,,,,,0,
`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}
