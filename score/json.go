package score

import (
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
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// version is that of the JSON of partials. Who changes what they hold, or what the
// identity of a file is made of, raises it.
const version = 2

// The JSON of a Partial. Numbers that a reader could round are text: exact sums as
// appendExact writes them, and entropies as the base64 of little-endian float32 values.
type partialJSON struct {
	Version    int             `json:"reweight_partial"`
	Signal     reweight.Signal `json:"signal"`
	Advantages origin          `json:"advantages"`
	Actions    sumsJSON        `json:"actions"`
	Files      []fileJSON      `json:"files,omitempty"`
	Groups     []groupJSON     `json:"groups"`
}

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

// MarshalJSON returns p as JSON.
func (p *Partial) MarshalJSON() ([]byte, error) { return p.marshal(true) }

// marshal returns the JSON, with files or without them.
func (p *Partial) marshal(files bool) ([]byte, error) {
	j := partialJSON{Version: version, Signal: p.signal, Advantages: p.advantages, Actions: p.actions.json(), Groups: []groupJSON{}}
	index := map[*File]int{}
	if files {
		j.Files = []fileJSON{}
		for i, f := range p.files {
			index[f] = i
			fj := fileJSON{Name: f.Name, SHA256: hex.EncodeToString(f.SHA256[:]), Trajectories: f.Trajectories, Tokens: f.Tokens, Options: f.Options}
			if e := f.Entropy; e != nil {
				fj.Entropy = &estimateJSON{From: e.From}
				if !math.IsInf(e.Width, 1) {
					fj.Entropy.Width = &e.Width
				}
			}
			j.Files = append(j.Files, fj)
		}
	}
	var raw []byte
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[id]
		gj := groupJSON{ID: id}
		if files {
			i := index[g.file]
			gj.File = &i
		}
		if files && g.prompt != (promptSum{}) {
			gj.Prompt = hex.EncodeToString(g.prompt[:])
		}
		if p.advantages == fromRewards {
			r := g.rewards.json()
			gj.Rewards = &r
		}
		raw = raw[:0]
		for _, m := range g.spans {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(m))
		}
		gj.Spans = base64.StdEncoding.EncodeToString(raw)
		if !files && g.local {
			gj.ID = ""
		}
		j.Groups = append(j.Groups, gj)
	}
	if !files { // the order of groups whose names are left out is that of what they hold
		slices.SortFunc(j.Groups, groupJSON.compare)
	}
	return json.Marshal(j)
}

// compare orders groups without a file.
func (j groupJSON) compare(other groupJSON) int {
	c := cmp.Or(strings.Compare(j.ID, other.ID), strings.Compare(j.Spans, other.Spans))
	if c != 0 || j.Rewards == nil { // which then is so in all groups
		return c
	}
	a, b := j.Rewards, other.Rewards
	return cmp.Or(cmp.Compare(a.N, b.N), strings.Compare(a.Sum, b.Sum), strings.Compare(a.Squares, b.Squares))
}

func (s *sums) json() sumsJSON {
	return sumsJSON{s.n, string(appendExact(nil, s.sum[:], sumUnit)), string(appendExact(nil, s.squares[:], squareUnit))}
}

// UnmarshalJSON sets p, which is new, to the partial that text was made of. Any text that
// MarshalJSON does not write is an error, and its memory is bounded by its length.
func (p *Partial) UnmarshalJSON(text []byte) error {
	var head struct {
		Version *int `json:"reweight_partial"`
	}
	if json.Unmarshal(text, &head) == nil {
		switch {
		case head.Version == nil:
			return errors.New("not the statistics of rollouts: reweight_partial is missing")
		case *head.Version != version:
			return fmt.Errorf("reweight_partial is %d, want %d: statistics of this version", *head.Version, version)
		}
	}
	var j partialJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	new := &Partial{}
	if err := j.partial(new); err != nil {
		return err
	}
	// What decoding lets pass, such as a field that is there twice, is not there in
	// what p is written as.
	again, err := new.MarshalJSON()
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	if !bytes.Equal(compact.Bytes(), again) {
		return errors.New("not as it was written: its text was changed, if only in form")
	}
	p.signal, p.advantages, p.actions, p.files, p.groups = new.signal, new.advantages, new.actions, new.files, new.groups
	return nil
}

// partial sets p, and checks that p can be the statistics of rollouts.
func (j *partialJSON) partial(p *Partial) error {
	p.signal, p.advantages, p.groups = j.Signal, j.Advantages, make(map[string]*group, len(j.Groups))
	if err := j.Actions.sums(&p.actions); err != nil {
		return fmt.Errorf("actions: %w", err)
	}
	tokens, trajectories, err := j.files(p)
	if err != nil {
		return err
	}
	rewards, spans := int64(0), int64(0)
	for i := range j.Groups {
		gj := &j.Groups[i]
		if i > 0 && gj.ID <= j.Groups[i-1].ID {
			return fmt.Errorf("groups[%d] is %s, not in order after %s", i, printable.Text(short(gj.ID)), printable.Text(short(j.Groups[i-1].ID)))
		}
		g, err := gj.group(p)
		if err != nil {
			return fmt.Errorf("groups[%d], %s: %w", i, printable.Text(short(gj.ID)), err)
		}
		rewards += g.rewards.n
		spans += int64(len(g.spans))
		if rewards > trajectories || spans > tokens {
			return fmt.Errorf("groups have %d rewards and %d spans, but files have %d trajectories and %d tokens", rewards, spans, trajectories, tokens)
		}
		p.groups[gj.ID] = g
	}
	switch {
	case p.actions.n > tokens:
		return fmt.Errorf("actions: n is %d, but files have %d tokens", p.actions.n, tokens)
	case p.advantages == fromRewards && rewards != trajectories:
		return fmt.Errorf("groups have %d rewards, but files have %d trajectories", rewards, trajectories)
	case p.advantages != fromRewards && p.advantages != givenAdvantages && (p.advantages != unknown || tokens > 0 || len(p.groups) > 0):
		return fmt.Errorf("advantages is %s, want %q or %q", printable.Text(short(string(p.advantages))), fromRewards, givenAdvantages)
	}
	return nil
}

// files sets the files of p, and returns how many tokens and trajectories they have.
func (j *partialJSON) files(p *Partial) (tokens, trajectories int64, err error) {
	for i, fj := range j.Files {
		f := &File{Name: fj.Name, Trajectories: fj.Trajectories, Tokens: fj.Tokens, Options: fj.Options}
		if err := setHex(f.SHA256[:], fj.SHA256); err != nil {
			return 0, 0, fmt.Errorf("files[%d]: sha256 %w", i, err)
		}
		if i > 0 && bytes.Compare(p.files[i-1].SHA256[:], f.SHA256[:]) >= 0 {
			return 0, 0, fmt.Errorf("files[%d] is not in order after the one before it", i)
		}
		if fj.Trajectories < 1 || fj.Trajectories > maxCount || fj.Tokens < 0 || fj.Tokens > maxCount {
			return 0, 0, fmt.Errorf("files[%d] has %d trajectories of %d tokens, want at least 1, and at most %d of both", i, fj.Trajectories, fj.Tokens, int64(maxCount))
		}
		if e := fj.Entropy; e != nil {
			f.Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: e.From, Width: math.Inf(1)}
			if e.Width != nil {
				f.Entropy.Width = *e.Width
			}
			if !(f.Entropy.Width >= 0) {
				return 0, 0, fmt.Errorf("files[%d]: width is %v, want at least 0", i, f.Entropy.Width)
			}
		}
		tokens += f.Tokens
		trajectories += f.Trajectories
		if max(tokens, trajectories) > maxCount {
			return 0, 0, fmt.Errorf("files have %d tokens of %d trajectories, want at most %d", tokens, trajectories, int64(maxCount))
		}
		p.files = append(p.files, f)
	}
	return tokens, trajectories, nil
}

// group returns the group, which is one of p.
func (j *groupJSON) group(p *Partial) (*group, error) {
	g := &group{}
	if j.File == nil || *j.File < 0 || *j.File >= len(p.files) {
		return nil, fmt.Errorf("file is none of the %d files", len(p.files))
	}
	g.file = p.files[*j.File]
	number, local := strings.CutPrefix(j.ID, g.file.localKey())
	if g.local = local; local {
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
	if err := parseExact(s.sum[:], sumUnit, j.Sum); err != nil {
		return fmt.Errorf("sum is %s: %w", printable.Text(short(j.Sum)), err)
	}
	if err := parseExact(s.squares[:], squareUnit, j.Squares); err != nil {
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
