package rollout

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
	"pgregory.net/rapid"
)

// topOf returns the k most likely tokens of a distribution, and the sampled token if it
// is none of them and not -1. Servers put the latter first or last.
func topOf(logprobs []float64, k int, sampled int32, first bool) []candidate {
	order := make([]int, len(logprobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case logprobs[a] > logprobs[b]:
			return -1
		case logprobs[a] < logprobs[b]:
			return 1
		}
		return 0
	})
	var top []candidate
	for _, id := range order[:k] {
		top = append(top, candidate{logprob: float32(logprobs[id]), extra: id == int(sampled)})
	}
	if sampled >= 0 && !slices.Contains(order[:k], int(sampled)) {
		extra := candidate{logprob: float32(logprobs[sampled]), extra: true}
		if first {
			top = slices.Insert(top, 0, extra)
		} else {
			top = append(top, extra)
		}
	}
	return top
}

// logprobsOf returns the log-probabilities of all tokens, and the entropy.
func logprobsOf(logits []float64) (logprobs []float64, entropy float64) {
	lse := reference.LogSumExp(logits)
	for _, x := range logits {
		logprobs = append(logprobs, x-lse)
	}
	return logprobs, reference.Entropy(logits, 1)
}

func TestEntropyBoundsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.IntRange(1, 120).Draw(t, "vocab")
		scale := rapid.SampledFrom([]float64{0, 0.1, 1, 4, 30}).Draw(t, "scale")
		logits := rapid.SliceOfN(rapid.Float64Range(-scale, scale), vocab, vocab).Draw(t, "logits")
		logprobs, entropy := logprobsOf(logits)
		k := rapid.IntRange(0, vocab).Draw(t, "k")
		sampled := rapid.Int32Range(0, int32(vocab-1)).Draw(t, "sampled")
		top := topOf(logprobs, k, sampled, rapid.Bool().Draw(t, "first"))

		lower, upper, err := entropyBounds(top, vocab)
		must.Do(err)
		// Logprobs are rounded to float32.
		if !(lower <= entropy+2e-5 && entropy <= upper+2e-5 && lower <= upper) {
			t.Fatalf("bounds %v and %v, entropy %v", lower, upper, entropy)
		}
	})
}

// Log-probabilities that are no distribution's, for example because they are rounded to
// two digits, give the bounds of the reference, in the right order. The probability of one
// at -800 is 0 in float64.
func TestEntropyBoundsOfRounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logprobs := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(-9, -0.5), rapid.Just(-800.0)), 0, 9).Draw(t,
			"logprobs")
		extra := rapid.IntRange(-1, len(logprobs)-1).Draw(t, "extra")
		vocab := max(1, len(logprobs)) + rapid.IntRange(0, 9).Draw(t, "others")
		var known []candidate
		mass := 0.0
		for i, l := range logprobs {
			logprobs[i] = float64(float32(l))
			mass += math.Exp(logprobs[i])
			known = append(known, candidate{logprob: float32(l), extra: i == extra})
		}
		lower, upper, err := entropyBounds(known, vocab)
		if (err == nil) != (mass <= 1.01) {
			t.Fatalf("error %v of probabilities that add up to %v", err, mass)
		}
		wantLower, wantUpper := reference.EntropyBounds(logprobs, extra, vocab)
		if err == nil && !(math.Abs(lower-wantLower) <= 1e-12 && math.Abs(upper-wantUpper) <= 1e-12 && 0 <= lower &&
			lower <= upper) {
			t.Fatalf("bounds %v and %v, reference has %v and %v", lower, upper, wantLower, wantUpper)
		}
	})
}

func TestEntropyBoundsRefuses(t *testing.T) {
	for _, c := range []struct {
		known []candidate
		vocab int
		want  string
	}{
		{[]candidate{{logprob: -1}, {logprob: -2}}, 1, "2 log-probabilities are given, but the vocabulary is said to have 1 tokens"},
		{[]candidate{{logprob: -0.1}, {logprob: -0.1}}, 9, "add up to 1.81"},
	} {
		_, _, err := entropyBounds(c.known, c.vocab)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v of %d: error %v, want %q", c.known, c.vocab, err, c.want)
		}
	}
}

// The mean widths that docs/formats.md states.
func TestEntropyFromTopOfFrozenLake(t *testing.T) {
	f := must.Get(OpenFile("../testdata/large/frozenlake.safetensors"))
	defer f.Close()
	b := must.Get(f.Batch())
	vocab := b.OldLogits.Vocab
	for _, c := range []struct {
		k          int
		addSampled bool
		want       string
	}{{5, false, "0.1152"}, {5, true, "0.1148"}, {20, false, "0.0507"}, {20, true, "0.0505"}} {
		top := make([][]candidate, b.Tokens())
		row := make([]float64, vocab)
		responses := 0
		for token, role := range b.Role {
			if role == reweight.RoleMasked {
				continue
			}
			responses++
			for i, x := range b.OldLogits.BF16[token*vocab : (token+1)*vocab] {
				row[i] = float64(x.Float32())
			}
			logprobs, _ := logprobsOf(row)
			sampled := int32(-1)
			if c.addSampled {
				sampled = b.TokenIDs[token]
			}
			top[token] = topOf(logprobs, c.k, sampled, false)
		}
		e := must.Get(entropyFromTop(top, b.Role, vocab))
		if got := fmt.Sprintf("%.4f", e.width/float64(responses)); got != c.want {
			t.Errorf("%+v: mean width %s nats", c, got)
		}
		if e.most != c.k {
			t.Errorf("%+v: at most %d tokens", c, e.most)
		}
		for token, role := range b.Role {
			if role == reweight.RoleMasked {
				if e.entropy[token] != 0 {
					t.Fatalf("%+v: masked token %d has entropy %v", c, token, e.entropy[token])
				}
				continue
			}
			lower, upper, err := entropyBounds(top[token], vocab)
			must.Do(err)
			if h := float64(b.Entropy[token]); !(lower-2e-5 <= h && h <= upper+2e-5) {
				t.Fatalf("%+v: token %d has entropy %v, bounds %v and %v", c, token, h, lower, upper)
			}
			if middle := (lower + upper) / 2; math.Abs(float64(e.entropy[token])-middle) > 1e-6 {
				t.Fatalf("%+v: token %d is estimated at %v, want %v, the middle of the bounds", c, token,
					e.entropy[token], middle)
			}
		}
	}
}

func TestEntropyFromTopWithout(t *testing.T) {
	top := [][]candidate{nil, {{logprob: -1}}, nil}
	role := []reweight.Role{reweight.RoleMasked, reweight.RoleAction, reweight.RoleReasoning}
	if _, err := entropyFromTop(top, role, 9); err == nil ||
		!strings.HasPrefix(err.Error(), "token 2 of the trajectory has no log-probabilities") {
		t.Errorf("error %v", err)
	}
}

func TestEntropyFromSurprisal(t *testing.T) {
	role := []reweight.Role{reweight.RoleMasked, reweight.RoleAction, reweight.RoleReasoning, reweight.RoleReasoning}
	got := entropyFromSurprisal([]float32{-3, -0.5, 0, 5e-7}, role)
	if want := []float32{0, 0.5, 0, 0}; !slices.Equal(got, want) || math.Signbit(float64(got[2])) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The widths for a wide vocabulary that docs/formats.md states: of the 20 most likely
// tokens the last has the probability 0.001, and others have a share of the whole.
func TestEntropyWidthOfWideVocabulary(t *testing.T) {
	for _, c := range []struct {
		missing float64
		want    string
	}{{0.001, "0.01"}, {0.01, "0.10"}, {0.05, "0.40"}, {0.2, "1.33"}} {
		top := []candidate{{logprob: float32(math.Log(1 - c.missing - 19*0.001))}}
		for range 19 {
			top = append(top, candidate{logprob: float32(math.Log(0.001))})
		}
		lower, upper, err := entropyBounds(top, 151936)
		must.Do(err)
		if got := fmt.Sprintf("%.2f", upper-lower); got != c.want {
			t.Errorf("%v missing: width %s nats, want %s", c.missing, got, c.want)
		}
	}
}

// The correlation between the mean surprisals and the mean entropies of spans that
// docs/formats.md states.
func TestSurprisalOfSpans(t *testing.T) {
	l, turns := openLake(t)
	estimate := entropyFromSurprisal(l.OldLogprobs, l.Role)
	var n, x, y, xx, xy, yy float64
	for _, u := range turns {
		var surprisal, entropy float64
		for token := u.begin; token < u.end; token++ {
			surprisal += float64(estimate[token]) / float64(u.end-u.begin)
			entropy += float64(l.Entropy[token]) / float64(u.end-u.begin)
		}
		n, x, y = n+1, x+surprisal, y+entropy
		xx, xy, yy = xx+surprisal*surprisal, xy+surprisal*entropy, yy+entropy*entropy
	}
	got := fmt.Sprintf("%.2f", (n*xy-x*y)/math.Sqrt((n*xx-x*x)*(n*yy-y*y)))
	if got != "0.94" {
		t.Errorf("correlation %s over %v spans", got, n)
	}
}
