package env

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
)

// A sudoku is an episode on a board of 4x4 cells: each row, each column and each
// box of 2x2 cells must hold the digits 1 to 4 once. Six or seven cells are empty
// in the beginning. One of them is filled in each turn, and a wrong digit ends the
// episode.
//
// One thing is our change, so that a small recurrent policy can learn the game:
// the player does not choose the cell. The environment names an empty cell for
// which only one digit is left, and the player reads what the cell's row, column
// and box hold, not the whole board. Puzzles are made so that there is always
// such a cell.
type sudoku struct {
	board sudokuBoard
	turns int // left
}

// A sudokuBoard holds its cells in reading order. The digit d is the number
// 1<<(d-1), so that a set of digits is the sum of its members; 0 is an empty cell.
type sudokuBoard [16]uint8

// seen returns the digits that are in the row, the column and the box of a cell.
func (b *sudokuBoard) seen(cell int) (units [3]uint8) {
	y, x := cell/4, cell%4
	corner := y/2*8 + x/2*2
	for i := range 4 {
		units[0] |= b[4*y+i]
		units[1] |= b[4*i+x]
		units[2] |= b[corner+i/2*4+i%2]
	}
	return units
}

// candidates returns the digits that an empty cell can have.
func (b *sudokuBoard) candidates(cell int) uint8 {
	units := b.seen(cell)
	return (1 + 2 + 4 + 8) &^ (units[0] | units[1] | units[2])
}

// next returns the cell to fill: the first empty one in reading order that has one
// candidate.
func (b *sudokuBoard) next() (cell int) {
	for b[cell] != 0 || bits.OnesCount8(b.candidates(cell)) != 1 {
		cell++
	}
	return cell
}

// sudokuBoards lists all full boards.
var sudokuBoards = sync.OnceValue(func() []sudokuBoard {
	var boards []sudokuBoard
	var board sudokuBoard
	var fill func(cell int)
	fill = func(cell int) {
		if cell == len(board) {
			boards = append(boards, board)
			return
		}
		candidates := board.candidates(cell)
		for digit := uint8(1); digit <= 8; digit *= 2 {
			if candidates&digit != 0 {
				board[cell] = digit
				fill(cell + 1)
				board[cell] = 0
			}
		}
	}
	fill(0)
	return boards
})

// Reset draws a full board and empties cells of it. No chance follows, so that
// luck is not used. The player has two turns more than there are empty cells.
func (s *sudoku) Reset(start, _ uint64) {
	random := rand.New(rand.NewPCG(start, 0))
	boards := sudokuBoards()
	full := boards[random.IntN(len(boards))]
	empty := 6 + random.IntN(2)
	s.turns = empty + 2
	for s.board = full; !s.board.dig(random, empty); s.board = full { // about one try in twenty fails
	}
}

// dig empties cells of a full board in random order. It says whether it found as many
// as wanted. A cell is emptied if that leaves it one candidate. So the cells can be
// filled in the opposite order, and filling others before their turn only takes
// candidates away.
func (b *sudokuBoard) dig(random *rand.Rand, wanted int) bool {
	var order [16]int
	for i := range order {
		order[i] = i
	}
	for i := range order {
		j := i + random.IntN(len(order)-i)
		order[i], order[j] = order[j], order[i]
		cell := order[i]
		digit := b[cell]
		b[cell] = 0
		if b.candidates(cell) != digit {
			b[cell] = digit
		} else if wanted--; wanted == 0 {
			return true
		}
	}
	return false
}

// Observe returns "row" and the digits in the cell's row, in ascending order, then
// likewise "column" and "box".
func (s *sudoku) Observe() (words []int32) {
	for i, unit := range s.board.seen(s.board.next()) {
		words = append(words, []int32{Token("row"), Token("column"), Token("box")}[i])
		for digit, answer := range sudokuAnswers {
			if unit>>digit&1 != 0 {
				words = append(words, answer...)
			}
		}
	}
	return words
}

var sudokuAnswers = [][]int32{{Token("1")}, {Token("2")}, {Token("3")}, {Token("4")}}

func (s *sudoku) Answers() [][]int32 { return sudokuAnswers }

// Act fills the cell.
func (s *sudoku) Act(digit int) (done, success bool) {
	s.turns--
	if digit >= 0 {
		cell := s.board.next()
		if s.board.candidates(cell) != 1<<digit {
			return true, false
		}
		s.board[cell] = 1 << digit
		if !slices.Contains(s.board[:], 0) {
			return true, true
		}
	}
	return s.turns == 0, false
}

// Best returns the only candidate.
func (s *sudoku) Best() int { return bits.TrailingZeros8(s.board.candidates(s.board.next())) }

// Reason returns "not" and the three other digits, which are those that the row,
// the column and the box hold if the answer is right.
func (s *sudoku) Reason(digit int) []int32 {
	words := []int32{Token("not")}
	for other, answer := range sudokuAnswers {
		if other != digit {
			words = append(words, answer...)
		}
	}
	return words
}
