package reference

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata/golden"
)

func TestGoldenTokenStats(t *testing.T) {
	var cases []struct {
		Name                        string
		Logits                      []golden.Number
		ID                          int32
		LogSumExp, Entropy, Logprob golden.Number
	}
	golden.Read(t, "token_stats.json", &cases)
	for _, c := range cases {
		var x []float64
		for _, v := range c.Logits {
			x = append(x, float64(v))
		}
		for _, v := range []struct {
			what string
			got  float64
			want golden.Number
		}{{"lse", LogSumExp(x), c.LogSumExp}, {"entropy", Entropy(x, 1), c.Entropy},
			{"logprob", Logprob(x, c.ID, 1), c.Logprob}} {
			want := float64(v.want)
			// The answers carry the rounding of a sum near 1: 1e-16 in an entropy of 1e-14.
			if !same(v.got, want) && !(math.Abs(v.got-want) <= 1e-10*max(1e-5, math.Abs(want))) {
				t.Errorf("%s: %s = %v, want %v", c.Name, v.what, v.got, want)
			}
		}
	}
}

// TestRealLogits derives the stored arrays from the stored logits: they were
// computed in float64 and rounded to float32.
func TestRealLogits(t *testing.T) {
	file := must.Get(rollout.Open("../testdata/large/frozenlake.safetensors"))
	defer file.Close()
	b := must.Get(file.Batch())
	wide := func(l reweight.Logits) (x []float64) {
		for _, v := range l.BF16 {
			x = append(x, float64(v.Float32()))
		}
		return x
	}
	lse, _, ref, _ := TokenStats(wide(b.RefLogits), b.RefLogits.Vocab, b.TokenIDs, 1)
	_, entropy, old, _ := TokenStats(wide(b.OldLogits), b.OldLogits.Vocab, b.TokenIDs, 1)
	for i := range lse {
		for _, v := range []struct {
			what string
			got  float64
			want float32
		}{{"RefEnergy", -lse[i], b.RefEnergy[i]}, {"RefLogprobs", ref[i], b.RefLogprobs[i]},
			{"Entropy", entropy[i], b.Entropy[i]}, {"OldLogprobs", old[i], b.OldLogprobs[i]}} {
			if want := float64(v.want); !(math.Abs(v.got-want) <= 0x1p-24*math.Abs(want)+1e-14) {
				t.Fatalf("%s[%d] is %v, want %v", v.what, i, v.got, want)
			}
		}
	}
}
