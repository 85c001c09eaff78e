package diagnose

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata/golden"
)

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if input, ok := errors.AsType[*reweight.InputError](err); !ok || err.Error() != "reweight: "+want {
		t.Errorf("error %v (%T), want reweight: %s", err, err, want)
	} else if !strings.HasPrefix(want, input.Arg) {
		t.Errorf("argument %q of %q", input.Arg, want)
	}
}

// TestGolden compares what NumPy computed from rollouts of a trained policy.
func TestGolden(t *testing.T) {
	for _, name := range []string{"frozenlake-small", "large/frozenlake"} {
		file := must.Get(rollout.Open("../testdata/" + name + ".safetensors"))
		defer file.Close()
		b := must.Get(file.Batch())
		var want struct {
			Bottleneck struct{ All, Reasoning, Action golden.Number } `json:"bottleneck_spearman"`
			Drift      golden.Number                                  `json:"entropy_drift_mean"`
			Uniform    struct {
				ActionShare golden.Number `json:"action_weight_share"`
			}
		}
		golden.Read(t, "step-"+path.Base(name)+".json", &want)
		got := must.Get(Bottleneck(b))
		near(t, name+": all tokens", got.All.Rho, float64(want.Bottleneck.All), 1e-10)
		near(t, name+": reasoning", got.Reasoning.Rho, float64(want.Bottleneck.Reasoning), 1e-10)
		near(t, name+": action", got.Action.Rho, float64(want.Bottleneck.Action), 1e-10)

		share := must.Get(WeightMass(nil, b.Role))
		near(t, name+": action tokens' weight", share, float64(want.Uniform.ActionShare), 1e-10)

		var ws reweight.Workspace
		b.Advantages = make([]float32, b.Tokens())
		must.Do(ws.GRPO(b.Advantages, b, reweight.DefaultGRPO))
		near(t, name+": entropy drift", must.Get(EntropyDrift(b)), float64(want.Drift), 1e-7)
	}
}

func TestWeightMass(t *testing.T) {
	role := []reweight.Role{0, 1, 2, 2}
	for _, c := range []struct {
		weights []float32
		want    float64
	}{
		{nil, 2.0 / 3},
		{[]float32{9, 1, 0.5, 2.5}, 0.75},
		{[]float32{9, -1, 0.5, 0.5}, 0}, // the sum is 0
		{make([]float32, 4), 0},
	} {
		if got := must.Get(WeightMass(c.weights, role)); got != c.want {
			t.Errorf("weights %v: %v, want %v", c.weights, got, c.want)
		}
	}
	if got := must.Get(WeightMass(nil, nil)); got != 0 {
		t.Errorf("no tokens: %v", got)
	}
	_, err := WeightMass(make([]float32, 3), role)
	wantError(t, err, "weights has 3 elements, want 4, one per token")
	_, err = WeightMass(nil, []reweight.Role{0, 1, 2, 3})
	wantError(t, err, "role[3] is 3, want 0, 1 or 2")
}

// drifting makes a batch of a trajectory with two spans.
func drifting() *reweight.Batch {
	return &reweight.Batch{Role: []reweight.Role{0, 1, 2, 0, 2}, SeqOffsets: []int64{0, 5},
		SpanIDs:    []int32{-1, 0, 0, 0, 1},
		Advantages: []float32{9, 1, 3, 9, -2}, OldLogprobs: []float32{9, -2, -3, 9, -1},
		Entropy: []float32{9, 1, 0.5, 9, 4}}
}

func TestEntropyDrift(t *testing.T) {
	// The first span has the advantage 2 and 5 - 1.5 nats, the second -2 and 1 - 4.
	if got, want := must.Get(EntropyDrift(drifting())), (2*3.5+2*3)/2; got != want {
		t.Errorf("drift %v, want %v", got, want)
	}
	b := drifting()
	clear(b.Role)
	for i := range b.SpanIDs {
		b.SpanIDs[i] = -1
	}
	if got := must.Get(EntropyDrift(b)); got != 0 {
		t.Errorf("without spans: %v, want 0", got)
	}
}

func TestEntropyDriftErrors(t *testing.T) {
	for want, change := range map[string]func(b *reweight.Batch){
		"SpanIDs has 0 elements, want 5, one per token":                                              func(b *reweight.Batch) { b.SpanIDs = nil },
		"SpanIDs has no response token in span 1, want at least one in each":                         func(b *reweight.Batch) { b.Role[4] = 0 },
		"SpanIDs[4] is 2, want -1 to 1: spans are numbered from 0 in the order in which they appear": func(b *reweight.Batch) { b.SpanIDs[4] = 2 },
		"OldLogprobs has 0 elements, want 5, one per token":                                          func(b *reweight.Batch) { b.OldLogprobs = nil },
		"OldLogprobs has 4 elements, want 5, one per token":                                          func(b *reweight.Batch) { b.OldLogprobs = b.OldLogprobs[1:] },
		"Entropy has 0 elements, want 5, one per token":                                              func(b *reweight.Batch) { b.Entropy = nil },
		"Advantages has 6 elements, want 5, one per token":                                           func(b *reweight.Batch) { b.Advantages = make([]float32, 6) },
		"SeqOffsets has 0 elements, want at least 2, for one trajectory":                             func(b *reweight.Batch) { b.SeqOffsets = nil },
	} {
		b := drifting()
		change(b)
		_, err := EntropyDrift(b)
		wantError(t, err, want)
	}
}
