package reweight_test

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/testdata/golden"
)

type (
	number = golden.Number
	roles  = golden.Small[reweight.Role]
)

func floats(n []number) []float32 {
	f := make([]float32, len(n))
	for i, x := range n {
		f[i] = float32(x)
	}
	return f
}

// near fails unless got is want to 1e-5 relative; NaN and infinities exactly.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(want) && math.IsNaN(got) || got == want {
		return
	}
	if !(math.Abs(got-want) <= 1e-5*math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestGoldenTokenStats(t *testing.T) {
	var cases []struct {
		Name                        string
		Logits                      []number
		ID                          int32
		Logsumexp, Entropy, Logprob number
	}
	golden.Read(t, "token_stats.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		lse, h, l := make([]float32, 1), make([]float32, 1), make([]float32, 1)
		logits := reweight.Logits{Vocab: len(c.Logits), F32: floats(c.Logits)}
		if err := ws.TokenStats(reweight.Stats{LSE: lse, Entropy: h, Logprob: l}, logits, []int32{c.ID}, reweight.DefaultTokenStats); err != nil {
			t.Fatal(c.Name, err)
		}
		for _, q := range []struct {
			what      string
			got, want float64
		}{{"lse", float64(lse[0]), float64(c.Logsumexp)}, {"entropy", float64(h[0]), float64(c.Entropy)}, {"logprob", float64(l[0]), float64(c.Logprob)}} {
			ok := q.got == q.want || math.IsNaN(q.got) && math.IsNaN(q.want) || math.Abs(q.got-q.want) <= 1e-6+math.Abs(q.want)*0x1p-24
			if !ok {
				t.Errorf("%s: %s = %v, want %v", c.Name, q.what, q.got, q.want)
			}
		}
	}
}

func TestGoldenBottleneck(t *testing.T) {
	var cases []struct {
		Role            roles
		SeqOffsets      []int64 `json:"seq_offsets"`
		GroupIDs        []int32 `json:"group_ids"`
		Energy, Rewards []number
		Spearman        struct{ All, Reasoning, Action float64 }
	}
	golden.Read(t, "bottleneck.json", &cases)
	for _, c := range cases {
		b := reweight.Batch{Role: c.Role, SeqOffsets: c.SeqOffsets, GroupIDs: c.GroupIDs, Rewards: floats(c.Rewards), RefEnergy: floats(c.Energy)}
		res, err := reweight.Bottleneck(&b)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "all", res.All.Rho, c.Spearman.All)
		near(t, "reasoning", res.Reasoning.Rho, c.Spearman.Reasoning)
		near(t, "action", res.Action.Rho, c.Spearman.Action)
	}
}
