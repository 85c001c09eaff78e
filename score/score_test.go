package score

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
	"pgregory.net/rapid"
)

var scopes = []reweight.Scope{reweight.ScopeGroup, reweight.ScopeTrajectory, reweight.ScopeBatch}

// expectSame fails unless all trajectories have the same bits in both.
func expectSame(t interface{ Fatalf(string, ...any) }, got, want map[float32]result) {
	if len(got) != len(want) {
		t.Fatalf("%d trajectories, want %d", len(got), len(want))
	}
	for key, w := range want {
		g := got[key]
		if !slices.Equal(g.weights, w.weights) || !slices.Equal(g.advantages, w.advantages) {
			t.Fatalf("the trajectory of %v has other scores", key)
		}
	}
}

// TestSplits: however the trajectories are split into files and merged, the bits of all
// scores are the same.
func TestSplits(t *testing.T) {
	all := trajectories(t)
	for _, scope := range scopes {
		t.Run(scope.String(), func(t *testing.T) {
			opt := Default
			opt.AEM.Scope = scope
			whole := named("whole", all...)
			one := mustOf(t, opt, whole)
			want := results(t, one, opt, whole)
			if len(want) != len(all) {
				t.Fatalf("%d trajectories, want %d", len(want), len(all))
			}
			rapid.Check(t, func(rt *rapid.T) {
				shards := deal(all, rapid.IntRange(1, 48).Draw(rt, "shards"), rapid.Uint64().Draw(rt, "seed"))
				var partials []*Partial
				for _, s := range shards {
					partials = append(partials, mustOf(t, opt, s))
				}
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 0))
				for len(partials) > 1 { // any tree
					rng.Shuffle(len(partials), func(i, j int) { partials[i], partials[j] = partials[j], partials[i] })
					n := 1 + rng.IntN(len(partials))
					m := mustMerge(t, partials[:n]...)
					if rng.IntN(2) == 0 { // as text on the way
						m = reread(t, m)
					}
					partials = append(partials[n:], m)
				}
				merged := partials[0]
				text, same := marshal(t, merged), marshal(t, mustOf(t, opt, shards...))
				if string(text) != string(same) {
					rt.Fatalf("merged in a tree\n%s\nand in one\n%s", text, same)
				}
				rng.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
				expectSame(rt, results(t, merged, opt, shards...), want)
			})
		})
	}
}

func marshal(t testing.TB, p *Partial) []byte {
	t.Helper()
	var text bytes.Buffer
	must.Do(p.Encode(&text))
	return text.Bytes()
}

// reread returns p after it was written and read.
func reread(t testing.TB, p *Partial) *Partial {
	t.Helper()
	text := marshal(t, p)
	again, err := Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if got := marshal(t, again); string(got) != string(text) {
		t.Fatalf("written as %s, and after it was read as %s", text, got)
	}
	return again
}

// ulps returns how many float32 values lie between two of the same sign.
func ulps(a, b float32) int {
	return int(math.Abs(float64(int64(math.Float32bits(a)) - int64(math.Float32bits(b)))))
}

// TestWorkspace: scores differ by at most one unit in the last place from the scores of the
// library on one batch, and by 1e-6 from the reference.
func TestWorkspace(t *testing.T) {
	b := frozenLake(t)
	all := trajectories(t)
	for _, signal := range []reweight.Signal{reweight.SignalEnergy, reweight.SignalSurprisal, reweight.SignalLogRatio} {
		for _, scope := range scopes {
			for _, change := range []func(*Options){
				func(*Options) {}, func(o *Options) { o.AEM.Guard = 0 }, func(o *Options) { o.AEM.Guard = math.Inf(1) }, func(o *Options) { o.GRPO.DivideByStd = false },
			} {
				opt := Default
				opt.ActFocus.Signal, opt.AEM.Scope = signal, scope
				change(&opt)
				name := fmt.Sprintf("%v, %+v, %+v", signal, opt.AEM, opt.GRPO)
				shards := deal(all, 5, 1)
				got := results(t, mustOf(t, opt, shards...), opt, shards...)

				ws := reweight.Workspace{Workers: 1}
				weights, advantages, factors := make([]float32, b.Tokens()), make([]float32, b.Tokens()),
					make([]float32, b.Tokens())
				must.Get(ws.ActFocus(weights, b, opt.ActFocus))
				must.Do(errors.Join(ws.GRPO(advantages, b, opt.GRPO), ws.AEM(factors, b, opt.AEM),
					ws.Multiply(advantages, advantages, factors)))
				wantWeights, wantAdvantages := exactly(b, opt)
				most := 0
				for s, tr := range all {
					r := got[keyOfTest(tr)]
					for i := range tr.Role {
						at := b.SeqOffsets[s] + int64(i)
						most = max(most, ulps(r.weights[i], weights[at]), ulps(r.advantages[i], advantages[at]))
						if !near(r.weights[i], wantWeights[at]) || !near(r.advantages[i], wantAdvantages[at]) {
							t.Fatalf("%s: token %d has weight %v and advantage %v, want %v and %v", name, at,
								r.weights[i], r.advantages[i], wantWeights[at], wantAdvantages[at])
						}
					}
				}
				if most > 1 {
					t.Errorf("%s: %d units in the last place from the library's results, want at most 1", name, most)
				}
			}
		}
	}
}

func near(got float32, want float64) bool {
	return math.Abs(float64(got)-want) <= 1e-6*max(1, math.Abs(want))
}

// exactly returns the weights and advantages in float64.
func exactly(given *reweight.Batch, opt Options) (weights, advantages []float64) {
	b := scheme.Widen(given)
	weights = reference.ActFocus(b, reference.ActFocusOptions{Signal: reference.Signal(opt.ActFocus.Signal.String()),
		Alpha: opt.ActFocus.Alpha, Beta: opt.ActFocus.Beta, Eps: opt.ActFocus.Eps})
	factors := reference.AEM(b, opt.AEM.Lambda, opt.AEM.Guard, reference.Scope(opt.AEM.Scope.String()))
	return weights, reference.Multiply(reference.GRPO(b, opt.GRPO.DivideByStd), factors)
}

// TestMergeRefuses: what cannot be one batch is an error that names the files.
func TestMergeRefuses(t *testing.T) {
	all := trajectories(t)
	a, b := named("a.jsonl", all[:8]...), named("b.jsonl", all[8:]...)
	surprisal, rows := Default, Default
	surprisal.ActFocus.Signal, rows.Rows = reweight.SignalSurprisal, true
	given := *all[9]
	given.Rewards, given.Advantages = nil, make([]float32, given.Tokens())
	other := *all[9]
	other.Group = all[0].Group
	pa, pb := mustOf(t, Default, a), mustOf(t, Default, b)
	for _, c := range []struct {
		name string
		with *Partial
		want string
	}{
		{"the same", pa, "a.jsonl is there twice"},
		{"a copy", mustOf(t, Default, named("copy.jsonl", all[:8]...)), "a.jsonl and copy.jsonl have the same trajectories: a file counts once; if both are to count, put their trajectories into one file"},
		{"rows that are no file there", mustOf(t, rows, named("a.jsonl", all[:8]...)), "a.jsonl is there twice"},
		{"one that is in a merged one", mustMerge(t, pa, pb), "a.jsonl is there twice"},
		{"another signal", mustOf(t, surprisal, b), "a.jsonl has statistics of the signal energy, and b.jsonl of surprisal"},
		{"no rewards", mustOf(t, Default, named("g.jsonl", &given)), "advantages come from rewards in a.jsonl, but from advantages in g.jsonl"},
		{"another prompt", mustOf(t, Default, named("o.jsonl", &other)), "group " + other.Group + " has one prompt in a.jsonl and another in o.jsonl: number"},
	} {
		if _, err := merge(pa, c.with); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
		if c.name == "another signal" || c.name == "no rewards" {
			continue
		}
		if _, err := merge(reread(t, c.with), pb, reread(t, pa)); err == nil {
			t.Errorf("%s: no error the other way round", c.name)
		}
	}
	if _, err := merge(); err == nil {
		t.Error("no error without a partial")
	}
	if _, err := of(Default, a, a[:0], named("c", all[20]), a); err == nil ||
		!strings.Contains(err.Error(), "a.jsonl is there twice") {
		t.Errorf("a source with a file twice: error %v", err)
	}
}

// TestRows: equal pieces of a table count as often as there are, as in one file.
func TestRows(t *testing.T) {
	all := trajectories(t)
	rows := Default
	rows.Rows = true
	piece, rest := named("piece", all[:8]...), named("rest", all[8:]...)
	for _, scope := range scopes {
		opt := rows
		opt.AEM.Scope = scope
		one := named("one", slices.Concat(piece, piece, piece, rest)...)
		want := results(t, mustOf(t, opt, one), opt, one)
		p := mustOf(t, opt, piece)
		merged := mustMerge(t, reread(t, mustMerge(t, p, p)), mustOf(t, opt, rest), reread(t, p))
		if n := merged.Totals(); n.Files != 4 || n.Trajectories != int64(len(all)+16) {
			t.Errorf("%+v", n)
		}
		expectSame(t, results(t, reread(t, merged), opt, piece, rest), want)
	}
}

// TestMergeKeeps: a partial can be merged with several others.
func TestMergeKeeps(t *testing.T) {
	var partials []*Partial
	for _, s := range deal(trajectories(t), 4, 1) {
		partials = append(partials, mustOf(t, Default, s))
	}
	common := mustMerge(t, partials[0], partials[1])
	first := mustMerge(t, common, partials[2])
	before := string(marshal(t, first))
	mustMerge(t, common, partials[3])
	if string(marshal(t, first)) != before {
		t.Error("the second one changes what the first one gave")
	}
}

// TestPrompts: within a file prompts may differ in a group, whose prompt is then not
// known; nor is it without token ids, or without a response.
func TestPrompts(t *testing.T) {
	all := trajectories(t)
	other := *all[9]
	other.Group = all[0].Group
	if other.Group == all[9].Group {
		t.Fatal("both are of one group")
	}
	blind := *all[1]
	blind.TokenIDs = nil
	silent := *all[2]
	silent.Role = make([]reweight.Role, silent.Tokens())
	silent.SpanIDs = slices.Repeat([]int32{-1}, silent.Tokens())
	prompt := mustOf(t, Default, named("a", all[0])).group(other.Group).prompt
	if prompt == (promptSum{}) {
		t.Fatal("no prompt is known")
	}
	for _, c := range []struct {
		name string
		of   []*rollout.Trajectory
		want promptSum
	}{
		{"two", []*rollout.Trajectory{all[0], &other}, promptSum{}},
		{"two and one again", []*rollout.Trajectory{all[0], &other, all[1]}, promptSum{}},
		{"blind first", []*rollout.Trajectory{&blind, all[0]}, prompt},
		{"blind last", []*rollout.Trajectory{all[0], &blind}, prompt},
		{"silent", []*rollout.Trajectory{&silent, all[0]}, prompt},
		{"blind", []*rollout.Trajectory{&blind, &silent}, promptSum{}},
	} {
		p := mustOf(t, Default, named("x", c.of...))
		if got := p.group(other.Group).prompt; got != c.want {
			t.Errorf("%s: prompt %x, want %x", c.name, got, c.want)
		}
		reread(t, p)
	}
	known, unknown := mustOf(t, Default, named("k", all[0])), mustOf(t, Default, named("u", &blind))
	for _, m := range []*Partial{mustMerge(t, known, unknown), mustMerge(t, unknown, known)} {
		if g := m.group(other.Group); g.prompt != prompt || g.file.Name != "k" {
			t.Errorf("merged, the prompt is %x of %s", g.prompt, g.file.Name)
		}
	}
}

// TestFew: empty sources, trajectories without tokens, without action tokens and without
// a response.
func TestFew(t *testing.T) {
	all := trajectories(t)
	empty := mustOf(t, Default)
	if got := empty.Totals(); got != (Totals{}) {
		t.Errorf("an empty source has %+v", got)
	}
	reread(t, empty)
	whole := mustOf(t, Default, named("whole", all...))
	if m := mustMerge(t, empty, whole, empty); string(marshal(t, m)) != string(marshal(t, whole)) {
		t.Error("empty partials change a merged one")
	}

	reasoning := *all[3]
	reasoning.Role = slices.Clone(reasoning.Role)
	for i, r := range reasoning.Role {
		reasoning.Role[i] = min(r, reweight.RoleReasoning)
	}
	p := mustOf(t, Default, named("r", &reasoning))
	if got := p.Totals(); got.Actions != 0 || got.Mean != 0 || got.Deviation != 0 || got.Trajectories != 1 {
		t.Errorf("without action tokens: %+v", got)
	}
	for _, r := range results(t, reread(t, p), Default, named("r", &reasoning)) {
		for i, role := range reasoning.Role {
			if want := []float32{0, float32(Default.ActFocus.Alpha)}[role]; r.weights[i] != want {
				t.Fatalf("weights[%d] = %v, want %v", i, r.weights[i], want)
			}
		}
	}

	// A mean that is rounded to a negative zero, and a reward that is one.
	low := trajectories(t)[4]
	for i := range low.Entropy {
		low.Entropy[i] = 0
	}
	low.Entropy[slices.Index(low.Role, reweight.RoleReasoning)] = -math.SmallestNonzeroFloat32
	low.Rewards[0] = float32(math.Copysign(0, -1))
	p = mustOf(t, Default, named("low", low))
	for _, x := range slices.Concat(p.groups[0].rewards, p.groups[0].spans) {
		if math.Signbit(float64(x)) {
			t.Errorf("%v is in the partial, which has another text in another order", x)
		}
	}
	results(t, reread(t, p), Default, named("low", low))

	// A trajectory without tokens still counts for its group.
	none := &rollout.Trajectory{Batch: reweight.Batch{SeqOffsets: []int64{0, 0}, Rewards: []float32{7},
		GroupIDs: []int32{0}}, Group: all[0].Group}
	s := named("n", none, all[0], all[1])
	p = mustOf(t, Default, s)
	want := slices.Sorted(slices.Values([]float32{7, all[0].Rewards[0], all[1].Rewards[0]}))
	if got := p.group(none.Group).rewards; !slices.Equal(got, want) {
		t.Errorf("rewards %v, want %v", got, want)
	}
	results(t, reread(t, p), Default, s)
	bare := &rollout.Trajectory{Batch: reweight.Batch{SeqOffsets: []int64{0, 0}}}
	p = mustOf(t, Default, named("bare", bare))
	if got := p.Totals(); got != (Totals{Files: 1, Trajectories: 1}) {
		t.Errorf("a trajectory of nothing: %+v", got)
	}
	results(t, reread(t, p), Default, named("bare", bare))
}

// TestGiven: where rewards are missing, the source's advantages are scaled.
func TestGiven(t *testing.T) {
	all := trajectories(t)
	for _, tr := range all {
		tr.Rewards = nil
		tr.Advantages = make([]float32, tr.Tokens())
		for i := range tr.Advantages {
			tr.Advantages[i] = float32(i) - 10
		}
	}
	opt := Default
	shards := deal(all, 3, 1)
	p := reread(t, mustOf(t, opt, shards...))
	scaled := results(t, p, opt, shards...)
	opt.AEM.Guard = math.Inf(1)
	changed := false
	for key, plain := range results(t, p, opt, shards...) {
		for i, a := range plain.advantages {
			if masked := a == 0 && scaled[key].advantages[i] == 0; !masked && a != float32(i)-10 {
				t.Fatalf("advantages[%d] = %v", i, a)
			}
			changed = changed || a != scaled[key].advantages[i]
		}
	}
	if !changed {
		t.Error("AEM changes nothing")
	}
}

// TestKeys: group ids that are long or no text are told apart.
func TestKeys(t *testing.T) {
	ids := []string{"", "0", "00", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 66), "\xff",
		"\xfe", "\ufffd", "<&>\u2028\x00\u202e"}
	ids = append(ids, keyOf(ids[5]), keyOf("\xff"))
	all := trajectories(t)
	var s shard
	for i, id := range ids {
		tr := *all[i]
		tr.Group = id
		s = append(s, named("x", &tr)...)
	}
	p := reread(t, mustOf(t, Default, s))
	if got := p.Totals().Groups; got != len(ids) {
		t.Errorf("%d groups, want %d", got, len(ids))
	}
	results(t, p, Default, s)
}

// TestErrors: an input that is wrong is an error that names the file and the place.
func TestErrors(t *testing.T) {
	all := trajectories(t)
	action := slices.Index(all[1].Role, reweight.RoleAction)
	response := slices.Index(all[1].Role, reweight.RoleReasoning)
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		change func(*rollout.Trajectory)
		opt    func(*Options)
		want   string
	}{
		{"energy", func(t *rollout.Trajectory) { t.RefEnergy[action] = nan }, nil, fmt.Sprintf("d.jsonl:2: ref_energy[%d] is NaN at an action token, want a finite number", action)},
		{"no lines", func(t *rollout.Trajectory) { t.RefEnergy[action] = nan; t.Line = 0 }, nil, fmt.Sprintf("d.jsonl: trajectory 1: ref_energy[%d] is NaN at an action token", action)},
		{"entropy", func(t *rollout.Trajectory) { t.Entropy[response] = nan }, nil, fmt.Sprintf("d.jsonl:2: entropy[%d] is NaN in span 0", response)},
		{"large entropy", func(t *rollout.Trajectory) { t.Entropy[response] = 2e30 }, nil, fmt.Sprintf("d.jsonl:2: entropy[%d] is 2e+30 in span 0", response)},
		{"reward", func(t *rollout.Trajectory) { t.Rewards[0] = nan }, nil, "d.jsonl:2: rewards[0] is NaN"},
		{"reward of nothing", func(t *rollout.Trajectory) {
			t.Batch = reweight.Batch{SeqOffsets: []int64{0, 0}, Rewards: []float32{nan}}
			t.Line = 0
		}, nil, "d.jsonl: trajectory 1: rewards is [NaN], want one finite reward"},
		{"no rewards", func(t *rollout.Trajectory) { t.Rewards = nil }, nil, "d.jsonl:2: rewards is missing, and so is advantages"},
		{"rewards and advantages", func(t *rollout.Trajectory) { t.Rewards, t.Advantages = nil, make([]float32, t.Tokens()) }, nil, "d.jsonl:2: advantages come from advantages here, but from rewards"},
		{"advantage", func(t *rollout.Trajectory) {
			t.Rewards, t.Advantages = nil, make([]float32, t.Tokens())
			t.Advantages[response] = nan
		}, nil, fmt.Sprintf("d.jsonl:2: advantages[%d] is NaN at a response token", response)},
		{"no energy", func(t *rollout.Trajectory) { t.RefEnergy = nil }, nil, "d.jsonl:2: ref_energy is missing"},
		{"no spans", func(t *rollout.Trajectory) { t.SpanIDs = nil }, nil, "d.jsonl:2: span_ids is missing"},
		{"no entropy", func(t *rollout.Trajectory) { t.Entropy = nil; t.Line = 0 }, nil, "d.jsonl: trajectory 1: entropy is missing"},
		{"role", func(t *rollout.Trajectory) { t.Role = slices.Clone(t.Role); t.Role[3] = 9 }, nil, "d.jsonl:2: role[3] is 9, want 0, 1 or 2"},
		{"span", func(t *rollout.Trajectory) {
			for i, s := range t.SpanIDs {
				if s == 0 {
					t.Role = slices.Clone(t.Role)
					t.Role[i] = 0
				}
			}
		}, nil, "d.jsonl:2: span_ids has no response token in span 0, want at least one in each"},
		{"two", func(t *rollout.Trajectory) { t.SeqOffsets = []int64{0, 1, int64(t.Tokens())} }, nil, "d.jsonl:2: seq_offsets is of 2 trajectories, want 1"},
		{"difference", func(t *rollout.Trajectory) {
			t.OldLogprobs[action], t.RefLogprobs[action] = math.MaxFloat32, -math.MaxFloat32
		},
			func(o *Options) { o.ActFocus.Signal = reweight.SignalLogRatio },
			fmt.Sprintf("d.jsonl:2: old_logprobs[%d] is 3.4028235e+38, too far from", action)},
		{"second array", func(t *rollout.Trajectory) { t.RefLogprobs[action] = nan },
			func(o *Options) { o.ActFocus.Signal = reweight.SignalLogRatio },
			fmt.Sprintf("d.jsonl:2: ref_logprobs[%d] is NaN at an action token", action)},
		{"option", func(*rollout.Trajectory) {}, func(o *Options) { o.AEM.Lambda = 81 }, "reweight: Lambda is 81, want 0 to 80"},
		{"no range of AEM", func(*rollout.Trajectory) {}, func(o *Options) { o.GRPO.Eps = -1 }, "reweight: Eps is -1"},
	} {
		opt := Default
		if c.opt != nil {
			c.opt(&opt)
		}
		good := named("d.jsonl", all[0], trajectories(t)[1])
		var p *Partial
		if opt.Check() == nil {
			p = mustOf(t, opt, good)
		}
		bad := named("d.jsonl", all[0], trajectories(t)[1])
		c.change(bad[1])
		if _, err := of(opt, bad); err == nil || !strings.HasPrefix(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %s", c.name, err, c.want)
		}
		// Apply refuses it too.
		if p != nil {
			if err := apply(sourceOf(bad), p, opt, func(Scored) error { return nil }); err == nil ||
				!strings.HasPrefix(err.Error(), "d.jsonl:") {
				t.Errorf("%s: apply: error %v", c.name, err)
			}
		}
	}
	boom := errors.New("boom")
	failing := &fake{nil, boom}
	if _, err := read(failing, Default); err != boom {
		t.Errorf("error %v, want the source's", err)
	}
	p := mustOf(t, Default, named("x", all[0]))
	if err := apply(failing, p, Default, nil); err != boom {
		t.Errorf("error %v, want the source's", err)
	}
	if err := apply(sourceOf(named("x", all[0])), p, Default, func(Scored) error { return boom }); err != boom {
		t.Errorf("error %v, want do's", err)
	}
}

// TestApplyOther: a file that is none of the batch, or has changed, is refused.
func TestApplyOther(t *testing.T) {
	all := trajectories(t)
	a, b := named("a", all[:8]...), named("b", all[8:16]...)
	p := mustOf(t, Default, a)
	more := mustOf(t, Default, named("c", all[:9]...))
	changed := trajectories(t)[7]
	changed.Rewards[0]++
	for name, c := range map[string]struct {
		merged *Partial
		shards []shard
	}{
		"another":        {p, []shard{b}},
		"one too many":   {p, []shard{a, b}},
		"before":         {p, []shard{b, a}},
		"a part":         {p, []shard{a[:7]}},
		"of a whole":     {more, []shard{a}},
		"another reward": {p, []shard{named("a", append(slices.Clone(all[:7]), changed)...)}},
		"another order":  {p, []shard{named("a", append(slices.Clone(all[1:8]), all[0])...)}},
		"nothing merged": {mustOf(t, Default), []shard{a}},
	} {
		err := apply(sourceOf(c.shards...), c.merged, Default, func(Scored) error { return nil })
		if err == nil || !strings.Contains(err.Error(), ": the merged statistics are not of this file, or it has changed since they were made") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if got := results(t, p, Default, named("renamed", all[:8]...)); len(got) != 8 {
		t.Errorf("%d trajectories, want 8: the name of a file does not count", len(got))
	}
	other := Default
	other.ActFocus.Signal = reweight.SignalSurprisal
	if err := apply(sourceOf(a), p, other, nil); err == nil ||
		err.Error() != "the merged statistics are of the signal energy, not of surprisal" {
		t.Errorf("another signal: error %v", err)
	}
}

// TestDerived: what follows from logits is derived, in both passes.
func TestDerived(t *testing.T) {
	src := must.Get(rollout.Open("../testdata/large/frozenlake.safetensors"))
	defer src.Close()
	tr := must.Get(src.Next())
	opt := Default
	opt.ActFocus.Signal = reweight.SignalRefEntropy
	s := named("x", tr)
	for _, r := range results(t, mustOf(t, opt, s), opt, s) {
		distinct := map[float32]bool{}
		for _, w := range r.weights {
			distinct[w] = true
		}
		if len(distinct) < 4 {
			t.Errorf("the weights are %v", distinct)
		}
	}
	if tr.RefEntropy != nil {
		t.Error("the trajectory has changed")
	}
}

// BenchmarkOf makes the statistics of trajectories that are in memory.
func BenchmarkOf(b *testing.B) {
	all := trajectories(b)
	tokens := 0
	for _, t := range all {
		tokens += t.Tokens()
	}
	for b.Loop() {
		mustOf(b, Default, all)
	}
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtoken/s")
}

// BenchmarkApply scores trajectories that are in memory.
func BenchmarkApply(b *testing.B) {
	all := trajectories(b)
	p := mustOf(b, Default, all)
	tokens := 0
	for b.Loop() {
		err := apply(sourceOf(all), p, Default, func(s Scored) error {
			tokens += s.Tokens()
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds()/1e6, "Mtoken/s")
}
