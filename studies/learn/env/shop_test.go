package env

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

func shopTokens(text string) []int32 {
	var tokens []int32
	for _, word := range strings.Fields(text) {
		tokens = append(tokens, Token(word))
	}
	return tokens
}

func shopText(tokens []int32) string {
	var words []string
	for _, token := range tokens {
		words = append(words, Words[token])
	}
	return strings.Join(words, " ")
}

// A shopModel is a second implementation of the rules: a table, made from what
// the game says while somebody looks at everything. Place 0 is the start, 1 to 4
// are the results for the types, and 5 to 20 the items.
type shopModel struct {
	observation [21]string
	next        [21]map[string]int // the place after each answer that is possible, but for buying
	right       int                // the place of the wanted item
}

func newShopModel(t rapid.TB, start uint64) *shopModel {
	m := &shopModel{right: -1}
	e := newShop()
	say := func(place int, answers ...string) string {
		e.Reset(start, 0)
		for _, answer := range answers {
			if done, _ := e.Act(shopTokens(answer)); done {
				t.Fatalf("%q ends the episode", answers)
			}
		}
		m.observation[place] = shopText(e.Observe(nil))
		return m.observation[place]
	}
	want, found := strings.CutPrefix(say(0), "start want ")
	item := strings.Fields(want)
	if !found || len(item) != 3 || !slices.Contains(shopTypeWords, item[0]) ||
		!slices.Contains(shopColourWords, item[1]) || !slices.Contains(shopSizeWords, item[2]) {
		t.Fatalf("at the start: %q", m.observation[0])
	}
	m.next[0] = map[string]int{}
	for i, kind := range shopTypeWords {
		m.next[0]["search "+kind] = 1 + i
	}
	for i, kind := range shopTypeWords {
		m.next[1+i] = map[string]int{}
		for answer, place := range m.next[0] {
			m.next[1+i][answer] = place
		}
		page := say(1+i, "search "+kind)
		entries, found := strings.CutSuffix(page, " want "+want)
		entries, results := strings.CutPrefix(entries, "results ")
		words := strings.Fields(entries)
		if !found || !results || len(words) != 8 {
			t.Fatalf("results: %q", page)
		}
		seen := map[string]bool{}
		sameColour, sameSize := 0, 0
		for k := range 4 {
			colour, size := words[2*k], words[2*k+1]
			look := colour + " " + size
			click := "click " + look
			place := 5 + 4*i + k
			m.next[1+i][click] = place
			m.next[place] = map[string]int{"back": 1 + i}
			if got := say(place, "search "+kind, click); got != "item "+kind+" "+look+" want "+want {
				t.Fatalf("entry %d of %q is %q", k+1, page, got)
			}

			// What the catalogue promises.
			if !slices.Contains(shopColourWords, colour) || !slices.Contains(shopSizeWords, size) || seen[look] {
				t.Fatalf("entry %d of %q", k+1, page)
			}
			seen[look] = true
			switch {
			case kind+" "+look == want:
				m.right = place
			case colour == item[1] && size != item[2]:
				sameColour++
			case colour != item[1] && size == item[2]:
				sameSize++
			default:
				t.Fatalf("entry %d of %q is neither right nor a near miss", k+1, page)
			}
		}
		if sameColour == 0 || sameSize == 0 || (kind == item[0]) != (sameColour+sameSize == 3) {
			t.Fatalf("near misses of %q: %d of the colour, %d of the size", page, sameColour, sameSize)
		}
	}
	return m
}

// TestShopPlayers plays a while without a plan, with answers that may mean
// nothing, and leaves the rest to Best.
func TestShopPlayers(t *testing.T) {
	e := newShop()
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(1, 1))
		start := rapid.Uint64().Draw(t, "start")
		m := newShopModel(t, start)
		e.Reset(start, rapid.Uint64().Draw(t, "luck"))
		place := 0
		for turn := 1; turn <= 6; turn++ {
			if got := shopText(e.Observe(nil)); got != m.observation[place] {
				t.Fatalf("in place %d: %q, want %q", place, got, m.observation[place])
			}
			observation := strings.Fields(m.observation[place])
			wanted, seen := observation[len(observation)-3:], observation[1:len(observation)-4]

			// Best follows from the observation alone.
			var best string
			switch observation[0] {
			case "start":
				best = "search " + wanted[0]
			case "results":
				best = "search " + wanted[0]
				for k := range 4 {
					if slices.Equal(seen[2*k:2*k+2], wanted[1:]) {
						best = "click " + wanted[1] + " " + wanted[2]
					}
				}
			case "item":
				best = "back"
				if slices.Equal(seen, wanted) {
					best = "buy"
				}
			}
			if got := shopText(e.Best()); got != best {
				t.Fatalf("%q: best is %q, want %q", observation, got, best)
			}
			for range 3 {
				answer := shopText(e.Random(random))
				if _, possible := m.next[place][answer]; !possible && (answer != "buy" || place < 5) {
					t.Fatalf("%q: random play says %q", observation, answer)
				}
			}

			answer := best
			switch rapid.IntRange(0, 4).Draw(t, "player") {
			case 0:
				token := rapid.Int32Range(0, int32(len(Words))-1)
				answer = shopText(rapid.SliceOfN(token, 0, 3).Draw(t, "answer"))
			case 1:
				answer = rapid.SampledFrom(shopAllAnswers).Draw(t, "answer")
			case 2:
				answer = shopText(e.Random(random))
			}
			next, possible := m.next[place][answer]
			buying := answer == "buy" && place >= 5
			var reason string
			switch words := strings.Fields(answer); {
			case buying:
				reason = strings.Join(seen[1:], " ") + " here"
			case !possible:
				next = place
			case words[0] == "search":
				reason = "want " + words[1]
			case words[0] == "click":
				reason = "here " + words[1]
			case words[0] == "back":
				reason = strings.Join(seen[1:], " ") + " not"
			}
			if got := shopText(e.Reason(shopTokens(answer))); got != reason {
				t.Fatalf("%q: reason for %q is %q, want %q", observation, answer, got, reason)
			}
			done, success := e.Act(shopTokens(answer))
			if done != (buying || turn == 6) || success != (buying && place == m.right) {
				t.Fatalf("%q: after %q, turn %d: %v, %v", observation, answer, turn, done, success)
			}
			if done {
				return
			}
			place = next
		}
	})
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
