package train

import (
	"math/rand/v2"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// The longest response without fluent words, and the longest answer in it, in tokens that
// the agent says. A response that is longer is cut off, and its turn is lost.
const (
	longestResponse = 12
	longestAnswer   = 4
)

// Rules say how episodes are played, and what their tokens are.
type rules struct {
	newGame    func() env.Environment
	fluent     int           // words of a response that mean nothing, after which the observation is shown once more
	formatRole reweight.Role // of tags, and of responses without an answer between two
	penalty    float32       // taken from the reward of an episode with such a response
}

// rules are those of the run's episodes. The observation is shown again because a policy of
// this width forgets it over a long reasoning.
func (s Settings) rules(run Run) rules {
	r := rules{env.Games[run.Game].New, run.Fluent, reweight.RoleReasoning, float32(s.Penalty)}
	if s.FormatActs {
		r.formatRole = reweight.RoleAction
	}
	return r
}

// A start says how an episode begins and what chance does in it: equal starts,
// equal episodes, as long as the policy is the same.
type start struct {
	group int32
	state uint64 // the state that the game begins in, the same for a group
	luck  uint64 // what chance does in the game
	draws uint64 // what chance does in drawing tokens
	again uint64 // what it does from the first <answer> on, if it is not 0
}

// starts returns the starts of groups of episodes. The numbers decide them, and
// are different for training and for what measures it.
func starts(groups, size int, purpose, seed, iteration uint64) []start {
	random := rand.New(rand.NewPCG(purpose<<32|seed, iteration))
	var all []start
	for group := range groups {
		state := random.Uint64()
		for range size {
			all = append(all, start{int32(group), state, random.Uint64(), random.Uint64(), 0})
		}
	}
	return all
}

// An episode is one game and what was said in it.
type episode struct {
	rules
	start
	game    env.Environment
	tokens  []int32
	role    []reweight.Role
	turn    []int32 // number of each token's response; -1 in observations
	turns   int32   // responses so far
	done    bool
	success bool

	malformed int32 // responses without an answer between two tags

	reply  int // where the present response begins
	said   int // words of it
	answer int // where its answer begins, or 0
}

// begin starts a game and shows the first observation.
func (r rules) begin(s start) *episode {
	e := &episode{rules: r, start: s, game: r.newGame()}
	e.game.Reset(s.state, s.luck)
	e.observe()
	return e
}

// observe shows the agent an observation, after which a response begins.
func (e *episode) observe() {
	e.show(append(e.game.Observe(), env.Begin))
	e.reply, e.said, e.answer = len(e.tokens), 0, 0
}

// show appends tokens that are not the agent's.
func (e *episode) show(tokens []int32) {
	for _, token := range tokens {
		e.tokens = append(e.tokens, token)
		e.role = append(e.role, reweight.RoleMasked)
		e.turn = append(e.turn, -1)
	}
}

// say appends a token of the agent. Where the response ends with it, the answer
// is carried out and the next observation follows, unless the episode is over.
func (e *episode) say(token int32) {
	e.tokens = append(e.tokens, token)
	e.turn = append(e.turn, e.turns)
	e.said++
	role := reweight.RoleReasoning
	switch {
	case token == env.AnswerEnd:
		role = e.formatRole
	case e.answer > 0:
		role = reweight.RoleAction
	case token == env.AnswerStart:
		role = e.formatRole
		e.answer = len(e.tokens)
	}
	e.role = append(e.role, role)
	if e.said == e.fluent && e.answer == 0 && token != env.AnswerEnd {
		e.show(e.game.Observe())
	}

	var answer []int32
	switch {
	case token == env.AnswerEnd:
		if e.answer > 0 {
			answer = e.tokens[e.answer : len(e.tokens)-1]
		}
	case e.said == longestResponse+e.fluent, e.answer > 0 && len(e.tokens)-e.answer > longestAnswer:
	default:
		return
	}
	if len(answer) == 0 { // only what is between two tags is an action
		e.malformed++
		for t := e.reply; t < len(e.role); t++ {
			if e.role[t] != reweight.RoleMasked {
				e.role[t] = e.formatRole
			}
		}
	}
	e.turns++
	e.done, e.success = e.game.Act(env.Find(e.game, answer))
	if !e.done {
		e.observe()
	}
}

// play lets the policy play an episode from each start.
func (r rules) play(agent *policy.Policy, starts []start) []*episode {
	var episodes []*episode
	for _, s := range starts {
		e := r.begin(s)
		chance := rand.NewPCG(s.draws, 0)
		random := rand.New(chance)
		state, read := make([]float32, agent.Hidden), 0
		for !e.done {
			for ; read < len(e.tokens); read++ {
				agent.Step(state, e.tokens[read])
			}
			token := policy.Sample(agent.Logits(state, []int{0}), random.Float64())
			if s.again != 0 && token == env.AnswerStart && e.turns == 0 && e.answer == 0 {
				chance.Seed(s.again, 0)
			}
			e.say(token)
		}
		episodes = append(episodes, e)
	}
	return episodes
}

// pack makes a batch of the episodes, with the arrays that do not depend on a policy.
func pack(episodes []*episode) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	spans := int32(0)
	for _, e := range episodes {
		for _, turn := range e.turn {
			span := int32(-1)
			if turn >= 0 {
				span = spans + turn
			}
			b.SpanIDs = append(b.SpanIDs, span)
		}
		spans += e.turns
		b.TokenIDs = append(b.TokenIDs, e.tokens...)
		b.Role = append(b.Role, e.role...)
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.TokenIDs)))
		b.GroupIDs = append(b.GroupIDs, e.group)
		reward := float32(0)
		if e.success {
			reward = 1
		}
		if e.malformed > 0 {
			reward -= e.penalty
		}
		b.Rewards = append(b.Rewards, reward)
	}
	return b
}

// success returns the share of the episodes that ended in success.
func success(episodes []*episode) float64 {
	wins := 0
	for _, e := range episodes {
		if e.success {
			wins++
		}
	}
	return float64(wins) / float64(len(episodes))
}

// malformed returns the share of the episodes' responses that had no answer between two tags.
func malformed(episodes []*episode) float64 {
	var malformed, all int32
	for _, e := range episodes {
		malformed, all = malformed+e.malformed, all+e.turns
	}
	return float64(malformed) / float64(all)
}
