package train

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

var recorders = env.Game{New: newRecorder}

// Each response ends with its last word and no earlier, has these roles, and
// carries out this answer. A good response after it is not the worse for it.
func TestSay(t *testing.T) {
	for _, c := range []struct{ response, roles, answer string }{
		{"<answer> up </answer>", "rar", "up"},
		{"to 1 2 <answer> up </answer>", "rrrrar", "up"},
		{"<answer> 1 2 3 4 </answer>", "raaaar", "1 2 3 4"}, // the longest answer
		{"so so so so so so so so so <answer> up </answer>", "rrrrrrrrrrar", "up"},
		{"<answer> <agent> </answer>", "rar", "<agent>"},

		{"up </answer>", "rr", ""},
		{"</answer>", "r", ""},
		{"<answer> </answer>", "rr", ""},
		{"<answer> up <answer> left </answer>", "raaar", "up <answer> left"},
		{"<answer> 1 2 3 4 5", "rrrrrr", ""},
		{"to <answer> 1 <answer> 3 4 5", "rrrrrrr", ""},
		{"so so so so so so so so so so so so", "rrrrrrrrrrrr", ""},
		{"so so so so so so so so so so <answer> up", "rrrrrrrrrrrr", ""},
		{"so so so so so so so <answer> 1 2 3 4", "rrrrrrrrrrrr", ""},
		{"so so so so so so so so so so so </answer>", "rrrrrrrrrrrr", ""},
	} {
		game := new(recorder)
		e := &episode{game: game}
		e.begin(2, 1)
		for turn, part := range []struct{ response, roles, answer string }{c, {"<answer> up </answer>", "rar", "up"}, c} {
			before := len(e.tokens)
			if e.tokens[before-1] != env.Begin || strings.Trim(letters(e.role[len(e.role)-2:]), "m") != "" {
				t.Fatalf("%s: turn %d does not follow an observation", c.response, turn)
			}
			for _, token := range sentence(part.response) {
				if int(e.turns) != turn {
					t.Fatalf("%s: the turn is over before the last word", c.response)
				}
				e.say(token)
			}
			end := before + len(part.roles)
			if int(e.turns) != turn+1 || len(game.answers) != turn+1 {
				t.Fatalf("%s: %d turns and %d answers, want %d", c.response, e.turns, len(game.answers), turn+1)
			}
			if got := letters(e.role[before:end]); got != part.roles {
				t.Errorf("%s: turn %d has the roles %s, want %s", c.response, turn, got, part.roles)
			}
			if got := game.answers[turn]; got != part.answer {
				t.Errorf("%s: turn %d has the answer %q, want %q", c.response, turn, got, part.answer)
			}
			for i, of := range e.turn[before:] {
				if want := int32(turn); i < len(part.roles) && of != want || i >= len(part.roles) && of != -1 {
					t.Errorf("%s: token %d of turn %d has the number %d", c.response, i, turn, of)
				}
			}
			if e.done != (turn == 2) || e.done != (len(e.tokens) == end) {
				t.Errorf("%s: after turn %d: over %t, %d tokens of the next observation", c.response, turn, e.done, len(e.tokens)-end)
			}
		}
	}
}

// talker returns a policy that says a tag or a digit more often than other words.
func talker() *policy.Policy {
	agent := policy.New(len(env.Words), 8, 1)
	for token, more := range map[int32]float32{env.AnswerStart: 3, env.AnswerEnd: 3, arm(0): 2, arm(1): 2} {
		agent.HeadBias[token] = more
	}
	return agent
}

// alone plays one episode by itself, token by token, and says what a batch of it
// has, with the log-probabilities of what was drawn.
func alone(agent *policy.Policy, s start) reweight.Batch {
	game := new(recorder)
	game.Reset(s.state, s.luck)
	draws := rand.New(rand.NewPCG(s.draws, 0))
	state := make([]float32, agent.Hidden)
	b := reweight.Batch{GroupIDs: []int32{s.group}, Rewards: []float32{0}}
	read := func(token int32) {
		b.TokenIDs = append(b.TokenIDs, token)
		agent.Step(state, token)
	}
	for done, success, span := false, false, int32(0); !done; span++ {
		for _, token := range append(game.Observe(), env.Begin) {
			read(token)
			b.Role, b.SpanIDs, b.OldLogprobs = append(b.Role, reweight.RoleMasked), append(b.SpanIDs, -1), append(b.OldLogprobs, 0)
		}
		var response []int32
		begin, whole := -1, false
		for len(response) < 12 && !whole && (begin < 0 || len(response)-begin < 6) {
			logits := agent.Logits(state, []int{0})
			token := policy.Sample(logits, draws.Float64())
			sum := 0.0
			for _, x := range logits {
				sum += math.Exp(float64(x))
			}
			b.OldLogprobs = append(b.OldLogprobs, float32(float64(logits[token])-math.Log(sum)))
			if begin < 0 && token == env.AnswerStart {
				begin = len(response)
			}
			whole = token == env.AnswerEnd
			response = append(response, token)
			read(token)
		}
		var answer []int32
		if whole && begin >= 0 {
			answer = response[begin+1 : len(response)-1]
		}
		for i := range response {
			role := reweight.RoleReasoning
			if answer != nil && i > begin && i < len(response)-1 {
				role = reweight.RoleAction
			}
			b.Role, b.SpanIDs = append(b.Role, role), append(b.SpanIDs, span)
		}
		if done, success = game.Act(env.Find(game, answer)); success {
			b.Rewards[0] = 1
		}
	}
	return b
}

// A batch of episodes in lockstep holds, one after another, what each of them is
// when it is played alone.
func TestPlay(t *testing.T) {
	agent := talker()
	tr := trainer{reference: agent}
	tr.agent = agent.Clone()
	tr.seats.play(tr.agent, recorders, starts(5, 8, forTraining, 3, 0)) // leaves its memory to the next
	begin := starts(10, 12, forTraining, 3, 1)
	tr.seats.play(tr.agent, recorders, begin)
	b := &tr.seats.batch
	must.Do(tr.describe(b))
	must.Do(b.Validate())

	want := reweight.Batch{SeqOffsets: []int64{0}}
	spans, wins := int32(0), 0.0
	for _, s := range begin {
		one := alone(agent, s)
		for i, span := range one.SpanIDs {
			if span >= 0 {
				one.SpanIDs[i] += spans
			}
		}
		spans = slices.Max(one.SpanIDs) + 1
		want.TokenIDs = append(want.TokenIDs, one.TokenIDs...)
		want.Role = append(want.Role, one.Role...)
		want.SpanIDs = append(want.SpanIDs, one.SpanIDs...)
		want.OldLogprobs = append(want.OldLogprobs, one.OldLogprobs...)
		want.GroupIDs = append(want.GroupIDs, one.GroupIDs...)
		want.Rewards = append(want.Rewards, one.Rewards...)
		want.SeqOffsets = append(want.SeqOffsets, int64(len(want.TokenIDs)))
		wins += float64(one.Rewards[0])
	}
	for _, array := range []struct {
		name      string
		got, want any
	}{
		{"TokenIDs", b.TokenIDs, want.TokenIDs},
		{"Role", b.Role, want.Role},
		{"SpanIDs", b.SpanIDs, want.SpanIDs},
		{"SeqOffsets", b.SeqOffsets, want.SeqOffsets},
		{"GroupIDs", b.GroupIDs, want.GroupIDs},
		{"Rewards", b.Rewards, want.Rewards},
		{"success", tr.seats.success(), wins / float64(len(begin))},
	} {
		if !reflect.DeepEqual(array.got, array.want) {
			t.Errorf("%s: in lockstep %v, alone %v", array.name, array.got, array.want)
		}
	}
	for _, c := range []struct {
		name string
		got  []float32
	}{{"OldLogprobs", b.OldLogprobs}, {"RefLogprobs", b.RefLogprobs}} { // the agent is the reference still
		for i, x := range c.got {
			if math.Abs(float64(x-want.OldLogprobs[i])) > 1e-5 {
				t.Fatalf("%s of token %d: %v, want %v", c.name, i, x, want.OldLogprobs[i])
			}
		}
	}
	if text := letters(b.Role); !strings.Contains(text, "a") || !strings.Contains(text, strings.Repeat("r", 12)) || wins == 0 || int(wins) == len(begin) {
		t.Errorf("the episodes are too much alike to test anything: %s", text)
	}
}

func TestStarts(t *testing.T) {
	const groups, size = 5, 4
	begin := starts(groups, size, forTraining, 1, 2)
	if len(begin) != groups*size {
		t.Fatalf("%d starts, want %d", len(begin), groups*size)
	}
	seen := make(map[uint64]int)
	for i, s := range begin {
		first := begin[i-i%size]
		if s.group != int32(i/size) || s.state != first.state {
			t.Errorf("start %d has the group %d and the state %d, want %d and %d", i, s.group, s.state, i/size, first.state)
		}
		if i%size == 0 {
			seen[s.state]++
		}
		seen[s.luck]++
		seen[s.draws]++
	}
	if !slices.Equal(begin, starts(groups, size, forTraining, 1, 2)) {
		t.Error("equal numbers give other starts")
	}
	for _, others := range [][]start{
		starts(groups, size, forDemonstrations, 1, 2),
		starts(groups, size, forEvaluation, 1, 2),
		starts(groups, size, forTraining, 2, 2),
		starts(groups, size, forTraining, 1, 3),
		starts(groups, size, forTraining, 2, 1),
	} {
		for i, s := range others {
			if i%size == 0 {
				seen[s.state]++
			}
			seen[s.luck]++
			seen[s.draws]++
		}
	}
	if want := 6 * (groups + 2*groups*size); len(seen) != want {
		t.Errorf("%d different numbers, want %d", len(seen), want)
	}
}
