package jsonscan

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// quickInt32 reads the integer at data[i], and returns where it ends, or 0 if there is
// none, or one of more than 7 digits.
func quickInt32(data []byte, i int) (value int32, end int) {
	negative := i < len(data) && data[i] == '-'
	if negative {
		i++
	}
	v, n := digits(data, i)
	if n == 0 || n == 8 || n > 1 && data[i] == '0' {
		return 0, 0
	}
	i += n
	if i < len(data) && (data[i] == '.' || data[i]|0x20 == 'e') {
		return 0, 0
	}
	if negative {
		return -int32(v), i
	}
	return int32(v), i
}

// quickBool reads 0 or 1 at data[i], and returns where it ends, or 0 if there is
// something else.
func quickBool(data []byte, i int) (value bool, end int) {
	if len(data)-i < 2 || data[i]|1 != '1' || data[i+1] != ',' && data[i+1] != ']' {
		return false, 0
	}
	return data[i] == '1', i + 1
}

// quickFloat reads the number at data[i], and returns the float32 nearest to it, and
// where it ends, or 0 if there is none, or one that it cannot convert exactly.
//
// It computes the number in float64 from two values of at most a relative error of
// 2^-53 each, the digits and a power of ten, with one more rounding, so that the result
// is less than 4 steps of float64 away from the number. Only if the middle between two
// float32 is as near as that can the two be rounded to different float32.
func quickFloat(data []byte, i int) (value float32, end int) {
	negative := i < len(data) && data[i] == '-'
	if negative {
		i++
	}
	var v uint64
	n := 0
	for ; i+n < len(data) && isDigit(data[i+n]); n++ {
		v = 10*v + uint64(data[i+n]-'0')
	}
	if n == 0 || n > 18 || n > 1 && data[i] == '0' {
		return 0, 0
	}
	i += n
	if v == 0 {
		n = 0 // zeros before all other digits have no effect
	}
	exponent := 0
	if i < len(data) && data[i] == '.' {
		i++
		point := i
		if v == 0 {
			for i < len(data) && data[i] == '0' {
				i++
			}
		}
		for i < len(data) && isDigit(data[i]) {
			w, more := digits(data, i)
			if n += more; n > 18 {
				return 0, 0
			}
			v = v*integerPowers[more] + w
			i += more
		}
		if i == point {
			return 0, 0
		}
		exponent = point - i
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		i++
		minus := i < len(data) && data[i] == '-'
		if minus || i < len(data) && data[i] == '+' {
			i++
		}
		w, n := digits(data, i)
		if n == 0 || n == 8 {
			return 0, 0
		}
		i += n
		if minus {
			exponent -= int(w)
		} else {
			exponent += int(w)
		}
	}
	d := float64(int64(v))
	if v != 0 {
		switch {
		case exponent <= -len(powers) || exponent >= len(powers):
			return 0, 0
		case exponent < 0:
			d /= powers[-exponent]
		default:
			d *= powers[exponent]
		}
		// The numbers that float32 can hold with all its bits, with some to spare.
		if d < 0x1p-120 || d > 0x1p120 {
			return 0, 0
		}
		const middle, near = 1 << 28, 4 // of the 29 bits that float32 does not have
		if low := math.Float64bits(d) & (1<<29 - 1); low-(middle-near) <= 2*near {
			return 0, 0
		}
	}
	if negative {
		d = -d
	}
	return float32(d), i
}

// digits reads decimal digits at data[i], 8 at most, and returns how many it has read.
func digits(data []byte, i int) (value uint64, n int) {
	if len(data)-i < 8 {
		for ; i < len(data) && isDigit(data[i]); i++ {
			value = 10*value + uint64(data[i]-'0')
			n++
		}
		return value, n
	}
	w := binary.LittleEndian.Uint64(data[i:]) ^ '0'*ones // bytes of 0 to 9 for digits
	other := ((w&^highs + (0x7f-9)*ones) | w) & highs    // the highest bits of other bytes
	n = bits.TrailingZeros64(other) / 8
	if n == 0 {
		return 0, 0
	}
	w <<= 64 - 8*n // zeros before the digits
	// Neighbours are joined: 2 digits in each of 4 places, then 4 in each of 2, then 8.
	w = (w*10 + w>>8) & 0x00ff00ff00ff00ff
	w = (w*100 + w>>16) & 0x0000ffff0000ffff
	return uint64(uint32(w*10000 + w>>32)), n
}

// integerPowers and powers are powers of ten.
var (
	integerPowers = [9]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}
	powers        = [...]float64{
		1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
		1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
		1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29,
		1e30, 1e31, 1e32, 1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e39,
	}
)
