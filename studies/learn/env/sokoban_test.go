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
