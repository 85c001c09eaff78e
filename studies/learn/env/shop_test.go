package env

import (
	"slices"
	"strings"
	"testing"
)

var (
	shopTypeWords   = strings.Fields("shirt shoes lamp mug")
	shopColourWords = strings.Fields("red green blue white black yellow")
	shopSizeWords   = strings.Fields("small medium large huge")
	shopAllAnswers  = func() []string {
		answers := []string{"buy", "back", "", "click 1", "click red", "click small red"}
		for _, kind := range shopTypeWords {
			answers = append(answers, "search "+kind)
		}
		for _, colour := range shopColourWords {
			for _, size := range shopSizeWords {
				answers = append(answers, "click "+colour+" "+size)
			}
		}
		return answers
	}()
)

func shopText(tokens []int32) string {
	var words []string
	for _, token := range tokens {
		words = append(words, Words[token])
	}
	return strings.Join(words, " ")
}

// TestShopBest: Best wins in three turns, whatever is wanted and wherever it
// stands.
func TestShopBest(t *testing.T) {
	e := newShop()
	wants := map[string]int{}
	var entries [4]int // where on the page the wanted item is
	for start := range uint64(5000) {
		e.Reset(start, 0)
		want := e.Observe(nil)[2:]
		wants[shopText(want)]++
		for turn := 1; turn <= 3; turn++ {
			answer := e.Best()
			if turn == 2 {
				page := e.Observe(nil)[1:]
				for k := range entries {
					if slices.Equal(page[2*k:2*k+2], want[1:]) {
						entries[k]++
					}
				}
			}
			if done, success := e.Act(answer); done != (turn == 3) || success != done {
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
