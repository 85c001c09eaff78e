package score

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// rational returns the value of a float32 exactly.
func rational(x float32) *big.Rat { return new(big.Rat).SetFloat64(float64(x)) }

// hard draws values of all sizes, with those at the ends of float32's range.
func hard() *rapid.Generator[float32] {
	return rapid.OneOf(
		rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32,
			-math.SmallestNonzeroFloat32,
			math.MaxFloat32, -math.MaxFloat32, 1, -1, 0x1p-126, 0x1.fffffcp-127, -0x1p127}),
		rapid.Float32Range(-30, 30),
		rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32),
		// Any exponent but the largest.
		rapid.Map(rapid.Uint32(), func(u uint32) float32 { return math.Float32frombits(u &^ (1 << 30)) }),
	)
}

// sumsOf returns the sums of values, added in so many pieces of equal length.
func sumsOf(values []float32, piece int) (all sums) {
	for part := range slices.Chunk(values, piece) {
		var c collector
		c.add(part)
		one := c.total()
		all.merge(&one)
	}
	return all
}

func (s sums) String() string { return string(must.Get(json.Marshal(&s))) }

// TestExact: sums, means and variances are as of rational numbers, rounded once, by
// each way to add and to merge, and after they were written and read.
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(hard(), 1, 60).Draw(t, "values")
		sum, squares := new(big.Rat), new(big.Rat)
		for _, v := range values {
			r := rational(v)
			sum.Add(sum, r)
			squares.Add(squares, new(big.Rat).Mul(r, r))
		}
		var many collector
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		many.add(values[:cut])
		many.carry()
		many.add(values[cut:])
		one, pieces := many.total(), sumsOf(values, max(1, cut))
		var read sums
		must.Do(json.Unmarshal([]byte(one.String()), &read))
		if one.String() != pieces.String() || one.String() != read.String() {
			t.Fatalf("%v, in pieces %v, read %v", one, pieces, read)
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
	for from, step := 0, 1; from < len(values); step = step*3 + 1 { // pieces that end anywhere in the bins
		to := min(len(values), from+step)
		c.add(values[from:to])
		from = to
	}
	if got, want := c.total(), sumsOf(values, 100); got.String() != want.String() {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRoom: sums of many of the largest values fit, and their signs are kept.
func TestRoom(t *testing.T) {
	for _, v := range []float32{math.MaxFloat32, -math.MaxFloat32} {
		s := sumsOf([]float32{v}, 1)
		for s.N < 1<<53 {
			other := s
			s.merge(&other)
		}
		if mean := s.mean(); mean != float64(v) || s.variance(s.N) != 0 {
			t.Errorf("mean %v and variance %v of %d times %v", mean, s.variance(s.N), s.N, v)
		}
		if err := s.check(); err != nil {
			t.Error(err)
		}
	}
}

// TestCheckSums: sums that no values have are refused.
func TestCheckSums(t *testing.T) {
	for _, c := range []struct {
		n, sum, squares int64
		power           int // of 2, that squares is a multiple of
		ok              bool
	}{
		{0, 0, 0, 0, true}, {1, -3, 9, 0, true}, {2, 2, 2, 0, true}, {1 << 53, 0, 1, 0, true}, {2, 0, 1, 256, true},
		{0, 1, 1, 0, false}, {0, 0, 1, 0, false}, {0, 0, -1, 0, false}, {1, 3, 8, 0, false}, {2, 3, 4, 0, false},
		{-1, 0, 0, 0, false}, {1, 0, -1, 0, false}, {2, 0, 1, 257, false},
	} {
		s := sums{N: c.n}
		s.Sum.Lsh(big.NewInt(c.sum), -sumUnit)
		s.Squares.Lsh(big.NewInt(c.squares), uint(c.power-squareUnit))
		if err := s.check(); (err == nil) != c.ok {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
