package score

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// A Partial has the statistics of some files, or of all of them: what Apply needs to
// score a trajectory as part of the batch. It does not change once it is made, and is safe
// for concurrent use.
//
// As lines of JSON it is text to pass on as it is: equal partials are equal texts.
type Partial struct {
	signal     reweight.Signal
	advantages origin
	actions    sums     // of the signal of action tokens
	files      []*File  // by their SHA256, which all differ but for Rows
	groups     []*group // by their keys, which all differ

	once  sync.Once // sets spans
	spans []float32 // of all groups, sorted
}

// An origin is the array that advantages come from.
type origin string

const (
	unknown         origin = ""           // there is no trajectory yet
	fromRewards     origin = "rewards"    // by GRPO
	givenAdvantages origin = "advantages" // as the source gives them
)

// A File is one whose trajectories a Partial has the statistics of.
type File struct {
	Name string

	// SHA256 is of what its trajectories count for. A file of other trajectories has
	// another; one that tells the same in another format need not.
	SHA256 [sha256.Size]byte

	// Rows says that it is rows of a table, which can be equal to others and count as well.
	Rows bool

	Trajectories, Tokens int64

	// Options says which options the file was opened with, of those that count for the
	// trajectories. It is empty if none was set.
	Options string

	// Entropy says where the entropies come from if they were estimated, else it is nil.
	Entropy *rollout.Origin
}

// A group is the trajectories that have one group id. Its numbers are sorted, without a
// negative zero.
type group struct {
	key     string
	rewards []float32 // none where advantages are given
	spans   []float32 // mean entropies of the spans

	// prompt is the begin of the SHA-256 of the tokens before the first response, and
	// file is one that has it. Where token ids do not tell, or a file has several prompts
	// mixed in the group, prompt is that of nothing.
	prompt promptSum
	mixed  bool
	file   *File

	merging bool // it is a Merger's, and its numbers are in any order
}

// A promptSum is zero if the prompt is not known.
type promptSum [16]byte

// Totals are the counts of a Partial, and what ActFocus takes from it.
type Totals struct {
	Files, Groups, Spans          int
	Trajectories, Tokens, Actions int64

	// Mean and Deviation are of the signal over action tokens, in nats; 0 if there
	// are none. Deviation is the standard deviation, without ActFocus's Eps.
	Mean, Deviation float64
}

// Totals returns the counts of p.
func (p *Partial) Totals() Totals {
	t := Totals{Files: len(p.files), Groups: len(p.groups), Actions: p.actions.N}
	for _, f := range p.files {
		t.Trajectories += f.Trajectories
		t.Tokens += f.Tokens
	}
	for _, g := range p.groups {
		t.Spans += len(g.spans)
	}
	if n := p.actions.N; n > 0 {
		t.Mean, t.Deviation = p.actions.mean(), math.Sqrt(p.actions.variance(n))
	}
	return t
}

// Files returns the files, in the order of their SHA256.
func (p *Partial) Files() iter.Seq[File] {
	return func(yield func(File) bool) {
		for _, f := range p.files {
			if !yield(*f) {
				return
			}
		}
	}
}

// Of reads the trajectories that src.Next has not returned yet, and returns their
// statistics. A file of which none is left adds nothing.
//
// Trajectories need role and seq_offsets, span_ids, entropy, what the signal of ActFocus
// is made of, and rewards or else advantages; entropy, ref_energy and the like can be
// derived from logits. An array that is missing or wrong is an error that names the file,
// and the line or the element.
//
// Of opt, only the signal and Rows count for the statistics. The other options are checked.
func Of(src *rollout.Source, opt Options) (*Partial, error) {
	p, err := read(src, opt)
	if err != nil {
		return nil, err
	}
	estimated := map[string]*rollout.Origin{}
	for name, o := range src.Report().Entropy {
		estimated[validText(name)] = &o
	}
	options := describe(src.Options())
	for _, f := range p.files {
		f.Entropy, f.Options = estimated[f.Name], options
	}
	return p, nil
}

// describe says which options that count for trajectories are set.
func describe(opt rollout.Options) string {
	var set []string
	if len(opt.ActionOpen) > 0 || len(opt.ActionClose) > 0 {
		set = append(set, fmt.Sprintf("action tags of the ids %d and %d", opt.ActionOpen, opt.ActionClose))
	}
	for _, pair := range opt.ActionTags {
		set = append(set, fmt.Sprintf("action tags %q and %q", pair[0], pair[1]))
	}
	if opt.TagsAsActions {
		set = append(set, "tags as actions")
	}
	if opt.GroupSize > 0 {
		set = append(set, fmt.Sprintf("groups of %d", opt.GroupSize))
	}
	if opt.Vocab > 0 {
		set = append(set, fmt.Sprintf("a vocabulary of %d tokens", opt.Vocab))
	}
	if opt.SurprisalEntropy {
		set = append(set, "surprisal as entropy")
	}
	return strings.Join(set, ", ")
}

// A source is a *rollout.Source, or what a test has in its place.
type source interface {
	Next() (*rollout.Trajectory, error)
	Guard(do func() error) error
}

// read returns the partial of all files.
func read(src source, opt Options) (*Partial, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	// There may be no trajectory, and then this is the partial.
	m := Merger{merged: &Partial{signal: opt.ActFocus.Signal}, groups: map[string]*group{}}
	var b *builder
	r := newReader(opt)
	for {
		t, err := src.Next()
		end := err == io.EOF
		if err != nil && !end {
			return nil, err
		}
		if b != nil && (end || t.File != b.name) {
			if err := m.Add(b.partial(r)); err != nil {
				return nil, err
			}
			b = nil
		}
		if end {
			return m.Merged()
		}
		if b == nil {
			b = &builder{name: t.File, file: &File{Name: validText(t.File), Rows: opt.Rows},
				groups: map[string]*group{}}
			r.beginFile()
		}
		err = src.Guard(func() error {
			if err := r.read(t); err != nil {
				return err
			}
			return r.at(t, b.add(t, r))
		})
		if err != nil {
			return nil, err
		}
	}
}

// A builder makes the partial of one file.
type builder struct {
	name       string // of the file
	file       *File
	advantages origin
	actions    collector
	local      bool              // groups are made by counting
	groups     map[string]*group // by the keys of their names
}

// validText returns a text as JSON can hold it.
func validText(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// add adds a trajectory that r has just read.
func (b *builder) add(t *rollout.Trajectory, r *reader) error {
	b.file.Trajectories++
	b.file.Tokens += int64(t.Tokens())
	if r.advantages == unknown { // it has neither tokens nor a reward
		return nil
	}
	if b.advantages != unknown && b.advantages != r.advantages {
		return fmt.Errorf("advantages come from %s here, but from %s in the trajectories before", r.advantages,
			b.advantages)
	}
	b.advantages = r.advantages
	b.actions.add(r.actions())
	b.local = t.LocalGroup
	name := keyOf(t.Group)
	g := b.groups[name]
	if g == nil {
		g = &group{file: b.file, prompt: r.prompt}
		b.groups[name] = g
	}
	switch {
	case g.mixed || r.prompt == promptSum{}:
	case g.prompt == promptSum{}:
		g.prompt = r.prompt
	case g.prompt != r.prompt: // the file says that they share a group, so prompts tell nothing
		g.prompt, g.mixed = promptSum{}, true
	}
	g.add(r)
	return nil
}

// add adds the numbers of the trajectory that r has just read, in any order.
func (g *group) add(r *reader) {
	if r.advantages == fromRewards {
		g.rewards = append(g.rewards, plus(r.batch.Rewards[0]))
	}
	g.spans = append(g.spans, r.means...)
}

// plus returns x, and 0 for a negative zero, so that sorting has one result.
func plus(x float32) float32 {
	if x == 0 {
		return 0
	}
	return x
}

// partial returns the partial, of which r has read all trajectories.
func (b *builder) partial(r *reader) *Partial {
	b.file.SHA256 = r.endFile()
	p := &Partial{
		signal: r.opt.ActFocus.Signal, advantages: b.advantages, actions: b.actions.total(), files: []*File{b.file},
	}
	for _, name := range slices.Sorted(maps.Keys(b.groups)) { // so that errors about them are the same each time
		g := b.groups[name]
		if g.key = name; b.local {
			g.key = fmt.Sprintf("file %x group %d", b.file.SHA256, r.groups[name])
		}
		g.sort()
		p.groups = append(p.groups, g)
	}
	return p
}

// maxKey is the length of the longest group id that is its own key.
const maxKey = 64

// keyOf returns what stands for a group id in a partial: the id, or its hash if it is
// long or no text. Groups that were made by counting have keys with the SHA256 of their file,
// which are longer, so that they stay apart from the keys of all other files.
func keyOf(id string) string {
	if len(id) <= maxKey && utf8.ValidString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:]) // longer than maxKey
}

// A Merger makes one Partial of many, which it does not keep. Its zero value has none yet. It
// is for one goroutine at a time.
type Merger struct {
	merged     *Partial          // without groups, and files in any order
	groups     map[string]*group // with numbers in any order
	first      string            // name of the first partial
	advantages string            // name of the first one with trajectories
}

// Add adds the files of a partial. Different signals are an error, and so are rewards in some
// of the partials and only advantages in others, and a group with one prompt here and another
// there. After an error m is of no use.
func (m *Merger) Add(p *Partial) error {
	if m.merged == nil {
		m.first, m.merged, m.groups = p.name(), &Partial{signal: p.signal}, map[string]*group{}
	}
	all := m.merged
	if p.signal != all.signal {
		return fmt.Errorf("%s has statistics of the signal %v, and %s of %v", m.first, all.signal, p.name(), p.signal)
	}
	if p.advantages != unknown {
		if all.advantages == unknown {
			m.advantages, all.advantages = p.name(), p.advantages
		}
		if p.advantages != all.advantages {
			return fmt.Errorf("advantages come from %s in %s, but from %s in %s", all.advantages, m.advantages,
				p.advantages, p.name())
		}
	}
	all.actions.merge(&p.actions)
	all.files = append(all.files, p.files...)
	for _, g := range p.groups {
		known := m.groups[g.key]
		if known == nil {
			m.groups[g.key] = g
			continue
		}
		if !known.merging { // its partial keeps what it has
			own := *known
			own.merging, own.rewards, own.spans = true, slices.Clip(known.rewards), slices.Clip(known.spans)
			known = &own
			m.groups[g.key] = known
		}
		if err := known.merge(g); err != nil {
			return err
		}
	}
	return nil
}

// merge adds the trajectories of a part of the group.
func (g *group) merge(part *group) error {
	known, knows := g.prompt != (promptSum{}), part.prompt != (promptSum{})
	switch {
	case known && knows && part.prompt != g.prompt:
		a, b := g.file.Name, part.file.Name
		if b < a { // the same error in any order
			a, b = b, a
		}
		return fmt.Errorf("group %s has one prompt in %s and another in %s: number the groups of all files anew, or convert each file alone",
			printable.Text(g.key), printable.Text(a), printable.Text(b))
	case knows && !known || knows == known && bytes.Compare(part.file.SHA256[:], g.file.SHA256[:]) < 0:
		g.file, g.prompt = part.file, part.prompt
	}
	g.rewards = append(g.rewards, part.rewards...)
	g.spans = append(g.spans, part.spans...)
	return nil
}

// sort sorts the numbers. Those that are sorted can be another partial's, and stay unwritten.
func (g *group) sort() {
	for _, x := range [...][]float32{g.rewards, g.spans} {
		if !slices.IsSorted(x) {
			slices.Sort(x)
		}
	}
}

// Merged returns the statistics of all files. A file that is in two of the partials is an
// error, unless both are Rows, and so is no partial at all. A file is known by what its trajectories count for, not
// by its name. m is of no use afterwards.
func (m *Merger) Merged() (*Partial, error) {
	if m.merged == nil {
		return nil, errors.New("no partials to merge")
	}
	all := m.merged
	slices.SortFunc(all.files, compareFiles)
	for i, f := range all.files[min(1, len(all.files)):] {
		if before := all.files[i]; before.SHA256 == f.SHA256 && !(before.Rows && f.Rows) {
			return nil, sameFile(before.Name, f.Name)
		}
	}
	all.groups = slices.SortedFunc(maps.Values(m.groups), compareGroups)
	for _, g := range all.groups {
		if g.merging {
			g.merging = false
			g.sort()
		}
	}
	return all, nil
}

// group returns the group of that key, or nil if p has none.
func (p *Partial) group(key string) *group {
	i, ok := slices.BinarySearchFunc(p.groups, &group{key: key}, compareGroups)
	if !ok {
		return nil
	}
	return p.groups[i]
}

func compareFiles(a, b *File) int   { return bytes.Compare(a.SHA256[:], b.SHA256[:]) }
func compareGroups(a, b *group) int { return strings.Compare(a.key, b.key) }

// sameFile is the error about a file that is there twice.
func sameFile(a, b string) error {
	if a == b {
		return fmt.Errorf("%s is there twice", printable.Text(a))
	}
	if b < a {
		a, b = b, a
	}
	return fmt.Errorf("%s and %s have the same trajectories: a file counts once; if both are to count, put their trajectories into one file", printable.Text(a), printable.Text(b))
}

// name returns a name of p for errors: the name of one of its files.
func (p *Partial) name() string {
	if len(p.files) == 0 {
		return "a partial without files"
	}
	return printable.Text(p.files[0].Name)
}

// allSpans returns the mean entropies of the spans of all groups, sorted.
func (p *Partial) allSpans() []float32 {
	p.once.Do(func() {
		for _, g := range p.groups {
			p.spans = append(p.spans, g.spans...)
		}
		slices.Sort(p.spans)
	})
	return p.spans
}
