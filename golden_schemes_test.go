package reweight_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/testdata/golden"
)

// schemeCase is the part of a golden case that is its batch.
type schemeCase struct {
	Name       string
	Role       roles
	SeqOffsets []int64 `json:"seq_offsets"`
	GroupIDs   []int32 `json:"group_ids"`
	SpanIDs    []int32 `json:"span_ids"`
	Anchors    []int32
	Rewards    []number
	Entropy    []number
	Advantages []number
	Logprobs   []number
	Old        []number `json:"old_logprobs"`
	Rollout    []number `json:"rollout_logprobs"`
	TokenR     []number `json:"token_rewards"`
	SpanR      []number `json:"span_rewards"`
	Error      string
}

func (c *schemeCase) batch() reweight.Batch {
	return reweight.Batch{Role: c.Role, SeqOffsets: c.SeqOffsets, GroupIDs: c.GroupIDs, SpanIDs: c.SpanIDs, Anchors: c.Anchors,
		Rewards: floats(c.Rewards), Entropy: floats(c.Entropy), Advantages: floats(c.Advantages), Logprobs: floats(c.Logprobs),
		OldLogprobs: floats(c.Old), RolloutLogprobs: floats(c.Rollout), TokenRewards: floats(c.TokenR), SpanRewards: floats(c.SpanR)}
}

// check compares what a scheme made, or its error: an array and an index.
func (c *schemeCase) check(t *testing.T, got []float32, want []number, floor float64, err error) {
	t.Helper()
	if c.Error != "" {
		var input *reweight.InputError
		if !errors.As(err, &input) || fmt.Sprintf("%s[%d]", input.Arg, input.Index) != c.Error {
			t.Errorf("%s: error %v, want one about %s", c.Name, err, c.Error)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", c.Name, err)
		return
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", c.Name, len(got), len(want))
	}
	for i, g := range got {
		if w := float64(want[i]); !(math.Abs(float64(g)-w) <= max(floor, 1e-5*math.Abs(w))) {
			t.Errorf("%s: element %d is %v, want %v", c.Name, i, g, w)
		}
	}
}

func TestGoldenEMPG(t *testing.T) {
	var cases []struct {
		schemeCase
		Options struct{ K, KF, Zeta float64 }
		Out     []number `json:"advantages_out"`
	}
	golden.Read(t, "empg.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := c.batch()
		out := make([]float32, len(c.Role))
		err := ws.EMPG(out, &b, reweight.EMPGOptions{K: c.Options.K, KFuture: c.Options.KF, Zeta: c.Options.Zeta})
		// The last line is a difference of numbers near 1.
		c.check(t, out, c.Out, 1e-12, err)
	}
}

func TestGoldenGTPO(t *testing.T) {
	var cases []struct {
		schemeCase
		Options struct {
			A1, A2, Threshold, Lo float64
			Hi                    number
			Norm                  string
			SeqNorm               string `json:"seq_norm"`
			Scope                 reweight.Scope
		}
		Shaped        []number
		SeqShaped     []number `json:"seq_shaped"`
		SeqAdvantages []number `json:"seq_advantages"`
	}
	golden.Read(t, "gtpo.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		o := c.Options
		opt := reweight.ShapingOptions{Base: o.A1, Bonus: o.A2, Threshold: o.Threshold, EntropyLow: o.Lo, EntropyHigh: float64(o.Hi), Scope: o.Scope}
		run := func(f func([]float32, *reweight.Batch, reweight.ShapingOptions) error, norm string, want []number) {
			t.Helper()
			if err := opt.Normalization.UnmarshalText([]byte(norm)); err != nil {
				t.Fatal(err)
			}
			b := c.batch()
			out := make([]float32, len(c.Role))
			err := f(out, &b, opt)
			// An advantage is a difference that may cancel, over at least 1e-4.
			c.check(t, out, want, 1e-10, err)
		}
		perTrajectory := func(x []number) []number {
			out := make([]number, len(c.Role))
			for q, v := range x {
				for i := c.SeqOffsets[q]; i < c.SeqOffsets[q+1]; i++ {
					if c.Role[i] != 0 {
						out[i] = v
					}
				}
			}
			return out
		}
		run(ws.GTPO, o.Norm, c.Advantages)
		run(ws.GTPO, "none", c.Shaped)
		run(ws.GRPOS, o.SeqNorm, perTrajectory(c.SeqAdvantages))
		run(ws.GRPOS, "none", perTrajectory(c.SeqShaped))
	}
}

func TestGoldenEntropyMask(t *testing.T) {
	var cases []struct {
		schemeCase
		Options   reweight.EntropyMaskOptions
		Mask      []number
		Threshold *float64
	}
	golden.Read(t, "entropy_mask.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := c.batch()
		out := make([]float32, len(c.Role))
		threshold, err := ws.EntropyMask(out, &b, c.Options)
		c.check(t, out, c.Mask, 0, err)
		if c.Threshold != nil && threshold != *c.Threshold || c.Threshold == nil && threshold != 0 {
			t.Errorf("%s: threshold %v, want %v", c.Name, threshold, c.Threshold)
		}
	}
}

func TestGoldenGiGPO(t *testing.T) {
	var cases []struct {
		schemeCase
		Options struct {
			Gamma, Omega float64
			Std          bool
			PerStep      bool `json:"per_step"`
		}
	}
	golden.Read(t, "gigpo.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := c.batch()
		out := make([]float32, len(c.Role))
		err := ws.GiGPO(out, &b, reweight.GiGPOOptions{Gamma: c.Options.Gamma, Omega: c.Options.Omega, DivideByStd: c.Options.Std, PerStep: c.Options.PerStep})
		// E and B may cancel.
		c.check(t, out, c.Advantages, 1e-12, err)
	}
}

func TestGoldenBaselines(t *testing.T) {
	var cases []struct {
		schemeCase
		Options struct {
			Gamma, Penalty  float64
			Maximum, Buffer int
		}
		RLOO, Keep, Returns, Penalty []number
		Baseline                     []number `json:"baseline_advantages"`
	}
	golden.Read(t, "baselines.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		discount := reweight.ReinforcePlusPlusOptions{Gamma: c.Options.Gamma}
		if c.Role == nil { // one action token each
			n := len(c.Rewards)
			c.Role, c.SeqOffsets = slices.Repeat(roles{reweight.RoleAction}, n), make([]int64, n+1)
			for q := range n {
				c.SeqOffsets[q+1] = int64(q + 1)
			}
		}
		b := c.batch()
		T := len(c.Role)
		out, returns := make([]float32, T), make([]float32, T)
		switch {
		case c.Name == "overlong":
			out = make([]float32, len(c.Penalty))
			err := ws.OverlongPenalty(out, &b, reweight.OverlongOptions{Maximum: c.Options.Maximum, Buffer: c.Options.Buffer, Penalty: c.Options.Penalty})
			c.check(t, out, c.Penalty, 0, err)
		case !strings.HasPrefix(c.Name, "reinforce++"):
			err := ws.RLOO(out, &b)
			c.check(t, out, c.RLOO, 0, err)
			err = ws.GroupFilter(out, &b)
			c.check(t, out, c.Keep, 0, err)
		case c.Error != "":
			var input *reweight.InputError
			for _, err := range []error{ws.ReinforcePlusPlus(out, returns, &b, discount), ws.ReinforcePlusPlusBaseline(out, &b)} {
				if !errors.As(err, &input) || input.Arg != "Role" {
					t.Errorf("%s: error %v, want %s", c.Name, err, c.Error)
				}
			}
		default:
			err := ws.ReinforcePlusPlus(out, returns, &b, discount)
			// The sums and the whitened sums are differences of rewards.
			c.check(t, out, c.Advantages, 1e-12, err)
			c.check(t, returns, c.Returns, 1e-12, err)
			err = ws.ReinforcePlusPlusBaseline(out, &b)
			c.check(t, out, c.Baseline, 1e-12, err)
		}
	}
}

func TestGoldenRolloutCorrection(t *testing.T) {
	var cases []struct {
		schemeCase
		Options struct {
			Level     reweight.CorrectionLevel
			Mode      string
			Lo, Hi    float64
			BatchNorm bool `json:"batch_norm"`
			Stat      *reweight.RejectionStatistic
			Delta     float64
		}
		Factors, Keep []number
		KeepFactors   []number `json:"keep_factors"`
	}
	golden.Read(t, "rollout_correction.json", &cases)
	var ws reweight.Workspace
	for _, c := range cases {
		b := c.batch()
		o := c.Options
		out := make([]float32, len(c.Role))
		switch {
		case o.Stat != nil:
			err := ws.Reject(out, &b, reweight.RejectionOptions{Statistic: *o.Stat, Low: o.Lo, High: o.Hi})
			c.check(t, out, c.Keep, 0, err)
		case o.Mode != "":
			err := ws.RolloutCorrection(out, &b, reweight.CorrectionOptions{Level: o.Level, Mask: o.Mode == "mask", Low: o.Lo, High: o.Hi, Normalize: o.BatchNorm})
			c.check(t, out, c.Factors, 0, err)
		default:
			err := ws.OffPolicyMask(out, &b, o.Delta)
			c.check(t, out, c.KeepFactors, 0, err)
		}
	}
}
