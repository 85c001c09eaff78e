package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// noises are what may move the values of a history without a step, in standard deviations of about 1.
var noises = map[string]func(r *rand.Rand) float64{
	"even": func(r *rand.Rand) float64 { return r.NormFloat64() },
	// One run in ten is on a machine that is busy, and far off.
	"wild": func(r *rand.Rand) float64 {
		if r.IntN(10) == 0 {
			return 8 * math.Abs(r.NormFloat64())
		}
		return r.NormFloat64()
	},
	// Two kinds of machines, of which chance takes one.
	"two machines": func(r *rand.Rand) float64 { return 4*float64(r.IntN(2)) + r.NormFloat64() },
}

// simulated are n values of a noise of one percent, slower by a share from at to the one before end.
func simulated(r *rand.Rand, noise func(*rand.Rand) float64, n, at, end int, slower float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1 + 0.01*noise(r)
		if i >= at && i < end {
			x[i] *= 1 + slower
		}
	}
	return x
}

// TestFalseAlarms: histories without a step in which one is found, as METHOD.md has them. With -long it prints the
// table.
func TestFalseAlarms(t *testing.T) {
	for _, n := range []int{16, 30, 100, 300} {
		for _, name := range []string{"even", "wild", "two machines"} {
			histories := 200_000 / n / max(1, n/30)
			if *long {
				histories = 10_000_000 / n / max(1, n/30)
			}
			r := rand.New(rand.NewPCG(uint64(n), 2))
			alarms := 0
			for range histories {
				alarms += min(1, len(Find(simulated(r, noises[name], n, 0, 0, 0))))
			}
			share := float64(alarms) / float64(histories)
			t.Logf("| %d | %s | %d | %.3f%% |", n, name, histories, 100*share)
			if most := 0.001 + 4*math.Sqrt(0.001/float64(histories)); share > most {
				t.Errorf("%d values, %s: %.4f of %d histories have a step, want 0.001", n, name, share, histories)
			}
		}
	}
	// A file is looked at after each commit, and so has many chances.
	histories := 50
	if *long {
		histories = 2_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	ever := 0
	for range histories {
		x := simulated(r, noises["even"], 100, 0, 0, 0)
		for n := 16; n <= 100; n++ {
			if len(Find(x[:n])) > 0 {
				ever++
				break
			}
		}
	}
	share := float64(ever) / float64(histories)
	t.Logf("looked at after each of 100 commits: %.2f%% of %d histories", 100*share, histories)
	if share > 0.012+4*math.Sqrt(0.012/float64(histories)) {
		t.Errorf("%.4f of %d histories ever have a step", share, histories)
	}
}

// TestFound: steps that are found, by their size and by how many commits follow them, as METHOD.md has them.
func TestFound(t *testing.T) {
	for _, c := range []struct {
		n, at, end int
		least      []float64 // share that is found, by slower
	}{
		{30, 15, 30, []float64{0.02, 0.6, 0.98, 1}},
		{30, 20, 30, []float64{0.01, 0.4, 0.95, 1}},
		{30, 25, 30, []float64{0, 0.1, 0.5, 0.97}},
		{30, 26, 30, []float64{0, 0, 0, 0}},
		{100, 50, 100, []float64{0.5, 0.95, 0.99, 1}},
		{100, 95, 100, []float64{0, 0.25, 0.75, 0.99}},
		{100, 97, 100, []float64{0, 0.02, 0.2, 0.8}},
		{100, 40, 60, []float64{0.05, 0.9, 0.99, 1}},
	} {
		line, right, wide, all := "", 0, 0, 0
		for i, slower := range []float64{0.01, 0.02, 0.03, 0.05} {
			histories := 100
			if *long {
				histories = 5_000
			}
			r := rand.New(rand.NewPCG(uint64(c.n), 3))
			found := 0
			for range histories {
				hit := false
				for _, s := range Find(simulated(r, noises["even"], c.n, c.at, c.end, slower)) {
					if s.At >= c.at-5 && s.At <= c.at+5 {
						hit = true
						all++
						wide += s.Last - s.First + 1
						if s.First <= c.at && c.at <= s.Last {
							right++
						}
					}
				}
				if hit {
					found++
				}
			}
			share := float64(found) / float64(histories)
			line += fmt.Sprintf(" %.3g%% |", 100*share)
			if share < c.least[i] {
				t.Errorf("%+v: %.3f found that are %g%% slower, want %g", c, share, 100*slower, c.least[i])
			}
		}
		t.Logf("| %d, of %d |%s range holds it %.3f, width %.2f", c.end-c.at, c.n, line,
			float64(right)/float64(all), float64(wide)/float64(all))
		if all > 500 && float64(right)/float64(all) < 0.9 {
			t.Errorf("%+v: the range has the step in %d of %d", c, right, all)
		}
	}
}
