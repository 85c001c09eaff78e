package score

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unique"

	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// partialVersion is that of the JSON of partials. Who changes what they hold, or what the
// identity of a file is made of, raises it.
const partialVersion = 2

// The JSON of a Partial is an object of reweight_partial (the version), signal, advantages,
// actions, files where there are any, and groups. Numbers that a reader could round are text:
// exact sums as appendExact writes them, and entropies as the base64 of little-endian float32
// values.

type sumsJSON struct {
	N       int64  `json:"n"`
	Sum     string `json:"sum"`
	Squares string `json:"squares"`
}

type fileJSON struct {
	Name         string        `json:"name"`
	SHA256       string        `json:"sha256"`
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
	ID      string    `json:"id"`
	File    *int      `json:"file,omitempty"` // index in Files
	Prompt  string    `json:"prompt,omitempty"`
	Rewards *sumsJSON `json:"rewards,omitempty"`
	Spans   string    `json:"spans"`
}

// Encode writes p as JSON, in one line.
func (p *Partial) Encode(w io.Writer) error {
	e := &encoder{w: bufio.NewWriterSize(w, 1<<16)}
	e.key("{", "reweight_partial", partialVersion)
	e.key(",", "signal", p.signal)
	e.key(",", "advantages", p.advantages)
	e.key(",", "actions", p.actions.json())
	separator := `,"files":[`
	for _, f := range p.files {
		e.value(separator, f.json())
		separator = ","
	}
	if len(p.files) > 0 {
		e.w.WriteByte(']')
	}
	e.w.WriteString(`,"groups":[`)
	separator = ""
	for _, packed := range p.groups {
		g := packed.unpack()
		e.value(separator, g.json(p))
		separator = ","
	}
	e.w.WriteString("]}\n")
	if e.err != nil {
		return e.err
	}
	return e.w.Flush()
}

// An encoder writes JSON piece by piece.
type encoder struct {
	w   *bufio.Writer
	err error // the first of encoding; w keeps those of writing
}

func (e *encoder) value(before string, v any) {
	text, err := json.Marshal(v)
	if e.err == nil {
		e.err = err
	}
	e.w.WriteString(before)
	e.w.Write(text)
}

func (e *encoder) key(before, key string, v any) { e.value(before+`"`+key+`":`, v) }

func (f *File) json() fileJSON {
	j := fileJSON{Name: f.Name, SHA256: hex.EncodeToString(f.SHA256[:]), Trajectories: f.Trajectories, Tokens: f.Tokens, Options: f.Options}
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
	i, _ := p.index(g.file.SHA256)
	j := groupJSON{ID: g.key, File: &i}
	if g.prompt != (promptSum{}) {
		j.Prompt = hex.EncodeToString(g.prompt[:])
	}
	if p.advantages == fromRewards {
		rewards := g.rewards.json()
		j.Rewards = &rewards
	}
	raw := make([]byte, 0, 4*len(g.spans))
	for _, m := range g.spans {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(m))
	}
	j.Spans = base64.StdEncoding.EncodeToString(raw)
	return j
}

func (s *sums) json() sumsJSON {
	return sumsJSON{s.n, string(appendExact(nil, &s.sum, sumUnit)), string(appendExact(nil, &s.squares, squareUnit))}
}

// Decode returns the partial that the text was made of. Any text that Encode does not write
// is an error, white space aside, and the memory of the partial is bounded by its length.
func Decode(r io.Reader) (*Partial, error) {
	d := &decoder{json: json.NewDecoder(r), p: new(Partial)}
	if err := d.decode(); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return d.p, nil
}

// A decoder reads the JSON of a partial piece by piece.
type decoder struct {
	json *json.Decoder
	raw  json.RawMessage
	p    *Partial

	tokens, trajectories int64 // of files
}

var errNotWritten = errors.New("not as it was written: its text was changed, if only in form")

func (d *decoder) decode() error {
	p, version := d.p, 0
	if t, err := d.json.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errNotPartial)
	}
	if t, err := d.json.Token(); err != nil || t != "reweight_partial" {
		return cmp.Or(err, errNotPartial)
	}
	if err := d.read(&version); err != nil {
		return err
	}
	if version != partialVersion {
		return fmt.Errorf("reweight_partial is %d, want %d: statistics of this version", version, partialVersion)
	}
	var actions sumsJSON
	for _, field := range [...]struct {
		key   string
		value any
	}{{"signal", &p.signal}, {"advantages", &p.advantages}, {"actions", &actions}} {
		if t, err := d.json.Token(); err != nil || t != field.key {
			return cmp.Or(err, errNotWritten)
		}
		if err := d.read(field.value); err != nil {
			return err
		}
		if err := d.check(field.value); err != nil {
			return err
		}
	}
	if err := actions.sums(&p.actions); err != nil {
		return fmt.Errorf("actions: %w", err)
	}
	if err := d.check(p.actions.json()); err != nil {
		return err
	}
	key, err := d.json.Token()
	if err == nil && key == "files" {
		if err := d.list(d.file); err != nil {
			return err
		}
		if len(p.files) == 0 {
			return errNotWritten
		}
		key, err = d.json.Token()
	}
	if err != nil {
		return err
	}
	if key != "groups" {
		return errNotWritten
	}
	if err := d.groups(); err != nil {
		return err
	}
	if t, err := d.json.Token(); err != nil || t != json.Delim('}') {
		return cmp.Or(err, errNotWritten)
	}
	if _, err := d.json.Token(); err != io.EOF {
		return cmp.Or(err, errors.New("more than one JSON value"))
	}
	return nil
}

var errNotPartial = errors.New("not the statistics of rollouts: reweight_partial is missing")

// read reads the next value.
func (d *decoder) read(v any) error {
	if err := d.json.Decode(&d.raw); err != nil {
		return err
	}
	return json.Unmarshal(d.raw, v)
}

// check returns an error unless the value that was read last has the text of v.
func (d *decoder) check(v any) error {
	again, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if bytes.Equal(d.raw, again) {
		return nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, d.raw); err != nil {
		return err
	}
	if !bytes.Equal(compact.Bytes(), again) {
		return errNotWritten
	}
	return nil
}

// list reads a list, of which one reads an element.
func (d *decoder) list(one func() error) error {
	if t, err := d.json.Token(); err != nil || t != json.Delim('[') {
		return cmp.Or(err, errNotWritten)
	}
	for d.json.More() {
		if err := one(); err != nil {
			return err
		}
	}
	_, err := d.json.Token()
	return err
}

// groups reads the groups, and checks that p can be the statistics of rollouts.
func (d *decoder) groups() error {
	p, rewards, spans, before := d.p, int64(0), int64(0), ""
	err := d.list(func() error {
		var j groupJSON
		if err := d.read(&j); err != nil {
			return err
		}
		i := len(p.groups)
		if i > 0 && j.ID <= before {
			return fmt.Errorf("groups[%d] is %s, not in order after %s", i, printable.Text(short(j.ID)), printable.Text(short(before)))
		}
		before = j.ID
		g, err := j.group(p)
		if err != nil {
			return fmt.Errorf("groups[%d], %s: %w", i, printable.Text(short(j.ID)), err)
		}
		rewards += g.rewards.n
		spans += int64(len(g.spans))
		if rewards > d.trajectories || spans > d.tokens {
			return fmt.Errorf("groups have %d rewards and %d spans, but files have %d trajectories and %d tokens", rewards, spans, d.trajectories, d.tokens)
		}
		p.groups = append(p.groups, g.pack())
		return d.check(g.json(p))
	})
	switch {
	case err != nil:
		return err
	case p.actions.n > d.tokens:
		return fmt.Errorf("actions: n is %d, but files have %d tokens", p.actions.n, d.tokens)
	case p.advantages == fromRewards && rewards != d.trajectories:
		return fmt.Errorf("groups have %d rewards, but files have %d trajectories", rewards, d.trajectories)
	case p.advantages != fromRewards && p.advantages != givenAdvantages && (p.advantages != unknown || d.tokens > 0 || len(p.groups) > 0):
		return fmt.Errorf("advantages is %s, want %q or %q", printable.Text(short(string(p.advantages))), fromRewards, givenAdvantages)
	}
	return nil
}

// file reads the next file of p.
func (d *decoder) file() error {
	var j fileJSON
	if err := d.read(&j); err != nil {
		return err
	}
	p, i := d.p, len(d.p.files)
	f := &File{Name: j.Name, Trajectories: j.Trajectories, Tokens: j.Tokens, Options: unique.Make(j.Options).Value()}
	if err := setHex(f.SHA256[:], j.SHA256); err != nil {
		return fmt.Errorf("files[%d]: sha256 %w", i, err)
	}
	if i > 0 && bytes.Compare(p.files[i-1].SHA256[:], f.SHA256[:]) >= 0 {
		return fmt.Errorf("files[%d] is not in order after the one before it", i)
	}
	if j.Trajectories < 1 || j.Trajectories > maxCount || j.Tokens < 0 || j.Tokens > maxCount {
		return fmt.Errorf("files[%d] has %d trajectories of %d tokens, want at least 1, and at most %d of both", i, j.Trajectories, j.Tokens, int64(maxCount))
	}
	if e := j.Entropy; e != nil {
		f.Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: e.From, Width: math.Inf(1)}
		if e.Width != nil {
			f.Entropy.Width = *e.Width
		}
		if !(f.Entropy.Width >= 0) {
			return fmt.Errorf("files[%d]: width is %v, want at least 0", i, f.Entropy.Width)
		}
	}
	d.tokens += f.Tokens
	d.trajectories += f.Trajectories
	if max(d.tokens, d.trajectories) > maxCount {
		return fmt.Errorf("files have %d tokens of %d trajectories, want at most %d", d.tokens, d.trajectories, int64(maxCount))
	}
	p.files = append(p.files, f)
	return d.check(f.json())
}

// group returns the group, which is one of p.
func (j *groupJSON) group(p *Partial) (*group, error) {
	g := &group{key: j.ID}
	if j.File == nil || *j.File < 0 || *j.File >= len(p.files) {
		return nil, fmt.Errorf("file is none of the %d files", len(p.files))
	}
	g.file = p.files[*j.File]
	if number, local := strings.CutPrefix(j.ID, g.file.localKey()); local {
		if n, err := strconv.Atoi(number); err != nil || strconv.Itoa(n) != number || n < 0 || int64(n) >= g.file.Trajectories {
			return nil, fmt.Errorf("its number is %s, but the file has %d trajectories", printable.Text(short(number)), g.file.Trajectories)
		}
	} else if len(j.ID) > maxKey && len(j.ID) != len("sha256:")+2*sha256.Size {
		return nil, fmt.Errorf("its id has %d bytes, want at most %d", len(j.ID), maxKey)
	}
	if j.Prompt != "" {
		if err := setHex(g.prompt[:], j.Prompt); err != nil {
			return nil, fmt.Errorf("prompt %w", err)
		}
	}
	if (j.Rewards != nil) != (p.advantages == fromRewards) {
		return nil, errors.New("rewards are there if advantages come from them, and only then")
	}
	if j.Rewards != nil {
		if err := j.Rewards.sums(&g.rewards); err != nil {
			return nil, fmt.Errorf("rewards: %w", err)
		}
		if g.rewards.n == 0 {
			return nil, errors.New("rewards: n is 0, want at least 1")
		}
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(j.Spans)
	if err != nil || len(raw)%4 != 0 {
		return nil, errors.New("spans is not base64 of float32 values")
	}
	g.spans = make([]float32, len(raw)/4)
	for i := range g.spans {
		m := math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		switch {
		case !(math.Abs(float64(m)) <= largestMean) || m == 0 && math.Signbit(float64(m)):
			return nil, fmt.Errorf("spans[%d] is %v, want a finite number of at most %v", i, m, largestMean)
		case i > 0 && m < g.spans[i-1]:
			return nil, fmt.Errorf("spans[%d] is %v, below the %v before it", i, m, g.spans[i-1])
		}
		g.spans[i] = m
	}
	return g, nil
}

func (j *sumsJSON) sums(s *sums) error {
	s.n = j.N
	if err := parseExact(&s.sum, sumUnit, j.Sum); err != nil {
		return fmt.Errorf("sum is %s: %w", printable.Text(short(j.Sum)), err)
	}
	if err := parseExact(&s.squares, squareUnit, j.Squares); err != nil {
		return fmt.Errorf("squares is %s: %w", printable.Text(short(j.Squares)), err)
	}
	return s.check()
}

// setHex sets dst to the bytes of hexadecimal text.
func setHex(dst []byte, text string) error {
	if len(text) == 2*len(dst) {
		if _, err := hex.Decode(dst, []byte(text)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("is %s, want %d hexadecimal digits", printable.Text(short(text)), 2*len(dst))
}

// short returns the begin of a text for an error.
func short(text string) string {
	if len(text) <= 2*maxKey {
		return text
	}
	return text[:2*maxKey] + "..."
}
