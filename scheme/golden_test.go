package scheme

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata/golden"
)

type (
	number = golden.Number
	roles  = golden.Small[reweight.Role]
)

func floats(n []number) []float32 {
	var f []float32
	for _, x := range n {
		f = append(f, float32(x))
	}
	return f
}

// near fails unless got is want to 1e-5 relative; NaN and infinities exactly.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(want) && math.IsNaN(got) || got == want {
		return
	}
	if !(math.Abs(got-want) <= 1e-5*math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func nearAll(t *testing.T, what string, got []float32, want []number) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		near(t, what, float64(got[i]), float64(want[i]))
	}
}

// A goldenCase is a case of testdata/golden: arrays of a batch, options, and answers, some
// of which have the name of an array.
type goldenCase struct {
	Name    string
	Error   string // an array and an index, or words about whitening
	Role    roles
	Options map[string]json.RawMessage

	SeqOffsets []int64 `json:"seq_offsets"`
	GroupIDs   []int32 `json:"group_ids"`
	SpanIDs    []int32 `json:"span_ids"`
	Anchors    []int32

	all map[string]json.RawMessage
}

func readGolden(t *testing.T, file string) (cases []*goldenCase) {
	var all []json.RawMessage
	golden.Read(t, file, &all)
	for _, text := range all {
		c := &goldenCase{}
		if err := json.Unmarshal(text, c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		must.Do(json.Unmarshal(text, &c.all))
		cases = append(cases, c)
	}
	return cases
}

// get returns the array of that name, nil if there is none.
func (c *goldenCase) get(name string) (x []number) { return valueOf[[]number](c.all[name]) }

func (c *goldenCase) num(option string) float64 { return float64(valueOf[number](c.Options[option])) }

func valueOf[E any](text json.RawMessage) (v E) {
	if text != nil {
		if err := json.Unmarshal(text, &v); err != nil {
			panic(err)
		}
	}
	return v
}

// named sets an option that has names.
func (c *goldenCase) named(option string, to interface{ UnmarshalText([]byte) error }) {
	if err := to.UnmarshalText([]byte(valueOf[string](c.Options[option]))); err != nil {
		panic(err)
	}
}

// batch returns the arrays of the case. One without roles is of trajectories of an action
// token each, or has one role per element of the mask.
func (c *goldenCase) batch() *reweight.Batch {
	f := func(name string) []float32 { return floats(c.get(name)) }
	b := &reweight.Batch{Role: c.Role, SeqOffsets: c.SeqOffsets, GroupIDs: c.GroupIDs, SpanIDs: c.SpanIDs,
		Anchors: c.Anchors, Rewards: f("rewards"), Entropy: f("entropy"), Advantages: f("advantages"),
		Logprobs: f("logprobs"), OldLogprobs: f("old_logprobs"), RefLogprobs: f("ref_logprobs"),
		RolloutLogprobs: f("rollout_logprobs"), TeacherLogprobs: f("teacher_logprobs"),
		TokenRewards: f("token_rewards"), SpanRewards: f("span_rewards"), RefEnergy: f("energy"), Values: f("values"),
		NewValues: f("new_values"), Returns: f("returns"), SumSqProbs: f("sum_sq_probs"),
		EntropyDrop: f("entropy_drop"), RewardParts: f("reward_parts")}
	switch {
	case c.Role == nil && c.all["mask"] != nil:
		b.Role = valueOf[roles](c.all["mask"])
		b.SeqOffsets = []int64{0, int64(len(b.Role))}
	case c.Role == nil:
		b.SeqOffsets = []int64{0}
		for q := range b.Rewards {
			b.Role, b.SeqOffsets = append(b.Role, reweight.RoleAction), append(b.SeqOffsets, int64(q+1))
		}
	}
	return b
}

// spread gives response tokens the value of their trajectory.
func (c *goldenCase) spread(of []number) []number {
	out := make([]number, len(c.Role))
	for q, v := range of {
		for i := c.SeqOffsets[q]; i < c.SeqOffsets[q+1]; i++ {
			if c.Role[i] != 0 {
				out[i] = v
			}
		}
	}
	return out
}

// goldenNames are the fields of options that have another name in the files.
var goldenNames = map[string][]string{
	"a1": {"Base"}, "a2": {"Bonus"}, "agg": {"Aggregation"}, "batch_norm": {"Normalize"}, "cap": {"RatioCap"}, "coef": {"CovCoef"},
	"cov_hi": {"CovHigh"}, "cov_lo": {"CovLow"}, "dual": {"DualClip"}, "hi": {"High", "ClipHigh", "EntropyHigh"}, "k_neg": {"PowerNeg"},
	"k_pos": {"PowerPos"}, "kf": {"KFuture"}, "l_neg": {"DecayNeg"}, "l_pos": {"DecayPos"}, "lam": {"Lambda"},
	"level": {"Sequence"}, "lo": {"Low", "ClipLow", "EntropyLow"}, "norm": {"Normalization", "NormLength"}, "per_step": {"PerStep"},
	"share": {"CovShare"}, "stat": {"Statistic"}, "std": {"DivideByStd"}, "tau_neg": {"TauNeg"}, "tau_pos": {"TauPos"}, "zero_tail": {"ZeroTail"},
}

// set sets the fields of a struct of options that the case has.
func (c *goldenCase) set(options any) {
	if l, ok := options.(*reweight.LossOptions); ok {
		l.Policy = reweight.PPO{}
		for _, e := range losses() {
			if underscored(valueOf[string](c.Options["kind"])) == e.loss.Policy.String() {
				l.Policy = e.loss.Policy
			}
		}
	}
	for name, text := range c.Options {
		for field, v := range Fields(reflect.ValueOf(options).Elem().Interface()) {
			if !strings.EqualFold(field, name) && !slices.Contains(goldenNames[name], field) ||
				v.Kind() == reflect.Interface {
				continue // of another entry, or the policy
			}
			x := reflect.New(v.Type())
			if v.Kind() == reflect.Float64 {
				x.Elem().SetFloat(c.num(name))
			} else {
				must.Do(json.Unmarshal(text, x.Interface()))
			}
			SetField(options, field, x.Elem())
		}
	}
}

// A goldenReader says how the cases of a file are to be read for an entry, after their options
// are set: the name of the answer, and what there is to do besides, which is false of a case of
// another entry.
type goldenReader struct {
	answer  string
	prepare func(c *goldenCase, o *Options) bool
}

// goldens are the readers of the entries whose answer is not "out". What follows a comma tells
// apart the readers of one entry.
var goldens = map[string]goldenReader{
	"actfocus":     {answer: "weights"},
	"aem":          {answer: "token_alpha"},
	"group_norm":   {answer: "advantages"},
	"group_mean":   {answer: "advantages_without_std"},
	"empg":         {answer: "advantages_out"},
	"otb":          {answer: "advantages"},
	"otb_turns":    {answer: "advantages"},
	"gigpo":        {answer: "advantages"},
	"entropy_mask": {answer: "mask"},
	"value_loss":   {answer: "gradient"},
	"gtpo":         {answer: "advantages"},
	"gtpo, shaped": {"shaped", func(_ *goldenCase, o *Options) bool {
		o.GTPO.Normalization = reweight.NormalizeNone
		return true
	}},
	"grpo_s": {"seq_advantages", func(c *goldenCase, o *Options) bool {
		c.named("seq_norm", &o.GRPOS.Normalization)
		return true
	}},
	"grpo_s, shaped": {"seq_shaped", func(_ *goldenCase, o *Options) bool {
		o.GRPOS.Normalization = reweight.NormalizeNone
		return true
	}},
	"rloo":         {"rloo", func(c *goldenCase, _ *Options) bool { return c.Role == nil }},
	"group_filter": {"keep", func(c *goldenCase, _ *Options) bool { return c.Role == nil }},
	"reinforce++":  {"advantages", func(c *goldenCase, _ *Options) bool { return strings.HasPrefix(c.Name, "reinforce++") }},
	"reinforce++_baseline": {"baseline_advantages", func(c *goldenCase, _ *Options) bool {
		return strings.HasPrefix(c.Name, "reinforce++")
	}},
	"overlong": {"penalty", func(c *goldenCase, _ *Options) bool { return c.Name == "overlong" }},
	"tis":      {"factors", func(c *goldenCase, o *Options) bool { return c.correction(&o.TIS) }},
	"icepop":   {"factors", func(c *goldenCase, o *Options) bool { return c.correction(&o.IcePop) }},
	"reject":   {"keep", func(c *goldenCase, _ *Options) bool { return c.Options["stat"] != nil }},
	"off_policy_mask": {"keep_factors", func(c *goldenCase, o *Options) bool {
		o.OffPolicyMask.Delta = c.num("delta")
		return c.Options["delta"] != nil
	}},
	"kl_rewards": {"token_rewards", func(c *goldenCase, o *Options) bool {
		c.named("kind", &o.KLRewards.KL)
		o.KLRewards.KLCoef = c.num("coef")
		c.all["old_logprobs"] = c.all["logprobs"] // what the policy's are here
		if c.Error != "" {
			o.KLRewards.KLCoef, c.Error = 1, "OldLogprobs[1]"
			c.all["old_logprobs"] = c.all["ref_logprobs"]
		}
		return true
	}},
	"gae": {"white", func(c *goldenCase, o *Options) bool {
		o.GAE = reweight.GAEOptions{Gamma: valueOf[float64](c.all["gamma"]), Lambda: valueOf[float64](c.all["lam"])}
		c.all["token_rewards"] = c.all["rewards"]
		var advantages []float64
		for _, a := range c.get("advantages") {
			advantages = append(advantages, float64(a))
		}
		b := &reference.Batch{Role: reference.Roles(c.batch().Role)}
		c.all["white"] = must.Get(json.Marshal(reference.Multiply(reference.Whiten(b, advantages),
			reference.UniformWeights(b))))
		return true
	}},
}

// correction sets how ratios are bounded.
func (c *goldenCase) correction(o *reweight.RolloutCorrectionOptions) bool {
	if c.Options["mode"] == nil {
		return false
	}
	o.Mask = valueOf[string](c.Options["mode"]) == "mask"
	return true
}

// TestGolden holds every entry, and its reference, to the answers of its file.
func TestGolden(t *testing.T) {
	for _, e := range Entries() {
		if e.Kind == Several || e.Kind == Loss { // TestGoldenLosses
			continue
		}
		readers := map[string]goldenReader{}
		for name, read := range goldens {
			if of, _, _ := strings.Cut(name, ","); of == e.Name {
				readers[name] = read
			}
		}
		if len(readers) == 0 {
			readers[e.Name] = goldenReader{answer: "out"}
		}
		for name, read := range readers {
			t.Run(name, func(t *testing.T) {
				cases := 0
				for _, c := range readGolden(t, e.golden) {
					opt := e.Defaults()
					if e.options != nil {
						c.set(e.options(&opt))
					}
					if read.prepare == nil || read.prepare(c, &opt) {
						cases++
						c.check(t, e, &opt, c.get(read.answer))
					}
				}
				if cases == 0 {
					t.Errorf("testdata/golden/%s: no case of %s", e.golden, e.Name)
				}
			})
		}
	}
}

// check compares what the entry makes of the case, in float32 and in float64.
func (c *goldenCase) check(t *testing.T, e *Entry, opt *Options, want []number) {
	t.Helper()
	b := c.batch()
	if n := b.Trajectories(); len(want) == n && n != b.Tokens() && e.Kind != Reward {
		want = c.spread(want)
	}
	dst := make([]float32, (&subject{Entry: e}).size(b))
	if c.failed(t, e.Compute(new(reweight.Workspace), dst, b, *opt)) {
		return
	}
	exactly(t, c.Name+": reference", e.Exact(b, *opt), want)
	for i, x := range want {
		w := float64(x)
		if g := float64(dst[i]); !(math.Abs(g-w) <= max(1e-10, 1e-5*math.Abs(w))) { // a difference may cancel
			t.Errorf("%s: element %d is %v, want %v", c.Name, i, g, w)
		}
	}
}

// tiny is allowed to gradients and losses: float32 underflows. VESPO's factor can be 1e-77.
const tiny = 1e-37

// nearSum is near for a loss whose terms have sizes that add up to size. They are summed
// in float32: where signs differ and the sum cancels, 1e-5 of it is not to be had.
func nearSum(t testing.TB, what string, got, want, size float64) {
	t.Helper()
	if !(math.Abs(got-want) <= max(1e-5*math.Abs(want), 1e-6*size, tiny)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// wideOrNil returns weights in float64; nil stands for ones.
func wideOrNil(weights []float32) []float64 {
	if weights == nil {
		return nil
	}
	return reference.Floats(weights)
}

// lossSize returns sum |share_t l_t| over response tokens, in float64. A token's term is
// the loss where the others have no advantage.
func lossSize(t testing.TB, b *reweight.Batch, weights []float32, opt reweight.LossOptions) (size float64) {
	t.Helper()
	x, w := Widen(b), wideOrNil(weights)
	all := x.Advantages
	x.Advantages = make([]float64, b.Tokens())
	for i, r := range x.Role {
		if r == reference.RoleMasked {
			continue
		}
		x.Advantages[i] = all[i]
		loss, _ := exactLoss(x, w, &opt)
		size += math.Abs(loss)
		x.Advantages[i] = 0
	}
	return size
}

// TestGoldenLosses holds the losses with weights to the answers, the number too.
func TestGoldenLosses(t *testing.T) {
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		for _, c := range slices.Concat(readGolden(t, "policy_losses.json"), readGolden(t, "policy_loss.json"),
			readGolden(t, "verl_losses.json")) {
			var opt reweight.LossOptions
			c.set(&opt)
			b := c.batch()
			weights, grad := floats(c.get("weights")), make([]float32, b.Tokens())
			res, err := ws.Loss(grad, weights, b, opt)
			if c.failed(t, err) {
				continue
			}
			what := fmt.Sprintf("%s: %#v: ", c.Name, opt.Policy)
			nearSum(t, what+"loss", res.Loss, valueOf[float64](c.all["loss"]), lossSize(t, b, weights, opt))
			if want := c.all["clip_fraction"]; want != nil {
				near(t, what+"clip fraction", res.ClipFraction, valueOf[float64](want))
			}
			nearTiny(t, what+"gradient", grad, c.get("gradient"))

			exact, gradient := exactLoss(Widen(b), wideOrNil(weights), &opt)
			exactly(t, what+"reference: loss", []float64{exact}, []number{valueOf[number](c.all["loss"])})
			exactly(t, what+"reference: gradient", gradient, c.get("gradient"))
		}
	}
}

// exactly holds the reference to an answer.
func exactly(t *testing.T, what string, got []float64, want []number) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, g := range got {
		if w := float64(want[i]); !(math.Abs(g-w) <= 1e-10*max(0.1, math.Abs(w))) { // an advantage may cancel
			t.Errorf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

// failed compares an error with the one that is wanted, and reports whether there is one.
func (c *goldenCase) failed(t *testing.T, err error) bool {
	t.Helper()
	var input *reweight.InputError
	switch {
	case c.Error == "" && err != nil:
		t.Errorf("%s: %v", c.Name, err)
	case c.Error != "" && !errors.As(err, &input):
		t.Errorf("%s: error %v, want one about %s", c.Name, err, c.Error)
	case c.Error != "":
		got := fmt.Sprintf("%s[%d]", input.Arg, input.Index)
		if !strings.EqualFold(got, c.Error) {
			t.Errorf("%s: error about %s, want %s", c.Name, got, c.Error)
		}
	}
	return err != nil
}

func nearTiny(t *testing.T, what string, got []float32, want []number) {
	t.Helper()
	for i, g := range got {
		if w := float64(want[i]); !(math.Abs(float64(g)-w) <= max(tiny, 1e-5*math.Abs(w))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

// TestGoldenKL: the policy's own part is 0, so that the loss and the gradient are those
// of the divergence.
func TestGoldenKL(t *testing.T) {
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		for _, c := range readGolden(t, "kl.json") {
			opt := reweight.LossOptions{Policy: reweight.PG{}, KLCoef: c.num("coef")}
			c.named("kind", &opt.KL)
			if c.Error != "" {
				opt.KLCoef = 1
			} else {
				c.named("agg", &opt.Aggregation)
			}
			b := c.batch()
			grad := make([]float32, b.Tokens())
			b.OldLogprobs, b.Advantages = b.Logprobs, make([]float32, b.Tokens())
			res, err := ws.Loss(grad, nil, b, opt)
			if c.failed(t, err) {
				continue
			}
			// The terms of k1 have both signs; those of the other forms do not cancel.
			what, size := fmt.Sprintf("%s: %v: ", c.Name, opt.KL), 0.0
			x, mean := Widen(b), aggregating(opt.Aggregation, 0)
			if opt.KL == reweight.KLK1 || opt.KL == reweight.KLK1Plus {
				size, _ = reference.KLLoss(x, reference.KLAbs, math.Abs(opt.KLCoef), mean)
			}
			want := valueOf[float64](c.all["loss"])
			nearSum(t, what+"loss", res.Loss, want, size)
			nearSum(t, what+"its KL", res.KLLoss, want, size)
			nearTiny(t, what+"gradient", grad, c.get("gradient"))
			exact, gradient := reference.KLLoss(x, reference.KLForm(opt.KL.String()), opt.KLCoef, mean)
			exactly(t, what+"reference: loss", []float64{exact}, []number{number(want)})
			exactly(t, what+"reference: gradient", gradient, c.get("gradient"))
		}
	}
}

// TestGoldenValueLoss: the number of the critic's loss, and returns of GAE.
func TestGoldenValueLoss(t *testing.T) {
	for _, isa := range reweight.AvailableISAs() {
		ws := reweight.Workspace{ISA: isa}
		for _, c := range readGolden(t, "value_loss.json") {
			var opt reweight.ValueLossOptions
			c.set(&opt)
			b := c.batch()
			res, err := ws.ValueLoss(make([]float32, b.Tokens()), b, opt)
			if !c.failed(t, err) {
				near(t, c.Name+": loss", res.Loss, valueOf[float64](c.all["loss"]))
				near(t, c.Name+": clip fraction", res.ClipFraction, valueOf[float64](c.all["clip_fraction"]))
			}
		}
		for _, c := range readGolden(t, "gae.json") {
			b := c.batch()
			returns := make([]float32, b.Tokens())
			opt := reweight.GAEOptions{Gamma: valueOf[float64](c.all["gamma"]), Lambda: valueOf[float64](c.all["lam"])}
			must.Do(ws.GAE(make([]float32, b.Tokens()), returns, b.Rewards, b, opt))
			x := Widen(b)
			x.TokenRewards = x.Rewards // as the file has them
			_, exact := reference.GAE(x, opt.Gamma, opt.Lambda)
			exactly(t, c.Name+": reference: returns", exact, c.get("returns"))
			for i, want := range c.get("returns") {
				if b.Role[i] != reweight.RoleMasked {
					near(t, c.Name+": return", float64(returns[i]), float64(want))
				}
			}
		}
	}
}

// TestGoldenSteps holds whole steps on rollouts of a trained policy to those of NumPy.
func TestGoldenSteps(t *testing.T) {
	for _, name := range []string{"frozenlake-small", "large/frozenlake"} {
		source := must.Get(rollout.Open("../testdata/" + name + ".safetensors"))
		defer source.Close()
		b := must.Get(source.Batch())
		goldenSteps(t, "step-"+path.Base(name)+".json", b)
	}
}

func goldenSteps(t *testing.T, file string, b *reweight.Batch) {
	var all map[string]json.RawMessage
	golden.Read(t, file, &all)
	type step struct {
		Loss         float64
		GradL1       float64 `json:"grad_l1"`
		GradL2       float64 `json:"grad_l2"`
		ClipFraction float64 `json:"clip_fraction"`
		WeightSum    float64 `json:"weight_sum"`
		ActionShare  float64 `json:"action_weight_share"`
	}
	var ws reweight.Workspace
	for _, name := range []string{"uniform", "actfocus", "aem", "actfocus+aem"} {
		st := must.Get(MustParse(name).NewStep(&ws, b))
		res := must.Get(st.Run())
		share := must.Get(diagnose.WeightMass(st.Weights, b.Role))
		l1, squares := 0.0, 0.0
		for _, g := range st.Grad {
			l1 += math.Abs(float64(g))
			squares += float64(g) * float64(g)
		}
		want := valueOf[step](all[name])
		near(t, name+": loss", res.Loss, want.Loss)
		near(t, name+": gradient l1", l1, want.GradL1)
		near(t, name+": gradient l2", math.Sqrt(squares), want.GradL2)
		near(t, name+": clip fraction", res.ClipFraction, want.ClipFraction)
		near(t, name+": sum of weights", res.WeightSum, want.WeightSum)
		near(t, name+": action tokens' weight", share, want.ActionShare)
		if err := st.Check(res); err != nil {
			t.Error(err)
		}
		_, _, loss, gradient := st.scheme.exact(b)
		l1, squares = 0, 0
		for _, g := range gradient {
			l1, squares = l1+math.Abs(g), squares+g*g
		}
		exactly(t, name+": reference", []float64{loss, l1, math.Sqrt(squares)},
			[]number{number(want.Loss), number(want.GradL1), number(want.GradL2)})
	}

	x := Widen(b)
	first := valueOf[struct{ First []number }](all["aem_span"]).First
	exactly(t, "factors of spans", reference.AEMSpans(x, 1, 0.1, reference.ScopeGroup)[:len(first)], first)
}

// TestGoldenLines: a golden file has a line for each array of numbers and for each number of
// an object, as trainers.py beside it writes them.
func TestGoldenLines(t *testing.T) {
	files := must.Get(filepath.Glob("../testdata/golden/*.json"))
	if len(files) < 25 {
		t.Errorf("%d files, want all golden files", len(files))
	}
	for _, file := range files {
		for i, line := range strings.Split(strings.TrimSpace(read(t, file)), "\n") {
			line = strings.TrimSuffix(line, ",")
			name, value, named := strings.Cut(line, `": `)
			if named && strings.HasPrefix(name, `"`) {
				line = value
			}
			bracket := slices.Contains([]string{"[", "{", "]", "}"}, line)
			if !bracket && (!named || strings.Contains(line, `{"`) || !json.Valid([]byte(line))) {
				t.Errorf("%s:%d is neither a bracket nor a name with one array or number: %.60s", file, i+1, line)
				break
			}
		}
	}
}
