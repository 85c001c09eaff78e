package jsonscan

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/internal/printable"
)

// Float reads a number and returns the float32 nearest to it, the even one of two: what
// strconv.ParseFloat returns. A number beyond the largest float32 is an error.
func (s *Scanner) Float() (float32, error) {
	switch s.Kind() {
	case Number:
		begin := s.pos
		if err := s.skipNumber(); err != nil {
			return 0, err
		}
		text := s.data[begin:s.pos]
		if text[len(text)-1] == 'N' {
			return nan, nil
		}
		f, err := strconv.ParseFloat(string(text), 32)
		if err != nil {
			s.pos = begin
			return 0, s.Wrong("a number that float32 can hold")
		}
		return float32(f), nil
	case String:
		for _, special := range specials {
			if bytes.HasPrefix(s.data[s.pos:], special.quoted) {
				s.pos += len(special.quoted)
				return special.value, nil
			}
		}
	}
	return 0, s.Wrong("a number")
}

// nan is the NaN that is read: its sign and payload have no text.
var nan = math.Float32frombits(0x7fc00000)

// specials are the numbers that are strings in JSON.
var specials = [...]struct {
	quoted []byte
	value  float32
}{
	{[]byte(`"NaN"`), nan},
	{[]byte(`"Infinity"`), float32(math.Inf(1))},
	{[]byte(`"-Infinity"`), float32(math.Inf(-1))},
}

// FloatOrNull reads a number, or null as NaN.
func (s *Scanner) FloatOrNull() (float32, error) {
	if s.Kind() == Null {
		return nan, s.literal("null")
	}
	return s.Float()
}

// Floats reads an array of numbers. This and the other arrays are nil without elements.
func (s *Scanner) Floats() ([]float32, error) { return readAll(s, quickFloat, (*Scanner).Float) }

// FloatsOrNull reads an array of what FloatOrNull reads.
func (s *Scanner) FloatsOrNull() ([]float32, error) {
	return readAll(s, quickFloat, (*Scanner).FloatOrNull)
}

// Int64 reads an integer.
func (s *Scanner) Int64() (int64, error) { return s.integer(64, "an integer of 64 bits") }

// Int32 reads an integer.
func (s *Scanner) Int32() (int32, error) {
	i, err := s.integer(32, "an integer of 32 bits")
	return int32(i), err
}

// Int32s reads an array of integers.
func (s *Scanner) Int32s() ([]int32, error) { return readAll(s, quickInt32, (*Scanner).Int32) }

func (s *Scanner) integer(size int, large string) (int64, error) {
	const want = "an integer"
	if s.Kind() != Number {
		return 0, s.Wrong(want)
	}
	begin := s.pos
	if err := s.skipNumber(); err != nil {
		return 0, err
	}
	text := string(s.data[begin:s.pos])
	i, err := strconv.ParseInt(text, 10, size)
	if err == nil {
		return i, nil
	}
	s.pos = begin
	if bytes.ContainsAny([]byte(text), ".eEN") {
		return 0, s.Wrong(want)
	}
	return 0, s.Wrong(large)
}

// CanonicalNumber reads a number, and returns the one spelling that all numbers of its value
// have here: the number of an integer is its digits. The digits are compared and not a float, so
// that integers beyond 2^53 stay apart. NaN and the infinities are errors.
func (s *Scanner) CanonicalNumber() (string, error) {
	begin := s.pos
	raw, err := s.Raw()
	if err != nil {
		return "", err
	}
	text, ok := canonical(string(raw))
	if !ok {
		s.pos = begin
		return "", s.Wrong("a number that is finite")
	}
	return text, nil
}

// canonical is CanonicalNumber of a number. It reports false for one that it does not take.
func canonical(text string) (spelling string, ok bool) {
	const (
		most  = 40      // digits that are written out
		limit = 1 << 30 // of the exponent
	)
	if last := text[len(text)-1]; !isDigit(last) {
		return "", false // NaN or an infinity
	}
	text, negative := strings.CutPrefix(text, "-")
	mantissa, power := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, power = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent := 0
	if power != "" {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || exponent < -limit || exponent > limit {
			return "", false
		}
	}
	exponent -= len(fraction)
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", true
	}
	exponent += len(digits)
	digits = strings.TrimRight(digits, "0")
	exponent -= len(digits)
	switch point := len(digits) + exponent; {
	case exponent >= 0 && point <= most:
		digits += strings.Repeat("0", exponent)
	case exponent < 0 && point > 0:
		digits = digits[:point] + "." + digits[point:]
	case exponent < 0 && point > -most:
		digits = "0." + strings.Repeat("0", -point) + digits
	default:
		digits += "e" + strconv.Itoa(exponent)
	}
	if negative {
		digits = "-" + digits
	}
	return digits, true
}

// Bool reads true or false, or for those the numbers 1 and 0.
func (s *Scanner) Bool() (bool, error) {
	switch s.Kind() {
	case Bool:
		isTrue := s.data[s.pos] == 't'
		return isTrue, s.Skip()
	case Number:
		begin := s.pos
		f, err := s.Float()
		if err == nil && (f == 0 || f == 1) {
			return f == 1, nil
		}
		s.pos = begin
	}
	return false, s.Wrong("true, false, 1 or 0")
}

// Bools reads an array of what Bool reads.
func (s *Scanner) Bools() ([]bool, error) { return readAll(s, quickBool, (*Scanner).Bool) }

// readAll reads an array. one reads an element, after white space; quick reads one of the
// most frequent ones at data[i], and returns where it ends, or 0.
func readAll[T any](s *Scanner, quick func(data []byte, i int) (T, int), one func(*Scanner) (T, error)) ([]T, error) {
	if s.Kind() != Array {
		return nil, s.Wrong("an array")
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	s.space()
	list := slices.Grow([]T(nil), s.elements())
	for more := s.peek() != ']'; more; {
		x, end := quick(s.data, s.pos)
		if end != 0 {
			s.pos = end
		} else {
			var err error
			if x, err = one(s); err != nil {
				return nil, atIndex(err, len(list))
			}
		}
		list = append(list, x)
		if s.pos < len(s.data)-1 && s.data[s.pos] == ',' { // as after almost every element
			s.pos++
			if s.data[s.pos] == ' ' {
				s.pos++
			}
			continue
		}
		s.space()
		if more = s.peek() != ']'; more {
			if err := s.comma("a comma or ]"); err != nil {
				return nil, err
			}
		}
	}
	s.pos++
	s.depth--
	return list, nil
}

// elements returns the number of elements of the array that s is in, if they are numbers,
// and the array is whole.
func (s *Scanner) elements() int {
	text := s.data[s.pos:]
	n := bytes.IndexByte(text, ']')
	if n <= 0 {
		return 0
	}
	// An element and its comma take 2 bytes, so that more are not in an array.
	return min(bytes.Count(text[:n], []byte{','})+1, n/2+1)
}

// AppendFloat appends the shortest text that Float reads as f. NaN and the infinities
// are strings.
func AppendFloat(dst []byte, f float32) []byte {
	switch {
	case f != f:
		return append(dst, `"NaN"`...)
	case f > math.MaxFloat32:
		return append(dst, `"Infinity"`...)
	case f < -math.MaxFloat32:
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, float64(f), 'g', -1, 32)
}

// AppendString appends a string, in which what cannot be printed is escaped.
func AppendString(dst []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // every string can be encoded
	}
	return printable.AppendJSON(dst, quoted)
}
