package show

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// TestPicture: the picture of the README has the tokens and the weights that the library
// computes.
func TestPicture(t *testing.T) {
	picture := string(must.Get(os.ReadFile("../../docs/rollout.svg")))
	r := example()
	for i, token := range r.Tokens {
		about := fmt.Sprintf("token %d %s: %s, ActFocus weight %.3f", i, token.Text, token.Role, token.ActFocus)
		for _, want := range []string{"<title>" + safe(about) + "</title>", ">" + safe(token.Text) + "</text>"} {
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

// example returns the longest of the right answers of a language model in testdata, with the
// weights that it has in its batch.
func example() Trajectory {
	file := must.Get(rollout.OpenFile("../../testdata/large/smollm2-words.safetensors"))
	defer file.Close()
	b := must.Get(file.Batch())
	var words []string
	must.Do(json.Unmarshal([]byte(file.Metadata()["vocab"]), &words))
	credit := must.Get(NewCredit(b, reweight.SignalEnergy))
	best := 0
	length := func(s int) int64 { return b.SeqOffsets[s+1] - b.SeqOffsets[s] }
	for s, reward := range b.Rewards {
		if reward > b.Rewards[best] || reward == b.Rewards[best] && length(s) > length(best) {
			best = s
		}
	}
	from, to := b.SeqOffsets[best], b.SeqOffsets[best+1]
	var texts []string
	for _, id := range b.TokenIDs[from:to] {
		texts = append(texts, words[id])
	}
	r := NewTrajectory(b, credit, from, to, texts)
	r.Title = fmt.Sprintf("Answer %d of testdata/large/smollm2-words.safetensors, by SmolLM2-135M-Instruct: %d tokens, reward %g.", best, length(best), b.Rewards[best])
	return r
}
