package train

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
)

// Schemes are those that can be compared. The first one is what the others are
// compared with. The study compares the first four; those after them are made for
// GRPO. Each has the constants of its paper. A new one goes to the end; package report
// has a style for each in the same order, which says how it is named and drawn.
var Schemes = named("uniform", "actfocus", "aem", "actfocus+aem", "empg", "gtpo", "entropy-mask", "gspo", "cispo", "sapo", "dppo-tv")

// named returns the schemes with these names, which results on disk have too.
func named(names ...string) (all []scheme.Scheme) {
	for _, name := range names {
		s := scheme.MustParse(name)
		s.Name = name
		all = append(all, s)
	}
	return all
}

// credit gives the batch its advantages, and returns the weights of the tokens in the
// loss, nil if all are 1. PPO has the advantages of GAE, and returns that its critic
// learns, unless the scheme makes its own advantages.
func (t *trainer) credit(b *reweight.Batch) (weights []float32, err error) {
	now := *b
	now.Logprobs = b.OldLogprobs // the policy has just played
	if t.algorithm == "ppo" {
		if err := t.estimate(b); err != nil {
			return nil, err
		}
		if now.Advantages = b.Advantages; !t.scheme.OwnAdvantages() {
			now.Rewards = nil // in whose place the advantages are
		}
	}
	step, err := t.scheme.NewStep(&t.ws, &now)
	if err != nil {
		return nil, err
	}
	err = step.Credit()
	b.Advantages = step.Advantages
	return step.Weights, err
}

// estimate sets the advantages and the returns of GAE.
func (t *trainer) estimate(b *reweight.Batch) error {
	b.Advantages, b.Returns = resized(b.Advantages, b.Tokens()), resized(b.Returns, b.Tokens())
	t.rewards = resized(t.rewards, b.Tokens())
	clear(t.rewards)
	for i, reward := range b.Rewards {
		t.rewards[b.SeqOffsets[i+1]-1] = reward // An episode ends with a response.
	}
	if err := t.ws.GAE(b.Advantages, b.Returns, t.rewards, b, reweight.GAEOptions{Gamma: 1, Lambda: t.Lambda}); err != nil {
		return err
	}
	return t.ws.Whiten(b.Advantages, b.Advantages, b.Role)
}
