package rollout

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
)

// A format is one that files have. To add one, write its reader and a line in formats.
type format struct {
	name string // as Report.Formats has it

	// One of these two says whether a stream has the format. begins is given the first
	// bytes of the stream: headSize of them, or all. fields is given the fields of the
	// first JSON object in the stream, if it begins as JSON does.
	begins func(head []byte) bool
	fields func(f fields) bool

	// open returns the reader of the stream's records. name is the file's, as errors
	// spell it: every error, also those of the reader and those that the stream
	// returns, is to begin with it. The stream is closed by others, after the reader
	// if that is an io.Closer. A format that only has to be refused returns an error.
	open func(s *stream, name string, opt *Options) (reader, error)
}

// formats are those that a stream is compared with, in this order: the first that it
// has is taken.
var formats = append([]format{
	{name: "safetensors", begins: isSafetensors, open: openSafetensors},
	{name: "npz", begins: isZip, open: openNPZ},
	{name: "SGLang responses", fields: isSGLang, open: openLines(parseSGLang)},
	{name: "OpenAI batch output", fields: isOpenAIBatch, open: openLines(parseOpenAI)},
	{name: "chat responses", fields: isChat, open: openLines(parseOpenAI)},
	{name: "completions responses", fields: isCompletions, open: openLines(parseOpenAI)},
	{name: "NeMo-RL train_data", fields: isNeMoRL, open: openLines(parseNeMoRL)},
	{name: "prime-rl token_exports", fields: isPrimeRL, open: openLines(parsePrimeRL)},
	{name: "JSONL", fields: isJSONL, open: openLines(parseJSONL)},
	{name: "server-sent events", begins: isEventStream, open: refuse("a stream of events: dump whole responses (stream=false)")},
}, refusedFormats...)

// nothing is the format of a JSON Lines file in which nothing was logged.
var nothing = format{open: func(*stream, string, *Options) (reader, error) {
	return nothingReader{}, nil
}}

type nothingReader struct{}

func (nothingReader) next() (*record, error) { return nil, io.EOF }

// headSize is the number of bytes that format.begins is given.
const headSize = 512

// isSafetensors reports whether the bytes are the length of a header and its begin.
func isSafetensors(head []byte) bool {
	return len(head) > lengthSize && head[lengthSize] == '{' && binary.LittleEndian.Uint64(head) <= maxHeader
}

// detect returns the format of the stream.
func detect(s *stream, name string) (*format, error) {
	head, err := s.peek(headSize)
	if err != nil {
		return nil, inContext(shownName(name), err)
	}
	if mark := []byte("\ufeff"); bytes.HasPrefix(head, mark) { // Windows programs write it
		s.Discard(len(mark)) // no error: it is buffered
		head = head[len(mark):]
	}
	for i, f := range formats {
		if f.begins != nil && f.begins(head) {
			return &formats[i], nil
		}
	}
	blank := len(bytes.TrimLeft(head, " \t\r\n")) == 0
	extension := filepath.Ext(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst"))
	text := strings.HasPrefix(extension, ".json") || extension == ".ndjson"
	switch {
	case len(head) == 0 && !text:
		return nil, fmt.Errorf("%s: empty", shownName(name))
	case len(head) < headSize && blank && text:
		return &nothing, nil
	case !isJSON(head):
		return nil, fmt.Errorf("%s: begins with %s, which is no format that can be read: see docs/formats.md", shownName(name), quote(string(head[:min(len(head), 16)])))
	}
	found, err := s.examine()
	if err != nil {
		return nil, inContext(shownName(name)+":1", err)
	}
	for i, f := range formats {
		if f.fields != nil && f.fields(found) {
			return &formats[i], nil
		}
	}
	if err := found.lacksMask(); err != nil {
		return nil, inContext(shownName(name)+":1", err)
	}
	return nil, fmt.Errorf("%s:1: JSON %s, which is no format that can be read: see docs/formats.md", shownName(name), found)
}

// isJSON reports whether text begins as JSON objects and arrays do.
func isJSON(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	return len(head) > 0 && (head[0] == '{' || head[0] == '[')
}

// fields are the names of the fields of a JSON object, and of the objects in it, with
// a dot between them: "choices.logprobs.content" is the field content of the object
// logprobs of an object in the array choices.
type fields map[string]bool

// has reports whether all of the names are there.
func (f fields) has(names ...string) bool {
	for _, name := range names {
		if !f[name] {
			return false
		}
	}
	return true
}

// String lists the outermost fields, a few of them.
func (f fields) String() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if strings.Contains(name, ".") {
			continue
		}
		if len(names) == 8 {
			names = append(names, "...")
			break
		}
		names = append(names, quote(name))
	}
	if names == nil {
		return "without fields"
	}
	return "of the fields " + strings.Join(names, ", ")
}

// lacksMask returns an error if these are fields of our own JSONL, which has no mask then.
func (f fields) lacksMask() error {
	arrays := new(reweight.Batch).Arrays()
	ours := slices.ContainsFunc(arrays[:], func(a reweight.Array) bool {
		// Other things than trajectories have advantages and returns too.
		return a.Per == reweight.PerToken && a.Field != "Advantages" && a.Field != "Returns" && f[a.Name]
	})
	if !ours {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if lower := strings.ToLower(name); !strings.Contains(name, ".") && (strings.Contains(lower, "mask") || strings.Contains(lower, "role")) {
			return fmt.Errorf("mask, or role, is missing, which says which tokens are the response's: %s is another name", quote(name))
		}
	}
	return fmt.Errorf("mask, or role, is missing, which says which tokens are the response's, in JSON %s", f)
}

// maxExamined bounds what examine reads, in bytes.
const maxExamined = 16 << 20

// examine returns the fields of the first JSON object of the stream, or those at the
// beginning of a large one. The stream is read again from there afterwards. examine does
// not check the JSON: the reader does.
func (s *stream) examine() (fields, error) {
	var read bytes.Buffer
	x := examiner{found: make(fields)}
	for !x.done && read.Len() < maxExamined {
		chunk, err := s.Peek(max(1, s.Buffered()))
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		x.examine(chunk)
		read.Write(chunk)
		s.Discard(len(chunk)) // no error: they are buffered
	}
	s.Reader = bufio.NewReaderSize(io.MultiReader(&read, s.Reader), bufferSize)
	return x.found, nil
}

// An examiner finds the fields of the first object in JSON text.
type examiner struct {
	found fields
	done  bool // the object is complete, or there is none

	open     []value // objects and arrays that the text is in, the outermost first
	deeper   int     // those within them whose fields are not looked at
	inString bool
	escaped  bool   // the last byte of the string was a backslash
	isName   bool   // the string is the name of a field
	name     []byte // with its escape sequences as they are
}

// A value is an object or an array.
type value struct {
	object   bool
	prefix   string // of the names of its fields
	wantName bool   // the next string is one
}

const (
	maxFieldDepth = 6
	maxFieldName  = 64
	maxFields     = 1000
)

// examine goes on with more of the text, until done.
func (x *examiner) examine(text []byte) {
	for i := 0; i < len(text) && !x.done; i++ {
		c := text[i]
		if x.inString {
			x.inString = c != '"' || x.escaped
			x.escaped = c == '\\' && !x.escaped
			if x.inString && x.isName && len(x.name) < maxFieldName {
				x.name = append(x.name, c)
			}
			continue
		}
		switch c {
		case '"':
			x.inString = true
			x.isName = x.deeper == 0 && len(x.open) > 0 && x.top().wantName
			if x.isName {
				x.name = x.name[:0]
			}
		case ':':
			if x.deeper == 0 && len(x.open) > 0 && x.top().object {
				x.top().wantName = false
				if len(x.found) < maxFields {
					x.found[x.top().prefix+string(x.name)] = true
				}
			}
		case ',':
			if x.deeper == 0 && len(x.open) > 0 {
				x.top().wantName = x.top().object
			}
		case '{', '[':
			x.push(c == '{')
		case '}', ']':
			x.pop()
		}
	}
}

func (x *examiner) top() *value { return &x.open[len(x.open)-1] }

func (x *examiner) push(object bool) {
	if len(x.open) == maxFieldDepth || x.deeper > 0 {
		x.deeper++
		return
	}
	prefix := ""
	if len(x.open) > 0 {
		prefix = x.top().prefix
		if x.top().object {
			prefix += string(x.name) + "."
		}
	}
	x.open = append(x.open, value{object: object, prefix: prefix, wantName: object})
}

func (x *examiner) pop() {
	if x.deeper > 0 {
		x.deeper--
		return
	}
	if len(x.open) == 0 {
		x.done = true
		return
	}
	object := x.top().object
	x.open = x.open[:len(x.open)-1]
	within := slices.ContainsFunc(x.open, func(v value) bool { return v.object })
	x.done = len(x.open) == 0 || object && !within
}
