package jsonscan

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
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
			return 0, s.wrong("a number that float32 can hold")
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
	return 0, s.wrong("a number")
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
		return 0, s.wrong(want)
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
		return 0, s.wrong(want)
	}
	return 0, s.wrong(large)
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
	return false, s.wrong("true, false, 1 or 0")
}

// Bools reads an array of what Bool reads.
func (s *Scanner) Bools() ([]bool, error) { return readAll(s, quickBool, (*Scanner).Bool) }

// readAll reads an array. one reads an element, after white space; quick reads one of the
// most frequent ones at data[i], and returns where it ends, or 0.
func readAll[T any](s *Scanner, quick func(data []byte, i int) (T, int), one func(*Scanner) (T, error)) ([]T, error) {
	if s.Kind() != Array {
		return nil, s.wrong("an array")
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

// AppendString appends a string.
func AppendString(dst []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // every string can be encoded
	}
	return append(dst, quoted...)
}
