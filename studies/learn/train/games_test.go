package train

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/studies/learn/env"
)

// add lets a test's runs name a game.
func add(t *testing.T, name string, mistakes float64, begin func() env.Environment) {
	env.Games[name] = env.Game{New: begin, Mistakes: mistakes}
	t.Cleanup(func() { delete(env.Games, name) })
}

// A choice is a game of one turn in which 1 is best. A demonstration shows what was planned
// and what was answered.
type choice struct{}

func (choice) Reset(_, _ uint64)            {}
func (choice) Observe() []int32             { return sentence("want") }
func (choice) Answers() [][]int32           { return [][]int32{sentence("0"), sentence("1")} }
func (choice) Act(int) (done, success bool) { return true, false }
func (choice) Best() int                    { return 1 }
func (choice) Reason(answer int) (why []int32) {
	return sentence([]string{"to 0 here not", "to 1"}[answer])
}

// A bandit has seven arms, of which one pays most: the known optimum.
type bandit struct {
	choice
	luck *rand.Rand
}

var payoff = [7]float64{0.2, 0.5, 0.1, 0.9, 0.3, 0.6, 0.4}

const best = 3

func arm(i int) int32 { return env.Token("0") + int32(i) }

func newBandit() env.Environment { return new(bandit) }

func (b *bandit) Reset(_, luck uint64)      { b.luck = rand.New(rand.NewPCG(luck, 0)) }
func (b *bandit) Best() int                 { return best }
func (b *bandit) Reason(answer int) []int32 { return []int32{env.Token("to"), arm(answer)} }

func (b *bandit) Answers() (answers [][]int32) {
	for i := range payoff {
		answers = append(answers, []int32{arm(i)})
	}
	return answers
}

func (b *bandit) Act(answer int) (done, success bool) {
	chance := b.luck.Float64()
	return true, answer >= 0 && chance < payoff[answer]
}

// A recorder is a game of one to three turns, which its start decides, and writes
// down the answers. Luck decides what is observed and whether the episode succeeds.
type recorder struct {
	choice
	turns   int
	luck    *rand.Rand
	answers []string
}

var recorded = []string{"up", "1 2 3 4", "<agent>", "up <answer> left"}

func newRecorder() env.Environment { return new(recorder) }

func (r *recorder) Reset(start, luck uint64) {
	*r = recorder{turns: 1 + int(start%3), luck: rand.New(rand.NewPCG(luck, 0))}
}

func (r *recorder) Observe() (words []int32) {
	for range 1 + r.luck.IntN(3) {
		words = append(words, arm(r.luck.IntN(7)))
	}
	return words
}

func (r *recorder) Answers() (answers [][]int32) {
	for _, words := range recorded {
		answers = append(answers, sentence(words))
	}
	return answers
}

func (r *recorder) Act(answer int) (done, success bool) {
	said := ""
	if answer >= 0 {
		said = recorded[answer]
	}
	r.answers = append(r.answers, said)
	r.turns--
	return r.turns == 0, r.turns == 0 && r.luck.IntN(2) == 0
}

// sentence returns the tokens of words.
func sentence(words string) (tokens []int32) {
	for word := range strings.FieldsSeq(words) {
		tokens = append(tokens, env.Token(word))
	}
	return tokens
}

// letters writes roles as m, r and a.
func letters(roles []reweight.Role) string {
	var text strings.Builder
	for _, role := range roles {
		text.WriteByte([]byte{reweight.RoleMasked: 'm', reweight.RoleReasoning: 'r', reweight.RoleAction: 'a'}[role])
	}
	return text.String()
}
