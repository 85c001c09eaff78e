package rollout

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// A Line is a JSON object in a file, as it stands there, and the tokens that were read
// from it.
type Line struct {
	Text  []byte
	Parts []Part // in the order in which Text has them
}

// A Part is tokens of a trajectory: all of them, or one turn.
type Part struct {
	Trajectory int // of the source, from 0
	Begin, End int // tokens of the trajectory
	Repeated   int // tokens ahead of these in Text, which repeat the turns before
	Padding    int // elements behind these in the lists of Text, which are no tokens
}

// Lines returns the JSON objects of which Next has returned all trajectories so far, or
// Batch, if Options.KeepLines is set. Other formats have none.
func (s *Source) Lines() []Line { return s.c.lines }

// keep keeps the object that a record was read from. The tokens of the record but the
// first, so many of which are repeated, are those of the next trajectory from begin.
func (c *completer) keep(r *record, begin, repeated int) {
	if r.object == nil {
		return
	}
	part := Part{c.report.Trajectories, begin, begin + r.Tokens() - repeated, repeated, r.padding}
	if n := len(c.lines); n > 0 && unsafe.SliceData(c.lines[n-1].Text) == unsafe.SliceData(r.object) {
		c.lines[n-1].Parts = append(c.lines[n-1].Parts, part)
		return
	}
	c.lines = append(c.lines, Line{r.object, []Part{part}})
}

// WriteLines writes the lines with a field more for each of the tensors, which are F32 of
// shape [T] like the tokens of b, the batch of the lines: a list of the numbers of the
// line's tokens, or if the line has several parts, a list of such lists. The fields come
// last in the object. But if the object has a field of that name, the list takes the
// place of its value, and is a list of lists if the value was. All other text stays as
// it is. The numbers of tokens that repeat the turns before are 0, so that each token
// counts once, and so are those of the padding. metadata becomes an object under the name "estimates", if it has any keys.
//
// Lines that do not have each token of b once are an error, before anything is written.
func WriteLines(w io.Writer, lines []Line, b *reweight.Batch, tensors []Tensor, metadata map[string]string) error {
	if err := checkParts(lines, b); err != nil {
		return err
	}
	for _, t := range tensors {
		if data, ok := t.Data.([]float32); !ok || len(data) != b.Tokens() {
			return fmt.Errorf("tensor %s: want float32 of %d tokens", quote(t.Name), b.Tokens())
		}
	}
	var text []byte
	for _, l := range lines {
		var err error
		if text, err = l.with(text[:0], b, tensors, metadata); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// checkParts wants each token of b in one part.
func checkParts(lines []Line, b *reweight.Batch) error {
	covered := 0
	seen := make([]bool, b.Tokens())
	for i, l := range lines {
		for _, p := range l.Parts {
			if p.Trajectory < 0 || p.Trajectory >= b.Trajectories() {
				return fmt.Errorf("line %d of JSON has tokens of trajectory %d, want one of the %d of the batch", i+1, p.Trajectory, b.Trajectories())
			}
			tokens := seen[b.SeqOffsets[p.Trajectory]:b.SeqOffsets[p.Trajectory+1]]
			if p.Begin < 0 || p.Begin > p.End || p.End > len(tokens) || p.Repeated < 0 || p.Padding < 0 {
				return fmt.Errorf("line %d of JSON has the tokens %d to %d of trajectory %d, want some of its %d", i+1, p.Begin, p.End, p.Trajectory, len(tokens))
			}
			for t := p.Begin; t < p.End; t++ {
				if tokens[t] {
					return fmt.Errorf("line %d of JSON has token %d of trajectory %d, which a line before it has", i+1, t, p.Trajectory)
				}
				tokens[t] = true
			}
			covered += p.End - p.Begin
		}
	}
	if T := b.Tokens(); covered != T {
		return fmt.Errorf("only %d of the %d tokens come from lines of JSON: the others have none that could be written back", covered, T)
	}
	return nil
}

// A field is a field of a JSON object: its name, and where in the text its value is.
type field struct {
	name       string
	begin, end int
}

// fields returns those of the object.
func (l Line) fields() ([]field, error) {
	var all []field
	var s jsonscan.Scanner
	s.Reset(l.Text)
	err := s.Object(func(name []byte) error {
		f := field{name: string(name)} // name is not kept by the Scanner
		raw, err := s.Raw()
		f.end = s.Offset()
		f.begin = f.end - len(raw)
		all = append(all, f)
		return err
	})
	return all, err
}

// with appends the line with its new fields to dst.
func (l Line) with(dst []byte, b *reweight.Batch, tensors []Tensor, metadata map[string]string) ([]byte, error) {
	fields, err := l.fields()
	if err != nil {
		return nil, err
	}
	var names []string // of the new fields
	for _, t := range tensors {
		names = append(names, t.Name)
	}
	nested := len(l.Parts) != 1
	for _, f := range fields {
		if slices.Contains(names, f.name) {
			nested = nested || isNested(l.Text[f.begin:f.end])
		}
	}
	if len(metadata) != 0 {
		names = append(names, "estimates")
	}
	appendValue := func(i int) {
		if i == len(tensors) {
			dst = append(dst, marshal(metadata)...)
			return
		}
		dst = l.appendLists(dst, tensors[i].Data.([]float32), b, nested)
	}
	copied := 0 // bytes of the line
	for _, f := range fields {
		if i := slices.Index(names, f.name); i >= 0 {
			dst = append(dst, l.Text[copied:f.begin]...)
			appendValue(i)
			copied, names[i] = f.end, ""
		}
	}
	end := 1 // after the brace, if there are no fields
	if n := len(fields); n > 0 {
		end = fields[n-1].end
	}
	dst = append(dst, l.Text[copied:end]...)
	for i, name := range names {
		if name != "" {
			if end > 1 || i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsonscan.AppendString(dst, name), ':')
			appendValue(i)
		}
	}
	return append(append(dst, l.Text[end:]...), '\n'), nil
}

// isNested reports whether a JSON value is a list that begins with a list.
func isNested(value []byte) bool {
	inner, ok := bytes.CutPrefix(value, []byte{'['})
	return ok && bytes.HasPrefix(bytes.TrimLeft(inner, " \t\r\n"), []byte{'['})
}

// appendLists appends the numbers of the line's tokens, a list for each part if nested.
func (l Line) appendLists(dst []byte, numbers []float32, b *reweight.Batch, nested bool) []byte {
	if nested {
		dst = append(dst, '[')
	}
	for i, p := range l.Parts {
		if i > 0 {
			dst = append(dst, ',')
		}
		first := b.SeqOffsets[p.Trajectory]
		dst = append(dst, '[')
		dst = appendZeros(dst, p.Repeated)
		for _, x := range numbers[first+int64(p.Begin) : first+int64(p.End)] {
			dst = append(jsonscan.AppendFloat(dst, x), ',')
		}
		dst = appendZeros(dst, p.Padding)
		dst = append(bytes.TrimSuffix(dst, []byte{','}), ']')
	}
	if nested {
		dst = append(dst, ']')
	}
	return dst
}

// appendZeros appends n elements of a list, each with a comma behind it.
func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0', ',')
	}
	return dst
}
