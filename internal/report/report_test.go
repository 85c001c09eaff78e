package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/internal/measure"
	"github.com/seed621a2839/reweight/internal/show"
	"github.com/seed621a2839/reweight/kernels"
	"golang.org/x/perf/benchfmt"
)

// sample is a run of all kernels on three paths, with figures that are made up.
func sample() Report {
	r := Report{Machine: machine.Machine{
		CPU: "Test CPU", CPUs: 4, GOMAXPROCS: 4, OS: "linux", Arch: "amd64", Features: []string{"AVX2"}, Go: "go1.26", ISAs: []string{"portable", "two", "three"}, Chosen: "three", Why: "because",
	}}
	result := func(k kernels.Kernel, dtype, isa string, ns float64, rows, vocab int) Result {
		bytes := 4.0
		about := func(x float64) bench.Estimate {
			return bench.Estimate{Median: x, Lo: 0.9 * x, Hi: 1.1 * x, N: 9, Outliers: 1}
		}
		q := measure.Result{
			Kernel: k.Name, DType: dtype, ISA: isa, Rows: rows, Vocab: vocab, Workers: 1, NsPerElement: about(ns),
			GBPerS: bytes / ns, ReadGBPerS: 20, Share: about(bytes / ns / 20),
			TimesReference: about(50 / ns), TimesPortable: bench.Estimate{Median: 5 / ns, Lo: 4 / ns, Hi: 6 / ns, N: 9},
			Null: bench.Estimate{Median: 1.01, Lo: 0.98, Hi: 1.03, N: 9}, MaxULP: 0.25, MaxAbs: 1e-7, AllocsPerOp: 2, BytesPerOp: 64,
		}
		elements := float64(rows * max(1, vocab))
		for i := range 9 {
			q.Times = append(q.Times, ns*elements*(1+0.01*float64(i)))
		}
		return Result{Result: q}
	}
	for _, k := range kernels.All() {
		rows, vocab := 65536, 0
		if k.Rows {
			rows, vocab = 111, 151936
		}
		for _, format := range k.DTypes {
			dtype := format.String()
			for i, isa := range r.Machine.ISAs {
				ns := []float64{5, 0.3, 0.2}[i]
				r.Results = append(r.Results, result(k, dtype, isa, ns, rows, vocab))
			}
		}
	}
	r.setRoofline()
	for _, kl := range []bool{false, true} {
		about := func(x float64) bench.Estimate { return bench.Estimate{Median: x, Lo: x - 0.01, Hi: x + 0.01, N: 9} }
		r.Overhead = append(r.Overhead, measure.Overhead{
			Step: "actfocus+aem", Advantages: "grpo", KL: kl, ISA: "three", Tokens: 28, Vocab: 151936, Workers: 1, UniformNs: about(1e6), OverUniform: about(1.005),
			Verdict: "free within noise", Reason: "at most +1.5%", Null: about(1),
		})
	}
	return r
}

// rolloutOf is a page with one rollout.
func rolloutOf(title string, tokens ...show.Token) show.Page {
	return show.Page{Trajectories: []show.Trajectory{{Title: title, Tokens: tokens, Turns: []show.Turn{{Start: 0, Agent: 1, End: len(tokens)}}}}}
}

func token(text string, role reweight.Role, weight, factor float64) show.Token {
	return show.Token{Text: text, Role: role, ActFocus: weight, Factor: factor, Entropy: math.NaN(), Logprob: math.NaN(), Advantage: math.NaN()}
}

var someRollout = rolloutOf("A rollout.",
	token("<obs>", reweight.RoleMasked, 0, math.NaN()), token("&", reweight.RoleReasoning, 0.1, 1.2), token("Left", reweight.RoleAction, 1.4, 1.2),
	token("Right", reweight.RoleAction, 1.1, 0.8), token("x", reweight.RoleMasked, 0, math.NaN()))

func page4(t *testing.T, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b, someRollout); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wellFormed checks the page by the rules of XML and returns its text. All
// coordinates must be numbers within their pictures.
func wellFormed(t *testing.T, html string) string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(html))
	var text strings.Builder
	var w, h float64
	pictures := 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			text.Write(token)
		case xml.StartElement:
			attributes := map[string]string{}
			for _, a := range token.Attr {
				attributes[a.Name.Local] = a.Value
			}
			if token.Name.Local == "svg" {
				if n, err := fmt.Sscanf(attributes["viewBox"], "0 0 %f %f", &w, &h); n != 2 || err != nil {
					t.Errorf("viewBox %q", attributes["viewBox"])
				}
				if attributes["aria-label"] == "" || attributes["role"] != "img" {
					t.Errorf("a picture without a text alternative: %v", attributes)
				}
				pictures++
			}
			for name, most := range map[string]float64{"x": w, "x1": w, "x2": w, "cx": w, "width": w, "y": h, "y1": h, "y2": h, "cy": h, "height": h} {
				if v, ok := attributes[name]; ok {
					if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= -1 && f <= most+1) {
						t.Errorf("%s: %s = %q in a picture of %v x %v", token.Name.Local, name, v, w, h)
					}
				}
			}
			for _, name := range []string{"points", "d", "transform"} {
				if v := attributes[name]; strings.Contains(v, "NaN") || strings.Contains(v, "Inf") {
					t.Errorf("%s: %s = %q", token.Name.Local, name, v)
				}
			}
		}
	}
	if pictures%2 != 0 {
		t.Errorf("%d pictures, want each wide and narrow", pictures)
	}
	return text.String()
}

var outside = regexp.MustCompile(`(?i)https?:|//[a-z]|<script.+src|<link|<img|<iframe|@import|url\(|\bon[a-z]+=`)

func TestHTML(t *testing.T) {
	r := sample()
	html := page4(t, r)
	text := wellFormed(t, html)
	if at := outside.FindString(html); at != "" {
		t.Errorf("the page reaches outside itself or runs something: %q", at)
	}
	for _, k := range kernels.All() {
		for _, dtype := range k.DTypes {
			if !strings.Contains(text, k.Name+" "+dtype.String()) {
				t.Errorf("no %s %s", k.Name, dtype)
			}
		}
		for i, isa := range r.Machine.ISAs {
			if i < series && !strings.Contains(text, k.Name+" on "+isa) && !strings.Contains(html, fmt.Sprintf("%s f32 on %s:", k.Name, isa)) {
				t.Errorf("no %s on %s", k.Name, isa)
			}
		}
	}
	for _, want := range []string{"Test CPU", "because", "0.980-1.030", "rows, 20 GB/s", "tokens, 20 GB/s", "masked", "reasoning", "action", "Left", "AVX2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if want := `title="token 2: action, ActFocus weight 1.4, AEM factor 1.2, weight 1.68"`; !strings.Contains(html, want) {
		t.Errorf("no %s", want)
	}
	if !strings.Contains(html, "prefers-color-scheme: dark") || !strings.Contains(html, "max-width: 760px") || strings.Contains(text, Ended) {
		t.Error("no dark or narrow form, or a whole run that is marked as partial")
	}
	// A picture of each instruction set in each of its two widths for every workload.
	marks := strings.Count(html, " billion operations per second,")
	if want := 2 * len(r.Results); marks != want {
		t.Errorf("%d marks on the roofline, want %d", marks, want)
	}
}

// TestHTMLOfAnything: what was not measured, or is no number, is left out; texts
// are never taken for tags.
func TestHTMLOfAnything(t *testing.T) {
	broken := sample()
	nan, inf := math.NaN(), math.Inf(1)
	for i := range broken.Results {
		q := &broken.Results[i]
		switch i % 6 {
		case 0:
			q.NsPerElement.Median, q.GBPerS = nan, nan
		case 1:
			q.Share.Median, q.Share.Hi = inf, inf
		case 2:
			q.NsPerElement.Median = 0
		case 3:
			q.Share.Lo, q.Share.Hi, q.Null = nan, nan, bench.Estimate{Median: nan, Lo: nan, Hi: inf}
		case 4:
			q.ReadGBPerS, q.MaxULP, q.TimesPortable = 0, bench.Number(nan), bench.Estimate{Median: nan, Lo: nan, Hi: nan}
		}
	}
	for i := range broken.Overhead {
		broken.Overhead[i].OverUniform = bench.Estimate{Median: nan, Lo: -inf, Hi: inf}
	}
	one := sample()
	one.Results, one.Overhead = one.Results[:1], nil
	partial := sample()
	partial.Partial = true
	hostile := sample()
	hostile.Machine.CPU = `<script>alert("x")</script>&amp;`
	hostile.Results[0].Kernel = `"><b onload=x>`
	many := sample()
	for _, q := range slices.Clone(many.Results) {
		for range 7 { // numbers pile up
			q.Rows++
			many.Results = append(many.Results, q)
		}
	}
	for name, r := range map[string]Report{"empty": {}, "many": many, "broken": broken, "one": one, "partial": partial, "hostile": hostile} {
		html := page4(t, r)
		text := wellFormed(t, html)
		if strings.Contains(text, Ended) != (name == "partial") {
			t.Errorf("%s: marked as partial, or not", name)
		}
		if strings.Count(html, "<script") != 1 || strings.Contains(html, "<b ") {
			t.Errorf("%s: texts are taken for tags", name)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		s    scale
		most int
		want string
	}{
		{scale{lo: 0, hi: 1.1}, 6, "[0 0.2 0.4 0.6000000000000001 0.8 1]"},
		{scale{lo: 0, hi: 1.1}, 3, "[0 0.5 1]"},
		{scale{lo: 0.9, hi: 110, log: true}, 7, "[1 2 5 10 20 50 100]"},
		{scale{lo: 0.9, hi: 110, log: true}, 5, "[1 3 10 30 100]"},
		{scale{lo: 0.9, hi: 110, log: true}, 4, "[1 10 100]"},
	} {
		if got := fmt.Sprint(c.s.ticks(c.most)); got != c.want {
			t.Errorf("ticks of %+v, at most %d: %v, want %v", c.s, c.most, got, c.want)
		}
	}
	for in, want := range map[float64]string{0: "0", 0.1: "0.1", 1: "1", 999: "999", 1000: "1k", 100e3: "100k", 2e6: "2M"} {
		if got := short(in); got != want {
			t.Errorf("short(%v) = %q, want %q", in, got, want)
		}
	}
}

// save writes the report as a file for Read.
func save(t *testing.T, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return file(t, b.String())
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRead: what is written is read again, not-a-numbers and comparisons too.
func TestRead(t *testing.T) {
	r := sample()
	r.Partial = true
	r.Results[0].MaxULP, r.Results[0].TimesPortable = bench.Number(math.NaN()), bench.Estimate{Median: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}
	r.Results[1].Baseline = &Comparison{bench.Estimate{Median: 1, Lo: 0.9, Hi: 1.1}, 1, "within drift"}
	got, err := Read(save(t, r))
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Results {
		r.Results[i].Times = nil // which are not saved
	}
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(got)
	if !bytes.Equal(a, b) || !math.IsNaN(float64(got.Results[0].MaxULP)) || *got.Results[1].Baseline != *r.Results[1].Baseline {
		t.Errorf("read\n%s\nwant\n%s", b, a)
	}
}

func TestReadErrors(t *testing.T) {
	var good bytes.Buffer
	sample().WriteJSON(&good)
	change := func(old, new string) string { return file(t, strings.Replace(good.String(), old, new, 1)) }
	twice := sample()
	twice.Results = append(twice.Results, twice.Results[0])
	for _, c := range []struct{ path, want string }{
		{filepath.Join(t.TempDir(), "none"), "none"},
		{t.TempDir(), "not a regular file"},
		{file(t, ""), "EOF"},
		{file(t, "kernel,dtype\n"), "not a run that this version of bench saved"},
		{file(t, good.String()[:good.Len()/2]), "unexpected EOF"},
		{file(t, good.String()+"{}"), "more than one JSON value"},
		{file(t, "{}"), "no results"},
		{file(t, `{"machine": {}, "overhead": []}`), "no results"},
		{change(`"ns_per_element": {
        "median": 5`, `"ns_per_element": {
        "median": -5`), "token_stats f32 on portable, 111 x 151,936: ns_per_element is -5, from 4.5 to 5.5: no measurement"},
		{change(`"lo": 4.5`, `"lo": 5e-324`), "from 5e-324 to 5.5"},
		{change(`"lo": 4.5`, `"lo": 6`), "from 6 to 5.5"},
		{change(`"hi": 5.5`, `"hi": 4`), "from 4.5 to 4"},
		{change(`"hi": 5.5`, `"hi": 1e308`), "to 1e+308"},
		{change(`"hi": 5.5`, `"high": 5.5`), `unknown field "high"`},
		{change(`"hi": 5.5`, `"hi": null`), "to NaN"},
		{change(`"gb_per_s": 0.8`, `"gb_per_s": 1e-200`), "gb_per_s is 1e-200"},
		{change(`"read_gb_per_s": 20,
      "roofline_share`, `"read_gb_per_s": 1e13,
      "roofline_share`), "read_gb_per_s is 1e+13"},
		{change(`"hi": 0.`, `"hi": -0.`), "roofline_share is"},

		{change("\"read_gb_per_s\": 20,\n      \"roofline_share", `"roofline_share`), "read_gb_per_s is 0"},
		{change(`"rows": 111`, `"rows": "111"`), "not a run that this version of bench saved"},
		{save(t, twice), "two results of token_stats f32 on portable, 111 x 151,936"},
	} {
		if _, err := Read(c.path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestComparable: every difference that would make a comparison a lie is a
// reason, one by one.
func TestComparable(t *testing.T) {
	then := sample()
	var all []measure.Result
	for _, q := range then.Results {
		all = append(all, q.Result)
	}
	if err := then.Comparable(then.Machine, all); err != nil {
		t.Errorf("the same: %v", err)
	}
	if err := then.Comparable(then.Machine, all[3:7]); err != nil {
		t.Errorf("a part of it: %v", err)
	}
	for want, change := range map[string]func(m *machine.Machine, q *measure.Result){
		"another CPU: Test CPU then, Other now":                                                   func(m *machine.Machine, q *measure.Result) { m.CPU = "Other" },
		"another architecture: linux/amd64 then, linux/arm64 now":                                 func(m *machine.Machine, q *measure.Result) { m.Arch = "arm64" },
		"another architecture: linux/amd64 then, darwin/amd64 now":                                func(m *machine.Machine, q *measure.Result) { m.OS = "darwin" },
		"another instruction sets: AVX2 then, AVX2 AVX512F now":                                   func(m *machine.Machine, q *measure.Result) { m.Features = []string{"AVX2", "AVX512F"} },
		"another number of CPUs: 4 then, 8 now":                                                   func(m *machine.Machine, q *measure.Result) { m.CPUs = 8 },
		"another GOMAXPROCS: 4 then, 2 now":                                                       func(m *machine.Machine, q *measure.Result) { m.GOMAXPROCS = 2 },
		"another pinning: not pinned then, pinned to CPU 0 now":                                   func(m *machine.Machine, q *measure.Result) { m.Pinned = new(int) },
		"another Go version: go1.26 then, go1.27 now":                                             func(m *machine.Machine, q *measure.Result) { m.Go = "go1.27" },
		"another instruction set: four was not measured then":                                     func(m *machine.Machine, q *measure.Result) { q.ISA = "four" },
		"another shape: 111 x 151,936 then, token_stats f32 on two, 111 x 32,000 now":             func(m *machine.Machine, q *measure.Result) { q.Vocab = 32000 },
		"another shape: 111 x 151,936 then, token_stats f32 on two, 7 x 151,936 now":              func(m *machine.Machine, q *measure.Result) { q.Rows = 7 },
		"another shape: 111 x 151,936 then, token_stats f32 on two, 111 x 151,936, 2 workers now": func(m *machine.Machine, q *measure.Result) { q.Workers = 2 },
		"gemm f32 was not measured then":                                                          func(m *machine.Machine, q *measure.Result) { q.Kernel = "gemm" },
		"token_stats f64 was not measured then":                                                   func(m *machine.Machine, q *measure.Result) { q.DType = "f64" },
	} {
		m, planned := then.Machine, slices.Clone(all)
		change(&m, &planned[1])
		if err := then.Comparable(m, planned); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	one, same := 1, 1
	pinned := then.Machine
	if pinned.Pinned = &one; !strings.HasSuffix(pinned.Rows()[0][1], ", pinned to CPU 1") {
		t.Errorf("%q", pinned.Rows())
	}
	on := then
	on.Machine.Pinned = &same
	if err := on.Comparable(pinned, all); err != nil {
		t.Errorf("both pinned: %v", err)
	}
	then.Partial, then.Results = true, then.Results[:1]
	if err := then.Comparable(then.Machine, all); err == nil || !strings.Contains(err.Error(), "not measured before that run ended") {
		t.Errorf("a partial run: %v", err)
	}
}

// TestCompare: slower and faster are said only beyond the intervals, and where
// the share of the plain read says so too.
func TestCompare(t *testing.T) {
	then := measure.Result{NsPerElement: bench.Estimate{Median: 1, Lo: 0.95, Hi: 1.05, N: 6}, ReadGBPerS: 20, Share: bench.Estimate{Median: 0.8, Lo: 0.76, Hi: 0.84, N: 6}}
	for _, c := range []struct {
		time, read float64 // now, over then
		want       string
	}{
		{1, 1, "within drift"},
		{1.05, 1, "within drift"},  // within the intervals
		{1.5, 1, "slower"},         // the machine is as it was
		{1.5, 1.5, "within drift"}, // the machine is slower, and so is the kernel
		{1, 1.5, "within drift"},   // the machine is slower, the kernel is not
		{0.5, 1, "faster"},         //
		{0.5, 0.5, "within drift"}, //
		{1.5, 0.75, "slower"},      // though the machine is faster
		{1.5, 1.05, "slower"},      // by more than the machine
		{0.97, 1.02, "within drift"},
	} {
		now := then
		now.NsPerElement = then.NsPerElement.Times(c.time)
		now.ReadGBPerS = 20 / c.read
		now.Share = then.Share.Times(c.read / c.time)
		got := compare(now, then)
		if got.Word != c.want || math.Abs(got.Ratio.Median-c.time) > 1e-12 || math.Abs(float64(got.Read)-c.read) > 1e-12 || !(got.Ratio.Lo < got.Ratio.Median && got.Ratio.Median < got.Ratio.Hi) || got.Ratio.N != 6 {
			t.Errorf("%v times the time, the plain read %v: %+v, want %s", c.time, c.read, got, c.want)
		}
		few := then
		few.NsPerElement.N = 5
		for _, got := range []Comparison{compare(now, few), compare(few, now)} {
			if got.Word != "not decided: rounds 5, want 6" {
				t.Errorf("of 5 rounds: %+v", got)
			}
		}
	}

	var none measure.Result // whatever it divides by, it can be written
	if _, err := json.Marshal(compare(then, none)); err != nil {
		t.Error(err)
	}
	r, old := sample(), sample()
	r.Results[1].NsPerElement.Median *= 2
	old.Results = old.Results[:5]
	old.Results[2].ReadGBPerS *= 1.5
	r.Compare(old)
	if r.Results[1].Baseline.Ratio.Median != 2 || r.Results[5].Baseline != nil {
		t.Errorf("%+v, %+v", r.Results[1].Baseline, r.Results[5].Baseline)
	}
	_, header, rows := r.Table()
	if header[len(header)-1] != "against baseline" || !strings.HasPrefix(rows[1][len(header)-1], "2.000 (") || rows[5][len(header)-1] != "-" {
		t.Errorf("%q, %q", header, rows[:6])
	}
	if drift := r.Drift(); !strings.Contains(drift, "take 1.00 to 1.50 times as long") {
		t.Error(drift)
	}
	if drift := sample().Drift(); drift != "" {
		t.Error(drift)
	}
}

func TestMarkdown(t *testing.T) {
	r := sample()
	r.Partial, r.Results[0].Kernel = true, "a|b"
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	var columns, lines int
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if columns = max(columns, n); n != columns {
			t.Errorf("%d columns, want %d: %s", n, columns, line)
		}
		lines++
	}
	if want := len(r.Results) + 2; lines != want || !strings.Contains(b.String(), Ended) || !strings.Contains(b.String(), "| --- | ---: |") {
		t.Errorf("%d lines, want %d:\n%s", lines, want, b.String())
	}
}

func TestCSV(t *testing.T) {
	r := sample()
	r.Results[0].MaxULP, r.Results[0].TimesPortable, r.Results[0].Cycles = bench.Number(math.NaN()), bench.Estimate{Median: math.NaN(), Lo: math.NaN(), Hi: math.NaN()}, 2.5
	r.Results[1].Baseline = &Comparison{bench.Estimate{Median: 1, Lo: 0.9, Hi: 1.1}, 1.25, "within drift"}
	var b bytes.Buffer
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll() // which wants rows of equal length
	if err != nil || len(rows) != len(r.Results)+1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, c := range []struct {
		row          int
		column, want string
	}{
		{1, "kernel", "token_stats"}, {1, "isa", "portable"}, {1, "vocab", "151936"}, {1, "ns_per_element", "5"}, {1, "read_gb_per_s", "20"},
		{1, "max_ulp", ""}, {1, "times_portable", ""}, {1, "cycles_per_element", "2.5"}, {1, "baseline_ratio", ""}, {1, "partial", "false"},
		{2, "times_portable_hi", "20"}, {2, "cycles_per_element", ""}, {2, "baseline_read_ratio", "1.25"}, {2, "baseline_verdict", "within drift"}, {2, "null_lo", "0.98"}, {2, "bytes_per_op", "64"},
	} {
		i := slices.Index(rows[0], c.column)
		if i < 0 || rows[c.row][i] != c.want {
			t.Errorf("row %d, %s: %q, want %q", c.row, c.column, rows[c.row], c.want)
		}
	}
}

// TestGo: benchstat's own reader takes it all.
func TestGo(t *testing.T) {
	r := sample()
	r.Partial = true
	var b bytes.Buffer
	if err := r.WriteGo(&b); err != nil {
		t.Fatal(err)
	}
	reader := benchfmt.NewReader(&b, "run")
	n := map[string]int{}
	for reader.Scan() {
		switch line := reader.Result().(type) {
		case *benchfmt.Result:
			n[line.Name.String()]++
			for key, want := range map[string]string{"goos": "linux", "goarch": "amd64", "cpu": "Test CPU", "pkg": "github.com/seed621a2839/reweight/bench", "note": Ended} {
				if got := line.GetConfig(key); got != want {
					t.Errorf("%s: %q, want %q", key, got, want)
				}
			}
			for _, unit := range []string{"sec/op", "B/s", "B/op", "allocs/op"} {
				if v, ok := line.Value(unit); !ok || !(v > 0) {
					t.Errorf("%s: %v %s", line.Name, v, unit)
				}
			}
			if string(line.Name) == "Kernel/name=token_stats/type=f32/rows=111/vocab=151936/workers=1/isa=two" && n[line.Name.String()] == 1 {
				sec, _ := line.Value("sec/op")
				speed, _ := line.Value("B/s")
				if elements := 111 * 151936.0; math.Abs(sec/(0.3e-9*elements)-1) > 1e-9 || math.Abs(speed/(4/0.3e-9)-1) > 1e-9 {
					t.Errorf("%v s, %v B/s", sec, speed)
				}
			}
		case *benchfmt.SyntaxError:
			t.Error(line)
		}
	}
	if err := reader.Err(); err != nil || len(n) != len(r.Results) {
		t.Errorf("%d names, want %d; %v", len(n), len(r.Results), err)
	}
	for name, samples := range n {
		if samples != 9 {
			t.Errorf("%d samples of %s, want one for each round", samples, name)
		}
	}
}

// failing takes so many bytes.
type failing int

var errFull = errors.New("full")

func (f *failing) Write(b []byte) (int, error) {
	if *f -= failing(len(b)); *f < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWriteErrors: no writer keeps an error to itself.
func TestWriteErrors(t *testing.T) {
	r := sample()
	for name, write := range map[string]func(io.Writer) error{
		"JSON": r.WriteJSON, "CSV": r.WriteCSV, "Markdown": r.WriteMarkdown, "Go": r.WriteGo,
		"HTML": func(w io.Writer) error { return r.WriteHTML(w, someRollout) },
	} {
		for _, space := range []failing{0, 700} {
			if err := write(&space); !errors.Is(err, errFull) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestPicture: the picture of the README is what the bench makes. If this fails,
// bench run -out DIR writes the new one to DIR/rollout.svg.
func TestPicture(t *testing.T) {
	example, err := Example()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteSVG(&b, example.Trajectories[0]); err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile("../../docs/rollout.svg"); err != nil || !bytes.Equal(b.Bytes(), want) {
		t.Errorf("docs/rollout.svg is not what the bench makes (%v)", err)
	}
	text := b.String()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"<script", "http:", "https:", "url(", "@import"} {
		if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), word) {
			t.Errorf("the picture has %s", word)
		}
	}
	for _, token := range example.Trajectories[0].Tokens {
		if !strings.Contains(text, ">"+safe(token.Text)+"</text>") {
			t.Errorf("no token %q", token.Text)
		}
	}
}

// TestNumbers: no number of the roofline lies on another.
func TestNumbers(t *testing.T) {
	r := sample()
	for _, width := range []float64{wide, narrow} {
		var at [][2]float64
		for _, m := range regexp.MustCompile(`<text class="number" text-anchor="middle" x="([0-9.]+)" y="([0-9.]+)">`).FindAllStringSubmatch(string(roofline(isas(r.Machine.ISAs), r.Results, width)), -1) {
			x, _ := strconv.ParseFloat(m[1], 64)
			y, _ := strconv.ParseFloat(m[2], 64)
			for _, other := range at {
				if math.Abs(x-other[0]) < 15 && math.Abs(y-other[1]) < 12 {
					t.Errorf("in a width of %v, numbers at %v and %v", width, other, [2]float64{x, y})
				}
			}
			at = append(at, [2]float64{x, y})
		}
		if want := len(workloadsOf(r.Results)); len(at) != want {
			t.Errorf("%d numbers, want %d", len(at), want)
		}
	}
}

// TestHostileText: texts from files are escaped in every format.
func TestHostileText(t *testing.T) {
	const hostile = "x\n::error::bad\r\x1b[31m\u202e\u2028\x7f\u009b2J\x00<script>|&"
	r := sample()
	r.Machine.CPU, r.Machine.Why, r.Results[0].Kernel, r.Failures = hostile, hostile, hostile, []string{hostile}
	r.Overhead[0].Step = hostile
	rollout := rolloutOf(hostile, token(hostile, reweight.RoleMasked, 0, 0), token(hostile, reweight.RoleAction, 1, 1), token(hostile, reweight.RoleReasoning, 1, 1))
	var out [5]bytes.Buffer
	for i, err := range []error{
		r.Write(&out[0], cli.Table), r.Write(&out[1], cli.Markdown), r.Write(&out[2], cli.JSON), r.WriteHTML(&out[3], rollout), WriteSVG(&out[4], rollout.Trajectories[0]),
	} {
		text := out[i].String()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Errorf("output %d: %q", i, line)
			}
		}
		if i != 0 && i != 2 && strings.Contains(text, "<script>|") || i >= 3 && !strings.Contains(text, "::error::bad") {
			t.Errorf("output %d:\n%s", i, text)
		}
	}
	wellFormed(t, out[3].String())
}
