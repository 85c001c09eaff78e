package show

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

// drawn returns groups of trajectories of one answer each, of a prompt, reasoning and action, all of one
// token: in each group some reasonings, and some answers to each. A reasoning succeeds with the
// probability that chance returns.
func drawn(random *rand.Rand, groups, reasonings, answers int, chance func() float64) (*reweight.Batch, []beginning) {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	var begins []beginning
	for g := range groups {
		for m := range reasonings {
			p := chance()
			for range answers {
				one := reweight.Batch{Role: []reweight.Role{reweight.RoleMasked, reweight.RoleReasoning,
					reweight.RoleAction}, TokenIDs: []int32{int32(g), int32(m), random.Int32N(50)}}
				begins = append(begins, beginningOf(&one))
				b.Role = append(b.Role, one.Role...)
				b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
				b.GroupIDs = append(b.GroupIDs, int32(g))
				reward := float32(0)
				if random.Float64() < p {
					reward = 1
				}
				b.Rewards = append(b.Rewards, reward)
			}
		}
	}
	return b, begins
}

func TestSummary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name   string
		chance func() float64
		want   float64
	}{
		{"the answer alone", func() float64 { return 0.5 }, 0},
		{"the reasoning alone", func() float64 { return float64(random.IntN(2)) }, 1},
		{"half of the reasonings are lost", func() float64 { return 0.5 * float64(random.IntN(2)) }, 1. / 3}, // 1/16 of 3/16
	} {
		b, begins := drawn(random, 400, 4, 3, c.chance)
		lines := summary(b, Credit{Weights: slices.Repeat([]float32{9, 0.1, 0.3}, len(begins))}, begins, false)
		if lines[0] != "Actions are 50.0% of the agent's 9,600 tokens, and have 75.0% of the weight by ActFocus." || lines[1] != "Answers without an action: 0 of 4800." {
			t.Errorf("%q", lines)
		}
		if want := "A loss that is a mean over tokens divides by the sum of the weights: it multiplies the advantages of actions by 1.5 on average, and those of reasoning by 0.5."; lines[len(lines)-1] != want {
			t.Errorf("%q, want %q", lines[len(lines)-1], want)
		}
		d := 0.0
		last := lines[len(lines)-2] // before what the loss does
		_, err := fmt.Sscanf(last, "D, the share of the reward's variance given the prompt that the reasoning decides: %f, from 1600 reasonings that have several answers.", &d)
		if err != nil || math.Abs(d-c.want) > 0.04 {
			t.Errorf("%s: %q (%v), want %.2f", c.name, last, err, c.want)
		}
	}

	// By hand: the means 1/2 and 1 vary by 1/8, and luck alone makes that; two reasonings without a second answer say
	// nothing.
	b, begins := drawn(random, 2, 2, 2, func() float64 { return 1 })
	b.Rewards = []float32{0, 1, 1, 1, 1, 1, 1, 1}
	if d := decided(b, map[int32][]int{0: {0, 1, 2, 3}, 1: {4, 6}}, begins); d != (decision{0, 2, 6, 4}) {
		t.Errorf("D is %+v", d)
	}
	if d := decided(b, map[int32][]int{0: {0, 1, 2, 3}},
		append([]beginning{0, 0}, begins[2:]...)); d != (decision{0, 0, 2, 2}) {
		t.Errorf("malformed answers count as a reasoning: %+v", d)
	}
	b.Rewards[0] = 1
	if d := decided(b, map[int32][]int{0: {0, 1, 2, 3}}, begins); d.reasonings != 0 {
		t.Errorf("equal rewards have D, of %+v", d)
	}

	// Four of eight answers with a reasoning of another one are not nearly all of them.
	b.Rewards = []float32{0, 1, 1, 1, 1, 1, 1, 1}
	alone := slices.Clone(begins)
	for i := 4; i < 8; i++ {
		alone[i] = beginning(i)
	}
	lines := summary(b, Credit{}, alone, false)
	if last := lines[len(lines)-1]; strings.Contains(last, "D, ") ||
		!strings.Contains(last, "python -m reweight audit measures it") {
		t.Errorf("%q", last)
	}
	if lines = summary(b, Credit{}, append(begins[:7:7], 0), false); !strings.Contains(lines[len(lines)-1],
		"decides: 0.00, from 2 reasonings") {
		t.Errorf("%q", lines)
	}

	// A group of equal rewards, one in which AEM does nothing, and answers without an action.
	b.Rewards = []float32{0, 1, 0, 1, 1, 1, 1, 1}
	b.Role[2], b.Role[5] = reweight.RoleReasoning, reweight.RoleReasoning
	factors := slices.Repeat([]float32{1}, 24)
	factors[4] = 1.5
	factors[12] = 7 // of a masked token
	text := strings.Join(summary(b, Credit{Factors: factors}, make([]beginning, 8), false), "\n")
	for _, want := range []string{"Actions are 37.5% of the agent's 16 tokens.", "Answers without an action: 2 of 8.",
		"Groups in which all rewards are equal: 1 of 2.", "are alike: 1 of 2."} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	if strings.Contains(text, "D, ") {
		t.Errorf("%q has D without beginnings", text)
	}
	if got := summary(new(reweight.Batch), Credit{}, nil, false); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}
