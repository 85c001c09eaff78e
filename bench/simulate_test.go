package bench

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

var long = flag.Bool("long", false, "simulate as many runs as the tables of cmd/benchgate/METHOD.md have, which takes minutes")

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

// gate runs the gate on functions that are slower by these factors, pair by pair
// in turn, until all are decided, and returns how many pairs it took too.
func (m *restless) gate(rule Rule, slower []float64) (verdicts []Verdict, total int) {
	verdicts = make([]Verdict, len(slower))
	pairs := make([][]Pair, len(slower))
	for range rule.Looks[len(rule.Looks)-1] {
		for i, v := range verdicts {
			if v != Open {
				continue
			}
			pairs[i] = append(pairs[i], m.pair(slower[i]))
			total++
			if slices.Contains(rule.Looks, len(pairs[i])) {
				verdicts[i], _ = rule.Decide(pairs[i])
			}
		}
	}
	return verdicts, total
}

// until takes pairs until the rule decides by them, and returns how many it took too.
func until(looks []int, decide func([]Pair) (Verdict, Estimate), next func(pair int) Pair) (v Verdict, taken int) {
	var pairs []Pair
	for v == Open {
		pairs = append(pairs, next(len(pairs)))
		if slices.Contains(looks, len(pairs)) {
			v, _ = decide(pairs)
		}
	}
	return v, len(pairs)
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
	return distuv.Beta{Alpha: float64(hits + 1), Beta: float64(runs - hits)}.Quantile(0.95)
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
		same, pairs := r.gate(rule, oneOf(n, 1))
		if slices.Contains(same, Regression) {
			t.alarms++
		}
		if slices.Contains(same, Inconclusive) {
			t.open++
		}
		t.pairs = append(t.pairs, pairs)
		if between, _ := r.gate(rule, oneOf(n, 1+0.8*limit)); between[0] == Regression {
			t.between++
		}
		slower, _ := r.gate(rule, oneOf(n, 1+2*limit))
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
	return fmt.Sprintf("%.0f, %.0f | %.2g, %.2g | %.2g, %.2g", mean, most, mean*4*turnBlocks/1e3, most*4*turnBlocks/1e3,
		mean*pairSeconds/60, most*pairSeconds/60)
}

// TestGateRule states how often the gate fails what is not slower, how often it
// finds what is, and what that takes. It prints the tables of cmd/benchgate/METHOD.md:
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
	t.Logf("| %s | %d | %s, at most %.2g%% | %s | %s | %s, %s | %s |", row, runs, percent(s.alarms, runs),
		100*atMost(s.alarms, runs),
		percent(s.open, runs), percent(s.between, runs), percent(s.found, runs), percent(s.alone, runs), took(s.pairs))
	of := func(n int) float64 { return float64(n) / float64(runs) }
	if s.alarms+s.others > 0 && of(s.alarms+s.others-1)/2 > rule.Alpha { // one may be chance
		t.Errorf("%d and %d of %d runs fail what is not slower, want %v of them at most", s.alarms, s.others, runs,
			rule.Alpha)
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
				m.check(t, fmt.Sprintf("%v, %v, %v | %s", c.alpha, c.slower, c.surely, m.name), rule,
					simulated(m.runs), 0.9, 1)
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
	sequence := func(rule Rule, next func(pair int) float64) (v Verdict, pairs int) {
		return until(rule.Looks, rule.Decide, func(pair int) Pair {
			return Pair{1e6, 1e6 * next(pair) * math.Exp(noise*r.NormFloat64())}
		})
	}
	for _, spread := range [...]float64{0.015, 0.03} { // of a build, a standard deviation of logarithms
		build := func() float64 { return math.Exp(spread * r.NormFloat64()) }
		for _, slower := range [...]float64{1, 1.02, 1.05, 1.10} { // in the median over all orders
			suspects := 0
			for range runs {
				linked := build() / build()
				if v, _ := sequence(NewRule(comparisons, 0.01),
					func(int) float64 { return slower * linked }); v == Regression {
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
					total += pairs
				}
				t.Logf("| %v%%, %.0f%% slower | %s | %d | %s | %s | %s | %.0f |", 100*spread, 100*(slower-1),
					percent(suspects, runs), orders,
					percent(verdicts[Regression], runs), percent(verdicts[Pass], runs),
					percent(verdicts[Inconclusive], runs), float64(total)/float64(runs))
				of := func(v Verdict) float64 { return float64(verdicts[v]) / float64(runs) }
				switch {
				case slower == 1 && (of(Regression) > 0.001 || of(Pass) < 0.98):
					t.Errorf("%v of functions that only an order makes slower fail, and %v pass",
						of(Regression), of(Pass))
				case slower == 1.02 && orders >= 24 && of(Regression) > 0.012: // 0.01 and chance
					t.Errorf("%v fail where it may just not, in %d orders, want at most 0.01", of(Regression), orders)
				case slower == 1.10 && of(Regression) < 0.99:
					t.Errorf("%v of functions that are slower in all orders fail, want 0.99", of(Regression))
				}
			}
		}
	}
}

// TestGateRuleAtItsEdge: where every function is as slow as may just not fail, or just not
// pass, and the noise drowns all, the share of runs with a wrong verdict is at most Alpha. So
// it is where counts are more in just half of the calls. Equal counts with noise pass.
func TestGateRuleAtItsEdge(t *testing.T) {
	const functions = 25
	rule := NewRule(functions, 0.01)
	r := rand.New(rand.NewPCG(8, 9))
	noisy := func(slower float64) func(int) Pair {
		return func(int) Pair { return Pair{1e6, 1e6 * slower * math.Exp(0.3*r.NormFloat64())} }
	}
	count := func() float64 { return float64(5 + r.IntN(2)) }
	for _, c := range []struct {
		what       string
		decide     func([]Pair) (Verdict, Estimate)
		next       func(int) Pair
		wrong      []Verdict
		most       float64 // 0.01 and chance, and some of those
		runs, long int
	}{
		{"all 1.02 times slower, noise of 30%", rule.Decide, noisy(rule.Surely), []Verdict{Regression}, 0.0125, 300, 10000},
		{"all 1.05 times slower, noise of 30%", rule.Decide, noisy(rule.Slower), []Verdict{Pass}, 0.0125, 300, 10000},
		{"half of the calls have more", rule.DecideCounts, func(int) Pair {
			return Pair{100, 100 + 50*float64(r.IntN(2))}
		},
			[]Verdict{Regression}, 0.0125, 1000, 4000},
		{"5 or 6 on both sides", rule.DecideCounts, func(int) Pair { return Pair{count(), count()} },
			[]Verdict{Regression, Inconclusive}, 0, 200, 4000},
	} {
		if *long {
			c.runs = c.long
		}
		hits := 0
		for range c.runs {
			wrong := false
			for range functions {
				v, _ := until(rule.Looks, c.decide, c.next)
				wrong = wrong || slices.Contains(c.wrong, v)
			}
			if wrong {
				hits++
			}
		}
		t.Logf("%d runs of %d functions, %s: %s have one that is %v", c.runs, functions, c.what,
			percent(hits, c.runs), c.wrong)
		if share := float64(hits) / float64(c.runs); share > c.most || c.most > 0 && hits == 0 {
			t.Errorf("%s: %v of runs are wrong, want at most %v, and some where it is above 0", c.what, share, c.most)
		}
	}
}
