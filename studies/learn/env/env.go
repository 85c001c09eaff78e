// Package env holds the games that the agents of studies/learn play: FrozenLake,
// Sokoban, Sudoku and a shop, small enough that a policy of some ten thousand
// parameters learns them on two cores.
//
// A game is played in turns. In each, the agent reads an observation and writes
// an answer, both in words of one vocabulary, Words. The only reward comes at the
// end of the episode: 1 for success, 0 for anything else.
package env

import "slices"

// An Environment is one game in progress. The slices that it returns are not to be changed.
// When Act has said that the episode is over, only Reset may follow.
type Environment interface {
	// Reset begins an episode. start decides the state that it begins in, and
	// luck what chance does afterwards: equal numbers, equal episodes.
	Reset(start, luck uint64)

	// Observe returns what the agent reads before its next answer, without the
	// Begin that follows it.
	Observe() []int32

	// Answers returns what the agent can write between its tags in the present state. The
	// other methods take and return the number of an answer in it.
	Answers() [][]int32

	// Act carries out an answer, and says whether the episode is over and whether it
	// ended in success. -1 stands for what is none of the answers. It costs a turn and
	// changes nothing else.
	Act(answer int) (done, success bool)

	// Best returns the answer of a perfect player in the present state.
	Best() int

	// Reason returns two to four words of reasoning that lead to the answer:
	// an intermediate result that is easier to find than the answer, and from
	// which the answer is easier to find than from the observation.
	Reason(answer int) []int32
}

// Find returns the number of the answer that the words are in the present state, and -1 if
// they are none.
func Find(e Environment, words []int32) int {
	return slices.IndexFunc(e.Answers(), func(answer []int32) bool { return slices.Equal(answer, words) })
}

// A Game is a kind of Environment.
type Game struct {
	New func() Environment // an episode must be begun with Reset

	// Mistakes is the share of the demonstrations' turns with a mistake. It is such that warm
	// starts succeed in less than 30% of what a perfect player does, in the mean of a game: a
	// single one may be better.
	Mistakes float64
}

// Games has all of them by their names in files. A new one needs the words that it uses in Words.
var Games = map[string]Game{
	"frozenlake4": {func() Environment { return new(frozenLake) }, 0.42},
	"sokoban":     {func() Environment { return new(sokoban) }, 0.6},
	"sudoku4":     {func() Environment { return new(sudoku) }, 0.35},
	"shop":        {func() Environment { return new(shop) }, 0.65},
}
