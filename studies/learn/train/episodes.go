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
	fluent     int     // words of a response that mean nothing
	echo       bool    // the observation is shown once more after the fluent words
	formatActs bool    // tags, and responses without an answer between two, are actions and not reasoning
	penalty    float32 // taken from the reward of an episode with such a response
}

// An episode is one game and what was said in it.
type episode struct {
	game    env.Environment
	tokens  []int32
	role    []reweight.Role
	turn    []int32 // number of each token's response; -1 in observations
	turns   int32   // responses so far
	done    bool
	success bool
	rules

	malformed int32 // responses without an answer between two tags

	reply  int // where the present response begins
	said   int // words of it
	answer int // where its answer begins, or 0
}

// begin starts a new game and shows the first observation.
func (e *episode) begin(start, luck uint64) {
	e.game.Reset(start, luck)
	*e = episode{game: e.game, rules: e.rules, tokens: e.tokens[:0], role: e.role[:0], turn: e.turn[:0]}
	e.observe()
}

// observe appends an observation, after which a response begins.
func (e *episode) observe() {
	e.show(env.Begin)
	e.reply, e.said, e.answer = len(e.tokens), 0, 0
}

// show appends an observation and what follows it.
func (e *episode) show(after ...int32) {
	e.tokens = append(append(e.tokens, e.game.Observe()...), after...)
	for len(e.role) < len(e.tokens) {
		e.role = append(e.role, reweight.RoleMasked)
		e.turn = append(e.turn, -1)
	}
}

// formatRole is that of tags, and of responses without an answer between two.
func (r rules) formatRole() reweight.Role {
	if r.formatActs {
		return reweight.RoleAction
	}
	return reweight.RoleReasoning
}

// say appends a token of the agent. Where the response ends with it, the answer
// is carried out and the next observation follows, unless the episode is over.
func (e *episode) say(token int32) {
	e.tokens = append(e.tokens, token)
	e.turn = append(e.turn, e.turns)
	e.said++
	role := reweight.RoleReasoning
	switch {
	case token == env.AnswerEnd, e.answer == 0 && token == env.AnswerStart:
		role = e.formatRole()
	case e.answer > 0:
		role = reweight.RoleAction
	}
	e.role = append(e.role, role)
	if e.answer == 0 && token == env.AnswerStart {
		e.answer = len(e.tokens)
	}
	if e.echo && e.said == e.fluent && e.answer == 0 && token != env.AnswerEnd {
		e.show()
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
				e.role[t] = e.formatRole()
			}
		}
	}
	e.turns++
	e.done, e.success = e.game.Act(env.Find(e.game, answer))
	if !e.done {
		e.observe()
	}
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

// A table seats the episodes of a batch. Its memory is used again by each batch.
type table struct {
	rules
	episodes []*episode
	batch    reweight.Batch
}

// seat begins an episode for each start.
func (t *table) seat(game env.Game, starts []start) {
	for len(t.episodes) < len(starts) {
		t.episodes = append(t.episodes, &episode{game: game.New()})
	}
	t.episodes = t.episodes[:len(starts)]
	for i, s := range starts {
		t.episodes[i].rules = t.rules
		t.episodes[i].begin(s.state, s.luck)
	}
}

// play lets the policy play an episode from each start, and packs them into t.batch.
func (t *table) play(agent *policy.Policy, game env.Game, starts []start) {
	t.seat(game, starts)
	for i, e := range t.episodes {
		chance := rand.NewPCG(starts[i].draws, 0)
		random := rand.New(chance)
		state, read := make([]float32, agent.Hidden), 0
		for !e.done {
			for ; read < len(e.tokens); read++ {
				agent.Step(state, e.tokens[read])
			}
			token := policy.Sample(agent.Logits(state, []int{0}), random.Float64())
			if starts[i].again != 0 && token == env.AnswerStart && e.turns == 0 && e.answer == 0 {
				chance.Seed(starts[i].again, 0)
			}
			e.say(token)
		}
	}
	t.pack(starts)
}

// pack makes t.batch of the episodes, with the arrays that do not depend on a
// policy.
func (t *table) pack(starts []start) {
	b := &t.batch
	b.TokenIDs, b.Role, b.SpanIDs = b.TokenIDs[:0], b.Role[:0], b.SpanIDs[:0]
	b.SeqOffsets, b.GroupIDs, b.Rewards = append(b.SeqOffsets[:0], 0), b.GroupIDs[:0], b.Rewards[:0]
	spans := int32(0)
	for i, e := range t.episodes {
		for j, role := range e.role {
			span := int32(-1)
			if role != reweight.RoleMasked {
				span = spans + e.turn[j]
			}
			b.SpanIDs = append(b.SpanIDs, span)
		}
		spans += e.turns
		b.TokenIDs = append(b.TokenIDs, e.tokens...)
		b.Role = append(b.Role, e.role...)
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.TokenIDs)))
		b.GroupIDs = append(b.GroupIDs, starts[i].group)
		reward := float32(0)
		if e.success {
			reward = 1
		}
		if e.malformed > 0 {
			reward -= e.penalty
		}
		b.Rewards = append(b.Rewards, reward)
	}
}

// success returns the share of the batch's episodes that ended in success.
func (t *table) success() float64 {
	wins := 0
	for _, e := range t.episodes {
		if e.success {
			wins++
		}
	}
	return float64(wins) / float64(len(t.episodes))
}

// malformed returns the share of the batch's responses that had no answer between two tags.
func (t *table) malformed() float64 {
	var malformed, all int32
	for _, e := range t.episodes {
		malformed, all = malformed+e.malformed, all+e.turns
	}
	return float64(malformed) / float64(all)
}

// resized returns a slice of n elements, in s's memory if it is large enough.
func resized[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n, n+n/2)
	}
	return s[:n]
}
