package reweight_test

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
	"pgregory.net/rapid"
)

// A scheme is a method that sets dst, with what its documentation says of it.
type scheme struct {
	name   string
	run    func(ws *reweight.Workspace, dst []float32, b *reweight.Batch) error
	reads  string  // fields of Batch, besides Role
	masked float32 // dst at masked tokens
	alias  string  // "any" array of one float32 per token, or the fields that dst may be
	groups bool    // the result of a trajectory depends on its group alone
	whiten bool    // fewer than two response tokens are an error
	dst    string  // name of the parameter
}

var schemes = func() []scheme {
	type W = reweight.Workspace
	type B = reweight.Batch
	list := []scheme{
		{name: "EMPG", reads: "SeqOffsets SpanIDs Advantages Entropy", alias: "Advantages Entropy", dst: "advantages",
			run: func(ws *W, dst []float32, b *B) error { return ws.EMPG(dst, b, reweight.DefaultEMPG) }},
		{name: "RLOO", reads: "SeqOffsets GroupIDs Rewards", alias: "any", groups: true, dst: "advantages",
			run: func(ws *W, dst []float32, b *B) error { return ws.RLOO(dst, b) }},
		{name: "GroupFilter", reads: "SeqOffsets GroupIDs Rewards", alias: "any", groups: true, dst: "weights",
			run: func(ws *W, dst []float32, b *B) error { return ws.GroupFilter(dst, b) }},
		{name: "ReinforcePlusPlus", reads: "SeqOffsets TokenRewards", alias: "TokenRewards", whiten: true, dst: "advantages",
			run: func(ws *W, dst []float32, b *B) error {
				return ws.ReinforcePlusPlus(dst, nil, b, reweight.ReinforcePlusPlusOptions{Gamma: 0.9})
			}},
		{name: "returns of ReinforcePlusPlus", reads: "SeqOffsets TokenRewards", alias: "TokenRewards", whiten: true, dst: "returns",
			run: func(ws *W, dst []float32, b *B) error {
				return ws.ReinforcePlusPlus(make([]float32, b.Tokens()), dst, b, reweight.DefaultReinforcePlusPlus)
			}},
		{name: "ReinforcePlusPlusBaseline", reads: "SeqOffsets GroupIDs Rewards", alias: "any", whiten: true, dst: "advantages",
			run: func(ws *W, dst []float32, b *B) error { return ws.ReinforcePlusPlusBaseline(dst, b) }},
		{name: "OffPolicyMask", reads: "SeqOffsets Advantages OldLogprobs Logprobs", masked: 1, alias: "Advantages OldLogprobs Logprobs", groups: true, dst: "factors",
			run: func(ws *W, dst []float32, b *B) error { return ws.OffPolicyMask(dst, b, 0.02) }},
	}
	for _, rho := range []float64{0.2, 1} {
		list = append(list, scheme{name: fmt.Sprint("EntropyMask ", rho), reads: "Entropy", alias: "Entropy", dst: "mask",
			run: func(ws *W, dst []float32, b *B) error {
				_, err := ws.EntropyMask(dst, b, reweight.EntropyMaskOptions{Rho: rho})
				return err
			}})
	}
	for n := reweight.NormalizeSeparate; n <= reweight.NormalizeNone; n++ {
		for _, scope := range []reweight.Scope{reweight.ScopeGroup, reweight.ScopeBatch} {
			opt := reweight.DefaultGTPO
			opt.Normalization, opt.Scope = n, scope
			s := scheme{reads: "SeqOffsets Rewards Entropy", alias: "Entropy", groups: scope == reweight.ScopeGroup, dst: "advantages"}
			if s.groups {
				s.reads += " GroupIDs"
			}
			s.name = fmt.Sprint("GTPO ", n, " ", scope)
			s.run = func(ws *W, dst []float32, b *B) error { return ws.GTPO(dst, b, opt) }
			list = append(list, s)
			s.name = fmt.Sprint("GRPOS ", n, " ", scope)
			s.run = func(ws *W, dst []float32, b *B) error { return ws.GRPOS(dst, b, opt) }
			list = append(list, s)
		}
	}
	for i := range 4 {
		opt := reweight.DefaultGiGPO
		opt.DivideByStd, opt.PerStep = i&1 != 0, i&2 != 0
		list = append(list, scheme{name: fmt.Sprintf("GiGPO %+v", opt), reads: "SeqOffsets GroupIDs SpanIDs Rewards Anchors SpanRewards", alias: "any", groups: true, dst: "advantages",
			run: func(ws *W, dst []float32, b *B) error { return ws.GiGPO(dst, b, opt) }})
	}
	const both = "SeqOffsets OldLogprobs RolloutLogprobs"
	for level := reweight.CorrectToken; level <= reweight.CorrectGeometric; level++ {
		for i := range 4 {
			opt := reweight.CorrectionOptions{Level: level, Low: 0.5, High: 1.5, Mask: i&1 != 0, Normalize: i&2 != 0}
			list = append(list, scheme{name: fmt.Sprintf("RolloutCorrection %+v", opt), reads: both, masked: 1, alias: both[11:], groups: !opt.Normalize, dst: "factors",
				run: func(ws *W, dst []float32, b *B) error { return ws.RolloutCorrection(dst, b, opt) }})
		}
	}
	for s := reweight.RejectTokenK1; s <= reweight.RejectSeqMaxK3; s++ {
		opt := reweight.RejectionOptions{Statistic: s, Low: 0.9, High: 1.1}
		list = append(list, scheme{name: fmt.Sprint("Reject ", s), reads: both, alias: both[11:], groups: true, dst: "weights",
			run: func(ws *W, dst []float32, b *B) error { return ws.Reject(dst, b, opt) }})
	}
	return list
}()

// random makes a batch of trajectories with at most turns spans each, interleaved
// groups, and masked tokens between and within spans. Masked values are NaN.
func random(r *rand.Rand, trajectories, turns int) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	nan := float32(math.NaN())
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
		b.Advantages, b.TokenRewards = append(b.Advantages, x(1)), append(b.TokenRewards, x(1))
		b.OldLogprobs, b.Logprobs, b.RolloutLogprobs = append(b.OldLogprobs, l), append(b.Logprobs, l+x(0.1)), append(b.RolloutLogprobs, l+x(0.3))
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
	return b
}

// eachBatch runs f with random batches that have two response tokens.
func eachBatch(t *testing.T, f func(t *rapid.T, s *scheme, b *reweight.Batch)) {
	for i := range schemes {
		t.Run(schemes[i].name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				b := random(r, rapid.IntRange(1, 9).Draw(t, "trajectories"), rapid.IntRange(1, 4).Draw(t, "turns"))
				if responses(b) >= 2 {
					f(t, &schemes[i], b)
				}
			})
		})
	}
}

func responses(b *reweight.Batch) (n int) {
	for _, r := range b.Role {
		if r != reweight.RoleMasked {
			n++
		}
	}
	return n
}

// only returns b with nothing but what the scheme reads.
func (s *scheme) only(b *reweight.Batch) *reweight.Batch {
	c := &reweight.Batch{Role: b.Role}
	for _, name := range strings.Fields(s.reads) {
		reflect.ValueOf(c).Elem().FieldByName(name).Set(reflect.ValueOf(b).Elem().FieldByName(name))
	}
	return c
}

// mustRun runs the scheme on what it reads, over junk.
func (s *scheme) mustRun(t rapid.TB, ws *reweight.Workspace, b *reweight.Batch) []float32 {
	t.Helper()
	dst := slices.Repeat([]float32{12345}, b.Tokens())
	if err := s.run(ws, dst, s.only(b)); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	for i, r := range b.Role {
		if x := dst[i]; r == reweight.RoleMasked && (x != s.masked || math.Signbit(float64(x))) || x-x != 0 || x == 12345 {
			t.Fatalf("%s: element %d of role %d is %v", s.name, i, r, x)
		}
	}
	return dst
}

func same(t rapid.TB, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestSchemesBits: neither the instruction set, nor the number of workers, nor what a
// workspace did before, nor what stands at masked tokens changes a bit, and arrays that
// a scheme does not read may be absent.
func TestSchemesBits(t *testing.T) {
	var used reweight.Workspace
	eachBatch(t, func(t *rapid.T, s *scheme, b *reweight.Batch) {
		want := s.mustRun(t, &reweight.Workspace{ISA: reweight.Portable, Workers: 1}, b)
		for _, isa := range reweight.AvailableISAs() {
			same(t, isa.String(), s.mustRun(t, &reweight.Workspace{ISA: isa, Workers: 3}, b), want)
		}
		same(t, "a used workspace", s.mustRun(t, &used, b), want)
		for _, a := range b.Arrays() {
			if x, ok := a.Data.(*[]float32); ok && a.Per == reweight.PerToken && len(*x) != 0 {
				for i, r := range b.Role {
					if r == reweight.RoleMasked {
						(*x)[i] = 7
					}
				}
			}
		}
		same(t, "other masked values", s.mustRun(t, &used, b), want)
	})
}

// TestSchemesAlias: dst may be the arrays that the documentation names.
func TestSchemesAlias(t *testing.T) {
	var ws reweight.Workspace
	eachBatch(t, func(t *rapid.T, s *scheme, b *reweight.Batch) {
		want := s.mustRun(t, &ws, b)
		for _, a := range b.Arrays() {
			x, ok := a.Data.(*[]float32)
			if !ok || a.Per != reweight.PerToken || len(*x) == 0 || s.alias != "any" && !slices.Contains(strings.Fields(s.alias), a.Field) {
				continue
			}
			kept := slices.Clone(*x)
			if err := s.run(&ws, *x, b); err != nil {
				t.Fatal(err)
			}
			same(t, "in place of "+a.Field, *x, want)
			copy(*x, kept)
		}
	})
}

// TestSchemesGroupOrder: other numbers for the groups give the same bits. So do, where
// a group is on its own, trajectories sorted by group.
func TestSchemesGroupOrder(t *testing.T) {
	var ws reweight.Workspace
	eachBatch(t, func(t *rapid.T, s *scheme, b *reweight.Batch) {
		want := s.mustRun(t, &ws, b)
		c := *b
		c.GroupIDs = nil
		for _, g := range b.GroupIDs {
			c.GroupIDs = append(c.GroupIDs, -7*g)
		}
		same(t, "other group ids", s.mustRun(t, &ws, &c), want)
		if !s.groups {
			return
		}
		order := make([]int, b.Trajectories())
		for q := range order {
			order[q] = q
		}
		slices.SortStableFunc(order, func(p, q int) int { return int(b.GroupIDs[p]) - int(b.GroupIDs[q]) })
		sorted, place := reorder(b, order)
		got := s.mustRun(t, &ws, sorted)
		for i, p := range place {
			if got[i] != want[p] {
				t.Fatalf("token %d of the batch, %d when sorted by group: %v, want %v", p, i, got[i], want[p])
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
			c.Anchors, c.SpanRewards = append(c.Anchors, b.Anchors[before+s]), append(c.SpanRewards, b.SpanRewards[before+s])
		}
		c.GroupIDs, c.Rewards = append(c.GroupIDs, b.GroupIDs[q]), append(c.Rewards, b.Rewards[q])
		c.SeqOffsets = append(c.SeqOffsets, int64(len(place)))
	}
	for _, i := range place {
		c.Role, c.Entropy, c.Advantages = append(c.Role, b.Role[i]), append(c.Entropy, b.Entropy[i]), append(c.Advantages, b.Advantages[i])
		c.OldLogprobs, c.Logprobs = append(c.OldLogprobs, b.OldLogprobs[i]), append(c.Logprobs, b.Logprobs[i])
		c.RolloutLogprobs, c.TokenRewards = append(c.RolloutLogprobs, b.RolloutLogprobs[i]), append(c.TokenRewards, b.TokenRewards[i])
	}
	return c, place
}

// wants an error about an element of an array, or about all of it (-1), and nothing
// written.
func (s *scheme) wantError(t *testing.T, ws *reweight.Workspace, size int, b *reweight.Batch, arg string, index int) {
	t.Helper()
	dst := slices.Repeat([]float32{12345}, size)
	var input *reweight.InputError
	if err := s.run(ws, dst, b); !errors.As(err, &input) || input.Arg != arg || input.Index != index {
		t.Errorf("%s: error %v, want one about %s[%d]", s.name, err, arg, index)
	}
	for i, x := range dst {
		if x != 12345 {
			t.Fatalf("%s: element %d is written", s.name, i)
		}
	}
}

// TestSchemesNotFinite puts NaN and the infinities at every place of every array.
func TestSchemesNotFinite(t *testing.T) {
	b := random(rand.New(rand.NewPCG(1, 2)), 7, 3)
	var ws reweight.Workspace
	for _, s := range schemes {
		want := s.mustRun(t, &ws, b)
		c := s.only(b)
		for _, a := range c.Arrays() {
			x, ok := a.Data.(*[]float32)
			if !ok {
				continue
			}
			for i, kept := range *x {
				for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					(*x)[i] = float32(v)
					if a.Per == reweight.PerToken && b.Role[i] == reweight.RoleMasked {
						same(t, s.name, s.mustRun(t, &ws, c), want)
					} else {
						s.wantError(t, &ws, b.Tokens(), c, a.Field, i)
					}
				}
				(*x)[i] = kept
			}
		}
	}
}

// TestSchemesShapes: an array that is too short or too long is named, and nothing is
// written.
func TestSchemesShapes(t *testing.T) {
	b := random(rand.New(rand.NewPCG(3, 4)), 7, 3)
	var ws reweight.Workspace
	for _, s := range schemes {
		for _, size := range []int{b.Tokens() - 1, b.Tokens() + 1} {
			s.wantError(t, &ws, size, s.only(b), s.dst, -1)
		}
		for _, name := range strings.Fields(s.reads) {
			for _, longer := range []bool{false, true} {
				c := s.only(b)
				x := reflect.ValueOf(c).Elem().FieldByName(name)
				n := x.Len()
				if longer {
					x.Set(reflect.Append(x.Slice3(0, n, n), reflect.Zero(x.Type().Elem())))
				} else {
					x.Set(x.Slice(0, n-1))
				}
				dst := slices.Repeat([]float32{12345}, b.Tokens())
				var input *reweight.InputError
				err := s.run(&ws, dst, c)
				if !errors.As(err, &input) || input.Arg != name {
					t.Errorf("%s: %s of %d elements instead of %d: error %v", s.name, name, x.Len(), n, err)
				}
				if slices.ContainsFunc(dst, func(x float32) bool { return x != 12345 }) {
					t.Errorf("%s: dst is written", s.name)
				}
			}
		}
		c := s.only(b)
		c.Role = slices.Clone(c.Role)
		c.Role[4] = 3
		s.wantError(t, &ws, b.Tokens(), c, "Role", 4)
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

// TestSchemesNothing: without response tokens every output is that of masked tokens.
func TestSchemesNothing(t *testing.T) {
	nan := []float32{float32(math.NaN()), float32(math.NaN()), float32(math.NaN())}
	b := &reweight.Batch{Role: make([]reweight.Role, 3), SeqOffsets: []int64{0, 0, 3}, GroupIDs: []int32{1, 1}, Rewards: []float32{0, 1}, SpanIDs: []int32{-1, -1, -1},
		Entropy: nan, Advantages: nan, TokenRewards: nan, OldLogprobs: nan, Logprobs: nan, RolloutLogprobs: nan}
	var ws reweight.Workspace
	for _, s := range schemes {
		if s.whiten {
			s.wantError(t, &ws, 3, b, "Role", -1)
			c := *b
			c.Role, c.TokenRewards = []reweight.Role{0, 1, 0}, []float32{0, 1, 0}
			s.wantError(t, &ws, 3, &c, "Role", -1)
			continue
		}
		s.mustRun(t, &ws, b)
	}
}

// TestSchemesAllocations: in steady state no scheme allocates.
func TestSchemesAllocations(t *testing.T) {
	b := random(rand.New(rand.NewPCG(5, 6)), 9, 3)
	dst := make([]float32, b.Tokens())
	ws := reweight.Workspace{Workers: 4}
	for _, s := range schemes {
		if s.dst == "returns" {
			continue // the test's own slice
		}
		if n := testing.AllocsPerRun(20, func() { s.run(&ws, dst, b) }); n != 0 {
			t.Errorf("%s allocates %v times per call", s.name, n)
		}
	}
	penalties := make([]float32, b.Trajectories())
	if n := testing.AllocsPerRun(20, func() { ws.OverlongPenalty(penalties, b, reweight.DefaultOverlong) }); n != 0 {
		t.Errorf("OverlongPenalty allocates %v times per call", n)
	}
}
