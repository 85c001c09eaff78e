package train

import (
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
)

// Schemes with options of their own, beside those of package scheme.
const (
	ActFocusWithoutBeta = "actfocus_beta0"     // all action tokens weigh 1
	ActFocusBySurprisal = "actfocus_surprisal" // as the adapters of trainers have it
	ActFocusAlpha0      = "actfocus_alpha0"    // reasoning weighs nothing
	ActFocusAlpha03     = "actfocus_alpha0.3"
)

// schemeNamed returns the scheme of a Run.
func schemeNamed(name string) (s scheme.Scheme, err error) {
	switch name {
	case ActFocusWithoutBeta:
		s = scheme.MustParse("actfocus")
		s.Options.ActFocus.Beta = 0
	case ActFocusBySurprisal:
		s = scheme.MustParse("actfocus")
		s.Options.ActFocus.Signal = reweight.SignalSurprisal
	case ActFocusAlpha0:
		s = scheme.MustParse("actfocus")
		s.Options.ActFocus.Alpha = 0
	case ActFocusAlpha03:
		s = scheme.MustParse("actfocus")
		s.Options.ActFocus.Alpha = 0.3
	default:
		return scheme.Parse(name)
	}
	s.Name = name
	return s, nil
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
