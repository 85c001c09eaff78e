package reweight_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestArrays: the table has every field of Batch, in its order, with a pointer
// to that field.
func TestArrays(t *testing.T) {
	var b reweight.Batch
	arrays := b.Arrays()
	v := reflect.ValueOf(&b).Elem()
	if v.NumField() != len(arrays) {
		t.Fatalf("%d arrays, Batch has %d fields", len(arrays), v.NumField())
	}
	walk := func() {
		for _, a := range b.Arrays() {
			if a.Len() != 0 {
				t.Errorf("%s has %d elements", a.Field, a.Len())
			}
		}
	}
	if allocs := testing.AllocsPerRun(10, walk); allocs != 0 {
		t.Errorf("a walk makes %v allocations", allocs)
	}
	names := map[string]bool{}
	for i, a := range arrays {
		if want := v.Type().Field(i).Name; a.Field != want {
			t.Errorf("array %d is %s, want %s", i, a.Field, want)
		}
		if a.Data != v.Field(i).Addr().Interface() {
			t.Errorf("%s: Data is %T, and not a pointer to the field", a.Field, a.Data)
		}
		if names[a.Name] {
			t.Errorf("%s: name %q is taken", a.Field, a.Name)
		}
		names[a.Name] = true
		if (a.From == "") != (a.Statistic == reweight.NotDerived) {
			t.Errorf("%s: from %q, but statistic %d", a.Field, a.From, a.Statistic)
		}
	}
	for _, a := range arrays {
		if a.From != "" && !names[a.From] {
			t.Errorf("%s is derived from %q, which there is not", a.Field, a.From)
		}
	}
}

// validBatch has every array set.
func validBatch() reweight.Batch {
	return reweight.Batch{
		Role: []reweight.Role{0, 1, 2, 1}, SeqOffsets: []int64{0, 3, 4}, GroupIDs: []int32{7, 7},
		Rewards: []float32{0, 1},
		SpanIDs: []int32{-1, 0, 0, 1}, TokenIDs: []int32{0, 1, 2, 2},
		RefEnergy: make([]float32, 4), Entropy: make([]float32, 4), OldLogprobs: make([]float32, 4),
		Logprobs:    make([]float32, 4),
		RefLogprobs: make([]float32, 4), RefEntropy: make([]float32, 4), Advantages: make([]float32, 4),
		Values:          make([]float32, 4),
		RolloutLogprobs: make([]float32, 4), TokenRewards: make([]float32, 4), Returns: make([]float32, 4),
		NewValues:       make([]float32, 4),
		TeacherLogprobs: make([]float32, 4), SumSqProbs: make([]float32, 4), EntropyDrop: make([]float32, 4),
		RewardParts: make([]float32, 6),
		Anchors:     []int32{3, 3}, SpanRewards: make([]float32, 2),
		ActFocusWeights: make([]float32, 4), AEMFactors: make([]float32, 4),
		RefLogits: reweight.Logits{Vocab: 3, F32: make([]float32, 12)},
		OldLogits: reweight.Logits{Vocab: 3, BF16: make([]reweight.BF16, 12)},
		Logits:    reweight.Logits{Vocab: 3, F16: make([]reweight.F16, 12)},
	}
}

// TestValidate: each array that does not fit the layout is named, and an array
// that is absent is none that is wrong.
func TestValidate(t *testing.T) {
	good := validBatch()
	must.Do(good.Validate())
	for i, a := range good.Arrays() {
		b := validBatch()
		data := reflect.ValueOf(b.Arrays()[i].Data).Elem()
		if logits, ok := data.Addr().Interface().(*reweight.Logits); ok {
			*logits = reweight.Logits{Vocab: 3, F32: make([]float32, 9)}
		} else if a.Per == reweight.PerPart {
			data.SetLen(5) // of 2 trajectories
		} else {
			data.Set(reflect.AppendSlice(data, data)) // twice as long as it should be
		}
		var input *reweight.InputError
		want := a.Field
		if want == "Role" { // the number of tokens follows from it
			want = "SeqOffsets"
		}
		if err := b.Validate(); !errors.As(err, &input) || input.Arg != want {
			t.Errorf("%s of a wrong length: error %v, want one about %s", a.Field, err, want)
		}
		data.SetZero()
		want = a.Field
		if want == "SpanIDs" { // which number the elements of others
			want = "Anchors"
		}
		switch err := b.Validate(); {
		case a.Field == "Role" || a.Field == "SeqOffsets" || a.Field == "SpanIDs":
			if !errors.As(err, &input) || input.Arg != want {
				t.Errorf("no %s: error %v", a.Field, err)
			}
		case err != nil:
			t.Errorf("no %s: error %v", a.Field, err)
		}
	}
	if n := testing.AllocsPerRun(10, func() { good.Validate() }); n != 0 {
		t.Errorf("Validate allocates %v times", n)
	}
}

// TestNames: what a name is parsed to prints as the name.
func TestNames(t *testing.T) {
	type named interface {
		MarshalText() ([]byte, error)
		UnmarshalText([]byte) error
	}
	for _, c := range []struct {
		value named
		names []string
	}{
		{new(reweight.Signal), []string{"energy", "ref_entropy", "surprisal", "log_ratio"}},
		{new(reweight.Scope), []string{"group", "trajectory", "batch"}},
		{new(reweight.Aggregation), []string{"token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"}},
		{new(reweight.DType), []string{"f32", "bf16", "f16"}},
		{new(reweight.Normalization), []string{"separate", "joint", "none"}},
		{new(reweight.KLForm), []string{"k3", "k2", "k1", "abs", "k3+", "k1+", "abs+"}},
		{new(reweight.CorrectionLevel), []string{"token", "sequence", "geometric"}},
		{new(reweight.RejectionStatistic),
			[]string{"token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3",
				"seq_mean_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3"}},
	} {
		for i, name := range c.names {
			if err := c.value.UnmarshalText([]byte(strings.ReplaceAll(name, "_", "-"))); err != nil {
				t.Errorf("%T %q with hyphens, as verl has it: %v", c.value, name, err)
			}
			err := c.value.UnmarshalText([]byte(name))
			got, _ := c.value.MarshalText()
			if err != nil || string(got) != name || reflect.ValueOf(c.value).Elem().Uint() != uint64(i) {
				t.Errorf("%T %q: %q, %v", c.value, name, got, err)
			}
		}
		var input *reweight.InputError
		if err := c.value.UnmarshalText([]byte("no such name")); !errors.As(err, &input) {
			t.Errorf("%T: error %v", c.value, err)
		}
	}
}
