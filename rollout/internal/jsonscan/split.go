package jsonscan

import (
	"encoding/binary"
	"math/bits"
)

// An Ender finds where an array or object ends, in text that comes piece by piece. It
// looks at brackets and strings only: whether the value is JSON says a Scanner. The zero
// value is for a value that has not begun.
type Ender struct {
	depth    int
	inString bool
	escaped  bool // the next byte is the second of an escape sequence
}

// End goes on with the next piece of the value, and returns how many bytes of it belong
// to the value, and whether it ends with them. The first piece begins with the opening
// bracket.
func (e *Ender) End(text []byte) (n int, ends bool) {
	for n < len(text) {
		switch {
		case e.escaped:
			e.escaped = false
			n++
		case e.inString:
			n += ordinary(text[n:])
			if n < len(text) {
				e.escaped, e.inString = text[n] == '\\', text[n] != '"'
				n++
			}
		default:
			n += untilBracket(text[n:])
			if n == len(text) {
				break
			}
			switch text[n] {
			case '"':
				e.inString = true
			case '{', '[':
				e.depth++
			default:
				e.depth--
			}
			n++
			if e.depth == 0 && !e.inString {
				*e = Ender{}
				return n, true
			}
		}
	}
	return n, false
}

// untilBracket returns the number of bytes before the first bracket or quote.
func untilBracket(text []byte) int {
	i := 0
	for ; len(text)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(text[i:])
		curly := w | 0x20*ones // the square brackets become curly ones
		if found := zeroBytes(w^'"'*ones) | zeroBytes(curly^'{'*ones) | zeroBytes(curly^'}'*ones); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c == '"' || c|0x20 == '{' || c|0x20 == '}' {
			break
		}
	}
	return i
}
