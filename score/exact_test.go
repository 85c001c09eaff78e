package score

import (
	"math"
	"math/big"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"pgregory.net/rapid"
)

// rational returns the value of a float32 exactly.
func rational(x float32) *big.Rat { return new(big.Rat).SetFloat64(float64(x)) }

// hard draws values of all sizes, with those at the ends of float32's range.
func hard() *rapid.Generator[float32] {
	return rapid.OneOf(
		rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
			math.MaxFloat32, -math.MaxFloat32, 1, -1, 0x1p-126, 0x1.fffffcp-127, -0x1p127}),
		rapid.Float32Range(-30, 30),
		rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32),
		rapid.Map(rapid.Uint32(), func(u uint32) float32 { return math.Float32frombits(u &^ (1 << 30)) }), // of any exponent but the largest
	)
}

// TestExact: sums, means and variances are those of rational numbers, rounded once, by
// each way to add and to merge.
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(hard(), 1, 60).Draw(t, "values")
		sum, squares := new(big.Rat), new(big.Rat)
		var one, left, right sums
		var many collector
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		for i, v := range values {
			r := rational(v)
			sum.Add(sum, r)
			squares.Add(squares, new(big.Rat).Mul(r, r))
			one.add(v)
			if i < cut {
				left.add(v)
			} else {
				right.add(v)
			}
		}
		if i := many.add(values[:cut]); i >= 0 {
			t.Fatalf("values[%d] = %v is not finite", i, values[i])
		}
		many.carry()
		many.add(values[cut:])
		right.merge(&left)
		if total := many.total(); one.json() != total.json() || one.json() != right.json() {
			t.Fatalf("one by one %v, many %v, merged %v", one.json(), total.json(), right.json())
		}
		n := big.NewRat(int64(len(values)), 1)
		mean := new(big.Rat).Quo(sum, n)
		if want, _ := mean.Float64(); one.mean() != want {
			t.Errorf("mean %v, want %v", one.mean(), want)
		}
		variance := new(big.Rat).Quo(squares, n)
		variance.Sub(variance, mean.Mul(mean, mean))
		if want, _ := variance.Float64(); one.variance(int64(len(values))) != want {
			t.Errorf("variance %v, want %v", one.variance(int64(len(values))), want)
		}
		if err := one.check(); err != nil {
			t.Error(err)
		}
		for _, c := range []struct {
			number *big.Int
			unit   int
			want   *big.Rat
		}{{&one.sum, sumUnit, sum}, {&one.squares, squareUnit, squares}} {
			text := string(appendExact(nil, c.number, c.unit))
			var f big.Float
			if _, ok := f.SetPrec(2000).SetString(text); !ok {
				t.Fatalf("%s is no number", text)
			}
			if got, _ := f.Rat(nil); got == nil && c.want.Sign() != 0 || got != nil && got.Cmp(c.want) != 0 {
				t.Errorf("written as %s, want %v", text, c.want)
			}
			var again big.Int
			must.Do(parseExact(&again, c.unit, text))
			if again.Cmp(c.number) != 0 {
				t.Fatalf("%s is read as %x, want %x", text, &again, c.number)
			}
		}
	})
}

// TestCollectorLong: more values than the bins can hold at once, the largest ones.
func TestCollectorLong(t *testing.T) {
	values := make([]float32, 3*maxPending+17)
	for i := range values {
		values[i] = -math.MaxFloat32
		if i%5 == 0 {
			values[i] = float32(i) * 1e-40
		}
	}
	var c collector
	var want sums
	for from, step := 0, 1; from < len(values); step = step*3 + 1 { // pieces that end anywhere in the bins
		to := min(len(values), from+step)
		c.add(values[from:to])
		from = to
	}
	for _, v := range values {
		want.add(v)
	}
	if got := c.total(); got.json() != want.json() {
		t.Errorf("got %v, want %v", got.json(), want.json())
	}
}

// TestNotFinite: the collector finds the first value that is not finite.
func TestNotFinite(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, at := range []int{0, 5, maxPending, maxPending + 9} {
			values := make([]float32, maxPending+10)
			values[at] = bad
			var c collector
			if i := c.add(values); i != at {
				t.Errorf("%v at %d is found at %d", bad, at, i)
			}
		}
	}
}

// TestRoom: sums of maxCount of the largest values fit, and their signs are kept.
func TestRoom(t *testing.T) {
	for _, v := range []float32{math.MaxFloat32, -math.MaxFloat32} {
		var s sums
		s.add(v)
		for s.n < maxCount {
			other := s
			s.merge(&other)
		}
		if mean := s.mean(); mean != float64(v) || s.variance(s.n) != 0 {
			t.Errorf("mean %v and variance %v of %d times %v", mean, s.variance(s.n), s.n, v)
		}
		if err := s.check(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseExact(t *testing.T) {
	var x big.Int
	for _, text := range []string{"", "0", "0x", "0xp0", "0x1", "0x1p", "1p0", "--0x1p0", "-0x-1p0", "0x1p0.5", "0x_1p0", "0xgp0", "0x1p-150", "0x1p500",
		"0x1p99999999999999999999", "+0x1p0", " 0x1p0", "0x1p0 ", "0x" + string(make([]byte, 1<<20)) + "p0"} {
		if err := parseExact(&x, sumUnit, text); err == nil {
			t.Errorf("%.20q is taken", text)
		}
	}
	for text, want := range map[string]string{"0x0p0": "0x0p0", "0x0p-9999": "0x0p0", "0x10p0": "0x1p4", "-0x1fp-149": "-0x1fp-149"} {
		if err := parseExact(&x, sumUnit, text); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := string(appendExact(nil, &x, sumUnit)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// TestCheckSums: sums that no values have are refused.
func TestCheckSums(t *testing.T) {
	for _, c := range []struct {
		n            int64
		sum, squares string
		ok           bool
	}{
		{0, "0x0p0", "0x0p0", true}, {1, "-0x3p0", "0x9p0", true}, {2, "0x1p1", "0x1p1", true}, {maxCount, "0x0p0", "0x1p0", true},
		{0, "0x1p0", "0x1p0", false}, {0, "0x0p0", "0x1p0", false}, {0, "0x0p0", "-0x1p0", false}, {1, "0x3p0", "0x1p3", false}, {2, "0x3p0", "0x1p2", false},
		{-1, "0x0p0", "0x0p0", false}, {maxCount + 1, "0x0p0", "0x0p0", false}, {1, "0x0p0", "-0x1p0", false}, {2, "0x0p0", "0x1p257", false},
	} {
		var s sums
		err := (&sumsJSON{c.n, c.sum, c.squares}).sums(&s)
		if (err == nil) != c.ok {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
