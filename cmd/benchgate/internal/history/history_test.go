package history

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// named is the name of a commit.
func named(n int) string { return fmt.Sprintf("%040x", n) }

// a is a line of a benchmark at a commit.
func a(n int, ratio float64) Point {
	return Point{Date: "2026-11-28T15:00:00Z", Commit: named(n), Reference: named(999), Package: "m/p",
		Benchmark: "BenchmarkX", Ratio: ratio, Lo: 0.99 * ratio, Hi: 1.01 * ratio, Pairs: 15, Ns: 100 * ratio,
		ReferenceNs: 100, Machine: "a CPU, linux/amd64", Go: "go1.26", Version: "v0.1.0"}
}

// some are points at a level and then at another, with a little noise.
func some(before, after int, times float64) (points []Point) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range before + after {
		ratio := 1 + 0.004*r.NormFloat64()
		if i >= before {
			ratio *= times
		}
		points = append(points, a(i+1, ratio))
	}
	return points
}

// TestAppend: lines come back, the file's own stay, and what a crash has cut off costs no other line.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	must.Do(Check(path))
	if _, err := os.Stat(path); err == nil {
		t.Error("Check leaves a file")
	}
	must.Do(Append(path, []Point{a(1, 1), a(2, 1.1)}))
	before := must.Get(os.ReadFile(path))
	must.Do(os.WriteFile(path, append(before, `{"date":"2026-`...), 0o666))
	must.Do(Check(path))
	must.Do(Append(path, []Point{a(3, 1.2)}))
	after := must.Get(os.ReadFile(path))
	if !bytes.HasPrefix(after, before) {
		t.Errorf("what was there has changed:\n%s\n%s", before, after)
	}
	all, notes, err := Read(path)
	if err != nil || len(all) != 1 || len(all[0].Points) != 3 || all[0].Points[2] != a(3, 1.2) {
		t.Errorf("%+v, %v", all, err)
	}
	if want := "1 line is left out, which benchgate -history has not written so: line 3: invalid character '\\n' in string literal"; len(
		notes) != 1 || notes[0] != want {
		t.Errorf("notes %q, want %q", notes, want)
	}
	odd := a(4, math.Inf(1))
	other := a(5, 1)
	other.Ns = math.NaN()
	must.Do(Append(path, []Point{odd, other, a(6, 1)})) // a benchmark may report any number
	if all, notes, err = Read(path); err != nil || len(all[0].Points) != 4 || len(notes) != 1 {
		t.Errorf("%+v, notes %q, %v", all, notes, err)
	}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "h"), ""} {
		if err := Check(path); err == nil {
			t.Errorf("Check takes %q", path)
		}
		if err := Append(path, []Point{a(1, 1)}); err == nil {
			t.Errorf("Append takes %q", path)
		}
	}
}

// TestAppendTogether: runs at the same time lose no line of each other.
func TestAppendTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 10 {
				must.Do(Append(path, []Point{a(100*i+2*j, 1), a(100*i+2*j+1, 1)}))
			}
		})
	}
	wg.Wait()
	all, notes, err := Read(path)
	if err != nil || len(notes) > 0 || len(all) != 1 || len(all[0].Points) != 400 {
		t.Errorf("%d histories, notes %q, %v", len(all), notes, err)
	}
}

// TestHostile: what a file may hold that nobody has written with this program. Nothing of it stops the rest, nor
// reaches a terminal or a page as it is.
func TestHostile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	good := some(20, 20, 1.1)
	must.Do(Append(path, good))
	text := string(must.Get(os.ReadFile(path)))
	first, _, _ := strings.Cut(text, "\n")
	change := func(old, new string) string {
		if !strings.Contains(first, old) {
			t.Fatalf("no %s in %s", old, first)
		}
		return strings.Replace(first, old, new, 1)
	}
	ratio := `"ratio":` + strconv.FormatFloat(good[0].Ratio, 'g', -1, 64)
	for name, line := range map[string]string{
		"no JSON":         "x",
		"a list":          "[1,2]",
		"null":            "null",
		"a number":        "7",
		"cut":             first[:len(first)/2],
		"NaN":             change(ratio, `"ratio":NaN`),
		"a text":          change(ratio, `"ratio":"1"`),
		"null ratio":      change(ratio, `"ratio":null`),
		"zero":            change(ratio, `"ratio":0`),
		"negative":        change(ratio, `"ratio":-1`),
		"huge":            change(ratio, `"ratio":1e300`),
		"beyond float64":  change(ratio, `"ratio":1e999`),
		"tiny":            change(ratio, `"ratio":1e-300`),
		"outside bounds":  change(ratio, `"ratio":5`),
		"pairs of floats": change(`"pairs":15`, `"pairs":1.5`),
		"no time":         change(`"reference_ns":100`, `"reference_ns":0`),
		"negative time":   change(`"reference_ns":100`, `"reference_ns":-1`),
		"short commit":    change(named(1), "abc"),
		"no commit":       change(named(1), ""),
		"escape commit":   change(named(1), `\u001b[2J`+named(1)[4:]),
		"no reference":    change(named(999), "HEAD"),
		"no date":         change("2026-11-28T15:00:00Z", "today"),
		"no package":      change("m/p", ""),
		"no benchmark":    change("BenchmarkX", ""),
		"long":            change("BenchmarkX", strings.Repeat("x", 20000)),
		"NUL":             "\x00\x00\x00",
		"deep":            strings.Repeat("[", 10000),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "h.jsonl")
			must.Do(os.WriteFile(path, []byte(line+"\n"+text+"\n\n"+line), 0o666))
			all, notes, err := Read(path)
			if err != nil || len(all) != 1 || len(all[0].Points) != 40 || len(all[0].Steps) != 1 || len(notes) != 1 ||
				!strings.HasPrefix(notes[0], "2 lines are left out") || !strings.Contains(notes[0], "line 1: ") {
				t.Errorf("%d histories, notes %q, %v", len(all), notes, err)
			}
			must.Do(os.WriteFile(path, []byte(line), 0o666))
			if _, _, err := Read(path); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("alone: %v", err)
			}
		})
	}
	hostile := "far\noff\r\n::error::x\x1b[2J ##[error]y \u202e <script>\"'&|\x00{{.}}"
	for i := range good {
		good[i].Benchmark, good[i].Package, good[i].Machine, good[i].Go = hostile, "::error::"+hostile,
			hostile+"1", hostile
		if i >= 20 {
			good[i].Machine = hostile + "2" // both are in the sentence about the step
		}
	}
	good = append(good, a(1, 1), a(2, 1)) // another history
	must.Do(os.Remove(path))
	must.Do(Append(path, good))
	all, notes, err := Read(path)
	if err != nil || len(all) != 2 || len(notes) > 0 || len(all[0].Steps) != 1 {
		t.Fatalf("%d histories, notes %q, %v", len(all), notes, err)
	}
	notes = append(notes, hostile)
	var out, page bytes.Buffer
	must.Do(WriteText(&out, all, notes, 80))
	must.Do(WriteHTML(&page, all, notes))
	for name, text := range map[string]string{"text": out.String(), "page": page.String()} {
		if !strings.Contains(text, "this may be the machine") {
			t.Errorf("%s: no word of the machine:\n%s", name, text)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##[") ||
				name == "page" && strings.Contains(line, "<script") || strings.ContainsFunc(line, func(r rune) bool {
				return !strconv.IsPrint(r)
			}) {
				t.Errorf("%s has the line %q", name, line)
			}
		}
	}
}

// TestDuplicates: of a commit that is measured again the last line counts, at its place.
func TestDuplicates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	other := a(1, 3)
	other.Reference = named(998) // a history of its own
	must.Do(Append(path, []Point{a(1, 1), a(2, 2), a(1, 1.5), a(1, 1.25), other}))
	all, notes, err := Read(path)
	if err != nil || len(all) != 2 || len(all[0].Points)+len(all[1].Points) != 3 || len(notes) != 1 ||
		notes[0] != "2 lines are not shown, as their commits were measured again later" {
		t.Fatalf("%+v, notes %q, %v", all, notes, err)
	}
	for _, h := range all {
		if h.Reference == named(999) && (h.Points[0].Ratio != 1.25 || h.Points[1].Ratio != 2) {
			t.Errorf("%+v", h.Points)
		}
	}
	var out bytes.Buffer
	must.Do(WriteText(&out, all, notes, 80))
	if want := "1 history is not drawn, of a single commit"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestNotAFile: what is not a file of lines is an error, and not a page of nothing.
func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	must.Do(os.WriteFile(empty, nil, 0o666))
	large := filepath.Join(dir, "large")
	must.Do(os.WriteFile(large, nil, 0o666))
	must.Do(os.Truncate(large, mostBytes+1))
	for path, want := range map[string]string{empty: "is empty", large: "want at most", dir: "not a regular file",
		filepath.Join(dir, "none"): "no such file"} {
		if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), dir) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestOutput: a step is in the text and on the page with its size and its commits; the page is whole, and takes
// nothing from elsewhere.
func TestOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	must.Do(Append(path, some(18, 12, 1.092)))
	all, notes, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var out, page bytes.Buffer
	must.Do(WriteText(&out, all, notes, 80))
	must.Do(WriteHTML(&page, all, notes))
	want := fmt.Sprintf("slower since %.12s (2026-11-28): git log %.12s..%.12s", named(19), named(18), named(19))
	for name, text := range map[string]string{"text": out.String(), "page": page.String()} {
		if !strings.Contains(text, want) || !strings.Contains(text, "1 history, 1 step in 1 of them") {
			t.Errorf("no %q in the %s\n%s", want, name, text)
		}
	}
	for line := range strings.Lines(out.String()) {
		if n := len([]rune(line)); n > 81 && !strings.Contains(line, "git log") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, bad := range []string{"<script", "http:", "https:", "src=", "href=", "@import", "url("} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	d := xml.NewDecoder(&page)
	d.Entity = xml.HTMLEntity
	circles := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal("the page is not whole: ", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	if circles != 30 {
		t.Errorf("%d points on the page, want 30", circles)
	}
}

// TestFind: steps where they are, and none where none is.
func TestFind(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	levels := func(of ...float64) (x []float64) { // twenty values of each
		for _, l := range of {
			for range 20 {
				x = append(x, l*(1+0.01*r.NormFloat64()))
			}
		}
		return x
	}
	equal := make([]float64, 200)
	for i := range equal {
		equal[i] = 1
	}
	outliers := levels(1, 1, 1)
	outliers[7], outliers[30], outliers[59] = 1e6, 1e-6, 3
	two := make([]float64, 40)
	for i := range two {
		two[i] = float64(1 + i/30)
	}
	for name, c := range map[string]struct {
		x    []float64
		want []int
	}{
		"nothing":     {nil, nil},
		"one":         {[]float64{1}, nil},
		"few":         {[]float64{1, 1, 1, 2, 2, 2}, nil},
		"equal":       {equal, nil},
		"noise":       {levels(1, 1, 1, 1), nil},
		"outliers":    {outliers, nil},
		"up":          {levels(1, 1.1), []int{20}},
		"down":        {levels(1.1, 1), []int{20}},
		"there, back": {levels(1, 1.1, 1), []int{20, 40}},
		"stairs":      {levels(1, 1.1, 1.2, 1.3), []int{20, 40, 60}},
		"no noise":    {two, []int{30}},
		"newest 300":  {append(levels(1, 1, 1, 1, 2, 2, 2, 2), levels(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.1)...), []int{160 + 280}},
	} {
		var at []int
		for _, s := range Find(c.x) {
			if s.First > s.At || s.Last < s.At || s.First < 1 || s.Last >= len(c.x) {
				t.Errorf("%s: %+v", name, s)
			}
			at = append(at, s.At)
		}
		if len(at) != len(c.want) {
			t.Errorf("%s: steps at %v, want %v", name, at, c.want)
			continue
		}
		for i := range at {
			if math.Abs(float64(at[i]-c.want[i])) > 1 {
				t.Errorf("%s: steps at %v, want %v", name, at, c.want)
			}
		}
	}
}
