// Package env holds the games that the agents of studies/learn play: FrozenLake,
// Sokoban, Sudoku and a shop, small enough that a policy of some ten thousand
// parameters learns them on two cores.
//
// A game is played in turns. In each, the agent reads an observation and writes
// an answer, both in words of one vocabulary, Words. The only reward comes at the
// end of the episode: 1 for success, 0 for anything else.
package env

import "math/rand/v2"

// An Environment is one game in progress. The slices that Best, Random and Reason
// return are not to be changed, and the next call of Reason may use the memory of
// the one before.
// When Act has said that the episode is over, only Reset may follow.
type Environment interface {
	// Reset begins an episode. start decides the state that it begins in, and
	// luck what chance does afterwards: equal numbers, equal episodes.
	Reset(start, luck uint64)

	// Observe appends what the agent reads before its next answer to dst, without
	// the Begin that follows it.
	Observe(dst []int32) []int32

	// Act carries out an answer, which is what the agent wrote between its tags,
	// and says whether the episode is over and whether it ended in success. An
	// answer that means nothing costs a turn and changes nothing else.
	Act(answer []int32) (done, success bool)

	// Best returns the answer of a perfect player in the present state.
	Best() []int32

	// Random returns the answer of a player who knows the rules and has no plan.
	Random(random *rand.Rand) []int32

	// Reason returns two to four words of reasoning that lead to the answer:
	// an intermediate result that is easier to find than the answer, and from
	// which the answer is easier to find than from the observation. It returns
	// nil for an answer that means nothing.
	Reason(answer []int32) []int32
}

// A Game is a kind of Environment.
type Game struct {
	Name    string             // on the command line and in files
	Title   string             // for people
	New     func() Environment // an episode must be begun with Reset
	Perfect func() float64     // share of episodes in which a perfect player succeeds
}

// Games lists all of them. A new one needs the words that it uses in Words, and its
// share of mistakes in package train.
var Games = []Game{frozenLake4, sokoban6, sudoku4, shop}
