package rollout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// A nemoSample is a line of the file train_data_step{N}.jsonl that NeMo-RL logs: a batch
// of one sample, so that each value is within a list of one. Lists of tokens go on after
// the sample's, which are input_lengths.
type nemoSample struct {
	record
	added

	length     int64
	sampleMask float32
	rewards    []float32 // of the field rewards
	filtered   []float32 // of filtered_rewards
}

func isNeMoRL(f fields) bool { return f.has("token_ids", "token_loss_mask", "input_lengths") }

// parseNeMoRL reads a line of NeMo-RL's train data.
func parseNeMoRL(s *jsonscan.Scanner, line int) ([]*record, error) {
	n := &nemoSample{record: record{line: line}, length: -1, sampleMask: 1}
	if err := s.Object(func(name []byte) error { return n.field(s, name) }); err != nil {
		return nil, err
	}
	if err := n.cut(); err != nil {
		return nil, err
	}
	if err := n.setRewards(); err != nil {
		return nil, err
	}
	n.setLogprobs()
	n.promptIDs = promptOf(n.TokenIDs, n.mask)
	n.maskSample()
	records := []*record{&n.record}
	return records, n.give(records)
}

func (n *nemoSample) field(s *jsonscan.Scanner, name []byte) error {
	floats := (*jsonscan.Scanner).Floats
	switch string(name) {
	case "input_lengths":
		return only(s, &n.length, (*jsonscan.Scanner).Int64)
	case "token_ids":
		return only(s, &n.TokenIDs, (*jsonscan.Scanner).Int32s)
	case "token_loss_mask":
		return only(s, &n.mask, (*jsonscan.Scanner).Bools)
	case "sample_loss_mask":
		return only(s, &n.sampleMask, (*jsonscan.Scanner).Float)
	case "advantages":
		return only(s, &n.Advantages, floats)
	case "prev_logprobs":
		return only(s, &n.OldLogprobs, floats)
	case "generation_logprobs":
		return only(s, &n.RolloutLogprobs, floats)
	case "rewards":
		return optional(s, &n.rewards, floats)
	case "filtered_rewards":
		return optional(s, &n.filtered, floats)
	}
	known, err := n.added.read(s, name)
	if !known {
		n.dropped = append(n.dropped, string(name))
	}
	return err
}

// only reads the element of a list that has one, or null.
func only[T any](s *jsonscan.Scanner, dst *T, read func(*jsonscan.Scanner) (T, error)) error {
	return ifGiven(s, func() error {
		n := 0
		err := s.Array(func(int) (err error) {
			if n++; n == 1 {
				*dst, err = read(s)
			}
			return err
		})
		if err == nil && n != 1 {
			err = s.Errorf("has %d elements, want 1, as in a batch of one sample", n)
		}
		return err
	})
}

// cut takes the padding from the lists of tokens.
func (n *nemoSample) cut() error {
	if n.length < 0 {
		return fmt.Errorf("input_lengths is missing or below 0")
	}
	return cmp.Or(
		cutTo(n.length, "token_ids", &n.TokenIDs),
		cutTo(n.length, "token_loss_mask", &n.mask),
		cutTo(n.length, "advantages", &n.Advantages),
		cutTo(n.length, "prev_logprobs", &n.OldLogprobs),
		cutTo(n.length, "generation_logprobs", &n.RolloutLogprobs),
	)
}

// cutTo leaves the first n elements, or none of an empty list.
func cutTo[E any](n int64, name string, list *[]E) error {
	switch got := int64(len(*list)); {
	case got == 0:
		return nil
	case got < n:
		return fmt.Errorf("%s[0] has %d elements, want at least the %d of input_lengths", name, got, n)
	}
	*list = (*list)[:n:n]
	return nil
}

// setRewards chooses the sample's reward. Where NeMo-RL drops samples before it trains,
// rewards are of all samples, in an order of their own.
func (n *nemoSample) setRewards() error {
	name := "rewards"
	if n.Rewards = n.rewards; n.filtered != nil {
		n.dropped = append(n.dropped, name)
		name, n.Rewards = "filtered_rewards", n.filtered
	}
	if n.added.rewards != nil && n.Rewards != nil { // somebody has added another
		n.dropped = append(n.dropped, name)
	}
	if len(n.Rewards) > 1 {
		return fmt.Errorf("%s has %d elements, want 1, as in a batch of one sample", name, len(n.Rewards))
	}
	return nil
}

// setLogprobs chooses prev_logprobs, which the trainer computed before its first update,
// as the old policy's. They are all 0 where the trainer was told not to compute them:
// generation_logprobs, from the engine that sampled, then stand for them as well.
func (n *nemoSample) setLogprobs() {
	absent := len(n.OldLogprobs) == 0
	placeholders := !absent && !slices.ContainsFunc(n.OldLogprobs, func(l float32) bool { return l != 0 }) &&
		slices.ContainsFunc(n.RolloutLogprobs, func(l float32) bool { return l != 0 })
	if !absent && !placeholders {
		return
	}
	n.OldLogprobs = n.RolloutLogprobs
	if placeholders {
		n.dropped = append(n.dropped, "prev_logprobs")
		n.warnings = append(n.warnings, "prev_logprobs is 0 everywhere in some samples, as NeMo-RL writes it with force_on_policy_ratio: their old_logprobs are generation_logprobs.")
	}
}

// maskSample makes prompt of the whole sample if it is not to count. NeMo-RL multiplies
// the mask of the tokens by the mask of the sample, and leaves the reward in the group.
func (n *nemoSample) maskSample() {
	switch n.sampleMask {
	case 1:
	case 0:
		clear(n.mask)
		n.warnings = append(n.warnings, "sample_loss_mask is 0 for some samples: none of their tokens count, as in NeMo-RL, but their rewards do in their groups.")
	default:
		n.warnings = append(n.warnings, "sample_loss_mask is neither 0 nor 1 for some samples: they count as those with 1.")
	}
}

// promptOf returns the ids before the first response token, which are not nil if ids is
// not.
func promptOf(ids []int32, mask []bool) []int32 {
	n := slices.Index(mask, true)
	if n < 0 || n > len(ids) {
		n = len(ids)
	}
	return ids[:n:n]
}
