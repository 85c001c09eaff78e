package rollout

import (
	"fmt"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// A primeSequence is a line of the files token_exports/step_{N}/rank_{R}.jsonl that
// prime-rl writes with --enable-token-export: a sequence that its trainer has seen. null
// stands for a number that is not finite, or one that the trainer does not have.
type primeSequence struct {
	record
	added

	weights []float32 // rl_weights; NaN where they are null
}

func isPrimeRL(f fields) bool { return f.has("token_ids", "loss_mask", "inference_logprobs") }

// parsePrimeRL reads a line of prime-rl's token exports.
func parsePrimeRL(s *jsonscan.Scanner, line int) ([]*record, error) {
	p := &primeSequence{record: record{line: line}}
	if err := s.Object(func(name []byte) error { return p.field(s, name) }); err != nil {
		return nil, err
	}
	if p.mask == nil {
		return nil, fmt.Errorf("loss_mask is missing")
	}
	p.promptIDs = promptOf(p.TokenIDs, p.mask)
	if err := p.weigh(); err != nil {
		return nil, err
	}
	for _, list := range []struct {
		name    string
		numbers []float32
	}{
		{"advantages", p.Advantages}, {"inference_logprobs", p.OldLogprobs}, {"trainer_logprobs", p.Logprobs}, {"entropy", p.Entropy},
	} {
		if len(list.numbers) != 0 && len(list.numbers) != len(p.mask) {
			return nil, fmt.Errorf("%s has %d elements, but loss_mask %d", list.name, len(list.numbers), len(p.mask))
		}
		for t, x := range list.numbers {
			if p.mask[t] && x != x {
				return nil, fmt.Errorf("%s[%d] is null at a token that counts: the trainer's number was not finite",
					list.name, t)
			}
		}
	}
	records := []*record{&p.record}
	return records, p.give(records)
}

func (p *primeSequence) field(s *jsonscan.Scanner, name []byte) (err error) {
	floats := (*jsonscan.Scanner).FloatsOrNull
	switch string(name) {
	case "token_ids":
		p.TokenIDs, err = s.Int32s()
		return err
	case "loss_mask":
		p.mask, err = s.Bools()
		return err
	case "advantages":
		return optional(s, &p.Advantages, floats)
	case "inference_logprobs":
		return optional(s, &p.OldLogprobs, floats)
	case "trainer_logprobs":
		return optional(s, &p.Logprobs, floats)
	case "entropy":
		return optional(s, &p.Entropy, floats)
	case "rl_weights":
		return optional(s, &p.weights, floats)
	}
	known, err := p.added.read(s, name)
	if !known {
		p.dropped = append(p.dropped, string(name))
	}
	return err
}

// weigh takes those tokens out of the mask that prime-rl leaves out of its policy
// gradient: some of the loss mask are there for another loss.
func (p *primeSequence) weigh() error {
	if p.weights == nil {
		return nil
	}
	if len(p.weights) != len(p.mask) {
		return fmt.Errorf("rl_weights has %d elements, but loss_mask %d", len(p.weights), len(p.mask))
	}
	out, other := false, false
	for t, w := range p.weights {
		if !p.mask[t] {
			continue
		}
		if w == 0 {
			p.mask[t], out = false, true
		}
		other = other || w == w && w != 0 && w != 1
	}
	if out {
		p.warnings = append(p.warnings, "rl_weights is 0 at some tokens of loss_mask: they do not count, as in prime-rl's policy gradient.")
	}
	if other {
		p.warnings = append(p.warnings, "rl_weights is neither 0 nor 1 at some tokens: the weights are not applied.")
	}
	return nil
}
