package score

import (
	"fmt"
	"math"
	"math/big"
)

// A float32 is a whole number of units of 2^-149, below 2^277 in magnitude. Its square is
// one of units of 2^-298, below 2^554.
const (
	sumUnit    = -149
	squareUnit = -298
)

// sums are the number of finite float32 values, their sum and the sum of their squares,
// both exact. Their JSON has whole numbers of any length.
type sums struct {
	N       int64   `json:"n"`
	Sum     big.Int `json:"sum"`     // in units of 2^sumUnit
	Squares big.Int `json:"squares"` // in units of 2^squareUnit
}

// split returns a finite x as its mantissa and the bits of its exponent.
func split(x float32) (mantissa int64, exponent uint32) {
	u := math.Float32bits(x)
	m := int64(u & (1<<23 - 1))
	e := u >> 23 & 0xff
	if e != 0 { // a normal number
		m |= 1 << 23
	}
	sign := int64(int32(u) >> 31) // 0 or -1
	return (m ^ sign) - sign, e
}

// merge adds the values of o.
func (s *sums) merge(o *sums) {
	s.N += o.N
	s.Sum.Add(&s.Sum, &o.Sum)
	s.Squares.Add(&s.Squares, &o.Squares)
}

// A collector adds many values to sums. It first sums the mantissas of values with equal
// exponents, which are small integers, and rarely carries these sums over.
type collector struct {
	sums
	bins    [256]struct{ sum, squares int64 } // by the bits of the exponent
	pending int                               // values in bins
}

// maxPending squares of mantissas, below 2^48, stay below 2^63.
const maxPending = 1 << 15

// add adds values, which are finite.
func (c *collector) add(x []float32) {
	for len(x) > 0 {
		part := x[:min(len(x), maxPending-c.pending)]
		for _, v := range part {
			m, e := split(v)
			bin := &c.bins[e]
			bin.sum += m
			bin.squares += m * m
		}
		x = x[len(part):]
		c.N += int64(len(part))
		if c.pending += len(part); c.pending == maxPending {
			c.carry()
		}
	}
}

// carry empties the bins into the sums.
func (c *collector) carry() {
	for e := range c.bins {
		bin := &c.bins[e]
		if bin.squares == 0 {
			continue
		}
		shift := uint(max(e, 1) - 1)
		x := big.NewInt(bin.sum)
		c.Sum.Add(&c.Sum, x.Lsh(x, shift))
		x = big.NewInt(bin.squares)
		c.Squares.Add(&c.Squares, x.Lsh(x, 2*shift))
		bin.sum, bin.squares = 0, 0
	}
	c.pending = 0
}

// total returns the sums of all values. The collector is of no use afterwards.
func (c *collector) total() sums {
	c.carry()
	return c.sums
}

// mean returns the mean of the values, of which there is at least one: the exact one,
// rounded once.
func (s *sums) mean() float64 {
	d := big.NewInt(s.N)
	mean, _ := new(big.Rat).SetFrac(&s.Sum, d.Lsh(d, -sumUnit)).Float64()
	return mean
}

// variance returns the sum of the squares of the values' deviations from their mean,
// over divisor, which is positive: the exact one, rounded once.
func (s *sums) variance(divisor int64) float64 {
	d := s.deviations()
	n := big.NewInt(s.N)
	n.Mul(n, big.NewInt(divisor))
	v, _ := new(big.Rat).SetFrac(d, n.Lsh(n, -squareUnit)).Float64()
	return v
}

// deviations returns n times the sum of the squares of the deviations, n*Q - S*S, in
// units of 2^squareUnit.
func (s *sums) deviations() *big.Int {
	d := big.NewInt(s.N)
	d.Mul(d, &s.Squares)
	return d.Sub(d, new(big.Int).Mul(&s.Sum, &s.Sum))
}

// check returns an error if no float32 values have these sums.
func (s *sums) check() error {
	// The largest sum of squares is of n times the largest value. Then the sum is
	// within bounds too.
	largest := new(big.Int).Lsh(big.NewInt(1<<24-1), 253)
	largest.Mul(largest, largest)
	largest.Mul(largest, big.NewInt(s.N))
	if s.N < 0 || s.Squares.Sign() < 0 || s.Squares.Cmp(largest) > 0 || s.deviations().Sign() < 0 {
		return fmt.Errorf("no %d values of float32 have these sums", s.N)
	}
	return nil
}
