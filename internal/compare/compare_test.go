package compare

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/scheme"
)

// four is a batch of two trajectories of two response tokens each, at equal policies. The
// advantages of GRPO are +-1/sqrt(2).
func four() *reweight.Batch {
	return &reweight.Batch{
		Role:       []reweight.Role{1, 2, 0, 1, 1},
		SeqOffsets: []int64{0, 2, 5}, GroupIDs: []int32{0, 0}, Rewards: []float32{1, 0},
		SpanIDs: []int32{0, 0, -1, 1, 1}, Anchors: []int32{0, 0}, SpanRewards: []float32{1, 0},
		Entropy: []float32{1, 2, 0, 3, 5}, OldLogprobs: []float32{-1, -1, 0, -2, -1},
		Logprobs: []float32{-1, -1, 0, -2, -1},
	}
}

func compare(t *testing.T, b *reweight.Batch, list string) (*Comparison, error) {
	t.Helper()
	picked := must.Get(ParseSchemes(list))
	return Schemes(b, picked, scheme.MustParse("uniform"), Options{LeaveOut: list == "all"})
}

// TestFigures: by hand. Each token has a credit of A/4 under uniform. The mask keeps the
// token of the highest entropy, with all of the weight.
func TestFigures(t *testing.T) {
	c := must.Get(compare(t, four(), "uniform,entropy_mask"))
	a := math.Sqrt(0.5)
	for i, got := range c.Schemes {
		for _, f := range [...]struct {
			what      string
			got, want float64
		}{
			{"gradient", float64(got.GradL2), []float64{a / 2, a}[i]},
			{"of action", float64(got.GradL2Action), []float64{a / 4, 0}[i]},
			{"of reasoning", float64(got.GradL2Reasoning), []float64{a / 4 * math.Sqrt(3), a}[i]},
			{"loss", float64(got.Loss), []float64{0, a}[i]},
			{"share", float64(got.ActionShare), []float64{0.25, 0}[i]},
			{"effective tokens", float64(got.EffectiveTokens), []float64{4, 1}[i]},
			// The surprisal less the entropy is 2-3 and 3-8.
			{"drift", float64(got.Drift), (a*(2-3) - a*(3-8)) / 2},
			// Ranks 3.5 3.5 1.5 1.5 against themselves, and against 3 3 3 1.
			{"rank correlation", float64(got.Spearman), []float64{1, math.Sqrt(1.0 / 3)}[i]},
		} {
			if !(math.Abs(f.got-f.want) <= 1e-5) {
				t.Errorf("%s: %s %v, want %v", got.Scheme, f.what, f.got, f.want)
			}
		}
	}
	if credit := c.Rollout.Credit[0].Credit; len(credit) != 2 || !(math.Abs(credit[0]-a/4) <= 1e-6) {
		t.Errorf("credit %v, want %v, above 0 where the advantage is", credit, a/4)
	}
}

// TestNotes: each column is explained, and what holds for some schemes is said of those
// that are in the table.
func TestNotes(t *testing.T) {
	for list, lines := range map[string][]string{
		"uniform,gspo":            nil,
		"dr_grpo,luspo,sapo,gspo": {"Losses without a clip, so that clipped is 0: sapo.", "Losses that sum over tokens, so that their gradients do not compare with the others: dr_grpo, luspo."},
		"rloo+cispo,pg,dppo_tv,vespo": {
			"Losses without a clip, so that clipped is 0: pg, vespo.", "Losses whose value means nothing, only their gradient does: rloo+cispo, pg, dppo_tv, vespo.",
		},
	} {
		c := must.Get(compare(t, four(), list))
		var these []string
		for _, note := range c.Notes() {
			if strings.HasPrefix(note, "Losses ") {
				these = append(these, note)
			}
		}
		if !slices.Equal(these, lines) {
			t.Errorf("%s: %q, want %q", list, these, lines)
		}
		for _, want := range []string{"Clipped is ", "Action tokens' credit is ", "over actions and over reasoning",
			"in nats, and above 0 where the entropy rises", "uses your flags"} {
			if !strings.Contains(strings.Join(c.Notes(), "\n"), want) {
				t.Errorf("%s: no %q", list, want)
			}
		}
	}
}

// TestIdle: where neither the penalty nor the filter of dapo makes a difference, a note
// says so.
func TestIdle(t *testing.T) {
	const note = "dapo is uniform here: its penalty and its filter change the credit of no token."
	equal, long := four(), four()
	equal.GroupIDs, equal.Rewards = []int32{0, 0, 1, 1}, []float32{1, 0, 1, 1}
	equal.Role = append(equal.Role, 1, 1)
	equal.SeqOffsets = []int64{0, 2, 5, 6, 7}
	n := 16385 - 2
	long.Role = slices.Concat(long.Role, slices.Repeat([]reweight.Role{1}, n))
	long.SeqOffsets[2] += int64(n)
	// The deviation of a group of two divides a penalty away.
	for _, b := range []*reweight.Batch{equal, long} {
		b.SpanIDs, b.Entropy = nil, nil
		zeros := make([]float32, b.Tokens())
		b.OldLogprobs, b.Logprobs = zeros, zeros
	}
	for _, c := range []struct {
		b    *reweight.Batch
		list string
		want bool
	}{{four(), "dapo", true}, {four(), "uniform,gspo", false}, {equal, "dapo", false}, {long, "dapo", true}} {
		got := must.Get(compare(t, c.b, c.list))
		if slices.Contains(got.Notes(), note) != c.want {
			t.Errorf("%s of %d tokens: %q", c.list, c.b.Tokens(), got.Notes())
		}
	}
}

// TestLeftOut: what is missing is said in a line of all schemes, and is an error for one.
func TestLeftOut(t *testing.T) {
	b := four()
	b.Anchors, b.SpanRewards, b.Entropy = nil, nil, nil
	c, err := compare(t, b, "all")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, l := range c.LeftOut {
		reasons[l.Scheme] = l.Reason
	}
	for scheme, want := range map[string]string{
		"gigpo": "needs anchors and span_rewards", "aem": "needs entropy", "actfocus": "needs ref_energy", "tis": "needs rollout_logprobs",
		"off_policy_mask": "needs -delta, which has no default",
	} {
		if reasons[scheme] != want {
			t.Errorf("%s: %q, want %q", scheme, reasons[scheme], want)
		}
	}
	if len(c.Schemes)+len(c.LeftOut) != len(scheme.All()) || !math.IsNaN(float64(c.Schemes[0].Drift)) {
		t.Errorf("%d schemes and %d left out, drift %v", len(c.Schemes), len(c.LeftOut), c.Schemes[0].Drift)
	}
	if _, err := compare(t, b, "uniform,gigpo"); err == nil || err.Error() != "gigpo needs anchors and span_rewards" {
		t.Error(err)
	}
	// A value that is wrong is as bad.
	b = four()
	b.SpanRewards[1] = float32(math.NaN())
	if c, err = compare(t, b, "all"); err != nil ||
		!strings.Contains(strings.Join(c.Notes(), "\n"), "\nLeft out: gigpo, turn_returns, mt_grpo: span_rewards[1]") {
		t.Errorf("%v, %v", err, c.Notes())
	}
	if _, err := compare(t, b, "gigpo"); err == nil || !strings.Contains(err.Error(), "SpanRewards[1] is NaN") {
		t.Error(err)
	}
	b.Rewards = nil
	if _, err := compare(t, b, "cispo"); err == nil || err.Error() != "uniform needs rewards or advantages" {
		t.Error(err)
	}
}

// TestNoCredit: where nothing is to be learned, shares are undefined.
func TestNoCredit(t *testing.T) {
	b := four()
	b.Rewards[0] = 0
	c := must.Get(compare(t, b, "uniform"))
	if row := strings.Join(c.Rows()[0],
		" "); row != "uniform 0.000000 0.000000 0.000000 0.000000 0.0% - - +0.000000 -" || len(c.Warnings) != 1 {
		t.Errorf("%s, %v", row, c.Warnings)
	}
}
