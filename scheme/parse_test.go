package scheme

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

func TestParse(t *testing.T) {
	for names, want := range map[string]string{
		"uniform":                           "uniform",
		"vanilla":                           "uniform",
		"token-mean":                        "uniform",
		"bnpo":                              "uniform",
		"gpg":                               "gpg",
		"gpg+aem":                           "aem+gpg",
		"grpo-passk":                        "pass_at_k",
		"dppo-tv":                           "dppo_tv",
		"seq-mean-token-mean":               "seq_mean_token_mean",
		"aem+actfocus":                      "actfocus+aem", // in the order of the table
		"reinforce++":                       "reinforce++",
		"reinforce++_baseline":              "reinforce++_baseline",
		"reinforce+++aem":                   "aem+reinforce++",
		"reinforce_plus_plus+aem":           "aem+reinforce++",
		"reinforce+aem":                     "aem+reinforce++",
		"reinforce_plus_plus_baseline+sapo": "reinforce++_baseline+sapo",
		"grpo_s+grpo_s_ratio":               "grpo_s+grpo_s_ratio",
		"gigpo+actfocus+gspo":               "actfocus+gigpo+gspo",
		"uniform+aem":                       "aem",
		"empg+rloo":                         "rloo+empg",
		"tis+reject+off_policy_mask":        "tis+reject+off_policy_mask",
		"rloo+correction+cispo":             "rloo+cispo+tis",
		"dapo+rloo":                         "dapo+rloo",
		"gspo+group_mean":                   "group_mean+gspo",
		"kl_rewards+gae+value_loss":         "kl_rewards+gae+value_loss",
	} {
		if s, err := Parse(names); err != nil || s.Name != want {
			t.Errorf("%s: %s, %v, want %s", names, s.Name, err, want)
		}
	}
	for names, want := range map[string]string{
		"":                    `"": no scheme has the name ""; there are uniform, actfocus, aem, `,
		"gemm":                `no scheme has the name "gemm"; there are uniform`,
		"actfocsu":            `"actfocsu": no scheme has the name "actfocsu"; the nearest is "actfocus"`,
		"aem+act-focus":       `no scheme has the name "act_focus"; the nearest is "actfocus"`,
		"reinforce_plus_plu":  `the nearest is "reinforce_plus_plus"`,
		"clip_covs":           `no scheme has the name "clip_covs"; the nearest is "clip_cov"`,
		"uniform+":            `"uniform+": no`,
		"+aem":                `"+aem": no`,
		"aemactfocus":         `no scheme has the name "aemactfocus"`,
		"reinforce++aem":      `no scheme has the name "+aem"`,
		"overlong+gdpo":       "overlong and gdpo cannot stand together: the advantages are made from the parts of the reward, to which nothing is added",
		"gdpo+kl_rewards":     "gdpo and kl_rewards cannot stand together: the adv",
		"dapo+gdpo":           "dapo and gdpo cannot stand together: the adv",
		"gtpo+rloo":           `"gtpo+rloo": gtpo and rloo both make the advantages, and a step has them from one`,
		"grpo+gae":            "grpo and gae both make the advantages",
		"gspo+cispo":          `"gspo+cispo": gspo and cispo both are a loss, and a step has one`,
		"dapo+gspo":           "dapo and gspo both are a loss",
		"dapo+overlong":       "dapo and overlong both have overlong",
		"gspo+grpo":           "gspo and grpo both are a loss, and a step has one: gspo alone has the advantages of GRPO",
		"dr_grpo+cispo":       "dr_grpo and cispo both are a loss, and a step has one: cispo+group_mean has the advantages of Dr. GRPO",
		"dr_grpo+uniform+aem": "dr_grpo and uniform both are a loss",
		"aem+aem":             `"aem+aem": aem stands there twice`,
		"pg+pg":               "pg stands there twice",
		"pg+gpg":              "pg and gpg both are a loss, and a step has one: pg+gpg_advantages has the advantages of GPG",
		"rloo+gpg":            "rloo and gpg both make the advantages, and a step has them from one: rloo+pg has the loss of GPG",
		"aem+gmpo":            `"aem+gmpo": aem and gmpo cannot stand together: gmpo has no factors of tokens`,
		"dro+actfocus":        "dro and actfocus cannot stand together: dro has no weights of tokens",
		"clip_cov+tis":        "clip_cov has no factors of tokens",
		"group_filter+kl_cov": "kl_cov has no weights of tokens",
		"tis+icepop":          "tis and icepop both are the ratio to the engine, which would count twice",
		"kl_rewards+rloo":     "kl_rewards makes rewards of tokens, which no advantages here read: join reinforce++ or gae",
	} {
		if _, err := Parse(names); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", names, err, want)
		}
	}
}

// TestAll: each scheme reads as itself, and each entry and its synonyms are found.
func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if again, err := Parse(s.Name); err != nil || again.Name != s.Name || seen[s.Name] {
			t.Errorf("%s: %v, %v", s.Name, again.Name, err)
		}
		seen[s.Name] = true
	}
	if !seen["actfocus+aem"] || All()[0].Name != "uniform" {
		t.Errorf("%v", seen)
	}
	names := map[string]bool{}
	for _, e := range Entries() {
		if seen[e.Name] == e.part {
			t.Errorf("%s: among all %v", e.Name, seen[e.Name])
		}
		for _, name := range append(e.Synonyms, e.Name) {
			found, err := Find(name)
			if err != nil || found != e || names[name] {
				t.Errorf("%s: %v, %v", name, found, err)
			}
			names[name] = true
		}
	}
}

// TestTrainersNames: each name of verl's policy losses, aggregations and advantages, of
// TRL's loss_type, and of OpenRLHF's and slime's advantages and corrections is here, or is
// said to be left out, with hyphens and beside others too.
func TestTrainersNames(t *testing.T) {
	for _, c := range []struct{ name, entry string }{
		// verl, policy_loss.loss_mode and loss_agg_mode
		{"vanilla", "uniform"}, {"dppo_tv", "dppo_tv"}, {"dppo_kl", "dppo_kl"}, {"gspo", "gspo"}, {"sapo", "sapo"}, {"gpg", "gpg"},
		{"clip_cov", "clip_cov"}, {"kl_cov", "kl_cov"}, {"geo_mean", "gmpo"}, {"dro", "dro"}, {"cispo", "cispo"}, {"bypass_mode", ""},
		{"token_mean", "uniform"}, {"seq_mean_token_sum", "seq_mean_token_sum"}, {"seq_mean_token_mean", "seq_mean_token_mean"},
		{"seq_mean_token_sum_norm", "seq_mean_token_sum_norm"},
		// verl, adv_estimator; gpg is above
		{"gae", "gae"}, {"grpo", "grpo"}, {"grpo_vectorized", "grpo"}, {"grpo_passk", "pass_at_k"}, {"rloo", "rloo"}, {"rloo_vectorized", "rloo"},
		{"reinforce_plus_plus", "reinforce++"}, {"reinforce_plus_plus_baseline", "reinforce++_baseline"},
		{"opo", "opo"}, {"remax", ""}, {"gdpo", "gdpo"}, {"optimal_token_baseline", "otb"}, {"tir_optimal_token_baseline", "otb_turns"},
		{"overlong_buffer", "overlong"}, {"filter_groups", "group_filter"}, {"use_kl_in_reward", "kl_rewards"},
		// TRL, loss_type; grpo, cispo and sapo are above
		{"dr_grpo", "dr_grpo"}, {"dapo", "dapo"}, {"bnpo", "uniform"}, {"luspo", "luspo"}, {"vespo", "vespo"},
		// OpenRLHF and slime
		{"group_norm", "group_norm"}, {"reinforce", "reinforce++"}, {"reinforce_baseline", "reinforce++_baseline"}, {"tis", "tis"}, {"icepop", "icepop"},
		{"ppo", "uniform"}, {"opsm", "off_policy_mask"},
	} {
		hyphens := strings.ReplaceAll(c.name, "_", "-")
		for _, name := range []string{c.name, hyphens} {
			for _, text := range []string{name, name + "+aem"} {
				if e, err := Find(name); err == nil && e.Without[Factor] != "" {
					text = name // the factors of AEM are refused
				}
				s, err := Parse(text)
				switch {
				case c.entry == "kl_rewards": // not without rewards of tokens
					s, err = Parse(text + "+gae")
				case c.entry == "":
					if err == nil || !strings.HasSuffix(err.Error(),
						`": `+c.name+" is verl's, and not here: docs/schemes.md lists what is left out") {
						t.Errorf("%s: %v", text, err)
					}
					continue
				}
				if err != nil || !s.Has(c.entry) {
					t.Errorf("%s: %s, %v, want %s", text, s.Name, err, c.entry)
				}
			}
		}
	}
}

// TestLacks: what is missing is said before anything is computed.
func TestLacks(t *testing.T) {
	one := []float32{0}
	full := reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, Rewards: one,
		SpanIDs: []int32{0}, Values: one, RefEnergy: one, Entropy: one, OldLogprobs: one, Logprobs: one,
		RolloutLogprobs: one, TeacherLogprobs: one, Anchors: []int32{0}, SpanRewards: one, SumSqProbs: one,
		EntropyDrop: one, RewardParts: one,
	}
	lacks := func(name string, b *reweight.Batch, change func(*Options)) string {
		s := MustParse(name)
		s.Options.setMissing(0.1)
		if change != nil {
			change(&s.Options)
		}
		var missing *LacksError
		switch _, err := s.NewStep(new(reweight.Workspace), b); {
		case err == nil:
			return ""
		case !errors.As(err, &missing) || missing.Scheme != s.Name:
			t.Fatalf("%s: %v", s.Name, err)
		default:
			return strings.TrimPrefix(err.Error(), s.Name+" ")
		}
		return ""
	}
	for _, s := range All() {
		if got := lacks(s.Name, &full, nil); got != "" {
			t.Errorf("%s %s", s.Name, got)
		}
	}
	for _, c := range []struct {
		scheme, want string
		change       func(b *reweight.Batch)
	}{
		{"gigpo", "needs anchors and span_rewards", func(b *reweight.Batch) { b.Anchors, b.SpanRewards = nil, nil }},
		{"gigpo+aem", "needs entropy, span_ids and span_rewards", func(b *reweight.Batch) { b.SpanIDs, b.SpanRewards, b.Entropy = nil, nil, nil }},
		{"uniform", "needs rewards or advantages", func(b *reweight.Batch) { b.Rewards = nil }},
		{"uniform", "", func(b *reweight.Batch) { b.Rewards, b.GroupIDs, b.Advantages = nil, nil, one }},
		{"uniform", "needs group_ids", func(b *reweight.Batch) { b.GroupIDs = nil }},
		{"uniform", "needs role and seq_offsets", func(b *reweight.Batch) { b.Role, b.SeqOffsets = nil, nil }},
		{"aem", "needs group_ids", func(b *reweight.Batch) { b.GroupIDs = nil }},
		{"cispo", "needs logprobs and old_logprobs", func(b *reweight.Batch) { b.OldLogprobs, b.Logprobs = nil, nil }},
		{"rloo", "needs rewards", func(b *reweight.Batch) { b.Rewards, b.Advantages = nil, one }},
		{"overlong", "needs rewards", func(b *reweight.Batch) { b.Rewards, b.Advantages, b.TokenRewards = nil, one, one }},
		{"reinforce++", "needs token_rewards or rewards", func(b *reweight.Batch) { b.Rewards = nil }},
		{"reinforce++", "", func(b *reweight.Batch) { b.Rewards, b.TokenRewards = nil, one }},
		{"gae", "needs values", func(b *reweight.Batch) { b.Values = nil }},
		{"gae+value_loss", "needs new_values", func(b *reweight.Batch) {}},
		{"value_loss", "needs new_values and returns", func(b *reweight.Batch) {}},
		{"actfocus", "needs ref_energy", func(b *reweight.Batch) { b.RefEnergy = nil }},
		{"tis", "needs rollout_logprobs", func(b *reweight.Batch) { b.RolloutLogprobs = nil }},
	} {
		b := full
		c.change(&b)
		if got := lacks(c.scheme, &b, nil); got != c.want {
			t.Errorf("%s: %q, want %q", c.scheme, got, c.want)
		}
	}
	if _, err := MustParse("off_policy_mask").NewStep(new(reweight.Workspace), &full); err == nil ||
		err.Error() != "off_policy_mask needs Options.OffPolicyMask.Delta, which has no default" {
		t.Error(err)
	}
	if _, err := MustParse("dro").NewStep(new(reweight.Workspace), &full); err == nil ||
		err.Error() != "dro needs Options.Loss.Policy.Beta, which has no default" {
		t.Error(err)
	}
	anchored := func(opt *Options) { opt.Loss.KLCoef = 1 }
	if got := lacks("gspo", &full, anchored); got != "needs ref_logprobs" {
		t.Errorf("%q", got)
	}
	spans := func(opt *Options) { opt.setLoss("Sequence", reweight.SequenceSpan) }
	b := full
	if b.SpanIDs = nil; lacks("gspo", &b, spans) != "needs span_ids" || lacks("gspo", &b, nil) != "" ||
		lacks("vespo", &b, spans) != "" {
		t.Error("the spans of GSPO")
	}
	b = reweight.Batch{Role: full.Role, Logprobs: one, OldLogprobs: one, Advantages: one, NewValues: one, Values: one,
		Returns: one}
	byTrajectory := func(opt *Options) { opt.ValueLoss.Aggregation = reweight.SeqMeanTokenSum }
	if lacks("value_loss", &b, nil) != "" || lacks("value_loss", &b, byTrajectory) != "needs seq_offsets" {
		t.Error("the trajectories of the value loss")
	}
	b = full
	b.RefEnergy = nil
	if got := lacks("actfocus", &b, func(opt *Options) { opt.ActFocus.Signal = reweight.SignalSurprisal }); got != "" {
		t.Errorf("%q", got)
	}
	if got := MustParse("aem+gspo").Reads(); !slices.Equal(got,
		[]string{"advantages", "entropy", "group_ids", "logprobs", "old_logprobs", "rewards", "role", "seq_offsets",
			"span_ids"}) {
		t.Errorf("reads %v", got)
	}
}

// A loss without factors of tokens is refused beside them also where it is set after Parse.
func TestLossSetLater(t *testing.T) {
	s := MustParse("aem")
	s.Options.Loss = reweight.DefaultGMPO
	x := []float32{0}
	_, err := s.NewStep(new(reweight.Workspace),
		&reweight.Batch{Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0},
			SpanIDs: []int32{0}, Rewards: x, Entropy: x, OldLogprobs: x, Logprobs: x})
	var input *reweight.InputError
	if !errors.As(err, &input) || input.Arg != "Options.Loss.Policy" {
		t.Errorf("%v, want an InputError about the policy", err)
	}
}
