package schemes

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
)

func TestParse(t *testing.T) {
	for list, want := range map[string]string{
		"uniform":                           "uniform",
		"vanilla":                           "uniform",
		"gpg,bnpo":                          "pg uniform",
		"dppo-tv":                           "dppo_tv",
		"aem+actfocus":                      "actfocus+aem", // in the order of the table
		"reinforce++":                       "reinforce++",
		"reinforce++_baseline":              "reinforce++_baseline",
		"reinforce+++aem":                   "aem+reinforce++",
		"reinforce_plus_plus+aem":           "aem+reinforce++",
		"reinforce_plus_plus_baseline+sapo": "reinforce++_baseline+sapo",
		"grpo_s+grpo_s_ratio":               "grpo_s+grpo_s_ratio",
		"gigpo+actfocus+gspo,rloo":          "actfocus+gigpo+gspo rloo",
		"empg+rloo":                         "rloo+empg",
		"tis+reject+off_policy_mask":        "tis+reject+off_policy_mask",
		"dapo+rloo":                         "dapo+rloo",
	} {
		picked, err := Parse(list)
		var got []string
		for _, s := range picked {
			got = append(got, s.Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v, want %s", list, got, err, want)
		}
	}
	for list, want := range map[string]string{
		"":                          `has "", want some of [uniform actfocus aem `,
		"all,uniform":               `has "all,uniform", want names without all, which stands alone`,
		"tis,all":                   "all, which stands alone",
		"clip_covs":                 `has "clip_covs", want some of`,
		"uniform,":                  `has ""`,
		"uniform+":                  `has "uniform+"`,
		"+aem":                      `has "+aem"`,
		"aemactfocus":               `has "aemactfocus"`,
		"reinforce++aem":            `has "reinforce++aem"`,
		"gtpo+rloo":                 `has "gtpo+rloo": gtpo and rloo both make the advantages`,
		"gspo+cispo":                `has "gspo+cispo": gspo and cispo both are a loss`,
		"dapo+gspo":                 "dapo and gspo both are a loss",
		"gspo+grpo":                 "gspo and grpo both are a loss: gspo has GRPO's advantages already; -divide-by-std=false of bench reweight makes",
		"dr_grpo+cispo":             "dr_grpo and cispo both are a loss: cispo has GRPO's advantages already",
		"dr_grpo+uniform+aem":       "dr_grpo and uniform both are a loss: uniform has GRPO's advantages already",
		"aem+aem":                   `has "aem+aem": aem stands there twice`,
		"pg+gpg":                    "pg stands there twice",
		"tis+icepop":                "tis and icepop both are the ratio to the engine",
		"uniform,vanilla":           `has "uniform" twice`,
		"uniform+aem,aem":           `has "aem" twice`,
		"aem+actfocus,actfocus+aem": `has "actfocus+aem" twice`,
	} {
		if _, err := Parse(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", list, err, want)
		}
	}
}

// TestAll: all names the table, each of which reads as itself, and what trainers call it.
func TestAll(t *testing.T) {
	all, err := Parse("all")
	if err != nil || len(all) != len(table)+1 || all[0].Name != Uniform().Name {
		t.Fatalf("%d schemes, %v", len(all), err)
	}
	seen := map[string]bool{}
	for i, s := range all {
		one, err := Parse(s.Name)
		if err != nil || len(one) != 1 || one[0].Name != s.Name || !slices.Equal(one[0].parts, s.parts) {
			t.Errorf("scheme %d, %s: %v, %v", i, s.Name, one, err)
		}
		for _, p := range s.parts {
			if p.about == "" || !strings.Contains(Usage(), "  "+p.name+" ") || seen[p.name] && len(s.parts) == 1 {
				t.Errorf("%s: about %q", p.name, p.about)
			}
			seen[p.name] = true
		}
	}
	for line := range strings.Lines(Usage()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

// TestTrainersNames: each name of verl's policy losses and advantages and of TRL's
// loss_type is a scheme, or is said to be left out, in a list and beside others too.
func TestTrainersNames(t *testing.T) {
	for _, c := range []struct{ name, scheme string }{
		// verl, policy_loss.loss_mode
		{"vanilla", "uniform"}, {"dppo_tv", "dppo_tv"}, {"dppo_kl", ""}, {"gspo", "gspo"}, {"sapo", "sapo"}, {"gpg", "pg"},
		{"clip_cov", ""}, {"kl_cov", ""}, {"geo_mean", ""}, {"dro", ""}, {"cispo", "cispo"}, {"bypass_mode", ""},
		// verl, adv_estimator; gpg is above
		{"gae", ""}, {"grpo", "grpo"}, {"grpo_vectorized", "grpo"}, {"grpo_passk", ""}, {"rloo", "rloo"}, {"rloo_vectorized", "rloo"},
		{"reinforce_plus_plus", "reinforce++"}, {"reinforce_plus_plus_baseline", "reinforce++_baseline"},
		{"opo", ""}, {"remax", ""}, {"gdpo", ""}, {"optimal_token_baseline", ""}, {"tir_optimal_token_baseline", ""},
		// TRL, loss_type; grpo, cispo and sapo are above
		{"dr_grpo", "dr_grpo"}, {"dapo", "dapo"}, {"bnpo", "uniform"}, {"luspo", "luspo"}, {"vespo", "vespo"},
	} {
		hyphens := strings.ReplaceAll(c.name, "_", "-")
		for _, list := range []string{c.name, hyphens, c.name + "+aem", "tis+" + hyphens, "empg," + c.name} {
			picked, err := Parse(list)
			if c.scheme == "" {
				want := fmt.Sprintf("%q: %s is verl's, and not here: docs/schemes.md lists what is left out", strings.TrimPrefix(list, "empg,"), c.name)
				if err == nil || !strings.HasSuffix(err.Error(), want) {
					t.Errorf("%s: %v, want %s", list, err, want)
				}
				continue
			}
			want := c.scheme
			if c.scheme == "uniform" && strings.Contains(list, "+") { // which the other name implies
				want = strings.Trim(strings.NewReplacer(c.name, "", hyphens, "").Replace(list), "+")
			}
			if err != nil || !slices.ContainsFunc(picked[len(picked)-1].parts, func(p *part) bool { return p.name == want }) {
				t.Errorf("%s: %v, %v, want %s", list, picked, err, want)
			}
		}
	}
}

func TestLacks(t *testing.T) {
	one := []float32{0}
	full := reweight.Batch{
		Role: []reweight.Role{reweight.RoleAction}, SeqOffsets: []int64{0, 1}, GroupIDs: []int32{0}, Rewards: one, SpanIDs: []int32{0},
		RefEnergy: one, Entropy: one, OldLogprobs: one, Logprobs: one, RolloutLogprobs: one, Anchors: []int32{0}, SpanRewards: one,
	}
	delta := 0.1
	all := Default()
	all.Delta = &delta
	for _, s := range All() {
		if lacks := s.Lacks(&full, all); lacks != "" {
			t.Errorf("%s %s", s.Name, lacks)
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
		{"aem", "needs group_ids", func(b *reweight.Batch) { b.GroupIDs = nil }},
		{"cispo", "needs old_logprobs and logprobs", func(b *reweight.Batch) { b.OldLogprobs, b.Logprobs = nil, nil }},
		{"rloo", "needs rewards", func(b *reweight.Batch) { b.Rewards, b.Advantages = nil, one }},
		{"reinforce++", "needs token_rewards or rewards", func(b *reweight.Batch) { b.Rewards = nil }},
		{"reinforce++", "", func(b *reweight.Batch) { b.Rewards, b.TokenRewards = nil, one }},
		{"actfocus", "needs ref_energy", func(b *reweight.Batch) { b.RefEnergy = nil }},
		{"tis", "needs rollout_logprobs", func(b *reweight.Batch) { b.RolloutLogprobs = nil }},
	} {
		b := full
		c.change(&b)
		picked, err := Parse(c.scheme)
		if err != nil {
			t.Fatal(err)
		}
		if got := picked[0].Lacks(&b, all); got != c.want {
			t.Errorf("%s: %q, want %q", c.scheme, got, c.want)
		}
	}
	mask, _ := Parse("off_policy_mask")
	if got := mask[0].Lacks(&full, Default()); got != "needs -delta, which has no default" {
		t.Errorf("%q", got)
	}
	anchored := Default()
	anchored.Loss = func(l *reweight.LossOptions) { l.KLCoef = 1 }
	if got := mask[0].Lacks(&full, anchored); got != "needs ref_logprobs for -kl-coef and -delta, which has no default" {
		t.Errorf("%q", got)
	}
	if got := mask[0].Arrays(anchored); !slices.Contains(got, "ref_logprobs") {
		t.Errorf("arrays %v", got)
	}
	surprisal := Default()
	surprisal.ActFocus.Signal = reweight.SignalSurprisal
	focus, _ := Parse("actfocus")
	full.RefEnergy = nil
	if got := focus[0].Lacks(&full, surprisal); got != "" {
		t.Errorf("%q", got)
	}
}
