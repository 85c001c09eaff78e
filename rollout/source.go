package rollout

import (
	"errors"
	"io"

	"github.com/seed621a2839/reweight"
)

// Options tell Open what files do not say themselves. The zero value is for files that
// say it all.
type Options struct {
	// ActionOpen and ActionClose are the token ids of the tags around an action, each a
	// sequence of one or more. ActionTags are the texts of the tags, for sources that give
	// the text of each token. Without tags a response token whose source does not say its
	// role is a reasoning token.
	ActionOpen, ActionClose []int32
	ActionTags              [2]string

	// GroupSize is the number of trajectories in a row that make a group. With 0 the
	// source's ids make the groups, or where there are none, equal prompts.
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
	opt   Options
	names []string
}

// Open opens the named files, whose trajectories follow each other in that order. A
// directory stands for the files in it, in the order of their names, and "-" for standard
// input. The format of each is known by its content and by the extension of its name;
// .gz and .zst files are decompressed while they are read.
func (opt Options) Open(names ...string) (*Source, error) {
	return nil, errors.ErrUnsupported
}

// A Trajectory is one trajectory of a source: a batch of one, whose spans are numbered
// from 0, and whose only group id is the number of its group in the source, in the order
// in which groups appear.
type Trajectory struct {
	reweight.Batch

	// Group is equal for the trajectories that share a group, whichever files they are
	// in. It is the group's id as the source has it, or made of the prompt.
	Group string

	// Texts are the texts of the tokens, or nil if the source does not give them.
	Texts []string

	// File and Line say where the trajectory begins. Line counts from 1, and is 0 in a
	// file without lines.
	File string
	Line int
}

// Next returns the next trajectory, or io.EOF after the last. Its slices are the
// caller's, except that those of a safetensors file alias the file (see OpenFile). After
// an error, every further call returns it.
func (s *Source) Next() (*Trajectory, error) { return nil, io.EOF }

// Batch returns the trajectories that Next has not returned yet as one batch. If the
// source is one safetensors file, the arrays alias it (see File.Batch).
func (s *Source) Batch() (*reweight.Batch, error) { return nil, errors.ErrUnsupported }

// Guard calls do, which reads slices of trajectories or batches of s. See File.Guard.
func (s *Source) Guard(do func() error) error { return do() }

// Close closes the files.
func (s *Source) Close() error { return nil }

// Report says what was found in the trajectories that were read so far.
func (s *Source) Report() Report { return Report{} }

// A Report says what was found in files, and what was made of it.
type Report struct {
	Formats      []string // names, in the order in which they were met: "NeMo-RL train_data"
	Files        int
	Trajectories int
	Tokens       int
	Groups       int
	Arrays       []Origin // of the arrays that the trajectories have, in the order of reweight.Batch.Arrays
	Dropped      []string // fields that no array takes, as the files spell them, sorted
	Warnings     []string // whole sentences, each once
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
