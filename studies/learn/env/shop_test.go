package env

import (
	"slices"
	"testing"
)

// TestShopBest: Best wins in three turns, whatever is wanted and wherever it
// stands.
func TestShopBest(t *testing.T) {
	var e shop
	wants := map[string]int{}
	var entries [4]int // where on the page the wanted item is
	for start := range uint64(5000) {
		e.Reset(start, 0)
		want := e.Observe()[2:]
		wants[text(want)]++
		for turn := 1; turn <= 3; turn++ {
			if turn == 2 {
				page := e.Observe()[1:]
				for k := range entries {
					if slices.Equal(page[2*k:2*k+2], want[1:]) {
						entries[k]++
					}
				}
			}
			if done, success := e.Act(e.Best()); done != (turn == 3) || success != done {
				t.Fatalf("start %d, turn %d: %v, %v", start, turn, done, success)
			}
		}
	}
	if len(wants) != 4*6*4 {
		t.Errorf("%d different items are wanted, want %d", len(wants), 4*6*4)
	}
	for want, n := range wants {
		if n < 20 || n > 90 { // 52 expected, with a standard deviation of 7
			t.Errorf("%q is wanted %d times", want, n)
		}
	}
	for k, n := range entries {
		if n < 1100 || n > 1400 { // 1250 expected, with a standard deviation of 31
			t.Errorf("entry %d is right %d times", k+1, n)
		}
	}
}
