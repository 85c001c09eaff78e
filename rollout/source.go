package rollout

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/seed621a2839/reweight"
)

// Options tell Open what files do not say themselves. The zero value is for files that
// say it all.
type Options struct {
	// ActionOpen and ActionClose are the token ids of the tags around an action, each a
	// sequence of one or more. ActionTags are the texts of the tags, for sources that give
	// the text of each token: pairs, of which each makes the actions between its tags, as
	// ParseTags returns them and docs/formats.md explains. With tags, the tokens between them
	// are the actions of a response, also where the source has roles: those then only say
	// which tokens are of a response. Without tags, a response token whose source does not
	// say its role is a reasoning token.
	ActionOpen, ActionClose []int32
	ActionTags              [][2]string

	// Vocabulary has the texts of tokens, in which ActionTags are looked for where a source
	// has none. Without it they are those in the metadata of a safetensors file, if it has any.
	Vocabulary Vocabulary

	// TagsAsActions makes the tokens that hold a part of an action's tags actions too.
	TagsAsActions bool

	// GroupSize is the number of trajectories in a row, of one file, that make a group.
	// With 0 the source's ids make the groups, or where there are none, equal prompts.
	GroupSize int

	// Vocab is the number of tokens of the vocabulary. Without it the log-probabilities
	// of the most likely tokens give no bounds of the entropy.
	Vocab int

	// SurprisalEntropy lets the surprisal of each token, -old_logprobs, stand for its
	// entropy, where a source says nothing else about it: an estimate of the mean over a
	// span, if the tokens were sampled at temperature 1 from all of the distribution.
	SurprisalEntropy bool
}

// Open opens rollouts in files of any format that the package reads, for example the
// dumps of a trainer. See Options.Open.
func Open(names ...string) (*Source, error) { return Options{}.Open(names...) }

// A Source reads the trajectories of one file or many, one after another. It is for one
// goroutine at a time.
type Source struct {
	names  string   // of all files, as errors spell them
	files  []string // names of those not opened yet
	input  *input   // the file that is read, or nil
	mapped []*File  // files whose slices the caller has
	c      completer
	err    error // of every further call of Next
}

// An input is a file that is read.
type input struct {
	name   string // as the caller spells it
	stream *stream
	reader reader
	turn   *record          // read already, but of the next trajectory
	read   int              // trajectories so far
	begun  map[[16]byte]int // the hash of each trajectory_id, and the line that it is in first
	retold *retold          // turns whose prompt is not the tokens before it, if there are some
}

// Open opens the named files, whose trajectories follow each other in that order. A
// directory stands for the files in it, in the order of their names, and "-" for standard
// input. The format of each is known by its content; .gz and .zst files, which are known
// in the same way, are decompressed while they are read.
//
// Open checks that all files are there, and Next opens each when its turn comes. An error
// about a file begins with its name, and with the line if the file has lines.
func (opt Options) Open(names ...string) (*Source, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	files, warnings, err := Files(names...)
	if err != nil {
		return nil, err
	}
	s := &Source{names: shownName(files[0]), files: files, c: newCompleter(opt, len(files) > 1, warnings)}
	if len(files) > 1 {
		s.names += fmt.Sprintf(" and %d more", len(files)-1)
	}
	return s, nil
}

// check returns an *InputError about the first option that is wrong.
func (opt Options) check() error {
	for _, n := range [...]struct {
		name  string
		value int
	}{{"GroupSize", opt.GroupSize}, {"Vocab", opt.Vocab}} {
		if n.value < 0 || n.value > math.MaxInt32 {
			return &reweight.InputError{Arg: n.name, Index: -1,
				Problem: fmt.Sprintf("is %d, want 0 to %d", n.value, math.MaxInt32)}
		}
	}
	switch {
	case len(opt.ActionOpen) != 0 && len(opt.ActionClose) == 0:
		return &reweight.InputError{Arg: "ActionClose", Index: -1,
			Problem: "has no token ids, but ActionOpen has some: give both tags"}
	case len(opt.ActionOpen) == 0 && len(opt.ActionClose) != 0:
		return &reweight.InputError{Arg: "ActionOpen", Index: -1,
			Problem: "has no token ids, but ActionClose has some: give both tags"}
	case opt.TagsAsActions && !opt.hasTags():
		return &reweight.InputError{Arg: "TagsAsActions", Index: -1, Problem: "is true, but there are no tags"}
	}
	if err := checkTags(opt.ActionTags); err != nil {
		return &reweight.InputError{Arg: "ActionTags", Index: -1, Problem: err.Error()}
	}
	return nil
}

// A Trajectory is one trajectory of a source: a batch of one, whose spans are numbered
// from 0, and whose only group id is the number of its group in the source, in the order
// in which groups appear.
type Trajectory struct {
	reweight.Batch

	// Group is equal for the trajectories that share a group, whichever files they are
	// in. It is the group's id as the source has it, or made of the prompt.
	Group string

	// LocalGroup says that Group was made by counting (see Options.GroupSize). Such a
	// group has trajectories of one file only, which follow each other there, and files
	// that are opened elsewhere can have groups of the same name.
	LocalGroup bool

	// Texts are the texts of the tokens, or nil if the source does not give them.
	Texts []string

	// File and Line say where the trajectory begins. File is a name as Open was given it,
	// or the path of a file in a directory. Line counts from 1, and is 0 in a file without
	// lines.
	File string
	Line int
}

// Next returns the next trajectory, or io.EOF after the last. Its slices are the
// caller's, except that those of a safetensors file alias the file (see OpenFile) until
// the source is closed, and that Logprobs, OldLogprobs and RolloutLogprobs can be one
// slice. After an error, every further call returns it.
func (s *Source) Next() (*Trajectory, error) {
	var t *Trajectory
	if s.err == nil {
		t, s.err = s.next()
	}
	if s.err != nil {
		return nil, s.err
	}
	return t, nil
}

func (s *Source) next() (*Trajectory, error) {
	for {
		if s.input == nil {
			if len(s.files) == 0 {
				return nil, io.EOF
			}
			if err := s.open(); err != nil {
				return nil, err
			}
			continue
		}
		var t *Trajectory
		err := guard(s.mapped, func() (err error) {
			t, err = s.c.next(s.input)
			return err
		})
		if err != io.EOF {
			return t, err
		}
		if err := s.input.close(); err != nil {
			return nil, err
		}
		s.input = nil
	}
}

// open opens the next file.
func (s *Source) open() error {
	name := s.files[0]
	s.files, s.c.file = s.files[1:], name
	stream, err := openStream(name)
	if err != nil {
		return inContext(shownName(name), err)
	}
	if s.input, err = s.c.start(stream, name); err != nil {
		return err
	}
	s.c.words = s.c.opt.Vocabulary
	if b, ok := s.input.reader.(*batchReader); ok {
		s.mapped = append(s.mapped, b.file)
		text := b.file.metadata[vocabularyKey]
		s.c.addVocabulary(text)
		if s.c.words == nil && s.c.opt.hasTexts() && text != "" {
			s.c.words = ListedVocabulary(text)
		}
	}
	return nil
}

// start finds out what the stream is, and begins to read it.
func (c *completer) start(stream *stream, name string) (*input, error) {
	in := &input{name: name, stream: stream}
	format, err := detect(stream, name)
	if err == nil {
		in.reader, err = format.open(stream, shownName(name), &c.opt)
	}
	if err != nil {
		stream.close() // its error would hide err
		return nil, err
	}
	c.report.Files++
	if format.name != "" && !slices.Contains(c.report.Formats, format.name) {
		c.report.Formats = append(c.report.Formats, format.name)
	}
	return in, nil
}

// close closes the file, but not the mapping of one.
func (in *input) close() error {
	var err error
	if c, ok := in.reader.(io.Closer); ok {
		err = c.Close()
	}
	return cmp.Or(err, inContext(shownName(in.name), in.stream.close()))
}

// Batch returns the trajectories that Next has not returned yet as one batch. If the
// source is one safetensors or npz file of which Next has returned nothing, the arrays that
// the file has are not copied, and its group ids stay as they are (see File.Batch), unless
// the options say otherwise. Else all arrays are copied, which may take at most 4 GiB.
func (s *Source) Batch() (*reweight.Batch, error) {
	if s.err != nil && s.err != io.EOF {
		return nil, s.err
	}
	given := new(reweight.Batch)
	if s.input == nil && len(s.files) == 1 && s.c.report.Files == 0 {
		if err := s.open(); err != nil {
			s.err = err
			return nil, err
		}
		if r, ok := s.input.reader.(*batchReader); ok {
			*given = *r.batch
			if s.c.opt.GroupSize > 0 {
				given.GroupIDs = nil
			}
			if s.c.opt.hasTags() {
				given.Role = nil
			}
		}
	}
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	if err := s.collect(b, given, maxBatch); err != nil {
		return nil, err
	}
	switch {
	case b.Tokens() != 0:
		return b, nil
	case s.c.report.Tokens != 0:
		return nil, fmt.Errorf("%s: no trajectories are left", s.names)
	}
	return nil, fmt.Errorf("%s: no tokens", s.names)
}

// maxBatch bounds the memory of the arrays that are copied for a batch, in bytes.
const maxBatch = min(4<<30, math.MaxInt/2)

// collect makes b the batch of the trajectories that are left. The arrays that given has
// are those of all these trajectories, and are taken from there. The others may take room
// bytes.
func (s *Source) collect(b, given *reweight.Batch, room int64) error {
	spans, tokens, size := int32(0), int64(0), int64(0)
	for {
		t, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		tokens += int64(t.Tokens())
		t.SeqOffsets = []int64{tokens}
		from, none := t.Arrays(), new(reweight.Batch).Arrays()
		for i, a := range given.Arrays() {
			if a.Len() != 0 {
				valueOf(from[i]).Set(valueOf(none[i]))
			}
		}
		if size += sizeOf(&t.Batch); size > room {
			s.err = fmt.Errorf("%s: with this trajectory the arrays of the batch take more than %d bytes: read fewer files at a time", Place(t.File, t.Line, s.input.read-1), room)
			return s.err
		}
		first := len(b.SpanIDs)
		err = guard(s.mapped, func() error { appendArrays(b, &t.Batch); return nil })
		if err != nil {
			s.err = err
			return err
		}
		renumberSpans(b.SpanIDs[first:], spans)
		spans = max(spans, countSpans(b.SpanIDs[first:]))
	}
	to := b.Arrays()
	for i, a := range given.Arrays() {
		if a.Len() != 0 {
			valueOf(to[i]).Set(valueOf(a))
		}
	}
	return nil
}

// Guard calls do, which reads slices of trajectories or of a batch of s. See File.Guard.
func (s *Source) Guard(do func() error) error { return guard(s.mapped, do) }

// Close closes the files. Slices that alias one are then invalid. Calls after the first
// do nothing.
func (s *Source) Close() error {
	var err error
	if s.input != nil {
		err = s.input.close()
	}
	for _, f := range s.mapped {
		err = cmp.Or(err, f.Close())
	}
	s.input, s.mapped, s.files, s.err = nil, nil, nil, cmp.Or(s.err, fmt.Errorf("rollout: %w", os.ErrClosed))
	return err
}

// Options returns the options that s was opened with.
func (s *Source) Options() Options { return s.c.opt }

// Report says what was found in the trajectories that were read so far.
func (s *Source) Report() Report { return s.c.result() }

// A Report says what was found in files, and what was made of it.
type Report struct {
	Formats      []string // names, in the order in which they were met: "NeMo-RL train_data"
	Files        int
	Trajectories int
	Tokens       int
	Groups       int
	Arrays       []Origin          // of the arrays of the trajectories but seq_offsets, in the order of Batch.Arrays
	Entropy      map[string]Origin // of each file whose entropies were estimated, by Trajectory.File
	Dropped      []string          // fields that no array takes, sorted
	Texts        bool              // trajectories have the texts of tokens, which no array has
	Warnings     []string          // whole sentences, each once

	// Vocabulary is a list of the texts of all tokens, as JSON, which safetensors files
	// can have in their metadata under the key vocab. It is empty if no file has it, or
	// if two have different ones.
	Vocabulary string
}

// Metadata returns the metadata for a safetensors file of the trajectories: what says
// which arrays are estimates, so that a Source that reads the file reports it again, and
// the vocabulary.
func (r Report) Metadata() map[string]string {
	m := make(map[string]string)
	if r.Vocabulary != "" {
		m[vocabularyKey] = r.Vocabulary
	}
	for _, o := range r.Arrays {
		if o.Kind == Estimated {
			m[o.Name] = estimatedFrom + o.From
			m[o.Name+widthSuffix] = strconv.FormatFloat(o.Width, 'g', -1, 64)
		}
	}
	return m
}

// An Origin says where an array comes from.
type Origin struct {
	Name string // of the array, in files: "entropy"
	Kind Kind
	From string // what it was derived or estimated from: "mask", "prompt", "top 20 log-probabilities"

	// Width is the mean over the response tokens of the difference between the bounds
	// of an estimated array, in nats; infinite for an estimate that has no bounds, and 0
	// for arrays that are not estimates.
	Width float64
}

// A Kind says how an array of a source came to be.
type Kind uint8

const (
	Given     Kind = iota // as it stands in the file
	Derived               // computed without a loss
	Estimated             // computed from less than what would determine it
)
