package env

import (
	"math"
	"strings"
	"testing"
)

// A gymLake is a second implementation of the rules, after the way in which Gym
// writes them: the actions are left, down, right, up, and the ice takes the agent
// to the action before, to the action itself or to the action after.
type gymLake struct {
	rows  []string
	sides float64 // probability of each of the two other actions
}

var gymActions = []string{"left", "down", "right", "up"}

func (g gymLake) cell(row, column int) int { return row*len(g.rows) + column }

func (g gymLake) kind(cell int) byte { return g.rows[cell/len(g.rows)][cell%len(g.rows)] }

// transition returns the probability of each next cell.
func (g gymLake) transition(cell, action int) []float64 {
	next := make([]float64, len(g.rows)*len(g.rows))
	if strings.ContainsRune("HG", rune(g.kind(cell))) {
		next[cell] = 1
		return next
	}
	for turn := -1; turn <= 1; turn++ {
		row, column := cell/len(g.rows), cell%len(g.rows)
		switch gymActions[(action+turn+4)%4] {
		case "left":
			column = max(column-1, 0)
		case "down":
			row = min(row+1, len(g.rows)-1)
		case "right":
			column = min(column+1, len(g.rows)-1)
		case "up":
			row = max(row-1, 0)
		}
		p := g.sides
		if turn == 0 {
			p = 1 - 2*g.sides
		}
		next[g.cell(row, column)] += p
	}
	return next
}

func action(t *testing.T, answer []int32) int {
	if len(answer) == 1 {
		for i, name := range gymActions {
			if Token(name) == answer[0] {
				return i
			}
		}
	}
	t.Fatalf("the answer %v is no move", answer)
	return 0
}

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

var lakes = []struct {
	game Game
	gymLake
}{
	{frozenLake4, gymLake{[]string{"SFFF", "FHFH", "FFFH", "HFFG"}, 0.1}},
}

// eachLake runs a test for each map, with an episode whose state it may set.
func eachLake(t *testing.T, test func(t *testing.T, e *frozenLake, gym gymLake, perfect float64)) {
	for _, l := range lakes {
		t.Run(l.game.Name, func(t *testing.T) {
			test(t, l.game.New().(*frozenLake), l.gymLake, l.game.Perfect())
		})
	}
}

func TestLakeMaps(t *testing.T) {
	eachLake(t, func(t *testing.T, e *frozenLake, gym gymLake, perfect float64) {
		cells := strings.Join(gym.rows, "")
		if e.cells != cells {
			t.Error("not the map of the test")
		}
		if 4*strings.Count(cells, "H") != len(cells) || cells[0] != 'S' || cells[len(cells)-1] != 'G' {
			t.Error("the holes are not a quarter of the cells, or the start or the goal is not in its corner")
		}
		if perfect < 0.8 || perfect > 0.95 {
			t.Errorf("a perfect player succeeds in %.3f of the episodes", perfect)
		}
	})
}

// By the principle of one deviation, a policy is the best there is if no single
// move in any state, followed by the policy, is better.
func TestLakeNoMoveBeatsBest(t *testing.T) {
	eachLake(t, func(t *testing.T, e *frozenLake, gym gymLake, perfect float64) {
		value := make([]float64, len(e.cells)) // of Best
		value[len(value)-1] = 1
		for turns := 1; turns <= lakeTurns; turns++ {
			next := make([]float64, len(value))
			for cell := range value {
				e.cell, e.turns = cell, turns
				next[cell] = dot(gym.transition(cell, action(t, e.Best())), value)
				for a := range gymActions {
					if q := dot(gym.transition(cell, a), value); q > next[cell]+1e-12 {
						t.Fatalf("cell %d, %d turns: %s succeeds with %v, Best with %v", cell, turns, gymActions[a], q, next[cell])
					}
				}
			}
			value = next
		}
		if math.Abs(value[0]-perfect) > 1e-12 {
			t.Errorf("Best has the value %v, Perfect says %v", value[0], perfect)
		}
	})
}

// With Gym's own ice, a third for each direction, the best policy is known to
// succeed on the map of 4x4 with 14/17 if there is no limit, and with about 0.74
// in Gym's 100 turns.
func TestLakeOfGym(t *testing.T) {
	l := lakes[0].game.New().(*frozenLake).lake
	success := l.zeroTurns()
	for turns := 1; turns <= 5000; turns++ {
		success, _ = l.oneMoreTurn(success, 1.0/3)
		if turns == 100 && math.Abs(success[0]-0.744) > 0.0005 {
			t.Errorf("in 100 turns %v, want about 0.744", success[0])
		}
	}
	if math.Abs(success[0]-14.0/17) > 1e-9 {
		t.Errorf("without a limit %v, want 14/17", success[0])
	}
}

// Each move from each cell leads to the cells that it should, as often as it should.
func TestLakeIce(t *testing.T) {
	const samples = 4000
	eachLake(t, func(t *testing.T, e *frozenLake, gym gymLake, perfect float64) {
		luck := uint64(0)
		for cell, kind := range e.cells {
			if kind == 'H' || kind == 'G' {
				continue
			}
			for a, name := range gymActions {
				count := make([]float64, len(e.cells))
				for range samples {
					luck++
					e.Reset(1, luck)
					e.cell = cell
					done, success := e.Act([]int32{Token(name)})
					count[e.cell]++
					if kind := gym.kind(e.cell); done != (kind == 'H' || kind == 'G') || success != (kind == 'G') {
						t.Fatalf("done %v and success %v on %c", done, success, kind)
					}
				}
				for to, p := range gym.transition(cell, a) {
					if math.Abs(count[to]/samples-p) > 5*math.Sqrt(p*(1-p)/samples) {
						t.Errorf("%s from %d leads to %d in %v of %d, want %.2f", name, cell, to, count[to], samples, p)
					}
				}
			}
		}
	})
}

func TestLakeWords(t *testing.T) {
	e := frozenLake4.New().(*frozenLake)
	for _, c := range []struct {
		cell                         int
		observation, answer, reasons string
	}{
		{0, "lake 0 0", "right", "to 0 1"},
		{0, "lake 0 0", "up", "to 0 0"},
		{0, "lake 0 0", "left", "to 0 0"},
		{0, "lake 0 0", "down", "to 1 0"},
		{6, "lake 1 2", "left", "to 1 1"},
		{14, "lake 3 2", "right", "to 3 3"},
		{14, "lake 3 2", "down", "to 3 2"},
		{14, "lake 3 2", "goal", ""},
	} {
		e.Reset(0, 0)
		e.cell = c.cell
		if got := text(e.Observe(nil)); got != c.observation {
			t.Errorf("cell %d reads %q, want %q", c.cell, got, c.observation)
		}
		if got := text(e.Reason([]int32{Token(c.answer)})); got != c.reasons {
			t.Errorf("cell %d, %s: the reasoning is %q, want %q", c.cell, c.answer, got, c.reasons)
		}
	}
}

// text returns the words of tokens.
func text(tokens []int32) string {
	var words []string
	for _, token := range tokens {
		words = append(words, Words[token])
	}
	return strings.Join(words, " ")
}
