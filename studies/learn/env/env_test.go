package env

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// eachGame runs a test for each of Games.
func eachGame(t *testing.T, test func(t *testing.T, game Game)) {
	for _, game := range Games {
		t.Run(game.Name, func(t *testing.T) { test(t, game) })
	}
}

// longest is the number of turns that no episode may exceed.
const longest = 64

// play acts out one episode, and returns all that can be seen of it and whether
// it was a success. It fails the test when the episode does not end.
func play(t rapid.TB, e Environment, start, luck uint64, player func() []int32) (seen []int32, success bool) {
	e.Reset(start, luck)
	for range longest {
		seen = e.Observe(seen)
		answer := player()
		seen = append(seen, answer...)
		seen = append(seen, e.Reason(answer)...)
		if done, success := e.Act(answer); done {
			return seen, success
		} else if success {
			t.Fatal("a success that is not the end")
		}
	}
	t.Fatalf("an episode of more than %d turns", longest)
	return nil, false
}

func TestWords(t *testing.T) {
	if len(tokens) != len(Words) {
		t.Error("a word occurs twice")
	}
	names := map[string]bool{}
	for _, game := range Games {
		if names[game.Name] || game.Name == "" || game.Title == "" {
			t.Errorf("the name %q or the title %q is empty or another game's", game.Name, game.Title)
		}
		names[game.Name] = true
	}
}

func TestBestWinsAsOftenAsPerfect(t *testing.T) {
	eachGame(t, func(t *testing.T, game Game) {
		const episodes = 5000
		e, perfect, wins := game.New(), game.Perfect(), 0
		for i := range uint64(episodes) {
			if _, success := play(t, e, i, i, e.Best); success {
				wins++
			}
		}
		rate := float64(wins) / episodes
		if deviation := math.Sqrt(perfect * (1 - perfect) / episodes); math.Abs(rate-perfect) > 4*deviation {
			t.Errorf("Best wins %.4f of %d episodes, Perfect says %.4f", rate, episodes, perfect)
		}
	})
}

// A player without a plan must lose often, or there is nothing to learn.
func TestRandomLoses(t *testing.T) {
	eachGame(t, func(t *testing.T, game Game) {
		const episodes = 2000
		e, random, wins := game.New(), rand.New(rand.NewPCG(1, 2)), 0
		for i := range uint64(episodes) {
			if _, success := play(t, e, i, i, func() []int32 { return e.Random(random) }); success {
				wins++
			}
		}
		rate := float64(wins) / episodes
		t.Logf("Random wins %.4f, Best %.4f", rate, game.Perfect())
		if rate > 0.3*game.Perfect() {
			t.Errorf("Random wins %.4f of the episodes", rate)
		}
	})
}

// drawAnswer draws an answer of any quality.
func drawAnswer(t *rapid.T, e Environment, random *rand.Rand) []int32 {
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return e.Best()
	case 1:
		return e.Random(random)
	case 2:
		return rapid.SliceOfN(rapid.Int32Range(0, int32(len(Words))-1), 0, 5).Draw(t, "words")
	default:
		return rapid.SliceOfN(rapid.Int32(), 0, 5).Draw(t, "garbage")
	}
}

func TestEpisodes(t *testing.T) {
	eachGame(t, func(t *testing.T, game Game) {
		rapid.Check(t, func(t *rapid.T) {
			start, luck := rapid.Uint64().Draw(t, "start"), rapid.Uint64().Draw(t, "luck")
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 0))
			e := game.New()
			var answers [][]int32
			player := func() []int32 {
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
				words("observation", e.Observe(nil), 1, 40)
				words("best", e.Best(), 1, 3)
				words("random", e.Random(random), 1, 3)
				words("reason", e.Reason(e.Best()), 2, 4)
				words("reason", e.Reason(nil), 0, 0)
				answer := slices.Clone(drawAnswer(t, e, random))
				if reason := e.Reason(answer); len(reason) > 0 {
					words("reason", reason, 2, 4)
				}
				answers = append(answers, answer)
				return answer
			}
			seen, success := play(t, e, start, luck, player)

			// The same once more, in an environment that has been used.
			e = game.New()
			play(t, e, luck, start, e.Best)
			again, successAgain := play(t, e, start, luck, func() []int32 {
				answer := answers[0]
				answers = answers[1:]
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
		"frozenlake4": "3a65a9d4ab3b14dd",
		"sokoban":     "02dbe1fafe25678a", "sudoku4": "13563da03a8f92a5", "shop": "b84846738ee59b02",
	}
	eachGame(t, func(t *testing.T, game Game) {
		hash, e, random := sha256.New(), game.New(), rand.New(rand.NewPCG(3, 4))
		for i := range uint64(1000) {
			seen, success := play(t, e, i, i+1, func() []int32 {
				best, any := e.Best(), e.Random(random)
				reasons := slices.Concat(e.Reason(best), e.Reason(any))
				for _, part := range [][]int32{best, any, reasons} {
					binary.Write(hash, binary.LittleEndian, part)
				}
				answers := [][]int32{best, best, any, {random.Int32N(int32(len(Words))), random.Int32N(int32(len(Words)))}}
				return slices.Clone(answers[random.IntN(len(answers))])
			})
			binary.Write(hash, binary.LittleEndian, seen)
			fmt.Fprint(hash, success)
		}
		if got := fmt.Sprintf("%x", hash.Sum(nil)[:8]); got != want[game.Name] {
			t.Errorf("%s: the transcript has the hash %s, want %s", game.Name, got, want[game.Name])
		}
	})
}

// Answers that mean nothing cost a turn each, whatever they are, and do nothing else.
func TestGarbageCostsATurn(t *testing.T) {
	eachGame(t, func(t *testing.T, game Game) {
		turns := func(e Environment) (n int) {
			for {
				before := e.Observe(nil)
				done, success := e.Act(nil)
				if n++; success || n > longest {
					t.Fatal("silence wins, or lasts forever")
				}
				if done {
					return n
				}
				if !slices.Equal(before, e.Observe(nil)) {
					t.Fatal("silence changes what the agent reads")
				}
			}
		}
		e := game.New()
		rapid.Check(t, func(t *rapid.T) {
			start, luck := rapid.Uint64().Draw(t, "start"), rapid.Uint64().Draw(t, "luck")
			e.Reset(start, luck)
			all := turns(e)
			e.Reset(start, luck)
			garbage := rapid.SliceOfN(rapid.SliceOfN(rapid.OneOf(
				rapid.Int32Max(-1), rapid.Int32Min(int32(len(Words))),
				rapid.Int32Range(int32(len(Words))-Fillers, int32(len(Words))-1),
			), 0, 5), 0, all-1).Draw(t, "garbage")
			for _, answer := range garbage {
				if done, _ := e.Act(answer); done {
					t.Fatal("the episode ended before its time")
				}
			}
			if left := turns(e); left != all-len(garbage) {
				t.Fatalf("after %d answers that mean nothing %d of %d turns were left", len(garbage), left, all)
			}
		})
	})
}

// Only Reset may allocate.
func TestNothingAllocated(t *testing.T) {
	eachGame(t, func(t *testing.T, game Game) {
		e, random, dst := game.New(), rand.New(rand.NewPCG(1, 2)), make([]int32, 0, 64)
		allocations := func(playing bool) float64 {
			start := uint64(0)
			return testing.AllocsPerRun(100, func() {
				start++
				e.Reset(start, start)
				for done := !playing; !done; {
					dst = e.Observe(dst[:0])
					e.Reason(e.Random(random))
					done, _ = e.Act(e.Best())
				}
			})
		}
		if resets, episodes := allocations(false), allocations(true); episodes > resets {
			t.Errorf("%v allocations an episode, of which %v in Reset", episodes, resets)
		}
	})
}
