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

func nearAll(t *testing.T, what string, got []float32, want []number) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		near(t, what, float64(got[i]), float64(want[i]))
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

func TestGoldenActFocus(t *testing.T) {
	var cases []struct {
		Role            roles
		Energy, Weights []number
		Options         struct{ Alpha, Beta, Eps float64 }
	}
	golden.Read(t, "actfocus.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := reweight.Batch{Role: c.Role, RefEnergy: floats(c.Energy)}
		w := make([]float32, len(c.Role))
		opt := reweight.ActFocusOptions{Alpha: c.Options.Alpha, Beta: c.Options.Beta, Eps: c.Options.Eps}
		if _, err := ws.ActFocus(w, &b, opt); err != nil {
			t.Fatal(err)
		}
		nearAll(t, "weight", w, c.Weights)
	}
}

func TestGoldenAEM(t *testing.T) {
	var cases []struct {
		Role       roles
		SpanIDs    []int32  `json:"span_ids"`
		SeqOffsets []int64  `json:"seq_offsets"`
		GroupIDs   []int32  `json:"group_ids"`
		TokenAlpha []number `json:"token_alpha"`
		Entropy    []number
		Options    struct{ Lam, Guard float64 }
	}
	golden.Read(t, "aem.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := reweight.Batch{Role: c.Role, SpanIDs: c.SpanIDs, SeqOffsets: c.SeqOffsets, GroupIDs: c.GroupIDs, Entropy: floats(c.Entropy)}
		f := make([]float32, len(c.Role))
		if err := ws.AEM(f, &b, reweight.AEMOptions{Lambda: c.Options.Lam, Guard: c.Options.Guard}); err != nil {
			t.Fatal(err)
		}
		nearAll(t, "factor", f, c.TokenAlpha)
	}
}

func TestGoldenGRPO(t *testing.T) {
	var cases []struct {
		Rewards    []number
		GroupIDs   []int32 `json:"group_ids"`
		Advantages []number
		Without    []number `json:"advantages_without_std"`
	}
	golden.Read(t, "grpo.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		n := len(c.Rewards)
		b := reweight.Batch{Role: make([]reweight.Role, n), SeqOffsets: make([]int64, n+1), Rewards: floats(c.Rewards), GroupIDs: c.GroupIDs}
		for s := range n { // one action token each
			b.Role[s], b.SeqOffsets[s+1] = reweight.RoleAction, int64(s+1)
		}
		a := make([]float32, n)
		for _, divide := range []bool{true, false} {
			opt, want := reweight.DefaultGRPO, c.Advantages
			if !divide {
				opt.DivideByStd, want = false, c.Without
			}
			if err := ws.GRPO(a, &b, opt); err != nil {
				t.Fatal(err)
			}
			nearAll(t, "advantage", a, want)
		}
	}
}

func TestGoldenGAE(t *testing.T) {
	var cases []struct {
		Rewards, Values, Advantages, Returns []number
		Mask                                 roles
		Gamma, Lam                           float64
	}
	golden.Read(t, "gae.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		n := len(c.Mask)
		b := reweight.Batch{Role: c.Mask, SeqOffsets: []int64{0, int64(n)}, Values: floats(c.Values)}
		a, r := make([]float32, n), make([]float32, n)
		if err := ws.GAE(a, r, floats(c.Rewards), &b, reweight.GAEOptions{Gamma: c.Gamma, Lambda: c.Lam}); err != nil {
			t.Fatal(err)
		}
		for i, m := range c.Mask {
			if m != 0 {
				near(t, "advantage", float64(a[i]), float64(c.Advantages[i]))
				near(t, "return", float64(r[i]), float64(c.Returns[i]))
			}
		}
	}
}

func TestGoldenPolicyLoss(t *testing.T) {
	var cases []struct {
		Logprobs, Advantages, Weights, Gradient []number
		Old                                     []number `json:"old_logprobs"`
		Mask                                    roles
		Options                                 struct{ Lo, Hi, Dual float64 }
		Loss                                    float64
		ClipFraction                            float64 `json:"clip_fraction"`
	}
	golden.Read(t, "policy_loss.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := reweight.Batch{Role: c.Mask, Logprobs: floats(c.Logprobs), OldLogprobs: floats(c.Old), Advantages: floats(c.Advantages)}
		opt := reweight.LossOptions{ClipLow: c.Options.Lo, ClipHigh: c.Options.Hi, DualClip: c.Options.Dual}
		grad := make([]float32, len(c.Mask))
		res, err := ws.Loss(grad, floats(c.Weights), &b, opt)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "loss", res.Loss, c.Loss)
		near(t, "clip fraction", res.ClipFraction, c.ClipFraction)
		nearAll(t, "gradient", grad, c.Gradient)
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
