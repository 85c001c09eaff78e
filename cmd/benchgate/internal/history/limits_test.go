package history

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var long = flag.Bool("long", false, "run tests that take long")

// TestLimits: of histories without a step, whose values are in an order by chance, the share that is above a limit is
// the one that METHOD.md states. With -long it prints the table.
func TestLimits(t *testing.T) {
	const share = 1.0 / 2000
	for _, l := range limits {
		histories := 20_000
		if *long {
			histories = min(1_000_000, 1_000_000_000/(l.n*l.n))
		} else if l.n > 50 {
			continue
		}
		r := rand.New(rand.NewPCG(uint64(l.n), 1))
		ranks := make([]float64, l.n)
		var splits, stretches []float64
		for range histories {
			for i, p := range r.Perm(l.n) {
				ranks[i] = float64(p + 1)
			}
			split, within := scan(ranks)
			splits, stretches = append(splits, split.score), append(stretches, within.score)
		}
		above := func(scores []float64, limit float64) (share, quantile float64) {
			slices.Sort(scores)
			i, _ := slices.BinarySearch(scores, math.Nextafter(limit, math.Inf(1)))
			most := int(1.0 / 2000 * float64(histories))
			return float64(histories-i) / float64(histories), scores[histories-1-most]
		}
		split, splitLimit := above(splits, l.split)
		stretch, stretchLimit := above(stretches, l.stretch)
		t.Logf("{%d, %.3f, %.3f}, above: %.5f, %.5f", l.n, math.Ceil(1000*splitLimit)/1000,
			math.Ceil(1000*stretchLimit)/1000, split, stretch)
		most := share + 4*math.Sqrt(share/float64(histories)) // four standard errors
		if split > most || stretch > most || *long && max(split, stretch) < share/3 {
			t.Errorf("%d values: %.5f and %.5f are above their limits, want %.5f", l.n, split, stretch, share)
		}
	}
}
