package env

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// A board is a second implementation of the rules: 36 characters that are
// rewritten. # is a wall, @ the player (+ on the goal), $ the crate (* on the
// goal), . the goal, and a space is free floor.
type board []byte

var boardSteps = map[string]int{"up": -6, "down": 6, "left": -1, "right": 1}

func newBoard(r room) board {
	b := board("" +
		"######" +
		"#    #" +
		"#    #" +
		"#    #" +
		"#    #" +
		"######")
	place := func(cell uint8) *byte { return &b[7+int(cell)/4*6+int(cell)%4] }
	*place(r.goal) = '.'
	for _, thing := range []struct {
		cell            uint8
		free, onTheGoal byte
	}{{r.crate, '$', '*'}, {r.player, '@', '+'}} {
		if p := place(thing.cell); *p == '.' {
			*p = thing.onTheGoal
		} else {
			*p = thing.free
		}
	}
	return b
}

func (b board) find(characters string) int { return bytes.IndexAny(b, characters) }

func (b board) move(name string) {
	at, step := b.find("@+"), boardSteps[name]
	leave := map[byte]byte{'@': ' ', '+': '.', '$': ' ', '*': '.'}
	player := map[byte]byte{' ': '@', '.': '+', '$': '@', '*': '+'}
	crate := map[byte]byte{' ': '$', '.': '*'}
	switch ahead := b[at+step]; ahead {
	case '#':
		return
	case '$', '*':
		beyond, ok := crate[b[at+2*step]]
		if !ok {
			return
		}
		b[at+2*step] = beyond
	}
	b[at+step] = player[b[at+step]]
	b[at] = leave[b[at]]
}

func (b board) solved() bool { return b.find("*") >= 0 }

// read returns the numbers that the agent should read.
func (b board) read() (observation []int32) {
	goal := b.find(".+*")
	for _, at := range []int{b.find("@+"), b.find("$*"), goal} {
		observation = append(observation, Token("0")+int32(at/6), Token("0")+int32(at%6))
	}
	return observation
}

// allRooms returns every room whose player and crate are in cells of their own.
func allRooms() (rooms []room) {
	for goal := range uint8(16) {
		for crate := range uint8(16) {
			for player := range uint8(16) {
				if player != crate {
					rooms = append(rooms, room{player, crate, goal})
				}
			}
		}
	}
	return rooms
}

func TestSokobanAgainstBoard(t *testing.T) {
	e, random := sokoban6.New(), rand.New(rand.NewPCG(3, 4))
	steps := 0
	for start := range uint64(5000) {
		e.Reset(start, random.Uint64())
		b := newBoard(e.(*sokoban).room)
		if !slices.Equal(e.Observe(nil), b.read()) {
			t.Fatalf("reads %v of\n%s", text(e.Observe(nil)), b)
		}
		for turn := 1; ; turn++ {
			answer := e.Random(random)
			if random.IntN(3) == 0 {
				answer = e.Best()
			}
			b.move(Words[answer[0]])
			done, success := e.Act(answer)
			steps++
			if !slices.Equal(e.Observe(nil), b.read()) || success != b.solved() || done != (b.solved() || turn == 10) {
				t.Fatalf("%s leads to %s, done %v, success %v, want\n%s", text(answer), text(e.Observe(nil)), done, success, b)
			}
			if done {
				break
			}
		}
	}
	t.Logf("%d steps", steps)
}

// Every move in every room.
func TestSokobanMoves(t *testing.T) {
	for _, r := range allRooms() {
		for move, token := range moves {
			b := newBoard(r)
			b.move(Words[token])
			if after := newBoard(r.after(move)); string(after) != string(b) {
				t.Fatalf("%s in\n%s\nleads to\n%s\nwant\n%s", Words[token], newBoard(r), after, b)
			}
		}
	}
}

// boardDistances finds the number of moves to a solution, from each board, by
// breadth-first search from that board.
func boardDistances() map[string]int {
	next := map[string][]string{}
	var boards []string
	for _, r := range allRooms() {
		b := string(newBoard(r))
		boards = append(boards, b)
		for name := range boardSteps {
			after := board(b)
			after.move(name)
			next[b] = append(next[b], string(after))
		}
	}
	distances := map[string]int{}
	for _, from := range boards {
		distances[from] = unsolvable
		seen := map[string]bool{from: true}
		for moves, level := 0, []string{from}; len(level) > 0; moves++ {
			if slices.ContainsFunc(level, func(b string) bool { return board(b).solved() }) {
				distances[from] = moves
				break
			}
			var later []string
			for _, b := range level {
				for _, after := range next[b] {
					if !seen[after] {
						seen[after] = true
						later = append(later, after)
					}
				}
			}
			level = later
		}
	}
	return distances
}

func TestSokobanSolver(t *testing.T) {
	s, distances := solve(), boardDistances()
	histogram := map[int]int{}
	for _, r := range allRooms() {
		want := distances[string(newBoard(r))]
		histogram[want]++
		if got := int(s.of(r)); got != want {
			t.Fatalf("%d moves, want %d:\n%s", got, want, newBoard(r))
		}
		start := slices.Contains(s.starts, r)
		if start != (want >= 2 && want <= 8) {
			t.Fatalf("%d moves, a start: %v", want, start)
		}
		b := newBoard(r)
		for range want {
			if want != unsolvable {
				b.move(Words[moves[s.best(r)]])
				r = r.after(s.best(r))
			}
		}
		if want != unsolvable && !b.solved() {
			t.Fatalf("Best does not solve it in %d moves", want)
		}
	}
	t.Logf("rooms by moves: %v", histogram)
	if len(s.starts) != 1168 {
		t.Errorf("%d starts", len(s.starts))
	}
}

// One room, of which all is written out.
func TestSokobanWords(t *testing.T) {
	e := sokoban6.New().(*sokoban)
	e.Reset(0, 0)
	e.room = room{player: 0, crate: 5, goal: 7}
	if got := text(e.Observe(nil)); got != "1 1 2 2 2 4" {
		t.Errorf("reads %q", got)
	}
	for answer, want := range map[string]string{
		"down": "right walk", "right": "down walk", "up": "up here", "left": "left here", "goal": "",
	} {
		if got := text(e.Reason([]int32{Token(answer)})); got != want {
			t.Errorf("the reasoning of %s is %q, want %q", answer, got, want)
		}
	}
	for _, want := range []string{"right walk down", "right push right", "right push right"} {
		best := e.Best()
		if got := text(e.Reason(best)) + " " + text(best); got != want {
			t.Errorf("the perfect player says %q, want %q", got, want)
		}
		e.Act(best)
	}
	if e.crate != e.goal {
		t.Error("not solved")
	}
}
