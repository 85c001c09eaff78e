package bench

import (
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
)

// TestOverheads runs every step on every path, on little.
func TestOverheads(t *testing.T) {
	const tokens = 40
	for _, path := range reweight.Available() {
		overheads, err := quick.Overheads(t.Context(), tokens, 30, 2, path)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		extra := map[string]int64{}
		for _, o := range overheads {
			names = append(names, o.Step)
			extra[o.Step] = o.ExtraBytes
			if o.Path != path.String() || !(o.OverUniform > 0) {
				t.Errorf("%+v", o)
			}
		}
		if want := []string{"actfocus", "actfocus_no_kl", "aem", "actfocus+aem"}; !slices.Equal(names, want) {
			t.Errorf("steps %v, want %v", names, want)
		}
		// ActFocus holds a weight per token and no more; AEM a factor, and
		// scratch for its spans. The rest is slack of the allocator.
		if n := extra["actfocus"]; n < 4*tokens || n > 6*tokens {
			t.Errorf("%v: ActFocus holds %d bytes for %d tokens", path, n, tokens)
		}
		if n := extra["aem"]; n < 4*tokens || n > 40*tokens {
			t.Errorf("%v: AEM holds %d bytes for %d tokens", path, n, tokens)
		}
	}
}

// TestStepsDoTheirWork: each step leaves a gradient at every row, and another
// one if it weighs tokens in another way.
func TestStepsDoTheirWork(t *testing.T) {
	const tokens, vocab = 37, 50 // the last trajectory and the last span are short
	in := newStepInput(tokens, vocab)
	if err := in.batch.Validate(); err != nil {
		t.Fatal(err)
	}
	seen := map[string][]float32{}
	for _, st := range steps {
		if err := in.start(st, reweight.Portable, 1)(); err != nil {
			t.Fatal(st.name, err)
		}
		g := slices.Clone(in.gradient.F32)
		for r := range tokens {
			if !slices.ContainsFunc(g[r*vocab:(r+1)*vocab], func(x float32) bool { return x != 0 }) {
				t.Errorf("%s: row %d has no gradient", st.name, r)
			}
		}
		name := st.name
		if name == "actfocus_no_kl" {
			name = "actfocus" // the anchor is in no gradient here
		}
		if first, ok := seen[name]; ok && !slices.Equal(first, g) {
			t.Errorf("%s: gradients with and without a KL anchor differ", name)
		}
		for other, o := range seen {
			if other != name && slices.Equal(o, g) {
				t.Errorf("%s has the gradient of %s", name, other)
			}
		}
		seen[name] = g
	}
}

// TestStepTakesTheEnergy: the flatter of two rows has the smaller logsumexp, the
// larger energy and so the larger weight.
func TestStepTakesTheEnergy(t *testing.T) {
	const tokens = 8
	in := newStepInput(tokens, 50)
	b := in.batch
	b.OldLogprobs, b.Logprobs, b.Advantages = make([]float32, tokens), make([]float32, tokens), make([]float32, tokens)
	b.RefEnergy = make([]float32, tokens)
	weights := b.RefEnergy
	st := step{actFocus: true}
	if err := st.do(new(reweight.Workspace), &b, make([]float32, tokens), weights, nil, in.gradient); err != nil {
		t.Fatal(err)
	}
	if sharp, flat := weights[2], weights[6]; !(sharp >= 1 && sharp < flat) {
		t.Errorf("weights %v where sharp and %v where flat", sharp, flat)
	}
}
