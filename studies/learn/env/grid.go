package env

import (
	"math/rand/v2"
	"slices"
)

// FrozenLake and Sokoban are played on a grid, by four moves. The order of the
// moves goes clockwise, so that the two neighbours of a move are perpendicular to it.
var (
	moves      = [4]int32{Token("up"), Token("right"), Token("down"), Token("left")}
	moveRow    = [4]int{-1, 0, 1, 0}
	moveColumn = [4]int{0, 1, 0, -1}
)

var zero = Token("0") // the tokens of the other digits follow it

// moveAnswer returns the answer that is the given move.
func moveAnswer(move int) []int32 { return moves[move : move+1 : move+1] }

// randomMove returns one of the four, each as likely as the others.
func randomMove(random *rand.Rand) []int32 { return moveAnswer(random.IntN(4)) }

// answerMove returns the move that an answer is, and -1 if it is none.
func answerMove(answer []int32) int {
	if len(answer) != 1 {
		return -1
	}
	return slices.Index(moves[:], answer[0])
}
