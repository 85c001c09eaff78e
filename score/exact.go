package score

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
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
// both exact. There is room for more than maxCount values.
type sums struct {
	n       int64
	sum     [6]uint64  // in units of 2^sumUnit, two's complement
	squares [10]uint64 // in units of 2^squareUnit
}

// split returns a finite x as mantissa * 2^shift units of 2^sumUnit.
func split(x float32) (mantissa uint64, shift uint, negative bool) {
	u := math.Float32bits(x)
	mantissa, shift = uint64(u&(1<<23-1)), uint(u>>23&0xff)
	if shift > 0 { // a normal number
		mantissa |= 1 << 23
		shift--
	}
	return mantissa, shift, u>>31 != 0
}

// add adds one value, which is finite.
func (s *sums) add(x float32) {
	m, shift, negative := split(x)
	s.n++
	addShifted(s.sum[:], m, shift, negative)
	addShifted(s.squares[:], m*m, 2*shift, false)
}

// merge adds the values of o.
func (s *sums) merge(o *sums) {
	s.n += o.n
	addWords(s.sum[:], o.sum[:])
	addWords(s.squares[:], o.squares[:])
}

// addShifted adds m * 2^shift to words, the lowest first, or subtracts it.
func addShifted(words []uint64, m uint64, shift uint, negative bool) {
	w, b := shift/64, shift%64
	lo, hi := m<<b, m>>(64-b) // a shift by 64 gives 0
	step := bits.Add64
	if negative {
		step = bits.Sub64
	}
	var carry uint64
	words[w], carry = step(words[w], lo, 0)
	words[w+1], carry = step(words[w+1], hi, carry)
	for i := w + 2; carry != 0 && i < uint(len(words)); i++ {
		words[i], carry = step(words[i], 0, carry)
	}
}

func addWords(a, b []uint64) {
	var carry uint64
	for i := range a {
		a[i], carry = bits.Add64(a[i], b[i], carry)
	}
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
			u := math.Float32bits(v)
			m := int64(u & (1<<23 - 1))
			e := u >> 23 & 0xff
			if e != 0 {
				m |= 1 << 23
			}
			bin := &c.bins[e]
			sign := int64(int32(u) >> 31) // 0 or -1
			bin.sum += (m ^ sign) - sign
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
		shift := uint(max(e, 1) - 1)
		m := uint64(bin.sum)
		if bin.sum < 0 {
			m = -m
		}
		addShifted(c.sum[:], m, shift, bin.sum < 0)
		addShifted(c.squares[:], uint64(bin.squares), 2*shift, false)
		bin.sum, bin.squares = 0, 0
	}
	c.pending = 0
}

// total returns the sums of all values.
func (c *collector) total() sums {
	c.carry()
	return c.sums
}

// integer returns words, the lowest first, as an integer. They are two's complement.
func integer(words []uint64) *big.Int {
	negative := words[len(words)-1]>>63 != 0
	var text []byte // big-endian, as SetBytes wants
	carry := uint64(1)
	for i := range words {
		w := words[i]
		if negative {
			w, carry = bits.Add64(^w, 0, carry)
		}
		for range 8 {
			text = append(text, byte(w))
			w >>= 8
		}
	}
	for i, j := 0, len(text)-1; i < j; i, j = i+1, j-1 {
		text[i], text[j] = text[j], text[i]
	}
	x := new(big.Int).SetBytes(text)
	if negative {
		x.Neg(x)
	}
	return x
}

// setWords is the inverse of integer. x must fit.
func setWords(words []uint64, x *big.Int) {
	text := new(big.Int).Abs(x).Bytes()
	clear(words)
	for i, b := range text {
		at := len(text) - 1 - i
		words[at/8] |= uint64(b) << (at % 8 * 8)
	}
	if x.Sign() < 0 {
		carry := uint64(1)
		for i := range words {
			words[i], carry = bits.Add64(^words[i], 0, carry)
		}
	}
}

// mean returns the mean of the values, of which there is at least one: the exact one,
// rounded once.
func (s *sums) mean() float64 {
	d := big.NewInt(s.n)
	mean, _ := new(big.Rat).SetFrac(integer(s.sum[:]), d.Lsh(d, -sumUnit)).Float64()
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
	d := integer(s.squares[:])
	d.Mul(d, big.NewInt(s.n))
	sum := integer(s.sum[:])
	return d.Sub(d, sum.Mul(sum, sum))
}

// appendExact appends an integer of units of 2^unit in the one way in which partials have
// it: in hexadecimal without zeros at either end, as "-0x1fp-20" for -31 * 2^-20, and
// "0x0p0" for 0. Python's float.fromhex and Go's strconv.ParseFloat read it too.
func appendExact(text []byte, words []uint64, unit int) []byte {
	x := integer(words)
	if x.Sign() < 0 {
		text = append(text, '-')
		x.Neg(x)
	}
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

// parseExact sets words to what appendExact has written. It may take other texts of the
// same number too.
func parseExact(words []uint64, unit int, text string) error {
	digits, negative := strings.CutPrefix(text, "-")
	digits, ok := strings.CutPrefix(digits, "0x")
	digits, power, ok2 := strings.Cut(digits, "p")
	const most = 10 * 64 / 4 // digits of sums.squares
	if !ok || !ok2 || len(digits) == 0 || len(digits) > most || len(power) > 5 || strings.ContainsAny(digits, "+-_") {
		return errNotExact
	}
	x, ok := new(big.Int).SetString(digits, 16)
	exponent, err := strconv.Atoi(power)
	if !ok || err != nil {
		return errNotExact
	}
	if x.Sign() == 0 {
		exponent = unit
	}
	if exponent < unit || exponent-unit+x.BitLen() > 64*len(words)-1 {
		return errors.New("out of range")
	}
	x.Lsh(x, uint(exponent-unit))
	if negative {
		x.Neg(x)
	}
	setWords(words, x)
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
	squares := integer(s.squares[:])
	switch {
	case squares.Sign() < 0:
		return errors.New("squares is negative")
	case squares.Cmp(largest.Mul(largest, big.NewInt(s.n))) > 0:
		return fmt.Errorf("squares is above what %d values can have", s.n)
	case s.deviations().Sign() < 0:
		return fmt.Errorf("squares is too small for the sum of %d values", s.n)
	}
	return nil
}
