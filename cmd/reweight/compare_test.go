package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

// near fails unless got is want to 1e-5 relative.
func near[F ~float64](t *testing.T, what string, got F, want float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= 1e-5*math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// wantSteps compares the rows of a table with steps of package scheme, whose options are
// changed.
func wantSteps(t *testing.T, got compare.Comparison, b *reweight.Batch, change func(*scheme.Options)) {
	t.Helper()
	var names []string
	for _, row := range got.Schemes {
		names = append(names, row.Scheme)
		s := scheme.MustParse(row.Scheme)
		change(&s.Options)
		step := must.Get(s.NewStep(new(reweight.Workspace), b))
		res := must.Get(step.Run())
		squares := 0.0
		for _, g := range step.Grad {
			squares += float64(g) * float64(g)
		}
		near(t, row.Scheme+": loss", row.Loss, res.Loss)
		near(t, row.Scheme+": grad l2", row.GradL2, math.Sqrt(squares))
		parts := math.Hypot(float64(row.GradL2Action), float64(row.GradL2Reasoning))
		near(t, row.Scheme+": parts of the gradient", parts, float64(row.GradL2))
		near(t, row.Scheme+": clipped", row.ClipFraction, res.ClipFraction)
	}
	if !slices.Equal(names, []string{"uniform", "actfocus", "aem", "actfocus+aem"}) {
		t.Errorf("schemes %v", names)
	}
}

// TestFlagsOfSchemes: without -scheme the table has the schemes of the papers, and every
// flag reaches its option.
func TestFlagsOfSchemes(t *testing.T) {
	for flags, change := range map[string]func(*scheme.Options){
		"":                          func(*scheme.Options) {},
		"-alpha 0.3 -beta 2 -eps 0": func(o *scheme.Options) { o.ActFocus = reweight.ActFocusOptions{Alpha: 0.3, Beta: 2} },
		"-alpha 0 -eps 3":           func(o *scheme.Options) { o.ActFocus.Alpha, o.ActFocus.Eps = 0, 3 },
		"-signal surprisal":         func(o *scheme.Options) { o.ActFocus.Signal = reweight.SignalSurprisal },
		"-signal log_ratio":         func(o *scheme.Options) { o.ActFocus.Signal = reweight.SignalLogRatio },
		"-lambda 3 -guard 0":        func(o *scheme.Options) { o.AEM.Lambda, o.AEM.Guard = 3, 0 },
		"-guard 0.8":                func(o *scheme.Options) { o.AEM.Guard = 0.8 },
		"-scope trajectory":         func(o *scheme.Options) { o.AEM.Scope = reweight.ScopeTrajectory },
		"-scope batch":              func(o *scheme.Options) { o.AEM.Scope = reweight.ScopeBatch },
		"-clip-low 0.1 -clip-high 0.4 -dual-clip 1.2": func(o *scheme.Options) {
			o.Loss.Policy = reweight.PPO{ClipLow: 0.1, ClipHigh: 0.4, DualClip: 1.2}
		},
		"-dual-clip 0":                         func(o *scheme.Options) { o.Loss.Policy = reweight.PPO{ClipLow: 0.2, ClipHigh: 0.28} },
		"-aggregation seq_mean_token_sum":      func(o *scheme.Options) { o.Loss.Aggregation = reweight.SeqMeanTokenSum },
		"-aggregation seq_mean_token_mean":     func(o *scheme.Options) { o.Loss.Aggregation = reweight.SeqMeanTokenMean },
		"-aggregation seq_mean_token_sum_norm": func(o *scheme.Options) { o.Loss.Aggregation = reweight.SeqMeanTokenSumNorm },
		"-aggregation seq_mean_token_sum_norm -norm-length 77": func(o *scheme.Options) {
			o.Loss.Aggregation, o.Loss.NormLength = reweight.SeqMeanTokenSumNorm, 77
		},
		"-kl k1 -kl-coef 0.1":  func(o *scheme.Options) { o.Loss.KL, o.Loss.KLCoef = reweight.KLK1, 0.1 },
		"-divide-by-std=false": func(o *scheme.Options) { o.GRPO.DivideByStd = false },
	} {
		t.Run(flags, func(t *testing.T) {
			wantSteps(t, runJSON(t, append(strings.Fields(flags), write(t, embedded(t)))...),
				batchOf(t, lake("frozenlake-small.safetensors")), change)
		})
	}
}

// runJSON runs reweight -format json with further arguments.
func runJSON(t *testing.T, args ...string) (c compare.Comparison) {
	t.Helper()
	decode(t, []byte(printed(t, append([]string{"-format", "json"}, args...)...)), &c)
	return c
}

// TestUndefined: what is undefined is null, and other signals do without the
// reference's energy.
func TestUndefined(t *testing.T) {
	f := runJSON(t, "-signal", "surprisal", write(t, without(embedded(t), "ref_energy")))
	if all := f.Bottleneck.All; !math.IsNaN(float64(all)) {
		t.Errorf("correlation %v without energies", all)
	}
	if f.Schemes[1].Loss == 0 || f.Schemes[1].Loss == f.Schemes[0].Loss {
		t.Errorf("loss %v", f.Schemes[1].Loss)
	}
}

// TestTable: people see the figures of the JSON, whose names are those that programs know.
func TestTable(t *testing.T) {
	path := write(t, embedded(t))
	object := printed(t, path, "-format", "json")
	for name := range strings.FieldsSeq("file tokens total reasoning action spans trajectories groups credit schemes scheme loss " +
		"grad_l2 grad_l2_action grad_l2_reasoning action_credit_share clip_fraction effective_tokens entropy_drift spearman_uniform " +
		"rollout trajectory title texts roles bottleneck_spearman all first_turn given_turns") {
		if !strings.Contains(object, `"`+name+`": `) {
			t.Errorf("no %s in\n%s", name, object)
		}
	}
	f := runJSON(t, path)
	text := printed(t, path)
	wants := []string{
		"6,272 tokens: 3,168 reasoning, 134 action", "135 responses in 32 trajectories of 4 groups", fmt.Sprintf("action %+.3f (p ", f.Bottleneck.Action),
		fmt.Sprintf("On first turns alone:\nall tokens %+.3f (p ", f.Bottleneck.FirstTurn.All), fmt.Sprintf("Given the number of turns:\nall tokens %+.3f (p ", f.Bottleneck.GivenTurns.All),
	}
	for _, row := range f.Schemes {
		wants = append(wants, fmt.Sprintf("\n%-14s%8.6f", row.Scheme, row.Loss), fmt.Sprintf("%.6f", row.GradL2),
			fmt.Sprintf("%.1f%%", 100*row.ActionShare), fmt.Sprintf("%+.6f", row.Drift))
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// tensorsOf returns the F32 vectors of safetensors files, joined in the order of the files.
func tensorsOf(t *testing.T, paths ...string) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, path := range paths {
		file := must.Get(os.ReadFile(path))
		n := 8 + binary.LittleEndian.Uint64(file)
		var header map[string]struct {
			DType   string
			Shape   []int
			Offsets [2]int `json:"data_offsets"`
		}
		must.Do(json.Unmarshal(file[8:n], &header))
		for name, h := range header {
			if h.DType == "F32" && len(h.Shape) == 1 {
				x := make([]float32, h.Shape[0])
				must.Get(binary.Decode(file[n:][h.Offsets[0]:h.Offsets[1]], binary.LittleEndian, x))
				all[name] = append(all[name], x...)
			}
		}
	}
	return all
}

// TestOutput writes the tensors of ActFocus with AEM, over an older file, and
// leaves the input as it was.
func TestOutput(t *testing.T) {
	b := *batchOf(t, lake("frozenlake-small.safetensors"))
	input := write(t, rollout.Tensors(&b))
	before := must.Get(os.ReadFile(input))
	output := filepath.Join(t.TempDir(), "out.safetensors")
	must.Do(os.WriteFile(output, []byte("old"), 0o666))
	f := runJSON(t, input, "-o", output)
	tensors := tensorsOf(t, output)
	if len(tensors) != 3 {
		t.Errorf("%d tensors", len(tensors))
	}
	weights, advantages, grad := tensors["weights"], tensors["advantages"], tensors["grad_logprobs"]
	if n := len(b.Role); len(weights) != n || len(advantages) != n || len(grad) != n {
		t.Fatalf("%d, %d and %d elements, want %d", len(weights), len(advantages), len(grad), n)
	}
	wantSteps(t, f, &b, func(*scheme.Options) {})

	// The loss of what was written is the loss that was printed.
	b.Advantages = advantages
	again := make([]float32, len(grad))
	res := must.Get(new(reweight.Workspace).Loss(again, weights, &b, reweight.DefaultLoss))
	if float64(f.Schemes[3].Loss) != res.Loss {
		t.Errorf("loss %v printed, %v of what was written", f.Schemes[3].Loss, res.Loss)
	}
	for i := range grad {
		if grad[i] != again[i] {
			t.Fatalf("grad_logprobs[%d] = %v, want %v", i, grad[i], again[i])
		}
	}

	// The arrays are those of the last scheme. Weights of 1 are written, too.
	runJSON(t, input, "-scheme", "actfocus,gspo", "-o", output)
	if ones := tensorsOf(t, output)["weights"]; ones[0] != 0 || slices.Max(ones) != 1 ||
		slices.Equal(tensorsOf(t, output)["grad_logprobs"], grad) {
		t.Error("not the arrays of gspo")
	}
	refused(t, "-o: rlsd, the last scheme, needs teacher_logprobs\n", input, "-scheme", "all", "-o", output)

	// Over the input itself: refused, by this name and by another.
	link := filepath.Join(t.TempDir(), "link")
	names := []string{input}
	if os.Symlink(input, link) == nil {
		names = append(names, link)
	}
	for _, name := range names {
		refused(t, "reweight: -o: ", input, "-o", name)
	}
	after := must.Get(os.ReadFile(input))
	if !bytes.Equal(before, after) {
		t.Error("the input has changed")
	}
}

// hostileText has what a terminal or a log could take for a command, and what turns
// text around.
const hostileText = "x\n::error::bad\r\x1b[31m\u202e\u2028\x7f\u009b2J\U000e0001<b>|"

// harmless reports whether text can be printed as it is.
func harmless(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.ContainsFunc(line, func(r rune) bool {
			return !strconv.IsPrint(r)
		}) {
			return false
		}
	}
	return true
}

// TestHostileFile: whatever the names in a file and of the file, nothing of them
// reaches the output as it is.
func TestHostileFile(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.html")
	words := must.Get(json.Marshal(slices.Repeat([]string{hostileText}, 300)))
	path := func(n int, tensors []rollout.Tensor) string {
		p := filepath.Join(dir, strconv.Itoa(n)+hostileText)
		if err := rollout.Write(p, tensors,
			map[string]string{"vocab": string(words), hostileText: hostileText}); err != nil {
			t.Skip("the system does not take such a name: ", err)
		}
		return p
	}
	named := append(embedded(t), rollout.Tensor{Name: hostileText, Shape: []int64{1}, Data: []float32{1}})
	bad := embedded(t)
	for i := range bad {
		if bad[i].Name == "role" {
			bad[i].Shape, bad[i].Data = []int64{1}, []float32{1}
		}
	}
	for i, c := range []struct {
		path   string
		status int
	}{{path(0, named), 0}, {path(1, without(embedded(t), "rewards")), 2}, {path(2, bad), 2},
		{filepath.Join(dir, "3"+hostileText), 2}} {
		for _, format := range []string{"table", "json"} {
			var out, stderr bytes.Buffer
			status := run([]string{"-format", format, "-html", page, c.path}, &out, &stderr)
			if status != c.status || !harmless(out.String()) || !harmless(stderr.String()) {
				t.Errorf("file %d, %s: status %d, printed %q and %q", i, format, status, out.String(), stderr.String())
			}
			if format == "json" && status == 0 {
				var s struct{ File string }
				if err := json.Unmarshal(out.Bytes(), &s); err != nil || s.File != c.path {
					t.Errorf("file %q, want %q, %v", s.File, c.path, err)
				}
			}
		}
	}
	if html := string(must.Get(os.ReadFile(page))); !harmless(html) || strings.Contains(html, "<b>|") {
		t.Error("text of the file is in the page as it is")
	}
	var out, stderr bytes.Buffer
	if status := run([]string{"-o", filepath.Join(dir, hostileText, "x.safetensors"), path(4, embedded(t))}, &out,
		&stderr); status != 2 || !harmless(out.String()) || !harmless(stderr.String()) {
		t.Errorf("-o: status %d, printed %q and %q", status, out.String(), stderr.String())
	}
}

// TestTooManyTokens: a comparison that would take too much memory is refused.
func TestTooManyTokens(t *testing.T) {
	if err := checkSize(maxTokens + 1); err == nil || !strings.Contains(err.Error(), "split the file") ||
		checkSize(maxTokens) != nil {
		t.Errorf("error %v", err)
	}
}

// TestDefaultsOfFiles: without -scheme and -signal, what a file lacks is left out, and ActFocus goes by the surprisal.
func TestDefaultsOfFiles(t *testing.T) {
	const signal = "ActFocus goes by the surprisal of tokens, because there is no ref_energy"
	for _, c := range []struct {
		lacks []string
		want  []string
		not   []string
	}{
		{nil, []string{"\nactfocus+aem "}, []string{signal, "Left out"}},
		{[]string{"ref_energy"}, []string{"\nactfocus+aem ", signal}, []string{"Left out"}},
		{[]string{"entropy"}, []string{"\nactfocus ", "Left out: aem, actfocus+aem: needs entropy"}, []string{signal}},
		{[]string{"ref_energy", "entropy"}, []string{"\nactfocus ", signal, "Left out: aem, actfocus+aem"}, nil},
	} {
		text := printed(t, write(t, without(embedded(t), c.lacks...)))
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("without %v: %q is not in %s", c.lacks, want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("without %v: %q is in %s", c.lacks, not, text)
			}
		}
	}
}

// TestFilesOfTrainers: a field of Credit's files that nothing reads is no warning.
func TestFilesOfTrainers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run-step-000001.jsonl")
	line := `{"group_id": "a 0", "reward": %d, "role": [0, 1, 2], "old_logprobs": [0, -1, -2], ` +
		`"credited_advantages": [0, 1, NaN]}` + "\n"
	must.Do(os.WriteFile(name, []byte(fmt.Sprintf(line, 0)+fmt.Sprintf(line, 1)), 0o600))
	text := printed(t, name)
	if strings.Contains(text, "credited_advantages") || !strings.Contains(text, "\nactfocus ") {
		t.Error(text)
	}
}
