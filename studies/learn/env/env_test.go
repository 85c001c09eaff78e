package env

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// eachGame runs a test for each of Games.
func eachGame(t *testing.T, test func(t *testing.T, name string, e Environment)) {
	for name, game := range Games {
		t.Run(name, func(t *testing.T) { test(t, name, game.New()) })
	}
}

// perfect has the share of episodes in which a perfect player succeeds, where it is not 1.
var perfect = map[string]float64{"frozenlake4": 0.8045}

// text returns the words of tokens.
func text(tokens []int32) string {
	var words []string
	for _, token := range tokens {
		words = append(words, Words[token])
	}
	return strings.Join(words, " ")
}

// longest is the number of turns that no episode may exceed.
const longest = 64

// play acts out one episode, and returns all that can be seen of it and whether
// it was a success. It fails the test when the episode does not end.
func play(t rapid.TB, e Environment, start, luck uint64, player func() []int32) (seen []int32, success bool) {
	e.Reset(start, luck)
	for range longest {
		seen = append(seen, e.Observe()...)
		words := player()
		seen = append(seen, words...)
		answer := Find(e, words)
		if answer >= 0 {
			seen = append(seen, e.Reason(answer)...)
		}
		if done, success := e.Act(answer); done {
			return seen, success
		} else if success {
			t.Fatal("a success that is not the end")
		}
	}
	t.Fatalf("an episode of more than %d turns", longest)
	return nil, false
}

func best(e Environment) []int32 { return e.Answers()[e.Best()] }

func anyAnswer(e Environment, random *rand.Rand) []int32 {
	answers := e.Answers()
	return answers[random.IntN(len(answers))]
}

func TestWords(t *testing.T) {
	if len(tokens) != len(Words) {
		t.Error("a word occurs twice")
	}
}

// A perfect player wins as often as it should, and one without a plan loses often, or
// there is nothing to learn.
func TestPlayers(t *testing.T) {
	eachGame(t, func(t *testing.T, name string, e Environment) {
		const episodes = 5000
		random := rand.New(rand.NewPCG(1, 2))
		wins := func(player func() []int32) (rate float64) {
			for i := range uint64(episodes) {
				if _, success := play(t, e, i, i, player); success {
					rate += 1. / episodes
				}
			}
			return rate
		}
		want, ok := perfect[name]
		if !ok {
			want = 1
		}
		most := wins(func() []int32 { return best(e) })
		if deviation := math.Sqrt(want * (1 - want) / episodes); math.Abs(most-want) > 4*deviation+1e-9 {
			t.Errorf("Best wins %.4f of %d episodes, want %.4f", most, episodes, want)
		}
		if rate := wins(func() []int32 { return anyAnswer(e, random) }); rate > 0.3*want {
			t.Errorf("a player without a plan wins %.4f of the episodes", rate)
		}
	})
}

// What the agent reads and says has as many words as it should, which mean something, and
// equal numbers and equal answers give equal episodes, also in an environment that has been used.
func TestEpisodes(t *testing.T) {
	eachGame(t, func(t *testing.T, name string, e Environment) {
		rapid.Check(t, func(t *rapid.T) {
			start, luck := rapid.Uint64().Draw(t, "start"), rapid.Uint64().Draw(t, "luck")
			words := func(what string, words []int32, fewest, most int) {
				for _, token := range words {
					if token <= AnswerEnd || int(token) >= len(Words)-Fillers {
						t.Fatalf("%s %v has the token %d", what, words, token)
					}
				}
				if len(words) < fewest || len(words) > most {
					t.Fatalf("%s has %d words", what, len(words))
				}
			}
			var said [][]int32
			seen, success := play(t, e, start, luck, func() []int32 {
				words("observation", e.Observe(), 1, 40)
				for i, answer := range e.Answers() {
					words("answer", answer, 1, 3)
					words("reason", e.Reason(i), 2, 4)
				}
				said = append(said, rapid.SampledFrom(append(e.Answers(), best(e), nil)).Draw(t, "answer"))
				return said[len(said)-1]
			})
			play(t, e, luck, start, func() []int32 { return best(e) })
			again, successAgain := play(t, e, start, luck, func() []int32 {
				answer := said[0]
				said = said[1:]
				return answer
			})
			if !slices.Equal(seen, again) || success != successAgain {
				t.Fatal("equal numbers and equal answers, but not equal episodes")
			}
		})
	})
}

// All that can be seen in a thousand episodes of each game, under answers of any quality, has the same hash as when the
// study was made, whose results would not be those of these games otherwise.
func TestTranscript(t *testing.T) {
	want := map[string]string{
		"frozenlake4": "3a65a9d4ab3b14dd", "sokoban": "02dbe1fafe25678a",
		"sudoku4": "13563da03a8f92a5", "shop": "581f60ce1ac0dbb7",
	}
	eachGame(t, func(t *testing.T, name string, e Environment) {
		hash, random := sha256.New(), rand.New(rand.NewPCG(3, 4))
		for i := range uint64(1000) {
			seen, success := play(t, e, i, i+1, func() []int32 {
				best, any := best(e), anyAnswer(e, random)
				reasons := slices.Concat(e.Reason(Find(e, best)), e.Reason(Find(e, any)))
				for _, part := range [][]int32{best, any, reasons} {
					binary.Write(hash, binary.LittleEndian, part)
				}
				answers := [][]int32{best, best, any,
					{random.Int32N(int32(len(Words))), random.Int32N(int32(len(Words)))}}
				return answers[random.IntN(len(answers))]
			})
			binary.Write(hash, binary.LittleEndian, seen)
			fmt.Fprint(hash, success)
		}
		if got := fmt.Sprintf("%x", hash.Sum(nil)[:8]); got != want[name] {
			t.Errorf("the transcript has the hash %s, want %s", got, want[name])
		}
	})
}

// Answers that mean nothing cost a turn each, and do nothing else.
func TestSilenceCostsATurn(t *testing.T) {
	most := map[string]int{"frozenlake4": 24, "sokoban": 10, "sudoku4": 9, "shop": 6}
	eachGame(t, func(t *testing.T, name string, e Environment) {
		for start := range uint64(50) {
			e.Reset(start, start)
			before, turns := e.Observe(), 0
			for done, success := false, false; !done; turns++ {
				if done, success = e.Act(Find(e, []int32{Token("well")})); success || turns > longest {
					t.Fatal("silence wins, or lasts forever")
				}
				if !done && !slices.Equal(before, e.Observe()) {
					t.Fatal("silence changes what the agent reads")
				}
			}
			if turns != most[name] && !(name == "sudoku4" && turns == 8) {
				t.Errorf("%d turns, want %d", turns, most[name])
			}
		}
	})
}
