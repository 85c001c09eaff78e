package jsonscan

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

var nan = math.Float32frombits(0x7fc00000)

// Float reads a number and returns the float32 nearest to it: what strconv.ParseFloat
// returns. A number beyond the largest float32 is an error.
func (s *Scanner) Float() (float32, error) {
	const want = "a number"
	switch s.Kind() {
	case Number:
	case String:
		for _, special := range specials {
			if bytes.HasPrefix(s.data[s.pos:], special.quoted) {
				s.pos += len(special.quoted)
				return special.value, nil
			}
		}
		fallthrough
	default:
		return 0, s.wrong(want)
	}
	begin := s.pos
	if err := s.skipNumber(); err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(s.data[begin:s.pos]), 32)
	if err != nil {
		s.pos = begin
		return 0, s.wrong("a number that a float32 holds")
	}
	return float32(f), nil
}

// specials are the numbers that are strings in JSON.
var specials = [...]struct {
	quoted []byte
	value  float32
}{
	{[]byte(`"NaN"`), nan},
	{[]byte(`"Infinity"`), float32(math.Inf(1))},
	{[]byte(`"-Infinity"`), float32(math.Inf(-1))},
}

// Floats reads an array of numbers, and appends it to dst.
func (s *Scanner) Floats(dst []float32) ([]float32, error) {
	err := s.Array(func(int) error {
		f, err := s.Float()
		dst = append(dst, f)
		return err
	})
	return dst, err
}

// Int64 reads an integer.
func (s *Scanner) Int64() (int64, error) { return s.integer(64, "an integer") }

// Int32 reads an integer.
func (s *Scanner) Int32() (int32, error) {
	i, err := s.integer(32, "an integer")
	return int32(i), err
}

// Int32s reads an array of integers, and appends it to dst.
func (s *Scanner) Int32s(dst []int32) ([]int32, error) {
	err := s.Array(func(int) error {
		i, err := s.Int32()
		dst = append(dst, i)
		return err
	})
	return dst, err
}

func (s *Scanner) integer(size int, want string) (int64, error) {
	if s.Kind() != Number {
		return 0, s.wrong(want)
	}
	begin := s.pos
	if err := s.skipNumber(); err != nil {
		return 0, err
	}
	i, err := strconv.ParseInt(string(s.data[begin:s.pos]), 10, size)
	if err != nil {
		s.pos = begin
		return 0, s.wrong(want)
	}
	return i, nil
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
