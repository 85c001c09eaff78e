package rollout

import (
	"io"
	"reflect"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight"
)

// openSafetensors maps the file, or reads a compressed one or a pipe into memory.
func openSafetensors(s *stream, name string, _ *Options) (reader, error) {
	var f *File
	if s.file != nil {
		var err error
		if f, err = openMapped(s.file, s.size, name); err != nil {
			return nil, err
		}
	} else {
		data, err := s.content()
		if err != nil {
			return nil, inContext(name, err)
		}
		f = &File{prefix: name, data: data, unmap: func() error { return nil }}
		if err := f.parse(); err != nil {
			return nil, err
		}
	}
	b, err := f.Batch()
	if err != nil {
		f.Close() // its error would hide err
		return nil, err
	}
	return &batchReader{file: f, batch: b, origins: originsOf(f.metadata), dropped: f.others()}, nil
}

// A batchReader reads the trajectories of a safetensors file, which they alias, so that the
// source closes it in the end, or of a .npz file.
type batchReader struct {
	file     *File // without data, of a .npz file
	batch    *reweight.Batch
	masked   bool // the roles only say which tokens are of a response
	origins  []Origin
	dropped  []string
	warnings []string

	trajectory int   // the next one
	spans      int32 // in those before
}

func (s *batchReader) next() (*record, error) {
	if s.trajectory == s.batch.Trajectories() {
		return nil, io.EOF
	}
	end := s.spans
	if ids := s.batch.SpanIDs; len(ids) != 0 {
		end = max(end, countSpans(ids[s.batch.SeqOffsets[s.trajectory]:s.batch.SeqOffsets[s.trajectory+1]]))
	}
	r := &record{Batch: trajectory(s.batch, s.trajectory, s.spans, end), origins: s.origins}
	if len(s.batch.GroupIDs) != 0 {
		r.group = strconv.Itoa(int(s.batch.GroupIDs[s.trajectory]))
	}
	if s.masked {
		for _, role := range r.Role {
			r.mask = append(r.mask, isResponse(role))
		}
		r.Role = nil
	}
	if s.trajectory == 0 {
		r.dropped, r.warnings = s.dropped, s.warnings
	}
	if s.spans != 0 && len(r.SpanIDs) != 0 { // else they are numbered from 0 already
		r.SpanIDs = slices.Clone(r.SpanIDs)
		renumberSpans(r.SpanIDs, -s.spans)
	}
	s.spans = end
	s.trajectory++
	return r, nil
}

// others returns the names of the file's tensors that are no array of a batch, and of what its
// metadata has that is not read, but for the format, with which PyTorch marks its files.
func (f *File) others() []string {
	var others []string
	for key := range f.metadata {
		if key != "format" && key != entropyKey && key != entropyKey+widthSuffix && key != vocabularyKey {
			others = append(others, metadataName+"."+key)
		}
	}
	arrays := new(reweight.Batch).Arrays()
	for _, t := range f.tensors {
		if !slices.ContainsFunc(arrays[:], func(a reweight.Array) bool { return a.Name == t.Name }) {
			others = append(others, t.Name)
		}
	}
	return others
}

// trajectory returns the arrays of one trajectory of b, which has the spans from firstSpan
// to before lastSpan. They alias the arrays of b. SeqOffsets and GroupIDs are not set, and the
// spans keep their numbers.
func trajectory(b *reweight.Batch, s int, firstSpan, lastSpan int32) reweight.Batch {
	begin, end := int(b.SeqOffsets[s]), int(b.SeqOffsets[s+1])
	var t reweight.Batch
	to := t.Arrays()
	for i, from := range b.Arrays() {
		if from.Len() == 0 || from.Per == reweight.PerBoundary || from.Field == "GroupIDs" {
			continue
		}
		first, last := begin, end
		switch from.Per {
		case reweight.PerTrajectory:
			first, last = s, s+1
		case reweight.PerPart:
			n := from.Len() / b.Trajectories()
			first, last = n*s, n*(s+1)
		case reweight.PerSpan:
			first, last = int(firstSpan), int(lastSpan)
		}
		if l, ok := from.Data.(*reweight.Logits); ok {
			*to[i].Data.(*reweight.Logits) = rows(*l, first, last)
			continue
		}
		valueOf(to[i]).Set(valueOf(from).Slice3(first, last, last))
	}
	return t
}

// rows returns the rows of l from first to before last.
func rows(l reweight.Logits, first, last int) reweight.Logits {
	begin, end := first*l.Vocab, last*l.Vocab
	switch {
	case l.BF16 != nil:
		l.BF16 = l.BF16[begin:end:end]
	case l.F16 != nil:
		l.F16 = l.F16[begin:end:end]
	default:
		l.F32 = l.F32[begin:end:end]
	}
	return l
}

// valueOf returns the slice of an array, or its logits.
func valueOf(a reweight.Array) reflect.Value { return reflect.ValueOf(a.Data).Elem() }

// appendArrays appends the arrays of t to the arrays of b. Both have the same arrays, and
// logits of one format and vocabulary, unless one has no tokens.
func appendArrays(b, t *reweight.Batch) {
	to := b.Arrays()
	for i, from := range t.Arrays() {
		if from.Len() == 0 {
			continue
		}
		data, ok := from.Data.(*reweight.Logits)
		if !ok {
			valueOf(to[i]).Set(reflect.AppendSlice(valueOf(to[i]), valueOf(from)))
			continue
		}
		l := to[i].Data.(*reweight.Logits)
		l.Vocab = data.Vocab
		l.BF16 = append(l.BF16, data.BF16...)
		l.F16 = append(l.F16, data.F16...)
		l.F32 = append(l.F32, data.F32...)
	}
}

// sizeOf returns the bytes that the elements of the arrays take.
func sizeOf(b *reweight.Batch) int64 {
	size := int64(0)
	for _, a := range b.Arrays() {
		width := 0
		if l, ok := a.Data.(*reweight.Logits); ok {
			width = l.Vocab * l.DType().Size()
		} else {
			width = int(valueOf(a).Type().Elem().Size())
		}
		size += int64(a.Len()) * int64(width)
	}
	return size
}
