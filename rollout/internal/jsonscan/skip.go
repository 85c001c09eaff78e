package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// Skip reads a value of any kind, checks that it is JSON, and forgets it.
func (s *Scanner) Skip() (err error) {
	switch s.Kind() {
	case Object:
		return s.skipAll('}', "a comma or }")
	case Array:
		return s.skipAll(']', "a comma or ]")
	case String:
		_, err = s.skipString()
	case Number:
		err = s.skipNumber()
	case Bool:
		if s.peek() == 't' {
			err = s.literal("true")
		} else {
			err = s.literal("false")
		}
	case Null:
		err = s.literal("null")
	default:
		err = s.unexpected("a value")
	}
	return err
}

// skipAll skips an array or object. After an element there is what next says.
func (s *Scanner) skipAll(closing byte, next string) error {
	if err := s.enter(); err != nil {
		return err
	}
	s.space()
	for more := s.peek() != closing; more; {
		if closing == '}' {
			if err := s.skipName(); err != nil {
				return err
			}
		}
		if err := s.Skip(); err != nil {
			return err
		}
		s.space()
		if more = s.peek() != closing; more {
			if err := s.comma(next); err != nil {
				return err
			}
		}
	}
	s.pos++
	s.depth--
	return nil
}

func (s *Scanner) skipName() error {
	if s.peek() != '"' {
		return s.unexpected("the name of a field")
	}
	if _, err := s.skipString(); err != nil {
		return err
	}
	return s.colon()
}

func (s *Scanner) literal(text string) error {
	for i := range len(text) {
		if s.peek() != text[i] {
			return s.unexpected(text)
		}
		s.pos++
	}
	return nil
}

// Bytes in all eight places of a word.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// zeroBytes returns a word whose lowest set bit is the highest bit of the lowest byte of
// w that is 0. It is 0 if there is none.
func zeroBytes(w uint64) uint64 { return (w - ones) &^ w & highs }

// skipString skips a string, and reports whether it has escape sequences.
func (s *Scanner) skipString() (escaped bool, err error) {
	s.pos++
	for {
		s.pos += ordinary(s.data[s.pos:])
		switch c := s.peek(); {
		case s.pos == len(s.data):
			return escaped, s.unexpected("the closing quote of a string")
		case c == '"':
			s.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.skipEscape(); err != nil {
				return escaped, err
			}
		default:
			return escaped, s.unexpected("an escape sequence for this character in a string")
		}
	}
}

// ordinary returns the number of bytes up to the first that is a quote, a backslash or a
// control character.
func ordinary(data []byte) int {
	i := 0
	for ; len(data)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		// A byte is a control character if its highest three bits are 0.
		special := zeroBytes(w^'"'*ones) | zeroBytes(w^'\\'*ones) | zeroBytes(w&(0xe0*ones))
		if special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for ; i < len(data); i++ {
		if c := data[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

func (s *Scanner) skipEscape() error {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if c := s.peek(); !isDigit(c) && !('a' <= c|0x20 && c|0x20 <= 'f') {
				return s.unexpected("a hexadecimal digit")
			}
			s.pos++
		}
		return nil
	}
	return s.unexpected("an escape sequence")
}

// skipNumber skips a number, NaN or an infinity.
func (s *Scanner) skipNumber() error {
	if s.peek() == '-' {
		s.pos++
	} else if s.peek() == 'N' {
		return s.literal("NaN")
	}
	switch c := s.peek(); {
	case c == 'I':
		return s.literal("Infinity")
	case c == '0':
		s.pos++
	default:
		if err := s.skipDigits(); err != nil {
			return err
		}
	}
	if s.peek() == '.' {
		s.pos++
		if err := s.skipDigits(); err != nil {
			return err
		}
	}
	if s.peek()|0x20 == 'e' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.skipDigits()
	}
	return nil
}

// skipDigits skips one digit or more.
func (s *Scanner) skipDigits() error {
	if !isDigit(s.peek()) {
		return s.unexpected("a digit")
	}
	for isDigit(s.peek()) {
		s.pos++
	}
	return nil
}

func isDigit(c byte) bool { return c-'0' <= 9 }
