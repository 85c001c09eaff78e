package scheme

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

// rollouts returns a batch that has all that schemes read: groups of four trajectories of
// two spans, after tokens that are masked and NaN.
func rollouts(groups int) *reweight.Batch {
	r := rand.New(rand.NewPCG(1, 2))
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	nan := float32(math.NaN())
	for q := range 4 * groups {
		b.GroupIDs = append(b.GroupIDs, int32(q/4))
		b.Rewards = append(b.Rewards, float32(q*q%3%2)*float32(2+q%3))
		for span := range 2 {
			b.Anchors = append(b.Anchors, int32(span))
			b.SpanRewards = append(b.SpanRewards, r.Float32())
			n := 6 + r.IntN(8)
			for i := range n {
				old, f := float32(-r.ExpFloat64()), r.Float32()
				b.Role = append(b.Role, reweight.RoleReasoning)
				b.SpanIDs = append(b.SpanIDs, int32(2*q+span))
				b.Entropy, b.RefEnergy = append(b.Entropy, f), append(b.RefEnergy, -20*r.Float32())
				b.OldLogprobs, b.Logprobs = append(b.OldLogprobs, old), append(b.Logprobs, min(0, old+float32(r.NormFloat64())))
				b.RolloutLogprobs, b.Advantages = append(b.RolloutLogprobs, old+float32(r.NormFloat64())), append(b.Advantages, f-0.5)
				b.Values, b.NewValues, b.Returns = append(b.Values, f), append(b.NewValues, f-r.Float32()), append(b.Returns, r.Float32())
				b.RefLogprobs, b.TeacherLogprobs = append(b.RefLogprobs, old-r.Float32()), append(b.TeacherLogprobs, old+f-0.5)
				b.SumSqProbs = append(b.SumSqProbs, f)
				last := len(b.Role) - 1
				switch {
				case i < 2:
					b.Role[last], b.SpanIDs[last] = reweight.RoleMasked, -1
					for _, x := range [][]float32{b.Entropy, b.RefEnergy, b.OldLogprobs, b.Logprobs, b.RolloutLogprobs, b.Advantages, b.Values, b.NewValues, b.Returns, b.RefLogprobs, b.TeacherLogprobs, b.SumSqProbs} {
						x[last] = nan
					}
				case i > n-3:
					b.Role[last] = reweight.RoleAction
				}
			}
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
	}
	for q := range b.Trajectories() {
		b.RewardParts = append(b.RewardParts, float32(q%3), float32(q%5%2))
	}
	return b
}

// newStep returns a step of the scheme, with a bound for the off-policy mask and what else
// change makes of the options.
func newStep(t *testing.T, name string, b *reweight.Batch, change func(*Options)) *Step {
	t.Helper()
	s, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	s.Options.Delta, s.Options.Loss.Beta = 0.01, 0.3
	if change != nil {
		change(&s.Options)
	}
	st, err := s.NewStep(&reweight.Workspace{Workers: 1}, b)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// step does a step of the scheme.
func step(t *testing.T, name string, b *reweight.Batch, change func(*Options)) (*Step, reweight.LossResult) {
	t.Helper()
	st := newStep(t, name, b, change)
	res, err := st.Run()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return st, res
}

// equals has the schemes whose gradient is that of another one, on rollouts without a
// response that is too long or a group of equal rewards.
var equals = map[string]string{
	"dapo": "uniform", "group_norm": "uniform", "overlong": "uniform", "group_filter": "uniform", "value_loss": "uniform",
	"seq_mean_token_mean": "grpo",
}

// TestSteps: each entry has its own gradient, that of the step in float64, as often as it
// is done, and allocates nothing.
func TestSteps(t *testing.T) {
	b := rollouts(3)
	seen := map[string][]float32{}
	names := []string{"actfocus+aem"}
	for _, e := range Entries() {
		names = append(names, strings.TrimPrefix(e.Name+map[string]string{"kl_rewards": "+reinforce++"}[e.Name], "+"))
	}
	for _, name := range names {
		st, res := step(t, name, b, nil)
		grad := slices.Clone(st.Grad)
		if math.IsNaN(res.Loss) || !slices.ContainsFunc(grad, func(g float32) bool { return g != 0 }) || slices.ContainsFunc(grad, func(g float32) bool { return g != g }) {
			t.Errorf("%s: loss %v, gradient %v", name, res.Loss, grad)
		}
		if err := st.Check(res); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for other, g := range seen {
			same := equals[name] == other || equals[other] == name || equals[name] != "" && equals[name] == equals[other]
			if slices.Equal(g, grad) != same {
				t.Errorf("%s and %s: equal gradients %v", name, other, !same)
			}
		}
		seen[name] = grad
		var err error
		if n := testing.AllocsPerRun(5, func() { _, err = st.Run() }); n != 0 || err != nil || !slices.Equal(grad, st.Grad) {
			t.Errorf("%s: %v allocations, %v, or another gradient", name, n, err)
		}
	}
}

// TestCheck: what is wrong by a little is found.
func TestCheck(t *testing.T) {
	b := rollouts(3)
	for want, spoil := range map[string]func(st *Step, res *reweight.LossResult){
		"aem+reject: advantages[": func(st *Step, _ *reweight.LossResult) { st.Advantages[5] += 1e-3 },
		"aem+reject: weights[":    func(st *Step, _ *reweight.LossResult) { st.Weights[5] = 0.999 },
		"aem+reject: gradient[":   func(st *Step, _ *reweight.LossResult) { st.Grad[5] = float32(math.NaN()) },
		"aem+reject: loss = ":     func(_ *Step, res *reweight.LossResult) { res.Loss += 1e-4 },
	} {
		st, res := step(t, "aem+reject", b, nil)
		if err := st.Check(res); err != nil {
			t.Error(err)
		}
		spoil(st, &res)
		if err := st.Check(res); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "float64 has ") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestJoined: weights multiply, factors multiply, and one after the other makes the
// advantages.
func TestJoined(t *testing.T) {
	b := rollouts(3)
	opt := func(opt *Options) { opt.Loss.Aggregation = reweight.SeqMeanTokenSum }
	uniform, _ := step(t, "uniform", b, opt)
	product := func(what string, got []float32, of ...[]float32) {
		t.Helper()
		for i, g := range got {
			want := of[0][i]
			for _, x := range of[1:] {
				want *= x[i]
			}
			if g != want {
				t.Fatalf("%s[%d] = %v, want %v", what, i, g, want)
			}
		}
	}
	focus, _ := step(t, "actfocus", b, opt)
	high, _ := step(t, "entropy_mask", b, opt)
	kept, _ := step(t, "reject", b, opt)
	all, _ := step(t, "reject+entropy_mask+actfocus+rloo+gspo", b, opt)
	product("weights", all.Weights, focus.Weights, high.Weights, kept.Weights)
	if all.Loss().Policy != reweight.PolicyGSPO || all.Loss().ClipHigh != reweight.DefaultGSPO.ClipHigh || all.Loss().Aggregation != reweight.SeqMeanTokenSum {
		t.Errorf("the loss is %+v", all.Loss())
	}
	rloo, _ := step(t, "rloo", b, opt)
	if !slices.Equal(all.Advantages, rloo.Advantages) || slices.Equal(rloo.Advantages, uniform.Advantages) {
		t.Error("the advantages are not those of RLOO")
	}

	var ws reweight.Workspace
	factors := make([]float32, b.Tokens())
	if err := ws.AEM(factors, b, reweight.DefaultAEM); err != nil {
		t.Fatal(err)
	}
	truncated := make([]float32, b.Tokens())
	if err := ws.RolloutCorrection(truncated, b, reweight.DefaultRolloutCorrection); err != nil {
		t.Fatal(err)
	}
	both, _ := step(t, "aem+tis", b, opt)
	product("advantages", both.Advantages, uniform.Advantages, factors, truncated)

	one := *b
	one.Advantages = rloo.Advantages
	want := make([]float32, b.Tokens())
	if err := ws.EMPG(want, &one, reweight.DefaultEMPG); err != nil {
		t.Fatal(err)
	}
	if empg, _ := step(t, "rloo+empg", b, opt); !slices.Equal(empg.Advantages, want) {
		t.Error("EMPG does not follow RLOO")
	}
}

// TestDrGRPO: no standard deviation, and sums over one length.
func TestDrGRPO(t *testing.T) {
	b := rollouts(2)
	st, _ := step(t, "dr_grpo", b, nil)
	want := make([]float32, b.Tokens())
	if err := new(reweight.Workspace).GRPO(want, b, reweight.GRPOOptions{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(st.Advantages, want) || st.Loss().Aggregation != reweight.SeqMeanTokenSumNorm {
		t.Errorf("advantages %v, want %v, aggregation %v", st.Advantages, want, st.Loss().Aggregation)
	}
}

// TestDAPO: the penalty counts for the advantages, and not for which groups are kept.
func TestDAPO(t *testing.T) {
	b := rollouts(2)
	copy(b.Rewards, []float32{1, 1, 1, 1, 0, 1, 1, 0}) // the first group is left out
	before := slices.Clone(b.Rewards)
	st, res := step(t, "dapo", b, nil)
	first := b.SeqOffsets[4]
	for i, w := range st.Weights {
		if want := b.Role[i] != reweight.RoleMasked && int64(i) >= first; w != map[bool]float32{true: 1}[want] {
			t.Fatalf("weights[%d] = %v", i, w)
		}
	}
	if res.WeightSum == 0 || !slices.Equal(b.Rewards, before) {
		t.Errorf("weights %v, rewards %v", res.WeightSum, b.Rewards)
	}
	penalise(st)
	if _, err := st.Run(); err != nil {
		t.Fatal(err)
	}
	want := make([]float32, b.Tokens())
	shaped := *b
	shaped.Rewards = []float32{1, 0, -1, -2, -4, -4, -5, -7}
	if err := new(reweight.Workspace).GRPO(want, &shaped, reweight.DefaultGRPO); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(st.Advantages, want) || !slices.Equal(b.Rewards, before) || st.Weights[3] != 0 {
		t.Errorf("advantages %v, want %v", st.Advantages, want)
	}
}

// penalise makes the overlong penalty of trajectory q minus q.
func penalise(st *Step) {
	for i, e := range st.scheme.entries {
		if e.Name == "overlong" {
			penalty := *e
			penalty.call = func(_ *workspace, dst []float32, _ *batch, _ *Options) error {
				for q := range dst {
					dst[q] = -float32(q)
				}
				return nil
			}
			st.scheme.entries[i] = &penalty
		}
	}
}

// TestPenaltyOfTokens: the penalty is in the rewards of tokens too, at the last response
// token, whether they are the file's or made from the outcome.
func TestPenaltyOfTokens(t *testing.T) {
	b := rollouts(2)
	copy(b.Rewards, []float32{1, 1, 1, 1, 0, 1, 1, 0})
	last := make([]int, b.Trajectories())
	b.Role[b.Tokens()-1] = reweight.RoleMasked // the last response token is not the last
	for s := range last {
		for last[s] = int(b.SeqOffsets[s+1]) - 1; b.Role[last[s]] == reweight.RoleMasked; last[s]-- {
		}
	}
	for _, given := range []bool{false, true} {
		want := make([]float32, b.Tokens()) // rewards of tokens
		if given {
			b.TokenRewards = make([]float32, b.Tokens())
			for i, role := range b.Role {
				if b.TokenRewards[i] = float32(i % 3); role == reweight.RoleMasked {
					b.TokenRewards[i] = float32(math.NaN())
				}
			}
			copy(want, b.TokenRewards)
		}
		for s, i := range last {
			if want[i] -= float32(s); !given {
				want[i] += b.Rewards[s]
			}
		}
		rewards, tokens := slices.Clone(b.Rewards), slices.Clone(b.TokenRewards)
		shaped := *b
		shaped.TokenRewards = want
		var ws reweight.Workspace
		advantages := make([]float32, b.Tokens())
		if err := ws.ReinforcePlusPlus(advantages, nil, &shaped, reweight.DefaultReinforcePlusPlus); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"dapo+reinforce++", "reinforce++"} {
			st := newStep(t, name, b, nil)
			penalise(st)
			var err error
			for range 2 {
				if _, err := st.Run(); err != nil {
					t.Fatal(err)
				}
				if slices.Equal(st.Advantages, advantages) != (name != "reinforce++") {
					t.Errorf("%s, token rewards given %v: advantages %v, with the penalty %v", name, given, st.Advantages, advantages)
				}
			}
			if n := testing.AllocsPerRun(5, func() { _, err = st.Run() }); n != 0 || err != nil {
				t.Errorf("%s: %v allocations, %v", name, n, err)
			}
			sameTokens := slices.EqualFunc(b.TokenRewards, tokens, func(x, y float32) bool { return x == y || x != x && y != y })
			if !slices.Equal(b.Rewards, rewards) || !sameTokens {
				t.Errorf("%s changes the rewards of the batch", name)
			}
			if name != "reinforce++" && (st.Weights[3] != 0 || st.Weights[last[4]] != 1) { // groups by the outcome
				t.Errorf("weights %v", st.Weights)
			}
		}
	}
}

// TestWithoutRewards: the batch's own advantages take the place of those of GRPO, and
// token rewards that of the outcome.
func TestWithoutRewards(t *testing.T) {
	b := rollouts(2)
	outcome, _ := step(t, "reinforce++", b, nil)
	given := slices.Clone(b.Advantages)
	rewards := b.Rewards
	b.Rewards, b.GroupIDs = nil, nil
	st, _ := step(t, "cispo", b, nil)
	for i, a := range st.Advantages {
		if masked := b.Role[i] == reweight.RoleMasked; masked && a != 0 || !masked && a != given[i] {
			t.Fatalf("advantages[%d] = %v, want %v", i, a, given[i])
		}
	}
	b.TokenRewards = make([]float32, b.Tokens())
	for s, r := range rewards {
		b.TokenRewards[b.SeqOffsets[s+1]-1] = r
	}
	if tokens, _ := step(t, "reinforce++", b, nil); !slices.Equal(tokens.Advantages, outcome.Advantages) {
		t.Error("token rewards of the outcome have other advantages")
	}
}

// TestStepErrors: what a batch has wrong is said in the names of its arrays.
func TestStepErrors(t *testing.T) {
	for name, spoil := range map[string]func(b *reweight.Batch){
		"Entropy[5]":         func(b *reweight.Batch) { b.Entropy[5] = float32(math.Inf(1)) },
		"RolloutLogprobs[5]": func(b *reweight.Batch) { b.RolloutLogprobs[5] = float32(math.NaN()) },
	} {
		b := rollouts(2)
		spoil(b)
		if _, err := newStep(t, "tis+entropy_mask", b, nil).Run(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

// TestStepShapes: an array of a wrong length is an error, and never a panic.
func TestStepShapes(t *testing.T) {
	names := []string{"dapo+reinforce++", "kl_rewards+gae+value_loss", "overlong", "empg+aem+actfocus+entropy_mask"}
	for _, s := range All() {
		names = append(names, s.Name)
	}
	for _, name := range names {
		for _, given := range [][]string{nil, {"rewards"}, {"rewards", "token_rewards"}} { // that the batch does not have
			b := rollouts(2)
			b.TokenRewards = slices.Clone(b.Values)
			for _, a := range b.Arrays() {
				if slices.Contains(given, a.Name) {
					*a.Data.(*[]float32) = nil
				}
			}
			s := MustParse(name)
			s.Options.Delta, s.Options.Loss.Beta = 0.1, 0.3
			for _, a := range b.Arrays() {
				for _, more := range []int{-1, 1} {
					c := *b
					x := reflect.ValueOf(&c).Elem().FieldByName(a.Field)
					if a.Len() < 2 || !slices.Contains(s.Reads(), a.Name) {
						continue
					}
					if x.Set(x.Slice(0, x.Len()-1)); more > 0 {
						x.Set(reflect.AppendSlice(reflect.ValueOf(a.Data).Elem().Slice3(0, a.Len(), a.Len()), x.Slice(0, 1)))
					}
					st, err := s.NewStep(new(reweight.Workspace), &c)
					if err == nil {
						_, err = st.Run()
					}
					unread := a.Name == "seq_offsets" && given != nil || a.Name == "group_ids" || a.Name == "rewards" || a.Name == "advantages" || a.Name == "token_rewards" // where others take their place
					if err == nil && !unread {
						t.Errorf("%s takes %s of %d elements", name, a.Name, x.Len())
					}
				}
			}
		}
	}
}

// TestCritic: beside the loss of the policy stands that of the critic, with the returns of
// GAE or those of the batch.
func TestCritic(t *testing.T) {
	b := rollouts(2)
	n := b.Tokens()
	for name, ofGAE := range map[string]bool{"gae+value_loss": true, "value_loss": false} {
		st, _ := step(t, name, b, func(o *Options) { o.GAE.Lambda, o.ValueLoss.Clip = 0.9, 0.1 })
		want := *b
		var ws reweight.Workspace
		if ofGAE {
			tokens := make([]float32, n)
			if err := ws.KLRewards(tokens, b, reweight.KLRewardsOptions{}); err != nil {
				t.Fatal(err)
			}
			want.Returns = make([]float32, n)
			if err := ws.GAE(make([]float32, n), want.Returns, tokens, b, reweight.GAEOptions{Gamma: 1, Lambda: 0.9}); err != nil {
				t.Fatal(err)
			}
		}
		grad := make([]float32, n)
		value, err := ws.ValueLoss(grad, &want, reweight.ValueLossOptions{Clip: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		if st.Value != value || !slices.Equal(st.ValueGrad, grad) || value.Loss == 0 || (st.Returns != nil) != ofGAE || ofGAE && !slices.Equal(st.Returns, want.Returns) {
			t.Errorf("%s: %+v, gradient %v, want %+v, %v", name, st.Value, st.ValueGrad, value, grad)
		}
	}
}
