package scheme

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// rollouts returns a batch that has all that schemes read: groups of four trajectories, with
// different rewards.
func rollouts(groups int) *reweight.Batch {
	b := random(rand.New(rand.NewPCG(7, 2)), 4*groups, 2)
	b.TokenRewards = nil
	for q := range b.GroupIDs {
		b.GroupIDs[q], b.Rewards[q] = int32(q/4), float32(q*q%3%2)*float32(2+q%3)
	}
	return b
}

// newStep returns a step of the scheme, with a bound for the off-policy mask and what else
// change makes of the options.
func newStep(t *testing.T, name string, b *reweight.Batch, change func(*Options)) *Step {
	t.Helper()
	s := must.Get(Parse(name))
	s.Options.setMissing(0.01)
	if change != nil {
		change(&s.Options)
	}
	st := must.Get(s.NewStep(&reweight.Workspace{Workers: 1}, b))
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

// sameCredit reports whether two steps have the same advantages, weights and loss, as on rollouts
// where a scheme finds nothing to change.
func (st *Step) sameCredit(other *Step) bool {
	weights := func(st *Step) []float32 {
		if st.Weights != nil {
			return st.Weights
		}
		ones := make([]float32, st.given.Tokens())
		for t, r := range st.given.Role {
			ones[t] = min(1, float32(r))
		}
		return ones
	}
	return slices.Equal(st.Advantages, other.Advantages) && slices.Equal(weights(st), weights(other)) &&
		reflect.DeepEqual(st.scheme.Options.Loss, other.scheme.Options.Loss)
}

// TestSteps: each entry has its own gradient, the one of the step in float64, as often as it
// is done, and allocates nothing.
func TestSteps(t *testing.T) {
	b := rollouts(3)
	seen := map[string]*Step{}
	idle := 0 // schemes that find nothing to change here
	names := []string{"actfocus+aem", "reject+entropy_mask+actfocus+rloo+gspo", "aem+tis", "rloo+empg",
		"gae+value_loss"}
	for _, e := range Entries() {
		names = append(names, strings.TrimPrefix(e.Name+map[string]string{"kl_rewards": "+reinforce++"}[e.Name], "+"))
	}
	for _, name := range names {
		st, res := step(t, name, b, nil)
		grad := slices.Clone(st.Grad)
		if math.IsNaN(res.Loss) || !slices.ContainsFunc(grad, func(g float32) bool { return g != 0 }) ||
			slices.ContainsFunc(grad, func(g float32) bool { return g != g }) {
			t.Errorf("%s: loss %v, gradient %v", name, res.Loss, grad)
		}
		if err := st.Check(res); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		changes := true
		for other, before := range seen {
			credit := st.sameCredit(before)
			if slices.Equal(before.Grad, grad) != credit {
				t.Errorf("%s and %s: equal credit %v, and equal gradients %v", name, other, credit, !credit)
			}
			changes = changes && !credit
		}
		if seen[name] = st; !changes {
			idle++
		}
		var err error
		if n := testing.AllocsPerRun(5, func() { _, err = st.Run() }); n != 0 || err != nil ||
			!slices.Equal(grad, st.Grad) {
			t.Errorf("%s: %v allocations, %v, or another gradient", name, n, err)
		}
	}
	if idle > len(names)/5 {
		t.Errorf("%d of %d schemes have the credit of another one", idle, len(names))
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
		if err := st.Check(res); err == nil || !strings.HasPrefix(err.Error(), want) ||
			!strings.Contains(err.Error(), "float64 has ") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPenalty: the overlong penalty counts for the advantages, also where they are made from
// rewards of tokens, and not for which groups are kept.
func TestPenalty(t *testing.T) {
	b := rollouts(2)
	copy(b.Rewards, []float32{1, 1, 1, 1, 0, 1, 1, 0}) // the first group is left out
	b.Role[b.Tokens()-1] = reweight.RoleMasked         // the last response token is not the last
	before := slices.Clone(b.Rewards)
	for _, given := range []bool{false, true} {
		if given {
			b.TokenRewards = make([]float32, b.Tokens())
			for i := range b.TokenRewards {
				b.TokenRewards[i] = float32(i % 3)
			}
		}
		tokens := slices.Clone(b.TokenRewards)
		for _, name := range []string{"dapo", "dapo+reinforce++", "dapo+reinforce+++kl_rewards"} {
			var advantages [2][]float32
			for i, penalty := range []float64{0, 2} {
				st, res := step(t, name, b, func(o *Options) {
					o.Overlong = reweight.OverlongPenaltyOptions{Maximum: 20, Buffer: 18, Penalty: penalty}
				})
				if err := st.Check(res); err != nil {
					t.Errorf("%s, token rewards given %v: %v", name, given, err)
				}
				advantages[i] = st.Advantages
				for i, w := range st.Weights {
					if want := b.Role[i] != reweight.RoleMasked &&
						int64(i) >= b.SeqOffsets[4]; w != map[bool]float32{true: 1}[want] {
						t.Fatalf("%s: weights[%d] = %v", name, i, w)
					}
				}
			}
			if slices.Equal(advantages[0], advantages[1]) {
				t.Errorf("%s: the penalty changes nothing", name)
			}
		}
		if !slices.Equal(b.Rewards, before) || !slices.Equal(b.TokenRewards, tokens) {
			t.Error("the rewards of the batch have changed")
		}
	}
}

// TestWithoutRewards: the batch's own advantages take the place of those of GRPO, and
// token rewards that of the outcome.
func TestWithoutRewards(t *testing.T) {
	b := rollouts(2)
	outcome, _ := step(t, "reinforce++", b, nil)
	given := slices.Clone(b.Advantages)
	outcomes := *b
	b.Rewards, b.GroupIDs = nil, nil
	st, _ := step(t, "cispo", b, nil)
	for i, a := range st.Advantages {
		if masked := b.Role[i] == reweight.RoleMasked; masked && a != 0 || !masked && a != given[i] {
			t.Fatalf("advantages[%d] = %v, want %v", i, a, given[i])
		}
	}
	b.TokenRewards = make([]float32, b.Tokens())
	// They are at the last response tokens.
	must.Do(new(reweight.Workspace).KLRewards(b.TokenRewards, &outcomes, reweight.KLRewardsOptions{}))
	if tokens, _ := step(t, "reinforce++", b, nil); !slices.Equal(tokens.Advantages, outcome.Advantages) {
		t.Error("token rewards of the outcome have other advantages")
	}
}

// TestStepErrors: what a batch has wrong is said in the names of its arrays.
func TestStepErrors(t *testing.T) {
	for name, spoil := range map[string]func(b *reweight.Batch, at int){
		"Entropy":         func(b *reweight.Batch, at int) { b.Entropy[at] = float32(math.Inf(1)) },
		"RolloutLogprobs": func(b *reweight.Batch, at int) { b.RolloutLogprobs[at] = float32(math.NaN()) },
	} {
		b := rollouts(2)
		at := slices.Index(b.Role, reweight.RoleAction)
		spoil(b, at)
		if _, err := newStep(t, "tis+entropy_mask", b, nil).Run(); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("%s[%d]", name, at)) {
			t.Errorf("%v, want %s[%d]", err, name, at)
		}
	}
}

// TestStepShapes: an array of a wrong length is an error, and never a panic.
func TestStepShapes(t *testing.T) {
	names := []string{"dapo+reinforce++", "kl_rewards+gae+value_loss", "overlong", "empg+aem+actfocus+entropy_mask"}
	for _, s := range All() {
		names = append(names, s.Name)
	}
	for _, name := range names { // with given arrays, which the batch does not have
		for _, given := range [][]string{nil, {"rewards"}, {"rewards", "token_rewards"}} {
			b := rollouts(2)
			b.TokenRewards = slices.Clone(b.Values)
			for _, a := range b.Arrays() {
				if slices.Contains(given, a.Name) {
					*a.Data.(*[]float32) = nil
				}
			}
			s := MustParse(name)
			s.Options.setMissing(0.1)
			for _, a := range b.Arrays() {
				for _, more := range []int{-1, 1} {
					c := *b
					x := reflect.ValueOf(&c).Elem().FieldByName(a.Field)
					if a.Len() < 2 || !slices.Contains(s.Reads(), a.Name) {
						continue
					}
					if x.Set(x.Slice(0, x.Len()-1)); more > 0 {
						x.Set(reflect.AppendSlice(reflect.ValueOf(a.Data).Elem().Slice3(0, a.Len(), a.Len()),
							x.Slice(0, 1)))
					}
					st, err := s.NewStep(new(reweight.Workspace), &c)
					if err == nil {
						_, err = st.Run()
					}
					// Others take the place of these.
					unread := a.Name == "seq_offsets" && given != nil || a.Name == "group_ids" || a.Name == "rewards" ||
						a.Name == "advantages" || a.Name == "token_rewards"
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
			must.Do(ws.KLRewards(tokens, b, reweight.KLRewardsOptions{}))
			want.Returns = make([]float32, n)
			must.Do(ws.GAE(make([]float32, n), want.Returns, tokens, b, reweight.GAEOptions{Gamma: 1, Lambda: 0.9}))
		}
		grad := make([]float32, n)
		value := must.Get(ws.ValueLoss(grad, &want, reweight.ValueLossOptions{Clip: 0.1}))
		if st.Value != value || !slices.Equal(st.ValueGrad, grad) || value.Loss == 0 || (st.Returns != nil) != ofGAE ||
			ofGAE && !slices.Equal(st.Returns, want.Returns) {
			t.Errorf("%s: %+v, gradient %v, want %+v, %v", name, st.Value, st.ValueGrad, value, grad)
		}
	}
}
