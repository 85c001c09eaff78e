package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
	"github.com/seed621a2839/reweight/testdata"
)

// runSchemes runs reweight -scheme with further arguments.
func runSchemes(t *testing.T, args ...string) string {
	t.Helper()
	return printed(t, append([]string{"-scheme"}, args...)...)
}

func schemesJSON(t *testing.T, args ...string) compare.Comparison {
	t.Helper()
	return runJSON(t, append([]string{"-scheme"}, args...)...)
}

// TestAllSchemes: each is a row, or a line that says what it lacks; flags that are given
// hold for all.
func TestAllSchemes(t *testing.T) {
	b := embedded(t)
	path := write(t, b)
	got := schemesJSON(t, "all", path, "-trajectory", "9")
	if len(got.Schemes)+len(got.LeftOut) != len(scheme.All()) || len(got.Rollout.Credit) != len(got.Schemes) {
		t.Errorf("%d schemes, %d left out", len(got.Schemes), len(got.LeftOut))
	}
	for _, l := range got.LeftOut {
		if !strings.HasPrefix(l.Reason, "needs ") {
			t.Errorf("%+v", l)
		}
	}
	text := runSchemes(t, "all", path)
	for line := range strings.Lines(text) {
		if len(line) > 110 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	for _, want := range []string{
		"\nreinforce++_baseline ", "\nactfocus+aem ", "\nLeft out: gigpo: needs anchors and span_rewards\n", "\n" + compare.Credit + "\n",
		fmt.Sprintf("%.6f", got.Schemes[0].Loss), fmt.Sprintf("%.0f", got.Schemes[3].EffectiveTokens), "of action", "rank correlation",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}

	// With the log-probabilities of an engine and a bound more can be computed.
	for _, tensor := range b {
		if tensor.Name == "old_logprobs" {
			b = append(b, rollout.Tensor{Name: "rollout_logprobs", Shape: tensor.Shape, Data: tensor.Data})
			break
		}
	}
	more := schemesJSON(t, "all", write(t, b), "-delta", "-1", "-dro-beta", "0.3", "-aggregation", "seq_mean_token_sum")
	var out []string
	for _, l := range more.LeftOut {
		out = append(out, l.Scheme)
	}
	want := []string{"otb", "otb_turns", "gigpo", "turn_returns", "mt_grpo", "gdpo", "gae", "clip_v", "rlsd"}
	if !slices.Equal(out, want) {
		t.Errorf("left out %+v, want %v", more.LeftOut, want)
	}
	loss := map[string]bench.Number{}
	for _, s := range more.Schemes {
		loss[s.Scheme] = s.Loss
	}
	if loss["gspo"] != loss["luspo"] || loss["grpo"] != loss["uniform"] || loss["tis"] != loss["uniform"] ||
		loss["off_policy_mask"] == loss["uniform"] {
		t.Errorf("losses %v", loss)
	}
}

// TestSchemesKL: the KL is in every loss, without the weights of tokens, and in the
// credit, and a line says so.
func TestSchemesKL(t *testing.T) {
	file := must.Get(rollout.Parse(testdata.FrozenLakeSmall))
	b := must.Get(file.Batch())
	sum, squares, n := 0.0, 0.0, 0.0
	for i, role := range b.Role {
		if role != reweight.RoleMasked {
			x := float64(b.Logprobs[i]) - float64(b.RefLogprobs[i])
			sum, squares, n = sum+x, squares+x*x/2, n+1
		}
	}
	const list, note = "uniform,actfocus,cispo", " times the KL from the reference in it, in the form "
	path := write(t, embedded(t))
	none := schemesJSON(t, list, path)
	for form, want := range map[string]float64{"k1": 0.5 * sum / n, "mse": 0.5 * squares / n} {
		got := schemesJSON(t, list, path, "-kl", form, "-kl-coef", "0.5")
		for i, s := range got.Schemes {
			if by := float64(s.Loss - none.Schemes[i].Loss); !(math.Abs(by-want) <= 1e-5*math.Abs(want)) ||
				s.GradL2 == none.Schemes[i].GradL2 {
				t.Errorf("%s, %s: the KL adds %v, want %v", s.Scheme, form, by, want)
			}
		}
	}
	if got := schemesJSON(t, list, path, "-kl-coef", "0"); !slices.Equal(lossesOf(got), lossesOf(none)) ||
		got.KL != nil {
		t.Errorf("a coefficient of 0 changes the losses to %v, or %v", lossesOf(got), got.KL)
	}
	if kl := schemesJSON(t, list, path, "-kl-coef", "0.001").KL; kl == nil || kl.Form != reweight.KLK3 ||
		kl.Coef != 0.001 {
		t.Errorf("KL %+v", kl)
	}
	if text := runSchemes(t, list, path, "-kl", "kl+", "-kl-coef", "0.5"); !strings.Contains(text,
		"\nEvery loss, and with it the credit, has 0.5"+note+"k1+.") {
		t.Errorf("no line about the KL:\n%s", text)
	}
	if text := runSchemes(t, list, path); strings.Contains(text, note) {
		t.Errorf("a line about a KL:\n%s", text)
	}
}

// lossesOf returns the losses of a table.
func lossesOf(s compare.Comparison) (all []bench.Number) {
	for _, row := range s.Schemes {
		all = append(all, row.Loss)
	}
	return all
}

// TestSchemeRollout: the rollout has texts, roles and credit, in JSON and on the page.
func TestSchemeRollout(t *testing.T) {
	path := frozenLakeCopy(t)
	got := schemesJSON(t, "uniform,gspo", path, "-trajectory", "9").Rollout
	const title = "lake.safetensors: group 1, reward 1, 2 turns, 87 tokens."
	if got.Trajectory != 9 || !strings.HasSuffix(got.Title, title) || len(got.Texts) != 87 ||
		got.Texts[22] != "<think>" || got.Roles[22] != "reasoning" || got.Roles[0] != "masked" {
		t.Errorf("%+v", got)
	}
	for _, c := range got.Credit {
		if len(c.Credit) != 87 || c.Credit[0] != 0 || !(c.Credit[22] > 0) {
			t.Errorf("%s: %v", c.Scheme, c.Credit)
		}
	}
	page := filepath.Join(t.TempDir(), "page.html")
	runSchemes(t, "uniform,gspo", path, "-trajectory", "9", "-html", page)
	html := must.Get(os.ReadFile(page))
	for _, want := range []string{
		"<!DOCTYPE html>", title, "<h3>Turn 2</h3>", "<h4>gspo</h4>", compare.Credit,
		fmt.Sprintf(`title="token 22: reasoning, credit %s">&lt;think&gt;</span>`, strings.ReplaceAll(fmt.Sprintf("%+.3g", got.Credit[0].Credit[22]), "+", "&#43;")),
		`class="credit up action"`, "</html>",
	} {
		if !strings.Contains(string(html), want) {
			t.Errorf("no %s", want)
		}
	}

	// Without texts there are ids, and standard input is not read twice.
	if plain := schemesJSON(t, "uniform", write(t, embedded(t)), "-trajectory", "9").Rollout; plain.Texts[22] != "#4" {
		t.Errorf("text %q", plain.Texts[22])
	}
}

// TestSchemesPage: docs/trainers.md has what is printed.
func TestSchemesPage(t *testing.T) {
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "trainers.md")))
	const command = "\n    reweight -scheme uniform,actfocus,gtpo,gspo testdata/frozenlake-small.safetensors\n"
	text := runSchemes(t, "uniform,actfocus,gtpo,gspo",
		filepath.Join("..", "..", "testdata", "frozenlake-small.safetensors"))
	_, tables, _ := strings.Cut(text, "\n\n")
	tables, _, _ = strings.Cut(tables, "\n\n"+compare.Credit)
	if !strings.Contains(string(page), command+"\n```\n"+tables+"\n```\n") {
		t.Errorf("the page lacks %s\n%s", command, tables)
	}
}

// TestSchemeLines: lines of JSON with no more than a scheme reads are enough for it.
func TestSchemeLines(t *testing.T) {
	const lines = `{"group_id": "g", "reward": 1, "role": [1, 2], "old_logprobs": [-1, -2], "logprobs": [-1, -2.5], "token_ids": [7, 8]}
{"group_id": "g", "reward": 0, "role": [1, 2], "old_logprobs": [-0.5, -3], "logprobs": [-1, -2.5], "token_ids": [7, 8]}
`
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	must.Do(os.WriteFile(path, []byte(lines), 0o666))
	got := schemesJSON(t, "all", path)
	var names []string
	for _, s := range got.Schemes {
		names = append(names, s.Scheme)
	}
	if !strings.HasSuffix(got.Rollout.Title, ": group g, reward 1, 1 turn, 2 tokens.") { // as reweight show has it
		t.Errorf("title %q", got.Rollout.Title)
	}
	if got.Rollout.Texts[1] != "#8" || !math.IsNaN(float64(got.Schemes[0].Drift)) || !slices.Contains(names, "rloo") ||
		!slices.Contains(names, "vespo") || slices.Contains(names, "aem") {
		t.Errorf("%+v", got)
	}
}

// TestSchemesWidth: an entropy that is too wide is in the way of schemes that read it only.
func TestSchemesWidth(t *testing.T) {
	b := embedded(t)
	for _, tensor := range b {
		if tensor.Name == "old_logprobs" { // so that clip_v has all that it reads
			b = append(b, rollout.Tensor{Name: "entropy_drop", Shape: tensor.Shape, Data: tensor.Data})
			break
		}
	}
	whole := write(t, b)
	path := write(t, without(b, "entropy", "ref_energy"))
	schemesJSON(t, "cispo", path, "-surprisal-entropy")
	var read, single []string // the schemes that read entropies, and those that read the entropy of single tokens
	for _, s := range scheme.All() {
		if e := s.Entries()[0]; len(s.Entries()) == 1 && slices.Contains(e.Reads, "entropy") {
			read = append(read, s.Name)
			if e.SingleEntropies {
				single = append(single, s.Name)
			}
		}
	}
	const reason = "needs an entropy whose bounds are at most 0.1 nats apart, and this one is estimated from surprisal, without bounds: -entropy-width Inf takes it"
	refused(t, ": gtpo "+reason+"\n", "-scheme", "cispo,gtpo", path, "-surprisal-entropy")
	if all, want := runSchemes(t, "all", path, "-surprisal-entropy"),
		"\nLeft out: "+strings.Join(read, ", ")+": "+reason+"\n"; !strings.Contains(all, want) ||
		!strings.Contains(all, "\ngspo ") {
		t.Errorf("no %q in\n%s", want, all)
	}
	got := schemesJSON(t, "cispo,gtpo", path, "-surprisal-entropy", "-entropy-width", "Inf")
	if len(got.Estimates) != 1 || math.IsNaN(float64(got.Schemes[1].Drift)) {
		t.Errorf("%+v", got)
	}

	// Surprisal is no estimate of the entropy of one token.
	const warning = " reads the entropy of single tokens, which their surprisal does not estimate."
	all := schemesJSON(t, "all", path, "-surprisal-entropy", "-entropy-width", "Inf").Warnings
	if len(single) < 2 || strings.Join(all, ",") != strings.Join(single, warning+",")+warning {
		t.Errorf("%q", all)
	}
	if exact := schemesJSON(t, strings.Join(single, ","), whole).Warnings; len(exact) != 0 {
		t.Errorf("%q", exact)
	}
}

// TestSchemesNotFinite: a loss that float32 cannot hold is no figure: the scheme is left
// out of all, and an error if it is named, before anything is written.
func TestSchemesNotFinite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inf.jsonl")
	const line = `{"group_id":1,"reward":%s,"mask":[0,1,1],"old_logprobs":[0,-0.1,-0.6]}` + "\n"
	must.Do(os.WriteFile(path, []byte(fmt.Sprintf(line+line, "3e38", "-3e38")), 0o666))
	for _, format := range []string{"table", "json"} {
		page := filepath.Join(t.TempDir(), "page.html")
		refused(t, "reweight: "+path+": rloo: the loss is not finite\n", "-scheme", "uniform,rloo", "-format", format,
			"-html", page, path)
		if _, err := os.Stat(page); err == nil {
			t.Errorf("%s: the page is written", format)
		}
	}
	got := schemesJSON(t, "all", path)
	if !slices.Contains(got.LeftOut, compare.LeftOut{Scheme: "rloo", Reason: "the loss is not finite"}) ||
		len(got.Schemes) == 0 || got.Schemes[0].GradL2 == 0 {
		t.Errorf("%+v", got)
	}
}

// TestSchemesUnreadFlags: a flag of a scheme that is not compared changes nothing, and a
// warning says so.
func TestSchemesUnreadFlags(t *testing.T) {
	path := write(t, embedded(t))
	for want, args := range map[string][]string{
		"": {"uniform,actfocus+aem", "-alpha", "0.5", "-lambda", "2", "-clip-low", "0.1"},
		"No scheme here reads -alpha, -lambda, -delta.": {"uniform,gspo", "-delta", "1", "-lambda", "2", "-alpha", "0.5", "-divide-by-std=false"},
		"No scheme here reads -scope.":                  {"off_policy_mask,actfocus", "-delta", "1", "-beta", "0", "-scope", "batch"},
	} {
		if got := strings.Join(schemesJSON(t, append(args, path)...).Warnings, " "); got != want {
			t.Errorf("%q: warnings %q, want %q", args, got, want)
		}
	}
}
