package reference

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed621a2839/reweight/testdata"
	"github.com/seed621a2839/reweight/testdata/golden"
)

// arrays is a safetensors file: eight bytes of header length, a JSON header
// that gives each array its type and place, and the arrays.
type arrays struct {
	header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	data []byte
}

func parseArrays(t *testing.T, file []byte) arrays {
	t.Helper()
	n := 8 + int(binary.LittleEndian.Uint64(file))
	a := arrays{data: file[n:]}
	header := map[string]json.RawMessage{}
	if err := json.Unmarshal(file[8:n], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	b, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &a.header); err != nil {
		t.Fatal(err)
	}
	return a
}

// read returns the array of that name, whose elements are E.
func read[E any](t *testing.T, a arrays, name, dtype string) []E {
	t.Helper()
	h, ok := a.header[name]
	if !ok || h.DType != dtype {
		t.Fatalf("array %q: type %q, want %q", name, h.DType, dtype)
	}
	raw := a.data[h.Offsets[0]:h.Offsets[1]]
	var e E
	x := make([]E, len(raw)/binary.Size(e))
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// floats returns an F32 array as float64.
func (a arrays) floats(t *testing.T, name string) []float64 {
	t.Helper()
	narrow := read[float32](t, a, name, "F32")
	wide := make([]float64, len(narrow))
	for i, v := range narrow {
		wide[i] = float64(v)
	}
	return wide
}

// logits returns a BF16 array as float64.
func (a arrays) logits(t *testing.T, name string) []float64 {
	t.Helper()
	narrow := read[uint16](t, a, name, "BF16")
	wide := make([]float64, len(narrow))
	for i, v := range narrow {
		wide[i] = float64(math.Float32frombits(uint32(v) << 16))
	}
	return wide
}

func frozenLake(t *testing.T) arrays {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "testdata", "frozenlake.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return parseArrays(t, file)
}

type stepAnswer struct {
	Loss         float64
	GradL1       float64 `json:"grad_l1"`
	GradL2       float64 `json:"grad_l2"`
	ClipFraction float64 `json:"clip_fraction"`
	WeightSum    float64 `json:"weight_sum"`
	ActionShare  float64 `json:"action_weight_share"`
}

type stepGolden struct {
	Uniform     stepAnswer
	ActFocus    stepAnswer
	AEM         stepAnswer
	ActFocusAEM stepAnswer `json:"actfocus+aem"`
	Tokens      struct{ Total, Reasoning, Action, Spans, Trajectories, Groups int }
	Spearman    struct{ All, Reasoning, Action float64 } `json:"bottleneck_spearman"`
	DriftMean   float64                                  `json:"entropy_drift_mean"`
	AEMSpan     struct {
		Min, Max, Mean float64
		First          []float64
	} `json:"aem_span"`
	WeightsFirst []float64 `json:"weights_first"`
}

// TestGoldenStep does the whole job of a training step on real rollouts.
func TestGoldenStep(t *testing.T) {
	t.Run("frozenlake-small", func(t *testing.T) {
		testGoldenStep(t, parseArrays(t, testdata.FrozenLakeSmall), "step-frozenlake-small.json")
	})
	t.Run("frozenlake", func(t *testing.T) {
		testGoldenStep(t, frozenLake(t), "step-frozenlake.json")
	})
}

func testGoldenStep(t *testing.T, a arrays, file string) {
	var want stepGolden
	golden.Read(t, file, &want)
	c := compare(t)
	role := read[Role](t, a, "role", "U8")
	spanIDs := read[int32](t, a, "span_ids", "I32")
	offsets := read[int64](t, a, "seq_offsets", "I64")
	groupIDs := read[int32](t, a, "group_ids", "I32")
	rewards := a.floats(t, "rewards")
	energy := a.floats(t, "ref_energy")
	entropy := a.floats(t, "entropy")
	logprobs := a.floats(t, "logprobs")
	oldLogprobs := a.floats(t, "old_logprobs")

	count := map[Role]int{}
	for _, r := range role {
		count[r]++
	}
	distinct, _ := members(groupIDs)
	c.numbers("tokens", []float64{
		float64(len(role)), float64(count[RoleReasoning]), float64(count[RoleAction]),
		float64(spanCount(spanIDs)), float64(len(offsets) - 1), float64(len(distinct)),
	}, []float64{
		float64(want.Tokens.Total), float64(want.Tokens.Reasoning), float64(want.Tokens.Action),
		float64(want.Tokens.Spans), float64(want.Tokens.Trajectories), float64(want.Tokens.Groups),
	})

	grpo := must[[]float64](t)(GRPO(rewards, groupIDs, true))
	advantages := must[[]float64](t)(TokenAdvantages(role, offsets, grpo))
	_, spanFactors, factors, err := AEM(role, spanIDs, offsets, groupIDs, entropy, 1, 0.1, ScopeGroup)
	if err != nil {
		t.Fatal(err)
	}
	scaled := must[[]float64](t)(ScaleAdvantages(advantages, factors))
	uniform := UniformWeights(role)
	actfocus := must[[]float64](t)(ActFocusWeights(role, energy, 0.1, 0.5, 1e-8))

	for _, step := range []struct {
		name                string
		advantages, weights []float64
		want                stepAnswer
	}{
		{"uniform", advantages, uniform, want.Uniform},
		{"actfocus", advantages, actfocus, want.ActFocus},
		{"aem", scaled, uniform, want.AEM},
		{"actfocus+aem", scaled, actfocus, want.ActFocusAEM},
	} {
		loss := must[LossResult](t)(Loss(role, offsets, logprobs, oldLogprobs, step.advantages, step.weights, DefaultLoss))
		l1, l2 := 0.0, 0.0
		for _, g := range loss.Gradient {
			l1 += math.Abs(g)
			l2 += g * g
		}
		sum, share, err := WeightMass(role, step.weights)
		if err != nil {
			t.Fatal(err)
		}
		c.number(step.name+": loss", loss.Loss, step.want.Loss)
		c.number(step.name+": grad l1", l1, step.want.GradL1)
		c.number(step.name+": grad l2", math.Sqrt(l2), step.want.GradL2)
		c.number(step.name+": clip fraction", loss.ClipFraction, step.want.ClipFraction)
		c.number(step.name+": weight sum", sum, step.want.WeightSum)
		c.number(step.name+": action share", share, step.want.ActionShare)
	}

	b := must[BottleneckResult](t)(Bottleneck(role, offsets, groupIDs, rewards, energy))
	c.number("spearman, all", b.All.Rho, want.Spearman.All)
	c.number("spearman, reasoning", b.Reasoning.Rho, want.Spearman.Reasoning)
	c.number("spearman, action", b.Action.Rho, want.Spearman.Action)
	c.number("mean entropy drift", mean(must[[]float64](t)(EntropyDrift(role, spanIDs, advantages, oldLogprobs, entropy))), want.DriftMean)

	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range spanFactors {
		lo, hi = min(lo, v), max(hi, v)
	}
	c.numbers("aem min, max, mean", []float64{lo, hi, mean(spanFactors)}, []float64{want.AEMSpan.Min, want.AEMSpan.Max, want.AEMSpan.Mean})
	c.numbers("aem first", spanFactors[:len(want.AEMSpan.First)], want.AEMSpan.First)
	c.numbers("weights first", actfocus[:len(want.WeightsFirst)], want.WeightsFirst)
}

// TestRealLogits derives the stored arrays from the stored logits: they were
// computed in float64 and rounded to float32.
func TestRealLogits(t *testing.T) {
	a := frozenLake(t)
	ids := read[int32](t, a, "token_ids", "I32")
	vocab := 75
	refLSE, _, refLogprobs, err := TokenStats(a.logits(t, "ref_logits"), vocab, ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, entropy, oldLogprobs, err := TokenStats(a.logits(t, "old_logits"), vocab, ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range a.floats(t, "ref_energy") {
		if err := rounded(-refLSE[i], want); err != nil {
			t.Fatalf("ref_energy[%d]: %v", i, err)
		}
	}
	for name, got := range map[string][]float64{"entropy": entropy, "old_logprobs": oldLogprobs, "ref_logprobs": refLogprobs} {
		for i, want := range a.floats(t, name) {
			if err := rounded(got[i], want); err != nil {
				t.Fatalf("%s[%d]: %v", name, i, err)
			}
		}
	}
}

// rounded wants got to be want, which has been rounded to float32.
func rounded(got, want float64) error {
	if !(math.Abs(got-want) <= 0x1p-24*math.Abs(want)+1e-14) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
