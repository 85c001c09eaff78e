package rollout

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
	"pgregory.net/rapid"
)

// parseN makes as many records of {"n":3} as it says.
func parseN(s *jsonscan.Scanner, line int) (records []*record, err error) {
	err = s.Object(func(name []byte) error {
		if string(name) != "n" {
			return nil
		}
		n, err := s.Int32()
		for range n {
			records = append(records, &record{line: line})
		}
		if n == 0 && err == nil {
			err = s.Errorf("is 0, want more")
		}
		return err
	})
	return records, err
}

// linesOf reads all records, and returns their lines.
func linesOf(t interface{ Fatalf(string, ...any) }, r reader) (lines []int, err error) {
	for {
		rec, err := r.next()
		if err != nil {
			if _, again := r.next(); again != err {
				t.Fatalf("then %v, before %v", again, err)
			}
			if err == io.EOF {
				err = nil
			}
			return lines, err
		}
		lines = append(lines, rec.line)
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
		err  string
	}{
		{"", nil, ""},
		{" \n\n", nil, ""},
		{`{"n":1}`, []int{1}, ""},
		{"{\"n\":1}\n{\"n\":2}\r\n\n{\"n\":1}\n", []int{1, 2, 2, 4}, ""},
		{"{\n \"n\": 1\n}\n{\n \"a\": [\"}{\\\"\"],\n \"n\": 1\n}", []int{1, 4}, ""},
		{"[{\"n\":1},\n {\"n\":1}\n,{\"n\":2}]\n", []int{1, 2, 3, 3}, ""},
		{"[]", nil, ""},
		{"[ ]\n{\"n\":1}[{\"n\":1}]{\"n\":1}", []int{2, 2, 2}, ""},
		{"{\"n\":1}\n{\"n\":0}\n{\"n\":1}", []int{1}, "f:2: n is 0, want more"},
		{"{\"n\":1}\n{\"n\":1,}\n", []int{1}, "f:2: byte 8: found '}', want the name of a field"},
		{"{\"n\":1}\n{\n \"n\":1\n \"m\":2}\n", []int{1}, "f:4: byte 2: found '\"', want a comma or }"},
		{"{\"n\":1} {\"n\":1,}\n", []int{1}, "f:1: byte 16: found '}', want the name of a field"},
		{"{\"n\":1}\n{\"n\":1\n{\"n\":1}\n", []int{1}, "f:3: byte 1: found '{', want a comma or }"},
		{"{\"n\":1}\n{\"n\":", []int{1}, "f:2: the end is in the middle of an object that begins here: the line is cut off"},
		{"{\"n\":1}\n{\n\"n\":nul", []int{1}, "f:2: the end is in the middle of an object that begins here: the line is cut off"},
		{"{\"n\":1}\n{\"n\":1]\n", []int{1}, "f:2: byte 7: found ']', want a comma or }"},
		{"{\"n\":1}\n 3", []int{1}, "f:2: byte 2: found '3', want an object"},
		{"{\"n\":1},{\"n\":1}", []int{1}, "f:1: byte 8: found ',', want an object"},
		{"[{\"n\":1},]", []int{1}, "f:1: byte 10: found ']', want an object"},
		{"[{\"n\":1}{\"n\":1}]", []int{1}, "f:1: byte 9: found '{', want a comma or ]"},
		{"[{\"n\":1}\n", []int{1}, "f:2: byte 1: found the end, want a comma or ]"},
		{"[{\"n\":1}]]", []int{1}, "f:1: byte 10: found ']', want an object"},
		{"[[{\"n\":1}]]", nil, "f:1: byte 2: found '[', want an object or ]"},
		{"\xff", nil, "f:1: byte 1: found 0xff, want an object"},
	} {
		for name, in := range map[string]io.Reader{
			"whole": strings.NewReader(c.text), "one byte": iotest.OneByteReader(strings.NewReader(c.text)),
			"end with data": iotest.DataErrReader(strings.NewReader(c.text)),
		} {
			got, err := linesOf(t, newLines(in, "f", parseN))
			if fmt.Sprint(got) != fmt.Sprint(c.want) || fmt.Sprint(err) != fmt.Sprint(errorOf(c.err)) {
				t.Errorf("%q, %s: %v, %v, want %v, %s", c.text, name, got, err, c.want, c.err)
			}
		}
	}
}

func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// However a stream is cut into pieces, its records and its error are the same.
func TestLinesInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			`{"n":1}`, `{"n":2}`, `{"n":1,"s":"[\\\"{"}`, "{\n\"n\":3,\n\"a\":[{}]}", "\n", " ", "[", "]", ",", `{"n":0}`, `"`, `{`, `}`,
		}), 0, 12).Draw(t, "parts"), "")
		want, wantErr := linesOf(t, newLines(strings.NewReader(text), "f", parseN))
		size := rapid.IntRange(1, 10).Draw(t, "size")
		got, err := linesOf(t, newLines(&pieces{strings.NewReader(text), size}, "f", parseN))
		if fmt.Sprint(got, err) != fmt.Sprint(want, wantErr) {
			t.Fatalf("%q in pieces of %d: %v, %v, want %v, %v", text, size, got, err, want, wantErr)
		}
	})
}

// pieces is a reader that returns at most size bytes at once.
type pieces struct {
	in   io.Reader
	size int
}

func (p *pieces) Read(b []byte) (int, error) { return p.in.Read(b[:min(len(b), p.size)]) }

// TestManyLines is of more than the buffers hold, with objects larger than one of them.
func TestManyLines(t *testing.T) {
	var b strings.Builder
	var want []int
	line := 1
	for i := range 300 {
		want = append(want, line)
		size, space := 50*i, ""
		if i%100 == 50 {
			size, space = 3*chunkSize, "\n"
			line++
		}
		fmt.Fprintf(&b, "{\"x\":%q,%s\"n\":1}\n", strings.Repeat("x", size), space)
		line++
	}
	got, err := linesOf(t, newLines(strings.NewReader(b.String()), "f", parseN))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d, %v, want %d", got, err, want)
	}
}

func TestLinesLimit(t *testing.T) {
	object := `{"n":1,"x":"` + strings.Repeat("x", 3*chunkSize) + `"}`
	for limit, want := range map[int]string{
		len(object):     "",
		len(object) - 1: fmt.Sprintf("f:2: the value has more than %d bytes, want at most that", len(object)-1),
		10:              "f:2: the value has more than 10 bytes, want at most that",
	} {
		r := newLines(strings.NewReader("{\"n\":1}\n"+object), "f", parseN).(*lines)
		r.limit = limit
		got, err := linesOf(t, r)
		if fmt.Sprint(err) != fmt.Sprint(errorOf(want)) || got[0] != 1 {
			t.Errorf("limit %d: %v, %v", limit, got, err)
		}
	}
}

// White space takes no memory, and a line that was cut off is found soon.
func TestLinesMemory(t *testing.T) {
	const size = 64 << 20
	r := newLines(io.MultiReader(&pieces{io.LimitReader(repeat(strings.Repeat(" ", 1024)), size), chunkSize},
		strings.NewReader(`{"n":1}`)), "f", parseN)
	var got []int
	var err error
	if n := allocated(func() { got, err = linesOf(t, r) }); n > 4<<20 {
		t.Errorf("white space takes %d bytes", n)
	}
	if len(got) != 1 || err != nil {
		t.Error(got, err)
	}
	in := &io.LimitedReader{R: repeat("{\"n\":1}\n"), N: size}
	_, err = linesOf(t, newLines(io.MultiReader(strings.NewReader("{\"n\":1\n"), in), "f", parseN))
	if read := size - in.N; err == nil || err.Error() != "f:2: byte 1: found '{', want a comma or }" ||
		read > 4*chunkSize {
		t.Errorf("after %d bytes: %v", read, err)
	}
}

// repeat is an endless text.
type repeat string

func (r repeat) Read(b []byte) (int, error) {
	n := 0
	for n+len(r) <= len(b) {
		n += copy(b[n:], r)
	}
	return n, nil
}

// An error of the stream comes after the records before it.
func TestLinesReadError(t *testing.T) {
	in := io.MultiReader(strings.NewReader("{\"n\":1}\n{\"n\":1}\n{\"n\":"),
		iotest.ErrReader(errors.New("the disk fails")))
	got, err := linesOf(t, newLines(in, "f", parseN))
	if err == nil || err.Error() != "f: the disk fails" || len(got) != 2 {
		t.Error(got, err)
	}
}

// A slow writer does not keep records back that are complete.
func TestLinesFromPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which ends if all wait for each other
		r, w := io.Pipe()
		go func() {
			for range 3 + 2*runtime.GOMAXPROCS(0) { // as many may be read ahead
				io.WriteString(w, "{\"n\":1}\n")
			}
		}()
		l := newLines(r, "f", parseN)
		for range 3 {
			must.Get(l.next())
		}
		r.Close() // and the writer goes on
		must.Do(l.(io.Closer).Close())
	})
}

func TestLinesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which waits for the end of every goroutine
		slow := make(chan struct{})
		var parsing atomic.Int32
		l := newLines(&pieces{repeat("{\"n\":1}\n"), 8}, "f", func(s *jsonscan.Scanner, line int) ([]*record, error) {
			parsing.Add(1)
			defer parsing.Add(-1)
			if line > 1 {
				<-slow
			}
			return parseN(s, line)
		})
		must.Get(l.next())
		time.AfterFunc(time.Millisecond, func() { close(slow) })
		must.Do(l.(io.Closer).Close())
		if n := parsing.Load(); n != 0 {
			t.Errorf("%d goroutines are parsing after Close", n)
		}
		if _, err := l.next(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("next after Close: %v", err)
		}
	})
}
