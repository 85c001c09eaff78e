// Package jsonscan reads JSON values from memory, and writes numbers and texts. It is
// made for long arrays of numbers: it converts each number once, exactly, and builds no
// tree of values.
//
// It takes what encoding/json takes, with two differences. NaN, Infinity and -Infinity
// are numbers, bare, as Python writes them, or as strings, which is valid JSON. Two
// fields of the same name, or more than 2^20 fields, are an error in an object that
// Object reads; Skip and Raw do not look at names. Invalid UTF-8 in a string is replaced
// by U+FFFD, as encoding/json does.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed621a2839/reweight/internal/printable"
)

// maxDepth is how deep arrays and objects may be nested: as deep as in encoding/json.
const maxDepth = 10_000

// maxFields is how many fields an object may have that Object reads. A server's list of all
// tokens of a vocabulary has fewer.
const maxFields = 1 << 20

// A Kind is the kind of a value.
type Kind uint8

const (
	End Kind = iota // there is no value: only white space is left
	Bad             // there is something that begins no value
	Null
	Bool
	Number
	String // "NaN", "Infinity" and "-Infinity" too, although Float takes them
	Array
	Object
)

// A Scanner reads values one after another. The zero value has nothing to read.
type Scanner struct {
	data  []byte
	pos   int
	depth int      // of the arrays and objects that pos is in
	names [][]byte // the names seen so far in the objects that callbacks are in
}

// Reset makes s read data from its beginning.
func (s *Scanner) Reset(data []byte) {
	clear(s.names) // they alias the data of before
	*s = Scanner{data: data, names: s.names[:0]}
}

// Offset returns how many bytes of the data were read.
func (s *Scanner) Offset() int { return s.pos }

// An Error is an error about a value, or about what stands where one is wanted.
type Error struct {
	Path    string // of the value: "choices[0].logprobs"; empty for the whole
	Byte    int    // where it is in the data, from 0
	Syntax  bool   // it is no JSON, and Problem is about that byte
	Problem string // "is 4.5, want an integer", or for Syntax, "found '+', want a number"
}

func (e *Error) Error() string {
	switch {
	case e.Syntax && e.Path == "":
		return fmt.Sprintf("byte %d: %s", e.Byte+1, e.Problem)
	case e.Syntax:
		return fmt.Sprintf("%s, byte %d: %s", e.Path, e.Byte+1, e.Problem)
	case e.Path == "":
		return "the value " + e.Problem
	}
	return e.Path + " " + e.Problem
}

// Errorf returns an error about the value that a callback has just read. The text goes
// on from the value's path: Errorf("has %d elements, want %d", n, want).
func (s *Scanner) Errorf(format string, args ...any) error {
	return &Error{Byte: max(s.pos-1, 0), Problem: fmt.Sprintf(format, args...)}
}

// within adds the step to a value to the path of an error about it.
func within(err error, step string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Path != "" && e.Path[0] != '[' {
			step += "."
		}
		e.Path = step + e.Path
	}
	return err
}

func atIndex(err error, i int) error { return within(err, "["+strconv.Itoa(i)+"]") }

// Unexpected returns the error of the byte data[i], or of the end of data, where something
// else is wanted.
func Unexpected(data []byte, i int, want string) *Error {
	found := "the end"
	if i < len(data) {
		r, size := utf8.DecodeRune(data[i:])
		if found = strconv.QuoteRune(r); r == utf8.RuneError && size == 1 {
			found = fmt.Sprintf("%#x", data[i])
		}
	}
	return &Error{Byte: i, Syntax: true, Problem: fmt.Sprintf("found %s, want %s", found, want)}
}

func (s *Scanner) unexpected(want string) error { return Unexpected(s.data, s.pos, want) }

// Wrong returns the error of a value that is not what is wanted. It skips the value.
func (s *Scanner) Wrong(want string) error {
	kind := s.Kind()
	begin := s.pos
	raw, err := s.Raw()
	if err != nil {
		return err
	}
	found := ""
	switch kind {
	case Array:
		found = "an array"
	case Object:
		found = "an object"
	default:
		found = shorten(string(raw), 40)
	}
	return &Error{Byte: begin, Problem: fmt.Sprintf("is %s, want %s", found, want)}
}

// shorten returns text as one printable line of about n bytes at most.
func shorten(text string, n int) string {
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "") + "..."
	}
	return printable.Line(text)
}

// nameText returns the name of a field as errors show it.
func nameText(name []byte) string { return printable.Text(shorten(string(name), 60)) }

// space moves to the next byte that is not white space.
func (s *Scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (s *Scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// Kind returns the kind of the next value, which stays the next.
func (s *Scanner) Kind() Kind {
	s.space()
	if s.pos == len(s.data) {
		return End
	}
	switch c := s.data[s.pos]; c {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	case '-', 'N', 'I':
		return Number
	default:
		if isDigit(c) {
			return Number
		}
	}
	return Bad
}

// Object reads an object. It calls field for each of its fields, before the value, with
// a name that is valid until field returns. If field does not read the value, it is
// skipped.
func (s *Scanner) Object(field func(name []byte) error) error {
	if s.Kind() != Object {
		return s.Wrong("an object")
	}
	if err := s.enter(); err != nil {
		return err
	}
	first := len(s.names)
	var many map[string]struct{}
	for s.space(); s.peek() != '}'; s.space() {
		if len(s.names) > first || many != nil {
			if err := s.comma("a comma or }"); err != nil {
				return err
			}
		}
		begin := s.pos
		name, err := s.name()
		if err != nil {
			return err
		}
		if many, err = s.seen(name, first, many); err != nil {
			err.(*Error).Byte = begin
			return err
		}
		value := s.pos
		if err := field(name); err != nil {
			return within(err, nameText(name))
		}
		if s.pos == value {
			if err := s.Skip(); err != nil {
				return within(err, nameText(name))
			}
		}
	}
	s.pos++
	s.depth--
	s.names = s.names[:first]
	return nil
}

// fewNames is the number of names that are compared one by one.
const fewNames = 32

// seen adds a name to the names of an object, which are s.names[first:], or many if they are
// more than a few.
func (s *Scanner) seen(name []byte, first int, many map[string]struct{}) (map[string]struct{}, error) {
	repeated := false
	if many != nil {
		_, repeated = many[string(name)]
		many[string(name)] = struct{}{}
	} else {
		for _, other := range s.names[first:] {
			repeated = repeated || bytes.Equal(other, name)
		}
		s.names = append(s.names, name)
		if len(s.names)-first > fewNames {
			many = make(map[string]struct{})
			for _, name := range s.names[first:] {
				many[string(name)] = struct{}{}
			}
			s.names = s.names[:first]
		}
	}
	if len(many) > maxFields {
		return many, &Error{Problem: fmt.Sprintf("has more than %d fields", maxFields)}
	}
	if repeated {
		return many, &Error{Problem: fmt.Sprintf("has field %s twice", nameText(name))}
	}
	return many, nil
}

// Array reads an array. It calls element before each of its elements. If element does
// not read the element, it is skipped.
func (s *Scanner) Array(element func(i int) error) error {
	if s.Kind() != Array {
		return s.Wrong("an array")
	}
	if err := s.enter(); err != nil {
		return err
	}
	i := 0
	for s.space(); s.peek() != ']'; s.space() {
		if i > 0 {
			if err := s.comma("a comma or ]"); err != nil {
				return err
			}
		}
		value := s.pos
		if err := element(i); err != nil {
			return atIndex(err, i)
		}
		if s.pos == value {
			if err := s.Skip(); err != nil {
				return atIndex(err, i)
			}
		}
		i++
	}
	s.pos++
	s.depth--
	return nil
}

// enter goes behind an opening bracket.
func (s *Scanner) enter() error {
	if s.depth >= maxDepth {
		return &Error{Byte: s.pos, Syntax: true,
			Problem: fmt.Sprintf("more than %d arrays and objects within each other", maxDepth)}
	}
	s.depth++
	s.pos++
	return nil
}

// comma goes behind a comma and the white space after it.
func (s *Scanner) comma(want string) error {
	if s.peek() != ',' {
		return s.unexpected(want)
	}
	s.pos++
	s.space()
	return nil
}

// name reads the name of a field, and goes to its value.
func (s *Scanner) name() ([]byte, error) {
	raw, plain, err := s.text("the name of a field")
	if err != nil {
		return nil, err
	}
	name := raw[1 : len(raw)-1]
	if !plain {
		name = []byte(unquote(raw))
	}
	return name, s.colon()
}

func (s *Scanner) colon() error {
	s.space()
	if s.peek() != ':' {
		return s.unexpected("a colon")
	}
	s.pos++
	s.space()
	return nil
}

// text goes behind a string. plain reports that what stands between the quotes is the
// text itself.
func (s *Scanner) text(want string) (raw []byte, plain bool, err error) {
	if s.peek() != '"' {
		return nil, false, s.unexpected(want)
	}
	begin := s.pos
	escaped, err := s.skipString()
	if err != nil {
		return nil, false, err
	}
	raw = s.data[begin:s.pos]
	return raw, !escaped && utf8.Valid(raw), nil
}

// unquote returns the text of a string that skipString has checked.
func unquote(raw []byte) (text string) {
	if err := json.Unmarshal(raw, &text); err != nil {
		panic(err) // the two disagree about what a string is
	}
	return text
}

// String reads a string.
func (s *Scanner) String() (string, error) {
	if s.Kind() != String {
		return "", s.Wrong("a string")
	}
	raw, plain, err := s.text("")
	switch {
	case err != nil:
		return "", err
	case plain:
		return string(raw[1 : len(raw)-1]), nil
	}
	return unquote(raw), nil
}

// Text reads a string that is a text. One that is not, of invalid UTF-8 or with half of a
// surrogate pair, is an error: String would return the same for another such string.
func (s *Scanner) Text() (string, error) {
	s.space()
	begin := s.pos
	text, err := s.String()
	if err == nil && strings.ContainsRune(text, utf8.RuneError) && isBroken(s.data[begin:s.pos]) {
		s.pos = begin
		return "", s.Wrong("a text: of valid UTF-8, without a half of a surrogate pair")
	}
	return text, err
}

// isBroken reports whether a string that skipString has checked is no text.
func isBroken(raw []byte) bool {
	if !utf8.Valid(raw) {
		return true
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		unit := escapedUnit(raw[i:])
		switch {
		case unit < 0:
			i++
		case !utf16.IsSurrogate(unit):
			i += 5
		case utf16.DecodeRune(unit, escapedUnit(raw[i+6:])) == utf8.RuneError:
			return true
		default:
			i += 11
		}
	}
	return false
}

// escapedUnit returns the UTF-16 code unit of the escape sequence that raw begins with, or
// -1 if it begins with something else.
func escapedUnit(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

// Raw reads a value of any kind and returns the part of the data that it is.
func (s *Scanner) Raw() ([]byte, error) {
	s.space()
	begin := s.pos
	err := s.Skip()
	return s.data[begin:s.pos:s.pos], err
}
