package gate

import (
	"testing"

	"github.com/seed621a2839/reweight/bench"
)

// TestUnits: which way each unit is judged, and in which words.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		unit      string
		base, now float64
		verdict   bench.Verdict
		message   string
	}{
		{"ns/op", 100, 120, bench.Regression, "takes 1.195 times as long as the base (1.195 to 1.195), 10 pairs"},
		{"ns/op", 120, 100, bench.Pass, ""},
		{"ns/op", 0.5, 1, bench.Pass, ""}, // half a nanosecond does not count
		{"widgets", 0.5, 1, bench.Regression, "has 2.000 times as many widgets as the base (2.000 to 2.000), 10 pairs"},
		{"widgets", 1, 0.5, bench.Pass, ""},
		{"widgets", 0, 1, bench.Regression, "1 widgets, base 0, 10 pairs"},
		{"widgets", 1, 0, bench.Pass, ""},
		{"MB/s", 100, 50, bench.Regression, "the base has 2.000 times as many MB/s (2.000 to 2.000), 10 pairs"},
		{"MB/s", 50, 100, bench.Pass, ""},
		{"hits/s", 0, 100, bench.Pass, ""},
		{"hits/s", 100, 0, bench.Regression, "0 hits/s, base 100, 10 pairs"},
		{"hits/s", 0, 0, bench.Pass, ""},
		{"B/op", 64, 65, bench.Regression, "65 B/op, base 64, 10 pairs"},
		{"B/op", 64, 64, bench.Pass, ""},
		{"allocs/op", 1, 0, bench.Pass, ""},
	} {
		u := unit{Metric: Metric{Unit: c.unit}, kind: kindOf(c.unit)}
		for range 10 {
			u.pairs = append(u.pairs, bench.Pair{Base: c.base, New: c.now})
			u.decide(bench.NewRule(1, 0.01)) // first looks at 10 pairs
		}
		if u.Verdict != c.verdict || u.message != c.message || u.Base != c.base || u.New != c.now {
			t.Errorf("%v to %v %s: %v, %q, want %v, %q", c.base, c.now, c.unit, u.Verdict, u.message, c.verdict, c.message)
		}
	}
}
