package env

import (
	"math/bits"
	"math/rand/v2"
	"sync"
)

// Sudoku on a board of 4x4 cells: each row, each column and each box of 2x2
// cells must hold the digits 1 to 4 once. Six or seven cells are empty in the
// beginning. One of them is filled in each turn, and a wrong digit ends the
// episode.
//
// One thing is our change, so that a small recurrent policy can learn the game:
// the player does not choose the cell. The environment names an empty cell for
// which only one digit is left, and the player reads what the cell's row, column
// and box hold, not the whole board. Puzzles are made so that there is always
// such a cell.
var sudoku4 = Game{
	Name:    "sudoku4",
	Title:   "Sudoku 4x4",
	New:     newSudoku,
	Perfect: func() float64 { return 1 },
}

// A sudokuBoard holds its cells in reading order. The digit d is the number
// 1<<(d-1), so that a set of digits is the sum of its members; 0 is an empty cell.
type sudokuBoard [16]uint8

const sudokuAll = 1 + 2 + 4 + 8

// seen returns the digits that are in the row, the column and the box of a cell.
func (b *sudokuBoard) seen(cell int) (row, column, box uint8) {
	y, x := cell/4, cell%4
	corner := y/2*8 + x/2*2
	for i := range 4 {
		row |= b[4*y+i]
		column |= b[4*i+x]
		box |= b[corner+i/2*4+i%2]
	}
	return row, column, box
}

// candidates returns the digits that an empty cell can have.
func (b *sudokuBoard) candidates(cell int) uint8 {
	row, column, box := b.seen(cell)
	return sudokuAll &^ (row | column | box)
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

// Answers and the reasoning that leads to them, by digit.
var (
	sudokuAnswers = [4][1]int32{{Token("1")}, {Token("2")}, {Token("3")}, {Token("4")}}
	sudokuReasons = [4][4]int32{
		{Token("not"), Token("2"), Token("3"), Token("4")},
		{Token("not"), Token("1"), Token("3"), Token("4")},
		{Token("not"), Token("1"), Token("2"), Token("4")},
		{Token("not"), Token("1"), Token("2"), Token("3")},
	}
	sudokuUnits = [3]int32{Token("row"), Token("column"), Token("box")}
)

// sudokuDigit returns the index of an answer in sudokuAnswers, or -1.
func sudokuDigit(answer []int32) int {
	if len(answer) == 1 {
		for digit := range sudokuAnswers {
			if sudokuAnswers[digit][0] == answer[0] {
				return digit
			}
		}
	}
	return -1
}

type sudokuGame struct {
	source rand.PCG
	random *rand.Rand // draws from source

	board sudokuBoard
	cell  int // the one to fill
	empty int // number of empty cells
	turns int // left
}

func newSudoku() Environment {
	s := new(sudokuGame)
	s.random = rand.New(&s.source)
	return s
}

// Reset draws a full board and empties cells of it. No chance follows, so that
// luck is not used. The player has two turns more than there are empty cells.
func (s *sudokuGame) Reset(start, luck uint64) {
	s.source.Seed(start, 0)
	boards := sudokuBoards()
	full := boards[s.random.IntN(len(boards))]
	s.empty = 6 + s.random.IntN(2)
	s.turns = s.empty + 2
	for !s.dig(full) { // about one try in twenty fails
	}
	s.choose()
}

// dig begins with a full board and empties cells in random order. It says whether
// it found as many as wanted. A cell is emptied if that leaves it one candidate.
// So the cells can be filled in the opposite order, and filling others before
// their turn only takes candidates away.
func (s *sudokuGame) dig(full sudokuBoard) bool {
	s.board = full
	var order [16]int
	for i := range order {
		order[i] = i
	}
	holes := 0
	for i := range order {
		j := i + s.random.IntN(len(order)-i)
		order[i], order[j] = order[j], order[i]
		cell := order[i]
		digit := s.board[cell]
		s.board[cell] = 0
		if s.board.candidates(cell) != digit {
			s.board[cell] = digit
		} else if holes++; holes == s.empty {
			return true
		}
	}
	return false
}

// choose names the first empty cell in reading order that has one candidate.
func (s *sudokuGame) choose() {
	s.cell = 0
	for s.board[s.cell] != 0 || bits.OnesCount8(s.board.candidates(s.cell)) != 1 {
		s.cell++
	}
}

// Observe writes "row" and the digits in the cell's row, in ascending order, then
// likewise "column" and "box".
func (s *sudokuGame) Observe(dst []int32) []int32 {
	var units [3]uint8
	units[0], units[1], units[2] = s.board.seen(s.cell)
	for i, unit := range units {
		dst = append(dst, sudokuUnits[i])
		for digit := range sudokuAnswers {
			if unit>>digit&1 != 0 {
				dst = append(dst, sudokuAnswers[digit][0])
			}
		}
	}
	return dst
}

// Act fills the cell. An answer is one digit.
func (s *sudokuGame) Act(answer []int32) (done, success bool) {
	s.turns--
	if digit := sudokuDigit(answer); digit >= 0 {
		if s.board.candidates(s.cell) != 1<<digit {
			return true, false
		}
		s.board[s.cell] = 1 << digit
		s.empty--
		if s.empty == 0 {
			return true, true
		}
		s.choose()
	}
	return s.turns == 0, false
}

// Best returns the only candidate.
func (s *sudokuGame) Best() []int32 {
	return sudokuAnswers[bits.TrailingZeros8(s.board.candidates(s.cell))][:]
}

// Random returns any digit.
func (s *sudokuGame) Random(random *rand.Rand) []int32 {
	return sudokuAnswers[random.IntN(len(sudokuAnswers))][:]
}

// Reason returns "not" and the three other digits, which are those that the row,
// the column and the box hold if the answer is right. It returns nothing for
// what is not a digit.
func (s *sudokuGame) Reason(answer []int32) []int32 {
	digit := sudokuDigit(answer)
	if digit < 0 {
		return nil
	}
	return sudokuReasons[digit][:]
}
