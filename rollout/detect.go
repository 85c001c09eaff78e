package rollout

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
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
	// spell it: every error, also of the reader and those that the stream
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
	{name: "verifiers traces", fields: isVerifiers, open: openLines(parseVerifiers)},
	{name: "JSONL", fields: isJSONL, open: openLines(parseJSONL)},
	{name: "server-sent events", begins: isEventStream, open: refuse("a stream of events: dump whole responses (stream=false)")},
}, refusedFormats...)

// noRecords is the format of a JSON Lines file in which nothing was logged, and of text that
// is no JSON, or cut off: its reader says where.
var noRecords = format{open: openLines(func(s *jsonscan.Scanner, _ int) ([]*record, error) { return nil, s.Skip() })}

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
	begin := bytes.TrimLeft(head, " \t\r\n")
	text := slices.Contains([]string{".json", ".jsonl", ".ndjson"}, extension(name))
	switch {
	case len(head) == 0 && !text:
		return nil, fmt.Errorf("%s: empty", shownName(name))
	case len(head) < headSize && len(begin) == 0 && text:
		return &noRecords, nil
	case len(begin) == 0 || begin[0] != '{' && begin[0] != '[':
		return nil, fmt.Errorf("%s: begins with %s, which is no format that can be read: see "+pageOfFormats,
			shownName(name), quote(string(head[:min(len(head), 16)])))
	}
	found, err := s.examine()
	if err != nil {
		return nil, inContext(shownName(name)+":1", err)
	}
	if found == nil {
		return &noRecords, nil
	}
	for i, f := range formats {
		if f.fields != nil && f.fields(found) {
			return &formats[i], nil
		}
	}
	if err := found.lacksMask(); err != nil {
		return nil, inContext(shownName(name)+":1", err)
	}
	return nil, fmt.Errorf("%s:1: JSON %s, which is no format that can be read: see "+pageOfFormats,
		shownName(name), found)
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
		if lower := strings.ToLower(name); !strings.Contains(name, ".") &&
			(strings.Contains(lower, "mask") || strings.Contains(lower, "role")) {
			return fmt.Errorf("mask, or role, is missing, which says which tokens are the response's: %s is another name", quote(name))
		}
	}
	return fmt.Errorf("mask, or role, is missing, which says which tokens are the response's, in JSON %s", f)
}

const (
	maxExamined   = 16 << 20 // bytes that examine reads
	maxFieldDepth = 6        // of the arrays and objects whose fields it finds
	maxFields     = 1000
)

// examine returns the fields of the first JSON object of the stream, or those at the
// beginning of a large one, or nil if that is no JSON, or cut off. The stream is read again
// from there afterwards.
func (s *stream) examine() (fields, error) {
	const before = " \t\r\n[" // the object, which can be the first element of an array
	var read bytes.Buffer
	var ender jsonscan.Ender
	cut := false
	for begun, ends := false, false; !ends && read.Len() < maxExamined; {
		chunk, err := s.Peek(max(1, s.Buffered()))
		if err == io.EOF {
			cut = true
			break
		}
		if err != nil {
			return nil, err
		}
		read.Write(chunk)
		s.Discard(len(chunk)) // no error: they are buffered
		if !begun {
			chunk = bytes.TrimLeft(chunk, before)
			begun = len(chunk) > 0
		}
		_, ends = ender.End(chunk)
	}
	s.Reader = bufio.NewReaderSize(io.MultiReader(&read, s.Reader), bufferSize)
	found := make(fields)
	text := bytes.TrimLeft(read.Bytes(), before)
	var scanner jsonscan.Scanner
	scanner.Reset(text)
	err := found.add(&scanner, "", 0)
	if e, ok := errors.AsType[*jsonscan.Error](err); cut && bytes.HasPrefix(text, []byte{'{'}) || ok && e.Syntax &&
		e.Byte < len(text) {
		return nil, nil
	}
	return found, nil // other errors come from the reader, which knows the format
}

// add adds the names of the fields of the next value, and of the values in it.
func (f fields) add(s *jsonscan.Scanner, prefix string, depth int) error {
	switch kind := s.Kind(); {
	case depth == maxFieldDepth:
	case kind == jsonscan.Array:
		return s.Array(func(int) error { return f.add(s, prefix, depth+1) })
	case kind == jsonscan.Object:
		return s.Object(func(name []byte) error {
			field := prefix + string(name)
			if len(f) < maxFields {
				f[field] = true
			}
			return f.add(s, field+".", depth+1)
		})
	}
	return nil
}
