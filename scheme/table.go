package scheme

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
)

// Options are those of the entries, each with the constants of its paper in what Parse
// returns. Loss is that of the scheme's loss.
type Options struct {
	Overlong          reweight.OverlongPenaltyOptions
	KLRewards         reweight.KLRewardsOptions
	GRPO              reweight.GRPOOptions // group_mean never divides
	ReinforcePlusPlus reweight.ReinforcePlusPlusOptions
	GiGPO             reweight.GiGPOOptions
	TurnReturns       reweight.TurnReturnsOptions
	MTGRPO            reweight.MTGRPOOptions
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
	OffPolicyMask     OffPolicyMaskOptions
	ActFocus          reweight.ActFocusOptions
	EntropyMask       reweight.EntropyMaskOptions
	ClipB             reweight.ClipBOptions
	ClipV             reweight.ClipVOptions
	Reject            reweight.RejectOptions
	Loss              reweight.LossOptions
	ValueLoss         reweight.ValueLossOptions
}

// OffPolicyMaskOptions are the argument of OffPolicyMask, as the options of an entry. A Delta of
// NaN is one that nobody has set.
type OffPolicyMaskOptions struct {
	Delta float64 // nats, finite; there is no default
}

func defaults() Options {
	return Options{
		Overlong: reweight.DefaultOverlongPenalty, KLRewards: reweight.DefaultKLRewards, GRPO: reweight.DefaultGRPO,
		ReinforcePlusPlus: reweight.DefaultReinforcePlusPlus, GiGPO: reweight.DefaultGiGPO,
		TurnReturns: reweight.DefaultTurnReturns, MTGRPO: reweight.DefaultMTGRPO, OTB: reweight.DefaultOTB,
		OTBTurns: reweight.DefaultOTBTurns, GTPO: reweight.DefaultGTPO, GRPOS: reweight.DefaultGRPOS,
		GAE: reweight.DefaultGAE, PassAtK: reweight.DefaultPassAtK, GDPO: reweight.DefaultGDPO,
		EMPG: reweight.DefaultEMPG, AEM: reweight.DefaultAEM, TIS: reweight.DefaultRolloutCorrection,
		IcePop: reweight.DefaultIcePop, FIPO: reweight.DefaultFIPO, RLSD: reweight.DefaultRLSD,
		OffPolicyMask: OffPolicyMaskOptions{math.NaN()}, ActFocus: reweight.DefaultActFocus,
		EntropyMask: reweight.DefaultEntropyMask, ClipB: reweight.DefaultClipB, ClipV: reweight.DefaultClipV,
		Reject: reweight.DefaultReject, Loss: reweight.DefaultLoss, ValueLoss: reweight.DefaultValueLoss,
	}
}

type (
	workspace = reweight.Workspace
	batch     = reweight.Batch
)

const tokenRewards = "token_rewards|rewards" // of the tokens, or the outcome at the last of them

var (
	outcome    = []string{"seq_offsets", "group_ids", "rewards"}
	ofTurns    = []string{"seq_offsets", "group_ids", "span_ids", "rewards", "span_rewards"}
	ofRollout  = []string{"seq_offsets", "old_logprobs", "rollout_logprobs"}
	ofBaseline = []string{"seq_offsets", "group_ids", "old_logprobs", "sum_sq_probs", tokenRewards}
	anywhere   = []string{Any}
)

// A computation is what an entry computes.
type computation struct {
	options   func(opt *Options) any // its part of them, a pointer; nil for none
	call      func(ws *workspace, dst []float32, b *batch, opt *Options) error
	reference func(b *reference.Batch, opt *Options) []float64 // the same in float64
}

// with returns the computation of a method whose options are the part of all.
func with[O any](part func(opt *Options) *O, method func(ws *workspace, dst []float32, b *batch, opt O) error,
	exact func(b *reference.Batch, opt O) []float64) computation {
	return computation{
		options: func(opt *Options) any { return part(opt) },
		call: func(ws *workspace, dst []float32, b *batch, opt *Options) error {
			return method(ws, dst, b, *part(opt))
		},
		reference: func(b *reference.Batch, opt *Options) []float64 { return exact(b, *part(opt)) },
	}
}

// without returns the computation of a method without options.
func without(method func(ws *workspace, dst []float32, b *batch) error,
	exact func(b *reference.Batch) []float64) computation {
	return computation{
		call:      func(ws *workspace, dst []float32, b *batch, _ *Options) error { return method(ws, dst, b) },
		reference: func(b *reference.Batch, _ *Options) []float64 { return exact(b) },
	}
}

// silent leaves out what a method returns besides the error.
func silent[O, R any](
	method func(*workspace, []float32, *batch, O) (R, error),
) func(*workspace, []float32, *batch, O) error {
	return func(ws *workspace, dst []float32, b *batch, opt O) error {
		_, err := method(ws, dst, b, opt)
		return err
	}
}

// aggregated returns the clipped surrogate in another aggregation.
func aggregated(a reweight.Aggregation) *reweight.LossOptions {
	opt := reweight.DefaultLoss
	opt.Aggregation = a
	return &opt
}

// policy makes an entry of the loss with those options.
func policy(opt *reweight.LossOptions, e Entry) *Entry {
	e.Kind, e.Method, e.C, e.Dst, e.loss = Loss, "Loss", "loss", "grad", opt
	e.reads = func(opt *Options) []string { return lossReads(&opt.Loss) }
	e.Reads, e.Alias = lossReads(opt), []string{"logprobs", "old_logprobs", "advantages", "ref_logprobs"}
	e.computation = with(func(opt *Options) *reweight.LossOptions { return &opt.Loss },
		func(ws *workspace, dst []float32, b *batch, opt reweight.LossOptions) error {
			_, err := ws.Loss(dst, nil, b, opt)
			return err
		},
		func(b *reference.Batch, opt reweight.LossOptions) []float64 {
			_, gradient := exactLoss(b, nil, &opt)
			return gradient
		})
	e.golden = cmp.Or(e.golden, "policy_losses.json")
	return &e
}

// lossReads returns what a loss with those options reads.
func lossReads(opt *reweight.LossOptions) []string {
	all := []string{"advantages", "logprobs", "old_logprobs"}
	traits := traitsOf(opt.Policy)
	if opt.Aggregation != reweight.TokenMean || traits.BySequence {
		all = append(all, "seq_offsets")
	}
	if traits.BySpan {
		all = append(all, "span_ids")
	}
	if opt.KLCoef != 0 {
		all = append(all, "ref_logprobs")
	}
	return all
}

// table is the catalogue, in the order of reports. A step goes through it kind by kind.
var table = []*Entry{
	policy(&reweight.DefaultLoss, Entry{
		Name: "uniform", Synonyms: []string{"vanilla", "ppo", "bnpo", "token_mean"}, Title: "PPO", Source: "1707.06347",
		Doc:         "the clipped surrogate, averaged over tokens",
		Formula:     "max(-Aρ, -A clip(ρ, 1-lo, 1+hi)); where A < 0 at most -A `DualClip`",
		DefaultName: "DefaultLoss", golden: "policy_loss.json",
		Flags: []Flag{
			{"clip-low", "ClipLow", "loss: the ratio is clipped below 1 minus this, 0 to 1"},
			{"clip-high", "ClipHigh", "loss: the ratio is clipped above 1 plus this, at least 0"},
			{"dual-clip", "DualClip", "loss: bound of the ratio where the advantage is negative, above 1; 0 for none"},
			{"aggregation", "Aggregation", "loss: `name` of the aggregation: token_mean, seq_mean_token_sum, seq_mean_token_mean or seq_mean_token_sum_norm"},
			{"norm-length", "NormLength", "loss: `tokens` that seq_mean_token_sum_norm divides by; 0 for the tokens of the longest trajectory"},
			{"kl", "KL", "`form` of the KL: k1, k2, k3, abs, k1+, k3+ or abs+, or verl's name of it"},
			{"kl-coef", "KLCoef", "the loss has this many times the KL from the reference in it; 0 for none"},
		},
	}),
	{
		Name: "actfocus", Title: "ActFocus", Source: "2605.14558",
		Doc:     "little for reasoning tokens, for action tokens by their energy",
		Formula: "α; 1 + β sigmoid((E - μ)/σ) for action tokens",
		Kind:    Weight, Method: "ActFocus", C: "actfocus", Dst: "weights", DefaultName: "DefaultActFocus",
		golden: "actfocus.json", OverBatch: true,
		Reads: []string{"ref_energy"}, Alias: []string{"ref_energy"},
		reads: func(opt *Options) []string {
			if opt.ActFocus.Beta == 0 {
				return nil
			}
			return opt.ActFocus.Signal.Arrays()
		},
		Flags: []Flag{
			{"alpha", "Alpha", "ActFocus: weight of reasoning tokens, 0 to 1"},
			{"beta", "Beta", "ActFocus: strength of the signal at action tokens, at least 0"},
			{"eps", "Eps", "ActFocus: added to the signal's variance, at least 0"},
			{"signal", "Signal", "ActFocus: `name` of the signal: energy, ref_entropy, surprisal or log_ratio"},
		},
		computation: with(func(opt *Options) *reweight.ActFocusOptions { return &opt.ActFocus },
			silent((*workspace).ActFocus),
			func(b *reference.Batch, o reweight.ActFocusOptions) []float64 {
				signal := reference.Signal(o.Signal.String())
				return reference.ActFocus(b, reference.ActFocusOptions{Signal: signal, Alpha: o.Alpha, Beta: o.Beta,
					Eps: o.Eps})
			}),
	},
	{
		Name: "aem", Title: "AEM", Source: "2605.00425",
		Doc:     "by the entropy of the whole response",
		Formula: "e^(-λ x)/mean; x is H̄_s scaled to [0, 1] over its group, or `Scope`, and the mean is over the spans there; 1 where max - min < `Guard`",
		Kind:    Factor, Method: "AEM", C: "aem", Dst: "factors", DefaultName: "DefaultAEM", golden: "aem.json",
		Reads: []string{"seq_offsets", "group_ids", "span_ids", "entropy"}, Masked: 1, Alias: []string{"entropy"},
		Flags: []Flag{
			{"lambda", "Lambda", "AEM: strength, 0 to 80"},
			{"guard", "Guard", "AEM: `nats` by which the responses of a scope must differ, at least 0"},
			{"scope", "Scope", "AEM: `name` of the scope that responses are compared in: group, trajectory or batch"},
		},
		computation: with(func(opt *Options) *reweight.AEMOptions { return &opt.AEM }, (*workspace).AEM,
			func(b *reference.Batch, o reweight.AEMOptions) []float64 {
				return reference.AEM(b, o.Lambda, o.Guard, reference.Scope(o.Scope.String()))
			}),
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
		Doc:     "the reward among the rewards of its group",
		Formula: "(r - mean_g)/(std_g + 1e-6)",
		Kind:    Advantage, Method: "GRPO", C: "grpo", Dst: "advantages", DefaultName: "DefaultGRPO",
		golden: "grpo.json", part: true,
		Reads: outcome, Alias: anywhere,
		Flags: []Flag{{"divide-by-std", "DivideByStd",
			"GRPO: divide by the group's standard deviation; =false is Dr. GRPO"}},
		computation: with(func(opt *Options) *reweight.GRPOOptions { return &opt.GRPO }, (*workspace).GRPO,
			func(b *reference.Batch, o reweight.GRPOOptions) []float64 { return reference.GRPO(b, o.DivideByStd) }),
	},
	{
		Name: "group_mean", Title: "Dr. GRPO", Source: "2503.20783",
		Doc:     "the reward less the mean of its group",
		Formula: "r - mean_g",
		Kind:    Advantage, Method: "GRPO", C: "grpo", Dst: "advantages", golden: "grpo.json", part: true,
		Reads: outcome, Alias: anywhere,
		computation: without(
			func(ws *workspace, dst []float32, b *batch) error { return ws.GRPO(dst, b, reweight.GRPOOptions{}) },
			func(b *reference.Batch) []float64 { return reference.GRPO(b, false) }),
	},
	{
		Name: "overlong", Synonyms: []string{"overlong_buffer"}, Title: "overlong penalty", Source: "2503.14476",
		Doc:     "a penalty for responses that are too long",
		Formula: "max(-P, min(0, -P (n_q - (Lmax - Lbuf))/Lbuf)), to be added to r; P, Lmax and Lbuf are `Penalty`, `Maximum` and `Buffer`",
		Kind:    Reward, Method: "OverlongPenalty", C: "overlong_penalty", Dst: "penalties", PerTrajectory: true,
		DefaultName: "DefaultOverlongPenalty", NotZero: []string{"Maximum", "Buffer"}, golden: "baselines.json",
		Reads: []string{"seq_offsets"}, Alias: []string{"rewards"}, part: true,
		computation: with(func(opt *Options) *reweight.OverlongPenaltyOptions { return &opt.Overlong },
			(*workspace).OverlongPenalty,
			func(b *reference.Batch, o reweight.OverlongPenaltyOptions) []float64 {
				return reference.OverlongPenalty(b, o.Maximum, o.Buffer, o.Penalty)
			}),
	},
	{
		Name: "kl_rewards", Synonyms: []string{"use_kl_in_reward"}, Title: "KL in the reward", Source: "verl",
		Doc:     "per token: the trajectory's, less the KL from the reference",
		Formula: "r_t = [last response token] r - `KLCoef` k_t of l_old against l_ref",
		Kind:    Reward, Method: "KLRewards", C: "kl_rewards", Dst: "rewards", DefaultName: "DefaultKLRewards",
		golden: "kl.json", part: true,
		Reads: []string{"seq_offsets", "rewards", "old_logprobs", "ref_logprobs"}, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.KLRewardsOptions { return &opt.KLRewards },
			(*workspace).KLRewards, klRewards),
	},
	{
		Name: "group_filter", Synonyms: []string{"filter_groups"}, Title: "group filter", Source: "2503.14476",
		Doc:     "0 for groups of equal rewards",
		Formula: "1 if the rewards of the group differ, or it has one member",
		Kind:    Weight, Method: "GroupFilter", C: "group_filter", Dst: "weights", golden: "baselines.json", part: true,
		Reads: outcome, Alias: anywhere,
		computation: without((*workspace).GroupFilter, reference.GroupFilter),
	},
	{
		Name: "rloo", Synonyms: []string{"rloo_vectorized"}, Title: "RLOO", Source: "2402.14740",
		Doc:     "the reward less the mean of the others in its group",
		Formula: "n/(n-1) (r - mean_g)",
		Kind:    Advantage, Method: "RLOO", C: "rloo", Dst: "advantages", golden: "baselines.json",
		Reads: outcome, Alias: anywhere,
		computation: without((*workspace).RLOO, reference.RLOO),
	},
	{
		Name: "reinforce++", Synonyms: []string{"reinforce_plus_plus", "reinforce"}, Title: "REINFORCE++",
		Source:  "2501.03262",
		Doc:     "discounted sums of token rewards, whitened",
		Formula: "G_t = r_t + γ G_next, whitened over the batch",
		Kind:    Advantage, Method: "ReinforcePlusPlus", C: "reinforce_plus_plus", Dst: "advantages",
		DefaultName: "DefaultReinforcePlusPlus", NotZero: []string{"Gamma"}, golden: "baselines.json", OverBatch: true,
		Reads: []string{"seq_offsets", tokenRewards}, Alias: []string{"token_rewards"},
		computation: with(func(opt *Options) *reweight.ReinforcePlusPlusOptions { return &opt.ReinforcePlusPlus },
			func(ws *workspace, dst []float32, b *batch, o reweight.ReinforcePlusPlusOptions) error {
				return ws.ReinforcePlusPlus(dst, nil, b, o)
			},
			func(b *reference.Batch, o reweight.ReinforcePlusPlusOptions) []float64 {
				return reference.ReinforcePlusPlus(b, o.Gamma)
			}),
	},
	{
		Name: "reinforce++_baseline", Synonyms: []string{"reinforce_plus_plus_baseline", "reinforce_baseline"},
		Title: "REINFORCE++-baseline", Source: "2501.03262",
		Doc:     "the reward less the mean of its group, whitened",
		Formula: "r - mean_g on every token, whitened over the batch",
		Kind:    Advantage, Method: "ReinforcePlusPlusBaseline", C: "reinforce_plus_plus_baseline", Dst: "advantages",
		golden: "baselines.json", OverBatch: true,
		Reads: outcome, Alias: anywhere,
		computation: without((*workspace).ReinforcePlusPlusBaseline, reference.ReinforcePlusPlusBaseline),
	},
	{
		Name: "otb", Synonyms: []string{"optimal_token_baseline"}, Title: "OTB", Source: "verl",
		Doc:     "rewards to come, less a baseline of each position",
		Formula: "G_t - ΣGW/(ΣW + 1e-8) over the trajectories of g with a response token at the position of t; G_t = r_t + G_next, W_t = W_before + 1 - 2 e^l_old + Σp²; with `ZeroTail` G_t alone where the longest of g has no other, see below",
		Kind:    Advantage, Method: "OTB", C: "otb", Dst: "advantages", DefaultName: "DefaultOTB", golden: "otb.json",
		Reads: ofBaseline, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.OTBOptions { return &opt.OTB }, (*workspace).OTB,
			func(b *reference.Batch, o reweight.OTBOptions) []float64 {
				return reference.OTB(b, reference.OTBOptions(o))
			}),
	},
	{
		Name: "otb_turns", Synonyms: []string{"tir_optimal_token_baseline"}, Title: "OTB over turns", Source: "verl",
		Doc:     "as OTB, with positions that count response tokens alone",
		Formula: "as OTB, the position being the place among the response tokens of the trajectory",
		Kind:    Advantage, Method: "OTB", C: "otb", Dst: "advantages", DefaultName: "DefaultOTBTurns",
		golden: "otb.json",
		Reads:  ofBaseline, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.OTBOptions { return &opt.OTBTurns }, (*workspace).OTB,
			func(b *reference.Batch, o reweight.OTBOptions) []float64 {
				return reference.OTB(b, reference.OTBOptions(o))
			}),
	},
	{
		Name: "gigpo", Title: "GiGPO", Source: "2505.10978",
		Doc:     "groups of trajectories, and of spans that begin in one state",
		Formula: "E_q + ω B_s: E_q = r - mean_g; B_s is G_s = r_s + γ G_next less its mean over the spans of g with the same anchor, 0 if there is no other",
		Kind:    Advantage, Method: "GiGPO", C: "gigpo", Dst: "advantages", DefaultName: "DefaultGiGPO",
		golden: "gigpo.json",
		Reads:  []string{"seq_offsets", "group_ids", "span_ids", "rewards", "anchors", "span_rewards"}, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.GiGPOOptions { return &opt.GiGPO }, (*workspace).GiGPO,
			func(b *reference.Batch, o reweight.GiGPOOptions) []float64 {
				return reference.GiGPO(b, reference.GiGPOOptions(o))
			}),
	},
	{
		Name: "turn_returns", Title: "returns of turns", Source: "reweight",
		Doc:     "rewards of turns to come, less the others' of its group",
		Formula: "G_k less the mean of G_min(k, K_p) over the others p of g; G_k = r_k + γ G_next over the turns (spans), G_K = r_K + r, K_p the last turn of p",
		Kind:    Advantage, Method: "TurnReturns", C: "turn_returns", Dst: "advantages",
		DefaultName: "DefaultTurnReturns", NotZero: []string{"Gamma"}, golden: "turns.json",
		Reads: ofTurns, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.TurnReturnsOptions { return &opt.TurnReturns },
			(*workspace).TurnReturns, func(b *reference.Batch, o reweight.TurnReturnsOptions) []float64 {
				return reference.TurnReturns(b, o.Gamma, o.DivideByStd)
			}),
	},
	{
		Name: "mt_grpo", Title: "MT-GRPO", Source: "2505.11821",
		Doc:     "rewards of turns less those of the same turn, and outcomes",
		Formula: "B_k + λ E, in the last turn E; B_k is (r_k - mean)/(std + 1e-6) over the k-th turns (spans) of g, E the same of r + r_K over g; see below",
		Kind:    Advantage, Method: "MTGRPO", C: "mt_grpo", Dst: "advantages",
		DefaultName: "DefaultMTGRPO", NotZero: []string{"Lambda"}, golden: "mt_grpo.json",
		Reads: ofTurns, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.MTGRPOOptions { return &opt.MTGRPO },
			(*workspace).MTGRPO, func(b *reference.Batch, o reweight.MTGRPOOptions) []float64 {
				return reference.MTGRPO(b, o.Lambda, o.DivideByStd)
			}),
	},
	{
		Name: "gtpo", Title: "GTPO", Source: "2508.04349",
		Doc:     "rewards shaped by the entropy of single tokens",
		Formula: "as GRPO-S, with H of the j-th response token for H̄_q",
		Kind:    Advantage, Method: "GTPO", C: "gtpo", Dst: "advantages", DefaultName: "DefaultGTPO",
		NotZero: []string{"EntropyHigh"}, golden: "gtpo.json", SingleEntropies: true,
		Reads: []string{"seq_offsets", "group_ids", "rewards", "entropy"}, Alias: []string{"entropy"},
		computation: with(func(opt *Options) *reweight.GTPOOptions { return &opt.GTPO }, (*workspace).GTPO,
			func(b *reference.Batch, o reweight.GTPOOptions) []float64 { return reference.GTPO(b, shaping(o)) }),
	},
	{
		Name: "grpo_s", Title: "GRPO-S", Source: "2508.04349",
		Doc:     "rewards shaped by the mean entropy of trajectories",
		Formula: "successes: u = `Base` r + `Bonus` n H̄_q/ΣH̄; failures: u = -`Base` - `Bonus` n v/Σv, v = 1/H̄_q; A is u normalised, see below",
		Kind:    Advantage, Method: "GRPOS", C: "grpo_s", Dst: "advantages", DefaultName: "DefaultGRPOS",
		NotZero: []string{"EntropyHigh"}, golden: "gtpo.json",
		Reads: []string{"seq_offsets", "group_ids", "rewards", "entropy"}, Alias: []string{"entropy"},
		computation: with(func(opt *Options) *reweight.GTPOOptions { return &opt.GRPOS }, (*workspace).GRPOS,
			func(b *reference.Batch, o reweight.GTPOOptions) []float64 { return reference.GRPOS(b, shaping(o)) }),
	},
	{
		Name: "opo", Title: "OPO", Source: "2505.23585",
		Doc:     "the reward less a mean for which long responses count more",
		Formula: "r - Σ_g n_q r/Σ_g n_q",
		Kind:    Advantage, Method: "OPO", C: "opo", Dst: "advantages", golden: "opo.json",
		Reads: outcome, Alias: anywhere,
		computation: without((*workspace).OPO, reference.OPO),
	},
	{
		Name: "pass_at_k", Synonyms: []string{"grpo_passk"}, Title: "pass@k", Source: "2503.19595",
		Doc:     "the best of each group, by how far it is above the second",
		Formula: "(r - second highest of g)/(std_g + 1e-6) for the highest of g, 0 for others",
		Kind:    Advantage, Method: "PassAtK", C: "pass_at_k", Dst: "advantages", DefaultName: "DefaultPassAtK",
		golden: "pass_at_k.json",
		Reads:  outcome, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.PassAtKOptions { return &opt.PassAtK }, (*workspace).PassAtK,
			func(b *reference.Batch, o reweight.PassAtKOptions) []float64 {
				return reference.PassAtK(b, o.DivideByStd)
			}),
	},
	{
		Name: "gdpo", Title: "GDPO", Source: "2601.05242",
		Doc:     "the parts of the reward within their group, added up, whitened",
		Formula: "Σ_k w_k (r_k - mean_gk)/(std_gk + 1e-6) over the parts r_k of the reward, on every token, whitened over the batch; w are `RewardWeights`, or 1",
		Kind:    Advantage, Method: "GDPO", C: "gdpo", Dst: "advantages", DefaultName: "DefaultGDPO",
		golden: "gdpo.json", OverBatch: true,
		Reads: []string{"seq_offsets", "group_ids", "reward_parts"}, Alias: anywhere,
		computation: with(func(opt *Options) *reweight.GDPOOptions { return &opt.GDPO }, (*workspace).GDPO,
			func(b *reference.Batch, o reweight.GDPOOptions) []float64 {
				return reference.GDPO(b, o.DivideByStd, o.RewardWeights)
			}),
	},
	{
		Name: "gpg_advantages", Title: "GPG", Source: "2504.02546",
		Doc:     "the reward less the mean of its group, more where few have one",
		Formula: "(r - mean_g) S/(number of trajectories of the batch with r other than 0)",
		Kind:    Advantage, Method: "GPG", C: "gpg_advantages", Dst: "advantages", golden: "gpg.json", part: true,
		Reads: outcome, Alias: anywhere,
		computation: without((*workspace).GPG, reference.GPG),
	},
	{
		Name: "gae", Title: "GAE", Source: "1506.02438",
		Doc:     "the advantages of PPO with a critic, whitened",
		Formula: "δ + γλ A_next, δ = r_t + γ v_next - v, whitened over the batch",
		Kind:    Advantage, Method: "GAE", C: "gae", Dst: "advantages", DefaultName: "DefaultGAE", golden: "gae.json",
		OverBatch: true,
		Reads:     []string{"seq_offsets", "values", tokenRewards}, Alias: []string{"token_rewards"},
		computation: with(func(opt *Options) *reweight.GAEOptions { return &opt.GAE },
			func(ws *workspace, dst []float32, b *batch, o reweight.GAEOptions) error {
				if err := ws.GAE(dst, nil, b.TokenRewards, b, o); err != nil {
					return err
				}
				return ws.Whiten(dst, dst, b.Role)
			},
			whitened),
	},
	{
		Name: "empg", Title: "EMPG", Source: "2509.09265",
		Doc:     "others', by the entropy of spans, with a bonus for the next",
		Formula: "M less the mean over spans of M's mean in each, M = A g_s + ζ f_next; g_s = e^(-k x)/mean, f = e^(-k' x), k and k' are `K` and `KFuture`; x is H̄_s scaled to [0, 1] over the batch, and the mean is over its spans",
		Kind:    Advantage, Method: "EMPG", C: "empg", Dst: "advantages", DefaultName: "DefaultEMPG",
		golden: "empg.json", OverBatch: true,
		Reads: []string{"seq_offsets", "span_ids", "advantages", "entropy"}, Alias: []string{"advantages", "entropy"},
		computation: with(func(opt *Options) *reweight.EMPGOptions { return &opt.EMPG }, (*workspace).EMPG,
			func(b *reference.Batch, o reweight.EMPGOptions) []float64 {
				return reference.EMPG(b, reference.EMPGOptions(o))
			}),
	},
	{
		Name: "entropy_mask", Title: "high-entropy tokens", Source: "2506.01939",
		Doc:     "the fifth of the tokens with the highest entropies",
		Formula: "1 where H is at least the K-th largest, K = ⌊`Rho` n + 0.9999⌋",
		Kind:    Weight, Method: "EntropyMask", C: "entropy_mask", Dst: "mask", DefaultName: "DefaultEntropyMask",
		NotZero: []string{"Rho"}, golden: "entropy_mask.json", SingleEntropies: true,
		Reads: []string{"entropy"}, Alias: []string{"entropy"},
		computation: with(func(opt *Options) *reweight.EntropyMaskOptions { return &opt.EntropyMask },
			silent((*workspace).EntropyMask),
			func(b *reference.Batch, o reweight.EntropyMaskOptions) []float64 {
				mask, _ := reference.EntropyMask(b, o.Rho)
				return mask
			}),
	},
	{
		Name: "clip_b", Title: "Clip_B", Source: "2602.03392",
		Doc:     "0 for advantages below 0 where they would sharpen the policy most",
		Formula: "0 where A < 0 and S is below its mean over the batch by more than `Mu` standard deviations, else 1; S = e^l_old (H + l_old)",
		Kind:    Weight, Method: "ClipB", C: "clip_b", Dst: "weights", DefaultName: "DefaultClipB",
		NotZero: []string{"Mu"}, golden: "clip_b.json",
		SingleEntropies: true, OverBatch: true,
		Reads: []string{"advantages", "old_logprobs", "entropy"},
		Alias: []string{"advantages", "old_logprobs", "entropy"},
		computation: with(func(opt *Options) *reweight.ClipBOptions { return &opt.ClipB }, (*workspace).ClipB,
			func(b *reference.Batch, o reweight.ClipBOptions) []float64 { return reference.ClipB(b, o.Mu) }),
	},
	{
		Name: "clip_v", Title: "Clip_V", Source: "2602.03392",
		Doc: "0 for the few advantages below 0 that lower the entropy most",
		Formula: "0 where A < 0 and D is above `Mu` standard deviations over the batch, else 1; " +
			"D = Σp²(H + log p) - e^l_old (H + l_old), Σ over the vocabulary; " +
			"at most max(1, ⌊`MaxShare` n⌋) tokens have 0, of the largest D",
		Kind: Weight, Method: "ClipV", C: "clip_v", Dst: "weights", DefaultName: "DefaultClipV",
		NotZero: []string{"Mu", "MaxShare"}, golden: "clip_v.json",
		SingleEntropies: true, OverBatch: true,
		Reads: []string{"advantages", "old_logprobs", "entropy", "entropy_drop"},
		Alias: []string{"advantages", "old_logprobs", "entropy", "entropy_drop"},
		computation: with(func(opt *Options) *reweight.ClipVOptions { return &opt.ClipV }, (*workspace).ClipV,
			func(b *reference.Batch, o reweight.ClipVOptions) []float64 {
				return reference.ClipV(b, o.Mu, o.MaxShare)
			}),
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
		DefaultName: "DefaultSAPO", NotZero: []string{"TauPos", "TauNeg"},
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
		DefaultName: "DefaultDPPOTV", NotZero: []string{"RatioCap"},
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
		DefaultName: "DefaultDPPOKL", NotZero: []string{"RatioCap"}, golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultDRO, Entry{
		Name: "dro", Title: "DRO", Source: "verl",
		Doc:         "the policy gradient with a quadratic penalty",
		Formula:     "-(A l - `Beta` (l - l_old)²/2)",
		DefaultName: "DefaultDRO", NotZero: []string{"Beta"}, NoDefault: "Beta", golden: "verl_losses.json",
		Flags: []Flag{{"dro-beta", "Beta", "dro: of the quadratic penalty, above 0; it has no default"}},
	}),
	policy(&reweight.DefaultGMPO, Entry{
		Name: "gmpo", Synonyms: []string{"geo_mean"}, Title: "GMPO", Source: "2507.20673",
		Doc:         "the geometric mean of the trajectory's ratios",
		Formula:     "of a trajectory -Ā_q e^(m̄_q), bars over A and m being sums divided by n_q + 1e-8, m̄ at most 20; m = l - l_old, at most hi where A > 0, at least -lo where A < 0, and 0 where A = 0",
		DefaultName: "DefaultGMPO", golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultClipCov, Entry{
		Name: "clip_cov", Title: "Clip-Cov", Source: "2505.22617",
		Doc:         "some tokens of high covariance are left out",
		Formula:     "as PPO, and 0 for max(1, ⌊`CovShare` n⌋) of the tokens that PPO does not clip and c is between `CovLow` and `CovHigh`, drawn by `Seed`; c = (A - mean A)(l - mean l) over the n tokens of the batch",
		DefaultName: "DefaultClipCov", NotZero: []string{"CovShare", "CovHigh"}, golden: "verl_losses.json",
	}),
	policy(&reweight.DefaultKLCov, Entry{
		Name: "kl_cov", Title: "KL-Cov", Source: "2505.22617",
		Doc:         "tokens of the highest covariance have a penalty",
		Formula:     "-Aρ, and + `CovCoef` abs(l - l_old) for the max(1, ⌊`CovShare` n⌋) tokens of largest c",
		DefaultName: "DefaultKLCov", NotZero: []string{"CovShare"}, golden: "verl_losses.json",
	}),
	policy(aggregated(reweight.SeqMeanTokenMean), Entry{
		Name: "seq_mean_token_mean", Title: "PPO", Source: "verl",
		Doc:     "PPO, the mean over trajectories of means over tokens",
		Formula: "as PPO",
		part:    true,
	}),
	policy(aggregated(reweight.SeqMeanTokenSum), Entry{
		Name: "seq_mean_token_sum", Title: "PPO", Source: "verl",
		Doc:     "PPO, the mean over trajectories of sums over tokens",
		Formula: "as PPO",
		part:    true,
	}),
	policy(aggregated(reweight.SeqMeanTokenSumNorm), Entry{
		Name: "seq_mean_token_sum_norm", Title: "PPO", Source: "verl",
		Doc:     "PPO, sums over tokens, divided by one length",
		Formula: "as PPO",
		part:    true,
	}),
	{
		Name: "tis", Synonyms: []string{"correction"}, Title: "truncated importance sampling", Source: "verl",
		Doc:     "the truncated ratio to the engine that sampled",
		Formula: "clamp(u, `Low`, `High`), u = e^(l_old - l_rollout)",
		Kind:    Factor, Method: "RolloutCorrection", C: "rollout_correction", Dst: "factors",
		DefaultName: "DefaultRolloutCorrection", NotZero: []string{"High"}, golden: "rollout_correction.json",
		One:   oneRatio,
		Reads: ofRollout, Masked: 1, Alias: []string{"old_logprobs", "rollout_logprobs"},
		computation: with(func(opt *Options) *reweight.RolloutCorrectionOptions { return &opt.TIS },
			(*workspace).RolloutCorrection, rolloutCorrection),
	},
	{
		Name: "icepop", Title: "IcePop", Source: "verl",
		Doc:     "the ratio to the engine that sampled, 0 outside its bounds",
		Formula: "u if `Low` <= u <= `High`, else 0",
		Kind:    Factor, Method: "RolloutCorrection", C: "rollout_correction", Dst: "factors",
		DefaultName: "DefaultIcePop", NotZero: []string{"High"}, golden: "rollout_correction.json", One: oneRatio,
		Reads: ofRollout, Masked: 1, Alias: []string{"old_logprobs", "rollout_logprobs"},
		computation: with(func(opt *Options) *reweight.RolloutCorrectionOptions { return &opt.IcePop },
			(*workspace).RolloutCorrection, rolloutCorrection),
	},
	{
		Name: "reject", Title: "rejection", Source: "verl",
		Doc:     "0 for tokens whose ratio to the engine is outside its bounds",
		Formula: "1 if `Low` <= e^(l_rollout - l_old) <= `High`",
		Kind:    Weight, Method: "Reject", C: "reject", Dst: "weights", DefaultName: "DefaultReject",
		NotZero: []string{"Low", "High"}, golden: "rollout_correction.json",
		Reads: ofRollout, Alias: []string{"old_logprobs", "rollout_logprobs"},
		computation: with(func(opt *Options) *reweight.RejectOptions { return &opt.Reject }, (*workspace).Reject,
			func(b *reference.Batch, o reweight.RejectOptions) []float64 {
				return reference.Reject(b, reference.RejectionStatistic(o.Statistic.String()), o.Low, o.High)
			}),
	},
	{
		Name: "off_policy_mask", Synonyms: []string{"opsm"}, Title: "off-policy mask", Source: "DeepSeek-V3.2",
		Doc:     "0 for advantages below 0 where the trajectory's policy has moved",
		Formula: "0 where A < 0 and mean_q(l_old - l) > δ, else 1",
		Kind:    Factor, Method: "OffPolicyMask", C: "off_policy_mask", Dst: "factors",
		golden: "rollout_correction.json",
		Reads:  []string{"seq_offsets", "advantages", "old_logprobs", "logprobs"}, Masked: 1,
		Alias:     []string{"advantages", "old_logprobs", "logprobs"},
		NoDefault: "Delta",
		Flags:     []Flag{{"delta", "Delta", "`nats` by which the policy may have moved on average for off_policy_mask; it has no default"}},
		computation: with(func(opt *Options) *OffPolicyMaskOptions { return &opt.OffPolicyMask },
			func(ws *workspace, dst []float32, b *batch, o OffPolicyMaskOptions) error {
				return ws.OffPolicyMask(dst, b, o.Delta)
			},
			func(b *reference.Batch, o OffPolicyMaskOptions) []float64 { return reference.OffPolicyMask(b, o.Delta) }),
	},
	{
		Name: "fipo", Title: "FIPO", Source: "2603.19835",
		Doc:     "by how far the policy has moved at the tokens after",
		Formula: "clamp(e^K, 1, 1 + `Clip`), K_t = d_t + 2^(-1/`HalfLife`) K_next, d = l - l_old, 0 where e^d > `Filter`; from 0.8 to 1 where A < 0 and e^d > `Safety`; see below",
		Kind:    Factor, Method: "FIPO", C: "fipo", Dst: "factors", DefaultName: "DefaultFIPO",
		NotZero: []string{"HalfLife", "Filter", "Clip", "Safety"}, golden: "fipo.json",
		Reads: []string{"seq_offsets", "advantages", "old_logprobs", "logprobs"}, Masked: 1,
		Alias: []string{"advantages", "old_logprobs", "logprobs"},
		computation: with(func(opt *Options) *reweight.FIPOOptions { return &opt.FIPO }, (*workspace).FIPO,
			func(b *reference.Batch, o reweight.FIPOOptions) []float64 {
				return reference.FIPO(b, reference.FIPOOptions(o))
			}),
	},
	{
		Name: "rlsd", Title: "RLSD", Source: "2604.03128",
		Doc:     "by what a teacher that knows the answer thinks of the token",
		Formula: "1 - λ + λ clamp(e^(sgn(A)(l_teacher - l_old)), 1 - `Clip`, 1 + `Clip`)",
		Kind:    Factor, Method: "RLSD", C: "rlsd", Dst: "factors", DefaultName: "DefaultRLSD",
		NotZero: []string{"Lambda", "Clip"}, golden: "rlsd.json",
		Reads: []string{"seq_offsets", "advantages", "old_logprobs", "teacher_logprobs"}, Masked: 1,
		Alias: []string{"advantages", "old_logprobs", "teacher_logprobs"},
		computation: with(func(opt *Options) *reweight.RLSDOptions { return &opt.RLSD }, (*workspace).RLSD,
			func(b *reference.Batch, o reweight.RLSDOptions) []float64 {
				return reference.RLSD(b, o.Lambda, o.Clip, o.NegativeOnly)
			}),
	},
	{
		Name: "value_loss", Title: "value loss", Source: "verl",
		Doc:     "the clipped loss of the critic, beside the loss of the policy",
		Formula: "max((v - G)², (clamp(v, v_old ± `Clip`) - G)²)/2",
		Kind:    Critic, Method: "ValueLoss", C: "value_loss", Dst: "grad", DefaultName: "DefaultValueLoss",
		NotZero: []string{"Clip"}, golden: "value_loss.json", part: true,
		Reads: []string{"new_values", "values", "returns"}, Alias: []string{"new_values", "values", "returns"},
		reads: func(opt *Options) []string {
			if opt.ValueLoss.Aggregation == reweight.TokenMean {
				return []string{"new_values", "values", "returns"}
			}
			return []string{"new_values", "values", "returns", "seq_offsets"}
		},
		computation: with(func(opt *Options) *reweight.ValueLossOptions { return &opt.ValueLoss },
			silent((*workspace).ValueLoss),
			func(b *reference.Batch, o reweight.ValueLossOptions) []float64 {
				return reference.ValueLoss(b, o.Clip, aggregating(o.Aggregation, o.NormLength)).Gradient
			}),
	},
}

// leftOut has the names of verl that no entry has.
var leftOut = [...]string{
	"bypass_mode", // of losses
	"remax",       // of advantages
}
