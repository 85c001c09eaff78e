package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/env"
)

// The roles and turns of a response under other rules, and whether it is malformed.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		rules
		response, roles string
		malformed       int32
	}{
		{rules{formatActs: true}, "to 1 <answer> up </answer>", "rraaa", 0},
		{rules{formatActs: true}, "to 1 </answer>", "aaa", 1},
		{rules{formatActs: true}, "<answer> </answer>", "aa", 1},
		{rules{fluent: 2}, "so so so so so so so so so so so <answer> up </answer>", "rrrrrrrrrrrrar", 0},
		{rules{fluent: 2}, "so so so so so so so so so so so so so so", "rrrrrrrrrrrrrr", 1},
		{rules{echo: true}, "to 1 <answer> up </answer>", "rrrar", 0},
		{rules{echo: true, fluent: 2}, "<answer> up </answer>", "rar", 0},
		{rules{echo: true, fluent: 2}, "to <answer> up </answer>", "rrar", 0},
		{rules{echo: true, fluent: 2}, "to </answer>", "rr", 1},
		{rules{echo: true, fluent: 2}, "to 1 <answer> up </answer>", "rrrar", 0},
		{rules{echo: true, fluent: 1}, "to <answer> 1 2 3 4 5", "rrrrrrr", 1},
		{rules{echo: true, fluent: 1, formatActs: true}, "to <answer> </answer>", "aaa", 1},
	} {
		game := new(recorder)
		e := &episode{game: game, rules: c.rules}
		e.begin(2, 1)
		before := len(e.tokens)
		for _, token := range sentence(c.response) {
			e.say(token)
		}
		var roles []reweight.Role
		echoed := 0
		for i, turn := range e.turn[before:] {
			if turn == 0 {
				roles = append(roles, e.role[before+i])
			} else if e.role[before+i] != reweight.RoleMasked {
				t.Errorf("%s: token %d is of no response and has a role", c.response, i)
			} else if slices.Contains(e.turn[before+i:], 0) {
				echoed++
			}
		}
		if got := letters(roles); got != c.roles || e.malformed != c.malformed {
			t.Errorf("%+v, %s: roles %s, malformed %d, want %s, %d", c.rules, c.response, got, e.malformed, c.roles, c.malformed)
		}
		words := slices.Index(sentence(c.response), env.AnswerStart)
		if (echoed > 0) != (c.echo && c.fluent > 0 && words >= c.fluent) {
			t.Errorf("%+v, %s: %d tokens shown again", c.rules, c.response, echoed)
		}
	}
}

// A malformed response costs its episode the penalty, once.
func TestPenalty(t *testing.T) {
	seats := table{rules: rules{penalty: 0.1}}
	seats.seat(recorders, starts(1, 200, forTraining, 1, 0))
	for i, e := range seats.episodes {
		for !e.done {
			for _, token := range sentence([]string{"<answer> up </answer>", "up </answer>"}[i%2]) {
				e.say(token)
			}
		}
	}
	seats.pack(starts(1, 200, forTraining, 1, 0))
	for i, e := range seats.episodes {
		want := map[bool]float32{true: 1}[e.success] - []float32{0, 0.1}[i%2]
		if got := seats.batch.Rewards[i]; got != want {
			t.Errorf("episode %d: reward %v, want %v", i, got, want)
		}
	}
	if got := seats.malformed(); math.Abs(got-0.5) > 0.1 {
		t.Errorf("%v of the responses are malformed", got)
	}
}

// Fluent words follow from the two before: three of 36 do, with the chances 0.6, 0.25 and 0.15.
func TestFluent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	words := fluent(nil, random, 400000)
	after := map[[2]int32]map[int32]int{}
	for i := 2; i < len(words); i++ {
		two := [2]int32{words[i-2], words[i-1]}
		if after[two] == nil {
			after[two] = map[int32]int{}
		}
		after[two][words[i]]++
		if words[i] < int32(len(env.Words)-env.Fillers) {
			t.Fatalf("%q means something", env.Words[words[i]])
		}
	}
	entropy := 0.0
	for two, next := range after {
		n := 0
		for _, count := range next {
			n += count
		}
		if len(next) > 3 {
			t.Fatalf("%d words follow %v", len(next), two)
		}
		for _, count := range next {
			entropy -= float64(count) / float64(len(words)) * math.Log(float64(count)/float64(n))
		}
	}
	// 0.938 nats, less where two of the three are the same word.
	if entropy < 0.85 || entropy > 0.94 {
		t.Errorf("%.3f nats a word", entropy)
	}
}

// D is that of made-up episodes whose answers are right with known chances.
func TestDecided(t *testing.T) {
	for _, c := range []struct{ good, bad, want float64 }{ // chance after each of two kinds of reasoning
		{1, 0, 1}, {0.5, 0.5, 0}, {0.9, 0.1, 0.64}, {0.75, 0.25, 0.25},
	} {
		random := rand.New(rand.NewPCG(3, 4))
		var sum float64
		const n = 40
		for range n {
			var episodes []*episode
			for range decidedPrompts * decidedReasonings {
				chance := []float64{c.good, c.bad}[random.IntN(2)]
				for range decidedAnswers {
					episodes = append(episodes, &episode{success: random.Float64() < chance})
				}
			}
			sum += decided(episodes)
		}
		if got := sum / n; math.Abs(got-c.want) > 0.015 {
			t.Errorf("chances %v and %v: D is %.3f, want %.3f", c.good, c.bad, got, c.want)
		}
	}
	if d := decided(slices.Repeat([]*episode{{success: true}}, decidedPrompts*decidedReasonings*decidedAnswers)); d == d {
		t.Errorf("D of answers that are always right is %v", d)
	}
}

// The answers of one reasoning differ, and the reasoning does not.
func TestDrawnAgain(t *testing.T) {
	add(t, "bandit", 1, newBandit)
	game := env.Games["bandit"]
	settings := small
	settings.Demonstrations = 4800
	run := Run{Game: "bandit", Fluent: 3, Errors: 1}
	agent := must.Get(settings.WarmStart(run))
	all := starts(6, 1, forDecided, 5, 0)
	all = slices.Concat(all, all, all)
	for i := range all {
		all[i].again = uint64(i + 1)
	}
	seats := table{rules: settings.rules(run)}
	game.New = func() env.Environment { return firstAnswer{newBandit()} }
	seats.play(agent, game, all)
	other := false
	for i, e := range seats.episodes {
		first := seats.episodes[i%6]
		end := slices.Index(e.tokens, env.AnswerStart) + 1
		if !slices.Equal(e.tokens[:end], first.tokens[:end]) {
			t.Errorf("episode %d has another reasoning", i)
		}
		other = other || !slices.Equal(e.tokens, first.tokens)
	}
	if !other {
		t.Error("all answers are the same")
	}
	// The policy has learned a little of it.
	if d := must.Get(settings.Decided(agent, run)); !(d > 0.15 && d <= 1) {
		t.Errorf("D is %.2f where the answer follows the plan", d)
	}
	run.Errors = 0
	if d := must.Get(settings.Decided(must.Get(settings.WarmStart(run)), run)); !(math.Abs(d) < 0.1) {
		t.Errorf("D is %.2f where all mistakes are in the answer", d)
	}
}

// Groups whose rewards do not vary most weigh nothing.
func TestKeep(t *testing.T) {
	b := &reweight.Batch{GroupIDs: []int32{0, 0, 1, 1, 2, 2, 3, 3}, Rewards: []float32{0, 0, 0, 1, 1, 1, 0, 0.5}, SeqOffsets: []int64{0, 1, 2, 3, 4, 5, 6, 7, 9}}
	for _, c := range []struct {
		weights []float32
		share   float64
		want    []float32
	}{
		{nil, 0.25, []float32{0, 0, 1, 1, 0, 0, 0, 0, 0}},
		{nil, 0.5, []float32{0, 0, 1, 1, 0, 0, 1, 1, 1}},
		{[]float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.3, []float32{0, 0, 3, 4, 0, 0, 7, 8, 9}},
	} {
		if got := keep(b, c.weights, c.share); !slices.Equal(got, c.want) {
			t.Errorf("share %v: %v, want %v", c.share, got, c.want)
		}
	}
}
