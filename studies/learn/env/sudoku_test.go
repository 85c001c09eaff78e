package env

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

// single returns the first empty cell that can have one digit only, and that digit.
func (g sudokuGrid) single() (y, x, digit int) {
	for i := range 16 {
		var fits []int
		for digit := 1; digit <= 4; digit++ {
			if !g.clash(i/4, i%4, digit) {
				fits = append(fits, digit)
			}
		}
		if g[i/4][i%4] == 0 && len(fits) == 1 {
			return i / 4, i % 4, fits[0]
		}
	}
	return -1, -1, 0
}

// observation returns what the player reads about a cell, in words.
func (g sudokuGrid) observation(y, x int) string {
	words := []string{"row", "column", "box"}
	for unit := 2; unit >= 0; unit-- {
		for digit := 4; digit >= 1; digit-- {
			for i := range 4 {
				cell := []int{g[y][i], g[i][x], g[y&2+i&1][x&2+i>>1]}
				if cell[unit] == digit {
					words = slices.Insert(words, unit+1, fmt.Sprint(digit))
				}
			}
		}
	}
	return strings.Join(words, " ")
}

// TestSudokuBest plays many puzzles to the end. Each has one solution, which is
// what Best fills in, and all solutions together are all boards.
func TestSudokuBest(t *testing.T) {
	e := newSudoku().(*sudokuGame)
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

// TestSudokuRules plays any answers, in the game and by a second implementation
// of its rules.
func TestSudokuRules(t *testing.T) {
	e := newSudoku().(*sudokuGame)
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint64().Draw(t, "start")
		e.Reset(start, rapid.Uint64().Draw(t, "luck"))
		g := sudokuGridOf(e.board)
		empty := 0
		for _, row := range g {
			for _, digit := range row {
				if digit == 0 {
					empty++
				}
			}
		}
		for turns := empty + 2; ; {
			y, x, digit := g.single()
			if got, want := shopText(e.Observe(nil)), g.observation(y, x); got != want {
				t.Fatalf("%v: reads %q, want %q", g, got, want)
			}
			best := fmt.Sprint(digit)
			if got := shopText(e.Best()); got != best {
				t.Fatalf("%v: best is %q, want %q", g, got, best)
			}
			reason := strings.Fields(shopText(e.Reason(e.Best())))
			rest := slices.DeleteFunc([]string{"not", "1", "2", "3", "4"}, func(s string) bool { return s == best })
			if !slices.Equal(reason, rest) {
				t.Fatalf("%v: reason for %s is %q", g, best, reason)
			}

			answer := e.Best()
			if rapid.Bool().Draw(t, "any answer") {
				token := rapid.Int32Range(0, int32(len(Words))-1)
				digit := rapid.SampledFrom([]int32{Token("0"), Token("1"), Token("2"), Token("3"), Token("4"), Token("5")})
				answer = rapid.SliceOfN(rapid.OneOf(digit, token), 0, 2).Draw(t, "answer")
			}
			said := shopText(answer)
			done, success := e.Act(answer)
			turns--
			wantDone, wantSuccess := turns == 0, false
			if said == best {
				g[y][x] = digit
				empty--
				if empty == 0 {
					wantDone, wantSuccess = true, true
				}
			} else if len(said) == 1 && strings.Contains("1234", said) {
				wantDone = true
			}
			if done != wantDone || success != wantSuccess || sudokuGridOf(e.board) != g {
				t.Fatalf("after %q: done %v, success %v, board %v, want %v, %v, %v",
					said, done, success, sudokuGridOf(e.board), wantDone, wantSuccess, g)
			}
			if done {
				return
			}
		}
	})
}
