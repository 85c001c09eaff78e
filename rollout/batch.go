package rollout

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
)

// tensorNames gives the tensor that holds each array of a Batch.
var tensorNames = map[string]string{
	"Role":        "role",
	"SeqOffsets":  "seq_offsets",
	"GroupIDs":    "group_ids",
	"Rewards":     "rewards",
	"SpanIDs":     "span_ids",
	"TokenIDs":    "token_ids",
	"RefEnergy":   "ref_energy",
	"Entropy":     "entropy",
	"OldLogprobs": "old_logprobs",
	"Logprobs":    "logprobs",
	"RefLogprobs": "ref_logprobs",
	"RefEntropy":  "ref_entropy",
	"Advantages":  "advantages",
	"Values":      "values",
	"RefLogits":   "ref_logits",
	"OldLogits":   "old_logits",
	"Logits":      "logits",
}

// Batch returns the file's tensors as a batch, checked as by Batch.Validate.
// role [T] U8 and seq_offsets [S+1] I64 must be there; any other may be absent:
//
//	group_ids [S] I32            rewards [S] float
//	span_ids, token_ids [T] I32
//	ref_energy, entropy, old_logprobs, logprobs, ref_logprobs, ref_entropy, advantages,
//	values [T] float
//	ref_logits, old_logits, logits [T, V] float
//
// where float is F32, BF16 or F16. An error names the tensor that is wrong.
//
// The slices alias the file (see Open) where they can. A tensor is copied if
// its data is not aligned to its element size, which the format does not
// promise; if the machine is big-endian; or to widen an array other than
// logits to float32.
func (f *File) Batch() (*reweight.Batch, error) {
	if f.closed {
		return nil, fmt.Errorf("%s: %w", f.prefix, os.ErrClosed)
	}
	b, err := f.batch()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.prefix, err)
	}
	return b, nil
}

func (f *File) batch() (*reweight.Batch, error) {
	for _, name := range [...]string{"role", "seq_offsets"} {
		if f.byName[name] == nil {
			return nil, fmt.Errorf("no %q", name)
		}
	}
	l := loader{file: f}
	b := new(reweight.Batch)
	b.Role = integersOf[uint8](&l, "role", "U8", anySize)
	b.SeqOffsets = integersOf[int64](&l, "seq_offsets", "I64", anySize)
	T := int64(b.Tokens())
	S := int64(b.Trajectories())
	b.GroupIDs = integersOf[int32](&l, "group_ids", "I32", S)
	b.Rewards = l.floats("rewards", S)
	b.SpanIDs = integersOf[int32](&l, "span_ids", "I32", T)
	b.TokenIDs = integersOf[int32](&l, "token_ids", "I32", T)
	b.RefEnergy = l.floats("ref_energy", T)
	b.Entropy = l.floats("entropy", T)
	b.OldLogprobs = l.floats("old_logprobs", T)
	b.Logprobs = l.floats("logprobs", T)
	b.RefLogprobs = l.floats("ref_logprobs", T)
	b.RefEntropy = l.floats("ref_entropy", T)
	b.Advantages = l.floats("advantages", T)
	b.Values = l.floats("values", T)
	b.RefLogits = l.logits("ref_logits", T)
	b.OldLogits = l.logits("old_logits", T)
	b.Logits = l.logits("logits", T)
	if l.err != nil {
		return nil, l.err
	}
	if err := b.Validate(); err != nil {
		return nil, inTensor(err)
	}
	return b, nil
}

// A loader turns tensors into arrays until the first error. Dimensions wanted
// are lengths, or anySize.
type loader struct {
	file *File
	err  error
}

const anySize = -1

// find returns the tensor of that name, or nil if it is absent or wrong.
func (l *loader) find(name string, dtypes []string, shape ...int64) *tensor {
	t := l.file.byName[name]
	if t == nil || l.err != nil {
		return nil
	}
	dtype := t.DType
	if elementBits[dtype] == 0 {
		dtype = quote(dtype)
	}
	sameSize := func(got, want int64) bool { return got == want || want == anySize }
	switch {
	case !slices.Contains(dtypes, t.DType):
		l.err = fmt.Errorf("tensor %q: dtype %s, want %s", name, dtype, strings.Join(dtypes, " or "))
	case !slices.EqualFunc(t.Shape, shape, sameSize):
		l.err = fmt.Errorf("tensor %q: shape %s, want %s", name, shapeString(t.Shape), shapeString(shape))
	default:
		return t
	}
	return nil
}

func integersOf[E element](l *loader, name, dtype string, n int64) []E {
	if t := l.find(name, []string{dtype}, n); t != nil {
		return view[E](t.data)
	}
	return nil
}

var floatTypes = []string{"F32", "BF16", "F16"}

func (l *loader) floats(name string, n int64) []float32 {
	t := l.find(name, floatTypes, n)
	if t == nil {
		return nil
	}
	switch t.DType {
	case "BF16":
		return widen(view[reweight.BF16](t.data))
	case "F16":
		return widen(view[reweight.F16](t.data))
	}
	return view[float32](t.data)
}

func widen[H interface{ Float32() float32 }](halves []H) []float32 {
	wide := make([]float32, len(halves))
	for i, h := range halves {
		wide[i] = h.Float32()
	}
	return wide
}

func (l *loader) logits(name string, rows int64) reweight.Logits {
	t := l.find(name, floatTypes, rows, anySize)
	if t == nil {
		return reweight.Logits{}
	}
	if t.Shape[1] == 0 {
		l.err = fmt.Errorf("tensor %q: shape %s, want at least 1 logit in a row", name, shapeString(t.Shape))
		return reweight.Logits{}
	}
	logits := reweight.Logits{Vocab: int(t.Shape[1])}
	switch t.DType {
	case "BF16":
		logits.BF16 = view[reweight.BF16](t.data)
	case "F16":
		logits.F16 = view[reweight.F16](t.data)
	default:
		logits.F32 = view[float32](t.data)
	}
	return logits
}

// inTensor says in terms of tensors what Batch.Validate says in terms of
// fields. Its errors begin with the field at fault: "reweight: Role[3] = 7, ..."
// or "reweight: len(Role) = 0, ...".
func inTensor(err error) error {
	text := strings.TrimPrefix(err.Error(), "reweight: ")
	field, _, _ := strings.Cut(strings.TrimPrefix(text, "len("), "[")
	if i := strings.IndexAny(field, "). "); i >= 0 {
		field = field[:i]
	}
	name, ok := tensorNames[field]
	if !ok {
		return errors.New(text)
	}
	return fmt.Errorf("tensor %q: %s", name, fieldsToTensors.Replace(text))
}

var fieldsToTensors = func() *strings.Replacer {
	var pairs []string
	for field, tensor := range tensorNames {
		pairs = append(pairs, field, tensor)
	}
	return strings.NewReplacer(pairs...)
}()

// Tensors returns the arrays of b that are set, for Write: under their tensors'
// names, and in an order in which each is aligned to its element size. The data
// aliases b's slices.
func Tensors(b *reweight.Batch) []Tensor {
	tensors := []Tensor{
		vector("role", b.Role),
		vector("seq_offsets", b.SeqOffsets),
		vector("group_ids", b.GroupIDs),
		vector("rewards", b.Rewards),
		vector("span_ids", b.SpanIDs),
		vector("token_ids", b.TokenIDs),
		vector("ref_energy", b.RefEnergy),
		vector("entropy", b.Entropy),
		vector("old_logprobs", b.OldLogprobs),
		vector("logprobs", b.Logprobs),
		vector("ref_logprobs", b.RefLogprobs),
		vector("ref_entropy", b.RefEntropy),
		vector("advantages", b.Advantages),
		vector("values", b.Values),
		matrix("ref_logits", b.RefLogits),
		matrix("old_logits", b.OldLogits),
		matrix("logits", b.Logits),
	}
	tensors = slices.DeleteFunc(tensors, func(t Tensor) bool { return t.Shape[0] == 0 })
	slices.SortStableFunc(tensors, func(x, y Tensor) int {
		return int(elementBits[dtypeOf(y.Data)]) - int(elementBits[dtypeOf(x.Data)])
	})
	return tensors
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

// Require returns an error that names the first of the tensors that b neither
// holds nor can have derived (see Derive): what a job needs, checked before it
// starts.
func Require(b *reweight.Batch, names ...string) error {
	have := make(map[string]bool)
	for _, t := range Tensors(b) {
		have[t.Name] = true
	}
	for _, name := range names {
		if have[name] {
			continue
		}
		var missing []string
		for _, source := range sources[name] {
			if !have[source] {
				missing = append(missing, fmt.Sprintf("%q", source))
			}
		}
		switch {
		case sources[name] == nil:
			return fmt.Errorf("rollout: no %q", name)
		case missing != nil:
			return fmt.Errorf("rollout: no %q and no %s to derive it from", name, strings.Join(missing, ", no "))
		}
	}
	return nil
}

// sources says what each derived tensor is derived from.
var sources = map[string][]string{
	"ref_energy":   {"ref_logits"},
	"ref_logprobs": {"ref_logits", "token_ids"},
	"entropy":      {"old_logits"},
	"old_logprobs": {"old_logits", "token_ids"},
	"logprobs":     {"logits", "token_ids"},
}
