package env

import (
	"math/bits"
	"testing"
)

// A sudokuGrid is a board as the tests see it: rows of digits, 0 for an empty cell.
type sudokuGrid [4][4]int

func sudokuGridOf(board sudokuBoard) (g sudokuGrid) {
	for i, digit := range board {
		g[i/4][i%4] = bits.Len8(digit)
	}
	return g
}

// valid says whether a full grid obeys the rules: it counts the digits of each unit.
func (g sudokuGrid) valid() bool {
	var count [12][5]int
	for y, row := range g {
		for x, digit := range row {
			count[y][digit]++
			count[4+x][digit]++
			count[8+y/2*2+x/2][digit]++
		}
	}
	for _, c := range count {
		if c != [5]int{0, 1, 1, 1, 1} {
			return false
		}
	}
	return true
}

// clash says whether another cell of the row, the column or the box has the digit.
func (g sudokuGrid) clash(y, x, digit int) bool {
	for v := range 4 {
		for u := range 4 {
			same := v == y || u == x || v/2 == y/2 && u/2 == x/2
			if same && (v != y || u != x) && g[v][u] == digit {
				return true
			}
		}
	}
	return false
}

// solve calls found with each solution.
func (g sudokuGrid) solve(found func(sudokuGrid)) {
	for y := range 4 {
		for x := range 4 {
			if g[y][x] != 0 {
				continue
			}
			for digit := 1; digit <= 4; digit++ {
				if !g.clash(y, x, digit) {
					g[y][x] = digit
					g.solve(found)
				}
			}
			return
		}
	}
	found(g)
}

// TestSudokuBest plays many puzzles to the end. Each has one solution, which is
// what Best fills in, and all solutions together are all boards.
func TestSudokuBest(t *testing.T) {
	var e sudoku
	boards := map[sudokuGrid]bool{}
	puzzles := map[sudokuGrid]bool{}
	empty := map[int]int{}
	for start := range uint64(5000) {
		e.Reset(start, 0)
		puzzle := sudokuGridOf(e.board)
		var solutions []sudokuGrid
		puzzle.solve(func(g sudokuGrid) { solutions = append(solutions, g) })
		if len(solutions) != 1 {
			t.Fatalf("start %d: %v has %d solutions", start, puzzle, len(solutions))
		}
		turns := 0
		for done := false; !done; turns++ {
			var success bool
			if done, success = e.Act(e.Best()); done != success {
				t.Fatalf("start %d: Best failed in turn %d of %v", start, turns, puzzle)
			}
		}
		if g := sudokuGridOf(e.board); g != solutions[0] || !g.valid() {
			t.Fatalf("start %d: Best fills %v with %v, want %v", start, puzzle, g, solutions[0])
		}
		boards[solutions[0]] = true
		puzzles[puzzle] = true
		empty[turns]++
	}
	if len(boards) != 288 || len(puzzles) < 4500 {
		t.Errorf("%d boards and %d puzzles from 5000 starts", len(boards), len(puzzles))
	}
	if empty[6] < 2300 || empty[7] < 2300 || empty[6]+empty[7] != 5000 {
		t.Errorf("empty cells: %v, want 6 and 7 in equal parts", empty)
	}
}
