package train

import (
	"cmp"
	"math/rand/v2"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// Purposes of chance: each has numbers of its own.
const (
	forDemonstrations uint64 = iota + 1
	forTraining
	forEvaluation
	forDecided
)

// WarmStart returns a policy that imitates noisy play of a game. In a share of
// the turns, the demonstrator makes a mistake: its answer is drawn at random, and
// may be the best one by luck. A share of these are mistakes of its reasoning, which
// leads to that answer, and the others are slips: the reasoning leads to the best answer.
// Of the run, Arm, Game, Fluent, Errors and, for the number of the start, Seed count.
func (s Settings) WarmStart(run Run) (*policy.Policy, error) {
	s, err := s.of(run)
	if err != nil {
		return nil, err
	}
	number := run.Seed
	l := learner{agent: policy.New(len(env.Words), s.Hidden, uint64(number))}
	l.ws.Workers = 1
	l.gradient = l.agent.Zeros()
	// -log pi of what the demonstrator says, and the squared error of the outcome.
	imitate := objective{loss: reweight.DefaultLoss, critic: reweight.DefaultValueLoss, criticCoef: s.CriticCoef}
	imitate.loss.Policy = reweight.PolicyPG
	steps := s.Demonstrations / s.Batch
	t := table{rules: s.rules(run)}
	t.penalty = 0
	game := env.Games[run.Game]
	mistakes := cmp.Or(s.Mistakes, game.Mistakes)
	var outcomes []float32
	for step := range steps {
		begin := starts(s.Batch, 1, forDemonstrations, uint64(number), uint64(step))
		t.seat(game, begin)
		for i, e := range t.episodes {
			random := rand.New(rand.NewPCG(begin[i].draws, 0))
			for !e.done {
				e.demonstrate(random, mistakes, run.Errors)
			}
		}
		t.pack(begin)
		b := &t.batch
		n := b.Tokens()
		b.Advantages = resized(b.Advantages, n)
		outcomes = resized(outcomes, n)
		for i, reward := range b.Rewards {
			for token := b.SeqOffsets[i]; token < b.SeqOffsets[i+1]; token++ {
				b.Advantages[token] = 1
				outcomes[token] = reward
			}
		}
		// The gradient of -log pi does not depend on OldLogprobs, and where Values are
		// Returns, the clipped term of the critic is never the larger one.
		b.OldLogprobs, b.Values, b.Returns = b.Advantages, outcomes, outcomes
		if _, _, err := l.differentiate(b, nil, imitate); err != nil {
			return nil, err
		}
		l.update(s.WarmRate * (1 - 0.9*float64(step)/float64(steps)))
	}
	return l.agent, nil
}

// demonstrate says a whole response. Without mistakes of the reasoning there is none, but for the fluent
// words.
func (e *episode) demonstrate(random *rand.Rand, mistakes, errors float64) {
	answers, answer := e.game.Answers(), e.game.Best()
	plan := answer
	if random.Float64() < mistakes {
		answer = random.IntN(len(answers))
		if random.Float64() < errors {
			plan = answer
		}
	}
	response := fluent(nil, random, e.fluent)
	if errors > 0 {
		response = append(response, e.game.Reason(plan)...)
	}
	response = append(response, env.AnswerStart)
	response = append(response, answers[answer]...)
	response = append(response, env.AnswerEnd)
	for _, token := range response {
		e.say(token)
	}
}

// fluent appends n words that mean nothing but follow from each other: a chain of the second
// order over the fillers, in which one of three words follows, with the chances 0.6, 0.25 and 0.15.
// Which three they are depends on the two words before, 0.9 nats a word.
func fluent(dst []int32, random *rand.Rand, n int) []int32 {
	if n == 0 {
		return dst
	}
	a, b := uint64(random.IntN(env.Fillers)), uint64(random.IntN(env.Fillers))
	for range n {
		which := uint64(0)
		switch u := random.Float64(); {
		case u >= 0.85:
			which = 2
		case u >= 0.6:
			which = 1
		}
		successors := rand.New(rand.NewPCG(a*env.Fillers+b, 0))
		var next uint64
		for range which + 1 {
			next = successors.Uint64N(env.Fillers)
		}
		dst = append(dst, int32(len(env.Words)-1)-int32(next))
		a, b = b, next
	}
	return dst
}
