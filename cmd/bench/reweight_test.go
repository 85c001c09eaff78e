package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/losses"
	"github.com/seed621a2839/reweight/reference"
	"github.com/seed621a2839/reweight/rollout"
)

// figures is the JSON of bench reweight as its users read it.
type figures struct {
	File        string
	Files       []string
	Tokens      struct{ Total, Reasoning, Action, Spans, Trajectories, Groups int }
	Uniform     lossFigures
	ActFocus    lossFigures
	AEM         lossFigures
	ActFocusAEM lossFigures                               `json:"actfocus+aem"`
	Spearman    struct{ All, Reasoning, Action *float64 } `json:"bottleneck_spearman"`
	Drift       float64                                   `json:"entropy_drift_mean"`

	GivenAdvantages bool `json:"given_advantages"`
	Derived         []cli.Origin
	Warnings        []string
}

type lossFigures struct {
	Loss         float64
	GradL1       float64 `json:"grad_l1"`
	GradL2       float64 `json:"grad_l2"`
	ClipFraction float64 `json:"clip_fraction"`
	WeightSum    float64 `json:"weight_sum"`
	ActionShare  float64 `json:"action_weight_share"`
}

// runJSON runs bench reweight -format json with further arguments.
func runJSON(t *testing.T, args ...string) figures {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), append([]string{"reweight", "-format", "json"}, args...), &stdout, &stderr, nil); status != 0 || stderr.Len() > 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	var f figures
	decode(t, stdout.Bytes(), &f)
	return f
}

// near fails unless got is want to 1e-5 relative.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-5*math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// nearRank does so for a correlation, which is null where it is undefined.
func nearRank(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.IsNaN(want) {
		if got != nil || !math.IsNaN(want) {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
		return
	}
	near(t, what, *got, want)
}

func (f lossFigures) near(t *testing.T, what string, want lossFigures) {
	t.Helper()
	near(t, what+": loss", f.Loss, want.Loss)
	near(t, what+": grad l1", f.GradL1, want.GradL1)
	near(t, what+": grad l2", f.GradL2, want.GradL2)
	if f.ClipFraction != want.ClipFraction {
		t.Errorf("%s: clip fraction = %v, want %v", what, f.ClipFraction, want.ClipFraction)
	}
	near(t, what+": weight sum", f.WeightSum, want.WeightSum)
	near(t, what+": action weight share", f.ActionShare, want.ActionShare)
}

func (f figures) near(t *testing.T, want figures) {
	t.Helper()
	if f.Tokens != want.Tokens {
		t.Errorf("tokens = %+v, want %+v", f.Tokens, want.Tokens)
	}
	f.Uniform.near(t, "uniform", want.Uniform)
	f.ActFocus.near(t, "actfocus", want.ActFocus)
	f.AEM.near(t, "aem", want.AEM)
	f.ActFocusAEM.near(t, "actfocus+aem", want.ActFocusAEM)
	for _, c := range []struct {
		what      string
		got, want *float64
	}{
		{"spearman, all", f.Spearman.All, want.Spearman.All},
		{"spearman, reasoning", f.Spearman.Reasoning, want.Spearman.Reasoning},
		{"spearman, action", f.Spearman.Action, want.Spearman.Action},
	} {
		w := math.NaN()
		if c.want != nil {
			w = *c.want
		}
		nearRank(t, c.what, c.got, w)
	}
	near(t, "entropy drift", f.Drift, want.Drift)
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"frozenlake-small", "frozenlake"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", "step-"+name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var want figures
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("..", "..", "testdata", name+".safetensors")
			got := runJSON(t, file)
			if got.File != file {
				t.Errorf("file = %q, want %q", got.File, file)
			}
			got.near(t, want)
		})
	}
}

// TestKeys: the object has these keys and no others, all of them numbers.
func TestKeys(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"reweight", write(t, embedded(t)), "-format", "json"}, &stdout, &stderr, nil); status != 0 {
		t.Fatal(stderr.String())
	}
	var object map[string]any
	if err := json.Unmarshal(stdout.Bytes(), &object); err != nil {
		t.Fatal(err)
	}
	loss := "action_weight_share clip_fraction grad_l1 grad_l2 loss weight_sum"
	want := map[string]string{
		"tokens": "action groups reasoning spans total trajectories", "uniform": loss, "actfocus": loss, "aem": loss,
		"actfocus+aem": loss, "bottleneck_spearman": "action all reasoning",
	}
	for key, value := range object {
		switch value := value.(type) {
		case map[string]any:
			n := 0
			for inner, number := range value {
				if _, ok := number.(float64); !ok || !strings.Contains(" "+want[key]+" ", " "+inner+" ") {
					t.Errorf("%s.%s = %v", key, inner, number)
				}
				n++
			}
			if n != len(strings.Fields(want[key])) {
				t.Errorf("%s has %d keys, want %s", key, n, want[key])
			}
		case float64:
			if key != "entropy_drift_mean" {
				t.Errorf("%s = %v", key, value)
			}
		default:
			if key != "file" {
				t.Errorf("%s = %v", key, value)
			}
		}
	}
	if len(object) != len(want)+2 {
		t.Errorf("%d keys in %s", len(object), stdout.String())
	}
}

// randomBatch makes rollouts of all shapes: groups that interleave, ids that
// are not dense, trajectories without a response, masked tokens with NaN.
func randomBatch(r *rand.Rand) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	nan := float32(math.NaN())
	groups := 3 + r.IntN(5)
	span := int32(0)
	for range groups * (2 + r.IntN(6)) {
		b.GroupIDs = append(b.GroupIDs, int32(100-7*r.IntN(groups)))
		b.Rewards = append(b.Rewards, float32(r.IntN(11))/10)
		turns := r.IntN(5)
		skill := r.NormFloat64()
		for turn := range turns + 1 {
			for range 5 + r.IntN(30) { // what the agent reads
				b.Role = append(b.Role, reweight.RoleMasked)
				b.SpanIDs = append(b.SpanIDs, -1)
				b.RefEnergy, b.Entropy = append(b.RefEnergy, nan), append(b.Entropy, nan)
				b.OldLogprobs, b.Logprobs = append(b.OldLogprobs, nan), append(b.Logprobs, nan)
				b.RefLogprobs = append(b.RefLogprobs, nan)
			}
			if turn == turns {
				break
			}
			n := 5 + r.IntN(60)
			sure := math.Exp(0.5 * (skill + r.NormFloat64())) // a turn's own
			for i := range n {
				role := reweight.RoleReasoning
				if i > n-4 && i < n-1 {
					role = reweight.RoleAction
				}
				old := -sure * r.ExpFloat64()
				b.Role = append(b.Role, role)
				b.SpanIDs = append(b.SpanIDs, span)
				b.RefEnergy = append(b.RefEnergy, float32(-20+4*r.NormFloat64()))
				b.Entropy = append(b.Entropy, float32(sure*r.Float64()))
				b.OldLogprobs = append(b.OldLogprobs, float32(old))
				b.Logprobs = append(b.Logprobs, float32(min(0, old+0.2*r.NormFloat64())))
				b.RefLogprobs = append(b.RefLogprobs, float32(min(0, old+r.NormFloat64())))
			}
			span++
		}
		b.SeqOffsets = append(b.SeqOffsets, int64(len(b.Role)))
	}
	b.TokenIDs = make([]int32, len(b.Role))
	// There may be advantages: they are not those of the rewards, and not used.
	b.Advantages = make([]float32, len(b.Role))
	return b
}

// expect answers for a batch in float64. refEntropy is that of the reference,
// if the signal needs it.
func expect(t *testing.T, b *reweight.Batch, refEntropy []float64, opt losses.Options) figures {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	var f figures
	f.Tokens.Total, f.Tokens.Trajectories = len(b.Role), len(b.Rewards)
	groups := map[int32]bool{}
	for _, g := range b.GroupIDs {
		groups[g] = true
	}
	f.Tokens.Groups = len(groups)
	for t, r := range b.Role {
		if r == 1 {
			f.Tokens.Reasoning++
		} else if r == 2 {
			f.Tokens.Action++
		}
		f.Tokens.Spans = max(f.Tokens.Spans, int(b.SpanIDs[t])+1)
	}

	role := make([]reference.Role, len(b.Role))
	for t, r := range b.Role {
		role[t] = reference.Role(r)
	}
	energy, entropy, old := widen(b.RefEnergy), widen(b.Entropy), widen(b.OldLogprobs)
	grpo, err := reference.GRPO(widen(b.Rewards), b.GroupIDs, opt.GRPO.DivideByStd)
	fail(err)
	advantages, err := reference.TokenAdvantages(role, b.SeqOffsets, grpo)
	fail(err)
	scope := map[reweight.Scope]reference.Scope{
		reweight.ScopeGroup: reference.ScopeGroup, reweight.ScopeTrajectory: reference.ScopeTrajectory, reweight.ScopeBatch: reference.ScopeBatch,
	}[opt.AEM.Scope]
	_, _, alpha, err := reference.AEM(role, b.SpanIDs, b.SeqOffsets, b.GroupIDs, entropy, opt.AEM.Lambda, opt.AEM.Guard, scope)
	fail(err)
	scaled, err := reference.ScaleAdvantages(advantages, alpha)
	fail(err)
	signal := map[reweight.Signal]reference.Signal{
		reweight.SignalEnergy: reference.SignalEnergy, reweight.SignalRefEntropy: reference.SignalRefEntropy,
		reweight.SignalSurprisal: reference.SignalSurprisal, reweight.SignalLogRatio: reference.SignalLogRatio,
	}[opt.ActFocus.Signal]
	s, err := reference.ActFocusSignal(signal, energy, refEntropy, old, widen(b.RefLogprobs))
	fail(err)
	weights, err := reference.ActFocusWeights(role, s, opt.ActFocus.Alpha, opt.ActFocus.Beta, opt.ActFocus.Eps)
	fail(err)
	aggregation := map[reweight.Aggregation]reference.Aggregation{
		reweight.TokenMean: reference.TokenMean, reweight.SeqMeanTokenSum: reference.SeqMeanTokenSum,
		reweight.SeqMeanTokenMean: reference.SeqMeanTokenMean, reweight.SeqMeanTokenSumNorm: reference.SeqMeanTokenSumNorm,
	}[opt.Loss.Aggregation]
	uniform := reference.UniformWeights(role)
	for _, step := range []struct {
		to                  *lossFigures
		advantages, weights []float64
	}{{&f.Uniform, advantages, uniform}, {&f.ActFocus, advantages, weights}, {&f.AEM, scaled, uniform}, {&f.ActFocusAEM, scaled, weights}} {
		loss, err := reference.Loss(role, b.SeqOffsets, widen(b.Logprobs), old, step.advantages, step.weights, reference.LossOptions{
			ClipLow: opt.Loss.ClipLow, ClipHigh: opt.Loss.ClipHigh, DualClip: opt.Loss.DualClip, Aggregation: aggregation, NormLength: float64(opt.Loss.NormLength),
		})
		fail(err)
		q := lossFigures{Loss: loss.Loss, ClipFraction: loss.ClipFraction}
		for _, g := range loss.Gradient {
			q.GradL1 += math.Abs(g)
			q.GradL2 += g * g
		}
		q.GradL2 = math.Sqrt(q.GradL2)
		q.WeightSum, q.ActionShare, err = reference.WeightMass(role, step.weights)
		fail(err)
		*step.to = q
	}
	bottleneck, err := reference.Bottleneck(role, b.SeqOffsets, b.GroupIDs, widen(b.Rewards), energy)
	fail(err)
	for _, c := range []struct {
		to   **float64
		from float64
	}{{&f.Spearman.All, bottleneck.All.Rho}, {&f.Spearman.Reasoning, bottleneck.Reasoning.Rho}, {&f.Spearman.Action, bottleneck.Action.Rho}} {
		if !math.IsNaN(c.from) {
			*c.to = &c.from
		}
	}
	drift, err := reference.EntropyDrift(role, b.SpanIDs, advantages, old, entropy)
	fail(err)
	for _, d := range drift {
		f.Drift += d / float64(len(drift))
	}
	return f
}

// TestRandomRollouts compares the figures of random files, with every flag, with
// the reference.
func TestRandomRollouts(t *testing.T) {
	cases := map[string]func(*losses.Options){
		"":                          func(*losses.Options) {},
		"-alpha 0.3 -beta 2 -eps 0": func(o *losses.Options) { o.ActFocus = reweight.ActFocusOptions{Alpha: 0.3, Beta: 2} },
		"-alpha 0 -eps 3":           func(o *losses.Options) { o.ActFocus.Alpha, o.ActFocus.Eps = 0, 3 },
		"-signal surprisal":         func(o *losses.Options) { o.ActFocus.Signal = reweight.SignalSurprisal },
		"-signal log_ratio":         func(o *losses.Options) { o.ActFocus.Signal = reweight.SignalLogRatio },
		"-lambda 3 -guard 0":        func(o *losses.Options) { o.AEM.Lambda, o.AEM.Guard = 3, 0 },
		"-guard 0.8":                func(o *losses.Options) { o.AEM.Guard = 0.8 },
		"-scope trajectory":         func(o *losses.Options) { o.AEM.Scope = reweight.ScopeTrajectory },
		"-scope batch":              func(o *losses.Options) { o.AEM.Scope = reweight.ScopeBatch },
		"-clip-low 0.1 -clip-high 0.4 -dual-clip 1.2": func(o *losses.Options) {
			o.Loss.ClipLow, o.Loss.ClipHigh, o.Loss.DualClip = 0.1, 0.4, 1.2
		},
		"-dual-clip 0":                         func(o *losses.Options) { o.Loss.DualClip = 0 },
		"-aggregation seq_mean_token_sum":      func(o *losses.Options) { o.Loss.Aggregation = reweight.SeqMeanTokenSum },
		"-aggregation seq_mean_token_mean":     func(o *losses.Options) { o.Loss.Aggregation = reweight.SeqMeanTokenMean },
		"-aggregation seq_mean_token_sum_norm": func(o *losses.Options) { o.Loss.Aggregation = reweight.SeqMeanTokenSumNorm },
		"-aggregation seq_mean_token_sum_norm -norm-length 77": func(o *losses.Options) {
			o.Loss.Aggregation, o.Loss.NormLength = reweight.SeqMeanTokenSumNorm, 77
		},
		"-divide-by-std=false": func(o *losses.Options) { o.GRPO.DivideByStd = false },
	}
	for flags, change := range cases {
		opt := losses.Default()
		change(&opt)
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", flags, seed), func(t *testing.T) {
				b := randomBatch(rand.New(rand.NewPCG(seed, 7)))
				got := runJSON(t, append(strings.Fields(flags), write(t, rollout.Tensors(b)))...)
				got.near(t, expect(t, b, nil, opt))
			})
		}
	}
}

// TestFromLogits: a file with logits instead of what follows from them.
func TestFromLogits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	b := randomBatch(r)
	const vocab = 40
	n := len(b.Role)
	logits := func(scale float64) (reweight.Logits, []float64) {
		l := reweight.Logits{Vocab: vocab, F32: make([]float32, n*vocab)}
		for i := range l.F32 {
			l.F32[i] = float32(scale * r.NormFloat64())
		}
		return l, widen(l.F32)
	}
	narrow := func(x []float64) []float32 {
		y := make([]float32, len(x))
		for i, v := range x {
			y[i] = float32(v)
		}
		return y
	}
	for i := range b.TokenIDs {
		b.TokenIDs[i] = int32(r.IntN(vocab))
	}
	var ref, old []float64
	b.RefLogits, ref = logits(3)
	b.OldLogits, old = logits(2)
	b.Logits = reweight.Logits{Vocab: vocab, F32: make([]float32, n*vocab)}
	for i, v := range b.OldLogits.F32 {
		b.Logits.F32[i] = v + float32(0.1*r.NormFloat64())
	}
	lse, refEntropy, refLogprobs, err := reference.TokenStats(ref, vocab, b.TokenIDs, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lse {
		lse[i] = -lse[i]
	}
	_, entropy, oldLogprobs, err := reference.TokenStats(old, vocab, b.TokenIDs, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, _, logprobs, err := reference.TokenStats(widen(b.Logits.F32), vocab, b.TokenIDs, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.RefEnergy, b.Entropy, b.OldLogprobs, b.Logprobs, b.RefLogprobs = nil, nil, nil, nil, nil
	file := write(t, rollout.Tensors(b))
	b.RefEnergy, b.RefLogprobs, b.Entropy = narrow(lse), narrow(refLogprobs), narrow(entropy)
	b.OldLogprobs, b.Logprobs = narrow(oldLogprobs), narrow(logprobs)
	opt := losses.Default()
	runJSON(t, file).near(t, expect(t, b, nil, opt))
	opt.ActFocus.Signal = reweight.SignalRefEntropy
	runJSON(t, file, "-signal", "ref_entropy").near(t, expect(t, b, refEntropy, opt))
}

// TestUndefined: what is undefined is null, and other signals do without the
// reference's energy.
func TestUndefined(t *testing.T) {
	f := runJSON(t, "-signal", "surprisal", write(t, without(embedded(t), "ref_energy")))
	if f.Spearman.All != nil || f.Spearman.Reasoning != nil || f.Spearman.Action != nil {
		t.Errorf("correlations %+v without energies", f.Spearman)
	}
	if f.ActFocus.Loss == 0 || f.ActFocus.Loss == f.Uniform.Loss {
		t.Errorf("loss %v", f.ActFocus.Loss)
	}
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"reweight", "-signal", "surprisal", write(t, without(embedded(t), "ref_energy"))}, &stdout, &stderr, nil); status != 0 ||
		!strings.Contains(stdout.String(), "all tokens undefined, reasoning undefined, action undefined (the batch lacks ref_energy)") {
		t.Errorf("status %d, %s%s", status, stdout.String(), stderr.String())
	}
}

// TestTable: people see the figures of the JSON.
func TestTable(t *testing.T) {
	path := write(t, embedded(t))
	f := runJSON(t, path)
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"reweight", path}, &stdout, &stderr, nil); status != 0 {
		t.Fatal(stderr.String())
	}
	for _, want := range []string{
		"6,272 tokens: 3,168 reasoning, 134 action", "135 responses in 32 trajectories of 4 groups",
		fmt.Sprintf("%.6f", f.Uniform.Loss), fmt.Sprintf("%.6f", f.ActFocus.Loss), fmt.Sprintf("%.6f", f.AEM.Loss), fmt.Sprintf("%.6f", f.ActFocusAEM.Loss),
		fmt.Sprintf("%.6f", f.ActFocus.GradL2), fmt.Sprintf("%.1f%%", 100*f.ActFocus.ActionShare), fmt.Sprintf("%.1f%%", 100*f.Uniform.ClipFraction),
		fmt.Sprintf("action %+.3f (p ", *f.Spearman.Action), fmt.Sprintf("%+.6f", f.Drift),
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

// readF32 reads the tensors of a safetensors file of F32 vectors.
func readF32(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 8 + binary.LittleEndian.Uint64(file)
	var header map[string]struct {
		DType   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(file[8:n], &header); err != nil {
		t.Fatal(err)
	}
	tensors := map[string][]float32{}
	for name, h := range header {
		if h.DType != "F32" || len(h.Shape) != 1 {
			t.Fatalf("%s is %+v", name, h)
		}
		x := make([]float32, h.Shape[0])
		if err := binary.Read(bytes.NewReader(file[n:][h.Offsets[0]:h.Offsets[1]]), binary.LittleEndian, x); err != nil {
			t.Fatal(err)
		}
		tensors[name] = x
	}
	return tensors
}

// TestOutput writes the tensors of ActFocus with AEM, over an older file, and
// leaves the input as it was.
func TestOutput(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(11, 13)))
	input := write(t, rollout.Tensors(b))
	before, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "out.safetensors")
	if err := os.WriteFile(output, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	f := runJSON(t, input, "-o", output)
	tensors := readF32(t, output)
	if len(tensors) != 3 {
		t.Errorf("%d tensors", len(tensors))
	}
	weights, advantages, grad := tensors["weights"], tensors["advantages"], tensors["grad_logprobs"]
	if n := len(b.Role); len(weights) != n || len(advantages) != n || len(grad) != n {
		t.Fatalf("%d, %d and %d elements, want %d", len(weights), len(advantages), len(grad), n)
	}
	var sum, l1 float64
	for i, w := range weights {
		sum += float64(w)
		l1 += math.Abs(float64(grad[i]))
	}
	near(t, "weight sum", sum, f.ActFocusAEM.WeightSum)
	near(t, "grad l1", l1, f.ActFocusAEM.GradL1)

	// The loss of what was written is the loss that was printed.
	b.Advantages = advantages
	again := make([]float32, len(grad))
	res, err := new(reweight.Workspace).Loss(again, weights, b, reweight.DefaultLoss)
	if err != nil {
		t.Fatal(err)
	}
	if d := math.Abs(f.ActFocusAEM.Loss - res.Loss); !(d <= 1e-6*l1) { // of terms as large as the gradient, which cancel
		t.Errorf("loss %v printed, %v of what was written", f.ActFocusAEM.Loss, res.Loss)
	}
	for i := range grad {
		if grad[i] != again[i] {
			t.Fatalf("grad_logprobs[%d] = %v, want %v", i, grad[i], again[i])
		}
	}

	// Over the input itself: refused, by this name and by another.
	link := filepath.Join(t.TempDir(), "link")
	names := []string{input}
	if os.Symlink(input, link) == nil {
		names = append(names, link)
	}
	for _, name := range names {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), []string{"reweight", input, "-o", name}, &stdout, &stderr, nil); status != 2 || stdout.Len() > 0 {
			t.Errorf("status %d with -o %s, output %q", status, name, stdout.String())
		}
	}
	after, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("the input has changed")
	}
}

// widen returns x as float64.
func widen(x []float32) []float64 {
	w := make([]float64, len(x))
	for i, v := range x {
		w[i] = float64(v)
	}
	return w
}

// disagreements are results that the library might compute wrongly, by what is
// then said.
var disagreements = map[string]func(k *losses.Computed){
	"GRPO: advantages[":      func(k *losses.Computed) { spoil(k.Uniform, 2e-5) },
	"AEM: advantages[":       func(k *losses.Computed) { spoil(k.Scaled, 1e-3) },
	"ActFocus: weights[":     func(k *losses.Computed) { spoil(k.Weights, 2e-5) },
	"uniform: gradient[":     func(k *losses.Computed) { spoil(k.Steps[0].Grad, 2e-5) },
	"AEM: gradient[":         func(k *losses.Computed) { k.Steps[2].Grad[0] = float32(math.NaN()) },
	"AEM: loss = ":           func(k *losses.Computed) { k.Steps[2].Loss += 1e-5 },
	"ActFocus+AEM: loss = N": func(k *losses.Computed) { k.Steps[3].Loss = math.NaN() },
}

// spoil changes the first element that is not 0, by little.
func spoil(x []float32, by float32) {
	i := slices.IndexFunc(x, func(v float32) bool { return v != 0 })
	x[i] *= 1 + by
}

// TestDisagreement: results that are not those of float64 are a failed check
// that names the step, whose tensors are not written; the figures are.
func TestDisagreement(t *testing.T) {
	file := write(t, embedded(t))
	for want, change := range disagreements {
		wrong := func(b *reweight.Batch, opt losses.Options) (*losses.Computed, error) {
			k, err := losses.Compute(b, opt)
			if err == nil && b.Tokens() > 1 { // not the one that options are tried on
				change(k)
			}
			return k, err
		}
		output := filepath.Join(t.TempDir(), "out.safetensors")
		for _, args := range [][]string{{file, "-format", "json", "-o", output}, {file}} {
			var out, stderr bytes.Buffer
			status := cli.ExitStatus("bench reweight", reweightCommand(args, &out, new(cli.Progress), wrong), &stderr)
			if line := stderr.String(); status != 1 || !strings.Contains(line, want) || !strings.Contains(line, "float64 has ") || strings.Count(line, "\n") != 1 {
				t.Errorf("%s: status %d, %q", want, status, line)
			}
			if len(args) == 1 != strings.Contains(out.String(), "The kernels are WRONG: "+want) || out.Len() == 0 {
				t.Errorf("%s: output %s", want, out.String())
			}
			if _, err := os.Stat(output); err == nil {
				t.Errorf("%s: written", want)
			}
		}
	}
}

// TestAgreementAtTheEdges: what float32 cannot decide is no disagreement: a
// ratio at a clip's bound or where it is clamped, widths of AEM that are the
// guard, and signals that are all the same.
func TestAgreementAtTheEdges(t *testing.T) {
	b := randomBatch(rand.New(rand.NewPCG(5, 5)))
	r := rand.New(rand.NewPCG(6, 6))
	for i, role := range b.Role {
		if role == reweight.RoleMasked {
			continue
		}
		b.RefEnergy[i], b.Entropy[i] = -20.1, 2.3+0.1*float32(b.SpanIDs[i]%2)
		edge := []float64{math.Log(0.8), math.Log(1.28), math.Log(3), 20, -20}[r.IntN(5)]
		b.OldLogprobs[i] = -1 - 30*r.Float32()
		b.Logprobs[i] = b.OldLogprobs[i] + float32(edge)
	}
	file := write(t, rollout.Tensors(b))
	for _, args := range []string{"", "-guard 0", "-eps 0", "-lambda 80", "-guard Inf", "-dual-clip 0", "-signal log_ratio", "-aggregation seq_mean_token_mean"} {
		runJSON(t, append(strings.Fields(args), file)...)
	}
}

// hostileText has what a terminal or a log could take for a command, and what turns
// text around.
const hostileText = "x\n::error::bad\r\x1b[31m\u202e\u2028\x7f\u009b2J\U000e0001<b>|"

// harmless reports whether text can be printed as it is.
func harmless(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.ContainsFunc(line, func(r rune) bool { return !strconv.IsPrint(r) }) {
			return false
		}
	}
	return true
}

// TestHostileFile: whatever the names in a file and of the file, nothing of them
// reaches the output as it is.
func TestHostileFile(t *testing.T) {
	dir := t.TempDir()
	path := func(n int, tensors []rollout.Tensor) string {
		p := filepath.Join(dir, strconv.Itoa(n)+hostileText)
		if err := rollout.Write(p, tensors, map[string]string{"vocab": `["` + hostileText + `"]`, hostileText: hostileText}); err != nil {
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
	}{{path(0, named), 0}, {path(1, without(embedded(t), "rewards")), 2}, {path(2, bad), 2}, {filepath.Join(dir, "3"+hostileText), 2}} {
		for _, format := range []string{"table", "json"} {
			var out, stderr bytes.Buffer
			status := run(t.Context(), []string{"reweight", "-format", format, c.path}, &out, &stderr, nil)
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
	var out, stderr bytes.Buffer
	if status := run(t.Context(), []string{"reweight", "-o", filepath.Join(dir, hostileText, "x.safetensors"), path(4, embedded(t))}, &out, &stderr, nil); status != 2 || !harmless(out.String()) || !harmless(stderr.String()) {
		t.Errorf("-o: status %d, printed %q and %q", status, out.String(), stderr.String())
	}
	for _, flag := range []string{"-baseline", "-out"} {
		out.Reset()
		stderr.Reset()
		if status := run(t.Context(), []string{"run", flag, path(5, embedded(t))}, &out, &stderr, nil); status != 2 || !harmless(out.String()) || !harmless(stderr.String()) {
			t.Errorf("%s: status %d, printed %q and %q", flag, status, out.String(), stderr.String())
		}
	}
}

// TestTooManyTokens: a summary that would take too much memory is refused.
func TestTooManyTokens(t *testing.T) {
	_, err := summariseFile(&reweight.Batch{Role: make([]reweight.Role, maxTokens+1)}, losses.Default(), losses.Compute)
	if err == nil || !strings.Contains(err.Error(), "split the file") {
		t.Errorf("error %v", err)
	}
}
