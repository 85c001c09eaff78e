package show

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
)

// TestPicture: the picture of the README has the tokens and the weights that the library
// computes.
func TestPicture(t *testing.T) {
	picture := string(must.Get(os.ReadFile("../../../../docs/rollout.svg")))
	r, energy := example()
	for i, token := range r.Tokens {
		about := fmt.Sprintf("token %d %s: %s, ActFocus weight %.3f", i, token.Text, token.Role, token.ActFocus)
		want := []string{">" + safe(token.Text) + "</text>"}
		if token.Role == reweight.RoleAction {
			about += fmt.Sprintf(", energy %.1f", energy[i])
			want = append(want, fmt.Sprintf(">%.2f</text>", token.ActFocus), fmt.Sprintf(">%.1f</text>", energy[i]))
		}
		for _, want := range append(want, "<title>"+safe(about)+"</title>") {
			if !strings.Contains(picture, want) {
				t.Errorf("docs/rollout.svg lacks %s", want)
			}
		}
	}
	if strings.Contains(picture, "NaN") {
		t.Error("docs/rollout.svg has a place that is not a number")
	}
	if n := strings.Count(picture, "<title>token "); n != len(r.Tokens) || !strings.Contains(picture, safe(r.Title)) {
		t.Errorf("docs/rollout.svg has %d tokens, want %d, or another title", n, len(r.Tokens))
	}
}

// safe returns text for SVG.
func safe(text string) string { return html.EscapeString(printable.Line(text)) }

// example returns the first answer of a language model in testdata, which has five action
// tokens, and the question before it, with the weights that it has in its batch, and the
// energies of its tokens.
func example() (r Trajectory, energy []float32) {
	file := must.Get(rollout.OpenFile("../../../../testdata/large/smollm2-words.safetensors"))
	defer file.Close()
	b := must.Get(file.Batch())
	var words []string
	must.Do(json.Unmarshal([]byte(file.Metadata()["vocab"]), &words))
	credit := must.Get(NewCredit(b, reweight.SignalEnergy))
	end := b.SeqOffsets[1]
	answer := int64(slices.Index(b.Role[:end], reweight.RoleReasoning))
	const question, template = 8, 6 // tokens of the question, and of the chat template behind it
	from := answer - template - question
	var texts []string
	for _, id := range b.TokenIDs[from:end] {
		texts = append(texts, words[id])
	}
	r = NewTrajectory(b, credit, from, end, texts)
	r.Tokens = slices.Delete(r.Tokens, question, question+template)
	r.Title = fmt.Sprintf("Answer 0 of testdata/large/smollm2-words.safetensors, by SmolLM2-135M-Instruct: %d tokens.", len(r.Tokens))
	return r, slices.Delete(slices.Clone(b.RefEnergy[from:end]), question, question+template)
}
