package score

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unique"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

// partialVersion is that of the JSON of partials. Who changes what they hold, or what the
// identity of a file is made of, raises it.
const partialVersion = 3

// The JSON of a Partial is a line that is a head, a line for each file, and one for each
// group. Rewards and spans are little-endian float32 values.

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
	buffered := bufio.NewWriterSize(w, 1<<16)
	e := json.NewEncoder(buffered)
	err := e.Encode(&headJSON{partialVersion, p.signal, p.advantages, p.actions, len(p.files), len(p.groups)})
	for _, f := range p.files {
		err = cmp.Or(err, e.Encode(f.json()))
	}
	for _, g := range p.groups {
		err = cmp.Or(err, e.Encode(g.json(p)))
	}
	return cmp.Or(err, buffered.Flush())
}

func (f *File) json() fileJSON {
	j := fileJSON{Name: f.Name, SHA256: f.SHA256[:], Trajectories: f.Trajectories, Tokens: f.Tokens, Options: f.Options}
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

// Decode reads what Encode has written. It takes nothing for granted that Apply relies on, and
// its memory is bounded by the length of the text.
func Decode(r io.Reader) (*Partial, error) {
	p, err := decode(json.NewDecoder(r))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return p, err
}

func decode(d *json.Decoder) (*Partial, error) {
	var head headJSON
	err := d.Decode(&head)
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
	if _, err := d.Token(); err != io.EOF {
		return nil, cmp.Or(err, errors.New("more lines than the first one says"))
	}
	return p, nil
}

// eachOf decodes n values and calls add with each.
func eachOf[T any](d *json.Decoder, n int, add func(T) error) error {
	for range n {
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		if err := add(one); err != nil {
			return err
		}
	}
	return nil
}

func (p *Partial) addFile(j fileJSON) error {
	f := &File{Name: j.Name, Trajectories: j.Trajectories, Tokens: j.Tokens, Options: unique.Make(j.Options).Value()}
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
