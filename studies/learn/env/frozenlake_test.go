package env

import (
	"math"
	"strings"
	"testing"
)

// A second implementation of the rules, after the way in which Gym writes them: the
// actions are left, down, right, up, and the ice takes the agent to the action
// before, to the action itself or to the action after.
var (
	gymMap     = []string{"SFFF", "FHFH", "FFFH", "HFFG"}
	gymActions = []string{"left", "down", "right", "up"}
)

// gymTransition returns the probability of each next cell.
func gymTransition(cell, action int) (next [16]float64) {
	if kind := gymMap[cell/4][cell%4]; kind == 'H' || kind == 'G' {
		next[cell] = 1
		return next
	}
	for turn := -1; turn <= 1; turn++ {
		row, column := cell/4, cell%4
		switch gymActions[(action+turn+4)%4] {
		case "left":
			column = max(column-1, 0)
		case "down":
			row = min(row+1, 3)
		case "right":
			column = min(column+1, 3)
		case "up":
			row = max(row-1, 0)
		}
		next[4*row+column] += []float64{0.1, 0.8, 0.1}[turn+1]
	}
	return next
}

// By the principle of one deviation, a policy is the best there is if no single
// move in any state, followed by the policy, is better.
func TestLakeNoMoveBeatsBest(t *testing.T) {
	value := [16]float64{15: 1} // of Best
	for turns := 1; turns <= lakeTurns; turns++ {
		var next [16]float64
		for cell := range value {
			e := frozenLake{cell: cell, turns: turns}
			var q [4]float64
			for a, name := range gymActions {
				for to, p := range gymTransition(cell, a) {
					q[a] += p * value[to]
				}
				if name == text(best(&e)) {
					next[cell] = q[a]
				}
			}
			for a, q := range q {
				if q > next[cell]+1e-12 {
					t.Fatalf("cell %d, %d turns: %s succeeds with %v, Best with %v", cell, turns, gymActions[a], q,
						next[cell])
				}
			}
		}
		value = next
	}
	if math.Abs(value[0]-perfect["frozenlake4"]) > 5e-4 {
		t.Errorf("Best has the value %v, want %v", value[0], perfect["frozenlake4"])
	}
}

// Each move from each cell leads to the cells that it should, as often as it should.
func TestLakeIce(t *testing.T) {
	const samples = 4000
	var e frozenLake
	luck := uint64(0)
	for cell, kind := range strings.Join(gymMap, "") {
		if kind == 'H' || kind == 'G' {
			continue
		}
		for a, name := range gymActions {
			var count [16]float64
			for range samples {
				luck++
				e.Reset(1, luck)
				e.cell = cell
				done, success := e.Act(Find(&e, []int32{Token(name)}))
				count[e.cell]++
				if kind := gymMap[e.cell/4][e.cell%4]; done != (kind == 'H' || kind == 'G') ||
					success != (kind == 'G') {
					t.Fatalf("done %v and success %v on %c", done, success, kind)
				}
			}
			for to, p := range gymTransition(cell, a) {
				if math.Abs(count[to]/samples-p) > 5*math.Sqrt(p*(1-p)/samples) {
					t.Errorf("%s from %d leads to %d in %v of %d, want %.2f", name, cell, to, count[to], samples, p)
				}
			}
		}
	}
}

func TestLakeWords(t *testing.T) {
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
	} {
		e := frozenLake{cell: c.cell}
		if got := text(e.Observe()); got != c.observation {
			t.Errorf("cell %d reads %q, want %q", c.cell, got, c.observation)
		}
		if got := text(e.Reason(Find(&e, []int32{Token(c.answer)}))); got != c.reasons {
			t.Errorf("cell %d, %s: the reasoning is %q, want %q", c.cell, c.answer, got, c.reasons)
		}
	}
}
