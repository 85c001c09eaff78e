package diagnose

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/testdata/golden"
)

// An auditCase is an audit of Python, and what Python's report says of it.
type auditCase struct {
	Name string
	File struct {
		Audit            Audit
		Prompts, LeftOut int
		Answers          float64
		Parts            []goldenPart
		ByLayer          map[string][]goldenPart `json:"by_layer"`
		Efficiencies     []goldenEfficiency
		Measured         goldenEfficiency
		Weights          map[string]float64
		Signal           []*float64
		Verdict, Advice  string
	}
}

type goldenPart struct {
	Name                string
	Tokens              int64
	Signal, Noise, Best []*float64
}

type goldenEfficiency struct {
	Name string
	Here []*float64
	At   map[string]*float64
}

func auditCases(t *testing.T) []auditCase {
	var cases []auditCase
	golden.Read(t, "audit.json", &cases)
	if len(cases) < 8 {
		t.Fatalf("%d cases", len(cases))
	}
	return cases
}

// TestAudit compares every figure with Python's.
func TestAudit(t *testing.T) {
	worst, figures, tolerance := 0.0, 0, 1e-9
	same := func(what string, got float64, want *float64) {
		t.Helper()
		figures++
		if want == nil {
			if got-got == 0 {
				t.Errorf("%s = %v, want what is not finite", what, got)
			}
			return
		}
		off := math.Abs(got-*want) / max(1, math.Abs(*want))
		worst = max(worst, off)
		if !(off < tolerance) {
			t.Errorf("%s = %v, want %v", what, got, *want)
		}
	}
	interval := func(what string, got Interval, want []*float64) {
		t.Helper()
		for i, x := range []float64{got.Value, got.Low, got.High} {
			same(fmt.Sprint(what, " ", i), x, want[i])
		}
	}
	parts := func(what string, got []AuditPart, want []goldenPart) {
		t.Helper()
		for i, p := range got {
			name := what + " " + p.Name
			if p.Name != want[i].Name || p.Tokens != want[i].Tokens || len(got) != len(want) {
				t.Errorf("%s: %v, want %v", what, p, want[i])
			}
			interval(name+" signal", p.Signal, want[i].Signal)
			interval(name+" noise", p.Noise, want[i].Noise)
			interval(name+" best", p.Best, want[i].Best)
		}
	}
	efficiency := func(what string, got AuditEfficiency, want goldenEfficiency) {
		t.Helper()
		if got.Name != want.Name {
			t.Errorf("%s: %s, want %s", what, got.Name, want.Name)
		}
		interval(what+" "+got.Name, got.Here, want.Here)
		for i, k := range AuditTimes {
			same(fmt.Sprint(what, " ", got.Name, " at ", k), got.At[i], want.At[fmt.Sprint(k)])
		}
	}
	verdicts := map[string]bool{}
	for _, c := range auditCases(t) {
		if tolerance = 1e-9; len(c.File.Parts) == 1 { // the root of the rounding of 0
			tolerance = 1e-7
		}
		a := c.File.Audit
		slices.Reverse(a.Prompts) // their order does not matter
		r := must.Get(a.Report())
		if r.Prompts != c.File.Prompts || r.LeftOut != 2 || r.Verdict != c.File.Verdict || r.Advice != c.File.Advice {
			t.Errorf("%s: %d prompts, %q, want %d, %q", c.Name, r.Prompts, r.Advice, c.File.Prompts, c.File.Advice)
		}
		verdicts[r.Verdict] = true
		same(c.Name+" answers", r.Answers, &c.File.Answers)
		parts(c.Name, r.Parts, c.File.Parts)
		if len(r.ByLayer) != len(c.File.ByLayer) {
			t.Errorf("%s: %d layers, want %d", c.Name, len(r.ByLayer), len(c.File.ByLayer))
		}
		for i, of := range r.ByLayer {
			parts(c.Name+" layer "+r.Layers[i], of, c.File.ByLayer[r.Layers[i]])
		}
		if len(r.Efficiencies) != len(c.File.Efficiencies) {
			t.Errorf("%s: %d efficiencies, want %d", c.Name, len(r.Efficiencies), len(c.File.Efficiencies))
		}
		for i, e := range r.Efficiencies {
			efficiency(c.Name, e, c.File.Efficiencies[i])
		}
		efficiency(c.Name, r.Measured, c.File.Measured)
		for i, w := range r.Weights {
			want := c.File.Weights[a.Parts[i]]
			same(c.Name+" weight of "+a.Parts[i], w, &want)
		}
		interval(c.Name+" signal", r.Signal, c.File.Signal)
	}
	if got := slices.Sorted(maps.Keys(verdicts)); !slices.Equal(got, []string{"keep", "more", "use"}) {
		t.Errorf("verdicts %v", got)
	}
	t.Logf("%d figures within %.1e", figures, worst)
}

// TestAuditErrors: what is no audit is an error, and no panic.
func TestAuditErrors(t *testing.T) {
	for want, spoil := range map[string]func(a *Audit){
		"Parts are 0":                   func(a *Audit) { a.Parts = nil },
		"of 0 layers":                   func(a *Audit) { a.Layers = nil },
		"Schemes[1] has 2 weights":      func(a *Audit) { a.Schemes[1].Weights = []float64{1, 2} },
		"Prompts are 1 with different":  func(a *Audit) { a.Prompts = a.Prompts[:1] },
		`Prompts[2] has the key "q0"`:   func(a *Audit) { a.Prompts[0].Key, a.Prompts[2].Key = "q0", "q0" },
		"Prompts[1] has 0 answers":      func(a *Audit) { a.Prompts[1].Answers = 0 },
		"2 parts, want at least 1":      func(a *Audit) { a.Prompts[1].Tokens = a.Prompts[1].Tokens[:2] },
		"S or T that are not [2, 4, 4]": func(a *Audit) { a.Prompts[3].S = a.Prompts[3].S[:1] },
		"Prompts[3] has S or T":         func(a *Audit) { a.Prompts[3].T[1] = a.Prompts[3].T[1][:3] },
		"Prompts[4] has S or T":         func(a *Audit) { a.Prompts[4].T[1][2] = nil },
		"Prompts[5] has S or T":         func(a *Audit) { a.Prompts[5].S[1][2][0] = math.NaN() },
	} {
		a := auditCases(t)[0].File.Audit
		spoil(&a)
		r, err := a.Report()
		if err == nil || r != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
}
