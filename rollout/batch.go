package rollout

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
)

// Batch returns the file's tensors as a batch, checked by Batch.Validate. Each
// array is the tensor of its Name in reweight.Batch.Arrays, has the shape that
// reweight.Batch states, and has the dtype
//
//	U8                for an array of roles
//	I64, I32          for one of int64, of int32
//	F32, BF16 or F16  for one of float32, and for logits
//
// role and seq_offsets must be there; any other may be absent. An error names the
// array that is wrong.
//
// A slice of the batch aliases the file (see OpenFile) where it can. A tensor is copied
// if its data is not aligned to its element size (the format does not promise that
// it is), if the machine is big-endian, and to widen an array other than logits to
// float32. All copies together take at most 1 GiB: more is an error. A file that was
// written from Tensors needs no copy on a little-endian machine.
func (f *File) Batch() (*reweight.Batch, error) {
	if f.closed {
		return nil, inContext(f.prefix, os.ErrClosed)
	}
	var b *reweight.Batch
	err := f.Guard(func() (err error) {
		b, err = f.batch()
		return inContext(f.prefix, err)
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (f *File) batch() (*reweight.Batch, error) {
	if len(f.tensors) != 0 && f.byName["role"] == nil && f.byName["seq_offsets"] == nil {
		return nil, fmt.Errorf("holds no rollouts: neither role nor seq_offsets is there, but %s is, as in the weights of a model", quote(f.tensors[0].Name))
	}
	for _, name := range [...]string{"role", "seq_offsets"} {
		if f.byName[name] == nil {
			return nil, fmt.Errorf("%s is missing", name)
		}
	}
	l := loader{file: f}
	b := new(reweight.Batch)
	// Role and SeqOffsets come first in the table: the others' lengths follow
	// from theirs.
	for _, a := range b.Arrays() {
		l.load(a, b)
	}
	if l.err != nil {
		return nil, l.err
	}
	if err := b.Validate(); err != nil {
		return nil, InFile(err)
	}
	return b, nil
}

// load reads the tensor of an array, if the file has it.
func (l *loader) load(a reweight.Array, b *reweight.Batch) {
	shape := shapeOf(a, b)
	switch data := a.Data.(type) {
	case *[]reweight.Role:
		*data = integersOf[reweight.Role](l, a.Name, "U8", shape)
	case *[]int64:
		*data = integersOf[int64](l, a.Name, "I64", shape)
	case *[]int32:
		*data = integersOf[int32](l, a.Name, "I32", shape)
	case *[]float32:
		*data = l.floats(a.Name, shape)
	case *reweight.Logits:
		*data = l.logits(a.Name, shape)
	}
}

// shapeOf returns the shape that an array of the batch has to have, whose roles and offsets
// are known.
func shapeOf(a reweight.Array, b *reweight.Batch) []int64 {
	n := int64(anySize)
	switch {
	case a.Field == "Role":
	case a.Per == reweight.PerToken:
		n = int64(b.Tokens())
	case a.Per == reweight.PerTrajectory || a.Per == reweight.PerPart:
		n = int64(b.Trajectories())
	}
	if _, logits := a.Data.(*reweight.Logits); logits || a.Per == reweight.PerPart {
		return []int64{n, anySize}
	}
	return []int64{n}
}

// sameShape reports whether the dimensions of two shapes are equal, or any size is wanted.
func sameShape(got, want []int64) bool {
	return slices.EqualFunc(got, want, func(got, want int64) bool { return got == want || want == anySize })
}

// A loader turns tensors into arrays until the first error. A dimension that it
// wants of a tensor is a number, or anySize.
type loader struct {
	file   *File
	copied int64 // bytes of the copies so far
	err    error
}

// maxCopied bounds the copies for one batch, in bytes. A file can declare tensors
// that are far larger than memory and than what it takes on disk.
const maxCopied = 1 << 30

const anySize = -1

// find returns the tensor of that name, or nil if it is absent or wrong.
func (l *loader) find(name string, dtypes []string, shape []int64) *tensor {
	t := l.file.byName[name]
	if t == nil || l.err != nil {
		return nil
	}
	dtype := t.DType
	if elementBits[dtype] == 0 {
		dtype = quote(dtype)
	}
	switch {
	case !slices.Contains(dtypes, t.DType):
		l.err = fmt.Errorf("%s has dtype %s, want %s", name, dtype, strings.Join(dtypes, " or "))
	case !sameShape(t.Shape, shape):
		l.err = fmt.Errorf("%s has shape %s, want %s", name, shapeString(t.Shape), shapeString(shape))
	default:
		return t
	}
	return nil
}

func integersOf[E element](l *loader, name, dtype string, shape []int64) []E {
	t := l.find(name, []string{dtype}, shape)
	if t == nil {
		return nil
	}
	return elements[E](l, t)
}

// elements returns the tensor's data: the file's memory if it is viewable, else a
// copy.
func elements[E element](l *loader, t *tensor) []E {
	if !viewable[E](t.data) && !l.takeRoom(t, int64(len(t.data)),
		"its data is not aligned to its element size, or this machine is big-endian") {
		return nil
	}
	return view[E](t.data)
}

// takeRoom reports whether a copy of that many bytes may be made of the tensor. The
// error says why the copy is needed.
func (l *loader) takeRoom(t *tensor, size int64, why string) bool {
	if size > maxCopied-l.copied {
		l.err = fmt.Errorf("%s has dtype %s and shape %s and needs a copy of %d bytes (%s), want at most %d bytes in all copies of a file",
			t.Name, t.DType, shapeString(t.Shape), size, why, maxCopied)
		return false
	}
	l.copied += size
	return true
}

var floatTypes = []string{"F32", "BF16", "F16"}

func (l *loader) floats(name string, shape []int64) []float32 {
	t := l.find(name, floatTypes, shape)
	if t == nil {
		return nil
	}
	switch t.DType {
	case "BF16":
		return widened[reweight.BF16](l, t)
	case "F16":
		return widened[reweight.F16](l, t)
	}
	return elements[float32](l, t)
}

// widened returns the 16-bit elements of the tensor as float32.
func widened[H interface {
	element
	Float32() float32
}](l *loader, t *tensor) []float32 {
	if !l.takeRoom(t, 2*int64(len(t.data)), "it is widened to F32") {
		return nil
	}
	halves := elements[H](l, t)
	wide := make([]float32, len(halves))
	for i, h := range halves {
		wide[i] = h.Float32()
	}
	return wide
}

func (l *loader) logits(name string, shape []int64) reweight.Logits {
	t := l.find(name, floatTypes, shape)
	if t == nil {
		return reweight.Logits{}
	}
	if t.Shape[1] == 0 {
		l.err = fmt.Errorf("%s has shape %s, want at least 1 logit in a row", name, shapeString(t.Shape))
		return reweight.Logits{}
	}
	logits := reweight.Logits{Vocab: int(t.Shape[1])}
	switch t.DType {
	case "BF16":
		logits.BF16 = elements[reweight.BF16](l, t)
	case "F16":
		logits.F16 = elements[reweight.F16](l, t)
	default:
		logits.F32 = elements[float32](l, t)
	}
	return logits
}

// InFile returns an error about an array of a batch as the sentence that names the
// array as files do. It wraps the *reweight.InputError that err is or wraps. Other
// errors stay as they are.
func InFile(err error) error {
	input, ok := errors.AsType[*reweight.InputError](err)
	if !ok {
		return err
	}
	for _, a := range new(reweight.Batch).Arrays() {
		if a.Field == input.Arg {
			return &inFileError{input, a.Name}
		}
	}
	return err
}

type inFileError struct {
	input *reweight.InputError
	name  string
}

func (e *inFileError) Error() string { return e.input.Sentence(e.name) }
func (e *inFileError) Unwrap() error { return e.input }

// Tensors returns the arrays of b that are set, for Write: under their tensors'
// names, and in an order in which the data of each is aligned to its element size.
// Data aliases b's slices.
func Tensors(b *reweight.Batch) []Tensor {
	var tensors []Tensor
	for _, a := range b.Arrays() {
		if a.Len() != 0 {
			tensors = append(tensors, tensorOf(a, b.Trajectories()))
		}
	}
	alignable(tensors)
	return tensors
}

// alignable sorts tensors so that the data of each is aligned to its element size.
func alignable(tensors []Tensor) {
	slices.SortStableFunc(tensors, func(x, y Tensor) int {
		return int(elementBits[dtypeOf(y.Data)]) - int(elementBits[dtypeOf(x.Data)])
	})
}

// tensorOf returns the tensor of an array of so many trajectories.
func tensorOf(a reweight.Array, trajectories int) Tensor {
	if a.Per == reweight.PerPart {
		data := *a.Data.(*[]float32)
		return Tensor{Name: a.Name, Shape: []int64{int64(trajectories), int64(len(data) / trajectories)}, Data: data}
	}
	switch data := a.Data.(type) {
	case *[]reweight.Role:
		return vector(a.Name, *data)
	case *[]int64:
		return vector(a.Name, *data)
	case *[]int32:
		return vector(a.Name, *data)
	case *[]float32:
		return vector(a.Name, *data)
	case *reweight.Logits:
		return matrix(a.Name, *data)
	}
	panic("rollout: unknown type of array " + a.Name)
}

func vector[E element](name string, data []E) Tensor {
	return Tensor{Name: name, Shape: []int64{int64(len(data))}, Data: data}
}

func matrix(name string, l reweight.Logits) Tensor {
	t := Tensor{Name: name, Shape: []int64{int64(l.Rows()), int64(l.Vocab)}}
	switch {
	case l.BF16 != nil:
		t.Data = l.BF16
	case l.F16 != nil:
		t.Data = l.F16
	default:
		t.Data = l.F32
	}
	return t
}

// Require returns an error if b lacks one of the named arrays and Derive cannot
// compute it either. A job calls it before it starts. Names are the names of the
// tensors. The error is a *MissingError about the first array that is missing, and does
// not begin with this package's name: put the name of the file before it.
func Require(b *reweight.Batch, names ...string) error {
	arrays := make(map[string]reweight.Array)
	for _, a := range b.Arrays() {
		arrays[a.Name] = a
	}
	lacks := func(name string) bool {
		a := arrays[name]
		return a.Len() == 0
	}
	for _, name := range names {
		if !lacks(name) {
			continue
		}
		a := arrays[name]
		if a.From == "" {
			return &MissingError{Name: name}
		}
		var sources []string
		if lacks(a.From) {
			sources = append(sources, a.From)
		}
		if a.Statistic == reweight.StatisticLogprob && lacks("token_ids") {
			sources = append(sources, "token_ids")
		}
		if sources != nil {
			return &MissingError{Name: name, Sources: sources}
		}
	}
	return nil
}

// A MissingError is the error about an array that a batch lacks.
type MissingError struct {
	Name    string   // of the array
	Sources []string // arrays that it could be derived from, and that are missing too
}

func (e *MissingError) Error() string {
	if len(e.Sources) == 0 {
		return e.Name + " is missing"
	}
	return e.Name + " is missing, and cannot be derived without " + strings.Join(e.Sources, " and ")
}
