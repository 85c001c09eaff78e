package scheme

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// A subject is an entry that computes something, with options.
type subject struct {
	*Entry
	name      string
	opt       Options
	unread    string // an array that it does not read with these options
	whole     bool   // the result of a trajectory depends on the whole batch, and not on its group alone
	full      bool   // a loss with RefLogprobs and, if its policy has weights, ActFocusWeights
	surrogate bool   // the loss of one trajectory: Surrogate
}

// subjects are all entries, with their default options and others.
var subjects = func() (all []subject) {
	add := func(name, what string, change func(*subject)) {
		e, err := Find(name)
		if err != nil {
			panic(err)
		}
		s := subject{Entry: e, name: strings.TrimSpace(name + " " + what), opt: e.Defaults(),
			whole: e.Kind >= Loss || e.OverBatch}
		s.opt.setMissing(0.02)
		if change != nil {
			change(&s)
		}
		all = append(all, s)
	}
	for _, e := range Entries() {
		if e.Kind != Several {
			add(e.Name, "", nil)
		}
	}
	add("reinforce++", "gamma 0.9", func(s *subject) { s.opt.ReinforcePlusPlus.Gamma = 0.9 })
	add("gae", "gamma 0.9", func(s *subject) { s.opt.GAE = reweight.GAEOptions{Gamma: 0.9, Lambda: 0.8} })
	add("entropy_mask", "rho 1", func(s *subject) { s.opt.EntropyMask.Rho = 1 })
	add("gdpo", "weights", func(s *subject) {
		s.opt.GDPO.DivideByStd, s.opt.GDPO.RewardWeights = false, []float64{1, -0.5}
	})
	for signal := reweight.SignalRefEntropy; signal <= reweight.SignalLogRatio; signal++ {
		add("actfocus", signal.String(), func(s *subject) { s.opt.ActFocus.Signal = signal })
	}
	add("aem", "batch", func(s *subject) {
		s.opt.AEM.Scope, s.unread, s.whole = reweight.ScopeBatch, "group_ids", true
	})
	for n := reweight.NormalizeSeparate; n <= reweight.NormalizeNone; n++ {
		for _, scope := range []reweight.Scope{reweight.ScopeGroup, reweight.ScopeBatch} {
			for _, name := range []string{"gtpo", "grpo_s"} {
				add(name, fmt.Sprint(n, " ", scope), func(s *subject) {
					for _, opt := range []*reweight.GTPOOptions{&s.opt.GTPO, &s.opt.GRPOS} {
						opt.Normalization, opt.Scope = n, scope
					}
					if s.whole = scope == reweight.ScopeBatch; s.whole {
						s.unread = "group_ids"
					}
				})
			}
		}
	}
	for i := range 4 {
		add("gigpo", fmt.Sprint(i), func(s *subject) {
			s.opt.GiGPO.DivideByStd, s.opt.GiGPO.PerStep = i&1 != 0, i&2 != 0
		})
		for level := reweight.CorrectToken; level <= reweight.CorrectGeometric; level++ {
			add("tis", fmt.Sprint(level, " ", i), func(s *subject) {
				s.opt.TIS = reweight.RolloutCorrectionOptions{Level: level, Low: 0.5, High: 1.5, Mask: i&1 != 0,
					Normalize: i&2 != 0}
				s.whole = s.opt.TIS.Normalize
			})
		}
	}
	for st := reweight.RejectTokenK1; st <= reweight.RejectSeqMaxK3; st++ {
		add("reject", st.String(), func(s *subject) {
			s.opt.Reject = reweight.RejectOptions{Statistic: st, Low: 0.9, High: 1.1}
		})
	}
	for form := range reweight.KLForm(7) {
		add("kl_rewards", form.String(), func(s *subject) {
			s.opt.KLRewards = reweight.KLRewardsOptions{KL: form, KLCoef: 0.1}
		})
	}
	add("value_loss", "by trajectory", func(s *subject) {
		s.opt.ValueLoss = reweight.ValueLossOptions{Clip: 0.1, Aggregation: reweight.SeqMeanTokenMean}
	})
	for name, loss := range policies {
		for _, coef := range []float64{0, -0.25} {
			full := func(s *subject) {
				s.opt.Loss, s.full = loss, true
				s.opt.Loss.KL, s.opt.Loss.KLCoef = reweight.KLForm(len(name)%7), coef
			}
			add("uniform", fmt.Sprint("as ", name, ", KL ", coef), full)
			if coef == 0 && !loss.Policy.Traits().BySpan {
				add("uniform", "as Surrogate of "+name, func(s *subject) { full(s); s.surrogate = true })
			}
		}
	}
	return all
}()

// Numbers are what a method returns besides the error; those of other methods are zero.
type numbers struct {
	loss  reweight.LossResult
	sums  reweight.SurrogateSums
	value reweight.ValueLossResult
}

// compute is Compute, with what the method returns.
func (s *subject) compute(ws *reweight.Workspace, dst []float32, b *reweight.Batch) (res numbers, err error) {
	switch {
	case s.surrogate:
		res.sums, err = ws.Surrogate(dst, b.Logprobs, b.OldLogprobs, b.Advantages, b.ActFocusWeights, b.Role, 0.5,
			s.opt.Loss)
	case s.Kind == Loss:
		res.loss, err = ws.Loss(dst, b.ActFocusWeights, b, s.opt.Loss)
	case s.Kind == Critic:
		res.value, err = ws.ValueLoss(dst, b, s.opt.ValueLoss)
	default:
		err = s.call(ws, dst, b, &s.opt)
	}
	return res, err
}

// reads returns the names of the arrays that the subject reads.
func (s *subject) reads() []string {
	all := slices.Clone(s.needs(&s.opt))
	if s.surrogate {
		all = []string{"logprobs", "old_logprobs", "advantages"}
	} else if s.full && s.opt.Loss.KLCoef == 0 {
		all = append(all, "ref_logprobs")
	}
	if s.full && !s.opt.Loss.Policy.Traits().Unweighted {
		all = append(all, "actfocus_weights")
	}
	return all
}

// argument returns what an error calls a field of the batch.
func (s *subject) argument(field string) string {
	switch {
	case s.Kind == Loss && field == "ActFocusWeights":
		return "weights"
	case s.surrogate && field == "OldLogprobs":
		return "old"
	case s.surrogate:
		return strings.ToLower(field)
	case s.Name == "gae" && field == "TokenRewards":
		return "rewards" // a parameter of GAE
	case s.PerTrajectory && field == "SeqOffsets":
		return s.Dst // of which there are as many as trajectories
	}
	return field
}

// wantsFinite reports whether a value of the array that is not finite is an error. GAE and PPO
// take it as it comes, as their documentation says.
func (s *subject) wantsFinite(field string) bool {
	switch {
	case s.Name == "gae":
		return false
	case s.Kind != Loss || !s.opt.Loss.Policy.Traits().AnyValues:
		return true
	case s.surrogate:
		return false
	case field == "ActFocusWeights":
		return true
	}
	return s.opt.Loss.KLCoef != 0 && (field == "Logprobs" || field == "RefLogprobs")
}

// whitens reports whether the advantages are whitened.
func (s *subject) whitens() bool {
	return s.Name == "gae" || s.Name == "gdpo" || s.Name == "reinforce++" || s.Name == "reinforce++_baseline"
}

// paired puts each trajectory that is alone in its group into another group, if the
// subject refuses it otherwise, and reports whether there is another.
func (s *subject) paired(b *reweight.Batch) bool {
	if s.Name != "pass_at_k" {
		return true
	}
	for q, g := range b.GroupIDs {
		if !slices.Contains(b.GroupIDs[q+1:], g) && !slices.Contains(b.GroupIDs[:q], g) {
			b.GroupIDs[q] = b.GroupIDs[(q+1)%len(b.GroupIDs)]
		}
	}
	return len(b.GroupIDs) > 1
}

// arrays returns the arrays of c that the subject reads.
func (s *subject) arrays(c *reweight.Batch) (all []reweight.Array) {
	for _, need := range s.reads() {
		name, _, _ := strings.Cut(need, "|")
		for _, a := range c.Arrays() {
			if a.Name == name && name != s.unread {
				all = append(all, a)
			}
		}
	}
	return all
}

// only returns b with nothing but what the subject reads.
func (s *subject) only(b *reweight.Batch) *reweight.Batch {
	c := &reweight.Batch{Role: b.Role}
	for _, a := range s.arrays(b) {
		reflect.ValueOf(c).Elem().FieldByName(a.Field).Set(reflect.ValueOf(a.Data).Elem())
	}
	if s.PerTrajectory {
		c.Rewards = b.Rewards
	}
	return c
}

// size returns how many elements the output has.
func (s *subject) size(b *reweight.Batch) int {
	if s.PerTrajectory {
		return b.Trajectories()
	}
	return b.Tokens()
}

// random makes a batch of trajectories with at most turns spans each, interleaved
// groups, and masked tokens between and within spans. Masked values are NaN. A few
// log-ratios of some batches are far from 0.
func random(r *rand.Rand, trajectories, turns int) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	nan := float32(math.NaN())
	far := []float64{0, 0.01, 0.1, 0.3, 30}[r.IntN(5)]
	token := func(role reweight.Role, span int32) {
		x := func(scale float64) float32 {
			if role == reweight.RoleMasked {
				return nan
			}
			return float32(scale * r.NormFloat64())
		}
		b.Role, b.SpanIDs = append(b.Role, role), append(b.SpanIDs, span)
		l := x(1) - 2
		b.Entropy = append(b.Entropy, float32(math.Abs(float64(x(1)))))
		b.OldLogprobs, b.Logprobs, b.RolloutLogprobs = append(b.OldLogprobs, l), append(b.Logprobs, l+x(far)),
			append(b.RolloutLogprobs, l+x(0.3))
		for _, array := range []*[]float32{&b.Advantages, &b.TokenRewards, &b.RefEnergy, &b.RefEntropy, &b.RefLogprobs,
			&b.TeacherLogprobs, &b.Values, &b.NewValues, &b.Returns} {
			*array = append(*array, x(1))
		}
		b.SumSqProbs = append(b.SumSqProbs, 1/(1+l*l))
		b.EntropyDrop = append(b.EntropyDrop, x(1))
		b.ActFocusWeights = append(b.ActFocusWeights, max(0, x(1)))
		if last := len(b.Role) - 1; role != reweight.RoleMasked && r.IntN(8) == 0 {
			b.Advantages[last], b.RefLogprobs[last] = 0, b.Logprobs[last]
		}
	}
	for range trajectories {
		for range r.IntN(turns + 1) {
			for range r.IntN(3) {
				token(reweight.RoleMasked, -1)
			}
			span := int32(len(b.SpanRewards))
			b.Anchors, b.SpanRewards = append(b.Anchors, int32(r.IntN(3)-1)), append(b.SpanRewards, float32(r.IntN(3)))
			token(reweight.RoleAction, span)
			for range r.IntN(20) {
				token(reweight.Role(r.IntN(3)), span)
			}
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
		b.GroupIDs, b.Rewards = append(b.GroupIDs, int32(r.IntN(3)*5-5)), append(b.Rewards, float32(r.IntN(3))/2)
	}
	for range trajectories {
		b.RewardParts = append(b.RewardParts, float32(r.IntN(3))/2, float32(r.NormFloat64()))
	}
	return b
}

// drawBatch draws a random batch.
func drawBatch(t *rapid.T) *reweight.Batch {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	return random(r, rapid.IntRange(1, 9).Draw(t, "trajectories"), rapid.IntRange(1, 4).Draw(t, "turns"))
}

// eachBatch runs f with random batches.
func eachBatch(t *testing.T, f func(t *rapid.T, s *subject, b *reweight.Batch)) {
	for i := range subjects {
		t.Run(subjects[i].name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				if b := drawBatch(t); subjects[i].paired(b) {
					f(t, &subjects[i], b)
				}
			})
		})
	}
}

// A result is what a subject writes, and returns.
type result struct {
	dst []float32
	numbers
}

// mustRun computes the subject from what it reads, over junk.
func (s *subject) mustRun(t rapid.TB, ws *reweight.Workspace, b *reweight.Batch) result {
	t.Helper()
	dst := slices.Repeat([]float32{12345}, s.size(b))
	res, err := s.compute(ws, dst, s.only(b))
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	for i, x := range dst {
		masked := len(dst) == len(b.Role) && b.Role[i] == reweight.RoleMasked
		if masked && (x != s.Masked || math.Signbit(float64(x))) || x-x != 0 || x == 12345 {
			t.Fatalf("%s: element %d is %v", s.name, i, x)
		}
	}
	return result{dst, res}
}

func (res result) same(t rapid.TB, what string, want result) {
	t.Helper()
	if res.numbers != want.numbers {
		t.Fatalf("%s: %+v, want %+v", what, res.numbers, want.numbers)
	}
	same(t, what, res.dst, want.dst)
}

func same(t rapid.TB, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestEntriesBits: neither the instruction set, nor the number of workers, nor what a
// workspace did before, nor what stands at masked tokens changes a bit, arrays that an
// entry does not read may be absent, and masked tokens get what the catalogue says.
func TestEntriesBits(t *testing.T) {
	var used reweight.Workspace
	eachBatch(t, func(t *rapid.T, s *subject, b *reweight.Batch) {
		want := s.mustRun(t, &reweight.Workspace{ISA: reweight.Portable, Workers: 1}, b)
		for _, isa := range reweight.AvailableISAs() {
			for _, workers := range []int{1, 3} {
				s.mustRun(t, &reweight.Workspace{ISA: isa, Workers: workers}, b).same(t, isa.String(), want)
			}
		}
		s.mustRun(t, &used, b).same(t, "a used workspace", want)
		other := rapid.SampledFrom([]float32{7, -3e38, float32(math.Inf(-1)), float32(math.Inf(1))}).Draw(t, "masked")
		for _, a := range b.Arrays() {
			if x, ok := a.Data.(*[]float32); ok && a.Per == reweight.PerToken && len(*x) != 0 {
				for i, r := range b.Role {
					if r == reweight.RoleMasked {
						(*x)[i] = other
					}
				}
			}
		}
		s.mustRun(t, &used, b).same(t, "other masked values", want)
	})
}

// TestEntriesAlias: the output may be in place of the arrays that the catalogue names.
func TestEntriesAlias(t *testing.T) {
	var ws reweight.Workspace
	eachBatch(t, func(t *rapid.T, s *subject, b *reweight.Batch) {
		want := s.mustRun(t, &ws, b)
		for _, a := range b.Arrays() {
			x, ok := a.Data.(*[]float32)
			alias := slices.Contains(s.Alias, a.Name) || s.Alias[0] == Any && a.Per == reweight.PerToken ||
				s.full && a.Name == "actfocus_weights"
			if !ok || len(*x) != len(want.dst) || !alias {
				continue
			}
			kept := slices.Clone(*x)
			res := must.Get(s.compute(&ws, *x, s.only(b)))
			result{*x, res}.same(t, "in place of "+a.Field, want)
			copy(*x, kept)
		}
	})
}

// TestEntriesGroupOrder: other numbers for the groups give the same bits. So do, where
// a group is on its own, trajectories sorted by group.
func TestEntriesGroupOrder(t *testing.T) {
	var ws reweight.Workspace
	eachBatch(t, func(t *rapid.T, s *subject, b *reweight.Batch) {
		want := s.mustRun(t, &ws, b)
		c := *b
		c.GroupIDs = nil
		for _, g := range b.GroupIDs {
			c.GroupIDs = append(c.GroupIDs, -7*g)
		}
		s.mustRun(t, &ws, &c).same(t, "other group ids", want)
		if s.whole || s.Kind == Reward {
			return
		}
		order := make([]int, b.Trajectories())
		for q := range order {
			order[q] = q
		}
		slices.SortStableFunc(order, func(p, q int) int { return int(b.GroupIDs[p]) - int(b.GroupIDs[q]) })
		sorted, place := reorder(b, order)
		got := s.mustRun(t, &ws, sorted).dst
		for i, p := range place {
			if got[i] != want.dst[p] {
				t.Fatalf("token %d of the batch, %d when sorted by group: %v, want %v", p, i, got[i], want.dst[p])
			}
		}
	})
}

// reorder returns the trajectories of b in that order, and which token of b each is.
func reorder(b *reweight.Batch, order []int) (c *reweight.Batch, place []int) {
	c = &reweight.Batch{SeqOffsets: []int64{0}}
	for _, q := range order {
		first := int32(len(c.SpanRewards))
		before, n := int32(-1), int32(0)
		for i := b.SeqOffsets[q]; i < b.SeqOffsets[q+1]; i++ {
			s := b.SpanIDs[i]
			if s >= 0 && before < 0 {
				before = s
			}
			if s >= 0 {
				n = max(n, s-before+1)
				s += first - before
			}
			place, c.SpanIDs = append(place, int(i)), append(c.SpanIDs, s)
		}
		for s := range n {
			c.Anchors, c.SpanRewards = append(c.Anchors, b.Anchors[before+s]),
				append(c.SpanRewards, b.SpanRewards[before+s])
		}
		c.GroupIDs, c.Rewards = append(c.GroupIDs, b.GroupIDs[q]), append(c.Rewards, b.Rewards[q])
		c.RewardParts = append(c.RewardParts, b.RewardParts[2*q:2*q+2]...)
		c.SeqOffsets = append(c.SeqOffsets, int64(len(place)))
	}
	into := c.Arrays()
	for k, a := range b.Arrays() {
		if from, ok := a.Data.(*[]float32); ok && a.Per == reweight.PerToken && len(*from) != 0 {
			to := into[k].Data.(*[]float32)
			for _, i := range place {
				*to = append(*to, (*from)[i])
			}
		}
	}
	for _, i := range place {
		c.Role = append(c.Role, b.Role[i])
	}
	return c, place
}

// wantError wants an error about an array, at an element of it (-1 for all of it, any if below),
// and nothing written, and returns what the error says.
func (s *subject) wantError(t *testing.T, ws *reweight.Workspace, size int, b *reweight.Batch, arg string,
	index int) string {
	t.Helper()
	dst := slices.Repeat([]float32{12345}, size)
	_, err := s.compute(ws, dst, b)
	input, ok := errors.AsType[*reweight.InputError](err)
	if !ok || input.Arg != arg || index >= -1 && input.Index != index {
		t.Fatalf("%s: error %v, want one about %s[%d]", s.name, err, arg, index)
	}
	// GAE has written when what whitens has an error.
	if s.Name != "gae" && slices.ContainsFunc(dst, func(x float32) bool { return x != 12345 }) {
		t.Fatalf("%s: dst is written", s.name)
	}
	return input.Problem
}

// TestEntriesNotFinite puts NaN and the infinities at every place of every array.
func TestEntriesNotFinite(t *testing.T) {
	b := random(rand.New(rand.NewPCG(1, 2)), 7, 3)
	var ws reweight.Workspace
	for _, s := range subjects {
		if !s.paired(b) {
			continue
		}
		want := s.mustRun(t, &ws, b)
		c, dst := s.only(b), make([]float32, s.size(b))
		for _, a := range s.arrays(c) {
			x, ok := a.Data.(*[]float32)
			if !ok {
				continue
			}
			for i, kept := range *x {
				read := a.Per != reweight.PerToken || b.Role[i] != reweight.RoleMasked &&
					(s.Name != "actfocus" || b.Role[i] == reweight.RoleAction)
				for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					(*x)[i] = float32(v)
					if !read {
						s.mustRun(t, &ws, c).same(t, s.name, want)
					} else if s.wantsFinite(a.Field) {
						s.wantError(t, &ws, s.size(b), c, s.argument(a.Field), i)
					} else if _, err := s.compute(&ws, dst, c); err != nil && s.Name != "gae" {
						t.Errorf("%s: %s[%d] is %v: %v", s.name, a.Field, i, v, err)
					}
				}
				(*x)[i] = kept
			}
		}
	}
}

// TestEntriesShapes: an array that is too short or too long is named, and nothing is
// written.
func TestEntriesShapes(t *testing.T) {
	b := random(rand.New(rand.NewPCG(3, 5)), 7, 3) // whose last trajectory is not empty
	units := map[reweight.Unit]string{reweight.PerToken: "token", reweight.PerTrajectory: "trajectory"}
	var ws reweight.Workspace
	for _, s := range subjects {
		s.paired(b)
		for _, more := range []int{-1, 1} {
			s.wantError(t, &ws, s.size(b)+more, s.only(b), s.Dst, -1)
		}
		for _, a := range s.arrays(b) {
			n := a.Len()
			for _, length := range []int{0, n - 1, n + 1} {
				if length == 0 && a.Field == "RefLogprobs" && s.Kind == Loss && s.opt.Loss.KLCoef == 0 {
					continue // it may be absent
				}
				c := s.only(b)
				x := reflect.ValueOf(c).Elem().FieldByName(a.Field)
				x.Set(reflect.Append(x.Slice3(0, n, n), reflect.Zero(x.Type().Elem())).Slice(0, length))
				says := s.wantError(t, &ws, s.size(b), c, s.argument(a.Field), -2)
				if unit := units[a.Per]; unit != "" && says != problem.Length.Says(x.Len(), n, unit) {
					t.Errorf("%s: %s of %d elements %s", s.name, a.Field, x.Len(), says)
				}
			}
		}
		c := s.only(b)
		c.Role = slices.Clone(c.Role)
		c.Role[4] = 3
		s.wantError(t, &ws, s.size(b), c, s.argument("Role"), 4)
		if len(c.SpanIDs) != 0 {
			c = s.only(b)
			c.Role = slices.Clone(c.Role)
			for i, id := range c.SpanIDs {
				if id == 1 {
					c.Role[i] = reweight.RoleMasked
				}
			}
			s.wantError(t, &ws, b.Tokens(), c, "SpanIDs", -1)
		}
	}
}

// TestEntriesNothing: without response tokens every output is that of masked tokens. A single one has
// nothing to be compared with, and its whitened advantage is 0.
func TestEntriesNothing(t *testing.T) {
	nan := slices.Repeat([]float32{float32(math.NaN())}, 3)
	b := &reweight.Batch{Role: make([]reweight.Role, 3), SeqOffsets: []int64{0, 0, 3}, GroupIDs: []int32{1, 1},
		Rewards: []float32{0, 1}, RewardParts: make([]float32, 4), SpanIDs: []int32{-1, -1, -1}, Entropy: nan,
		Advantages: nan, TokenRewards: nan, OldLogprobs: nan, Logprobs: nan, RolloutLogprobs: nan, RefEnergy: nan,
		RefEntropy: nan, RefLogprobs: nan, TeacherLogprobs: nan, Values: nan, NewValues: nan, Returns: nan,
		SumSqProbs: nan, EntropyDrop: nan, ActFocusWeights: nan}
	var ws reweight.Workspace
	for _, s := range subjects {
		if res := s.mustRun(t, &ws, b); res.numbers != (numbers{}) {
			t.Errorf("%s: %+v", s.name, res.numbers)
		}
		if s.Kind >= Loss {
			s.mustRun(t, &ws, &reweight.Batch{Role: []reweight.Role{}, SeqOffsets: []int64{0, 0}})
		}
		if s.whitens() {
			c := *b
			c.Role, c.TokenRewards, c.Values = []reweight.Role{0, 1, 0}, []float32{0, 0.1, 0}, []float32{0, 3, 0}
			if res := s.mustRun(t, &ws, &c); !slices.Equal(res.dst, make([]float32, 3)) {
				t.Errorf("%s: one token has %v", s.name, res.dst)
			}
		}
	}
}

// TestEntriesAllocations: in steady state no entry allocates.
func TestEntriesAllocations(t *testing.T) {
	b := random(rand.New(rand.NewPCG(5, 6)), 9, 3)
	ws := reweight.Workspace{Workers: 4}
	b.ActFocusWeights[slices.Index(b.Role, reweight.RoleReasoning)] = 1e30 // which is divided
	kept := slices.Clone(b.Logprobs)
	for _, s := range subjects {
		dst, c := make([]float32, s.size(b)), s.only(b)
		if n := testing.AllocsPerRun(20, func() {
			s.compute(&ws, dst, c)
			if s.Kind == Loss { // what the divergence needs is kept then
				s.compute(&ws, b.Logprobs, c)
				copy(b.Logprobs, kept)
			}
		}); n != 0 {
			t.Errorf("%s allocates %v times per call", s.name, n)
		}
	}
}
