package bench

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var long = flag.Bool("long", false, "simulate as many runs as the tables of docs/gate-method.md have, which takes minutes")

// simulated returns how many of so many runs to simulate.
func simulated(runs int) int {
	switch {
	case *long:
		return runs
	case testing.Short():
		return (runs + 99) / 100
	}
	return (runs + 39) / 40
}

// A machine is how noisy one is: noise of a block and of a place in memory, as
// standard deviations of logarithms, and the part of the time that a neighbour is busy.
type machine struct {
	name                        string
	noise, placement, neighbour float64
}

var (
	quiet = machine{"quiet", 0.005, 0.005, 0.05}
	busy  = machine{"busy", 0.02, 0.02, 0.4}
	wild  = machine{"wild", 0.05, 0.05, 0.7}
)

func (m machine) restless(seed int) *restless {
	return &restless{Rand: rand.New(rand.NewPCG(uint64(seed), 7)), machine: m}
}

// A restless machine has a clock that work moves on by what it costs now: the
// machine drifts, is slower while a neighbour is busy, is interrupted, and
// rounds each time a little up or down. Each pair finds the arrays of both sides
// in other places.
type restless struct {
	*rand.Rand
	machine
	now, until, slow float64 // ns; when the neighbour comes or goes; what it costs
}

// work takes so many ns on a quiet machine, and returns what it takes on this.
func (m *restless) work(ns float64) float64 {
	for m.now >= m.until {
		const stay = 2e6 // ns
		if m.slow = 1; m.Float64() < m.neighbour {
			m.slow = 1.7
		}
		m.until += stay * m.ExpFloat64()
	}
	t := ns * m.slow * (1 + 0.2*math.Sin(m.now/1e9)) * math.Exp(m.noise*m.NormFloat64())
	if m.IntN(50) == 0 {
		t += 1e5 * m.ExpFloat64() // somebody else's turn
	}
	m.now += t
	return t
}

const turnBlocks = 10 // of 150 us

// pair takes a pair of a function that is slower by that factor.
func (m *restless) pair(slower float64) Pair {
	side := func(slower float64) func() ([]float64, error) {
		slower *= math.Exp(m.placement * m.NormFloat64())
		return func() ([]float64, error) {
			ns := make([]float64, turnBlocks)
			for j := range ns {
				ns[j] = m.work(150e3*slower) / 10 // ten calls
			}
			return ns, nil
		}
	}
	p, _, err := TakePair(m.Rand, side(1), side(slower))
	if err != nil {
		panic(err)
	}
	return p
}

// A run is what the gate found of some functions.
type run struct {
	verdicts []Verdict
	pairs    [][]Pair
	total    int // pairs
}

// gate runs the gate on functions that are slower by these factors, pair by pair
// in turn, until all are decided or so many pairs are taken.
func (m *restless) gate(rule Rule, slower []float64, budget int) run {
	r := run{verdicts: make([]Verdict, len(slower)), pairs: make([][]Pair, len(slower))}
	for range rule.Looks[len(rule.Looks)-1] {
		for i, v := range r.verdicts {
			if v != Open || r.total >= budget {
				continue
			}
			r.pairs[i] = append(r.pairs[i], m.pair(slower[i]))
			r.total++
			if slices.Contains(rule.Looks, len(r.pairs[i])) {
				r.verdicts[i], _ = rule.Decide(r.pairs[i])
			}
		}
	}
	return r
}

// oneOf returns factors of n functions: of the first, and 1 of the others.
func oneOf(n int, first float64) []float64 {
	return append([]float64{first}, slices.Repeat([]float64{1}, n-1)...)
}

// atMost returns the exact upper 95% bound of a rate, from hits in so many runs.
func atMost(hits, runs int) float64 {
	if hits == runs {
		return 1
	}
	lo, hi := float64(hits)/float64(runs), 1.0
	for range 50 {
		p := (lo + hi) / 2
		below := 0.0 // the chance of so many hits or fewer
		for k := range hits + 1 {
			n, _ := math.Lgamma(float64(runs + 1))
			a, _ := math.Lgamma(float64(k + 1))
			b, _ := math.Lgamma(float64(runs - k + 1))
			below += math.Exp(n - a - b + float64(k)*math.Log(p) + float64(runs-k)*math.Log1p(-p))
		}
		if below > 0.05 {
			lo = p
		} else {
			hi = p
		}
	}
	return hi
}

// percent writes hits of runs.
func percent(hits, runs int) string { return fmt.Sprintf("%.4g%%", 100*float64(hits)/float64(runs)) }

// A tally is how often the gate was right in some runs.
type tally struct {
	alarms, open int // without a change: runs that fail something, or leave something inconclusive
	found, alone int // one function slower by twice the limit: runs that fail it, and it alone
	between      int // one function slower by 0.8 of the limit: runs that fail it
	others       int // with that function: runs that fail one that is not slower
	pairs        []int
}

// simulate runs the gate without a change, with one function slower by twice as
// much as the rule allows, and with one that is slower by 0.8 of it.
func (m machine) simulate(rule Rule, runs int) (t tally) {
	n, limit := rule.Comparisons, rule.Slower-1
	for seed := range runs {
		r := m.restless(seed)
		same := r.gate(rule, oneOf(n, 1), math.MaxInt)
		if slices.Contains(same.verdicts, Regression) {
			t.alarms++
		}
		if slices.Contains(same.verdicts, Inconclusive) {
			t.open++
		}
		t.pairs = append(t.pairs, same.total)
		if r.gate(rule, oneOf(n, 1+0.8*limit), math.MaxInt).verdicts[0] == Regression {
			t.between++
		}
		slower := r.gate(rule, oneOf(n, 1+2*limit), math.MaxInt).verdicts
		others := slices.Contains(slower[1:], Regression)
		if others {
			t.others++
		}
		if slower[0] == Regression {
			t.found++
			if !others {
				t.alone++
			}
		}
	}
	slices.Sort(t.pairs)
	return t
}

// pairSeconds is what a pair takes on a machine where nothing else runs: four turns
// of ten blocks, of which each takes 150 us, and 400 us more for what package testing
// does around it, such as two garbage collections. Where others compile on the same
// two cores, it is twice as much.
const pairSeconds = 4 * turnBlocks * (150e-6 + 400e-6)

// took describes what runs of so many pairs, sorted, take, in the mean and at most
// in 95% of them: pairs, thousands of blocks, minutes.
func took(pairs []int) string {
	sum := 0
	for _, n := range pairs {
		sum += n
	}
	mean, most := float64(sum)/float64(len(pairs)), float64(pairs[len(pairs)*95/100])
	return fmt.Sprintf("%.0f, %.0f | %.2g, %.2g | %.2g, %.2g", mean, most, mean*4*turnBlocks/1e3, most*4*turnBlocks/1e3, mean*pairSeconds/60, most*pairSeconds/60)
}

// TestGateRule states how often the gate fails what is not slower, how often it
// finds what is, and what that takes. It prints the tables of docs/gate-method.md:
// go test ./bench -run TestGateRule -v -long -timeout 60m
func TestGateRule(t *testing.T) {
	for _, c := range []struct {
		machine
		power, open float64 // as of check
		runs        [3]int
	}{
		{quiet, 1, 0, [3]int{2000, 1000, 400}},
		{busy, 0.99, 0.01, [3]int{1000, 500, 200}},
		{wild, 0.9, 1, [3]int{500, 200, 60}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for i, n := range [...]int{10, 40, 200} {
				if n == 200 && !*long {
					continue
				}
				c.check(t, fmt.Sprintf("%d, %s", n, c.name), NewRule(n, 0.01), simulated(c.runs[i]), c.power, c.open)
			}
		})
	}
}

// check simulates runs, prints a row of a table and fails the test if a run is wrong oftener
// than the rule's alpha says, finds a slower function alone in a smaller part of the runs than
// power, or leaves more than open undecided without a change.
func (m machine) check(t *testing.T, row string, rule Rule, runs int, power, open float64) {
	s := m.simulate(rule, runs)
	t.Logf("| %s | %d | %s, at most %.2g%% | %s | %s | %s, %s | %s |", row, runs, percent(s.alarms, runs), 100*atMost(s.alarms, runs),
		percent(s.open, runs), percent(s.between, runs), percent(s.found, runs), percent(s.alone, runs), took(s.pairs))
	of := func(n int) float64 { return float64(n) / float64(runs) }
	if s.alarms+s.others > 0 && of(s.alarms+s.others-1)/2 > rule.Alpha { // one may be chance
		t.Errorf("%d and %d of %d runs fail what is not slower, want %v of them at most", s.alarms, s.others, runs, rule.Alpha)
	}
	if rate := of(s.alone); rate < power {
		t.Errorf("%v of runs name a function that is slower alone, want at least %v", rate, power)
	}
	if rate := of(s.open); rate > open {
		t.Errorf("%v of runs without a change are inconclusive, want at most %v", rate, open)
	}
}

// TestGateRuleOptions is TestGateRule with other limits and another alpha.
func TestGateRuleOptions(t *testing.T) {
	const comparisons = 40
	for _, c := range []struct{ alpha, slower, surely float64 }{
		{0.05, 1.05, 1.02}, {0.001, 1.05, 1.02}, {0.01, 1.10, 1.05}, {0.01, 1.03, 1.01},
	} {
		t.Run(fmt.Sprint(c.alpha, c.slower, c.surely), func(t *testing.T) {
			t.Parallel()
			rule := NewRule(comparisons, c.alpha)
			rule.Slower, rule.Surely = c.slower, c.surely
			for _, m := range []struct {
				machine
				runs int
			}{{quiet, 500}, {busy, 200}, {wild, 40}} {
				if m.name == "wild" && !*long {
					continue
				}
				m.check(t, fmt.Sprintf("%v, %v, %v | %s", c.alpha, c.slower, c.surely, m.name), rule, simulated(m.runs), 0.9, 1)
			}
		})
	}
}

// TestGateRuleReordered states what the gate makes of functions whose speed
// depends on where the linker puts them. What would fail in the build that people get
// is measured once more, in builds with functions in random orders: the first pairs
// each have a build of their own of either side, and later pairs draw two of those.
// Pairs that share a build are not independent, so that the bounds are too narrow:
// the test measures by how much.
func TestGateRuleReordered(t *testing.T) {
	const (
		comparisons = 40
		noise       = 0.03 // between pairs of the same builds, as the busy machine has
	)
	runs := simulated(10000)
	r := rand.New(rand.NewPCG(10, 11))
	sequence := func(rule Rule, next func(pair int) float64) (v Verdict, pairs []Pair) {
		for v == Open {
			pairs = append(pairs, Pair{1e6, 1e6 * next(len(pairs)) * math.Exp(noise*r.NormFloat64())})
			if slices.Contains(rule.Looks, len(pairs)) {
				v, _ = rule.Decide(pairs)
			}
		}
		return v, pairs
	}
	for _, spread := range [...]float64{0.015, 0.03} { // of a build, a standard deviation of logarithms
		build := func() float64 { return math.Exp(spread * r.NormFloat64()) }
		for _, slower := range [...]float64{1, 1.02, 1.05, 1.10} { // in the median over all orders
			suspects := 0
			for range runs {
				linked := build() / build()
				if v, _ := sequence(NewRule(comparisons, 0.01), func(int) float64 { return slower * linked }); v == Regression {
					suspects++
				}
			}
			for _, orders := range [...]int{12, 24, 48} {
				verdicts := map[Verdict]int{}
				total := 0
				base, now := make([]float64, orders), make([]float64, orders)
				for range runs {
					for i := range base {
						base[i], now[i] = build(), build()
					}
					v, pairs := sequence(NewRule(1, 0.01), func(i int) float64 {
						if i < orders {
							return slower * now[i] / base[i]
						}
						return slower * now[r.IntN(orders)] / base[r.IntN(orders)]
					})
					verdicts[v]++
					total += len(pairs)
				}
				t.Logf("| %v%%, %.0f%% slower | %s | %d | %s | %s | %s | %.0f |", 100*spread, 100*(slower-1), percent(suspects, runs), orders,
					percent(verdicts[Regression], runs), percent(verdicts[Pass], runs), percent(verdicts[Inconclusive], runs), float64(total)/float64(runs))
				of := func(v Verdict) float64 { return float64(verdicts[v]) / float64(runs) }
				switch {
				case slower == 1 && (of(Regression) > 0.001 || of(Pass) < 0.98):
					t.Errorf("%v of functions that only an order makes slower fail, and %v pass", of(Regression), of(Pass))
				case slower == 1.02 && orders >= 24 && of(Regression) > 0.012: // 0.01 and chance
					t.Errorf("%v fail where it may just not, in %d orders, want at most 0.01", of(Regression), orders)
				case slower == 1.10 && of(Regression) < 0.99:
					t.Errorf("%v of functions that are slower in all orders fail, want 0.99", of(Regression))
				}
			}
		}
	}
}

// TestGateRuleBudget states what a budget leaves open, and how well Wanted says what more
// would do. A budget cannot raise the share of wrong verdicts: it only takes looks away.
func TestGateRuleBudget(t *testing.T) {
	const comparisons = 40
	rule := NewRule(comparisons, 0.01)
	for _, c := range []struct {
		machine
		runs    int
		budgets []int // pairs of a benchmark on average
	}{{busy, 200, []int{10, 15, 25}}, {wild, 60, []int{15, 75, 150}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.runs = simulated(c.runs)
			var whole []run
			for seed := range c.runs {
				whole = append(whole, c.restless(seed).gate(rule, oneOf(comparisons, 1), math.MaxInt))
			}
			for _, budget := range c.budgets {
				var open, told, kept, sooner, refused, rightly, alarms int
				for seed, end := range whole {
					r := c.restless(seed).gate(rule, oneOf(comparisons, 1), budget*comparisons)
					if slices.Contains(r.verdicts, Regression) {
						alarms++
					}
					for i, v := range r.verdicts {
						if v != Open {
							continue
						}
						open++
						wanted, took := rule.Wanted(r.pairs[i]), len(end.pairs[i])
						switch decided := end.verdicts[i] != Inconclusive; {
						case wanted == 0:
							refused++
							if !decided {
								rightly++
							}
						default:
							told++
							if decided && took == wanted {
								kept++
							}
							if decided && took < wanted {
								sooner++
							}
						}
					}
				}
				t.Logf("| %s, %d pairs | %s | %.1f of %d | %s, %s | %s: %s |", c.name, budget, percent(alarms, c.runs), float64(open)/float64(c.runs), comparisons,
					percent(kept, max(1, told)), percent(sooner, max(1, told)), percent(refused, max(1, open)), percent(rightly, max(1, refused)))
				if alarms > 0 {
					t.Errorf("%d of %d runs fail something", alarms, c.runs)
				}
				if open == 0 {
					t.Error("nothing is open: this shows nothing")
				}
				if n := kept + sooner; 4*n < told { // of 15 pairs that vary by 10%, little can be told
					t.Errorf("%d of %d are decided by the look that Wanted tells", n, told)
				}
			}
		})
	}
}

// TestGateRuleCounts: of functions whose counts are more in just half of the calls, which
// may not fail yet, a share of at most Alpha of the runs fails one. Equal counts
// with noise pass.
func TestGateRuleCounts(t *testing.T) {
	const functions = 25
	runs := 200
	if *long {
		runs = 4000
	}
	r := rand.New(rand.NewPCG(12, 13))
	rule := NewRule(functions, 0.01)
	edge, noisy, undecided := 0, 0, 0 // runs
	for range runs {
		of := func(next func() Pair) (all [4]int) {
			for range functions {
				v, pairs := Open, []Pair(nil)
				for v == Open {
					pairs = append(pairs, next())
					if slices.Contains(rule.Looks, len(pairs)) {
						v, _ = rule.DecideCounts(pairs)
					}
				}
				all[v]++
			}
			return all
		}
		if of(func() Pair { return Pair{100, 100 + 50*float64(r.IntN(2))} })[Regression] > 0 {
			edge++
		}
		count := func() float64 { return float64(5 + r.IntN(2)) }
		switch v := of(func() Pair { return Pair{count(), count()} }); {
		case v[Regression] > 0:
			noisy++
		case v[Inconclusive] > 0:
			undecided++
		}
	}
	t.Logf("%d runs of %d counts: half of the calls have more: %s fail; 5 or 6 on both sides: %s fail, %s inconclusive", runs, functions, percent(edge, runs), percent(noisy, runs), percent(undecided, runs))
	if edge == 0 || float64(edge)/float64(runs) > 0.0125 { // 0.01 and chance
		t.Errorf("%d of %d runs fail a count that is more in half of the calls, want some, and at most 0.01", edge, runs)
	}
	if noisy+undecided > 0 {
		t.Errorf("equal counts with noise: %d runs fail, and %d are inconclusive", noisy, undecided)
	}
}

// TestGateRuleAtItsEdge: where every function is as slow as may just not fail,
// or just not pass, and the noise drowns all, the share of wrong verdicts is at most Alpha.
func TestGateRuleAtItsEdge(t *testing.T) {
	runs, functions := 300, 25
	if *long {
		runs = 10000
	}
	rule := NewRule(functions, 0.01)
	r := rand.New(rand.NewPCG(8, 9))
	of := func(slower float64, want Verdict) float64 {
		hits := 0
		for range runs {
			hit := false
			for range functions {
				pairs := make([]Pair, 0, rule.Looks[len(rule.Looks)-1])
				for _, look := range rule.Looks {
					for len(pairs) < look {
						pairs = append(pairs, Pair{1e6, 1e6 * slower * math.Exp(0.3*r.NormFloat64())})
					}
					v, _ := rule.Decide(pairs)
					if hit = hit || v == want; v != Open {
						break
					}
				}
			}
			if hit {
				hits++
			}
		}
		return float64(hits) / float64(runs)
	}
	fails, passes := of(rule.Surely, Regression), of(rule.Slower, Pass)
	t.Logf("%d runs of %d functions, noise of 30%%: all %v times slower: %.2f%% fail; all %v times: %.2f%% pass one", runs, functions, rule.Surely, 100*fails, rule.Slower, 100*passes)
	if fails > 0.0125 || passes > 0.0125 { // 0.01 and chance
		t.Errorf("%v fail and %v pass, want at most 0.01", fails, passes)
	}
	if fails == 0 || passes == 0 {
		t.Error("none at all: this shows nothing")
	}
}
