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
	at := func(cell int) *byte { return &b[7+cell/4*6+cell%4] }
	*at(r.goal) = '.'
	for _, thing := range []struct {
		cell            int
		free, onTheGoal byte
	}{{r.crate, '$', '*'}, {r.player, '@', '+'}} {
		if p := at(thing.cell); *p == '.' {
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
	var e sokoban
	random := rand.New(rand.NewPCG(3, 4))
	for start := range uint64(5000) {
		e.Reset(start, random.Uint64())
		b := newBoard(e.room)
		if !slices.Equal(e.Observe(), b.read()) {
			t.Fatalf("reads %v of\n%s", text(e.Observe()), b)
		}
		for turn := 1; ; turn++ {
			answer := anyAnswer(&e, random)
			if random.IntN(3) == 0 {
				answer = best(&e)
			}
			b.move(text(answer))
			done, success := e.Act(Find(&e, answer))
			if !slices.Equal(e.Observe(), b.read()) || success != b.solved() || done != (b.solved() || turn == 10) {
				t.Fatalf("%s leads to %s, done %v, success %v, want\n%s", text(answer), text(e.Observe()), done,
					success, b)
			}
			if done {
				break
			}
		}
	}
}

// One room, of which all is written out.
func TestSokobanWords(t *testing.T) {
	e := sokoban{room{player: 0, crate: 5, goal: 7}, 10}
	if got := text(e.Observe()); got != "1 1 2 2 2 4" {
		t.Errorf("reads %q", got)
	}
	for answer, want := range map[string]string{
		"down": "right walk", "right": "down walk", "up": "up here", "left": "left here",
	} {
		if got := text(e.Reason(Find(&e, []int32{Token(answer)}))); got != want {
			t.Errorf("the reasoning of %s is %q, want %q", answer, got, want)
		}
	}
	for _, want := range []string{"right walk down", "right push right", "right push right"} {
		if got := text(e.Reason(e.Best())) + " " + text(best(&e)); got != want {
			t.Errorf("the perfect player says %q, want %q", got, want)
		}
		e.Act(e.Best())
	}
	if e.crate != e.goal {
		t.Error("not solved")
	}
}
