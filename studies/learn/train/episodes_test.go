package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// Each response ends with its last word and no earlier, has these roles, shows the observation
// again or not, and carries out this answer. A good response after it is not the worse for it. One
// without an answer is malformed, and costs its episode the penalty, once.
func TestSay(t *testing.T) {
	acts := rules{formatRole: reweight.RoleAction}
	for _, c := range []struct {
		rules
		response, roles, answer string
		again                   bool
	}{
		{rules{}, "<answer> up </answer>", "rar", "up", false},
		{rules{}, "to 1 2 <answer> up </answer>", "rrrrar", "up", false},
		{rules{}, "<answer> 1 2 3 4 </answer>", "raaaar", "1 2 3 4", false}, // the longest answer
		{rules{}, "so so so so so so so so so <answer> up </answer>", "rrrrrrrrrrar", "up", false},
		{rules{}, "<answer> <agent> </answer>", "rar", "<agent>", false},
		{rules{}, "<answer> up <answer> left </answer>", "raaar", "up <answer> left", false},
		{acts, "to 1 <answer> up </answer>", "rraaa", "up", false},
		{rules{fluent: 1}, "<answer> up </answer>", "rar", "up", false},
		{rules{fluent: 2}, "to <answer> up </answer>", "rrar", "up", false},
		{rules{fluent: 2}, "to 1 <answer> up </answer>", "rrrar", "up", true},
		{rules{fluent: 2}, "so so so so so so so so so so so <answer> up </answer>", "rrrrrrrrrrrrar", "up", true},

		{rules{}, "up </answer>", "rr", "", false},
		{rules{}, "</answer>", "r", "", false},
		{rules{}, "<answer> </answer>", "rr", "", false},
		{rules{}, "<answer> 1 2 3 4 5", "rrrrrr", "", false},
		{rules{}, "to <answer> 1 <answer> 3 4 5", "rrrrrrr", "", false},
		{rules{}, "so so so so so so so so so so so so", "rrrrrrrrrrrr", "", false},
		{rules{}, "so so so so so so so so so so <answer> up", "rrrrrrrrrrrr", "", false},
		{rules{}, "so so so so so so so <answer> 1 2 3 4", "rrrrrrrrrrrr", "", false},
		{rules{}, "so so so so so so so so so so so </answer>", "rrrrrrrrrrrr", "", false},
		{acts, "to 1 </answer>", "aaa", "", false},
		{acts, "<answer> </answer>", "aa", "", false},
		{rules{fluent: 2}, "to </answer>", "rr", "", false},
		{rules{fluent: 1}, "to <answer> 1 2 3 4 5", "rrrrrrr", "", true},
		{rules{fluent: 2}, "so so so so so so so so so so so so so so", "rrrrrrrrrrrrrr", "", true},
		{rules{fluent: 1, formatRole: reweight.RoleAction}, "to <answer> </answer>", "aaa", "", true},
	} {
		c.newGame, c.penalty = newRecorder, 0.1
		c.formatRole = max(c.formatRole, reweight.RoleReasoning)
		e := c.begin(start{state: 2, luck: 1})
		turns := [3][2]string{{c.response, c.answer}, {"<answer> up </answer>", "up"}, {c.response, c.answer}}
		for turn, said := range turns {
			before := len(e.tokens)
			if e.tokens[before-1] != env.Begin || strings.Trim(letters(e.role[len(e.role)-2:]), "m") != "" {
				t.Fatalf("%s: turn %d does not follow an observation", c.response, turn)
			}
			for _, token := range sentence(said[0]) {
				if int(e.turns) != turn {
					t.Fatalf("%s: the turn is over before the last word", c.response)
				}
				e.say(token)
			}
			game := e.game.(*recorder)
			if int(e.turns) != turn+1 || len(game.answers) != turn+1 || e.done != (turn == 2) {
				t.Fatalf("%s: %d turns and %d answers, over %v", c.response, e.turns, len(game.answers), e.done)
			}
			if got := game.answers[turn]; got != said[1] {
				t.Errorf("%s: turn %d has the answer %q, want %q", c.response, turn, got, said[1])
			}
			if turn == 1 {
				continue
			}
			all := strings.TrimRight(letters(e.role[before:]), "m")
			if got := strings.ReplaceAll(all, "m", ""); got != c.roles || (len(all) > len(got)) != c.again {
				t.Errorf("%s: turn %d has the roles %s, want %s, again %v", c.response, turn, all, c.roles, c.again)
			}
			for i, of := range e.turn[before:] {
				if masked := e.role[before+i] == reweight.RoleMasked; masked != (of == -1) || !masked &&
					int(of) != turn {
					t.Errorf("%s: token %d of turn %d has the number %d", c.response, i, turn, of)
				}
			}
		}
		reward := map[bool]float32{true: 1}[e.success]
		bad := 0.0
		if c.answer == "" {
			reward, bad = reward-0.1, 2./3
		}
		if b := pack([]*episode{e}); b.Rewards[0] != reward || malformed([]*episode{e}) != bad {
			t.Errorf("%s: the reward %v, want %v", c.response, b.Rewards[0], reward)
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

// played returns a batch of recorders that knows its advantages, and the trainer and the episodes that it is of.
func played(algorithm string) (*trainer, []*episode, *reweight.Batch) {
	tr := must.Get(Default.trainer(Run{Algorithm: algorithm, Scheme: "actfocus"}, talker()))
	tr.newGame = newRecorder
	for i := range tr.agent.Parameters { // not the reference any more
		tr.agent.Parameters[i] *= 1.25
	}
	episodes := tr.play(tr.agent, starts(10, 12, forTraining, 3, 1))
	b := pack(episodes)
	must.Do(tr.describe(b))
	must.Get(tr.credit(b))
	return tr, episodes, b
}

// A batch holds the episodes one after another. Each token of the agent is drawn from what the policy
// says after all tokens before it, and the batch has its log-probability.
func TestPlay(t *testing.T) {
	tr, episodes, b := played("grpo")
	must.Do(b.Validate())
	if rate := success(episodes); rate == 0 || rate == 1 || malformed(episodes) == 0 || malformed(episodes) == 1 {
		t.Error("the episodes are too much alike to test anything")
	}
	at, spans := 0, int32(0)
	for i, s := range starts(10, 12, forTraining, 3, 1) {
		e := episodes[i]
		draws := rand.New(rand.NewPCG(s.draws, 0))
		agent, reference := make([]float32, tr.agent.Hidden), make([]float32, tr.agent.Hidden)
		logprob := func(p *policy.Policy, state []float32, token int32) (of float64) {
			sum, logits := 0.0, p.Logits(state, []int{0})
			for _, x := range logits {
				sum += math.Exp(float64(x))
			}
			return float64(logits[token]) - math.Log(sum)
		}
		for j, token := range e.tokens {
			var old, ref float64
			span := int32(-1)
			if e.role[j] != reweight.RoleMasked {
				if want := policy.Sample(tr.agent.Logits(agent, []int{0}), draws.Float64()); token != want {
					t.Fatalf("token %d of episode %d is %d, want %d", j, i, token, want)
				}
				old, ref = logprob(tr.agent, agent, token), logprob(tr.reference, reference, token)
				span = spans + e.turn[j]
			}
			if b.TokenIDs[at] != token || b.Role[at] != e.role[j] || b.SpanIDs[at] != span {
				t.Fatalf("token %d of the batch is not that of episode %d", at, i)
			}
			gotOld, gotRef := float64(b.OldLogprobs[at]), float64(b.RefLogprobs[at])
			if math.Abs(gotOld-old) > 1e-5 || math.Abs(gotRef-ref) > 1e-5 {
				t.Fatalf("token %d: log-probabilities %v and %v, want %v and %v", at, gotOld, gotRef, old, ref)
			}
			tr.agent.Step(agent, token)
			tr.reference.Step(reference, token)
			at++
		}
		spans += e.turns
		if b.SeqOffsets[i+1] != int64(at) || b.GroupIDs[i] != int32(i/12) {
			t.Fatalf("episode %d ends at %d in group %d", i, b.SeqOffsets[i+1], b.GroupIDs[i])
		}
	}
}

// Equal numbers give equal starts, of which a group has one state, and all other numbers differ.
func TestStarts(t *testing.T) {
	const groups, size = 5, 4
	if !slices.Equal(starts(groups, size, forTraining, 1, 2), starts(groups, size, forTraining, 1, 2)) {
		t.Error("equal numbers give other starts")
	}
	seen := make(map[uint64]int32)
	for n, begin := range [][]start{
		starts(groups, size, forTraining, 1, 2),
		starts(groups, size, forDemonstrations, 1, 2),
		starts(groups, size, forEvaluation, 1, 2),
		starts(groups, size, forTraining, 2, 2),
		starts(groups, size, forTraining, 1, 3),
		starts(groups, size, forTraining, 2, 1),
	} {
		for i, s := range begin {
			group := int32(n*groups + i/size)
			if of, ok := seen[s.state]; ok != (i%size > 0) || ok && of != group || s.group != int32(i/size) {
				t.Errorf("start %d has the group %d and the state %d", i, s.group, s.state)
			}
			seen[s.state], seen[s.luck], seen[s.draws] = group, -1, -1
		}
	}
	if want := 6 * (groups + 2*groups*size); len(seen) != want {
		t.Errorf("%d different numbers, want %d", len(seen), want)
	}
}
