package score

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"unique"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// partialVersion is the version of the JSON of partials. Who changes what they hold, or what the
// identity of a file is made of, raises it.
const partialVersion = 4

// The JSON of a Partial is a line that is a head, a line for each file, one for each group,
// and one of the SHA-256 of all these. Rewards and spans are little-endian float32 values.

type headJSON struct {
	Version    int             `json:"reweight_partial"`
	Signal     reweight.Signal `json:"signal"`
	Advantages origin          `json:"advantages"`
	Actions    sums            `json:"actions"`
	Files      int             `json:"files"`
	Groups     int             `json:"groups"`
}

type fileJSON struct {
	Name         string        `json:"name"`
	SHA256       []byte        `json:"sha256"`
	Trajectories int64         `json:"trajectories"`
	Tokens       int64         `json:"tokens"`
	Rows         bool          `json:"rows,omitempty"`
	Options      string        `json:"options,omitempty"`
	Entropy      *estimateJSON `json:"estimated_entropy,omitempty"`
}

type estimateJSON struct {
	From  string   `json:"from"`
	Width *float64 `json:"width"` // null if there are no bounds
}

type groupJSON struct {
	ID      string `json:"id"`
	File    int    `json:"file"` // its number among the files, from 0
	Prompt  []byte `json:"prompt,omitempty"`
	Rewards []byte `json:"rewards,omitempty"`
	Spans   []byte `json:"spans,omitempty"`
}

// Encode writes p as lines of JSON.
func (p *Partial) Encode(w io.Writer) error {
	e := &encoder{w: bufio.NewWriterSize(w, 1<<16), sum: sha256.New()}
	e.line(&headJSON{partialVersion, p.signal, p.advantages, p.actions, len(p.files), len(p.groups)})
	for _, f := range p.files {
		e.line(f.json())
	}
	for _, g := range p.groups {
		e.line(g.json(p))
	}
	e.w.Write(lastLine(e.sum)) // the writer keeps its error
	return cmp.Or(e.err, e.w.Flush())
}

// An encoder writes lines of JSON until the first error.
type encoder struct {
	w   *bufio.Writer
	sum hash.Hash // of what was written
	err error
}

func (e *encoder) line(v any) {
	text, err := json.Marshal(v)
	e.err = cmp.Or(e.err, err)
	text = append(printable.AppendJSON(nil, text), '\n')
	e.sum.Write(text)
	e.w.Write(text)
}

// lastLine returns the line that ends the text of that sum.
func lastLine(sum hash.Hash) []byte {
	return fmt.Appendf(nil, `{"sha256_of_the_lines_before":"%x"}`+"\n", sum.Sum(nil))
}

func (f *File) json() fileJSON {
	j := fileJSON{Name: f.Name, SHA256: f.SHA256[:], Rows: f.Rows, Trajectories: f.Trajectories, Tokens: f.Tokens,
		Options: f.Options}
	if e := f.Entropy; e != nil {
		j.Entropy = &estimateJSON{From: e.From}
		if !math.IsInf(e.Width, 1) {
			j.Entropy.Width = &e.Width
		}
	}
	return j
}

// json returns the JSON of a group of p.
func (g *group) json(p *Partial) groupJSON {
	i, _ := slices.BinarySearchFunc(p.files, g.file, compareFiles)
	j := groupJSON{ID: g.key, File: i, Rewards: bytesOf(g.rewards), Spans: bytesOf(g.spans)}
	if g.prompt != (promptSum{}) {
		j.Prompt = g.prompt[:]
	}
	return j
}

func bytesOf(x []float32) []byte {
	raw, _ := binary.Append(nil, binary.LittleEndian, x) // floats are no error
	return raw
}

// Decode reads what Encode has written, and nothing else: a text in which a byte was changed
// is an error. It takes nothing for granted that Apply relies on, and its memory is bounded by
// the length of the text.
func Decode(r io.Reader) (*Partial, error) {
	p, err := decode(&decoder{r: bufio.NewReader(r), sum: sha256.New()})
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return p, err
}

// A decoder reads lines of JSON.
type decoder struct {
	r   *bufio.Reader
	sum hash.Hash // of the lines that were read
}

// line reads the next line into v.
func (d *decoder) line(v any) error {
	text, err := d.r.ReadBytes('\n')
	return d.parse(text, err, v)
}

// parse reads a line into v, which was read with that error.
func (d *decoder) parse(text []byte, err error, v any) error {
	if err == nil || len(text) != 0 { // what is no partial is to be called that
		err = cmp.Or(json.Unmarshal(text, v), err)
	}
	d.sum.Write(text)
	return err
}

// end checks that the last line, of the sum of all others, is the next.
func (d *decoder) end() error {
	want := lastLine(d.sum)
	got, err := io.ReadAll(io.LimitReader(d.r, int64(len(want))+1))
	switch {
	case err != nil:
		return err
	case bytes.Equal(got, want):
		return nil
	case len(got) < len(want):
		return io.ErrUnexpectedEOF
	case !bytes.HasPrefix(got, want[:bytes.IndexByte(want, ':')]):
		return errors.New("more lines than the first one says")
	}
	return errors.New("the checksum in the last line is of another text: it was changed after it was written")
}

func decode(d *decoder) (*Partial, error) {
	var head headJSON
	text, err := d.r.ReadSlice('\n') // of no more than the reader's buffer: a file of something else can be large
	if err != bufio.ErrBufferFull {
		err = d.parse(text, err, &head)
	}
	switch v := head.Version; {
	case v != 0 && v != partialVersion:
		return nil, fmt.Errorf("reweight_partial is %d, want %d: statistics of this version", v, partialVersion)
	case err != nil:
		return nil, err
	case v == 0:
		return nil, errors.New("not the statistics of rollouts: reweight_partial is missing")
	case !slices.Contains([]origin{unknown, fromRewards, givenAdvantages}, head.Advantages):
		return nil, fmt.Errorf("advantages is %q, want %q or %q", head.Advantages, fromRewards, givenAdvantages)
	}
	if err := head.Actions.check(); err != nil {
		return nil, fmt.Errorf("actions: %w", err)
	}
	p := &Partial{signal: head.Signal, advantages: head.Advantages, actions: head.Actions}
	if err := eachOf(d, head.Files, p.addFile); err != nil {
		return nil, fmt.Errorf("files[%d]: %w", len(p.files), err)
	}
	if err := eachOf(d, head.Groups, p.addGroup); err != nil {
		return nil, fmt.Errorf("groups[%d]: %w", len(p.groups), err)
	}
	if !slices.IsSortedFunc(p.files, compareFiles) || !slices.IsSortedFunc(p.groups, compareGroups) {
		return nil, errors.New("files or groups are not in order")
	}
	return p, d.end()
}

// eachOf reads n lines and calls add with each.
func eachOf[T any](d *decoder, n int, add func(T) error) error {
	for range n {
		var one T
		if err := d.line(&one); err != nil {
			return err
		}
		if err := add(one); err != nil {
			return err
		}
	}
	return nil
}

func (p *Partial) addFile(j fileJSON) error {
	f := &File{Name: j.Name, Rows: j.Rows, Trajectories: j.Trajectories, Tokens: j.Tokens,
		Options: unique.Make(j.Options).Value()}
	if len(j.SHA256) != len(f.SHA256) {
		return fmt.Errorf("sha256 has %d bytes, want %d", len(j.SHA256), len(f.SHA256))
	}
	copy(f.SHA256[:], j.SHA256)
	if e := j.Entropy; e != nil {
		f.Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: e.From, Width: math.Inf(1)}
		if e.Width != nil {
			f.Entropy.Width = *e.Width
		}
	}
	p.files = append(p.files, f)
	return nil
}

func (p *Partial) addGroup(j groupJSON) (err error) {
	if j.File < 0 || j.File >= len(p.files) {
		return fmt.Errorf("file is %d, of %d files", j.File, len(p.files))
	}
	g := &group{key: j.ID, file: p.files[j.File]}
	copy(g.prompt[:], j.Prompt)
	if g.rewards, err = floatsOf(j.Rewards, math.MaxFloat32); err != nil {
		return fmt.Errorf("rewards: %w", err)
	}
	if g.spans, err = floatsOf(j.Spans, largestMean); err != nil {
		return fmt.Errorf("spans: %w", err)
	}
	p.groups = append(p.groups, g)
	return nil
}

// largestMean bounds entropies, as AEM does.
const largestMean = 1e30

// floatsOf returns what bytesOf was given: sorted numbers, of at most a magnitude.
func floatsOf(raw []byte, most float64) ([]float32, error) {
	x := make([]float32, len(raw)/4)
	_, err := binary.Decode(raw, binary.LittleEndian, x)
	inOrder := err == nil && len(raw)%4 == 0 && slices.IsSorted(x)
	if n := len(x); !inOrder || n > 0 && !(float64(x[0]) >= -most && float64(x[n-1]) <= most) {
		return nil, fmt.Errorf("not float32 values in order, of a magnitude of at most %v", most)
	}
	return x, nil
}
