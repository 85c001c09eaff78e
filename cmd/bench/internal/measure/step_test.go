package measure

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/scheme"
)

// TestOverheads runs every step with every instruction set, on little.
func TestOverheads(t *testing.T) {
	const tokens = 1000
	for _, isa := range reweight.AvailableISAs() {
		for _, q := range []Steps{{}, {KL: true}, {PPO: true}, {PPO: true, KL: true}} {
			q.Tokens, q.Vocab, q.Workers, q.ISA = tokens, 30, 2, isa.String()
			overheads := must.Get(Overheads(t.Context(), quick, q))
			var names []string
			extra := map[string]int64{}
			for _, o := range overheads {
				names = append(names, o.Step)
				extra[o.Step] = o.ExtraBytes
				if o.ISA != isa.String() || o.KL != q.KL ||
					o.Advantages != map[bool]string{false: "grpo", true: "ppo"}[q.PPO] ||
					o.Tokens != tokens || o.Vocab != 30 || o.Workers != 2 || !(o.OverUniform.Median > 0) ||
					!(o.UniformNs.Median > 0) || o.Verdict == "" {
					t.Errorf("%+v", o)
				}
			}
			if want := []string{"actfocus", "aem", "actfocus+aem"}; !slices.Equal(names, want) {
				t.Errorf("steps %v, want %v", names, want)
			}
			// ActFocus holds an energy and a weight per token and no more; AEM an
			// entropy and a factor, and scratch for its spans, which the first call takes
			// twice: until it ends, and for later ones. The rest is names of arrays, and slack of the
			// allocator.
			if n := extra["actfocus"]; n < 8*tokens || n > 10*tokens {
				t.Errorf("%v: ActFocus holds %d bytes for %d tokens", isa, n, tokens)
			}
			if n := extra["aem"]; n < 8*tokens || n > 66*tokens {
				t.Errorf("%v: AEM holds %d bytes for %d tokens", isa, n, tokens)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		median, lo, hi float64
		null           float64 // the upper end of its interval
		want           string
	}{
		{1.001, 0.99, 1.015, 1.01, "free within noise: at most +1.5%"},
		{0.98, 0.97, 0.99, 1.01, "free within noise: no slower"},
		{1.001, 0.99, 1.015, 1.03, "at most +1.5%: not decided: the null reaches +3.0%"},
		{1.001, 0.99, 1.015, math.NaN(), "at most +1.5%: not decided: the null reaches +NaN%"},
		{1, 1, 1.02, 1.01, "free within noise: at most +2.0%"},
		{1.01, 1.005, 1.015, 1.01, "free within noise: at most +1.5%"},
		{1.01, 1.005, 1.015, 1.004, "costs under 2%: 1.0%"},
		{1.31, 1.29, 1.33, 1.2, "costs 31.0%: the claim does not hold"},
		{1.03, 1.0201, 1.04, 1.01, "costs 3.0%: the claim does not hold"},
		{1.01, 0.99, 1.03, 1.01, "at most +3.0%: not decided: at least -1.0%"},
		{1.03, 1.02, 1.04, 1.01, "at most +4.0%: not decided: at least +2.0%"},
		{1.06, 1.03, 1.08, 1.04, "at most +8.0%: not decided: at least +3.0%, the null reaches +4.0%"}, // the uniform step may seem to cost 4%
		{math.NaN(), math.NaN(), math.NaN(), 1.01, "at most +NaN%: not decided: at least +NaN%"},
	} {
		if claim, reason := verdict(bench.Estimate{Median: c.median, Lo: c.lo, Hi: c.hi, N: 6},
			bench.Estimate{Hi: c.null, N: 6}); claim+": "+reason != c.want {
			got := claim + ": " + reason
			t.Errorf("verdict of %v, %v to %v, null up to %v = %q, want %q", c.median, c.lo, c.hi, c.null, got, c.want)
		}
	}
	for _, n := range [][2]int{{5, 9}, {9, 5}, {5, 5}} { // as clear as can be
		for _, median := range []float64{1, 2} {
			ratio, null := bench.Estimate{Median: median, Lo: median, Hi: median, N: n[0]},
				bench.Estimate{Median: 1, Lo: 1, Hi: 1, N: n[1]}
			claim, reason := verdict(ratio, null)
			if got, want := claim+": "+reason, "not decided: rounds 5, want 6"; got != want {
				t.Errorf("verdict of %v in %v rounds = %q, want %q", median, n, got, want)
			}
		}
	}
}

// TestSchemeVerdict: of a scheme there is no claim to be refuted.
func TestSchemeVerdict(t *testing.T) {
	rounds := func(ns float64) []float64 { return slices.Repeat([]float64{ns}, bench.FewestRounds) }
	slow := bench.Samples{rounds(100), rounds(100), rounds(300)} // of two steps
	o := (Steps{Schemes: scheme.All()[1:2]}).overheads(slow, []cost{{calls: 1}, {calls: 1}, {calls: 2}})[0]
	if o.Verdict+": "+o.Reason != "costs 50.0%: more than 2%" {
		t.Errorf("%s: %s", o.Verdict, o.Reason)
	}
}

// TestStepRows: as many as stream, and never fewer than a step takes.
func TestStepRows(t *testing.T) {
	for vocab, want := range map[int]int{151936: 28, 1 << 24: FewestTokens} {
		if got := StepRows(vocab); got != want {
			t.Errorf("%d of %d, want %d", got, vocab, want)
		}
	}
	in := newStepInput(FewestTokens, 8).withLogits()
	for _, q := range []Steps{{}, {PPO: true, KL: true}} {
		for _, st := range q.variants() {
			if err := in.start(st, reweight.Portable, 1)(); err != nil {
				t.Errorf("%+v: %v", st, err)
			}
		}
	}
}

// TestStepsDoTheirWork: each step leaves a gradient at every row, and another
// one if it weighs tokens or takes advantages in another way.
func TestStepsDoTheirWork(t *testing.T) {
	const tokens, vocab = 37, 50 // the last trajectory and the last span are short
	in := newStepInput(tokens, vocab).withLogits()
	must.Do(in.batch.Validate())
	seen := map[string][]float32{}
	for _, q := range []Steps{{}, {KL: true}, {PPO: true}, {PPO: true, KL: true}} {
		here := map[string]bool{}
		for _, st := range q.variants() {
			if err := in.start(st, reweight.Portable, 1)(); err != nil {
				t.Fatal(st.name, err)
			}
			g := slices.Clone(in.gradient.F32)
			for r := range tokens {
				if !slices.ContainsFunc(g[r*vocab:(r+1)*vocab], func(x float32) bool { return x != 0 }) {
					t.Errorf("%+v: row %d has no gradient", st, r)
				}
			}
			name := fmt.Sprint(st.name, st.ppo)
			if first, ok := seen[name]; ok && !slices.Equal(first, g) {
				t.Errorf("%s: gradients with and without a KL anchor differ", name) // the anchor is in no gradient here
			}
			for other, o := range seen {
				if other != name && slices.Equal(o, g) {
					t.Errorf("%s has the gradient of %s", name, other)
				}
			}
			seen[name], here[name] = g, true
		}
		if len(here) != 4 {
			t.Errorf("%+v: steps %v, want 4", q, here)
		}
	}
}

// TestSchemesDoTheirWork: the step of each scheme leaves a gradient at every row, or at
// those that the scheme keeps, because rows without one cost less.
func TestSchemesDoTheirWork(t *testing.T) {
	for _, tokens := range []int{FewestOfSchemes, 37, 131} { // the last group may be incomplete
		checkSchemesWork(t, tokens)
	}
}

func checkSchemesWork(t *testing.T, tokens int) {
	const vocab = 50
	in := newStepInput(tokens, vocab).withLogits()
	q := Steps{Schemes: append(scheme.All(), scheme.MustParse("kl_rewards+gae+value_loss"))}
	for _, st := range q.variants() {
		if err := in.start(st, reweight.Portable, 1)(); err != nil {
			t.Fatal(st.name, err)
		}
		n, least := 0, tokens
		weighs := func(e *scheme.Entry) bool { return e.Kind == scheme.Weight }
		switch {
		case slices.ContainsFunc(st.scheme.Entries(), weighs):
			least = tokens / 5 // others may be left out
		case st.name == "clip_cov":
			least = tokens - 1 // that is left out
		case st.name == "pass_at_k":
			least = 1 // of the best of a group
		}
		for row := range slices.Chunk(in.gradient.F32, vocab) {
			if slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
				n++
			}
		}
		if n < least {
			t.Errorf("%s: %d of %d rows have a gradient, want %d", st.name, n, tokens, least)
		}
	}
}

// TestStepTakesTheEnergy: the flatter of two rows has the smaller logsumexp, and the
// larger energy.
func TestStepTakesTheEnergy(t *testing.T) {
	const tokens = 8
	b := newStepInput(tokens, 50).withLogits().batch
	b.OldLogprobs, b.Logprobs, b.RefEnergy = make([]float32, tokens), make([]float32, tokens), make([]float32, tokens)
	must.Do(stats(new(reweight.Workspace), &b))
	if sharp, flat := b.RefEnergy[2], b.RefEnergy[6]; !(sharp < flat && flat < 0) {
		t.Errorf("energies %v where sharp and %v where flat", sharp, flat)
	}
}
