package scheme

import (
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
)

//go:generate go test -run TestTables -update .

// Options are those of the entries, each with the constants of its paper in what Parse
// returns. Loss is that of the scheme's loss.
type Options struct {
	Overlong          reweight.OverlongPenaltyOptions
	KLRewards         reweight.KLRewardsOptions
	GRPO              reweight.GRPOOptions // group_mean never divides
	ReinforcePlusPlus reweight.ReinforcePlusPlusOptions
	GiGPO             reweight.GiGPOOptions
	OTB, OTBTurns     reweight.OTBOptions
	GTPO, GRPOS       reweight.GTPOOptions
	GAE               reweight.GAEOptions
	PassAtK           reweight.PassAtKOptions
	GDPO              reweight.GDPOOptions
	EMPG              reweight.EMPGOptions
	AEM               reweight.AEMOptions
	TIS, IcePop       reweight.RolloutCorrectionOptions
	FIPO              reweight.FIPOOptions
	RLSD              reweight.RLSDOptions
	Delta             float64 // of off_policy_mask, nats; NaN at first, because it has no default
	ActFocus          reweight.ActFocusOptions
	EntropyMask       reweight.EntropyMaskOptions
	Reject            reweight.RejectOptions
	Loss              reweight.LossOptions
	ValueLoss         reweight.ValueLossOptions
}

func defaults() Options {
	return Options{
		Overlong: reweight.DefaultOverlongPenalty, KLRewards: reweight.DefaultKLRewards, GRPO: reweight.DefaultGRPO,
		ReinforcePlusPlus: reweight.DefaultReinforcePlusPlus, GiGPO: reweight.DefaultGiGPO, OTB: reweight.DefaultOTB, OTBTurns: reweight.DefaultOTBTurns, GTPO: reweight.DefaultGTPO, GRPOS: reweight.DefaultGRPOS,
		GAE: reweight.DefaultGAE, PassAtK: reweight.DefaultPassAtK, GDPO: reweight.DefaultGDPO, EMPG: reweight.DefaultEMPG, AEM: reweight.DefaultAEM, TIS: reweight.DefaultRolloutCorrection,
		IcePop: reweight.DefaultIcePop, FIPO: reweight.DefaultFIPO, RLSD: reweight.DefaultRLSD, Delta: math.NaN(), ActFocus: reweight.DefaultActFocus, EntropyMask: reweight.DefaultEntropyMask,
		Reject: reweight.DefaultReject, Loss: reweight.DefaultLoss, ValueLoss: reweight.DefaultValueLoss,
	}
}

type (
	workspace = reweight.Workspace
	batch     = reweight.Batch
)

const tokenRewards = "token_rewards|rewards" // of the tokens, or the outcome at the last of them

var (
	outcome   = []string{"seq_offsets", "group_ids", "rewards"}
	ofRollout = []string{"seq_offsets", "old_logprobs", "rollout_logprobs"}
	anywhere  = []string{Any}
)

// signalReads has what ActFocus reads for each signal: made once, because a step's start
// should leave nothing behind.
var signalReads = map[reweight.Signal][]string{}

func init() {
	for _, signal := range [...]reweight.Signal{reweight.SignalEnergy, reweight.SignalRefEntropy, reweight.SignalSurprisal, reweight.SignalLogRatio} {
		signalReads[signal] = signal.Arrays()
	}
}

// The losses that differ from the clipped surrogate in their aggregation only.
var (
	seqMeanTokenMean    = aggregated(reweight.SeqMeanTokenMean)
	seqMeanTokenSum     = aggregated(reweight.SeqMeanTokenSum)
	seqMeanTokenSumNorm = aggregated(reweight.SeqMeanTokenSumNorm)
)

func aggregated(a reweight.Aggregation) reweight.LossOptions {
	opt := reweight.DefaultLoss
	opt.Aggregation = a
	return opt
}

// policy makes an entry of the loss with those options.
func policy(opt *reweight.LossOptions, e Entry) Entry {
	e.Kind, e.Method, e.loss = Loss, "Loss", opt
	e.reads = func(opt *Options) []string { return lossReads(&opt.Loss) }
	e.Reads, e.Alias = lossReads(opt), []string{"logprobs", "old_logprobs", "advantages", "ref_logprobs"}
	e.options = func(opt *Options) any { return &opt.Loss }
	e.call = func(ws *workspace, dst []float32, b *batch, opt *Options) error {
		_, err := ws.Loss(dst, nil, b, opt.Loss)
		return err
	}
	e.reference = func(b *reference.Batch, opt *Options) []float64 {
		_, gradient := exactLoss(b, nil, &opt.Loss)
		return gradient
	}
	if e.golden == "" {
		e.golden = "policy_losses.json"
	}
	return e
}

// otb makes an entry of the optimal token baseline with those options.
func otb(defaultName string, options func(opt *Options) *reweight.OTBOptions, e Entry) Entry {
	e.Kind, e.Method, e.DefaultName, e.golden = Advantage, "OTB", defaultName, "otb.json"
	e.Reads, e.Alias = []string{"seq_offsets", "group_ids", "old_logprobs", "sum_sq_probs", tokenRewards}, anywhere
	e.options = func(opt *Options) any { return options(opt) }
	e.call = func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.OTB(dst, b, *options(opt)) }
	e.reference = func(b *reference.Batch, opt *Options) []float64 {
		o := options(opt)
		return reference.OTB(b, reference.OTBOptions{Turns: o.Turns, ZeroTail: o.ZeroTail})
	}
	return e
}

// lossReads returns what a loss with those options reads.
func lossReads(opt *reweight.LossOptions) []string {
	all := []string{"advantages", "logprobs", "old_logprobs"}
	ofSequence := opt.Policy == reweight.PolicyGSPO || opt.Policy == reweight.PolicyGRPOS
	if opt.Aggregation != reweight.TokenMean || ofSequence || opt.Policy == reweight.PolicyVESPO || opt.Policy == reweight.PolicyGMPO {
		all = append(all, "seq_offsets")
	}
	if ofSequence && opt.Sequence == reweight.SequenceSpan {
		all = append(all, "span_ids")
	}
	if opt.KLCoef != 0 {
		all = append(all, "ref_logprobs")
	}
	return all
}

// table is the catalogue, in the order of reports. A step goes through it kind by kind.
var table = []Entry{
	policy(&reweight.DefaultLoss, Entry{
		Name: "uniform", Synonyms: []string{"vanilla", "ppo", "bnpo", "token_mean"}, Title: "PPO", Source: "1707.06347",
		Doc:         "the clipped surrogate, averaged over tokens",
		Formula:     "max(-Aρ, -A clip(ρ, 1-lo, 1+hi)); where A < 0 at most -A `DualClip`",
		DefaultName: "DefaultLoss", golden: "policy_loss.json",
	}),
	{
		Name: "actfocus", Title: "ActFocus", Source: "2605.14558",
		Doc:     "little for reasoning tokens, for action tokens by their energy",
		Formula: "α; 1 + β sigmoid((E - μ)/σ) for action tokens",
		Kind:    Weight, Method: "ActFocus", DefaultName: "DefaultActFocus", golden: "actfocus.json",
		Reads: []string{"ref_energy"}, Alias: []string{"ref_energy"},
		reads:   func(opt *Options) []string { return signalReads[opt.ActFocus.Signal] },
		options: func(opt *Options) any { return &opt.ActFocus },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			_, err := ws.ActFocus(dst, b, opt.ActFocus)
			return err
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			o := opt.ActFocus
			return reference.ActFocus(b, reference.ActFocusOptions{Signal: reference.Signal(o.Signal.String()), Alpha: o.Alpha, Beta: o.Beta, Eps: o.Eps})
		},
	},
	{
		Name: "aem", Title: "AEM", Source: "2605.00425",
		Doc:     "by the entropy of the whole response",
		Formula: "e^(-λ x)/mean; x is H̄_s scaled to [0, 1] over its group, or `Scope`, and the mean is over the spans there; 1 where max - min < `Guard`",
		Kind:    Factor, Method: "AEM", DefaultName: "DefaultAEM", golden: "aem.json",
		Reads: []string{"seq_offsets", "group_ids", "span_ids", "entropy"}, Masked: 1, Alias: []string{"entropy"},
		options: func(opt *Options) any { return &opt.AEM },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.AEM(dst, b, opt.AEM) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			o := opt.AEM
			return reference.AEM(b, o.Lambda, o.Guard, reference.Scope(o.Scope.String()))
		},
	},
	{
		Name: "grpo", Synonyms: []string{"grpo_vectorized"}, Title: "GRPO", Source: "verl",
		Doc: "GRPO's advantages, and the mean over trajectories of means over tokens",
		Of:  []string{"group_norm", "seq_mean_token_mean"},
	},
	{
		Name: "dr_grpo", Title: "Dr. GRPO", Source: "2503.20783",
		Doc: "no standard deviation, and sums over one length",
		Of:  []string{"group_mean", "seq_mean_token_sum_norm"},
	},
	{
		Name: "dapo", Title: "DAPO", Source: "2503.14476",
		Doc: "the overlong penalty, and no groups of equal rewards",
		Of:  []string{"overlong", "group_filter", "uniform"},
	},
	{
		Name: "gpg", Title: "GPG", Source: "2504.02546",
		Doc: "the policy gradient without a ratio, and advantages for it",
		Of:  []string{"gpg_advantages", "pg"},
	},
	{
		Name: "group_norm", Title: "GRPO", Source: "verl",
		Doc:     "the reward among those of its group",
		Formula: "(r - mean_g)/(std_g + 1e-6)",
		Kind:    Advantage, Method: "GRPO", DefaultName: "DefaultGRPO", golden: "grpo.json", part: true,
		Reads: outcome, Alias: anywhere,
		options:   func(opt *Options) any { return &opt.GRPO },
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GRPO(dst, b, opt.GRPO) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.GRPO(b, opt.GRPO.DivideByStd) },
	},
	{
		Name: "group_mean", Title: "Dr. GRPO", Source: "2503.20783",
		Doc:     "the reward less the mean of its group",
		Formula: "r - mean_g",
		Kind:    Advantage, Method: "GRPO", golden: "grpo.json", part: true,
		Reads: outcome, Alias: anywhere,
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.GRPO(dst, b, reweight.GRPOOptions{})
		},
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.GRPO(b, false) },
	},
	{
		Name: "overlong", Synonyms: []string{"overlong_buffer"}, Title: "overlong penalty", Source: "2503.14476",
		Doc:     "a penalty for responses that are too long",
		Formula: "max(-P, min(0, -P (n_q - (Lmax - Lbuf))/Lbuf)), to be added to r; P, Lmax and Lbuf are `Penalty`, `Maximum` and `Buffer`",
		Kind:    Reward, Method: "OverlongPenalty", DefaultName: "DefaultOverlongPenalty", golden: "baselines.json", part: true,
		Reads: []string{"seq_offsets"}, Alias: []string{"rewards"},
		options: func(opt *Options) any { return &opt.Overlong },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.OverlongPenalty(dst, b, opt.Overlong)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.OverlongPenalty(b, opt.Overlong.Maximum, opt.Overlong.Buffer, opt.Overlong.Penalty)
		},
	},
	{
		Name: "kl_rewards", Synonyms: []string{"use_kl_in_reward"}, Title: "KL in the reward", Source: "verl",
		Doc:     "of tokens: the outcome, less the divergence from the reference",
		Formula: "r_t = [last response token] r - `KLCoef` k_t of l_old against l_ref",
		Kind:    Reward, Method: "KLRewards", DefaultName: "DefaultKLRewards", golden: "kl.json", part: true,
		Reads: []string{"seq_offsets", "rewards", "old_logprobs", "ref_logprobs"}, Alias: anywhere,
		options: func(opt *Options) any { return &opt.KLRewards },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.KLRewards(dst, b, opt.KLRewards)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.KLRewards(b, reference.KLForm(opt.KLRewards.KL.String()), opt.KLRewards.KLCoef)
		},
	},
	{
		Name: "group_filter", Synonyms: []string{"filter_groups"}, Title: "group filter", Source: "2503.14476",
		Doc:     "0 for groups of equal rewards",
		Formula: "1 if the rewards of the group differ, or it has one member",
		Kind:    Weight, Method: "GroupFilter", golden: "baselines.json", part: true,
		Reads: outcome, Alias: anywhere,
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GroupFilter(dst, b) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.GroupFilter(b) },
	},
	{
		Name: "rloo", Synonyms: []string{"rloo_vectorized"}, Title: "RLOO", Source: "2402.14740",
		Doc:     "the reward less the mean of the others in its group",
		Formula: "n/(n-1) (r - mean_g)",
		Kind:    Advantage, Method: "RLOO", golden: "baselines.json",
		Reads: outcome, Alias: anywhere,
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.RLOO(dst, b) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.RLOO(b) },
	},
	{
		Name: "reinforce++", Synonyms: []string{"reinforce_plus_plus", "reinforce"}, Title: "REINFORCE++", Source: "2501.03262",
		Doc:     "discounted sums of token rewards, whitened",
		Formula: "G_t = r_t + γ G_next, whitened over the batch",
		Kind:    Advantage, Method: "ReinforcePlusPlus", DefaultName: "DefaultReinforcePlusPlus", golden: "baselines.json",
		Reads: []string{"seq_offsets", tokenRewards}, Alias: []string{"token_rewards"},
		options: func(opt *Options) any { return &opt.ReinforcePlusPlus },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.ReinforcePlusPlus(dst, nil, b, opt.ReinforcePlusPlus)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.ReinforcePlusPlus(b, opt.ReinforcePlusPlus.Gamma)
		},
	},
	{
		Name: "reinforce++_baseline", Synonyms: []string{"reinforce_plus_plus_baseline", "reinforce_baseline"}, Title: "REINFORCE++-baseline", Source: "2501.03262",
		Doc:     "the reward less the mean of its group, whitened",
		Formula: "r - mean_g on every token, whitened over the batch",
		Kind:    Advantage, Method: "ReinforcePlusPlusBaseline", golden: "baselines.json",
		Reads: outcome, Alias: anywhere,
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.ReinforcePlusPlusBaseline(dst, b)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.ReinforcePlusPlusBaseline(b) },
	},
	otb("DefaultOTB", func(opt *Options) *reweight.OTBOptions { return &opt.OTB }, Entry{
		Name: "otb", Synonyms: []string{"optimal_token_baseline"}, Title: "OTB", Source: "verl",
		Doc:     "rewards to come, less a baseline of each position",
		Formula: "G_t - ΣGW/(ΣW + 1e-8) over the trajectories of g with a response token at the position of t; G_t = r_t + G_next, W_t = W_before + 1 - 2 e^l_old + Σp²",
	}),
	otb("DefaultOTBTurns", func(opt *Options) *reweight.OTBOptions { return &opt.OTBTurns }, Entry{
		Name: "otb_turns", Synonyms: []string{"tir_optimal_token_baseline"}, Title: "OTB over turns", Source: "verl",
		Doc:     "as OTB, with positions that count response tokens alone",
		Formula: "as OTB, the position being the place among the response tokens of the trajectory",
	}),
	{
		Name: "gigpo", Title: "GiGPO", Source: "2505.10978",
		Doc:     "groups of trajectories, and of spans that begin in one state",
		Formula: "E_q + ω B_s: E_q = r - mean_g; B_s is G_s = r_s + γ G_next less its mean over the spans of g with the same anchor, 0 if there is no other",
		Kind:    Advantage, Method: "GiGPO", DefaultName: "DefaultGiGPO", golden: "gigpo.json",
		Reads: []string{"seq_offsets", "group_ids", "span_ids", "rewards", "anchors", "span_rewards"}, Alias: anywhere,
		options: func(opt *Options) any { return &opt.GiGPO },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GiGPO(dst, b, opt.GiGPO) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			o := opt.GiGPO
			return reference.GiGPO(b, reference.GiGPOOptions{Gamma: o.Gamma, Omega: o.Omega, DivideByStd: o.DivideByStd, PerStep: o.PerStep})
		},
	},
	{
		Name: "gtpo", Title: "GTPO", Source: "2508.04349",
		Doc:     "rewards shaped by the entropy of single tokens",
		Formula: "as GRPO-S, with H of the j-th response token for H̄_q",
		Kind:    Advantage, Method: "GTPO", DefaultName: "DefaultGTPO", golden: "gtpo.json", SingleEntropies: true,
		Reads: []string{"seq_offsets", "group_ids", "rewards", "entropy"}, Alias: []string{"entropy"},
		options:   func(opt *Options) any { return &opt.GTPO },
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GTPO(dst, b, opt.GTPO) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.GTPO(b, shaping(opt.GTPO)) },
	},
	{
		Name: "grpo_s", Title: "GRPO-S", Source: "2508.04349",
		Doc:     "rewards shaped by the mean entropy of trajectories",
		Formula: "successes: u = `Base` r + `Bonus` n H̄_q/ΣH̄; failures: u = -`Base` - `Bonus` n v/Σv, v = 1/H̄_q; A is u normalised, see below",
		Kind:    Advantage, Method: "GRPOS", DefaultName: "DefaultGRPOS", golden: "gtpo.json",
		Reads: []string{"seq_offsets", "group_ids", "rewards", "entropy"}, Alias: []string{"entropy"},
		options:   func(opt *Options) any { return &opt.GRPOS },
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GRPOS(dst, b, opt.GRPOS) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.GRPOS(b, shaping(opt.GRPOS)) },
	},
	{
		Name: "opo", Title: "OPO", Source: "2505.23585",
		Doc:     "the reward less a mean for which long responses count more",
		Formula: "r - Σ_g n_q r/Σ_g n_q",
		Kind:    Advantage, Method: "OPO", golden: "opo.json",
		Reads: outcome, Alias: anywhere,
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.OPO(dst, b) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.OPO(b) },
	},
	{
		Name: "pass_at_k", Synonyms: []string{"grpo_passk"}, Title: "pass@k", Source: "2503.19595",
		Doc:     "the best of each group, by how far it is above the second",
		Formula: "(r - second highest of g)/(std_g + 1e-6) for the highest of g, 0 for others",
		Kind:    Advantage, Method: "PassAtK", DefaultName: "DefaultPassAtK", golden: "pass_at_k.json",
		Reads: outcome, Alias: anywhere,
		options: func(opt *Options) any { return &opt.PassAtK },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.PassAtK(dst, b, opt.PassAtK)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.PassAtK(b, opt.PassAtK.DivideByStd) },
	},
	{
		Name: "gdpo", Title: "GDPO", Source: "2601.05242",
		Doc:     "the parts of the reward within their group, added up, whitened",
		Formula: "Σ_k w_k (r_k - mean_gk)/(std_gk + 1e-6) over the parts r_k of the reward, on every token, whitened over the batch; w are `RewardWeights`, or 1",
		Kind:    Advantage, Method: "GDPO", DefaultName: "DefaultGDPO", golden: "gdpo.json",
		Reads: []string{"seq_offsets", "group_ids", "reward_parts"}, Alias: anywhere,
		options: func(opt *Options) any { return &opt.GDPO },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GDPO(dst, b, opt.GDPO) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.GDPO(b, opt.GDPO.DivideByStd, opt.GDPO.RewardWeights)
		},
	},
	{
		Name: "gpg_advantages", Title: "GPG", Source: "2504.02546",
		Doc:     "the reward less the mean of its group, more where few have one",
		Formula: "(r - mean_g) S/(number of trajectories of the batch with r other than 0)",
		Kind:    Advantage, Method: "GPG", golden: "gpg.json", part: true,
		Reads: outcome, Alias: anywhere,
		call:      func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.GPG(dst, b) },
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.GPG(b) },
	},
	{
		Name: "gae", Title: "GAE", Source: "1506.02438",
		Doc:     "the advantages of PPO with a critic, whitened",
		Formula: "δ + γλ A_next, δ = r_t + γ v_next - v, whitened over the batch",
		Kind:    Advantage, Method: "GAE", DefaultName: "DefaultGAE", golden: "gae.json",
		Reads: []string{"seq_offsets", "values", tokenRewards}, Alias: []string{"token_rewards"},
		options: func(opt *Options) any { return &opt.GAE },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			if err := ws.GAE(dst, nil, b.TokenRewards, b, opt.GAE); err != nil {
				return err
			}
			return ws.Whiten(dst, dst, b.Role)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 { return whitened(b, opt.GAE) },
	},
	{
		Name: "empg", Title: "EMPG", Source: "2509.09265",
		Doc:     "others', by the entropy of spans, with a bonus for the next",
		Formula: "M less the mean over spans of M's mean in each, M = A g_s + ζ f_next; g_s = e^(-k x)/mean, f = e^(-k' x), k and k' are `K` and `KFuture`; x is H̄_s scaled to [0, 1] over the batch, and the mean is over its spans",
		Kind:    Advantage, Method: "EMPG", DefaultName: "DefaultEMPG", golden: "empg.json",
		Reads: []string{"seq_offsets", "span_ids", "advantages", "entropy"}, Alias: []string{"advantages", "entropy"},
		options: func(opt *Options) any { return &opt.EMPG },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.EMPG(dst, b, opt.EMPG) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			o := opt.EMPG
			return reference.EMPG(b, reference.EMPGOptions{K: o.K, KFuture: o.KFuture, Zeta: o.Zeta})
		},
	},
	{
		Name: "entropy_mask", Title: "high-entropy tokens", Source: "2506.01939",
		Doc:     "the fifth of the tokens with the highest entropies",
		Formula: "1 where H is at least the K-th largest, K = ⌊`Rho` n + 0.9999⌋",
		Kind:    Weight, Method: "EntropyMask", DefaultName: "DefaultEntropyMask", golden: "entropy_mask.json", SingleEntropies: true,
		Reads: []string{"entropy"}, Alias: []string{"entropy"},
		options: func(opt *Options) any { return &opt.EntropyMask },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			_, err := ws.EntropyMask(dst, b, opt.EntropyMask)
			return err
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			mask, _ := reference.EntropyMask(b, opt.EntropyMask.Rho)
			return mask
		},
	},
	policy(&reweight.DefaultGSPO, Entry{
		Name: "gspo", Title: "GSPO", Source: "2507.18071",
		Doc:         "the ratio of the sequence",
		Formula:     "as PPO with s = e^(mean_q(l - l_old)) for ρ, the mean being at most 10",
		DefaultName: "DefaultGSPO",
	}),
	policy(&reweight.DefaultLUSPO, Entry{
		Name: "luspo", Title: "LUSPO", Source: "2602.05261",
		Doc:         "GSPO with sums over tokens",
		Formula:     "as GSPO",
		DefaultName: "DefaultLUSPO",
	}),
	policy(&reweight.DefaultGRPOSLoss, Entry{
		Name: "grpo_s_ratio", Title: "GRPO-S", Source: "2508.04349",
		Doc:         "the mean ratio of the sequence, the other half of GRPO-S",
		Formula:     "as PPO with s = mean_q ρ for ρ",
		DefaultName: "DefaultGRPOSLoss",
	}),
	policy(&reweight.DefaultCISPO, Entry{
		Name: "cispo", Title: "CISPO", Source: "2506.13585",
		Doc:         "a clipped ratio that is a constant",
		Formula:     "-A sg[clip(ρ, 1-lo, 1+hi)] l",
		DefaultName: "DefaultCISPO",
	}),
	policy(&reweight.DefaultSAPO, Entry{
		Name: "sapo", Title: "SAPO", Source: "2511.20347",
		Doc:         "a soft gate in place of the clip",
		Formula:     "-A (4/τ) sigmoid(τ (ρ - 1)), τ is `TauPos` where A > 0 and `TauNeg` elsewhere",
		DefaultName: "DefaultSAPO",
	}),
	policy(&reweight.DefaultPG, Entry{
		Name: "pg", Title: "PG", Source: "2504.02546",
		Doc:         "the policy gradient without a ratio",
		Formula:     "-A l",
		DefaultName: "DefaultPG",
	}),
	policy(&reweight.DefaultDPPOTV, Entry{
		Name: "dppo_tv", Title: "DPPO-TV", Source: "2602.04879",
		Doc:         "tokens whose probability has moved too far are left out",
		Formula:     "-A sg[min(ρ, `RatioCap`)] l; 0 where A > 0 and e^l - e^l_old > hi, or A <= 0 and e^l - e^l_old < -lo",
		DefaultName: "DefaultDPPOTV",
	}),
	policy(&reweight.DefaultVESPO, Entry{
		Name: "vespo", Title: "VESPO", Source: "2602.10693",
		Doc:         "a gate on the ratio of the trajectory",
		Formula:     "-A sg[φ] l, φ = e^(b + k y - b e^y), y = Σ_q (l - l_old), kept between log 1e-8 and 20; k and b are `PowerPos` and `DecayPos`, where A < 0 `PowerNeg` and `DecayNeg`",
		DefaultName: "DefaultVESPO",
	}),
	policy(&reweight.DefaultDPPOKL, Entry{
		Name: "dppo_kl", Title: "DPPO-KL", Source: "2602.04879",
		Doc:         "tokens whose divergence has grown too far are left out",
		Formula:     "as DPPO-TV; 0 where A > 0, l > l_old and kl > hi, or A <= 0, l < l_old and kl > lo; kl = q log(q/p) + (1-q) log((1-q + 1e-8)/(1-p + 1e-8)), q = e^l_old, p = e^l",
		DefaultName: "DefaultDPPOKL", golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultDRO, Entry{
		Name: "dro", Title: "DRO", Source: "verl",
		Doc:         "the policy gradient with a quadratic penalty",
		Formula:     "-(A l - `Beta` (l - l_old)²/2)",
		DefaultName: "DefaultDRO", golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultGMPO, Entry{
		Name: "gmpo", Synonyms: []string{"geo_mean"}, Title: "GMPO", Source: "2507.20673",
		Doc:         "the geometric mean of the trajectory's ratios",
		Formula:     "of a trajectory -Ā_q e^(m̄_q), bars over A and m being sums divided by n_q + 1e-8; m = l - l_old, at most hi where A > 0, at least -lo where A < 0, and 0 where A = 0",
		DefaultName: "DefaultGMPO", golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultClipCov, Entry{
		Name: "clip_cov", Title: "Clip-Cov", Source: "2505.22617",
		Doc:         "some tokens of high covariance are left out",
		Formula:     "as PPO, and 0 for max(1, ⌊`CovShare` n⌋) of the tokens that PPO does not clip and c is between `CovLow` and `CovHigh`, drawn by `Seed`; c = (A - mean A)(l - mean l) over the n tokens of the batch",
		DefaultName: "DefaultClipCov", golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultKLCov, Entry{
		Name: "kl_cov", Title: "KL-Cov", Source: "2505.22617",
		Doc:         "tokens of the highest covariance have a penalty",
		Formula:     "-Aρ, and + `CovCoef` abs(l - l_old) for the max(1, ⌊`CovShare` n⌋) tokens of largest c",
		DefaultName: "DefaultKLCov", golden: "verl_losses.json",
	}),
	policy(&seqMeanTokenMean, Entry{
		Name: "seq_mean_token_mean", Title: "PPO", Source: "verl",
		Doc:     "PPO, the mean over trajectories of means over tokens",
		Formula: "as PPO",
		part:    true,
	}),
	policy(&seqMeanTokenSum, Entry{
		Name: "seq_mean_token_sum", Title: "PPO", Source: "verl",
		Doc:     "PPO, the mean over trajectories of sums over tokens",
		Formula: "as PPO",
		part:    true,
	}),
	policy(&seqMeanTokenSumNorm, Entry{
		Name: "seq_mean_token_sum_norm", Title: "PPO", Source: "verl",
		Doc:     "PPO, sums over tokens, divided by one length",
		Formula: "as PPO",
		part:    true,
	}),
	{
		Name: "tis", Synonyms: []string{"correction"}, Title: "truncated importance sampling", Source: "verl",
		Doc:     "the truncated ratio to the engine that sampled",
		Formula: "clamp(u, `Low`, `High`), u = e^(l_old - l_rollout)",
		Kind:    Factor, Method: "RolloutCorrection", DefaultName: "DefaultRolloutCorrection", golden: "rollout_correction.json", ratio: true,
		Reads: ofRollout, Masked: 1, Alias: []string{"old_logprobs", "rollout_logprobs"},
		options: func(opt *Options) any { return &opt.TIS },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.RolloutCorrection(dst, b, opt.TIS)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.RolloutCorrection(b, correction(opt.TIS))
		},
	},
	{
		Name: "icepop", Title: "IcePop", Source: "verl",
		Doc:     "the ratio to the engine that sampled, 0 outside its bounds",
		Formula: "u if `Low` <= u <= `High`, else 0",
		Kind:    Factor, Method: "RolloutCorrection", DefaultName: "DefaultIcePop", golden: "rollout_correction.json", ratio: true,
		Reads: ofRollout, Masked: 1, Alias: []string{"old_logprobs", "rollout_logprobs"},
		options: func(opt *Options) any { return &opt.IcePop },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.RolloutCorrection(dst, b, opt.IcePop)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.RolloutCorrection(b, correction(opt.IcePop))
		},
	},
	{
		Name: "reject", Title: "rejection", Source: "verl",
		Doc:     "0 for tokens whose ratio to the engine is outside its bounds",
		Formula: "1 if `Low` <= e^(l_rollout - l_old) <= `High`",
		Kind:    Weight, Method: "Reject", DefaultName: "DefaultReject", golden: "rollout_correction.json",
		Reads: ofRollout, Alias: []string{"old_logprobs", "rollout_logprobs"},
		options: func(opt *Options) any { return &opt.Reject },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.Reject(dst, b, opt.Reject) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.Reject(b, reference.RejectionStatistic(opt.Reject.Statistic.String()), opt.Reject.Low, opt.Reject.High)
		},
	},
	{
		Name: "off_policy_mask", Synonyms: []string{"opsm"}, Title: "off-policy mask", Source: "DeepSeek-V3.2",
		Doc:     "0 for advantages below 0 where the trajectory's policy has moved",
		Formula: "0 where A < 0 and mean_q(l_old - l) > δ, else 1",
		Kind:    Factor, Method: "OffPolicyMask", golden: "rollout_correction.json",
		Reads: []string{"seq_offsets", "advantages", "old_logprobs", "logprobs"}, Masked: 1, Alias: []string{"advantages", "old_logprobs", "logprobs"},
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return ws.OffPolicyMask(dst, b, opt.Delta)
		},
		reference: func(b *reference.Batch, opt *Options) []float64 { return reference.OffPolicyMask(b, opt.Delta) },
	},
	{
		Name: "fipo", Title: "FIPO", Source: "2603.19835",
		Doc:     "by how far the policy has moved at the tokens after",
		Formula: "clamp(e^K, 1, 1 + `Clip`), K_t = d_t + 2^(-1/`HalfLife`) K_next, d = l - l_old, 0 where e^d > `Filter`; from 0.8 to 1 where A < 0 and e^d > `Safety`; see below",
		Kind:    Factor, Method: "FIPO", DefaultName: "DefaultFIPO", golden: "fipo.json",
		Reads: []string{"seq_offsets", "advantages", "old_logprobs", "logprobs"}, Masked: 1, Alias: []string{"advantages", "old_logprobs", "logprobs"},
		options: func(opt *Options) any { return &opt.FIPO },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.FIPO(dst, b, opt.FIPO) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			o := opt.FIPO
			return reference.FIPO(b, reference.FIPOOptions{HalfLife: o.HalfLife, Filter: o.Filter, Clip: o.Clip, HighOnly: o.HighOnly, Safety: o.Safety})
		},
	},
	{
		Name: "rlsd", Title: "RLSD", Source: "2604.03128",
		Doc:     "by what a teacher that knows the answer thinks of the token",
		Formula: "1 - λ + λ clamp(e^(sgn(A)(l_teacher - l_old)), 1 - `Clip`, 1 + `Clip`)",
		Kind:    Factor, Method: "RLSD", DefaultName: "DefaultRLSD", golden: "rlsd.json",
		Reads: []string{"seq_offsets", "advantages", "old_logprobs", "teacher_logprobs"}, Masked: 1, Alias: []string{"advantages", "old_logprobs", "teacher_logprobs"},
		options: func(opt *Options) any { return &opt.RLSD },
		call:    func(ws *workspace, dst []float32, b *batch, opt *Options) error { return ws.RLSD(dst, b, opt.RLSD) },
		reference: func(b *reference.Batch, opt *Options) []float64 {
			return reference.RLSD(b, opt.RLSD.Lambda, opt.RLSD.Clip, opt.RLSD.NegativeOnly)
		},
	},
	{
		Name: "value_loss", Title: "value loss", Source: "verl",
		Doc:     "the clipped loss of the critic, beside that of the policy",
		Formula: "max((v - G)², (clamp(v, v_old ± `Clip`) - G)²)/2",
		Kind:    Critic, Method: "ValueLoss", DefaultName: "DefaultValueLoss", golden: "value_loss.json", part: true,
		Reads: []string{"new_values", "values", "returns"}, Alias: []string{"new_values", "values", "returns"},
		reads: func(opt *Options) []string {
			if opt.ValueLoss.Aggregation == reweight.TokenMean {
				return []string{"new_values", "values", "returns"}
			}
			return []string{"new_values", "values", "returns", "seq_offsets"}
		},
		options: func(opt *Options) any { return &opt.ValueLoss },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			_, err := ws.ValueLoss(dst, b, opt.ValueLoss)
			return err
		},
		reference: func(b *reference.Batch, opt *Options) []float64 {
			o := opt.ValueLoss
			return reference.ValueLoss(b, o.Clip, aggregating(o.Aggregation, o.NormLength)).Gradient
		},
	},
}

// leftOut has the names of verl that no entry has.
var leftOut = [...]string{
	"bypass_mode", // of losses
	"remax",       // of advantages
}
