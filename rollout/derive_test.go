package rollout

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// The sample's arrays were computed in float64 from the logits beside them.
func TestDeriveSample(t *testing.T) {
	f := must.Get(OpenFile("../testdata/large/frozenlake.safetensors"))
	defer f.Close()
	want := must.Get(f.Batch())
	got := *want
	got.RefEnergy, got.RefLogprobs, got.Entropy, got.OldLogprobs, got.Logprobs = nil, nil, nil, nil, nil
	got.Logits = want.OldLogits // the sample has none of the current policy
	var ws reweight.Workspace
	must.Do(Derive(&ws, &got, derivable...))
	for _, a := range []struct {
		name      string
		got, want []float32
	}{
		{"ref_energy", got.RefEnergy, want.RefEnergy},
		{"ref_logprobs", got.RefLogprobs, want.RefLogprobs},
		{"entropy", got.Entropy, want.Entropy},
		{"old_logprobs", got.OldLogprobs, want.OldLogprobs},
		{"logprobs", got.Logprobs, want.OldLogprobs},
	} {
		if len(a.got) != len(a.want) {
			t.Errorf("%s has %d elements, want %d", a.name, len(a.got), len(a.want))
			continue
		}
		for i := range a.got {
			if d := math.Abs(float64(a.got[i]) - float64(a.want[i])); !(d <= 3e-6) {
				t.Errorf("%s[%d] = %v, want %v", a.name, i, a.got[i], a.want[i])
				break
			}
		}
	}
}

// derivable are the names of all arrays that can follow from logits.
var derivable = []string{"ref_energy", "ref_logprobs", "ref_entropy", "entropy", "old_logprobs", "logprobs"}

func TestDeriveKeepsWhatIsThere(t *testing.T) {
	b := batchOf(t, encoded(t, goodTensors(), nil))
	want := *b
	var ws reweight.Workspace
	must.Do(Derive(&ws, b, derivable...))
	if !reflect.DeepEqual(*b, want) {
		t.Errorf("%+v, want %+v", *b, want)
	}
}

func TestDeriveWithoutTokenIDs(t *testing.T) {
	b := batchOf(t, encoded(t, without("token_ids", "ref_energy", "entropy", "ref_logprobs", "old_logprobs",
		"logprobs"), nil))
	var ws reweight.Workspace
	must.Do(Derive(&ws, b, derivable...))
	// Uniform rows of 3 and 2 logits.
	if e, h := float32(-math.Log(3)), float32(math.Log(2)); b.RefEnergy[6] != e || b.Entropy[6] != h {
		t.Errorf("energy %v, entropy %v, want %v, %v", b.RefEnergy[6], b.Entropy[6], e, h)
	}
	if b.RefLogprobs != nil || b.OldLogprobs != nil || b.Logprobs != nil {
		t.Error("log-probabilities of unknown tokens")
	}
	if err := Require(b, "ref_energy", "entropy"); err != nil {
		t.Error(err)
	}
}

func TestDeriveError(t *testing.T) {
	b := batchOf(t, encoded(t, without("ref_energy", "old_logprobs"), nil))
	b.TokenIDs[3] = 2 // beyond old_logits, within ref_logits
	before := *b
	var ws reweight.Workspace
	err := Derive(&ws, b, derivable...)
	const want = `deriving from "old_logits": reweight: TokenIDs[3] is 2, want 0 to 1, for rows of 2 logits`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if !reflect.DeepEqual(*b, before) {
		t.Error("the batch changed")
	}
}

// TestDeriveIsBounded: a batch that needs more memory than Derive may take is an
// error before it takes any.
func TestDeriveIsBounded(t *testing.T) {
	rows := maxCopied/4/2 + 1 // two arrays are too many
	b := &reweight.Batch{RefLogits: reweight.Logits{Vocab: 1, BF16: make([]reweight.BF16, rows)}}
	var ws reweight.Workspace
	err := Derive(&ws, b, "ref_energy", "ref_entropy")
	if err == nil || !strings.Contains(err.Error(), `"ref_entropy"`) || b.RefEnergy != nil {
		t.Errorf("error %v", err)
	}
}
