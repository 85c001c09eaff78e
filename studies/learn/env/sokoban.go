package env

import (
	"math/rand/v2"
	"sync"
)

// Sokoban has one crate in a room of 6x6 whose outer cells are walls, which
// leaves a floor of 4x4. The agent moves up, right, down or left; a move to the
// cell of the crate pushes it one cell on. A move into a wall, or one that would
// push the crate into a wall, changes nothing. The agent succeeds when the crate
// is on the goal, and fails when its turns are over: also then when the crate is
// stuck long before. Chance has no part. An episode begins in one of the rooms
// from which a perfect player needs 2 to 8 of the 10 turns; start draws it. There
// are no inner walls, because the agent would have to read where they are.
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
var sokoban6 = Game{
	Name:    "sokoban",
	Title:   "Sokoban 6x6",
	New:     func() Environment { return &sokoban{solution: solve()} },
	Perfect: func() float64 { return 1 },
}

const (
	floorSide    = 4
	floorCells   = floorSide * floorSide
	sokobanTurns = 10
	fewestMoves  = 2 // that a perfect player needs at the start of an episode
	mostMoves    = 8
	unsolvable   = 255
)

// The reasonings: [direction]. "here" is for a move that is neither a push nor on
// the way to one.
var pushReasons, walkReasons, hereReasons = reasonings("push"), reasonings("walk"), reasonings("here")

func reasonings(second string) (of [4][]int32) {
	for direction, token := range moves {
		of[direction] = []int32{token, Token(second)}
	}
	return of
}

// A room says where all is on the floor, whose cells are counted row by row.
type room struct{ player, crate, goal uint8 }

// neighbor returns the cell next to another in a direction, and whether there is
// one: beyond the edge of the floor is a wall.
func neighbor(cell uint8, direction int) (next uint8, ok bool) {
	row, column := int(cell)/floorSide+moveRow[direction], int(cell)%floorSide+moveColumn[direction]
	ok = row >= 0 && row < floorSide && column >= 0 && column < floorSide
	return uint8(row*floorSide + column), ok
}

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
func (r room) walk(to uint8) int {
	row, column := int(r.player)/floorSide, int(r.player)%floorSide
	toRow, toColumn := int(to)/floorSide, int(to)%floorSide
	crateRow, crateColumn := int(r.crate)/floorSide, int(r.crate)%floorSide
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

// A solution is what is known of all rooms.
type solution struct {
	moves  [floorCells][floorCells][floorCells]uint8 // [goal][crate][player] that a perfect player needs
	starts []room
}

func (s *solution) of(r room) uint8 { return s.moves[r.goal][r.crate][r.player] }

// solve numbers the rooms, backwards from the solved ones: each that has no
// number yet, and from which one move leads to a room of n moves, has n+1.
var solve = sync.OnceValue(func() *solution {
	s := &solution{}
	var rooms []room
	for i := range floorCells * floorCells * floorCells {
		r := room{uint8(i % floorCells), uint8(i / floorCells % floorCells), uint8(i / (floorCells * floorCells))}
		if r.player != r.crate && r.crate != r.goal {
			s.moves[r.goal][r.crate][r.player] = unsolvable
			rooms = append(rooms, r)
		}
	}
	for n, found := uint8(0), true; found; n++ {
		found = false
		for _, r := range rooms {
			for move := range 4 {
				if s.of(r) == unsolvable && s.of(r.after(move)) == n {
					s.moves[r.goal][r.crate][r.player] = n + 1
					found = true
				}
			}
		}
	}
	for _, r := range rooms {
		if n := s.of(r); n >= fewestMoves && n <= mostMoves {
			s.starts = append(s.starts, r)
		}
	}
	return s
})

// best returns the first move that brings the room nearer to its solution, and up
// if there is none.
func (s *solution) best(r room) int {
	for move := range 4 {
		if s.of(r.after(move)) < s.of(r) {
			return move
		}
	}
	return 0
}

// nextPush returns the direction of a perfect player's next push, if the room has
// a solution.
func (s *solution) nextPush(r room) (direction int, ok bool) {
	if s.of(r) == unsolvable {
		return 0, false
	}
	for range s.of(r) {
		move := s.best(r)
		if r.pushes(move) {
			return move, true
		}
		r = r.after(move)
	}
	return 0, false
}

// A sokoban is one episode.
type sokoban struct {
	*solution
	room
	turns int // left
}

func (s *sokoban) Reset(start, luck uint64) {
	var draw rand.PCG
	draw.Seed(start, 0)
	s.room = s.starts[draw.Uint64()%uint64(len(s.starts))]
	s.turns = sokobanTurns
}

func (s *sokoban) Observe(dst []int32) []int32 {
	for _, cell := range [...]uint8{s.player, s.crate, s.goal} {
		dst = append(dst, zero+1+int32(cell/floorSide), zero+1+int32(cell%floorSide))
	}
	return dst
}

func (s *sokoban) Act(answer []int32) (done, success bool) {
	s.turns--
	if move := answerMove(answer); move >= 0 {
		s.room = s.after(move)
	}
	success = s.crate == s.goal
	return success || s.turns == 0, success
}

func (s *sokoban) Best() []int32 { return moveAnswer(s.best(s.room)) }

func (s *sokoban) Random(random *rand.Rand) []int32 { return randomMove(random) }

// Reason explains a move by the push that it prepares, whether or not that push is
// a good one: the perfect player's next push if the move prepares it, else the
// first of up, right, down and left that it prepares. A move that prepares none
// has its own direction and "here".
func (s *sokoban) Reason(answer []int32) []int32 {
	move := answerMove(answer)
	if move < 0 {
		return nil
	}
	if s.pushes(move) {
		return pushReasons[move]
	}
	if push, ok := s.nextPush(s.room); ok && s.approaches(move, push) {
		return walkReasons[push]
	}
	for push := range 4 {
		if s.approaches(move, push) {
			return walkReasons[push]
		}
	}
	return hereReasons[move]
}
