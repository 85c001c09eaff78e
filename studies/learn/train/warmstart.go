package train

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"

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
	forAudit
)

// Starts makes the warm starts that runs begin with, each once.
type Starts struct {
	Settings Settings
	made     sync.Map // a func() (*policy.Policy, error) for each Run of which WarmStart makes another
}

// For returns the start of a run, which others may share. The seeds take the warm starts
// of a game and kind of reasoning in turn.
func (s *Starts) For(run Run) (*policy.Policy, error) {
	key := Run{Game: run.Game, Seed: run.Seed % s.Settings.Starts, Fluent: run.Fluent, Errors: run.Errors}
	if arms[run.Arm].start {
		key.Arm = run.Arm
	}
	once := sync.OnceValues(func() (*policy.Policy, error) { return s.Settings.WarmStart(key) })
	start, _ := s.made.LoadOrStore(key, once)
	return start.(func() (*policy.Policy, error))() // a second run that needs it waits for the first one
}

// WarmStart returns a policy that imitates noisy play of a game. In a share of
// the turns, the demonstrator makes a mistake: its answer is drawn at random, and
// may be the best one by luck. A share of these are mistakes of its reasoning, which
// leads to that answer, and the others are slips: the reasoning leads to the best answer.
// Of the run, Arm, Game, Fluent, Errors and, for the number of the start, Seed count.
func (s Settings) WarmStart(run Run) (*policy.Policy, error) {
	s = s.of(run)
	l := newLearner(policy.New(len(env.Words), s.Hidden, uint64(run.Seed)))
	// -log pi of what the demonstrator says, and the squared error of the outcome.
	opt := reweight.DefaultPG
	mistakes := cmp.Or(s.Mistakes, env.Games[run.Game].Mistakes)
	rules := s.rules(run)
	steps := s.Demonstrations / s.Batch
	for step := range steps {
		var episodes []*episode
		for _, begin := range starts(s.Batch, 1, forDemonstrations, uint64(run.Seed), uint64(step)) {
			e := rules.begin(begin)
			random := rand.New(rand.NewPCG(begin.draws, 0))
			for !e.done {
				e.demonstrate(random, mistakes, run.Errors)
			}
			episodes = append(episodes, e)
		}
		b := pack(episodes)
		for i, reward := range b.Rewards {
			n := int(b.SeqOffsets[i+1] - b.SeqOffsets[i])
			b.Returns = append(b.Returns, slices.Repeat([]float32{reward}, n)...)
		}
		// The gradient of -log pi does not depend on OldLogprobs, and where Values are
		// Returns, the clipped term of the critic is never the larger one.
		b.Values = b.Returns
		b.Advantages = slices.Repeat([]float32{1}, b.Tokens())
		b.OldLogprobs = b.Advantages
		if _, err := l.differentiate(b, nil, opt); err != nil {
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
	response := fluent(random, e.fluent)
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

// fluent returns n words that mean nothing but follow from each other: a chain of the second
// order over the fillers, in which one of three words follows, with the chances 0.6, 0.25 and 0.15.
// Which three they are depends on the two words before, 0.9 nats a word.
func fluent(random *rand.Rand, n int) (words []int32) {
	if n == 0 {
		return nil
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
		words = append(words, int32(len(env.Words)-1)-int32(next))
		a, b = b, next
	}
	return words
}
