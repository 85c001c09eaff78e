package rollout

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

const (
	maxObject   = 1 << 30   // bytes of an object
	chunkSize   = 256 << 10 // bytes of the buffers that are read into at first
	maxKept     = 4 << 20   // bytes of the buffers that are used again
	maxInFlight = 64 << 20  // bytes of objects whose records are not taken yet, if they are many
)

// lines reads the records of a stream of JSON objects: one on each line, or each on many
// lines, or as the elements of an array. Whoever calls next reads the stream and finds
// where objects end; as many goroutines as there are cores parse them.
type lines struct {
	in    io.Reader
	name  string
	parse parser
	limit int // bytes of an object

	// What is being read. text[looked:] is what was not looked at yet.
	filling *chunk
	looked  int
	line    int   // of the byte at looked, from 1
	column  int64 // the bytes before it in its line
	wants   want
	partial bool           // an object has begun that goes on
	current extent         // this one
	ender   jsonscan.Ender // of this object
	checked int            // bytes of it that are known to be the beginning of JSON

	queue    []*chunk // those that are being parsed, in the order of the stream
	inFlight int      // bytes of them
	free     []*chunk
	ended    error // of reading: what next returns after the records of queue

	records []*record // what next returns, and then err
	err     error
}

// A parser makes records of an object that begins in that line. It reads all of the
// object, and keeps no part of the text. Several goroutines call it at once.
type parser func(s *jsonscan.Scanner, line int) ([]*record, error)

// A want is what may come between objects.
type want uint8

const (
	wantObject  want = iota // or an array of objects
	wantFirst               // element of an array, or its end
	wantElement             // of an array
	wantComma               // or the end of an array
)

// wantText are the words for a want in errors.
var wantText = [...]string{"an object", "an object or ]", "an object", "a comma or ]"}

// A chunk is some objects that one goroutine parses.
type chunk struct {
	text    []byte
	objects []extent
	records []*record
	err     error // of what follows the records
	done    chan struct{}
}

// An extent says where in a chunk an object is, and where in the file it begins.
type extent struct {
	begin, end int
	line       int   // from 1
	column     int64 // the bytes before it in its line
}

// newLines returns a reader of the records that parse makes of each object. An error begins
// with name, which is the file's as errors show it, and the line.
//
// The reader is an io.Closer as well. Close waits for the goroutines.
func newLines(r io.Reader, name string, parse parser) reader {
	return &lines{in: r, name: name, parse: parse, limit: maxObject, line: 1}
}

// openLines returns what opens a format of JSON objects.
func openLines(parse parser) func(*stream, string, *Options) (reader, error) {
	return func(s *stream, name string, _ *Options) (reader, error) { return newLines(s, name, parse), nil }
}

func (l *lines) next() (*record, error) {
	for len(l.records) == 0 {
		if l.err != nil {
			return nil, l.err
		}
		for l.ended == nil && len(l.queue) < 2*runtime.GOMAXPROCS(0) && l.inFlight < maxInFlight {
			l.ended = l.read()
			if len(l.queue) > 0 && l.queue[0].parsed() {
				break // the next read may wait for data
			}
		}
		if len(l.queue) == 0 {
			l.err = l.ended
			continue
		}
		c := l.queue[0]
		<-c.done
		l.queue = l.queue[1:]
		l.inFlight -= len(c.text)
		l.records, l.err = c.records, c.err
		if cap(c.text) <= maxKept {
			l.free = append(l.free, c)
		}
	}
	r := l.records[0]
	l.records[0] = nil // it is the caller's to free
	l.records = l.records[1:]
	return r, nil
}

// Close waits for the goroutines, and makes next fail.
func (l *lines) Close() error {
	for _, c := range l.queue {
		<-c.done
	}
	l.queue, l.records, l.err = nil, nil, os.ErrClosed
	return nil
}

// read reads once, and has the objects parsed that are complete now.
func (l *lines) read() error {
	if l.filling == nil {
		l.filling = l.empty(nil)
	}
	c := l.filling
	if len(c.text) == cap(c.text) {
		size := l.current.begin + l.limit + chunkSize
		if cap(c.text) < size/2 { // 2*cap may be no int
			size = 2 * cap(c.text)
		}
		c.text = append(make([]byte, 0, size), c.text...)
	}
	n, err := io.ReadAtLeast(l.in, c.text[len(c.text):cap(c.text)], 1)
	c.text = c.text[:len(c.text)+n]
	if found := l.find(); found != nil {
		err = found
	} else if err == nil {
		err = l.checkPartial()
	} else if err == io.EOF {
		err = l.atEnd()
	} else {
		err = fmt.Errorf("%s: %w", l.name, err)
	}
	if len(c.objects) > 0 {
		l.dispatch()
	} else if !l.partial && err == nil { // only white space
		c.text, l.looked = c.text[:0], 0
	}
	return err
}

// empty returns a chunk that begins with a copy of the text, and has room for more.
func (l *lines) empty(text []byte) *chunk {
	c := new(chunk)
	if n := len(l.free); n > 0 {
		c, l.free = l.free[n-1], l.free[:n-1]
	}
	buffer := c.text[:0]
	if cap(buffer) <= len(text) {
		buffer = make([]byte, 0, len(text)+chunkSize)
	}
	*c = chunk{text: append(buffer, text...), objects: c.objects[:0], done: make(chan struct{})}
	return c
}

// find looks for objects in what was read.
func (l *lines) find() error {
	for text := l.filling.text; l.looked < len(text); {
		if l.partial {
			n, ends := l.ender.End(text[l.looked:])
			l.pass(n)
			if l.looked-l.current.begin > l.limit {
				return l.located(l.current, fmt.Errorf("the value has more than %d bytes, want at most that", l.limit))
			}
			if ends {
				l.current.end = l.looked
				l.filling.objects = append(l.filling.objects, l.current)
				l.partial, l.checked = false, 0
			}
			continue
		}
		c := text[l.looked]
		switch {
		case isSpace(c):
			n := 1
			for l.looked+n < len(text) && isSpace(text[l.looked+n]) {
				n++
			}
			l.pass(n)
			continue
		case c == '{' && l.wants != wantComma:
			l.partial = true
			l.current = extent{begin: l.looked, line: l.line, column: l.column}
			if l.wants != wantObject {
				l.wants = wantComma
			}
			continue
		case c == '[' && l.wants == wantObject:
			l.wants = wantFirst
		case c == ',' && l.wants == wantComma:
			l.wants = wantElement
		case c == ']' && (l.wants == wantComma || l.wants == wantFirst):
			l.wants = wantObject
		default:
			return l.unexpected()
		}
		l.pass(1)
	}
	return nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// pass goes on by n bytes.
func (l *lines) pass(n int) {
	text := l.filling.text[l.looked : l.looked+n]
	if breaks := bytes.Count(text, []byte{'\n'}); breaks > 0 {
		l.line += breaks
		l.column = -int64(bytes.LastIndexByte(text, '\n') + 1)
	}
	l.column += int64(n)
	l.looked += n
}

// unexpected returns the error of the byte at looked.
func (l *lines) unexpected() error {
	err := jsonscan.Unexpected(l.filling.text[l.looked:], 0, wantText[l.wants])
	return l.located(extent{begin: l.looked, line: l.line, column: l.column}, err)
}

// checkPartial returns the error in an object that goes on, if there is one. A line that
// was cut off makes an object of all that follows, and this finds the error before that is
// read. It looks only at objects of more than one line, each time they have doubled.
func (l *lines) checkPartial() error {
	if !l.partial || l.line == l.current.line {
		return nil
	}
	text := l.filling.text[l.current.begin:]
	if len(text) < 2*l.checked {
		return nil
	}
	l.checked = len(text)
	return l.partialError()
}

// partialError returns the error in an object that goes on, if there is one that no more
// text could mend.
func (l *lines) partialError() error {
	text := l.filling.text[l.current.begin:]
	var s jsonscan.Scanner
	s.Reset(text)
	if e, ok := errors.AsType[*jsonscan.Error](s.Skip()); ok && e.Byte < len(text) {
		return l.located(l.current, e)
	}
	return nil
}

// atEnd returns the error of a stream that ends here, io.EOF if that is right.
func (l *lines) atEnd() error {
	if l.partial {
		cutOff := fmt.Errorf("%s:%d: the end is in the middle of an object that begins here: the line is cut off", l.name, l.current.line)
		return cmp.Or(l.partialError(), cutOff)
	}
	if l.wants != wantObject {
		return l.unexpected()
	}
	return io.EOF
}

// dispatch has the objects parsed that are complete, and leaves the rest.
func (l *lines) dispatch() {
	c := l.filling
	end := l.looked
	if l.partial {
		end = l.current.begin
	}
	l.filling = l.empty(c.text[end:])
	l.looked -= end
	l.current.begin = 0
	c.text = c.text[:end]
	l.queue = append(l.queue, c)
	l.inFlight += len(c.text)
	go func() {
		defer close(c.done)
		var s jsonscan.Scanner
		for _, x := range c.objects {
			s.Reset(c.text[x.begin:x.end])
			records, err := l.parse(&s, x.line)
			if err != nil {
				c.err = locate(err, l.name, c.text, x)
				return
			}
			c.records = append(c.records, records...)
		}
	}()
}

func (c *chunk) parsed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (l *lines) located(x extent, err error) error { return locate(err, l.name, l.filling.text, x) }

// locate adds the file and the line to an error about the object at x. The byte that an
// error of JSON names becomes one of that line.
func locate(err error, name string, text []byte, x extent) error {
	if e, ok := errors.AsType[*jsonscan.Error](err); ok {
		before := text[x.begin : x.begin+e.Byte]
		if breaks := bytes.Count(before, []byte{'\n'}); breaks > 0 {
			x.line += breaks
			x.column = -int64(bytes.LastIndexByte(before, '\n') + 1)
		}
		e.Byte += int(x.column)
	}
	return fmt.Errorf("%s:%d: %w", name, x.line, err)
}
