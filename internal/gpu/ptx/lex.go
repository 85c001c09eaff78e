package ptx

import (
	"fmt"
	"strings"
)

// A token is a word, a number, a string or a single character of punctuation.
type token struct {
	text         string
	line, column int
}

// A scanner walks over the tokens of a module. Its methods panic with a syntaxError.
type scanner struct {
	module string
	lines  []string
	tokens []token
	at     int

	checked bool // the text has no errors
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '%' || c == '.'
}

// scan cuts a module's text into tokens.
func scan(module, text string) (*scanner, error) {
	s := &scanner{module: module, lines: strings.Split(text, "\n"), tokens: make([]token, 0, len(text)/4)}
	for n, line := range s.lines {
		for i := 0; i < len(line); {
			switch c := line[i]; {
			case c == ' ' || c == '\t' || c == '\r':
				i++
			case strings.HasPrefix(line[i:], "//"):
				i = len(line)
			case strings.HasPrefix(line[i:], "/*"):
				end := strings.Index(line[i:], "*/")
				if end < 0 {
					return nil, fmt.Errorf("ptx: %s: line %d: a comment that does not end on its line", module, n+1)
				}
				i += end + 2
			case c == '"':
				end := strings.IndexByte(line[i+1:], '"')
				if end < 0 {
					return nil, fmt.Errorf("ptx: %s: line %d: a string that does not end", module, n+1)
				}
				s.tokens = append(s.tokens, token{line[i : i+end+2], n + 1, i})
				i += end + 2
			case isWordByte(c):
				j := i
				for j < len(line) && isWordByte(line[j]) {
					j++
				}
				s.tokens = append(s.tokens, token{line[i:j], n + 1, i})
				i = j
			case strings.IndexByte(",;:{}[]()<>=+-!@|", c) >= 0:
				s.tokens = append(s.tokens, token{line[i : i+1], n + 1, i})
				i++
			default:
				return nil, fmt.Errorf("ptx: %s: line %d: the character %q", module, n+1, c)
			}
		}
	}
	return s, nil
}

// A syntaxError is what the parser panics with; parseModule makes an error of it.
type syntaxError struct {
	line    int
	problem string
}

func (s *scanner) fail(line int, format string, args ...any) {
	panic(syntaxError{line, fmt.Sprintf(format, args...)})
}

func (s *scanner) end() bool { return s.at >= len(s.tokens) }

// peek returns the next token's text, "" at the end.
func (s *scanner) peek() string {
	if s.end() {
		return ""
	}
	return s.tokens[s.at].text
}

// line is the next token's line.
func (s *scanner) line() int {
	if s.end() {
		return len(s.lines)
	}
	return s.tokens[s.at].line
}

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

// since is the text from the token at place from to the last one that was read, for
// messages.
func (s *scanner) since(from int) string {
	first, last := s.tokens[from], s.tokens[s.at-1]
	line := s.lines[first.line-1]
	if last.line == first.line {
		return line[first.column : last.column+len(last.text)]
	}
	return strings.TrimSpace(line)
}
