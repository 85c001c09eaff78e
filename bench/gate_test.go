package bench

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRank(t *testing.T) {
	for _, c := range []struct {
		n     int
		alpha float64
		want  int
	}{
		{0, 0.5, 0}, {1, 0.49, 0}, {1, 0.5, 1}, // one value is above the median every other time
		{5, 0.03, 0}, {5, 0.04, 1}, // 1/32
		{12, 2e-4, 0}, {12, 2.5e-4, 1}, {12, 0.01, 2}, // 1/4096, 13/4096
		{24, 8e-5, 3}, {24, 1.7e-5, 2}, // 301/2^24 = 1.79e-5
		{192, 8e-5, 70},
		{1074, 8e-5, 475}, {1075, 8e-5, 476}, {2000, 8e-5, 916}, {100000, 8e-5, 49403}, // 2^-1075 is 0
		{2000, 0.9, 1000},
	} {
		if got := rank(c.n, c.alpha); got != c.want {
			t.Errorf("rank(%d, %v) = %d, want %d", c.n, c.alpha, got, c.want)
		}
	}
}

// of returns equal pairs.
func of(n int, base, now float64) []Pair { return slices.Repeat([]Pair{{base, now}}, n) }

// repeat returns pairs of one ratio.
func repeat(ratio float64, n int) []Pair { return of(n, 1000, 1000*ratio) }

// A decision is what a rule decides about pairs.
type decision struct {
	name  string
	pairs []Pair
	want  Verdict
}

func checkDecisions(t *testing.T, decide func([]Pair) (Verdict, Estimate), decisions []decision) {
	t.Helper()
	for _, d := range decisions {
		if got, e := decide(d.pairs); got != d.want || e.N != len(d.pairs) || !(e.Lo <= e.Hi) {
			t.Errorf("%s: %v, want %v (%+v)", d.name, got, d.want, e)
		}
	}
}

func TestDecide(t *testing.T) {
	// Of 12 the 2nd decides, of 24 the 5th.
	rule := Rule{Looks: []int{12, 24}, Alpha: 0.01, Comparisons: 1, Slower: 1.05, Surely: 1.02}
	checkDecisions(t, rule.Decide, []decision{
		{"nothing", nil, Open},
		{"before a look", repeat(1, 11), Open},
		{"between looks", repeat(1, 13), Open},
		{"equal", repeat(1, 12), Pass},
		{"faster", repeat(0.5, 12), Pass},
		{"slower", repeat(1.1, 12), Regression},
		{"slower, and one lucky pair", append(repeat(1.1, 11), repeat(0.9, 1)...), Regression},
		{"slower, and two lucky pairs", append(repeat(1.1, 10), repeat(0.9, 2)...), Open},
		{"slower, two unlucky in all", append(repeat(1.1, 22), repeat(0.9, 2)...), Regression},
		{"median not above", repeat(1.05, 12), Open},
		{"lower bound not above", append(repeat(1.02, 2), repeat(1.1, 10)...), Open},
		{"a little slower", repeat(1.049, 12), Pass},
		{"equal, and two spikes", append(repeat(1, 10), repeat(3, 2)...), Open},
		{"equal, and one spike", append(repeat(1, 11), repeat(3, 1)...), Pass},
		{"in the middle to the end", append(repeat(1, 12), repeat(1.1, 12)...), Inconclusive},
	})
	// Between looks, the interval is that of the last one.
	if _, e := rule.Decide(append(repeat(1, 12), repeat(9, 11)...)); e.N != 23 || e.Lo != 1 || e.Hi != 1 {
		t.Errorf("after a look: %+v, want the interval of 12 pairs", e)
	}
	rule.Comparisons = 1000 // of 12, no bound
	if got, e := rule.Decide(repeat(1.5, 12)); got != Open || !math.IsInf(e.Lo, -1) || !math.IsInf(e.Hi, 1) {
		t.Errorf("with a thousand functions: %v, %+v", got, e)
	}
}

// TestDecideFloor: nanoseconds that do not count make a function neither slower
// nor faster.
func TestDecideFloor(t *testing.T) {
	rule := NewRule(1, 0.01)
	for _, c := range []struct {
		base, now float64
		want      Verdict
	}{{2, 2.5, Pass}, {2, 3, Regression}, {0.3, 0.81, Pass}, {10, 10.9, Pass}, {10, 11.1, Regression},
		{1e6, 1.1e6, Regression}, {3, 2, Pass}} {
		if got, e := rule.Decide(of(rule.Looks[0], c.base, c.now)); got != c.want {
			t.Errorf("%v to %v ns: %v, want %v (%+v)", c.base, c.now, got, c.want, e)
		}
	}
}

func TestNewRule(t *testing.T) {
	for _, c := range []struct {
		comparisons int
		alpha       float64
		looks       []int
	}{
		{1, 0.01, []int{10, 14, 26, 50, 99, 199, 399}}, // 2^-10 <= 0.01/7 < 2^-9
		{0, 0.01, []int{10, 14, 26, 50, 99, 199, 399}},
		{25, 0.01, []int{15, 23, 39, 74, 150, 300, 600}},
		{200, 0.01, []int{18, 26, 46, 90, 179, 359, 720}},
		{1, 0.1, []int{7, 10, 16, 34, 70, 139, 280}},
	} {
		r := NewRule(c.comparisons, c.alpha)
		if !slices.Equal(r.Looks, c.looks) || r.Alpha != c.alpha || r.Comparisons != c.comparisons {
			t.Errorf("%d comparisons, alpha %v: %+v, want looks at %v", c.comparisons, c.alpha, r, c.looks)
		}
		first := r.Looks[0]
		if v, _ := r.Decide(repeat(1, first)); v != Pass {
			t.Errorf("%v: %v at the first look", c, v)
		}
		r.Looks[0]--
		if v, _ := r.Decide(repeat(1, first-1)); v != Open {
			t.Errorf("%v: %v with a pair less", c, v)
		}
	}
	for _, alpha := range []float64{0, 1, -1, math.NaN()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic with an alpha of %v", alpha)
				}
			}()
			NewRule(1, alpha)
		}()
	}
}

func TestDecideCounts(t *testing.T) {
	// Of 12 the 2nd decides, of 24 the 5th.
	rule := Rule{Looks: []int{12, 24}, Alpha: 0.01, Comparisons: 1, Slower: 1.05, Surely: 1.02, Floor: 5}
	checkDecisions(t, rule.DecideCounts, []decision{
		{"nothing", nil, Open},
		{"before a look", of(11, 1, 2), Open},
		{"between looks", of(13, 1, 2), Open},
		{"none", of(12, 0, 0), Pass},
		{"the first", of(12, 0, 1), Regression},
		{"no longer", of(12, 1, 0), Pass},
		{"equal", of(12, 3, 3), Pass},
		{"one more of a million", of(12, 1e6, 1e6+1), Regression},
		{"more, and one pair equal", append(of(11, 3, 4), of(1, 3, 3)...), Regression},
		{"more, and two pairs equal", append(of(10, 3, 4), of(2, 3, 3)...), Open},
		{"more, two pairs equal in all", append(of(22, 3, 4), of(2, 3, 3)...), Regression},
		{"more in half of the pairs", append(of(12, 3, 4), of(12, 3, 3)...), Inconclusive},
		{"fewer, and one pair more", append(of(11, 3, 2), of(1, 3, 9)...), Pass},
		{"a little more in half", append(of(6, 100, 104), of(6, 100, 100)...), Pass},
		{"more in half, from none", append(of(6, 0, 1), of(6, 0, 0)...), Open},
		{"below nothing, equal", of(12, -10, -10), Pass},
		{"below nothing, more", of(12, -10, -9), Regression},
	})
	if _, e := rule.DecideCounts(of(12, 3, 5)); e.Median != 2 || e.Lo != 2 || e.Hi != 2 {
		t.Errorf("3 to 5: %+v, want an estimate of the difference", e)
	}
}

func TestWanted(t *testing.T) {
	// Half a nanosecond of 1000 does not count; of 15 the 1st, of 23 the 3rd, then the 8th, 21st, 52nd, 117th, 253rd.
	rule := NewRule(25, 0.01)
	for _, c := range []struct {
		name  string
		pairs []Pair
		want  int
	}{
		{"nothing", nil, 0},
		{"equal", repeat(1, 1), 15},
		{"slower", repeat(1.1, 13), 15},
		{"a spike in 14", append(repeat(1, 13), repeat(2, 1)...), 23}, // 1.6 of 23
		{"two in 14", append(repeat(1, 12), repeat(2, 2)...), 39},     // 5.6 of 39
		{"slower, two lucky in 14", append(repeat(1.1, 12), repeat(1, 2)...), 39},
		{"three in 14", append(repeat(1, 11), repeat(2, 3)...), 74}, // 8.4 of 39, 16 of 74
		{"a third", append(repeat(1, 14), repeat(2, 7)...), 150},
		{"two fifths of 15", append(repeat(1, 9), repeat(2, 6)...), 600}, // 0.27 of 600, with luck
		{"two fifths of 100", append(repeat(1, 58), repeat(2, 42)...), 600},
		{"nearly half of 100", append(repeat(1, 52), repeat(2, 48)...), 0},
		{"at the limit", repeat(1.0505, 14), 0},
		{"a spike after the first looks", append(repeat(1, 38), repeat(2, 1)...), 39},
		{"after the last look", repeat(1, 601), 0},
	} {
		if got := rule.Wanted(c.pairs); got != c.want {
			t.Errorf("%s: %d pairs, want %d", c.name, got, c.want)
		}
	}
}

func TestTakePair(t *testing.T) {
	coin := rand.New(rand.NewPCG(1, 1))
	orders := map[string]int{}
	for range 200 {
		order := ""
		side := func(name string, times ...float64) func() ([]float64, error) {
			calls := 0
			return func() ([]float64, error) {
				order += name
				calls++
				return []float64{9, times[calls-1], 8}, nil
			}
		}
		p, again, err := TakePair(coin, side("b", 4, 2), side("n", 3, 5))
		if err != nil || p != (Pair{2, 3}) || again != 0.5 {
			t.Fatal(p, again, err)
		}
		orders[order]++
	}
	if len(orders) != 2 || orders["bnnb"] < 60 || orders["nbbn"] < 60 {
		t.Errorf("orders %v, want bnnb and nbbn as often", orders)
	}
	broken := errors.New("broken")
	good := func() ([]float64, error) { return []float64{1}, nil }
	if _, _, err := TakePair(coin, good, func() ([]float64, error) { return nil, broken }); err != broken {
		t.Errorf("error %v", err)
	}
	for _, times := range [][]float64{nil, {0}, {-1}, {5, math.NaN()}, {math.Inf(1)}} {
		if _, _, err := TakePair(coin, func() ([]float64, error) { return times, nil }, good); err == nil {
			t.Errorf("no error for times of %v", times)
		}
	}
}

func TestVerdictJSON(t *testing.T) {
	for v, want := range map[Verdict]string{Open: `"open"`, Pass: `"pass"`, Regression: `"regression"`,
		Inconclusive: `"inconclusive"`} {
		if text, err := v.MarshalJSON(); err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
	if got := Verdict(9).String(); got != "Verdict(9)" {
		t.Error(got)
	}
}
