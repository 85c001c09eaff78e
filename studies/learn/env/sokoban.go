package env

import "math/rand/v2"

// A sokoban is an episode of the game with one crate, in a room of 6x6 whose outer
// cells are walls, which leaves a floor of 4x4. The agent moves up, right, down or
// left; a move to the cell of the crate pushes it one cell on. A move into a wall,
// or one that would push the crate into a wall, changes nothing. The agent succeeds
// when the crate is on the goal, and fails when its turns are over: also then when
// the crate is stuck long before. Chance has no part. An episode begins in one of
// the rooms from which a perfect player needs 2 to 8 of the 10 turns; start draws
// it. There are no inner walls, because the agent would have to read where they are.
//
// The agent reads six numbers: row and column of itself, of the crate and of the
// goal, each from 1 to 4. Its answer is one of the four moves.
//
// The reasoning has two words. The first is the direction in which the crate has
// to be pushed next, which depends mostly on where the crate and the goal are.
// The second is "push" if the agent stands behind the crate: then the answer is
// that direction. Else it is "walk", and the answer is a step towards the cell
// behind the crate. The direction comes first because whether to push or to walk
// follows from it and from where the agent stands.
type sokoban struct {
	room
	turns int // left
}

const (
	sokobanTurns = 10
	fewestMoves  = 2 // that a perfect player needs at the start of an episode
	mostMoves    = 8
	unsolvable   = 255
)

// A room says in which cells of the floor all is.
type room struct{ player, crate, goal int }

// after returns the room that a move leads to.
func (r room) after(move int) room {
	ahead, ok := neighbor(r.player, move)
	if !ok {
		return r
	}
	if ahead == r.crate {
		beyond, ok := neighbor(r.crate, move)
		if !ok {
			return r
		}
		r.crate = beyond
	}
	r.player = ahead
	return r
}

// pushes says whether the crate is where a move goes to.
func (r room) pushes(move int) bool {
	ahead, ok := neighbor(r.player, move)
	return ok && ahead == r.crate
}

// walk returns how many moves take the player to a cell around the crate: as many
// as there are rows and columns between, and two more if the crate is in the way.
func (r room) walk(to int) int {
	row, column := r.player/gridSide, r.player%gridSide
	toRow, toColumn := to/gridSide, to%gridSide
	crateRow, crateColumn := r.crate/gridSide, r.crate%gridSide
	distance := max(row-toRow, toRow-row) + max(column-toColumn, toColumn-column)
	if row == toRow && row == crateRow && (column < crateColumn) == (crateColumn < toColumn) ||
		column == toColumn && column == crateColumn && (row < crateRow) == (crateRow < toRow) {
		distance += 2
	}
	return distance
}

// approaches says whether a move that does not push is a step of a shortest walk to
// where the crate can be pushed in a direction.
func (r room) approaches(move, direction int) bool {
	behind, ok := neighbor(r.crate, (direction+2)%4)
	_, free := neighbor(r.crate, direction)
	return ok && free && r.after(move).walk(behind) < r.walk(behind)
}

// sokobanMoves has the number of moves that a perfect player needs in each room, and
// sokobanStarts the rooms in which an episode can begin. The rooms are numbered backwards
// from the solved ones: each that has no number yet, and from which one move leads to a
// room of n moves, has n+1.
var sokobanMoves, sokobanStarts = func() (needs map[room]int, begin []room) {
	needs = map[room]int{}
	var rooms []room
	for goal := range gridCells {
		for crate := range gridCells {
			for player := range gridCells {
				if r := (room{player, crate, goal}); player != crate && crate != goal {
					needs[r] = unsolvable
					rooms = append(rooms, r)
				}
			}
		}
	}
	for n, found := 0, true; found; n++ {
		found = false
		for _, r := range rooms {
			for move := range 4 {
				if needs[r] == unsolvable && needs[r.after(move)] == n {
					needs[r] = n + 1
					found = true
				}
			}
		}
	}
	for _, r := range rooms {
		if n := needs[r]; n >= fewestMoves && n <= mostMoves {
			begin = append(begin, r)
		}
	}
	return needs, begin
}()

// best returns the first move that brings the room nearer to its solution, and up
// if there is none.
func (r room) best() int {
	for move := range 4 {
		if sokobanMoves[r.after(move)] < sokobanMoves[r] {
			return move
		}
	}
	return 0
}

// nextPush returns the direction of a perfect player's next push, or -1 if the room
// has no solution.
func (r room) nextPush() int {
	if sokobanMoves[r] == unsolvable {
		return -1
	}
	for !r.pushes(r.best()) {
		r = r.after(r.best())
	}
	return r.best()
}

func (s *sokoban) Reset(start, _ uint64) {
	s.room = sokobanStarts[rand.NewPCG(start, 0).Uint64()%uint64(len(sokobanStarts))]
	s.turns = sokobanTurns
}

func (s *sokoban) Observe() (words []int32) {
	for _, cell := range []int{s.player, s.crate, s.goal} {
		words = append(words, place(cell, zero+1)...)
	}
	return words
}

func (s *sokoban) Answers() [][]int32 { return moves }

func (s *sokoban) Act(move int) (done, success bool) {
	s.turns--
	if move >= 0 {
		s.room = s.after(move)
	}
	success = s.crate == s.goal
	return success || s.turns == 0, success
}

func (s *sokoban) Best() int { return s.best() }

// Reason explains a move by the push that it prepares, whether or not that push is
// a good one: the perfect player's next push if the move prepares it, else the
// first of up, right, down and left that it prepares. A move that prepares none
// has its own direction and "here".
func (s *sokoban) Reason(move int) []int32 {
	if s.pushes(move) {
		return []int32{moves[move][0], Token("push")}
	}
	for _, push := range []int{s.nextPush(), 0, 1, 2, 3} {
		if push >= 0 && s.approaches(move, push) {
			return []int32{moves[push][0], Token("walk")}
		}
	}
	return []int32{moves[move][0], Token("here")}
}
