package rollout

import "github.com/seed621a2839/reweight"

// A record is one trajectory, or one turn of it, as a source gives it. What reads a
// format fills in what the format has and leaves the rest alone; complete makes a
// Trajectory of it.
type record struct {
	// The arrays of the trajectory, as far as the source has them, but SeqOffsets and
	// GroupIDs.
	reweight.Batch

	mask     []bool   // response tokens, if Role is not set
	texts    []string // of the tokens, or nil
	thought  int      // the tokens before this one are none of an action
	top      [][]candidate
	topField string // the field that has top, in the source

	// What to group by, if group is empty: any text that is equal for equal prompts, or if
	// that is empty, the ids of the prompt. Where they are nil, the prompt is the tokens
	// before the first response token.
	prompt    string
	promptIDs []int32

	group      string // the id of the group, as the source has it, or empty
	trajectory string // turns in a row with the same text here are one trajectory; empty: a trajectory of its own
	line       int    // where it begins, from 1

	origins  []Origin // of arrays that are derived or estimated; the others are given
	dropped  []string // fields that have no place here
	unknown  bool     // these are none that the format has: they may be misspelt
	warnings []string // whole sentences
}

// A candidate is a token at a position whose log-probability is known.
type candidate struct {
	logprob float32 // above missingLogprob, at most 0
	extra   bool    // it may be less likely than tokens that are not known: the sampled one
}

// A reader reads the records of one file. next returns io.EOF after the last. Its other
// errors begin with the file's name, and with the line if the file has lines. A reader
// that holds more than memory is an io.Closer too.
type reader interface {
	next() (*record, error)
}
