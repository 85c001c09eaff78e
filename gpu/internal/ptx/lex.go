package ptx

import (
	"fmt"
	"strings"
)

// A token is a word, a number, a string or a single character of punctuation.
type token struct {
	text string
	line int
}

// A scanner walks over the tokens of a module. Its methods panic with a syntaxError.
type scanner struct {
	lines  []string
	tokens []token
	at     int
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' ||
		c == '%' || c == '.'
}

// scan cuts the lines into tokens, with one without a text at the end.
func (s *scanner) scan() {
	for n, line := range s.lines {
		for i := 0; i < len(line); {
			end := i + 1
			switch c := line[i]; {
			case c == ' ' || c == '\t' || c == '\r':
				i++
				continue
			case strings.HasPrefix(line[i:], "//"):
				i = len(line)
				continue
			case c == '"':
				length := strings.IndexByte(line[end:], '"')
				if length < 0 {
					s.fail(n+1, "a string that does not end")
				}
				end += length + 1
			case isWordByte(c):
				for end < len(line) && isWordByte(line[end]) {
					end++
				}
			case strings.IndexByte(",;:{}[]()<>=+-!@|", c) < 0:
				s.fail(n+1, "the character %q", c)
			}
			s.tokens = append(s.tokens, token{line[i:end], n + 1})
			i = end
		}
	}
	s.tokens = append(s.tokens, token{line: len(s.lines)})
}

// A syntaxError is what the parser panics with; parseModule makes an error of it.
type syntaxError struct {
	line    int
	problem string
}

func (s *scanner) fail(line int, format string, args ...any) {
	panic(syntaxError{line, fmt.Sprintf(format, args...)})
}

func (s *scanner) end() bool { return s.at == len(s.tokens)-1 }

// peek returns the next token's text, "" at the end, and line its line.
func (s *scanner) peek() string { return s.tokens[s.at].text }
func (s *scanner) line() int    { return s.tokens[s.at].line }

func (s *scanner) next() string {
	if s.end() {
		s.fail(s.line(), "the text ends too early")
	}
	s.at++
	return s.tokens[s.at-1].text
}

// accept takes the next token if it is t.
func (s *scanner) accept(t string) bool {
	if s.peek() == t {
		s.at++
		return true
	}
	return false
}

func (s *scanner) expect(t string) {
	line := s.line()
	if got := s.next(); got != t {
		s.fail(line, "%q, want %q", got, t)
	}
}

// source is a line for messages.
func (s *scanner) source(line int) string {
	return strings.ReplaceAll(strings.TrimSpace(s.lines[line-1]), "\t", " ")
}
