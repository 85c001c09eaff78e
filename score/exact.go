package score

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxCount bounds every count of a partial: numbers up to it pass through any reader of
// JSON unchanged.
const maxCount = 1 << 53

// A float32 is a whole number of units of 2^-149, below 2^277 in magnitude. Its square is
// one of units of 2^-298, below 2^554.
const (
	sumUnit    = -149
	squareUnit = -298
)

// sums are the number of finite float32 values, their sum and the sum of their squares,
// both exact.
type sums struct {
	n       int64
	sum     big.Int // in units of 2^sumUnit
	squares big.Int // in units of 2^squareUnit
}

// add adds one value, which is finite.
func (s *sums) add(x float32) {
	s.n++
	m, exponent := split(x)
	s.addShifted(m, m*m, exponent)
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

// addShifted adds a sum of mantissas and one of their squares, of values whose exponent has
// these bits.
func (s *sums) addShifted(sum, squares int64, exponent uint32) {
	shift := uint(max(exponent, 1) - 1)
	x := big.NewInt(sum)
	s.sum.Add(&s.sum, x.Lsh(x, shift))
	x = big.NewInt(squares)
	s.squares.Add(&s.squares, x.Lsh(x, 2*shift))
}

// merge adds the values of o.
func (s *sums) merge(o *sums) {
	s.n += o.n
	s.sum.Add(&s.sum, &o.sum)
	s.squares.Add(&s.squares, &o.squares)
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

// add adds the values up to the first that is not finite, and returns its index, or -1.
// After that, the collector is of no use.
func (c *collector) add(x []float32) int {
	for from := 0; from < len(x); {
		part := x[from:min(len(x), from+maxPending-c.pending)]
		for _, v := range part {
			m, e := split(v)
			bin := &c.bins[e]
			bin.sum += m
			bin.squares += m * m
		}
		if c.bins[0xff].squares != 0 { // the exponent of NaN and of the infinities
			for i, v := range part {
				if v-v != 0 {
					return from + i
				}
			}
		}
		from += len(part)
		c.n += int64(len(part))
		if c.pending += len(part); c.pending == maxPending {
			c.carry()
		}
	}
	return -1
}

// carry empties the bins into the sums.
func (c *collector) carry() {
	for e := range c.bins {
		bin := &c.bins[e]
		if bin.squares == 0 {
			continue
		}
		c.addShifted(bin.sum, bin.squares, uint32(e))
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
	d := big.NewInt(s.n)
	mean, _ := new(big.Rat).SetFrac(&s.sum, d.Lsh(d, -sumUnit)).Float64()
	return mean
}

// variance returns the sum of the squares of the values' deviations from their mean,
// over divisor, which is positive: the exact one, rounded once.
func (s *sums) variance(divisor int64) float64 {
	d := s.deviations()
	n := big.NewInt(s.n)
	n.Mul(n, big.NewInt(divisor))
	v, _ := new(big.Rat).SetFrac(d, n.Lsh(n, -squareUnit)).Float64()
	return v
}

// deviations returns n times the sum of the squares of the deviations, n*Q - S*S, in
// units of 2^squareUnit.
func (s *sums) deviations() *big.Int {
	d := big.NewInt(s.n)
	d.Mul(d, &s.squares)
	return d.Sub(d, new(big.Int).Mul(&s.sum, &s.sum))
}

// appendExact appends an integer of units of 2^unit in the one way in which partials have
// it: in hexadecimal without zeros at either end, as "-0x1fp-20" for -31 * 2^-20, and
// "0x0p0" for 0. Python's float.fromhex and Go's strconv.ParseFloat read it too.
func appendExact(text []byte, number *big.Int, unit int) []byte {
	if number.Sign() < 0 {
		text = append(text, '-')
	}
	x := new(big.Int).Abs(number)
	exponent := 0
	if x.Sign() != 0 {
		zeros := x.TrailingZeroBits()
		x.Rsh(x, zeros)
		exponent = unit + int(zeros)
	}
	text = append(text, "0x"...)
	text = x.Append(text, 16)
	text = append(text, 'p')
	return strconv.AppendInt(text, int64(exponent), 10)
}

var errNotExact = errors.New(`want a number such as "-0x1fp-20"`)

// maxBits bounds the exact sums of maxCount values: those of squares have 2 * 277 + 53 bits.
const maxBits = 639

// parseExact sets x to what appendExact has written. It may take other texts of the
// same number too.
func parseExact(x *big.Int, unit int, text string) error {
	digits, negative := strings.CutPrefix(text, "-")
	digits, ok := strings.CutPrefix(digits, "0x")
	digits, power, ok2 := strings.Cut(digits, "p")
	const most = (maxBits + 1) / 4 // digits
	if !ok || !ok2 || len(digits) == 0 || len(digits) > most || len(power) > 5 || strings.ContainsAny(digits, "+-_") {
		return errNotExact
	}
	_, ok = x.SetString(digits, 16)
	exponent, err := strconv.Atoi(power)
	if !ok || err != nil {
		return errNotExact
	}
	if x.Sign() == 0 {
		exponent = unit
	}
	if exponent < unit || exponent-unit+x.BitLen() > maxBits {
		return errors.New("out of range")
	}
	x.Lsh(x, uint(exponent-unit))
	if negative {
		x.Neg(x)
	}
	return nil
}

// check returns an error if no n float32 values have these sums.
func (s *sums) check() error {
	if s.n < 0 || s.n > maxCount {
		return fmt.Errorf("n is %d, want 0 to %d", s.n, int64(maxCount))
	}
	// The largest sum of squares is that of n times the largest value. Then the sum is
	// within bounds too.
	largest := new(big.Int).Lsh(big.NewInt(1<<24-1), 253)
	largest.Mul(largest, largest)
	switch {
	case s.squares.Sign() < 0:
		return errors.New("squares is negative")
	case s.squares.Cmp(largest.Mul(largest, big.NewInt(s.n))) > 0:
		return fmt.Errorf("squares is above what %d values can have", s.n)
	case s.deviations().Sign() < 0:
		return fmt.Errorf("squares is too small for the sum of %d values", s.n)
	}
	return nil
}
